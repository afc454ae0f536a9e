//! `workers`.

use std::time::SystemTime;

use heartline::{WorkerReport, WorkerState};

use super::when;
use crate::failure::Failure;
use crate::session::Session;
use heartline_board::text::{exact, relative, shown, span};

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
            state(worker),
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

/// The state, and of one that is dead by what that is known.
fn state(worker: &WorkerReport) -> String {
    match &worker.death {
        Some(death) if death.by.is_empty() => format!("{} (proof: {})", worker.state, death.proof),
        Some(death) => format!("{} (proof: {}, by {})", worker.state, death.proof, shown(&death.by)),
        None => worker.state.to_string(),
    }
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
    session.out.facts(vec![
        ("worker", Some(shown(worker.worker.as_str()))),
        ("state", Some(state(&worker))),
        ("name", worker.name.as_deref().map(shown)),
        ("host", Some(shown(&worker.host))),
        ("pid", worker.pid.map(|pid| pid.to_string())),
        ("version", Some(shown(&worker.version))),
        ("started", worker.started_at.map(|at| exact(at, now))),
        ("last seen", Some(exact(worker.last_seen_at, now))),
        ("stopped", worker.stopped_at.map(|at| exact(at, now))),
        ("dead since", worker.death.as_ref().map(|death| exact(death.at, now))),
        ("runtime", worker.runtime_blocked.map(|blocked| format!("blocked by handlers for {}", span(blocked)))),
    ])?;
    for its in &worker.tasks {
        let beat = its
            .last_beat_at
            .map(|at| format!(", last heartbeat {}, which took {}", relative(at, now), span(its.beat_took)));
        session.out.line(format!(
            "task {}: {} held, {} slots{}",
            shown(&its.task),
            its.held,
            its.slots,
            beat.unwrap_or_default()
        ))?;
        for watch in &its.watches {
            let broken = watch.broken.zip(watch.broken_at);
            let broken = broken.map(|(cause, at)| format!("; broken {}: {cause}", relative(at, now)));
            session.out.line(format!(
                "  watches epoch {} since {}, interval {}; may resolve {}{}",
                watch.epoch,
                relative(watch.since, now),
                span(watch.interval),
                relative(watch.may_resolve_at(), now),
                broken.unwrap_or_default()
            ))?;
        }
    }
    Ok(())
}
