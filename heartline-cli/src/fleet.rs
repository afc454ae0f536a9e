//! Everything at one time: tasks, workers, and the servers.

use std::time::SystemTime;

use futures_util::future::join_all;
use heartline::{HolderReport, Inspector, ServerReport, TaskReport, WorkerReport};
use heartline_board::troubles::{Trouble, all_troubles, dead_handed, holders, retrying, suspicions};

use crate::failure::Failure;

/// Of how many tasks the last stalls are looked at.
const SUSPECTED: usize = 50;

/// What was seen at one time.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) tasks: Vec<TaskReport>,
    pub(crate) workers: Vec<WorkerReport>,
    /// Who holds jobs, of the tasks where that may be wrong.
    pub(crate) holders: Vec<HolderReport>,
    /// The server, or the primaries of a cluster.
    pub(crate) servers: Vec<ServerReport>,
}

impl Fleet {
    /// Asks for everything, in a handful of calls for each task and each worker, whatever their jobs.
    pub(crate) async fn look(inspector: &Inspector) -> Result<Fleet, Failure> {
        let (tasks, mut workers) = (inspector.tasks().await?, inspector.workers().await?);
        let holders = holders(inspector, &tasks, &mut workers).await?;
        Ok(Fleet { tasks, workers, holders, servers: inspector.servers().await? })
    }

    /// Jobs that were held at the deaths of workers, by the last stalls of each task, and tasks whose jobs fail and are tried again. A task whose stalls cannot be read hides no other.
    pub(crate) async fn suspicions(&self, inspector: &Inspector) -> Result<Vec<Trouble>, Failure> {
        let readable = self.tasks.iter().filter(|task| task.fault.is_none()).take(SUSPECTED);
        let read = join_all(readable.map(|task| inspector.stalled_events(&task.task, None))).await;
        let to_come = dead_handed(inspector, &self.workers, &self.holders).await?;
        let stalls = read.iter().flatten().flat_map(|(stalls, _)| stalls).chain(&to_come);
        let mut found = suspicions(inspector, stalls, &self.workers, SystemTime::now()).await?;
        found.extend(retrying(inspector, &self.tasks).await?);
        Ok(found)
    }

    /// What is wrong, or may be.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        all_troubles(&self.tasks, &self.workers, &self.holders, &self.servers)
    }
}
