//! Hands back what an adaptive prefetch holds while handlers block every thread of the user's runtime: there the driver
//! cannot do it.
//!
//! The keeper has a call sequence of its own, and repeats a call under its number until it is answered. The jobs stay held,
//! with heartbeats, until then. If the process dies, the sweep decides about them.

use std::sync::Arc;
use std::time::Duration;

use super::Keeper;
use super::task_monitor::TaskMonitor;
use crate::backend::report::{self, Report};
use crate::backend::settle::{self, KEEPER_SEQUENCE, SettleCall, SettleReply, Want};
use crate::error::Error;
use crate::options::resolved::Prefetch;
use crate::runtime::held_jobs::{Flags, HeldJob};

/// How often the keeper looks whether the driver is late.
const LOOK: Duration = Duration::from_millis(3);

/// The longest pause between looks while the driver stays late.
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// After this many looks without a waiting job, it waits for the driver to ring.
const CALM: u32 = 100;

/// The pause before a failed call is repeated.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskMonitor>) {
    let task = &watch.task;
    if task.options.prefetch != Prefetch::Adaptive {
        return std::future::pending().await;
    }
    let mut number = 0;
    loop {
        task.ahead_watch.rung().await;
        let (mut calm, mut pause) = (0, LOOK);
        while calm < CALM || !task.ahead_watch.rests() {
            tokio::time::sleep(pause).await;
            calm = if task.ahead_watch.is_waiting() { 0 } else { calm + 1 };
            // The longer the driver is late, the less changes.
            pause = if task.ahead_watch.is_overdue() { (pause * 2).min(LONGEST_LOOK) } else { LOOK };
            if pause > LOOK {
                hand_back(&keeper, &watch, &mut number).await;
            }
        }
    }
}

/// Hands back the jobs that the driver holds ahead, and those of claims whose answers it has not applied.
async fn hand_back(keeper: &Keeper, watch: &TaskMonitor, number: &mut u64) {
    let task = &watch.task;
    // A driver that stops waits for this, also before the first job is taken.
    let begun = task.ahead_watch.begin();
    take_and_requeue(keeper, watch, number).await;
    drop(begun);
    task.poke.notify_one();
}

async fn take_and_requeue(keeper: &Keeper, watch: &TaskMonitor, number: &mut u64) {
    let task = &watch.task;
    let ahead = task.held.all().into_iter().filter(|held| held.take(Flags::AHEAD));
    let requeued = |held: Arc<HeldJob>| {
        // A heartbeat that finds it gone needs no warning.
        held.post(Flags::FINISHED);
        Report::requeue(held.id.clone(), held.fence)
    };
    let reports = ahead.map(requeued).collect();
    requeue(keeper, watch, number, reports).await;
    for (sequence, call) in task.claims.unapplied_ahead() {
        let claimed = async |conn: &mut _| {
            settle::claimed_by(conn, &task.keys, keeper.worker.id.as_str(), (sequence, call)).await
        };
        let Ok(claimed) = keeper.call(watch, claimed).await else { return };
        // From here on the driver ignores these jobs.
        let fences = claimed.iter().map(|(_, fence)| *fence).collect();
        if !claimed.is_empty() && task.claims.take_over(sequence, call, fences) {
            let reports = claimed.into_iter().map(|(id, fence)| Report::requeue(id, fence)).collect();
            requeue(keeper, watch, number, reports).await;
        }
    }
}

/// Requeues the jobs in front of all others of their lists, in their order.
async fn requeue(keeper: &Keeper, watch: &TaskMonitor, number: &mut u64, mut reports: Vec<Report>) {
    let (task, all) = (&watch.task, reports.len());
    if all == 0 {
        return;
    }
    let _under_way = task.ahead_watch.takes(all);
    // Newest first: each call puts its jobs in front of those of earlier calls.
    reports.sort_unstable_by_key(|report| report.fence);
    while !reports.is_empty() {
        let batch = reports.split_off(reports.len() - report::fitting(reports.iter().rev()));
        *number += 1;
        answered(keeper, watch, *number, &batch).await;
        task.held.remove(batch.iter().map(|report| report.fence));
    }
}

/// Makes the call until it is answered. A worker whose sequences are closed no longer holds the jobs.
async fn answered(keeper: &Keeper, watch: &TaskMonitor, number: u64, reports: &[Report]) {
    let (task, worker) = (&watch.task, keeper.worker.id.as_str());
    loop {
        let call = async |conn: &mut _| {
            let (sequence, ask) = (KEEPER_SEQUENCE, task.options.interval);
            let call = SettleCall { worker, sequence, number, ask, want: Want::NONE, reports };
            settle::settle(conn, &task.keys, call, &task.plain_first).await
        };
        match keeper.call(watch, call).await {
            Ok(SettleReply::Settled(_) | SettleReply::Stale | SettleReply::Closed) => return,
            Ok(SettleReply::Undeclared) => drop(keeper.declare_again(watch).await),
            Err(e) => log_failure(keeper, watch, &e),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn log_failure(keeper: &Keeper, watch: &TaskMonitor, e: &Error) {
    let (task, error) = (Arc::clone(&watch.task.name), e.chain().to_string());
    keeper.log.line(move || tracing::debug!(%task, error, "jobs could not be handed back; will retry"));
}
