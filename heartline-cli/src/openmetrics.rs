//! What the whole fleet does, as metrics: read from Redis at one point, so that ten processes do not count one queue ten times.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use heartline::inspect::describe::STATES;
use heartline::inspect::text::shown;
use heartline::{FleetReport, ServerReport, WorkerReport, WorkerState, WorkflowReport, WorkflowState};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::failure::Failure;

/// Whether Redis answered to who looked, if only to say no.
pub(crate) struct IsReached(pub(crate) bool);

type Level = Gauge<f64, AtomicU64>;

/// The labels of a metric: names and what they are.
type Labels = Vec<(&'static str, String)>;

/// The metrics as OpenMetrics text, of what was seen so long ago. Without a fleet nothing is known but whether Redis was reached.
pub(crate) fn text(fleet: Result<&FleetReport, IsReached>, age: Duration) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix("heartline");
    let (up, readable) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    up.set(i64::from(fleet.as_ref().map_or_else(|reached| reached.0, |_| true)));
    readable.set(i64::from(fleet.is_ok()));
    registry.register("up", "Whether Redis was reached by this scrape", up);
    registry.register("readable", "Whether Redis let this scrape read what stands there", readable);
    if let Ok(fleet) = fleet {
        let seen = levels();
        set(&seen, Labels::new(), age.as_secs_f64());
        registry.register_with_unit(
            "look_age",
            "How old the other figures are: over a slow line a look takes long",
            Unit::Seconds,
            seen,
        );
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
            "Whether the lists of tasks, workers and workflows can be read, and are there; 0: nothing is told of them",
            lists,
        );
        of_tasks(&mut registry, fleet);
        of_workflows(&mut registry, &fleet.checks.workflows);
        of_workers(&mut registry, fleet);
        of_servers(&mut registry, &fleet.checks.servers, age);
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Failure::Failed(format!("the metrics cannot be written: {e}")))?;
    Ok(text)
}

/// The same in the text format of Prometheus, which collectors read from files: it describes a counter by its whole name, and knows no units
/// and no end.
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
    let jobs = levels();
    let counters = Family::<Labels, Counter>::default;
    let (dispatched, ended, failed, stalled) = (counters(), counters(), counters(), counters());
    let (oldest, paused, slots, readable) = (levels(), levels(), levels(), levels());
    let (epoch_age, interval, silent) = (levels(), levels(), levels());
    let (findings, audit_age, due, lost) = (levels(), levels(), levels(), levels());
    let (nowhere, row, rounds, hooks, lost_slots) = (levels(), levels(), levels(), counters(), levels());
    for task in tasks {
        let label = || vec![("task", named(&task.task))];
        let is_damaged = checks.damaged.contains(&task.task);
        set(&readable, label(), f64::from(u8::from(task.fault.is_none() && !is_damaged)));
        if task.fault.is_some() {
            continue;
        }
        for state in STATES {
            let labels = vec![("task", named(&task.task)), ("state", state.to_string())];
            set(&jobs, labels, task.counts.of_state(state) as f64);
        }
        dispatched.get_or_create(&label()).inc_by(task.dispatched);
        ended.get_or_create(&label()).inc_by(task.ended);
        failed.get_or_create(&label()).inc_by(task.failed);
        stalled.get_or_create(&label()).inc_by(task.stalled);
        hooks.get_or_create(&label()).inc_by(task.hooks_failed);
        set(&due, label(), task.due as f64);
        set(&nowhere, label(), task.nowhere as f64);
        set(&row, label(), task.failed_in_a_row() as f64);
        set(&rounds, label(), task.broken_off_rounds() as f64);
        let lost_age = task.data_lost_at.and_then(|at| task.as_of.duration_since(at).ok());
        if let Some(age) = lost_age {
            set(&lost, label(), age.as_secs_f64());
        }
        set(&oldest, label(), task.next_waiting_age.unwrap_or_default().as_secs_f64());
        if let Some(audit) = &task.audited {
            let age = task.as_of.duration_since(audit.at).unwrap_or_default();
            set(&audit_age, label(), age.as_secs_f64());
            for (kind, count) in &audit.found {
                let labels = vec![("task", named(&task.task)), ("kind", kind.to_string())];
                set(&findings, labels, *count as f64);
            }
        }
        set(&paused, label(), f64::from(u8::from(task.paused.is_some())));
        if task.knows_workers {
            set(&slots, label(), task.slots as f64);
            set(&lost_slots, label(), lost_runs(&task.task, workers) as f64);
        }
        // Of several partitions the one is told that stands still for the longest. Before its first snapshot a task has no epoch.
        let ages = task.parts.iter().filter_map(|part| task.as_of.duration_since(part.epoch_at?).ok());
        if let Some(age) = ages.max() {
            set(&epoch_age, label(), age.as_secs_f64());
        }
        if let Some(time) = task.parts.iter().filter_map(|part| part.interval).max() {
            set(&interval, label(), time.as_secs_f64());
        }
        set(&silent, label(), task.parts.iter().map(|part| part.candidates).sum::<u64>() as f64);
    }
    registry.register(
        "task_readable",
        "Whether the keys of the task can be read; 0: something foreign is stored there, or its node of a cluster is away",
        readable,
    );
    registry.register("jobs", "Jobs by state", jobs);
    registry.register("task_dispatched", "Jobs dispatched since the task exists", dispatched);
    registry.register("task_ended", "Jobs completed, failed or cancelled since the task exists", ended);
    registry.register("task_failed", "Jobs that ended as failed since the task exists", failed);
    registry.register("task_hooks_failed", "Hooks that failed for good since the task exists", hooks);
    registry.register(
        "task_failed_in_a_row",
        "Jobs that began to fail since one completed or was snoozed, if any of what failed in the last day is left",
        row,
    );
    registry.register(
        "task_broken_off_again",
        "How often the jobs that can run broke off on average, as their workers stopped or died, since one completed",
        rounds,
    );
    registry.register("task_stalls", "Stalls since the task exists: jobs whose worker fell silent or died", stalled);
    registry.register("jobs_due", "Delayed jobs whose time has come", due);
    registry.register("jobs_nowhere", "Jobs that are in no place, by counting: a key was deleted, or lost", nowhere);
    registry.register_with_unit(
        "data_lost_age",
        "Since the server was found to have lost the data of the task",
        Unit::Seconds,
        lost,
    );
    registry.register_with_unit(
        "oldest_waiting",
        "How long the first job of the lists, or the first one that is due, has waited",
        Unit::Seconds,
        oldest,
    );
    registry.register("task_paused", "Whether the task is paused", paused);
    registry.register("task_slots", "Jobs that its live workers may hold together", slots);
    registry.register("task_slots_lost", "Slots that runs hold which lost their jobs", lost_slots);
    registry.register_with_unit("epoch_age", "Since the last snapshot of stall detection", Unit::Seconds, epoch_age);
    registry.register_with_unit("interval", "The stall interval in force", Unit::Seconds, interval);
    registry.register("audit_findings", "What the last audit found that was noted", findings);
    registry.register_with_unit("audit_age", "Since that audit", Unit::Seconds, audit_age);
    registry.register("silent_jobs", "Held jobs that were silent since the last snapshot", silent);
}

/// How many runs of the task, on live workers, hold a slot though they lost their jobs.
fn lost_runs(task: &str, workers: &[WorkerReport]) -> u64 {
    let live = workers.iter().filter(|worker| worker.state == WorkerState::Live).flat_map(|worker| &worker.tasks);
    live.filter(|its| its.task == task).map(|its| its.lost_runs).sum()
}

fn of_workflows(registry: &mut Registry, flows: &[WorkflowReport]) {
    let (instances, oldest, looked, nowhere) = (levels(), levels(), levels(), levels());
    let corrupt = Family::<Labels, Counter>::default();
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
        set(&nowhere, label(), flow.nowhere as f64);
        corrupt.get_or_create(&label()).inc_by(flow.corrupt);
        set(&oldest, label(), seconds(flow.oldest_step.unwrap_or_default()));
        if let Some(at) = flow.looked_at {
            set(&looked, label(), seconds(flow.as_of.duration_since(at).unwrap_or_default()));
        }
    }
    registry.register("workflow_instances", "Instances of a workflow by state", instances);
    registry.register("workflow_nowhere", "Instances of which the server lost where they stand, at the least", nowhere);
    registry.register("workflow_readable", "Whether what is stored of the workflow can be read", readable);
    registry.register("workflow_corrupt", "How often something of a workflow could not be read", corrupt);
    let oldest_help = "How long the oldest step of a workflow waits: a node to be sent, an end to be followed";
    registry.register_with_unit("workflow_oldest_step", oldest_help, Unit::Seconds, oldest);
    registry.register_with_unit("workflow_look_age", "Since a worker looked after the workflow", Unit::Seconds, looked);
}

fn of_workers(registry: &mut Registry, fleet: &FleetReport) {
    let (counts, known) = (levels(), levels());
    for task in &fleet.tasks {
        set(&known, vec![("task", named(&task.task))], f64::from(u8::from(task.knows_workers)));
    }
    registry.register(
        "task_workers_known",
        "Whether it is known who works the task; 0: a node of a cluster is away that tells of workers",
        known,
    );
    let states = [WorkerState::Live, WorkerState::Stopping, WorkerState::Silent];
    // Where it is not known who is live, no task is said to have no worker.
    for task in fleet.tasks.iter().filter(|task| task.knows_workers) {
        for state in states {
            let works =
                |worker: &&WorkerReport| worker.state == state && worker.tasks.iter().any(|its| its.task == task.task);
            let labels = vec![("task", named(&task.task)), ("state", state.to_string())];
            set(&counts, labels, fleet.workers.iter().filter(works).count() as f64);
        }
    }
    registry.register("workers", "Workers of the task by state", counts);
    let blocked = Level::default();
    let is_blocked = |worker: &&WorkerReport| worker.state.is_live() && worker.runtime_blocked.is_some();
    blocked.set(fleet.workers.iter().filter(is_blocked).count() as f64);
    registry.register("workers_blocked", "Workers whose runtime is blocked by handlers", blocked);
    let denied = Level::default();
    denied.set(fleet.workers.iter().filter(|worker| worker.was_denied(fleet.as_of)).count() as f64);
    registry.register("workers_denied", "Workers whom the server denies what they ask for", denied);
}

/// The server, or all primaries of a cluster together, as they were so long ago: their memory is added up, of the times the longest is told.
fn of_servers(registry: &mut Registry, servers: &[ServerReport], age: Duration) {
    let known = || servers.iter().filter(|server| server.fault.is_none());
    let then = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let skew = known().map(|server| server.clock.duration_since(then).unwrap_or_else(|e| e.duration()));
    let skew = skew.max().unwrap_or_default();
    let round_trip = known().map(|server| server.round_trip).max().unwrap_or_default();
    let sum = |of: fn(&ServerReport) -> u64| known().map(of).sum::<u64>() as f64;
    let (used, limit) = (sum(|server| server.used_memory), sum(|server| server.max_memory));
    for (name, help, count) in [
        ("redis_servers", "Redis servers: the one that there is, or the primaries of a cluster", servers.len()),
        ("redis_servers_up", "Redis servers that answer", known().count()),
        (
            "redis_servers_refusing_writes",
            "Redis servers that answer, and take no writes",
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
    register("redis_memory", "Memory that the data of Redis take", Unit::Bytes, used);
    register("redis_memory_limit", "maxmemory; 0: none", Unit::Bytes, limit);
    register("redis_round_trip", "A short call to Redis, the median of some", Unit::Seconds, seconds(round_trip));
    register("redis_clock_skew", "Between the clock of Redis and that of this process", Unit::Seconds, seconds(skew));
}

/// The name of a task as the value of a label, which the encoder takes as it is, and a terminal too: what is listed in Redis may be no name at all.
fn named(task: &str) -> String {
    let lines = task.split('\n').map(|line| shown(line).replace('\\', r"\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join(r"\n")
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn levels() -> Family<Labels, Level> {
    Family::default()
}

fn set(family: &Family<Labels, Level>, labels: Labels, value: f64) {
    family.get_or_create(&labels).set(value);
}
