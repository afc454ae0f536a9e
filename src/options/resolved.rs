//! The options in force.

use std::fmt;
use std::time::Duration;

use super::key::Keyed;
use super::modes::{Durability, EventMode, Priority};
use super::overrides::Overrides;
use super::phases::PhaseWaits;
use super::rate::Limits;
use super::retention::ResolvedRetention;
use super::retry::RetryPolicy;
use super::stall::{Heartbeat, OnCrash, OnLockRisk};

/// The options of a task, with every default filled in and every rule checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) interval: Duration,
    pub(crate) max_count: u32,
    /// Whether the task or the dispatch set `max_count`; a default of the app does not count.
    pub(crate) max_count_set: bool,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) on_risk: OnLockRisk,
    pub(crate) on_crash: OnCrash,
    /// How long silent jobs wait beyond the interval.
    pub(crate) grace: PhaseWaits,
    pub(crate) retry: RetryPolicy,
    /// The codes that are retried; `None`: all.
    pub(crate) retried_codes: Option<Vec<String>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: Prefetch,
    /// Over all workers.
    pub(crate) limits: Limits,
    pub(crate) keyed: Keyed,
    pub(crate) priority: Priority,
    pub(crate) shutdown_grace: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) retention: ResolvedRetention,
    /// Bytes.
    pub(crate) payload_limit: usize,
    pub(crate) events: EventMode,
    pub(crate) undecodable_for: Duration,
    pub(crate) durability: Durability,
    /// Whether outcomes wait for replicas too.
    pub(crate) settle_replicated: bool,
    /// How many partitions the task should have; `None`: as many as it has.
    pub(crate) partitions: Option<u32>,
    /// Whether the task has a hook, which runs before a job ends.
    pub(crate) has_hook: bool,
}

/// How many jobs a worker claims ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    /// At most as many as its slots finish in one round trip. It hands them back if they do not.
    Adaptive,
    /// Up to this many.
    Fixed(usize),
}

impl Prefetch {
    /// How many jobs it may hold for long that do not run.
    pub(crate) fn kept(self) -> usize {
        match self {
            Prefetch::Adaptive => 0,
            Prefetch::Fixed(jobs) => jobs,
        }
    }
}

impl fmt::Display for Prefetch {
    /// As declared: `auto` or a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prefetch::Adaptive => f.write_str("auto"),
            Prefetch::Fixed(jobs) => jobs.fmt(f),
        }
    }
}

/// The first delay of a job whose payload cannot be read; each further one is twice as long.
const UNDECODABLE_PAUSE: Duration = Duration::from_secs(10);

/// The longest such delay.
const UNDECODABLE_PAUSE_MAX: Duration = Duration::from_secs(600);

impl Resolved {
    /// The next delay of a job whose payload could not be read, after `before` earlier delays; `None` when
    /// `undecodable_for` is over.
    pub(crate) fn undecodable_pause(&self, before: u32) -> Option<Duration> {
        let pause = |n: u32| (UNDECODABLE_PAUSE * (1 << n.min(10))).min(UNDECODABLE_PAUSE_MAX);
        // The first ten delays grow; all further ones are the longest.
        let first: Duration = (0..before.min(10)).map(pause).sum();
        let waited = first.saturating_add(UNDECODABLE_PAUSE_MAX.saturating_mul(before.saturating_sub(10)));
        let left = self.undecodable_for.saturating_sub(waited);
        (!left.is_zero()).then(|| pause(before).min(left))
    }

    /// The options of one of `count` partitions. `prefetch`, the limits and the counts of retention are divided; partitions
    /// share the concurrency.
    pub(crate) fn of_partition(mut self, count: u32) -> Resolved {
        let count = count.max(1);
        if let Prefetch::Fixed(jobs) = &mut self.prefetch {
            *jobs = jobs.div_ceil(count as usize);
        }
        self.limits = self.limits.of_partition(count);
        for limit in [&mut self.retention.completed, &mut self.retention.failed, &mut self.retention.cancelled] {
            limit.max_count = limit.max_count.map(|most| most.div_ceil(u64::from(count)));
        }
        self
    }

    /// The options for one job.
    pub(crate) fn with(&self, overrides: &Overrides) -> Resolved {
        let mut own = self.clone();
        if let Some(max_count) = overrides.max_count {
            own.max_count = max_count;
            own.max_count_set = true;
        }
        if let Some(retry) = &overrides.retry {
            own.retry = retry.clone();
            own.retried_codes.clone_from(&overrides.retried_codes);
        }
        if let Some(attempts) = overrides.attempts {
            own.retry = own.retry.attempts(attempts);
        }
        own.timeout = overrides.timeout.or(own.timeout);
        own.on_risk = overrides.on_risk.unwrap_or(own.on_risk);
        own.cancel_grace = overrides.cancel_grace.unwrap_or(own.cancel_grace);
        own
    }
}
