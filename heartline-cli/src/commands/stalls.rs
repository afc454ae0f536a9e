//! `stalls`.

use std::cmp::Reverse;

use futures_util::future::join_all;

use super::{known_job, known_task};
use crate::args::StallsCommand;
use crate::failure::{Failure, ended};
use crate::session::Session;
use heartline::PoisonSuspect;
use heartline::inspect::text::{chain, exact, quoted, relative, shown, span};

/// The most stalls listed for all tasks together.
const LISTED: usize = 100;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

pub(super) async fn run(session: &Session, command: StallsCommand) -> Result<(), Failure> {
    match command {
        StallsCommand::List { task } => list(session, task.as_deref()).await,
        StallsCommand::Explain(of) => explain(session, &of.task, &of.id).await,
        StallsCommand::Outlook(of) => outlook(session, &of.task).await,
        StallsCommand::Suspects(of) => suspects(session, &of.task).await,
        StallsCommand::Late(of) => late(session, &of.task).await,
    }
}

async fn list(session: &Session, task: Option<&str>) -> Result<(), Failure> {
    let tasks = match task {
        Some(task) => {
            known_task(session, task).await?;
            vec![task.to_owned()]
        }
        None => session.inspector.task_names().await?,
    };
    let (mut stalls, mut next) = (Vec::new(), None);
    let mut is_whole = true;
    for some in tasks.chunks(TOGETHER) {
        let pages = join_all(some.iter().map(|name| session.inspector.stalls(name, None))).await;
        for (name, page) in some.iter().zip(pages) {
            match page {
                Ok(page) => {
                    stalls.extend(page.stalls);
                    next = page.next.or(next);
                }
                Err(e) if task.is_some() => return Err(e.into()),
                // A damaged or unreachable task must not hide the others.
                Err(e) => {
                    is_whole = false;
                    session.out.error(&Failure::Failed(format!("{name}: {}", chain(&e))));
                }
            }
        }
    }
    stalls.sort_by_key(|report| Reverse(report.stall.at));
    if task.is_none() {
        // A cursor is for one task.
        next = next.or_else(|| (stalls.len() > LISTED).then(String::new));
        stalls.truncate(LISTED);
    }
    if session.out.is_json {
        let next = next.filter(|_| task.is_some());
        return ended(is_whole, session.out.json(&serde_json::json!({ "stalls": stalls, "next": next })));
    }
    if stalls.is_empty() {
        if is_whole {
            let of = task.map_or_else(String::new, |task| format!(" of {task}"));
            session.out.hint(format!("There are no stalls{of}."));
        }
        return ended(is_whole, Ok(()));
    }
    const COLUMNS: [&str; 10] =
        ["WHEN", "TASK", "ID", "STALL", "ACTION", "REASON", "HELD BY", "LAST SEEN", "WITNESS", "EPOCH"];
    let now = session.inspector.now().await;
    let rows = stalls.iter().map(|report| {
        let stall = &report.stall;
        let of = report.max_count.map_or_else(String::new, |max| format!(" of {max}"));
        let before = report.holder_last_seen_at.and_then(|at| stall.at.duration_since(at).ok());
        let seen = match before {
            Some(before) => format!("{} before", span(before)),
            None => report.holder_seen_again_at.map_or_else(|| "-".to_owned(), |_| "again since".to_owned()),
        };
        vec![
            relative(stall.at, now),
            shown(&stall.task),
            shown(stall.id.as_str()),
            format!("{}{of}", stall.stalled_count),
            stall.action.to_string(),
            stall.reason.to_string(),
            stall.worker.as_ref().map_or_else(|| "-".to_owned(), |worker| shown(worker.as_str())),
            seen,
            report.by.as_deref().map_or_else(|| shown(report.witness.as_str()), shown),
            report.epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string()),
        ]
    });
    session.out.table(&COLUMNS, rows.collect())?;
    if next.is_some() {
        session.out.hint("There are older stalls: `heartline stalls explain -t TASK ID` shows those of one job.");
    }
    ended(is_whole, Ok(()))
}

async fn explain(session: &Session, task: &str, id: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let stalls = session.inspector.stall_history(task, id).await?;
    if stalls.is_empty() {
        known_job(session, task, id).await?;
    }
    let Some(out) = session.out.for_person(&stalls)? else { return Ok(()) };
    if stalls.is_empty() {
        out.hint(format!(
            "There are no stalls of {id}. `heartline stalls outlook -t {task}` shows when silent jobs will be recovered."
        ));
    }
    let now = session.inspector.now().await;
    for stall in &stalls {
        out.line(format!("{}  {}", exact(stall.stall.at, now), shown(&stall.to_string())))?;
    }
    Ok(())
}

async fn outlook(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let outlook = session.inspector.recovery_status(task).await?;
    let Some(out) = session.out.for_person(&outlook)? else { return Ok(()) };
    // If the workers are unknown, an outlook would be a guess.
    if super::tell_unknown(session).await {
        return Ok(());
    }
    super::tell_risks(session, task).await?;
    for reason in &outlook.reasons {
        out.line(shown(reason))?;
    }
    match outlook.next_resolve_at {
        Some(at) => {
            let is_any_silent = outlook.parts.iter().any(|part| part.candidates > 0);
            let which = if is_any_silent { "Jobs that stay silent" } else { "Jobs that fall silent now" };
            out.line(format!("{which} may be resolved {}.", exact(at, outlook.as_of)))
        }
        None => Ok(()),
    }
}

async fn suspects(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let suspects = session.inspector.suspects(task).await?;
    let Some(out) = session.out.for_person(&suspects)? else { return Ok(()) };
    if suspects.is_empty() {
        out.hint(format!("No job of {task} was held when two or more workers died."));
        return Ok(());
    }
    let now = session.inspector.now().await;
    let rows = suspects.iter().map(|job| {
        vec![
            shown(job.id.as_str()),
            job.deaths.to_string(),
            job.alone.to_string(),
            job.unexplained.to_string(),
            relative(job.last_at, now),
            job.state.map_or_else(|| "gone".to_owned(), |state| state.to_string()),
        ]
    });
    out.table(&["ID", "DEATHS", "ALONE", "UNEXPLAINED", "LAST", "IS NOW"], rows.collect())?;
    out.hint(
        "ALONE: deaths of workers that held no other job. UNEXPLAINED: deaths that no job with more deaths explains.",
    );
    if let Some(first) = suspects.first() {
        let id = quoted(&shown(first.id.as_str()));
        out.hint(format!("`heartline stalls explain -t {task} {id}` explains each death."));
    }
    let report = session.inspector.task(task).await?;
    out.hint(PoisonSuspect::advice(&report, &suspects).unwrap_or_else(|| {
        "None of these jobs is likely to kill a worker now: each has ended, or another job explains the deaths (UNEXPLAINED 0 or 1). A failed job \
         may kill a worker when it is retried."
            .to_owned()
    }));
    Ok(())
}

async fn late(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let late = session.inspector.rejected_outcomes(task, 100).await?;
    let Some(out) = session.out.for_person(&late)? else { return Ok(()) };
    if late.is_empty() {
        out.hint(format!("There are no late outcomes of {task}."));
        return Ok(());
    }
    let now = session.inspector.now().await;
    let rows = late.iter().map(|late| {
        vec![
            relative(late.at, now),
            shown(late.id.as_str()),
            late.outcome.to_string(),
            shown(late.worker.as_str()),
            late.fence.to_string(),
            late.late_by.map_or_else(|| "-".to_owned(), span),
        ]
    });
    out.table(&["WHEN", "ID", "OUTCOME", "WORKER", "FENCE", "LATE BY"], rows.collect())
}
