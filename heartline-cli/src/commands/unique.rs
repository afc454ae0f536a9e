//! `unique …`.

use heartline::UniqueMode;
use heartline::inspect::text::{exact, shown};

use super::known_task;
use crate::args::UniqueCommand;
use crate::failure::Failure;
use crate::session::Session;

pub(super) async fn run(session: &Session, command: UniqueCommand) -> Result<(), Failure> {
    let UniqueCommand::Show { task, key } = command;
    known_task(session, &task).await?;
    let Some(entry) = session.inspector.unique(&task, &key).await? else {
        return Err(Failure::Failed(format!("no job of {task} has the unique key {}", shown(&key))));
    };
    let Some(out) = session.out.for_person(&entry)? else { return Ok(()) };
    let now = session.inspector.now().await;
    let state = entry.state.map_or_else(|| "removed".to_owned(), |state| state.to_string());
    let lasts = match entry.mode {
        UniqueMode::Started => "until its job begins",
        UniqueMode::Period => "for a period",
        _ => "until its job has ended",
    };
    let until = if entry.mode == UniqueMode::Period { "period ends" } else { "due by" };
    let facts = [
        ("key", Some(format!("{} of {}", shown(&entry.key), shown(&entry.task)))),
        ("taken", Some(if entry.is_taken { "yes" } else { "no" }.to_owned())),
        ("lasts", Some(lasts.to_owned())),
        (until, entry.until.map(|until| exact(until, now))),
        ("job", Some(format!("{} ({state})", shown(entry.job.as_str())))),
    ];
    for (name, fact) in facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))) {
        out.line(format!("{name:<13}{fact}"))?;
    }
    Ok(())
}
