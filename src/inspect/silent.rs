//! Held jobs that are silent, and what a person decides about them: never before one process has watched a whole interval.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde::Serialize;

use super::Inspector;
use super::acts::{ActReport, Refusal};
use super::filter::JobFilter;
use super::page::{MOST_ROWS, holder};
use super::parts::{Cursors, by_table, config};
use crate::clock;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::limits::BATCH;
use crate::stall::action::StallAction;
use crate::stall::cadence;
use crate::stall::witness::{WatchBreak, Witness};
use crate::store::address::Role;
use crate::store::audit;
use crate::store::connection::OwnConnection;
use crate::store::fault::classify;
use crate::store::keys::{Key, TaskKeys};
use crate::store::overview::{self, Overview};
use crate::store::server::check_rights;
use crate::store::sweep::{self, Decision, StalledJob, SweepReply, Verdict};
use crate::store::values;
use crate::times::{at_ms, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// A held job that was silent since the last snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SilentJob {
    /// The job.
    pub id: JobId,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The fence under which it is held.
    pub fence: Option<u64>,
    /// Whether it was claimed ahead and has not begun.
    pub is_claimed: bool,
    /// When it was claimed.
    #[serde(rename = "started_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub started_at: Option<SystemTime>,
    /// Since when it is silent at least: a snapshot.
    #[serde(rename = "silent_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub silent_since: Option<SystemTime>,
    /// Whether a sweep has found it silent for an interval and set it aside, since its phase waits for longer or for a person, see
    /// [`StallOptions::recover_running`](crate::StallOptions::recover_running). What a person decides about it is done after an interval,
    /// also beside live workers.
    pub is_set_aside: bool,
}

/// What is known of a held job that may be silent.
struct HeldLook {
    id: JobId,
    worker: Option<WorkerId>,
    fence: Option<u64>,
    is_claimed: bool,
    /// Of one that was set aside, and was not heard from since.
    since_ms: Option<u64>,
}

/// In a cursor: behind it is one of the jobs that were set aside.
const ASIDE: &str = "aside:";

/// Some of the jobs in `candidates` or in `aside`, and the cursor of the next ones.
async fn looked_at(
    conn: &mut OwnConnection,
    keys: &TaskKeys,
    place: Key,
    at: u64,
) -> Result<(u64, Vec<HeldLook>), Error> {
    let (next, ids) = audit::scan(conn, keys, place, at, BATCH as u64).await?;
    let ids: Vec<JobId> = ids.into_iter().filter(|id| !id.is_empty()).map(JobId::from_wire).collect();
    Ok((next, look_at(conn, keys, ids).await?))
}

/// What is known of these jobs, in their order.
async fn look_at(conn: &mut OwnConnection, keys: &TaskKeys, ids: Vec<JobId>) -> Result<Vec<HeldLook>, Error> {
    let mut looks = Vec::with_capacity(ids.len());
    if ids.is_empty() {
        return Ok(looks);
    }
    let tokens = values::tokens(conn, keys, &ids).await?;
    let claimed = values::claimed(conn, keys, &ids).await?;
    let marks = values::marks(conn, keys, &ids).await?;
    let finalizing = values::finalizing(conn, keys, &ids).await?;
    for ((((id, token), begins), mark), is_finalizing) in
        ids.into_iter().zip(tokens).zip(claimed).zip(marks).zip(finalizing)
    {
        let (worker, fence) = token.as_deref().and_then(holder).unzip();
        let is_claimed = fence.is_some() && begins == fence;
        let phase = match (is_finalizing, is_claimed) {
            (true, _) => "finalizing",
            (false, true) => "claimed",
            (false, false) => "running",
        };
        let mark = mark.filter(|mark| Some(mark.fence) == fence && mark.phase == phase);
        looks.push(HeldLook { id, worker, fence, is_claimed, since_ms: mark.map(|mark| mark.since_ms) });
    }
    Ok(looks)
}

/// Whether silent jobs of the task may be set aside.
fn has_patience(seen: &Overview) -> bool {
    seen.text("patience").is_some_and(|patience| !patience.is_empty())
}

/// A page of silent jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SilentPage {
    /// The jobs, in no order.
    pub jobs: Vec<SilentJob>,
    /// What to give for the page behind this one; `None` at the end.
    pub next: Option<String>,
}

/// What a sweep did that a person asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SweepReport {
    /// The jobs that had stayed silent, and what became of each.
    pub resolved: Vec<ResolvedJob>,
    /// How many were set aside, since their phase waits for longer, or for a person.
    pub set_aside: u64,
    /// Whether a worker swept while this watched: it decides about the jobs that are silent, with that sweep or its next one.
    pub swept_by_worker: bool,
    /// Whether it was done to the end. If not, it failed midway, mostly since Redis was not reached: call again for the others.
    pub is_complete: bool,
}

/// A job that had stayed silent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResolvedJob {
    /// The job.
    pub id: JobId,
    /// What became of it.
    pub action: StallAction,
    /// How often it has stalled.
    pub stalled_count: u64,
    /// The worker that had held it.
    pub worker: Option<WorkerId>,
}

impl ResolvedJob {
    /// `None` where another version decided what this one does not know.
    pub(super) fn of(job: StalledJob) -> Option<ResolvedJob> {
        Some(ResolvedJob {
            id: JobId::from_wire(job.id),
            action: job.action.parse().ok()?,
            stalled_count: job.count,
            worker: (job.worker != "-").then(|| WorkerId::from_wire(job.worker.as_str())),
        })
    }
}

/// Without the options of a task nothing is decided.
pub(super) fn undeclared() -> Error {
    let what = "the server has lost the options of the task: start a worker, which declares them";
    Error::Unsupported { what: what.to_owned() }
}

/// How much longer than an interval a watch may take, before it is given up.
const PATIENCE: u32 = 5;

/// The shortest time for which it is tried.
const LEAST_PATIENCE: Duration = Duration::from_secs(30);

impl Inspector {
    /// Held jobs that were silent since the last snapshot, in no order, behind a cursor, which is the [`SilentPage::next`] of the
    /// page before. Jobs that sweeps set aside come first. A job here is not stalled yet: its next heartbeat takes it out. One that a sweep
    /// moves between two pages may come twice, or not at all.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn silent_jobs(&self, task: &str, cursor: Option<&str>) -> Result<SilentPage, Error> {
        let tables = self.tables(task).await?;
        let mut cursors = Cursors::parse(cursor.unwrap_or_default(), tables.len())?;
        let read = |keys: Arc<TaskKeys>, cursor: String| async move { self.silent_jobs_of(&keys, &cursor).await };
        let jobs = cursors.next_pages(&tables, read).await?.into_iter().flatten().collect();
        Ok(SilentPage { jobs, next: cursors.text() })
    }

    /// The same of one table.
    async fn silent_jobs_of(&self, keys: &TaskKeys, cursor: &str) -> Result<(Vec<SilentJob>, Option<String>), Error> {
        let seen = self.overview_of(keys).await?;
        let first = if has_patience(&seen) && cursor.is_empty() { ASIDE } else { cursor };
        let (place, at) = match first {
            "" => (Key::Candidates, Some(0)),
            text => match text.strip_prefix(ASIDE) {
                Some("") => (Key::Aside, Some(0)),
                Some(at) => (Key::Aside, at.parse().ok()),
                None => (Key::Candidates, text.parse().ok()),
            },
        };
        let Some(at) = at else {
            let rule = "must be the `next` of a page of the same task";
            return Err(config("cursor", cursor, rule, "begin again without a cursor"));
        };
        let since = seen.number("snapshotAt").map(at_ms);
        let call = |mut conn: OwnConnection| async move { looked_at(&mut conn, keys, place, at).await };
        let (next, looks) = self.ask(call).await?;
        let is_aside = place == Key::Aside;
        let looks = looks.into_iter().filter(|look| look.since_ms.is_some() == is_aside);
        let jobs = looks.map(|look| SilentJob {
            id: look.id,
            worker: look.worker,
            fence: look.fence,
            is_claimed: look.is_claimed,
            started_at: look.fence.map(|fence| at_ms(fence / 1000)),
            silent_since: look.since_ms.map(at_ms).or(since),
            is_set_aside: is_aside,
        });
        let next = match next {
            0 if is_aside => Some("0".to_owned()),
            0 => None,
            next if is_aside => Some(format!("{ASIDE}{next}")),
            next => Some(next.to_string()),
        };
        Ok((jobs.collect(), next))
    }

    /// Watches the task for one interval, as a worker does, and then resolves what stayed silent by the options of the task. It is for a
    /// task that no live worker watches: a worker that does is sooner, and the report says so.
    ///
    /// A job whose worker died after the last snapshot is silent from the next one on. If no other job is silent, this takes that
    /// snapshot and watches for a second interval.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, [`Error::Connect`] if Redis was not reached for long enough to watch,
    /// [`Error::Unsupported`] if the server has lost the options of the task, and those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Some of the jobs may be resolved or not when the future is dropped; it is safe to repeat.
    pub async fn sweep_now(&self, task: &str) -> Result<SweepReport, Error> {
        let decision = Decision { verdict: Verdict::Auto, by: self.by.to_string(), ids: Vec::new() };
        let found = self.resolve(task, decision, &[], false).await?;
        let resolved = found.resolved.into_iter().filter_map(ResolvedJob::of).collect();
        let Resolution { set_aside, swept_by_worker, is_complete, .. } = found;
        Ok(SweepReport { resolved, set_aside, swept_by_worker, is_complete })
    }

    /// Gives silent jobs another run, however often they stalled: all that are silent, or these. Those that were set aside are taken after
    /// an interval, in which a worker that lives would be heard from; where there are none, or others are named, it watches as [`sweep_now`](Inspector::sweep_now) does, and takes only what stayed
    /// silent. Where a live worker watches, that one decides, and the
    /// report has `swept_by_worker`. Name ids only of jobs that [`silent_jobs`](Inspector::silent_jobs) lists: others are `NotSilent`
    /// while those are there.
    ///
    /// # Errors
    /// As [`sweep_now`](Inspector::sweep_now).
    ///
    /// # Cancel safety
    /// Some of the jobs may be taken or not when the future is dropped; it is safe to repeat.
    pub async fn recover_running(&self, task: &str, jobs: SilentSelection) -> Result<ActReport, Error> {
        self.decide(task, jobs, Verdict::Recover, false).await
    }

    /// Puts silent jobs that were claimed ahead and have not begun back to the front of their lists, with no stall counted: all of them, or
    /// these. A job that has begun is refused. Else as [`recover_running`](Inspector::recover_running).
    ///
    /// # Errors
    /// As [`sweep_now`](Inspector::sweep_now).
    ///
    /// # Cancel safety
    /// As [`recover_running`](Inspector::recover_running).
    pub async fn requeue_claimed(&self, task: &str, jobs: SilentSelection) -> Result<ActReport, Error> {
        let (mut claimed, mut cursor) = (HashSet::new(), None);
        loop {
            let page = self.jobs(task, &JobFilter::new(JobState::Claimed), cursor.as_deref(), MOST_ROWS).await?;
            claimed.extend(page.jobs.into_iter().map(|row| row.id.to_string()));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let SilentSelection(wanted) = jobs;
        let is_all = wanted.is_none();
        let (named, others): (Vec<String>, Vec<String>) = match wanted {
            Some(wanted) => wanted.into_iter().partition(|id| claimed.contains(id) || JobId::parse(id).is_err()),
            None => (claimed.into_iter().collect(), Vec::new()),
        };
        let mut report = ActReport { is_complete: true, ..ActReport::default() };
        if !named.is_empty() {
            report = self.decide(task, SilentSelection(Some(named)), Verdict::Requeue, is_all).await?;
        }
        if is_all {
            // Those whose workers live, and those that have begun or ended meanwhile.
            report.refusals.retain(|refused| !matches!(refused.why, Refusal::NotSilent | Refusal::State(_)));
            report.refused = report.refusals.len() as u64;
        }
        report.looked += others.len() as u64;
        self.say_why(task, others, &mut report, |_, state| Refusal::State(state)).await;
        Ok(report)
    }

    /// Lets silent jobs fail, with the code `worker_crashed`: all that are silent, or these. Else as
    /// [`recover_running`](Inspector::recover_running).
    ///
    /// # Errors
    /// As [`sweep_now`](Inspector::sweep_now).
    ///
    /// # Cancel safety
    /// As [`recover_running`](Inspector::recover_running).
    pub async fn fail_running(&self, task: &str, jobs: SilentSelection) -> Result<ActReport, Error> {
        self.decide(task, jobs, Verdict::Fail, false).await
    }

    async fn decide(
        &self,
        task: &str,
        jobs: SilentSelection,
        verdict: Verdict,
        takes_all: bool,
    ) -> Result<ActReport, Error> {
        // Also where no id is left to ask about.
        self.first(task)?;
        let mut report = ActReport::default();
        let (mut ids, mut named) = (Vec::new(), HashSet::new());
        let SilentSelection(wanted) = jobs;
        for id in wanted.iter().flatten() {
            match JobId::parse(id) {
                Ok(_) if named.insert(id.as_str()) => ids.push(id.clone()),
                Ok(_) => {}
                Err(_) => report.refuse(id.clone(), Refusal::InvalidId),
            }
        }
        report.looked = ids.len() as u64;
        report.is_complete = true;
        if wanted.is_some() && ids.is_empty() {
            return Ok(report);
        }
        let decision = Decision { verdict, by: self.by.to_string(), ids: Vec::new() };
        let before = self.states_before(task, &ids).await?;
        let watched = self.resolve(task, decision, &ids, takes_all).await?;
        let done: HashSet<&str> = watched.resolved.iter().map(|job| job.id.as_str()).collect();
        report.done = done.len() as u64;
        let is_cancelled = |job: &&StalledJob| job.action.parse() == Ok(StallAction::Cancelled);
        report.cancelled_instead = watched.resolved.iter().filter(is_cancelled).count() as u64;
        report.swept_by_worker = watched.swept_by_worker;
        report.is_complete = watched.is_complete;
        report.looked = report.looked.max(report.done);
        let left: Vec<String> = ids.iter().filter(|id| !done.contains(id.as_str())).cloned().collect();
        let Ok(aside) = self.are_set_aside(task, &left).await else {
            // The reasons are missing then; the report of what was done is not.
            report.is_complete = false;
            return Ok(report);
        };
        let why = |id: &str, state: JobState| match state {
            JobState::Claimed | JobState::Running | JobState::Finalizing if aside.contains(id) => Refusal::SetAside,
            JobState::Claimed => Refusal::NotSilent,
            state if state.is_held() && verdict != Verdict::Requeue => Refusal::NotSilent,
            state if watched.swept_by_worker && before.get(id) != Some(&state) => Refusal::Changed,
            state => Refusal::State(state),
        };
        self.say_why(task, left, &mut report, why).await;
        Ok(report)
    }

    /// In which states the jobs are; those that there are none of are not in it.
    async fn states_before(&self, task: &str, ids: &[String]) -> Result<HashMap<String, JobState>, Error> {
        let mut found = HashMap::new();
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let looked = self.states_of(task, &some).await?;
            found.extend(some.iter().zip(looked).filter_map(|(id, found)| Some((id.to_string(), found?.0))));
        }
        Ok(found)
    }

    /// Which of the jobs have a mark of a sweep under which they are still held.
    async fn are_set_aside(&self, task: &str, ids: &[String]) -> Result<HashSet<String>, Error> {
        let mut found = HashSet::new();
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let looked = self.of_each(task, &some, |keys, own| async move {
                let (keys, own) = (&keys, &own);
                let call = |mut conn: OwnConnection| async move { look_at(&mut conn, keys, own.clone()).await };
                Ok(self.ask(call).await?.into_iter().map(|look| look.since_ms.is_some()).collect())
            });
            found
                .extend(some.iter().zip(looked.await?).filter(|(_, is_aside)| *is_aside).map(|(id, _)| id.to_string()));
        }
        Ok(found)
    }

    /// Refuses the jobs, by the states in which they are.
    async fn say_why(
        &self,
        task: &str,
        ids: Vec<String>,
        report: &mut ActReport,
        why: impl Fn(&str, JobState) -> Refusal,
    ) {
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let Ok(looked) = self.states_of(task, &some).await else {
                // Without their reasons: what was done is to be told all the same.
                report.is_complete = false;
                return;
            };
            for (id, state) in some.iter().zip(looked) {
                report.refuse(id.to_string(), state.map_or(Refusal::Unknown, |(state, _)| why(id.as_str(), state)));
            }
        }
    }

    /// Those of the jobs that are marked as set aside; without any, all that are.
    async fn set_aside(&self, keys: &TaskKeys, ids: &[String]) -> Result<Vec<String>, Error> {
        let mut found = HashSet::new();
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let ids = &some;
            let marks = self.ask(|mut conn| async move { values::marks(&mut conn, keys, ids).await }).await?;
            found.extend(some.iter().zip(marks).filter(|(_, mark)| mark.is_some()).map(|(id, _)| id.to_string()));
        }
        let mut at = ids.is_empty().then_some(0);
        while let Some(cursor) = at {
            let call = |mut conn| async move { audit::scan(&mut conn, keys, Key::Aside, cursor, BATCH as u64).await };
            let (next, ids) = self.ask(call).await?;
            found.extend(ids.into_iter().filter(|id| !id.is_empty()));
            at = Some(next).filter(|next| *next != 0);
        }
        Ok(found.into_iter().collect())
    }

    /// The same as [`watch_and_resolve`](Inspector::watch_and_resolve), for all partitions at the same time; what was resolved before a failure
    /// is told.
    async fn resolve(
        &self,
        task: &str,
        decision: Decision,
        ids: &[String],
        takes_all: bool,
    ) -> Result<Resolution, Error> {
        let tables = self.tables(task).await?;
        let places = by_table(tables.len(), ids, |id: &String| id.as_str());
        let watches = tables.iter().zip(places).filter(|(_, its)| ids.is_empty() || !its.is_empty());
        let watches = watches.map(|(keys, its)| {
            let its: Vec<String> = its.into_iter().map(|at| ids[at].clone()).collect();
            let decision = decision.clone();
            async move {
                let found = self.resolve_in(keys, decision, &its, takes_all).await?;
                if found.resolved.iter().any(StalledJob::ends_a_node) {
                    self.move_workflows(keys).await;
                }
                Ok(found)
            }
        });
        let mut all = Resolution { is_complete: true, ..Resolution::default() };
        let mut failure = None;
        for found in join_all(watches).await {
            match found {
                Ok(mut found) => {
                    all.resolved.append(&mut found.resolved);
                    all.set_aside += found.set_aside;
                    all.swept_by_worker |= found.swept_by_worker;
                    all.is_complete &= found.is_complete;
                }
                Err(e) => {
                    all.is_complete = false;
                    failure = Some(e);
                }
            }
        }
        match failure {
            Some(e) if all.resolved.is_empty() => Err(e),
            _ => Ok(all),
        }
    }

    async fn resolve_in(
        &self,
        keys: &TaskKeys,
        decision: Decision,
        ids: &[String],
        takes_all: bool,
    ) -> Result<Resolution, Error> {
        let (mut found, task) = (Resolution::default(), keys.task());
        match self.watch_and_resolve(keys, decision, ids, takes_all, &mut found).await {
            Ok(()) => found.is_complete = true,
            Err(e) if found.resolved.is_empty() => return Err(e),
            Err(e) => {
                let resolved = found.resolved.len();
                tracing::warn!(task, error = %e.chain(), resolved, "a sweep for a person ended midway");
            }
        }
        Ok(found)
    }

    /// Decides about jobs that were set aside: these, or all. An interval goes before. By then each worker that lives has beaten, and
    /// a mark that came back with old data, as after a failover, is gone; the connection is the same all the while, and so is the server.
    async fn decide_set_aside(
        &self,
        watch: &mut Watch<'_>,
        own: &str,
        decision: &Decision,
        ids: &[String],
        resolved: &mut Vec<StalledJob>,
    ) -> Result<(), Error> {
        let marked = self.set_aside(watch.keys, ids).await?;
        if marked.is_empty() {
            return Ok(());
        }
        let Some((_, interval)) = watch.epoch(LEAST_PATIENCE).await? else { return Ok(()) };
        tokio::time::sleep(interval).await;
        for some in marked.chunks(BATCH) {
            let decision = Decision { ids: some.to_vec(), ..decision.clone() };
            match watch.sweep(own, None, Duration::ZERO, "0", &decision, LEAST_PATIENCE).await? {
                SweepReply::Swept { resolved: some, .. } => resolved.extend(some),
                SweepReply::Undeclared => return Err(undeclared()),
                SweepReply::Moved { .. } | SweepReply::Early { .. } => {}
            }
        }
        Ok(())
    }

    /// Watches for one interval over a connection of its own, then resolves; for a second one where the first ended in nothing but a
    /// snapshot. With `takes_all` the ids are all that there were, and those that were set aside are enough.
    async fn watch_and_resolve(
        &self,
        keys: &TaskKeys,
        decision: Decision,
        ids: &[String],
        takes_all: bool,
        found: &mut Resolution,
    ) -> Result<(), Error> {
        // A script that is refused in its middle would leave jobs where nobody looks.
        self.ask(|mut conn| async move { check_rights(&mut conn, keys).await }).await?;
        let own = WorkerId::generate();
        let mut watch = Watch { inspector: self, keys, conn: None, line: None };
        let mut rest = ids.to_vec();
        if decision.verdict != Verdict::Auto && has_patience(&self.overview_of(keys).await?) {
            self.decide_set_aside(&mut watch, own.as_str(), &decision, ids, &mut found.resolved).await?;
            let done: HashSet<&str> = found.resolved.iter().map(|job| job.id.as_str()).collect();
            rest.retain(|id| !done.contains(id.as_str()));
            if !found.resolved.is_empty() && (rest.is_empty() || takes_all) {
                return Ok(());
            }
        }
        let (ids, decided) = (&rest, found.resolved.len());
        let Some((mut epoch, interval)) = watch.epoch(LEAST_PATIENCE).await? else { return Ok(()) };
        let seen = self.overview_of(keys).await?;
        if seen.candidates + seen.active == 0 {
            return Ok(());
        }
        let period = cadence::beat_period(interval);
        let start = clock::now();
        let mut witness = Witness::new(period, start);
        witness.beat_answered(start, start, epoch, interval);
        let mut end = start.after((interval * PATIENCE).max(LEAST_PATIENCE));
        let mut due = start.after(period);
        let (mut cursor, mut failure, mut is_unanswered) = ("0".to_owned(), None, false);
        let all_batches = || -> Vec<&[String]> { ids.chunks(BATCH).rev().collect() };
        let (mut batches, mut may_watch_again) = (all_batches(), true);
        while clock::now() < end {
            if let Some((watched, waited)) = witness.may_sweep(clock::now()) {
                if watched != epoch {
                    found.swept_by_worker = true;
                    return Ok(());
                }
                let batch = batches.last().copied().unwrap_or_default();
                let decision = Decision { ids: batch.to_vec(), ..decision.clone() };
                match watch.sweep(own.as_str(), Some(watched), waited, &cursor, &decision, period).await {
                    Ok(SweepReply::Swept {
                        epoch: next,
                        interval,
                        cursor: behind,
                        snapshot,
                        left,
                        resolved: some,
                        aside,
                    }) => {
                        found.set_aside += aside;
                        // It goes on for as long as it gets on.
                        if !some.is_empty() {
                            end = end.max(clock::now().after(LEAST_PATIENCE));
                        }
                        found.resolved.extend(some);
                        cursor = behind;
                        let is_idle = found.resolved.len() == decided && found.set_aside == 0;
                        if snapshot && is_idle && std::mem::take(&mut may_watch_again) {
                            // Whoever died since the snapshot before is silent from this one on.
                            epoch = next;
                            witness.told(clock::now(), next, interval);
                            batches = all_batches();
                            continue;
                        }
                        batches.pop();
                        let is_through = if ids.is_empty() { snapshot || left == 0 } else { batches.is_empty() };
                        if is_through || snapshot {
                            return Ok(());
                        }
                    }
                    Ok(SweepReply::Moved { .. }) => {
                        found.swept_by_worker = true;
                        return Ok(());
                    }
                    Ok(SweepReply::Early { epoch, interval }) => witness.told(clock::now(), epoch, interval),
                    Ok(SweepReply::Undeclared) => {
                        return Err(undeclared());
                    }
                    Err(e) => {
                        witness.broken(clock::now(), WatchBreak::SweepRefused);
                        // It may have been carried out, and then the epoch is another one by our own doing.
                        is_unanswered |= e.is_outage();
                        if !e.is_outage() {
                            return Err(e);
                        }
                        failure = Some(e);
                    }
                }
                continue;
            }
            tokio::time::sleep(due.since(clock::now())).await;
            match watch.epoch(period).await {
                Ok(Some((now_in_force, interval))) => {
                    let now = clock::now();
                    witness.beat_answered(due, now, now_in_force, interval);
                    if now_in_force != epoch {
                        return match failure {
                            Some(e) if is_unanswered => Err(e),
                            _ => {
                                found.swept_by_worker = true;
                                Ok(())
                            }
                        };
                    }
                    due = due.after(period).max(now);
                }
                Ok(None) => return Ok(()),
                Err(e) => {
                    witness.broken(clock::now(), WatchBreak::NoAnswer);
                    due = clock::now().after(cadence::longest_beat_pause(interval));
                    witness.next_beat_at(due);
                    if !e.is_outage() {
                        return Err(e);
                    }
                    failure = Some(e);
                }
            }
        }
        Err(failure.unwrap_or_else(Error::timed_out))
    }
}

/// What came of a watch.
#[derive(Default)]
struct Resolution {
    resolved: Vec<StalledJob>,
    set_aside: u64,
    swept_by_worker: bool,
    is_complete: bool,
}

/// Which silent jobs: all, or these.
#[derive(Clone, Debug)]
pub struct SilentSelection(Option<Vec<String>>);

impl SilentSelection {
    /// Every job that is silent.
    #[must_use]
    pub const fn all() -> SilentSelection {
        SilentSelection(None)
    }

    /// These jobs.
    #[must_use]
    pub fn ids<T: AsRef<str>>(ids: impl IntoIterator<Item = T>) -> SilentSelection {
        SilentSelection(Some(ids.into_iter().map(|id| id.as_ref().to_owned()).collect()))
    }
}

/// The connection of a watch, which is made anew when it breaks.
struct Watch<'a> {
    inspector: &'a Inspector,
    keys: &'a TaskKeys,
    /// With the primary that it leads to.
    conn: Option<(OwnConnection, u64)>,
    /// Over which line its calls went.
    line: Option<u64>,
}

impl Watch<'_> {
    /// The epoch and the interval in force; `None` where there never was one. The answer must come within `time`.
    async fn epoch(&mut self, time: Duration) -> Result<Option<(u64, Duration)>, Error> {
        let keys = self.keys;
        let (epoch, interval) = self.call(time, async |conn| overview::epoch(conn, keys).await).await?;
        Ok(interval.filter(|ms| *ms > 0).map(|ms| (epoch, Duration::from_millis(ms))))
    }

    async fn sweep(
        &mut self,
        own: &str,
        epoch: Option<u64>,
        waited: Duration,
        cursor: &str,
        decision: &Decision,
        time: Duration,
    ) -> Result<SweepReply, Error> {
        let keys = self.keys;
        let sweep = async |conn: &mut OwnConnection| {
            sweep::sweep(conn, keys, own, Duration::ZERO, epoch, waited, cursor, BATCH, Some(decision)).await
        };
        self.call(time, sweep).await
    }

    async fn call<T>(
        &mut self,
        time: Duration,
        call: impl AsyncFnOnce(&mut OwnConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let store = &self.inspector.store;
        let answer = async {
            store.ready().await?;
            let generation = store.generation();
            let (conn, generation) = match self.conn.take() {
                Some(line) => line,
                None => (store.dedicated(Role::Pool, None).await?, generation),
            };
            let key = self.keys.get(Key::Meta);
            let mut line = conn.at(key).await.map_err(|e| classify("watch", e))?;
            let before = std::mem::replace(&mut self.line, line.line_to(key));
            if before.is_some() && before != self.line {
                // What was watched was watched elsewhere.
                self.conn = Some((conn, generation));
                return Err(Error::primary_changed());
            }
            let answer = store.steady_since(generation, call(&mut line)).await?;
            self.conn = Some((conn, generation));
            Ok(answer)
        };
        tokio::time::timeout(time, answer).await.unwrap_or_else(|_| Err(Error::timed_out()))
    }
}
