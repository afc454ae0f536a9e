//! The rules for options and names. `TaskOptions::resolve` and `Overrides::validate` apply them.

use std::time::Duration;

use super::modes::{Copies, Durability};
use crate::config_error::{ConfigError, ConfigErrors, Faults, shown, text};
use crate::job::failure::codes;
use crate::limits::{LONGEST, MIN_AGE_MS, MOST_PARTITIONS};

/// The most runs of a job.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// The most bytes of all headers of a job or an instance together.
pub(crate) const HEADERS_LIMIT: usize = 4096;

/// The longest cancel grace. A cancelled handler holds its slot for up to this time.
const CANCEL_GRACE_MAX: Duration = Duration::from_secs(3600);

/// The largest payload limit: Redis allows 512 MiB for one value, and the rest of the call needs some.
const PAYLOAD_LIMIT_MAX: usize = 511 * 1024 * 1024;

/// One check per option. Each adds a fault if the value breaks the rule.
impl Faults {
    pub(super) fn concurrency(&mut self, jobs: usize) {
        self.number("concurrency", jobs as u64, 1, 100_000);
    }

    pub(super) fn partitions(&mut self, count: u32) {
        self.number("partitions", u64::from(count), 1, u64::from(MOST_PARTITIONS));
    }

    /// Refuses a number of jobs to claim ahead, for a task with limits or keys.
    pub(super) fn no_prefetch(&mut self, jobs: Option<usize>) {
        if let Some(jobs) = jobs.filter(|jobs| *jobs > 0) {
            let rule = "must be 0 for a task with max_running, a rate or keys";
            let fix = "leave it out: a job that is claimed ahead would take the slot of another";
            self.push(ConfigError::new("prefetch", jobs.to_string(), rule, fix));
        }
    }

    pub(super) fn prefetch(&mut self, jobs: usize, concurrency: usize) {
        let most = concurrency.saturating_mul(10).max(100);
        if jobs > most {
            let rule = format!("must be at most {most}: 100, or 10 times the concurrency");
            let fix = "claim fewer ahead: other workers cannot get those jobs";
            self.push(ConfigError::new("prefetch", jobs.to_string(), rule, fix));
        }
    }

    pub(super) fn attempts(&mut self, field: &str, attempts: u32) {
        self.number(field, u64::from(attempts), 1, MOST_ATTEMPTS);
    }

    pub(super) fn retried_codes(&mut self, field: &str, retried: &[&str]) {
        if retried.is_empty() {
            let fix = "name one, or leave it out to retry every failure, or give the job one attempt";
            self.push(ConfigError::new(field, "no code", "must name at least one", fix));
        }
        for code in retried {
            let (rule, fix) = match *code {
                codes::HANDLER_ERROR | codes::PANIC | codes::TIMEOUT => continue,
                codes::WORKER_CRASHED => {
                    ("must not be worker_crashed", "set StallOptions::on_crash for jobs whose worker died")
                }
                code if codes::is_reserved(code) => {
                    ("must be a code that can be retried", "leave it out: a failure with this code is final")
                }
                code if codes::is_well_formed(code) => continue,
                _ => (
                    "must be handler_error, panic, timeout, or a code of 1 to 64 characters of a-z, 0-9 and '_'",
                    "use the code that was passed to JobError::with_code",
                ),
            };
            self.push(ConfigError::new(field, shown(code), rule, fix));
        }
    }

    pub(super) fn payload_limit(&mut self, bytes: usize) {
        self.number("payload_limit", bytes as u64, 1, PAYLOAD_LIMIT_MAX as u64);
    }

    pub(crate) fn durability(&mut self, durability: Durability) {
        if let Some(Copies { replicas, within }) = durability.copies() {
            self.number("durability.replicas", replicas.into(), 1, 100);
            if within < Duration::from_millis(1) {
                let fix = "give the replicas some hundred milliseconds";
                self.push(ConfigError::new("durability.within", format!("{within:?}"), "must be at least 1 ms", fix));
            }
            self.at_most("durability.within", within, Duration::from_secs(60));
        }
    }

    pub(super) fn settle_replicated(&mut self, waits: bool, durability: Durability) {
        if waits && durability.copies().is_none() {
            let rule = "must have a durability that names the replicas to wait for";
            let fix = "set durability(Durability::Replicated { .. }) too";
            self.push(ConfigError::new("settle_replicated", "true", rule, fix));
        }
    }

    /// A time that has no limit except that of Redis and of arithmetic.
    pub(super) fn any_time(&mut self, field: &str, value: Duration) {
        self.at_most(field, value, LONGEST);
    }

    /// How long after its dispatch a job expires if no worker has begun it.
    pub(crate) fn expires_after(&mut self, time: Duration, delay: Duration) {
        if time <= delay {
            let rule = format!("must be more than the delay, {delay:?}");
            let fix = "raise it, or leave it out for a job that never expires";
            self.push(ConfigError::new("expires_after", format!("{time:?}"), rule, fix));
        }
        self.at_most("expires_after", time, LONGEST);
    }

    pub(super) fn retention(&mut self, field: &str, age: Duration) {
        const LEAST: Duration = Duration::from_millis(MIN_AGE_MS);
        if age < LEAST {
            let rule = "must be at least 60 s: an id must be known for as long as a dispatch may be repeated";
            let fix = "use 60 s or more, or Retention::remove_at_once()";
            self.push(ConfigError::new(field, format!("{age:?}"), rule, fix));
        }
        self.any_time(field, age);
    }

    pub(super) fn cancel_grace(&mut self, value: Duration) {
        self.at_most("cancel_grace", value, CANCEL_GRACE_MAX);
    }

    /// The size of all headers of a job or an instance, names and values.
    pub(crate) fn headers(&mut self, bytes: usize) {
        if bytes > HEADERS_LIMIT {
            let rule = format!("must have at most {HEADERS_LIMIT} bytes together, names and values");
            let fix = "put large values into the payload";
            self.push(ConfigError::new("headers", format!("{bytes} bytes"), rule, fix));
        }
    }

    pub(super) fn interval(&mut self, value: Duration) {
        // Tests use shorter intervals than a network needs.
        const LEAST: Duration = Duration::from_millis(if cfg!(feature = "testing") { 100 } else { 1000 });
        const MOST: Duration = Duration::from_secs(86_400);
        let fix = if value < LEAST {
            format!("use {LEAST:?} or more: shorter ones mistake network delays for dead workers")
        } else if value > MOST {
            "use 24 h or less: it does not limit how long a job runs, since workers send three heartbeats in it".into()
        } else {
            return;
        };
        let rule = format!("must be {LEAST:?} to 24 h");
        self.push(ConfigError::new("stall.interval", format!("{value:?}"), rule, fix));
    }

    pub(super) fn phase_interval(&mut self, field: &str, value: Duration, interval: Duration) {
        if value < interval {
            let rule = format!("must be at least the interval, {interval:?}");
            let fix =
                "make the interval of the task shorter: a worker sends heartbeats for all its jobs at the same rate";
            self.push(ConfigError::new(field, format!("{value:?}"), rule, fix));
        }
        self.at_most(field, value, Duration::from_secs(86_400));
    }

    pub(super) fn timeout(&mut self, value: Duration) {
        if value.is_zero() {
            let fix = "leave it out for no timeout";
            self.push(ConfigError::new("timeout", format!("{value:?}"), "must be more than 0", fix));
        }
        self.at_most("timeout", value, LONGEST);
    }

    pub(super) fn factor(&mut self, field: &str, value: f32) {
        if !value.is_finite() || value < 1.0 {
            let fix = "use 1 for equal delays, 2 to double them";
            self.push(ConfigError::new(field, value.to_string(), "must be finite and at least 1", fix));
        }
    }

    pub(super) fn max_delay(&mut self, field: &str, value: Duration, first: Duration) {
        self.at_most(field, value, LONGEST);
        if value < first {
            let rule = format!("must be at least the first delay, {first:?}");
            self.push(ConfigError::new(field, format!("{value:?}"), rule, "raise it or lower the first delay"));
        }
    }
}

pub(crate) fn event_capacity(events: usize) -> Result<(), ConfigErrors> {
    let mut faults = Faults::default();
    faults.number("event_capacity", events as u64, 1, 1_000_000);
    faults.finish()
}

/// A task name: `[A-Za-z0-9._-]{1,128}`, since it is part of the hash tag of its keys.
pub(crate) fn task_name(name: &str) -> Result<(), ConfigErrors> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let rule = "must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '_' and '-'";
    text("task", name, 128, is_allowed, rule, "use a name like \"long-export\"")
}

/// A key prefix: `[A-Za-z0-9._:-]{1,64}`. No braces, since the hash tag follows it.
pub(crate) fn prefix(prefix: &str) -> Result<(), ConfigErrors> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    let rule = "must be 1 to 64 characters of A-Z, a-z, 0-9, '.', '_', ':' and '-'";
    text("prefix", prefix, 64, is_allowed, rule, "use a prefix like \"heartline\"")
}

pub(crate) fn dispatch_timeout(timeout: Duration) -> Result<(), ConfigErrors> {
    const RULE: &str = "must be 100 ms to 1 h";
    let fix = if timeout < Duration::from_millis(100) {
        "use 100 ms or more: it takes some time to notice a lost answer"
    } else if timeout > Duration::from_secs(3600) {
        "use 1 h or less, and dispatch again after an error"
    } else {
        return Ok(());
    };
    Err(ConfigError::new("dispatch_timeout", format!("{timeout:?}"), RULE, fix).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::JobId;
    use crate::options::overrides::Overrides;
    use proptest::prelude::*;

    #[test]
    fn names_ids_and_prefixes_keep_their_rules() {
        for good in ["a", "long-export", "A.b_c-9", "x".repeat(128).as_str()] {
            assert!(task_name(good).is_ok() && JobId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a:b", "{a}", "ä", "a\n", "x".repeat(129).as_str()] {
            assert!(task_name(bad).is_err(), "{bad}");
        }
        for good in ["user:7/export#1", "!\"~", "a|b"] {
            assert!(JobId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "a{b", "a}b", "é", "\u{7f}", "\0", "x".repeat(129).as_str()] {
            assert!(JobId::parse(bad).is_err(), "{bad}");
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
            for result in [task_name(&text), JobId::parse(&text).map(drop), prefix(&text)] {
                if let Err(faults) = result {
                    prop_assert!(faults.iter().all(|fault| fault.value.chars().count() < 2_000));
                }
            }
        });
    }

    #[test]
    fn a_delay_has_an_upper_bound() {
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
        faults.interval(Duration::from_millis(99));
        faults.interval(Duration::from_secs(86_401));
        faults.timeout(Duration::ZERO);
        faults.timeout(Duration::MAX);
        assert_eq!(faults.finish().unwrap_err().len(), 10);
    }
}
