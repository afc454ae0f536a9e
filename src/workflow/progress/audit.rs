//! Compares instances with the jobs of their nodes. Sends lost jobs again, and repeats lost reports of ended nodes.

use std::sync::Arc;
use std::time::Duration;

use super::send::send_entry;
use super::stale::by_table;
use super::{PLACED, SYNTHESISED, WorkflowProgress};
use crate::backend::audit::scan;
use crate::backend::jobs;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::timeouts::response_time;
use crate::backend::values::ValuePlace;
use crate::backend::workflow::advance::{Ended, EndedNode, NodeEnd};
use crate::backend::workflow::instances;
use crate::backend::workflow::outbox;
use crate::backend::workflow::start::GRAPH;
use crate::backend::workflow::upkeep;
use crate::error::Error;
use crate::job::failure::{StoredError, codes};
use crate::job::id::JobId;
use crate::job::instance::WorkflowState;
use crate::job::node_id::NodeId;
use crate::job::state::JobState;
use crate::limits::{BATCH, BATCH_BYTES, NODE_LIMIT};

impl WorkflowProgress {
    /// Pauses instances without a state, if there are any. The server lost their state, so it is unknown whether they had ended.
    pub(super) async fn place_lost(&self, keys: &TaskKeys) -> Result<(), Error> {
        if self.store.call(async |conn| instances::sizes(conn, keys).await).await?.in_no_set == 0 {
            return Ok(());
        }
        let mut cursor = 0;
        loop {
            let page = async |conn: &mut _| scan(conn, keys, Key::Instances, cursor, BATCH as u64).await;
            let (next, instances) = self.store.shared(response_time(BATCH_BYTES), page).await?;
            for some in instances.chunks(BATCH) {
                self.count(PLACED, self.store.call(async |conn| upkeep::place(conn, keys, some).await).await? as usize);
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Compares instances that did not advance for this long with the jobs of their nodes. Sends lost jobs again, and
    /// repeats lost reports. Returns whether there may be more.
    pub(super) async fn audit(&self, keys: &TaskKeys, unmoved: Duration) -> Result<bool, Error> {
        let (instances, more) = self.store.call(async |conn| upkeep::audit(conn, keys, unmoved).await).await?;
        for instance in instances {
            if let Err(e) = self.audit_instance(keys, &instance).await {
                tracing::debug!(workflow = keys.task(), instance, error = %e.chain(), "the audit of an instance failed; will retry");
            }
        }
        Ok(more)
    }

    pub(super) async fn audit_instance(&self, keys: &TaskKeys, instance: &str) -> Result<(), Error> {
        // The server may have lost the requests to cancel the open jobs, so make them again.
        if let Some(state) = self.state(keys, instance).await?
            && state.is_stopping
            && state.place == WorkflowState::Running
            && let Err(e) = self.cancel_open(keys, instance, state.run).await
        {
            tracing::debug!(workflow = keys.task(), instance, error = %e.chain(), "open nodes of an instance could not be cancelled; will retry");
        }
        let (open, damaged) = self.open_nodes(keys, instance).await?;
        let mut done = self.end_damaged(keys, damaged.into_values().flatten()).await;
        for (task, nodes) in open {
            // The node of one task may be unreachable; still compare the others.
            done = done.and(self.audit_task(keys, &task, nodes).await);
        }
        done
    }

    /// Audits the open nodes of one task.
    async fn audit_task(&self, keys: &TaskKeys, task: &str, nodes: Vec<NodeId>) -> Result<(), Error> {
        if task == GRAPH {
            for some in nodes.chunks(BATCH) {
                self.audit_children(keys, some).await?;
            }
            return Ok(());
        }
        let tables = self.store.tables(task);
        self.unless_away(task, tables.asked(&self.store)).await?;
        let mut done = Ok(());
        for (table, nodes) in by_table(&tables, nodes) {
            for some in nodes.chunks(BATCH) {
                done = done.and(self.unless_away(table.get(Key::Outbox), self.audit_nodes(keys, &table, some)).await);
            }
        }
        done
    }

    /// Audits open nodes whose jobs are in one table.
    pub(super) async fn audit_nodes(
        &self,
        keys: &TaskKeys,
        table: &Arc<TaskKeys>,
        nodes: &[NodeId],
    ) -> Result<(), Error> {
        let ids: Vec<JobId> = nodes.iter().map(NodeId::job_id).collect();
        // Read the outbox before the states. Skip nodes still to be sent, since an existing job may be of an earlier instance.
        let entries: Vec<String> = nodes.iter().map(send_entry).collect();
        let to_send = self.store.call(async |conn| outbox::in_outbox(conn, keys, &entries).await).await?;
        let looked = self.store.call(async |conn| jobs::states(conn, table, &ids).await).await?.jobs;
        let to_be_told = self.store.call(async |conn| outbox::among(conn, table, &ids).await).await?;
        let has_ended = looked.iter().flatten().any(|(state, _)| state.is_terminal());
        let stale = if has_ended { self.stale(keys, table, nodes).await? } else { vec![None; nodes.len()] };
        let (mut unknown, mut ended) = (Vec::new(), Vec::new());
        let looked = nodes.iter().zip(looked).zip(to_be_told).zip(to_send).zip(stale);
        for ((((node, job), is_told_of), to_send), stale) in looked {
            match job {
                _ if to_send.is_some() => {}
                // The existing job is of an earlier instance. Sending the node replaces it.
                _ if stale.is_some() => unknown.push(node.clone()),
                None => unknown.push(node.clone()),
                Some((state, _)) if state.is_terminal() && !is_told_of => ended.push((node.clone(), state)),
                Some(_) => {}
            }
        }
        let lost = self.send_again(keys, table.task(), &unknown).await?;
        ended.extend(lost.into_iter().map(|node| (node, JobState::Failed)));
        for (node, state) in ended {
            let (column, end, without) = match state {
                // A handler without a value leaves no result.
                JobState::Completed => (Key::Result, NodeEnd::Completed, Vec::new()),
                JobState::Cancelled => (Key::Error, NodeEnd::Cancelled, not_available()),
                _ => (Key::Error, NodeEnd::Failed, not_available()),
            };
            let place = ValuePlace { column, field: node.job_id().to_string(), bytes: NODE_LIMIT };
            let ended = Ended { node: EndedNode { id: node, end, said: without }, table: None };
            let read = self.with_outcome(table, ended.clone(), &place).await?;
            self.advance(keys, &[read.unwrap_or(ended)]).await?;
        }
        Ok(())
    }

    /// Audits open nodes that are graphs.
    pub(super) async fn audit_children(&self, keys: &TaskKeys, nodes: &[NodeId]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for node in nodes {
            let child = node.child();
            let look = async |conn: &mut _| instances::state(conn, keys, &child).await;
            let state = self.store.shared(response_time(BATCH_BYTES), look).await?;
            let is_there =
                state.is_some_and(|state| matches!(state.place, WorkflowState::Running | WorkflowState::Paused));
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

    /// Sends nodes again whose jobs are missing. Returns those that have been sent too often.
    async fn send_again(&self, keys: &TaskKeys, task: &str, missing: &[NodeId]) -> Result<Vec<NodeId>, Error> {
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let again = async |conn: &mut _| outbox::resend(conn, keys, missing).await;
        let (sends, lost) = self.store.shared(response_time(BATCH_BYTES), again).await?;
        tracing::info!(
            workflow = keys.task(),
            task,
            sent = sends.len(),
            lost = lost.len(),
            "jobs of a workflow are missing; sending them again"
        );
        self.send(keys, sends).await;
        self.count(SYNTHESISED, lost.len());
        let is_lost = |node: &&NodeId| lost.contains(&format!("{}/{}/{}", node.instance, node.node, node.run));
        Ok(missing.iter().filter(is_lost).cloned().collect())
    }
}

/// The error of a node whose job or graph is lost.
fn not_available() -> Vec<u8> {
    let message = "its job or the outcome of the job is missing".to_owned();
    StoredError { code: codes::RESULT_NOT_AVAILABLE.to_owned(), message }.to_json().into_bytes()
}
