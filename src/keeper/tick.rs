//! Looks at the deadlines, and at whether the user's runtime still runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::line::{HOUSEKEEPING, Keeper};
use crate::clock::{self, Moment};
use crate::stall::cadence;

pub(super) async fn run(keeper: Arc<Keeper>, canary: Arc<AtomicU64>) {
    let shortest = keeper.watches.iter().map(|watch| watch.task.options.interval).min().unwrap_or(HOUSEKEEPING);
    let pause = cadence::tick_pause(shortest);
    let alarm = cadence::standstill(shortest);
    let (mut told, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut last_tick = clock::now();
    let mut resumed = last_tick;
    // By task: how many handlers have waited for an interval for the results of other jobs.
    let (mut waiting, mut stuck) = (vec![0; keeper.watches.len()], false);
    loop {
        #[cfg(feature = "testing")]
        crate::keeper::hooks::keeper_ticks(keeper.worker.id.as_str());
        let now = clock::now();
        let stood_still = now.since(last_tick);
        if stood_still > alarm {
            // No handler's fault: this thread runs nothing of the user's.
            let stood_still_ms = stood_still.as_millis() as u64;
            keeper.log.line(move || {
                tracing::warn!(stood_still_ms, "the process stood still: stopped, on a paused VM, or without CPU time");
            });
            resumed = now;
            // The time of a suspended machine is none for timers: a beat may be due for long.
            keeper.watches.iter().for_each(|watch| watch.task.beat_now.notify_one());
        }
        for (watch, waiting) in keeper.watches.iter().zip(&mut waiting) {
            let interval = watch.task.options.interval;
            let answered = now.since(watch.task.last_beat()) < cadence::beats_answered_within(interval);
            *waiting = 0;
            watch.task.held.for_each(|held| {
                held.tick(last_tick, now, answered);
                *waiting += usize::from(held.waits.lasts(interval));
            });
        }
        stuck = tell_of_a_deadlock(&keeper, &waiting, stuck);
        last_tick = now;
        keeper.worker.last_tick.store(now.as_millis(), Ordering::SeqCst);
        let silent = now.since(Moment::from_millis(canary.load(Ordering::Relaxed)).max(resumed));
        if silent > alarm {
            longest = longest.max(silent);
            // Told when it is noticed, and again each time that it has grown by half.
            if silent > told + told / 2 {
                let blocked_ms = silent.as_millis() as u64;
                keeper.log.line(move || {
                    let advice =
                        "handlers block every thread of the runtime; use spawn_blocking for work that does not yield";
                    tracing::warn!(blocked_ms, "{advice}");
                });
                told = silent;
            }
        } else if !longest.is_zero() {
            let blocked_ms = longest.as_millis() as u64;
            keeper.log.line(move || tracing::warn!(blocked_ms, "the runtime runs again"));
            (told, longest) = (Duration::ZERO, Duration::ZERO);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Tells once when no slot is left for the jobs that handlers wait for: all slots of a task, or of the worker, have been held
/// for an interval by handlers that wait for results. Returns whether that is so.
fn tell_of_a_deadlock(keeper: &Keeper, waiting: &[usize], was_so: bool) -> bool {
    let mut tasks = keeper.watches.iter().map(|watch| &watch.task).zip(waiting);
    let full = tasks.find(|(task, waiting)| **waiting >= task.options.concurrency);
    let max_jobs = keeper.worker.slots.most().filter(|max| waiting.iter().sum::<usize>() >= *max);
    let slots = match (full, max_jobs) {
        (Some((task, _)), _) => format!("concurrency {} of the task {}", task.options.concurrency, task.name),
        (None, Some(max)) => format!("max_jobs {max} of the worker"),
        (None, None) => return false,
    };
    if !was_so {
        let worker_id = keeper.worker.id.clone();
        keeper.log.line(move || {
            let what = "every slot is held by a handler that waits for the result of another job, which may find none";
            tracing::warn!(%worker_id, %slots, "{what}: see docs/fan-out.md");
        });
    }
    true
}
