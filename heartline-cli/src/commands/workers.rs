//! `workers`.

use std::time::SystemTime;

use heartline::{WorkerReport, WorkerState};

use super::when;
use crate::failure::Failure;
use crate::session::Session;
use heartline_board::text::{relative, shown, span};
use heartline_board::told::{Beat, beats, watches, worker_facts, worker_state};

pub(super) async fn list(session: &Session, all: bool) -> Result<(), Failure> {
    let workers = session.inspector.workers().await?;
    let gone = workers.iter().filter(|worker| worker.state == WorkerState::Gone).count();
    let listed: Vec<&WorkerReport> = workers.iter().filter(|worker| all || worker.state != WorkerState::Gone).collect();
    if session.out.is_json {
        return session.out.json(&listed);
    }
    const COLUMNS: [&str; 10] =
        ["WORKER", "STATE", "HOST", "PID", "VERSION", "STARTED", "LAST SEEN", "HELD", "RUNTIME", "WATCH"];
    let now = SystemTime::now();
    let cells = |worker: &&WorkerReport| {
        let held = worker.tasks.iter().map(|its| format!("{} {}/{}", shown(&its.task), its.held, its.slots));
        let broken =
            worker.tasks.iter().flat_map(|its| &its.watches).filter_map(|watch| watch.broken.zip(watch.broken_at));
        let broken = broken.max_by_key(|(_, at)| *at);
        let watch = broken.map(|(cause, at)| format!("broken {}: {cause}", relative(at, now)));
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
            blocked.unwrap_or_else(|| "ok".to_owned()),
            watch.unwrap_or_else(|| "ok".to_owned()),
        ]
    };
    session.out.table(&COLUMNS, listed.iter().map(cells).collect())?;
    if gone > 0 && !all {
        session.out.hint(format!("{gone} more are gone: --all shows them"));
    }
    Ok(())
}

pub(super) async fn show(session: &Session, id: &str) -> Result<(), Failure> {
    let Some(worker) = session.inspector.worker(id).await? else {
        return Err(Failure::Failed(format!(
            "nothing is known of a worker {id}; `heartline workers --all` lists them"
        )));
    };
    if session.out.is_json {
        return session.out.json(&worker);
    }
    let now = SystemTime::now();
    let facts = worker_facts(&worker, now).into_iter().map(|(name, fact)| (name, Some(fact)));
    session.out.facts(facts.collect())?;
    for beat in beats([&worker], now) {
        let Beat { task, held, slots, answered, took, deadline, verdict, .. } = beat;
        session.out.line(format!(
            "task {}: {held} held of {slots} slots ({verdict}); last heartbeat {answered}, which took {took}; recovered {deadline} at the soonest",
            shown(&task)
        ))?;
    }
    for watch in watches(&worker, now) {
        session.out.line(format!("watch of {watch}"))?;
    }
    Ok(())
}

/// The heartbeats of all workers, those first whose jobs are at risk.
pub(super) async fn list_beats(session: &Session) -> Result<(), Failure> {
    let workers = session.inspector.workers().await?;
    let beats = beats(&workers, SystemTime::now());
    if session.out.is_json {
        return session.out.json(&beats);
    }
    const COLUMNS: [&str; 8] = ["WORKER", "TASK", "HELD", "SLOTS", "ANSWERED", "TOOK", "RECOVERED", ""];
    let cells = |beat: &Beat| {
        let Beat { worker, task, held, slots, answered, took, deadline, verdict, .. } = beat;
        let (held, slots) = (held.to_string(), slots.to_string());
        vec![
            shown(worker),
            shown(task),
            held,
            slots,
            answered.clone(),
            took.clone(),
            deadline.clone(),
            (*verdict).to_owned(),
        ]
    };
    session.out.table(&COLUMNS, beats.iter().map(cells).collect())?;
    session.out.hint("As each worker told last, which it does every 5 s. RECOVERED: no sooner than that.");
    Ok(())
}
