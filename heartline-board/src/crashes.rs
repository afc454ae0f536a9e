//! What the last stalls tell: which jobs were taken back from workers that died, and which may have taken them down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use heartline::{Error, Holder, HolderReport, Inspector, StallAction, StalledEvent, Suspect, WorkerReport};

use crate::checks::Grade;
use crate::text::{many, quoted, relative};
use crate::troubles::{TOGETHER, Trouble, claimers, gravest_first};

/// A job that was held at the deaths of workers is told of for so long.
const SUSPECT_FOR: Duration = Duration::from_secs(3600);

/// For so long it is told that jobs were taken back.
const TAKEN_FOR: Duration = Duration::from_secs(600);

/// The stalls to come of tasks of which dead workers hold jobs: nobody may be left who tells of them.
///
/// # Errors
/// As every look.
pub async fn dead_handed(
    inspector: &Inspector,
    workers: &[WorkerReport],
    holders: &[HolderReport],
) -> Result<Vec<StalledEvent>, Error> {
    let is_dead =
        |holder: &Holder| workers.iter().any(|worker| worker.worker == holder.worker && worker.death.is_some());
    let mut stalls = Vec::new();
    for report in holders.iter().filter(|report| report.holders.iter().any(is_dead)).take(TOGETHER) {
        match inspector.stalls_to_come(&report.task).await {
            Ok(some) => stalls.extend(some),
            Err(e) if e.is_retryable() => return Err(e),
            // Of a task with a damaged key none is told.
            Err(_) => {}
        }
    }
    Ok(stalls)
}

/// Jobs that were held at the deaths of two workers or more, the last one of late, by these stalls, and that have not ended since.
///
/// # Errors
/// As every look.
pub async fn suspicions<'a>(
    inspector: &Inspector,
    stalls: impl IntoIterator<Item = &'a StalledEvent>,
    workers: &[WorkerReport],
    now: SystemTime,
) -> Result<Vec<Trouble>, Error> {
    let mut found = Suspect::among(stalls.into_iter().filter(|stall| !survived(stall, workers)));
    found.retain(|suspect| now.duration_since(suspect.last_at).unwrap_or_default() < SUSPECT_FOR);
    match inspector.look_up_suspects(&mut found).await {
        Err(e) if e.is_retryable() => return Err(e),
        // Of a task with a damaged key no suspect is told.
        _ => {}
    }
    let mut suspects: BTreeMap<&str, Vec<&Suspect>> = BTreeMap::new();
    for suspect in found.iter().filter(|suspect| suspect.is_at_large()) {
        suspects.entry(&suspect.task).or_default().push(suspect);
    }
    let told = |(task, suspects): (&str, Vec<&Suspect>)| {
        let named: Vec<&str> = suspects.iter().take(3).map(|suspect| suspect.id.as_str()).collect();
        let more = if suspects.len() > 3 { ", …" } else { "" };
        let jobs = many(suspects.len() as u64, "job");
        let act = accusation(task, &suspects);
        let what = format!("{jobs} held at the deaths of two workers or more: {}{more}", named.join(", "));
        let suspects = format!("`heartline stalls suspects -t {task}`; {act}");
        // Where nobody is left the next worker may be taken down as well.
        match claimers(task, workers).next() {
            Some(_) => Trouble::note(task, what, format!("a job may take its process down: {suspects}")),
            None => Trouble::risk(Some(task), what, format!("before you start another worker: {suspects}")),
        }
    };
    Ok(suspects.into_iter().map(told).collect())
}

/// What to do about suspects that are at large: an innocent job that ran beside a guilty one looks the same.
#[must_use]
pub fn accusation(task: &str, suspects: &[&Suspect]) -> String {
    match Suspect::foremost(suspects) {
        Some(foremost) => {
            format!("`heartline jobs cancel -t {task} {}` ends the most suspicious one", quoted(foremost.id.as_str()))
        }
        None => format!(
            "which of them cannot be told, since they died together: `heartline task pause {task}` lets none begin; one at a time, on a \
             worker with one slot, they tell themselves apart"
        ),
    }
}

/// Whether a worker was seen behind the stall of a job that it held: it was frozen, or cut off, and did not die.
#[must_use]
pub fn survived(stall: &StalledEvent, workers: &[WorkerReport]) -> bool {
    let held = workers.iter().find(|worker| Some(&worker.worker) == stall.worker.as_ref());
    held.is_some_and(|worker| worker.last_seen_at > stall.at)
}

/// What was taken back of late from workers that died, froze or were cut off, by these stalls. It is over, and may have been missed.
#[must_use]
pub fn taken_back<'a>(stalls: impl IntoIterator<Item = &'a StalledEvent>, now: SystemTime) -> Vec<Trouble> {
    let is_late = |stall: &&StalledEvent| now.duration_since(stall.at).unwrap_or_default() < TAKEN_FOR;
    let mut by_task: BTreeMap<&str, Vec<&StalledEvent>> = BTreeMap::new();
    for stall in stalls.into_iter().filter(is_late) {
        by_task.entry(&stall.task).or_default().push(stall);
    }
    let told = |(task, stalls): (&str, Vec<&StalledEvent>)| {
        let workers: BTreeSet<&str> = stalls.iter().filter_map(|stall| Some(stall.worker.as_ref()?.as_str())).collect();
        let from = match workers.first() {
            Some(worker) if workers.len() == 1 => format!(" from {worker}"),
            Some(_) => format!(" from {} workers", workers.len()),
            None => String::new(),
        };
        let of = |action: StallAction| stalls.iter().filter(|stall| stall.action == action).count();
        let became = [(of(StallAction::Failed), "failed"), (of(StallAction::Cancelled), "cancelled, as was asked for")];
        let became = became.iter().filter(|(jobs, _)| *jobs > 0).map(|(jobs, word)| format!("; {jobs} of them {word}"));
        let became: String = became.collect();
        let last = stalls.iter().map(|stall| stall.at).max().unwrap_or(now);
        let jobs = many(stalls.len() as u64, "job");
        let what = format!("{jobs} taken back{from}, the last one {}{became}", relative(last, now));
        Trouble::note(task, what, format!("`heartline stalls list -t {task}` explains each"))
    };
    by_task.into_iter().map(told).collect()
}

/// All of them, the gravest first. Where jobs may take down the next worker, nothing sends anybody to start one without a word of that.
#[must_use]
pub fn together(suspicions: Vec<Trouble>, mut troubles: Vec<Trouble>) -> Vec<Trouble> {
    let is_grave = |task: &Option<String>| {
        task.is_some() && suspicions.iter().any(|told| told.grade == Grade::Risk && told.task == *task)
    };
    for trouble in troubles.iter_mut().filter(|trouble| is_grave(&trouble.task)) {
        if trouble.hint.contains("start ") {
            trouble.hint = format!("see to its suspects before; {}", trouble.hint);
        }
    }
    troubles.splice(0..0, suspicions);
    gravest_first(&mut troubles);
    troubles
}
