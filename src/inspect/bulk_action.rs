//! An act on many jobs, in steps of bounded size.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use super::Inspector;
use super::act_report::{BulkReport, JobSelection, RefusalReason};
use super::filter::JobFilter;
use super::page::{JobRow, LOOKED};
use super::parts::by_table;
use crate::backend::actions::{self, ActionReply, Named, SeenState};
use crate::backend::jobs;
use crate::backend::overview;
use crate::backend::values;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::limits::BATCH;
use crate::unix_time::ms_of;

/// How many calls of a step remove tombstones.
const TIDIED: usize = 20;

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Retry { anyway: bool },
    RunNow,
    Cancel { reason: String },
    Remove,
}

/// An act on jobs. It begins when it is awaited, or with its first step. Created by [`Inspector::retry`] and similar calls.
///
/// ```no_run
/// # use heartline::{Inspector, JobFilter, JobState};
/// # async fn run(inspector: Inspector) -> heartline::Result<()> {
/// let mut act = inspector.by("ada").retry("export", JobFilter::new(JobState::Failed));
/// while let Some(so_far) = act.next_batch().await? {
///     println!("{} of {} so far", so_far.done, so_far.looked);
/// }
/// println!("{:?}", act.report());
/// # Ok(())
/// # }
/// ```
///
/// If it is awaited, it runs to its end and returns its report, or an error without a report. [`next_batch`](BulkAction::next_batch)
/// makes one step, so that the caller can show progress or stop. Completed steps are not undone. A filter selects only jobs that
/// matched when the act began.
#[must_use = "an act does nothing until it is awaited"]
pub struct BulkAction {
    inspector: Inspector,
    task: String,
    kind: Kind,
    selection: JobSelection,
    as_of_ms: Option<u64>,
    state: Option<JobState>,
    dispatched_at_ms: Option<u64>,
    /// The states that [`pin`](BulkAction::pin) has read.
    pinned: HashMap<JobId, SeenState>,
    began_ms: Option<u64>,
    /// The progress: an index into the ids, or the cursor of a page.
    index: usize,
    cursor: String,
    /// Hashes of the ids already handled, because a page may repeat some.
    seen: HashSet<u64>,
    hasher: RandomState,
    /// Whether all jobs are done, and only tombstones are left to remove.
    tidies: bool,
    /// The last number of tombstones.
    tombstones: u64,
    report: BulkReport,
}

impl BulkAction {
    pub(super) fn new(inspector: &Inspector, task: &str, kind: Kind, selection: JobSelection) -> BulkAction {
        BulkAction {
            inspector: inspector.clone(),
            task: task.to_owned(),
            kind,
            selection,
            as_of_ms: None,
            state: None,
            dispatched_at_ms: None,
            pinned: HashMap::new(),
            began_ms: None,
            index: 0,
            cursor: String::new(),
            seen: HashSet::new(),
            hasher: RandomState::new(),
            tidies: false,
            tombstones: u64::MAX,
            report: BulkReport::default(),
        }
    }

    /// With a filter, selects only jobs that matched at this server time, usually the [`TaskReport::as_of`](crate::TaskReport::as_of)
    /// that the person saw. Ages are computed at that time. Defaults to the time when the act began. Later times have no effect.
    pub fn before(mut self, at: SystemTime) -> BulkAction {
        self.as_of_ms = Some(ms_of(at));
        self
    }

    /// With ids, changes only jobs in this state, usually the one that the person saw. Others are refused as [`RefusalReason::Changed`]. A
    /// filter already contains a state.
    pub fn in_state(mut self, state: JobState) -> BulkAction {
        self.state = Some(state);
        self
    }

    /// With [`in_state`](BulkAction::in_state), changes only jobs dispatched at this time, their
    /// [`dispatched_at`](crate::JobReport::dispatched_at): a new job may have taken the id of a removed one. Others are refused as
    /// [`RefusalReason::Changed`].
    pub fn dispatched_at(mut self, at: SystemTime) -> BulkAction {
        self.dispatched_at_ms = Some(ms_of(at));
        self
    }

    /// Also retries jobs whose unique key another job has; they run without their key. Without this call they are refused as
    /// [`RefusalReason::Duplicate`]. Other acts ignore it.
    pub fn anyway(mut self) -> BulkAction {
        if let Kind::Retry { anyway } = &mut self.kind {
            *anyway = true;
        }
        self
    }

    /// With ids, reads the state of each job before a person decides, 200 per call. The act then refuses, as [`RefusalReason::Changed`],
    /// jobs that left that state or whose id belongs to a new job. Returns the number of jobs by state; unknown jobs count as `None`.
    /// With a filter, it does nothing.
    ///
    /// # Errors
    /// As [`next_batch`](BulkAction::next_batch).
    ///
    /// # Cancel safety
    /// Cancel safe. Jobs that were read stay pinned.
    pub async fn pin(&mut self) -> Result<BTreeMap<Option<JobState>, u64>, Error> {
        let mut counts = BTreeMap::new();
        let JobSelection::Ids(ids) = &self.selection else { return Ok(counts) };
        let tables = self.inspector.tables(&self.task).await?;
        let parsed: Vec<JobId> = ids.iter().filter_map(|id| JobId::parse(id).ok()).collect();
        for (keys, places) in tables.iter().zip(by_table(tables.len(), &parsed, JobId::as_str)) {
            for some in places.chunks(BATCH) {
                let some: Vec<JobId> = some.iter().map(|at| parsed[*at].clone()).collect();
                let call = async |conn: &mut _| {
                    let found = jobs::states(conn, keys, &some).await?.jobs;
                    Ok((found, values::dispatched_at(conn, keys, &some).await?))
                };
                let (found, dispatched) = self.inspector.ask(call).await?;
                for ((id, job), dispatched_at_ms) in some.iter().zip(found).zip(dispatched) {
                    let pinned = SeenState { state: job.map(|(state, _)| state), dispatched_at_ms };
                    if self.pinned.insert(id.clone(), pinned).is_none() {
                        *counts.entry(pinned.state).or_default() += 1;
                    }
                }
            }
        }
        Ok(counts)
    }

    /// What it has done so far.
    #[must_use]
    pub fn report(&self) -> &BulkReport {
        &self.report
    }

    /// Changes the next jobs, at most 200 per call to Redis, and reads at most 1,000. Returns the report so far, or `None` if the act
    /// had already finished.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`]. The step can be repeated. It then skips
    /// partitions that have answered: they are in the report. After [`Error::Connect`] the jobs of the step may have been changed. If a
    /// job selected by id was dispatched again or ended again meanwhile, a repeated step changes it again.
    ///
    /// # Cancel safety
    /// If the future is dropped, jobs of the step may have been changed. It is safe to repeat the step.
    pub async fn next_batch(&mut self) -> Result<Option<&BulkReport>, Error> {
        if self.report.is_complete {
            return Ok(None);
        }
        // Check the name even if no id is left.
        self.inspector.first(&self.task)?;
        let began = match self.began_ms {
            Some(began) => began,
            None => {
                let now = self.inspector.now_ms().await?;
                *self.began_ms.insert(self.as_of_ms.map_or(now, |as_of| as_of.min(now)))
            }
        };
        match &self.selection {
            JobSelection::Ids(ids) => {
                let end = (self.index + BATCH).min(ids.len());
                let (batch, is_last) = (ids[self.index..end].to_vec(), end == ids.len());
                self.next_ids(&batch).await?;
                self.report.is_complete = is_last;
            }
            JobSelection::Filter(_) if self.tidies => self.report.is_complete = !self.tidy().await?,
            JobSelection::Filter(filter) => {
                let filter = filter.clone();
                self.next_page(filter, began).await?;
            }
        }
        Ok(Some(&self.report))
    }

    async fn next_ids(&mut self, ids: &[String]) -> Result<(), Error> {
        let (mut named, mut texts, mut invalid, mut own) = (Vec::new(), Vec::new(), Vec::new(), HashSet::new());
        let mut of_workflows = Vec::new();
        for id in ids {
            match JobId::parse(id) {
                Ok(parsed) if self.leaves_workflows() && parsed.is_of_workflow() => {
                    if self.seen.insert(self.hasher.hash_one(&parsed)) {
                        of_workflows.push(id.clone());
                    }
                }
                Ok(parsed) => {
                    let hash = self.hasher.hash_one(&parsed);
                    // Handle each id once, even if it was passed several times.
                    if !self.seen.contains(&hash) && own.insert(hash) {
                        let own = |state| SeenState { state: Some(state), dispatched_at_ms: self.dispatched_at_ms };
                        let pinned = self.state.map(own).or_else(|| self.pinned.get(&parsed).copied());
                        named.push(match pinned {
                            // Only a cancel distinguishes claimed from running. The other acts change neither.
                            Some(pinned)
                                if pinned.state == Some(JobState::Claimed)
                                    && !matches!(self.kind, Kind::Cancel { .. }) =>
                            {
                                Named::if_unchanged(parsed, SeenState { state: Some(JobState::Running), ..pinned })
                            }
                            Some(pinned) => Named::if_unchanged(parsed, pinned),
                            None => Named::anywhere(parsed),
                        });
                        texts.push(id.clone());
                    }
                }
                Err(_) => invalid.push(id.clone()),
            }
        }
        self.apply(&named, &texts, true).await?;
        invalid.into_iter().for_each(|id| self.report.refuse(id, RefusalReason::InvalidId));
        of_workflows.into_iter().for_each(|id| self.report.refuse(id, RefusalReason::PartOfWorkflow));
        self.report.looked += ids.len() as u64;
        self.index += ids.len();
        Ok(())
    }

    async fn next_page(&mut self, mut filter: JobFilter, began_ms: u64) -> Result<(), Error> {
        // Read lists from the back, so that no job that stays is missed, and sorted sets from the oldest job on.
        filter.oldest_first = filter.is_ordered();
        if filter.state.is_terminal() {
            // Skip jobs that ended since.
            filter.older_than.get_or_insert(Duration::ZERO);
        }
        let page = self.inspector.page(&self.task, &filter, &self.cursor, BATCH, began_ms).await?;
        let (rows, of_workflows): (Vec<&JobRow>, Vec<&JobRow>) =
            page.jobs.iter().partition(|row| !(self.leaves_workflows() && row.id.is_of_workflow()));
        for row in of_workflows {
            if self.seen.insert(self.hasher.hash_one(&row.id)) {
                self.report.refuse(row.id.to_string(), RefusalReason::PartOfWorkflow);
            }
        }
        let was_there = |row: &JobRow| row.since.is_none_or(|since| ms_of(since) <= began_ms);
        let (rows, later): (Vec<&JobRow>, Vec<&JobRow>) = rows.into_iter().partition(|row| was_there(row));
        // A page of held jobs may exceed the limit.
        for rows in rows.chunks(BATCH) {
            let fresh = |row: &&&JobRow| !self.seen.contains(&self.hasher.hash_one(&row.id));
            let fresh: Vec<&JobRow> = rows.iter().filter(fresh).copied().collect();
            let stamp = |row: &JobRow| if row.stamp.is_empty() { "-".to_owned() } else { row.stamp.clone() };
            let named: Vec<Named> = fresh.iter().map(|row| Named { id: row.id.clone(), stamp: stamp(row) }).collect();
            let texts: Vec<String> = named.iter().map(|job| job.id.to_string()).collect();
            self.apply(&named, &texts, !filter.is_ordered()).await?;
        }
        for row in later {
            if self.seen.insert(self.hasher.hash_one(&row.id)) {
                self.report.refuse(row.id.to_string(), RefusalReason::Later);
            }
        }
        self.report.looked += page.looked.min(LOOKED.max(page.jobs.len())) as u64;
        let leaves_tombstones = matches!(self.kind, Kind::Remove | Kind::Cancel { .. }) && self.report.done > 0;
        self.tidies = page.next.is_none() && filter.state == JobState::Waiting && leaves_tombstones;
        self.report.is_complete = page.next.is_none() && !self.tidies;
        self.cursor = page.next.unwrap_or_default();
        Ok(())
    }

    /// Whether it refuses jobs of workflow nodes. A workflow would lose a job that runs again without it, or is removed.
    fn leaves_workflows(&self) -> bool {
        matches!(self.kind, Kind::Retry { .. } | Kind::Remove)
    }

    /// Repeats the call for jobs without an answer until all have one. If the call fails for one table, the answers of the others
    /// count, and the next step does not repeat their jobs.
    async fn apply(&mut self, named: &[Named], texts: &[String], is_kept_in_mind: bool) -> Result<(), Error> {
        let mut left: Vec<usize> = (0..named.len()).collect();
        while !left.is_empty() {
            let again: Vec<Named> = left.iter().map(|at| named[*at].clone()).collect();
            let (answers, failed) = self.call(&again).await?;
            if is_kept_in_mind || failed.is_some() {
                let handled = left.iter().zip(&answers).filter(|(_, answer)| **answer != ActionReply::Left);
                self.seen.extend(handled.map(|(at, _)| self.hasher.hash_one(&named[*at].id)));
            }
            for (at, answer) in left.iter().zip(&answers) {
                self.count(&texts[*at], answer);
            }
            if let Some(e) = failed {
                return Err(e);
            }
            left = left
                .into_iter()
                .zip(answers)
                .filter(|(_, answer)| *answer == ActionReply::Left)
                .map(|(at, _)| at)
                .collect();
        }
        Ok(())
    }

    /// Removes some of the tombstones that the jobs left at the fronts of the lists. Returns whether there are more to remove.
    async fn tidy(&mut self) -> Result<bool, Error> {
        for _ in 0..TIDIED {
            let mut left = 0;
            for keys in self.inspector.tables(&self.task).await?.iter() {
                let call = async |conn: &mut _| {
                    actions::remove(conn, keys, &[], "").await?;
                    overview::tombstones(conn, keys).await
                };
                left += self.inspector.ask(call).await?;
            }
            if left == 0 || left >= self.tombstones {
                return Ok(false);
            }
            self.tombstones = left;
        }
        Ok(true)
    }

    /// Makes the call for each table. Returns the answers, and the first error. A failed table does not stop the others.
    async fn call(&self, named: &[Named]) -> Result<(Vec<ActionReply>, Option<Error>), Error> {
        let mut failed = None;
        let (tables, by) = (self.inspector.tables(&self.task).await?, &*self.inspector.by);
        let mut all_answers = vec![ActionReply::Left; named.len()];
        for (keys, places) in tables.iter().zip(by_table(tables.len(), named, |job| job.id.as_str())) {
            let own: Vec<Named> = places.iter().map(|at| named[*at].clone()).collect();
            if own.is_empty() {
                continue;
            }
            let call = async |conn: &mut _| match &self.kind {
                Kind::Retry { anyway } => actions::retry(conn, keys, &own, by, *anyway).await,
                Kind::RunNow => actions::run_now(conn, keys, &own, by).await,
                Kind::Cancel { reason } => actions::cancel(conn, keys, &own, reason, by).await,
                Kind::Remove => actions::remove(conn, keys, &own, by).await,
            };
            // If a call with a bare id is repeated, it may find a new job, or the job in another state.
            let answers = match self.selection {
                JobSelection::Ids(_) => self.inspector.ask_once(call).await,
                JobSelection::Filter(_) => self.inspector.ask(call).await,
            };
            match answers {
                Ok(answers) => {
                    let ended =
                        |(job, answer): (&Named, &ActionReply)| *answer == ActionReply::Done && job.id.is_of_workflow();
                    if matches!(self.kind, Kind::Cancel { .. }) && own.iter().zip(&answers).any(ended) {
                        self.inspector.move_workflows(keys).await;
                    }
                    places.into_iter().zip(answers).for_each(|(at, answer)| all_answers[at] = answer);
                }
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        Ok((all_answers, failed))
    }

    fn count(&mut self, id: &str, answer: &ActionReply) {
        match answer {
            ActionReply::Done => self.report.done += 1,
            ActionReply::Requested => self.report.requested += 1,
            ActionReply::InState(state) => self.report.refuse(id.to_owned(), RefusalReason::State(*state)),
            ActionReply::Duplicate(holder) => self.report.refuse_duplicate(id.to_owned(), holder.clone()),
            ActionReply::Changed => self.report.refuse(id.to_owned(), RefusalReason::Changed),
            ActionReply::Unknown => self.report.refuse(id.to_owned(), RefusalReason::Unknown),
            // The call is repeated for these.
            ActionReply::Left => {}
        }
    }
}

impl IntoFuture for BulkAction {
    type Output = Result<BulkReport, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            while self.next_batch().await?.is_some() {}
            Ok(self.report)
        })
    }
}

impl fmt::Debug for BulkAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkAction")
            .field("task", &self.task)
            .field("kind", &self.kind)
            .field("report", &self.report)
            .finish()
    }
}
