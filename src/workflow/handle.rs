//! A workflow instance, for the program that started it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::options::WorkflowOptions;
use super::progress::retry::Retried;
use super::progress::{WorkflowProgress, unreadable};
use crate::backend::engine::Store;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::large_value::Unread;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::replicated::ask_copied;
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::values::ValuePlace;
use crate::backend::workflow::advance;
use crate::backend::workflow::control::{self, Controlled, TurnAsked, Turned};
use crate::backend::workflow::instances::FlowState;
use crate::backend::workflow::nodes;
use crate::backoff::Pauses;
use crate::error::Error;
use crate::error::value::read_value;
use crate::escape::cut;
use crate::job::failure::{Failure, StoredError, codes};
use crate::job::id::JobId;
use crate::job::instance::{NodeState, WorkflowState};
use crate::job::node_id::NodeId;
use crate::limits::{MESSAGE_LIMIT, NODE_LIMIT};
use crate::options::modes::Durability;
use crate::runtime::upstream::{Upstream, number_of, value_or_failure};
use crate::runtime::waits::NotedWait;
use crate::task::cancel::Cancel;
use crate::task::handle::LATE;
#[cfg(feature = "axum")]
use crate::task::responses::accepted;

/// The shortest and the longest pause between two checks whether an instance has ended.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// What all handles of a definition share.
pub(crate) struct WorkflowShared {
    pub(super) keys: TaskKeys,
    pub(super) store: Arc<Store>,
    pub(super) progress: Arc<WorkflowProgress>,
    pub(super) options: WorkflowOptions,
}

/// An instance of a [`Workflow`](crate::Workflow); `T` is the type of its output. Cloning is cheap. Dropping it does
/// not affect the instance.
pub struct WorkflowHandle<T> {
    shared: Arc<WorkflowShared>,
    id: Arc<str>,
    existed: Option<bool>,
    /// The person on whose behalf it acts; empty for a program.
    by: Arc<str>,
    answers: PhantomData<fn() -> T>,
}

/// With the feature `axum`: 202, or 200 if the instance existed before, and JSON with its `id` and `existed`.
#[cfg(feature = "axum")]
impl<T> axum_core::response::IntoResponse for WorkflowHandle<T> {
    fn into_response(self) -> axum_core::response::Response {
        accepted(self.id(), self.existed())
    }
}

impl<T> WorkflowHandle<T> {
    pub(super) fn new(shared: Arc<WorkflowShared>, id: String, existed: Option<bool>) -> WorkflowHandle<T> {
        WorkflowHandle { shared, id: id.into(), existed, by: Arc::default(), answers: PhantomData }
    }

    /// The same handle, acting on behalf of this person.
    pub(crate) fn by(self, by: Arc<str>) -> WorkflowHandle<T> {
        WorkflowHandle { by, ..self }
    }

    /// The id of the instance.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of its definition.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.shared.keys.task()
    }

    /// Whether the instance existed before the start that made this handle. `None` if no start made it. After a lost reply, the
    /// start may have found the instance of its own first call.
    #[must_use]
    pub fn existed(&self) -> Option<bool> {
        self.existed
    }

    /// The instance as it is now: its state and that of each of its nodes, and how it ended. It does not wait for the end. It reads nodes
    /// in pages of 500, and the output each time: use a `WorkflowHandle<Value>` where the output may be of another type.
    ///
    /// # Errors
    /// - [`Error::WorkflowNotFound`] if it was never started, or is no longer kept.
    /// - [`Error::Codec`] if the output is not a `T`, [`Error::PayloadCodec`] if a codec is missing or fails.
    /// - What every call may return, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn status(&self) -> Result<WorkflowStatus<T>, Error>
    where
        T: DeserializeOwned,
    {
        let (state, headers) = (self.state().await?, self.headers().await?);
        let nodes = self.nodes(&state).await?;
        let (place, unfinished, open) = (state.place, state.live, state.open);
        let (mut result, mut failure, mut failed_node) = (None, None, None);
        match place {
            WorkflowState::Completed => {
                let output = self.output(state).await;
                let output = output.map_err(|(Unread::Failed(e) | Unread::TooLarge(e))| e)?;
                result = Some(self.answer(&output)?);
            }
            WorkflowState::Cancelled => {
                let message = String::from_utf8_lossy(&state.answer).into_owned();
                let error = StoredError { code: codes::CANCELLED.to_owned(), message };
                failure = Some(Failure::new(self.job(0, state.run), error, 0, 0));
            }
            WorkflowState::Failed => {
                if let Error::WorkflowFailed { failure: said, node, .. } = self.failure(state).await {
                    (failure, failed_node) = (Some(*said), Some(node).filter(|node| !node.is_empty()));
                }
            }
            WorkflowState::Running | WorkflowState::Paused => {}
        }
        Ok(WorkflowStatus { state: place, unfinished, open, headers, result, failure, failed_node, nodes })
    }

    /// The handle, if the instance was started with this header and value, as [`JobHandle::require_header`](crate::JobHandle::require_header).
    ///
    /// # Errors
    /// - [`Error::WorkflowNotFound`] if it has no such header or another value, was never started, or is no longer kept.
    /// - What every call may return, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn require_header(self, name: &str, value: &str) -> Result<WorkflowHandle<T>, Error> {
        match self.headers().await?.get(name) {
            Some(own) if own == value => Ok(self),
            _ => Err(self.not_found()),
        }
    }

    async fn headers(&self) -> Result<BTreeMap<String, String>, Error> {
        let WorkflowShared { keys, store, .. } = &*self.shared;
        let node = &NodeId { definition: self.workflow().to_owned(), instance: self.id.to_string(), node: 0, run: 1 };
        store.ask(RESPONSE_TIMEOUT, |mut conn| async move { advance::headers(&mut conn, keys, node).await }).await
    }

    /// Its nodes. Empty if the graph was lost.
    async fn nodes(&self, state: &FlowState) -> Result<Vec<NodeStatus>, Error> {
        let WorkflowShared { keys, progress, .. } = &*self.shared;
        let Some(shape) = progress.shape(keys, &self.id, &state.digest).await? else { return Ok(Vec::new()) };
        let page = progress.node_states(keys, &self.id, shape.nodes.len()).await?;
        let (run, states) = page.ok_or_else(|| self.not_found())?;
        let reports = (0..).zip(shape.nodes).zip(&states).map(|((index, node), said)| {
            let state = NodeState::from_wire(said);
            // After a retry it is unknown in which run a node completed.
            let is_older = state == NodeState::Completed && run > 1;
            let was_sent = !matches!(state, NodeState::Pending | NodeState::Skipped) && !node.is_graph;
            let job = (was_sent && !is_older).then(|| self.job(index, run));
            NodeStatus { name: node.name, task: Some(node.task).filter(|task| !task.is_empty()), state, job }
        });
        Ok(reports.collect())
    }

    /// The outcome of a node: its value, or its failure. A cancelled node has the code `cancelled`, and a node that did not run has
    /// `skipped`. `None` if the node has not ended.
    ///
    /// Pass the [`Node`](crate::Node) of the graph, its name, or a [`NodeName`](crate::NodeName). Only the name counts.
    ///
    /// # Errors
    /// - [`Error::WorkflowNotFound`] if the instance was never started, or is no longer kept.
    /// - [`Error::Config`] if its graph has no node of this name.
    /// - [`Error::Codec`] if the value is not a `V`, or the graph is lost.
    /// - What every call may return, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn node<V: DeserializeOwned>(&self, node: impl Upstream<V>) -> Result<Option<Result<V, Failure>>, Error> {
        let name = node.node_name();
        let state = self.state().await?;
        let WorkflowShared { keys, store, progress, .. } = &*self.shared;
        let lost = || serde::de::Error::custom("its graph is missing");
        let shape = progress.shape(keys, &self.id, &state.digest).await?;
        let shape = shape.ok_or_else(|| unreadable(self.workflow(), &self.id, lost()))?;
        let number = number_of(&shape, &name)?;
        let (instance, asked) = (&*self.id, &[number]);
        let state_of = async || {
            let look = |mut conn| async move { nodes::states(&mut conn, keys, instance, asked).await };
            let found = store.ask(RESPONSE_TIMEOUT, look).await?.pop().flatten();
            found.ok_or_else(|| self.not_found())
        };
        let mut before = state_of().await?;
        loop {
            let job = || self.job(number, state.run);
            match NodeState::from_wire(&before) {
                // No node opens in an instance that has ended.
                NodeState::Pending if self.state().await?.place.is_ended() => {
                    return value_or_failure(&name, job(), "s", None, &store.codecs).map(Some);
                }
                NodeState::Pending | NodeState::Open => return Ok(None),
                _ => {}
            }
            let read = async |conn: &mut _| nodes::values(conn, keys, instance, asked).await;
            let kept = store.read(response_time(NODE_LIMIT), read).await?.pop().flatten();
            // A new run replaces the value. So the value belongs to this state only if the state did not change during the read.
            let now = state_of().await?;
            if now == before {
                return value_or_failure(&name, job(), &now, kept, &store.codecs).map(Some);
            }
            before = now;
        }
    }

    /// Waits until the instance has ended, and returns its output. It has no timeout; see [`result_within`](WorkflowHandle::result_within).
    ///
    /// # Errors
    /// - [`Error::WorkflowFailed`] with the node that failed it, [`Error::WorkflowCancelled`] with the reason.
    /// - [`Error::WorkflowNotFound`] if it was never started.
    /// - [`Error::Codec`] if the output is not a `T`.
    /// - [`Error::Connect`] if waiting does not help, for example after a wrong password, or if the server closes the
    ///   connection each time it sends the output.
    /// - What every call may return, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn result(&self) -> Result<T, Error>
    where
        T: DeserializeOwned,
    {
        let _noted = NotedWait::begin();
        tokio::select! {
            ended = self.ended() => ended,
            never = self.log_late() => never,
        }
    }

    /// Logs the state of the instance once, since a node that waits may have no worker.
    async fn log_late(&self) -> Result<T, Error> {
        tokio::time::sleep(LATE).await;
        let state = self.state().await.map_or("unknown", |state| state.place.as_str());
        tracing::info!(workflow = self.workflow(), id = %self.id, state, prefix = self.shared.store.prefix(),
            "still waiting for the result; a node starts only if a worker with this prefix has its task");
        std::future::pending().await
    }

    async fn ended(&self) -> Result<T, Error>
    where
        T: DeserializeOwned,
    {
        let mut pauses = Pauses::new(FIRST_LOOK, LAST_LOOK);
        loop {
            match self.state().await {
                Ok(state) => match state.place {
                    WorkflowState::Running | WorkflowState::Paused => {}
                    WorkflowState::Completed => match self.output(state).await {
                        Ok(output) => return self.answer(&output),
                        Err(Unread::Failed(e)) if e.is_outage() => {}
                        Err(Unread::Failed(e) | Unread::TooLarge(e)) => return Err(e),
                    },
                    WorkflowState::Failed => return Err(self.failure(state).await),
                    WorkflowState::Cancelled => {
                        let reason = String::from_utf8_lossy(&state.answer).into_owned();
                        let (workflow, id) = (self.workflow().to_owned(), self.id.to_string());
                        return Err(Error::WorkflowCancelled { workflow, id, reason });
                    }
                },
                Err(e) if e.is_outage() => {}
                Err(e) => return Err(e),
            }
            tokio::time::sleep(pauses.next()).await;
        }
    }

    /// Like [`result`](WorkflowHandle::result), but waits at most for `time`. The instance continues.
    ///
    /// # Errors
    /// [`Error::WorkflowTimedOut`] if it has not ended by then; else as [`result`](WorkflowHandle::result).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn result_within(&self, time: Duration) -> Result<T, Error>
    where
        T: DeserializeOwned,
    {
        tokio::time::timeout(time, self.result()).await.unwrap_or_else(|_| {
            let (workflow, id) = (self.workflow().to_owned(), self.id.to_string());
            Err(Error::WorkflowTimedOut { workflow, id, after: time })
        })
    }

    /// Cancels the instance. Nodes that have not opened never run, waiting jobs are cancelled, and running handlers are asked to stop.
    /// The instance ends when its last handler has ended. A second cancel changes nothing. The reason is cut to 4 KiB.
    ///
    /// # Errors
    /// - [`Error::WorkflowNotFound`] if it was never started.
    /// - [`Error::NotReplicated`] if fewer replicas have the cancel than its [`durability`](Cancel::durability)
    ///   requires. It is recorded anyway.
    /// - What every call may return, see [`Error`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the cancel may have been recorded or not. It is safe to repeat. Workers carry out a recorded cancel.
    pub fn cancel(&self, reason: impl Into<String>) -> Cancel<'_, WorkflowState> {
        let reason = reason.into();
        let cancel = move |durability| async move { self.cancel_now(cut(&reason, MESSAGE_LIMIT), durability).await };
        Cancel::new(self.shared.options.durability, cancel)
    }

    async fn cancel_now(&self, reason: &str, durability: Durability) -> Result<WorkflowState, Error> {
        let WorkflowShared { keys, store, progress, .. } = &*self.shared;
        let call_deadline =
            CallDeadline::new(store.dispatch_timeout, Instant::now(), reason.len()).and(durability.time());
        let found = |controlled: &Controlled| !matches!(controlled, Controlled::Unknown);
        let cancel = || {
            let cancel = |mut conn| async move { control::cancel(&mut conn, keys, &self.id, reason).await };
            ask_copied(store, keys, durability, response_time(reason.len()), found, cancel)
        };
        let (controlled, copied) = repeated(call_deadline, cancel).await?;
        let state = match controlled {
            Controlled::Unknown => Err(self.not_found()),
            Controlled::Ended(place, _) => Ok(place),
            Controlled::Stopping(run) => {
                if let Err(e) = progress.cancel_open(keys, &self.id, run).await {
                    tracing::debug!(workflow = self.workflow(), id = %self.id, error = %e.chain(),
                        "not all nodes of a workflow could be cancelled; workers will retry");
                }
                Ok(self.state().await?.place)
            }
        }?;
        copied.map(|()| state)
    }

    /// Pauses the instance: no node opens until the instance is resumed. Sent jobs continue, and their ends are recorded. A graph that
    /// already runs as a node continues to its own end. To stop that too, cancel the instance. Tools show the reason, which is cut to
    /// 4 KiB and may be empty.
    ///
    /// # Errors
    /// [`Error::WorkflowNotFound`] if it was never started, and what every call may return, see [`Error`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the instance may be paused or not. It is safe to repeat.
    pub async fn pause(&self, reason: impl AsRef<str>) -> Result<WorkflowState, Error> {
        let reason = cut(reason.as_ref(), MESSAGE_LIMIT);
        let why = serde_json::json!({ "by": &*self.by, "reason": reason }).to_string();
        self.turned(WorkflowState::Running, &TurnAsked::Pause { by: &self.by, why: &why }).await
    }

    /// Resumes a paused instance. If one of its nodes has failed, nodes that do not depend on it still run, and the
    /// instance then ends as failed.
    ///
    /// # Errors
    /// As [`pause`](WorkflowHandle::pause).
    ///
    /// # Cancel safety
    /// If the future is dropped, the instance may be resumed or not. It is safe to repeat. Workers continue a resumed instance.
    pub async fn resume(&self) -> Result<WorkflowState, Error> {
        self.turned(WorkflowState::Paused, &TurnAsked::Resume { by: &self.by }).await
    }

    /// Pauses or resumes the instance if it is in state `from`. Returns its state afterwards.
    async fn turned(&self, from: WorkflowState, asked: &TurnAsked<'_>) -> Result<WorkflowState, Error> {
        let WorkflowShared { keys, store, progress, .. } = &*self.shared;
        loop {
            let seen = self.state().await?;
            if seen.place != from {
                return Ok(seen.place);
            }
            let turn = |mut conn| async move { control::turn(&mut conn, keys, &self.id, seen.turn, asked).await };
            match store.ask(RESPONSE_TIMEOUT, turn).await? {
                Turned::Unknown => return Err(self.not_found()),
                Turned::Resumed(run) => {
                    self.opened(progress.open(keys, &self.id, run).await);
                    return Ok(self.state().await?.place);
                }
                // An instance that is stopping keeps its state until it has ended.
                Turned::Changed if self.state().await?.turn == seen.turn => return Ok(seen.place),
                Turned::Changed => {}
                Turned::Paused | Turned::Ended => return Ok(self.state().await?.place),
            }
        }
    }

    /// Runs all incomplete nodes again, in an instance that failed, was cancelled or is paused. Completed nodes stay as they are. The new
    /// runs are new jobs. If all nodes had completed when the instance was stopped, it completes.
    ///
    /// # Errors
    /// - [`Error::WorkflowBusy`] while some of its nodes are open, since their handlers may run. Wait, or cancel the instance.
    /// - [`Error::WorkflowNotFound`] if it was never started, [`Error::Codec`] if its graph is lost, and what every call may return, see
    ///   [`Error`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the new run may have begun or not. It is safe to repeat: a running instance is not changed. If a new
    /// run of a large graph has begun only in part, workers complete it.
    pub async fn retry_failed(&self) -> Result<WorkflowState, Error> {
        let WorkflowShared { keys, progress, .. } = &*self.shared;
        match progress.retry(keys, &self.id, false).await? {
            Retried::Begun(opened) => {
                self.opened(opened);
                Ok(WorkflowState::Running)
            }
            Retried::Unchanged(place) => Ok(place),
            Retried::Busy(open) => {
                let (workflow, id) = (self.workflow().to_owned(), self.id.to_string());
                Err(Error::WorkflowBusy { workflow, id, open })
            }
            Retried::Unknown => Err(self.not_found()),
        }
    }

    /// Retries the instance if it has failed and was not retried since. Otherwise returns its state.
    pub(crate) async fn retry_if_failed(&self) -> Result<Option<WorkflowState>, Error> {
        let place = self.state().await?.place;
        if place != WorkflowState::Failed {
            return Ok(Some(place));
        }
        Ok(Some(self.retry_failed().await?).filter(|state| *state != WorkflowState::Running))
    }

    fn opened(&self, opened: Result<(), Error>) {
        if let Err(e) = opened {
            tracing::debug!(workflow = self.workflow(), id = %self.id, error = %e.chain(),
                "not all nodes of a workflow could be opened; workers will retry");
        }
    }

    async fn state(&self) -> Result<FlowState, Error> {
        self.shared.progress.state(&self.shared.keys, &self.id).await?.ok_or_else(|| self.not_found())
    }

    /// The output of a completed instance. A large one is read separately.
    async fn output(&self, state: FlowState) -> Result<Vec<u8>, Unread> {
        let Some(bytes) = state.large_output else { return Ok(state.answer) };
        let place = ValuePlace { column: Key::Output, field: self.id.to_string(), bytes };
        let output = self.shared.progress.large_value(&self.shared.keys, &place).await?;
        output.ok_or_else(|| Unread::Failed(self.not_found()))
    }

    fn answer(&self, stored: &[u8]) -> Result<T, Error>
    where
        T: DeserializeOwned,
    {
        let stored = if stored.is_empty() { b"null" } else { stored };
        let what = || format!("the output of the instance {} of the workflow {}", self.id, self.workflow());
        read_value(stored, &self.shared.store.codecs, what)
    }

    async fn failure(&self, state: FlowState) -> Error {
        let (workflow, id) = (self.workflow().to_owned(), self.id.to_string());
        let WorkflowShared { keys, progress, .. } = &*self.shared;
        let shape = progress.shape(keys, &self.id, &state.digest).await.ok().flatten();
        let name = |node: u32| {
            let of_shape = shape.as_ref().and_then(|shape| shape.nodes.get(node as usize));
            of_shape.map(|node| node.name.clone()).unwrap_or_default()
        };
        let stopped =
            (!state.answer.is_empty()).then(|| StoredError::from_json(&String::from_utf8_lossy(&state.answer)));
        let (node, error) = match (state.broken_by, stopped) {
            // It was stopped by its deadline, or because its data could not be read.
            (Some((node, said)), Some(stopped)) if !said.is_empty() => {
                (None, stopped.after(&name(node), &StoredError::from_json(&said)))
            }
            (_, Some(stopped)) => (None, stopped),
            (Some((node, said)), None) if said.is_empty() => {
                let message = "its output node did not run".to_owned();
                (Some(node), StoredError { code: codes::SKIPPED.to_owned(), message })
            }
            (Some((node, said)), None) => (Some(node), StoredError::from_json(&said)),
            (None, None) => (None, StoredError::from_json("")),
        };
        let failure = Box::new(Failure::new(self.job(node.unwrap_or(0), state.run), error, 0, 0));
        Error::WorkflowFailed { workflow, id, node: node.map(name).unwrap_or_default(), failure }
    }

    /// The id of the job of a node in this run.
    fn job(&self, node: u32, run: u64) -> JobId {
        NodeId { definition: self.workflow().to_owned(), instance: self.id.to_string(), node, run }.job_id()
    }

    fn not_found(&self) -> Error {
        Error::WorkflowNotFound { workflow: self.workflow().to_owned(), id: self.id.to_string() }
    }
}

impl<T> Clone for WorkflowHandle<T> {
    fn clone(&self) -> WorkflowHandle<T> {
        let (shared, id) = (Arc::clone(&self.shared), Arc::clone(&self.id));
        WorkflowHandle { shared, id, existed: self.existed, by: Arc::clone(&self.by), answers: PhantomData }
    }
}

impl<T> fmt::Debug for WorkflowHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowHandle")
            .field("workflow", &self.workflow())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// An instance of a workflow at the time of the call, from [`WorkflowHandle::status`]. Its JSON leaves out the headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkflowStatus<T> {
    /// Its state.
    pub state: WorkflowState,
    /// How many of its nodes have not ended.
    pub unfinished: u64,
    /// How many of these are open: sent, or about to be sent.
    pub open: u64,
    /// The headers of its start.
    #[serde(skip)]
    pub headers: BTreeMap<String, String>,
    /// Its output. `None` unless it completed.
    pub result: Option<T>,
    /// Why it failed: the failure of a node, or the code `timeout`. A cancelled instance has the code `cancelled`, and the reason as message.
    pub failure: Option<Failure>,
    /// The node of that failure, whose job is [`Failure::id`]. `None` after a cancel or a deadline: that id then means nothing.
    pub failed_node: Option<String>,
    /// Its nodes, in the order in which the graph made them. Empty if the graph was lost.
    pub nodes: Vec<NodeStatus>,
}

/// A node of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The task of its job; `None` if the node is a graph.
    pub task: Option<String>,
    /// Its state.
    pub state: NodeState,
    /// Its job in the current run of the instance. `None` if the node did not open, is a graph, or may have completed in an earlier run.
    pub job: Option<JobId>,
}
