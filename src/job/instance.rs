//! The states of a workflow instance and of its nodes.

use serde::Serialize;

use crate::enum_str::names;

/// The state of a workflow instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkflowState {
    /// Its nodes open as soon as they can run.
    Running,
    /// No node opens until a person resumes the instance. Its nodes that are graphs and already run continue.
    Paused,
    /// It has ended successfully.
    Completed,
    /// It has ended with a failure.
    Failed,
    /// It was cancelled.
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
    /// Whether it has ended. A [retry](crate::WorkflowHandle::retry_failed) starts it again.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, WorkflowState::Completed | WorkflowState::Failed | WorkflowState::Cancelled)
    }
}

/// The state of a node of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// It waits for other nodes.
    Pending,
    /// Its job is sent, or about to be. Its task has the state of the job.
    Open,
    /// Its job completed.
    Completed,
    /// Its job failed.
    Failed,
    /// Its job was cancelled.
    Cancelled,
    /// It can no longer run: too many of the nodes that it waited for did not complete.
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
