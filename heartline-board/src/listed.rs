//! All tasks and all workers, as far as their lists can be read: in a cluster each list is on one node, which may be away.

use futures_util::future::join;
use heartline::{Error, Inspector, ListsAway, TaskReport, WorkerReport};

use crate::troubles::Trouble;

/// What is listed.
#[derive(Debug, Default)]
pub struct Listed {
    /// The tasks; none where their list is away.
    pub tasks: Vec<TaskReport>,
    /// The workers; none where their list is away.
    pub workers: Vec<WorkerReport>,
    /// The lists that are away.
    pub away: ListsAway,
}

/// Every task and every worker; without those whose list is on a node of a cluster that is away.
///
/// # Errors
/// As every look.
pub async fn listed(inspector: &Inspector) -> Result<Listed, Error> {
    let (tasks, workers) = join(inspector.tasks(), inspector.workers()).await;
    let away = match (&tasks, &workers) {
        (Err(e), _) | (_, Err(e)) if e.is_retryable() => inspector.lists_away().await?,
        _ => ListsAway::default(),
    };
    Ok(Listed { tasks: unless(&away.tasks, tasks)?, workers: unless(&away.workers, workers)?, away })
}

/// The workers; none where their list is away.
///
/// # Errors
/// As every look.
pub async fn workers(inspector: &Inspector) -> Result<Vec<WorkerReport>, Error> {
    match inspector.workers().await {
        Err(e) if e.is_retryable() => unless(&inspector.lists_away().await?.workers, Err(e)),
        workers => workers,
    }
}

/// The names of the tasks; none where their list is away.
///
/// # Errors
/// As every look.
pub async fn task_names(inspector: &Inspector) -> Result<Vec<String>, Error> {
    match inspector.task_names().await {
        Err(e) if e.is_retryable() => unless(&inspector.lists_away().await?.tasks, Err(e)),
        names => names,
    }
}

fn unless<T>(away: &Option<String>, read: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match read {
        Err(e) if e.is_retryable() && away.is_some() => Ok(Vec::new()),
        read => read,
    }
}

/// That lists are away: what is not known for it, and what can be asked all the same.
#[must_use]
pub fn of_lists(away: &ListsAway) -> Vec<Trouble> {
    if let Some(node) = &away.says_down {
        let what = format!(
            "{node} says that the cluster is down (CLUSTERDOWN): which tasks there are, or who is live, is not known"
        );
        let hint = "a node that has slots is away, and until it is back, or its replica is the primary, none answers for any slot; with `cluster-require-full-coverage no` the others do, as long as most primaries are there. `heartline doctor` names the nodes that do not answer";
        return vec![Trouble::risk(None, what, hint.to_owned())];
    }
    let tasks = away.tasks.as_ref().map(|node| {
        let (what, hint) = no_tasks(node);
        Trouble::risk(None, what, hint)
    });
    let workers = away.workers.as_ref().map(|node| {
        let what = format!("the node with the list of workers ({node}) does not answer: who is live is not known");
        let hint = "workers go on with the tasks of the other nodes, and those that start wait; no task is said to have no worker until the node is back, or its replica is the primary";
        Trouble::risk(None, what, hint.to_owned())
    });
    tasks.into_iter().chain(workers).collect()
}

/// That the list of tasks is away, and what to do then.
fn no_tasks(node: &str) -> (String, String) {
    let what = format!("the node with the list of tasks ({node}) does not answer: which tasks there are is not known");
    let hint = "other nodes answer, and tasks on them may go on; one of them is told of by its name: `heartline task show NAME`, `heartline jobs list -t NAME`";
    (what, hint.to_owned())
}
