//! `events`: prints one line per event.

use std::time::{Duration, SystemTime};

use heartline::{PauseEvent, TaskEvent};

use super::{known_job, known_task};
use crate::failure::Failure;
use crate::session::Session;
use heartline::inspect::describe::rest_of;
use heartline::inspect::text::{rfc3339, shown};

/// How often new events are read.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn of_job(session: &Session, task: &str, id: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let events = session.inspector.job_events(task, id).await?;
    if events.is_empty() {
        known_job(session, task, id).await?;
        session.out.hint(format!("The events of {id} are no longer kept."));
    }
    for event in events {
        print_event(session, &TaskEvent::Job(event))?;
    }
    Ok(())
}

/// Prints all events that are kept, or with `follow` new ones.
pub(super) async fn of_task(session: &Session, task: &str, follow: bool) -> Result<(), Failure> {
    known_task(session, task).await?;
    // The ids of the entries are times of the server's clock.
    let now = session.inspector.task(task).await?.as_of.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut after = follow.then(|| format!("{}-0", now.as_millis()));
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let mut is_unreachable = false;
    loop {
        // Checked first: there may always be another page, or Redis may not answer.
        let page = tokio::select! {
            biased;
            _ = &mut stop => return Ok(()),
            page = session.inspector.events(task, after.as_deref()) => page,
        };
        let page = match page {
            // Keep following through a restart of Redis.
            Err(e) if follow && e.is_retryable() => {
                if !std::mem::replace(&mut is_unreachable, true) {
                    say!("redis does not answer; retrying: {}", shown(&e.to_string()));
                }
                if tokio::time::timeout(LOOK, &mut stop).await.is_ok() {
                    return Ok(());
                }
                continue;
            }
            page => page?,
        };
        is_unreachable = false;
        for event in &page.events {
            print_event(session, event)?;
        }
        after = Some(page.next);
        if page.has_more {
            continue;
        }
        if !follow || tokio::time::timeout(LOOK, &mut stop).await.is_ok() {
            return Ok(());
        }
    }
}

/// Prints an event on one line: time, name, job, and its other fields.
fn print_event(session: &Session, event: &TaskEvent) -> Result<(), Failure> {
    if session.out.is_json {
        return session.out.json_line(event);
    }
    let (at, name, id) = match event {
        TaskEvent::Job(event) => (event.at(), event.name().to_owned(), event.id().to_string()),
        TaskEvent::Pause(PauseEvent::Paused { at, .. }) => (*at, "task:paused".to_owned(), String::new()),
        TaskEvent::Pause(PauseEvent::Resumed { at, .. }) => (*at, "task:resumed".to_owned(), String::new()),
        TaskEvent::Pause(PauseEvent::WorkerQuiet { at, .. }) => (*at, "worker:quiet".to_owned(), String::new()),
        TaskEvent::Pause(PauseEvent::WorkerResumed { at, .. }) => (*at, "worker:resumed".to_owned(), String::new()),
        _ => return Ok(()),
    };
    session.out.line(format!("{} {name:<18} {} {}", rfc3339(at), shown(&id), rest_of(event)).trim_end())
}
