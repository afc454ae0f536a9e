//! Everything at one time: tasks, workers, and the server.

use heartline::{HolderReport, Inspector, ServerReport, TaskReport, WorkerReport};
use heartline_board::troubles::{Trouble, all_troubles, holders};

use crate::failure::Failure;

/// What was seen at one time.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) tasks: Vec<TaskReport>,
    pub(crate) workers: Vec<WorkerReport>,
    /// Who holds jobs, of the tasks where that may be wrong.
    pub(crate) holders: Vec<HolderReport>,
    pub(crate) server: ServerReport,
}

impl Fleet {
    /// Asks for everything, in a handful of calls for each task and each worker, whatever their jobs.
    pub(crate) async fn look(inspector: &Inspector) -> Result<Fleet, Failure> {
        let (tasks, workers) = (inspector.tasks().await?, inspector.workers().await?);
        let holders = holders(inspector, &tasks, &workers).await?;
        Ok(Fleet { tasks, workers, holders, server: inspector.server().await? })
    }

    /// What is wrong, or may be.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        all_troubles(&self.tasks, &self.workers, &self.holders, &self.server)
    }
}
