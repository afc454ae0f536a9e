//! Everything at one time: tasks, workers, and the servers.

use std::cmp::Reverse;
use std::time::SystemTime;

use futures_util::future::join_all;
use heartline::{HolderReport, Inspector, ListsAway, ServerReport, TaskReport, WorkerReport, WorkflowReport};
use heartline_board::crashes::{Suspicions, dead_handed, doomed, last_stalls, suspicions, taken_back, together};
use heartline_board::failing::ailing;
use heartline_board::flows::{troubles_of_all, workflows};
use heartline_board::listed::{Listed, listed};
use heartline_board::text::many;
use heartline_board::troubles::{Trouble, damaged, holders, known_troubles, server_risks, unknowing};

use crate::failure::Failure;

/// Of how many tasks the last stalls are looked at.
const SUSPECTED: usize = 200;

/// What was seen at one time.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) tasks: Vec<TaskReport>,
    pub(crate) workers: Vec<WorkerReport>,
    /// Who holds jobs, of the tasks where that may be wrong.
    pub(crate) holders: Vec<HolderReport>,
    /// The server, or the primaries of a cluster.
    pub(crate) servers: Vec<ServerReport>,
    /// The lists that are on a node of a cluster that is away.
    pub(crate) away: ListsAway,
    /// The tasks with something foreign under a key.
    pub(crate) damaged: Vec<Trouble>,
    /// The tasks whose jobs are put off, and why.
    pub(crate) ailing: Vec<Trouble>,
    /// When that was, by the clock of the server.
    pub(crate) now: SystemTime,
    /// The workflows, or that their list cannot be read.
    pub(crate) flows: Result<Vec<WorkflowReport>, Trouble>,
}

impl Fleet {
    /// Asks for everything, in a handful of calls for each task and each worker, whatever their jobs.
    pub(crate) async fn look(inspector: &Inspector) -> Result<Fleet, Failure> {
        let Listed { tasks, mut workers, away } = listed(inspector).await?;
        let mut holders = holders(inspector, &tasks, &mut workers).await?;
        let damaged = damaged(inspector, &tasks).await?;
        let ailing = ailing(inspector, &tasks).await;
        let flows = workflows(inspector).await;
        let (servers, now) = (inspector.servers().await?, inspector.now().await);
        if unknowing(&servers).is_some() {
            // Nobody is accused of what is not known.
            holders.clear();
        }
        Ok(Fleet { tasks, workers, holders, servers, away, damaged, ailing, flows, now })
    }

    /// What the last stalls tell, and what fails, task by task. A task whose stalls cannot be read hides no other.
    pub(crate) async fn lately(&self, inspector: &Inspector) -> Result<Lately, Failure> {
        let mut readable: Vec<&TaskReport> = self.tasks.iter().filter(|task| task.fault.is_none()).collect();
        // Those that stalled most first: most tasks never did.
        readable.sort_by_key(|task| Reverse(task.stalled));
        let left = readable.iter().skip(SUSPECTED).filter(|task| task.stalled > 0).count();
        readable.truncate(SUSPECTED);
        let read = join_all(
            readable.into_iter().map(|task| async { (&*task.task, last_stalls(inspector, &task.task).await) }),
        )
        .await;
        let (to_come, now) = (dead_handed(inspector, &self.workers, &self.holders).await?, self.now);
        let stalls = || read.iter().filter_map(|(_, read)| read.as_ref().ok()).flat_map(|(stalls, _)| stalls);
        let is_whole = |task: &str| {
            read.iter().any(|(name, read)| *name == task && read.as_ref().is_ok_and(|(_, is_whole)| *is_whole))
        };
        let suspicions = suspicions(inspector, stalls().chain(&to_come), &self.tasks, &self.workers, now).await?;
        let doomed = doomed(inspector, &self.tasks, &self.workers, &self.holders).await?;
        let mut others = taken_back(stalls(), is_whole, now);
        if left > 0 {
            let what = format!(
                "of {} the last stalls were not looked at: too many tasks have some",
                many(left as u64, "task")
            );
            let hint = "`heartline task show TASK` looks at those of one".to_owned();
            others.push(Trouble::of_all(what, hint));
        }
        Ok(Lately { suspicions, doomed, others })
    }

    /// What is wrong, or may be, the gravest first.
    pub(crate) fn troubles(&self, lately: Lately) -> Vec<Trouble> {
        let mut troubles = server_risks(&self.servers);
        troubles.extend(known_troubles(&self.tasks, &self.workers, &self.holders, &self.servers, &self.away));
        troubles.extend(self.damaged.iter().cloned());
        troubles.extend(self.ailing.iter().cloned());
        troubles.extend(troubles_of_all(&self.tasks, &self.flows));
        troubles.extend(lately.others);
        together(lately.suspicions, lately.doomed, troubles)
    }
}

/// What takes more calls to be known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lately {
    /// Jobs that were held at the deaths of workers.
    pub(crate) suspicions: Suspicions,
    /// Those that fail when they are taken back.
    pub(crate) doomed: Vec<Trouble>,
    pub(crate) others: Vec<Trouble>,
}
