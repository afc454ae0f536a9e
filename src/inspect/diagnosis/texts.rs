//! The longer texts of the kinds.

use std::time::Duration;

use super::lost_holder::{LostHolder, LostSlots};
use crate::inspect::tasks::KeyConflict;
use crate::inspect::text::{brief, many, quoted, shown, span};
use crate::worker_id::WorkerId;

/// A time in ms.
pub(super) fn time(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

/// How long ago something was, if it ever was.
pub(super) fn when(ago_ms: Option<u64>) -> String {
    ago_ms.map_or_else(|| "never".to_owned(), |ago| format!("{} ago", time(ago)))
}

/// Up to `most` of these names, then an ellipsis if there are more.
pub(super) fn first_of(names: &[String], most: usize) -> String {
    let more = if names.len() > most { ", …" } else { "" };
    format!("{}{more}", names.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(", "))
}

/// The number of these tasks, and the first of them.
pub(super) fn listed(tasks: &[String]) -> String {
    format!("{}: {}", many(tasks.len() as u64, "task"), first_of(tasks, 5))
}

/// The task, or the first of several.
pub(super) fn name_or_list(tasks: &[String]) -> String {
    if let [task] = tasks { task.clone() } else { listed(tasks) }
}

/// The keys, each with its type and the expected one.
pub(super) fn named(keys: &[KeyConflict]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The text, or nothing if the count is 0.
fn if_some(count: u64, text: impl FnOnce() -> String) -> String {
    if count > 0 { text() } else { String::new() }
}

/// The first of these schedules, and how many more there are.
pub(super) fn schedules_named(first: &str, schedules: u64) -> String {
    let more = if_some(schedules.saturating_sub(1), || format!(" and {} more", schedules.saturating_sub(1)));
    format!("the schedule {first}{more}")
}

pub(super) fn schedules_paused(first: &str, schedules: u64, by: &str, reason: &str, ago_ms: u64) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(" ({})", brief(reason, 160)) };
    let (verb, which) = if schedules > 1 { ("have", ", the first") } else { ("has", "") };
    format!("{} {verb} been paused{which} for {}, by {by}{reason}", schedules_named(first, schedules), time(ago_ms))
}

pub(super) fn replicas_missing(replicas: u64, silent: u64, wanted: Option<u64>) -> String {
    match wanted {
        _ if replicas == 0 => "the server has no replica".to_owned(),
        _ if silent > 0 => format!("{silent} of {} sent nothing for some seconds", many(replicas, "replica")),
        wanted => format!(
            "writes need {} (min-replicas-to-write), and the server has {replicas}",
            many(wanted.unwrap_or_default(), "replica")
        ),
    }
}

pub(super) fn not_durable(save_failed: bool, unsaved_writes: Option<u64>) -> String {
    match unsaved_writes {
        _ if save_failed => "the last write to disk failed".to_owned(),
        Some(writes) => format!(
            "the server writes no append-only file: a crash loses {} since the last snapshot",
            many(writes, "write")
        ),
        None => "the server writes no append-only file and has no snapshot: a restart may lose every job".to_owned(),
    }
}

pub(super) fn nodes_unreachable(tasks: &[String], workers: u64) -> String {
    let presences = format!("the presence of {}", many(workers, "live worker"));
    let what = match (tasks, workers) {
        (tasks, 0) => listed(tasks),
        ([], _) => presences,
        (tasks, _) => format!("{}; {presences}", listed(tasks)),
    };
    format!("nodes of the cluster do not answer: {what}")
}

pub(super) fn foreign_keys_hint(task: &str, keys: &[KeyConflict]) -> String {
    let holds_options = keys.iter().any(|key| key.holds_options);
    let pause = if holds_options { " A pause is gone with this key: pause the task again." } else { "" };
    let then = match task {
        "" => "`heartline flows recover` shows its state".to_owned(),
        task => format!(
            "run `heartline audit -t {task}`; `heartline repair -t {task}` asks before a job runs again or is removed"
        ),
    };
    format!(
        "rename or delete the key, and restore its value if you have a copy. Do not stop workers before: they keep outcomes until they can be \
         written.{pause} Then {then}"
    )
}

pub(super) fn payloads_lost(jobs: u64, waiting: u64, first: Option<&str>, removed_ago_ms: Option<u64>) -> String {
    let some = many(jobs, "job");
    match (removed_ago_ms, first) {
        (Some(ago), _) => {
            let were = if jobs == 1 { "was" } else { "were" };
            format!("{some} without payload {were} removed, the last {} ago", time(ago))
        }
        (None, Some(first)) => {
            format!("{some} without payload, at least {waiting} of them unfinished, such as {first}")
        }
        (None, None) => format!("{some} without payload, none of them among the next ones to run"),
    }
}

pub(super) fn no_worker(
    waiting: u64,
    delayed: u64,
    finalizing: u64,
    are_stopping: bool,
    quiet: Option<&WorkerId>,
    gone_ms: Option<u64>,
) -> String {
    let jobs = match (waiting, delayed) {
        (0, _) if finalizing > 0 => {
            let jobs = many(finalizing, "job");
            let (wait, their) = if finalizing == 1 { ("waits", "its") } else { ("wait", "their") };
            format!("{jobs} {wait} for {their} hook")
        }
        (0, 0) => return "no live worker has the task; the last one was lost, and did not stop".to_owned(),
        (0, delayed) => format!("{} delayed", many(delayed, "job")),
        (waiting, _) => format!("{} waiting", many(waiting, "job")),
    };
    match quiet {
        Some(worker) => format!("{jobs}, and all workers of the task are stopping or quiet, such as {worker}"),
        None if are_stopping => format!("{jobs}, and all workers of the task are stopping"),
        None => {
            let last = gone_ms.map(|ago| format!("; the last one was seen {} ago", time(ago))).unwrap_or_default();
            format!("{jobs}, and no live worker has the task{last}")
        }
    }
}

pub(super) fn slots_taken(
    waiting: u64,
    slots: Option<u64>,
    waited_ms: Option<u64>,
    idle_ms: Option<u64>,
    oldest_run_ms: Option<u64>,
) -> String {
    let taken = match slots {
        None => "the workers hold as many jobs as max_jobs allows".to_owned(),
        Some(1) => "the only slot is taken".to_owned(),
        Some(slots) => format!("all {slots} slots are taken"),
    };
    let of = |time_ms: Option<u64>, text: &str| {
        time_ms.map_or_else(String::new, |time_ms| format!(", {text} {}", time(time_ms)))
    };
    let (waited, idle) = (of(waited_ms, "the next one for"), of(idle_ms, "none was claimed for"));
    format!("{taken}, {} waiting{waited}{idle}{}", many(waiting, "job"), of(oldest_run_ms, "the oldest run has taken"))
}

/// The number of slots held by runs that lost their jobs.
pub(super) fn lost_slots(workers: &[LostSlots]) -> u64 {
    workers.iter().map(|worker| worker.slots).sum()
}

pub(super) fn slots_held_by_lost_runs(waiting: u64, slots: u64, workers: &[LostSlots]) -> String {
    let (some, lost) = (many(waiting, "job"), lost_slots(workers));
    let held: Vec<String> = workers.iter().map(|own| format!("{}: {}", own.worker, own.slots)).collect();
    let held = held.join(", ");
    format!("{some} waiting and none is claimed: runs that lost their jobs hold {lost} of {slots} slots ({held})")
}

pub(super) fn jobs_fail(failed: u64, completed: u64, in_a_row: u64, last_failed_ago_ms: Option<u64>) -> String {
    if failed == 0 {
        let runs = if in_a_row == 1 { "run".to_owned() } else { format!("{in_a_row} runs") };
        return format!("the last {runs} failed, most recently {}, and none completed since", when(last_failed_ago_ms));
    }
    let completed = if_some(completed, || format!(", {completed} completed"));
    let row = if_some(in_a_row, || format!("; THE LAST {in_a_row} ALL FAILED"));
    format!("{} failed in the last 5 minutes{completed}{row}", many(failed, "job"))
}

pub(super) fn jobs_fail_hint(task: &str, failed_lately: u64, kept: u64) -> String {
    let ends =
        if failed_lately > 0 { "5 minutes after the last failure, if jobs complete" } else { "when jobs complete" };
    match kept {
        0 => format!("the log of a worker, or `heartline events -t {task}`, says why. The warning ends {ends}"),
        _ => format!(
            "`heartline jobs codes -t {task}` counts the reasons; `heartline jobs retry -t {task} --state failed` runs the jobs again when that \
             is fixed (jobs of workflows: `heartline flows list WORKFLOW`). The warning ends {ends}, or with `heartline task purge {task} \
             --state failed`, which removes them"
        ),
    }
}

fn at_least(is_exact: bool) -> &'static str {
    if is_exact { "" } else { "at least " }
}

pub(super) fn lost_worker(jobs: u64, is_exact: bool, holder: &LostHolder, more: u64) -> String {
    let some = format!("{}{} held by", at_least(is_exact), many(jobs, "job"));
    match (jobs, more) {
        (0, _) => format!("the worker {holder}"),
        (_, 0) => format!("{some} {holder}"),
        (_, more) => format!("{some} {} and {} that are not live", holder.worker, many(more, "more worker")),
    }
}

pub(super) fn jobs_will_fail_hint(task: &str, first: Option<&str>, by_person: bool, has_live_workers: bool) -> String {
    let how = match first.map_or_else(|| "--all".to_owned(), quoted) {
        which if by_person => {
            format!("`heartline recover running -t {task} {which}` runs them again; do not use `recover worker`")
        }
        which if !has_live_workers => format!(
            "before a worker starts, `heartline recover running -t {task} {which}` runs them again once they have been silent for an interval"
        ),
        _ => format!(
            "a live worker is about to recover them: then `heartline jobs retry -t {task} --state failed --code worker_crashed` runs them again"
        ),
    };
    format!("they have reached max_stalls, or `on_crash` fails them; {how}")
}

/// What to do about poison suspects. A job that only ran next to the guilty one looks the same.
pub(super) fn suspects_hint(
    task: &str,
    jobs: &[String],
    others: u64,
    top: Option<&str>,
    always_alone: bool,
    is_paused: bool,
) -> String {
    let named = jobs.iter().take(3).map(|id| quoted(id)).collect::<Vec<_>>().join(" ");
    let cancel = |ids: &str| format!("`heartline jobs cancel -t {task} {ids}`");
    match top {
        _ if always_alone => format!(
            "at each death, the job was the only one of its worker. If other jobs complete, cancel: {}; if none does, find out what stops the \
             workers (the log of the host shows kills for lack of memory)",
            cancel(&named)
        ),
        Some(top) => format!("{} cancels the most suspicious one", cancel(&quoted(top))),
        None => {
            let ended = if others == 0 { "" } else { " (it may have ended)" };
            let pause = format!("`heartline task pause {task}`");
            let pause = if is_paused { "Keep the task paused" } else { &pause };
            format!(
                "unknown which job did it{ended}. 1. {pause}. 2. Leave one worker with one slot. 3. `heartline task resume {task}`"
            )
        }
    }
}

pub(super) fn jobs_recovered(
    jobs: u64,
    is_exact: bool,
    workers: &[WorkerId],
    failed: u64,
    cancelled: u64,
    last_ago_ms: u64,
) -> String {
    let from = match workers {
        [] => String::new(),
        [worker] => format!(" from {worker}"),
        workers => format!(" from {} workers", workers.len()),
    };
    let failed = match (failed, jobs) {
        (0, _) => String::new(),
        (1, 1) if is_exact => "; it failed".to_owned(),
        (failed, _) => format!("; {failed} of them failed"),
    };
    let cancelled = match (cancelled, jobs) {
        (0, _) => String::new(),
        (1, 1) if is_exact => "; it was cancelled, as requested".to_owned(),
        (cancelled, _) => format!("; {cancelled} of them cancelled, as requested"),
    };
    let (least, some) = (at_least(is_exact), many(jobs, "job"));
    format!("{least}{some} recovered{from}, the last {} ago{failed}{cancelled}", time(last_ago_ms))
}

pub(super) fn worker_denied(worker: &WorkerId, of_task: Option<&str>, is_sweep: bool, answer: &str) -> String {
    let calls = if is_sweep { "sweeps" } else { "calls" };
    let of = of_task.map_or_else(|| "a workflow".to_owned(), |task| format!("the task {task}"));
    let answer = if answer.is_empty() { String::new() } else { format!(": {answer}") };
    format!("the server denies the worker {worker} {calls} of {of}{answer}")
}

pub(super) fn workflow_stalled(workflow: &str, running: u64, steps: u64, waited_ms: Option<u64>) -> String {
    let long = waited_ms.map_or_else(String::new, |waited| format!(" for {}", time(waited)));
    match (running, steps) {
        (0, 0) => format!("ended jobs could not be reported to the workflow {workflow}{long}"),
        (0, steps) => {
            format!("{} of the workflow {workflow} could not be made, the oldest{long}", many(steps, "step"))
        }
        (running, _) => format!("no worker has advanced the workflow {workflow}{long}, and {} running", are(running)),
    }
}

pub(super) fn workflow_stalled_hint(workflow: &str, tasks: &[String]) -> String {
    let tasks = if_some(tasks.len() as u64, || format!(". Its tasks: {}", shown(&first_of(tasks, 5))));
    let recover = format!("`heartline flows recover {}`", shown(workflow));
    format!(
        "start a worker under this prefix if none is live; else {recover} and the logs of workers say what fails{tasks}"
    )
}

fn are(instances: u64) -> String {
    format!("{} {}", many(instances, "instance"), if instances == 1 { "is" } else { "are" })
}

pub(super) fn instances_stopped(
    workflow: &str,
    lost: u64,
    paused: u64,
    corrupt: u64,
    corrupt_ago_ms: Option<u64>,
) -> String {
    let lost = (lost > 0).then(|| format!("the server lost the state of at least {}", many(lost, "instance")));
    let corrupt = corrupt_ago_ms
        .map(|ago| format!("data could not be read {}, the last {} ago", many(corrupt, "time"), time(ago)));
    let paused = (paused > 0).then(|| format!("{} paused", are(paused)));
    let all: Vec<String> = [lost, corrupt, paused].into_iter().flatten().collect();
    format!("the workflow {workflow}: {}", all.join("; "))
}

pub(super) fn instances_stopped_hint(workflow: &str, lost: u64) -> String {
    let workflow = shown(workflow);
    let first = if_some(lost, || {
        format!("`heartline flows recover {workflow}` pauses those that lost their state, even ended ones; ")
    });
    format!(
        "{first}`heartline flows list {workflow}` lists them, `flows show` explains one; then resume, retry or cancel them"
    )
}
