//! Announces this worker, moves workers without a sign to the list of gone ones, and forgets them later.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::{HOUSEKEEPING, Keeper};
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::escape::cut;
use crate::runtime::identity;
use crate::runtime::incidents::NO_TASK;
use crate::runtime::lost_runs::LostRuns;
use crate::runtime::task::TaskRuntime;
use crate::unix_time::ms_of;

/// The least time between announcements: a server may accept connections but answer no call.
const APART: Duration = Duration::from_secs(1);

/// How many bytes of the server's refusal are stored.
const DENIED_BYTES: usize = 300;

/// Announces the worker again and again, also after failures.
pub(super) async fn run(keeper: Arc<Keeper>) {
    let mut unseen = HashMap::new();
    let mut listed = clock::now();
    loop {
        let announced = run_once(&keeper, &mut unseen).await;
        if clock::now().since(listed) >= keeper.worker.store.timings.relist {
            listed = clock::now();
            relist(&keeper).await;
        }
        match announced {
            Ok(()) => keeper.answered("presence", NO_TASK),
            Err(e) => keeper.failed_at("presence", NO_TASK, &e),
        }
        // After an outage or a freeze, people must see at once which workers are there.
        let pause = async {
            tokio::time::sleep(APART).await;
            let _ = tokio::time::timeout(HOUSEKEEPING - APART, keeper.connected.notified()).await;
        };
        tokio::select! {
            () = pause => {}
            () = keeper.resumed.notified() => {}
        }
    }
}

/// Adds our tasks to the list of tasks again, in case the server lost it.
async fn relist(keeper: &Keeper) {
    let tasks: Vec<&str> =
        keeper.watches.iter().map(|watch| &watch.task).filter(|task| task.is_first()).map(|task| &*task.name).collect();
    let (store, now_ms) = (&keeper.worker.store, ms_of(SystemTime::now()));
    if let Err(e) = keeper.housekeeping_call(async |conn| store.relist(conn, &tasks, now_ms).await).await {
        keeper
            .log
            .line(move || tracing::debug!(error = %e.chain(), "the list of tasks could not be written; will retry"));
    }
}

/// Announces this worker, moves workers that were not seen for an hour to the list of gone ones, and forgets older
/// ones. `unseen` says since when this worker has not seen each of them.
async fn run_once(keeper: &Keeper, unseen: &mut HashMap<String, Moment>) -> Result<(), Error> {
    let fields = facts(keeper, clock::now());
    let (store, id) = (&keeper.worker.store, keeper.worker.id.as_str());
    keeper.housekeeping_call(async |conn| store.announce(conn, id, &fields).await).await?;
    let keep = keeper.worker.presence_retention;
    let gone = keeper.housekeeping_call(async |conn| store.long_gone(conn, keep.max_count).await).await?;
    let gone = gone.into_iter().filter(|worker| worker != id).collect();
    for worker in watched(unseen, gone, clock::now(), store.timings.unseen) {
        keeper.housekeeping_call(async |conn| store.park(conn, &worker).await).await?;
    }
    keeper.housekeeping_call(async |conn| store.forget_gone(conn, keep).await.map(drop)).await
}

/// How late the last tick may be although nothing was frozen.
const TICKS: Duration = Duration::from_secs(1);

/// The presence of this worker: who it is, and for each task what it holds, how its heartbeats go, and the state of its
/// watch. Times are given as ages: with the server's clock they become timestamps.
fn facts(keeper: &Keeper, now: Moment) -> Vec<(String, String)> {
    let firsts = || keeper.watches.iter().map(|watch| &watch.task).filter(|task| task.is_first());
    let parts_of = |name: &Arc<str>| {
        let name = Arc::clone(name);
        keeper.watches.iter().filter(move |watch| watch.task.name == name)
    };
    let lost = |name: &Arc<str>| LostRuns::of(parts_of(name).map(|watch| &watch.task), now);
    // A lost job is held by another worker, or waits.
    let held = |name: &Arc<str>| {
        let all: usize = parts_of(name).map(|watch| watch.task.held.len()).sum();
        all.saturating_sub(lost(name).map_or(0, |lost| lost.count))
    };
    let mut fields = identity::presence(&keeper.facts, firsts().map(|task| (&*task.name, held(&task.name))));
    let worker = &keeper.worker;
    let started = keeper.watches.iter().map(|watch| watch.task.stamp).min().unwrap_or(0);
    let phase = if worker.stopping.is_cancelled() { "stopping" } else { "working" };
    let millis = |at: &AtomicU64| Moment::from_millis(at.load(Ordering::SeqCst));
    let silent = silence(now, millis(&worker.liveness_probe).max(millis(&worker.resumed)), millis(&worker.last_tick));
    fields.push(("startedAt".to_owned(), started.to_string()));
    fields.push(("phase".to_owned(), phase.to_owned()));
    fields.extend(worker.slots.most().map(|most| ("maxJobs".to_owned(), most.to_string())));
    fields.push(("runtimeSilent".to_owned(), silent.as_millis().to_string()));
    for task in firsts() {
        let name = &task.name;
        fields.push((format!("slots:{name}"), task.options.concurrency.to_string()));
        fields.push((format!("declared:{name}"), task.stamp.to_string()));
        // The oldest and the slowest heartbeat of all partitions.
        let beaten = |task: &TaskRuntime| (task.last_beat().as_millis() > 0).then(|| now.since(task.last_beat()));
        let beats: Option<Vec<Duration>> = parts_of(name).map(|watch| beaten(&watch.task)).collect();
        let beat = beats.and_then(|beats| beats.into_iter().max());
        let beat = beat.map_or("-".to_owned(), |ago| ago.as_millis().to_string());
        let took = parts_of(name).map(|watch| watch.task.beat_took()).max().unwrap_or_default();
        fields.push((format!("beat:{name}"), format!("{beat} {}", took.as_millis())));
        let denied = parts_of(name).filter_map(|watch| watch.task.rights.denied()).max_by_key(|(at, _)| at.as_millis());
        if let Some((at, said)) = denied {
            let said = format!("{} {}", now.since(at).as_millis(), cut(&said, DENIED_BYTES));
            fields.push((format!("denied:{name}"), said));
        }
        let runs = lost(name).map_or("0 0".to_owned(), |lost| format!("{} {}", lost.count, lost.since.as_millis()));
        fields.push((format!("lost:{name}"), runs));
        if task.keys.parts() > 1 {
            fields.push((format!("partitions:{name}"), task.keys.parts().to_string()));
        }
    }
    if let Some((at, said)) = worker.flow_rights.denied() {
        let said = format!("{} {}", now.since(at).as_millis(), cut(&said, DENIED_BYTES));
        fields.push(("flowsDenied".to_owned(), said));
    }
    for watch in keeper.watches.iter() {
        let (task, witness) = (&watch.task, watch.witness.lock());
        // A task name contains no `:`.
        let name = match task.keys.part() {
            0 => task.name.to_string(),
            part => format!("{}:{part}", task.name),
        };
        let (epoch, watched, interval) = witness.watched(now).unwrap_or_default();
        let (cause, ago) = witness.last_break(now).map_or(("-", 0), |(cause, ago)| (cause.as_str(), ago.as_millis()));
        let watch = format!("{epoch} {} {} {cause} {ago}", watched.as_millis(), interval.as_millis());
        fields.push((format!("watch:{name}"), watch));
    }
    fields
}

/// How long handlers have blocked the runtime. If the keeper thread did not tick for as long, the whole process was
/// frozen, and no handler caused it.
fn silence(now: Moment, sign: Moment, last_tick: Moment) -> Duration {
    now.since(sign).min(last_tick.since(sign) + TICKS)
}

/// The workers that have looked gone for at least this time.
fn watched(unseen: &mut HashMap<String, Moment>, gone: Vec<String>, now: Moment, time: Duration) -> Vec<String> {
    let since = |worker: &str| unseen.get(worker).copied().unwrap_or(now);
    *unseen = gone.into_iter().map(|worker| (worker.clone(), since(&worker))).collect();
    let long = unseen.iter().filter(|(_, since)| now.since(**since) >= time);
    long.map(|(worker, _)| worker.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_frozen_blames_no_handler() {
        let start = clock::now();
        let at = |seconds| start.after(Duration::from_secs(seconds));
        // The keeper ticks all the time: the runtime is blocked.
        assert_eq!(silence(at(30), at(4), at(30)), Duration::from_secs(26));
        // The last tick was at the runtime's last sign: the process was frozen.
        assert!(silence(at(30), at(4), at(4)) <= TICKS);
        // The keeper has recorded that the process runs again.
        assert_eq!(silence(at(31), at(30), at(31)), Duration::from_secs(1));
    }

    #[test]
    fn a_worker_is_removed_only_after_it_looks_gone_for_a_minute() {
        let (mut workers, gone) =
            (HashMap::new(), |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect());
        let start = clock::now();
        let at = |seconds| start.after(Duration::from_secs(seconds));
        let mut seen = |gone, now| watched(&mut workers, gone, now, Duration::from_secs(60));
        // The server's clock jumped: all workers look gone until they announce themselves.
        assert!(seen(gone(&["live", "dead"]), at(0)).is_empty());
        assert!(seen(gone(&["dead"]), at(5)).is_empty());
        assert!(seen(gone(&["live", "dead"]), at(59)).is_empty());
        assert_eq!(seen(gone(&["live", "dead"]), at(60)), ["dead"]);
        assert!(seen(gone(&[]), at(65)).is_empty() && workers.is_empty());
    }
}
