//! What is wrong with tasks, workers and the server, and what may be done about it: the same on a page and in a terminal.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use heartline::{ServerReport, TaskReport, WorkerReport, WorkerState};
use serde::Serialize;

use crate::checks::{Grade, of_server};
use crate::text::{many, span};

/// How many intervals an epoch may last while jobs are held, before stall detection counts as standing still: it takes one, and a third
/// more until the next heartbeat.
const STANDS_STILL: u32 = 3;

/// What is wrong, and what may be done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// The task, if it is about one.
    pub task: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What may be done.
    pub hint: String,
}

/// Everything that is wrong with tasks and workers.
#[must_use]
pub fn troubles(tasks: &[TaskReport], workers: &[WorkerReport]) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = tasks.iter().flat_map(of_task).collect();
    troubles.extend(workers.iter().filter_map(|worker| of_worker(worker, tasks)));
    troubles.extend(of_lost_tasks(tasks, workers));
    troubles
}

/// The same, and by what the server puts jobs at risk.
#[must_use]
pub fn all_troubles(tasks: &[TaskReport], workers: &[WorkerReport], server: &ServerReport) -> Vec<Trouble> {
    let mut troubles = troubles(tasks, workers);
    let risks = of_server(server, SystemTime::now()).into_iter().filter(|checked| checked.grade == Grade::Risk);
    troubles.extend(risks.map(|risk| Trouble { task: None, what: risk.what, hint: risk.todo.unwrap_or_default() }));
    troubles
}

fn of_task(task: &TaskReport) -> Vec<Trouble> {
    let name = &task.task;
    let trouble = |what: String, hint: String| Trouble { task: Some(name.clone()), what, hint };
    if let Some(fault) = &task.fault {
        return vec![trouble(
            format!("it cannot be read: {fault}"),
            "something foreign is stored under one of its keys".to_owned(),
        )];
    }
    let mut troubles = Vec::new();
    let (counts, held) = (&task.counts, task.counts.held());
    let is_overdue = task.next_due_at.is_some_and(|at| at < task.as_of);
    if (counts.waiting + held > 0 || is_overdue) && task.live_workers == 0 {
        let what = format!(
            "{} waiting and {held} held, and no live worker works it",
            many(counts.waiting + u64::from(is_overdue), "job")
        );
        troubles.push(trouble(
            what,
            "start a worker that has the task; `heartline workers --all` shows who had it".to_owned(),
        ));
    }
    if let Some(pause) = &task.paused
        && counts.waiting > 0
    {
        let why = if pause.reason.is_empty() { String::new() } else { format!(" ({})", pause.reason) };
        let what = format!("it is paused by {}{why}, and {} waiting", pause.by, many(counts.waiting, "job"));
        troubles.push(trouble(what, format!("`heartline task resume {name}` lets them begin")));
    }
    for part in &task.parts {
        let stood = part.epoch_at.and_then(|at| task.as_of.duration_since(at).ok()).unwrap_or_default();
        let interval = part.interval.unwrap_or(Duration::from_secs(30));
        if held > 0 && stood > interval * STANDS_STILL {
            let what =
                format!("jobs are held, and nobody has swept for {}, {STANDS_STILL} intervals and more", span(stood));
            troubles.push(trouble(what, format!("`heartline stalls outlook -t {name}` says why")));
        }
    }
    let set_aside: u64 = task.parts.iter().map(|part| part.set_aside).sum();
    if set_aside > 0 && waits_for_people(task) {
        let what = format!("{} set aside for a person, as its options say", many(set_aside, "silent job"));
        troubles.push(trouble(
            what,
            format!("`heartline recover silent -t {name}` lists them; then `recover running` or `fail`"),
        ));
    }
    troubles
}

/// Whether jobs of some phase are recovered by nobody but a person.
#[must_use]
pub fn waits_for_people(task: &TaskReport) -> bool {
    task.options.values.get("patience").is_some_and(|patience| patience.contains("off"))
}

/// Tasks that live workers have and nobody lists, or none at all: the prefix is wrong, or data are gone.
fn of_lost_tasks(tasks: &[TaskReport], workers: &[WorkerReport]) -> Vec<Trouble> {
    let is_worked = workers.iter().any(|worker| worker.state.is_live());
    if tasks.is_empty() && is_worked {
        let what = "live workers are here, and no task is listed".to_owned();
        let hint =
            "the server has lost its data: what was dispatched before is gone, what workers hold is reported in vain";
        return vec![Trouble { task: None, what, hint: hint.to_owned() }];
    }
    if tasks.is_empty() {
        let hint =
            "the prefix or the address is wrong (--prefix, --redis), the data are gone, or nothing was dispatched yet";
        let what = "there is no task under this prefix".to_owned();
        return vec![Trouble { task: None, what, hint: hint.to_owned() }];
    }
    let live = workers.iter().filter(|worker| worker.state.is_live()).flat_map(|worker| &worker.tasks);
    let names: BTreeSet<&str> = live.map(|its| its.task.as_str()).collect();
    let lost = names.into_iter().filter(|name| !tasks.iter().any(|task| task.task == *name));
    let trouble = |name: &str| Trouble {
        task: Some(name.to_owned()),
        what: "live workers have it, and it is not in the list of tasks".to_owned(),
        hint: "the server has lost data, or a worker that has just started has not told of it yet".to_owned(),
    };
    lost.map(trouble).collect()
}

fn of_worker(worker: &WorkerReport, tasks: &[TaskReport]) -> Option<Trouble> {
    let held: u64 = worker.tasks.iter().map(|its| its.held).sum();
    let id = worker.worker.as_str();
    let trouble = |what: String, hint: String| Some(Trouble { task: None, what, hint });
    match worker.state {
        WorkerState::Silent if held > 0 => trouble(
            format!("the worker {id} on {} is silent, and held {} by its last sign", worker.host, many(held, "job")),
            of_held(worker, tasks),
        ),
        WorkerState::Live | WorkerState::Stopping => {
            let blocked = worker.runtime_blocked?;
            let hint = "a handler computes or waits without `await`: use spawn_blocking for that".to_owned();
            trouble(format!("handlers block the runtime of {id} for {}", span(blocked)), hint)
        }
        _ => None,
    }
}

/// What becomes of the jobs that a silent worker holds.
fn of_held(worker: &WorkerReport, tasks: &[TaskReport]) -> String {
    let its = |task: &&TaskReport| worker.tasks.iter().any(|its| its.task == task.task && its.held > 0);
    let (mut alone, mut people) = (Vec::new(), Vec::new());
    for task in tasks.iter().filter(its) {
        if waits_for_people(task) {
            people.push(task.task.as_str());
        } else if task.live_workers == 0 {
            alone.push(task.task.as_str());
        }
    }
    let mut told = Vec::new();
    if !people.is_empty() {
        told.push(format!(
            "those of {} are set aside for a person (`recover silent`, `recover running`, `recover fail`)",
            people.join(", ")
        ));
    }
    if !alone.is_empty() {
        told.push(format!(
            "nobody recovers those of {}: start a worker, or `heartline recover sweep`",
            alone.join(", ")
        ));
    }
    if told.is_empty() { "live workers recover them by themselves".to_owned() } else { told.join("; ") }
}
