//! The options of a task, and how they are merged with those of the app.

use std::time::Duration;

use super::builder::options;
use super::key::{Keyed, Limit};
use super::modes::{Durability, EventMode, Priority};
use super::rate::{Limits, Rate};
use super::resolved::{Prefetch, Resolved};
use super::retention::Retention;
use super::retry::RetryPolicy;
use super::stall::StallOptions;
use crate::config_error::{ConfigErrors, Faults};

options! {
    /// The options of a task or, given to the app, the defaults of all its tasks.
    ///
    /// An option that is not set here comes from the app's defaults, then from the crate's. All options are checked when the task is declared,
    /// and all faults are reported together.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use heartline::{RetryPolicy, StallOptions, TaskOptions};
    /// let options = TaskOptions::new()
    ///     .concurrency(16)
    ///     .retry(RetryPolicy::new().attempts(3))
    ///     .stall(StallOptions::new().interval(Duration::from_secs(15)));
    /// ```
    pub struct TaskOptions;

    /// When a job counts as stalled, and what happens then. Merged with the app's field by field.
    pub fn stall(mut self, stall: StallOptions);

    /// How many runs a job gets, and how long it waits between them. Replaces the app's policy as a whole; a dispatch can set its own.
    ///
    /// Defaults to one run: no retry.
    pub fn retry(mut self, retry: RetryPolicy);

    /// How long one run may take. A run past this time is cancelled and counts as failed, with the code `timeout`.
    ///
    /// More than 0, at most 10 years. A dispatch can set its own. A task can change a timeout of the app, but not remove it. Code that does
    /// not yield cannot be stopped. Defaults to none.
    pub fn timeout(mut self, timeout: Duration);

    /// How many jobs of the task one worker process runs at a time. 1 to 100,000. Defaults to 10.
    pub fn concurrency(mut self, concurrency: usize);

    /// How many jobs of the task one worker process claims ahead, in addition to those that it runs. They wait in the process as
    /// [`JobState::Claimed`](crate::JobState::Claimed), with up to about 4 MiB of payloads.
    ///
    /// Without this option the worker decides by itself. It claims as many as its slots finish in one round trip to Redis, at most 50,
    /// and hands them back if no run begins or ends for two round trips, or for 2 ms if that is longer. So jobs that take
    /// milliseconds are claimed only when they run.
    ///
    /// A number makes short jobs faster still at a small concurrency, at a price: the worker keeps what it claimed, and no other
    /// worker gets it. See [performance](crate::guide::performance). Do not set one if handlers wait for jobs that the same worker may
    /// claim. 0: a job is claimed only if it runs at once. At most 100, or 10 times the concurrency if that is more. Defaults to
    /// the worker's own choice.
    pub fn prefetch(mut self, jobs: usize);

    /// How many jobs of the task run at a time, over all workers.
    ///
    /// The slot of a job is its lock: it is free again when the outcome is recorded, or when the stall detector takes the job from a dead
    /// worker. So no crash leaks a slot. A job that was retried, snoozed or delayed waits without a slot, and hooks need none. With this
    /// limit no job is claimed ahead, so `prefetch` must not be more than 0. The jobs held when a limit is declared count at once; if
    /// they are more, no further one starts until enough have ended.
    ///
    /// Partitions share the limit in equal parts, rounded down, so it must not be less than their number. 1 to 1,000,000. Defaults to no
    /// limit. See [limits](crate::guide::limits).
    pub fn max_running(mut self, jobs: u32);

    /// How many jobs of the task may start within a window, over all workers. A job that must wait holds no slot and uses no attempt.
    ///
    /// With a rate no job is claimed ahead, so `prefetch` must not be more than 0. Partitions share the starts in equal parts, rounded
    /// down, so there must not be fewer than partitions. Defaults to no rate. See [limits](crate::guide::limits).
    pub fn rate(mut self, rate: Rate);

    /// Gives each job a key from its input: the text, boolean or whole number at this JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)),
    /// such as `/customer`.
    ///
    /// The jobs of a key wait in a lane of their own, and the keys take turns: of K keys that may start jobs, each starts one within about
    /// K starts, however many jobs the others have queued. Workers declare the pointer, and every dispatch reads the key from the input,
    /// also one of a producer that does not know this option. An input without a value there is refused with
    /// [`Error::Config`](crate::Error::Config). [`Dispatch::key`](crate::Dispatch::key) sets the key of one job instead.
    ///
    /// With keys no job is claimed ahead, so `prefetch` must not be more than 0. 2 to 256 characters. Defaults to no keys. See
    /// [limits](crate::guide::limits).
    pub fn key(mut self, pointer: &'static str);

    /// The limits of each key, over all workers. Jobs without a key have none: without [`key`](TaskOptions::key), only jobs whose dispatch
    /// sets a key ([`Dispatch::key`](crate::Dispatch::key)) are limited.
    ///
    /// A slot of a key is the lock of a held job, as for [`max_running`](TaskOptions::max_running): no crash leaks one. A limit counts the
    /// jobs that are claimed after it was declared. All jobs of a key are in one partition, so a limit is not divided. Defaults to no
    /// limits. See [limits](crate::guide::limits).
    pub fn per_key(mut self, limit: Limit);

    /// How many partitions the jobs of the task are spread over, by their ids. Each partition is a table of its own, on another node of a
    /// cluster, so that several nodes share the load of the task.
    ///
    /// The first process that declares the task or dispatches to it fixes the number; others get an error if they set another one. The
    /// order of jobs and priorities hold within a partition only. See [engines](crate::guide::engines). 1 to 64. Not taken from the
    /// defaults of the app. Defaults to the existing number, or to 1.
    pub fn partitions(mut self, count: u32);

    /// The priority of jobs that are dispatched without one. Defaults to [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority);

    /// How long a shutdown waits for running jobs. Then it cancels them and hands them back, with no stall counted. 0 cancels at once; at
    /// most 10 years. Defaults to 30 s.
    pub fn shutdown_grace(mut self, shutdown_grace: Duration);

    /// How long a handler may clean up after it was cancelled or lost its job. Then its future is dropped. A run past its `timeout` is
    /// dropped at once.
    ///
    /// 0 drops at once; at most 1 h. A dispatch can set its own. Defaults to 5 s.
    pub fn cancel_grace(mut self, cancel_grace: Duration);

    /// How long terminal jobs are kept. Merged with the app's field by field.
    pub fn retention(mut self, retention: Retention);

    /// The largest encoded payload that a dispatch accepts, in bytes. 1 byte to 511 MiB. Defaults to 1 MiB.
    pub fn payload_limit(mut self, bytes: usize);

    /// Whether the task's transitions are written to its event stream. Defaults to [`EventMode::On`].
    pub fn events(mut self, events: EventMode);

    /// How long a job is postponed if its payload is not a valid input of the handler. Then it fails with the code `codec`.
    ///
    /// A producer may be deployed before its workers. Until they are deployed, the job is tried again after 10 s, then after longer pauses
    /// of up to 10 min. This uses no attempt.
    ///
    /// 0 fails the job at once; at most 10 years. Defaults to 24 h.
    pub fn undecodable_for(mut self, time: Duration);

    /// When a dispatch or a cancel counts as recorded. Each dispatch and cancel can set its own durability. Defaults to
    /// [`Durability::Memory`].
    pub fn durability(mut self, durability: Durability);

    /// Whether a call that reports outcomes waits for replicas too.
    ///
    /// It waits for as many replicas and as long as [`durability`](TaskOptions::durability) says, which must be
    /// [`Durability::Replicated`]. If fewer replicas acknowledge in time, the outcome is recorded anyway; the worker
    /// logs a warning and counts it in `heartline_not_replicated_total`. Each such call takes longer by a round trip to
    /// the replicas, or by the whole time if they are unreachable. Defaults to false.
    pub fn settle_replicated(mut self, waits: bool);
}

impl TaskOptions {
    /// The options in force: the task's own, else the app's, else the crate's.
    ///
    /// Does not check a default of the app that the task replaces. `TaskOptions::new().resolve(&defaults)` checks the app's own.
    ///
    /// # Errors
    /// Every rule that is broken, at once.
    pub(crate) fn resolve(&self, app_defaults: &TaskOptions) -> Result<Resolved, ConfigErrors> {
        let (own, mut faults) = (self.or(app_defaults), Faults::default());
        let own_stall = self.stall.clone().unwrap_or_default();
        let stall = own_stall.or(&app_defaults.stall.clone().unwrap_or_default());
        let interval = stall.interval.unwrap_or(Duration::from_secs(30));
        faults.interval(interval);
        let grace = stall.waits(interval, &mut faults);
        let retry = own.retry.unwrap_or_default();
        retry.check(&mut faults);
        if let Some(timeout) = own.timeout {
            faults.timeout(timeout);
        }
        let concurrency = own.concurrency.unwrap_or(10);
        faults.concurrency(concurrency);
        let prefetch = own.prefetch.map_or(Prefetch::Adaptive, Prefetch::Fixed);
        faults.prefetch(prefetch.kept(), concurrency);
        let limits = Limits { max_running: own.max_running, rate: own.rate };
        limits.check(self.partitions, &mut faults);
        let keyed = Keyed::new(own.key, own.per_key);
        keyed.check(&mut faults);
        // A job that is claimed ahead would take the slot of another, or the turn of another key.
        let is_limited = limits.any() || keyed.any();
        faults.no_prefetch(self.prefetch.filter(|_| is_limited));
        let prefetch = if is_limited { Prefetch::Fixed(0) } else { prefetch };
        if let Some(count) = self.partitions {
            faults.partitions(count);
        }
        let shutdown_grace = own.shutdown_grace.unwrap_or(Duration::from_secs(30));
        faults.any_time("shutdown_grace", shutdown_grace);
        let cancel_grace = own.cancel_grace.unwrap_or(Duration::from_secs(5));
        faults.cancel_grace(cancel_grace);
        let own_retention = self.retention.clone().unwrap_or_default();
        let retention = own_retention.or(&app_defaults.retention.clone().unwrap_or_default()).resolve(&mut faults);
        let payload_limit = own.payload_limit.unwrap_or(1024 * 1024);
        faults.payload_limit(payload_limit);
        let undecodable_for = own.undecodable_for.unwrap_or(Duration::from_secs(24 * 3600));
        faults.any_time("undecodable_for", undecodable_for);
        let durability = own.durability.unwrap_or_default();
        faults.durability(durability);
        let settle_replicated = own.settle_replicated.unwrap_or(false);
        faults.settle_replicated(settle_replicated, durability);
        faults.finish()?;
        Ok(Resolved {
            interval,
            max_count: stall.max_count.unwrap_or(1),
            max_count_set: own_stall.max_count.is_some(),
            heartbeat: stall.heartbeat.unwrap_or_default(),
            on_risk: stall.on_lock_risk.unwrap_or_default(),
            on_crash: stall.on_crash.unwrap_or_default(),
            grace,
            retried_codes: retry.codes(),
            retry,
            timeout: own.timeout,
            concurrency,
            prefetch,
            limits,
            keyed,
            priority: own.priority.unwrap_or_default(),
            shutdown_grace,
            cancel_grace,
            retention,
            payload_limit,
            events: own.events.unwrap_or_default(),
            undecodable_for,
            durability,
            settle_replicated,
            partitions: self.partitions,
            has_hook: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::overrides::Overrides;
    use crate::options::retention::RetentionLimit;
    use crate::options::stall::Heartbeat;
    use crate::options::stall::OnLockRisk;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn crate_defaults() -> Resolved {
        TaskOptions::new().resolve(&TaskOptions::new()).unwrap()
    }

    #[test]
    fn the_crate_defaults_are_those_of_the_design() {
        let resolved = crate_defaults();
        assert_eq!(resolved.interval, seconds(30));
        assert_eq!((resolved.max_count, resolved.max_count_set), (1, false));
        assert_eq!(resolved.heartbeat, Heartbeat::Automatic);
        assert_eq!(resolved.on_risk, OnLockRisk::Continue);
        assert_eq!(resolved.retry, RetryPolicy::new());
        assert_eq!(resolved.timeout, None);
        assert_eq!((resolved.concurrency, resolved.prefetch), (10, Prefetch::Adaptive));
        assert_eq!(resolved.priority, Priority::Normal);
        assert_eq!(resolved.shutdown_grace, seconds(30));
        assert_eq!(resolved.cancel_grace, seconds(5));
        assert_eq!(resolved.payload_limit, 1_048_576);
        assert_eq!(resolved.events, EventMode::On);
        assert_eq!(resolved.retention.completed.max_count, Some(100_000));
    }

    #[test]
    fn the_task_takes_precedence_over_the_app_field_by_field() {
        let app = TaskOptions::new()
            .stall(StallOptions::new().interval(seconds(15)).max_count(2).on_lock_risk(OnLockRisk::Cancel))
            .retention(Retention::remove_at_once())
            .concurrency(3)
            .timeout(seconds(9))
            .events(EventMode::Off)
            .priority(Priority::Low);
        let task = TaskOptions::new()
            .stall(StallOptions::new().max_count(5).heartbeat(Heartbeat::Manual))
            .retention(Retention::new().failed(RetentionLimit::forever()))
            .concurrency(4)
            .shutdown_grace(seconds(1))
            .cancel_grace(seconds(2))
            .payload_limit(7)
            .retry(RetryPolicy::new().attempts(9));
        let resolved = task.resolve(&app).unwrap();
        assert_eq!(resolved.interval, seconds(15));
        assert_eq!((resolved.max_count, resolved.max_count_set), (5, true));
        assert_eq!(resolved.heartbeat, Heartbeat::Manual);
        assert_eq!(resolved.on_risk, OnLockRisk::Cancel);
        assert!(resolved.retention.completed.remove_at_once);
        assert!(!resolved.retention.failed.remove_at_once);
        assert_eq!(resolved.concurrency, 4);
        assert_eq!(resolved.timeout, Some(seconds(9)));
        assert_eq!((resolved.shutdown_grace, resolved.cancel_grace), (seconds(1), seconds(2)));
        assert_eq!((resolved.events, resolved.priority), (EventMode::Off, Priority::Low));
        assert_eq!(resolved.payload_limit, 7);
        assert_eq!(resolved.retry.max_attempts(), 9);

        let inherited = TaskOptions::new().resolve(&app).unwrap();
        assert_eq!((inherited.max_count, inherited.max_count_set), (2, false));
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let options = TaskOptions::new()
            .stall(StallOptions::new().interval(Duration::from_millis(10)))
            .retry(RetryPolicy::new().attempts(0).exponential(Duration::MAX, f32::NAN).max_delay(seconds(1)))
            .timeout(Duration::ZERO)
            .concurrency(0)
            .shutdown_grace(Duration::MAX)
            .cancel_grace(seconds(3601))
            .retention(Retention::new().failed(RetentionLimit::age(Duration::MAX)))
            .payload_limit(usize::MAX);
        let faults = options.resolve(&TaskOptions::new()).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "stall.interval",
                "retry.attempts",
                "retry.exponential.first",
                "retry.exponential.factor",
                "retry.max_delay",
                "timeout",
                "concurrency",
                "shutdown_grace",
                "cancel_grace",
                "retention.failed",
                "payload_limit",
            ]
        );
        assert_eq!(faults.to_string().lines().count(), faults.len());
    }

    #[test]
    fn a_fault_of_the_app_is_reported_unless_the_task_replaces_it() {
        let app = TaskOptions::new().concurrency(0);
        assert!(TaskOptions::new().resolve(&app).is_err());
        assert!(TaskOptions::new().concurrency(1).resolve(&app).is_ok());
    }

    #[test]
    fn a_limit_rules_out_a_prefetch() {
        let limited = || TaskOptions::new().max_running(2);
        let app = TaskOptions::new().prefetch(5);
        assert_eq!(limited().resolve(&app).unwrap().prefetch, Prefetch::Fixed(0), "a default of the app gives way");
        assert_eq!(limited().prefetch(0).resolve(&app).unwrap().prefetch, Prefetch::Fixed(0));
        let faults = limited().prefetch(1).resolve(&app).unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.field.as_str()).collect::<Vec<_>>(), ["prefetch"]);
        let both = limited().rate(Rate::new(7, seconds(60))).resolve(&app).unwrap();
        assert_eq!(
            (both.limits.to_string(), both.of_partition(2).limits.to_string()),
            ("2 7 60000000".into(), "1 3 60000000".into())
        );
        assert_eq!(crate_defaults().limits.to_string(), "");
    }

    #[test]
    fn overrides_take_precedence_over_the_task() {
        let task = crate_defaults();
        assert_eq!(task.with(&Overrides::default()), task);
        let own = task.with(&Overrides {
            max_count: Some(1),
            retry: Some(RetryPolicy::new().attempts(4)),
            timeout: Some(seconds(1)),
            on_risk: Some(OnLockRisk::Cancel),
            cancel_grace: Some(Duration::ZERO),
            ..Overrides::default()
        });
        assert!(own.max_count_set && !task.max_count_set);
        assert_eq!(own.retry.max_attempts(), 4);
        assert_eq!((own.timeout, own.cancel_grace), (Some(seconds(1)), Duration::ZERO));
        assert_eq!(own.on_risk, OnLockRisk::Cancel);
    }
}
