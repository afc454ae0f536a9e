//! Recovers the jobs of workers on this host whose processes are gone, without waiting for an interval.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Keeper;
use super::sweep::move_workflows;
use super::task_monitor::TaskMonitor;
use crate::backend::quiet::{QUIET, QuietMark};
use crate::backend::sweep::{TakeBack, TakeReason};
use crate::backoff::Pauses;
use crate::clock;
use crate::error::Error;
use crate::escape::Escaped;
use crate::join::{join_all, try_join_all};
use crate::runtime::death_proof::{DeathProof, Host};
use crate::runtime::incidents::NO_TASK;
use crate::stall::action::StallReason;

/// The most workers of a boot to check: those seen last.
const MOST: usize = 1000;

/// How many presences are read at a time.
const TOGETHER: usize = 20;

/// Checks at once, and then repeatedly: another worker on this host may die at any time.
pub(super) async fn run(keeper: Arc<Keeper>) {
    let mut known = Known::default();
    let mut pauses = Pauses::until_answered();
    loop {
        let pause = match run_once(&keeper, &mut known).await {
            Ok(()) => {
                keeper.answered("reconcile", NO_TASK);
                pauses.reset();
                keeper.worker.store.timings.reconcile
            }
            Err(e) => {
                keeper.failed_at("reconcile", NO_TASK, &e);
                if e.is_outage() { pauses.next() } else { keeper.worker.store.timings.reconcile }
            }
        };
        let _ = tokio::time::timeout(pause, keeper.named.notified()).await;
    }
}

/// What is known of the other workers of this boot.
#[derive(Default)]
struct Known {
    /// Workers that need no more checks: they stopped, are on another host, or their jobs were recovered.
    done: HashSet<String>,
    /// The presence of each worker on this host. It is read again only after its process is gone.
    living: HashMap<String, HashMap<String, String>>,
}

impl Known {
    /// Records the presence of a worker. A worker that is only listed has none yet.
    fn take(&mut self, host: &Host, worker: &str, said: HashMap<String, String>) {
        if said.contains_key("stoppedAt") || (said.contains_key("pid") && !host.is_here(&said)) {
            self.living.remove(worker);
            self.done.insert(worker.to_owned());
        } else if said.contains_key("pid") {
            self.living.insert(worker.to_owned(), said);
        }
    }
}

async fn run_once(keeper: &Keeper, known: &mut Known) -> Result<(), Error> {
    let (store, own) = (&keeper.worker.store, keeper.worker.id.as_str());
    let own_presence = keeper.housekeeping_call(async |conn| store.presence(conn, own).await).await?;
    if own_presence.contains_key("deadAt") && !keeper.worker.is_replaced() {
        let worker_id = keeper.worker.id.clone();
        keeper.log.line(move || tracing::error!(%worker_id, "this worker was declared dead or replaced; it stops"));
        // The next heartbeat reports which of its jobs are lost.
        keeper.watches.iter().for_each(|watch| watch.task.beat_now.notify_one());
        keeper.worker.set_replaced();
    }
    take_mark(keeper, own_presence.get(QUIET).map(|mark| QuietMark::from_wire(mark)));
    if let Some(successor) = own_presence.get("successor").filter(|_| !keeper.worker.stopping.is_cancelled()) {
        let (worker_id, successor) = (keeper.worker.id.clone(), successor.clone());
        keeper.log.line(move || {
            tracing::info!(%worker_id, successor = %Escaped(&successor), "another worker took the name of this one; it stops");
        });
        keeper.worker.set_has_successor();
    }
    let Some(host) = Host::look(&own_presence) else { return Ok(()) };
    let listed = keeper.housekeeping_call(async |conn| store.of_boot(conn, host.boot_id(), MOST).await).await?;
    let listed: HashSet<String> = listed.into_iter().filter(|worker| worker != own).collect();
    known.done.retain(|worker| listed.contains(worker));
    known.living.retain(|worker, _| listed.contains(worker));
    let is_new = |worker: &&String| !known.done.contains(*worker) && !known.living.contains_key(*worker);
    let new: Vec<String> = listed.iter().filter(is_new).cloned().collect();
    for (worker, said) in presences(keeper, &new).await? {
        known.take(&host, &worker, said);
    }
    let ended = known.living.iter().filter(|(_, said)| host.end_of(said).is_some());
    let ended: Vec<String> = ended.map(|(worker, _)| worker.clone()).collect();
    let mut dead = Vec::new();
    for (worker, said) in presences(keeper, &ended).await? {
        if !said.contains_key("stoppedAt")
            && let Some(proof) = host.proof(&said)
        {
            let tasks: Vec<String> =
                said.get("tasks").into_iter().flat_map(|names| names.split_whitespace()).map(str::to_owned).collect();
            dead.push((worker.clone(), proof, tasks));
        }
        known.take(&host, &worker, said);
    }
    // A dead worker holds no job of a task that it never worked. Write nothing for such a task.
    let tasks = keeper.watches.iter().map(|watch| {
        let worked = |tasks: &[String]| tasks.iter().any(|name| **name == *watch.task.name);
        let its = dead.iter().filter(|(.., tasks)| worked(tasks));
        let its: Vec<String> = its.map(|(worker, ..)| worker.clone()).collect();
        async move { if its.is_empty() { Ok(()) } else { take_back(keeper, watch, &its).await } }
    });
    // Await all, so that jobs recovered in one task count even if another task fails.
    join_all(tasks).await.into_iter().collect::<Result<Vec<()>, Error>>()?;
    for (worker, proof, _) in dead {
        record_death(keeper, &worker, proof).await;
        known.living.remove(&worker);
        known.done.insert(worker);
    }
    Ok(())
}

/// Takes over from the presence whether this worker is quiet. Its drivers look at once.
fn take_mark(keeper: &Keeper, mark: Option<QuietMark>) {
    if keeper.worker.quiet.swap(mark.is_some(), Ordering::SeqCst) == mark.is_some() {
        return;
    }
    for watch in keeper.watches.iter() {
        // The time without a claim counts from the end of the quiet.
        watch.task.claims_now();
        watch.task.poke.notify_one();
    }
    let worker_id = keeper.worker.id.clone();
    keeper.log.line(move || match mark {
        Some(mark) => {
            tracing::info!(%worker_id, by = %Escaped(&mark.by), "the worker is quiet: it claims no more jobs")
        }
        None => tracing::info!(%worker_id, "the worker is no longer quiet: it claims jobs"),
    });
}

/// Reads the presences of the workers.
async fn presences(keeper: &Keeper, workers: &[String]) -> Result<Vec<(String, HashMap<String, String>)>, Error> {
    let (store, mut found) = (&keeper.worker.store, Vec::with_capacity(workers.len()));
    for some in workers.chunks(TOGETHER) {
        let call = async |conn: &mut _| {
            let presences = some.iter().map(|worker| {
                let mut conn = Clone::clone(&*conn);
                async move { store.presence(&mut conn, worker).await }
            });
            try_join_all(presences).await
        };
        found.extend(some.iter().cloned().zip(keeper.housekeeping_call(call).await?));
    }
    Ok(found)
}

/// Resolves the jobs of a task that dead workers hold.
async fn take_back(keeper: &Keeper, watch: &TaskMonitor, dead: &[String]) -> Result<(), Error> {
    let (task, own, begun) = (&watch.task, keeper.worker.id.as_str(), clock::now());
    let mut taking = TakeBack::default();
    while !taking.is_done() {
        let step = async |conn: &mut _| taking.step(conn, &task.keys, own, TakeReason::Proof, dead).await;
        if !keeper.housekeeping_call(step).await? {
            keeper.declare_again(watch).await?;
        }
    }
    let taken = taking.taken;
    if taken.is_empty() {
        return Ok(());
    }
    move_workflows(keeper, watch, &taken);
    taken.iter().for_each(|job| task.tally().stalled(StallReason::WorkerRestarted, &job.action));
    let took_ms = clock::now().since(begun).as_millis() as u64;
    let name = Arc::clone(&task.name);
    keeper.log.line(move || {
        let workers: HashSet<&str> = taken.iter().map(|job| job.worker.as_str()).collect();
        for worker in workers {
            let own = || taken.iter().filter(|job| job.worker == worker);
            let (jobs, failed) = (own().count(), own().filter(|job| job.action == "failed").count());
            tracing::warn!(task = %name, worker = %Escaped(worker), jobs, failed, took_ms, "recovered jobs of a dead worker on this host");
        }
        for job in &taken {
            let (job_id, worker) = (Escaped(&job.id), Escaped(&job.worker));
            tracing::debug!(task = %name, %job_id, action = %job.action, count = job.count, %worker, "recovered a job of a dead worker");
        }
    });
    Ok(())
}

/// Records the death in the presence, for people. A failure does not affect the jobs.
async fn record_death(keeper: &Keeper, worker: &str, proof: DeathProof) {
    let (store, own) = (&keeper.worker.store, keeper.worker.id.as_str());
    let note = async |conn: &mut _| store.note_death(conn, worker, own, proof.as_str()).await;
    if let Err(e) = keeper.housekeeping_call(note).await {
        let worker = worker.to_owned();
        keeper.log.line(move || {
            tracing::debug!(worker = %Escaped(&worker), error = %e.chain(), "the death of a worker could not be recorded");
        });
    }
}
