//! Looks at the deadlines, and at whether the user's runtime still runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{HOUSEKEEPING, Keeper};
use crate::worker::clock::{self, Moment};

pub(super) async fn run(keeper: Arc<Keeper>, canary: Arc<AtomicU64>) {
    let shortest = keeper.watches.iter().map(|watch| watch.task.options.interval).min().unwrap_or(HOUSEKEEPING);
    let pause = (shortest / 40).clamp(Duration::from_millis(10), Duration::from_millis(250));
    let alarm = (shortest / 3).max(Duration::from_millis(300));
    let (mut told, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut last_tick = clock::now();
    let mut resumed = last_tick;
    loop {
        #[cfg(feature = "testing")]
        crate::testing::hooks::keeper_ticks(keeper.worker.id.as_str());
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
        for watch in keeper.watches.iter() {
            let answered = now.since(watch.task.last_beat()) < watch.task.options.interval / 10 * 9;
            watch.task.held.for_each(|held| held.tick(last_tick, now, answered));
        }
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
