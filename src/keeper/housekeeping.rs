//! What the keeper does for each task every few seconds: it removes old terminal jobs, ends expired ones, and counts
//! waiting ones. Every minute it removes unique keys whose jobs are gone. Every 30 s it records the time series.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;

use super::task_monitor::TaskMonitor;
use super::{HOUSEKEEPING, Keeper, Place};
use crate::backend::keys::Key;
use crate::backend::lanes;
use crate::backend::overview;
use crate::backend::retention::{self, Trimmed};
use crate::backend::series;
use crate::backend::unique;
use crate::clock;
use crate::error::Error;
use crate::join::join_all;
use crate::limits::BATCH;

/// The most jobs that one call removes: with long ids, 500 blocked the server for some milliseconds.
const TRIM_BATCH: usize = 200;

/// The most jobs that one pass removes from a set. The rest waits for the next pass, to leave the server time for other
/// work.
const PASS: usize = 50 * TRIM_BATCH;

/// The most calls of one pass over a set. A call removes few large jobs.
const TRIMS: usize = 400;

/// The most calls of one pass over the expired jobs of a task. The rest waits for the next pass.
const EXPIRIES: usize = 100;

/// How many unique keys one call looks at, and the most calls of one pass.
const KEY_BATCH: usize = 500;
const KEY_CALLS: usize = 100;

/// The work for one task.
type Work = for<'a> fn(&'a Keeper, &'a TaskMonitor) -> BoxFuture<'a, Result<(), Error>>;

/// Does the work for all tasks, again and again, until the keeper's runtime ends: in sequence for tasks of one primary,
/// concurrently for different primaries. In a cluster, an unanswered call ends the sequence of its primary, so that a
/// node that is down delays no tasks of others.
pub(super) async fn run(keeper: Arc<Keeper>, part: &'static str, work: Work) {
    let (keeper, is_cluster) = (&*keeper, keeper.worker.store.is_cluster());
    loop {
        let mut chains: HashMap<Place, Vec<&TaskMonitor>> = HashMap::new();
        for watch in keeper.watches.iter() {
            chains.entry(keeper.place_of(watch)).or_default().push(watch);
        }
        let chains = chains.into_values().map(|chain| async move {
            for watch in chain {
                match work(keeper, watch).await {
                    Ok(()) => keeper.answered(part, watch.task.of()),
                    Err(e) => {
                        keeper.failed_at(part, watch.task.of(), &e);
                        if is_cluster && e.is_outage() {
                            break;
                        }
                    }
                }
            }
        });
        join_all(chains).await;
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// Removes jobs of the terminal sets beyond the age or the count that is declared.
pub(super) async fn trim(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let (task, worker, mut total) = (&watch.task, keeper.worker.id.as_str(), 0);
    for place in [Key::Completed, Key::Failed, Key::Cancelled] {
        let mut removed = 0;
        for _ in 0..TRIMS {
            let limit = TRIM_BATCH.min(PASS - removed);
            let call = async |conn: &mut _| retention::trim(conn, &task.keys, place, worker, limit).await;
            match keeper.housekeeping_call(call).await? {
                Trimmed::Jobs { count, more } => {
                    removed += count;
                    if !more || removed >= PASS {
                        break;
                    }
                }
                Trimmed::Undeclared => {
                    keeper.declare_again(watch).await?;
                    break;
                }
            }
        }
        total += removed;
    }
    let task = Arc::clone(&task.name);
    keeper.log.line(move || tracing::trace!(%task, removed = total, "terminal jobs trimmed"));
    Ok(())
}

/// Fails jobs that expired before a worker began them, even if no worker claims: the task is paused, or all slots are
/// taken.
pub(super) async fn expire(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let (task, worker, mut expired) = (&watch.task, keeper.worker.id.as_str(), 0);
    for _ in 0..EXPIRIES {
        let call = async |conn: &mut _| retention::expire(conn, &task.keys, worker, BATCH).await;
        match keeper.housekeeping_call(call).await? {
            Trimmed::Jobs { count, more } => {
                expired += count;
                if !more {
                    break;
                }
            }
            Trimmed::Undeclared => {
                keeper.declare_again(watch).await?;
                break;
            }
        }
    }
    if expired > 0 {
        let task = Arc::clone(&task.name);
        keeper.log.line(move || tracing::debug!(%task, expired, "jobs expired"));
    }
    Ok(())
}

/// Removes unique keys whose jobs are gone: one call a minute, and more while a quarter of what a call reads is gone.
/// After the most calls of a pass, the next pass continues.
pub(super) async fn trim_unique(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let (last, mut cursor) = *watch.key_scan.lock();
    if clock::now().since(last) < keeper.worker.store.timings.trim_unique {
        return Ok(());
    }
    for _ in 0..KEY_CALLS {
        let keys = &watch.task.keys;
        let call = async |conn: &mut _| unique::trim(conn, keys, cursor, KEY_BATCH).await;
        let (next, read, removed) = keeper.housekeeping_call(call).await?;
        cursor = next;
        let is_over = next == 0 || removed * 4 < read.max(1);
        *watch.key_scan.lock() = (if is_over { clock::now() } else { last }, cursor);
        if is_over {
            break;
        }
    }
    Ok(())
}

/// Removes what jobs that are gone have left in the keys about lanes, once a minute, and repairs the turns of keys. After the most calls
/// of a pass, the next pass continues.
pub(super) async fn trim_lanes(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let (last, mut place, mut cursor) = watch.lane_scan.lock().clone();
    if clock::now().since(last) < keeper.worker.store.timings.trim_unique {
        return Ok(());
    }
    let keys = &watch.task.keys;
    for _ in 0..KEY_CALLS {
        let name = lanes::PLACES[place];
        let call = async |conn: &mut _| lanes::trim(conn, keys, name, &cursor, KEY_BATCH).await;
        cursor = keeper.housekeeping_call(call).await?;
        if cursor.is_empty() {
            place = (place + 1) % lanes::PLACES.len();
            if place == 0 {
                break;
            }
        }
    }
    *watch.lane_scan.lock() = (clock::now(), place, cursor);
    Ok(())
}

/// Records the counters of the task in its time series, and how long the runs of this worker waited and took. If the call fails, the
/// series lacks these durations.
pub(super) async fn record(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    if clock::now().since(*watch.recorded.lock()) < keeper.worker.store.timings.series {
        return Ok(());
    }
    *watch.recorded.lock() = clock::now();
    let (keys, times) = (&watch.task.keys, &watch.task.run_times);
    let (waited, ran) = (times.waited.take(), times.ran.take());
    keeper.housekeeping_call(async |conn| series::add(conn, keys, &waited, &ran).await).await
}

/// Counts the waiting jobs of a task, for the health of the worker: a claim loop that does nothing while jobs wait is a
/// fault.
pub(super) async fn count(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let (task, counted) = (&watch.task, &watch.task.counted);
    let found = keeper.housekeeping_call(async |conn| overview::counts(conn, &task.keys).await).await?;
    let [waiting, ..] = found.jobs;
    counted.waiting.store(waiting, Ordering::Relaxed);
    counted.is_paused.store(found.is_paused, Ordering::Relaxed);
    Ok(())
}
