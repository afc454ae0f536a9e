//! The events of a task and of a job, and outcomes that came too late.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use super::page::check_entry;
use super::parts::Cursors;
use crate::backend::jobs;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::streams::{self, Entry};
use crate::codec::Codecs;
use crate::error::Error;
use crate::events::decode::decode;
use crate::events::event::{Event, RejectedOutcome};
use crate::job::id::JobId;
use crate::join::try_join_all;
use crate::unix_time::{as_ms_where_known, at_ms, ms_of, ms_since_1970};
use crate::worker_id::WorkerId;

/// The most entries that one call reads.
const LOOK: usize = 200;

/// The most entries of a page. Each may contain hundreds of jobs.
const PAGE: usize = 100;

/// The most late outcomes of one answer. The stall of each one is searched.
const LATE: usize = 100;

/// The longest time between a stall and a late outcome that is searched.
const LONGEST_LATE: Duration = Duration::from_secs(7 * 86_400);

/// How far the clocks of a producer and of the server may differ.
const SKEW: Duration = Duration::from_secs(600);

/// An event of a task or of one of its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum TaskEvent {
    /// An event of a job.
    Job(Event),
    /// An event of the task.
    Pause(PauseEvent),
}

/// The begin or end of the pause of a task, or of the quiet of one of its workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PauseEvent {
    /// The task was paused.
    #[non_exhaustive]
    Paused {
        /// The task.
        task: String,
        /// When.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// Who paused it.
        by: String,
        /// Why.
        reason: String,
    },
    /// The pause ended.
    #[non_exhaustive]
    Resumed {
        /// The task.
        task: String,
        /// When.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// Who ended it.
        by: String,
    },
    /// A worker of the task was asked to claim no more jobs, see [`Inspector::quiet_worker`].
    #[non_exhaustive]
    WorkerQuiet {
        /// The task.
        task: String,
        /// When.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// Who asked.
        by: String,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker of the task was asked to claim jobs again.
    #[non_exhaustive]
    WorkerResumed {
        /// The task.
        task: String,
        /// When.
        #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
        at: SystemTime,
        /// Who asked.
        by: String,
        /// The worker.
        worker: WorkerId,
    },
}

/// A page of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EventPage {
    /// The events, the oldest first.
    pub events: Vec<TaskEvent>,
    /// The cursor for later events, also if the page is empty.
    pub next: String,
    /// Whether more events exist already.
    pub has_more: bool,
}

/// An outcome that a worker reported after it had lost the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RejectedReport {
    /// The job.
    pub id: JobId,
    /// The worker.
    pub worker: WorkerId,
    /// The fence under which it had held the job.
    pub fence: u64,
    /// The reported outcome. It was not recorded.
    pub outcome: RejectedOutcome,
    /// When it was rejected.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// How long before the rejection the job stalled with this worker. `None` if the stall is no longer stored, or the worker lost the
    /// job in another way.
    #[serde(rename = "late_by_ms", serialize_with = "as_ms_where_known")]
    pub late_by: Option<Duration>,
}

impl Inspector {
    /// A page of a task's events after a cursor: the [`EventPage::next`] of the previous page, or `None` for the oldest stored events.
    /// About 10,000 entries are kept, each of which may contain hundreds of jobs. A task with [`EventMode::Off`](crate::EventMode)
    /// has none.
    pub async fn events(&self, task: &str, after: Option<&str>) -> Result<EventPage, Error> {
        let tables = self.tables(task).await?;
        let mut cursors = Cursors::of_streams(after.unwrap_or_default(), tables.len())?;
        cursors.0.iter().flatten().try_for_each(|after| check_entry(after))?;
        let read_on = |keys: Arc<TaskKeys>, after: String| async move {
            let range = async |conn: &mut _| streams::range(conn, &keys, Key::Events, &after, false, PAGE).await;
            let mut entries = self.ask_for_entries(&keys, range).await?;
            let (last, count) = (entries.last().map(|last| last.id.clone()), entries.len());
            // All partitions are paused together, so report the pause once.
            entries.retain(|entry| {
                keys.part() == 0 || !entry.fields.iter().any(|(name, _)| name == "paused" || name == "resumed")
            });
            let next = last.unwrap_or_else(|| if after.is_empty() { "0-0".to_owned() } else { after });
            Ok((vec![(entries, count)], Some(next)))
        };
        let pages: Vec<(Vec<Entry>, usize)> =
            cursors.next_pages(&tables, read_on).await?.into_iter().flatten().collect();
        let has_more = pages.iter().any(|(_, count)| *count == PAGE);
        let mut entries: Vec<Entry> = pages.into_iter().flat_map(|(entries, _)| entries).collect();
        entries.sort_by_key(Entry::at_ms);
        Ok(EventPage {
            events: entries.iter().flat_map(|entry| read(task, entry, &self.store.codecs)).collect(),
            next: cursors.text().unwrap_or_default(),
            has_more,
        })
    }

    /// The stored events of one job, the oldest first: each dispatch, claim, stall and outcome. It reads every entry since the dispatch,
    /// in calls of bounded size. If the dispatch is not among them, it reads the earlier ones, too, because the producer's clock may be
    /// ahead.
    pub async fn job_events(&self, task: &str, id: &str) -> Result<Vec<Event>, Error> {
        self.first(task)?;
        let id = JobId::parse(id)?;
        let keys = self.table_of(task, &id).await?;
        let job = self.look(async |conn| jobs::inspect(conn, &keys, id.as_str()).await).await?;
        let dispatched = job.and_then(|job| job.dispatched_at_ms.map(at_ms));
        let dispatched = dispatched.or_else(|| id.created_at()).and_then(|at| at.checked_sub(SKEW)).map_or(0, ms_of);
        let mut events = self.events_between(&keys, &id, (dispatched, None)).await?;
        if dispatched > 0 && !events.iter().any(|event| matches!(event, Event::Dispatched { .. })) {
            events.extend(self.events_between(&keys, &id, (0, Some(dispatched))).await?);
        }
        events.sort_by_key(Event::at);
        Ok(events)
    }

    /// The events of a job between two server times, ms. If the second is `None`, until now.
    async fn events_between(
        &self,
        keys: &Arc<TaskKeys>,
        id: &JobId,
        times: (u64, Option<u64>),
    ) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        for stream in [Key::Events, Key::Stalls] {
            for entry in self.entries_with(keys, stream, id.as_str(), times).await? {
                let decoded =
                    decode(keys.task(), &entry, &self.store.codecs).map(|decoded| decoded.events).unwrap_or_default();
                let own = decoded.into_iter().filter(|event| event.id() == id);
                // A stall is in both streams.
                own.for_each(|event| {
                    if stream == Key::Events || !events.iter().any(|known| is_same_stall(known, &event)) {
                        events.push(event);
                    }
                });
            }
        }
        Ok(events)
    }

    /// Outcomes that were rejected because their workers had lost the jobs, the latest first, at most `limit` and 100. It reads the
    /// stored events, about 10,000 entries.
    pub async fn rejected_outcomes(&self, task: &str, limit: usize) -> Result<Vec<RejectedReport>, Error> {
        let tables = self.tables(task).await?;
        let of_all = tables.iter().map(|keys| self.rejected_outcomes_of(task, keys, limit));
        let mut found = try_join_all(of_all).await?.concat();
        found.sort_by_key(|late| Reverse(late.at));
        found.truncate(limit.min(LATE));
        Ok(found)
    }

    async fn rejected_outcomes_of(
        &self,
        task: &str,
        keys: &Arc<TaskKeys>,
        limit: usize,
    ) -> Result<Vec<RejectedReport>, Error> {
        let mut found = Vec::new();
        for entry in self.entries_with(keys, Key::Events, "outcome_rejected", (0, None)).await? {
            let decoded = decode(task, &entry, &self.store.codecs).map(|decoded| decoded.events).unwrap_or_default();
            found.extend(decoded.into_iter().filter_map(|event| match event {
                Event::OutcomeRejected { id, at, fence, outcome, worker, .. } => {
                    Some(RejectedReport { id, worker, fence, outcome, at, late_by: None })
                }
                _ => None,
            }));
        }
        found.reverse();
        found.truncate(limit.min(LATE));
        self.look_up_stalls(task, keys, &mut found).await?;
        Ok(found)
    }

    /// Searches the stalls in which the jobs were lost, the latest first, until all are found or the rest is too old.
    async fn look_up_stalls(
        &self,
        task: &str,
        keys: &Arc<TaskKeys>,
        found: &mut [RejectedReport],
    ) -> Result<(), Error> {
        let Some(oldest) = found.iter().map(|late| late.at).min() else { return Ok(()) };
        let mut before = String::new();
        while found.iter().any(|late| late.late_by.is_none()) {
            let range = async |conn: &mut _| streams::range(conn, keys, Key::Stalls, &before, true, PAGE).await;
            let entries = self.ask_for_entries(keys, range).await?;
            for event in entries
                .iter()
                .flat_map(|entry| decode(task, entry, &self.store.codecs).map(|d| d.events).unwrap_or_default())
            {
                let Event::Stalled(stall) = event else { continue };
                let its =
                    |late: &&mut RejectedReport| late.id == stall.id && stall.worker.as_ref() == Some(&late.worker);
                for late in found.iter_mut().filter(its) {
                    // Use the latest stall before the outcome.
                    late.late_by = late.late_by.or(late.at.duration_since(stall.at).ok());
                }
            }
            let Some(last) = entries.last().filter(|_| entries.len() == PAGE) else { return Ok(()) };
            if oldest.duration_since(at_ms(last.at_ms())).is_ok_and(|ago| ago > LONGEST_LATE) {
                return Ok(());
            }
            before.clone_from(&last.id);
        }
        Ok(())
    }

    /// Every entry of a stream between two times that contains the word, in calls of bounded size. If the second time is `None`, until
    /// now.
    pub(super) async fn entries_with(
        &self,
        keys: &Arc<TaskKeys>,
        stream: Key,
        word: &str,
        (since_ms, until_ms): (u64, Option<u64>),
    ) -> Result<Vec<Entry>, Error> {
        // Entries that arrive meanwhile are not read. For a fast task, the loop would not end.
        let until = match until_ms {
            Some(until_ms) => until_ms,
            None => self.now_ms().await?,
        };
        let until = until.to_string();
        let (mut found, mut after) = (Vec::new(), Some(format!("{since_ms}-0")));
        while let Some(at) = after {
            let read = async |conn: &mut _| streams::history(conn, keys, stream, word, (&at, &until), LOOK).await;
            let (entries, last) = self.ask_for_entries(keys, read).await?;
            found.extend(entries);
            after = last;
        }
        Ok(found)
    }
}

/// Whether both events are the same stall. The entries in the two streams may differ by a millisecond.
fn is_same_stall(one: &Event, other: &Event) -> bool {
    match (one, other) {
        (Event::Stalled(one), Event::Stalled(other)) => {
            one.id == other.id && one.stalled_count == other.stalled_count && one.worker == other.worker
        }
        _ => false,
    }
}

/// The events of an entry. Empty if another version wrote it in an unknown format.
pub(super) fn read(task: &str, entry: &Entry, codecs: &Codecs) -> Vec<TaskEvent> {
    let field = |name: &str| entry.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
    let (at, task_name, by) = (at_ms(entry.at_ms()), task.to_owned(), field("by").unwrap_or_default());
    if let Some(reason) = field("paused") {
        return vec![TaskEvent::Pause(PauseEvent::Paused { task: task_name, at, by, reason })];
    }
    if field("resumed").is_some() {
        return vec![TaskEvent::Pause(PauseEvent::Resumed { task: task_name, at, by })];
    }
    let (quiet, resumed) = (field("quiet"), field("unquiet"));
    if let Some(worker) = quiet.as_deref().or(resumed.as_deref()).map(WorkerId::from_wire) {
        return vec![TaskEvent::Pause(match quiet {
            Some(_) => PauseEvent::WorkerQuiet { task: task_name, at, by, worker },
            None => PauseEvent::WorkerResumed { task: task_name, at, by, worker },
        })];
    }
    let decoded = decode(task, entry, codecs).map(|decoded| decoded.events).unwrap_or_default();
    decoded.into_iter().map(TaskEvent::Job).collect()
}
