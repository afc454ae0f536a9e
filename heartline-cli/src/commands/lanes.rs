//! `lanes …`.

use std::time::SystemTime;

use heartline::inspect::describe::{lane_limits, lane_state, waits_because};
use heartline::inspect::text::{many, shown, span};
use heartline::{Lane, LaneState, Lanes, Limit, Rate};

use super::known_task;
use crate::args::{Bound, LanesCommand, OfLane};
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;

pub(super) async fn run(session: &Session, command: LanesCommand) -> Result<(), Failure> {
    match command {
        LanesCommand::List { task, own: true, limit, .. } => list_own(session, &task, limit.into()).await,
        LanesCommand::List { task, full, resting, limit, .. } => {
            let state = match (full, resting) {
                (true, _) => Some(LaneState::Full),
                (_, true) => Some(LaneState::Resting),
                _ => None,
            };
            list(session, &task, state, limit.into()).await
        }
        LanesCommand::Show(of) => show(session, &of).await,
        LanesCommand::Set { of, running, rate, weight } => set(session, &of, running, rate, weight).await,
        LanesCommand::Pause(of) => {
            let is_new = lanes(session, &of.task).await?.pause(&of.key).await?;
            let said =
                if is_new { "is paused: none of its jobs starts; running jobs continue" } else { "was already paused" };
            // It may be mistyped.
            let lane = lanes(session, &of.task).await?.get(&of.key).await?.lane;
            let known = if lane.waiting + lane.held == 0 { " (no job has this key now)" } else { "" };
            said_of(session, &of, &format!("{said}{known}")).await
        }
        LanesCommand::Resume(of) => {
            let was_paused = lanes(session, &of.task).await?.resume(&of.key).await?;
            said_of(session, &of, if was_paused { "is resumed" } else { "was not paused" }).await
        }
        LanesCommand::Reset(of) => {
            lanes(session, &of.task).await?.reset(&of.key).await?;
            said_of(session, &of, "has no settings of its own any more").await
        }
    }
}

async fn lanes(session: &Session, task: &str) -> Result<Lanes, Failure> {
    known_task(session, task).await?;
    Ok(session.inspector.lanes(task)?)
}

async fn list(session: &Session, task: &str, state: Option<LaneState>, limit: usize) -> Result<(), Failure> {
    let report = lanes(session, task).await?.list(state, limit).await?;
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    let counts = [(report.ready, "in turn"), (report.resting, "resting"), (report.full, "full or paused")];
    let counts: Vec<String> = counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
    out.line(format!("{}: {}", many(report.ready + report.resting + report.full, "key"), counts.join(", ")))?;
    table(out, &report.lanes, report.as_of)
}

async fn list_own(session: &Session, task: &str, limit: usize) -> Result<(), Failure> {
    let found = lanes(session, task).await?.with_settings(limit).await?;
    let Some(out) = session.out.for_person(&found)? else { return Ok(()) };
    let count = many(found.len() as u64, "key");
    let more = if found.len() >= limit { "the first " } else { "" };
    out.line(format!("{more}{count} with settings of their own"))?;
    table(out, &found, session.inspector.now().await)
}

fn table(out: Output, lanes: &[Lane], now: SystemTime) -> Result<(), Failure> {
    if lanes.is_empty() {
        return Ok(());
    }
    let rows = lanes.iter().map(|lane| {
        let key = lane.key.as_deref().map_or_else(|| "(no key)".to_owned(), shown);
        vec![key, lane_state(lane, now), lane.waiting.to_string(), lane.held.to_string(), lane_limits(lane)]
    });
    out.table(&["KEY", "STATE", "WAITING", "HELD", "LIMITS"], rows.collect())
}

async fn show(session: &Session, of: &OfLane) -> Result<(), Failure> {
    let found = lanes(session, &of.task).await?.get(&of.key).await?;
    let Some(out) = session.out.for_person(&found)? else { return Ok(()) };
    let (lane, now) = (&found.lane, session.inspector.now().await);
    let own = lane.own.as_ref().map(|own| {
        let what = if own.has_limits { "limits" } else { "weight or pause" };
        format!("{what}, by {}", shown(&own.by))
    });
    out.facts(vec![
        ("key", Some(format!("{} of {}", shown(&of.key), shown(&of.task)))),
        ("waiting", Some(lane.waiting.to_string())),
        ("waits because", (lane.waiting > 0 || lane.limit.is_some()).then(|| waits_because(&found, now))),
        ("limits", Some(lane_limits(lane)).filter(|limits| !limits.is_empty())),
        ("its own", own),
        ("held", Some(lane.held.to_string())),
    ])?;
    let rows = found.holders.iter().map(|held| {
        let long = span(now.duration_since(held.since).unwrap_or_default());
        vec![shown(held.job.as_str()), held.worker.to_string(), long]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { Ok(()) } else { out.table(&["HELD JOB", "WORKER", "FOR"], rows) }
}

async fn set(
    session: &Session,
    of: &OfLane,
    running: Option<Bound<u32>>,
    rate: Option<Bound<Rate>>,
    weight: Option<u32>,
) -> Result<(), Failure> {
    let lanes = lanes(session, &of.task).await?;
    if running.is_some() || rate.is_some() {
        // What is not named stays as it is.
        let now = lanes.get(&of.key).await?.lane;
        let running = running.map_or_else(|| now.running.and_then(|most| u32::try_from(most).ok()), |bound| bound.0);
        let stored = || Some(Rate::new(u32::try_from(now.rate?.starts).ok()?, now.rate?.window));
        let limit = Limit::new();
        let limit = running.map_or(limit, |most| limit.running(most));
        lanes.set(&of.key, rate.map_or_else(stored, |bound| bound.0).map_or(limit, |rate| limit.rate(rate))).await?;
    }
    if let Some(weight) = weight {
        lanes.set_weight(&of.key, weight).await?;
    }
    let limits = lane_limits(&lanes.get(&of.key).await?.lane);
    said_of(session, of, &format!("has {}", if limits.is_empty() { "no limits" } else { &limits })).await
}

/// Prints what was done, or the lane as JSON.
async fn said_of(session: &Session, of: &OfLane, said: &str) -> Result<(), Failure> {
    if session.out.is_json {
        return session.out.json(&session.inspector.lanes(&of.task)?.get(&of.key).await?);
    }
    session.out.line(format!("{} {said}", shown(&of.key)))
}
