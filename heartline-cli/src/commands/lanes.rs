//! `lanes …`.

use heartline::inspect::text::{exact, many, shown};
use heartline::{Lane, LaneState, LimitReached};

use super::known_task;
use crate::args::LanesCommand;
use crate::failure::Failure;
use crate::session::Session;

pub(super) async fn run(session: &Session, command: LanesCommand) -> Result<(), Failure> {
    let LanesCommand::List { task, full, resting, limit } = command;
    known_task(session, &task).await?;
    let state = match (full, resting) {
        (true, _) => Some(LaneState::Full),
        (_, true) => Some(LaneState::Resting),
        _ => None,
    };
    let report = session.inspector.lanes(&task, state, limit.into()).await?;
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    let counts = [(report.ready, "in turn"), (report.resting, "resting"), (report.full, "full")];
    let counts: Vec<String> = counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
    out.line(format!("{}: {}", many(report.ready + report.resting + report.full, "key"), counts.join(", ")))?;
    let said = |lane: &Lane| match lane.limit {
        Some(LimitReached::KeyFull { since }) => format!("full since {}", exact(since, report.as_of)),
        Some(LimitReached::KeyResting { until }) => format!("rests until {}", exact(until, report.as_of)),
        _ => lane.state.to_string(),
    };
    let rows = report.lanes.iter().map(|lane| {
        let key = lane.key.as_deref().map_or_else(|| "(no key)".to_owned(), shown);
        vec![key, said(lane), lane.waiting.to_string(), lane.held.to_string()]
    });
    if !report.lanes.is_empty() {
        out.table(&["KEY", "STATE", "WAITING", "HELD"], rows.collect())?;
    }
    Ok(())
}
