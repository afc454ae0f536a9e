//! What is open of an instance that stops: its jobs, and the instances that are nodes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::stale::by_table;
use super::{Ended, Mover};
use crate::error::Error;
use crate::job::failure::StoredError;
use crate::job::node_id::NodeId;
use crate::job::shape::Shape;
use crate::limits::{BATCH, BATCH_BYTES};
use crate::store::cancel;
use crate::store::flow_advance::{EndedNode, NodeEnd};
use crate::store::flow_control::{self, Controlled};
use crate::store::flow_nodes;
use crate::store::flow_start::GRAPH;
use crate::store::flow_state;
use crate::store::keys::{Key, TaskKeys};
use crate::store::patience::{RESPONSE_TIMEOUT, response_time};
use crate::store::told::{Named, Told};

/// Why nodes of an instance are cancelled that stops.
const REASON: &str = "its workflow was stopped";

impl Mover {
    /// Cancels what is open of an instance that stops. A job that never was, or was ended by this, is told as cancelled at once.
    pub(crate) async fn cancel_open(&self, keys: &TaskKeys, instance: &str, run: u64) -> Result<(), Error> {
        let mut done = Ok(());
        for (task, nodes) in self.open_nodes(keys, instance).await? {
            // Of another run, where somebody let it run once more.
            let nodes: Vec<NodeId> = nodes.into_iter().filter(|node| node.run == run).collect();
            // The node of one task may be away: the others are cancelled all the same.
            if task == GRAPH {
                for node in nodes {
                    done = done.and(Box::pin(self.cancel_child(keys, node)).await);
                }
            } else {
                done = done.and(self.cancel_of(keys, &task, nodes).await);
            }
        }
        done
    }

    /// The open nodes of an instance, by their tasks; those that are graphs under [`GRAPH`].
    pub(super) async fn open_nodes(
        &self,
        keys: &TaskKeys,
        instance: &str,
    ) -> Result<BTreeMap<String, Vec<NodeId>>, Error> {
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
        let call = async |conn: &mut _| cancel::cancel(conn, table, &named, REASON, "").await;
        let told = self.store.shared(RESPONSE_TIMEOUT, call).await?;
        // One that was never sent: what is there in its stead is of an earlier instance.
        let has_ended = told.iter().any(|told| matches!(told, Told::Stands(state) if state.is_terminal()));
        let stale = if has_ended { self.stale(keys, table, nodes).await? } else { vec![None; nodes.len()] };
        let said = cancelled().into_bytes();
        let ended: Vec<Ended> = nodes
            .iter()
            .zip(told)
            .zip(stale)
            .filter(|((_, told), stale)| matches!(told, Told::Done | Told::Unknown) || stale.is_some())
            .map(|((id, told), _)| Ended {
                node: EndedNode { id: id.clone(), end: NodeEnd::Cancelled, said: said.clone() },
                table: (told == Told::Done).then(|| Arc::clone(table)),
            })
            .collect();
        if ended.is_empty() { Ok(()) } else { self.advance(keys, &ended).await }
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
}

/// What such a node has said.
fn cancelled() -> String {
    StoredError { code: "cancelled".to_owned(), message: REASON.to_owned() }.to_json()
}
