//! Silent held jobs, and decisions of a person about them. Each decision first watches for a whole interval.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use super::act_report::{BulkReport, RefusalReason};
use super::filter::JobFilter;
use super::page::{MOST_ROWS, holder};
use super::parts::{Cursors, by_table, config};
use super::sweep_by_hand::{LEAST_TIME, Resolution, SweepByHand, Watch, undeclared};
use crate::backend::audit;
use crate::backend::connection::OwnConnection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::overview::Overview;
use crate::backend::server::check_rights;
use crate::backend::sweep::{Decision, StalledJob, SweepReply, Verdict};
use crate::backend::values;
use crate::clock;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::join::join_all;
use crate::limits::BATCH;
use crate::stall::action::StallAction;
use crate::unix_time::{at_ms, ms_since_1970_where_known};
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
    /// The time of the snapshot since which it has been silent. It may have been silent before.
    #[serde(rename = "silent_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub silent_since: Option<SystemTime>,
    /// Whether a sweep parked it after an interval of silence, because its phase waits longer or for a person, see
    /// [`StallOptions::recover_running`](crate::StallOptions::recover_running). A person's decision about it takes effect after an
    /// interval, even while live workers watch.
    pub is_parked: bool,
}

/// The prefix of a cursor into the parked jobs.
const PARKED: &str = "parked:";

/// Some jobs of `candidates` or `parked`, and the next cursor.
async fn looked_at(
    conn: &mut OwnConnection,
    keys: &TaskKeys,
    place: Key,
    at: u64,
) -> Result<(u64, Vec<SilentJob>), Error> {
    let (next, ids) = audit::scan(conn, keys, place, at, BATCH as u64).await?;
    let ids: Vec<JobId> = ids.into_iter().filter(|id| !id.is_empty()).map(JobId::from_wire).collect();
    Ok((next, look_at(conn, keys, ids).await?))
}

/// Reads these jobs, in this order. A job that is not parked, or sent a heartbeat since, has no `silent_since`.
async fn look_at(conn: &mut OwnConnection, keys: &TaskKeys, ids: Vec<JobId>) -> Result<Vec<SilentJob>, Error> {
    let mut jobs = Vec::with_capacity(ids.len());
    if ids.is_empty() {
        return Ok(jobs);
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
        let started_at = fence.map(|fence| at_ms(fence / 1000));
        let (silent_since, is_parked) = (mark.as_ref().map(|mark| at_ms(mark.since_ms)), mark.is_some());
        jobs.push(SilentJob { id, worker, fence, is_claimed, started_at, silent_since, is_parked });
    }
    Ok(jobs)
}

/// Whether silent jobs of the task may be parked.
fn has_grace(seen: &Overview) -> bool {
    seen.text("grace").is_some_and(|grace| !grace.is_empty())
}

/// A page of silent jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SilentPage {
    /// The jobs, in no order.
    pub jobs: Vec<SilentJob>,
    /// The cursor of the next page. `None` at the end.
    pub next: Option<String>,
}

/// The result of a sweep that a person started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SweepReport {
    /// The jobs that stayed silent, and the decision about each.
    pub resolved: Vec<ResolvedJob>,
    /// How many were parked, because their phase waits longer or for a person.
    pub parked: u64,
    /// Whether a worker swept meanwhile. That worker decides about the silent jobs, in that sweep or its next one.
    pub swept_by_worker: bool,
    /// Whether it finished. If not, it failed midway, usually because Redis was unreachable: call again for the other jobs.
    pub is_complete: bool,
}

/// A job that stayed silent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResolvedJob {
    /// The job.
    pub id: JobId,
    /// The decision.
    pub action: StallAction,
    /// How often it has stalled.
    pub stalled_count: u64,
    /// The worker that had held it.
    pub worker: Option<WorkerId>,
}

impl ResolvedJob {
    /// `None` if another version took a decision that this one does not know.
    pub(super) fn of(job: StalledJob) -> Option<ResolvedJob> {
        Some(ResolvedJob {
            id: JobId::from_wire(job.id),
            action: job.action.parse().ok()?,
            stalled_count: job.count,
            worker: (job.worker != "-").then(|| WorkerId::from_wire(job.worker.as_str())),
        })
    }
}

impl Inspector {
    /// A page of held jobs that were silent since the last snapshot, in no order. The cursor is the [`SilentPage::next`] of the
    /// previous page, or `None` to begin. Parked jobs come first. A job in the list is not stalled yet: its next heartbeat removes
    /// it. A job that a sweep moves between two pages may appear twice or not at all.
    pub async fn silent_jobs(&self, task: &str, cursor: Option<&str>) -> Result<SilentPage, Error> {
        let tables = self.tables(task).await?;
        let mut cursors = Cursors::parse(cursor.unwrap_or_default(), tables.len())?;
        let read = |keys: Arc<TaskKeys>, cursor: String| async move { self.silent_jobs_of(&keys, &cursor).await };
        let jobs = cursors.next_pages(&tables, read).await?.into_iter().flatten().collect();
        Ok(SilentPage { jobs, next: cursors.text() })
    }

    async fn silent_jobs_of(&self, keys: &TaskKeys, cursor: &str) -> Result<(Vec<SilentJob>, Option<String>), Error> {
        let seen = self.overview_of(keys).await?;
        let first = if has_grace(&seen) && cursor.is_empty() { PARKED } else { cursor };
        let (place, at) = match first {
            "" => (Key::Candidates, Some(0)),
            text => match text.strip_prefix(PARKED) {
                Some("") => (Key::Parked, Some(0)),
                Some(at) => (Key::Parked, at.parse().ok()),
                None => (Key::Candidates, text.parse().ok()),
            },
        };
        let Some(at) = at else {
            let rule = "must be the `next` of a page of the same task";
            return Err(config("cursor", cursor, rule, "begin again without a cursor"));
        };
        let since = seen.number("snapshotAt").map(at_ms);
        let (next, mut jobs) = self.ask(async |conn| looked_at(conn, keys, place, at).await).await?;
        let is_parked = place == Key::Parked;
        jobs.retain(|job| job.is_parked == is_parked);
        jobs.iter_mut().for_each(|job| job.silent_since = job.silent_since.or(since));
        let next = match next {
            0 if is_parked => Some("0".to_owned()),
            0 => None,
            next if is_parked => Some(format!("{PARKED}{next}")),
            next => Some(next.to_string()),
        };
        Ok((jobs, next))
    }

    /// Watches the task for one interval, as a worker does, then resolves the jobs that stayed silent, by the options of the task. It
    /// is for a task that no live worker watches: a watching worker decides sooner, and the report then says so.
    ///
    /// A job whose worker died after the last snapshot counts as silent from the next one on. If no other job is silent, this call
    /// takes that snapshot and watches for a second interval.
    ///
    /// # Errors
    /// [`Error::Connect`] if Redis was not reachable for long enough to watch, and [`Error::Unsupported`] if the server has lost the
    /// options of the task.
    pub async fn sweep_now(&self, task: &str) -> Result<SweepReport, Error> {
        let decision = Decision { verdict: Verdict::Auto, by: self.by.to_string(), ids: Vec::new() };
        let found = self.resolve(task, decision, &[], false).await?;
        let resolved = found.resolved.into_iter().filter_map(ResolvedJob::of).collect();
        let Resolution { parked, swept_by_worker, is_complete, .. } = found;
        Ok(SweepReport { resolved, parked, swept_by_worker, is_complete })
    }

    /// Gives silent jobs another run, regardless of their stall count. Takes all silent jobs, or the given ones. It first waits for an
    /// interval, in which a live worker would send a heartbeat, then takes parked jobs. For other jobs, or if none is parked, it
    /// watches as [`sweep_now`](Inspector::sweep_now) does and takes only jobs that stayed silent. If a live worker watches, that
    /// worker decides, and the report has `swept_by_worker`. Pass only ids that [`silent_jobs`](Inspector::silent_jobs) lists. Others
    /// are refused as `NotSilent` while those exist.
    ///
    /// # Errors
    /// As [`sweep_now`](Inspector::sweep_now).
    pub async fn recover_running(&self, task: &str, jobs: SilentSelection) -> Result<BulkReport, Error> {
        self.decide(task, jobs, Verdict::Recover, false).await
    }

    /// Returns silent jobs that were claimed ahead and have not begun to the front of their lists, without counting a stall. Takes all
    /// of them, or the given ones. Jobs that have begun are refused. Otherwise as [`recover_running`](Inspector::recover_running).
    pub async fn requeue_claimed(&self, task: &str, jobs: SilentSelection) -> Result<BulkReport, Error> {
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
        let mut report = BulkReport { is_complete: true, ..BulkReport::default() };
        if !named.is_empty() {
            report = self.decide(task, SilentSelection(Some(named)), Verdict::Requeue, is_all).await?;
        }
        if is_all {
            // Do not report jobs of live workers, or jobs that began or ended meanwhile, as refused.
            report
                .refusals
                .retain(|refused| !matches!(refused.why, RefusalReason::NotSilent | RefusalReason::State(_)));
            report.refused = report.refusals.len() as u64;
        }
        report.looked += others.len() as u64;
        self.say_why(task, others, &mut report, |_, state| RefusalReason::State(state)).await;
        Ok(report)
    }

    /// Makes silent jobs fail with the code `worker_crashed`. Takes all of them, or the given ones. Otherwise as
    /// [`recover_running`](Inspector::recover_running).
    pub async fn fail_running(&self, task: &str, jobs: SilentSelection) -> Result<BulkReport, Error> {
        self.decide(task, jobs, Verdict::Fail, false).await
    }

    async fn decide(
        &self,
        task: &str,
        jobs: SilentSelection,
        verdict: Verdict,
        takes_all: bool,
    ) -> Result<BulkReport, Error> {
        // Check the name even if no id is left.
        self.first(task)?;
        let mut report = BulkReport::default();
        let (mut ids, mut named) = (Vec::new(), HashSet::new());
        let SilentSelection(wanted) = jobs;
        for id in wanted.iter().flatten() {
            match JobId::parse(id) {
                Ok(_) if named.insert(id.as_str()) => ids.push(id.clone()),
                Ok(_) => {}
                Err(_) => report.refuse(id.clone(), RefusalReason::InvalidId),
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
        let Ok(parked) = self.are_parked(task, &left).await else {
            // The reasons are missing, but report what was done.
            report.is_complete = false;
            return Ok(report);
        };
        let why = |id: &str, state: JobState| match state {
            JobState::Claimed | JobState::Running | JobState::Finalizing if parked.contains(id) => {
                RefusalReason::Parked
            }
            JobState::Claimed => RefusalReason::NotSilent,
            state if state.is_held() && verdict != Verdict::Requeue => RefusalReason::NotSilent,
            state if watched.swept_by_worker && before.get(id) != Some(&state) => RefusalReason::Changed,
            state => RefusalReason::State(state),
        };
        self.say_why(task, left, &mut report, why).await;
        Ok(report)
    }

    /// The state of each job. Unknown jobs are left out.
    async fn states_before(&self, task: &str, ids: &[String]) -> Result<HashMap<String, JobState>, Error> {
        let mut found = HashMap::new();
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let looked = self.states_of(task, &some).await?;
            found.extend(some.iter().zip(looked).filter_map(|(id, found)| Some((id.to_string(), found?.0))));
        }
        Ok(found)
    }

    /// Which of the jobs are parked under the fence and phase in which they are still held.
    async fn are_parked(&self, task: &str, ids: &[String]) -> Result<HashSet<String>, Error> {
        let mut found = HashSet::new();
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let looked = self.of_each(task, &some, |keys, own| async move {
                let looks = self.ask(async |conn| look_at(conn, &keys, own.clone()).await).await?;
                Ok(looks.into_iter().map(|job| job.is_parked).collect())
            });
            found.extend(
                some.iter().zip(looked.await?).filter(|(_, is_parked)| *is_parked).map(|(id, _)| id.to_string()),
            );
        }
        Ok(found)
    }

    /// Adds the jobs to the report as refused, with reasons by their states.
    async fn say_why(
        &self,
        task: &str,
        ids: Vec<String>,
        report: &mut BulkReport,
        why: impl Fn(&str, JobState) -> RefusalReason,
    ) {
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let Ok(looked) = self.states_of(task, &some).await else {
                // The reasons are missing, but report what was done.
                report.is_complete = false;
                return;
            };
            for (id, state) in some.iter().zip(looked) {
                report
                    .refuse(id.to_string(), state.map_or(RefusalReason::Unknown, |(state, _)| why(id.as_str(), state)));
            }
        }
    }

    /// Which of the jobs are marked as parked. Without ids, all parked jobs.
    async fn parked(&self, keys: &TaskKeys, ids: &[String]) -> Result<Vec<String>, Error> {
        let mut found = HashSet::new();
        for some in ids.chunks(BATCH) {
            let some: Vec<JobId> = some.iter().map(|id| JobId::from_wire(id.as_str())).collect();
            let marks = self.ask(async |conn| values::marks(conn, keys, &some).await).await?;
            found.extend(some.iter().zip(marks).filter(|(_, mark)| mark.is_some()).map(|(id, _)| id.to_string()));
        }
        let mut at = ids.is_empty().then_some(0);
        while let Some(cursor) = at {
            let scan = async |conn: &mut _| audit::scan(conn, keys, Key::Parked, cursor, BATCH as u64).await;
            let (next, ids) = self.ask(scan).await?;
            found.extend(ids.into_iter().filter(|id| !id.is_empty()));
            at = Some(next).filter(|next| *next != 0);
        }
        Ok(found.into_iter().collect())
    }

    /// [`watch_and_resolve`](Inspector::watch_and_resolve) for all partitions at the same time. After a failure it returns what was
    /// resolved before, if anything.
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
                    all.parked += found.parked;
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

    /// Decides about parked jobs: these, or all. First waits for an interval over one connection, and therefore with one server. By
    /// then every live worker has sent a heartbeat. That removes the marks of its jobs, even marks that came back with old data after
    /// a failover.
    async fn decide_parked(
        &self,
        watch: &mut Watch<'_>,
        own: &str,
        decision: &Decision,
        ids: &[String],
        resolved: &mut Vec<StalledJob>,
    ) -> Result<(), Error> {
        let marked = self.parked(watch.keys, ids).await?;
        if marked.is_empty() {
            return Ok(());
        }
        let Some((_, interval)) = watch.epoch(LEAST_TIME).await? else { return Ok(()) };
        tokio::time::sleep(interval).await;
        for some in marked.chunks(BATCH) {
            let decision = Decision { ids: some.to_vec(), ..decision.clone() };
            match watch.sweep(own, None, Duration::ZERO, "0", &decision, LEAST_TIME).await? {
                SweepReply::Swept { resolved: some, .. } => resolved.extend(some),
                SweepReply::Undeclared => return Err(undeclared()),
                SweepReply::Moved { .. } | SweepReply::Early { .. } => {}
            }
        }
        Ok(())
    }

    /// Watches for one interval over its own connection, then resolves. If the first interval ended only in a snapshot, watches for a
    /// second one. With `takes_all`, the ids are all claimed jobs, and it stops after the parked ones if there were any.
    async fn watch_and_resolve(
        &self,
        keys: &TaskKeys,
        decision: Decision,
        ids: &[String],
        takes_all: bool,
        found: &mut Resolution,
    ) -> Result<(), Error> {
        // A script that lacks a permission midway would leave jobs in no collection.
        self.ask(async |conn| check_rights(conn, keys).await).await?;
        let own = WorkerId::generate();
        let mut watch = Watch::begin(self, keys);
        let mut rest = ids.to_vec();
        if decision.verdict != Verdict::Auto && has_grace(&self.overview_of(keys).await?) {
            self.decide_parked(&mut watch, own.as_str(), &decision, ids, &mut found.resolved).await?;
            let done: HashSet<&str> = found.resolved.iter().map(|job| job.id.as_str()).collect();
            rest.retain(|id| !done.contains(id.as_str()));
            if !found.resolved.is_empty() && (rest.is_empty() || takes_all) {
                return Ok(());
            }
        }
        let Some((epoch, interval)) = watch.epoch(LEAST_TIME).await? else { return Ok(()) };
        let seen = self.overview_of(keys).await?;
        if seen.candidates + seen.active == 0 {
            return Ok(());
        }
        let mut sweep = SweepByHand::begin(watch, own, decision, rest, found, (epoch, interval));
        while clock::now() < sweep.end {
            let is_over = match sweep.witness.may_sweep(clock::now()) {
                Some((watched, waited)) => sweep.resolve(watched, waited).await?,
                None => sweep.beat().await?,
            };
            if is_over {
                return Ok(());
            }
        }
        Err(sweep.failure.take().unwrap_or_else(Error::timed_out))
    }
}

/// Selects silent jobs: all, or by id.
#[derive(Clone, Debug)]
pub struct SilentSelection(Option<Vec<String>>);

impl SilentSelection {
    /// Every silent job.
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
