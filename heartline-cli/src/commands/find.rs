//! `find`.

use heartline::Match;
use heartline::inspect::text::{quoted, shown};

use crate::failure::Failure;
use crate::session::Session;

pub(super) async fn find(session: &Session, text: &str) -> Result<(), Failure> {
    let report = session.inspector.find(text).await?;
    for line in &report.unread {
        session.out.hint(format!("not searched: {}", shown(line)));
    }
    if report.matches.is_empty() {
        return Err(Failure::Failed(format!("nothing has the name or the id {}", shown(text))));
    }
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    if !report.is_exact {
        out.hint("nothing has exactly this name or id; these names contain it");
    }
    let rows = report.matches.iter().filter_map(row).collect();
    out.table(&["KIND", "NAME", "STATE", "COMMAND"], rows)
}

/// The kind, the name, the state, and the command that shows it.
fn row(found: &Match) -> Option<Vec<String>> {
    let (kind, name, state, command) = match found {
        Match::Task { task } => ("task", task.clone(), None, format!("task show {}", quoted(task))),
        Match::Job { task, id, state } => {
            let command = format!("jobs show -t {} {}", quoted(task), quoted(id.as_str()));
            ("job", id.to_string(), Some(state.to_string()), command)
        }
        Match::Worker { worker } => {
            ("worker", worker.to_string(), None, format!("workers {}", quoted(worker.as_str())))
        }
        Match::Workflow { workflow } => {
            ("workflow", workflow.clone(), None, format!("flows list {}", quoted(workflow)))
        }
        Match::Instance { workflow, id, state } => {
            let command = format!("flows show {} {}", quoted(workflow), quoted(id));
            ("instance", id.clone(), Some(state.to_string()), command)
        }
        Match::Schedule { task, name } => {
            let command = format!("schedules show -t {} {}", quoted(task), quoted(name));
            ("schedule", name.clone(), None, command)
        }
        _ => return None,
    };
    let state = state.unwrap_or_else(|| "-".to_owned());
    Some(vec![kind.to_owned(), shown(&name), state, shown(&format!("`heartline {command}`"))])
}
