//! `status` and `health`: whether jobs are processed, and if not, why.

use std::fmt::Write as _;

use heartline::{TaskReport, WorkerReport, WorkerState};
use heartline_board::checks::Grade;
use heartline_board::text::{many, shown};
use heartline_board::troubles::{TOLD, Trouble, is_healthy, leaves_jobs};

use crate::failure::{Failure, ended};
use crate::fleet::{Fleet, Lately};
use crate::session::Session;

/// How many tasks are named.
const NAMED: usize = 5;

pub(super) async fn health(session: &Session) -> Result<(), Failure> {
    let fleet = Fleet::look(&session.inspector).await?;
    let mut troubles = fleet.troubles(Lately::default());
    let is_healthy = is_healthy(&troubles);
    if !is_healthy {
        // With what may take down the worker that somebody starts now.
        troubles = fleet.troubles(fleet.lately(&session.inspector).await?);
    }
    let told = if session.out.is_json {
        session.out.json(&serde_json::json!({ "healthy": is_healthy, "troubles": troubles }))
    } else if is_healthy {
        session.out.line("healthy")
    } else {
        tell(session, troubles.iter().filter(|trouble| trouble.grade == Grade::Risk))
    };
    ended(is_healthy, told)
}

pub(super) async fn status(session: &Session) -> Result<(), Failure> {
    let fleet = Fleet::look(&session.inspector).await?;
    let troubles = fleet.troubles(fleet.lately(&session.inspector).await?);
    let is_healthy = is_healthy(&troubles);
    ended(is_healthy, tell_status(session, &fleet, &troubles, is_healthy))
}

fn tell_status(session: &Session, fleet: &Fleet, troubles: &[Trouble], is_healthy: bool) -> Result<(), Failure> {
    let Fleet { tasks, workers, away, .. } = fleet;
    // One whose word is on a node that is away may have said that it stopped.
    let is_told = |worker: &&WorkerReport| !worker.is_away || worker.state.is_live();
    let count = |state| workers.iter().filter(is_told).filter(|worker| worker.state == state).count();
    let sum = |of: fn(&TaskReport) -> u64| tasks.iter().map(of).sum::<u64>();
    let waiting = sum(|task| task.counts.waiting);
    let held = sum(|task| task.counts.held());
    let delayed = sum(|task| task.counts.delayed);
    let failed = sum(|task| task.counts.failed);
    if session.out.is_json {
        session.out.json(&serde_json::json!({
            "healthy": is_healthy, "troubles": troubles, "tasks": tasks.len(), "waiting": waiting, "delayed": delayed, "held": held,
            "failed": failed, "workers": { "live": count(WorkerState::Live), "stopping": count(WorkerState::Stopping),
            "silent": count(WorkerState::Silent) }, "server": session.place, "lists_away": away,
        }))?;
    } else {
        session.out.line(&session.place)?;
        let later = if delayed > 0 { format!("{delayed} delayed, ") } else { String::new() };
        let jobs = format!("{waiting} waiting, {later}{held} held, {failed} failed{}", most_failed(tasks));
        let unread = tasks.iter().filter(|task| task.fault.is_some()).count() as u64;
        let unread = if unread == 0 { String::new() } else { format!(", {unread} of which cannot be read") };
        match &away.tasks {
            None => session.out.line(format!("{}{unread}: {jobs}", many(tasks.len() as u64, "task")))?,
            Some(_) => session.out.line("tasks: not known")?,
        }
        let states = [WorkerState::Live, WorkerState::Stopping, WorkerState::Silent];
        let states = states.map(|state| format!("{} {state}", count(state)));
        let left = workers.iter().filter(|worker| worker.state == WorkerState::Gone);
        let left = left.filter(|worker| leaves_jobs(worker, &fleet.holders)).count();
        let left = if left == 0 { String::new() } else { format!(", {left} gone that still hold jobs") };
        match &away.workers {
            None => session.out.line(format!("workers: {}{left}", states.join(", ")))?,
            Some(_) => session.out.line("workers: not known")?,
        }
        if troubles.is_empty() {
            session.out.line("Nothing is wrong.")?;
        } else if is_healthy {
            session.out.line("For you to judge:")?;
        }
        tell(session, troubles.iter())?;
    }
    Ok(())
}

/// The tasks with the most failed jobs.
fn most_failed(tasks: &[TaskReport]) -> String {
    let mut failed: Vec<&TaskReport> = tasks.iter().filter(|task| task.counts.failed > 0).collect();
    failed.sort_by_key(|task| std::cmp::Reverse(task.counts.failed));
    let mut told = String::new();
    for (at, task) in failed.iter().take(NAMED).enumerate() {
        let _ = write!(told, "{} {} {}", if at == 0 { " (" } else { "," }, shown(&task.task), task.counts.failed);
    }
    if failed.len() > NAMED {
        told.push_str(", …");
    }
    if !failed.is_empty() {
        told.push(')');
    }
    told.replacen("( ", "(", 1)
}

pub(super) fn tell_troubles(session: &Session, troubles: &[Trouble]) -> Result<(), Failure> {
    tell(session, troubles.iter())
}

fn tell<'a>(session: &Session, troubles: impl Iterator<Item = &'a Trouble>) -> Result<(), Failure> {
    let mut troubles = troubles.peekable();
    for trouble in troubles.by_ref().take(TOLD) {
        let mark = if trouble.grade == Grade::Risk { "!" } else { "?" };
        let task = trouble.task.as_ref().map_or_else(String::new, |task| format!("{}: ", shown(task)));
        session.out.line(format!("{mark} {task}{}", shown(&trouble.what)))?;
        session.out.line(format!("    {}", shown(&trouble.hint)))?;
    }
    if troubles.peek().is_some() {
        session.out.line(format!("and {} more, all of them with --json", troubles.count()))?;
    }
    Ok(())
}
