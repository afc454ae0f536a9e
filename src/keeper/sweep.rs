//! The sweep loop of one task: witness, resolve, next snapshot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use super::Keeper;
use super::sweep_progress::SweepPlan;
use super::task_monitor::TaskMonitor;
use crate::backend::connection::OwnConnection;
use crate::backend::server::check_rights;
use crate::backend::sweep::{self, StalledJob, SweepReply};
use crate::clock;
use crate::error::Error;
use crate::escape::Escaped;
use crate::join::join_all;
use crate::options::stall::Heartbeat;
use crate::runtime::workflow_queue::Notice;
use crate::stall::action::StallReason;
use crate::stall::cadence;
use crate::stall::witness::DetectorReset;

/// Sweeps whenever the witness allows it, until the keeper's runtime ends.
pub(crate) async fn run(keeper: Arc<Keeper>, watch: Arc<TaskMonitor>) {
    loop {
        let at = watch.witness.lock().sweep_at();
        match at {
            None => watch.seen.notified().await,
            Some(at) => {
                let pause = at.since(clock::now());
                if !pause.is_zero() {
                    // During the sleep this time can only move later or follow a new interval.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = watch.seen.notified() => {}
                    }
                    continue;
                }
                if watch.witness.lock().may_sweep(clock::now()).is_none() {
                    // The watch was broken, or our own heartbeat is due: its answer notifies.
                    tokio::select! {
                        () = watch.seen.notified() => {}
                        () = tokio::time::sleep(cadence::sweep_look(watch.task.options.interval)) => {}
                    }
                    continue;
                }
                if let Err(e) = run_once(&keeper, &watch).await {
                    watch.witness.lock().broken(clock::now(), DetectorReset::SweepRefused);
                    watch.task.rights.heard(&e);
                    // Do not report a short fault here: the next sweep may be an interval away, and a heartbeat shows
                    // sooner that the fault is over.
                    if !e.is_retryable() {
                        keeper.failed_at("sweep", watch.task.of(), &e);
                    }
                } else {
                    keeper.answered("sweep", watch.task.of());
                }
            }
        }
    }
}

/// Resolves all candidates of the epoch in bounded calls, then takes the next snapshot.
async fn run_once(keeper: &Keeper, watch: &TaskMonitor) -> Result<(), Error> {
    let (task, mut total, mut all_parked) = (&watch.task, 0, 0);
    let silence = match task.options.heartbeat {
        Heartbeat::Automatic => StallReason::Silent,
        Heartbeat::Manual => StallReason::HandlerSilent,
    };
    loop {
        // Check again before each round: the watch may have been broken since.
        let allowed = watch.witness.lock().may_sweep(clock::now());
        let Some((epoch, waited)) = allowed else { return Ok(()) };
        let plan = watch.pass.lock().plan(epoch);
        let mut answers = Vec::new();
        let round = async |conn: &mut OwnConnection| {
            let mut connection = watch.watched_connection(conn).await?;
            let primary_epoch = keeper.worker.store.primary_epoch_of(&task.keys);
            task.rights.make_sure(primary_epoch, async || check_rights(&mut connection, &task.keys).await).await?;
            answers = send(keeper, watch, &connection, &plan, epoch, waited).await;
            // Report what some calls decided even if others failed.
            let failed = answers.iter().find_map(|answer| answer.as_ref().err());
            failed.map_or(Ok(()), |e| {
                task.rights.heard(e);
                Err(e.again())
            })
        };
        let answered = keeper.call(watch, round).await;
        for answer in answers.into_iter().flatten() {
            match answer {
                SweepReply::Swept { epoch, interval, cursor, snapshot, left, resolved, parked } => {
                    total += resolved.len();
                    all_parked += parked;
                    move_workflows(keeper, watch, &resolved);
                    for job in resolved {
                        task.tally().stalled(silence, &job.action);
                        report(keeper, watch, silence, job);
                    }
                    watch.pass.lock().swept(cursor, left);
                    watch.witness.lock().sweep_answered(clock::now(), epoch, interval);
                    if snapshot {
                        task.tally().sweeps.add(1);
                        if all_parked > 0 {
                            let task = Arc::clone(&task.name);
                            keeper.log.line(move || {
                                tracing::warn!(%task, jobs = all_parked,
                                    "silent jobs are parked: `heartline recover silent -t TASK` lists them");
                            });
                        }
                        let task = Arc::clone(&task.name);
                        keeper.log.line(move || tracing::debug!(%task, epoch, resolved = total, "swept"));
                        return Ok(());
                    }
                }
                SweepReply::Moved { epoch, interval } | SweepReply::Early { epoch, interval } => {
                    watch.witness.lock().sweep_answered(clock::now(), epoch, interval);
                    return Ok(());
                }
                SweepReply::Undeclared => {
                    keeper.declare_again(watch).await?;
                    return Ok(());
                }
            }
        }
        answered?;
    }
}

/// Sends one round of calls together. Returns their answers in the order in which the server executed them.
async fn send(
    keeper: &Keeper,
    watch: &TaskMonitor,
    conn: &OwnConnection,
    plan: &SweepPlan,
    epoch: u64,
    waited: Duration,
) -> Vec<Result<SweepReply, Error>> {
    let (task, worker) = (&watch.task, keeper.worker.id.as_str());
    let shrinks = (0..plan.shrinks).map(|_| {
        let mut conn = conn.clone();
        async move { sweep::shrink(&mut conn, &task.keys).await }
    });
    let sweeps = (0..plan.sweeps).map(|_| {
        let mut conn = conn.clone();
        let ask = task.options.interval;
        async move {
            sweep::sweep(&mut conn, &task.keys, worker, ask, Some(epoch), waited, &plan.cursor, plan.limit, None).await
        }
    });
    // A failed shrink costs time and changes nothing else.
    let (_, answers) = join(join_all(shrinks), join_all(sweeps)).await;
    answers
}

/// Makes the workflows of ended jobs advance.
pub(super) fn move_workflows(keeper: &Keeper, watch: &TaskMonitor, resolved: &[StalledJob]) {
    if resolved.iter().any(StalledJob::ends_a_node) {
        keeper.worker.workflow_queue.leave(Notice::LookAt(Arc::clone(&watch.task.keys)));
    }
}

/// Logs what was decided about a job. If this worker held it (its handler was silent), marks it as lost at once.
fn report(keeper: &Keeper, watch: &TaskMonitor, reason: StallReason, job: StalledJob) {
    if job.worker == keeper.worker.id.as_str()
        && let Some(held) = watch.task.held.get(job.fence)
    {
        keeper.lost(&watch.task, &held);
    }
    let task = Arc::clone(&watch.task.name);
    keeper.log.line(move || {
        let (job_id, worker) = (Escaped(&job.id), Escaped(&job.worker));
        tracing::warn!(%task, %job_id, %reason, action = %job.action, count = job.count, %worker, "stalled");
    });
}
