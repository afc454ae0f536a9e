//! `events`: a line for each.

use std::time::{Duration, SystemTime};

use heartline::{PauseEvent, TaskEvent};

use super::{known_job, known_task};
use crate::failure::Failure;
use crate::session::Session;
use heartline::inspect::describe::rest_of;
use heartline::inspect::text::{rfc3339, shown};

/// Between two looks for what is new.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn of_job(session: &Session, task: &str, id: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let events = session.inspector.job_events(task, id).await?;
    if events.is_empty() {
        known_job(session, task, id).await?;
        session.out.hint(format!("No event of {id} is kept any more."));
    }
    for event in events {
        tell(session, &TaskEvent::Job(event))?;
    }
    Ok(())
}

/// All that is kept, or what comes from now on.
pub(super) async fn of_task(session: &Session, task: &str, follow: bool) -> Result<(), Failure> {
    known_task(session, task).await?;
    // By the clock of the server, which names the entries.
    let now = session.inspector.task(task).await?.as_of.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut after = follow.then(|| format!("{}-0", now.as_millis()));
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let mut is_away = false;
    loop {
        // Also where more is always there, or Redis gives no answer.
        let page = tokio::select! {
            biased;
            _ = &mut stop => return Ok(()),
            page = session.inspector.events(task, after.as_deref()) => page,
        };
        let page = match page {
            // Who follows does so through a restart.
            Err(e) if follow && e.is_retryable() => {
                if !std::mem::replace(&mut is_away, true) {
                    say!("redis does not answer; it goes on when that does: {}", shown(&e.to_string()));
                }
                if tokio::time::timeout(LOOK, &mut stop).await.is_ok() {
                    return Ok(());
                }
                continue;
            }
            page => page?,
        };
        is_away = false;
        for event in &page.events {
            tell(session, event)?;
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

/// An event on a line: when, what, which job, and whatever else it says.
fn tell(session: &Session, event: &TaskEvent) -> Result<(), Failure> {
    if session.out.is_json {
        return session.out.json_line(event);
    }
    let (at, name, id) = match event {
        TaskEvent::Job(event) => (event.at(), event.name().to_owned(), event.id().to_string()),
        TaskEvent::Pause(PauseEvent::Paused { at, .. }) => (*at, "task:paused".to_owned(), String::new()),
        TaskEvent::Pause(PauseEvent::Resumed { at, .. }) => (*at, "task:resumed".to_owned(), String::new()),
        _ => return Ok(()),
    };
    session.out.line(format!("{} {name:<18} {} {}", rfc3339(at), shown(&id), rest_of(event)).trim_end())
}
