//! Reads tasks: their reports, names and keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::try_join;

use super::Inspector;
use super::audit_report::Inconsistency;
use super::limits::LimitReached;
use super::tasks::{
    EffectiveOptions, KeyConflict, LaneCounts, PartitionReport, TaskAudit, TaskPause, TaskReport, foreign_key,
    in_state_since,
};
use crate::backend::keys::TaskKeys;
use crate::backend::overview::{self, Overview};
use crate::error::Error;
use crate::join::{join_all, try_join_all};
use crate::limits::stored_number;
use crate::task::task_ref::TaskCounts;
use crate::unix_time::{at_ms, ms_of};
use crate::worker_id::WorkerId;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

/// After this long without a failed hook, earlier ones are no longer counted.
const HOOKS_CALM: Duration = Duration::from_secs(900);

/// The options that a worker declares in `meta`.
const OPTIONS: [&str; 26] = [
    "concurrency",
    "prefetch",
    "limits",
    "key",
    "perKey",
    "partitions",
    "attempts",
    "timeoutMs",
    "maxCount",
    "maxCountSet",
    "onCrash",
    "grace",
    "hook",
    "retry",
    "heartbeat",
    "eventMode",
    "priority",
    "keepCompleted",
    "keepFailed",
    "keepCancelled",
    "maxAgeCompleted",
    "maxAgeFailed",
    "maxAgeCancelled",
    "maxCountCompleted",
    "maxCountFailed",
    "maxCountCancelled",
];

impl Inspector {
    /// Every task that a worker or producer has used, sorted by name. A task that cannot be read has a
    /// [`fault`](TaskReport::fault). In a cluster, the call fails if the node of the list of tasks is unreachable, see
    /// [`unreachable_lists`](Inspector::unreachable_lists).
    pub async fn tasks(&self) -> Result<Vec<TaskReport>, Error> {
        let (names, fleet) = try_join(self.task_names(), self.live()).await?;
        let mut reports = Vec::with_capacity(names.len());
        for some in names.chunks(TOGETHER) {
            let looks = some.iter().map(|name| self.overviews(name));
            for (name, seen) in some.iter().zip(join_all(looks).await) {
                reports.push(match seen {
                    Ok(seen) => report(name, &seen, &fleet),
                    Err(e) if self.hides_all(&e) => return Err(e),
                    // A damaged task, or one on an unreachable node, does not hide the others.
                    Err(e) => self.unreadable_task(name, &e, &fleet).await,
                });
            }
        }
        Ok(reports)
    }

    /// A task that cannot be read. Names keys of another type if they are the reason.
    async fn unreadable_task(&self, task: &str, e: &Error, fleet: &LiveFleet) -> TaskReport {
        let (is_unreachable, is_denied) = (e.is_outage(), e.is_denied());
        let foreign = match is_unreachable || is_denied {
            true => Vec::new(),
            false => self.foreign_keys(task).await.unwrap_or_default(),
        };
        let named = foreign.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let fault = Some(if foreign.is_empty() { e.chain().to_string() } else { named });
        let nothing = report(task, &[Overview::default()], fleet);
        TaskReport { fault, fault_kind: e.server_kind(), foreign, is_unreachable, is_denied, ..nothing }
    }

    /// The keys of a task that hold a value of another type, which no script can read.
    pub async fn foreign_keys(&self, task: &str) -> Result<Vec<KeyConflict>, Error> {
        let mut found = Vec::new();
        for keys in self.tables_if_known(task).await?.iter() {
            found.extend(self.look(async |conn| overview::foreign(conn, keys).await).await?);
        }
        Ok(found.into_iter().map(foreign_key).collect())
    }

    /// Which of the lists of tasks, workers and workflows hold a value of another type.
    pub async fn foreign_lists(&self) -> Result<Vec<KeyConflict>, Error> {
        let found = self.look(async |conn| overview::foreign_lists(conn, self.store.prefix()).await).await?;
        Ok(found.into_iter().map(foreign_key).collect())
    }

    /// The names of the tasks that a worker or producer has used, sorted.
    pub async fn task_names(&self) -> Result<Vec<String>, Error> {
        let found = self.look(async |conn| self.store.tasks(conn).await).await?;
        let mut names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// One task. An unknown task name is not an error.
    pub async fn task(&self, task: &str) -> Result<TaskReport, Error> {
        let seen = self.overviews(task).await?;
        Ok(report(task, &seen, &self.live().await?))
    }

    /// The first partition, which has the options and the data of the task as a whole.
    pub(super) async fn overview(&self, task: &str) -> Result<Overview, Error> {
        let keys = self.first(task)?;
        self.overview_of(&keys).await
    }

    /// One partition.
    pub(super) async fn overview_of(&self, keys: &TaskKeys) -> Result<Overview, Error> {
        self.look(async |conn| overview::overview(conn, keys).await).await
    }

    /// All partitions, the first one first.
    async fn overviews(&self, task: &str) -> Result<Vec<Overview>, Error> {
        let first = self.overview(task).await?;
        let tables = self.store.tables(task);
        tables.learn(first.number("partitions").and_then(|count| u32::try_from(count).ok()).unwrap_or(1));
        let tables = tables.all();
        let mut seen = vec![first];
        seen.extend(try_join_all(tables.iter().skip(1).map(|keys| self.overview_of(keys))).await?);
        Ok(seen)
    }

    /// Whether all partitions of the task are paused, and its option `grace`.
    pub(super) async fn pauses_and_grace(&self, task: &str) -> Result<(bool, String), Error> {
        let parts = self.overviews(task).await?;
        let grace = parts[0].text("grace").unwrap_or_default().to_owned();
        Ok((parts.iter().all(|part| part.number("paused").is_some()), grace))
    }

    /// The tables of a task or, if the first one cannot be read, the known ones.
    pub(super) async fn tables_if_known(&self, task: &str) -> Result<Arc<[Arc<TaskKeys>]>, Error> {
        match self.tables(task).await {
            Err(Error::Server { .. }) => Ok(self.store.tables(task).all()),
            tables => tables,
        }
    }

    /// How many jobs of a task are in each state, in one call per partition.
    pub(super) async fn task_counts(&self, task: &str) -> Result<TaskCounts, Error> {
        Ok(TaskCounts::of(overview::count_all(&self.store, &self.tables(task).await?).await?))
    }

    /// The live workers of each task.
    async fn live(&self) -> Result<LiveFleet, Error> {
        let workers = match self.live_workers().await {
            // In a cluster, the list may be unreachable while tasks on other nodes are not.
            Err(e) if e.is_outage() && !self.hides_all(&e) => return Ok(LiveFleet::default()),
            workers => workers?,
        };
        let mut found =
            LiveFleet { is_known: workers.iter().all(|worker| !worker.is_unreachable), ..LiveFleet::default() };
        for worker in workers {
            for task in worker.tasks {
                let live = found.tasks.entry(task.task).or_default();
                live.workers += 1;
                live.slots += task.slots;
                live.declared_at = live.declared_at.into_iter().chain(task.declared_at).min();
            }
        }
        Ok(found)
    }
}

/// The live workers of all tasks.
#[derive(Default)]
struct LiveFleet {
    tasks: BTreeMap<String, Live>,
    /// Whether no live worker is missing.
    is_known: bool,
}

/// The live workers of a task.
#[derive(Clone, Copy, Default)]
struct Live {
    workers: u64,
    /// How many jobs they may hold.
    slots: u64,
    /// When the first of them declared it.
    declared_at: Option<SystemTime>,
}

/// Parses the faults of a recorded audit. Kinds that this version does not know are left out.
fn counted_faults(found: &str) -> BTreeMap<Inconsistency, u64> {
    let words: Vec<&str> = found.split(' ').collect();
    let pairs = words.chunks_exact(2).filter_map(|pair| Some((pair[0].parse().ok()?, stored_number(pair[1])?)));
    pairs.collect()
}

/// The report of a task from its partitions, at least one.
fn report(task: &str, parts: &[Overview], fleet: &LiveFleet) -> TaskReport {
    let first = &parts[0];
    let sum = |of: fn(&Overview) -> u64| parts.iter().map(of).sum::<u64>();
    let counted = |field: &str| parts.iter().filter_map(|part| part.number(field)).sum::<u64>();
    let latest = |field: &str| parts.iter().filter_map(|part| part.number(field)).max();
    // Failures before a completion in another partition do not count.
    let completed = latest("lastCompletedAt");
    let since_completed = |last: &str, count: &str| {
        let counts = parts.iter().filter(|part| part.number(last) >= completed).filter_map(|part| part.number(count));
        counts.fold(0, u64::saturating_add)
    };
    let oldest = parts.iter().filter_map(waits_since).min();
    let counts = TaskCounts::of(std::array::from_fn(|at| parts.iter().map(|part| part.counts[at]).sum()));
    let (ended, failed) = (counted("out"), counted("outFailed"));
    let failing = || parts.iter().filter(|part| hooks_are_failing(part));
    // If there are more jobs than were dispatched, the counters were lost, and the jobs were not.
    let dispatched = counted("in");
    let jobs = counts.pending_total() + counts.completed + counts.failed + counts.cancelled;
    let Live { workers: live_workers, slots, declared_at } = fleet.tasks.get(task).copied().unwrap_or_default();
    // A worker declares the partitions one after the other, and reports when it began.
    let born = first.number("bornAt").map(at_ms).filter(|born| declared_at.is_some_and(|declared| declared < *born));
    TaskReport {
        task: task.to_owned(),
        as_of: at_ms(first.now_ms),
        counts,
        next_waiting_age: oldest.map(|since| Duration::from_millis(first.now_ms.saturating_sub(since))),
        due: sum(|part| part.due),
        next_due_at: parts.iter().filter_map(|part| part.first_due_ms).min().map(at_ms),
        dispatched,
        ended,
        failed,
        lanes: lanes_of(parts),
        stalled: counted("stalls"),
        data_lost_at: latest("lostAt").map(at_ms).max(born).filter(|_| jobs <= dispatched),
        options_lost_at: latest("lostAt").map(at_ms).max(born).filter(|_| jobs > dispatched),
        lost_payloads: counted("payloadsLost"),
        payload_lost_at: latest("payloadLostAt").map(at_ms),
        hooks_failed: counted("hooksFailed"),
        hooks_failed_in_a_row: failing().filter_map(|part| part.number("hooksFailedRow")).sum(),
        hooks_failing_since: failing().filter_map(|part| part.number("hooksFailingSince")).min().map(at_ms),
        hook_failed_at: latest("hookFailedAt").map(at_ms),
        unplaced: sum(|part| part.payloads.saturating_sub(part.counts.iter().sum())),
        without_payload: sum(|part| part.counts.iter().sum::<u64>().saturating_sub(part.payloads)),
        failed_lately: sum(|part| part.failed_lately),
        completed_lately: sum(|part| part.completed_lately),
        last_completed_at: latest("lastCompletedAt").map(at_ms),
        failed_since_completed: since_completed("lastFailedAt", "failedSinceCompleted"),
        last_failed_at: latest("lastFailedAt").map(at_ms),
        broken_off_since_completed: since_completed("lastBrokenOffAt", "brokenOffSinceCompleted"),
        last_broken_off_at: latest("lastBrokenOffAt").map(at_ms),
        // A fence is a time in us.
        last_claimed_at: latest("fence").map(|fence| at_ms(fence / 1000)),
        paused: pause_of(parts),
        audited: first
            .number("auditedAt")
            .map(|at| TaskAudit { at: at_ms(at), found: counted_faults(first.text("auditFound").unwrap_or_default()) }),
        options: options_of(first),
        live_workers,
        knows_workers: fleet.is_known,
        slots,
        parts: parts.iter().zip(0..).map(|(part, at)| part_report(part, at)).collect(),
        fault: None,
        fault_kind: None,
        foreign: Vec::new(),
        is_unreachable: false,
        has_workflows: first.meta.get("nodes").is_some_and(|nodes| nodes == "1"),
        is_denied: false,
    }
}

/// Whether a hook of the partition failed for good so recently that `count_failed_hooks` would add to the same count.
fn hooks_are_failing(part: &Overview) -> bool {
    let failed_at = part.number("hookFailedAt");
    failed_at.is_some_and(|at| part.now_ms.saturating_sub(at) < HOOKS_CALM.as_millis() as u64)
}

fn lanes_of(parts: &[Overview]) -> Option<LaneCounts> {
    let all: Vec<_> = parts.iter().filter_map(|part| part.lanes).collect();
    let sum = |at: usize| all.iter().map(|(counts, _)| counts[at]).sum();
    let full_since = all.iter().filter_map(|(_, since)| *since).min().map(at_ms);
    (!all.is_empty()).then(|| LaneCounts { ready: sum(0), resting: sum(1), full: sum(2), full_since })
}

fn pause_of(parts: &[Overview]) -> Option<TaskPause> {
    let (at, part) = parts.iter().find_map(|part| Some((part.number("paused")?, part)))?;
    Some(TaskPause {
        at: at_ms(at),
        by: part.text("pausedBy").unwrap_or_default().to_owned(),
        reason: part.text("pauseReason").unwrap_or_default().to_owned(),
        partitions: parts.iter().filter(|part| part.number("paused").is_some()).count(),
    })
}

fn options_of(first: &Overview) -> EffectiveOptions {
    let values = OPTIONS.iter().filter_map(|name| Some(((*name).to_owned(), first.meta.get(*name)?.clone()))).collect();
    EffectiveOptions {
        values,
        declared_by: first.text("declaredBy").map(WorkerId::from_wire),
        declared_at: first.number("declaredAt").map(at_ms),
    }
}

/// Since when the next job of a partition waits or is due, ms.
fn waits_since(seen: &Overview) -> Option<u64> {
    let waits = seen.heads.iter().filter_map(|(id, since)| in_state_since(id, *since)).map(ms_of);
    waits.chain(seen.first_due_ms.filter(|due| *due <= seen.now_ms)).min()
}

fn part_report(seen: &Overview, part: u32) -> PartitionReport {
    let time = |field: &str| seen.number(field).map(at_ms);
    PartitionReport {
        part,
        epoch: seen.number("epoch").unwrap_or(0),
        epoch_at: time("epochAt"),
        snapshot_at: time("snapshotAt"),
        interval: seen.number("interval").map(Duration::from_millis),
        asker: seen.text("asker").map(WorkerId::from_wire),
        candidates: seen.candidates,
        heard: seen.active,
        parked: seen.parked,
        next_waiting_age: waits_since(seen).map(|since| Duration::from_millis(seen.now_ms.saturating_sub(since))),
        // A fence is a time in us.
        last_claimed_at: seen.number("fence").map(|fence| at_ms(fence / 1000)),
        limit: limit_of(seen),
    }
}

/// The limit that keeps the jobs of a partition waiting.
fn limit_of(seen: &Overview) -> Option<LimitReached> {
    LimitReached::of(seen.text("full")?, seen.now_ms)
}
