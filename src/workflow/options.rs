//! Options of a workflow.

use crate::enum_str::names;
use crate::options::modes::{Durability, Priority};
use crate::options::overrides::Overrides;
use crate::options::retention::RetentionLimit;

/// How the instances of a [`Workflow`](crate::Workflow) behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until they are given to App::workflow"]
pub struct WorkflowOptions {
    pub(super) on_failure: OnFailure,
    pub(super) retention: Option<RetentionLimit>,
    pub(super) durability: Durability,
}

impl WorkflowOptions {
    /// The defaults.
    pub const fn new() -> WorkflowOptions {
        WorkflowOptions { on_failure: OnFailure::Finish, retention: None, durability: Durability::Memory }
    }

    /// What happens to an instance when a node fails that is not [`optional`](crate::Node::optional). Defaults to [`OnFailure::Finish`].
    pub const fn on_failure(mut self, on_failure: OnFailure) -> WorkflowOptions {
        self.on_failure = on_failure;
        self
    }

    /// How long ended instances are kept, with the inputs and values of their nodes. Afterwards a new instance can have the same id. No
    /// instance is removed within 60 s of its end. The setting of the app that started an instance last applies to all instances of the
    /// definition. Defaults to 30 days.
    pub const fn retention(mut self, retention: RetentionLimit) -> WorkflowOptions {
        self.retention = Some(retention);
        self
    }

    /// When the start and the cancel of an instance count as recorded. Each start and cancel can set its own. Defaults to
    /// [`Durability::Memory`].
    pub const fn durability(mut self, durability: Durability) -> WorkflowOptions {
        self.durability = durability;
        self
    }
}

/// What happens to an instance when a node fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// Nodes that do not depend on the failed one continue. Then the instance fails.
    #[default]
    Finish,
    /// The remaining nodes are cancelled. Then the instance fails.
    Cancel,
    /// No node opens any more, and sent jobs continue. A person then [resumes](crate::WorkflowHandle::resume) the instance,
    /// [retries](crate::WorkflowHandle::retry_failed) its incomplete nodes, or cancels it.
    Pause,
}

names!(OnFailure, "failure policy", {
    Finish = "finish",
    Cancel = "cancel",
    Pause = "pause",
});

/// The options of a node's dispatch, as JSON in its shape.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct OwnOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Priority>,
    #[serde(skip_serializing_if = "Overrides::is_empty")]
    pub(crate) overrides: Overrides,
}

impl OwnOptions {
    pub(crate) fn is_empty(&self) -> bool {
        *self == OwnOptions::default()
    }
}
