//! The lists across all tasks. In a cluster each is on one node, and what is on the others can be told of without it.

use serde::Serialize;

use super::Inspector;
use crate::error::Error;

/// The lists across all tasks that cannot be read, since the node of a cluster is away that has them. See [`Inspector::lists_away`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListsAway {
    /// The node that has the list of tasks, as `host:port`: which tasks there are is not known.
    pub tasks: Option<String>,
    /// The node that has the list of workers: who is live is not known.
    pub workers: Option<String>,
    /// Which of these nodes answers, and says that the cluster is down: another one is away that has slots, or it is cut off from the others.
    pub says_down: Option<String>,
}

impl Inspector {
    /// Which of the lists across all tasks cannot be read, while other nodes of the cluster answer. Of a server that stands alone it is never
    /// one of them.
    ///
    /// # Errors
    /// What every call may give, see [`Error`]: if no node answers.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lists_away(&self) -> Result<ListsAway, Error> {
        if !self.store.is_cluster() {
            return Ok(ListsAway::default());
        }
        self.now_ms().await?;
        let [tasks, workers] = self.look(|conn| async move { Ok(self.store.lists_away(&conn).await) }).await?;
        let says_down = [&tasks, &workers].into_iter().flatten().find(|(_, says_down)| *says_down);
        let says_down = says_down.map(|(node, _)| node.clone());
        let node = |away: Option<(String, bool)>| away.map(|(node, _)| node);
        Ok(ListsAway { tasks: node(tasks), workers: node(workers), says_down })
    }
}
