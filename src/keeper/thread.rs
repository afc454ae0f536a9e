//! The keeper's thread and its loops.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::housekeeping::{self, count, expire, record, trim, trim_lanes, trim_unique};
use super::log::Log;
use super::task_monitor::TaskMonitor;
use super::{Keeper, ahead, beat, dropped_worker, hints, notes, presence, reconcile, sweep, tick};
use crate::clock;
use crate::runtime::shared::{KeeperEnd, WorkerShared};
use crate::runtime::task::TaskRuntime;

/// Starts the thread. It ends when `end` requests it, and drops `alive` however it ends.
pub(crate) fn start(
    worker: Arc<WorkerShared>,
    tasks: &[Arc<TaskRuntime>],
    end: KeeperEnd,
    alive: tokio::sync::oneshot::Sender<()>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let now = clock::now();
    let watches = tasks.iter().map(|task| Arc::new(TaskMonitor::new(Arc::clone(task), now))).collect();
    let keeper = Arc::new(Keeper::new(worker, watches, Log::start()?));
    std::thread::Builder::new().name("heartline-keeper".to_owned()).spawn(move || {
        let _alive = alive;
        runtime.block_on(async {
            let mut loops = tokio::task::JoinSet::<()>::new();
            // Boxed, so that the code of a task is compiled once for all loops.
            let mut start = |run: BoxFuture<'static, ()>| drop(loops.spawn(run));
            let store = Arc::clone(&keeper.worker.store);
            start(async move { store.address.watch().await }.boxed());
            start(tick::run(Arc::clone(&keeper)).boxed());
            start(hints::run(Arc::clone(&keeper)).boxed());
            start(presence::run(Arc::clone(&keeper)).boxed());
            start(reconcile::run(Arc::clone(&keeper)).boxed());
            start(housekeeping::run(Arc::clone(&keeper), "retention", |own, watch| Box::pin(trim(own, watch))).boxed());
            start(housekeeping::run(Arc::clone(&keeper), "expiry", |own, watch| Box::pin(expire(own, watch))).boxed());
            start(housekeeping::run(Arc::clone(&keeper), "counts", |own, watch| Box::pin(count(own, watch))).boxed());
            start(
                housekeeping::run(Arc::clone(&keeper), "unique keys", |own, watch| Box::pin(trim_unique(own, watch)))
                    .boxed(),
            );
            start(
                housekeeping::run(Arc::clone(&keeper), "lanes", |own, watch| Box::pin(trim_lanes(own, watch))).boxed(),
            );
            start(
                housekeeping::run(Arc::clone(&keeper), "time series", |own, watch| Box::pin(record(own, watch)))
                    .boxed(),
            );
            for watch in keeper.watches.iter() {
                start(beat::run(Arc::clone(&keeper), Arc::clone(watch)).boxed());
                start(sweep::run(Arc::clone(&keeper), Arc::clone(watch)).boxed());
                start(notes::run(Arc::clone(&keeper), Arc::clone(watch)).boxed());
                start(ahead::run(Arc::clone(&keeper), Arc::clone(watch)).boxed());
                #[cfg(feature = "schedules")]
                start(super::schedules::run(Arc::clone(&keeper), Arc::clone(watch)).boxed());
            }
            let handed_back = tokio::select! {
                () = end.stop.cancelled() => None,
                // The loops keep sending heartbeats meanwhile.
                handed_back = dropped_worker::run(&keeper, &end) => Some(handed_back),
                // No loop ends by itself, so if one has ended, it panicked.
                ended = loops.join_next() => {
                    keeper.log.line(move || tracing::error!(?ended, "the keeper ended; the worker stops"));
                    None
                }
            };
            drop(loops);
            #[cfg(feature = "schedules")]
            super::schedules::leave(&keeper).await;
            if let Some(handed_back) = handed_back {
                dropped_worker::end(&keeper, handed_back).await;
            }
        });
        // A name lookup may still run, on a thread of its own.
        runtime.shutdown_background();
    })?;
    Ok(())
}
