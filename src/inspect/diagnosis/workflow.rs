//! Conditions of workflows.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::tasks::KeyConflict;
use super::super::text::{many, shown, span};
use super::data::{DENIED, named};
use crate::unix_time::{as_ms, as_ms_where_known};

/// What is wrong with a workflow, or with the list of workflows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WorkflowCondition {
    /// The list of workflows cannot be read.
    WorkflowListUnreadable { error: String, keys: Vec<KeyConflict> },
    /// No workflow is listed, although this task has jobs of some.
    WorkflowListLost { of_task: String },
    /// No workflow is listed, and whether the list was lost is unknown.
    WorkflowListUnknown { error: String },
    /// The workflow cannot be read.
    WorkflowUnreadable { workflow: String, error: String, is_denied: bool },
    /// Keys of the workflow hold values of another type.
    WorkflowForeignKeys { workflow: String, keys: Vec<KeyConflict> },
    /// Its slot is moving to another node of the cluster.
    WorkflowMoving { workflow: String },
    /// No worker has advanced the workflow for this long, if ever.
    WorkflowNotAdvanced {
        workflow: String,
        running: u64,
        #[serde(rename = "ago_ms", serialize_with = "as_ms_where_known")]
        ago: Option<Duration>,
    },
    /// Ended jobs could not be reported to the workflow.
    OutcomesNotDelivered {
        workflow: String,
        #[serde(rename = "waited_ms", serialize_with = "as_ms")]
        waited: Duration,
    },
    /// Steps of the workflow could not be made.
    StepsOverdue {
        workflow: String,
        steps: u64,
        tasks: Vec<String>,
        #[serde(rename = "waited_ms", serialize_with = "as_ms")]
        waited: Duration,
    },
    /// The server lost the state of instances.
    InstancesWithoutPlace { workflow: String, instances: u64 },
    /// Something of the workflow could not be read.
    WorkflowCorrupt {
        workflow: String,
        times: u64,
        #[serde(rename = "last_ago_ms", serialize_with = "as_ms")]
        last_ago: Duration,
    },
    /// Instances are paused.
    InstancesPaused { workflow: String, instances: u64 },
}

fn are(count: u64, state: &str) -> String {
    format!("{} {} {state}", many(count, "instance"), if count == 1 { "is" } else { "are" })
}

impl fmt::Display for WorkflowCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkflowListUnreadable { error, keys } => {
                let why = if keys.is_empty() { error.clone() } else { named(keys) };
                write!(f, "the list of workflows cannot be read: {why}")
            }
            Self::WorkflowListLost { of_task } => {
                write!(f, "no workflow is listed, and the task {of_task} has jobs of some: the list is lost")
            }
            Self::WorkflowListUnknown { error } => {
                write!(f, "no workflow is listed, and whether the list was lost is unknown: {error}")
            }
            Self::WorkflowUnreadable { workflow, error, .. } => {
                write!(f, "the workflow {workflow} cannot be read: {error}")
            }
            Self::WorkflowForeignKeys { workflow, keys } => {
                write!(f, "the workflow {workflow} cannot advance: {}", named(keys))
            }
            Self::WorkflowMoving { workflow } => {
                write!(f, "the slot of the workflow {workflow} is moving to another node")
            }
            Self::WorkflowNotAdvanced { workflow, running, ago } => {
                let long = ago.map_or_else(String::new, |ago| format!(" for {}", span(ago)));
                write!(f, "no worker has advanced the workflow {workflow}{long}, and {}", are(*running, "running"))
            }
            Self::OutcomesNotDelivered { workflow, waited } => {
                write!(f, "ended jobs could not be reported to the workflow {workflow} for {}", span(*waited))
            }
            Self::StepsOverdue { workflow, steps, waited, .. } => write!(
                f,
                "{} of the workflow {workflow} could not be made, the oldest for {}",
                many(*steps, "step"),
                span(*waited)
            ),
            Self::InstancesWithoutPlace { workflow, instances } => {
                write!(
                    f,
                    "the server lost the state of at least {} of the workflow {workflow}",
                    many(*instances, "instance")
                )
            }
            Self::WorkflowCorrupt { workflow, times, last_ago } => write!(
                f,
                "data of the workflow {workflow} could not be read {}, the last {} ago",
                many(*times, "time"),
                span(*last_ago)
            ),
            Self::InstancesPaused { workflow, instances } => {
                write!(f, "{} of the workflow {workflow}", are(*instances, "paused"))
            }
        }
    }
}

impl WorkflowCondition {
    pub(super) fn hint(&self, _task: &str) -> String {
        match self {
            Self::WorkflowListUnreadable { keys, .. } if keys.is_empty() => {
                "no instance starts until it can be read; whether others advance is unknown".to_owned()
            }
            Self::WorkflowListUnreadable { .. } => {
                "no instance starts or advances until that key is renamed or deleted: workers then list their workflows within a minute, and \
                 `heartline flows recover WORKFLOW` lists any other"
                    .to_owned()
            }
            Self::WorkflowListLost { .. } => {
                "running instances do not advance. Workers list the workflows that they worked within a minute; `heartline flows recover WORKFLOW` \
                 lists any other, and advances it"
                    .to_owned()
            }
            Self::WorkflowListUnknown { .. } => "the tasks cannot be listed either".to_owned(),
            Self::WorkflowUnreadable { is_denied: true, .. } => DENIED.to_owned(),
            Self::WorkflowUnreadable { .. } => "none of its instances advances until it can be read".to_owned(),
            Self::WorkflowForeignKeys { .. } => {
                "rename or delete the key, and restore its value if you have a copy; none of its instances starts or advances until then. \
                 `heartline flows recover` then shows their state"
                    .to_owned()
            }
            Self::WorkflowMoving { .. } => {
                "none of its instances advances until the move ends; if it is stuck, run `redis-cli --cluster fix`".to_owned()
            }
            Self::WorkflowNotAdvanced { .. } => {
                "start a worker under this prefix, with any task; `heartline flows recover` advances the workflows once".to_owned()
            }
            Self::OutcomesNotDelivered { .. } => {
                "the server refuses that, or a field is damaged: `heartline flows recover` says why".to_owned()
            }
            Self::StepsOverdue { tasks, .. } => {
                let first = tasks.iter().take(5).map(|task| shown(task)).collect::<Vec<_>>().join(", ");
                let more = tasks.len().saturating_sub(5);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("a task of it cannot be reached or refuses its jobs; the logs of workers say why. Its tasks: {first}{more}")
            }
            Self::InstancesWithoutPlace { workflow, .. } => format!(
                "`heartline flows recover {}` pauses them, even those that had ended; then resume, retry or cancel them",
                shown(workflow)
            ),
            Self::WorkflowCorrupt { workflow, .. } => format!(
                "the data was changed or lost, and what it belonged to failed with the code corrupt: `heartline flows list {}` lists the instances, \
                 `flows show` explains one; retry or restart them",
                shown(workflow)
            ),
            Self::InstancesPaused { workflow, .. } => format!(
                "`heartline flows list {} --state paused` lists them, `flows show` explains one; then resume, retry or cancel them",
                shown(workflow)
            ),
        }
    }
}
