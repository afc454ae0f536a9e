//! Turns opened nodes into jobs of their tasks, or into instances of their own.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde_json::value::RawValue;

use super::{Ended, SENT, WorkflowProgress};
use crate::backend::dispatch::NewJob;
use crate::backend::keys::TaskKeys;
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::values;
use crate::backend::workflow::advance::{EndedNode, NodeEnd};
use crate::backend::workflow::outbox;
use crate::backend::workflow::start::{GRAPH, NewInstance, NodePayload, Started, ToSend};
use crate::error::Error;
use crate::job::failure::{StoredError, codes};
use crate::job::node_id::NodeId;
use crate::job::shape::ChildGraph;
use crate::limits::{BATCH, BATCH_BYTES};
use crate::options::modes::Durability;
use crate::unix_time::ms_of;
use crate::workflow::options::{OnFailure, OwnOptions};
use crate::workflow::shape::records;
use crate::workflow::starter::Starter;

/// How many graphs start at a time.
const GRAPHS: usize = 16;

impl WorkflowProgress {
    /// Sends the nodes. A node that cannot be sent stays in the outbox of the workflow until a later look.
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

    async fn send_to(&self, keys: &TaskKeys, task: String, nodes: Vec<ToSend>) {
        for some in nodes.chunks(BATCH) {
            let entries: Vec<String> = some.iter().map(|node| send_entry(&node.id)).collect();
            let sent = async {
                if self.is_unreachable(&task) {
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
                    self.was_sent(keys, &task);
                    let take = async |conn: &mut _| outbox::done(conn, keys, &entries).await;
                    self.store.shared(RESPONSE_TIMEOUT, take).await
                }
                Err(e) => {
                    self.could_not_send(keys, &task, some.len(), &e);
                    let off = async |conn: &mut _| outbox::put_off(conn, keys, &entries).await;
                    self.store.shared(RESPONSE_TIMEOUT, off).await
                }
            };
            if let Err(e) = settled {
                tracing::debug!(workflow = keys.task(), error = %e.chain(), "nodes of a workflow could not be sent; they stay in the outbox");
            }
        }
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

    pub(super) async fn job_of(&self, keys: &TaskKeys, node: &ToSend) -> Result<NewJob, Error> {
        let payload = self.payload_of(keys, node).await?;
        // Options that are not JSON were written by hand: use none.
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

    fn could_not_send(&self, keys: &TaskKeys, task: &str, nodes: usize, e: &Error) {
        let source = if let Error::Partial { source, .. } = e { source } else { e };
        // If the task has partitions, others may be reachable.
        if source.is_outage() && self.store.tables(task).parts() == 1 && !self.went_away(task) {
            return;
        }
        if self.unsent().insert((keys.task().to_owned(), task.to_owned())) {
            tracing::warn!(workflow = keys.task(), %task, nodes, error = %e.chain(),
                "nodes of a workflow could not be sent; will retry");
        }
    }

    /// Starts the graph of a node. If that fails, a later look tries again.
    async fn start_child(&self, keys: &TaskKeys, node: &ToSend) {
        let entry = [send_entry(&node.id)];
        let settled = match self.begin_child(keys, node).await {
            Ok(()) => {
                self.was_sent(keys, GRAPH);
                let take = async |conn: &mut _| outbox::done(conn, keys, &entry).await;
                self.store.shared(RESPONSE_TIMEOUT, take).await
            }
            Err(e) => {
                if self.unsent().insert((keys.task().to_owned(), GRAPH.to_owned())) {
                    tracing::warn!(workflow = keys.task(), id = node.id.child(), error = %e.chain(),
                        "a subgraph of a workflow could not be started; will retry");
                }
                let off = async |conn: &mut _| outbox::put_off(conn, keys, &entry).await;
                self.store.shared(RESPONSE_TIMEOUT, off).await
            }
        };
        if let Err(e) = settled {
            tracing::debug!(workflow = keys.task(), error = %e.chain(), "a subgraph of a workflow could not be started; will retry");
        }
    }

    async fn begin_child(&self, keys: &TaskKeys, node: &ToSend) -> Result<(), Error> {
        let json = self.payload_of(keys, node).await?;
        let mut read = serde_json::from_slice::<ChildGraph>(&json);
        // A graph that a handler returned does not contain the failure policy of its instance. Nested graphs do not
        // pause.
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
        let (id, bytes) = (node.id.child(), |input: Box<RawValue>| String::from(Box::<str>::from(input)).into_bytes());
        let inputs: Vec<(u32, Vec<u8>)> = inputs.into_iter().map(|(node, input)| (node, bytes(input))).collect();
        let instance = NewInstance {
            id: &id,
            shape: &shape,
            inputs: &inputs,
            delay: Duration::from_millis(node.wait_ms),
            deadline: None,
        };
        let starter = Starter { store: &self.store, keys, instance: &instance, durability: Durability::Memory };
        match starter.start(None).await?.0 {
            Started::Now(sends) => {
                Box::pin(self.send(keys, sends)).await;
                Ok(())
            }
            Started::InParts => Box::pin(self.open(keys, &id, 1)).await,
            // Another process has started it, or no node waits for it.
            _ => Ok(()),
        }
    }
}

/// The entry of a node to send, in the outbox of its workflow.
pub(crate) fn send_entry(id: &NodeId) -> String {
    format!("s {}/{}/{}", id.instance, id.node, id.run)
}
