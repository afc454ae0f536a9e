//! `status` and `health`: whether jobs are processed, and if not, why.

use heartline::inspect::text::{many, shown};
use heartline::{Diagnosis, FleetReport, TaskReport, WorkerReport, WorkerState};

use crate::failure::{Failure, ended};
use crate::session::Session;

/// The most diagnoses printed without `--json`.
const PRINTED: usize = 30;

/// The most tasks named.
const NAMED: usize = 5;

pub(super) async fn health(session: &Session) -> Result<(), Failure> {
    let inspector = &session.inspector;
    let fleet = inspector.fleet(None).await?;
    let mut diagnoses = fleet.diagnoses();
    let is_healthy = Diagnosis::is_healthy(&diagnoses);
    if !is_healthy {
        // Include poison jobs: the person may start a new worker next.
        diagnoses = inspector.diagnose_fleet(&fleet, &inspector.recent_stalls(&fleet.tasks).await).await?;
    }
    let printed = if session.out.is_json {
        session.out.json(&serde_json::json!({ "healthy": is_healthy, "diagnoses": diagnoses }))
    } else if is_healthy {
        session.out.line("healthy")
    } else {
        print(session, diagnoses.iter().filter(|diagnosis| diagnosis.is_risk()))
    };
    ended(is_healthy, printed)
}

pub(super) async fn status(session: &Session) -> Result<(), Failure> {
    let inspector = &session.inspector;
    let fleet = inspector.fleet(None).await?;
    let diagnoses = inspector.diagnose_fleet(&fleet, &inspector.recent_stalls(&fleet.tasks).await).await?;
    let is_healthy = Diagnosis::is_healthy(&diagnoses);
    ended(is_healthy, print_status(session, &fleet, &diagnoses, is_healthy))
}

fn print_status(
    session: &Session,
    fleet: &FleetReport,
    diagnoses: &[Diagnosis],
    is_healthy: bool,
) -> Result<(), Failure> {
    let FleetReport { tasks, workers, away, .. } = fleet;
    // A worker whose presence is unreadable may have stopped.
    let is_told = |worker: &&WorkerReport| !worker.is_unreachable || worker.state.is_live();
    let count = |state| workers.iter().filter(is_told).filter(|worker| worker.state == state).count();
    let sum = |of: fn(&TaskReport) -> u64| tasks.iter().map(of).sum::<u64>();
    let waiting = sum(|task| task.counts.waiting);
    let held = sum(|task| task.counts.held_total());
    let delayed = sum(|task| task.counts.delayed);
    let failed = sum(|task| task.counts.failed);
    if session.out.is_json {
        session.out.json(&serde_json::json!({
            "healthy": is_healthy, "diagnoses": diagnoses, "tasks": tasks.len(), "waiting": waiting, "delayed": delayed, "held": held,
            "failed": failed, "workers": { "live": count(WorkerState::Live), "quiet": count(WorkerState::Quiet),
            "stopping": count(WorkerState::Stopping), "silent": count(WorkerState::Silent) }, "server": session.place, "unreachable_lists": away,
        }))?;
    } else {
        session.out.line(&session.place)?;
        let later = if delayed > 0 { format!("{delayed} delayed, ") } else { String::new() };
        let jobs = format!("{waiting} waiting, {later}{held} held, {failed} failed{}", most_failed(tasks));
        let unread = tasks.iter().filter(|task| task.fault.is_some()).count() as u64;
        let unread = if unread == 0 { String::new() } else { format!(", {unread} unreadable") };
        match &away.tasks {
            None => session.out.line(format!("{}{unread}: {jobs}", many(tasks.len() as u64, "task")))?,
            Some(_) => session.out.line("tasks: unknown")?,
        }
        let states = [WorkerState::Live, WorkerState::Quiet, WorkerState::Stopping, WorkerState::Silent];
        let states = states.into_iter().filter(|state| *state != WorkerState::Quiet || count(*state) > 0);
        let states: Vec<String> = states.map(|state| format!("{} {state}", count(state))).collect();
        let left = workers.iter().filter(|worker| worker.state == WorkerState::Gone);
        let left = left.filter(|worker| worker.leaves_jobs(&fleet.holders)).count();
        let left = if left == 0 { String::new() } else { format!(", {left} gone with jobs") };
        match &away.workers {
            None => session.out.line(format!("workers: {}{left}", states.join(", ")))?,
            Some(_) => session.out.line("workers: unknown")?,
        }
        if diagnoses.is_empty() {
            session.out.line("Nothing is wrong.")?;
        } else if is_healthy {
            session.out.line("No job is known to be stuck. Please check:")?;
        }
        print(session, diagnoses.iter())?;
    }
    Ok(())
}

/// The tasks with the most failed jobs.
fn most_failed(tasks: &[TaskReport]) -> String {
    let mut failed: Vec<&TaskReport> = tasks.iter().filter(|task| task.counts.failed > 0).collect();
    failed.sort_by_key(|task| std::cmp::Reverse(task.counts.failed));
    let named = failed.iter().take(NAMED).map(|task| format!("{} {}", shown(&task.task), task.counts.failed));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if failed.len() > NAMED { ", …" } else { "" };
    if failed.is_empty() { String::new() } else { format!(" ({named}{more})") }
}

/// Prints what is wrong, with what to do about it.
pub(super) fn print<'a>(session: &Session, diagnoses: impl Iterator<Item = &'a Diagnosis>) -> Result<(), Failure> {
    let mut diagnoses = diagnoses.peekable();
    for diagnosis in diagnoses.by_ref().take(PRINTED) {
        session.out.line(lines(diagnosis, true))?;
    }
    if diagnoses.peek().is_some() {
        session.out.line(format!("and {} more; --json shows all", diagnoses.count()))?;
    }
    Ok(())
}

/// A diagnosis and, on the next line, its hint.
pub(super) fn lines(diagnosis: &Diagnosis, names_task: bool) -> String {
    let mark = if diagnosis.is_risk() { "!" } else { "?" };
    let task = diagnosis.task.as_ref().filter(|_| names_task);
    let task = task.map_or_else(String::new, |task| format!("{}: ", shown(task)));
    format!("{mark} {task}{}\n    {}", shown(&diagnosis.to_string()), shown(&diagnosis.hint()))
}
