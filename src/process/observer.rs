//! What the process that runs jobs can hear of its runs.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::job::id::JobId;
use crate::store::report::Disposition;
use crate::worker_id::WorkerId;

/// Hears of each run of a handler in this worker, where it happens and once: for metrics.
///
/// Events ([`App::events`](crate::App::events)) are for what happens to jobs, whoever does it: each process that subscribes hears
/// of all, so that counts are multiplied by the number of processes. An observer hears of the runs of its worker alone.
///
/// It is called in the task of the run, between claim and report: keep it short, and do not block. A panic in it is caught and
/// changes nothing.
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

    /// A run has ended: returned, failed, panicked, timed out, or was dropped. What it comes to is not recorded yet, and is not
    /// where the job was lost meanwhile.
    fn ended(&self, run: &RunInfo<'_>, end: &RunEnd<'_>) {
        let _ = (run, end);
    }

    /// A call to Redis was answered that reported outcomes, brought jobs, or both. It is told in a task of its own.
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
    /// Which run this is, from 1; runs that stalled or were put off do not count.
    pub attempt: u32,
    /// How many runs may fail before the job does.
    pub max_attempts: u32,
    /// How often the job stalled before.
    pub stalled_count: u32,
    /// When it was dispatched, by the clock of the producer; 1970 where that is not known.
    pub dispatched_at: SystemTime,
    /// How long it waited since it could first be claimed: from the call of dispatch, with its way to Redis, less its delay,
    /// until the run begins. It is off by what the clocks of producer and worker differ, and never below 0. `None` when the job
    /// failed, stalled or was put off before, or the time of its dispatch is not known. Of a job that was requeued it counts
    /// what was before that too.
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
    /// How many jobs it brought.
    pub claimed: usize,
    /// When it was answered.
    pub answered_at: SystemTime,
    /// How long the last try of it took.
    pub took: Duration,
}

/// Tells of a call, apart from who made it.
pub(crate) fn tell_of_call(observers: &Arc<[Arc<dyn Observer>]>, call: CallInfo) {
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
    /// What becomes of the job.
    pub outcome: RunOutcome,
    /// The failure code of a run that failed.
    pub code: Option<&'a str>,
    /// The error with its causes.
    pub message: Option<&'a str>,
    /// How long the handler ran.
    pub ran: Duration,
}

/// What becomes of a job after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The handler returned a value.
    Completed,
    /// The run failed and no other follows.
    Failed,
    /// The run failed and another one follows.
    Retrying,
    /// The handler put the job off.
    Snoozed,
    /// The payload is no input of the handler; the job is put off.
    Undecodable,
    /// The run did not end by itself: the worker stops, the job was lost or cancelled, or is requeued to be safe.
    Interrupted,
}

impl RunOutcome {
    /// The name, in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RunOutcome::Completed => "completed",
            RunOutcome::Failed => "failed",
            RunOutcome::Retrying => "retrying",
            RunOutcome::Snoozed => "snoozed",
            RunOutcome::Undecodable => "undecodable",
            RunOutcome::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A run that is observed. Dropped before its end, it was interrupted.
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

    /// How long it has run.
    pub(crate) fn ran(&self) -> Duration {
        self.began.elapsed()
    }

    /// Tells that it has ended, after it ran so long.
    pub(crate) fn end(mut self, outcome: &Disposition, ran: Duration) {
        let (outcome, error) = match outcome {
            Disposition::Completed(_) => (RunOutcome::Completed, None),
            Disposition::Failed { error, .. } => (RunOutcome::Failed, Some(error)),
            Disposition::Retry { error, .. } => (RunOutcome::Retrying, Some(error)),
            Disposition::Snooze { .. } => (RunOutcome::Snoozed, None),
            Disposition::Undecodable { error, .. } => (RunOutcome::Undecodable, Some(error)),
            // Of hooks nobody is told here.
            Disposition::Hooked(_)
            | Disposition::HookRetry { .. }
            | Disposition::Drop
            | Disposition::Requeue
            | Disposition::Begin { .. }
            | Disposition::Unstart => (RunOutcome::Interrupted, None),
        };
        let (code, message) = (error.map(|e| e.code.as_str()), error.map(|e| e.message.as_str()));
        self.tell(outcome, code, message, ran);
    }

    fn tell(&mut self, outcome: RunOutcome, code: Option<&str>, message: Option<&str>, ran: Duration) {
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
        self.tell(RunOutcome::Interrupted, None, None, self.ran());
    }
}

fn guarded(run: &RunInfo<'_>, call: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
        // What takes log lines may panic as well.
        let log = || tracing::error!(task = run.task, job_id = %run.id, "the observer of the worker panicked");
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(log));
    }
}
