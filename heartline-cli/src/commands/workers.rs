//! `workers`.

use std::collections::BTreeSet;

use heartline::{HolderReport, WorkerReport, WorkerState};

use super::{health, when};
use crate::args::WorkersCommand;
use crate::failure::Failure;
use crate::session::Session;
use heartline::inspect::describe::{Beat, beats, is_watch_broken, watch_word, watches, worker_facts, worker_state};
use heartline::inspect::text::{relative, shown, span};

pub(super) async fn act(session: &Session, command: WorkersCommand) -> Result<(), Failure> {
    let (worker, said) = match command {
        WorkersCommand::Quiet { worker } => match session.inspector.quiet_worker(&worker).await? {
            None => (worker, "is quiet: it claims no more jobs, and finishes those that it runs".to_owned()),
            Some(quiet) => {
                let (since, by) = (relative(quiet.at, session.inspector.now().await), shown(&quiet.by));
                (worker, format!("was quiet already, since {since}, by {by}"))
            }
        },
        WorkersCommand::Resume { worker } => match session.inspector.resume_worker(&worker).await? {
            Some(time) => (worker, format!("claims jobs again; it was quiet for {}", span(time))),
            None => (worker, "was not quiet".to_owned()),
        },
    };
    let report = session.inspector.worker(&worker).await?;
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    out.line(format!("{} {said}", shown(&worker)))
}

pub(super) async fn list(session: &Session, all: bool) -> Result<(), Failure> {
    let mut listed = session.inspector.workers().await?;
    let holders = held_by(session, &mut listed).await?;
    let known = listed.len();
    let leaves = |worker: &WorkerReport| worker.leaves_jobs(&holders);
    listed.retain(|worker| all || worker.state != WorkerState::Gone || leaves(worker));
    listed.sort_by_key(|worker| !leaves(worker));
    let gone = known - listed.len();
    if listed.is_empty() && !session.out.is_json {
        session.out.hint(format!("There is no worker on {}.", session.place));
    }
    let Some(out) = session.out.for_person(&listed)? else { return Ok(()) };
    const COLUMNS: [&str; 10] =
        ["WORKER", "STATE", "HOST", "PID", "VERSION", "STARTED", "LAST SEEN", "HELD", "RUNTIME", "WATCH"];
    let now = session.inspector.now().await;
    let cells = |worker: &WorkerReport| {
        let is_live = worker.state.is_live();
        let held = worker.tasks.iter().map(|its| {
            let task = shown(&its.task);
            if is_live || its.held > 0 { format!("{task} {}/{}", its.held, its.slots) } else { task }
        });
        let blocked = worker.runtime_blocked.map(|blocked| format!("blocked {}", span(blocked)));
        vec![
            shown(worker.worker.as_str()),
            worker_state(worker),
            shown(&worker.host),
            worker.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            shown(&worker.version),
            when(worker.started_at, now),
            relative(worker.last_seen_at, now),
            held.collect::<Vec<_>>().join(", "),
            if is_live { blocked.unwrap_or_else(|| "ok".to_owned()) } else { "-".to_owned() },
            if is_live { watch_word(worker, now) } else { "-".to_owned() },
        ]
    };
    out.table(&COLUMNS, listed.iter().map(cells).collect())?;
    if listed.iter().any(|worker| is_watch_broken(worker, now)) {
        out.hint(
            "WATCH: the last interruption of a worker's watch over held jobs. After it, the worker recovers nothing for a whole interval.",
        );
    }
    if gone > 0 {
        out.hint(format!("{gone} more are gone; --all shows all"));
    }
    Ok(())
}

/// Reads from Redis which jobs the workers hold, and corrects their reports. Reports about unreadable tasks stay as they are.
pub(super) async fn held_by(session: &Session, workers: &mut [WorkerReport]) -> Result<Vec<HolderReport>, Failure> {
    let tasks: BTreeSet<&str> = workers.iter().flat_map(|worker| &worker.tasks).map(|its| its.task.as_str()).collect();
    let mut found = Vec::with_capacity(tasks.len());
    for task in tasks {
        match session.inspector.lock_holders(task).await {
            Ok(held) => found.push(held),
            Err(e) => say!("note: the holders of {} cannot be read: {}", shown(task), shown(&e.to_string())),
        }
    }
    workers.iter_mut().for_each(|worker| worker.correct_held(&found));
    Ok(found)
}

pub(super) async fn show(session: &Session, id: &str) -> Result<(), Failure> {
    let Some(mut worker) = session.inspector.worker(id).await? else {
        return Err(Failure::Failed(format!("there is no worker {id}; `heartline workers --all` lists all")));
    };
    let held_by = held_by(session, std::slice::from_mut(&mut worker)).await?;
    let Some(out) = session.out.for_person(&worker)? else { return Ok(()) };
    let now = session.inspector.now().await;
    let facts = worker_facts(&worker, now).into_iter().map(|(name, fact)| (name, Some(fact)));
    out.facts(facts.collect())?;
    for beat in beats([&worker], now) {
        let Beat { task, held, slots, answered, took, deadline, verdict, .. } = beat;
        let recovered = if held > 0 { format!("; may be recovered {deadline}") } else { String::new() };
        out.line(format!(
            "task {}: {held} held of {slots} slots ({verdict}); last heartbeat {answered}, which took {took}{recovered}",
            shown(&task)
        ))?;
    }
    let is_known = worker.state.is_live() || !super::tell_unknown(session).await;
    for report in held_by.iter().filter(|_| is_known && !worker.state.is_live()) {
        if report.holders.iter().all(|holder| holder.worker != worker.worker) {
            continue;
        }
        let task = session.inspector.task(&report.task).await?;
        let held = session.inspector.diagnose_holders(&task, std::slice::from_ref(&worker)).await?;
        for (_, diagnosis) in held.iter().filter(|(id, _)| *id == worker.worker) {
            out.line(health::lines(diagnosis, true))?;
        }
        super::tell_risks(session, &report.task).await?;
    }
    for watch in watches(&worker, now) {
        out.line(format!("watch of {watch}"))?;
    }
    Ok(())
}

/// Prints the heartbeats of all workers, those with jobs at risk first.
pub(super) async fn list_beats(session: &Session) -> Result<(), Failure> {
    let mut workers = session.inspector.workers().await?;
    workers.retain(|worker| worker.state != WorkerState::Gone);
    held_by(session, &mut workers).await?;
    let beats = beats(&workers, session.inspector.now().await);
    let Some(out) = session.out.for_person(&beats)? else { return Ok(()) };
    const COLUMNS: [&str; 8] = ["WORKER", "TASK", "HELD", "SLOTS", "ANSWERED", "TOOK", "RECOVERED", ""];
    let cells = |beat: Beat| {
        let Beat { worker, task, held, slots, answered, took, deadline, verdict, .. } = beat;
        let (held, slots, verdict) = (held.to_string(), slots.to_string(), verdict.to_owned());
        vec![shown(&worker), shown(&task), held, slots, answered, took, deadline, verdict]
    };
    out.table(&COLUMNS, beats.into_iter().map(cells).collect())?;
    out.hint("As last reported by each worker, every 5 s. RECOVERED: the earliest time of a recovery.");
    Ok(())
}
