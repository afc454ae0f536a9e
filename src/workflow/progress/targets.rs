//! The tasks to which a call that opens nodes dispatches them at once: on the server of the workflow, without partitions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::backend::keys::TaskKeys;
use crate::backend::workflow::advance::{Advanced, Ended, MOST_TARGETS, Target};
use crate::mutex::Mutex;

/// Above this number of workflows, the tasks of all are forgotten.
const MOST: usize = 1000;

/// The tasks to which nodes of a workflow were sent, latest first.
#[derive(Default)]
pub(super) struct Targets(Mutex<HashMap<String, VecDeque<String>>>);

impl Targets {
    /// Records that nodes of a workflow were sent to a task.
    pub(super) fn remember(&self, workflow: &str, task: &str) {
        let mut sent = self.0.lock();
        if sent.len() >= MOST && !sent.contains_key(workflow) {
            sent.clear();
        }
        let tasks = sent.entry(workflow.to_owned()).or_default();
        tasks.retain(|known| known != task);
        tasks.push_front(task.to_owned());
        tasks.truncate(MOST_TARGETS);
    }

    /// Forgets the tasks of a workflow, until nodes are sent to them again.
    pub(super) fn forget(&self, workflow: &str) {
        self.0.lock().remove(workflow);
    }

    /// The targets of a call that reports these ends: their tasks, and those to which nodes were sent before.
    pub(super) fn of(&self, workflow: &str, ended: &[Ended], table_of: impl Fn(&str) -> Arc<TaskKeys>) -> Vec<Target> {
        let mut tables: Vec<Arc<TaskKeys>> = Vec::new();
        let sent = self.0.lock().get(workflow).cloned().unwrap_or_default();
        for table in ended.iter().filter_map(|ended| ended.table.clone()).chain(sent.iter().map(|task| table_of(task)))
        {
            let is_known = tables.iter().any(|known| known.task() == table.task());
            if !is_known && table.parts() == 1 && tables.len() < MOST_TARGETS {
                tables.push(table);
            }
        }
        let target = |table: Arc<TaskKeys>| {
            let ended = ended.iter().filter(|ended| is_job_of(&table, ended)).count();
            Target { table, ended }
        };
        tables.into_iter().map(target).collect()
    }
}

/// Whether the ended node was a job of this table, which is the only one of its task.
fn is_job_of(table: &TaskKeys, ended: &Ended) -> bool {
    ended.table.as_ref().is_some_and(|of| of.parts() == 1 && of.task() == table.task())
}

/// The ends in the order of the targets.
pub(super) fn in_order<'a>(targets: &[Target], ended: &'a [Ended]) -> Vec<&'a Ended> {
    let is_of = |target: &Target, ended: &Ended| is_job_of(&target.table, ended);
    let place = |ended: &Ended| targets.iter().position(|target| is_of(target, ended)).unwrap_or(targets.len());
    let mut sorted: Vec<&Ended> = ended.iter().collect();
    sorted.sort_by_key(|ended| place(ended));
    sorted
}

/// The ends whose jobs are still in the outboxes of their tasks.
pub(super) fn not_cleared<'a>(advanced: &Advanced, ended: &'a [Ended]) -> Vec<&'a Ended> {
    ended.iter().filter(|ended| !advanced.cleared.iter().any(|table| is_job_of(table, ended))).collect()
}
