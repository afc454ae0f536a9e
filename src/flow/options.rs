//! How instances of a workflow behave.

use crate::names::names;
use crate::options::modes::Priority;
use crate::options::overrides::Overrides;
use crate::options::retention::RetentionLimit;

/// How instances of a [`Workflow`](crate::Workflow) behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until they are given to App::workflow"]
pub struct WorkflowOptions {
    pub(super) on_failure: OnFailure,
    pub(super) retention: Option<RetentionLimit>,
}

impl WorkflowOptions {
    /// The defaults.
    pub const fn new() -> WorkflowOptions {
        WorkflowOptions { on_failure: OnFailure::Finish, retention: None }
    }

    /// What becomes of an instance when a node of it fails that is not [`optional`](crate::Node::optional). Defaults to [`OnFailure::Finish`].
    pub const fn on_failure(mut self, on_failure: OnFailure) -> WorkflowOptions {
        self.on_failure = on_failure;
        self
    }

    /// How long ended instances are kept, with the inputs and values of their nodes: an id is free again behind it, and an instance of it starts anew. Defaults to 30 days. None is removed in its first
    /// 60 s. The App that starts instances last decides for all of the definition.
    pub const fn retention(mut self, retention: RetentionLimit) -> WorkflowOptions {
        self.retention = Some(retention);
        self
    }
}

/// What becomes of an instance when a node of it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// What does not depend on the node goes on; then the instance has failed.
    #[default]
    Finish,
    /// The rest is cancelled; then the instance has failed.
    Cancel,
    /// Nothing opens any more; what was sent goes on. Somebody looks at it, and [resumes](crate::WorkflowHandle::resume) the instance,
    /// [retries](crate::WorkflowHandle::retry_failed) what failed, or cancels it.
    Pause,
}

names!(OnFailure, "way to go on", {
    Finish = "finish",
    Cancel = "cancel",
    Pause = "pause",
});

/// What the dispatch of a node sets, as JSON in its shape.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct OwnOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Priority>,
    #[serde(skip_serializing_if = "Overrides::is_empty")]
    pub(crate) overrides: Overrides,
}

impl OwnOptions {
    /// Whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == OwnOptions::default()
    }
}
