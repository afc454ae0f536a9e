//! Tasks: what there is of each, how fast it moves, and in which epoch its stall detection is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, try_join, try_join_all};
use serde::Serialize;

use super::Inspector;
use super::audit::Fault;
use crate::error::{Error, ServerErrorKind};
use crate::job::id::JobId;
use crate::limits::stored_number;
use crate::shown::Shown;
use crate::stall::cadence;
use crate::store::keys::TaskKeys;
use crate::store::overview::{self, Overview};
use crate::task::task_ref::TaskCounts;
use crate::times::{as_ms, as_ms_where_known, at_ms, ms_of, ms_since_1970, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// How many tasks are asked about at a time.
const TOGETHER: usize = 20;

/// A task as it was when it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// Its name.
    pub task: String,
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// How many jobs are in each state.
    pub counts: TaskCounts,
    /// The longest wait of the jobs that are the first of their lists, and of the first delayed one that is due, since then. Jobs behind them may
    /// have waited longer, as behind one that was recovered. `None` if no job waits, or is due.
    #[serde(rename = "next_waiting_age_ms", serialize_with = "as_ms_where_known")]
    pub next_waiting_age: Option<Duration>,
    /// Delayed jobs whose time has come: a worker moves them to their lists when it claims.
    pub due: u64,
    /// When the first delayed job is due.
    #[serde(rename = "next_due_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub next_due_at: Option<SystemTime>,
    /// Jobs dispatched since the task exists. Two reports tell the rate, see [`TaskReport::rates_since`].
    pub dispatched: u64,
    /// Jobs that ended since the task exists: completed, failed or cancelled.
    pub ended: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Stalls since the task exists, of whatever jobs.
    pub stalled: u64,
    /// When it was found that the server had lost its data of the task, if it has: a worker declared the task again, or one that lives had
    /// declared it before there were any. Jobs that were there before are gone (where they are still there, none is lost, and this is `None`); what workers hold of them is reported in vain.
    #[serde(rename = "data_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub data_lost_at: Option<SystemTime>,
    /// When it was found that the options and counters of the task were lost alone, if they were: its jobs are there. A pause is gone with them.
    #[serde(rename = "options_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub options_lost_at: Option<SystemTime>,
    /// Jobs that were removed since the task exists since their payload was gone: there was nothing to run.
    pub lost_payloads: u64,
    /// When the last of them was.
    #[serde(rename = "payload_lost_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub payload_lost_at: Option<SystemTime>,
    /// Hooks (`on_complete`) that failed for good since the task exists: their jobs ended without what they were to do.
    pub hooks_failed: u64,
    /// How many of them since none had failed for 15 minutes; 0 where none did in the last 15.
    pub hooks_failed_in_a_row: u64,
    /// When the first of those did.
    #[serde(rename = "hooks_failing_since_ms", serialize_with = "ms_since_1970_where_known")]
    pub hooks_failing_since: Option<SystemTime>,
    /// When the last of them did.
    #[serde(rename = "hook_failed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub hook_failed_at: Option<SystemTime>,
    /// Jobs that are in no place, as far as counting tells: nobody works them, and nobody is told how they ended. [`Inspector::audit`] finds them.
    pub nowhere: u64,
    /// Jobs whose payload is gone, as far as counting tells: those that have not ended are removed when a worker claims them.
    pub without_payload: u64,
    /// Jobs that failed in the last 5 minutes, of those that are kept.
    pub failed_lately: u64,
    /// When a run completed last.
    #[serde(rename = "last_completed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_completed_at: Option<SystemTime>,
    /// How many jobs began to fail since a run completed or was snoozed, kept or not. A job whose worker died counts where it failed by that,
    /// or is retried; so does a job that no worker began in time. When a person removes the last failed job, only unfinished jobs count on.
    pub failed_since_completed: u64,
    /// When a run failed last.
    #[serde(rename = "last_failed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_failed_at: Option<SystemTime>,
    /// How many runs broke off, as their worker stopped or died, since a run completed or was snoozed.
    pub broken_off_since_completed: u64,
    /// When a run broke off last.
    #[serde(rename = "last_broken_off_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_broken_off_at: Option<SystemTime>,
    /// Jobs that completed in the last 5 minutes, of those that are kept.
    pub completed_lately: u64,
    /// When a job of it was claimed last.
    #[serde(rename = "last_claimed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_claimed_at: Option<SystemTime>,
    /// The pause, if the task is paused.
    pub paused: Option<TaskPause>,
    /// The last audit that was noted, see [`Inspector::note_audit`].
    pub audited: Option<TaskAudit>,
    /// The options in force.
    pub options: TaskOptionsInForce,
    /// How many live workers work it, those that are stopping among them. With 0 no worker takes its jobs, if that is known.
    pub live_workers: u64,
    /// Whether it is known who works it. Of a cluster a node may be away that has the list of workers, or what one of them tells of itself:
    /// others than those counted may be live then.
    pub knows_workers: bool,
    /// How many jobs those may hold together, by the concurrency of the task; a worker may hold fewer by its `max_jobs`.
    pub slots: u64,
    /// Whether nodes of workflows have it: nobody retries or removes their jobs by hand.
    pub has_workflows: bool,
    /// Its stall detection, partition by partition.
    pub parts: Vec<PartReport>,
    /// Why it cannot be read, if so; nothing else of the report says anything then.
    pub fault: Option<String>,
    /// The kind of that error, if the server reported it.
    pub fault_kind: Option<ServerErrorKind>,
    /// The keys of another type that keep it from being read.
    pub foreign: Vec<ForeignKey>,
    /// Whether that is since its node of a cluster is away: nothing is known to be wrong with the task then.
    pub is_away: bool,
    /// Whether that is since our user of the server lacks a right: nothing is known to be wrong with the task then.
    pub is_denied: bool,
}

impl TaskReport {
    /// Whether some of its partitions are paused, and others are not: their jobs begin.
    #[must_use]
    pub fn is_paused_in_part(&self) -> bool {
        self.paused.as_ref().is_some_and(|pause| pause.partitions < self.parts.len())
    }
}

/// The pause of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskPause {
    /// Since when.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// How many of its partitions are paused: not all, where one of them was away when somebody paused it, or resumed it.
    pub partitions: usize,
}

/// The last audit of a task that was noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskAudit {
    /// When it came to its end.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// How many faults of each kind it found; empty if nothing was wrong.
    pub found: BTreeMap<Fault, u64>,
}

/// The options of a task as the worker declared them that started last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskOptionsInForce {
    /// Names and values as they are stored: `maxCount`, `heartbeat`, `keepFailed`, … `concurrency`, `attempts` and `timeoutMs` are those of
    /// the worker that declared them; each worker goes by its own. Empty if no worker has declared the task.
    pub values: BTreeMap<String, String>,
    /// The worker that declared them.
    pub declared_by: Option<WorkerId>,
    /// When it started.
    #[serde(rename = "declared_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub declared_at: Option<SystemTime>,
}

/// The stall detection of one partition of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartReport {
    /// Which partition, from 0.
    pub part: u32,
    /// How many snapshots there were.
    pub epoch: u64,
    /// When the last one began the epoch.
    #[serde(rename = "epoch_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub epoch_at: Option<SystemTime>,
    /// When the candidates were taken.
    #[serde(rename = "snapshot_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub snapshot_at: Option<SystemTime>,
    /// The stall interval in force: the longest that a worker asked for.
    #[serde(rename = "interval_ms", serialize_with = "as_ms_where_known")]
    pub interval: Option<Duration>,
    /// The worker that asked for it.
    pub asker: Option<WorkerId>,
    /// Held jobs that were silent since the snapshot: all that are held at first, see [`PartReport::heard_by`].
    pub candidates: u64,
    /// Held jobs that were heard from since the snapshot.
    pub heard: u64,
    /// Held jobs that sweeps found silent and set aside, since their phase waits for longer or for a person. A job that was taken from its
    /// worker since then may be counted until the next snapshots.
    pub set_aside: u64,
    /// How long its next job has waited, or is due.
    #[serde(rename = "next_waiting_age_ms", serialize_with = "as_ms_where_known")]
    pub next_waiting_age: Option<Duration>,
    /// When a job of it was claimed last.
    #[serde(rename = "last_claimed_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub last_claimed_at: Option<SystemTime>,
}

/// How fast a task moves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskRates {
    /// Jobs dispatched a second.
    pub dispatched: f64,
    /// Jobs that ended a second.
    pub ended: f64,
    /// The time between the two reports.
    #[serde(rename = "over_ms", serialize_with = "as_ms")]
    pub over: Duration,
}

/// Behind so long without a hook that failed, those before are no news.
const HOOKS_CALM: Duration = Duration::from_secs(900);

/// The options in `meta`, which a worker declares.
const OPTIONS: [&str; 23] = [
    "concurrency",
    "prefetch",
    "partitions",
    "attempts",
    "timeoutMs",
    "maxCount",
    "maxCountSet",
    "onCrash",
    "patience",
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

impl TaskReport {
    /// How fast the task moved since an earlier report of it; `None` if no time has passed, or the counters began anew.
    #[must_use]
    pub fn rates_since(&self, earlier: &TaskReport) -> Option<TaskRates> {
        let over = self.as_of.duration_since(earlier.as_of).ok().filter(|over| !over.is_zero())?;
        let a_second = |jobs: u64| jobs as f64 / over.as_secs_f64();
        let dispatched = a_second(self.dispatched.checked_sub(earlier.dispatched)?);
        Some(TaskRates { dispatched, ended: a_second(self.ended.checked_sub(earlier.ended)?), over })
    }
}

impl PartReport {
    /// By when every held job whose worker lives will have been heard from since the snapshot, about: a job that is silent before this is
    /// as well as any other. `None` where there was no snapshot yet.
    #[must_use]
    pub fn heard_by(&self) -> Option<SystemTime> {
        let interval = self.interval?;
        let beat = cadence::beat_period(interval) + cadence::longest_beat_pause(interval);
        self.snapshot_at?.checked_add(beat)
    }
}

/// A key of a task under which something is stored that Heartline did not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ForeignKey {
    /// The key.
    pub key: String,
    /// What is stored there, as `TYPE` names it.
    pub found: String,
    /// What should be.
    pub expected: &'static str,
    /// Whether the key holds the options and the pause of the task.
    pub holds_options: bool,
}

pub(super) fn foreign_key((key, found, expected, holds_options): (String, String, &'static str, bool)) -> ForeignKey {
    ForeignKey { key, found, expected, holds_options }
}

impl fmt::Display for ForeignKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is a {} and should be a {}", Shown(&self.key), self.found, self.expected)
    }
}

impl Inspector {
    /// Every task that a worker or a producer has named so far, by name. One that cannot be read, since something foreign is stored under
    /// a key of it, is told with its [`fault`](TaskReport::fault).
    ///
    /// # Errors
    /// Those of every call, see [`Error`]. Of a cluster also if the node is away that has the list of tasks, see
    /// [`lists_away`](Inspector::lists_away).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn tasks(&self) -> Result<Vec<TaskReport>, Error> {
        let (names, fleet) = try_join(self.task_names(), self.live()).await?;
        let mut reports = Vec::with_capacity(names.len());
        for some in names.chunks(TOGETHER) {
            let looks = some.iter().map(|name| self.overviews(name));
            for (name, seen) in some.iter().zip(join_all(looks).await) {
                let fault = match seen.as_ref().err() {
                    Some(e) if self.hides_all(e) => return seen.map(|_| Vec::new()),
                    // One that is damaged, or on a node that is away, does not hide the others.
                    Some(e) => self.fault_of(name, e).await,
                    None => TaskFault::default(),
                };
                let seen = seen.unwrap_or_else(|_| vec![Overview::default()]);
                reports.push(fault.put_into(report(name, &seen, &fleet)));
            }
        }
        Ok(reports)
    }

    /// Why a task cannot be read. Keys of another type are named, if they are the reason.
    async fn fault_of(&self, task: &str, e: &Error) -> TaskFault {
        let (is_away, is_denied) = (e.is_outage(), e.is_denied());
        let foreign = match is_away || is_denied {
            true => Vec::new(),
            false => self.foreign_keys(task).await.unwrap_or_default(),
        };
        let named = foreign.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let text = if foreign.is_empty() { e.chain().to_string() } else { named };
        TaskFault { text: Some(text), kind: e.server_kind(), foreign, is_away, is_denied }
    }

    /// The keys of a task under which something of another kind is stored, which no script can read.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn foreign_keys(&self, task: &str) -> Result<Vec<ForeignKey>, Error> {
        let mut found = Vec::new();
        for keys in self.tables_if_known(task).await?.iter() {
            found.extend(self.look(|mut conn| async move { overview::foreign(&mut conn, keys).await }).await?);
        }
        Ok(found.into_iter().map(foreign_key).collect())
    }

    /// Those of the keys across all tasks, the lists of tasks, workers and workflows, under which something of another kind is stored.
    ///
    /// # Errors
    /// Those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn foreign_lists(&self) -> Result<Vec<ForeignKey>, Error> {
        let found = self.look(|conn| async move { overview::foreign_lists(&conn, self.store.prefix()).await }).await?;
        Ok(found.into_iter().map(foreign_key).collect())
    }

    /// The names of the tasks that a worker or a producer has named so far, in their order.
    ///
    /// # Errors
    /// Those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn task_names(&self) -> Result<Vec<String>, Error> {
        let found = self.look(|mut conn| async move { self.store.tasks(&mut conn).await }).await?;
        let mut names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// One task, whether anybody has named it or not.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, and those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn task(&self, task: &str) -> Result<TaskReport, Error> {
        let seen = self.overviews(task).await?;
        Ok(report(task, &seen, &self.live().await?))
    }

    /// The task as its first partition has it: the options, and what is of the task as a whole.
    pub(super) async fn overview(&self, task: &str) -> Result<Overview, Error> {
        let keys = self.first(task)?;
        self.overview_of(&keys).await
    }

    /// One partition.
    pub(super) async fn overview_of(&self, keys: &TaskKeys) -> Result<Overview, Error> {
        self.look(|mut conn| async move { overview::overview(&mut conn, keys).await }).await
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

    /// Whether no job of the task begins: all of its partitions are paused. And what its options say of patience.
    pub(super) async fn pauses_and_patience(&self, task: &str) -> Result<(bool, String), Error> {
        let parts = self.overviews(task).await?;
        let patience = parts[0].text("patience").unwrap_or_default().to_owned();
        Ok((parts.iter().all(|part| part.number("paused").is_some()), patience))
    }

    /// The tables of a task; where the first one cannot be read, those that are known.
    async fn tables_if_known(&self, task: &str) -> Result<Arc<[Arc<TaskKeys>]>, Error> {
        match self.tables(task).await {
            Err(Error::Server { .. }) => Ok(self.store.tables(task).all()),
            tables => tables,
        }
    }

    /// How many jobs of a task are in each state, counted in one step for each partition.
    pub(super) async fn task_counts(&self, task: &str) -> Result<TaskCounts, Error> {
        Ok(TaskCounts::of(overview::count_all(&self.store, &self.tables(task).await?).await?))
    }

    /// What the live workers of each task are together.
    async fn live(&self) -> Result<LiveFleet, Error> {
        let workers = match self.live_workers().await {
            // The list is on one node of a cluster, and tasks on the others are told of.
            Err(e) if e.is_outage() && !self.hides_all(&e) => return Ok(LiveFleet::default()),
            workers => workers?,
        };
        let mut found = LiveFleet { is_known: workers.iter().all(|worker| !worker.is_away), ..LiveFleet::default() };
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

/// Why a task cannot be read.
#[derive(Default)]
struct TaskFault {
    text: Option<String>,
    kind: Option<ServerErrorKind>,
    foreign: Vec<ForeignKey>,
    is_away: bool,
    is_denied: bool,
}

impl TaskFault {
    fn put_into(self, report: TaskReport) -> TaskReport {
        let TaskFault { text: fault, kind: fault_kind, foreign, is_away, is_denied } = self;
        TaskReport { fault, fault_kind, foreign, is_away, is_denied, ..report }
    }
}

/// The live workers of all tasks.
#[derive(Default)]
struct LiveFleet {
    tasks: BTreeMap<String, Live>,
    /// Whether these are all that there are.
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

/// Since when a job stands where it is: what is written of it, or what its id tells.
pub(super) fn stands_since(id: &JobId, since_ms: Option<u64>) -> Option<SystemTime> {
    since_ms.map(at_ms).or_else(|| id.created_at())
}

/// The faults that a note of an audit tells of; words that this version does not know are left out.
fn counted_faults(found: &str) -> BTreeMap<Fault, u64> {
    let words: Vec<&str> = found.split(' ').collect();
    let pairs = words.chunks_exact(2).filter_map(|pair| Some((pair[0].parse().ok()?, stored_number(pair[1])?)));
    pairs.collect()
}

/// What there is to know of a task, by its partitions, of which there is one at least.
fn report(task: &str, parts: &[Overview], fleet: &LiveFleet) -> TaskReport {
    let nothing = Overview::default();
    let first = parts.first().unwrap_or(&nothing);
    let sum = |of: fn(&Overview) -> u64| parts.iter().map(of).sum::<u64>();
    let counted = |field: &str| parts.iter().filter_map(|part| part.number(field)).sum::<u64>();
    let latest = |field: &str| parts.iter().filter_map(|part| part.number(field)).max();
    // What failed in one partition before a run completed in another one does not count.
    let completed = latest("lastCompletedAt");
    let since_completed = |last: &str, count: &str| {
        let counts = parts.iter().filter(|part| part.number(last) >= completed).filter_map(|part| part.number(count));
        counts.fold(0, u64::saturating_add)
    };
    let oldest = parts.iter().filter_map(waits_since).min();
    let counts = TaskCounts::of(std::array::from_fn(|at| parts.iter().map(|part| part.counts[at]).sum()));
    let (ended, failed) = (counted("out"), counted("outFailed"));
    // As long as `count_failed_hooks` counts on.
    let fails = |part: &&Overview| {
        let failed_at = part.number("hookFailedAt");
        failed_at.is_some_and(|at| part.now_ms.saturating_sub(at) < HOOKS_CALM.as_millis() as u64)
    };
    let failing = || parts.iter().filter(fails);
    // With more jobs than came since the counters began those were lost alone, and the jobs are there.
    let dispatched = counted("in");
    let jobs = counts.unfinished() + counts.completed + counts.failed + counts.cancelled;
    let Live { workers: live_workers, slots, declared_at } = fleet.tasks.get(task).copied().unwrap_or_default();
    // A worker declares one partition behind the other, and tells of when it began.
    let born = first.number("bornAt").map(at_ms).filter(|born| declared_at.is_some_and(|declared| declared < *born));
    let pause = parts.iter().find_map(|part| Some((part.number("paused")?, part)));
    let values = OPTIONS.iter().filter_map(|name| Some(((*name).to_owned(), first.meta.get(*name)?.clone()))).collect();
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
        stalled: counted("stalls"),
        data_lost_at: latest("lostAt").map(at_ms).max(born).filter(|_| jobs <= dispatched),
        options_lost_at: latest("lostAt").map(at_ms).max(born).filter(|_| jobs > dispatched),
        lost_payloads: counted("payloadsLost"),
        payload_lost_at: latest("payloadLostAt").map(at_ms),
        hooks_failed: counted("hooksFailed"),
        hooks_failed_in_a_row: failing().filter_map(|part| part.number("hooksFailedRow")).sum(),
        hooks_failing_since: failing().filter_map(|part| part.number("hooksFailingSince")).min().map(at_ms),
        hook_failed_at: latest("hookFailedAt").map(at_ms),
        nowhere: sum(|part| part.payloads.saturating_sub(part.counts.iter().sum())),
        without_payload: sum(|part| part.counts.iter().sum::<u64>().saturating_sub(part.payloads)),
        failed_lately: sum(|part| part.failed_lately),
        completed_lately: sum(|part| part.completed_lately),
        last_completed_at: latest("lastCompletedAt").map(at_ms),
        failed_since_completed: since_completed("lastFailedAt", "failedSinceCompleted"),
        last_failed_at: latest("lastFailedAt").map(at_ms),
        broken_off_since_completed: since_completed("lastBrokenOffAt", "brokenOffSinceCompleted"),
        last_broken_off_at: latest("lastBrokenOffAt").map(at_ms),
        // Fences are drawn from the time, in us.
        last_claimed_at: latest("fence").map(|fence| at_ms(fence / 1000)),
        paused: pause.map(|(at, part)| TaskPause {
            at: at_ms(at),
            by: part.text("pausedBy").unwrap_or_default().to_owned(),
            reason: part.text("pauseReason").unwrap_or_default().to_owned(),
            partitions: parts.iter().filter(|part| part.number("paused").is_some()).count(),
        }),
        audited: first
            .number("auditedAt")
            .map(|at| TaskAudit { at: at_ms(at), found: counted_faults(first.text("auditFound").unwrap_or_default()) }),
        options: TaskOptionsInForce {
            values,
            declared_by: first.text("declaredBy").map(WorkerId::from_wire),
            declared_at: first.number("declaredAt").map(at_ms),
        },
        live_workers,
        knows_workers: fleet.is_known,
        slots,
        parts: parts.iter().zip(0..).map(|(part, at)| part_report(part, at)).collect(),
        fault: None,
        fault_kind: None,
        foreign: Vec::new(),
        is_away: false,
        has_workflows: first.meta.get("nodes").is_some_and(|nodes| nodes == "1"),
        is_denied: false,
    }
}

/// Since when the next job of a partition waits, or is due, ms.
fn waits_since(seen: &Overview) -> Option<u64> {
    let waits = seen.heads.iter().filter_map(|(id, since)| stands_since(id, *since)).map(ms_of);
    waits.chain(seen.first_due_ms.filter(|due| *due <= seen.now_ms)).min()
}

fn part_report(seen: &Overview, part: u32) -> PartReport {
    let time = |field: &str| seen.number(field).map(at_ms);
    PartReport {
        part,
        epoch: seen.number("epoch").unwrap_or(0),
        epoch_at: time("epochAt"),
        snapshot_at: time("snapshotAt"),
        interval: seen.number("interval").map(Duration::from_millis),
        asker: seen.text("asker").map(WorkerId::from_wire),
        candidates: seen.candidates,
        heard: seen.active,
        set_aside: seen.set_aside,
        next_waiting_age: waits_since(seen).map(|since| Duration::from_millis(seen.now_ms.saturating_sub(since))),
        // Fences are drawn from the time, in us.
        last_claimed_at: seen.number("fence").map(|fence| at_ms(fence / 1000)),
    }
}
