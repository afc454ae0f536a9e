//! Heartbeats: every third of an interval, sends Redis the ids of all jobs of a task that the worker holds, over any
//! connection that works.
//!
//! All calls of a heartbeat are in flight together, and each answer extends its jobs. Unanswered calls are repeated
//! over other connections. A job that needs a heartbeat sooner (a cancel hint, or a manual heartbeat) rings, and is
//! sent in an extra call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backon::BackoffBuilder;

use super::Keeper;
use super::failover::{Route, over_any_route};
use super::heartbeat_batch::HeartbeatRound;
use super::task_monitor::TaskMonitor;
use crate::backend::call_context;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::stall::cadence;
use crate::stall::witness::DetectorReset;
use crate::unix_time::to_ms;

/// Sends heartbeats for a task: every period, at once on request, and soon after a failure.
pub(super) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskMonitor>) {
    let period = watch.task.beat_period();
    let retries = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(cadence::longest_beat_pause(watch.task.options.interval))
        .without_max_times();
    let mut pauses = retries.build();
    let mut due = clock::now();
    loop {
        let beaten = whole(&keeper, &watch, due).await;
        let now = clock::now();
        let is_well = matches!(beaten, Ok(Route::Own | Route::New));
        if beaten.is_ok() {
            keeper.answered("beat", watch.task.of());
        }
        if is_well {
            pauses = retries.build();
            due = due.after(period).max(now);
        } else {
            // An answer over the shared connection does not count for the watch, so retry our own connection soon.
            let cause = if beaten.is_ok() { DetectorReset::OtherConnection } else { DetectorReset::NoAnswer };
            watch.witness.lock().broken(now, cause);
            let pause = pauses.next().unwrap_or(period);
            due = now.after(pause);
            match beaten {
                Err(e) => {
                    watch.task.rights.heard(&e);
                    keeper.failed_at("beat", watch.task.of(), &e);
                }
                Ok(_) => {
                    let task = Arc::clone(&watch.task.name);
                    keeper.log.line(move || tracing::debug!(%task, ?pause, "a heartbeat was answered over the shared connection only"));
                }
            }
        }
        watch.witness.lock().next_beat_at(due);
        watch.task.tally().watch_broken(watch.witness.lock().breaks());
        wait(&keeper, &watch, due, is_well).await;
        due = due.min(clock::now());
    }
}

/// Waits until the next heartbeat is due or requested. Meanwhile sends heartbeats for jobs that ring, at most five
/// times a period, and none while calls fail.
async fn wait(keeper: &Keeper, watch: &TaskMonitor, due: Moment, is_well: bool) {
    let task = &watch.task;
    let mut next_extra = clock::now();
    loop {
        let rung = async {
            task.bells.rung.notified().await;
            tokio::time::sleep(next_extra.since(clock::now())).await;
        };
        tokio::select! {
            () = tokio::time::sleep(due.since(clock::now())) => return,
            () = task.beat_now.notified() => return,
            () = rung, if is_well => {}
        }
        next_extra = clock::now().after(cadence::extra_beat_pause(task.options.interval));
        let round = HeartbeatRound::of_rung(keeper, watch);
        let over_own = keeper.call(watch, async |conn| round.over(conn).await);
        // Do not delay the heartbeat that is due: it includes these jobs.
        let answer = tokio::time::timeout(due.since(clock::now()), over_own).await;
        round.end();
        if matches!(answer, Ok(Err(_))) {
            return;
        }
    }
}

/// Sends one heartbeat for all held jobs of the task.
async fn whole(keeper: &Keeper, watch: &TaskMonitor, due: Moment) -> Result<Route, Error> {
    let task = &watch.task;
    let started = clock::now();
    let round = HeartbeatRound::of_all(keeper, watch);
    let answered = call_context::noted(over_any_route(keeper, watch, &round)).await;
    let answered = answered.map_err(|e| e.at(keeper.worker.store.place()));
    round.end();
    let (route, heard) = (answered?, *round.heard.lock());
    let now = clock::now();
    if route != Route::Shared {
        // As it is asked for: in whole milliseconds.
        let own = Duration::from_millis(to_ms(task.options.interval));
        if heard.interval > own && !task.longer_interval_logged.swap(true, Ordering::Relaxed) {
            let (task, in_force) = (Arc::clone(&task.name), heard.interval);
            keeper.log.line(move || {
                tracing::info!(%task, ?own, ?in_force, "a longer stall interval is in force than this worker asks for");
            });
        }
        watch.witness.lock().beat_answered(due, now, heard.epoch, heard.interval);
        watch.pass.lock().heard(heard.candidates, heard.active, now.since(started));
        watch.seen.notify_one();
    }
    let (took, was_fresh, was_slow) = (now.since(started), task.beats_are_fresh(), task.beats_are_slow());
    // A worker that holds nothing may claim, however long the round trip is.
    let named = round.named();
    task.beat_answered(started, named, if named == 0 { Duration::ZERO } else { took });
    // During an outage, a slow answer says nothing about the load.
    if task.beats_are_slow() && !was_slow && !keeper.worker.incidents.is_unreachable() {
        let (task, period) = (Arc::clone(&task.name), task.beat_period());
        keeper.log.line(move || {
            let advice = "heartbeats take over half of their period, so fewer jobs are claimed, and none over a whole \
                period; a longer stall interval, or a lower concurrency, gives them more time";
            tracing::warn!(%task, jobs = named, ?took, ?period, "{advice}");
        });
    }
    if !was_fresh || was_slow {
        task.poke.notify_one();
    }
    if heard.declared_at < task.stamp {
        match keeper.declare_again(watch).await {
            Ok(()) => keeper.answered("declare", task.of()),
            Err(e) => keeper.failed_at("declare", task.of(), &e),
        }
    } else {
        // Ends the incident of a declaration whose answer was lost, too.
        keeper.answered("declare", task.of());
    }
    Ok(route)
}
