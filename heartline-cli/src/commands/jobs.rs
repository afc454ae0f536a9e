//! `jobs …`.

use std::io::{self, Read};
use std::pin::pin;
use std::time::Duration;

use heartline::codes;
use heartline::inspect::describe::{self, CodeCount, STATES, facts};
use heartline::inspect::text::{brief, chain, exact, many, quoted, shown};
use heartline::{JobFilter, JobRow, JobState, JobValues, Priority};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{acts, events, health, known_task, when};
use crate::args::{Filter, JobsCommand, OfJob, Selected};
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;

pub(super) async fn run(session: &Session, command: JobsCommand) -> Result<(), Failure> {
    let inspector = &session.inspector;
    match command {
        JobsCommand::List { task, filter, limit, oldest_first, cursor, count } => {
            list(session, &task, &filter, (limit, oldest_first, cursor, count)).await
        }
        JobsCommand::Codes { task, younger } => codes_of(session, &task, younger).await,
        JobsCommand::Show { of, values } => show(session, &of.task, &of.id, values).await,
        JobsCommand::Dispatch { task, payload, id, delay, priority, wait } => {
            dispatch(session, &task, payload, (id, delay, priority, wait)).await
        }
        JobsCommand::Cancel { jobs, reason } => {
            acts::can_be(&jobs, "cancelled", &STATES[..4])?;
            let chosen = acts::chosen(session, &jobs).await?;
            let by = format!("cancelled by {}", session.by);
            let reason = reason.map_or_else(|| by.clone(), |reason| format!("{reason} ({by})"));
            let act = inspector.cancel(&jobs.task, chosen.selection.clone(), &reason);
            acts::decide(session, &jobs, (&chosen, act), ("cancel", "cancelled", "")).await?;
            tell_of_holders(session, &jobs).await
        }
        JobsCommand::Retry { jobs, anyway } => {
            acts::can_be(&jobs, "retried", &[JobState::Failed, JobState::Cancelled])?;
            let chosen = acts::chosen(session, &jobs).await?;
            let poisonous = warn_of_poison(session, &jobs).await?;
            let act = inspector.retry(&jobs.task, chosen.selection.clone());
            let act = if anyway { act.anyway() } else { act };
            acts::decide(session, &jobs, (&chosen, act), ("run again", "run again", &poisonous)).await
        }
        JobsCommand::RunNow(jobs) => {
            acts::can_be(&jobs, "run now", &[JobState::Delayed])?;
            let chosen = acts::chosen(session, &jobs).await?;
            let act = inspector.run_now(&jobs.task, chosen.selection.clone());
            acts::decide(session, &jobs, (&chosen, act), ("run at once", "run now", "")).await
        }
        JobsCommand::Remove(jobs) => remove(session, &jobs).await,
        JobsCommand::Result(OfJob { task, id }) => {
            known_task(session, &task).await?;
            warn_of_a_long_wait(session, &task).await;
            session.out.json(&meanwhile(session, &task, &id, inspector.result_json(&task, &id)).await?)
        }
        JobsCommand::Wait { of: OfJob { task, id }, timeout } => {
            known_task(session, &task).await?;
            warn_of_a_long_wait(session, &task).await;
            let state = meanwhile(session, &task, &id, inspector.wait(&task, &id, timeout)).await?;
            let printed = if session.out.is_json {
                session.out.json(&serde_json::json!({ "task": task, "id": id, "state": state }))
            } else {
                session.out.line(state.to_string())
            };
            ended(state == JobState::Completed, printed)
        }
    }
}

/// Dispatches a job, and waits for its result if the last option says so.
async fn dispatch(
    session: &Session,
    task: &str,
    payload: String,
    (id, delay, priority, wait): (Option<String>, Option<Duration>, Option<Priority>, bool),
) -> Result<(), Failure> {
    let payload = input(payload)?;
    let (is_new, near) = super::is_new_task(session, task).await?;
    if let Some(near) = near {
        confirm(&session.consent, &format!("dispatch to a new task {task} (there is a task {near})"))?;
    }
    let mut dispatch = session.inspector.dispatch_json(task, payload)?;
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
    if is_new {
        say!("note: task {task} is new on {}: the job waits until a worker has the task", session.place);
    }
    let existed = job.existed().unwrap_or(false);
    if existed {
        session.out.hint(already_there(session, task, job.id().as_str()).await?);
    }
    if wait {
        let which = if existed { ", which already existed" } else { "" };
        session.out.hint(format!("Waiting for {}{which}; Ctrl-C does not change it.", job.id()));
        warn_of_a_long_wait(session, task).await;
        return session.out.json(&meanwhile(session, task, job.id().as_str(), job.result()).await?);
    }
    if session.out.is_json {
        return session.out.json(&serde_json::json!({ "task": task, "id": job.id(), "existed": existed }));
    }
    session.out.line(job.id().as_str())
}

/// The most named jobs that are read one by one.
const NAMED: usize = 20;

/// Warns of jobs that failed because their workers died: they may kill workers again. Returns what the question about a filter adds.
async fn warn_of_poison(session: &Session, jobs: &Selected) -> Result<String, Failure> {
    if let Some(filter) = jobs.by_filter() {
        let is_other = jobs.filter.code.as_ref().is_some_and(|code| code != codes::WORKER_CRASHED);
        if is_other || jobs.filter.state != Some(JobState::Failed) {
            return Ok(String::new());
        }
        let crashed = session.inspector.count(&jobs.task, &filter.code(codes::WORKER_CRASHED)).await?;
        if crashed.jobs == 0 {
            return Ok(String::new());
        }
        let warning = format!(
            "{}{} of them failed because their workers died or hung, and may kill workers again \
             (`heartline stalls suspects -t {}`)",
            if crashed.is_exact { "" } else { "at least " },
            crashed.jobs,
            jobs.task
        );
        if session.consent.yes {
            say!("warning: {warning}");
        }
        return Ok(format!("; {warning}"));
    }
    let mut poisonous = 0;
    for id in jobs.ids.iter().filter(|id| *id != "-").take(NAMED) {
        let job = session.inspector.job(&jobs.task, id, JobValues::None).await;
        // The act reports an invalid id.
        let Ok(Some(job)) = job else { continue };
        if job.error.is_some_and(|error| error.code == codes::WORKER_CRASHED) {
            say!(
                "warning: {} failed because {} died or hung with it, and it may kill workers again; see `heartline stalls suspects -t {}`",
                shown(id),
                many(job.stalled_count.into(), "worker"),
                jobs.task
            );
            poisonous += 1;
        }
    }
    // In production every act is confirmed anyway.
    if poisonous > 0 && !session.consent.is_production {
        confirm(&session.consent, &format!("run again {} held when workers died", many(poisonous, "job")))?;
    }
    Ok(String::new())
}

/// Notes which jobs stay held until they are recovered, since their worker cannot learn of the cancellation.
async fn tell_of_holders(session: &Session, jobs: &Selected) -> Result<(), Failure> {
    for id in jobs.ids.iter().filter(|id| *id != "-").take(NAMED) {
        let job = tokio::select! {
            job = session.inspector.job(&jobs.task, id, JobValues::None) => job,
            () = heartline::shutdown_signal() => return Ok(()),
        };
        let job = match job {
            Ok(Some(job)) if job.worker.is_some() => job,
            // The jobs are cancelled; Redis is unreachable only for the note.
            Err(e) if e.is_retryable() => return Ok(()),
            _ => continue,
        };
        // The jobs are cancelled; an error only costs the note.
        for diagnosis in session.inspector.diagnose_job(&job).await.unwrap_or_default() {
            let (what, hint) = (diagnosis.to_string(), diagnosis.hint());
            session.out.say(format!(
                "note: {} will be cancelled when it is recovered: {}\n    {}",
                shown(id),
                shown(&what),
                shown(&hint)
            ));
        }
    }
    Ok(())
}

/// The most failed jobs, and delayed jobs, that are read for their codes.
const LOOKED: usize = 1000;

async fn codes_of(session: &Session, task: &str, younger: Option<Duration>) -> Result<(), Failure> {
    known_task(session, task).await?;
    let mut filter = JobFilter::new(JobState::Failed);
    if let Some(age) = younger {
        filter = filter.younger_than(age);
    }
    let page = session.inspector.jobs(task, &filter, None, LOOKED).await?;
    let counted = describe::codes(&page.jobs);
    // Early in an outage, all jobs are still being retried.
    let mut delayed = JobFilter::new(JobState::Delayed).oldest_first();
    if let Some(age) = younger {
        delayed = delayed.younger_than(age);
    }
    let delayed = session.inspector.jobs(task, &delayed, None, LOOKED).await?;
    let (looked, more) = (delayed.jobs.len() as u64, delayed.next.is_some());
    let tried_again: Vec<_> = delayed.jobs.into_iter().filter(|job| job.code.is_some()).collect();
    let retries = describe::codes(&tried_again);
    let report = serde_json::json!({ "looked": page.jobs.len(), "codes": counted, "tried_again": retries });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    let cells = |count: &CodeCount| {
        vec![
            shown(&count.code),
            count.jobs.to_string(),
            when(count.last_at, page.as_of),
            shown(&count.last_id),
            brief(&count.last_message, 80),
        ]
    };
    out.table(&["CODE", "JOBS", "LAST", "ID", "MESSAGE"], counted.iter().map(cells).collect())?;
    let rest = if page.next.is_some() { "; others failed earlier" } else { "" };
    let lists = counted.first().map_or_else(String::new, |first| {
        let code = quoted(&shown(&first.code));
        format!(" `heartline jobs list -t {task} -s failed --code {code}` lists the first code.")
    });
    out.hint(format!("{} read{rest}.{lists}", many(page.jobs.len() as u64, "failed job")));
    if let Some(first) = retries.first() {
        let codes = retries.iter().take(5).map(|count| format!("{} ({})", shown(&count.code), count.jobs));
        out.hint(format!(
            "{} of {looked} delayed jobs read{} will be retried: {}. `heartline jobs list -t {task} -s delayed --code {}` lists the first code.",
            many(tried_again.len() as u64, "job"),
            if more { " (the first ones due)" } else { "" },
            codes.collect::<Vec<_>>().join(", "),
            quoted(&shown(&first.code))
        ));
    }
    if counted.iter().any(|count| count.code == codes::WORKER_CRASHED) {
        out.hint(format!(
            "worker_crashed: their workers died, froze or were cut off, or their handlers sent no heartbeat. Before a retry, see `heartline stalls suspects -t {task}`."
        ));
    }
    Ok(())
}

/// Notes on standard error what may keep a job from ending: no live worker, or a paused task.
async fn warn_of_a_long_wait(session: &Session, task: &str) {
    // An error only costs the note: another partition than the job's may be unreachable.
    let Ok(report) = session.inspector.task(task).await else { return };
    if let Some(pause) = &report.paused {
        say!("note: {task} is paused by {}: jobs that have not started wait until it is resumed", shown(&pause.by));
    }
    if report.live_workers == 0 {
        match report.knows_workers {
            true => say!("note: no live worker has the task {task}"),
            false => say!("note: it is unknown whether a live worker has the task {task}"),
        }
    }
}

/// How often a job that is waited for is diagnosed.
const LOOK: Duration = Duration::from_secs(10);

/// Waits for a job. Meanwhile prints what keeps it from starting or ending, once for each set of diagnoses.
async fn meanwhile<T>(session: &Session, task: &str, id: &str, wait: impl IntoFuture<Output = T>) -> T {
    let mut wait = pin!(wait.into_future());
    let mut said: Vec<String> = Vec::new();
    let mut is_unreachable = false;
    loop {
        let look = async {
            tokio::time::sleep(LOOK).await;
            match session.inspector.job(task, id, JobValues::None).await? {
                Some(job) => session.inspector.diagnose_job(&job).await,
                None => Ok(Vec::new()),
            }
        };
        let diagnoses = tokio::select! {
            done = &mut wait => return done,
            diagnoses = look => diagnoses,
        };
        match diagnoses {
            Ok(diagnoses) => {
                is_unreachable = false;
                let kinds = diagnoses.iter().map(|diagnosis| diagnosis.kind.code()).collect();
                if kinds != said {
                    for diagnosis in &diagnoses {
                        let (what, hint) = (diagnosis.to_string(), diagnosis.hint());
                        say!("note: {}: {}\n    {}", shown(id), shown(&what), shown(&hint));
                    }
                }
                said = kinds;
            }
            // A failed diagnosis does not end the wait.
            Err(e) if e.is_retryable() && !is_unreachable => {
                is_unreachable = true;
                say!("note: {}: {}\n    retrying", shown(id), shown(&chain(&e)));
            }
            Err(_) => {}
        }
    }
}

/// The input of a job: the argument, or standard input for `-`.
fn input(payload: String) -> Result<Box<RawValue>, Failure> {
    let mut text = payload;
    if text == "-" {
        text.clear();
        io::stdin().lock().read_to_string(&mut text)?;
    }
    let hint = "quote a string as JSON, like '\"ada\"'";
    let wrong = |e: serde_json::Error| Failure::wrong(format!("the payload is not JSON: {e}; {hint}"));
    // A `RawValue` alone would accept half a surrogate pair.
    serde_json::from_str::<Value>(&text).map_err(wrong)?;
    serde_json::from_str(&text).map_err(wrong)
}

async fn list(
    session: &Session,
    task: &str,
    filter: &Filter,
    (limit, oldest_first, cursor, count): (usize, bool, Option<String>, bool),
) -> Result<(), Failure> {
    known_task(session, task).await?;
    let is_waiting = filter.state == Some(JobState::Waiting);
    let by_time = filter.state.is_some_and(|state| state.is_terminal() || state == JobState::Delayed);
    let Some(mut filter) = filter.of_jobs() else { return list_states(session, task).await };
    if oldest_first {
        filter = filter.oldest_first();
    }
    if count {
        let counted = session.inspector.count(task, &filter).await?;
        if session.out.is_json {
            return session.out.json(&counted);
        }
        let least = if counted.is_exact { "" } else { "at least " };
        let looked = if counted.looked > 0 { format!(" of {} read", counted.looked) } else { String::new() };
        session.out.line(format!("{least}{}{looked}", counted.jobs))?;
        if !counted.is_exact {
            let mut hint =
                "There are more jobs: --code, --text and the age of waiting or held jobs read at most 10,000."
                    .to_owned();
            hint +=
                if by_time { " --younger alone counts exactly." } else { " Without these options the count is exact." };
            session.out.hint(hint);
        }
        return Ok(());
    }
    let page = session.inspector.jobs(task, &filter, cursor.as_deref(), limit).await?;
    let Some(out) = session.out.for_person(&page)? else { return Ok(()) };
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
    out.table(&COLUMNS, page.jobs.iter().map(cells).collect())?;
    if page.jobs.is_empty() && page.next.is_none() {
        out.hint(format!("No job of {task} matches."));
    }
    if is_waiting && !page.jobs.is_empty() {
        out.hint("Waiting jobs are listed in the order in which they will run, the next one first.");
    }
    if let Some(next) = &page.next {
        out.hint(format!("{} shown, {} read; continue with --cursor '{}'", page.jobs.len(), page.looked, shown(next)));
    }
    Ok(())
}

/// Prints how many jobs are in each state, if none is given.
async fn list_states(session: &Session, task: &str) -> Result<(), Failure> {
    let counts = session.inspector.task(task).await?.counts;
    let Some(out) = session.out.for_person(&counts)? else { return Ok(()) };
    let cells = |state: &JobState| vec![state.to_string(), counts.count(*state).to_string()];
    out.table(&["STATE", "JOBS"], STATES.iter().map(cells).collect())?;
    out.hint(format!("`heartline jobs list -t {task} -s STATE` lists the jobs in one state."));
    Ok(())
}

async fn show(session: &Session, task: &str, id: &str, values: bool) -> Result<(), Failure> {
    known_task(session, task).await?;
    let wanted = if values { JobValues::All } else { JobValues::None };
    let Some(job) = session.inspector.job(task, id, wanted).await? else {
        let events = format!("`heartline events -t {task} --job {}` shows whether there was one", quoted(id));
        // A job that lost its payload may still be listed, but cannot be shown.
        let lost = match session.inspector.task(task).await?.without_payload {
            0 => String::new(),
            jobs => format!(
                "; {} of the task lost their payload: these may be listed but cannot be shown, and a claim or `heartline repair -t {task}` removes them",
                many(jobs, "job")
            ),
        };
        return Err(Failure::Failed(format!("there is no job {id} of {task}; {events}{lost}")));
    };
    let diagnoses = session.inspector.diagnose_job(&job).await?;
    if session.out.is_json {
        let mut report = serde_json::to_value(&job)?;
        report["diagnoses"] = serde_json::to_value(&diagnoses)?;
        return session.out.json(&report);
    }
    let mut rows = vec![("job", Some(format!("{} of {}", shown(job.id.as_str()), shown(&job.task))))];
    rows.extend(facts(&job, session.inspector.now().await).into_iter().map(|(name, fact)| (name, Some(fact))));
    session.out.facts(rows)?;
    for diagnosis in &diagnoses {
        session.out.line(health::lines(diagnosis, false))?;
    }
    for (name, value) in [("payload", &job.payload), ("result", &job.result), ("checkpoint", &job.checkpoint)] {
        if let Some(value) = value {
            session.out.verbatim(format!("{name}:\n{}", serde_json::to_string_pretty(value)?))?;
        }
    }
    if job.stalled_count > 1 {
        session.out.hint(format!(
            "It stalled {} times: `heartline stalls suspects -t {task}` shows whether it was held at each death of a worker.",
            job.stalled_count
        ));
    }
    session.out.line("events:")?;
    events::of_job(session, task, id).await
}

async fn remove(session: &Session, jobs: &Selected) -> Result<(), Failure> {
    if let Some(state) = jobs.filter.state.filter(|state| state.is_held()) {
        return Err(Failure::wrong(format!("{state} jobs are held by workers; cancel them instead")));
    }
    let chosen = acts::chosen(session, jobs).await?;
    let mut act = chosen.decided(session.inspector.remove(&jobs.task, chosen.selection.clone()));
    if jobs.by_filter().is_some() {
        acts::confirm_filter(session, jobs, "remove for good", (&chosen, ""))?;
    } else {
        let states = chosen.bound(session, &mut act).await?;
        confirm(&session.consent, &format!("remove {} of {} for good{states}", many(chosen.count, "job"), jobs.task))?;
    }
    acts::run(session, act, "removed", chosen.count).await
}

/// The hint of a dispatch whose id exists, with how to free the id or run the job again.
async fn already_there(session: &Session, task: &str, id: &str) -> Result<String, Failure> {
    let now = session.inspector.now().await;
    let Some(job) = session.inspector.job(task, id, JobValues::None).await? else {
        return Ok(format!("{id} already existed, and was removed since."));
    };
    let since = job.ended_at.or(job.dispatched_at).map_or_else(String::new, |at| format!(", {}", exact(at, now)));
    let word = quoted(id);
    let way = match job.state {
        JobState::Completed => {
            format!("`heartline jobs remove -t {task} {word}` frees its id for another dispatch")
        }
        JobState::Failed | JobState::Cancelled => {
            format!(
                "`heartline jobs retry -t {task} {word}` runs it again with its old input, `jobs remove` frees its id"
            )
        }
        _ => format!("`heartline jobs show -t {task} {word}` shows it"),
    };
    Ok(format!("{id} already exists and keeps its old input: it is {}{since}. {way}.", job.state))
}
