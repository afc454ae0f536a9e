//! What the last stalls tell: which jobs were taken back from workers that died, and which may have taken them down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use heartline::{
    Error, Holder, HolderReport, Inspector, JobFilter, JobRow, JobState, JobValues, StallAction, StalledEvent, Suspect,
    TaskReport, WorkerReport,
};

use crate::checks::Grade;
use crate::text::{many, quoted, relative};
use crate::troubles::{TOGETHER, Trouble, claimers, claims, gravest_first, runs_wait_for_people};

/// A job that was held at the deaths of workers is told of for so long.
const SUSPECT_FOR: Duration = Duration::from_secs(3600);

/// For so long it is told that jobs were taken back.
const TAKEN_FOR: Duration = Duration::from_secs(600);

/// How many jobs that would fail are asked about one by one, whether they are to be cancelled.
const CANCELLED: usize = 100;

/// How many suspects are asked about one by one.
const LOOKED_UP: usize = 20;

/// How many pages of the stalls of a task are read for those of the last minutes.
const PAGES: usize = 10;

/// How many running jobs are looked at for those that would fail.
const HELD_LOOKED_AT: usize = 1000;

/// The last stalls of a task: those of the last minutes, and some before. Whether none of the last minutes is left out.
///
/// # Errors
/// As every look.
pub async fn last_stalls(inspector: &Inspector, task: &str) -> Result<(Vec<StalledEvent>, bool), Error> {
    let (mut stalls, mut cursor, now) = (Vec::new(), None, inspector.now().await);
    for _ in 0..PAGES {
        let (some, next) = inspector.stalled_events(task, cursor.as_deref()).await?;
        let is_old = |stall: &StalledEvent| now.duration_since(stall.at).unwrap_or_default() > TAKEN_FOR;
        let is_through = next.is_none() || some.last().is_none_or(is_old);
        stalls.extend(some);
        if is_through {
            return Ok((stalls, true));
        }
        cursor = next;
    }
    Ok((stalls, false))
}

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

/// Jobs that were held at the deaths of two workers or more, the last one of late.
#[derive(Clone, Debug, Default)]
pub struct Suspicions {
    /// Those that have not ended since, and may take down the next worker.
    pub at_large: Vec<Trouble>,
    /// Those that failed, and may do that again when somebody retries them.
    pub failed: Vec<Trouble>,
}

/// Jobs that were held at the deaths of two workers or more, the last one of late, by these stalls.
///
/// # Errors
/// As every look.
pub async fn suspicions<'a>(
    inspector: &Inspector,
    stalls: impl IntoIterator<Item = &'a StalledEvent>,
    tasks: &[TaskReport],
    workers: &[WorkerReport],
    now: SystemTime,
) -> Result<Suspicions, Error> {
    let deaths: Vec<&StalledEvent> = stalls.into_iter().filter(|stall| !survived(stall, workers)).collect();
    let mut found = Suspect::among(deaths.iter().copied());
    let is_late = |suspect: &Suspect| now.duration_since(suspect.last_at).unwrap_or_default() < SUSPECT_FOR;
    // While nobody is left whom it could take down it waits for the next worker, however long.
    found.retain(|suspect| is_late(suspect) || claimers(&suspect.task, workers).next().is_none());
    match inspector.look_up_suspects(&mut found).await {
        Err(e) if e.is_retryable() => return Err(e),
        // Of a task with a damaged key no suspect is told.
        _ => {}
    }
    // One that is cancelled when it is taken back takes nobody down any more.
    let mut cancelled = BTreeSet::new();
    for suspect in found.iter().filter(|suspect| suspect.is_at_large()).take(LOOKED_UP) {
        let job = inspector.job(&suspect.task, suspect.id.as_str(), JobValues::None).await;
        if job.is_ok_and(|job| job.is_some_and(|job| job.cancel_requested.is_some())) {
            cancelled.insert((&suspect.task, &suspect.id));
        }
    }
    let mut suspects: BTreeMap<&str, Vec<&Suspect>> = BTreeMap::new();
    for suspect in
        found.iter().filter(|suspect| suspect.is_at_large() && !cancelled.contains(&(&suspect.task, &suspect.id)))
    {
        suspects.entry(&suspect.task).or_default().push(suspect);
    }
    let told = |(task, suspects): (&str, Vec<&Suspect>)| {
        let jobs = many(suspects.len() as u64, "job");
        let is_paused = tasks.iter().any(|report| report.task == task && report.paused.is_some());
        let all: Vec<&Suspect> = found.iter().filter(|suspect| suspect.task == task).collect();
        let act = accusation(task, &all, &suspects, is_paused);
        let is_proven = |stall: &&&StalledEvent| {
            let held = workers.iter().find(|worker| Some(&worker.worker) == stall.worker.as_ref());
            held.is_some_and(|worker| worker.death.is_some())
        };
        let its =
            || deaths.iter().filter(|stall| suspects.iter().any(|job| job.task == stall.task && job.id == stall.id));
        let doubt = if its().all(|stall| is_proven(&stall)) {
            ""
        } else {
            "not each of these deaths is proven, and a worker that froze looks the same; "
        };
        let what = format!("{jobs} held at the deaths of two workers or more: {}", named(&suspects));
        let suspects = format!("{doubt}`heartline stalls suspects -t {task}`; {act}");
        // Where nobody is left the next worker may be taken down as well; of a paused task it begins none.
        match claimers(task, workers).next() {
            _ if is_paused => Trouble::note(task, what, format!("it is paused, and none of them begins: {suspects}")),
            Some(_) => Trouble::note(task, what, format!("a job may take its process down: {suspects}")),
            None => Trouble::risk(Some(task), what, format!("before you start another worker: {suspects}")),
        }
    };
    let at_large = suspects.into_iter().map(told).collect();
    let mut failed: BTreeMap<&str, Vec<&Suspect>> = BTreeMap::new();
    let has_failed = |suspect: &&Suspect| suspect.state == Some(JobState::Failed) && suspect.unexplained > 1;
    for suspect in found.iter().filter(|suspect| is_late(suspect)).filter(has_failed) {
        failed.entry(&suspect.task).or_default().push(suspect);
    }
    let told = |(task, suspects): (&str, Vec<&Suspect>)| {
        let what = format!(
            "{} failed that {} held at the deaths of two workers or more: {}",
            many(suspects.len() as u64, "job"),
            if suspects.len() == 1 { "was" } else { "were" },
            named(&suspects)
        );
        let hint = format!(
            "a retry may take workers down again: `heartline stalls suspects -t {task}` tells how suspicious each is; one at a time, on a worker with one slot"
        );
        Trouble::note(task, what, hint)
    };
    Ok(Suspicions { at_large, failed: failed.into_iter().map(told).collect() })
}

/// The first ones, by name.
fn named(suspects: &[&Suspect]) -> String {
    let named: Vec<&str> = suspects.iter().take(3).map(|suspect| suspect.id.as_str()).collect();
    format!("{}{}", named.join(", "), if suspects.len() > 3 { ", …" } else { "" })
}

/// What to do about suspects that are at large, of all that there are: an innocent job that ran beside a guilty one looks the same, also when that one has
/// ended.
#[must_use]
pub fn accusation(task: &str, all: &[&Suspect], suspects: &[&Suspect], is_paused: bool) -> String {
    let is_at_large = |foremost: &&Suspect| suspects.iter().any(|suspect| suspect.id == foremost.id);
    match Suspect::foremost(all).filter(is_at_large) {
        Some(foremost) if suspects.len() == 1 && foremost.alone == foremost.deaths => format!(
            "it was alone each time: where other jobs complete it is this one, and `heartline jobs cancel -t {task} {}` ends it; where none does, see \
             what stops the workers (the log of their host tells of a kill for want of memory)",
            quoted(foremost.id.as_str())
        ),
        Some(foremost) => {
            format!("`heartline jobs cancel -t {task} {}` ends the most suspicious one", quoted(foremost.id.as_str()))
        }
        None => {
            let until = if is_paused {
                format!("`heartline task resume {task}` when that worker is the only one")
            } else {
                format!("`heartline task pause {task}` lets none begin until that worker is the only one")
            };
            if suspects.iter().all(|suspect| suspect.alone == suspect.deaths) {
                let named: Vec<String> = suspects.iter().take(3).map(|suspect| quoted(suspect.id.as_str())).collect();
                return format!(
                    "each of them was alone when its workers died: where other jobs complete it is these, and `heartline jobs cancel -t {task} {}` ends them; \
                     where none does, see what stops the workers (the log of their host tells of a kill for want of memory)",
                    named.join(" ")
                );
            }
            let which = if all.len() == suspects.len() {
                "which of them"
            } else {
                "whether it was one of these, or one that has ended since,"
            };
            format!(
                "{which} cannot be told, since they died together: one at a time, on a worker with one slot, they tell themselves apart ({until})"
            )
        }
    }
}

/// Whether a worker was seen behind the stall of a job that it held, so that it was frozen, or cut off, and did not die; or whether nobody can
/// tell yet.
#[must_use]
pub fn survived(stall: &StalledEvent, workers: &[WorkerReport]) -> bool {
    let held = workers.iter().find(|worker| Some(&worker.worker) == stall.worker.as_ref());
    held.is_some_and(|worker| worker.last_seen_at > stall.at || worker.state.is_live())
}

/// What was taken back of late from workers that died, froze or were cut off, by these stalls. It is over, and may have been missed.
#[must_use]
pub fn taken_back<'a>(
    stalls: impl IntoIterator<Item = &'a StalledEvent>,
    is_whole: impl Fn(&str) -> bool,
    now: SystemTime,
) -> Vec<Trouble> {
    let is_late = |stall: &&StalledEvent| now.duration_since(stall.at).unwrap_or_default() < TAKEN_FOR;
    let mut by_task: BTreeMap<&str, Vec<&StalledEvent>> = BTreeMap::new();
    for stall in stalls.into_iter().filter(is_late) {
        by_task.entry(&stall.task).or_default().push(stall);
    }
    let told = |(task, stalls): (&str, Vec<&StalledEvent>)| {
        let workers: BTreeSet<&str> = stalls.iter().filter_map(|stall| Some(stall.worker.as_ref()?.as_str())).collect();
        let least = if is_whole(task) { "" } else { "at least " };
        let from = match workers.first() {
            Some(worker) if workers.len() == 1 => format!(" from {worker}"),
            Some(_) => format!(" from {} workers", workers.len()),
            None => String::new(),
        };
        // A job may have been taken back more than once: what became of it is what came last.
        let mut jobs: BTreeMap<&str, &StalledEvent> = BTreeMap::new();
        for stall in &stalls {
            let last = jobs.entry(stall.id.as_str()).or_insert(stall);
            if (last.at, last.stalled_count) < (stall.at, stall.stalled_count) {
                *last = stall;
            }
        }
        let of = |action: StallAction| jobs.values().filter(|stall| stall.action == action).count();
        let became = [(of(StallAction::Failed), "failed"), (of(StallAction::Cancelled), "cancelled, as was asked for")];
        let became = became.iter().filter(|(jobs, _)| *jobs > 0).map(|(jobs, word)| format!("; {jobs} of them {word}"));
        let became: String = became.collect();
        let last = relative(stalls.iter().map(|stall| stall.at).max().unwrap_or(now), now);
        let times = if jobs.len() == stalls.len() { String::new() } else { format!(", {} times in all", stalls.len()) };
        let jobs = many(jobs.len() as u64, "job");
        let what = format!("{least}{jobs} taken back{from}{times}, the last one {last}{became}");
        Trouble::note(task, what, format!("`heartline stalls list -t {task}` explains each"))
    };
    by_task.into_iter().map(told).collect()
}

/// Jobs that workers hold which are not live, and that fail when they are taken back: a worker that somebody starts does that.
///
/// # Errors
/// As every look.
pub async fn doomed(
    inspector: &Inspector,
    tasks: &[TaskReport],
    workers: &[WorkerReport],
    holders: &[HolderReport],
) -> Result<Vec<Trouble>, Error> {
    let is_live = |id: &str| workers.iter().any(|worker| worker.worker.as_str() == id && worker.state.is_live());
    let mut troubles = Vec::new();
    for report in holders {
        let Some(task) = tasks.iter().find(|task| task.task == report.task) else { continue };
        let may_live = |holder: &&Holder| {
            let known = workers.iter().find(|worker| worker.worker == holder.worker);
            is_live(holder.worker.as_str()) || known.is_some_and(|worker| claims(holder, worker, task.as_of))
        };
        let lost: BTreeSet<&str> =
            report.holders.iter().filter(|holder| !may_live(holder)).map(|holder| holder.worker.as_str()).collect();
        if lost.is_empty() {
            continue;
        }
        let failing = would_fail(inspector, task, |id| lost.contains(id)).await?;
        if failing > 0 {
            // Of those that wait for a person nobody else decides.
            let (grade, when) = match runs_wait_for_people(task) {
                true => (Grade::Note, "by `recover worker`"),
                false => (Grade::Risk, "when taken back"),
            };
            let what = format!("{} held by workers that are not live WILL FAIL {when}", many(failing, "job"));
            let hint = format!("their options let them stall no more; {}", spared(task, "--all"));
            troubles.push(Trouble { grade, ..Trouble::note(&task.task, what, hint) });
        }
    }
    Ok(troubles)
}

/// How a person lets jobs run again that fail when they are taken back. A live worker that watches takes them within the same time.
pub(crate) fn spared(task: &TaskReport, which: &str) -> String {
    let name = &task.task;
    let again = format!(
        "`heartline recover running -t {name} {which}` lets them run again once they were silent for an interval"
    );
    match task.live_workers {
        _ if runs_wait_for_people(task) => again,
        0 if task.knows_workers => format!("before a worker starts, {again}"),
        _ => format!(
            "a live worker will take them back, about as soon as a person could: when they have failed, \
             `heartline jobs list -t {name} -s failed --code worker_crashed` names them, and `heartline jobs retry -t {name} ID` lets them run again"
        ),
    }
}

/// How many jobs of these workers would fail, were they taken from them, of the first 1,000 that run: they stalled as often as they may, or
/// their task lets all of them fail.
///
/// # Errors
/// As every look.
pub(crate) async fn would_fail(
    inspector: &Inspector,
    task: &TaskReport,
    is_theirs: impl Fn(&str) -> bool,
) -> Result<u64, Error> {
    let running = JobFilter::new(JobState::Running);
    let jobs = match inspector.jobs(&task.task, &running, None, HELD_LOOKED_AT).await {
        Ok(page) => page.jobs,
        Err(e) if e.is_retryable() => return Err(e),
        // It is a word in a question, and a damaged column is not to keep anybody from asking it.
        Err(_) => return Ok(0),
    };
    let theirs = jobs.iter().filter(|job| job.worker.as_ref().is_some_and(|holder| is_theirs(holder.as_str())));
    let last: Vec<&JobRow> = theirs.filter(|job| is_last_run(task, job.max_count, job.stalled_count)).collect();
    // One whose cancel was asked for ends as cancelled. Of many it is asked about some.
    let mut cancelled = 0;
    for job in last.iter().take(CANCELLED) {
        let job = inspector.job(&task.task, job.id.as_str(), JobValues::None).await;
        cancelled += u64::from(job.is_ok_and(|job| job.is_some_and(|job| job.cancel_requested.is_some())));
    }
    Ok(last.len() as u64 - cancelled)
}

/// Whether a job fails by its next stall.
#[must_use]
pub fn is_last_run(task: &TaskReport, max_count: Option<u32>, stalled_count: u32) -> bool {
    let option = |name: &str| task.options.values.get(name).map_or("", String::as_str);
    let of_task = if option("onCrash") == "retry" && option("maxCountSet") != "1" { "" } else { option("maxCount") };
    let most = max_count.or_else(|| of_task.parse().ok());
    option("onCrash") == "fail" || most.is_some_and(|most| stalled_count >= most)
}

/// The suspicions of one task.
///
/// # Errors
/// As every look.
pub async fn suspicions_of(
    inspector: &Inspector,
    task: &TaskReport,
    workers: &[WorkerReport],
    holders: &[HolderReport],
) -> Result<Suspicions, Error> {
    let stalls = match last_stalls(inspector, &task.task).await {
        Ok((stalls, _)) => stalls,
        Err(e) if e.is_retryable() => return Err(e),
        Err(_) => Vec::new(),
    };
    let to_come = dead_handed(inspector, workers, holders).await?;
    let tasks = std::slice::from_ref(task);
    suspicions(inspector, stalls.iter().chain(&to_come), tasks, workers, inspector.now().await).await
}

/// Whether the advice is to let jobs run.
fn lets_run(hint: &str) -> bool {
    ["start", "run again", "begin"].iter().any(|word| hint.contains(word))
}

/// The same advice for a task with suspects: where it is to start a worker, or to let jobs run again, they come before.
#[must_use]
pub fn heeding(hint: &str) -> String {
    if lets_run(hint) { format!("see to its suspects before; {hint}") } else { hint.to_owned() }
}

/// All of them, the gravest first, and first among those what fails by the advice about others. Where jobs may take down the next worker, nothing sends anybody to start one, or to let jobs run again,
/// without a word of that.
#[must_use]
pub fn together(suspicions: Suspicions, mut doomed: Vec<Trouble>, others: Vec<Trouble>) -> Vec<Trouble> {
    let Suspicions { at_large, failed } = suspicions;
    let is_suspected =
        |task: &Option<String>| task.is_some() && at_large.iter().any(|suspicion| suspicion.task == *task);
    let is_doomed: Vec<Option<String>> = doomed.iter().map(|trouble| trouble.task.clone()).collect();
    let mut others = others;
    // A diagnosis of the runs of a task says why they failed.
    let known: Vec<Option<String>> =
        others.iter().filter(|trouble| trouble.diagnosis.is_some()).map(|trouble| trouble.task.clone()).collect();
    others.retain(|trouble| !(trouble.is_of_retries && known.contains(&trouble.task)));
    for trouble in others.iter_mut().filter(|trouble| is_doomed.contains(&trouble.task)) {
        if lets_run(&trouble.hint) {
            trouble.hint = format!("see to those that will fail before; {}", trouble.hint);
        }
    }
    doomed.extend(others);
    let mut troubles = doomed;
    for trouble in troubles.iter_mut().filter(|trouble| is_suspected(&trouble.task)) {
        trouble.hint = heeding(&trouble.hint);
    }
    troubles.splice(0..0, at_large);
    troubles.extend(failed);
    gravest_first(&mut troubles);
    troubles
}
