//! Workflows: their definitions, their instances, and the nodes of an instance with the reasons why they wait.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use serde_json::Value;

use super::Inspector;
use super::page::holder;
use super::parts::config;
use super::tasks::{KeyConflict, foreign_key};
use super::waits::{COMPARED, NodeJob, Worked, for_so_long, why_open};
use super::workers::WorkerReport;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::overview;
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::values::{self, ParkedMark};
use crate::backend::workflow::instances::{self, FlowPlace, FlowSizes, FlowState};
use crate::backend::workflow::nodes;
use crate::backend::workflow::outbox;
use crate::config_error::ConfigErrors;
use crate::error::{Error, ServerErrorKind};
use crate::job::failure::{StoredError, codes};
use crate::job::id::JobId;
use crate::job::instance::{NodeState, WorkflowState};
use crate::job::node_id::NodeId;
use crate::job::shape::{Shape, ShapeNode};
use crate::job::state::JobState;
use crate::limits::{BATCH_BYTES, LOOK_BATCH, stored_number};
use crate::unix_time::{as_ms_where_known, at_ms, ms_since_1970, ms_since_1970_where_known};
use crate::workflow::definition::{check_name, handle_of};
use crate::workflow::handle::WorkflowHandle;
use crate::workflow::progress::WorkflowProgress;
use crate::workflow::progress::send::send_entry;

/// How many workflows are read at a time.
const TOGETHER: usize = 50;

/// The reason of an instance whose state the server lost.
const NOWHERE: &str = "the server has lost its state, so it cannot continue: `heartline flows recover` pauses it";

/// How many of the nodes that a node waits for are named.
const NAMED: usize = 10;

/// Postponed steps are retried well within this time.
const PUT_OFF: Duration = Duration::from_secs(60);

/// Updates of a workflow that were refused are retried every 5 s, well within this time.
const UNTOLD: Duration = Duration::from_secs(20);

/// The most rows of a page, and the most reads for it. Instances that run as nodes take rows of a read and are left out.
const MOST_ROWS: usize = 500;
const LOOKS: usize = 10;

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
    /// Cancelled instances that are still stored.
    pub cancelled: u64,
    /// Instances whose state the server lost, at least. They cannot continue. [`Inspector::recover_workflow`] pauses them, for a person
    /// to decide.
    pub unplaced: u64,
    /// Pending steps: nodes to send and dependents to visit. Usually none, or those of this moment.
    pub steps: u64,
    /// The age of the oldest pending step, or for how long the server has refused to record ended jobs. Any worker retries steps older
    /// than 10 s.
    #[serde(rename = "oldest_step_ms", serialize_with = "as_ms_where_known")]
    pub oldest_step: Option<Duration>,
    /// When a worker last checked it. One does so every 5 s.
    #[serde(rename = "looked_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub looked_at: Option<SystemTime>,
    /// How often damaged data of it was found: a graph, a line, the state of a node. Usually a node or the instance then failed with
    /// the code `corrupt`, or a subgraph was started again.
    pub corrupt: u64,
    /// When damaged data was last found.
    #[serde(rename = "corrupt_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub corrupt_at: Option<SystemTime>,
    /// The tasks of its nodes.
    pub tasks: Vec<String>,
    /// Why it cannot continue, if so: its cluster node is unreachable, the Redis user lacks a permission, or a key has a foreign value.
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
    /// Whether a node has failed, so that it fails, or is paused by its policy.
    pub is_broken: bool,
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
    /// Whether the server lost its state. It cannot continue, and `state` is `Failed`. [`Inspector::recover_workflow`] pauses it.
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
    /// The node that failed first, if that ended or paused the instance. `None` if a cancel or its deadline ended it. The message then
    /// contains a node that failed before.
    pub broken_by: Option<String>,
    /// The failure code of that node, or of the cancel or deadline.
    pub code: Option<String>,
    /// The message of that failure, or the reason of the cancel.
    pub message: Option<String>,
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
    fn from_wire(stored: &[u8]) -> Option<InstancePause> {
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

/// What [`Inspector::recover_workflow`] did for a workflow.
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
    /// How many instances had lost their state. They are now paused, and a person resumes, retries or cancels them. Instances that
    /// were stopping continue to stop. Subgraphs follow the instances that they belong to.
    pub placed: u64,
    /// Why some work may be left, if so. It is safe to repeat the call.
    pub fault: Option<String>,
}

impl Inspector {
    /// The workflows that have started an instance, at most 1,000, sorted by name.
    ///
    /// # Errors
    /// Those of every call, see [`Error`]. A workflow that cannot be read has a [`fault`](WorkflowReport::fault).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn workflows(&self) -> Result<Vec<WorkflowReport>, Error> {
        let now = self.now_ms().await?;
        let found = self.look(|mut conn| async move { self.store.workflows(&mut conn).await }).await?;
        let mut reports = Vec::with_capacity(found.len());
        for some in found.chunks(TOGETHER) {
            reports.extend(join_all(some.iter().map(|(name, looked)| self.workflow_report(name, *looked, now))).await);
        }
        Ok(reports)
    }

    async fn workflow_report(&self, name: &str, looked_ms: u64, now_ms: u64) -> WorkflowReport {
        let keys = &self.store.workflow(name);
        let sizes = async {
            let sizes = self.look(|mut conn| async move { instances::sizes(&mut conn, keys).await }).await?;
            if self.store.is_cluster() {
                self.look(|mut conn| async move { instances::can_be_called(&mut conn, keys).await }).await?;
            }
            Ok::<_, Error>(sizes)
        };
        let sizes = sizes.await;
        let is_hidden = sizes.as_ref().is_err_and(|e| e.is_outage() || e.is_denied());
        // A key of another type stops every script of the workflow.
        let foreign: Vec<KeyConflict> = match is_hidden {
            true => Vec::new(),
            false => {
                let look = |mut conn| async move { overview::foreign_of_workflow(&mut conn, keys).await };
                self.look(look).await.unwrap_or_default().into_iter().map(foreign_key).collect()
            }
        };
        let named = foreign.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let fault_kind = sizes.as_ref().err().and_then(Error::server_kind);
        let fault = match &sizes {
            _ if !foreign.is_empty() => Some(named),
            Ok(_) => None,
            Err(e) => Some(e.chain().to_string()),
        };
        let sizes = sizes.unwrap_or_default();
        let FlowSizes { running, paused, completed, failed, cancelled, outbox, oldest_ms, put_off, untold, .. } = sizes;
        // A postponed step has the time of its next try in the outbox, so use when it was first postponed. An end that could not be
        // recorded is in the outbox of its task.
        let since_ms = lately_since(put_off, PUT_OFF, now_ms);
        let untold_ms = lately_since(untold, UNTOLD, now_ms);
        let oldest_ms = oldest_ms.map_or(untold_ms, |ms| Some(since_ms.map_or(ms, |since_ms| ms.min(since_ms))));
        WorkflowReport {
            as_of: at_ms(now_ms),
            workflow: name.to_owned(),
            running,
            paused,
            completed,
            failed,
            cancelled,
            unplaced: sizes.unplaced,
            steps: outbox,
            oldest_step: oldest_ms.map(|ms| Duration::from_millis(now_ms.saturating_sub(ms))),
            looked_at: (looked_ms > 0).then(|| at_ms(looked_ms)),
            corrupt: sizes.corrupt.0,
            corrupt_at: sizes.corrupt.1.map(at_ms),
            tasks: sizes.tasks,
            fault,
            fault_kind,
            foreign,
        }
    }

    /// A page of up to `limit` instances (1 to 500) in this state, newest or oldest first. The cursor is the [`InstancePage::next`] of
    /// the previous page, or `None` to begin. Subgraphs are left out. The cost of a page does not depend on the number of instances.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the limit is not valid, and those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn instances(
        &self,
        workflow: &str,
        state: WorkflowState,
        newest: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<InstancePage, Error> {
        if limit == 0 || limit > MOST_ROWS {
            return Err(config("limit", &limit.to_string(), "must be 1 to 500", "use 100"));
        }
        let is_cursor = |text: &str| text.split_once(' ').is_some_and(|(score, _)| score.parse::<f64>().is_ok());
        if let Some(text) = cursor.filter(|text| !text.is_empty() && !is_cursor(text)) {
            let rule = "must be the `next` of a page of the same workflow";
            return Err(config("cursor", text, rule, "begin again without a cursor"));
        }
        let keys = &self.workflow_keys(workflow)?;
        let place = key_of(state);
        let now = self.now_ms().await?;
        let (mut lines, mut next) = (Vec::new(), Some(cursor.unwrap_or_default().to_owned()));
        for _ in 0..LOOKS {
            let Some(after) = next.as_deref().filter(|_| lines.len() < limit) else { break };
            let (from, left) = ((newest, after), limit - lines.len());
            let list = |mut conn| async move { instances::list(&mut conn, keys, place, from, left).await };
            let (some, after) = self.ask(list).await?;
            lines.extend(some);
            next = after;
        }
        let row = |line: instances::InstanceLine| InstanceRow {
            id: line.id,
            state,
            since: at_ms(line.since_ms),
            begins_at: line.begins_ms.map(at_ms),
            run: line.run,
            unfinished: line.live,
            open: line.open,
            is_stopping: line.is_stopping,
            is_broken: line.is_broken,
        };
        Ok(InstancePage { as_of: at_ms(now), instances: lines.into_iter().map(row).collect(), next })
    }

    /// An instance or a subgraph, with up to 500 of its nodes from number `from` on, and why each of them waits. `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, [`Error::Codec`] if its graph cannot be read, and those of every call, see [`Error`].
    /// If the jobs of a task cannot be read, the nodes report that.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn instance(&self, workflow: &str, id: &str, from: u32) -> Result<Option<InstanceReport>, Error> {
        let keys = &self.workflow_keys(workflow)?;
        let now = self.now_ms().await?;
        let look = |mut conn| async move { instances::state(&mut conn, keys, id).await };
        let Some(state) = self.store.ask(response_time(BATCH_BYTES), look).await? else { return Ok(None) };
        let digest = &state.digest;
        let read = |mut conn| async move { nodes::shape(&mut conn, keys, digest).await };
        let json = self.store.ask(response_time(BATCH_BYTES), read).await?;
        let what = format!("the graph of the instance {id} of the workflow {workflow}");
        let shape: Shape = match json {
            Some(json) => serde_json::from_slice(&json).map_err(|source| Error::Codec { what, source })?,
            // An instance without its graph fails. Show it without nodes.
            None => Shape { nodes: Vec::new(), output: None, on_failure: String::new() },
        };
        let mut states: Vec<String> = Vec::with_capacity(shape.nodes.len());
        while states.len() < shape.nodes.len() {
            let at = states.len() as u32;
            let page = |mut conn| async move { nodes::nodes(&mut conn, keys, id, at).await };
            match self.ask(page).await?.filter(|page| !page.states.is_empty()) {
                Some(page) => states.extend(page.states),
                None => break,
            }
        }
        states.resize(shape.nodes.len(), String::new());
        let first = from as usize;
        let last = shape.nodes.len().min(first + LOOK_BATCH);
        // If the list of workers cannot be read, report no missing workers.
        let workers = self.live_workers().await.ok();
        let is_anybody = workers.as_ref().is_none_or(|workers| !workers.is_empty());
        let view = View { keys, id, state: &state, shape: &shape, states: &states, is_anybody };
        let mut nodes: Vec<NodeReport> = (first..last).map(|at| view.node(at)).collect();
        self.both_halves(&view, workers.as_deref(), &mut nodes, now).await?;
        if state.is_unplaced {
            nodes.iter_mut().filter(|node| node.why.is_some()).for_each(|node| node.why = Some(NOWHERE.to_owned()));
        }
        let (code, message) = view.said();
        let place = key_of(state.place.into());
        let times = |mut conn| async move { nodes::times(&mut conn, keys, id, place).await };
        let (begins_ms, since_ms) = self.ask(times).await?;
        let ended_ms = since_ms.filter(|_| WorkflowState::from(state.place).is_ended());
        Ok(Some(InstanceReport {
            as_of: at_ms(now),
            workflow: workflow.to_owned(),
            id: id.to_owned(),
            state: state.place.into(),
            is_unplaced: state.is_unplaced,
            is_stopping: state.is_stopping,
            pause: InstancePause::from_wire(&state.answer).filter(|_| state.place == FlowPlace::Paused),
            begins_at: begins_ms.map(at_ms),
            ended_at: ended_ms.map(at_ms),
            run: state.run,
            unfinished: state.live,
            open: state.open,
            broken_by: state
                .broken_by
                .as_ref()
                .filter(|_| !view.was_stopped())
                .and_then(|(node, _)| Some(shape.nodes.get(*node as usize)?.name.clone())),
            code,
            message,
            node_count: shape.nodes.len(),
            nodes,
            next: (last < shape.nodes.len()).then_some(last as u32),
        }))
    }

    /// Reads the jobs of open nodes, and adds why these nodes wait.
    async fn both_halves(
        &self,
        view: &View<'_>,
        workers: Option<&[WorkerReport]>,
        nodes: &mut [NodeReport],
        now_ms: u64,
    ) -> Result<(), Error> {
        let mut by_task: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut entries = Vec::new();
        let open: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].state == NodeState::Open).collect();
        for at in &open {
            entries.push(send_entry(&view.node_id(nodes[*at].number)));
            if let Some(task) = &nodes[*at].task {
                by_task.entry(task.clone()).or_default().push(*at);
            }
        }
        let (keys, asked) = (view.keys, &entries);
        let untold = self.ask(|mut conn| async move { instances::untold(&mut conn, keys).await }).await?;
        let refused_since = lately_since(untold, UNTOLD, now_ms).map(at_ms);
        let since = self.ask(|mut conn| async move { outbox::in_outbox(&mut conn, keys, asked).await }).await?;
        for (at, since) in open.iter().zip(since) {
            nodes[*at].to_send_since = since.map(at_ms);
        }
        let is_anybody = view.is_anybody;
        for (task, places) in by_task {
            let ids: Vec<JobId> = places.iter().filter_map(|at| nodes[*at].job.clone()).collect();
            let asked = async {
                let (found, untold) = (self.states_of(&task, &ids).await?, self.untold(&task, &ids).await?);
                let parked_marks = self.parked_marks(&task, &ids).await?;
                let is_delayed = |job: &Option<(JobState, usize)>| matches!(job, Some((JobState::Delayed, _)));
                let delayed = ids.iter().zip(&found).filter(|(_, job)| is_delayed(job)).map(|(id, _)| id.clone());
                let failed = self.failed(&task, delayed.collect()).await?;
                Ok::<_, Error>((found, untold, parked_marks, failed))
            };
            let (found, untold, parked_marks, failed) = match asked.await {
                Ok(found) => found,
                Err(e) => {
                    for at in places {
                        nodes[at].why = Some(format!("could not read the state of its job: {}", e.chain()));
                    }
                    continue;
                }
            };
            let works = |worker: &WorkerReport| worker.tasks.iter().any(|its| its.task == task);
            let is_worked = workers.is_none_or(|workers| workers.iter().any(works));
            let (is_paused, grace) = self.pauses_and_grace(&task).await.unwrap_or_default();
            let of_task = Worked { is_worked, is_anybody, is_paused, for_people: Worked::for_people(&grace) };
            for (((at, job), is_untold), is_parked) in places.into_iter().zip(found).zip(untold).zip(parked_marks) {
                let node = &mut nodes[at];
                node.job_state = job.map(|(state, _)| state);
                node.is_to_be_told = is_untold;
                let job = NodeJob {
                    task: &task,
                    state: node.job_state,
                    is_to_be_told: is_untold,
                    is_parked,
                    failed: node.job.as_ref().and_then(|id| failed.get(id)),
                    to_send_since: node.to_send_since,
                    refused_since,
                };
                node.why = why_open(&job, of_task, now_ms);
            }
        }
        for at in open.into_iter().filter(|at| nodes[*at].task.is_none()).collect::<Vec<_>>() {
            let node = &mut nodes[at];
            node.why = Some(match (node.to_send_since, &node.child) {
                (Some(since), _) => format!("its graph waits to be started{}", for_so_long(since, is_anybody, now_ms)),
                (None, child) => format!("its graph runs as {}", child.as_deref().unwrap_or_default()),
            });
        }
        Ok(())
    }

    /// Which of the jobs have ended without an update of their workflow.
    async fn untold(&self, task: &str, ids: &[JobId]) -> Result<Vec<bool>, Error> {
        self.of_each(task, ids, |keys, own| async move {
            let (keys, own) = (&keys, &own);
            self.ask(|mut conn| async move { outbox::among(&mut conn, keys, own).await }).await
        })
        .await
    }

    /// The failures of these delayed jobs, of those that have one.
    async fn failed(&self, task: &str, ids: Vec<JobId>) -> Result<HashMap<JobId, StoredError>, Error> {
        let mut found = HashMap::new();
        for some in ids.chunks(TOGETHER) {
            let read = self.of_each(task, some, |keys, own| async move {
                let (keys, own) = (&keys, &own);
                self.ask(|mut conn| async move { values::failures(&mut conn, keys, own).await }).await
            });
            let errors = read.await?.into_iter().map(|(_, _, error)| error);
            let has_one = some.iter().zip(errors).filter(|(_, error)| !error.is_empty());
            found.extend(has_one.map(|(id, error)| (id.clone(), StoredError::from_json(&error))));
        }
        Ok(found)
    }

    /// Which of the jobs are parked and sent no heartbeat since.
    async fn parked_marks(&self, task: &str, ids: &[JobId]) -> Result<Vec<bool>, Error> {
        self.of_each(task, ids, |keys, own| async move {
            let (keys, own) = (&keys, &own);
            let marks = self.ask(|mut conn| async move { values::marks(&mut conn, keys, own).await }).await?;
            if marks.iter().all(Option::is_none) {
                return Ok(vec![false; own.len()]);
            }
            let tokens = self.ask(|mut conn| async move { values::tokens(&mut conn, keys, own).await }).await?;
            let fences = tokens.into_iter().map(|token| Some(holder(&token?)?.1));
            let is_so = |(mark, fence): (Option<ParkedMark>, _)| mark.is_some_and(|mark| fence == Some(mark.fence));
            Ok(marks.into_iter().zip(fences).map(is_so).collect())
        })
        .await
    }

    /// A handle to an instance, to cancel, pause, resume or retry it, or to wait for it. Pauses and resumes carry the name set by
    /// [`by`](Inspector::by). It does not check whether the instance exists.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the id is not valid.
    pub fn workflow_handle(&self, workflow: &str, id: &str) -> Result<WorkflowHandle<Value>, Error> {
        let progress = Arc::new(WorkflowProgress::new(Arc::clone(&self.store)));
        handle_of(workflow, id, Arc::clone(&self.store), progress, Arc::clone(&self.by))
    }

    /// Recovers every workflow now, as workers do within 15 s to 75 s: records ended jobs, sends pending nodes, stops instances past
    /// their deadlines, and compares every instance with its jobs. It is safe while workers run, and safe to repeat.
    ///
    /// # Errors
    /// Those of every call, see [`Error`], before anything was done. A failure for one workflow is its
    /// [`fault`](RecoveredWorkflow::fault).
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the work may be done. It is safe to repeat.
    pub async fn recover_stuck_workflows(&self) -> Result<Vec<RecoveredWorkflow>, Error> {
        let found = self.ask(|mut conn| async move { self.store.workflows(&mut conn).await }).await?;
        let mut done = Vec::with_capacity(found.len());
        for (name, _) in found {
            done.push(self.recovered(name).await);
        }
        Ok(done)
    }

    /// Recovers one workflow, as [`recover_stuck_workflows`](Inspector::recover_stuck_workflows). If the server lost it from the list of
    /// workflows, it is added again. `None` if no data of it exists.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`], before anything was done. A later failure is
    /// the [`fault`](RecoveredWorkflow::fault).
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the work may be done. It is safe to repeat.
    pub async fn recover_workflow(&self, workflow: &str) -> Result<Option<RecoveredWorkflow>, Error> {
        let keys = &self.workflow_keys(workflow)?;
        let is_there = |mut conn| async move { instances::is_there(&mut conn, keys).await };
        if !self.ask(is_there).await? {
            return Ok(None);
        }
        let names = &[workflow];
        self.store.shared(RESPONSE_TIMEOUT, async |conn: &mut _| self.store.list_workflows(conn, names).await).await?;
        Ok(Some(self.recovered(workflow.to_owned()).await))
    }

    async fn recovered(&self, workflow: String) -> RecoveredWorkflow {
        let progress = WorkflowProgress::new(Arc::clone(&self.store));
        let fault = Box::pin(progress.recover(&workflow)).await.err().map(|e| e.chain().to_string());
        let [told, sent, synthesised, placed] = progress.tally();
        RecoveredWorkflow { workflow, told, sent, synthesised, placed, fault }
    }

    /// Records jobs of this table that have just ended in their workflows. If that fails, a worker does it later.
    pub(super) fn move_workflows<'a>(&'a self, table: &'a Arc<TaskKeys>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let progress = WorkflowProgress::new(Arc::clone(&self.store));
            let told = tokio::time::timeout(RESPONSE_TIMEOUT, progress.look_at(table, Duration::ZERO)).await;
            if let Err(e) = told.unwrap_or_else(|_| Err(Error::timed_out())) {
                tracing::debug!(task = table.task(), error = %e.chain(), "could not record ended jobs in their workflows; a worker retries");
            }
        })
    }

    fn workflow_keys(&self, workflow: &str) -> Result<TaskKeys, ConfigErrors> {
        check_name(workflow)?;
        Ok(self.store.workflow(workflow))
    }
}

/// An instance as it was read.
struct View<'a> {
    keys: &'a TaskKeys,
    id: &'a str,
    state: &'a FlowState,
    shape: &'a Shape,
    states: &'a [String],
    is_anybody: bool,
}

/// The first of two times, if the last one is recent.
fn lately_since(times: Option<(u64, u64)>, lately: Duration, now_ms: u64) -> Option<u64> {
    let (since_ms, _) = times.filter(|(_, last_ms)| now_ms.saturating_sub(*last_ms) < lately.as_millis() as u64)?;
    Some(since_ms)
}

fn key_of(state: WorkflowState) -> Key {
    match state {
        WorkflowState::Running => Key::Running,
        WorkflowState::Paused => Key::Paused,
        WorkflowState::Completed => Key::Completed,
        WorkflowState::Failed => Key::Failed,
        WorkflowState::Cancelled => Key::Cancelled,
    }
}

impl View<'_> {
    fn node_id(&self, node: u32) -> NodeId {
        let (definition, instance) = (self.keys.task().to_owned(), self.id.to_owned());
        NodeId { definition, instance, node, run: self.state.run }
    }

    fn node(&self, at: usize) -> NodeReport {
        let (node, said, number) = (&self.shape.nodes[at], &*self.states[at], at as u32);
        let (state, id) = (NodeState::from_wire(said), self.node_id(number));
        // After a retry, it is unknown in which run a node completed.
        let is_older = state == NodeState::Completed && id.run > 1;
        let was_opened = !matches!(state, NodeState::Pending | NodeState::Skipped) && !is_older;
        let is_graph = node.is_graph || said.starts_with('g');
        let waits = (state == NodeState::Pending).then(|| self.waits(node, said));
        let (needs, waits_for, why) = match waits {
            Some((needs, waits_for, why)) => (Some(needs), waits_for, Some(why)),
            None => (None, Vec::new(), None),
        };
        NodeReport {
            number,
            name: node.name.clone(),
            task: (!is_graph).then(|| node.task.clone()),
            state,
            after: node.inputs.clone(),
            needs,
            waits_for,
            job: (was_opened && !node.is_graph).then(|| id.job_id()),
            // A job that returned a graph has completed before its node ends.
            job_state: (!node.is_graph && said.starts_with('g')).then_some(JobState::Completed),
            child: (was_opened && is_graph).then(|| id.child()),
            to_send_since: None,
            is_to_be_told: false,
            why,
        }
    }

    /// For a pending node: how many inputs must still complete, the first that have not ended, and why it waits.
    fn waits(&self, node: &ShapeNode, said: &str) -> (u32, Vec<String>, String) {
        let needs = said.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let has_ended = |input: &u32| {
            let state = self.states.get(*input as usize).map_or(NodeState::Pending, |said| NodeState::from_wire(said));
            !matches!(state, NodeState::Pending | NodeState::Open)
        };
        let mut seen = HashSet::new();
        let left: Vec<u32> =
            node.inputs.iter().copied().filter(|input| !has_ended(input) && seen.insert(*input)).collect();
        let name =
            |input: &u32| self.shape.nodes.get(*input as usize).map_or_else(String::new, |node| node.name.clone());
        let named: Vec<String> = left.iter().take(NAMED).map(name).collect();
        let place = WorkflowState::from(self.state.place);
        let why = if self.state.is_unplaced {
            NOWHERE.to_owned()
        } else if place.is_ended() {
            "the instance ended before it could run".to_owned()
        } else if self.state.is_stopping {
            "the instance is stopping, so it will not run".to_owned()
        } else if !said.starts_with(['p', 'P']) {
            let soon = Worked::soon(self.is_anybody, COMPARED);
            let is_still = place == WorkflowState::Paused && self.state.open == 0;
            let when = if is_still { "when the instance is resumed" } else { &*soon };
            format!("its state cannot be read, so it ends as corrupt: {when}")
        } else if needs == 0 && place == WorkflowState::Paused {
            "it is ready, and the instance is paused".to_owned()
        } else if needs == 0 {
            format!("it is ready to start: {}", Worked::soon(self.is_anybody, "15 s"))
        } else if left.is_empty() {
            let soon = Worked::soon(self.is_anybody, "15 s");
            format!("the nodes it waited for have ended, but this is not recorded yet: {soon}")
        } else {
            let more = left.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let some = (needs as usize) < left.len();
            let some = if some { format!("; {needs} of them must complete") } else { String::new() };
            format!("it waits for {}{more}{some}", named.join(", "))
        };
        (needs, named, why)
    }

    /// Whether a cancel, its deadline or damaged data ended it, and not a node.
    fn was_stopped(&self) -> bool {
        match self.state.place {
            FlowPlace::Cancelled => true,
            FlowPlace::Failed => !self.state.answer.is_empty(),
            _ => false,
        }
    }

    /// The code and message of what ended or paused the instance.
    fn said(&self) -> (Option<String>, Option<String>) {
        if self.state.is_unplaced {
            return (Some(codes::CORRUPT.to_owned()), Some(NOWHERE.to_owned()));
        }
        let answer = String::from_utf8_lossy(&self.state.answer);
        let broken = self.state.broken_by.as_ref().filter(|(_, said)| !said.is_empty());
        let broken = broken.map(|(node, said)| (self.shape.nodes.get(*node as usize), StoredError::from_json(said)));
        let stopped = match self.state.place {
            FlowPlace::Completed => return (None, None),
            FlowPlace::Cancelled => {
                Some(StoredError { code: codes::CANCELLED.to_owned(), message: answer.into_owned() })
            }
            _ => self.was_stopped().then(|| StoredError::from_json(&answer)),
        };
        let error = match (stopped, broken) {
            (Some(stopped), Some((Some(node), failed))) => stopped.after(&node.name, &failed),
            (Some(stopped), _) => stopped,
            (None, Some((_, failed))) => failed,
            (None, None) if self.state.broken_by.is_some() => {
                return (
                    Some("skipped".to_owned()),
                    Some("the instance returns its value, but it was skipped".to_owned()),
                );
            }
            (None, None) if self.state.place == FlowPlace::Failed => StoredError::from_json(""),
            (None, None) => return (None, None),
        };
        (Some(error.code), Some(error.message))
    }
}
