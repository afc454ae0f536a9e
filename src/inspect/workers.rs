//! Workers: who they are, what they hold, and how their watch over each task does.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde::Serialize;

use super::Inspector;
use crate::error::{Error, ServerErrorKind};
use crate::limits::{MOST_PARTITIONS, stored_number};
use crate::names::names;
use crate::process::death::DeathProof;
use crate::stall::witness::WatchBreak;
use crate::store::fault::kind_of_stored;
use crate::store::workers::SILENT_AFTER;
use crate::times::{as_ms, as_ms_where_known, at_ms, ms_of, ms_since_1970, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// The most workers of one answer: of those that told of themselves lately, of those that fell silent, and of those that are gone.
const MOST: [usize; 3] = [5000, 1000, 1000];

/// How many of them are asked about at a time.
const TOGETHER: usize = 50;

/// A worker whose runtime showed nothing for so long is blocked by handlers.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// A worker, as it told of itself last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Its identity.
    pub worker: WorkerId,
    /// Whether it lives, as far as its own word goes.
    pub state: WorkerState,
    /// The name of its host.
    pub host: String,
    /// The id of its process.
    pub pid: Option<u32>,
    /// The version of Heartline that it runs.
    pub version: String,
    /// The version of the format in Redis that it speaks; `None` of one that did not say so yet.
    pub wire: Option<u32>,
    /// When it started.
    #[serde(rename = "started_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub started_at: Option<SystemTime>,
    /// When it told of itself last, which it does every 5 s.
    #[serde(rename = "last_seen_at_ms", serialize_with = "ms_since_1970")]
    pub last_seen_at: SystemTime,
    /// When it stopped, if it said so.
    #[serde(rename = "stopped_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub stopped_at: Option<SystemTime>,
    /// That it is dead, if anybody knows.
    pub death: Option<WorkerDeath>,
    /// For how long handlers had blocked its runtime when it told of itself last.
    #[serde(rename = "runtime_blocked_ms", serialize_with = "as_ms_where_known")]
    pub runtime_blocked: Option<Duration>,
    /// Its exclusive name, if it has one.
    pub name: Option<String>,
    /// How many jobs it may hold over all its tasks, if that is bounded.
    pub max_jobs: Option<u64>,
    /// Its tasks.
    pub tasks: Vec<WorkerTask>,
    /// When the server last denied it, for want of a right, what a workflow needs: to ask whether a node may begin, to tell of its end, to look after it.
    #[serde(rename = "flows_denied_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub flows_denied_at: Option<SystemTime>,
    /// Of which workflow, and what the server said then; empty where it denied nothing.
    pub flows_denied: String,
    /// Why what it told of itself cannot be read, if so; but for its identity and when it was seen nothing of the report says anything then.
    pub fault: Option<String>,
    /// Whether that is since the node of a cluster is away that has it: whether the worker lives is not known then, nor whether it stopped.
    pub is_away: bool,
    /// Whether that is since our user of the server lacks a right.
    pub is_denied: bool,
    /// Whether it is in a container: its [`pid`](WorkerReport::pid) is another one on its host then. Only told on Linux.
    pub is_contained: bool,
}

impl WorkerReport {
    /// Whether it has a free slot for a job of this task, as it told of itself last, and claims jobs.
    #[must_use]
    pub fn has_room(&self, task: &str) -> bool {
        let held: u64 = self.tasks.iter().map(WorkerTask::taken).sum();
        let is_free = |its: &WorkerTask| its.task == task && its.taken() < its.slots;
        self.state == WorkerState::Live
            && self.max_jobs.is_none_or(|most| held < most)
            && self.tasks.iter().any(is_free)
    }
}

/// Whether a worker lives. No decision about a job is made by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// It told of itself in the last 15 s.
    Live,
    /// The same, and it claims no more.
    Stopping,
    /// It has not told of itself for 15 s. It may be gone, or cut off from Redis.
    Silent,
    /// It said that it stopped, somebody knows that it is dead, or it has not told of itself for an hour.
    Gone,
}

names!(WorkerState, "worker state", {
    Live = "live",
    Stopping = "stopping",
    Silent = "silent",
    Gone = "gone",
});

impl WorkerState {
    /// Whether it told of itself lately: live or stopping.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, WorkerState::Live | WorkerState::Stopping)
    }
}

/// How it is known that a worker is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerDeath {
    /// What proves it.
    pub proof: DeathProof,
    /// The worker of its host, or the person, who says so.
    pub by: String,
    /// When that was said.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

/// A task of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerTask {
    /// The task.
    pub task: String,
    /// How many of its jobs the worker holds.
    pub held: u64,
    /// How many slots runs hold that lost their jobs: their handlers block their threads, and nothing can drop them.
    pub lost_runs: u64,
    /// When the last of those lost its job.
    #[serde(rename = "last_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_lost_at: Option<SystemTime>,
    /// How many it may hold.
    pub slots: u64,
    /// When the worker declared the task, at its start.
    #[serde(rename = "declared_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub declared_at: Option<SystemTime>,
    /// When the heartbeat was sent that was answered last.
    #[serde(rename = "last_beat_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_beat_at: Option<SystemTime>,
    /// How long its answer took; zero for one that named no job.
    #[serde(rename = "beat_took_ms", serialize_with = "as_ms")]
    pub beat_took: Duration,
    /// When the server last denied it a call for want of a right, and what it said.
    #[serde(rename = "denied_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub denied_at: Option<SystemTime>,
    /// What the server said then; empty where it denied nothing.
    pub denied: String,
    /// The kind of that error: a missing right, or a wrong password.
    pub denied_kind: Option<ServerErrorKind>,
    /// Its watch, partition by partition.
    pub watches: Vec<WatchReport>,
    /// How many partitions the task has, as the worker knows it.
    #[serde(skip)]
    pub(super) parts: u32,
}

impl WorkerTask {
    /// How many of its slots are taken.
    fn taken(&self) -> u64 {
        self.held.saturating_add(self.lost_runs)
    }
}

/// The watch of a worker over a part of a task: how long it has seen the epoch without a gap, and what broke it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WatchReport {
    /// Which partition, from 0.
    pub part: u32,
    /// The epoch.
    pub epoch: u64,
    /// Since when it was watched without a gap.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
    pub since: SystemTime,
    /// How long it must be watched until what stayed silent is resolved.
    #[serde(rename = "interval_ms", serialize_with = "as_ms")]
    pub interval: Duration,
    /// What broke the watch last.
    pub broken: Option<WatchBreak>,
    /// When that was.
    #[serde(rename = "broken_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub broken_at: Option<SystemTime>,
}

impl WatchReport {
    /// When this worker may resolve what stays silent, if nothing breaks its watch before.
    #[must_use]
    pub fn may_resolve_at(&self) -> SystemTime {
        self.since.checked_add(self.interval).unwrap_or(self.since)
    }
}

impl Inspector {
    /// Every worker of which something is known: those that told of themselves lately first, at most 5,000; then those that fell silent in the
    /// last hour, then those of the last week, at most 1,000 of each. The latest come first. One that cannot be read, since something foreign
    /// is stored under its key, is told with its [`fault`](WorkerReport::fault).
    ///
    /// # Errors
    /// Those of every call, see [`Error`]. Of a cluster also if the node is away that has the list of workers, see
    /// [`lists_away`](Inspector::lists_away).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn workers(&self) -> Result<Vec<WorkerReport>, Error> {
        let now = self.now_ms().await?;
        self.reports(&self.listed(now, MOST).await?, now).await
    }

    /// One worker; `None` if nothing is known of it, or it was forgotten, see [`Worker::keep_dead`](crate::Worker::keep_dead).
    ///
    /// # Errors
    /// Those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn worker(&self, worker: &str) -> Result<Option<WorkerReport>, Error> {
        let now = self.now_ms().await?;
        match self.presence(worker).await {
            Ok(presence) => {
                let Some(told) = number(&presence, "lastSeenAt") else { return Ok(None) };
                // One that may not write there is in the list all the same.
                let listed = self.look(|mut conn| async move { self.store.last_seen(&mut conn, worker).await }).await;
                Ok(Some(report(worker, told.max(listed.ok().flatten().unwrap_or(0)), &presence, now)))
            }
            Err(e) if e.is_outage() => Err(e),
            Err(e) => Ok(Some(self.unreadable(worker, now, &e).await?)),
        }
    }

    /// The workers that told of themselves lately. Only their presences are read.
    pub(super) async fn live_workers(&self) -> Result<Vec<WorkerReport>, Error> {
        let now = self.now_ms().await?;
        let mut reports = self.reports(&self.listed(now, [MOST[0], 0, 0]).await?, now).await?;
        reports.retain(|worker| worker.state.is_live());
        Ok(reports)
    }

    async fn listed(&self, now_ms: u64, most: [usize; 3]) -> Result<Vec<(String, u64)>, Error> {
        self.look(|mut conn| async move { self.store.workers(&mut conn, now_ms, most).await }).await
    }

    async fn reports(&self, listed: &[(String, u64)], now_ms: u64) -> Result<Vec<WorkerReport>, Error> {
        let mut reports = Vec::with_capacity(listed.len());
        for some in listed.chunks(TOGETHER) {
            let presences = join_all(some.iter().map(|(worker, _)| self.presence(worker))).await;
            for ((worker, seen), presence) in some.iter().zip(presences) {
                let is_away = presence.as_ref().is_err_and(Error::is_outage);
                let is_denied = presence.as_ref().is_err_and(Error::is_denied);
                let (presence, fault) = match presence {
                    Ok(presence) => (presence, None),
                    Err(e) if self.hides_all(&e) => return Err(e),
                    // One that is damaged, or on a node that is away, does not hide the others.
                    Err(e) => (HashMap::new(), Some(e.chain().to_string())),
                };
                reports.push(WorkerReport { fault, is_away, is_denied, ..report(worker, *seen, &presence, now_ms) });
            }
        }
        Ok(reports)
    }

    /// A worker whose word cannot be read. When it was seen is in a list, too; it may have had any task.
    async fn unreadable(&self, worker: &str, now_ms: u64, e: &Error) -> Result<WorkerReport, Error> {
        let seen =
            self.look(|mut conn| async move { self.store.last_seen(&mut conn, worker).await }).await?.unwrap_or(0);
        let names = self.task_names().await?;
        let tasks = names.iter().map(|task| task_of(task, &HashMap::new(), seen)).collect();
        let fault = Some(e.chain().to_string());
        let is_denied = e.is_denied();
        Ok(WorkerReport { fault, tasks, is_denied, ..report(worker, seen, &HashMap::new(), now_ms) })
    }

    pub(super) async fn presence(&self, worker: &str) -> Result<HashMap<String, String>, Error> {
        self.look(|mut conn| async move { self.store.presence(&mut conn, worker).await }).await
    }
}

fn number(presence: &HashMap<String, String>, field: &str) -> Option<u64> {
    stored_number(presence.get(field)?)
}

/// What a worker said of itself, which was seen then, as it is now.
pub(super) fn report(worker: &str, seen_ms: u64, presence: &HashMap<String, String>, now_ms: u64) -> WorkerReport {
    let text = |field: &str| presence.get(field).cloned().unwrap_or_default();
    // The latest of both: the list and the presence are written one after the other.
    let seen_ms = number(presence, "lastSeenAt").unwrap_or(0).max(seen_ms);
    let silent = Duration::from_millis(now_ms.saturating_sub(seen_ms));
    let stopped_at = number(presence, "stoppedAt").map(at_ms);
    let death = death_of(presence);
    // One that came back has told of itself since.
    let death = death.filter(|death| ms_of(death.at) >= seen_ms);
    let state = if stopped_at.is_some() || death.is_some() || silent > Duration::from_secs(3600) {
        WorkerState::Gone
    } else if silent > SILENT_AFTER {
        WorkerState::Silent
    } else if text("phase") == "stopping" {
        WorkerState::Stopping
    } else {
        WorkerState::Live
    };
    let mut tasks: Vec<WorkerTask> =
        text("tasks").split_whitespace().map(|task| task_of(task, presence, seen_ms)).collect();
    if stopped_at.is_some() || death.is_some() {
        tasks.iter_mut().for_each(|task| task.watches.clear());
    }
    let blocked = number(presence, "runtimeSilent").map(Duration::from_millis);
    let flows_denied = presence.get("flowsDenied").and_then(|said| said.split_once(' '));
    WorkerReport {
        worker: WorkerId::from_wire(worker),
        state,
        host: text("host"),
        pid: number(presence, "pid").and_then(|pid| u32::try_from(pid).ok()),
        version: text("version"),
        wire: number(presence, "wire").and_then(|wire| u32::try_from(wire).ok()),
        started_at: number(presence, "startedAt").filter(|ms| *ms > 0).map(at_ms),
        last_seen_at: at_ms(seen_ms),
        stopped_at,
        death,
        runtime_blocked: blocked.filter(|blocked| *blocked > BLOCKED_AFTER),
        name: presence.get("name").cloned(),
        max_jobs: number(presence, "maxJobs"),
        tasks,
        flows_denied_at: flows_denied.and_then(|(ago, _)| Some(at_ms(seen_ms.saturating_sub(stored_number(ago)?)))),
        flows_denied: flows_denied.map_or_else(String::new, |(_, said)| said.to_owned()),
        fault: None,
        is_away: false,
        is_denied: false,
        is_contained: presence.get("pidNamespace").is_some_and(|namespace| namespace != FIRST_NAMESPACE),
    }
}

/// The pid namespace in which a machine has started: Linux gives it always this number (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

fn death_of(presence: &HashMap<String, String>) -> Option<WorkerDeath> {
    Some(WorkerDeath {
        proof: presence.get("deadProof")?.parse().ok()?,
        by: presence.get("deadSays")?.clone(),
        at: at_ms(number(presence, "deadAt")?),
    })
}

/// A task of a worker that told of itself at `seen_ms`; it says how long ago things were by then.
fn task_of(task: &str, presence: &HashMap<String, String>, seen_ms: u64) -> WorkerTask {
    let words = |field: &str| -> Vec<&str> {
        presence.get(&format!("{field}:{task}")).map(|words| words.split(' ').collect()).unwrap_or_default()
    };
    let before = |ago: &str| stored_number(ago).map(|ago| at_ms(seen_ms.saturating_sub(ago)));
    let (last_beat_at, beat_took) = match words("beat")[..] {
        [ago, took] => (before(ago), stored_number(took).unwrap_or(0)),
        _ => (None, 0),
    };
    let parts = presence.get(&format!("partitions:{task}")).and_then(|count| count.parse().ok()).unwrap_or(1);
    let parts = u32::min(parts, MOST_PARTITIONS);
    let watches = (0..parts).filter_map(|part| {
        let field = if part == 0 { format!("watch:{task}") } else { format!("watch:{task}:{part}") };
        let words: Vec<&str> = presence.get(&field)?.split(' ').collect();
        let [epoch, watched, interval, cause, ago] = words[..] else { return None };
        let broken = cause.parse().ok();
        Some(WatchReport {
            part,
            epoch: stored_number(epoch)?,
            since: before(watched)?,
            interval: Duration::from_millis(stored_number(interval)?),
            broken,
            broken_at: broken.and(before(ago)),
        })
    });
    let lost = words("lost");
    let denied = presence.get(&format!("denied:{task}")).and_then(|said| said.split_once(' '));
    WorkerTask {
        task: task.to_owned(),
        denied_at: denied.and_then(|(ago, _)| before(ago)),
        denied: denied.map_or_else(String::new, |(_, said)| said.to_owned()),
        denied_kind: denied.map(|(_, said)| kind_of_stored(said)),
        held: number(presence, &format!("held:{task}")).unwrap_or(0),
        lost_runs: lost.first().and_then(|count| count.parse().ok()).unwrap_or(0),
        last_lost_at: lost.get(1).filter(|_| lost[0] != "0").and_then(|ago| before(ago)),
        slots: number(presence, &format!("slots:{task}")).unwrap_or(0),
        declared_at: number(presence, &format!("declared:{task}")).map(at_ms),
        last_beat_at,
        beat_took: Duration::from_millis(beat_took),
        watches: watches.filter(|watch| !watch.interval.is_zero()).collect(),
        parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(fields: &[(&str, &str)]) -> HashMap<String, String> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_worker_said_is_told_by_the_clock_of_the_server() {
        let said = presence(&[
            ("lastSeenAt", "100000"),
            ("tasks", "export"),
            ("pid", "7"),
            ("held:export", "3"),
            ("slots:export", "10"),
            ("beat:export", "400 12"),
            ("watch:export", "5 20000 30000 no_answer 20000"),
            ("maxJobs", "4"),
        ]);
        let report = report("host-7-00000000", 90_000, &said, 103_000);
        assert_eq!((report.state, report.last_seen_at), (WorkerState::Live, at_ms(100_000)));
        assert!(report.has_room("export") && !report.has_room("other"));
        let full = |held: u64, max_jobs| {
            let mut full = report.clone();
            (full.tasks[0].held, full.max_jobs) = (held, max_jobs);
            !full.has_room("export")
        };
        assert_eq!([full(4, Some(4)), full(9, None), full(10, None)], [true, false, true]);
        let task = &report.tasks[0];
        assert_eq!((task.held, task.slots, task.last_beat_at), (3, 10, Some(at_ms(99_600))));
        let watch = &task.watches[0];
        assert_eq!((watch.epoch, watch.since, watch.broken), (5, at_ms(80_000), Some(WatchBreak::NoAnswer)));
        assert_eq!(watch.may_resolve_at(), at_ms(110_000));
    }

    #[test]
    fn a_worker_is_silent_then_gone_and_gone_at_once_when_it_said_so() {
        let state = |fields: &[(&str, &str)], now| report("w", 1000, &presence(fields), now).state;
        assert_eq!(state(&[], 16_000), WorkerState::Live);
        assert_eq!(state(&[("phase", "stopping")], 16_000), WorkerState::Stopping);
        assert_eq!(state(&[], 16_001), WorkerState::Silent);
        assert_eq!(state(&[("phase", "stopping")], 16_001), WorkerState::Silent);
        assert_eq!(state(&[], 3_601_001), WorkerState::Gone);
        assert_eq!(state(&[("stoppedAt", "1000")], 1001), WorkerState::Gone);
    }

    #[test]
    fn words_of_another_version_are_no_fault() {
        let said = presence(&[("tasks", "t"), ("beat:t", "x"), ("watch:t", "1 2"), ("held:t", "many")]);
        let report = report("w", 1000, &said, 1000);
        assert_eq!((report.tasks[0].held, report.tasks[0].watches.len()), (0, 0));
    }
}
