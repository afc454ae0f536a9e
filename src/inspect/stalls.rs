//! Explains past stalls, and why no job is recovered yet.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use super::holders::{Holder, HolderReport};
use super::page::check_entry;
use super::parts::Cursors;
use super::tasks::{PartitionReport, TaskReport};
use super::workers::{DetectorReport, WorkerReport, WorkerState};
use crate::backend::jobs;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::streams::{self, Entry};
use crate::codec::Codecs;
use crate::error::Error;
use crate::events::decode::decode;
use crate::events::event::Event;
use crate::job::id::JobId;
use crate::join::join_all;
use crate::limits::stored_number;
use crate::stall::action::{StallReason, StalledEvent};
use crate::unix_time::{as_ms_where_known, at_ms, ms_since_1970, ms_since_1970_where_known, span};
use crate::worker_id::WorkerId;

/// The most entries of a page. Each may contain hundreds of stalls.
const PAGE: usize = 20;

/// What a missing `ctx.heartbeat()` may mean.
const HANDLER_SILENT: &str = ": its handler hangs, or its process is dead, frozen or cut off from Redis";

/// A stall, and the facts that led to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StallReport {
    /// The stall.
    #[serde(flatten)]
    pub stall: StalledEvent,
    /// When the worker that held the job last reported its presence before the stall. Workers do so every 5 s. `None` if no worker
    /// held the job, the worker was seen again since, or its presence was removed or cannot be read.
    #[serde(rename = "holder_last_seen_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub holder_last_seen_at: Option<SystemTime>,
    /// When that worker last reported its presence, if that was after the stall: it was frozen or cut off from Redis, but not dead.
    #[serde(rename = "holder_seen_again_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub holder_seen_again_at: Option<SystemTime>,
    /// When the snapshot was taken after which the job stayed silent.
    #[serde(rename = "snapshot_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub snapshot_at: Option<SystemTime>,
    /// The epoch that the snapshot began.
    pub epoch: Option<u64>,
    /// How long the witness had watched while the job stayed silent.
    #[serde(rename = "watched_ms", serialize_with = "as_ms_where_known")]
    pub watched: Option<Duration>,
    /// The stall interval in force.
    #[serde(rename = "interval_ms", serialize_with = "as_ms_where_known")]
    pub interval: Option<Duration>,
    /// The worker that requested that interval.
    pub asker: Option<WorkerId>,
    /// The worker, or the inspector, that watched and decided.
    pub witness: WorkerId,
    /// The person who started the decision, if one did.
    pub by: Option<String>,
    /// How often the job may stall, if known. [`Inspector::stall_history`] reports the limit of the dispatch if it set one. Otherwise this is
    /// the current limit of the task.
    pub max_count: Option<u32>,
}

impl fmt::Display for StallReport {
    /// The explanation in one sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StalledEvent { task, id, stalled_count, action, worker, reason, .. } = &self.stall;
        write!(f, "job {id} of the task {task} was ")?;
        match worker {
            Some(worker) => write!(f, "held by {worker}")?,
            None => f.write_str("held by no worker")?,
        }
        let before = |at: Option<SystemTime>| at.and_then(|at| self.stall.at.duration_since(at).ok());
        if let Some(ago) = before(self.holder_last_seen_at) {
            write!(f, ", which was last seen {} before", span(ago))?;
        }
        if self.holder_seen_again_at.is_some() {
            f.write_str(", which was seen again since")?;
        }
        if *reason == StallReason::WorkerRestarted {
            let of_name = "took its exclusive name while it was silent";
            write!(f, "; {} found its process gone on the same host, or {of_name}", self.witness)?;
        }
        if *reason == StallReason::Replaced {
            write!(f, "; {} took over its name, and it did not stop in time", self.witness)?;
        }
        if let Some(ago) = before(self.snapshot_at) {
            let (what, cause) = match reason {
                StallReason::HandlerSilent => ("no heartbeat came", HANDLER_SILENT),
                _ => ("it was silent", ""),
            };
            write!(f, "; {what} since the snapshot {} before{cause}", span(ago))?;
        }
        if let (Some(watched), Some(interval)) = (self.watched, self.interval) {
            let (watched, interval) = (span(watched), span(interval));
            write!(f, "; {} watched for {watched} of an interval of {interval}", self.witness)?;
            if let Some(asker) = &self.asker {
                write!(f, ", which {asker} had requested")?;
            }
        }
        match self.max_count {
            Some(max) => write!(f, "; stall {stalled_count}, max_count {max}: {action}")?,
            None => write!(f, "; stall {stalled_count}: {action}")?,
        }
        self.by.as_ref().map_or(Ok(()), |by| write!(f, " by {by}"))
    }
}

/// A page of stalls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StallPage {
    /// The stalls, the latest first.
    pub stalls: Vec<StallReport>,
    /// The cursor of the next page. `None` at the end.
    pub next: Option<String>,
}

/// Why nothing is recovered yet, and when the next job may be. See [`Inspector::recovery_status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecoveryStatus {
    /// The task.
    pub task: String,
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// The stall detection of the task, partition by partition.
    pub parts: Vec<PartitionReport>,
    /// The workers that watch.
    pub watchers: Vec<Detector>,
    /// The workers that hold jobs.
    pub held_by: HolderReport,
    /// When the next job may be resolved, at the earliest: a job that is silent now or, if there is none, at the next snapshot.
    /// `None` if no worker watches or no job is held.
    #[serde(rename = "next_resolve_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub next_resolve_at: Option<SystemTime>,
    /// The explanation, one sentence each.
    pub reasons: Vec<String>,
}

/// A worker that watches a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Detector {
    /// The worker.
    pub worker: WorkerId,
    /// Its state.
    pub state: WorkerState,
    /// Its watch, as last reported.
    #[serde(flatten)]
    pub watch: DetectorReport,
}

impl Inspector {
    /// A page of the task's stalls with explanations, the latest first. The cursor is the [`StallPage::next`] of the previous page, or
    /// `None` to begin. About 2,000 entries are kept.
    pub async fn stalls(&self, task: &str, cursor: Option<&str>) -> Result<StallPage, Error> {
        let (entries, next) = self.page_of_stalls(task, cursor).await?;
        let max_count = self.overview(task).await?.number("maxCount").and_then(|max| u32::try_from(max).ok());
        let mut stalls: Vec<StallReport> = Vec::new();
        for entry in &entries {
            let mut explained = explain(task, entry, max_count);
            explained.reverse();
            stalls.extend(explained);
        }
        self.look_up_holders(&mut stalls).await?;
        Ok(StallPage { stalls, next })
    }

    /// [`stalls`](Inspector::stalls) without explanations, for counting. The second value is the cursor of the next page.
    pub async fn stalled_events(
        &self,
        task: &str,
        cursor: Option<&str>,
    ) -> Result<(Vec<StalledEvent>, Option<String>), Error> {
        let (entries, next) = self.page_of_stalls(task, cursor).await?;
        let mut stalls = Vec::new();
        for entry in &entries {
            stalls.extend(explain(task, entry, None).into_iter().rev().map(|report| report.stall));
        }
        Ok((stalls, next))
    }

    async fn page_of_stalls(&self, task: &str, cursor: Option<&str>) -> Result<(Vec<Entry>, Option<String>), Error> {
        let tables = self.tables(task).await?;
        let mut cursors = Cursors::of_streams(cursor.unwrap_or_default(), tables.len())?;
        cursors.0.iter().flatten().try_for_each(|before| check_entry(before))?;
        let read = |keys: Arc<TaskKeys>, before: String| async move {
            let range = async |conn: &mut _| streams::range(conn, &keys, Key::Stalls, &before, true, PAGE).await;
            let entries = self.ask_for_entries(&keys, range).await?;
            let next = entries.last().filter(|_| entries.len() == PAGE).map(|last| last.id.clone());
            Ok((entries, next))
        };
        let mut entries: Vec<Entry> = cursors.next_pages(&tables, read).await?.into_iter().flatten().collect();
        // A stable sort: entries of one partition keep their order.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.at_ms()));
        Ok((entries, cursors.text()))
    }

    /// The stalls of one job that are still stored, with explanations, the latest first.
    pub async fn stall_history(&self, task: &str, id: &str) -> Result<Vec<StallReport>, Error> {
        self.first(task)?;
        let id = JobId::parse(id)?;
        let keys = self.table_of(task, &id).await?;
        let own =
            self.look(async |conn| jobs::inspect(conn, &keys, id.as_str()).await).await?.and_then(|job| job.max_count);
        let of_task = self.overview(task).await?.number("maxCount").and_then(|max| u32::try_from(max).ok());
        let entries = self.entries_with(&keys, Key::Stalls, id.as_str(), (0, None)).await?;
        let explained = entries.iter().flat_map(|entry| explain(task, entry, own.or(of_task)));
        let mut stalls: Vec<StallReport> = explained.filter(|report| report.stall.id == id).collect();
        stalls.reverse();
        self.look_up_holders(&mut stalls).await?;
        Ok(stalls)
    }

    /// Why no job of a task is recovered yet: which workers watch, and what broke their watches. Also when jobs that stay silent may be
    /// resolved.
    pub async fn recovery_status(&self, task: &str) -> Result<RecoveryStatus, Error> {
        let (report, held_by) = (self.task(task).await?, self.lock_holders(task).await?);
        let mut workers = match self.workers().await {
            // In a cluster, the list may be unreachable while the task is not.
            Err(e) if e.is_outage() && !self.hides_all(&e) => Vec::new(),
            workers => workers?,
        };
        let mut watchers = Vec::new();
        // If many workers died, some may no longer be listed.
        for holder in held_by.holders.iter().take(LOOKED_UP) {
            if !workers.iter().any(|worker| worker.worker == holder.worker) {
                match self.worker(holder.worker.as_str()).await {
                    Err(e) if e.is_outage() && !self.hides_all(&e) => {}
                    known => workers.extend(known?),
                }
            }
        }
        for worker in &workers {
            let its = worker.tasks.iter().filter(|its| its.task == task && worker.state != WorkerState::Gone);
            watchers.extend(its.flat_map(|its| &its.watches).map(|watch| Detector {
                worker: worker.worker.clone(),
                state: worker.state,
                watch: watch.clone(),
            }));
        }
        Ok(outlook(report, watchers, held_by, &workers))
    }

    async fn look_up_holders(&self, stalls: &mut [StallReport]) -> Result<(), Error> {
        let holders: BTreeSet<String> = stalls
            .iter()
            .filter_map(|stall| stall.stall.worker.as_ref())
            .map(|holder| holder.as_str().to_owned())
            .collect();
        let holders: Vec<String> = holders.into_iter().collect();
        let mut known = HashMap::new();
        for some in holders.chunks(TOGETHER) {
            let looks = join_all(some.iter().map(|holder| self.presence(holder))).await;
            for (holder, presence) in some.iter().zip(looks) {
                let presence = match presence {
                    Ok(presence) => presence,
                    Err(e) if self.hides_all(&e) => return Err(e),
                    // A damaged presence, or one on an unreachable node, does not hide the stalls.
                    Err(_) => continue,
                };
                known.insert(holder.as_str(), presence.get("lastSeenAt").and_then(|ms| stored_number(ms)).map(at_ms));
            }
        }
        for stall in stalls {
            let holder = stall.stall.worker.as_ref().map(WorkerId::as_str);
            let seen = holder.and_then(|holder| known.get(holder)).copied().flatten();
            stall.holder_last_seen_at = seen.filter(|seen| *seen <= stall.stall.at);
            stall.holder_seen_again_at = seen.filter(|seen| *seen > stall.stall.at);
        }
        Ok(())
    }
}

/// The stalls of an entry, with the facts that the entry contains.
fn explain(task: &str, entry: &Entry, max_count: Option<u32>) -> Vec<StallReport> {
    let field = |name: &str| entry.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let watched: Vec<&str> = field("watched").unwrap_or_default().split(' ').collect();
    let number = |at: usize| watched.get(at).and_then(|word| word.parse::<u64>().ok());
    let asker = watched.get(3).filter(|asker| **asker != "-").map(|asker| WorkerId::from_wire(asker));
    // No stall has a value.
    let events = decode(task, entry, &Codecs::default()).map(|decoded| decoded.events).unwrap_or_default();
    let stalls = events.into_iter().filter_map(|event| match event {
        Event::Stalled(stall) => Some(stall),
        _ => None,
    });
    let report = |stall| StallReport {
        stall,
        holder_last_seen_at: None,
        holder_seen_again_at: None,
        snapshot_at: number(4).filter(|ms| *ms > 0).map(at_ms),
        epoch: number(0),
        watched: number(1).map(Duration::from_millis),
        interval: number(2).map(Duration::from_millis),
        asker: asker.clone(),
        witness: WorkerId::from_wire(field("worker").unwrap_or_default()),
        by: field("by").map(str::to_owned),
        max_count,
    };
    stalls.map(report).collect()
}

/// How many holders are looked up at a time.
const TOGETHER: usize = 50;

/// The most unlisted holders that are looked up.
const LOOKED_UP: usize = 20;

/// The default stall interval. Only a longer one is reported.
const USUAL: Duration = Duration::from_secs(30);

/// About how old the presence of a live worker may be. A worker updates it every 5 s.
const LATEST_WORD: Duration = Duration::from_secs(6);

/// What was read for a [`RecoveryStatus`].
struct Situation<'a> {
    report: &'a TaskReport,
    held_by: &'a HolderReport,
    workers: &'a [WorkerReport],
}

fn outlook(
    report: TaskReport,
    watchers: Vec<Detector>,
    held_by: HolderReport,
    workers: &[WorkerReport],
) -> RecoveryStatus {
    let situation = Situation { report: &report, held_by: &held_by, workers };
    let (parts, knows_workers) = (&report.parts, report.knows_workers);
    let (mut reasons, mut next_resolve_at, mut is_watched) = (Vec::new(), None, false);
    let is_any_held = parts.iter().any(|part| part.candidates + part.heard > 0);
    for part in parts.iter().filter(|part| !is_any_held && part.part == 0 || part.candidates + part.heard > 0) {
        let mut own = vec![situation.jobs_of(part)];
        if part.parked > 0 {
            let whose = "they wait for a person, or as long as the options of the task say";
            own.push(format!("{} parked: {whose}", many(part.parked, "silent job")));
        }
        for watcher in watchers.iter().filter(|watcher| watcher.watch.part == part.part) {
            let (reason, ends) = situation.watch_of(watcher, part);
            own.push(reason);
            is_watched |= ends.is_some();
            // Parked jobs are not resolved.
            let may_resolve = part.candidates + part.heard > part.parked;
            next_resolve_at = next_resolve_at.into_iter().chain(ends.filter(|_| may_resolve)).min();
        }
        let names_it = parts.len() > 1 && is_any_held;
        let named = |reason| if names_it { format!("partition {}: {reason}", part.part) } else { reason };
        reasons.extend(own.into_iter().map(named));
    }
    reasons.extend(situation.interval_in_force());
    reasons.extend(held_by.holders.iter().filter_map(|holder| situation.lost_holder(holder)));
    if !is_watched && !knows_workers {
        reasons.push("cannot see which workers watch the task: their cluster node is unreachable".to_owned());
    } else if !is_watched {
        // A worker updates its presence every 5 s. The second update is the first one with its watch.
        let none = "no worker watches the task: wait 10 s if one has just started, or Redis has just come back; else start one";
        let by_hand = format!(", or run `heartline recover sweep -t {}`", report.task);
        reasons.push(format!("{none}{}", if is_any_held { &by_hand } else { "" }));
    }
    let TaskReport { task, as_of, parts, .. } = report;
    RecoveryStatus { task, as_of, parts, watchers, held_by, next_resolve_at, reasons }
}

impl Situation<'_> {
    fn ago(&self, at: SystemTime) -> Duration {
        self.report.as_of.duration_since(at).unwrap_or_default()
    }

    fn worker(&self, id: &WorkerId) -> Option<&WorkerReport> {
        self.workers.iter().find(|worker| worker.worker == *id)
    }

    /// How many jobs are held, and how many of them are silent.
    fn jobs_of(&self, part: &PartitionReport) -> String {
        let is_live = |id: &WorkerId| self.worker(id).is_some_and(|worker| worker.state.is_live());
        let is_lost = self.held_by.holders.iter().any(|holder| !is_live(&holder.worker));
        let snapshot =
            part.snapshot_at.map_or("yet".to_owned(), |at| format!("since the snapshot {} ago", span(self.ago(at))));
        let as_of = self.report.as_of;
        let not_due = part.heard_by().and_then(|by| by.duration_since(as_of).ok()).filter(|left| !left.is_zero());
        let jobs = many(part.candidates, "held job");
        match not_due {
            _ if part.candidates + part.heard == 0 => "no job is held".to_owned(),
            _ if part.snapshot_at.is_none() => {
                format!("{} not checked yet: no snapshot was taken", many(part.heard + part.candidates, "held job"))
            }
            _ if part.candidates == 0 && is_lost => {
                format!(
                    "{} held jobs sent a heartbeat {snapshot}, but some of their workers are silent by now",
                    part.heard
                )
            }
            _ if part.candidates == 0 => format!("no held job is silent {snapshot}; {} sent a heartbeat", part.heard),
            Some(left) => {
                format!("{jobs} without a heartbeat {snapshot}; the next heartbeat is due within {}", span(left))
            }
            None => format!("{jobs} silent {snapshot}"),
        }
    }

    /// What a worker that watches the partition will do, and when it may resolve jobs. `None` if it may have stopped.
    fn watch_of(&self, watcher: &Detector, part: &PartitionReport) -> (String, Option<SystemTime>) {
        let (worker, watch, as_of) = (&watcher.worker, &watcher.watch, self.report.as_of);
        if !watcher.state.is_live() {
            let what = format!("{worker} has not reported its presence for a while, and may have stopped watching");
            return (what, None);
        }
        // If it last reported an older epoch, it has watched this one since its first heartbeat in it.
        let begins = if watch.epoch == part.epoch { watch.since } else { part.epoch_at.unwrap_or(as_of) };
        let due = begins.checked_add(watch.interval).unwrap_or(begins);
        if self.ago(due) > watch.interval.max(LATEST_WORD) {
            let late = span(self.ago(due));
            let what = format!("{worker} was due {late} ago to take the next snapshot or to resolve, and did not");
            return (format!("{what}: it may be frozen, or cut off from Redis"), None);
        }
        let ends = due.max(as_of);
        // Without a silent job, the watch ends in a snapshot. Jobs silent then are resolved an interval later.
        let is_snapshot = part.candidates == 0;
        let at = if is_snapshot { ends.checked_add(watch.interval).unwrap_or(ends) } else { ends };
        let broken = watch.broken.zip(watch.broken_at).filter(|(_, at)| self.ago(*at) < watch.interval);
        let broken = broken.map(|(cause, at)| format!("; its watch broke {} ago: {cause}", span(self.ago(at))));
        let does = if is_snapshot { "may take the next snapshot" } else { "may resolve jobs that stay silent" };
        let left = ends.duration_since(as_of).unwrap_or_default();
        (format!("{worker} {does} in {}{}", span(left), broken.unwrap_or_default()), Some(at))
    }

    /// The stall interval and who requested it, if it is long.
    fn interval_in_force(&self) -> Option<String> {
        let longest = self.report.parts.iter().max_by_key(|part| part.interval)?;
        let (interval, asker) = longest.interval.zip(longest.asker.as_ref())?;
        let is = match self.worker(asker) {
            _ if interval <= USUAL => return None,
            Some(worker) if worker.state.is_live() => "",
            // The list of workers is unreachable.
            None if !self.report.knows_workers => "",
            Some(WorkerReport { stopped_at: Some(_), .. }) => ", which has stopped",
            _ => ", which is not live",
        };
        let falls = if is.is_empty() {
            ""
        } else {
            ": it shrinks at the second snapshot from now at the latest, unless a live worker requests as much"
        };
        Some(format!("the stall interval is {}, requested by {asker}{is}{falls}", span(interval)))
    }

    /// What is known of a worker that holds jobs and is not live.
    fn lost_holder(&self, holder: &Holder) -> Option<String> {
        let is = match self.worker(&holder.worker) {
            Some(worker) if worker.state.is_live() => return None,
            Some(WorkerReport { death: Some(death), .. }) => {
                let by = if death.by.is_empty() { "a person" } else { &*death.by };
                format!("is dead, as {by} reported {} ago ({})", span(self.ago(death.at)), death.proof)
            }
            Some(WorkerReport { stopped_at: Some(at), .. }) => format!("stopped {} ago", span(self.ago(*at))),
            Some(worker) => format!("was last seen {} ago", span(self.ago(worker.last_seen_at))),
            None if !self.report.knows_workers => {
                "cannot be looked up now: a node of the cluster is unreachable".to_owned()
            }
            None => "is no longer known".to_owned(),
        };
        let least = if self.held_by.is_whole { "" } else { "at least " };
        Some(format!("{least}{} held by {}, which {is}", many(holder.jobs, "job"), holder.worker))
    }
}

/// `1 job is`, `2 jobs are`.
fn many(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one} is") } else { format!("{count} {one}s are") }
}
