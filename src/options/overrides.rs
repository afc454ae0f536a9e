//! The options that a dispatch sets for its own job.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::retry::RetryPolicy;
use super::stall::OnLockRisk;
use crate::config_error::{ConfigErrors, Faults};
use crate::job::tick::Tick;
use crate::unix_time::opt_ms;

/// The options that a dispatch sets for its own job. They are stored with the job as JSON, so every worker follows them.
///
/// Durations are rounded up to whole milliseconds: a timeout above 0 stays above 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Overrides {
    /// How long the job was delayed. Keep it the first field: `lua/lib/claim.lua` reads it there, for the `started` event.
    #[serde(rename = "delay_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// How many starts it counts as. It follows the delay: `lua/lib/costs.lua` reads it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// The codes that `retry` retries; `None`: all.
    #[serde(rename = "retry_on", skip_serializing_if = "Option::is_none")]
    pub retried_codes: Option<Vec<String>>,
    /// Takes precedence over the count of `retry` and over that of the worker's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    #[serde(rename = "timeout_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_risk: Option<OnLockRisk>,
    #[serde(rename = "cancel_grace_ms", with = "opt_ms", skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<Duration>,
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The tick of a schedule that the job is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick: Option<Tick>,
}

/// Strings that travel with a job next to its payload.
pub(crate) type Headers = BTreeMap<String, String>;

/// The total size of headers, names and values, in bytes.
pub(crate) fn header_bytes(headers: &Headers) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}

impl Overrides {
    /// Whether no option is set, so that nothing has to be stored.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Overrides::default()
    }

    /// Checks all options.
    ///
    /// # Errors
    /// Every rule that is broken, at once.
    pub(crate) fn validate(&self) -> Result<(), ConfigErrors> {
        let mut faults = Faults::default();
        if let Some(delay) = self.delay {
            faults.any_time("delay", delay);
        }
        if let Some(cost) = self.cost {
            faults.number("cost", u64::from(cost), 1, 1_000_000);
        }
        if let Some(retry) = &self.retry {
            retry.check(&mut faults);
        }
        if let Some(attempts) = self.attempts {
            faults.attempts("attempts", attempts);
        }
        faults.headers(header_bytes(&self.headers));
        if let Some(timeout) = self.timeout {
            faults.timeout(timeout);
        }
        if let Some(cancel_grace) = self.cancel_grace {
            faults.cancel_grace(cancel_grace);
        }
        faults.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overrides_are_compact_json() {
        assert!(Overrides::default().is_empty());
        assert_eq!(serde_json::to_string(&Overrides::default()).unwrap(), "{}");
        let overrides = Overrides {
            delay: Some(Duration::from_secs(5)),
            cost: Some(7),
            max_count: Some(0),
            retry: None,
            timeout: Some(Duration::from_micros(1)),
            on_risk: Some(OnLockRisk::Cancel),
            cancel_grace: Some(Duration::from_secs(2)),
            attempts: Some(3),
            retried_codes: Some(vec!["busy".into()]),
            headers: Headers::from([("k".into(), "v".into())]),
            tick: Some(Tick::new("nightly".to_owned(), 60_000, Some(30_000))),
        };
        assert!(!overrides.is_empty());
        assert_eq!(
            serde_json::to_string(&overrides).unwrap(),
            r#"{"delay_ms":5000,"cost":7,"max_count":0,"retry_on":["busy"],"attempts":3,"timeout_ms":1,"on_risk":"cancel","cancel_grace_ms":2000,"headers":{"k":"v"},"tick":{"schedule":"nightly","due_ms":60000,"previous_ms":30000}}"#
        );
    }

    #[test]
    fn overrides_read_back_and_ignore_unknown_fields() {
        proptest!(|(max_count: Option<u32>, timeout: Option<u64>, grace: Option<u64>, attempts: Option<u32>)| {
            let overrides = Overrides {
                delay: timeout.map(Duration::from_millis),
                max_count,
                cost: attempts,
                retry: attempts.map(|n| RetryPolicy::new().attempts(n)),
                timeout: timeout.map(Duration::from_millis),
                on_risk: None,
                cancel_grace: grace.map(Duration::from_millis),
                attempts,
                retried_codes: attempts.map(|n| vec![n.to_string()]),
                headers: Headers::from([("k".into(), String::new())]),
                tick: max_count.map(|due| Tick::new("a".to_owned(), due.into(), attempts.map(u64::from))),
            };
            let json = serde_json::to_string(&overrides).unwrap();
            prop_assert_eq!(serde_json::from_str::<Overrides>(&json).unwrap(), overrides);
        });
        assert!(serde_json::from_str::<Overrides>(r#"{"later":1}"#).unwrap().is_empty());
    }

    #[test]
    fn overrides_are_checked_too() {
        let overrides = Overrides {
            retry: Some(RetryPolicy::new().attempts(0)),
            timeout: Some(Duration::ZERO),
            cancel_grace: Some(Duration::MAX),
            ..Overrides::default()
        };
        assert_eq!(overrides.validate().unwrap_err().len(), 3);
        assert!(Overrides::default().validate().is_ok());
    }
}
