//! The lists across all tasks. In a cluster each is on one node, and the other nodes can be read without it.

use serde::Serialize;

use super::Inspector;
use crate::error::Error;

/// The lists across all tasks that cannot be read, because their cluster node is unreachable. See [`Inspector::unreachable_lists`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreachableLists {
    /// The unreachable node of the list of tasks, as `host:port`. The tasks are then unknown.
    pub tasks: Option<String>,
    /// The unreachable node of the list of workers. The live workers are then unknown.
    pub workers: Option<String>,
    /// The one of these nodes that answers `CLUSTERDOWN`: another node with slots is down, or this node is cut off from the others.
    pub says_down: Option<String>,
}

impl Inspector {
    /// Which lists across all tasks cannot be read while other nodes of the cluster answer. Always empty without a cluster.
    pub async fn unreachable_lists(&self) -> Result<UnreachableLists, Error> {
        if !self.store.is_cluster() {
            return Ok(UnreachableLists::default());
        }
        self.now_ms().await?;
        let [tasks, workers] = self.look(async |conn| Ok(self.store.unreachable_lists(conn).await)).await?;
        let says_down = [&tasks, &workers].into_iter().flatten().find(|(_, says_down)| *says_down);
        let says_down = says_down.map(|(node, _)| node.clone());
        let node = |away: Option<(String, bool)>| away.map(|(node, _)| node);
        Ok(UnreachableLists { tasks: node(tasks), workers: node(workers), says_down })
    }
}
