//! Cancels the open nodes of an instance that is stopping: its jobs, and the instances of nested graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::WorkflowProgress;
use super::stale::by_table;
use crate::backend::actions::{self, ActionReply, Named};
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::timeouts::response_time;
use crate::backend::workflow::advance::{Ended, EndedNode, NodeEnd};
use crate::backend::workflow::control::{self, Controlled};
use crate::backend::workflow::instances;
use crate::backend::workflow::nodes;
use crate::backend::workflow::start::GRAPH;
use crate::error::Error;
use crate::job::failure::{StoredError, codes};
use crate::job::node_id::NodeId;
use crate::job::shape::Shape;
use crate::limits::{BATCH, BATCH_BYTES};

/// Nodes by the tasks of their jobs.
type ByTask = BTreeMap<String, Vec<NodeId>>;

/// The reason with which nodes of a stopping instance are cancelled.
const REASON: &str = "its workflow was stopped";

impl WorkflowProgress {
    /// Cancels the open nodes of an instance that is stopping. If a job never existed, or this call ended it, its node is reported as
    /// cancelled at once.
    pub(crate) fn cancel_open<'a>(
        &'a self,
        keys: &'a TaskKeys,
        instance: &'a str,
        run: u64,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut done = Ok(());
            let (open, mut damaged) = self.open_nodes(keys, instance).await?;
            let graphs = damaged.remove(GRAPH).into_iter().flatten().filter(|node| node.run == run);
            done = done.and(self.end_damaged(keys, graphs).await);
            // Damaged nodes may have running jobs, which must be cancelled too.
            for (task, nodes) in open.into_iter().chain(damaged) {
                // Skip nodes of another run, after a retry.
                let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| node.run == run).collect();
                // The node of one task may be unreachable; still cancel the others.
                if task == GRAPH {
                    for node in nodes {
                        done = done.and(self.cancel_child(keys, node).await);
                    }
                } else {
                    done = done.and(self.cancel_of(keys, &task, nodes).await);
                }
            }
            done
        })
    }

    /// The open nodes of an instance by task, and the nodes whose state is invalid. Graphs are under [`GRAPH`].
    pub(super) async fn open_nodes(&self, keys: &TaskKeys, instance: &str) -> Result<(ByTask, ByTask), Error> {
        let (mut open, mut damaged, mut from) = (ByTask::new(), ByTask::new(), 0);
        let state = async |conn: &mut _| instances::state(conn, keys, instance).await;
        let Some(state) = self.store.call(state).await? else { return Ok((open, damaged)) };
        let read = async |conn: &mut _| nodes::shape(conn, keys, &state.digest).await;
        let shape = self.store.shared(response_time(BATCH_BYTES), read).await?;
        let shape: Option<Shape> = shape.and_then(|json| serde_json::from_slice(&json).ok());
        loop {
            let page = async |conn: &mut _| nodes::nodes(conn, keys, instance, from).await;
            let Some(page) = self.store.call(page).await? else { return Ok((open, damaged)) };
            for (node, state) in (from..).zip(&page.states) {
                let (definition, instance) = (keys.task().to_owned(), instance.to_owned());
                let id = NodeId { definition, instance, node, run: page.run };
                let known = shape.as_ref().and_then(|shape| shape.nodes.get(node as usize));
                let is_graph = state.starts_with('g') || known.is_some_and(|node| node.is_graph);
                let task = if is_graph { GRAPH } else { known.map_or("", |node| &node.task) };
                let nodes = match state.split_at_checked(1) {
                    Some(("o" | "g", times)) if times.bytes().all(|byte| byte.is_ascii_digit()) => &mut open,
                    Some(("c" | "f" | "s" | "x", "")) => continue,
                    Some(("p" | "P", waits)) if waits.bytes().all(|byte| byte == b' ' || byte.is_ascii_digit()) => {
                        continue;
                    }
                    _ => &mut damaged,
                };
                nodes.entry(task.to_owned()).or_default().push(id);
            }
            from += nodes::NODE_PAGE;
            if from >= page.count {
                return Ok((open, damaged));
            }
        }
    }

    /// Ends nodes whose state is invalid. The script picks the failure code.
    pub(super) async fn end_damaged(&self, keys: &TaskKeys, nodes: impl Iterator<Item = NodeId>) -> Result<(), Error> {
        let end = |id| Ended { node: EndedNode { id, end: NodeEnd::Failed, said: Vec::new() }, table: None };
        self.advance(keys, &nodes.map(end).collect::<Vec<Ended>>()).await
    }

    /// Cancels jobs of one task.
    async fn cancel_of(&self, keys: &TaskKeys, task: &str, nodes: Vec<NodeId>) -> Result<(), Error> {
        let tables = self.store.tables(task);
        self.unless_away(task, tables.asked(&self.store)).await?;
        let mut done = Ok(());
        for (table, nodes) in by_table(&tables, nodes) {
            for some in nodes.chunks(BATCH) {
                done = done.and(self.unless_away(table.get(Key::Outbox), self.cancel_at(keys, &table, some)).await);
            }
        }
        done
    }

    /// Cancels jobs of one table.
    async fn cancel_at(&self, keys: &TaskKeys, table: &Arc<TaskKeys>, nodes: &[NodeId]) -> Result<(), Error> {
        let named: Vec<Named> = nodes.iter().map(|node| Named::anywhere(node.job_id())).collect();
        let replies = self.store.call(async |conn| actions::cancel(conn, table, &named, REASON, "").await).await?;
        // If the node was never sent, the job here is of an earlier instance.
        let has_ended = replies.iter().any(|reply| matches!(reply, ActionReply::InState(state) if state.is_terminal()));
        let stale = if has_ended { self.stale(keys, table, nodes).await? } else { vec![None; nodes.len()] };
        let said = cancelled().into_bytes();
        let ended: Vec<Ended> = nodes
            .iter()
            .zip(replies)
            .zip(stale)
            .filter(|((_, reply), stale)| matches!(reply, ActionReply::Done | ActionReply::Unknown) || stale.is_some())
            .map(|((id, reply), _)| Ended {
                node: EndedNode { id: id.clone(), end: NodeEnd::Cancelled, said: said.clone() },
                table: (reply == ActionReply::Done).then(|| Arc::clone(table)),
            })
            .collect();
        if ended.is_empty() { Ok(()) } else { self.advance(keys, &ended).await }
    }

    /// Cancels the instance of a nested graph. One that never existed is reported as cancelled at once.
    async fn cancel_child(&self, keys: &TaskKeys, node: NodeId) -> Result<(), Error> {
        let child = node.child();
        match self.store.call(async |conn| control::cancel(conn, keys, &child, REASON).await).await? {
            Controlled::Stopping(run) => self.cancel_open(keys, &child, run).await,
            Controlled::Ended(_, follows) => self.take_next_steps(keys, follows).await,
            Controlled::Unknown => {
                let said = cancelled().into_bytes();
                let node = EndedNode { id: node, end: NodeEnd::GraphCancelled, said };
                self.advance(keys, &[Ended { node, table: None }]).await
            }
        }
    }
}

/// The error of a cancelled node.
fn cancelled() -> String {
    StoredError { code: codes::CANCELLED.to_owned(), message: REASON.to_owned() }.to_json()
}
