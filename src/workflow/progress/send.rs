//! Turns opened nodes into jobs of their tasks, or into instances of their own.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use super::{SENT, WorkflowProgress};
use crate::backend::dispatch::NewJob;
use crate::backend::keys::TaskKeys;
use crate::backend::large_value::Unread;
use crate::backend::narrow::unreadable;
use crate::backend::workflow::advance::{Ended, EndedNode, NodeEnd};
use crate::backend::workflow::outbox;
use crate::backend::workflow::start::{GRAPH, NewInstance, Started, ToSend};
use crate::error::Error;
use crate::job::child_graph;
use crate::job::failure::{StoredError, codes};
use crate::job::node_id::NodeId;
use crate::join::join_all;
use crate::limits::BATCH;
use crate::options::modes::Durability;
use crate::unix_time::ms_of;
use crate::workflow::options::{OnFailure, OwnOptions};
use crate::workflow::shape::records;
use crate::workflow::starter::Starter;

/// How many large inputs are read at a time. It takes some seconds to find that the server cannot send one.
const LARGE_INPUTS: usize = 8;

/// How many graphs start at a time.
const GRAPHS: usize = 16;

impl WorkflowProgress {
    /// Sends the nodes. A node that cannot be sent stays in the outbox of the workflow until a later look.
    pub(crate) async fn send(&self, keys: &TaskKeys, sends: Vec<ToSend>) {
        let is_large = |node: &ToSend| node.place.as_ref().is_some_and(|place| !place.is_small());
        let (large, mut small): (Vec<ToSend>, Vec<ToSend>) = sends.into_iter().partition(is_large);
        let read = self.read_inputs(keys, &mut small).await;
        let (unread, ready): (Vec<ToSend>, Vec<ToSend>) = small.into_iter().partition(|node| node.place.is_some());
        self.send_ready(keys, ready).await;
        if let Err(e) = read {
            self.not_read(keys, &unread, &e).await;
        }
        for some in large.chunks(LARGE_INPUTS) {
            join_all(some.iter().map(|node| self.send_large(keys, node))).await;
        }
    }

    /// Sends a node with a large input. If the server cannot send the input, the node fails, as a job would.
    async fn send_large(&self, keys: &TaskKeys, node: &ToSend) {
        let Some(place) = &node.place else { return };
        let failed = match self.large_value(keys, place).await {
            Ok(payload) => {
                let mut node = node.clone();
                node.is_read(payload);
                return self.send_ready(keys, vec![node]).await;
            }
            Err(Unread::Failed(e)) => Err(e),
            Err(Unread::TooLarge(e)) => {
                let NodeId { definition, instance, node: number, .. } = &node.id;
                tracing::warn!(workflow = definition, instance, node = number, bytes = place.bytes, error = %e.chain(),
                    "redis closes the connection each time it sends the input of a node, so the node fails; the client-output-buffer-limit of redis may be too small");
                self.fail(keys, node, codes::PAYLOAD_UNREADABLE, unreadable("payload", place.bytes, &e)).await
            }
        };
        if let Err(e) = failed {
            self.not_read(keys, std::slice::from_ref(node), &e).await;
        }
    }

    /// Postpones nodes whose inputs could not be read, so that they do not delay others.
    async fn not_read(&self, keys: &TaskKeys, nodes: &[ToSend], e: &Error) {
        tracing::debug!(workflow = keys.task(), nodes = nodes.len(), error = %e.chain(), "the inputs of nodes cannot be read; will retry");
        let entries: Vec<String> = nodes.iter().map(|node| send_entry(&node.id)).collect();
        for some in entries.chunks(BATCH) {
            self.clear(keys, some, false).await;
        }
    }

    /// Removes the entries of these nodes from the outbox of the workflow if they were sent. Otherwise postpones them.
    async fn clear(&self, keys: &TaskKeys, entries: &[String], are_sent: bool) {
        let cleared = if are_sent {
            self.store.call(async |conn| outbox::done(conn, keys, entries).await).await
        } else {
            self.store.call(async |conn| outbox::put_off(conn, keys, entries).await).await
        };
        if let Err(e) = cleared {
            tracing::debug!(workflow = keys.task(), are_sent, error = %e.chain(), "nodes of a workflow stay in the outbox");
        }
    }

    /// Ends a node that cannot be sent.
    async fn fail(&self, keys: &TaskKeys, node: &ToSend, code: &str, message: String) -> Result<(), Error> {
        let said = StoredError { code: code.to_owned(), message }.to_json().into_bytes();
        let end = if node.task == GRAPH { NodeEnd::GraphFailed } else { NodeEnd::Failed };
        let node = EndedNode { id: node.id.clone(), end, said };
        self.advance(keys, &[Ended { node, table: None }]).await
    }

    /// Sends nodes whose inputs were read.
    fn send_ready<'a>(&'a self, keys: &'a TaskKeys, sends: Vec<ToSend>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
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
        })
    }

    async fn send_to(&self, keys: &TaskKeys, task: String, nodes: Vec<ToSend>) {
        for some in nodes.chunks(BATCH) {
            let entries: Vec<String> = some.iter().map(|node| send_entry(&node.id)).collect();
            let sent = async {
                if self.is_unreachable(&task) {
                    return Err(Error::timed_out());
                }
                let jobs = some.iter().map(job_of).collect();
                let written = self.dispatcher(&task).dispatch_many(jobs, Durability::Memory).await?;
                let there = some.iter().zip(written).filter_map(|(node, (_, existed))| existed.then_some(node));
                self.replace_stale(keys, &task, there.collect()).await
            };
            let sent = sent.await;
            match &sent {
                Ok(()) => {
                    self.count(SENT, some.len());
                    self.was_sent(keys, &task);
                    if some.iter().any(|node| node.own.is_empty()) && self.store.tables(&task).parts() == 1 {
                        self.targets.remember(keys.task(), &task);
                    }
                }
                Err(e) => self.could_not_send(keys, &task, some.len(), e),
            }
            self.clear(keys, &entries, sent.is_ok()).await;
        }
    }

    fn could_not_send(&self, keys: &TaskKeys, task: &str, nodes: usize, e: &Error) {
        let source = if let Error::Partial { source, .. } = e { source } else { e };
        // If the task has partitions, its other partitions may be reachable.
        if source.is_outage() && self.store.tables(task).parts() == 1 && !self.went_away(task) {
            return;
        }
        if self.unsent.lock().insert((keys.task().to_owned(), task.to_owned())) {
            tracing::warn!(workflow = keys.task(), %task, nodes, error = %e.chain(),
                "nodes of a workflow could not be sent; will retry");
        }
    }

    /// Starts the graph of a node. If that fails, a later look tries again.
    async fn start_child(&self, keys: &TaskKeys, node: &ToSend) {
        let begun = self.begin_child(keys, node).await;
        match &begun {
            Ok(()) => self.was_sent(keys, GRAPH),
            Err(e) if self.unsent.lock().insert((keys.task().to_owned(), GRAPH.to_owned())) => {
                tracing::warn!(workflow = keys.task(), id = node.id.child(), error = %e.chain(),
                    "a subgraph of a workflow could not be started; will retry");
            }
            Err(_) => {}
        }
        self.clear(keys, &[send_entry(&node.id)], begun.is_ok()).await;
    }

    async fn begin_child(&self, keys: &TaskKeys, node: &ToSend) -> Result<(), Error> {
        let read = child_graph::read(&node.payload).and_then(|(mut shape, inputs)| {
            // A graph that a handler returned does not contain the failure policy of its instance. A nested graph does not pause.
            if node.own == OnFailure::Cancel.as_str() {
                shape.on_failure.clone_from(&node.own);
            }
            Some((records(&shape).ok()?, inputs))
        });
        let Some((shape, inputs)) = read else {
            return self.fail(keys, node, codes::CORRUPT, "the graph cannot be read".to_owned()).await;
        };
        let id = node.id.child();
        let instance = NewInstance {
            id: &id,
            shape: &shape,
            inputs: &inputs,
            delay: Duration::from_millis(node.wait_ms),
            deadline: None,
            headers: "",
        };
        let starter = Starter { store: &self.store, keys, instance: &instance, durability: Durability::Memory };
        match starter.start(None).await?.0 {
            Started::Now(sends) => {
                self.send(keys, sends).await;
                Ok(())
            }
            Started::InParts => self.open(keys, &id, 1).await,
            // Another process has started it, or no node waits for it.
            _ => Ok(()),
        }
    }
}

/// The job of a node whose input was read.
pub(super) fn job_of(node: &ToSend) -> NewJob {
    // Options that are not JSON were written by hand: use none.
    let OwnOptions { priority, mut overrides } = serde_json::from_str(&node.own).unwrap_or_default();
    if node.wait_ms > 0 {
        overrides.delay = Some(overrides.delay.unwrap_or_default() + Duration::from_millis(node.wait_ms));
    }
    NewJob {
        id: node.id.job_id(),
        payload: node.payload.clone(),
        priority,
        overrides,
        expires_after: None,
        dispatched_at_ms: Some(ms_of(SystemTime::now())),
        unique: None,
        key: None,
    }
}

/// The entry of a node to send, in the outbox of its workflow.
pub(crate) fn send_entry(id: &NodeId) -> String {
    format!("s {}/{}/{}", id.instance, id.node, id.run)
}
