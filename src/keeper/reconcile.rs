//! Takes back the jobs of workers of this host whose processes are gone, without waiting for an interval.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::Keeper;
use super::watch::TaskWatch;
use crate::clock;
use crate::error::Error;
use crate::pauses::Pauses;
use crate::process::death::{DeathProof, Host};
use crate::shown::Shown;
use crate::store::reconcile::{TakeBack, Word};

/// How often it is looked for the newly dead.
const AGAIN: Duration = Duration::from_secs(10);

/// The most workers of a boot that are looked at, those seen last.
const MOST: usize = 1000;

/// How many of them are read about at a time.
const TOGETHER: usize = 20;

/// Looks at once, and then again and again: a worker beside this one may die at any time.
pub(super) async fn run(keeper: Arc<Keeper>) {
    // Those whose end is known, and whose jobs were taken back.
    let mut known = HashSet::new();
    let (mut pauses, mut is_told) = (Pauses::until_answered(), false);
    loop {
        let pause = match run_once(&keeper, &mut known).await {
            Ok(()) => {
                keeper.answered("reconcile", 0);
                (pauses, is_told) = (Pauses::until_answered(), false);
                AGAIN
            }
            Err(e) if e.is_outage() => {
                keeper.unanswered("reconcile", 0, e);
                pauses.next()
            }
            Err(e) => {
                // A right that is missing is missing again in 10 s.
                if !std::mem::replace(&mut is_told, true) {
                    keeper.log.line(move || {
                        tracing::warn!(error = %e.chain(), "the jobs of dead workers of this host are left to the sweep");
                    });
                }
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn run_once(keeper: &Keeper, known: &mut HashSet<String>) -> Result<(), Error> {
    let (store, own) = (&keeper.worker.store, keeper.worker.id.as_str());
    let own_presence = keeper.housekeeping_call(async |conn| store.presence(conn, own).await).await?;
    if own_presence.contains_key("deadAt") && !keeper.worker.is_replaced() {
        let worker_id = keeper.worker.id.clone();
        keeper
            .log
            .line(move || tracing::error!(%worker_id, "redis was told that this worker is dead or replaced; it stops"));
        // Which of its jobs are lost it hears with the next heartbeat.
        keeper.watches.iter().for_each(|watch| watch.task.beat_now.notify_one());
        keeper.worker.set_replaced();
    }
    let Some(host) = Host::look(&own_presence) else { return Ok(()) };
    let listed = keeper.housekeeping_call(async |conn| store.of_boot(conn, host.boot_id(), MOST).await).await?;
    known.retain(|worker| listed.contains(worker));
    let others: Vec<&String> = listed.iter().filter(|worker| *worker != own && !known.contains(*worker)).collect();
    let mut dead = Vec::new();
    for some in others.chunks(TOGETHER) {
        let call = async |conn: &mut _| {
            let presences = some.iter().map(|worker| {
                let mut conn = Clone::clone(&*conn);
                async move { store.presence(&mut conn, worker).await }
            });
            try_join_all(presences).await
        };
        for (worker, said) in some.iter().zip(keeper.housekeeping_call(call).await?) {
            if said.contains_key("stoppedAt") {
                known.insert((*worker).clone());
            } else if let Some(proof) = host.proof(&said) {
                dead.push(((*worker).clone(), proof));
            }
        }
    }
    if dead.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = dead.iter().map(|(worker, _)| worker.clone()).collect();
    let tasks = keeper.watches.iter().map(|watch| take_back(keeper, watch, &ids));
    // What one task got done counts, whatever becomes of the others.
    let taken = join_all(tasks).await.into_iter().collect::<Result<Vec<()>, Error>>();
    taken?;
    for (worker, proof) in dead {
        tell(keeper, &worker, proof).await;
        known.insert(worker);
    }
    Ok(())
}

/// Resolves the jobs of a task that the dead hold.
async fn take_back(keeper: &Keeper, watch: &TaskWatch, dead: &[String]) -> Result<(), Error> {
    let (task, own, begun) = (&watch.task, keeper.worker.id.as_str(), clock::now());
    let mut taking = TakeBack::default();
    while !taking.is_done() {
        let step = async |conn: &mut _| taking.step(conn, &task.keys, own, Word::Proof, dead).await;
        if !keeper.housekeeping_call(step).await? {
            keeper.declare_again(watch).await?;
        }
    }
    let taken = taking.taken;
    if taken.is_empty() {
        return Ok(());
    }
    let took_ms = clock::now().since(begun).as_millis() as u64;
    let name = Arc::clone(&task.name);
    keeper.log.line(move || {
        let workers: HashSet<&str> = taken.iter().map(|job| job.worker.as_str()).collect();
        for worker in workers {
            let jobs = taken.iter().filter(|job| job.worker == worker).count();
            tracing::warn!(task = %name, worker = %Shown(worker), jobs, took_ms, "jobs of a dead worker of this host are taken back");
        }
        for job in &taken {
            let (job_id, worker) = (Shown(&job.id), Shown(&job.worker));
            tracing::debug!(task = %name, %job_id, action = %job.action, count = job.count, %worker, "taken back");
        }
    });
    Ok(())
}

/// Says so in the presence of the dead. It is for people: a failure is none of the jobs.
async fn tell(keeper: &Keeper, worker: &str, proof: DeathProof) {
    let (store, own) = (&keeper.worker.store, keeper.worker.id.as_str());
    let note = async |conn: &mut _| store.note_death(conn, worker, own, proof.as_str()).await;
    if let Err(e) = keeper.housekeeping_call(note).await {
        let worker = worker.to_owned();
        keeper.log.line(move || {
            tracing::debug!(worker = %Shown(&worker), error = %e.chain(), "the death of a worker could not be noted");
        });
    }
}
