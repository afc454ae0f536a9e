//! Everything that may be wrong: each kind with its facts, its text, and what to do about it.

use serde::Serialize;

use super::lost_holder::{LostHolder, LostSlots, Rescuer};
use super::texts::*;
use crate::error::ServerErrorKind;
use crate::inspect::tasks::KeyConflict;
use crate::inspect::text::{brief, many, printed, quoted};
use crate::worker_id::WorkerId;

macro_rules! kinds {
    ($task:ident: $($(#[$doc:meta])* $kind:ident { $($field:ident: $type:ty),* } => $text:expr, $hint:expr;)+) => {
        /// The kind of a [`Diagnosis`](super::Diagnosis), with its facts. Fields that end in `_ms` are times in ms.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum DiagnosisKind {
            $($(#[$doc])* $kind { $($field: $type),* },)+
        }

        impl std::fmt::Display for DiagnosisKind {
            #[allow(unused_variables)]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$kind { $($field),* } => write!(f, "{}", $text),)+
                }
            }
        }

        impl DiagnosisKind {
            /// What to do about it, for this task.
            #[allow(unused_variables)]
            pub(super) fn hint(&self, $task: &str) -> String {
                match self {
                    $(Self::$kind { $($field),* } => ($hint).to_string(),)+
                }
            }
        }
    };
}

kinds! { task:
    /// A server, or a node of a cluster, does not answer.
    ServerUnreachable { error: String } => format!("the server does not answer: {error}"),
        "jobs of its tasks wait until it is back or its replica is promoted: see `redis-cli CLUSTER NODES`";
    /// A server refuses writes, or is a replica: no worker can update its presence.
    WritesRefused { answer: String } => format!("the server refuses writes: {answer}"),
        "which workers live is unknown until it takes writes: recover nothing by hand. NOREPLICAS needs a replica, MISCONF room on its disk, \
         READONLY the address of the primary, CLUSTERDOWN the missing node or `cluster-require-full-coverage no`";
    /// A server has no replica, or fewer than it should. Or a write needs `wanted` replicas, and the server has no more than that.
    ReplicasMissing { replicas: u64, silent: u64, wanted: Option<u64> } => replicas_missing(*replicas, *silent, *wanted),
        "add a replica or check the silent ones: what no replica has is lost with the primary, and writes that need more replicas than are left \
         are refused";
    /// The `maxmemory-policy` evicts keys, or keys were evicted.
    Eviction { policy: String, keys: u64 } => match keys {
            0 => format!("the maxmemory-policy is {policy}"),
            keys => format!("the server has evicted {} since it started (maxmemory-policy {policy})", many(*keys, "key")),
        },
        "`CONFIG SET maxmemory-policy noeviction`, then `CONFIG REWRITE`. An evicted key is a column of all jobs of a task: run `heartline audit`";
    /// The last write to disk failed, or there is no append-only file. `unsaved_writes` is `None` if there is no snapshot.
    NotDurable { save_failed: bool, unsaved_writes: Option<u64> } => not_durable(*save_failed, *unsaved_writes),
        "`CONFIG SET appendonly yes`, then `CONFIG REWRITE`: a crash then loses about a second. If a write failed, the log of the server says why";
    /// A server without an append-only file restarted while workers were live.
    ServerRestarted { place: String, uptime_ms: u64 } =>
        format!("the server {place} started {} ago without an append-only file", time(*uptime_ms)),
        "changes after its last snapshot are lost: jobs may be missing, and jobs that ended since may run again";
    /// The part of `maxmemory` that is used. `None` if there is no limit.
    Memory { percent: Option<u64> } => match percent {
            None => "the server has no maxmemory".to_owned(),
            Some(percent @ 100..) => format!("{percent} % of maxmemory is used: dispatches, checkpoints and ticks are refused"),
            Some(percent) => format!("{percent} % of maxmemory is used"),
        },
        "set maxmemory to about 70 % of the memory of the host, and remove ended jobs (`heartline task purge TASK --state completed`): a full \
         server still records outcomes, but refuses dispatches, ticks, workflows, progress and checkpoints. A handler that fails because \
         `checkpoint_now` is refused uses an attempt";
    /// A call takes long compared with the shortest stall interval.
    SlowRoundTrip { longest_ms: u64, interval_ms: u64 } =>
        format!("a call takes up to {}, and the shortest stall interval is {}", time(*longest_ms), time(*interval_ms)),
        "use a longer StallOptions::interval, or a closer server";
    /// The node with the list of tasks or workers does not answer, or reports that the cluster is down.
    ListUnreachable { list: &'static str, node: String, is_down: bool } => match is_down {
            true => format!("{node} reports that the cluster is down: the lists of {list} cannot be read"),
            false => format!("the node with the list of {list} ({node}) does not answer"),
        },
        "tasks on other nodes may continue; restore the node or promote its replica (`heartline doctor` names it). Name a task meanwhile: \
         `heartline task show NAME`";
    /// Nodes with these tasks, or with the presence of this many live workers, do not answer.
    NodesUnreachable { tasks: Vec<String>, workers: u64 } => nodes_unreachable(tasks, *workers),
        "these tasks wait until the node is back or its replica is promoted (`heartline doctor` names it); nothing is damaged";
    /// The slots of these tasks, or of this workflow, are moving to another node.
    SlotsMoving { tasks: Vec<String>, workflow: Option<String> } => match workflow {
            None => format!("slots are moving to another node: {}", listed(tasks)),
            Some(workflow) => format!("the slot of the workflow {workflow} is moving to another node"),
        },
        "nothing of it is dispatched, claimed, reported or advanced until the move ends; if it is stuck, run `redis-cli --cluster fix`";

    /// No task is listed, or tasks of live workers are not.
    TasksNotListed { tasks: Vec<String>, has_workers: bool } => match (has_workers, &tasks[..]) {
            (false, _) => "there is no task under this prefix".to_owned(),
            (true, []) => "there are live workers, but no task is listed".to_owned(),
            (true, tasks) => format!("live workers have tasks that are not listed: {}", listed(tasks)),
        },
        match has_workers {
            false => "check --prefix and --redis; or the data is gone, or nothing was dispatched yet",
            true => "workers and dispatches list their tasks again within a minute; if they do not, or jobs are gone, the server lost data",
        };
    /// An entry of the list of tasks is not a valid name.
    InvalidTaskName { error: String } => format!("it is not a valid task name: {error}"),
        format!("something else wrote it to the key `tasks` under the prefix: `redis-cli ZREM KEY {}` removes it", printed(task));
    /// A task, a workflow, the presence of a worker, or the list of workflows cannot be read.
    Unreadable { what: String, error: String, is_denied: bool } => format!("the {what} cannot be read: {error}"),
        match (is_denied, task.is_empty()) {
            (true, _) => "your own user lacks a right (see docs/acl.md); nothing else is known to be wrong".to_owned(),
            (false, true) => "nothing of it advances until it can be read; rename or delete a key of another type".to_owned(),
            (false, false) => format!("`heartline audit -t {task}` checks its data"),
        };
    /// Keys of the task, of a workflow or of the list of workflows hold values of another type.
    ForeignKeys { keys: Vec<KeyConflict>, workflow: Option<String> } => match workflow {
            None => format!("calls that need these keys fail: {}", named(keys)),
            Some(workflow) => format!("the {workflow} cannot advance: {}", named(keys)),
        },
        foreign_keys_hint(task, keys);
    /// The server lost the data of these tasks, or their options and counters only.
    DataLost { tasks: Vec<String>, only_options: bool, ago_ms: u64 } => match only_options {
            true => format!("its options and counters were lost {} ago, and its workers declared them again", time(*ago_ms)),
            false => format!("the server lost its data {} ago: the jobs of {} are gone", time(*ago_ms), name_or_list(tasks)),
        },
        match only_options {
            true => "the key `…:meta` was deleted, or the server lost it. If the task was paused, pause it again",
            false => "dispatch the unfinished jobs again, by your own records, and pause what was paused. `heartline doctor` checks whether the \
                      server keeps its data",
        };
    /// Jobs are in no list or set. With `outcome`, it is one job, which had ended that way.
    JobsWithoutPlace { jobs: u64, outcome: Option<&'static str> } => match outcome {
            None => format!("{} in no list or set, where no worker finds them", many(*jobs, "job")),
            Some(outcome) => format!("it has {outcome}, but is in no list or set: it does not wait"),
        },
        format!("`heartline audit -t {task}` names such jobs, `heartline repair -t {task}` asks before they run again. A job that a worker held \
                 may still run for a third of the stall interval: repair after that");
    /// Jobs lost their payload. `waiting` is how many of those that were read are waiting. Or a claim removed them.
    PayloadsLost { jobs: u64, waiting: u64, first: Option<String>, removed_ago_ms: Option<u64> } =>
        payloads_lost(*jobs, *waiting, first.as_deref(), *removed_ago_ms),
        format!("the payloads were deleted or lost. A claim removes such a job: `heartline events -t {task}` names it (lost_payload=true); dispatch \
                 it again. Jobs of workflows are sent again automatically");

    /// No worker claims jobs of the task, or all workers are stopping or quiet. `quiet` is a quiet one, and `last` the last worker that had
    /// the task. `gone_ms` is how long ago one was seen.
    NoWorker { waiting: u64, delayed: u64, finalizing: u64, are_stopping: bool, quiet: Option<WorkerId>, last: Option<WorkerId>, gone_ms: Option<u64> } =>
        no_worker(*waiting, *delayed, *finalizing, *are_stopping, quiet.as_ref(), *gone_ms),
        match quiet.as_ref().or(last.as_ref()) {
            Some(worker) if quiet.is_some() =>
                format!("`heartline workers resume {worker}` lets it claim jobs again; or start another worker that has the task"),
            Some(worker) => format!("start a worker that has the task; the one that started last was {worker}"),
            None => "start a worker that has the task, or correct the name".to_owned(),
        };
    /// Jobs wait in `stuck` of the partitions and none is claimed, although slots are free.
    JobsNotClaimed { waiting: u64, stuck: u64, partitions: u64, waited_ms: u64 } => format!(
            "{} waiting in {stuck} of {}, the next one for {}; slots are free, and none is claimed",
            many(*waiting, "job"), many(*partitions, "partition"), time(*waited_ms)
        ),
        format!("the log of its workers says why; `heartline audit -t {task}` checks whether a key is damaged");
    /// The task is paused, or some of its partitions are.
    Paused { by: String, reason: String, waiting: u64, paused_partitions: u64, partitions: u64, ago_ms: u64 } => {
            let part = if paused_partitions < partitions { format!("{paused_partitions} of {partitions} partitions are ") } else { String::new() };
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            let waiting = if *waiting > 0 { format!(", {} waiting", many(*waiting, "job")) } else { String::new() };
            format!("{part}paused by {by} {} ago{reason}{waiting}", time(*ago_ms))
        },
        match paused_partitions < partitions {
            true => format!("a partition did not answer then: `heartline task pause {task}` pauses all, `heartline task resume {task}` resumes all"),
            false => format!("`heartline task resume {task}` lets its jobs start"),
        };
    /// All slots are taken. `slots` is `None` if the limit is `max_jobs` of the workers. No job was claimed for `idle_ms`.
    SlotsTaken { waiting: u64, slots: Option<u64>, waited_ms: Option<u64>, idle_ms: Option<u64>, oldest_run_ms: Option<u64> } =>
        slots_taken(*waiting, *slots, *waited_ms, *idle_ms, *oldest_run_ms),
        format!("`heartline jobs list -t {task} -s running` lists what runs, `heartline jobs cancel -t {task} ID` stops a run; or add workers");
    /// Jobs wait and no slot is free. Runs that lost their jobs hold some or all of the slots.
    SlotsHeldByLostRuns { waiting: u64, slots: u64, workers: Vec<LostSlots> } => slots_held_by_lost_runs(*waiting, *slots, workers),
        "restart those workers: their handlers block a thread, and nothing else ends that. A handler must await, or block in spawn_blocking and \
         check ctx.heartbeat() there";

    /// Jobs fail. `in_a_row` counts the jobs that failed since a run completed. 0 if others completed in between.
    JobsFail { failed_lately: u64, completed_lately: u64, in_a_row: u64, kept: u64, last_failed_ago_ms: Option<u64> } =>
        jobs_fail(*failed_lately, *completed_lately, *in_a_row, *last_failed_ago_ms),
        jobs_fail_hint(task, *failed_lately, *kept);
    /// Of the `read` delayed and waiting jobs, `retries` have had a failed run.
    JobsRetry { retries: u64, read: u64, code: String, message: String, last_failed_ago_ms: Option<u64>, last_completed_ago_ms: Option<u64> } =>
        format!(
            "{retries} of {} that were read run again after a failed run, the first with {code}: {}; last failure {}, last completion {}",
            many(*read, "job"), brief(message, 80), when(*last_failed_ago_ms), when(*last_completed_ago_ms)
        ),
        format!("`heartline jobs list -t {task} -s delayed --oldest-first` lists the next runs; `heartline task pause {task}` holds them back; \
                 `heartline jobs retry -t {task} --state failed --code {}` runs those again that have failed by then", quoted(code));
    /// No worker can decode the payload of about this many delayed jobs. Their producer is newer.
    NewerProducer { jobs: u64 } =>
        format!("{} delayed, because no worker can decode the payload: the producer is newer than the workers", many(*jobs, "job")),
        format!("deploy the workers. Until then each job is retried for up to 24 h (`undecodable_for`), which uses no attempt; \
                 `heartline jobs list -t {task} -s delayed --code codec` lists them");
    /// Jobs snooze again and again while none completes. Or a worker of `heartline work` cannot start its program.
    JobsSnooze { read: u64, snoozing: u64, first: String, program_error: Option<String> } => match program_error {
            Some(error) => format!("a worker cannot start its program: {error}"),
            None => format!("{snoozing} of the next {read} delayed jobs snooze again and again, and none completed in the last 5 minutes"),
        },
        format!("`heartline jobs show -t {task} {}` and the log of its worker say what they wait for", quoted(first));
    /// Runs break off because workers stop or die, while none completes: `rounds` times for each job that can run.
    RunsBreakOff { runs: u64, rounds: u64, has_completed: bool, last_ago_ms: u64 } => format!(
            "{} broke off {}, because workers stopped or died: {rounds} for each job that can run, the last {} ago",
            many(*runs, "run"), if *has_completed { "since one completed" } else { "and none completed" }, time(*last_ago_ms)
        ),
        format!("`heartline stalls list -t {task}` and `heartline workers --all` show when. Give workers a longer grace period than a job takes, or \
                 use checkpoints");
    /// Hooks failed for good.
    HooksFail { hooks: u64, last_ago_ms: u64 } =>
        format!("{} in a row failed for good, the last {} ago: their work is not done", many(*hooks, "hook"), time(*last_ago_ms)),
        format!("`heartline events -t {task}` names the jobs and the reasons (task:hook_failed); these hooks are not retried");
    /// The next tick of the schedules of the task is late. This many live workers should have fired it.
    SchedulesLate { late_ms: u64, workers: u64 } => match workers {
            0 => format!("no live worker fires its schedules, and the next tick is {} late", time(*late_ms)),
            workers => format!("the next tick of its schedules is {} late, with {}", time(*late_ms), many(*workers, "live worker")),
        },
        match workers {
            0 => format!("start a worker that has the task, built with the feature `schedules`; `heartline schedules list -t {task}` shows what \
                          is late"),
            _ => format!("the log of its workers says why; `heartline schedules list -t {task}` shows what is late"),
        };
    /// Schedules that cannot be read, so that no worker fires them. The fault is that of the first.
    SchedulesUnreadable { schedules: u64, first: String, fault: String } =>
        format!("{} cannot be read, and no worker fires it: {}", schedules_named(first, *schedules), brief(fault, 160)),
        format!("a newer version wrote it, or it is damaged: update the workers, or put it again; `heartline schedules remove -t {task} {}` \
                 removes it", quoted(first));
    /// Schedules that overlapped at more than half of their last ticks. The first did at `overlapped` of `ticks`.
    SchedulesOverlap { schedules: u64, first: String, overlapped: u64, ticks: u64 } => format!(
            "{} overlapped more than half the time, {first} at {overlapped} of its last {ticks} ticks", schedules_named(first, *schedules)
        ),
        format!("its jobs take longer than the time between two ticks: `heartline schedules show -t {task} {}` lists the last ones. Make that \
                 time longer, or set Overlap::Allow if two jobs may run at once", quoted(first));
    /// Schedules that a person or program paused. The first is paused by `by`.
    SchedulesPaused { schedules: u64, first: String, by: String, reason: String, ago_ms: u64 } => schedules_paused(
            first, *schedules, by, reason, *ago_ms
        ),
        format!("`heartline schedules resume -t {task} {}` ends the pause. Ticks that come meanwhile create no job", quoted(first));
    /// Schedules for which the code of live workers differs. That of the first: `by` wrote it, and `other` has another one.
    SchedulesDiffer { schedules: u64, first: String, by: String, other: String } => format!(
            "{} differs between workers: {other} has another rule or input than {by}, which started last", schedules_named(first, *schedules)
        ),
        format!("the one of the worker that started last is in force: deploy one version of the task, or give the schedules different names; \
                 `heartline schedules show -t {task} {}` prints it", quoted(first));
    /// The holders of only `read` of the `held` jobs were read.
    HoldersNotRead { read: u64, held: u64 } => format!("the holders of {read} of {held} held jobs were read"),
        "lost workers may hold the others: `heartline workers --all` lists lost workers";

    /// A worker that is not live, and the jobs that it and `more` others hold. `rescuer` recovers them.
    LostWorker { jobs: u64, is_exact: bool, holder: LostHolder, more: u64, rescuer: Option<Rescuer>, within_ms: u64 } =>
        lost_worker(*jobs, *is_exact, holder, *more),
        match rescuer {
            None => "its jobs are elsewhere now; if it is frozen, its old handler may continue when it wakes".to_owned(),
            Some(rescuer) => holder.hint(task, *more, *rescuer, *within_ms),
        };
    /// A worker claims jobs, but cannot update its presence.
    MuteWorker { jobs: u64, worker: WorkerId, claimed_ago_ms: u64, seen_ago_ms: u64 } => format!(
            "{} held by {worker}, which runs but cannot update its presence: it claimed a job {} ago, and was seen {} ago",
            many(*jobs, "job"), time(*claimed_ago_ms), time(*seen_ago_ms)
        ),
        "it is most likely ALIVE: its jobs would run twice if they were recovered. Its user may lack a right (docs/acl.md), or its key \
         `worker:ID` has another type; its log says which";
    /// No worker has swept the held jobs for several intervals.
    SweepOverdue { ago_ms: u64 } => format!("jobs are held, and no worker has swept them for {}", time(*ago_ms)),
        format!("`heartline stalls outlook -t {task}` says why");
    /// A held job got no heartbeat since the last snapshot, although its worker lives.
    JobSilent { worker: WorkerId } => format!("it got no heartbeat since the last snapshot, although {worker} updates its presence"),
        format!("`heartline stalls outlook -t {task}` says what comes next");
    /// Silent jobs are parked for a person.
    JobsParked { jobs: u64 } => format!("{} parked for a person, as the options say", many(*jobs, "silent job")),
        format!("`heartline recover silent -t {task}` lists them; then `recover running` or `recover fail`");
    /// Keys with waiting jobs are paused, the first for this long.
    KeysPaused { paused: u64, ago_ms: u64 } => format!(
            "a pause of {} keeps jobs waiting, the first for {}", many(*paused, "key"), time(*ago_ms)
        ),
        format!("`heartline lanes list {task} --full` shows them, and `heartline lanes resume {task} KEY` ends a pause");
    /// A key has been full or paused for so long that its jobs may hang.
    KeyFull { full: u64, ago_ms: u64 } => format!(
            "{} full or paused, the first for {}", many(*full, "key"), time(*ago_ms)
        ),
        format!("`heartline lanes list {task} --full` shows them, and `heartline lanes show {task} KEY` who holds its jobs");
    /// Jobs held by workers that are not live fail when they are recovered. With `by_person`, only a person recovers them.
    JobsWillFail { jobs: u64, first: Option<String>, by_person: bool, has_live_workers: bool } => format!(
            "{} held by workers that are not live WILL FAIL {}",
            many(*jobs, "job"), if *by_person { "with `recover worker`" } else { "when recovered" }
        ),
        jobs_will_fail_hint(task, first.as_deref(), *by_person, *has_live_workers);
    /// Jobs that were held when two or more workers died, and have not ended. `others` have ended. `top` is the most suspicious job.
    PoisonSuspects { jobs: Vec<String>, others: u64, top: Option<String>, always_alone: bool, is_paused: bool, has_workers: bool } =>
        format!("{} held when two or more workers died: {}", many(jobs.len() as u64, "job"), first_of(jobs, 3)),
        format!(
            "{}: see `heartline stalls suspects -t {task}`; {}",
            match (is_paused, has_workers) {
                (true, _) => "the task is paused, so none of them starts",
                (false, true) => "a job may take its process down",
                (false, false) => "before you start another worker",
            },
            suspects_hint(task, jobs, *others, top.as_deref(), *always_alone, *is_paused)
        );
    /// Jobs that failed after they were held when two or more workers died.
    FailedSuspects { jobs: Vec<String> } => format!(
            "{} failed after being held when two or more workers died: {}", many(jobs.len() as u64, "job"), first_of(jobs, 3)
        ),
        format!("a retry may take workers down again: see `heartline stalls suspects -t {task}`. Retry one at a time, on a worker with one slot");
    /// Jobs were recovered from workers in the last minutes.
    JobsRecovered { jobs: u64, is_exact: bool, workers: Vec<WorkerId>, failed: u64, cancelled: u64, last_ago_ms: u64 } =>
        jobs_recovered(*jobs, *is_exact, workers, *failed, *cancelled, *last_ago_ms),
        format!("`heartline stalls list -t {task}` explains each");

    /// The server denies a worker calls or sweeps of a task, or calls of a workflow.
    WorkerDenied { worker: WorkerId, of_task: Option<String>, is_sweep: bool, answer: String, error: Option<ServerErrorKind> } =>
        worker_denied(worker, of_task.as_deref(), *is_sweep, answer),
        match error {
            Some(ServerErrorKind::Auth) => {
                "create the user of the worker with its password on that server: each node and replica has its own users. The worker retries within a minute"
            }
            _ => "grant its user the right (docs/acl.md), or remove a key of another type: its log names it. The worker retries within a minute; \
                  audit and repair only after that",
        };
    /// A person asked a worker to claim no more jobs.
    WorkerQuiet { worker: WorkerId, by: String, ago_ms: u64 } => format!("{worker} claims no jobs: {} made it quiet {} ago", quoted(by), time(*ago_ms)),
        "it finishes the jobs that it runs; `heartline workers resume WORKER` lets it claim jobs again";
    /// Handlers block the runtime of a worker.
    RuntimeBlocked { worker: WorkerId, blocked_ms: u64 } => format!("handlers have blocked the runtime of {worker} for {}", time(*blocked_ms)),
        "a handler computes or waits without `await`: use spawn_blocking for that";
    /// Heartbeats of a worker take over half of their period, so it claims fewer jobs. Over a whole period, it claims none.
    HeartbeatsSlow { worker: WorkerId, of_task: String, held: u64, took_ms: u64, period_ms: u64 } => format!(
            "a heartbeat of {worker} for {} of {of_task} takes {}, and its period is {}: the worker claims {}",
            many(*held, "job"), time(*took_ms), time(*period_ms), if took_ms > period_ms { "none" } else { "fewer jobs" }
        ),
        "use a longer StallOptions::interval, or a lower concurrency and more workers; check the load of the server and the round trip \
         (`heartline doctor`)";

    /// No workflow is listed, although this task has jobs of some.
    WorkflowListLost { of_task: String } => format!("no workflow is listed, and the task {of_task} has jobs of some: the list is lost"),
        "running instances do not advance. Workers list the workflows that they worked within a minute; `heartline flows recover WORKFLOW` lists \
         any other, and advances it";
    /// No worker advances running instances, makes steps, or reports ended jobs to the workflow.
    WorkflowStalled { workflow: String, running: u64, steps: u64, tasks: Vec<String>, waited_ms: Option<u64> } =>
        workflow_stalled(workflow, *running, *steps, *waited_ms),
        workflow_stalled_hint(workflow, tasks);
    /// Instances that lost their state (`lost`), whose data could not be read (`corrupt` times), or that are paused.
    InstancesStopped { workflow: String, lost: u64, paused: u64, corrupt: u64, corrupt_ago_ms: Option<u64> } =>
        instances_stopped(workflow, *lost, *paused, *corrupt, *corrupt_ago_ms),
        instances_stopped_hint(workflow, *lost);
    /// The newest failed instance of a workflow ended in the last 24 hours. `failed` are kept.
    InstancesFailed { workflow: String, failed: u64, last_ago_ms: u64 } => format!(
            "the workflow {workflow}: an instance failed {} ago, and {} kept as failed",
            time(*last_ago_ms), if *failed == 1 { "1 instance is".to_owned() } else { format!("{failed} instances are") }
        ),
        format!("`heartline flows list {0} --state failed` lists them, `flows show` explains one, `flows retry` runs its incomplete nodes \
                 again. The note ends a day after the last failure, or when they are retried", quoted(workflow));
}
