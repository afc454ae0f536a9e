//! Workflows: which there are, how many instances of each, and one of them node by node, with why it waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, join_all};
use serde::Serialize;
use serde_json::Value;

use super::Inspector;
use super::page::holder;
use super::parts::config;
use super::tasks::{ForeignKey, foreign_key};
use super::waits::{COMPARED, NodeJob, Worked, for_so_long, why_open};
use super::workers::WorkerReport;
use crate::error::{Error, ServerErrorKind};
use crate::faults::ConfigErrors;
use crate::flow::handle::WorkflowHandle;
use crate::flow::mover::Mover;
use crate::flow::mover::send::send_entry;
use crate::flow::workflow::{check_name, handle_of};
use crate::job::failure::{StoredError, codes};
use crate::job::id::JobId;
use crate::job::instance::{NodeState, WorkflowState};
use crate::job::node_id::NodeId;
use crate::job::shape::{Shape, ShapeNode};
use crate::job::state::JobState;
use crate::limits::{BATCH_BYTES, LOOK_BATCH, stored_number};
use crate::store::keys::{Key, TaskKeys};
use crate::store::overview;
use crate::store::patience::{RESPONSE_TIMEOUT, response_time};
use crate::store::values::{self, AsideMark};
use crate::store::workflow::instances::{self, FlowPlace, FlowSizes, FlowState};
use crate::store::workflow::nodes;
use crate::store::workflow::outbox;
use crate::times::{as_ms_where_known, at_ms, ms_since_1970, ms_since_1970_where_known};

/// How many workflows are asked about at a time.
const TOGETHER: usize = 50;

/// Of an instance that the server lost from where it stood.
const NOWHERE: &str = "the server has lost where it stands, and it does not go on: `heartline flows recover` pauses it";

/// How many of the nodes that one waits for are named.
const NAMED: usize = 10;

/// What was put off is tried again long before this.
const PUT_OFF: Duration = Duration::from_secs(60);

/// What cannot be told of is tried again each 5 s.
const UNTOLD: Duration = Duration::from_secs(20);

/// The most rows of a page, and how often it is looked for as many, where graphs that run as nodes stand between them.
const MOST_ROWS: usize = 500;
const LOOKS: usize = 10;

/// A definition of workflows, and how many instances of it there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowReport {
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// Its name.
    pub workflow: String,
    /// Instances that run, with graphs that run as nodes of others.
    pub running: u64,
    /// Instances that are paused.
    pub paused: u64,
    /// Ended instances that are still kept.
    pub completed: u64,
    /// The same that failed.
    pub failed: u64,
    /// The same that were cancelled.
    pub cancelled: u64,
    /// Instances that stand in none of these places, at the least: the server lost that, and nothing of them goes on. [`Inspector::recover_workflow`] pauses
    /// them, for a person to decide.
    pub nowhere: u64,
    /// How many steps are to be made: nodes to be sent, dependents to be visited. Mostly none, or those of this moment.
    pub steps: u64,
    /// For how long the oldest of them is to be made, or for how long it was not told of jobs that have ended, since the server refuses that. Workers make what is 10 s old, whoever left it.
    #[serde(rename = "oldest_step_ms", serialize_with = "as_ms_where_known")]
    pub oldest_step: Option<Duration>,
    /// When a worker looked after it last, which one does every 5 s.
    #[serde(rename = "looked_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub looked_at: Option<SystemTime>,
    /// How often something of it could not be read: a graph, a line, the state of a node. Mostly a node, or the
    /// instance, failed for it with the code `corrupt`; a graph that ran as a node was started anew.
    pub corrupt: u64,
    /// When that was so last.
    #[serde(rename = "corrupt_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub corrupt_at: Option<SystemTime>,
    /// The tasks of its nodes.
    pub tasks: Vec<String>,
    /// Why it does not go on, and what else stands here may be nothing, if so: its node of a cluster is away, our user of the server lacks a right, or
    /// something foreign is stored under a key of it.
    pub fault: Option<String>,
    /// The kind of that error, if the server reported it.
    pub fault_kind: Option<ServerErrorKind>,
    /// The keys of another type that keep it from being read or moved.
    pub foreign: Vec<ForeignKey>,
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
    /// What to give for the page behind this one, as it is; `None` at the end. A page may be short, or empty, although others follow.
    pub next: Option<String>,
}

/// An instance of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstanceRow {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub state: WorkflowState,
    /// Since when: one that ended since then, others since they were moved, or compared with their jobs, last.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
    pub since: SystemTime,
    /// When it began, or begins: when it was started, and its delay. `None` where that is not known.
    #[serde(rename = "begins_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub begins_at: Option<SystemTime>,
    /// Its run, from 1.
    pub run: u64,
    /// How many of its nodes have not ended.
    pub unfinished: u64,
    /// How many of those are open: sent, or about to be.
    pub open: u64,
    /// Whether nothing of it opens any more: it ends when none is open.
    pub is_stopping: bool,
    /// Whether a node of it has failed, for which it fails, or is paused by its policy.
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
    /// Where it stands.
    pub state: WorkflowState,
    /// Whether the server has lost where it stands: it does not go on, and is told as failed. [`Inspector::recover_workflow`] pauses it.
    pub is_nowhere: bool,
    /// Whether nothing of it opens any more: it ends when none is open.
    pub is_stopping: bool,
    /// Who paused it, of one that is paused; `None` where its policy did, for [`broken_by`](InstanceReport::broken_by).
    pub pause: Option<InstancePause>,
    /// When it began, or begins: when it was started, and its delay. `None` where that is not known.
    #[serde(rename = "begins_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub begins_at: Option<SystemTime>,
    /// When it ended, if it did; not known of one that runs as a node of another.
    #[serde(rename = "ended_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub ended_at: Option<SystemTime>,
    /// Its run, from 1.
    pub run: u64,
    /// How many of its nodes have not ended.
    pub unfinished: u64,
    /// How many of those are open.
    pub open: u64,
    /// The node that broke it first, if one did; `None` where something else ended it (a cancel, its deadline), of which the message then tells with the node.
    pub broken_by: Option<String>,
    /// The code of the failure of that node, or why it did not complete: of a cancel the reason.
    pub code: Option<String>,
    /// The failure of that node, or why it did not complete.
    pub message: Option<String>,
    /// How many nodes it has in all.
    pub node_count: usize,
    /// The nodes of this page, in the order in which the graph made them.
    pub nodes: Vec<NodeReport>,
    /// The number of the first node of the page behind this one.
    pub next: Option<u32>,
}

/// The pause of an instance that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InstancePause {
    /// Since when.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who paused it; empty where a program did that gave no name.
    pub by: String,
    /// Why; may be empty.
    pub reason: String,
}

impl InstancePause {
    /// Reads what is stored beside a paused instance.
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

/// A node of an instance, with both of its halves: what the workflow knows of it, and where its job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Its number in the graph.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The task of its job; none of a node that is a graph.
    pub task: Option<String>,
    /// Where the workflow has it.
    pub state: NodeState,
    /// The nodes that it waits for by its graph.
    pub after: Vec<u32>,
    /// How many of these must still complete, of one that waits.
    pub needs: Option<u32>,
    /// The first of these that have not ended, of one that waits: ten at the most.
    pub waits_for: Vec<String>,
    /// Its job in the present run; none of a node that was not opened, is a graph, or may have completed in an earlier run.
    pub job: Option<JobId>,
    /// Where its job stands, of an open one; `None` where it is not there, or could not be asked for.
    pub job_state: Option<JobState>,
    /// The instance that it runs as, where it is a graph.
    pub child: Option<String>,
    /// Since when it is to be sent.
    #[serde(rename = "to_send_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub to_send_since: Option<SystemTime>,
    /// Whether its job has ended, and its workflow is still to be told.
    pub is_to_be_told: bool,
    /// Why it does not run, or goes on only later, in words; `None` where there is nothing to say.
    pub why: Option<String>,
}

/// What was done for a workflow that was looked after at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveredWorkflow {
    /// Its name.
    pub workflow: String,
    /// Of how many ended jobs it was told.
    pub told: u64,
    /// How many nodes were sent.
    pub sent: u64,
    /// How many nodes were ended without a word of their jobs: these were lost.
    pub synthesised: u64,
    /// How many instances stood in no place, as the server had lost that: they are paused, and a person resumes, retries or cancels them; those that
    /// were to stop go on to do so, and those that run as nodes of others go with these.
    pub placed: u64,
    /// Why some may be left, if so; it is safe to repeat.
    pub fault: Option<String>,
}

impl Inspector {
    /// The workflows of which an instance was started, at most 1,000, by their names.
    ///
    /// # Errors
    /// Those of every call, see [`Error`]. What is wrong with one of them is its [`fault`](WorkflowReport::fault).
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
        let foreign: Vec<ForeignKey> = match is_hidden {
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
        // What is put off has the time of that; what could not be told of stands in a task.
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
            nowhere: sizes.nowhere,
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

    /// A page of up to `limit` instances (1 to 500) that stand there, newest or oldest first, behind a cursor: the [`InstancePage::next`] of the
    /// page before, or `None` to begin. Graphs that run as nodes of others are left out. A page costs the same however many there are.
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
            let Some(behind) = next.as_deref().filter(|_| lines.len() < limit) else { break };
            let (from, left) = ((newest, behind), limit - lines.len());
            let list = |mut conn| async move { instances::list(&mut conn, keys, place, from, left).await };
            let (some, behind) = self.ask(list).await?;
            lines.extend(some);
            next = behind;
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

    /// An instance, or one that runs as a node of another, with up to 500 of its nodes from this number on, and why each of them waits; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, [`Error::Codec`] if its graph cannot be read, and those of every call, see [`Error`].
    /// Where the jobs of a task cannot be asked for, the nodes say so.
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
            // One that has lost it fails: see that it does.
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
        // Nobody is said to be missing where the list of workers is away.
        let workers = self.live_workers().await.ok();
        let is_anybody = workers.as_ref().is_none_or(|workers| !workers.is_empty());
        let view = View { keys, id, state: &state, shape: &shape, states: &states, is_anybody };
        let mut nodes: Vec<NodeReport> = (first..last).map(|at| view.node(at)).collect();
        self.both_halves(&view, workers.as_deref(), &mut nodes, now).await?;
        if state.is_nowhere {
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
            is_nowhere: state.is_nowhere,
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

    /// Asks where the jobs of open nodes stand, and says why they do.
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
                let asides = self.asides(&task, &ids).await?;
                let is_delayed = |job: &Option<(JobState, usize)>| matches!(job, Some((JobState::Delayed, _)));
                let delayed = ids.iter().zip(&found).filter(|(_, job)| is_delayed(job)).map(|(id, _)| id.clone());
                let failed = self.failed(&task, delayed.collect()).await?;
                Ok::<_, Error>((found, untold, asides, failed))
            };
            let (found, untold, asides, failed) = match asked.await {
                Ok(found) => found,
                Err(e) => {
                    for at in places {
                        nodes[at].why = Some(format!("where its job stands could not be asked for: {}", e.chain()));
                    }
                    continue;
                }
            };
            let works = |worker: &WorkerReport| worker.tasks.iter().any(|its| its.task == task);
            let is_worked = workers.is_none_or(|workers| workers.iter().any(works));
            let (is_paused, patience) = self.pauses_and_patience(&task).await.unwrap_or_default();
            let of_task = Worked { is_worked, is_anybody, is_paused, for_people: Worked::for_people(&patience) };
            for (((at, job), is_untold), is_aside) in places.into_iter().zip(found).zip(untold).zip(asides) {
                let node = &mut nodes[at];
                node.job_state = job.map(|(state, _)| state);
                node.is_to_be_told = is_untold;
                let job = NodeJob {
                    task: &task,
                    state: node.job_state,
                    is_to_be_told: is_untold,
                    is_aside,
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
                (Some(since), _) => format!("its graph is to be started{}", for_so_long(since, is_anybody, now_ms)),
                (None, child) => format!("its graph runs as {}", child.as_deref().unwrap_or_default()),
            });
        }
        Ok(())
    }

    /// Which of the jobs have ended without that their workflow was told yet.
    async fn untold(&self, task: &str, ids: &[JobId]) -> Result<Vec<bool>, Error> {
        self.of_each(task, ids, |keys, own| async move {
            let (keys, own) = (&keys, &own);
            self.ask(|mut conn| async move { outbox::among(&mut conn, keys, own).await }).await
        })
        .await
    }

    /// What the last runs of delayed jobs came to: of those that failed in one, or could not be read.
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

    /// Which of the jobs were set aside, and were not heard from since.
    async fn asides(&self, task: &str, ids: &[JobId]) -> Result<Vec<bool>, Error> {
        self.of_each(task, ids, |keys, own| async move {
            let (keys, own) = (&keys, &own);
            let marks = self.ask(|mut conn| async move { values::marks(&mut conn, keys, own).await }).await?;
            if marks.iter().all(Option::is_none) {
                return Ok(vec![false; own.len()]);
            }
            let tokens = self.ask(|mut conn| async move { values::tokens(&mut conn, keys, own).await }).await?;
            let fences = tokens.into_iter().map(|token| Some(holder(&token?)?.1));
            let is_so = |(mark, fence): (Option<AsideMark>, _)| mark.is_some_and(|mark| fence == Some(mark.fence));
            Ok(marks.into_iter().zip(fences).map(is_so).collect())
        })
        .await
    }

    /// A handle to an instance, to cancel, pause, resume or retry it, or to wait for it. It pauses and resumes in the name of [`by`](Inspector::by). Whether there is one is not asked.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the id is not valid.
    pub fn workflow_handle(&self, workflow: &str, id: &str) -> Result<WorkflowHandle<Value>, Error> {
        let mover = Arc::new(Mover::new(Arc::clone(&self.store)));
        handle_of(workflow, id, Arc::clone(&self.store), mover, Arc::clone(&self.by))
    }

    /// Looks after every workflow at once, as workers do within 15 s to 75 s: tells it of jobs that ended, sends what is to be sent, stops what is past its deadline, and
    /// compares every instance with its jobs. It is safe beside workers, and to repeat.
    ///
    /// # Errors
    /// Those of every call, see [`Error`], before anything was done. What goes wrong with one of them is its
    /// [`fault`](RecoveredWorkflow::fault).
    ///
    /// # Cancel safety
    /// Some may be looked after or not when the future is dropped; it is safe to repeat.
    pub async fn recover_stuck_workflows(&self) -> Result<Vec<RecoveredWorkflow>, Error> {
        let found = self.ask(|mut conn| async move { self.store.workflows(&mut conn).await }).await?;
        let mut done = Vec::with_capacity(found.len());
        for (name, _) in found {
            done.push(self.recovered(name).await);
        }
        Ok(done)
    }

    /// The same of one workflow, also of one that the server has lost from its list, to which it is added again; `None` if there is nothing of it.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`], before anything was done. What goes wrong behind
    /// that is the [`fault`](RecoveredWorkflow::fault).
    ///
    /// # Cancel safety
    /// It may be looked after or not when the future is dropped; it is safe to repeat.
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
        let mover = Mover::new(Arc::clone(&self.store));
        let fault = Box::pin(mover.recover(&workflow)).await.err().map(|e| e.chain().to_string());
        let [told, sent, synthesised, placed] = mover.tally();
        RecoveredWorkflow { workflow, told, sent, synthesised, placed, fault }
    }

    /// Tells workflows of jobs of this table that ended just now. What does not succeed is left to a look of a worker.
    pub(super) fn move_workflows<'a>(&'a self, table: &'a Arc<TaskKeys>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mover = Mover::new(Arc::clone(&self.store));
            let told = tokio::time::timeout(RESPONSE_TIMEOUT, mover.look_at(table, Duration::ZERO)).await;
            if let Err(e) = told.unwrap_or_else(|_| Err(Error::timed_out())) {
                tracing::debug!(task = table.task(), error = %e.chain(), "workflows are told of ended jobs later");
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

/// Since when it is so again and again, if it was so lately.
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
        // In which run a node completed is not known behind a retry.
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
            // One that returned a graph has ended well before its node does.
            job_state: (!node.is_graph && said.starts_with('g')).then_some(JobState::Completed),
            child: (was_opened && is_graph).then(|| id.child()),
            to_send_since: None,
            is_to_be_told: false,
            why,
        }
    }

    /// How many inputs must still complete of a node that waits, which have not ended, and why it waits.
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
        let why = if self.state.is_nowhere {
            NOWHERE.to_owned()
        } else if place.is_ended() {
            "the instance ended before it could run".to_owned()
        } else if self.state.is_stopping {
            "the instance stops: it does not run any more".to_owned()
        } else if !said.starts_with(['p', 'P']) {
            let soon = Worked::soon(self.is_anybody, COMPARED);
            let is_still = place == WorkflowState::Paused && self.state.open == 0;
            let when = if is_still { "when the instance is resumed" } else { &*soon };
            format!("its state cannot be read: it ends as corrupt: {when}")
        } else if needs == 0 && place == WorkflowState::Paused {
            "it is ready, and the instance is paused".to_owned()
        } else if needs == 0 {
            format!("it is ready, and is to be opened: {}", Worked::soon(self.is_anybody, "15 s"))
        } else if left.is_empty() {
            let soon = Worked::soon(self.is_anybody, "15 s");
            format!("what it waited for has ended, and what follows from that is to be written: {soon}")
        } else {
            let more = left.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let some = (needs as usize) < left.len();
            let some = if some { format!("; {needs} of them must complete") } else { String::new() };
            format!("it waits for {}{more}{some}", named.join(", "))
        };
        (needs, named, why)
    }

    /// Whether something else than a node ended it: a cancel, its deadline, or what cannot be read of it.
    fn was_stopped(&self) -> bool {
        match self.state.place {
            FlowPlace::Cancelled => true,
            FlowPlace::Failed => !self.state.answer.is_empty(),
            _ => false,
        }
    }

    /// The code and the message of what broke the instance.
    fn said(&self) -> (Option<String>, Option<String>) {
        if self.state.is_nowhere {
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
            (Some(stopped), Some((Some(node), failed))) => stopped.behind(&node.name, &failed),
            (Some(stopped), _) => stopped,
            (None, Some((_, failed))) => failed,
            (None, None) if self.state.broken_by.is_some() => {
                return (Some("skipped".to_owned()), Some("its value is what the instance answers".to_owned()));
            }
            (None, None) if self.state.place == FlowPlace::Failed => StoredError::from_json(""),
            (None, None) => return (None, None),
        };
        (Some(error.code), Some(error.message))
    }
}
