//! Where an instance of a workflow stands, and a node of it.

use serde::Serialize;

use crate::names::names;

/// Where an instance of a workflow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkflowState {
    /// It goes on.
    Running,
    /// Nothing of its own opens before somebody resumes it; graphs that run as nodes of it go on.
    Paused,
    /// It has ended, and answers.
    Completed,
    /// It has ended without.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
}

names!(WorkflowState, "state of a workflow", {
    Running = "running",
    Paused = "paused",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
});

impl WorkflowState {
    /// Whether it has ended, until somebody lets it run once more.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, WorkflowState::Completed | WorkflowState::Failed | WorkflowState::Cancelled)
    }
}

/// Where a node of an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// It waits for others.
    Pending,
    /// Its job is sent, or about to be: where that stands, the task tells.
    Open,
    /// Its job completed.
    Completed,
    /// Its job failed.
    Failed,
    /// Its job was cancelled.
    Cancelled,
    /// It cannot run any more: too much that it waited for did not complete.
    Skipped,
}

names!(NodeState, "state of a node", {
    Pending = "pending",
    Open = "open",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
    Skipped = "skipped",
});

impl NodeState {
    pub(crate) fn from_wire(state: &str) -> NodeState {
        match state.as_bytes().first() {
            Some(b'o' | b'g') => NodeState::Open,
            Some(b'c') => NodeState::Completed,
            Some(b'f') => NodeState::Failed,
            Some(b'x') => NodeState::Cancelled,
            Some(b's') => NodeState::Skipped,
            _ => NodeState::Pending,
        }
    }
}
