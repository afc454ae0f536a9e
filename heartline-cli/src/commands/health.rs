//! `status` and `health`: whether jobs are processed, and if not, why.

use std::time::Duration;

use heartline::{Inspector, TaskReport, WorkerReport, WorkerState};
use serde::Serialize;

use crate::failure::Failure;
use crate::session::Session;
use crate::text::{shown, span};

/// How many intervals an epoch may last while jobs are held, before stall detection counts as standing still: it takes one, and a third
/// more until the next heartbeat.
const STANDS_STILL: u32 = 3;

/// What is wrong, and what may be done about it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Trouble {
    task: Option<String>,
    what: String,
    hint: String,
}

pub(super) async fn health(session: &Session) -> Result<(), Failure> {
    let troubles = look(&session.inspector).await?.2;
    if session.out.is_json {
        session.out.json(&serde_json::json!({ "healthy": troubles.is_empty(), "troubles": troubles }))?;
    } else if troubles.is_empty() {
        session.out.line("healthy")?;
    } else {
        tell(session, &troubles)?;
    }
    if troubles.is_empty() { Ok(()) } else { Err(Failure::Told) }
}

pub(super) async fn status(session: &Session) -> Result<(), Failure> {
    let (tasks, workers, troubles) = look(&session.inspector).await?;
    let count = |state| workers.iter().filter(|worker| worker.state == state).count();
    let sum = |of: fn(&TaskReport) -> u64| tasks.iter().map(of).sum::<u64>();
    let waiting = sum(|task| task.counts.waiting);
    let held = sum(|task| task.counts.claimed + task.counts.running + task.counts.finalizing);
    let failed = sum(|task| task.counts.failed);
    if session.out.is_json {
        session.out.json(&serde_json::json!({
            "healthy": troubles.is_empty(), "troubles": troubles, "tasks": tasks.len(), "waiting": waiting, "held": held,
            "failed": failed, "workers": { "live": count(WorkerState::Live), "stopping": count(WorkerState::Stopping),
            "silent": count(WorkerState::Silent) },
        }))?;
    } else {
        session
            .out
            .line(format!("{} tasks: {waiting} jobs wait, {held} are worked on, {failed} have failed", tasks.len()))?;
        session.out.line(format!(
            "{} workers live, {} stopping, {} silent",
            count(WorkerState::Live),
            count(WorkerState::Stopping),
            count(WorkerState::Silent)
        ))?;
        if troubles.is_empty() {
            session.out.line("Nothing is wrong.")?;
        }
        tell(session, &troubles)?;
    }
    if troubles.is_empty() { Ok(()) } else { Err(Failure::Told) }
}

/// How many things are wrong.
pub(super) async fn count(inspector: &Inspector) -> Result<usize, Failure> {
    Ok(look(inspector).await?.2.len())
}

fn tell(session: &Session, troubles: &[Trouble]) -> Result<(), Failure> {
    for trouble in troubles {
        let task = trouble.task.as_ref().map_or_else(String::new, |task| format!("{}: ", shown(task)));
        session.out.line(format!("! {task}{}", shown(&trouble.what)))?;
        session.out.line(format!("    {}", shown(&trouble.hint)))?;
    }
    Ok(())
}

async fn look(inspector: &Inspector) -> Result<(Vec<TaskReport>, Vec<WorkerReport>, Vec<Trouble>), Failure> {
    let (tasks, workers) = (inspector.tasks().await?, inspector.workers().await?);
    let mut troubles: Vec<Trouble> = tasks.iter().flat_map(of_task).collect();
    troubles.extend(workers.iter().filter_map(of_worker));
    Ok((tasks, workers, troubles))
}

fn of_task(task: &TaskReport) -> Vec<Trouble> {
    let name = &task.task;
    let trouble = |what: String, hint: String| Trouble { task: Some(name.clone()), what, hint };
    if let Some(fault) = &task.fault {
        return vec![trouble(
            format!("it cannot be read: {fault}"),
            "something foreign is stored under one of its keys".to_owned(),
        )];
    }
    let mut troubles = Vec::new();
    let (counts, held) = (&task.counts, task.counts.claimed + task.counts.running + task.counts.finalizing);
    if counts.waiting + held > 0 && task.live_workers == 0 {
        let what = format!("{} jobs wait and {held} are held, and no live worker works it", counts.waiting);
        troubles.push(trouble(
            what,
            "start a worker that has the task; `heartline workers --all` shows who had it".to_owned(),
        ));
    }
    if let Some(pause) = &task.paused
        && counts.waiting > 0
    {
        let what = format!("it is paused by {} ({}), and {} jobs wait", pause.by, pause.reason, counts.waiting);
        troubles.push(trouble(what, format!("`heartline task resume {name}` lets them begin")));
    }
    for part in &task.parts {
        let stood = part.epoch_at.and_then(|at| task.as_of.duration_since(at).ok()).unwrap_or_default();
        let interval = part.interval.unwrap_or(Duration::from_secs(30));
        if held > 0 && stood > interval * STANDS_STILL {
            let what =
                format!("jobs are held, and nobody has swept for {}, {STANDS_STILL} intervals and more", span(stood));
            troubles.push(trouble(what, format!("`heartline stalls outlook -t {name}` says why")));
        }
    }
    if task.options.values.get("patience").is_some_and(|patience| patience.contains("off"))
        && task.parts.iter().any(|part| part.candidates > 0)
    {
        let what = "silent jobs may wait for a person, as its options say".to_owned();
        troubles.push(trouble(what, format!("`heartline recover silent -t {name}` lists them")));
    }
    troubles
}

fn of_worker(worker: &WorkerReport) -> Option<Trouble> {
    let held: u64 = worker.tasks.iter().map(|its| its.held).sum();
    let id = worker.worker.as_str();
    let trouble = |what: String, hint: String| Some(Trouble { task: None, what, hint });
    match worker.state {
        WorkerState::Silent if held > 0 => trouble(
            format!("the worker {id} on {} is silent, and held {held} jobs by its last sign", worker.host),
            format!("they are recovered by themselves; if you know that it is dead: `heartline recover worker {id}`"),
        ),
        WorkerState::Live | WorkerState::Stopping => {
            let blocked = worker.runtime_blocked?;
            let hint = "a handler computes or waits without `await`: use spawn_blocking for that".to_owned();
            trouble(format!("handlers block the runtime of {id} for {}", span(blocked)), hint)
        }
        _ => None,
    }
}
