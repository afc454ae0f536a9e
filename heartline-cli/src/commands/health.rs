//! `status` and `health`: whether jobs are processed, and if not, why.

use heartline::{Inspector, TaskReport, WorkerReport, WorkerState};
use heartline_board::text::{many, shown};
use heartline_board::troubles::{Trouble, all_troubles};

use crate::failure::Failure;
use crate::session::Session;

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
    let held = sum(|task| task.counts.held());
    let failed = sum(|task| task.counts.failed);
    if session.out.is_json {
        session.out.json(&serde_json::json!({
            "healthy": troubles.is_empty(), "troubles": troubles, "tasks": tasks.len(), "waiting": waiting, "held": held,
            "failed": failed, "workers": { "live": count(WorkerState::Live), "stopping": count(WorkerState::Stopping),
            "silent": count(WorkerState::Silent) },
        }))?;
    } else {
        let jobs = format!("{waiting} waiting, {held} held, {failed} failed");
        session.out.line(format!("{}: {jobs}", many(tasks.len() as u64, "task")))?;
        let states = [WorkerState::Live, WorkerState::Stopping, WorkerState::Silent];
        let workers = states.map(|state| format!("{} {state}", count(state)));
        session.out.line(format!("workers: {}", workers.join(", ")))?;
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
    let troubles = all_troubles(&tasks, &workers, &inspector.server().await?);
    Ok((tasks, workers, troubles))
}
