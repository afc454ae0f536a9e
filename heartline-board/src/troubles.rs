//! What is wrong with tasks, workers and the server, and what may be done about it: the same on a page and in a terminal.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, try_join_all};
use heartline::{
    Diagnosis, Error, Holder, HolderReport, Inspector, JobReport, JobState, JobValues, ListsAway, PartReport,
    ServerReport, TaskPause, TaskReport, WatchBreak, WatchReport, WorkerReport, WorkerState, codes,
};
use serde::Serialize;

use crate::checks::{Grade, of_servers};
use crate::crashes::{doomed, heeding, is_last_run, spared, suspicions_of, together, would_fail};
use crate::failing::{ailing, of_failures};
use crate::listed::{self, of_lists};
use crate::text::{many, printed, quoted, relative, shown, span};
use crate::told::{is_overdue, proof};

/// How many intervals an epoch may last while jobs are held, before stall detection counts as standing still: it takes one, and a third
/// more until the next heartbeat.
const STANDS_STILL: u32 = 3;

/// Behind so long a wait it is asked who has the slots, and whether anybody claims.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// When a job has waited for so long while every slot is taken, that is told.
const CROWDED: Duration = Duration::from_secs(300);

/// Where one was begun in so long, slots are given back.
const BEGUN_LATELY: Duration = Duration::from_secs(60);

/// When none was given back for so long, and no run may take as long, jobs are not done.
const HUNG: Duration = Duration::from_secs(1800);

/// Behind so long a wait workers that stop are no deploy any more.
const LEFT: Duration = Duration::from_secs(15);

/// So many workers that hold jobs and are not live are told one by one, the others of the task together.
const HOLDERS: usize = 3;

/// How many holders that are in no list are looked up.
const LOOKED_UP: usize = 100;

/// That a server lost its data is told for so long, and for so long it is more than a note.
const TOLD_FOR: Duration = Duration::from_secs(3600);
const NEWLY: Duration = Duration::from_secs(300);

/// The clock of a server counts its seconds from somewhere in the first one.
const RESTART: Duration = Duration::from_secs(2);

/// How many troubles are told at a time: whoever has more begins with the first ones.
pub const TOLD: usize = 30;

/// How many tasks are asked about at a time.
pub(crate) const TOGETHER: usize = 20;

/// What is wrong, or may be, and what may be done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Whether it keeps jobs from being done ([`Grade::Risk`]), or is for a person to judge ([`Grade::Note`]).
    pub grade: Grade,
    /// The task, if it is about one.
    pub task: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What may be done.
    pub hint: String,
    /// The condition as data, of those that have a [`Diagnosis`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Diagnosis>,
    /// Whether it reports failed runs of jobs that are all tried again: a diagnosis of these runs says more.
    #[serde(skip)]
    pub(crate) is_of_retries: bool,
}

impl From<Diagnosis> for Trouble {
    fn from(diagnosis: Diagnosis) -> Trouble {
        let grade = if diagnosis.is_grave() { Grade::Risk } else { Grade::Note };
        let (what, hint) = (diagnosis.to_string(), diagnosis.hint());
        Trouble { grade, diagnosis: Some(diagnosis.clone()), ..Trouble::risk(diagnosis.task(), what, hint) }
    }
}

impl Trouble {
    /// For a person to judge, and about no task alone.
    #[must_use]
    pub fn of_all(what: String, hint: String) -> Trouble {
        Trouble { grade: Grade::Note, ..Trouble::risk(None, what, hint) }
    }

    pub(crate) fn risk(task: Option<&str>, what: String, hint: String) -> Trouble {
        let task = task.map(str::to_owned);
        Trouble { grade: Grade::Risk, task, what, hint, diagnosis: None, is_of_retries: false }
    }

    pub(crate) fn note(task: &str, what: String, hint: String) -> Trouble {
        Trouble { grade: Grade::Note, ..Trouble::risk(Some(task), what, hint) }
    }
}

/// Whether anything keeps jobs from being done.
#[must_use]
pub fn is_healthy(troubles: &[Trouble]) -> bool {
    troubles.iter().all(|trouble| trouble.grade != Grade::Risk)
}

/// Who holds the jobs of those tasks of which that may be wrong. The workers then tell what they hold by that.
///
/// # Errors
/// As every look.
pub async fn holders(
    inspector: &Inspector,
    tasks: &[TaskReport],
    workers: &mut Vec<WorkerReport>,
) -> Result<Vec<HolderReport>, Error> {
    let is_asked = |task: &&TaskReport| {
        let is_lost = |worker: &WorkerReport| {
            let is_its = worker.tasks.iter().any(|its| its.task == task.task);
            let was_seen = task.as_of.duration_since(worker.last_seen_at).unwrap_or_default() < TOLD_FOR;
            is_its && was_seen && !worker.state.is_live()
        };
        task.counts.held() > 0 && (task.live_workers == 0 || has_waited(task, LONG_WAIT) || workers.iter().any(is_lost))
    };
    let asked: Vec<&TaskReport> = tasks.iter().filter(is_asked).collect();
    let mut found = Vec::with_capacity(asked.len());
    for some in asked.chunks(TOGETHER) {
        found.extend(try_join_all(some.iter().map(|task| inspector.holders(&task.task))).await?);
    }
    // One of many that died may be in no list any more, one that just started not yet.
    let is_listed = |holder: &&Holder| workers.iter().any(|worker| worker.worker == holder.worker);
    let missing = found.iter().flat_map(|report| &report.holders).filter(|holder| !is_listed(holder));
    let missing: BTreeSet<String> = missing.map(|holder| holder.worker.to_string()).collect();
    // Nobody is accused who was not looked up.
    let mut others: BTreeSet<&str> = missing.iter().skip(LOOKED_UP).map(String::as_str).collect();
    for worker in missing.iter().take(LOOKED_UP) {
        match inspector.worker(worker).await {
            // What it tells of itself may be on a node of a cluster that is away.
            Err(e) if e.is_retryable() => drop(others.insert(worker)),
            known => workers.extend(known?),
        }
    }
    for report in found.iter_mut().filter(|_| !others.is_empty()) {
        let before = report.holders.len();
        report.holders.retain(|holder| !others.contains(holder.worker.as_str()));
        report.is_whole &= report.holders.len() == before;
    }
    correct(workers, &found);
    let is_idle =
        |name: &str| tasks.iter().any(|task| task.task == name && task.fault.is_none() && task.counts.held() == 0);
    let lost = workers.iter_mut().filter(|worker| !worker.state.is_live());
    for its in lost.flat_map(|worker| &mut worker.tasks).filter(|its| is_idle(&its.task)) {
        its.held = 0;
    }
    Ok(found)
}

/// Has workers tell what they hold as Redis has it, where that is known: their own word is some seconds old, and stays when they die.
pub fn correct(workers: &mut [WorkerReport], holders: &[HolderReport]) {
    for worker in workers {
        for its in &mut worker.tasks {
            if let Some(report) = holders.iter().find(|report| report.is_whole && report.task == its.task) {
                let own = report.holders.iter().find(|holder| holder.worker == worker.worker);
                its.held = own.map_or(0, |holder| holder.jobs);
            }
        }
    }
}

/// Whether a worker is not live and holds jobs, as Redis has it.
#[must_use]
pub fn leaves_jobs(worker: &WorkerReport, holders: &[HolderReport]) -> bool {
    let holds = |report: &HolderReport| report.holders.iter().any(|holder| holder.worker == worker.worker);
    !worker.state.is_live() && holders.iter().any(holds)
}

/// Whether a job of the task has waited for so long, and is not held back.
fn has_waited(task: &TaskReport, long: Duration) -> bool {
    task.paused.is_none() && task.next_waiting_age.is_some_and(|age| age >= long)
}

/// The workers that claim jobs of the task.
pub(crate) fn claimers<'a>(task: &str, workers: &'a [WorkerReport]) -> impl Iterator<Item = &'a WorkerReport> {
    let has = move |worker: &&WorkerReport| worker.tasks.iter().any(|its| its.task == task);
    workers.iter().filter(|worker| worker.state == WorkerState::Live).filter(has)
}

/// Whether jobs have waited for long, and every slot is taken.
fn is_crowded(task: &TaskReport, workers: &[WorkerReport]) -> bool {
    let mut claimers = claimers(&task.task, workers).peekable();
    has_waited(task, LONG_WAIT) && claimers.peek().is_some() && claimers.all(|worker| !worker.has_room(&task.task))
}

/// The partitions in which jobs have waited for long and none was begun, although slots are free.
fn stuck_parts<'a>(task: &'a TaskReport, workers: &[WorkerReport]) -> Vec<&'a PartReport> {
    if !has_waited(task, LONG_WAIT) || !claimers(&task.task, workers).any(|worker| worker.has_room(&task.task)) {
        return Vec::new();
    }
    let is_stuck = |part: &&PartReport| {
        let since = part.last_claimed_at.map(|at| task.as_of.duration_since(at).unwrap_or_default());
        part.next_waiting_age.is_some_and(|age| age >= LONG_WAIT) && since.is_none_or(|since| since >= LONG_WAIT)
    };
    task.parts.iter().filter(is_stuck).collect()
}

/// Everything that is wrong with tasks and workers. `holders` are those that [`holders`] found.
#[must_use]
pub fn troubles(
    tasks: &[TaskReport],
    workers: &[WorkerReport],
    holders: &[HolderReport],
    away: &ListsAway,
) -> Vec<Trouble> {
    let mut troubles = of_lists(away);
    troubles.extend(of_lost_data(tasks));
    for task in tasks {
        let held_by = holders.iter().find(|report| report.task == task.task);
        troubles.extend(of_task(task, held_by, workers));
    }
    troubles.extend(of_away(tasks, workers));
    let now = tasks.iter().map(|task| task.as_of).max().unwrap_or_else(SystemTime::now);
    troubles.extend(workers.iter().filter_map(|worker| of_worker(worker, now)));
    if away.tasks.is_none() {
        troubles.extend(of_lost_tasks(tasks, workers));
    }
    gravest_first(&mut troubles);
    troubles
}

/// Puts what is gravest first, and otherwise leaves the order.
pub fn gravest_first(troubles: &mut [Trouble]) {
    troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.grade));
}

/// A server that started of late, and does not write down each change: what it had not saved by then is gone.
fn of_restart(server: &ServerReport, workers: &[WorkerReport]) -> Option<Trouble> {
    let started = server.clock.checked_sub(server.uptime)?;
    let is_older = |worker: &WorkerReport| {
        let began = worker.started_at.and_then(|at| started.duration_since(at).ok());
        worker.state.is_live() && began.is_some_and(|before| before > RESTART)
    };
    if server.fault.is_some()
        // It has had the data of another one since then.
        || server.has_followed
        || server.has_append_only_file
        || server.uptime > TOLD_FOR
        || !workers.iter().any(is_older)
    {
        return None;
    }
    let what = format!("the server {} started {} ago, without an append-only file", server.place, span(server.uptime));
    let hint = "what it had not saved by then is gone: jobs dispatched since its last snapshot may be lost, and jobs that ended since then may run again";
    Some(Trouble { grade: Grade::Note, ..Trouble::risk(None, what, hint.to_owned()) })
}

/// That a server takes no writes, where one does: no worker can tell of itself then, and nobody knows who is live.
#[must_use]
pub fn unknowing(servers: &[ServerReport]) -> Option<(String, String)> {
    let (server, refusal) = servers.iter().find_map(|server| Some((server, server.write_refusal.as_ref()?)))?;
    let named = if servers.len() == 1 { "the server".to_owned() } else { format!("the server {}", server.place) };
    let what = match server.is_primary {
        true => format!("{named} refuses to write: {refusal}"),
        false => format!("{named} is a replica, which takes no writes: {refusal}"),
    };
    let hint = "no worker can tell of itself there: who is live, and who holds what, is not known, and nothing is to be recovered by hand; look again when it takes writes";
    Some((what, hint.to_owned()))
}

/// The same where the servers are still to be asked. Who may not ask them goes without.
pub async fn unknown(inspector: &Inspector) -> Option<(String, String)> {
    unknowing(&inspector.servers().await.ok()?)
}

/// That no server takes writes: whatever is asked for is refused.
pub async fn unwritable(inspector: &Inspector) -> Option<String> {
    let servers = inspector.servers().await.ok()?;
    let refuses = |server: &ServerReport| server.fault.is_some() || server.write_refusal.is_some();
    unknowing(&servers).filter(|_| servers.iter().all(refuses)).map(|(what, _)| what)
}

/// The same as [`troubles`] as far as it is known, where a server takes no writes, and what was lost with one that started anew.
#[must_use]
pub fn known_troubles(
    tasks: &[TaskReport],
    workers: &[WorkerReport],
    holders: &[HolderReport],
    servers: &[ServerReport],
    away: &ListsAway,
) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = servers.iter().filter_map(|server| of_restart(server, workers)).collect();
    if unknowing(servers).is_none() {
        troubles.extend(self::troubles(tasks, workers, holders, away));
        return troubles;
    }
    troubles.extend(of_lists(away));
    // No worker can tell of itself: nobody is silent for it.
    troubles.push(Trouble::of_all(
        "who is live, and who holds what, is not known while it takes no writes".to_owned(),
        "no worker can update its presence; look again when it takes writes".to_owned(),
    ));
    troubles.extend(tasks.iter().filter(|task| task.fault.is_some()).flat_map(|task| of_task(task, None, workers)));
    troubles
}

/// By what the servers put jobs at risk.
#[must_use]
pub fn server_risks(servers: &[ServerReport]) -> Vec<Trouble> {
    let risks = of_servers(servers, SystemTime::now()).into_iter().filter(|checked| checked.grade == Grade::Risk);
    risks.map(|risk| Trouble::risk(None, risk.what, risk.todo.unwrap_or_default())).collect()
}

/// What is wrong with one task, the same as among all.
///
/// # Errors
/// As every look.
pub async fn troubles_of(inspector: &Inspector, task: &TaskReport) -> Result<Vec<Trouble>, Error> {
    let (tasks, mut workers) = (std::slice::from_ref(task), listed::workers(inspector).await?);
    let holders = holders(inspector, tasks, &mut workers).await?;
    let mut troubles = troubles(tasks, &workers, &holders, &ListsAway::default());
    let doomed = doomed(inspector, tasks, &workers, &holders).await?;
    troubles.extend(ailing(inspector, tasks).await);
    let suspicions = suspicions_of(inspector, task, &workers, &holders).await?;
    let mut troubles = together(suspicions, doomed, troubles);
    troubles.retain(|trouble| trouble.task.as_deref() == Some(&*task.task));
    // Where all is well the servers are not asked.
    if !troubles.is_empty()
        && let Some((what, hint)) = unknown(inspector).await
    {
        troubles = vec![Trouble::risk(Some(&task.task), what, hint)];
        troubles.extend(task.fault.iter().flat_map(|_| of_task(task, None, &workers)));
    }
    Ok(troubles)
}

/// How many tasks are looked at key by key.
const LOOKED_AT: usize = 50;

/// Tasks that can be read, while something foreign under one of their keys keeps calls of theirs from being made.
///
/// # Errors
/// As every look.
pub async fn damaged(inspector: &Inspector, tasks: &[TaskReport]) -> Result<Vec<Trouble>, Error> {
    let mut sound: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none()).collect();
    // Those with jobs first.
    sound.sort_by_key(|task| std::cmp::Reverse(task.counts.unfinished()));
    sound.truncate(LOOKED_AT);
    let mut troubles = Vec::new();
    for some in sound.chunks(TOGETHER) {
        let found = join_all(some.iter().map(|task| inspector.foreign_keys(&task.task))).await;
        for (task, found) in some.iter().zip(found) {
            let foreign = match found {
                Ok(foreign) => foreign,
                Err(e) if e.is_retryable() => return Err(e),
                // Who may not ask for it goes without.
                Err(_) => continue,
            };
            let named: Vec<String> = foreign.iter().map(ToString::to_string).collect();
            if !named.is_empty() {
                let fault = named.join(", ");
                let what = format!("what needs this key fails: {fault}");
                troubles.push(Trouble::risk(Some(&task.task), what, of_foreign(&task.task, &fault)));
            }
        }
    }
    Ok(troubles)
}

/// What to do where our own user may not read something.
pub const DENIED: &str =
    "whoever looks here lacks a right (docs/acl.md has all that this needs), and nothing is known to be wrong with it";

/// What to do about what is foreign under a key of a task.
fn of_foreign(name: &str, fault: &str) -> String {
    let is_of_options = fault.contains("}:meta is");
    let pause = if is_of_options { " If it was paused, that goes with this key: pause it again." } else { "" };
    format!(
        "something foreign is stored under one of its keys: look at it, rename or delete it, and restore what was there if anybody has a copy. \
         Do not stop workers before: they keep what has ended meanwhile until it can be written.{pause} `heartline audit -t {name}` then tells \
         what became of its jobs, and `heartline repair -t {name}` asks before any of them runs again, or is removed"
    )
}

/// Of which tasks the server lost the data, of late.
fn of_lost_data(tasks: &[TaskReport]) -> Option<Trouble> {
    let ago = |task: &TaskReport| Some(task.as_of.duration_since(task.data_lost_at?).unwrap_or_default());
    let is_lost = |task: &&TaskReport| ago(task).is_some_and(|ago| ago < TOLD_FOR);
    let lost: Vec<&TaskReport> = tasks.iter().filter(is_lost).collect();
    let (last, newest) = lost.iter().filter_map(|task| Some((*task, ago(task)?))).min_by_key(|(_, ago)| *ago)?;
    let when = relative(last.data_lost_at?, last.as_of);
    let named: Vec<&str> = lost.iter().take(5).map(|task| task.task.as_str()).collect();
    let (task, of) = match &named[..] {
        [task] => (Some(*task), String::new()),
        _ => (
            None,
            format!(
                " of {} ({}{})",
                many(lost.len() as u64, "task"),
                named.join(", "),
                if lost.len() > 5 { ", …" } else { "" }
            ),
        ),
    };
    let what = format!("the server lost its data {when}: jobs{of} that waited, ran or had ended are gone");
    let hint = "dispatch again what had not ended, which your own records alone can tell; a task that was paused is not any more; what workers still hold is reported in vain. \
                `heartline doctor` tells whether it keeps its data";
    // Behind some minutes it says nothing any more of whether jobs are processed.
    let grade = if newest < NEWLY { Grade::Risk } else { Grade::Note };
    Some(Trouble { grade, ..Trouble::risk(task, what, hint.to_owned()) })
}

fn of_task(task: &TaskReport, held_by: Option<&HolderReport>, workers: &[WorkerReport]) -> Vec<Trouble> {
    let name = &task.task;
    let trouble = |what: String, hint: String| Trouble::risk(Some(name), what, hint);
    if task.is_away {
        // Told of together.
        return Vec::new();
    }
    if let Some(fault) = task.fault.as_ref().filter(|_| !is_name(name)) {
        let hint = format!(
            "somebody wrote it to the key `tasks` under the prefix (heartline:tasks), and no task is of that name: `redis-cli ZREM KEY {}` removes it",
            printed(name)
        );
        return vec![trouble(format!("it is no name of a task: {fault}"), hint)];
    }
    if let Some(fault) = &task.fault {
        let hint = if task.is_denied { DENIED.to_owned() } else { of_foreign(name, fault) };
        return vec![trouble(format!("it cannot be read: {fault}"), hint)];
    }
    let mut troubles = Vec::new();
    let (counts, held) = (&task.counts, task.counts.held());
    let waiting = counts.waiting + task.due;
    // What some workers do is not known where the node is away to which they tell it, or that has their list.
    let is_known = task.knows_workers;
    // In a deploy the next worker comes some seconds behind the last one.
    let has_just_stopped = workers.iter().any(|worker| {
        let since = worker.stopped_at.map(|at| task.as_of.duration_since(at).unwrap_or_default());
        since.is_some_and(|since| since < LEFT) && worker.tasks.iter().any(|its| its.task == *name)
    });
    // One that works, and cannot tell of itself, is told of as a holder.
    let holders = held_by.map_or(&[][..], |report| &report.holders);
    let is_worked = holders
        .iter()
        .any(|holder| of_holder(holder, workers).is_some_and(|worker| claims(holder, worker, task.as_of)));
    let is_known = is_known && !is_worked;
    if waiting > 0 && task.live_workers == 0 && is_known {
        let grade = if has_just_stopped { Grade::Note } else { Grade::Risk };
        // Those are counted as delayed until somebody claims.
        let due = if task.due > 0 { format!(" ({} of them due, among the delayed)", task.due) } else { String::new() };
        let what = format!("{} waiting{due}, and no live worker works it", many(waiting, "job"));
        troubles.push(Trouble { grade, ..Trouble::note(name, what, who_had(task)) });
    }
    if waiting == 0 && held == 0 && task.live_workers == 0 && is_known {
        let last = workers.iter().filter(|worker| worker.tasks.iter().any(|its| its.task == *name));
        let last = last.max_by_key(|worker| worker.last_seen_at).filter(|worker| {
            worker.stopped_at.is_none() && task.as_of.duration_since(worker.last_seen_at).unwrap_or_default() < TOLD_FOR
        });
        troubles.extend(last.map(|worker| {
            let at = relative(worker.last_seen_at, task.as_of);
            let what = format!("no live worker works it; the last one was seen {at}, and did not stop by itself");
            let hint = format!("nothing waits yet: start a worker that has the task; that one was {}", worker.worker);
            Trouble::note(name, what, hint)
        }));
    }
    if task.counts.delayed > task.due && waiting == 0 && task.live_workers == 0 && is_known {
        let next = task.next_due_at.and_then(|at| at.duration_since(task.as_of).ok()).map(span);
        let what = format!(
            "{} delayed, the next one due in {}, and no live worker works it",
            many(task.counts.delayed, "job"),
            next.unwrap_or_else(|| "an unknown time".to_owned())
        );
        troubles.push(Trouble::note(name, what, who_had(task)));
    }
    if task.nowhere > 0 {
        let what =
            format!("{} in no place: nobody works them, and nobody is told how they ended", many(task.nowhere, "job"));
        let hint = format!(
            "a key of the task was deleted, or the server lost it: `heartline audit -t {name}` names them, `heartline repair -t {name}` asks before any of them runs again; \
             one that a worker held may run there until its next heartbeat, within a third of the stall interval: repair behind that"
        );
        troubles.push(trouble(what, hint));
    }
    if task.live_workers > 0 && claimers(name, workers).next().is_none() && has_waited(task, LEFT) {
        let has_begun_lately =
            task.last_claimed_at.is_some_and(|at| task.as_of.duration_since(at).unwrap_or_default() < LEFT);
        let grade = if has_begun_lately { Grade::Note } else { Grade::Risk };
        let what = format!("{} waiting, and its workers are all stopping: they claim no more", many(waiting, "job"));
        troubles.push(Trouble { grade, ..Trouble::note(name, what, STOPPING.to_owned()) });
    }
    let stuck = stuck_parts(task, workers);
    if let Some(first) = stuck.iter().max_by_key(|part| part.next_waiting_age) {
        let none = first.last_claimed_at.map_or("none was ever begun".to_owned(), |at| {
            format!("none was begun for {}", span(task.as_of.duration_since(at).unwrap_or_default()))
        });
        let waited = span(first.next_waiting_age.unwrap_or_default());
        let of = match stuck.len() == task.parts.len() {
            true => format!("{} waiting, the next one", many(waiting, "job")),
            false => format!(
                "jobs wait in {} of its {} partitions, the next one of number {}",
                stuck.len(),
                task.parts.len(),
                first.part
            ),
        };
        troubles.push(trouble(
            format!("{of} for {waited}; {none}, although slots are free"),
            format!(
                "the log of its workers says why; `heartline audit -t {name}` tells whether a key of it is damaged"
            ),
        ));
    }
    if let Some(pause) = &task.paused {
        let of = if waiting > 0 { format!(", and {} waiting", many(waiting, "job")) } else { String::new() };
        let (mut what, when) = (format!("it is {}{of}", paused_by(pause)), relative(pause.at, task.as_of));
        let mut hint = format!("that was {when}; `heartline task resume {name}` lets its jobs begin");
        if task.is_paused_in_part() {
            let of = format!("{} of its {} partitions", pause.partitions, task.parts.len());
            what = format!("{of} are {}, and jobs of the others begin", paused_by(pause));
            hint = format!(
                "one was away when that was asked for, {when}: `heartline task pause {name}` pauses all, `heartline task resume {name}` lets all go on"
            );
        }
        troubles.push(if waiting > 0 { trouble(what, hint) } else { Trouble::note(name, what, hint) });
    }
    troubles.extend(of_holders(task, held_by, workers));
    for part in &task.parts {
        let stood = part.epoch_at.and_then(|at| task.as_of.duration_since(at).ok()).unwrap_or_default();
        let interval = part.interval.unwrap_or(Duration::from_secs(30));
        // Behind an outage the watches begin anew.
        let began = live_watches(name, workers).filter_map(|watch| task.as_of.duration_since(watch.since).ok());
        let is_watched = began.into_iter().any(|watched| watched < interval * 2);
        // One that has just started has not told of its watch yet.
        let is_new = |worker: &WorkerReport| {
            let started = worker.started_at.and_then(|at| task.as_of.duration_since(at).ok());
            worker.state.is_live() && started.is_some_and(|since| since < interval * 2)
        };
        let is_watched = is_watched || claimers(name, workers).any(is_new);
        if held > 0 && task.live_workers > 0 && stood > interval * STANDS_STILL && !is_watched {
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
    if let Some(report) = held_by.filter(|report| !report.is_whole) {
        let looked: u64 = report.holders.iter().map(|holder| holder.jobs).sum();
        let silent = workers.iter().filter(|worker| !worker.state.is_live());
        let its = silent.flat_map(|worker| &worker.tasks).filter(|its| its.task == *name).map(|its| its.held);
        let what = format!("who holds jobs is known of {looked} of {held}");
        let hint = format!(
            "by their own last words, workers that are not live hold {} of the task: `heartline workers --all`",
            its.sum::<u64>()
        );
        troubles.push(Trouble::note(name, what, hint));
    }
    let diagnosed = Diagnosis::of_task(task, workers);
    let is_explained = diagnosed.iter().any(|diagnosis| matches!(diagnosis, Diagnosis::SlotsHeldByLostRuns { .. }));
    troubles.extend(diagnosed.into_iter().map(Trouble::from));
    if is_crowded(task, workers) && !is_explained && held_by.is_none_or(|report| report.is_whole) {
        troubles.extend(crowd(task, held_by.map_or(&[], |report| &report.holders)));
    }
    troubles.extend(of_failures(task));
    if let Some(lost) = task.options_lost_at {
        let ago = task.as_of.duration_since(lost).unwrap_or_default();
        if ago < TOLD_FOR {
            troubles.push(Trouble::note(
                name,
                format!("its options and counters were lost {} ago, and its workers have declared them again", span(ago)),
                "a key of it was deleted (`…:meta`), or the server lost it: a pause of the task is gone with them, pause it again if it was".to_owned(),
            ));
        }
    }
    if let Some(failed) = task.hook_failed_at.filter(|_| task.hooks_failed_in_a_row > 0) {
        let ago = task.as_of.duration_since(failed).unwrap_or_default();
        let long = failed.duration_since(task.hooks_failing_since.unwrap_or(failed)).unwrap_or_default();
        let what = format!(
            "{} failed for good in {}, the last one {} ago: what they were to do is not done",
            many(task.hooks_failed_in_a_row, "hook"),
            span(long),
            span(ago)
        );
        let hint = format!(
            "`heartline events -t {name}` tells of which jobs, and why (task:hook_failed); they do not run again by themselves"
        );
        let grade = if task.hooks_failed_in_a_row >= HOOKS { Grade::Risk } else { Grade::Note };
        troubles.push(Trouble { grade, ..trouble(what, hint) });
    }
    if let Some(lost) = task.payload_lost_at.filter(|_| task.lost_payloads > 0) {
        let ago = task.as_of.duration_since(lost).unwrap_or_default();
        if ago < TOLD_FOR {
            troubles.push(Trouble::note(
                name,
                match task.lost_payloads {
                    1 => format!("1 job had lost its payload and was removed, {} ago", span(ago)),
                    jobs => format!("{jobs} jobs had lost their payload and were removed, the last one {} ago", span(ago)),
                },
                format!(
                    "somebody deleted them in Redis, or the server lost them: `heartline events -t {name}` names them (lost_payload=true); \
                     none of them had ended: dispatch them again; those of workflows, whose ids begin with ~, are sent again by themselves"
                ),
            ));
        }
    }
    troubles
}

/// The workers that hold jobs of the task and are not live, those with the most jobs first.
fn of_holders(task: &TaskReport, held_by: Option<&HolderReport>, workers: &[WorkerReport]) -> Vec<Trouble> {
    let of_worker = |holder: &Holder| of_holder(holder, workers);
    let is_live = |holder: &Holder| of_worker(holder).is_some_and(|worker| worker.state.is_live());
    let lost = held_by.iter().flat_map(|report| &report.holders).filter(|holder| !is_live(holder));
    let claims = |holder: &&Holder| of_worker(holder).is_some_and(|worker| claims(holder, worker, task.as_of));
    let (mute, mut lost): (Vec<&Holder>, Vec<&Holder>) = lost.partition(claims);
    lost.sort_by(|one, other| other.jobs.cmp(&one.jobs).then_with(|| one.worker.cmp(&other.worker)));
    // One more is as long as the line about it.
    let told = if lost.len() <= HOLDERS + 1 { lost.len() } else { HOLDERS };
    let least = if held_by.is_some_and(|report| report.is_whole) { "" } else { "at least " };
    let one_by_one = lost.iter().take(told).map(|holder| {
        let (worker, jobs) = (of_worker(holder), many(holder.jobs, "job"));
        let what = format!("{least}{jobs} held by {}", standing(holder.worker.as_str(), worker, task.as_of));
        Trouble::risk(Some(&task.task), what, next_step(task, holder.worker.as_str(), worker))
    });
    let mut troubles: Vec<Trouble> = one_by_one.collect();
    if let Some(rest) = lost.get(told..).filter(|rest| !rest.is_empty()) {
        let dead = rest.iter().filter(|holder| of_worker(holder).is_some_and(|worker| worker.death.is_some())).count();
        let proven = match dead {
            0 => "none of which is proven to be dead".to_owned(),
            dead if dead == rest.len() => "which are dead".to_owned(),
            dead => format!("{dead} of which are proven to be dead"),
        };
        let jobs = many(rest.iter().map(|holder| holder.jobs).sum(), "job");
        let what =
            format!("{least}{jobs} held by {} more that are not live, {proven}", many(rest.len() as u64, "worker"));
        let hint = "what is said above of the first ones is so of these: `heartline workers --all` lists them";
        troubles.push(Trouble::risk(Some(&task.task), what, hint.to_owned()));
    }
    troubles.extend(mute.iter().take(HOLDERS).filter_map(|holder| {
        let (what, hint) = mute_worker(holder, of_worker(holder)?, task.as_of);
        Some(Trouble::risk(Some(&task.task), what, hint))
    }));
    troubles
}

/// Whether a task can be of this name, so that it may stand in a command as it is.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(is_of_names)
}

/// So long behind its last sign of life a worker claims no job, unless it lives and cannot tell of itself; and how long that says so.
const CLAIMED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Whether a worker of which a sign of life is known has of late claimed a job, well behind that sign.
#[must_use]
pub fn claims(holder: &Holder, worker: &WorkerReport, now: SystemTime) -> bool {
    let (later, lately) = CLAIMED;
    let is_seen = worker.last_seen_at > SystemTime::UNIX_EPOCH && worker.death.is_none();
    let is_late = holder.last_claimed_at.duration_since(worker.last_seen_at).is_ok_and(|after| after > later);
    // A claim that is still to come is of a clock that went back, and proves nothing.
    let is_of_late = match now.duration_since(holder.last_claimed_at) {
        Ok(ago) => ago < lately,
        Err(ahead) => ahead.duration() < later,
    };
    is_seen && is_late && is_of_late
}

fn of_holder<'a>(holder: &Holder, workers: &'a [WorkerReport]) -> Option<&'a WorkerReport> {
    workers.iter().find(|worker| worker.worker == holder.worker)
}

/// What is said of a worker that claims jobs, and cannot tell of itself, with what is to be done.
#[must_use]
pub fn mute_worker(holder: &Holder, worker: &WorkerReport, now: SystemTime) -> (String, String) {
    let (seen, claimed) = (relative(worker.last_seen_at, now), relative(holder.last_claimed_at, now));
    let what = format!(
        "{} held by {}, which works, and cannot tell of itself: it claimed a job {claimed}, and told of itself {seen}",
        many(holder.jobs, "job"),
        holder.worker
    );
    let hint = "it is most likely ALIVE: its jobs would run twice if they were taken from it. Its user of the server may lack a right (docs/acl.md has those of a worker), or something foreign is under its key `worker:ID`; its log says which"
        .to_owned();
    (what, hint)
}

/// What is said of the holder of a job of the task that is not live, where it claims jobs all the same.
///
/// # Errors
/// As every look.
pub async fn mute_holder(
    inspector: &Inspector,
    task: &str,
    worker: &WorkerReport,
) -> Result<Option<(String, String)>, Error> {
    let now = inspector.now().await;
    let holders = inspector.holders(task).await?.holders;
    let own = holders.iter().find(|holder| holder.worker == worker.worker && claims(holder, worker, now));
    Ok(own.map(|holder| mute_worker(holder, worker, now)))
}

/// Whether a worker lives by the list, and what it does cannot be told.
fn is_untold(worker: &WorkerReport) -> bool {
    worker.is_away && worker.state.is_live()
}

/// What is on nodes of a cluster that are away, or on its way to another one.
fn of_away(tasks: &[TaskReport], workers: &[WorkerReport]) -> impl Iterator<Item = Trouble> + use<> {
    let (moving, away): (Vec<&TaskReport>, Vec<&TaskReport>) =
        tasks.iter().filter(|task| task.is_away).partition(|task| task.fault.as_deref().is_some_and(is_moving));
    let untold = workers.iter().filter(|worker| is_untold(worker)).count() as u64;
    let named = |tasks: &[&TaskReport]| {
        let named: Vec<&str> = tasks.iter().take(5).map(|task| task.task.as_str()).collect();
        format!("{}{}", named.join(", "), if tasks.len() > 5 { ", …" } else { "" })
    };
    let tasks = |tasks: &[&TaskReport]| many(tasks.len() as u64, "task");
    let moved = (!moving.is_empty()).then(|| {
        let what = format!("{} on the way to another node of the cluster: {}", tasks(&moving), named(&moving));
        let hint = "their slots are moved, and nothing of them is dispatched, claimed or reported until those have arrived; where nobody moves them any more, `redis-cli --cluster check` and `--cluster fix` end that";
        Trouble::risk(None, what, hint.to_owned())
    });
    let mut parts = Vec::new();
    if !away.is_empty() {
        parts.push(format!("{} on nodes of the cluster that cannot be asked: {}", tasks(&away), named(&away)));
    }
    if untold > 0 {
        let there = if away.is_empty() { ", on nodes of the cluster that cannot be asked" } else { " there" };
        let own = if untold == 1 { "itself" } else { "themselves" };
        parts.push(format!("{} cannot tell of {own}{there}", many(untold, "live worker")));
    }
    let gone = (!parts.is_empty()).then(|| {
        let until = "until the node is back, or its replica is the primary (`heartline doctor` names it)";
        let hint = match (away.is_empty(), untold > 0) {
            (true, _) => format!("whether they live is not known {until}; what they work on other nodes goes on"),
            (false, true) => format!(
                "they stand still {until}; nothing of theirs is damaged, and whether those workers live is not known"
            ),
            (false, false) => format!("they stand still {until}; nothing of theirs is damaged"),
        };
        Trouble::risk(None, parts.join("; "), hint)
    });
    moved.into_iter().chain(gone)
}

/// Whether something cannot be asked, as this says, since its slot is on its way: some of its keys are on one node, some on another.
pub(crate) fn is_moving(fault: &str) -> bool {
    fault.to_ascii_uppercase().contains("TRYAGAIN")
}

/// That every slot was taken for long, if so: handlers may hang.
fn crowd(task: &TaskReport, holders: &[Holder]) -> Option<Trouble> {
    let last = holders.iter().map(|holder| holder.last_claimed_at).max().or(task.last_claimed_at)?;
    let first = holders.iter().map(|holder| holder.first_claimed_at).min();
    let ago = |at| task.as_of.duration_since(at).unwrap_or_default();
    let waited = task.next_waiting_age.unwrap_or_default();
    if waited < CROWDED {
        return None;
    }
    // Jobs are begun: nothing hangs, there is more than is done.
    if ago(last) < BEGUN_LATELY {
        let what = format!(
            "{} waiting, the next one for {}, while all slots are taken and jobs are begun as they come free",
            many(task.counts.waiting + task.due, "job"),
            span(waited)
        );
        let hint = format!(
            "where that time grows, more comes than is done: more workers, or a larger concurrency; `heartline tasks` tells how fast {} moves",
            task.task
        );
        return Some(Trouble::note(&task.task, what, hint));
    }
    let longest = task.options.values.get("timeoutMs").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let is_hung = ago(last) > HUNG.max(longest.unwrap_or_default());
    let slots = match task.counts.claimed + task.counts.running >= task.slots {
        true => taken(task.slots),
        false => "its workers hold all the jobs that they may, by their max_jobs".to_owned(),
    };
    let what = format!("{slots}, for {} none was begun, and the next job has waited {}", span(ago(last)), span(waited));
    let name = &task.task;
    let timeout = task.options.values.get("timeoutMs").is_none_or(|ms| ms.is_empty() || ms == "0");
    let timeout = if timeout { "; its runs have no timeout" } else { "" };
    let oldest = first
        .map_or("none of its own jobs runs".to_owned(), |first| format!("its oldest run is {} old", span(ago(first))));
    let hint = format!(
        "{oldest}: `heartline jobs list -t {name} -s running` names what runs, `heartline jobs cancel -t {name} ID` stops one of it, more workers take what waits{timeout}"
    );
    let grade = if is_hung { Grade::Risk } else { Grade::Note };
    Some(Trouble { grade, ..Trouble::note(name, what, hint) })
}

/// That every slot is taken.
fn taken(slots: u64) -> String {
    match slots {
        1 => "the only slot is taken".to_owned(),
        slots => format!("all {slots} slots are taken"),
    }
}

/// The watches of live workers over a task.
fn live_watches<'a>(task: &'a str, workers: &'a [WorkerReport]) -> impl Iterator<Item = &'a WatchReport> {
    let live = workers.iter().filter(|worker| worker.state.is_live()).flat_map(|worker| &worker.tasks);
    live.filter(move |its| its.task == task).flat_map(|its| &its.watches)
}

/// A worker that holds jobs and is not live: what is known of it.
#[must_use]
pub fn standing(id: &str, worker: Option<&WorkerReport>, now: SystemTime) -> String {
    let Some(worker) = worker else { return format!("{id}, of which nothing is known any more") };
    let seen = span(now.duration_since(worker.last_seen_at).unwrap_or_default());
    let host = if worker.host.is_empty() { String::new() } else { format!(" on {}", worker.host) };
    match (&worker.death, worker.stopped_at) {
        (Some(death), _) => format!("{id}{host}, which is dead ({}), last seen {seen} ago", proof(death.proof)),
        (None, Some(_)) => format!("{id}{host}, which stopped {seen} ago"),
        (None, None) => format!(
            "{id}{host}, last seen {seen} ago: it is dead, frozen, or cut off from Redis (which may just have come back: look again in 10s)"
        ),
    }
}

/// So many hooks that failed are no bad luck any more.
const HOOKS: u64 = 20;

/// The stall interval where nobody asked for another one.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

/// What becomes of jobs that a worker holds which is not live, and what a person may do.
#[must_use]
pub fn next_step(task: &TaskReport, worker: &str, known: Option<&WorkerReport>) -> String {
    let is_dead = known.is_some_and(|worker| worker.death.is_some());
    let doubt = if is_dead { "" } else { ", if it is dead," };
    // Which of the two it is only its host tells.
    let frozen = known.filter(|known| !is_dead && known.stopped_at.is_none() && !known.host.is_empty());
    let frozen = frozen.and_then(|known| Some((known.pid?, known))).map_or_else(String::new, |(pid, known)| {
        // In a container it has another number than on the host.
        let place = if known.is_contained { "inside its container on" } else { "on" };
        format!("; {place} {} `ps -o stat= -p {pid}` says whether it is frozen (T, and `kill -CONT {pid}` lets it go on) or dead (nothing)", known.host)
    });
    let at_once = format!(
        "`heartline recover worker {}`{doubt} does at once, and lets those fail that stalled as often as they may{frozen}",
        quoted(worker)
    );
    let name = &task.task;
    if runs_wait_for_people(task) {
        return format!(
            "they are set aside for a person: `heartline recover silent -t {name}`, then `recover running` or `fail`"
        );
    }
    let at_once = match waits_for_people(task) {
        true => format!(
            "{at_once}; those of them that its options leave to a person are in `heartline recover silent -t {name}`"
        ),
        false => at_once,
    };
    let longest = task.parts.iter().max_by_key(|part| part.interval);
    let interval = longest.and_then(|part| part.interval).unwrap_or(DEFAULT_INTERVAL);
    let asker = longest.and_then(|part| part.asker.as_ref()).filter(|_| interval > DEFAULT_INTERVAL);
    let whose = asker.map_or_else(String::new, |asker| {
        format!(" (two stall intervals of {}, which {} asked for)", span(interval), shown(asker.as_str()))
    });
    if task.live_workers == 0 && task.knows_workers {
        return format!(
            "no live worker is there to take them back: start one, which does within about {}{whose}; {at_once}",
            span(interval * 2)
        );
    }
    // One that has just started watches for a whole interval first.
    let epoch = task.parts.iter().filter_map(|part| part.epoch_at).chain(task.options.declared_at).max();
    let swept = epoch.map_or(Duration::ZERO, |at| task.as_of.duration_since(at).unwrap_or_default());
    if swept > interval * 3 {
        return format!(
            "its live workers were to take them back by now, and have not: `heartline stalls outlook -t {name}` says why; {at_once}"
        );
    }
    format!("live workers take them back within about {}{whose}; {at_once}", span(interval * 2))
}

/// How a job that seems to wait had ended, where what is stored of it tells.
fn had_ended(job: &JobReport) -> Option<&'static str> {
    let code = job.error.as_ref().map(|error| error.code.as_str());
    match code {
        _ if job.result_bytes > 0 => Some("had completed"),
        Some(codes::CANCELLED) => Some("was cancelled"),
        Some(codes::EXPIRED) => Some("had expired"),
        _ => None,
    }
}

/// Why a job stands where it is, if that may be wrong, and what may be done; `None` where nothing is. With all well of a held job its holder
/// alone is asked about.
///
/// # Errors
/// As every look.
pub async fn trouble_of(inspector: &Inspector, job: &JobReport) -> Result<Option<(String, String)>, Error> {
    let Some(holder) = &job.worker else {
        if !matches!(job.state, JobState::Waiting | JobState::Delayed) {
            return Ok(None);
        }
        // A task that is damaged does not hide the job.
        return match inspector.task(&job.task).await {
            Ok(_) if job.state == JobState::Waiting && had_ended(job).is_some() => {
                let hint = format!("`heartline repair -t {}` puts it back where it was", job.task);
                let how = had_ended(job).unwrap_or_default();
                Ok(Some((format!("it {how}, and its place is lost: it does not wait"), hint)))
            }
            Ok(task) if job.state == JobState::Waiting && task.counts.waiting == 0 => in_no_list(inspector, job).await,
            Ok(task) if job.state == JobState::Waiting && task.nowhere > 0 => {
                let what = match task.nowhere {
                    1 => "1 job of its task that is not held is in no list, and it may be this one".to_owned(),
                    jobs => format!("{jobs} jobs of its task are in no list, and it may be one of them"),
                };
                Ok(Some((what, audits(&job.task))))
            }
            Ok(task) => {
                let workers = listed::workers(inspector).await?;
                let Some((what, hint)) = why_it_waits(job, &task, &workers) else { return Ok(None) };
                if task.paused.is_none()
                    && let Some(unknown) = self::unknown(inspector).await
                {
                    return Ok(Some(unknown));
                }
                Ok(Some((what, heeded(inspector, &task, hint).await?)))
            }
            Err(e) if e.is_retryable() => Err(e),
            Err(e) => Ok(Some((format!("its task cannot be read: {e}"), audits(&job.task)))),
        };
    };
    let worker = inspector.worker(holder.as_str()).await?;
    let is_live = worker.as_ref().is_some_and(|worker| worker.state.is_live());
    if is_live && !job.is_silent {
        return Ok(None);
    }
    let task = inspector.task(&job.task).await?;
    if !is_live {
        if let Some(unknown) = self::unknown(inspector).await {
            return Ok(Some(unknown));
        }
        if let Some(worker) = &worker
            && let Some(mute) = mute_holder(inspector, &job.task, worker).await?
        {
            return Ok(Some(mute));
        }
        let mut what = format!("it is held by {}", standing(holder.as_str(), worker.as_ref(), task.as_of));
        let mut hint = next_step(&task, holder.as_str(), worker.as_ref());
        let is_last = is_last_run(&task, job.options.max_count, job.stalled_count) && job.cancel_requested.is_none();
        if job.state == JobState::Running && is_last {
            what += "; IT WILL FAIL when it is taken back: its options let it stall no more";
            hint = format!("{}; {hint}", spared(&task, &quoted(job.id.as_str())));
        }
        return Ok(Some((what, heeded(inspector, &task, hint).await?)));
    }
    if !is_overdue(&task) {
        return Ok(None);
    }
    let what = format!("it was not heard from since the last snapshot, though {holder} told of itself");
    Ok(Some((what, format!("`heartline stalls outlook -t {}` tells what comes next", task.task))))
}

/// The advice about a job, where its task has suspects: they come before.
async fn heeded(inspector: &Inspector, task: &TaskReport, hint: String) -> Result<String, Error> {
    let mut workers = listed::workers(inspector).await?;
    let holders = holders(inspector, std::slice::from_ref(task), &mut workers).await?;
    let suspicions = suspicions_of(inspector, task, &workers, &holders).await?;
    Ok(if suspicions.at_large.is_empty() { hint } else { heeding(&hint) })
}

/// What becomes of a job that waits by its columns, where nothing waits in any list: it has begun meanwhile, or nobody finds it.
async fn in_no_list(inspector: &Inspector, job: &JobReport) -> Result<Option<(String, String)>, Error> {
    let now = inspector.job(&job.task, job.id.as_str(), JobValues::None).await?;
    let stands = |now: &JobReport| {
        (now.state, now.waiting_since, now.dispatched_at) == (job.state, job.waiting_since, job.dispatched_at)
    };
    Ok(now.filter(stands).map(|_| ("it is in no list, and nobody finds it there".to_owned(), audits(&job.task))))
}

fn audits(task: &str) -> String {
    format!(
        "`heartline audit -t {task}` finds jobs that are in no list, and `heartline repair -t {task}` lets them run (AGAIN, if they had ended)"
    )
}

/// What to do where no live worker has the task.
fn who_had(task: &TaskReport) -> String {
    match &task.options.declared_by {
        Some(worker) => format!("start a worker that has the task; the last one that began with it was {worker}"),
        None if task.counts.held() > 0 => "start a worker that has the task".to_owned(),
        None => "no worker ever had this task: start one that has, or the name is wrong".to_owned(),
    }
}

fn paused_by(pause: &TaskPause) -> String {
    let why = if pause.reason.is_empty() { String::new() } else { format!(" ({})", pause.reason) };
    format!("paused by {}{why}", pause.by)
}

/// What to do where the workers of a task are all stopping.
const STOPPING: &str = "start a worker that has the task; those end when their jobs have ended, or their grace is over";

/// Why a job does not begin that waits, or is due.
fn why_it_waits(job: &JobReport, task: &TaskReport, workers: &[WorkerReport]) -> Option<(String, String)> {
    if job.state == JobState::Delayed && job.due_at.is_none_or(|at| at > task.as_of) {
        return None;
    }
    let (name, counts) = (&task.task, &task.counts);
    if let Some(pause) = &task.paused {
        let what = format!("its task is {}", paused_by(pause));
        let when = relative(pause.at, task.as_of);
        return Some((what, format!("that was {when}; `heartline task resume {name}` lets it begin")));
    }
    if task.live_workers == 0 {
        return task.knows_workers.then(|| ("no live worker works its task".to_owned(), who_had(task)));
    }
    let is_its = |worker: &&WorkerReport| worker.tasks.iter().any(|its| its.task == *name);
    let is_live = workers.iter().filter(is_its).any(|worker| worker.state.is_live());
    if task.knows_workers && is_live && claimers(name, workers).next().is_none() {
        return Some(("the workers of its task are all stopping: they claim no more".to_owned(), STOPPING.to_owned()));
    }
    if counts.claimed + counts.running < task.slots {
        return None;
    }
    let waiting = counts.waiting + task.due;
    let what = format!("{}, and {} waiting", taken(task.slots), many(waiting, "job"));
    let hint = format!("more workers take what waits; `heartline jobs list -t {name} -s running` shows what runs");
    Some((what, hint))
}

/// Whether jobs of some phase are recovered by nobody but a person.
#[must_use]
pub fn waits_for_people(task: &TaskReport) -> bool {
    task.options.values.get("patience").is_some_and(|patience| patience.contains("off"))
}

/// Whether running jobs are recovered by nobody but a person.
pub(crate) fn runs_wait_for_people(task: &TaskReport) -> bool {
    task.options.values.get("patience").and_then(|patience| patience.split(' ').nth(1)) == Some("off")
}

/// How old the last sign of a worker is when it should have given another.
const OVERDUE_SIGN: Duration = Duration::from_secs(10);

/// Whether a worker should have told of itself by now, if it lives: what it tells from now on is proof that it does.
#[must_use]
pub fn is_sign_overdue(worker: &WorkerReport, now: SystemTime) -> bool {
    !worker.state.is_live() || now.duration_since(worker.last_seen_at).is_ok_and(|since| since > OVERDUE_SIGN)
}

/// What a worker holds, task by task, and what becomes of it when its jobs are taken from it; empty where it holds nothing.
///
/// # Errors
/// As every look.
pub async fn holdings(inspector: &Inspector, worker: &WorkerReport) -> Result<String, Error> {
    let mut held = Vec::new();
    for its in worker.tasks.iter().filter(|its| its.held > 0) {
        let task = inspector.task(&its.task).await?;
        let kept = if runs_wait_for_people(&task) { ", which its options leave to a person" } else { "" };
        let failing = match would_fail(inspector, &task, |id| id == worker.worker.as_str()).await? {
            0 => String::new(),
            failing => format!(", {failing} of which will fail: their options allow no other run"),
        };
        held.push(format!("{} of {}{kept}{failing}", its.held, shown(&its.task)));
    }
    Ok(held.join("; "))
}

/// Tasks that live workers have and nobody lists, or none at all: the prefix is wrong, or data are gone.
fn of_lost_tasks(tasks: &[TaskReport], workers: &[WorkerReport]) -> Vec<Trouble> {
    let is_worked = workers.iter().any(|worker| worker.state.is_live());
    if tasks.is_empty() && is_worked {
        let what = "live workers are here, and no task is listed".to_owned();
        let hint = "the server has lost its data, and what was dispatched before is gone; or somebody deleted the list of tasks, the key `tasks` under the prefix, to which workers that start and dispatches add theirs again";
        return vec![Trouble::risk(None, what, hint.to_owned())];
    }
    if tasks.is_empty() {
        let hint =
            "the prefix or the address is wrong (--prefix, --redis), the data are gone, or nothing was dispatched yet";
        let what = "there is no task under this prefix".to_owned();
        return vec![Trouble::risk(None, what, hint.to_owned())];
    }
    let live = workers.iter().filter(|worker| worker.state.is_live()).flat_map(|worker| &worker.tasks);
    let names: BTreeSet<&str> = live.map(|its| its.task.as_str()).collect();
    let lost = names.into_iter().filter(|name| !tasks.iter().any(|task| task.task == *name));
    let what = "live workers have it, and it is not in the list of tasks";
    let hint = "its workers list it again within a minute or so; where they do not, or its jobs are gone, the server has lost data";
    lost.map(|name| Trouble::risk(Some(name), what.to_owned(), hint.to_owned())).collect()
}

/// A task of a live worker of which the server denied it a call in the last minute, and what it said.
fn denied(worker: &WorkerReport, now: SystemTime) -> Option<(&str, &str)> {
    let is_late = |at: SystemTime| now.duration_since(at).unwrap_or_default() < DENIED_FOR;
    let its = worker.tasks.iter().find(|its| its.denied_at.is_some_and(is_late));
    its.filter(|_| worker.state.is_live()).map(|its| (&*its.task, &*its.denied))
}

/// The workflow of which the server denied a live worker a call in the last minute, and what it said.
fn flows_denied(worker: &WorkerReport, now: SystemTime) -> Option<&str> {
    let is_late = |at: SystemTime| now.duration_since(at).unwrap_or_default() < DENIED_FOR;
    let is_told = worker.state.is_live() && worker.flows_denied_at.is_some_and(is_late);
    is_told.then_some(&*worker.flows_denied)
}

/// Whether the server denied a live worker a call in the last minute.
#[must_use]
pub fn is_denied(worker: &WorkerReport, now: SystemTime) -> bool {
    denied(worker, now).is_some() || flows_denied(worker, now).is_some()
}

/// What was denied is tried again within seconds: behind so long without a denial the right is there.
const DENIED_FOR: Duration = Duration::from_secs(60);

/// A task of a live worker whose last sweep the server refused, in the last two intervals.
fn refused(worker: &WorkerReport, now: SystemTime) -> Option<&str> {
    let is_refused = |watch: &WatchReport| {
        let since = watch.broken_at.map(|at| now.duration_since(at).unwrap_or_default());
        watch.broken == Some(WatchBreak::SweepRefused) && since.is_some_and(|since| since < watch.interval * 2)
    };
    let mut tasks = worker.tasks.iter().filter(|its| its.watches.iter().any(is_refused));
    tasks.next().filter(|_| worker.state.is_live()).map(|its| its.task.as_str())
}

/// A worker that fell silent and holds nothing, or whose handlers keep its runtime.
fn of_worker(worker: &WorkerReport, now: SystemTime) -> Option<Trouble> {
    if worker.is_away {
        return None;
    }
    if let Some(fault) = &worker.fault {
        let hint = match worker.is_denied {
            true => DENIED,
            false => "something foreign is stored under its key: remove that, and it tells of itself again within 5s",
        };
        return Some(Trouble::risk(
            None,
            format!("the worker {} cannot be read: {fault}", worker.worker),
            hint.to_owned(),
        ));
    }
    if let Some((task, said)) = denied(worker, now) {
        let what = format!("the server denies the worker {} what it asks for {task}: {said}", worker.worker);
        let hint = match ["WRONGPASS", "NOAUTH", "assword"].iter().any(|word| said.contains(word)) {
            true => {
                "give that server the user and the password of the worker: each node and each replica has users of its own; it goes on by itself within a minute"
            }
            false => {
                "grant its user the right (docs/acl.md has all that a worker needs); it goes on by itself within a minute. What `heartline audit` finds \
                 meanwhile may come of it: repair behind that"
            }
        };
        return Some(Trouble::risk(None, what, hint.to_owned()));
    }
    if let Some(said) = flows_denied(worker, now) {
        let what = format!("the server denies the worker {} what a workflow needs: {said}", worker.worker);
        let hint = "nodes that it claims do not begin, and what ends is told by other workers, or by none: grant its user the keys of the workflow, `{<workflow>:flow}:*` under the prefix, and of their list, `flows` (docs/acl.md); it goes on by itself within a minute";
        return Some(Trouble::risk(None, what, hint.to_owned()));
    }
    if let Some(task) = refused(worker, now) {
        let what = format!("the server refuses what the worker {} asks for {task}", worker.worker);
        let hint = "its log says what: mostly its user lacks a right (docs/acl.md), or something foreign is under a key of the task; it goes on by itself when that is mended".to_owned();
        return Some(Trouble::risk(None, what, hint));
    }
    let held: u64 = worker.tasks.iter().map(|its| its.held).sum();
    if worker.state == WorkerState::Silent && held == 0 {
        let what = format!("the worker {}", standing(worker.worker.as_str(), Some(worker), now));
        let hint = "it holds no job any more; a handler of it may still run beside the next run of its job";
        return Some(Trouble { grade: Grade::Note, ..Trouble::risk(None, what, hint.to_owned()) });
    }
    let blocked = worker.runtime_blocked.filter(|_| worker.state.is_live())?;
    let hint = "a handler computes or waits without `await`: use spawn_blocking for that";
    Some(Trouble::risk(
        None,
        format!("handlers block the runtime of {} for {}", worker.worker, span(blocked)),
        hint.to_owned(),
    ))
}
