//! The keeper's thread and its loops.

use std::sync::Arc;

use super::housekeeping::{self, count, expire, trim, trim_unique};
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
            let mut loops = tokio::task::JoinSet::new();
            let store = Arc::clone(&keeper.worker.store);
            loops.spawn(async move { store.address.watch().await });
            loops.spawn(tick::run(Arc::clone(&keeper)));
            loops.spawn(hints::run(Arc::clone(&keeper)));
            loops.spawn(presence::run(Arc::clone(&keeper)));
            loops.spawn(reconcile::run(Arc::clone(&keeper)));
            loops.spawn(housekeeping::run(Arc::clone(&keeper), "retention", |own, watch| Box::pin(trim(own, watch))));
            loops.spawn(housekeeping::run(Arc::clone(&keeper), "expiry", |own, watch| Box::pin(expire(own, watch))));
            loops.spawn(housekeeping::run(Arc::clone(&keeper), "counts", |own, watch| Box::pin(count(own, watch))));
            loops.spawn(housekeeping::run(Arc::clone(&keeper), "unique keys", |own, watch| {
                Box::pin(trim_unique(own, watch))
            }));
            for watch in keeper.watches.iter() {
                loops.spawn(beat::run(Arc::clone(&keeper), Arc::clone(watch)));
                loops.spawn(sweep::run(Arc::clone(&keeper), Arc::clone(watch)));
                loops.spawn(notes::run(Arc::clone(&keeper), Arc::clone(watch)));
                loops.spawn(ahead::run(Arc::clone(&keeper), Arc::clone(watch)));
                #[cfg(feature = "schedules")]
                loops.spawn(super::schedules::run(Arc::clone(&keeper), Arc::clone(watch)));
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
