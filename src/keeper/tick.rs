//! Checks deadlines, and three faults that no heartbeat shows: a frozen process, a blocked runtime, and handlers that
//! wait for each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::HOUSEKEEPING;
use super::Keeper;
use crate::clock::{self, Moment};
use crate::runtime::held_jobs::HeldJob;
use crate::runtime::task::TaskRuntime;
use crate::stall::cadence;

pub(super) async fn run(keeper: Arc<Keeper>) {
    let shortest = keeper.watches.iter().map(|watch| watch.task.options.interval).min().unwrap_or(HOUSEKEEPING);
    let alarm = cadence::standstill(shortest);
    let mut last_tick = clock::now();
    // Since when this thread has not been frozen. It runs no user code, so no handler freezes it.
    let mut resumed = last_tick;
    let mut blocked = Blocked { alarm, reported: Duration::ZERO, longest: Duration::ZERO };
    let mut primary_epochs = keeper.primary_epochs();
    loop {
        #[cfg(feature = "testing")]
        super::hooks::keeper_ticks(keeper.worker.id.as_str());
        let now = clock::now();
        let stood_still = now.since(last_tick);
        if stood_still > alarm {
            resumed = now;
            keeper.worker.resumed.store(now.as_millis(), Ordering::SeqCst);
            keeper.worker.tally.standstills.add(1);
            keeper.worker.tally.stood_still_ms.add_ms(stood_still);
            let (worker_id, frozen_ms) = (keeper.worker.id.clone(), stood_still.as_millis() as u64);
            keeper.log.line(move || {
                tracing::warn!(%worker_id, frozen_ms, "the process was frozen: stopped, on a paused VM, or without CPU time");
            });
            // Timers may not count the time of a suspended machine: a heartbeat may be long overdue.
            keeper.watches.iter().for_each(|watch| watch.task.beat_now.notify_one());
            // Another worker may be about to report this one as dead.
            keeper.resumed.notify_one();
        }
        keeper.worker.store.address.keep_watch();
        // Hash slots may move between primaries that stay in place, so check every tick.
        let now_at = keeper.primary_epochs();
        if now_at != primary_epochs {
            keeper.primary_changed(&primary_epochs, &now_at);
        }
        primary_epochs = now_at;
        let waiting = look_at_deadlines(&keeper, last_tick, now);
        let full = full_slots(&keeper, &waiting);
        let was_full = keeper.worker.clogged.swap(full.is_some(), Ordering::SeqCst);
        if was_full != full.is_some() {
            keeper.watches.iter().for_each(|watch| watch.task.poke.notify_one());
        }
        if let Some(slots) = full.filter(|_| !was_full) {
            let worker_id = keeper.worker.id.clone();
            keeper.log.line(move || {
                let what =
                    "every slot is held by a handler that waits for the result of another job, which may find no free slot";
                tracing::warn!(%worker_id, %slots, "{what}: see docs/fan-out.md");
            });
        }
        last_tick = now;
        keeper.worker.last_tick.store(now.as_millis(), Ordering::SeqCst);
        let probed = Moment::from_millis(keeper.worker.liveness_probe.load(Ordering::Relaxed));
        match blocked.observe(now.since(probed.max(resumed))) {
            Some(Runtime::Blocked(time)) => {
                let (worker_id, blocked_ms) = (keeper.worker.id.clone(), time.as_millis() as u64);
                keeper.log.line(move || {
                    let advice = "a handler blocks the runtime; use TaskDef::blocking, or spawn_blocking for work that does not yield";
                    tracing::warn!(%worker_id, blocked_ms, "{advice}");
                });
            }
            Some(Runtime::RunsAgain(time)) => {
                keeper.worker.tally.blocked_ms.add_ms(time);
                let blocked_ms = time.as_millis() as u64;
                keeper.log.line(move || tracing::warn!(blocked_ms, "the runtime runs again"));
            }
            None => {}
        }
        tokio::time::sleep(cadence::tick_pause(shortest)).await;
    }
}

/// Updates the held jobs with the time. Returns, by task, how many handlers have waited for results of other jobs for
/// an interval.
fn look_at_deadlines(keeper: &Keeper, last_tick: Moment, now: Moment) -> Vec<usize> {
    let of_task = keeper.watches.iter().map(|watch| {
        let (interval, mut waiting, mut next) = (watch.task.options.interval, 0, Moment::from_millis(u64::MAX));
        if !watch.task.bells.take_check(now) {
            // No job is at risk, and no handler has waited for an interval.
            return 0;
        }
        let answered = now.since(watch.task.last_beat()) < cadence::beats_answered_within(interval);
        watch.task.held.for_each(|held| {
            if held.tick(last_tick, now, answered) {
                watch.task.tally().at_risk.add(1);
            }
            waiting += usize::from(held.waits.lasts(interval));
            if let Some(time) = held.begins_to_overstay(now) {
                log_overstay(keeper, &watch.task, held, time);
            }
            next = next.min(held.next_check(now));
        });
        watch.task.bells.check_by(next);
        waiting
    });
    of_task.collect()
}

/// Logs a run that exceeds its cancel grace after its job was lost or cancelled.
fn log_overstay(keeper: &Keeper, task: &TaskRuntime, held: &HeldJob, time: Duration) {
    let (task, job_id, taken_ms) = (Arc::clone(&task.name), held.id.clone(), time.as_millis() as u64);
    keeper.log.line(move || {
        tracing::warn!(%task, %job_id, taken_ms,
            "a run outlives its cancel grace: its handler blocks its thread and keeps its slot");
    });
}

/// Names the slots if none is left for the jobs that handlers wait for: waiting handlers hold all slots of a task, or
/// of the worker.
fn full_slots(keeper: &Keeper, waiting: &[usize]) -> Option<String> {
    let tasks = || keeper.watches.iter().map(|watch| &watch.task).zip(waiting);
    let of_all_partitions =
        |name: &str| tasks().filter(|(task, _)| &*task.name == name).map(|(_, waiting)| waiting).sum::<usize>();
    let is_full = |task: &&Arc<TaskRuntime>| of_all_partitions(&task.name) >= task.options.concurrency;
    if let Some(task) = tasks().map(|(task, _)| task).find(is_full) {
        return Some(format!("concurrency {} of the task {}", task.options.concurrency, task.name));
    }
    let most = keeper.worker.slots.most().filter(|most| waiting.iter().sum::<usize>() >= *most)?;
    Some(format!("max_jobs {most} of the worker"))
}

/// Detects whether the user's runtime runs, by its liveness probe (`liveness_probe`).
struct Blocked {
    alarm: Duration,
    /// How long it was blocked at the last report.
    reported: Duration,
    longest: Duration,
}

/// What to report about the user's runtime.
#[derive(Debug, PartialEq, Eq)]
enum Runtime {
    Blocked(Duration),
    RunsAgain(Duration),
}

impl Blocked {
    /// Reports a block when it is noticed, each time it has grown by half, and when it ends.
    fn observe(&mut self, silent: Duration) -> Option<Runtime> {
        if silent > self.alarm {
            self.longest = self.longest.max(silent);
            if silent <= self.reported + self.reported / 2 {
                return None;
            }
            self.reported = silent;
            return Some(Runtime::Blocked(silent));
        }
        self.reported = Duration::ZERO;
        let longest = std::mem::take(&mut self.longest);
        (!longest.is_zero()).then_some(Runtime::RunsAgain(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALARM: Duration = Duration::from_millis(300);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_blocked_runtime_is_reported_at_start_growth_and_end() {
        let mut blocked = Blocked { alarm: ALARM, reported: ms(0), longest: ms(0) };
        let observed = [100, 300, 301, 400, 451, 452, 600, 700, 50, 60].map(|silent| blocked.observe(ms(silent)));
        let is = |index: usize, what| assert_eq!(observed[index], what, "{index}");
        (0..2).for_each(|index| is(index, None));
        is(2, Some(Runtime::Blocked(ms(301))));
        is(3, None);
        is(4, None);
        is(5, Some(Runtime::Blocked(ms(452))));
        is(6, None);
        is(7, Some(Runtime::Blocked(ms(700))));
        is(8, Some(Runtime::RunsAgain(ms(700))));
        is(9, None);
    }
}
