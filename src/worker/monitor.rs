//! The health of a worker, for probes: whether its keeper, its runtime and its loops make progress.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::stop::{StopReason, WorkerPart};
use crate::clock::{self, Moment};
use crate::enum_str::names;
use crate::error::Error;
use crate::mutex::Mutex;
use crate::runtime::lost_runs::{Jam, jams};
use crate::runtime::shared::WorkerShared;
use crate::runtime::stats::WorkerStats;
use crate::runtime::task::TaskRuntime;
use crate::stall::cadence;
use crate::unix_time::as_ms_where_known;

/// Reports the health of a worker: whether to restart it, and whether it works. Made by
/// [`Worker::monitor`](crate::Worker::monitor). Cheap to clone. A clone can be used from any thread, before the worker
/// runs and after it has stopped.
///
/// ```no_run
/// # use heartline::{App, StopReason};
/// # async fn serve_probes(is_live: impl Fn() -> bool) {}
/// # async fn run(app: App) -> heartline::Result<StopReason> {
/// let worker = app.worker();
/// let monitor = worker.monitor();
/// tokio::spawn(serve_probes(move || monitor.health().live));
/// worker.run_until_signal().await
/// # }
/// ```
#[derive(Clone, Default)]
pub struct WorkerMonitor(Arc<Mutex<Watched>>);

/// The phase that the worker has reached.
#[derive(Default)]
enum Watched {
    #[default]
    Starting,
    Runs(Weak<WorkerShared>, Vec<Weak<TaskRuntime>>),
    /// It stopped. Holds the part that ended by itself, if one did.
    Stopped(Option<WorkerPart>),
    /// It could not start. Holds the reason.
    Failed(String),
}

/// The health of a worker. See [`WorkerMonitor::health`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerHealth {
    /// False only if a restart of the process would help. It stays true while Redis is unreachable. It is false if:
    ///
    /// - the worker could not start, or a part of it ended or makes no progress;
    /// - handlers have blocked the runtime for two intervals;
    /// - jobs wait while runs that lost their jobs have held every slot of a task for two intervals.
    pub live: bool,
    /// Whether the worker claims and reports. It is true if the worker runs, the last answered heartbeat was sent less than two thirds
    /// of an interval ago, and its answer took at most a third.
    pub ready: bool,
    /// Its phase.
    pub phase: WorkerPhase,
    /// Why it is not live or not ready, one sentence per reason. Empty if it is both.
    pub reasons: Vec<String>,
    /// How many jobs it holds.
    pub held: usize,
    /// How long ago the last answered heartbeat was sent. With several tasks, the longest such time. `None` before the first one.
    #[serde(rename = "last_beat_ago_ms", serialize_with = "as_ms_where_known")]
    pub last_beat: Option<Duration>,
}

/// The phase of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerPhase {
    /// It does not run yet, or waits for Redis to start.
    Starting,
    /// It claims jobs and runs them.
    Working,
    /// It claims no more jobs, and waits for its jobs to end.
    Stopping,
    /// It has stopped.
    Stopped,
}

names!(WorkerPhase, "phase", {
    Starting = "starting",
    Working = "working",
    Stopping = "stopping",
    Stopped = "stopped",
});

impl WorkerMonitor {
    /// The current health. Makes no call to Redis and is cheap, so a probe may call it at any rate.
    /// [Operating](crate::guide::operating) says when a worker is not live.
    #[must_use]
    pub fn health(&self) -> WorkerHealth {
        let stopped = |live, reason: String| {
            let (phase, reasons) = (WorkerPhase::Stopped, vec![reason]);
            WorkerHealth { live, ready: false, phase, reasons, held: 0, last_beat: None }
        };
        match &*self.0.lock() {
            Watched::Starting => {
                let waits = stopped(true, "the worker does not run yet, or waits for redis".to_owned());
                WorkerHealth { phase: WorkerPhase::Starting, ..waits }
            }
            Watched::Stopped(None) => stopped(true, "the worker has stopped".to_owned()),
            Watched::Stopped(Some(part)) => stopped(false, format!("the worker has stopped: its {part} ended")),
            Watched::Failed(why) => stopped(false, format!("the worker could not start: {why}")),
            Watched::Runs(worker, tasks) => {
                let Some(worker) = worker.upgrade() else { return stopped(false, "the worker was dropped".to_owned()) };
                let tasks: Vec<_> = tasks.iter().filter_map(Weak::upgrade).collect();
                look(&worker, &tasks, clock::now())
            }
        }
    }

    /// What the worker has counted since it started. Makes no call to Redis and is cheap. With the feature `metrics`,
    /// `WorkerMetrics` exports it to Prometheus.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        match &*self.0.lock() {
            Watched::Runs(worker, tasks) => worker.upgrade().map_or_else(WorkerStats::default, |worker| {
                let tasks: Vec<_> = tasks.iter().filter_map(Weak::upgrade).collect();
                let read = |task: &Arc<TaskRuntime>| {
                    let parts = tasks.iter().filter(|part| part.name == task.name);
                    let held = parts.map(|part| part.held.len()).sum();
                    let ahead = task.options.prefetch.kept() * task.keys.parts() as usize;
                    task.tally().read(&task.name, held, task.options.concurrency + ahead)
                };
                worker.tally.read(tasks.iter().filter(|task| task.is_first()).map(read).collect())
            }),
            _ => WorkerStats::default(),
        }
    }

    pub(super) fn runs(&self, worker: &Arc<WorkerShared>, tasks: &[Arc<TaskRuntime>]) {
        *self.0.lock() = Watched::Runs(Arc::downgrade(worker), tasks.iter().map(Arc::downgrade).collect());
    }

    pub(super) fn ended(&self, ended: &Result<StopReason, Error>) {
        match ended {
            Ok(reason) => self.stopped(reason),
            Err(e) => *self.0.lock() = Watched::Failed(e.chain().to_string()),
        }
    }

    fn stopped(&self, reason: &StopReason) {
        let broken = match reason {
            StopReason::Broken { part, .. } => Some(*part),
            StopReason::Shutdown | StopReason::Unclean { .. } | StopReason::Replaced { .. } => None,
        };
        *self.0.lock() = Watched::Stopped(broken);
    }
}

impl fmt::Debug for WorkerMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerMonitor").field(&self.health()).finish()
    }
}

/// Compares the clocks of a running worker.
fn look(worker: &WorkerShared, tasks: &[Arc<TaskRuntime>], now: Moment) -> WorkerHealth {
    let shortest = tasks.iter().map(|task| task.options.interval).min().unwrap_or(Duration::MAX / 2);
    let is_stopping = worker.stopping.is_cancelled();
    let mut health = WorkerHealth {
        live: true,
        ready: false,
        phase: if is_stopping { WorkerPhase::Stopping } else { WorkerPhase::Working },
        reasons: Vec::new(),
        held: tasks.iter().map(|task| task.held.len()).sum(),
        last_beat: None,
    };
    let mut dead = |reason: String| {
        health.live = false;
        health.reasons.push(reason);
    };
    let silent = now.since(Moment::from_millis(worker.last_tick.load(Ordering::SeqCst)));
    if worker.is_keeper_gone.load(Ordering::SeqCst) || silent > shortest * 2 {
        dead(format!("the thread that sends heartbeats has done nothing for {silent:.1?}"));
    }
    let blocked = now.since(Moment::from_millis(worker.liveness_probe.load(Ordering::Relaxed)));
    if blocked > shortest * 2 {
        dead(format!("handlers have blocked the runtime for {blocked:.1?}"));
    }
    let must_claim = !is_stopping && !worker.is_quiet();
    for task in tasks.iter().filter(|task| must_claim && task.slots(worker).any_free()) {
        let claims = Claims {
            silent: now.since(task.silent_since()),
            interval: task.options.interval,
            least: worker.store.timings.claim_silence,
            beats: task.beats_are_fresh() && !task.beats_are_slow(),
            is_paused: task.counted.is_paused.load(Ordering::Relaxed),
            slots_free: task.slots_held() < task.options.concurrency,
            waiting: task.counted.waiting.load(Ordering::Relaxed),
        };
        if claims.are_stuck() {
            let Claims { silent, waiting, .. } = claims;
            dead(format!("no claim was sent for the task {} for {silent:.1?}, while {waiting} jobs waited", task.name));
        }
    }
    for jam in jams(worker, tasks, now).iter().filter(|_| !is_stopping) {
        let Jam { task, held_for, waiting } = jam;
        dead(format!(
            "runs that lost their jobs have held every slot of the task {task} for {held_for:.1?}, while {waiting} jobs waited"
        ));
    }
    health.ready = health.live && !is_stopping;
    if is_stopping {
        health.reasons.push("the worker is stopping".to_owned());
    }
    for task in tasks {
        let ago = (task.last_beat().as_millis() > 0).then(|| now.since(task.last_beat()));
        health.last_beat = health.last_beat.max(ago);
        if !task.beats_are_fresh() {
            health.ready = false;
            let what = match ago {
                _ if task.beats_are_overdue() => format!(
                    "take {:.1?}, longer than their period; a longer stall interval, or a lower concurrency, gives them \
                     more time",
                    task.beat_took()
                ),
                None => "have not been answered yet".to_owned(),
                Some(ago) => format!("have not been answered for {ago:.1?}"),
            };
            health.reasons.push(format!("heartbeats of the task {} {what}", task.name));
        }
    }
    health
}

/// The facts that show whether a claim loop works.
struct Claims {
    /// How long ago the last claim was sent.
    silent: Duration,
    interval: Duration,
    /// How long no claim must have been sent until that counts.
    least: Duration,
    /// Whether heartbeats are answered in time, so that they do not limit the claims.
    beats: bool,
    is_paused: bool,
    slots_free: bool,
    waiting: u64,
}

impl Claims {
    fn are_stuck(&self) -> bool {
        self.silent > cadence::silent_claims(self.interval).max(self.least)
            && self.beats
            && !self.is_paused
            && self.slots_free
            && self.waiting > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timings::Timings;

    fn silent(seconds: u64) -> Claims {
        let (silent, interval) = (Duration::from_secs(seconds), Duration::from_secs(30));
        Claims {
            silent,
            interval,
            least: Timings::default().claim_silence,
            beats: true,
            is_paused: false,
            slots_free: true,
            waiting: 1,
        }
    }

    #[test]
    fn a_claim_loop_is_stuck_only_if_its_silence_is_unexplained() {
        assert!(silent(61).are_stuck());
        assert!(!silent(60).are_stuck());
        assert!(!Claims { beats: false, ..silent(61) }.are_stuck());
        assert!(!Claims { is_paused: true, ..silent(61) }.are_stuck());
        assert!(!Claims { slots_free: false, ..silent(61) }.are_stuck());
        assert!(!Claims { waiting: 0, ..silent(61) }.are_stuck());
        // For any interval.
        let second = Duration::from_secs(1);
        assert!(!Claims { interval: second, ..silent(30) }.are_stuck());
        assert!(Claims { interval: second, ..silent(31) }.are_stuck());
    }

    #[test]
    fn a_worker_that_is_not_running_is_live_but_not_ready() {
        let monitor = WorkerMonitor::default();
        let health = monitor.health();
        assert!(health.live && !health.ready && health.reasons.len() == 1, "{health:?}");
        monitor.stopped(&StopReason::Shutdown);
        let health = monitor.health();
        assert!(health.live && !health.ready && health.phase == WorkerPhase::Stopped, "{health:?}");
        monitor.stopped(&StopReason::Broken { part: WorkerPart::Wake, left: Vec::new() });
        let health = monitor.health();
        assert!(!health.live && health.reasons == ["the worker has stopped: its wake ended"], "{health:?}");
    }
}
