//! What moves workflows. Every step may be repeated by anybody at any time: what was done before is not done again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use serde_json::value::RawValue;

use super::options::{OnFailure, OwnOptions};
use super::shape::records;
use super::starter::Starter;

use crate::error::Error;
use crate::job::failure::{StoredError, codes};
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::job::shape::{ChildGraph, Shape};
use crate::job::state::JobState;
use crate::limits::{BATCH, BATCH_BYTES, ENDS, NODE_BATCH, NODE_LIMIT};
use crate::options::modes::Durability;
use crate::store::cancel;
use crate::store::declare::{WIRE_OF_NODES, check_wire};
use crate::store::dispatch::NewJob;
use crate::store::ended::{ended, ended_at};
use crate::store::engine::Store;
use crate::store::fleet::named;
use crate::store::flow_advance::{self, Advanced, EndedNode, NodeEnd};
use crate::store::flow_audit;
use crate::store::flow_control::{self, Controlled};
use crate::store::flow_list;
use crate::store::flow_look;
use crate::store::flow_nodes;
use crate::store::flow_open;
use crate::store::flow_resend;
use crate::store::flow_retry::{self, Again};
use crate::store::flow_stage;
use crate::store::flow_start::{GRAPH, NewInstance, NodePayload, Started, ToSend};
use crate::store::flow_state::{self, FlowPlace, FlowState};
use crate::store::flow_trim;
use crate::store::flow_visit;
use crate::store::keys::{Key, TaskKeys};
use crate::store::patience::{RESPONSE_TIMEOUT, response_time};
use crate::store::remove;
use crate::store::states;
use crate::store::tables::Tables;
use crate::store::told::{Named, Told};
use crate::store::values;
use crate::task::dispatcher::Dispatcher;
use crate::times::ms_of;

/// With so many tasks the dispatchers of those are forgotten to which nothing is being sent.
const MANY: usize = 1000;

/// What [`Mover::tally`] counts.
const TOLD: usize = 0;
const SENT: usize = 1;
const SYNTHESISED: usize = 2;

/// How many graphs are started at a time.
const GRAPHS: usize = 16;

/// What was not moved for so long is compared with its jobs.
const UNMOVED: Duration = Duration::from_secs(60);

/// To a task that could not be reached nothing is sent for so long: it is left to a look, and holds up no others.
const AWAY: Duration = Duration::from_secs(5);

/// A job that ended so long before its instance began is of an earlier one: none is removed sooner behind its end, and clocks differ.
const STALE: Duration = Duration::from_secs(2);

/// How often a new run is written anew whose nodes have completed meanwhile.
const MOVES: usize = 100;

/// How many rounds one look makes at the most: the next one goes on.
const ROUNDS: usize = 50;

/// A node that ended, and the table in whose outbox that stands.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) node: EndedNode,
    /// None where it never was a job.
    pub(crate) table: Option<Arc<TaskKeys>>,
}

/// What became of a new run of an instance.
#[derive(Debug)]
pub(crate) enum Retried {
    /// It runs; what came of opening what is ready, which workers go on with.
    Begun(Result<(), Error>),
    /// It stands here, and is let be.
    Stands(FlowPlace),
    /// So many nodes are open: handlers of them may run.
    Busy(u64),
    Unknown,
}

/// Moves workflows, in behalf of whoever starts them and of workers.
pub(crate) struct Mover {
    store: Arc<Store>,
    dispatchers: Mutex<HashMap<String, Arc<Dispatcher>>>,
    /// Tasks whose workers know of workflows.
    known: Mutex<HashSet<String>>,
    /// Tasks that could not be reached, and when.
    away: Mutex<HashMap<String, Instant>>,
    /// Nodes of which workflows were told, that were sent, and that ended without a word.
    tally: [AtomicU64; 3],
}

impl Mover {
    pub(crate) fn new(store: Arc<Store>) -> Mover {
        Mover {
            store,
            dispatchers: Mutex::default(),
            known: Mutex::default(),
            away: Mutex::default(),
            tally: Default::default(),
        }
    }

    /// Of how many nodes workflows were told by this, how many were sent, and how many ended without a word of their jobs.
    pub(crate) fn tally(&self) -> [u64; 3] {
        self.tally.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn count(&self, what: usize, nodes: usize) {
        self.tally[what].fetch_add(nodes as u64, Ordering::Relaxed);
    }

    /// Sees to it that whoever works these tasks knows of workflows.
    ///
    /// # Errors
    /// `Unsupported` while a live worker of one of them does not.
    pub(crate) async fn know(&self, tasks: &[String]) -> Result<(), Error> {
        for task in tasks {
            if self.known().contains(task) {
                continue;
            }
            let keys = self.store.tables(task).first();
            let (written, _) = self.store.shared(RESPONSE_TIMEOUT, async |conn| check_wire(conn, &keys).await).await?;
            if written < WIRE_OF_NODES {
                let older = self.store.older_workers(task, WIRE_OF_NODES).await?;
                if !older.is_empty() {
                    let what =
                        format!("the jobs of workflows need, of the task {task}, {}", named(&older, WIRE_OF_NODES));
                    return Err(Error::Unsupported { what });
                }
            }
            self.known().insert(task.clone());
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatcher(&self, task: &str) -> Arc<Dispatcher> {
        let mut known = self.dispatchers.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MANY {
            known.retain(|_, dispatcher| Arc::strong_count(dispatcher) > 1);
        }
        let new = || Arc::new(Dispatcher::new(Arc::clone(&self.store), self.store.tables(task), None));
        Arc::clone(known.entry(task.to_owned()).or_insert_with(new))
    }

    fn away(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a workflow of the nodes that ended, all of them its own. What follows from it is for [`Mover::follow`].
    pub(crate) async fn tell(&self, keys: &TaskKeys, ended: &[Ended]) -> Result<Advanced, Error> {
        let nodes: Vec<EndedNode> = ended.iter().map(|ended| ended.node.clone()).collect();
        let bytes = nodes.iter().map(|node| node.said.len()).sum();
        let tell = async |conn: &mut _| flow_advance::advance(conn, keys, &nodes).await;
        let advanced = self.store.shared(response_time(bytes), tell).await?;
        self.count(TOLD, nodes.len());
        Ok(advanced)
    }

    /// Takes the nodes of which a workflow was told off the outboxes of their tasks, and sends what opened.
    pub(crate) async fn follow(&self, keys: &TaskKeys, ended: &[Ended], advanced: Advanced) -> Result<(), Error> {
        let ((), went_on) = tokio::join!(self.told(ended), self.go_on(keys, advanced));
        went_on
    }

    /// Both.
    async fn advance(&self, keys: &TaskKeys, ended: &[Ended]) -> Result<(), Error> {
        for some in ended.chunks(ENDS) {
            let advanced = self.tell(keys, some).await?;
            self.follow(keys, some, advanced).await?;
        }
        Ok(())
    }

    /// Sends what opened, visits what was left to be visited, and cancels what is open of instances that stop.
    pub(crate) async fn go_on(&self, keys: &TaskKeys, advanced: Advanced) -> Result<(), Error> {
        self.send(keys, advanced.sends).await;
        let mut entries = VecDeque::from(advanced.entries);
        while let Some(entry) = entries.pop_front() {
            let Some(mark) = entry.strip_prefix("v ") else {
                // It stays in the outbox, and holds up no others: the node of a task may be away.
                if let Err(e) = Box::pin(self.carry_out(keys, &entry)).await {
                    tracing::debug!(workflow = keys.task(), entry, error = %e.chain(), "a step of a workflow is tried again");
                }
                continue;
            };
            let visit = async |conn: &mut _| flow_visit::visit(conn, keys, mark).await;
            let Advanced { entries: more, sends } = self.store.shared(RESPONSE_TIMEOUT, visit).await?;
            entries.extend(more);
            self.send(keys, sends).await;
        }
        Ok(())
    }

    /// The outboxes of tasks: what could not be taken off is told again.
    async fn told(&self, ended: &[Ended]) {
        let mut tables: Vec<(&Arc<TaskKeys>, Vec<String>)> = Vec::new();
        for Ended { node, table } in ended {
            let Some(table) = table else { continue };
            let id = node.id.job_id().to_string();
            match tables.iter_mut().find(|(known, _)| Arc::ptr_eq(known, table)) {
                Some((_, ids)) => ids.push(id),
                None => tables.push((table, vec![id])),
            }
        }
        let takes = tables.into_iter().map(|(table, ids)| async move {
            let take = async |conn: &mut _| flow_look::done(conn, table, &ids).await;
            if let Err(e) = self.store.shared(RESPONSE_TIMEOUT, take).await {
                tracing::debug!(task = table.task(), error = %e.chain(), "a workflow is told of ended jobs again");
            }
        });
        join_all(takes).await;
    }

    /// Sends the nodes. What cannot be sent stays in the outbox of the workflow, for a later look.
    pub(crate) async fn send(&self, keys: &TaskKeys, sends: Vec<ToSend>) {
        let mut by_task: BTreeMap<String, Vec<ToSend>> = BTreeMap::new();
        let mut graphs = Vec::new();
        for node in sends {
            if node.task == GRAPH {
                graphs.push(node);
            } else {
                by_task.entry(node.task.clone()).or_default().push(node);
            }
        }
        join_all(by_task.into_iter().map(|(task, nodes)| self.send_to(keys, task, nodes))).await;
        for some in graphs.chunks(GRAPHS) {
            join_all(some.iter().map(|node| self.start_child(keys, node))).await;
        }
    }

    /// Starts the graph that a node is. What cannot be started is left to a look.
    async fn start_child(&self, keys: &TaskKeys, node: &ToSend) {
        let entry = [send_entry(&node.id)];
        let settled = match self.begin_child(keys, node).await {
            Ok(()) => {
                let take = async |conn: &mut _| flow_look::done(conn, keys, &entry).await;
                self.store.shared(RESPONSE_TIMEOUT, take).await
            }
            Err(e) => {
                tracing::warn!(workflow = keys.task(), id = node.id.child(), error = %e.chain(),
                    "a graph in a workflow could not be started; it is tried again");
                let off = async |conn: &mut _| flow_look::put_off(conn, keys, &entry, ms_of(SystemTime::now())).await;
                self.store.shared(RESPONSE_TIMEOUT, off).await
            }
        };
        if let Err(e) = settled {
            tracing::debug!(workflow = keys.task(), error = %e.chain(), "a graph in a workflow is started again");
        }
    }

    async fn begin_child(&self, keys: &TaskKeys, node: &ToSend) -> Result<(), Error> {
        let json = self.payload_of(keys, node).await?;
        let mut read = serde_json::from_slice::<ChildGraph>(&json);
        // A graph that a job returned knows nothing of the policy of its instance. Children are not paused.
        if let Ok(child) = read.as_mut()
            && node.own == OnFailure::Cancel.as_str()
        {
            child.shape.on_failure.clone_from(&node.own);
        }
        let Ok((shape, ChildGraph { inputs, .. })) =
            read.and_then(|child| Ok((records(&child.shape).map_err(serde::de::Error::custom)?, child)))
        else {
            let message = "the graph cannot be read".to_owned();
            let said = StoredError { code: codes::CORRUPT.to_owned(), message }.to_json().into_bytes();
            let node = EndedNode { id: node.id.clone(), end: NodeEnd::GraphFailed, said };
            return Box::pin(self.advance(keys, &[Ended { node, table: None }])).await;
        };
        self.know(&shape.tasks).await?;
        let (id, bytes) = (node.id.child(), |input: Box<RawValue>| String::from(Box::<str>::from(input)).into_bytes());
        let inputs: Vec<(u32, Vec<u8>)> = inputs.into_iter().map(|(node, input)| (node, bytes(input))).collect();
        let instance = NewInstance {
            id: &id,
            shape: &shape,
            inputs: &inputs,
            delay: Duration::from_millis(node.wait_ms),
            deadline: None,
        };
        match (Starter { store: &self.store, keys, instance: &instance }).start(None).await? {
            Started::Now(sends) => {
                Box::pin(self.send(keys, sends)).await;
                Ok(())
            }
            Started::InParts => Box::pin(self.open(keys, &id, 1)).await,
            // Somebody else has started it, or nothing waits for it.
            _ => Ok(()),
        }
    }

    async fn send_to(&self, keys: &TaskKeys, task: String, nodes: Vec<ToSend>) {
        for some in nodes.chunks(BATCH) {
            let entries: Vec<String> = some.iter().map(|node| send_entry(&node.id)).collect();
            let since = self.away().get(&task).copied();
            let sent = async {
                if since.is_some_and(|since| since.elapsed() < AWAY) {
                    return Err(Error::timed_out());
                }
                let mut jobs = Vec::with_capacity(some.len());
                for node in some {
                    jobs.push(self.job_of(keys, node).await?);
                }
                let existed = self.dispatcher(&task).dispatch_many(jobs, Durability::Memory).await?;
                let there = some.iter().zip(existed).filter_map(|(node, existed)| existed.then_some(node));
                self.replace_stale(keys, &task, there.collect()).await
            };
            let settled = match sent.await {
                Ok(()) => {
                    self.count(SENT, some.len());
                    let take = async |conn: &mut _| flow_look::done(conn, keys, &entries).await;
                    self.store.shared(RESPONSE_TIMEOUT, take).await
                }
                Err(e) => {
                    self.could_not_send(keys, &task, some.len(), &e);
                    let off =
                        async |conn: &mut _| flow_look::put_off(conn, keys, &entries, ms_of(SystemTime::now())).await;
                    self.store.shared(RESPONSE_TIMEOUT, off).await
                }
            };
            if let Err(e) = settled {
                tracing::debug!(workflow = keys.task(), error = %e.chain(), "nodes of a workflow are sent again");
            }
        }
    }

    /// Sends these nodes anew, of those that are there, whose jobs are of an earlier instance of the same id, which is gone: they had ended before this
    /// one began, and their workflow was told.
    async fn replace_stale(&self, keys: &TaskKeys, task: &str, there: Vec<&ToSend>) -> Result<(), Error> {
        let sends: HashMap<NodeId, &ToSend> = there.into_iter().map(|node| (node.id.clone(), node)).collect();
        for (table, nodes) in by_table(&self.store.tables(task), sends.keys().cloned().collect()) {
            let stale = nodes.iter().zip(self.stale(keys, &table, &nodes).await?);
            let (stale, mut left): (Vec<&ToSend>, Vec<Named>) = stale
                .filter_map(|(node, ended)| Some((*sends.get(node)?, ended?)))
                // Only while it is the one that was looked at: somebody else may have sent it anew meanwhile.
                .map(|(node, ended)| (node, Named { id: node.id.job_id(), stamp: ended.to_string() }))
                .unzip();
            while !left.is_empty() {
                let call = async |conn: &mut _| remove::remove(conn, &table, &left, "").await;
                let told = self.store.shared(response_time(BATCH_BYTES), call).await?;
                let again = left.into_iter().zip(told).filter(|(_, told)| *told == Told::Left);
                left = again.map(|(job, _)| job).collect();
            }
            if stale.is_empty() {
                continue;
            }
            let mut jobs = Vec::with_capacity(stale.len());
            for node in stale {
                jobs.push(self.job_of(keys, node).await?);
            }
            self.dispatcher(task).dispatch_many(jobs, Durability::Memory).await?;
        }
        Ok(())
    }

    /// Of those of these nodes whose jobs are of an earlier instance of the same id, which is gone: when they ended. They had ended before this one began,
    /// and their workflow was told.
    async fn stale(&self, keys: &TaskKeys, table: &TaskKeys, nodes: &[NodeId]) -> Result<Vec<Option<u64>>, Error> {
        let instances: BTreeSet<&str> = nodes.iter().map(|node| &*node.instance).collect();
        let instances: Vec<&str> = instances.into_iter().collect();
        let begins = async |conn: &mut _| flow_nodes::begins(conn, keys, &instances).await;
        let begins = self.store.shared(RESPONSE_TIMEOUT, begins).await?;
        let begins: HashMap<&str, u64> =
            instances.iter().zip(begins).filter_map(|(instance, at)| Some((*instance, at?))).collect();
        let ids: Vec<JobId> = nodes.iter().map(NodeId::job_id).collect();
        let ended = async |conn: &mut _| ended_at(conn, table, &ids).await;
        let ended = self.store.shared(RESPONSE_TIMEOUT, ended).await?;
        let told = async |conn: &mut _| flow_look::among(conn, table, &ids).await;
        let untold = self.store.shared(RESPONSE_TIMEOUT, told).await?;
        let looked = nodes.iter().zip(untold).zip(ended);
        let stale = looked.map(|((node, is_untold), ended)| {
            let begins = begins.get(&*node.instance)?;
            ended.filter(|ended| !is_untold && ended + STALE.as_millis() as u64 <= *begins)
        });
        Ok(stale.collect())
    }

    fn could_not_send(&self, keys: &TaskKeys, task: &str, nodes: usize, e: &Error) {
        let source = if let Error::Partial { source, .. } = e { source } else { e };
        // Of a task with partitions the others are there.
        if source.is_outage() && self.store.tables(task).parts() == 1 {
            let mut away = self.away();
            away.retain(|_, since| since.elapsed() < AWAY);
            if away.contains_key(task) {
                return;
            }
            away.insert(task.to_owned(), Instant::now());
        }
        tracing::warn!(workflow = keys.task(), %task, nodes, error = %e.chain(),
            "nodes of a workflow could not be sent; it is tried again");
    }

    async fn payload_of(&self, keys: &TaskKeys, node: &ToSend) -> Result<Vec<u8>, Error> {
        match &node.payload {
            NodePayload::Here(payload) => Ok(payload.clone()),
            NodePayload::Apart(column, field) => {
                let (keys, column, field) = (self.store.workflow(keys.task()), *column, field.clone());
                let read = move |mut conn| async move { values::value(&mut conn, &keys, column, &field).await };
                let found = self.store.read_apart(response_time(BATCH_BYTES * 4), read).await?;
                Ok(found.unwrap_or_else(|| b"null".to_vec()))
            }
        }
    }

    async fn job_of(&self, keys: &TaskKeys, node: &ToSend) -> Result<NewJob, Error> {
        let payload = self.payload_of(keys, node).await?;
        // What is no JSON somebody has written by hand.
        let OwnOptions { priority, mut overrides } = serde_json::from_str(&node.own).unwrap_or_default();
        if node.wait_ms > 0 {
            overrides.delay = Some(overrides.delay.unwrap_or_default() + Duration::from_millis(node.wait_ms));
        }
        Ok(NewJob {
            id: node.id.job_id(),
            payload,
            priority,
            overrides,
            expires_after: None,
            dispatched_at_ms: Some(ms_of(SystemTime::now())),
        })
    }

    /// Lets what did not complete of an instance run once more; `begun`: only where somebody has begun that, and went no further.
    pub(crate) async fn retry(&self, keys: &TaskKeys, instance: &str, begun: bool) -> Result<Retried, Error> {
        let mut moved = 0;
        loop {
            let Some(seen) = self.state(keys, instance).await? else { return Ok(Retried::Unknown) };
            let is_let_be = matches!(seen.place, FlowPlace::Running | FlowPlace::Completed);
            if is_let_be || begun && !seen.is_stopping {
                return Ok(Retried::Stands(seen.place));
            }
            let Some(shape) = self.shape(keys, instance, &seen.digest).await? else { return Ok(Retried::Unknown) };
            let Some((_, states)) = self.node_states(keys, instance, shape.nodes.len()).await? else {
                return Ok(Retried::Unknown);
            };
            match self.again(keys, instance, &shape.states_again(&states), seen.turn).await? {
                // Of a shape that somebody wrote by hand that may be so for ever.
                Again::Moved if moved == MOVES => return Ok(Retried::Stands(seen.place)),
                Again::Part | Again::Moved => moved += 1,
                Again::Run(run) => return Ok(Retried::Begun(self.open(keys, instance, run).await)),
                Again::Busy(open) => return Ok(Retried::Busy(open)),
                Again::Unknown => return Ok(Retried::Unknown),
                Again::Changed => match self.state(keys, instance).await? {
                    None => return Ok(Retried::Unknown),
                    Some(now) if now.turn == seen.turn => return Ok(Retried::Stands(seen.place)),
                    Some(_) => {}
                },
            }
        }
    }

    /// Writes these states of nodes, in parts.
    async fn again(
        &self,
        keys: &TaskKeys,
        instance: &str,
        states: &[(u32, String)],
        turn: u64,
    ) -> Result<Again, Error> {
        let mut done = 0;
        loop {
            let some = &states[done..states.len().min(done + NODE_BATCH)];
            done += some.len();
            let last = (done == states.len()).then_some(done);
            let retry = |mut conn| async move { flow_retry::retry(&mut conn, keys, instance, turn, some, last).await };
            match self.store.ask(RESPONSE_TIMEOUT, retry).await? {
                Again::Part if last.is_none() => {}
                answer => return Ok(answer),
            }
        }
    }

    async fn state(&self, keys: &TaskKeys, instance: &str) -> Result<Option<FlowState>, Error> {
        let look = |mut conn| async move { flow_state::state(&mut conn, keys, instance).await };
        self.store.ask(response_time(BATCH_BYTES), look).await
    }

    /// In which run an instance is, and the states of so many nodes, in pages of 500; `None` of one that is not there.
    pub(super) async fn node_states(
        &self,
        keys: &TaskKeys,
        instance: &str,
        count: usize,
    ) -> Result<Option<(u64, Vec<String>)>, Error> {
        let (mut run, mut states) = (0, Vec::with_capacity(count));
        while states.len() < count {
            let from = states.len() as u32;
            let page = |mut conn| async move { flow_nodes::nodes(&mut conn, keys, instance, from).await };
            let Some(page) = self.store.ask(RESPONSE_TIMEOUT, page).await? else { return Ok(None) };
            if page.states.is_empty() {
                break;
            }
            run = page.run;
            states.extend(page.states);
        }
        Ok(Some((run, states)))
    }

    /// The shape of this digest, which the instance has; `None` where it is not there.
    pub(super) async fn shape(&self, keys: &TaskKeys, instance: &str, digest: &str) -> Result<Option<Shape>, Error> {
        let read = |mut conn| async move { flow_nodes::shape(&mut conn, keys, digest).await };
        let Some(found) = self.store.ask(response_time(BATCH_BYTES), read).await? else { return Ok(None) };
        serde_json::from_slice(&found).map(Some).map_err(|source| unreadable(keys.task(), instance, source))
    }

    /// Cancels what is open of an instance that stops. A job that never was, or was ended by this, is told as cancelled at once.
    pub(crate) async fn cancel_open(&self, keys: &TaskKeys, instance: &str, run: u64) -> Result<(), Error> {
        for (task, nodes) in self.open_nodes(keys, instance).await? {
            // Of another run, where somebody let it run once more.
            let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| node.run == run).collect();
            if task == GRAPH {
                for node in nodes {
                    Box::pin(self.cancel_child(keys, node)).await?;
                }
            } else {
                self.cancel_of(keys, &task, nodes).await?;
            }
        }
        Ok(())
    }

    /// Cancels what a node runs as. One that never was is told as cancelled at once.
    async fn cancel_child(&self, keys: &TaskKeys, node: NodeId) -> Result<(), Error> {
        let child = node.child();
        let cancel = async |conn: &mut _| flow_control::cancel(conn, keys, &child, REASON).await;
        match self.store.shared(RESPONSE_TIMEOUT, cancel).await? {
            Controlled::Stopping(run) => self.cancel_open(keys, &child, run).await,
            Controlled::Ended(_, follows) => self.go_on(keys, follows).await,
            Controlled::Unknown => {
                let said = cancelled().into_bytes();
                let node = EndedNode { id: node, end: NodeEnd::GraphCancelled, said };
                self.advance(keys, &[Ended { node, table: None }]).await
            }
        }
    }

    /// The open nodes of an instance, by their tasks; those that are graphs under [`GRAPH`].
    async fn open_nodes(&self, keys: &TaskKeys, instance: &str) -> Result<BTreeMap<String, Vec<NodeId>>, Error> {
        let (mut open, mut from): (BTreeMap<String, Vec<NodeId>>, u32) = (BTreeMap::new(), 0);
        let state = async |conn: &mut _| flow_state::state(conn, keys, instance).await;
        let Some(state) = self.store.shared(RESPONSE_TIMEOUT, state).await? else { return Ok(open) };
        let read = async |conn: &mut _| flow_nodes::shape(conn, keys, &state.digest).await;
        let shape = self.store.shared(response_time(BATCH_BYTES), read).await?;
        let shape: Option<Shape> = shape.and_then(|json| serde_json::from_slice(&json).ok());
        loop {
            let page = async |conn: &mut _| flow_nodes::nodes(conn, keys, instance, from).await;
            let Some(page) = self.store.shared(RESPONSE_TIMEOUT, page).await? else { return Ok(open) };
            for (node, state) in (from..).zip(&page.states).filter(|(_, state)| state.starts_with(['o', 'g'])) {
                let known = shape.as_ref().and_then(|shape| shape.nodes.get(node as usize));
                let task = known.map_or_else(String::new, |node| node.task.clone());
                let task = if state.starts_with('g') { GRAPH.to_owned() } else { task };
                let (definition, instance) = (keys.task().to_owned(), instance.to_owned());
                open.entry(task).or_default().push(NodeId { definition, instance, node, run: page.run });
            }
            from += flow_nodes::NODE_PAGE;
            if from >= page.count {
                return Ok(open);
            }
        }
    }

    /// Cancels jobs of one task.
    async fn cancel_of(&self, keys: &TaskKeys, task: &str, nodes: Vec<NodeId>) -> Result<(), Error> {
        let said = cancelled();
        let tables = self.store.tables(task);
        tables.asked(&self.store).await?;
        for (table, nodes) in by_table(&tables, nodes) {
            for some in nodes.chunks(BATCH) {
                let named: Vec<Named> = some.iter().map(|node| Named::anywhere(node.job_id())).collect();
                let call = async |conn: &mut _| cancel::cancel(conn, &table, &named, REASON, "").await;
                let told = self.store.shared(RESPONSE_TIMEOUT, call).await?;
                // One that was never sent: what is there in its stead is of an earlier instance.
                let has_ended = told.iter().any(|told| matches!(told, Told::Stands(state) if state.is_terminal()));
                let stale = if has_ended { self.stale(keys, &table, some).await? } else { vec![None; some.len()] };
                let ended: Vec<Ended> = some
                    .iter()
                    .zip(told)
                    .zip(stale)
                    .filter(|((_, told), stale)| matches!(told, Told::Done | Told::Unknown) || stale.is_some())
                    .map(|((id, told), _)| Ended {
                        node: EndedNode { id: id.clone(), end: NodeEnd::Cancelled, said: said.clone().into_bytes() },
                        table: (told == Told::Done).then(|| Arc::clone(&table)),
                    })
                    .collect();
                if !ended.is_empty() {
                    self.advance(keys, &ended).await?;
                }
            }
        }
        Ok(())
    }

    /// Looks after a workflow at once, and compares all of its instances with their jobs.
    pub(crate) async fn recover(&self, name: &str) -> Result<(), Error> {
        let (began, keys) = (Instant::now(), self.store.workflow(name));
        // Before anything is moved: what was moved since this began is let be.
        while self.audit(&keys, began.elapsed()).await? {}
        self.look(name, Duration::ZERO).await?;
        self.store.shared(RESPONSE_TIMEOUT, async |conn: &mut _| self.store.looked_after(conn, name).await).await
    }

    /// Looks after a workflow: does what is older than the grace and was not done, whoever was to do it.
    pub(crate) async fn look(&self, name: &str, grace: Duration) -> Result<(), Error> {
        let keys = self.store.workflow(name);
        for _ in 0..ROUNDS {
            let look = async |conn: &mut _| flow_look::look(conn, &keys, grace).await;
            let found = self.store.shared(response_time(BATCH_BYTES), look).await?;
            let has_found = !found.entries.is_empty() || !found.sends.is_empty();
            self.send(&keys, found.sends).await;
            for entry in found.entries {
                if let Err(e) = self.carry_out(&keys, &entry).await {
                    tracing::debug!(workflow = name, entry, error = %e.chain(), "a step of a workflow is tried again");
                    let off = async |conn: &mut _| {
                        flow_look::put_off(conn, &keys, std::slice::from_ref(&entry), ms_of(SystemTime::now())).await
                    };
                    self.store.shared(RESPONSE_TIMEOUT, off).await?;
                }
            }
            if !found.more || !has_found {
                break;
            }
        }
        let tasks = async |conn: &mut _| flow_look::tasks(conn, &keys).await;
        let tasks = self.store.shared(RESPONSE_TIMEOUT, tasks).await?;
        // Each on its own: the node of one may be away.
        let looks = tasks.iter().map(|task| async move {
            if let Err(e) = self.look_at_task(task, grace).await {
                tracing::debug!(task, error = %e.chain(), "the ended jobs of workflows are looked for again");
            }
        });
        join_all(looks).await;
        self.audit(&keys, UNMOVED).await?;
        let unstage = async |conn: &mut _| flow_stage::unstage(conn, &keys, None).await;
        for _ in 0..ROUNDS {
            if !self.store.shared(RESPONSE_TIMEOUT, unstage).await? {
                break;
            }
        }
        self.trim(&keys).await
    }

    /// Compares instances that were not moved for so long with the jobs of their nodes: what a server lost is sent again, and what ended without a
    /// word is told. Returns whether there may be more of them.
    async fn audit(&self, keys: &TaskKeys, unmoved: Duration) -> Result<bool, Error> {
        let take = async |conn: &mut _| flow_audit::audit(conn, keys, unmoved).await;
        let (instances, more) = self.store.shared(RESPONSE_TIMEOUT, take).await?;
        for instance in instances {
            if let Err(e) = self.audit_instance(keys, &instance).await {
                tracing::debug!(workflow = keys.task(), instance, error = %e.chain(), "an instance is audited later");
            }
        }
        Ok(more)
    }

    async fn audit_instance(&self, keys: &TaskKeys, instance: &str) -> Result<(), Error> {
        // A server may have lost that its handlers were asked to stop.
        if let Some(state) = self.state(keys, instance).await?
            && state.is_stopping
            && state.place == FlowPlace::Running
        {
            // The node of one task may be away: the others are compared all the same.
            if let Err(e) = self.cancel_open(keys, instance, state.run).await {
                tracing::debug!(workflow = keys.task(), instance, error = %e.chain(), "what is open is cancelled later");
            }
        }
        for (task, nodes) in self.open_nodes(keys, instance).await? {
            if task == GRAPH {
                for some in nodes.chunks(BATCH) {
                    self.audit_children(keys, some).await?;
                }
                continue;
            }
            let tables = self.store.tables(&task);
            tables.asked(&self.store).await?;
            for (table, nodes) in by_table(&tables, nodes) {
                for some in nodes.chunks(BATCH) {
                    self.audit_nodes(keys, &table, some).await?;
                }
            }
        }
        Ok(())
    }

    /// Open nodes that are graphs.
    async fn audit_children(&self, keys: &TaskKeys, nodes: &[NodeId]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for node in nodes {
            let child = node.child();
            let look = async |conn: &mut _| flow_state::state(conn, keys, &child).await;
            let state = self.store.shared(response_time(BATCH_BYTES), look).await?;
            let is_there = state.is_some_and(|state| matches!(state.place, FlowPlace::Running | FlowPlace::Paused));
            if !is_there {
                missing.push(node.clone());
            }
        }
        for node in self.send_again(keys, GRAPH, &missing).await? {
            let node = EndedNode { id: node, end: NodeEnd::GraphFailed, said: not_available() };
            self.advance(keys, &[Ended { node, table: None }]).await?;
        }
        Ok(())
    }

    /// Sends nodes again that are not there. Returns those that were sent often enough.
    async fn send_again(&self, keys: &TaskKeys, task: &str, missing: &[NodeId]) -> Result<Vec<NodeId>, Error> {
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let again = async |conn: &mut _| flow_resend::resend(conn, keys, missing).await;
        let (sends, lost) = self.store.shared(response_time(BATCH_BYTES), again).await?;
        tracing::info!(
            workflow = keys.task(),
            task,
            sent = sends.len(),
            lost = lost.len(),
            "jobs of a workflow are not there; they are sent again"
        );
        self.send(keys, sends).await;
        self.count(SYNTHESISED, lost.len());
        let is_lost = |node: &&NodeId| lost.contains(&format!("{}/{}/{}", node.instance, node.node, node.run));
        Ok(missing.iter().filter(is_lost).cloned().collect())
    }

    /// Open nodes whose jobs are of one table.
    async fn audit_nodes(&self, keys: &TaskKeys, table: &Arc<TaskKeys>, nodes: &[NodeId]) -> Result<(), Error> {
        let ids: Vec<JobId> = nodes.iter().map(NodeId::job_id).collect();
        // Before their states: what is to be sent is for whoever sends it, since a job that is there may be of an earlier instance.
        let entries: Vec<String> = nodes.iter().map(send_entry).collect();
        let to_send = async |conn: &mut _| flow_list::in_outbox(conn, keys, &entries).await;
        let to_send = self.store.shared(RESPONSE_TIMEOUT, to_send).await?;
        let look = async |conn: &mut _| states::states(conn, table, &ids).await;
        let looked = self.store.shared(RESPONSE_TIMEOUT, look).await?.jobs;
        let told = async |conn: &mut _| flow_look::among(conn, table, &ids).await;
        let to_be_told = self.store.shared(RESPONSE_TIMEOUT, told).await?;
        let has_ended = looked.iter().flatten().any(|(state, _)| state.is_terminal());
        let stale = if has_ended { self.stale(keys, table, nodes).await? } else { vec![None; nodes.len()] };
        let (mut unknown, mut ended) = (Vec::new(), Vec::new());
        let looked = nodes.iter().zip(looked).zip(to_be_told).zip(to_send).zip(stale);
        for ((((node, job), is_told_of), to_send), stale) in looked {
            match job {
                _ if to_send.is_some() => {}
                // What is there in its stead is of an earlier instance, and is replaced by what is sent.
                _ if stale.is_some() => unknown.push(node.clone()),
                None => unknown.push(node.clone()),
                Some((state, _)) if state.is_terminal() && !is_told_of => ended.push((node.clone(), state)),
                Some(_) => {}
            }
        }
        let lost = self.send_again(keys, table.task(), &unknown).await?;
        ended.extend(lost.into_iter().map(|node| (node, JobState::Failed)));
        for (node, state) in ended {
            let said = self.said(table, &node.job_id(), state).await?;
            let end = match state {
                JobState::Completed => NodeEnd::Completed,
                JobState::Cancelled => NodeEnd::Cancelled,
                _ => NodeEnd::Failed,
            };
            self.advance(keys, &[Ended { node: EndedNode { id: node, end, said }, table: None }]).await?;
        }
        Ok(())
    }

    /// What is kept of how a job ended.
    async fn said(&self, table: &Arc<TaskKeys>, id: &JobId, state: JobState) -> Result<Vec<u8>, Error> {
        let column = if state == JobState::Completed { Key::Result } else { Key::Error };
        let (keys, id) = (Arc::clone(table), id.to_string());
        let read = move |mut conn| async move { values::value(&mut conn, &keys, column, &id).await };
        let found = self.store.read_apart(response_time(NODE_LIMIT), read).await?;
        // Nothing is what a handler without a value has.
        Ok(found.unwrap_or_else(|| if state == JobState::Completed { Vec::new() } else { not_available() }))
    }

    /// Removes instances that ended long ago.
    async fn trim(&self, keys: &TaskKeys) -> Result<(), Error> {
        let kept = async |conn: &mut _| flow_trim::kept(conn, keys).await;
        let Some(limit) = self.store.shared(RESPONSE_TIMEOUT, kept).await? else { return Ok(()) };
        for place in [Key::Completed, Key::Failed, Key::Cancelled] {
            for _ in 0..ROUNDS {
                let trim = async |conn: &mut _| flow_trim::trim(conn, keys, place, limit).await;
                let (_, more) = self.store.shared(RESPONSE_TIMEOUT, trim).await?;
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Opens what is ready of an instance, and sends it.
    pub(crate) async fn open(&self, keys: &TaskKeys, instance: &str, run: u64) -> Result<(), Error> {
        loop {
            let open = async |conn: &mut _| flow_open::open(conn, keys, instance, run).await;
            let (follows, more) = self.store.shared(response_time(BATCH_BYTES), open).await?;
            self.go_on(keys, follows).await?;
            if !more {
                return Ok(());
            }
        }
    }

    async fn carry_out(&self, keys: &TaskKeys, entry: &str) -> Result<(), Error> {
        let (kind, named) = entry.split_once(' ').unwrap_or((entry, ""));
        let instance = named.rsplit_once('/').and_then(|(instance, run)| Some((instance, run.parse::<u64>().ok()?)));
        match (kind, instance) {
            // These take their entry off themselves.
            ("v", _) => {
                let entries = vec![entry.to_owned()];
                return self.go_on(keys, Advanced { entries, sends: Vec::new() }).await;
            }
            ("o", Some((instance, run))) => return self.open(keys, instance, run).await,
            ("r", Some((instance, _))) => {
                self.retry(keys, instance, true).await?;
            }
            ("x", Some((instance, run))) => self.cancel_open(keys, instance, run).await?,
            _ => {}
        }
        let entry = [entry.to_owned()];
        let take = async |conn: &mut _| flow_look::done(conn, keys, &entry).await;
        self.store.shared(RESPONSE_TIMEOUT, take).await
    }

    /// Tells workflows of the jobs of a task that ended longer ago than the grace.
    async fn look_at_task(&self, task: &str, grace: Duration) -> Result<(), Error> {
        let tables = self.store.tables(task).asked(&self.store).await?;
        for table in tables.iter() {
            self.look_at(table, grace).await?;
        }
        Ok(())
    }

    /// The same of one table.
    pub(crate) async fn look_at(&self, table: &Arc<TaskKeys>, grace: Duration) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let look = async |conn: &mut _| ended(conn, table, grace).await;
            let (found, strange, more) = self.store.shared(response_time(BATCH_BYTES), look).await?;
            let is_empty = found.is_empty() && strange.is_empty();
            let mut by_workflow: BTreeMap<String, Vec<Ended>> = BTreeMap::new();
            for node in found {
                let ended = Ended { table: Some(Arc::clone(table)), node };
                by_workflow.entry(ended.node.id.definition.clone()).or_default().push(ended);
            }
            for (name, ended) in by_workflow {
                let keys = self.store.workflow(&name);
                if let Err(e) = self.advance(&keys, &ended).await {
                    tracing::debug!(workflow = name, error = %e.chain(), "a workflow is told of ended jobs again");
                    let ids: Vec<String> = ended.iter().map(|ended| ended.node.id.job_id().to_string()).collect();
                    let off =
                        async |conn: &mut _| flow_look::put_off(conn, table, &ids, ms_of(SystemTime::now())).await;
                    self.store.shared(RESPONSE_TIMEOUT, off).await?;
                }
            }
            let strange: Vec<&str> = strange.iter().map(JobId::as_str).collect();
            let take = async |conn: &mut _| flow_look::done(conn, table, &strange).await;
            self.store.shared(RESPONSE_TIMEOUT, take).await?;
            if !more || is_empty {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What is stored of an instance cannot be read.
pub(super) fn unreadable(workflow: &str, instance: &str, source: serde_json::Error) -> Error {
    Error::Codec { what: format!("what is stored of the instance {instance} of the workflow {workflow}"), source }
}

/// Why nodes of an instance are cancelled that stops.
const REASON: &str = "its workflow was stopped";

/// What such a node has said.
fn cancelled() -> String {
    StoredError { code: "cancelled".to_owned(), message: REASON.to_owned() }.to_json()
}

/// What a node has said whose job, or child, is not there.
fn not_available() -> Vec<u8> {
    let message = "its job, or what became of it, is not there any more".to_owned();
    StoredError { code: "result_not_available".to_owned(), message }.to_json().into_bytes()
}

/// The nodes by the tables of their jobs.
fn by_table(tables: &Tables, nodes: Vec<NodeId>) -> Vec<(Arc<TaskKeys>, Vec<NodeId>)> {
    let mut found: Vec<(Arc<TaskKeys>, Vec<NodeId>)> = Vec::new();
    for node in nodes {
        let table = tables.of(node.job_id().as_str());
        match found.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &table)) {
            Some((_, nodes)) => nodes.push(node),
            None => found.push((table, vec![node])),
        }
    }
    found
}

/// How the outbox of a workflow names a node that is to be sent.
pub(crate) fn send_entry(id: &NodeId) -> String {
    format!("s {}/{}/{}", id.instance, id.node, id.run)
}
