//! What the keeper does for a worker whose future was dropped. It sends heartbeats until the runs are dropped too. Then
//! it repeats the last calls under their numbers, reports finished runs, requeues the others, and closes the call
//! sequences.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::address::Role;
use crate::backend::connection::OwnConnection;
use crate::backend::note::{self, RunNote};
use crate::backend::report::{self, Report};
use crate::backend::settle::{self, LARGE_SEQUENCE, SEQUENCES, SettleCall, SettleReply, Settled, Want};
use crate::backend::timeouts::{doubled, response_time};
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::join::join_all;
use crate::limits::LARGE;
use crate::runtime::held_jobs::Flags;
use crate::runtime::identity;
use crate::runtime::outbox::Unreported;
use crate::runtime::shared::{self, KeeperEnd};
use crate::stall::cadence::reporting_time;

/// How long runs may take to be dropped after the cancel grace.
const DROP_TIME: Duration = Duration::from_secs(1);

/// The pause before a failed call is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for the worker to be dropped, then hands back its jobs. Returns `false` if Redis did not answer in time.
pub(super) async fn run(keeper: &Keeper, end: &KeeperEnd) -> bool {
    end.left.cancelled().await;
    let worker_id = keeper.worker.id.clone();
    let held: usize = keeper.watches.iter().map(|watch| watch.task.held.len()).sum();
    keeper.log.line(move || {
        tracing::warn!(%worker_id, held, "the worker was dropped while it ran; its jobs are handed back");
    });
    let tasks: Vec<_> = keeper.watches.iter().map(|watch| hand_back(keeper, watch)).collect();
    join_all(tasks).await.into_iter().all(|handed_back| handed_back)
}

/// Records in Redis that the worker has stopped, once nothing of it can write any more.
pub(super) async fn end(keeper: &Keeper, handed_back: bool) {
    let worker = &keeper.worker;
    // No driver reads them any more.
    worker.news.clear();
    if handed_back {
        let tasks = keeper.watches.iter().map(|watch| &watch.task);
        let named: Vec<_> = tasks.map(|task| (&*task.name, &*task.keys, task.held.len())).collect();
        let goodbye = async {
            let mut conn = worker.store.dedicated(Role::Keeper, None).await?;
            worker.store.close(&mut conn, worker.id.as_str(), &named, identity::boot_id().as_deref(), "stopped").await
        };
        // If this fails, the presence expires by itself.
        let _ = shared::farewell(goodbye).await;
    }
    let worker_id = worker.id.clone();
    keeper.log.line(move || tracing::info!(%worker_id, handed_back, "stopped"));
}

/// Hands back the jobs of one task. Returns whether Redis answered for all of them.
async fn hand_back(keeper: &Keeper, watch: &TaskMonitor) -> bool {
    let task = &watch.task;
    task.held.for_each(|held| held.post(Flags::SHUTDOWN));
    task.alive.close();
    // A run that blocks its thread cannot be dropped. Its job is requeued anyway.
    let _ = tokio::time::timeout(task.options.cancel_grace.saturating_add(DROP_TIME), task.alive.wait()).await;
    let end = clock::now().after(reporting_time(task.options.interval));
    let Unreported { reports: mut rest, collected: (small, large), calls } = task.outbox.take_all();
    rest.extend(small.into_iter().chain(large));
    let mut own = Sequences { keeper, watch, numbers: calls.clone().map(|call| call.number), conn: None, end };
    // Leave half of the time to the outcomes.
    if tokio::time::timeout(end.since(clock::now()) / 2, own.write_notes()).await.is_err() {
        own.conn = None;
    }
    let on_the_way = calls.iter().filter_map(|call| call.under_way.as_deref()).flatten();
    let ending = on_the_way.filter(|report| report.outcome.ends_the_hold());
    let mut reported: HashSet<u64> = ending.map(|report| report.fence).collect();
    let [first, second, last, _] = calls.map(|call| call.under_way);
    rest.retain(|report| report.outcome.ends_the_hold());
    for (sequence, reports) in [first, second].into_iter().enumerate() {
        let Some(reports) = reports else { continue };
        // Redis answers from its record if it has carried out the call. The jobs that the call claimed did not run.
        let Some(settled) = own.settle(sequence, &reports).await else { return false };
        rest.extend(settled.claimed.into_iter().map(|job| Report::requeue(job.id, job.fence)));
    }
    rest.retain(|report| reported.insert(report.fence));
    let unreported = task.held.all().into_iter().filter(|held| reported.insert(held.fence));
    rest.extend(unreported.map(|held| Report::requeue(held.id.clone(), held.fence)));
    // Newest first, as in a shutdown: each call puts its jobs in front of those of earlier calls.
    rest.sort_unstable_by_key(|report| report.fence);
    let (large, mut small): (Vec<_>, Vec<_>) = rest.into_iter().partition(|report| report.bytes() > LARGE);
    while !small.is_empty() {
        let count = report::fitting(small.iter().rev());
        let batch = small.split_off(small.len() - count);
        if !own.report(0, &batch).await {
            return false;
        }
    }
    // Large outcomes last: if the server refuses one or takes long, only that one is left to the sweep.
    let mut handed_back = true;
    if let Some(reports) = last {
        handed_back &= own.settle(LARGE_SEQUENCE, &reports).await.is_some();
    }
    for report in large {
        handed_back &= own.report(LARGE_SEQUENCE, &[report]).await;
    }
    handed_back
}

/// The call sequences of a driver that was dropped.
struct Sequences<'a> {
    keeper: &'a Keeper,
    watch: &'a TaskMonitor,
    /// The number of the last call of each sequence.
    numbers: [u64; SEQUENCES.len()],
    /// The connection, and the epoch of the primary that it leads to.
    conn: Option<(OwnConnection, u64)>,
    end: Moment,
}

impl Sequences<'_> {
    /// Writes checkpoints and progress, from which the next runs continue. Tried once.
    async fn write_notes(&mut self) {
        let (task, worker) = (&self.watch.task, &self.keeper.worker);
        let notes = task.held.all().iter().filter_map(|held| held.pending_note(true)).collect();
        for call in note::in_calls(notes) {
            let write = async {
                let (conn, primary_epoch) = self.connection().await?;
                let noted = note::note(conn, &task.keys, worker.id.as_str(), &call);
                worker.store.steady_since(primary_epoch, noted).await
            };
            let time = response_time(call.iter().map(RunNote::bytes).sum());
            let written = tokio::time::timeout(time, write).await.unwrap_or_else(|_| Err(Error::late()));
            if let Err(e) = written {
                self.conn = None;
                let task = Arc::clone(&task.name);
                self.keeper.log.line(move || {
                    tracing::warn!(%task, error = %e.chain(), "checkpoints and progress could not be written; the next runs continue from earlier ones");
                });
                return;
            }
        }
    }

    /// Makes the next call of the sequence.
    async fn report(&mut self, sequence: usize, reports: &[Report]) -> bool {
        self.numbers[sequence] += 1;
        let is_answered = self.settle(sequence, reports).await.is_some();
        if is_answered {
            self.watch.task.held.remove(reports.iter().map(|report| report.fence));
        }
        is_answered
    }

    /// Makes the call under the last number of the sequence, and repeats it until Redis answers. `None` if it does not
    /// answer in time, or refuses the call.
    async fn settle(&mut self, sequence: usize, reports: &[Report]) -> Option<Settled> {
        let mut timeout = response_time(reports.iter().map(Report::bytes).sum());
        while clock::now() < self.end {
            let left = self.end.since(clock::now());
            let answer = tokio::time::timeout(left.min(timeout), self.call(sequence, reports)).await;
            let answer = answer.unwrap_or_else(|_| Err(Error::late()));
            match answer {
                Ok(SettleReply::Settled(settled)) => return Some(settled),
                // Another process has decided about the jobs, or the server has lost them.
                Ok(SettleReply::Closed | SettleReply::Stale | SettleReply::Undeclared) => return None,
                Err(e) => {
                    self.conn = None;
                    if e.is_late() {
                        timeout = doubled(timeout);
                    }
                    let task = Arc::clone(&self.watch.task.name);
                    self.keeper.log.line(move || {
                        tracing::debug!(%task, error = %e.chain(), "jobs could not be handed back; will retry");
                    });
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        None
    }

    async fn call(&mut self, sequence: usize, reports: &[Report]) -> Result<SettleReply, Error> {
        let (task, worker) = (&self.watch.task, &self.keeper.worker);
        let number = self.numbers[sequence];
        let (conn, primary_epoch) = self.connection().await?;
        let (worker_id, ask) = (worker.id.as_str(), task.options.interval);
        let call = SettleCall { worker: worker_id, sequence, number, ask, want: Want::NONE, reports };
        let settled = settle::settle(conn, &task.keys, call, &task.plain_first);
        worker.store.steady_since(primary_epoch, settled).await
    }

    /// The connection, and the epoch of its primary.
    async fn connection(&mut self) -> Result<(&mut OwnConnection, u64), Error> {
        let store = &self.keeper.worker.store;
        let primary_epoch = store.primary_epoch();
        let connection = match self.conn.take() {
            Some(connection) => connection,
            None => (store.dedicated(Role::Keeper, None).await?, primary_epoch),
        };
        let (conn, primary_epoch) = self.conn.insert(connection);
        Ok((conn, *primary_epoch))
    }
}
