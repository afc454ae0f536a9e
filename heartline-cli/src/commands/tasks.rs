//! `tasks` and `task …`.

use std::time::Duration;

use heartline::inspect::describe::{STATES, heard, lane_counts, live_workers, options, task_limit};
use heartline::inspect::text::{exact, many, rate_of, shown, span};
use heartline::{Error, ForgetOutcome, JobState, PartitionReport, TaskRates, TaskReport};
use serde::Serialize;

use super::{acts, known_task, tell_risks, when};
use crate::args::TaskCommand;
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;

/// The time between the two reads from which rates are computed.
const SAMPLE: Duration = Duration::from_secs(1);

/// A task and how fast it moves.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    task: TaskReport,
    rates: Option<TaskRates>,
}

pub(super) async fn list(session: &Session) -> Result<(), Failure> {
    let earlier = session.inspector.tasks().await?;
    if earlier.is_empty() && !session.out.is_json {
        let is_worked = session.inspector.listed_workers().await?.iter().any(|worker| worker.state.is_live());
        session.out.hint(match is_worked {
            true => format!(
                "No task is listed on {}, but there are live workers: `heartline status` says why.",
                session.place
            ),
            false => {
                format!("There is no task on {} yet: check --redis and --prefix, or dispatch a job.", session.place)
            }
        });
        return Ok(());
    }
    tokio::time::sleep(SAMPLE).await;
    let rate = |task: &TaskReport| {
        let before = earlier.iter().find(|before| before.task == task.task)?;
        task.rates_since(before)
    };
    let tasks = session.inspector.tasks().await?;
    let rows: Vec<Row> = tasks.into_iter().map(|task| Row { rates: rate(&task), task }).collect();
    if session.out.is_json {
        let is_sound = rows.iter().all(|row| row.task.fault.is_none());
        return ended(is_sound, session.out.json(&rows));
    }
    let states = STATES.map(|state| state.as_str().to_uppercase());
    let states = states.iter().map(String::as_str);
    let columns = ["TASK"].into_iter().chain(states).chain(["OLDEST", "IN/S", "OUT/S", "WORKERS", "SLOTS"]);
    let cells = |row: &Row| {
        let (task, counts) = (&row.task, &row.task.counts);
        let name = if task.paused.is_some() { format!("{} (paused)", shown(&task.task)) } else { shown(&task.task) };
        let mut cells = vec![name];
        cells.extend(STATES.map(|state| counts.count(state).to_string()));
        cells.push(task.next_waiting_age.map_or_else(|| "-".to_owned(), span));
        let rates = row.rates.map(|rates| [rates.dispatched, rates.ended]);
        cells.extend(rates.map_or(["-".to_owned(), "-".to_owned()], |rates| rates.map(rate_of)));
        cells.push(live_workers(task));
        cells.push(format!("{}/{}", counts.claimed + counts.running, task.slots));
        cells
    };
    session.out.hint(&session.place);
    let (damaged, sound): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.task.fault.is_some());
    session.out.table(&columns.collect::<Vec<_>>(), sound.into_iter().map(cells).collect())?;
    for row in &damaged {
        let fault = row.task.fault.as_deref().unwrap_or_default();
        say!("error: {} cannot be read: {}", shown(&row.task.task), shown(fault));
    }
    if damaged.is_empty() { Ok(()) } else { Err(Failure::Printed) }
}

/// The error of an action that may have reached some partitions.
fn in_part(e: Error) -> Failure {
    // Denied means that nothing was written.
    if matches!(e, Error::Denied { .. }) {
        return e.into();
    }
    match Failure::from(e) {
        Failure::Failed(what) | Failure::WrongType(what) | Failure::Unreachable(what) => Failure::Failed(format!(
            "{what}; if the task has partitions, others may have changed: check `heartline task show`, and repeat the command when the node is back"
        )),
        failure => failure,
    }
}

pub(super) async fn run(session: &Session, command: TaskCommand) -> Result<(), Failure> {
    match command {
        TaskCommand::Show(task) => show(session, &task.name()).await,
        TaskCommand::Pause { task, reason } => {
            let task = task.name();
            known_task(session, &task).await?;
            let before = session.inspector.pause(&task, &reason).await.map_err(in_part)?;
            if session.out.is_json {
                return session.out.json(&session.inspector.task(&task).await?.paused);
            }
            match before {
                None => session.out.line(format!("{task} is paused: no more jobs start; running jobs continue")),
                Some(before) => {
                    let why =
                        if before.reason.is_empty() { String::new() } else { format!(" ({})", shown(&before.reason)) };
                    session
                        .out
                        .line(format!("{task} was already paused by {}{why}; that pause remains", shown(&before.by)))
                }
            }
        }
        TaskCommand::Resume(task) => {
            let task = task.name();
            known_task(session, &task).await?;
            let paused = session.inspector.resume(&task).await.map_err(in_part)?;
            if session.out.is_json {
                return session
                    .out
                    .json(&serde_json::json!({ "paused_for_ms": paused.map(|paused| paused.as_millis()) }));
            }
            match paused {
                Some(paused) => {
                    session.out.line(format!("{task} is resumed; it was paused for {}", span(paused)))?;
                    tell_risks(session, &task).await
                }
                None => session.out.line(format!("{task} was not paused")),
            }
        }
        TaskCommand::Purge { task, state } => purge(session, &task.name(), state).await,
        TaskCommand::Forget(task) => forget(session, &task.name()).await,
    }
}

async fn show(session: &Session, name: &str) -> Result<(), Failure> {
    known_task(session, name).await?;
    let earlier = session.inspector.task(name).await?;
    tokio::time::sleep(SAMPLE).await;
    let (task, outlook) = (session.inspector.task(name).await?, session.inspector.recovery_status(name).await?);
    let rates = task.rates_since(&earlier);
    let diagnoses = session.inspector.diagnose_task(&task).await?;
    let report = serde_json::json!({ "task": task, "rates": rates, "diagnoses": diagnoses, "outlook": outlook });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    super::health::print(session, diagnoses.iter())?;
    let (now, counts) = (task.as_of, &task.counts);
    let states = STATES.iter().map(|state| format!("{} {state}", counts.count(*state)));
    let paused = task.paused.as_ref().map(|pause| {
        let because = if pause.reason.is_empty() { String::new() } else { format!(": {}", shown(&pause.reason)) };
        format!("by {} since {}{because}", shown(&pause.by), exact(pause.at, now))
    });
    let declared = task.options.declared_at.zip(task.options.declared_by.as_ref());
    out.facts(vec![
        ("task", Some(shown(&task.task))),
        ("jobs", Some(states.collect::<Vec<_>>().join(", "))),
        ("next has waited", task.next_waiting_age.map(span)),
        ("waits because", task_limit(&task)),
        ("keys", task.lanes.map(|lanes| lane_counts(lanes, now))),
        ("next is due", task.next_due_at.map(|at| exact(at, now))),
        ("rates", rates.map(|rates| format!("{}/s in, {}/s out", rate_of(rates.dispatched), rate_of(rates.ended)))),
        (
            "in total",
            Some(format!("{} dispatched, {} ended, {} of them failed", task.dispatched, task.ended, task.failed)),
        ),
        ("workers", Some(format!("{} live, {} slots", live_workers(&task), task.slots))),
        ("paused", paused),
        ("options of", declared.map(|(at, by)| format!("{}, which started {}", shown(by.as_str()), exact(at, now)))),
    ])?;
    for part in &task.parts {
        let of = if task.parts.len() > 1 { format!(" of partition {}", part.part) } else { String::new() };
        out.line(format!("stall detection{of}: {}", stall_detection(part, now)))?;
    }
    for (name, option) in options(&task) {
        out.line(format!("  {name}: {option}"))?;
    }
    out.line("recovery:")?;
    for reason in &outlook.reasons {
        out.line(format!("  {}", shown(reason)))?;
    }
    Ok(())
}

fn stall_detection(part: &PartitionReport, now: std::time::SystemTime) -> String {
    let interval =
        part.interval.map_or_else(|| "no interval yet".to_owned(), |time| format!("interval {}", span(time)));
    let asker = part.asker.as_ref().map(|asker| format!(" of {}", shown(asker.as_str())));
    format!(
        "epoch {}, since {}, {interval}{}; {}",
        part.epoch,
        when(part.epoch_at, now),
        asker.unwrap_or_default(),
        heard(part, now)
    )
}

async fn purge(session: &Session, task: &str, state: JobState) -> Result<(), Failure> {
    known_task(session, task).await?;
    if state.is_held() {
        return Err(Failure::wrong(format!("{state} jobs are held by workers; cancel them instead")));
    }
    let seen = session.inspector.task(task).await?;
    let jobs = seen.counts.count(state);
    if jobs == 0 && !session.out.is_json {
        let finalizing = if state.is_terminal() { finalizing(&seen) } else { String::new() };
        return session.out.line(format!("{task} has no {state} jobs{finalizing}"));
    }
    if jobs > 0 {
        let jobs = many(jobs, &format!("{state} job"));
        confirm(&session.consent, &format!("remove {jobs} of {task} for good"))?;
    }
    acts::run(session, session.inspector.purge(task, state).before(seen.as_of), "removed", jobs).await
}

/// How many jobs are finalizing, why, and what to do; empty if none is.
fn finalizing(task: &TaskReport) -> String {
    let jobs = task.counts.finalizing;
    if jobs == 0 {
        return String::new();
    }
    let why = match task.options.declared_at {
        None => "no worker has declared the task, so it is unknown whether it has a hook",
        Some(_) => "their hooks have not run yet",
    };
    format!(
        "; {jobs} finalizing: {why}. Start a worker, or `heartline task purge {} --state finalizing`",
        shown(&task.task)
    )
}

async fn forget(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    confirm(&session.consent, &format!("remove the task {task} with its options, counters and events"))?;
    let outcome = session.inspector.forget_task(task).await?;
    if session.out.is_json {
        session.out.json(&outcome)?;
    }
    match outcome {
        ForgetOutcome::Forgotten if session.out.is_json => Ok(()),
        ForgetOutcome::Forgotten => session.out.line(format!("{task} is forgotten")),
        ForgetOutcome::Worked(workers) => {
            let named: Vec<String> = workers.iter().take(5).map(|worker| shown(worker.as_str())).collect();
            Err(Failure::Failed(format!(
                "{task} may still have {}: {}; `heartline recover worker ID` if it is dead",
                many(workers.len() as u64, "worker"),
                named.join(", ")
            )))
        }
        ForgetOutcome::HasJobs(jobs) => {
            let seen = session.inspector.task(task).await.ok();
            let stay = match seen.as_ref().is_some_and(|task| task.has_workflows) {
                true => "; jobs of workflows are removed only by retention, and only while a worker of the task runs",
                false => "",
            };
            let finalizing = seen.as_ref().map_or_else(String::new, finalizing);
            let jobs = many(jobs, "job");
            Err(Failure::Failed(format!("{task} has {jobs}; purge each state first{stay}{finalizing}")))
        }
        _ => Err(Failure::Failed(format!("{task} could not be forgotten"))),
    }
}
