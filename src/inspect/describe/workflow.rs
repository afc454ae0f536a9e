//! Describes instances of workflows: their pause, and what to do about them.

use super::super::text::{exact, quoted, shown};
use super::super::workflow_report::{InstanceReport, NodeReport};
use crate::job::id::JobId;
use crate::job::instance::WorkflowState;
use crate::job::node_id::NodeId;

/// Who paused an instance, why and when, if known.
#[must_use]
pub fn paused(found: &InstanceReport) -> Option<String> {
    let pause = found.pause.as_ref()?;
    let by = if pause.by.is_empty() { "a program".to_owned() } else { shown(&pause.by) };
    let reason = if pause.reason.is_empty() { String::new() } else { format!(" ({})", shown(&pause.reason)) };
    Some(format!("by {by}{reason}, {}", exact(pause.at, found.as_of)))
}

/// What to do about an instance, one line each.
#[must_use]
pub fn advice(found: &InstanceReport) -> Vec<String> {
    let of = format!("{} {}", quoted(&found.workflow), quoted(&found.id));
    if let Some((root, _)) = found.id.split_once('/') {
        return vec![format!(
            "It runs as a node: `heartline flows show {} {}` shows its instance.",
            quoted(&found.workflow),
            quoted(root)
        )];
    }
    let mut lines = Vec::new();
    match found.state {
        _ if found.node_count == 0 => lines.push(
            "Its graph is lost: it cannot continue or be retried. Start a new instance with another id.".to_owned(),
        ),
        _ if found.is_unplaced => lines.push(format!(
            "`heartline flows recover {}` pauses it; then resume, retry or cancel it.",
            quoted(&found.workflow)
        )),
        WorkflowState::Paused if found.pause.is_some() && found.broken_by.is_some() => lines.push(format!(
            "A person paused it: ask before you resume it. `heartline flows resume {of}` runs the nodes that do not depend on the failure, then it fails; {}`flows cancel` ends it.",
            if found.open == 0 { "`flows retry` runs the incomplete nodes again, " } else { "" }
        )),
        WorkflowState::Paused if found.broken_by.is_some() && found.open == 0 => lines.push(format!(
            "`heartline flows retry {of}` runs the incomplete nodes again, `flows resume` continues without them, `flows cancel` ends it."
        )),
        WorkflowState::Running if found.broken_by.is_some() && !found.is_stopping => lines.push(format!(
            "It fails when the nodes that do not depend on the failure have ended; `heartline flows retry {of}` then runs the incomplete nodes again. `flows cancel` ends it now."
        )),
        WorkflowState::Paused => lines.push(format!("`heartline flows resume {of}` continues it, `flows cancel` ends it.")),
        WorkflowState::Failed | WorkflowState::Cancelled => lines.push(format!(
            "`heartline flows retry {of}` runs the incomplete nodes again and keeps completed ones: a node that ran because of the failure (`always`) does not run again."
        )),
        _ => {}
    }
    lines.extend(found.failed_node.as_ref().and_then(|node| how_it_failed(&found.workflow, node)));
    lines
}

/// The workflow and the instance of a node, by the id of the node's job. `None` for any other job.
#[must_use]
pub fn instance_of(id: &JobId) -> Option<(String, String)> {
    NodeId::of(id).map(|node| (node.definition, node.instance))
}

/// How to see why a node failed.
fn how_it_failed(workflow: &str, node: &NodeReport) -> Option<String> {
    let of_node = format!("shows how {} failed.", shown(&node.name));
    if let Some(child) = &node.child {
        return Some(format!("`heartline flows show {} {}` {of_node}", quoted(workflow), quoted(child)));
    }
    let (task, job) = (node.task.as_ref()?, node.job.as_ref()?);
    Some(format!("`heartline jobs show -t {} {}` {of_node}", quoted(task), quoted(job.as_str())))
}
