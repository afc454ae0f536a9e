//! Tasks whose jobs are run and not done: they fail, put themselves off, are given back, or have lost their payload.

use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, try_join_all};
use heartline::{Diagnosis, Inspector, JobFilter, JobReport, JobRow, JobState, JobValues, TaskReport, codes};

use crate::checks::Grade;
use crate::text::{brief, many, quoted, relative};
use crate::told::NOT_STARTED_AT_ALL;
use crate::troubles::{TOGETHER, Trouble};

/// So many failures with no job completed among them are told of beside what completed before.
const IN_A_ROW: u64 = 5;

/// So many of late are an outage: jobs are run, and none is done.
const OUTAGE: u64 = 20;

/// How often the jobs that can run broke off, on average, while none completed: for a person to judge, and what keeps jobs from being done.
const BROKEN_OFF: (u64, u64) = (3, 5);

/// At least this many jobs may have run together, also where fewer slots are left now.
const RAN_TOGETHER: u64 = 10;

/// How many delayed jobs are looked at for how often they put themselves off, and how often is often.
const SNOOZED: (usize, u32) = (5, 3);

/// What a worker has said of a job within this time still holds.
const JUST_NOW: Duration = Duration::from_secs(60);

/// Jobs that put themselves off again and again while none completes; or that a worker of `heartline work` has just put off since it can start
/// no program: nothing is done by that one, whatever completed before.
async fn snoozing(inspector: &Inspector, task: &TaskReport, delayed: &[JobRow]) -> Option<Trouble> {
    let name = &task.task;
    let looks = delayed.iter().take(SNOOZED.0).map(|row| inspector.job(name, row.id.as_str(), JobValues::None));
    let looked: Vec<JobReport> = join_all(looks).await.into_iter().filter_map(|look| look.ok().flatten()).collect();
    let is_late = |at| task.as_of.duration_since(at).unwrap_or_default() < JUST_NOW;
    let said = |job: &JobReport| {
        let progress = job.progress.as_ref().filter(|progress| is_late(progress.at))?;
        progress.message.starts_with(NOT_STARTED_AT_ALL).then(|| progress.message.clone())
    };
    let broken: Vec<String> = looked.iter().filter_map(said).collect();
    if let Some(why) = broken.first() {
        let what = format!("a worker puts each job off that it gets: {why}");
        let hint = format!(
            "see to the program on the host of that worker, whose log says the same; `heartline workers` names those of {name}"
        );
        let are_all = broken.len() * 2 > looked.len() && !completes(task);
        let grade = if are_all { Grade::Risk } else { Grade::Note };
        return Some(Trouble { grade, ..Trouble::note(name, what, hint) });
    }
    let often: Vec<&JobReport> = looked.iter().filter(|job| job.snoozed_count >= SNOOZED.1).collect();
    let most = often.iter().map(|job| job.snoozed_count).max().filter(|_| often.len() * 2 > looked.len())?;
    let first = often.first().filter(|_| !completes(task))?;
    let what = format!(
        "{} delayed, {} of the next {} put off again and again, {most} times; none completed in the last 5 minutes",
        many(task.counts.delayed, "job"),
        often.len(),
        looked.len(),
    );
    let id = quoted(first.id.as_str());
    let hint =
        format!("what they wait for may never come: `heartline jobs show -t {name} {id}`, and the log of a worker");
    Some(Trouble::note(name, what, hint))
}

/// How many jobs that wait are looked at for lost payloads, of each kind.
const QUEUED: usize = 50;

/// Jobs whose payload is gone: those of them that wait are lost.
async fn payloadless(inspector: &Inspector, task: &TaskReport) -> Option<Trouble> {
    let (name, jobs) = (&task.task, task.without_payload);
    let mut rows = Vec::new();
    for state in [JobState::Waiting, JobState::Delayed] {
        rows.extend(inspector.jobs(name, &JobFilter::new(state).oldest_first(), None, QUEUED).await.ok()?.jobs);
    }
    let looked = rows.len();
    let looks = rows.iter().map(|row| inspector.job(name, row.id.as_str(), JobValues::None));
    let looks = try_join_all(looks).await.ok()?;
    // Of one without payload nothing else is told.
    let lost = rows.iter().zip(looks).filter(|(_, look)| look.is_none());
    let mut lost: Vec<String> = lost.map(|(row, _)| row.id.to_string()).collect();
    // One that was done meanwhile is not there either.
    lost.truncate(usize::try_from(jobs).unwrap_or(usize::MAX));
    let Some(first) = lost.first() else {
        let what = format!("{} without payload, none of the first {looked} that wait among them", many(jobs, "job"));
        let hint =
            "somebody deleted them in Redis, or the server lost them; what has ended needs none, but for a retry"
                .to_owned();
        return Some(Trouble::note(name, what, hint));
    };
    let what = format!(
        "{} without payload, {} of the first {looked} that wait among them, {first} for one: they are removed when they are claimed",
        many(jobs, "job"),
        lost.len()
    );
    let hint = format!(
        "somebody deleted them in Redis, or the server lost them; `heartline events -t {name}` names each that is removed (lost_payload=true): dispatch it again then"
    );
    Some(Trouble::risk(Some(name), what, hint))
}

/// Of how many tasks the delayed jobs are looked at, and how many of each.
const RETRIED: (usize, usize) = (50, 100);

/// What ended within this time is of the present.
const PRESENT: Duration = Duration::from_secs(300);

/// What has failed longer ago than this is no news.
const DAY: Duration = Duration::from_secs(86_400);

/// What was tried longer ago than this is not being tried.
const HOUR: Duration = Duration::from_secs(3600);

/// Whether this happened, and no longer ago.
fn is_within(task: &TaskReport, at: Option<SystemTime>, time: Duration) -> bool {
    at.is_some_and(|at| task.as_of.duration_since(at).unwrap_or_default() < time)
}

/// Whether a run completed in the last 5 minutes.
fn completes(task: &TaskReport) -> bool {
    is_within(task, task.last_completed_at, PRESENT)
}

/// Whether jobs that ended so are kept for some time, by the option of this name.
fn keeps(task: &TaskReport, option: &str) -> bool {
    task.options.values.get(option).is_none_or(|value| value != "0")
}

/// How many jobs began to fail since a run completed, if any of what failed in the last day is left.
#[must_use]
pub fn in_a_row(task: &TaskReport) -> u64 {
    if is_within(task, task.last_failed_at, DAY) && is_left(task) { task.failed_since_completed } else { 0 }
}

/// Whether any of what failed may be left: among the failed jobs, among those that are tried again, or where none is kept.
fn is_left(task: &TaskReport) -> bool {
    let counts = &task.counts;
    let unfinished = counts.delayed + counts.waiting + counts.held();
    counts.failed + unfinished > 0 || !keeps(task, "keepFailed")
}

/// Whether jobs are run, and none is done.
fn is_outage(task: &TaskReport) -> bool {
    in_a_row(task) >= OUTAGE
}

/// How often the jobs that wait or run broke off in the last hour since a run completed, on average of those that can run together.
#[must_use]
pub fn broken_off(task: &TaskReport) -> u64 {
    let able = (task.counts.waiting + task.counts.held()).min(task.slots.max(RAN_TOGETHER));
    let is_present = is_within(task, task.last_broken_off_at, HOUR);
    if is_present { task.broken_off_since_completed.checked_div(able).unwrap_or(0) } else { 0 }
}

/// Tasks of which little completes beside the jobs that wait for another try, since what they need may be down; and those with jobs that are
/// put off again and again, begin anew again and again, or have lost their payload. One of which that cannot be read is told of elsewhere.
pub async fn ailing(inspector: &Inspector, tasks: &[TaskReport]) -> Vec<Trouble> {
    let most = |what: fn(&TaskReport) -> u64| {
        let mut found: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none() && what(task) > 0).collect();
        found.sort_by_key(|task| std::cmp::Reverse(what(task)));
        let left_out = found.len().saturating_sub(RETRIED.0);
        found.truncate(RETRIED.0);
        (found, left_out)
    };
    let (without, _) = most(|task| task.without_payload);
    // One with nothing but a job for tomorrow goes behind those that may be in trouble.
    let (delayed, left_out) = most(may_fail);
    let mut troubles = Vec::new();
    for some in without.chunks(TOGETHER) {
        troubles.extend(join_all(some.iter().map(|task| payloadless(inspector, task))).await.into_iter().flatten());
    }
    troubles.extend(tasks.iter().filter_map(of_broken_off));
    for some in delayed.chunks(TOGETHER) {
        troubles.extend(join_all(some.iter().map(|task| put_off(inspector, task))).await.into_iter().flatten());
    }
    let least = delayed.last().map_or(0, |task| may_fail(task));
    if left_out > 0 && least >= OUTAGE {
        let what = format!("why jobs are delayed was not looked for in {}", many(left_out as u64, "task"));
        let hint = "less is delayed of them, or fails, than of those that were: `heartline task show` looks at one";
        troubles.push(Trouble::of_all(what, hint.to_owned()));
    }
    troubles
}

/// How much there is to look at: what failed of late goes before what is only delayed, perhaps until tomorrow.
fn may_fail(task: &TaskReport) -> u64 {
    task.failed_since_completed.saturating_mul(1_000_000).saturating_add(task.counts.delayed)
}

/// Why jobs of the task are delayed that may never be done, or wait again behind a run that failed.
async fn put_off(inspector: &Inspector, task: &TaskReport) -> Option<Trouble> {
    let of = |state, oldest_first| {
        let filter = JobFilter::new(state);
        let filter = if oldest_first { filter.oldest_first() } else { filter };
        async move { inspector.jobs(&task.task, &filter, None, RETRIED.1).await.map(|page| page.jobs) }
    };
    // Those that are tried again soonest, and those that came back to the end of their list.
    let (delayed, waiting) = (of(JobState::Delayed, true).await.ok()?, of(JobState::Waiting, false).await.ok()?);
    let has_failed = |job: &&JobRow| job.failed_attempts > 0;
    // Of an input that cannot be read no run has failed.
    let unread = delayed.iter().filter(|job| !has_failed(job) && job.code.as_deref() == Some(codes::CODEC)).count();
    if unread * 2 > delayed.iter().filter(has_failed).count() {
        let jobs = task.counts.delayed * unread as u64 / delayed.len().max(1) as u64;
        let grade = if is_outage(task) { Grade::Risk } else { Grade::Note };
        let diagnosis = Diagnosis::NewerProducer { task: task.task.clone(), jobs };
        return Some(Trouble { grade, ..diagnosis.into() });
    }
    let failed: Vec<&JobRow> = delayed.iter().chain(&waiting).filter(has_failed).collect();
    let tried_again = delayed.iter().filter(has_failed).count();
    let came_back = failed.len() - tried_again;
    // Of those behind the pages about as many.
    let about = |all: u64, some: usize, looked: usize| all * some as u64 / looked.max(1) as u64;
    let failing =
        about(task.counts.delayed, tried_again, delayed.len()) + about(task.counts.waiting, came_back, waiting.len());
    let are_many = failed.len() as u64 >= OUTAGE;
    let (is_outage, fails) = (is_outage(task), is_within(task, task.last_failed_at, PRESENT));
    let Some(first) = failed.first().filter(|_| fails || tried_again * 2 > delayed.len()) else {
        return snoozing(inspector, task, &delayed).await;
    };
    let is_told = is_outage || !completes(task) || are_many && failing > task.completed_lately / 10;
    if !is_told || !fails && are_snoozed(inspector, task, &failed).await {
        return snoozing(inspector, task, &delayed).await;
    }
    let name = &task.task;
    let code = first.code.as_deref().unwrap_or("failed");
    let message = brief(first.message.as_deref().unwrap_or_default(), 80);
    let which = match (tried_again, delayed.len()) {
        (0, _) => {
            format!("{}, {came_back} of the last {} back", many(task.counts.waiting, "waiting job"), waiting.len())
        }
        (all, looked) if all == looked => {
            format!("{} delayed, all that were looked at tried again", many(task.counts.delayed, "job"))
        }
        (some, looked) => {
            format!("{} delayed, {some} of the next {looked} tried again", many(task.counts.delayed, "job"))
        }
    };
    let when = |at: Option<SystemTime>| at.map_or_else(|| "never".to_owned(), |at| relative(at, task.as_of));
    let what = format!(
        "{which} after a failed run, the first with {code}: {message}; the last run failed {}, and the last one completed {}",
        when(task.last_failed_at),
        when(task.last_completed_at),
    );
    let mut hint = match tried_again {
        0 => format!("`heartline jobs list -t {name} -s waiting` lists them"),
        _ => format!("`heartline jobs list -t {name} -s delayed --oldest-first` shows when they are tried again"),
    };
    if task.paused.is_none() {
        hint += &format!("; `heartline task pause {name}` lets none begin meanwhile");
    }
    hint += &format!(
        "; what has failed by the end runs again by `heartline jobs retry -t {name} --state failed --code {}`",
        quoted(code)
    );
    let grade = if is_outage { Grade::Risk } else { Grade::Note };
    Some(Trouble { grade, ..Trouble::note(name, what, hint) })
}

/// Whether most of them put themselves off, whatever failed before.
async fn are_snoozed(inspector: &Inspector, task: &TaskReport, failed: &[&JobRow]) -> bool {
    let looks = failed.iter().take(SNOOZED.0).map(|row| inspector.job(&task.task, row.id.as_str(), JobValues::None));
    let looked: Vec<JobReport> = join_all(looks).await.into_iter().filter_map(|look| look.ok().flatten()).collect();
    looked.iter().filter(|job| job.snoozed_count > 0).count() * 2 > looked.len()
}

/// That runs break off again and again, as workers stop or die, while none completes: those that take longer than a worker lives never end.
fn of_broken_off(task: &TaskReport) -> Option<Trouble> {
    let (name, times) = (&task.task, broken_off(task));
    let last = task.last_broken_off_at.filter(|_| times >= BROKEN_OFF.0)?;
    let since = if task.last_completed_at.is_none() { "and none completed" } else { "since one completed" };
    let what = format!(
        "{} broke off {since}, as their workers stopped, died or froze: {times} for each job that can run, the last one {}",
        many(task.broken_off_since_completed, "run"),
        relative(last, task.as_of),
    );
    let hint = format!(
        "jobs start from the beginning each time: `heartline workers --all` shows when workers started, stopped and died, \
         `heartline stalls list -t {name}` which jobs were taken back. Where workers are stopped sooner than a job takes, a longer grace lets it \
         end, here and in what stops them, and a checkpoint lets the next run go on"
    );
    let grade = if times >= BROKEN_OFF.1 { Grade::Risk } else { Grade::Note };
    Some(Trouble { grade, ..Trouble::note(name, what, hint) })
}

/// What fails, and whether it is an outage: many jobs began to fail, and none completed since.
pub(crate) fn of_failures(task: &TaskReport) -> Option<Trouble> {
    let (name, row, is_outage) = (&task.task, in_a_row(task), is_outage(task));
    let is_said = row >= IN_A_ROW && (task.completed_lately > 0 || is_outage && row > task.failed_lately);
    let all = if is_said { format!("; THE LAST {row} ALL FAILED") } else { String::new() };
    let what = if task.failed_lately > 0 {
        let completed = match task.completed_lately {
            0 => String::new(),
            jobs => format!(", {jobs} completed"),
        };
        format!("{} failed in the last 5 minutes{completed}{all}", many(task.failed_lately, "job"))
    } else if row > 0 {
        // Those that are tried again have not failed for good.
        let one = if keeps(task, "keepFailed") && task.counts.failed == 0 { "run" } else { "job" };
        let last = if row == 1 { format!("the last {one}") } else { format!("the last {row} {one}s") };
        let when = task.last_failed_at.map_or_else(String::new, |at| format!(", {}", relative(at, task.as_of)));
        format!("{last} failed{when}, and none completed since")
    } else {
        return None;
    };
    let hint = match keeps(task, "keepFailed") && task.counts.failed > 0 {
        true => format!(
            "`heartline jobs codes -t {name}` counts why; `heartline jobs retry -t {name} --state failed` lets them run again once that is mended, \
             and this ends as jobs complete. `heartline task purge {name} --state failed` throws them away, and ends it too unless others are tried again"
        ),
        false => format!("the log of a worker, or `heartline events -t {name}`, says why; this ends as jobs complete"),
    };
    // Those are no jobs that a person retries or removes.
    let hint = match task.has_workflows && task.counts.failed > 0 {
        true => format!(
            "{hint}. Jobs of workflows, whose ids begin with `~`, run again with their instances: `heartline flows list NAME`, `heartline flows retry NAME ID`"
        ),
        false => hint,
    };
    let grade = if is_outage { Grade::Risk } else { Grade::Note };
    let is_of_retries = task.failed_lately == 0;
    Some(Trouble { grade, is_of_retries, ..Trouble::note(name, what, hint) })
}
