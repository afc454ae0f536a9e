//! Reports of workflows, instances and nodes.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::tasks::KeyConflict;
use crate::error::ServerErrorKind;
use crate::job::id::JobId;
use crate::job::instance::{NodeState, WorkflowState};
use crate::job::state::JobState;
use crate::limits::stored_number;
use crate::unix_time::{as_ms_where_known, at_ms, ms_since_1970, ms_since_1970_where_known};

/// A workflow definition, and its instances by state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowReport {
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// Its name.
    pub workflow: String,
    /// Running instances, including subgraphs that run as nodes.
    pub running: u64,
    /// Paused instances.
    pub paused: u64,
    /// Completed instances that are still stored.
    pub completed: u64,
    /// Failed instances that are still stored.
    pub failed: u64,
    /// When the newest of them ended.
    #[serde(rename = "last_failed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_failed_at: Option<SystemTime>,
    /// Cancelled instances that are still stored.
    pub cancelled: u64,
    /// Instances whose state the server lost, at least. They cannot continue.
    /// [`Inspector::recover_workflow`](crate::Inspector::recover_workflow) pauses them, for a person to decide.
    pub unplaced: u64,
    /// Pending steps: nodes to send and dependents to visit. Usually none, or those of this moment.
    pub steps: u64,
    /// The age of the oldest pending step, or how long the server has refused to record ended jobs. Any worker retries steps older than
    /// 10 s.
    #[serde(rename = "oldest_step_ms", serialize_with = "as_ms_where_known")]
    pub oldest_step: Option<Duration>,
    /// When a worker last checked it. One does so every 5 s.
    #[serde(rename = "looked_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub looked_at: Option<SystemTime>,
    /// How often damaged data of it was found: a graph, a record, the state of a node. Usually the node or the instance then failed
    /// with the code `corrupt`, or a subgraph was started again.
    pub corrupt: u64,
    /// When damaged data was last found.
    #[serde(rename = "corrupt_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub corrupt_at: Option<SystemTime>,
    /// The tasks of its nodes.
    pub tasks: Vec<String>,
    /// Why it cannot continue, if so: its cluster node is unreachable, the Redis user lacks a permission, or a key has another type.
    /// The other fields may then be empty.
    pub fault: Option<String>,
    /// The kind of that error, if the server reported it.
    pub fault_kind: Option<ServerErrorKind>,
    /// The keys of another type that block it.
    pub foreign: Vec<KeyConflict>,
}

/// A page of instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstancePage {
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// The instances.
    pub instances: Vec<InstanceRow>,
    /// The cursor of the next page. `None` at the end. A page may be short or empty although others follow.
    pub next: Option<String>,
}

/// An instance of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstanceRow {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: WorkflowState,
    /// When it ended or, if it has not, when it last advanced or was compared with its jobs.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
    pub since: SystemTime,
    /// When it begins: its start plus its delay. `None` if unknown.
    #[serde(rename = "begins_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub begins_at: Option<SystemTime>,
    /// Its run, from 1.
    pub run: u64,
    /// How many of its nodes have not ended.
    pub unfinished: u64,
    /// How many of those are open: sent, or about to be.
    pub open: u64,
    /// Whether it opens no more nodes. It ends when the open ones have ended.
    pub is_stopping: bool,
    /// Whether a node has failed, so that the instance fails or its policy pauses it.
    pub is_broken: bool,
    /// The failure code of that node, or of the cancel or deadline.
    pub code: Option<String>,
    /// The message of that failure, or the reason of the cancel.
    pub message: Option<String>,
}

/// What [`Inspector::retry_failed_instances`](crate::Inspector::retry_failed_instances) did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstanceRetries {
    /// How many failed instances it read.
    pub looked: u64,
    /// How many of those run again.
    pub retried: u64,
    /// Those that could not be retried, each with the error.
    pub refused: Vec<(String, String)>,
    /// Where the next call continues. `None` at the end.
    pub next: Option<String>,
}

/// An instance, with a page of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstanceReport {
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// Its definition.
    pub workflow: String,
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: WorkflowState,
    /// Whether the server lost its state. It cannot continue, and `state` is `Failed`.
    /// [`Inspector::recover_workflow`](crate::Inspector::recover_workflow) pauses it.
    pub is_unplaced: bool,
    /// Whether it opens no more nodes. It ends when the open ones have ended.
    pub is_stopping: bool,
    /// The pause, if a person or program paused it. `None` if its policy did, because of [`broken_by`](InstanceReport::broken_by).
    pub pause: Option<InstancePause>,
    /// When it begins: its start plus its delay. `None` if unknown.
    #[serde(rename = "begins_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub begins_at: Option<SystemTime>,
    /// When it ended, if it did. Unknown for a subgraph.
    #[serde(rename = "ended_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub ended_at: Option<SystemTime>,
    /// Its run, from 1.
    pub run: u64,
    /// How many of its nodes have not ended.
    pub unfinished: u64,
    /// How many of those are open.
    pub open: u64,
    /// The node whose failure ended or paused the instance. `None` if a cancel or its deadline ended it. The message then names a node
    /// that failed before.
    pub broken_by: Option<String>,
    /// The failure code of that node, or of the cancel or deadline.
    pub code: Option<String>,
    /// The message of that failure, or the reason of the cancel.
    pub message: Option<String>,
    /// The first node that failed, also if it is on another page. The message is about it, unless a cancel or the deadline ended the
    /// instance. `None` if none failed, or if damaged data ended it.
    pub failed_node: Option<NodeReport>,
    /// How many nodes it has.
    pub node_count: usize,
    /// The nodes of this page, in the order of the graph.
    pub nodes: Vec<NodeReport>,
    /// The number of the first node of the next page. `None` at the end.
    pub next: Option<u32>,
}

/// The pause of an instance by a person or a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstancePause {
    /// Since when.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who paused it. Empty for a program that gave no name.
    pub by: String,
    /// The reason. May be empty.
    pub reason: String,
}

impl InstancePause {
    /// Parses the stored pause.
    pub(super) fn from_wire(stored: &[u8]) -> Option<InstancePause> {
        #[derive(serde::Deserialize)]
        struct Said {
            by: String,
            reason: String,
        }
        let (at, json) = std::str::from_utf8(stored).ok()?.split_once(' ')?;
        let Said { by, reason } = serde_json::from_str(json).ok()?;
        Some(InstancePause { at: at_ms(stored_number(at)?), by, reason })
    }
}

/// A node of an instance: its state in the workflow, and the state of its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its number in the graph.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The task of its job. `None` for a subgraph.
    pub task: Option<String>,
    /// Its state in the workflow.
    pub state: NodeState,
    /// The nodes that it depends on.
    pub after: Vec<u32>,
    /// How many of these must still complete, if it is pending.
    pub needs: Option<u32>,
    /// The first ten of these that have not ended, if it is pending.
    pub waits_for: Vec<String>,
    /// Its job in the current run. `None` if it was not opened, is a subgraph, or may have completed in an earlier run.
    pub job: Option<JobId>,
    /// The state of its job, if it is open. `None` if the job is missing or could not be read.
    pub job_state: Option<JobState>,
    /// The instance of a subgraph.
    pub child: Option<String>,
    /// Since when it waits to be sent.
    #[serde(rename = "to_send_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub to_send_since: Option<SystemTime>,
    /// Whether its job has ended and the workflow is not updated yet.
    pub is_to_be_told: bool,
    /// Why it waits, in words. `None` if it does not.
    pub why: Option<String>,
}

/// What [`Inspector::recover_workflow`](crate::Inspector::recover_workflow) did for a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveredWorkflow {
    /// Its name.
    pub workflow: String,
    /// How many ended jobs were recorded.
    pub told: u64,
    /// How many nodes were sent.
    pub sent: u64,
    /// How many nodes were ended because their jobs were lost.
    pub synthesised: u64,
    /// How many instances had lost their state. They are now paused until a person resumes, retries or cancels them. Instances that
    /// were stopping continue to stop. Subgraphs follow the instances to which they belong.
    pub placed: u64,
    /// Why some work may be left, if so. It is safe to repeat the call.
    pub fault: Option<String>,
}
