//! Observers of runs, in the process that runs them.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::backend::report::Disposition;
use crate::enum_str::names;
use crate::job::id::JobId;
use crate::worker_id::WorkerId;

/// Called once for each run of a handler in this worker, in the process that runs it: for metrics.
///
/// Events ([`App::events`](crate::App::events)) report what happens to jobs in any process. Each subscribed process receives all of them,
/// so its counts would be multiplied by the number of processes. An observer receives only the runs of its own worker.
///
/// It is called in the task of the run, between claim and report: keep it short, and do not block. A panic in it is caught and changes
/// nothing.
///
/// ```
/// use heartline::{Observer, RunEnd, RunInfo};
///
/// struct Timings;
///
/// impl Observer for Timings {
///     fn ended(&self, run: &RunInfo<'_>, end: &RunEnd<'_>) {
///         println!("{} {} after {:?}", run.task, end.outcome.as_str(), end.ran);
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A run begins.
    fn started(&self, run: &RunInfo<'_>) {
        let _ = run;
    }

    /// A run has ended: it returned, failed, panicked, timed out, or was dropped. Its outcome is not recorded yet, and
    /// will not be if the job was lost meanwhile.
    fn ended(&self, run: &RunInfo<'_>, end: &RunEnd<'_>) {
        let _ = (run, end);
    }

    /// A call to Redis was answered that reported outcomes, claimed jobs, or both. Called in a separate tokio task.
    fn called(&self, call: &CallInfo) {
        let _ = call;
    }
}

/// One run of a job.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunInfo<'a> {
    /// The task.
    pub task: &'a str,
    /// The job.
    pub id: &'a JobId,
    /// The number of this run, from 1. Runs that stalled or were postponed do not count.
    pub attempt: u32,
    /// How many runs may fail before the job does.
    pub max_attempts: u32,
    /// How often the job stalled before.
    pub stalled_count: u32,
    /// When it was dispatched, by the producer's clock; 1970 if unknown.
    pub dispatched_at: SystemTime,
    /// How long the job waited since it could first be claimed: from the call of dispatch, less its delay, until the run begins. It
    /// includes the transfer to Redis and the time before a requeue. A difference between the clocks of producer and worker distorts it; it
    /// is never below 0. `None` if the job failed, stalled or was postponed before, or the time of its dispatch is unknown.
    pub waited: Option<Duration>,
    /// The worker.
    pub worker: &'a WorkerId,
}

/// A call that reports how runs ended and claims jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallInfo {
    /// The task.
    pub task: Arc<str>,
    /// The worker.
    pub worker: WorkerId,
    /// How many outcomes it reported.
    pub reported: usize,
    /// How many jobs it claimed.
    pub claimed: usize,
    /// When it was answered.
    pub answered_at: SystemTime,
    /// How long its last try took.
    pub took: Duration,
}

/// Reports a call in a separate task.
pub(crate) fn report_call(observers: &Arc<[Arc<dyn Observer>]>, call: CallInfo) {
    if observers.is_empty() || call.reported + call.claimed == 0 {
        return;
    }
    let observers = Arc::clone(observers);
    tokio::spawn(async move {
        for observer in observers.iter() {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| observer.called(&call))).is_err() {
                let task = &*call.task;
                let log = || tracing::error!(task, "the observer of the worker panicked");
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(log));
            }
        }
    });
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunEnd<'a> {
    /// What happens to the job.
    pub outcome: RunOutcome,
    /// The failure code of a run that failed.
    pub code: Option<&'a str>,
    /// The error with its causes.
    pub message: Option<&'a str>,
    /// How long the handler ran.
    pub ran: Duration,
}

/// What happens to a job after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The handler returned a value.
    Completed,
    /// The run failed and no other follows.
    Failed,
    /// The run failed and another one follows.
    Retrying,
    /// The handler postponed the job.
    Snoozed,
    /// The handler was rate limited. The job returned to the front of its queue, and its task rests.
    RateLimited,
    /// The handler cannot decode the payload; the job is postponed.
    Undecodable,
    /// The run did not end by itself: the worker stops, or the job was lost or cancelled. Or the job is requeued, since
    /// it was at risk or the process was frozen.
    Interrupted,
}

names!(RunOutcome, "outcome of a run", {
    Completed = "completed",
    Failed = "failed",
    Retrying = "retrying",
    Snoozed = "snoozed",
    RateLimited = "rate_limited",
    Undecodable = "undecodable",
    Interrupted = "interrupted",
});

/// A run that is observed. If it is dropped before its end, it was interrupted.
pub(crate) struct Observed<'a> {
    observers: Arc<[Arc<dyn Observer>]>,
    run: RunInfo<'a>,
    began: Instant,
    is_told: bool,
}

impl<'a> Observed<'a> {
    pub(crate) fn begin(observers: Arc<[Arc<dyn Observer>]>, run: RunInfo<'a>) -> Observed<'a> {
        for observer in observers.iter() {
            guarded(&run, || observer.started(&run));
        }
        Observed { observers, run, began: Instant::now(), is_told: false }
    }

    pub(crate) fn ran(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reports that it has ended after this time.
    pub(crate) fn end(mut self, outcome: &Disposition, ran: Duration) {
        let (outcome, error) = match outcome {
            Disposition::Completed(_) => (RunOutcome::Completed, None),
            Disposition::Failed { error, .. } => (RunOutcome::Failed, Some(error)),
            Disposition::Retry { error, .. } => (RunOutcome::Retrying, Some(error)),
            Disposition::Snooze { .. } => (RunOutcome::Snoozed, None),
            Disposition::RateLimited { .. } => (RunOutcome::RateLimited, None),
            Disposition::Undecodable { error, .. } => (RunOutcome::Undecodable, Some(error)),
            // Hooks are not reported here.
            Disposition::Hooked(_)
            | Disposition::HookRetry { .. }
            | Disposition::Drop
            | Disposition::Requeue
            | Disposition::Begin { .. }
            | Disposition::Unstart => (RunOutcome::Interrupted, None),
        };
        let (code, message) = (error.map(|e| e.code.as_str()), error.map(|e| e.message.as_str()));
        self.report(outcome, code, message, ran);
    }

    fn report(&mut self, outcome: RunOutcome, code: Option<&str>, message: Option<&str>, ran: Duration) {
        if !std::mem::replace(&mut self.is_told, true) {
            let end = RunEnd { outcome, code, message, ran };
            for observer in self.observers.iter() {
                guarded(&self.run, || observer.ended(&self.run, &end));
            }
        }
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        self.report(RunOutcome::Interrupted, None, None, self.ran());
    }
}

fn guarded(run: &RunInfo<'_>, call: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
        // A log subscriber may panic as well.
        let log = || tracing::error!(task = run.task, job_id = %run.id, "the observer of the worker panicked");
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(log));
    }
}
