//! Workers: their identity, the jobs they hold, and their watches.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use crate::backend::classify::kind_of_stored;
use crate::backend::quiet::{QUIET, QuietMark};
use crate::backend::workers::SILENT_AFTER;
use crate::enum_str::names;
use crate::error::{Error, ServerErrorKind};
use crate::join::join_all;
use crate::limits::{MOST_PARTITIONS, stored_number};
use crate::runtime::death_proof::DeathProof;
use crate::stall::witness::DetectorReset;
use crate::unix_time::{as_ms, as_ms_where_known, at_ms, ms_of, ms_since_1970, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// The most live, silent and gone workers of one answer.
const MOST: [usize; 3] = [5000, 1000, 1000];

/// How many presences are read at a time.
const TOGETHER: usize = 50;

/// After this long without progress, handlers are blocking the runtime of a worker.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// A worker, as it last reported its presence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Its identity.
    pub worker: WorkerId,
    /// Its state, according to its own presence.
    pub state: WorkerState,
    /// The name of its host.
    pub host: String,
    /// The id of its process.
    pub pid: Option<u32>,
    /// The version of Heartline that it runs.
    pub version: String,
    /// The version of the wire format that it uses. `None` before it reported one.
    pub wire: Option<u32>,
    /// When it started.
    #[serde(rename = "started_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub started_at: Option<SystemTime>,
    /// When it last reported its presence, which it does every 5 s.
    #[serde(rename = "last_seen_at_ms", serialize_with = "ms_since_1970")]
    pub last_seen_at: SystemTime,
    /// When it stopped, if it reported that.
    #[serde(rename = "stopped_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub stopped_at: Option<SystemTime>,
    /// Its death, if known.
    pub death: Option<WorkerDeath>,
    /// Since when it is asked to claim no jobs, and by whom.
    pub quiet: Option<WorkerQuiet>,
    /// How long handlers had blocked its runtime when it last reported.
    #[serde(rename = "runtime_blocked_ms", serialize_with = "as_ms_where_known")]
    pub runtime_blocked: Option<Duration>,
    /// Its exclusive name, if it has one.
    pub name: Option<String>,
    /// The most jobs that it may hold across all tasks, if limited.
    pub max_jobs: Option<u64>,
    /// Its tasks.
    pub tasks: Vec<WorkerTask>,
    /// When the server last denied it permission for a workflow call: to start a node, report its end, or recover the workflow.
    #[serde(rename = "flows_denied_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub flows_denied_at: Option<SystemTime>,
    /// The workflow and the server's answer. Empty if nothing was denied.
    pub flows_denied: String,
    /// Why its presence cannot be read, if so. Then only its identity and `last_seen_at` are valid.
    pub fault: Option<String>,
    /// Whether the fault is an unreachable cluster node. Then it is unknown whether the worker is alive or has stopped.
    pub is_unreachable: bool,
    /// Whether the fault is a missing permission of this process's Redis user.
    pub is_denied: bool,
    /// Whether it runs in a container, where its [`pid`](WorkerReport::pid) differs from that on the host. Linux only.
    pub is_contained: bool,
}

impl WorkerReport {
    /// Whether it claims jobs, and had a free slot for a job of this task when it last reported.
    #[must_use]
    pub fn has_room(&self, task: &str) -> bool {
        let held: u64 = self.tasks.iter().map(WorkerTask::taken).sum();
        let is_free = |its: &WorkerTask| its.task == task && its.taken() < its.slots;
        self.state == WorkerState::Live
            && self.max_jobs.is_none_or(|most| held < most)
            && self.tasks.iter().any(is_free)
    }
}

/// The state of a worker. No decision about a job depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// It reported its presence in the last 15 s.
    Live,
    /// It reported its presence in the last 15 s, and claims no jobs because a person asked for that.
    Quiet,
    /// It reported its presence in the last 15 s, and no longer claims jobs.
    Stopping,
    /// It has not reported its presence for 15 s. It may be gone, or cut off from Redis.
    Silent,
    /// It reported that it stopped, is known to be dead, or has not reported its presence for an hour.
    Gone,
}

names!(WorkerState, "worker state", {
    Live = "live",
    Quiet = "quiet",
    Stopping = "stopping",
    Silent = "silent",
    Gone = "gone",
});

impl WorkerState {
    /// Whether it is live, quiet or stopping.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, WorkerState::Live | WorkerState::Quiet | WorkerState::Stopping)
    }
}

/// The death of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerDeath {
    /// The proof.
    pub proof: DeathProof,
    /// The worker on its host, or the person, that reported it.
    pub by: String,
    /// When it was reported.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

/// Since when a worker is quiet, and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerQuiet {
    /// Since when, by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who asked.
    pub by: String,
}

impl WorkerQuiet {
    pub(super) fn of(mark: QuietMark) -> WorkerQuiet {
        WorkerQuiet { at: at_ms(mark.at_ms), by: mark.by }
    }
}

/// A task of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerTask {
    /// The task.
    pub task: String,
    /// How many of its jobs the worker holds.
    pub held: u64,
    /// How many slots are taken by runs that lost their jobs, because their handlers block a thread and cannot be dropped.
    pub lost_runs: u64,
    /// When the last of those runs lost its job.
    #[serde(rename = "last_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_lost_at: Option<SystemTime>,
    /// How many jobs it may hold.
    pub slots: u64,
    /// When the worker declared the task, at its start.
    #[serde(rename = "declared_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub declared_at: Option<SystemTime>,
    /// When the last answered heartbeat was sent.
    #[serde(rename = "last_beat_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_beat_at: Option<SystemTime>,
    /// How long its answer took. Zero for a heartbeat without jobs.
    #[serde(rename = "beat_took_ms", serialize_with = "as_ms")]
    pub beat_took: Duration,
    /// When the server last denied it permission for a call.
    #[serde(rename = "denied_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub denied_at: Option<SystemTime>,
    /// The server's answer. Empty if nothing was denied.
    pub denied: String,
    /// The kind of that error: a missing permission, or a wrong password.
    pub denied_kind: Option<ServerErrorKind>,
    /// Its watches, one per partition.
    pub watches: Vec<DetectorReport>,
    /// How many partitions the task has, according to the worker.
    #[serde(skip)]
    pub(super) parts: u32,
}

impl WorkerTask {
    fn taken(&self) -> u64 {
        self.held.saturating_add(self.lost_runs)
    }
}

/// The watch of a worker over a partition of a task: how long it has seen the epoch without a gap, and what broke it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DetectorReport {
    /// Which partition, from 0.
    pub part: u32,
    /// The epoch.
    pub epoch: u64,
    /// Since when it was watched without a gap.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970")]
    pub since: SystemTime,
    /// How long it must watch before it resolves jobs that stayed silent.
    #[serde(rename = "interval_ms", serialize_with = "as_ms")]
    pub interval: Duration,
    /// What broke the watch last.
    pub broken: Option<DetectorReset>,
    /// When that was.
    #[serde(rename = "broken_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub broken_at: Option<SystemTime>,
}

impl DetectorReport {
    /// When this worker may resolve jobs that stay silent, if nothing breaks its watch before.
    #[must_use]
    pub fn may_resolve_at(&self) -> SystemTime {
        self.since.checked_add(self.interval).unwrap_or(self.since)
    }
}

impl Inspector {
    /// Every known worker, the latest first: up to 5,000 live ones, then up to 1,000 that fell silent in the last hour, then up to
    /// 1,000 of the last week. A worker whose presence cannot be read has a [`fault`](WorkerReport::fault). In a cluster, the call
    /// fails if the node of the list of workers is unreachable, see [`unreachable_lists`](Inspector::unreachable_lists).
    pub async fn workers(&self) -> Result<Vec<WorkerReport>, Error> {
        let now = self.now_ms().await?;
        self.reports(&self.listed(now, MOST).await?, now).await
    }

    /// One worker. `None` if it is unknown, or was removed after [`Worker::presence_retention`](crate::Worker::presence_retention).
    pub async fn worker(&self, worker: &str) -> Result<Option<WorkerReport>, Error> {
        let now = self.now_ms().await?;
        match self.presence(worker).await {
            Ok(presence) => {
                let Some(seen) = number(&presence, "lastSeenAt") else { return Ok(None) };
                // A worker without permission to write its presence is still in the list.
                let listed = self.look(async |conn| self.store.last_seen(conn, worker).await).await;
                Ok(Some(report(worker, seen.max(listed.ok().flatten().unwrap_or(0)), &presence, now)))
            }
            Err(e) if e.is_outage() => Err(e),
            Err(e) => {
                let seen = self.look(async |conn| self.store.last_seen(conn, worker).await).await?.unwrap_or(0);
                // Its tasks are unknown: assume any task.
                let names = self.task_names().await?;
                let tasks = names.iter().map(|task| task_of(task, &HashMap::new(), seen)).collect();
                Ok(Some(WorkerReport { tasks, ..unreadable(worker, seen, now, &e) }))
            }
        }
    }

    /// The live workers. Only their presences are read.
    pub(super) async fn live_workers(&self) -> Result<Vec<WorkerReport>, Error> {
        let now = self.now_ms().await?;
        let mut reports = self.reports(&self.listed(now, [MOST[0], 0, 0]).await?, now).await?;
        reports.retain(|worker| worker.state.is_live());
        Ok(reports)
    }

    async fn listed(&self, now_ms: u64, most: [usize; 3]) -> Result<Vec<(String, u64)>, Error> {
        self.look(async |conn| self.store.workers(conn, now_ms, most).await).await
    }

    async fn reports(&self, listed: &[(String, u64)], now_ms: u64) -> Result<Vec<WorkerReport>, Error> {
        let mut reports = Vec::with_capacity(listed.len());
        for some in listed.chunks(TOGETHER) {
            let presences = join_all(some.iter().map(|(worker, _)| self.presence(worker))).await;
            for ((worker, seen), presence) in some.iter().zip(presences) {
                reports.push(match presence {
                    Ok(presence) => report(worker, *seen, &presence, now_ms),
                    Err(e) if self.hides_all(&e) => return Err(e),
                    // A damaged presence, or one on an unreachable node, does not hide the others.
                    Err(e) => unreadable(worker, *seen, now_ms, &e),
                });
            }
        }
        Ok(reports)
    }

    pub(super) async fn presence(&self, worker: &str) -> Result<HashMap<String, String>, Error> {
        self.look(async |conn| self.store.presence(conn, worker).await).await
    }
}

fn number(presence: &HashMap<String, String>, field: &str) -> Option<u64> {
    stored_number(presence.get(field)?)
}

/// A worker whose presence cannot be read.
fn unreadable(worker: &str, seen_ms: u64, now_ms: u64, e: &Error) -> WorkerReport {
    let (fault, is_unreachable, is_denied) = (Some(e.chain().to_string()), e.is_outage(), e.is_denied());
    WorkerReport { fault, is_unreachable, is_denied, ..report(worker, seen_ms, &HashMap::new(), now_ms) }
}

/// The report of a worker at `now_ms`, from its presence and when it was listed as seen.
pub(super) fn report(worker: &str, seen_ms: u64, presence: &HashMap<String, String>, now_ms: u64) -> WorkerReport {
    let text = |field: &str| presence.get(field).cloned().unwrap_or_default();
    // The list and the presence are written one after the other, so use the later time.
    let seen_ms = number(presence, "lastSeenAt").unwrap_or(0).max(seen_ms);
    let silent = Duration::from_millis(now_ms.saturating_sub(seen_ms));
    let stopped_at = number(presence, "stoppedAt").map(at_ms);
    let death = death_of(presence);
    // A worker that was seen after its reported death has come back.
    let death = death.filter(|death| ms_of(death.at) >= seen_ms);
    let state = if stopped_at.is_some() || death.is_some() || silent > Duration::from_secs(3600) {
        WorkerState::Gone
    } else if silent > SILENT_AFTER {
        WorkerState::Silent
    } else if text("phase") == "stopping" {
        WorkerState::Stopping
    } else if presence.contains_key(QUIET) {
        WorkerState::Quiet
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
        quiet: presence.get(QUIET).map(|mark| WorkerQuiet::of(QuietMark::from_wire(mark))),
        runtime_blocked: blocked.filter(|blocked| *blocked > BLOCKED_AFTER),
        name: presence.get("name").cloned(),
        max_jobs: number(presence, "maxJobs"),
        tasks,
        flows_denied_at: flows_denied.and_then(|(ago, _)| Some(at_ms(seen_ms.saturating_sub(stored_number(ago)?)))),
        flows_denied: flows_denied.map_or_else(String::new, |(_, said)| said.to_owned()),
        fault: None,
        is_unreachable: false,
        is_denied: false,
        is_contained: presence.get("pidNamespace").is_some_and(|namespace| namespace != FIRST_NAMESPACE),
    }
}

/// The initial pid namespace of a machine. Linux always gives it this number (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

fn death_of(presence: &HashMap<String, String>) -> Option<WorkerDeath> {
    Some(WorkerDeath {
        proof: presence.get("deadProof")?.parse().ok()?,
        by: presence.get("deadSays")?.clone(),
        at: at_ms(number(presence, "deadAt")?),
    })
}

/// A task of a worker whose presence was written at `seen_ms`. The times in it are ages at that moment.
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
        Some(DetectorReport {
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
    fn ages_in_a_presence_become_times_of_the_server() {
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
        assert_eq!((watch.epoch, watch.since, watch.broken), (5, at_ms(80_000), Some(DetectorReset::NoAnswer)));
        assert_eq!(watch.may_resolve_at(), at_ms(110_000));
    }

    #[test]
    fn a_worker_is_silent_then_gone_or_gone_at_once_if_it_stopped() {
        let state = |fields: &[(&str, &str)], now| report("w", 1000, &presence(fields), now).state;
        assert_eq!(state(&[], 16_000), WorkerState::Live);
        assert_eq!(state(&[("phase", "stopping"), ("quiet", "900 ada")], 16_000), WorkerState::Stopping);
        assert_eq!(state(&[("quiet", "900 ada")], 16_000), WorkerState::Quiet);
        assert_eq!(state(&[], 16_001), WorkerState::Silent);
        assert_eq!(state(&[("phase", "stopping")], 16_001), WorkerState::Silent);
        assert_eq!(state(&[], 3_601_001), WorkerState::Gone);
        assert_eq!(state(&[("stoppedAt", "1000")], 1001), WorkerState::Gone);
    }

    #[test]
    fn unknown_values_of_another_version_are_ignored() {
        let said = presence(&[("tasks", "t"), ("beat:t", "x"), ("watch:t", "1 2"), ("held:t", "many")]);
        let report = report("w", 1000, &said, 1000);
        assert_eq!((report.tasks[0].held, report.tasks[0].watches.len()), (0, 0));
    }
}
