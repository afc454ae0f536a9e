//! The rules that settings, names and ids must keep. All faults are gathered and reported together.

use std::time::Duration;

use crate::error::{ConfigError, ConfigErrors};

/// Longest time that any setting takes: 10 years of 365 days. Far from every overflow on the way to Redis.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Largest payload limit: Redis takes 512 MiB for one value, and some is left for the call around it.
pub(crate) const PAYLOAD_LIMIT_MAX: usize = 511 * 1024 * 1024;

/// The most bytes of JSON that a handler may return: a slow line should not take minutes for one value.
pub(crate) const RESULT_LIMIT: usize = 64 * 1024 * 1024;

/// Longest part of a wrong name that is shown.
const SHOWN_CHARS: usize = 160;

/// Gathers faults, so that one report names them all.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<ConfigError>);

impl Faults {
    /// Adds a fault.
    pub(crate) fn push(&mut self, fault: ConfigError) {
        self.0.push(fault);
    }

    /// `Ok` when every rule was kept.
    pub(crate) fn finish(self) -> Result<(), ConfigErrors> {
        ConfigErrors::check(self.0)
    }

    pub(super) fn number(&mut self, field: &str, value: u64, least: u64, most: u64) {
        if value < least || value > most {
            let rule = format!("must be {least} to {most}");
            let fix = if value < least { format!("use {least} or more") } else { format!("use {most} or less") };
            self.push(ConfigError::new(field, value.to_string(), rule, fix));
        }
    }

    pub(super) fn interval(&mut self, value: Duration) {
        const LEAST: Duration = Duration::from_secs(1);
        const MOST: Duration = Duration::from_secs(86_400);
        if value < LEAST {
            self.push(ConfigError::new(
                "stall.interval",
                format!("{value:?}"),
                "must be 1 s to 24 h",
                "use 1 s or more: shorter ones take network delays for death",
            ));
        } else if value > MOST {
            self.push(ConfigError::new(
                "stall.interval",
                format!("{value:?}"),
                "must be 1 s to 24 h",
                "use 24 h or less: it is no time limit for the job, workers beat three times in it",
            ));
        }
    }

    pub(super) fn timeout(&mut self, value: Duration) {
        if value.is_zero() {
            self.push(ConfigError::new(
                "timeout",
                format!("{value:?}"),
                "must be more than 0",
                "leave it out for no timeout",
            ));
        }
        self.at_most("timeout", value, LONGEST);
    }

    pub(super) fn at_most(&mut self, field: &str, value: Duration, most: Duration) {
        if value > most {
            let most = if most == LONGEST { "10 years".to_owned() } else { format!("{most:?}") };
            let rule = format!("must be at most {most}");
            let fix = format!("use {most} or less");
            self.push(ConfigError::new(field, format!("{value:?}"), rule, fix));
        }
    }

    pub(super) fn factor(&mut self, field: &str, value: f32) {
        if !value.is_finite() || value < 1.0 {
            self.push(ConfigError::new(
                field,
                value.to_string(),
                "must be finite and at least 1",
                "use 1 for equal delays, 2 to double them",
            ));
        }
    }

    pub(super) fn max_delay(&mut self, field: &str, value: Duration, first: Duration) {
        self.at_most(field, value, LONGEST);
        if value < first {
            self.push(ConfigError::new(
                field,
                format!("{value:?}"),
                format!("must be at least the first delay, {first:?}"),
                "raise it or lower the first delay",
            ));
        }
    }
}

/// How many events a subscription may hold.
pub(crate) fn event_capacity(events: usize) -> Result<(), ConfigErrors> {
    let mut faults = Faults::default();
    faults.number("event_capacity", events as u64, 1, 1_000_000);
    faults.finish()
}

fn shown(text: &str) -> String {
    let mut head: String = text.chars().take(SHOWN_CHARS).collect();
    if head.len() < text.len() {
        head.push('…');
    }
    format!("{head:?}")
}

fn text(
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

/// A task name: `[A-Za-z0-9._-]{1,128}`, since it stands in the hash tag of its keys.
pub(crate) fn task_name(name: &str) -> Result<(), ConfigErrors> {
    text(
        "task",
        name,
        128,
        |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'),
        "must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '_' and '-'",
        "use a name like \"long-export\"",
    )
}

/// A job id: 1 to 128 bytes of printable ASCII. No space, since events list ids with spaces between; no braces,
/// so that an id is never taken for a hash tag.
pub(crate) fn job_id(id: &str) -> Result<(), ConfigErrors> {
    text(
        "id",
        id,
        128,
        |b| b.is_ascii_graphic() && !matches!(b, b'{' | b'}'),
        "must be 1 to 128 bytes of printable ASCII without space, '{' and '}'",
        "use an id like \"export-7\", or a hash of the longer key",
    )
}

/// A key prefix: `[A-Za-z0-9._:-]{1,64}`, without braces, since the hash tag comes after it.
pub(crate) fn prefix(prefix: &str) -> Result<(), ConfigErrors> {
    text(
        "prefix",
        prefix,
        64,
        |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'),
        "must be 1 to 64 characters of A-Z, a-z, 0-9, '.', '_', ':' and '-'",
        "use a prefix like \"heartline\"",
    )
}

/// How long a dispatch is repeated.
pub(crate) fn dispatch_timeout(timeout: Duration) -> Result<(), ConfigErrors> {
    const RULE: &str = "must be 100 ms to 1 h";
    let fix = if timeout < Duration::from_millis(100) {
        "use 100 ms or more: a lost answer takes as long to notice"
    } else if timeout > Duration::from_secs(3600) {
        "use 1 h or less, and dispatch again"
    } else {
        return Ok(());
    };
    Err(ConfigError::new("dispatch_timeout", format!("{timeout:?}"), RULE, fix).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Overrides;
    use proptest::prelude::*;

    #[test]
    fn names_ids_and_prefixes_keep_their_rules() {
        for good in ["a", "long-export", "A.b_c-9", "x".repeat(128).as_str()] {
            assert!(task_name(good).is_ok() && job_id(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a:b", "{a}", "ä", "a\n", "x".repeat(129).as_str()] {
            assert!(task_name(bad).is_err(), "{bad}");
        }
        for good in ["user:7/export#1", "!\"~", "a|b"] {
            assert!(job_id(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a{b", "a}b", "é", "\u{7f}", "\0", "x".repeat(129).as_str()] {
            assert!(job_id(bad).is_err(), "{bad}");
        }
        assert!(prefix("app:prod.eu_1-x").is_ok());
        for bad in ["", "a{b}", "a b", "x".repeat(65).as_str()] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn any_text_gets_an_answer_of_bounded_length() {
        proptest!(|(text in ".*", times in 1usize..50)| {
            let text = text.repeat(times);
            for result in [task_name(&text), job_id(&text), prefix(&text)] {
                if let Err(faults) = result {
                    prop_assert!(faults.iter().all(|fault| fault.value.chars().count() < 2_000));
                }
            }
        });
    }

    #[test]
    fn a_delay_has_an_end() {
        let delayed = |delay| Overrides { delay: Some(delay), ..Overrides::default() }.validate();
        assert!(delayed(LONGEST).is_ok() && delayed(Duration::ZERO).is_ok());
        let faults = delayed(Duration::MAX).unwrap_err();
        assert!(faults.to_string().ends_with("it must be at most 10 years; use 10 years or less"));
    }

    #[test]
    fn numbers_and_factors_are_bounded() {
        let mut faults = Faults::default();
        for value in [1, 5] {
            faults.number("n", value, 1, 5);
        }
        faults.factor("f", 1.0);
        faults.interval(Duration::from_secs(1));
        faults.interval(Duration::from_secs(86_400));
        faults.timeout(Duration::from_nanos(1));
        assert!(faults.finish().is_ok());

        let mut faults = Faults::default();
        faults.number("n", 0, 1, 5);
        faults.number("n", 6, 1, 5);
        for factor in [f32::NAN, f32::INFINITY, 0.99, -1.0] {
            faults.factor("f", factor);
        }
        faults.interval(Duration::from_millis(999));
        faults.interval(Duration::from_secs(86_401));
        faults.timeout(Duration::ZERO);
        faults.timeout(Duration::MAX);
        assert_eq!(faults.finish().unwrap_err().len(), 10);
    }
}
