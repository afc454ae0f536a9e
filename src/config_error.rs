//! Faults of a configuration, collected so that one error reports all of them.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::escape::Escaped;
use crate::limits::LONGEST;

/// All faults of one configuration.
///
/// Displays one fault per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The faults, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }

    /// The number of faults; at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The same faults, located in the nested graph of a node.
    pub(crate) fn within(mut self, node: &str) -> ConfigErrors {
        for fault in &mut self.0 {
            fault.field = format!("{} in the graph {}", fault.field, shown(node));
        }
        self
    }

    /// The same faults, located at a node of a graph.
    pub(crate) fn of_node(mut self, node: &str) -> ConfigErrors {
        for fault in &mut self.0 {
            fault.field = format!("node {}, {}", shown(node), fault.field);
        }
        self
    }

    /// Whether there is no fault; always `false` for an error that a call returned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(fault: ConfigError) -> Self {
        ConfigErrors(vec![fault])
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl StdError for ConfigErrors {}

/// A setting that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {}: it {rule}; {fix}", Escaped(value))]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting or argument, as a path: `stall.interval`; `id` for the id of a job.
    pub field: String,
    /// What it was set to.
    pub value: String,
    /// The rule it breaks: `must be 1 s to 24 h`.
    pub rule: String,
    /// What to do about it.
    pub fix: String,
}

impl ConfigError {
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        ConfigError { field: field.into(), value: value.into(), rule: rule.into(), fix: fix.into() }
    }
}

/// How many characters of an invalid value are shown.
const SHOWN_CHARS: usize = 160;

/// Collects faults, so that one error reports all of them.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<ConfigError>);

impl Faults {
    pub(crate) fn push(&mut self, fault: ConfigError) {
        self.0.push(fault);
    }

    /// Adds the fault that [`ConfigError::new`] makes.
    pub(crate) fn add(
        &mut self,
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.push(ConfigError::new(field, value, rule, fix));
    }

    pub(crate) fn extend(&mut self, faults: ConfigErrors) {
        self.0.extend(faults);
    }

    /// The checked value; if it has faults, adds them and returns `None`.
    pub(crate) fn gather<T>(&mut self, checked: Result<T, ConfigErrors>) -> Option<T> {
        checked.map_err(|faults| self.0.extend(faults)).ok()
    }

    /// `Ok` if there is no fault.
    pub(crate) fn finish(self) -> Result<(), ConfigErrors> {
        if self.0.is_empty() { Ok(()) } else { Err(ConfigErrors(self.0)) }
    }

    /// Checks that a number is in this range.
    pub(crate) fn number(&mut self, field: &str, value: u64, least: u64, most: u64) {
        if value < least || value > most {
            let rule = format!("must be {least} to {most}");
            let fix = if value < least { format!("use {least} or more") } else { format!("use {most} or less") };
            self.push(ConfigError::new(field, value.to_string(), rule, fix));
        }
    }

    /// Checks that a time is not longer than `most`.
    pub(crate) fn at_most(&mut self, field: &str, value: Duration, most: Duration) {
        if value > most {
            let most = if most == LONGEST { "10 years".to_owned() } else { format!("{most:?}") };
            let rule = format!("must be at most {most}");
            let fix = format!("use {most} or less");
            self.push(ConfigError::new(field, format!("{value:?}"), rule, fix));
        }
    }
}

/// Quotes a text and shortens it, for use in a fault.
pub(crate) fn shown(text: &str) -> String {
    let mut head: String = text.chars().take(SHOWN_CHARS).collect();
    if head.len() < text.len() {
        head.push('…');
    }
    format!("{head:?}")
}

/// Checks a name: not empty, at most `most` bytes, and only allowed bytes.
pub(crate) fn text(
    field: &str,
    value: &str,
    most: usize,
    allowed: impl Fn(u8) -> bool,
    rule: &str,
    fix: &str,
) -> Result<(), ConfigErrors> {
    if !value.is_empty() && value.len() <= most && value.bytes().all(allowed) {
        return Ok(());
    }
    Err(ConfigError::new(field, shown(value), rule, fix).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_errors_show_one_fault_a_line() {
        let fault = |field: &str| ConfigError::new(field, "0", "must be 1 to 5", "use 1");
        let mut faults = Faults::default();
        assert_eq!(faults.gather(Ok(1)), Some(1));
        faults.push(fault("a"));
        assert_eq!(faults.gather::<u8>(Err(fault("b").into())), None);
        let error = faults.finish().unwrap_err();
        assert_eq!(error.len(), 2);
        let text = "a is 0: it must be 1 to 5; use 1\nb is 0: it must be 1 to 5; use 1";
        assert_eq!(error.to_string(), text);
    }
}
