//! Metrics of the whole fleet, read from Redis in one place: metrics of ten worker processes would count one queue ten times.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use heartline::inspect::describe::STATES;
use heartline::inspect::text::shown;
use heartline::{FleetReport, ServerReport, TaskReport, WorkerReport, WorkerState, WorkflowReport, WorkflowState};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::failure::Failure;

/// Whether Redis answered, if only with an error.
pub(crate) struct IsReached(pub(crate) bool);

type Level = Gauge<f64, AtomicU64>;

/// A level by label.
type Levels = Family<Labels, Level>;

/// A count by label.
type Counts = Family<Labels, Counter>;

/// The labels of a metric: names and values.
type Labels = Vec<(&'static str, String)>;

/// The metrics as OpenMetrics text; `age` is the age of the report. Without a report only `up` and `readable` are known.
pub(crate) fn text(fleet: Result<&FleetReport, IsReached>, age: Duration) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix("heartline");
    let (up, readable) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    up.set(i64::from(fleet.as_ref().map_or_else(|reached| reached.0, |_| true)));
    readable.set(i64::from(fleet.is_ok()));
    registry.register("up", "Whether Redis was reached by this scrape", up);
    registry.register("readable", "Whether Redis allowed this scrape to read Heartline's data", readable);
    if let Ok(fleet) = fleet {
        let seen = levels();
        set(&seen, Labels::new(), age.as_secs_f64());
        registry.register_with_unit("look_age", "Age of the other metrics in this response", Unit::Seconds, seen);
        let lists = levels();
        let read = [
            ("tasks", fleet.away.tasks.is_none()),
            ("workers", fleet.away.workers.is_none()),
            ("workflows", fleet.checks.lists_workflows),
        ];
        for (list, is_read) in read {
            set(&lists, vec![("list", list.to_owned())], f64::from(u8::from(is_read)));
        }
        registry.register(
            "list_readable",
            "Whether the list of tasks, workers or workflows exists and can be read; if 0, its metrics are missing",
            lists,
        );
        of_tasks(&mut registry, fleet);
        of_workflows(&mut registry, &fleet.checks.workflows);
        of_workers(&mut registry, fleet);
        of_servers(&mut registry, &fleet.checks.servers, age);
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Failure::Failed(format!("the metrics cannot be encoded: {e}")))?;
    Ok(text)
}

/// Converts to the text format of Prometheus, which collectors read from files: `# HELP` and `# TYPE` of a counter end with `_total`, and
/// there is no `# UNIT` and no `# EOF`.
pub(crate) fn as_file(open_metrics: &str) -> String {
    let counter = |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
    let counters: HashSet<String> = open_metrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", word, name, rest] if counters.contains(name) => text += &format!("# {word} {name}_total {rest}\n"),
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

fn of_tasks(registry: &mut Registry, FleetReport { tasks, workers, checks, .. }: &FleetReport) {
    let metrics = TaskMetrics::default();
    for task in tasks {
        let is_readable = task.fault.is_none() && !checks.damaged.contains(&task.task);
        set(&metrics.readable, of_task(task), f64::from(u8::from(is_readable)));
        if task.fault.is_none() {
            metrics.count(task);
            metrics.look(task, workers);
        }
    }
    metrics.register(registry);
}

/// The label of a task.
fn of_task(task: &TaskReport) -> Labels {
    vec![("task", named(&task.task))]
}

/// The metrics of all tasks.
#[derive(Default)]
struct TaskMetrics {
    readable: Levels,
    jobs: Levels,
    dispatched: Counts,
    ended: Counts,
    failed: Counts,
    hooks_failed: Counts,
    failed_in_a_row: Levels,
    broken_off: Levels,
    stalled: Counts,
    due: Levels,
    unplaced: Levels,
    data_lost_age: Levels,
    oldest_waiting: Levels,
    paused: Levels,
    slots: Levels,
    slots_lost: Levels,
    epoch_age: Levels,
    interval: Levels,
    findings: Levels,
    audit_age: Levels,
    silent: Levels,
}

impl TaskMetrics {
    /// Counts the jobs of a task.
    fn count(&self, task: &TaskReport) {
        let label = || of_task(task);
        for state in STATES {
            let labels = vec![("task", named(&task.task)), ("state", state.to_string())];
            set(&self.jobs, labels, task.counts.count(state) as f64);
        }
        self.dispatched.get_or_create(&label()).inc_by(task.dispatched);
        self.ended.get_or_create(&label()).inc_by(task.ended);
        self.failed.get_or_create(&label()).inc_by(task.failed);
        self.stalled.get_or_create(&label()).inc_by(task.stalled);
        self.hooks_failed.get_or_create(&label()).inc_by(task.hooks_failed);
        set(&self.due, label(), task.due as f64);
        set(&self.unplaced, label(), task.unplaced as f64);
        set(&self.failed_in_a_row, label(), task.failed_in_a_row() as f64);
        set(&self.broken_off, label(), task.broken_off_rounds() as f64);
    }

    /// Takes the other values of a task: ages, slots, stall detection and the last audit.
    fn look(&self, task: &TaskReport, workers: &[WorkerReport]) {
        let label = || of_task(task);
        let lost_age = task.data_lost_at.and_then(|at| task.as_of.duration_since(at).ok());
        if let Some(age) = lost_age {
            set(&self.data_lost_age, label(), age.as_secs_f64());
        }
        set(&self.oldest_waiting, label(), task.next_waiting_age.unwrap_or_default().as_secs_f64());
        if let Some(audit) = &task.audited {
            let age = task.as_of.duration_since(audit.at).unwrap_or_default();
            set(&self.audit_age, label(), age.as_secs_f64());
            for (kind, count) in &audit.found {
                let labels = vec![("task", named(&task.task)), ("kind", kind.to_string())];
                set(&self.findings, labels, *count as f64);
            }
        }
        set(&self.paused, label(), f64::from(u8::from(task.paused.is_some())));
        if task.knows_workers {
            set(&self.slots, label(), task.slots as f64);
            set(&self.slots_lost, label(), lost_runs(&task.task, workers) as f64);
        }
        // The partition with the oldest epoch counts. A task has no epoch before its first snapshot.
        let ages = task.parts.iter().filter_map(|part| task.as_of.duration_since(part.epoch_at?).ok());
        if let Some(age) = ages.max() {
            set(&self.epoch_age, label(), age.as_secs_f64());
        }
        if let Some(time) = task.parts.iter().filter_map(|part| part.interval).max() {
            set(&self.interval, label(), time.as_secs_f64());
        }
        set(&self.silent, label(), task.parts.iter().map(|part| part.candidates).sum::<u64>() as f64);
    }

    fn register(self, registry: &mut Registry) {
        registry.register(
            "task_readable",
            "Whether the keys of the task can be read; 0 if a key has a wrong type or the cluster node is unreachable",
            self.readable,
        );
        registry.register("jobs", "Jobs by task and state", self.jobs);
        registry.register("task_dispatched", "Jobs dispatched, by task", self.dispatched);
        registry.register("task_ended", "Jobs completed, failed or cancelled, by task", self.ended);
        registry.register("task_failed", "Jobs failed, by task", self.failed);
        registry.register(
            "task_hooks_failed",
            "Hooks that failed after their last attempt, by task",
            self.hooks_failed,
        );
        registry.register(
            "task_failed_in_a_row",
            "Jobs that began to fail since the last completion or snooze; 0 if no failure of the last day is kept",
            self.failed_in_a_row,
        );
        registry.register(
            "task_broken_off_again",
            "Interrupted runs per runnable job since the last completion, from workers that stopped or died",
            self.broken_off,
        );
        registry.register("task_stalls", "Stalls: jobs whose worker fell silent or died, by task", self.stalled);
        registry.register("jobs_due", "Delayed jobs that are due, by task", self.due);
        registry.register(
            "jobs_unplaced",
            "Jobs missing from every list and set: a key was deleted or lost",
            self.unplaced,
        );
        registry.register_with_unit(
            "data_lost_age",
            "Time since the server was found to have lost the data of the task",
            Unit::Seconds,
            self.data_lost_age,
        );
        registry.register_with_unit(
            "oldest_waiting",
            "Age of the next waiting or due job",
            Unit::Seconds,
            self.oldest_waiting,
        );
        registry.register("task_paused", "Whether the task is paused", self.paused);
        registry.register("task_slots", "Job slots of all live workers, by task", self.slots);
        registry.register("task_slots_lost", "Slots occupied by runs that lost their job, by task", self.slots_lost);
        registry.register_with_unit(
            "epoch_age",
            "Time since the last snapshot of stall detection",
            Unit::Seconds,
            self.epoch_age,
        );
        registry.register_with_unit("interval", "The stall interval in force", Unit::Seconds, self.interval);
        registry.register(
            "audit_findings",
            "Inconsistencies found by the last recorded audit, by task and kind",
            self.findings,
        );
        registry.register_with_unit("audit_age", "Time since the last recorded audit", Unit::Seconds, self.audit_age);
        registry.register("silent_jobs", "Held jobs without a heartbeat since the last snapshot", self.silent);
    }
}

/// How many runs of the task on live workers occupy a slot although they lost their job.
fn lost_runs(task: &str, workers: &[WorkerReport]) -> u64 {
    let live = workers.iter().filter(|worker| worker.state == WorkerState::Live).flat_map(|worker| &worker.tasks);
    live.filter(|its| its.task == task).map(|its| its.lost_runs).sum()
}

fn of_workflows(registry: &mut Registry, flows: &[WorkflowReport]) {
    let (instances, oldest, looked, unplaced) = (levels(), levels(), levels(), levels());
    let corrupt = Counts::default();
    let readable = levels();
    for flow in flows {
        let label = || vec![("workflow", named(&flow.workflow))];
        set(&readable, label(), f64::from(u8::from(flow.fault.is_none())));
        if flow.fault.is_some() {
            continue;
        }
        for (state, count) in [
            (WorkflowState::Running, flow.running),
            (WorkflowState::Paused, flow.paused),
            (WorkflowState::Completed, flow.completed),
            (WorkflowState::Failed, flow.failed),
            (WorkflowState::Cancelled, flow.cancelled),
        ] {
            set(&instances, vec![("workflow", named(&flow.workflow)), ("state", state.to_string())], count as f64);
        }
        set(&unplaced, label(), flow.unplaced as f64);
        corrupt.get_or_create(&label()).inc_by(flow.corrupt);
        set(&oldest, label(), seconds(flow.oldest_step.unwrap_or_default()));
        if let Some(at) = flow.looked_at {
            set(&looked, label(), seconds(flow.as_of.duration_since(at).unwrap_or_default()));
        }
    }
    registry.register("workflow_instances", "Workflow instances by workflow and state", instances);
    registry.register("workflow_unplaced", "Lower bound of the instances whose state the server lost", unplaced);
    registry.register("workflow_readable", "Whether the keys of the workflow can be read", readable);
    registry.register("workflow_corrupt", "Unreadable values found in the data of a workflow", corrupt);
    let oldest_help = "Age of the oldest pending step of a workflow: a node to dispatch or an end to process";
    registry.register_with_unit("workflow_oldest_step", oldest_help, Unit::Seconds, oldest);
    registry.register_with_unit(
        "workflow_look_age",
        "Time since a worker last checked the workflow for pending steps",
        Unit::Seconds,
        looked,
    );
}

fn of_workers(registry: &mut Registry, fleet: &FleetReport) {
    let (counts, known) = (levels(), levels());
    for task in &fleet.tasks {
        set(&known, vec![("task", named(&task.task))], f64::from(u8::from(task.knows_workers)));
    }
    registry.register(
        "task_workers_known",
        "Whether the workers of the task are known; 0 if the cluster node that lists them is unreachable",
        known,
    );
    let states = [WorkerState::Live, WorkerState::Stopping, WorkerState::Silent];
    // A count of 0 would be wrong if the workers are unknown.
    for task in fleet.tasks.iter().filter(|task| task.knows_workers) {
        for state in states {
            let works =
                |worker: &&WorkerReport| worker.state == state && worker.tasks.iter().any(|its| its.task == task.task);
            let labels = vec![("task", named(&task.task)), ("state", state.to_string())];
            set(&counts, labels, fleet.workers.iter().filter(works).count() as f64);
        }
    }
    registry.register("workers", "Workers by task and state", counts);
    let blocked = Level::default();
    let is_blocked = |worker: &&WorkerReport| worker.state.is_live() && worker.runtime_blocked.is_some();
    blocked.set(fleet.workers.iter().filter(is_blocked).count() as f64);
    registry.register("workers_blocked", "Workers whose runtime is blocked by handlers", blocked);
    let denied = Level::default();
    denied.set(fleet.workers.iter().filter(|worker| worker.was_denied(fleet.as_of)).count() as f64);
    registry.register("workers_denied", "Workers that the server denies a command or key", denied);
}

/// The server, or all primaries of a cluster, as seen `age` ago: the sum of the memory, the maximum of the times.
fn of_servers(registry: &mut Registry, servers: &[ServerReport], age: Duration) {
    let known = || servers.iter().filter(|server| server.fault.is_none());
    let then = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let skew = known().map(|server| server.clock.duration_since(then).unwrap_or_else(|e| e.duration()));
    let skew = skew.max().unwrap_or_default();
    let round_trip = known().map(|server| server.round_trip).max().unwrap_or_default();
    let sum = |of: fn(&ServerReport) -> u64| known().map(of).sum::<u64>() as f64;
    let (used, limit) = (sum(|server| server.used_memory), sum(|server| server.max_memory));
    for (name, help, count) in [
        ("redis_servers", "Redis servers: 1, or the primaries of a cluster", servers.len()),
        ("redis_servers_up", "Redis servers that answer", known().count()),
        (
            "redis_servers_refusing_writes",
            "Redis servers that answer but refuse writes",
            known().filter(|server| server.write_refusal.is_some()).count(),
        ),
    ] {
        let level = Level::default();
        level.set(count as f64);
        registry.register(name, help, level);
    }
    let mut register = |name: &str, help: &str, unit: Unit, value: f64| {
        let level = Level::default();
        level.set(value);
        registry.register_with_unit(name, help, unit, level);
    };
    register("redis_memory", "Memory used by Redis", Unit::Bytes, used);
    register("redis_memory_limit", "Memory limit of Redis (maxmemory); 0 if none", Unit::Bytes, limit);
    register("redis_round_trip", "Median round trip of a short call to Redis", Unit::Seconds, seconds(round_trip));
    register(
        "redis_clock_skew",
        "Difference between the clocks of Redis and of this process",
        Unit::Seconds,
        seconds(skew),
    );
}

/// The name of a task as a label value. The encoder does not escape, and the lists in Redis can contain any bytes.
fn named(task: &str) -> String {
    let lines = task.split('\n').map(|line| shown(line).replace('\\', r"\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join(r"\n")
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn levels() -> Levels {
    Family::default()
}

fn set(family: &Levels, labels: Labels, value: f64) {
    family.get_or_create(&labels).set(value);
}
