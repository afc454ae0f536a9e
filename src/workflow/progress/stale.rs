//! Finds jobs that an earlier instance with the same id left. They must not count as jobs of this instance.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::WorkflowProgress;
use super::send::job_of;
use crate::backend::actions::{self, ActionReply, Named, SeenState};
use crate::backend::keys::TaskKeys;
use crate::backend::tables::Tables;
use crate::backend::timeouts::response_time;
use crate::backend::values::{dispatched_at, enqueued_at};
use crate::backend::workflow::nodes;
use crate::backend::workflow::outbox::{self, ended_at};
use crate::backend::workflow::start::ToSend;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::job::state::JobState;
use crate::limits::BATCH_BYTES;
use crate::options::modes::Durability;

/// A job that ended, or was dispatched, this long before its instance began belongs to an earlier instance. The time allows for
/// clocks that differ. It is short enough, since an ended instance is kept for longer.
const STALE: Duration = Duration::from_secs(2);

impl WorkflowProgress {
    /// Sends nodes again whose existing job belongs to an earlier instance with the same id. Such a job ended before this instance began,
    /// and was reported. Or it has waited since before that, because the server lost the earlier instance or a call came late.
    pub(super) async fn replace_stale(&self, keys: &TaskKeys, task: &str, there: Vec<&ToSend>) -> Result<(), Error> {
        let sends: HashMap<NodeId, &ToSend> = there.into_iter().map(|node| (node.id.clone(), node)).collect();
        for (table, nodes) in by_table(&self.store.tables(task), sends.keys().cloned().collect()) {
            let ended = self.stale(keys, &table, &nodes).await?;
            let waits = self.waits_too_long(keys, &table, &nodes).await?;
            let waiting = |ms| SeenState { state: Some(JobState::Waiting), dispatched_at_ms: Some(ms) };
            let (stale, mut left): (Vec<&ToSend>, Vec<Named>) = nodes
                .iter()
                .zip(ended.into_iter().zip(waits))
                // Remove only the job that was examined: another process may have sent a new one.
                .filter_map(|(node, (ended, waits))| {
                    let (node, id) = (*sends.get(node)?, node.job_id());
                    let ended = ended.map(|ended| Named { id: id.clone(), stamp: ended.to_string() });
                    Some((node, ended.or_else(|| Some(Named::if_unchanged(id, waiting(waits?))))?))
                })
                .unzip();
            while !left.is_empty() {
                let call = async |conn: &mut _| actions::remove(conn, &table, &left, "").await;
                let replies = self.store.shared(response_time(BATCH_BYTES), call).await?;
                let again = left.into_iter().zip(replies).filter(|(_, reply)| *reply == ActionReply::Left);
                left = again.map(|(job, _)| job).collect();
            }
            if stale.is_empty() {
                continue;
            }
            let jobs = stale.into_iter().map(job_of).collect();
            self.dispatcher(task).dispatch_many(jobs, Durability::Memory).await?;
        }
        Ok(())
    }

    /// For each node, when its job ended, if that job belongs to an earlier instance with the same id. Such a job ended before this
    /// instance began, and was reported.
    pub(super) async fn stale(
        &self,
        keys: &TaskKeys,
        table: &TaskKeys,
        nodes: &[NodeId],
    ) -> Result<Vec<Option<u64>>, Error> {
        let begins = self.begins(keys, nodes).await?;
        let ids: Vec<JobId> = nodes.iter().map(NodeId::job_id).collect();
        let ended = self.store.call(async |conn| ended_at(conn, table, &ids).await).await?;
        let untold = self.store.call(async |conn| outbox::among(conn, table, &ids).await).await?;
        let looked = nodes.iter().zip(untold).zip(ended);
        let stale = looked.map(|((node, is_untold), ended)| {
            let begins = begins.get(&*node.instance)?;
            ended.filter(|ended| !is_untold && ended + STALE.as_millis() as u64 <= *begins)
        });
        Ok(stale.collect())
    }

    /// For each node, when its job was dispatched, if that job has waited since before its instance began.
    async fn waits_too_long(
        &self,
        keys: &TaskKeys,
        table: &TaskKeys,
        nodes: &[NodeId],
    ) -> Result<Vec<Option<u64>>, Error> {
        let begins = self.begins(keys, nodes).await?;
        let ids: Vec<JobId> = nodes.iter().map(NodeId::job_id).collect();
        let dispatched = self.store.call(async |conn| dispatched_at(conn, table, &ids).await).await?;
        let waiting = self.store.call(async |conn| enqueued_at(conn, table, &ids).await).await?;
        let looked = nodes.iter().zip(dispatched).zip(waiting);
        let stale = looked.map(|((node, dispatched), waiting)| {
            // After a start with a delay, the job counts as waiting from the end of the delay.
            let (begins, since) = (begins.get(&*node.instance)?, dispatched.max(waiting)?);
            dispatched.filter(|_| since + STALE.as_millis() as u64 <= *begins)
        });
        Ok(stale.collect())
    }

    /// The time, in ms, before which no job of these instances can run. Leaves out instances for which it is unknown.
    async fn begins<'a>(&self, keys: &TaskKeys, nodes: &'a [NodeId]) -> Result<HashMap<&'a str, u64>, Error> {
        let instances: BTreeSet<&str> = nodes.iter().map(|node| &*node.instance).collect();
        let instances: Vec<&str> = instances.into_iter().collect();
        let begins = self.store.call(async |conn| nodes::begins(conn, keys, &instances).await).await?;
        Ok(instances.into_iter().zip(begins).filter_map(|(instance, at)| Some((instance, at?))).collect())
    }
}

/// The nodes by the table of their jobs.
pub(super) fn by_table(tables: &Tables, nodes: Vec<NodeId>) -> Vec<(Arc<TaskKeys>, Vec<NodeId>)> {
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
