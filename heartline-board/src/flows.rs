//! What is wrong with workflows, and what may be done about an instance.

use std::time::{Duration, SystemTime};

use heartline::{Inspector, InstanceReport, NodeState, WorkflowReport, WorkflowState};

use crate::checks::Grade;
use crate::text::{many, quoted, shown, span};
use crate::troubles::Trouble;

/// A worker makes a step that somebody left within 15 s, and that of a task which it could not reach each 5 s.
const LATE: Duration = Duration::from_secs(30);

/// The same of all workflows.
pub async fn flow_troubles(inspector: &Inspector) -> Vec<Trouble> {
    let (Ok(flows), Ok(now)) = (inspector.workflows().await, inspector.server_time().await) else { return Vec::new() };
    flows.iter().flat_map(|flow| troubles_of(flow, now)).collect()
}

/// What is wrong with a workflow.
#[must_use]
pub fn troubles_of(flow: &WorkflowReport, now: SystemTime) -> Vec<Trouble> {
    let name = shown(&flow.workflow);
    if let Some(fault) = &flow.fault {
        let what = format!("the workflow {name} cannot be read: {}", shown(fault));
        return vec![Trouble::risk(None, what, "none of its instances goes on until it can be".to_owned())];
    }
    let mut troubles = Vec::new();
    let unseen = flow.looked_at.map_or(Duration::MAX, |at| now.duration_since(at).unwrap_or_default());
    let oldest = flow.oldest_step.filter(|oldest| *oldest >= LATE);
    if flow.running > 0 && unseen >= LATE {
        let long = flow.looked_at.map_or_else(String::new, |_| format!(" for {}", span(unseen)));
        let what =
            format!("nobody has looked after the workflow {name}{long}, and {} of it", are(flow.running, "running"));
        let hint =
            "start a worker of this prefix, whichever task it works; `heartline flows recover` looks after them once"
                .to_owned();
        troubles.push(Trouble::risk(None, what, hint));
    } else if let Some(oldest) = oldest {
        let what = format!(
            "{} of the workflow {name} could not be made, the oldest for {}",
            many(flow.steps, "step"),
            span(oldest)
        );
        let hint = format!(
            "a task of it cannot be reached, or refuses its jobs, and workers log why; its tasks: {}",
            tasks(flow)
        );
        troubles.push(Trouble::risk(None, what, hint));
    }
    if flow.paused > 0 {
        let what = format!("{} of the workflow {name}", are(flow.paused, "paused"));
        let hint = format!(
            "`heartline flows list {name} --state paused` lists them; `flows show` tells why, then resume, retry or cancel them"
        );
        troubles.push(Trouble { grade: Grade::Note, ..Trouble::risk(None, what, hint) });
    }
    troubles
}

fn are(count: u64, state: &str) -> String {
    format!("{} {} {state}", many(count, "instance"), if count == 1 { "is" } else { "are" })
}

fn tasks(flow: &WorkflowReport) -> String {
    let named: Vec<String> = flow.tasks.iter().take(5).map(|task| shown(task)).collect();
    let more = flow.tasks.len().saturating_sub(named.len());
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

/// What may be done about an instance, a line each.
#[must_use]
pub fn advice(found: &InstanceReport) -> Vec<String> {
    let of = format!("{} {}", quoted(&found.workflow), quoted(&found.id));
    if let Some((root, _)) = found.id.split_once('/') {
        return vec![format!(
            "It runs as a node: `heartline flows show {} {}` shows what it is of.",
            quoted(&found.workflow),
            quoted(root)
        )];
    }
    let mut lines = Vec::new();
    match found.state {
        WorkflowState::Paused if found.broken_by.is_some() && found.open == 0 => lines.push(format!(
            "`heartline flows retry {of}` runs what did not complete once more, `flows resume` goes on without it, `flows cancel` ends it."
        )),
        WorkflowState::Paused => lines.push(format!("`heartline flows resume {of}` lets it go on, `flows cancel` ends it.")),
        WorkflowState::Failed | WorkflowState::Cancelled => lines.push(format!(
            "`heartline flows retry {of}` runs what did not complete once more, with what has completed as it is."
        )),
        _ => {}
    }
    let worst = found.nodes.iter().find(|node| node.state == NodeState::Failed && node.job.is_some());
    if let Some((job, task)) = worst.and_then(|node| Some((node.job.as_ref()?, node.task.as_ref()?))) {
        lines.push(format!(
            "`heartline jobs show -t {} {}` shows how its job failed.",
            quoted(task),
            quoted(job.as_str())
        ));
    }
    lines
}
