//! Reads an instance of a workflow, its nodes and their jobs.

use std::collections::{BTreeMap, HashMap};

use super::Inspector;
use super::instance_view::{NOWHERE, View};
use super::page::holder;
use super::waits::{NodeJob, Worked, waited_and_why, why_open};
use super::workers::WorkerReport;
use super::workflow_report::{InstancePause, InstanceReport, NodeReport};
use super::workflows::{UNREPORTED, key_of, lately_since};
use crate::backend::timeouts::response_time;
use crate::backend::values::{self, ParkedMark};
use crate::backend::workflow::instances;
use crate::backend::workflow::nodes;
use crate::backend::workflow::outbox;
use crate::error::Error;
use crate::job::failure::StoredError;
use crate::job::id::JobId;
use crate::job::instance::{NodeState, WorkflowState};
use crate::job::shape::Shape;
use crate::job::state::JobState;
use crate::limits::{BATCH_BYTES, LOOK_BATCH};
use crate::unix_time::at_ms;
use crate::workflow::progress::send::send_entry;

/// How many failures of jobs are read at a time.
const FAILURES: usize = 50;

impl Inspector {
    /// An instance or a subgraph, with up to 500 of its nodes from number `from` on, and why each of them waits. `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Codec`] if its graph cannot be read. If the jobs of a task cannot be read, the nodes report that.
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
            match self
                .ask(async |conn| nodes::nodes(conn, keys, id, at).await)
                .await?
                .filter(|page| !page.states.is_empty())
            {
                Some(page) => states.extend(page.states),
                None => break,
            }
        }
        states.resize(shape.nodes.len(), String::new());
        let first = from as usize;
        let last = shape.nodes.len().min(first + LOOK_BATCH);
        // If the list of workers cannot be read, report no missing workers.
        let workers = self.live_workers().await.ok();
        let has_live_workers = workers.as_ref().is_none_or(|workers| !workers.is_empty());
        let view = View { keys, id, state: &state, shape: &shape, states: &states, has_live_workers };
        let mut nodes: Vec<NodeReport> = (first..last).map(|at| view.node(at)).collect();
        self.both_halves(&view, workers.as_deref(), &mut nodes, now).await?;
        if state.is_unplaced {
            nodes.iter_mut().filter(|node| node.why.is_some()).for_each(|node| node.why = Some(NOWHERE.to_owned()));
        }
        let (code, message) = view.said();
        let place = key_of(state.place);
        let (begins_ms, since_ms) = self.ask(async |conn| nodes::times(conn, keys, id, place).await).await?;
        let ended_ms = since_ms.filter(|_| state.place.is_ended());
        Ok(Some(InstanceReport {
            as_of: at_ms(now),
            workflow: workflow.to_owned(),
            id: id.to_owned(),
            state: state.place,
            is_unplaced: state.is_unplaced,
            is_stopping: state.is_stopping,
            pause: InstancePause::from_wire(&state.answer).filter(|_| state.place == WorkflowState::Paused),
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
            failed_node: view.failed_node(),
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
        let keys = view.keys;
        let untold = self.ask(async |conn| instances::untold(conn, keys).await).await?;
        let refused_since = lately_since(untold, UNREPORTED, now_ms).map(at_ms);
        let since = self.ask(async |conn| outbox::in_outbox(conn, keys, &entries).await).await?;
        for (at, since) in open.iter().zip(since) {
            nodes[*at].to_send_since = since.map(at_ms);
        }
        let has_live_workers = view.has_live_workers;
        for (task, places) in by_task {
            let ids: Vec<JobId> = places.iter().filter_map(|at| nodes[*at].job.clone()).collect();
            let asked = async {
                let (found, unreported) = (self.states_of(&task, &ids).await?, self.unreported(&task, &ids).await?);
                let parked_marks = self.parked_marks(&task, &ids).await?;
                let is_delayed = |job: &Option<(JobState, usize)>| matches!(job, Some((JobState::Delayed, _)));
                let delayed = ids.iter().zip(&found).filter(|(_, job)| is_delayed(job)).map(|(id, _)| id.clone());
                let failed = self.failed(&task, delayed.collect()).await?;
                Ok::<_, Error>((found, unreported, parked_marks, failed))
            };
            let (found, unreported, parked_marks, failed) = match asked.await {
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
            let of_task = Worked { is_worked, has_live_workers, is_paused, for_people: Worked::for_people(&grace) };
            for (((at, job), is_unreported), is_parked) in
                places.into_iter().zip(found).zip(unreported).zip(parked_marks)
            {
                let node = &mut nodes[at];
                node.job_state = job.map(|(state, _)| state);
                node.is_to_be_told = is_unreported;
                let job = NodeJob {
                    task: &task,
                    state: node.job_state,
                    is_to_be_told: is_unreported,
                    is_parked,
                    failed: node.job.as_ref().and_then(|id| failed.get(id)),
                    to_send_since: node.to_send_since,
                    refused_since,
                };
                node.why = why_open(&job, of_task, now_ms);
            }
        }
        for at in open {
            if nodes[at].task.is_none() {
                nodes[at].why = Some(why_graph_is_open(&nodes[at], has_live_workers, now_ms));
            }
        }
        Ok(())
    }

    /// Which of the jobs have ended, but are not yet reported to their workflow.
    async fn unreported(&self, task: &str, ids: &[JobId]) -> Result<Vec<bool>, Error> {
        self.of_each(task, ids, |keys, own| async move {
            self.ask(async |conn| outbox::among(conn, &keys, &own).await).await
        })
        .await
    }

    /// The failures of those delayed jobs that have one.
    async fn failed(&self, task: &str, ids: Vec<JobId>) -> Result<HashMap<JobId, StoredError>, Error> {
        let mut found = HashMap::new();
        for some in ids.chunks(FAILURES) {
            let read = self.of_each(task, some, |keys, own| async move {
                self.ask(async |conn| values::failures(conn, &keys, &own).await).await
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
            let marks = self.ask(async |conn| values::marks(conn, &keys, &own).await).await?;
            if marks.iter().all(Option::is_none) {
                return Ok(vec![false; own.len()]);
            }
            let tokens = self.ask(async |conn| values::tokens(conn, &keys, &own).await).await?;
            let fences = tokens.into_iter().map(|token| Some(holder(&token?)?.1));
            let is_so = |(mark, fence): (Option<ParkedMark>, _)| mark.is_some_and(|mark| fence == Some(mark.fence));
            Ok(marks.into_iter().zip(fences).map(is_so).collect())
        })
        .await
    }
}

/// Why an open subgraph waits.
fn why_graph_is_open(node: &NodeReport, has_live_workers: bool, now_ms: u64) -> String {
    match (node.to_send_since, &node.child) {
        (Some(since), _) => format!("its graph waits to be started{}", waited_and_why(since, has_live_workers, now_ms)),
        (None, child) => format!("its graph runs as {}", child.as_deref().unwrap_or_default()),
    }
}
