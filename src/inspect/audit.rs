//! The audit: every job is in exactly one place, locks and sets agree, counters are numbers, and nothing lacks an owner.
//!
//! It runs next to live workers in calls of bounded size, so jobs move meanwhile. Therefore it reads lists from the back: that way it
//! misses no entry that stays. It checks each suspect three times, each time in one call. It reports a fault only if all three find it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use super::Inspector;
use super::audit_lists::ListPlace;
use super::audit_report::{AuditReport, AuditedPart, Finding, Inconsistency};
use crate::backend::audit;
use crate::backend::keys::{Key, TaskKeys};
use crate::error::Error;

/// How many jobs one call checks.
const LOOK: usize = 100;

/// How often a suspect is checked again.
const ROUNDS: u32 = 2;

/// The most findings that are reported.
const MOST: usize = 10_000;

/// The keys that are read besides the lists. Payloads come first, because they contain most ids.
const PLACES: [Key; 25] = [
    Key::Payload,
    Key::Locks,
    Key::Active,
    Key::Candidates,
    Key::Delayed,
    Key::Completed,
    Key::Failed,
    Key::Cancelled,
    Key::Cancelling,
    Key::Tombstones,
    Key::Attempt,
    Key::StalledCount,
    Key::Result,
    Key::Error,
    Key::Options,
    Key::MaxCount,
    Key::Priority,
    Key::DispatchedAt,
    Key::Snoozes,
    Key::EnqueuedAt,
    Key::Recovery,
    Key::ExpiresAt,
    Key::Claimed,
    Key::Outcome,
    Key::Finalizing,
];

/// The progress of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditProgress {
    /// How many list entries, fields and members were read.
    pub read: u64,
    /// About how many there are in the partitions that it has begun.
    pub of: u64,
    /// How many ids may be faulty, or are.
    pub suspects: u64,
}

/// An audit of a task. It begins when it is awaited, or with its first step. Created by [`Inspector::audit`].
///
/// ```no_run
/// # use heartline::Inspector;
/// # async fn run(inspector: Inspector) -> heartline::Result<()> {
/// let report = inspector.audit("export").await?;
/// for finding in report.findings() {
///     println!("{finding}");
/// }
/// println!("{:?}", inspector.preview_repair(&report).await?);
/// # Ok(())
/// # }
/// ```
///
/// A step makes a few calls. Each call takes Redis a few milliseconds at most. The next step repeats a failed one, so an audit
/// continues after an outage. An audit needs about 70 MB of memory per million jobs.
#[must_use = "an audit does nothing until it is awaited"]
pub struct Audit {
    inspector: Inspector,
    task: String,
    /// Its tables, once known, and the index of the current one.
    tables: Option<Arc<[Arc<TaskKeys>]>>,
    part: usize,
    stage: Stage,
    hasher: RandomState,
    /// How many entries of each id the lists have, by hash of the id.
    listed: HashMap<u64, u32>,
    /// Hashes of the ids that were queued for a check.
    looked: HashSet<u64>,
    /// Ids to check.
    open: VecDeque<String>,
    suspects: BTreeMap<String, Doubt>,
    /// Records of workers that were gone at the first check.
    records: Vec<String>,
    /// When reading the lists began, ms.
    began_ms: u64,
    progress: AuditProgress,
    report: AuditReport,
}

/// A suspect: the faults that every check so far has found, and how many entries of the id the lists have.
struct Doubt {
    faults: Vec<Inconsistency>,
    listed: u32,
}

#[derive(Clone, Debug)]
enum Stage {
    Begin,
    /// Counts the entries of the lists.
    Lists(ListPlace),
    /// Checks every id in a place or column.
    Places {
        place: usize,
        cursor: u64,
        count: Option<u64>,
    },
    /// Checks ids that are only in the lists.
    Entries(ListPlace),
    /// Counts the list entries of suspects.
    Recount {
        round: u32,
        place: ListPlace,
    },
    /// Checks the suspects again.
    Again {
        round: u32,
        /// The last suspect checked.
        last: Option<String>,
    },
    Records {
        round: u32,
        cursor: u64,
    },
    Meta,
    Done,
}

impl Inspector {
    /// Checks the stored data of a task for inconsistencies, while workers run.
    pub fn audit(&self, task: &str) -> Audit {
        Audit {
            inspector: self.clone(),
            task: task.to_owned(),
            tables: None,
            part: 0,
            stage: Stage::Begin,
            hasher: RandomState::new(),
            listed: HashMap::new(),
            looked: HashSet::new(),
            open: VecDeque::new(),
            suspects: BTreeMap::new(),
            records: Vec::new(),
            began_ms: 0,
            progress: AuditProgress::default(),
            report: AuditReport { task: task.to_owned(), parts: vec![AuditedPart::default()] },
        }
    }

    /// Records that an audit finished, with its number of faults by kind, for [`TaskReport::audited`](crate::TaskReport::audited) and
    /// the metrics. Returns `false` if the task has no data: then nothing is recorded.
    pub async fn note_audit(&self, report: &AuditReport) -> Result<bool, Error> {
        let mut counts: BTreeMap<Inconsistency, u64> = BTreeMap::new();
        for finding in report.findings() {
            *counts.entry(finding.fault).or_default() += 1;
        }
        let found: Vec<String> = counts.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
        let (keys, found) = (self.first(&report.task)?, found.join(" "));
        self.ask(async |conn| audit::audited(conn, &keys, &found).await).await
    }

    /// Whether the worker of a record is not listed. A live worker lists itself every 5 s.
    pub(super) async fn is_gone(&self, record: &str) -> Result<bool, Error> {
        let worker = audit::worker_of(record);
        match self.look(async |conn| self.store.is_listed(conn, worker).await).await {
            // In a cluster, the list may be unreachable while the task is not. Then assume that the worker is listed.
            Err(e) if e.is_outage() && !self.hides_all(&e) => Ok(false),
            is_listed => Ok(!is_listed?),
        }
    }
}

impl Audit {
    /// Makes the next step. Returns its progress, or `None` if the audit had already finished.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`]. The step can be repeated.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn step(&mut self) -> Result<Option<AuditProgress>, Error> {
        if self.open.len() >= LOOK {
            self.look_at_open().await?;
            return Ok(Some(self.progress));
        }
        match self.stage.clone() {
            Stage::Done => return Ok(None),
            Stage::Begin => self.begin().await?,
            Stage::Lists(place) => self.count_list(place).await?,
            Stage::Places { place, cursor, count } => self.scan_place(place, cursor, count).await?,
            Stage::Entries(place) => self.look_for_entries(place).await?,
            Stage::Recount { round, place } => self.recount(round, place).await?,
            Stage::Again { round, last } => self.again(round, last).await?,
            Stage::Records { round, cursor } => self.look_at_records(round, cursor).await?,
            Stage::Meta => self.look_at_meta().await?,
        }
        self.progress.suspects =
            self.suspects.len() as u64 + self.report.parts.iter().map(|part| part.found).sum::<u64>();
        Ok(Some(self.progress))
    }

    /// The findings so far. Complete when [`step`](Audit::step) has returned `None`.
    #[must_use]
    pub fn report(&self) -> &AuditReport {
        &self.report
    }

    async fn begin(&mut self) -> Result<(), Error> {
        if self.tables.is_none() {
            self.tables = Some(self.inspector.tables(&self.task).await?);
        }
        let keys = self.keys()?;
        let seen = self.inspector.overview_of(&keys).await?;
        let [waiting, delayed, claimed, running, finalizing, completed, failed, cancelled] = seen.counts;
        // The audit reads each id in its place and as a payload, and each list entry twice.
        let (ended, held) = (completed + failed + cancelled, 3 * running + 4 * claimed);
        self.progress.of += 3 * waiting + 2 * (delayed + ended) + 3 * finalizing + held;
        self.began_ms = seen.now_ms;
        self.stage = Stage::Lists(ListPlace::default());
        Ok(())
    }

    /// Reads the next page of the lists. Returns its new entries, and the next place.
    async fn read_lists(&mut self, place: ListPlace) -> Result<(Vec<String>, Option<ListPlace>), Error> {
        let (page, next) = self.inspector.page_of_list(&*self.keys()?, place).await?;
        self.progress.read += page.len() as u64;
        Ok((page, next))
    }

    async fn count_list(&mut self, place: ListPlace) -> Result<(), Error> {
        let (page, next) = self.read_lists(place).await?;
        for id in page {
            *self.listed.entry(self.hasher.hash_one(&*id)).or_insert(0) += 1;
        }
        self.stage = next.map_or(Stage::Places { place: 0, cursor: 0, count: None }, Stage::Lists);
        Ok(())
    }

    async fn scan_place(&mut self, place: usize, cursor: u64, count: Option<u64>) -> Result<(), Error> {
        let keys = self.keys()?;
        let key = PLACES[place];
        let Some(count) = count else {
            let count = self.inspector.ask(async |conn| audit::scan_count(conn, &keys, key).await).await?;
            self.stage = Stage::Places { place, cursor, count: Some(count) };
            return Ok(());
        };
        let (next, ids) = self.inspector.ask(async |conn| audit::scan(conn, &keys, key, cursor, count).await).await?;
        self.progress.read += ids.len() as u64;
        for id in ids {
            self.open_for_a_look(id);
        }
        self.stage = match (next, place + 1) {
            (0, place) if place < PLACES.len() => Stage::Places { place, cursor: 0, count: None },
            (0, _) => Stage::Entries(ListPlace::default()),
            (cursor, _) => Stage::Places { place, cursor, count: Some(count) },
        };
        Ok(())
    }

    async fn look_for_entries(&mut self, place: ListPlace) -> Result<(), Error> {
        let (page, next) = self.read_lists(place.clone()).await?;
        for id in page {
            self.open_for_a_look(id);
        }
        match next {
            Some(next) => self.stage = Stage::Entries(next),
            None if self.open.is_empty() => self.begin_again(0).await?,
            // Check the rest before the last page is read again.
            None => self.look_at_open().await?,
        }
        Ok(())
    }

    fn open_for_a_look(&mut self, id: String) {
        // A set that is being shrunk contains an empty member for a moment.
        if !id.is_empty() && self.looked.insert(self.hasher.hash_one(&*id)) {
            self.open.push_back(id);
        }
    }

    /// Checks the next ids for the first time.
    async fn look_at_open(&mut self) -> Result<(), Error> {
        let count = self.open.len().min(LOOK);
        let listed = |id: &String| self.listed.get(&self.hasher.hash_one(&**id)).copied().unwrap_or(0);
        let jobs: Vec<(String, u32)> = self.open.iter().take(count).map(|id| (id.clone(), listed(id))).collect();
        let faults = self.look(&jobs).await?;
        self.open.drain(..count);
        self.report.parts[self.part].looked += count as u64;
        for ((id, listed), faults) in jobs.into_iter().zip(faults) {
            if !faults.is_empty() {
                self.suspects.insert(id, Doubt { faults, listed });
            }
        }
        Ok(())
    }

    async fn look(&self, jobs: &[(String, u32)]) -> Result<Vec<Vec<Inconsistency>>, Error> {
        let (keys, began_ms) = (self.keys()?, self.began_ms);
        let words = self.inspector.ask(async |conn| audit::look(conn, &keys, began_ms, jobs).await).await?;
        Ok(words.iter().map(|words| words.split(' ').filter_map(|word| word.parse().ok()).collect()).collect())
    }

    /// Begins the next round, which counts the list entries of suspects again. Without a suspect, ends the rounds.
    async fn begin_again(&mut self, round: u32) -> Result<(), Error> {
        // Free their memory.
        (self.listed, self.looked) = (HashMap::new(), HashSet::new());
        if self.suspects.is_empty() || round == ROUNDS {
            for (id, suspect) in std::mem::take(&mut self.suspects) {
                for fault in suspect.faults {
                    self.found(Finding { fault, what: id.clone() });
                }
            }
            self.stage = Stage::Records { round: 0, cursor: 0 };
            return Ok(());
        }
        self.began_ms = self.inspector.now_ms().await?;
        self.suspects.values_mut().for_each(|suspect| suspect.listed = 0);
        self.stage = Stage::Recount { round, place: ListPlace::default() };
        Ok(())
    }

    async fn recount(&mut self, round: u32, place: ListPlace) -> Result<(), Error> {
        let (page, next) = self.read_lists(place).await?;
        for id in page {
            if let Some(suspect) = self.suspects.get_mut(&id) {
                suspect.listed += 1;
            }
        }
        self.stage = next.map_or(Stage::Again { round, last: None }, |place| Stage::Recount { round, place });
        Ok(())
    }

    async fn again(&mut self, round: u32, last: Option<String>) -> Result<(), Error> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let jobs: Vec<(String, u32)> = self
            .suspects
            .range((from, Bound::Unbounded))
            .take(LOOK)
            .map(|(id, suspect)| (id.clone(), suspect.listed))
            .collect();
        let Some((last, _)) = jobs.last().cloned() else {
            self.suspects.retain(|_, suspect| !suspect.faults.is_empty());
            return self.begin_again(round + 1).await;
        };
        let looks = self.look(&jobs).await?;
        for ((id, _), faults) in jobs.iter().zip(looks) {
            if let Some(suspect) = self.suspects.get_mut(id) {
                suspect.faults.retain(|fault| faults.contains(fault));
            }
        }
        self.stage = Stage::Again { round, last: Some(last) };
        Ok(())
    }

    async fn look_at_records(&mut self, round: u32, cursor: u64) -> Result<(), Error> {
        if round == 0 {
            let keys = self.keys()?;
            let scan = async |conn: &mut _| audit::scan(conn, &keys, Key::Replies, cursor, 100).await;
            let (next, records) = self.inspector.ask(scan).await?;
            for record in records {
                if self.inspector.is_gone(&record).await? && !self.records.contains(&record) {
                    self.records.push(record);
                }
            }
            let again = Stage::Records { round: 1, cursor: 0 };
            self.stage = if next == 0 { again } else { Stage::Records { round: 0, cursor: next } };
            return Ok(());
        }
        let Some(record) = self.records.last().cloned() else {
            self.stage = Stage::Meta;
            return Ok(());
        };
        let is_gone = self.inspector.is_gone(&record).await?;
        self.records.pop();
        if is_gone {
            self.found(Finding { fault: Inconsistency::StaleRecord, what: record });
        }
        Ok(())
    }

    async fn look_at_meta(&mut self) -> Result<(), Error> {
        let keys = self.keys()?;
        let seen = self.inspector.overview_of(&keys).await?;
        let is_bad = |field: &str| seen.meta.get(field).is_some_and(|value| !audit::is_counter(value));
        let bad: Vec<&str> = audit::COUNTERS.into_iter().filter(|field| is_bad(field)).collect();
        for field in bad {
            self.found(Finding { fault: Inconsistency::BadMeta, what: field.to_owned() });
        }
        let parts = self.tables.as_ref().map_or(1, |tables| tables.len());
        if self.part + 1 == parts {
            self.stage = Stage::Done;
        } else {
            self.part += 1;
            self.report.parts.push(AuditedPart { part: self.part as u32, ..AuditedPart::default() });
            self.stage = Stage::Begin;
        }
        Ok(())
    }

    /// The current table.
    fn keys(&self) -> Result<Arc<TaskKeys>, Error> {
        let table = self.tables.as_ref().and_then(|tables| tables.get(self.part));
        table.map_or_else(|| self.inspector.first(&self.task), |keys| Ok(Arc::clone(keys)))
    }

    fn found(&mut self, finding: Finding) {
        let part = &mut self.report.parts[self.part];
        part.found += 1;
        if part.findings.len() < MOST {
            part.findings.push(finding);
        }
    }
}

impl IntoFuture for Audit {
    type Output = Result<AuditReport, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            while self.step().await?.is_some() {}
            Ok(self.report)
        })
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("task", &self.task).field("progress", &self.progress).finish_non_exhaustive()
    }
}
