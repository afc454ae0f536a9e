//! `jobs …`.

use std::io::{self, Read};
use std::time::SystemTime;

use heartline::{JobRow, JobState, JobValues};
use heartline_board::told::{STATES, facts};
use serde_json::Value;

use super::acts::Chosen;
use super::{acts, events, known_task, when};
use crate::args::{Filter, JobsCommand, Selected};
use crate::ask::confirm;
use crate::failure::Failure;
use crate::session::Session;
use heartline_board::text::{brief, shown};

pub(super) async fn run(session: &Session, command: JobsCommand) -> Result<(), Failure> {
    let inspector = &session.inspector;
    match command {
        JobsCommand::List { task, filter, limit, oldest_first, cursor, count } => {
            list(session, &task, &filter, (limit, oldest_first, cursor, count)).await
        }
        JobsCommand::Show { task, id, values } => show(session, &task, &id, values).await,
        JobsCommand::Dispatch { task, payload, id, delay, priority, wait } => {
            let payload = input(payload)?;
            if let Some(near) = super::near_task(session, &task).await? {
                confirm(&session.consent, &format!("dispatch to a new task {task}, though there is {near}"))?;
            }
            let mut dispatch = inspector.dispatch_json(&task, payload)?;
            if let Some(id) = id {
                dispatch = dispatch.id(id);
            }
            if let Some(delay) = delay {
                dispatch = dispatch.delay(delay);
            }
            if let Some(priority) = priority {
                dispatch = dispatch.priority(priority);
            }
            let job = dispatch.await?;
            let existed = job.existed().unwrap_or(false);
            if existed {
                session.out.hint(format!("{} was there already, and is left as it is.", job.id()));
            }
            if wait {
                session.out.hint(format!("{} is waited for; Ctrl-C leaves it as it is.", job.id()));
                return session.out.json(&job.result().await?);
            }
            if session.out.is_json {
                return session.out.json(&serde_json::json!({ "task": task, "id": job.id(), "existed": existed }));
            }
            session.out.line(job.id().as_str())
        }
        JobsCommand::Cancel { jobs, reason } => {
            acts::can_be(&jobs, "cancelled", &STATES[..4])?;
            let Chosen { selection, count, as_of } = acts::chosen(session, &jobs).await?;
            acts::confirm_filter(session, &jobs, "cancel", count)?;
            acts::run(session, inspector.cancel(&jobs.task, selection, &reason).as_of(as_of), "cancelled", count).await
        }
        JobsCommand::Retry(jobs) => {
            acts::can_be(&jobs, "retried", &[JobState::Failed, JobState::Cancelled])?;
            let Chosen { selection, count, as_of } = acts::chosen(session, &jobs).await?;
            acts::confirm_filter(session, &jobs, "run again", count)?;
            acts::run(session, inspector.retry(&jobs.task, selection).as_of(as_of), "run again", count).await
        }
        JobsCommand::RunNow(jobs) => {
            acts::can_be(&jobs, "run now", &[JobState::Delayed])?;
            let Chosen { selection, count, as_of } = acts::chosen(session, &jobs).await?;
            acts::confirm_filter(session, &jobs, "run at once", count)?;
            acts::run(session, inspector.run_now(&jobs.task, selection).as_of(as_of), "run now", count).await
        }
        JobsCommand::Remove(jobs) => remove(session, &jobs).await,
        JobsCommand::Result { task, id } => {
            known_task(session, &task).await?;
            warn_of_a_long_wait(session, &task).await?;
            session.out.json(&inspector.result_json(&task, &id).await?)
        }
        JobsCommand::Wait { task, id, timeout } => {
            known_task(session, &task).await?;
            warn_of_a_long_wait(session, &task).await?;
            let state = inspector.wait(&task, &id, timeout).await?;
            if session.out.is_json {
                session.out.json(&serde_json::json!({ "task": task, "id": id, "state": state }))?;
            } else {
                session.out.line(state.to_string())?;
            }
            if state == JobState::Completed { Ok(()) } else { Err(Failure::Told) }
        }
    }
}

/// Says beside the result what may keep a job from ever ending: nobody works the task, or it is paused.
async fn warn_of_a_long_wait(session: &Session, task: &str) -> Result<(), Failure> {
    let report = session.inspector.task(task).await?;
    if let Some(pause) = &report.paused {
        say!("note: {task} is paused by {}: what has not begun waits until it is resumed", shown(&pause.by));
    }
    if report.live_workers == 0 {
        say!("note: no live worker works {task} now");
    }
    Ok(())
}

/// The input of a job: what was given, or standard input.
fn input(payload: String) -> Result<Value, Failure> {
    let mut text = payload;
    if text == "-" {
        text.clear();
        io::stdin().lock().read_to_string(&mut text)?;
    }
    let hint = "quote a string as JSON, like '\"ada\"'";
    serde_json::from_str(&text).map_err(|e| Failure::wrong(format!("the payload is no JSON: {e}; {hint}")))
}

async fn list(
    session: &Session,
    task: &str,
    filter: &Filter,
    (limit, oldest_first, cursor, count): (usize, bool, Option<String>, bool),
) -> Result<(), Failure> {
    known_task(session, task).await?;
    let mut filter = acts::listed(filter.of_jobs())?;
    if oldest_first {
        filter = filter.oldest_first();
    }
    if count {
        let counted = session.inspector.count(task, &filter).await?;
        if session.out.is_json {
            return session.out.json(&counted);
        }
        let least = if counted.is_exact { "" } else { "at least " };
        let looked = if counted.looked > 0 { format!(" in {} looked at", counted.looked) } else { String::new() };
        return session.out.line(format!("{least}{}{looked}", counted.jobs));
    }
    let page = session.inspector.jobs(task, &filter, cursor.as_deref(), limit).await?;
    if session.out.is_json {
        return session.out.json(&page);
    }
    const COLUMNS: [&str; 11] =
        ["ID", "STATE", "PRIORITY", "FAILED RUNS", "STALLS", "DISPATCHED", "SINCE", "DUE", "WORKER", "CODE", "MESSAGE"];
    let cells = |row: &JobRow| {
        let of = row.max_count.map_or_else(String::new, |max| format!("/{max}"));
        vec![
            shown(row.id.as_str()),
            row.state.to_string(),
            row.priority.to_string(),
            row.failed_attempts.to_string(),
            format!("{}{of}", row.stalled_count),
            when(row.dispatched_at, page.as_of),
            when(row.since, page.as_of),
            when(row.due_at, page.as_of),
            row.worker.as_ref().map_or_else(|| "-".to_owned(), |worker| shown(worker.as_str())),
            row.code.as_deref().map_or_else(|| "-".to_owned(), shown),
            row.message.as_deref().map_or_else(|| "-".to_owned(), |message| brief(message, 80)),
        ]
    };
    session.out.table(&COLUMNS, page.jobs.iter().map(cells).collect())?;
    if page.jobs.is_empty() && page.next.is_none() {
        session.out.hint(format!("No job of {task} is like that."));
    }
    if let Some(next) = &page.next {
        session.out.hint(format!(
            "{} shown, {} looked at; go on with --cursor '{}'",
            page.jobs.len(),
            page.looked,
            shown(next)
        ));
    }
    Ok(())
}

async fn show(session: &Session, task: &str, id: &str, values: bool) -> Result<(), Failure> {
    known_task(session, task).await?;
    let wanted = if values { JobValues::All } else { JobValues::None };
    let Some(job) = session.inspector.job(task, id, wanted).await? else {
        return Err(Failure::Failed(format!("there is no job {id} of {task}")));
    };
    if session.out.is_json {
        return session.out.json(&job);
    }
    let mut told = vec![("job", Some(format!("{} of {}", shown(job.id.as_str()), shown(&job.task))))];
    told.extend(facts(&job, SystemTime::now()).into_iter().map(|(name, fact)| (name, Some(fact))));
    session.out.facts(told)?;
    for (name, value) in [("payload", &job.payload), ("result", &job.result), ("checkpoint", &job.checkpoint)] {
        if let Some(value) = value {
            session.out.line(format!("{name}:\n{}", serde_json::to_string_pretty(value)?))?;
        }
    }
    if job.stalled_count > 1 {
        session.out.hint(format!(
            "It stalled {} times: `heartline stalls suspects -t {task}` tells whether it was there at each death.",
            job.stalled_count
        ));
    }
    session.out.line("what has happened:")?;
    events::of_job(session, task, id).await
}

async fn remove(session: &Session, jobs: &Selected) -> Result<(), Failure> {
    let Chosen { selection, count, as_of } = acts::chosen(session, jobs).await?;
    match jobs.filter.state {
        Some(state) if state.is_held() => {
            return Err(Failure::wrong(format!("{state} jobs are held by workers; cancel them instead")));
        }
        Some(_) => acts::confirm_filter(session, jobs, "remove for good", count)?,
        None => confirm(&session.consent, &format!("remove {count} jobs of {} for good", jobs.task))?,
    }
    acts::run(session, session.inspector.remove(&jobs.task, selection).as_of(as_of), "removed", count).await
}
