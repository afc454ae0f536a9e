//! Jobs that earlier instances of the same id left: they are taken for nothing that this one sent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Mover;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::limits::BATCH_BYTES;
use crate::options::modes::Durability;
use crate::store::ended::ended_at;
use crate::store::flow_look;
use crate::store::flow_nodes;
use crate::store::flow_start::ToSend;
use crate::store::keys::TaskKeys;
use crate::store::patience::{RESPONSE_TIMEOUT, response_time};
use crate::store::remove;
use crate::store::tables::Tables;
use crate::store::told::{Named, Told};

/// A job that ended so long before its instance began is of an earlier one: none is removed sooner behind its end, and clocks differ.
const STALE: Duration = Duration::from_secs(2);

impl Mover {
    /// Sends these nodes anew, of those that are there, whose jobs are of an earlier instance of the same id, which is gone: they had ended before this
    /// one began, and their workflow was told.
    pub(super) async fn replace_stale(&self, keys: &TaskKeys, task: &str, there: Vec<&ToSend>) -> Result<(), Error> {
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
    pub(super) async fn stale(
        &self,
        keys: &TaskKeys,
        table: &TaskKeys,
        nodes: &[NodeId],
    ) -> Result<Vec<Option<u64>>, Error> {
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
}

/// The nodes by the tables of their jobs.
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
