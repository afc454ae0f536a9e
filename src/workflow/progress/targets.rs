//! The tasks to which a call that opens nodes dispatches them at once: on the server of the workflow, without partitions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::keys::TaskKeys;
use crate::backend::workflow::advance::{Advanced, Ended, MOST_TARGETS, Target};
use crate::mutex::Mutex;

/// Above this number of workflows, the tasks of all are forgotten.
const MOST: usize = 1000;

/// How long steps of a workflow go without targets after the server has refused one.
const REFUSED: Duration = Duration::from_secs(60);

/// The tasks to which nodes of each workflow were sent.
#[derive(Default)]
pub(super) struct Targets(Mutex<HashMap<String, Sent>>);

#[derive(Clone, Default)]
struct Sent {
    /// Latest first.
    tasks: VecDeque<String>,
    refused_at: Option<Instant>,
}

impl Targets {
    /// Records that nodes without options were sent to a task.
    pub(super) fn remember(&self, workflow: &str, task: &str) {
        let mut sent = self.0.lock();
        if sent.len() >= MOST && !sent.contains_key(workflow) {
            sent.clear();
        }
        let tasks = &mut sent.entry(workflow.to_owned()).or_default().tasks;
        tasks.retain(|known| known != task);
        tasks.push_front(task.to_owned());
        tasks.truncate(MOST_TARGETS);
    }

    /// Records that the server refused a step with targets.
    pub(super) fn refused(&self, workflow: &str) {
        self.0.lock().entry(workflow.to_owned()).or_default().refused_at = Some(Instant::now());
    }

    /// The targets of a call that reports these ends: their tasks, and those to which nodes were sent before.
    pub(super) fn of(&self, workflow: &str, ended: &[Ended], table_of: impl Fn(&str) -> Arc<TaskKeys>) -> Vec<Target> {
        let mut tables: Vec<Arc<TaskKeys>> = Vec::new();
        let sent = self.0.lock().get(workflow).cloned().unwrap_or_default();
        if sent.refused_at.is_some_and(|at| at.elapsed() < REFUSED) {
            return Vec::new();
        }
        let of_ended = ended.iter().filter_map(|ended| ended.table.clone());
        for table in of_ended.chain(sent.tasks.iter().map(|task| table_of(task))) {
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
