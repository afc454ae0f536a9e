//! `schedules …`: schedules of tasks, what became due, and acts on them.

use std::ops::Range;
use std::time::SystemTime;

use heartline::inspect::text::{bytes, exact, many, quoted, shown, span};
use heartline::{ScheduleInfo, ScheduleSource, TickOutcome};
use serde_json::json;

use super::schedule_rows::{Row, read};
use super::{known_task, schedule_load, unknown, when};
use crate::args::{OfSchedule, SchedulesCommand};
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;

/// The columns of the list.
const COLUMNS: [&str; 11] =
    ["TASK", "SCHEDULE", "RULE", "NEXT", "LAST", "LATE", "FIRED", "OVERLAPPED", "MISSED", "PAUSED", "BY HAND"];

pub(super) async fn run(session: &Session, command: SchedulesCommand) -> Result<(), Failure> {
    match command {
        SchedulesCommand::List { task } => list(session, task.as_deref()).await,
        SchedulesCommand::Next { task, count } => schedule_load::next(session, task.as_deref(), count.into()).await,
        SchedulesCommand::Load { task } => schedule_load::load(session, task.as_deref()).await,
        SchedulesCommand::Show(of) => show(session, &of).await,
        SchedulesCommand::Run(of) => run_now(session, &of).await,
        SchedulesCommand::Pause { of, reason } => pause(session, &of, &reason).await,
        SchedulesCommand::Resume(of) => resume(session, &of).await,
        SchedulesCommand::Backfill { of, from, to, dry_run } => backfill(session, &of, from..to, dry_run).await,
        SchedulesCommand::Remove(of) => remove(session, &of).await,
    }
}

async fn list(session: &Session, task: Option<&str>) -> Result<(), Failure> {
    let found = read(session, task).await?;
    let now = session.inspector.now().await;
    let printed = match (session.out.is_json, found.rows.is_empty()) {
        (true, _) => session.out.json(&json!({ "schedules": found.rows, "more": found.cut })),
        (false, true) => Ok(()),
        (false, false) => session.out.table(&COLUMNS, found.rows.iter().map(|row| cells(row, now)).collect()),
    };
    found.end(session, task, printed)
}

fn cells(Row { task, schedule }: &Row, now: SystemTime) -> Vec<String> {
    if schedule.fault.is_some() {
        // The fault is printed below.
        return vec![shown(task), shown(&schedule.name), "?".to_owned()];
    }
    let paused = if schedule.pause.is_some() { " (paused)" } else { "" };
    let late = if schedule.late.is_zero() { "-".to_owned() } else { span(schedule.late) };
    let mut cells = vec![
        shown(task),
        format!("{}{paused}", shown(&schedule.name)),
        shown(&schedule.rule),
        when(schedule.next, now),
        when(schedule.last, now),
        late,
        schedule.fired.to_string(),
        schedule.overlapped.to_string(),
        missed(schedule),
    ];
    cells.extend([schedule.paused_ticks, schedule.by_hand].map(|count| count.to_string()));
    cells
}

fn missed(schedule: &ScheduleInfo) -> String {
    let more = if schedule.missed_is_lower_bound { "+" } else { "" };
    format!("{}{more}", schedule.missed_ticks)
}

async fn show(session: &Session, of: &OfSchedule) -> Result<(), Failure> {
    let schedule = found(session, of, session.inspector.schedule(&of.task, &of.name).await?).await?;
    let Some(out) = session.out.for_person(&schedule)? else { return Ok(()) };
    let now = session.inspector.now().await;
    let paused = schedule.pause.as_ref().map(|pause| {
        let why = if pause.reason.is_empty() { String::new() } else { format!(" ({})", shown(&pause.reason)) };
        format!("by {}{why}, {}", shown(&pause.by), exact(pause.at, now))
    });
    let last_job = schedule.last_job.as_ref().map(|job| {
        let state = schedule.last_state.map_or_else(|| "no longer kept".to_owned(), |state| state.to_string());
        let late = schedule.last_late.map_or_else(String::new, |late| format!(", fired {} late", span(late)));
        format!("{} ({state}){late}", shown(job.as_str()))
    });
    let ScheduleInfo { fired, overlapped, paused_ticks, by_hand, .. } = &schedule;
    let missed = missed(&schedule);
    let ticks = format!("{fired} fired, {overlapped} overlapped, {missed} missed, {paused_ticks} paused");
    out.facts(vec![
        ("schedule", Some(format!("{} of {}", shown(&schedule.name), shown(&of.task)))),
        ("fault", schedule.fault.as_deref().map(shown)),
        ("rule", Some(shown(&schedule.rule))),
        ("overlap", Some(schedule.overlap.as_str().to_owned())),
        ("missed ticks", Some(shown(&schedule.missed))),
        ("declared", Some(format!("{}, by {}", source(schedule.source), shown(&schedule.by)))),
        ("paused", paused),
        ("next tick", schedule.next.map(|at| exact(at, now))),
        ("fires", schedule.next_at.filter(|at| Some(*at) != schedule.next).map(|at| exact(at, now))),
        ("late", Some(span(schedule.late)).filter(|_| !schedule.late.is_zero())),
        ("waits to fire", schedule.pending.map(|at| exact(at, now))),
        ("last tick", schedule.last.map(|at| exact(at, now))),
        ("last job", last_job),
        ("ticks", Some(ticks)),
        ("since", Some(exact(schedule.since, now))),
        ("by hand", Some(many(*by_hand, "job")).filter(|_| *by_hand > 0)),
        ("input", Some(bytes(schedule.input_bytes as u64))),
    ])?;
    if !schedule.recent.is_empty() {
        out.line("")?;
        let rows = schedule.recent.iter().map(|tick| {
            let count = if tick.count > 1 { many(tick.count, "tick") } else { String::new() };
            vec![exact(tick.due, now), outcome(tick.outcome), count]
        });
        out.table(&["TICK", "OUTCOME", "WITH THOSE BEFORE"], rows.collect())?;
    }
    ended(schedule.fault.is_none(), Ok(()))
}

fn source(source: ScheduleSource) -> &'static str {
    if source == ScheduleSource::Code { "in code" } else { "at run time" }
}

fn outcome(outcome: TickOutcome) -> String {
    outcome.as_str().replace('_', " ")
}

/// What was found of this schedule, or an error that suggests the right name.
async fn found<T>(session: &Session, of: &OfSchedule, found: Option<T>) -> Result<T, Failure> {
    if let Some(found) = found {
        return Ok(found);
    }
    known_task(session, &of.task).await?;
    let list = session.inspector.schedules(&of.task).await?;
    let names: Vec<String> = list.schedules.into_iter().map(|schedule| schedule.name).collect();
    if names.is_empty() {
        return Err(Failure::wrong(format!("the task {} has no schedule", shown(&of.task))));
    }
    let lists = format!("heartline schedules list -t {}", quoted(&of.task));
    Err(unknown("schedule", &shown(&of.name), &names, &lists))
}

async fn run_now(session: &Session, of: &OfSchedule) -> Result<(), Failure> {
    let id = found(session, of, session.inspector.run_schedule(&of.task, &of.name).await?).await?;
    let report = json!({ "task": of.task, "schedule": of.name, "id": id });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    out.line(format!("dispatched {}", shown(id.as_str())))
}

async fn pause(session: &Session, of: &OfSchedule, reason: &str) -> Result<(), Failure> {
    let inspector = &session.inspector;
    let is_new = found(session, of, inspector.pause_schedule(&of.task, &of.name, reason).await?).await?;
    let pause = inspector.schedule(&of.task, &of.name).await?.and_then(|schedule| schedule.pause);
    let Some(out) = session.out.for_person(&pause)? else { return Ok(()) };
    let name = shown(&of.name);
    match pause.filter(|_| !is_new) {
        None => out.line(format!("{name} is paused: its ticks are counted, and create no jobs")),
        Some(pause) => {
            let why = if pause.reason.is_empty() { String::new() } else { format!(" ({})", shown(&pause.reason)) };
            out.line(format!("{name} was already paused by {}{why}; that pause remains", shown(&pause.by)))
        }
    }
}

async fn resume(session: &Session, of: &OfSchedule) -> Result<(), Failure> {
    let was_paused = found(session, of, session.inspector.resume_schedule(&of.task, &of.name).await?).await?;
    let report = json!({ "task": of.task, "schedule": of.name, "was_paused": was_paused });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    let name = shown(&of.name);
    out.line(if was_paused { format!("{name} is resumed") } else { format!("{name} was not paused") })
}

async fn backfill(session: &Session, of: &OfSchedule, ticks: Range<SystemTime>, dry_run: bool) -> Result<(), Failure> {
    if ticks.is_empty() {
        return Err(Failure::wrong("--to must be after --from"));
    }
    let inspector = &session.inspector;
    let planned = inspector.preview_backfill(&of.task, &of.name, ticks.clone()).await?;
    let planned = found(session, of, planned).await?;
    let done = match dry_run || planned == 0 {
        true => 0,
        false => {
            let jobs = many(planned, "job");
            let what = format!("dispatch {jobs} of {} for ticks of {}", shown(&of.task), shown(&of.name));
            confirm(&session.consent, &what)?;
            found(session, of, inspector.backfill_schedule(&of.task, &of.name, ticks).await?).await?
        }
    };
    let report = json!({ "task": of.task, "schedule": of.name, "planned": planned, "dispatched": done });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    out.line(match dry_run {
        true => format!("would dispatch {}", many(planned, "job")),
        false => format!("dispatched {}", many(done, "job")),
    })
}

async fn remove(session: &Session, of: &OfSchedule) -> Result<(), Failure> {
    let inspector = &session.inspector;
    let before = found(session, of, inspector.schedule(&of.task, &of.name).await?).await?;
    let name = shown(&of.name);
    confirm(&session.consent, &format!("remove the schedule {name} of {}", shown(&of.task)))?;
    let is_removed = inspector.remove_schedule(&of.task, &of.name).await?;
    let report = json!({ "task": of.task, "schedule": of.name, "removed": is_removed });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    out.line(if is_removed { format!("{name} is removed") } else { format!("{name} was already removed") })?;
    if before.source == ScheduleSource::Code {
        out.hint("It was declared in code: a worker that declares it writes it again. Pause it to stop it.");
    }
    Ok(())
}
