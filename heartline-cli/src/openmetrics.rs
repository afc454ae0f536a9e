//! Metrics of the whole fleet, read from Redis in one place: metrics of ten worker processes would count one queue ten times.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use heartline::inspect::describe::STATES;
use heartline::inspect::text::shown;
use heartline::{
    FleetReport, JobState, ScheduleCounts, ServerReport, TaskReport, TickOutcome, WorkerReport, WorkerState,
    WorkflowReport, WorkflowState,
};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::failure::Failure;

/// Whether Redis answered, if only with an error.
pub(crate) struct IsReached(pub(crate) bool);

type Level = Gauge<f64, AtomicU64>;

/// The labels of a value: names and values.
type Labels = Vec<(&'static str, String)>;

/// The metrics so far.
struct Metrics(Registry);

impl Metrics {
    /// A level by label.
    fn levels(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        self.0.register(name, help, family(values));
    }

    /// A time by label, in seconds.
    fn times(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, Duration)>) {
        let values = values.into_iter().map(|(labels, time)| (labels, time.as_secs_f64()));
        self.0.register_with_unit(name, help, Unit::Seconds, family(values));
    }

    /// A count by label.
    fn counts(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let counts = Family::<Labels, Counter>::default();
        for (labels, count) in values {
            counts.get_or_create(&labels).inc_by(count);
        }
        self.0.register(name, help, counts);
    }

    /// A number of servers or workers.
    fn number(&mut self, name: &str, help: &str, count: usize) {
        self.0.register(name, help, level(count as f64));
    }
}

fn level(value: f64) -> Level {
    let level = Level::default();
    level.set(value);
    level
}

fn family(values: impl IntoIterator<Item = (Labels, f64)>) -> Family<Labels, Level> {
    let family = Family::<Labels, Level>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    family
}

/// 1 for true.
fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// The metrics as OpenMetrics text; `age` is the age of the report. Without a report only `up` and `readable` are known.
pub(crate) fn text(fleet: Result<&FleetReport, IsReached>, age: Duration) -> Result<String, Failure> {
    let mut metrics = Metrics(Registry::with_prefix("heartline"));
    let (up, readable) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    up.set(i64::from(fleet.as_ref().map_or_else(|reached| reached.0, |_| true)));
    readable.set(i64::from(fleet.is_ok()));
    metrics.0.register("up", "Whether Redis was reached by this scrape", up);
    metrics.0.register("readable", "Whether Redis allowed this scrape to read Heartline's data", readable);
    if let Ok(fleet) = fleet {
        metrics.times("look_age", "Age of the other metrics in this response", [(Labels::new(), age)]);
        let lists = [
            ("tasks", fleet.away.tasks.is_none()),
            ("workers", fleet.away.workers.is_none()),
            ("workflows", fleet.checks.lists_workflows),
        ];
        let help =
            "Whether the list of tasks, workers or workflows exists and can be read; if 0, its metrics are missing";
        let lists = lists.map(|(list, is_read)| (vec![("list", list.to_owned())], flag(is_read)));
        metrics.levels("list_readable", help, lists);
        of_tasks(&mut metrics, fleet);
        of_schedules(&mut metrics, &fleet.checks.schedules);
        of_workflows(&mut metrics, &fleet.checks.workflows);
        of_workers(&mut metrics, fleet);
        of_servers(&mut metrics, &fleet.checks.servers, age);
    }
    let mut text = String::new();
    encode(&mut text, &metrics.0).map_err(|e| Failure::Failed(format!("the metrics cannot be encoded: {e}")))?;
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

/// The label of a task.
fn of_task(task: &TaskReport) -> Labels {
    vec![("task", named(&task.task))]
}

/// The metrics of all tasks that can be read.
struct TaskMetrics<'a> {
    metrics: &'a mut Metrics,
    tasks: &'a [&'a TaskReport],
}

impl TaskMetrics<'_> {
    fn count(&mut self, name: &str, help: &str, of: fn(&TaskReport) -> u64) {
        self.metrics.counts(name, help, self.tasks.iter().map(|task| (of_task(task), of(task))));
    }

    fn level(&mut self, name: &str, help: &str, of: fn(&TaskReport) -> u64) {
        self.metrics.levels(name, help, self.tasks.iter().map(|task| (of_task(task), of(task) as f64)));
    }

    fn time(&mut self, name: &str, help: &str, of: fn(&TaskReport) -> Option<Duration>) {
        self.metrics.times(name, help, self.tasks.iter().filter_map(|task| Some((of_task(task), of(task)?))));
    }
}

fn of_tasks(metrics: &mut Metrics, FleetReport { tasks, workers, checks, .. }: &FleetReport) {
    let is_readable = |task: &TaskReport| task.fault.is_none() && !checks.damaged.contains(&task.task);
    metrics.levels(
        "task_readable",
        "Whether the keys of the task can be read; 0 if a key has a wrong type or the cluster node is unreachable",
        tasks.iter().map(|task| (of_task(task), flag(is_readable(task)))),
    );
    let tasks: Vec<&TaskReport> = tasks.iter().filter(|task| task.fault.is_none()).collect();
    let jobs = |task: &&TaskReport| {
        let labels = |state: JobState| vec![("task", named(&task.task)), ("state", state.to_string())];
        STATES.map(|state| (labels(state), task.counts.count(state) as f64))
    };
    metrics.levels("jobs", "Jobs by task and state", tasks.iter().flat_map(jobs));
    let known: Vec<&TaskReport> = tasks.iter().copied().filter(|task| task.knows_workers).collect();
    let mut of = TaskMetrics { metrics, tasks: &tasks };
    of.count("task_dispatched", "Jobs dispatched, by task", |task| task.dispatched);
    of.count("task_ended", "Jobs completed, failed or cancelled, by task", |task| task.ended);
    of.count("task_failed", "Jobs failed, by task", |task| task.failed);
    of.count("task_hooks_failed", "Hooks that failed after their last attempt, by task", |task| task.hooks_failed);
    of.level(
        "task_failed_in_a_row",
        "Jobs that began to fail since the last completion or snooze; 0 if no failure of the last day is kept",
        TaskReport::failed_in_a_row,
    );
    of.level(
        "task_broken_off_again",
        "Interrupted runs per runnable job since the last completion, from workers that stopped or died",
        TaskReport::broken_off_rounds,
    );
    of.count("task_stalls", "Stalls: jobs whose worker fell silent or died, by task", |task| task.stalled);
    of.level("jobs_due", "Delayed jobs that are due, by task", |task| task.due);
    of.level("jobs_unplaced", "Jobs missing from every list and set: a key was deleted or lost", |task| task.unplaced);
    of.time("data_lost_age", "Time since the server was found to have lost the data of the task", |task| {
        task.as_of.duration_since(task.data_lost_at?).ok()
    });
    of.time("oldest_waiting", "Age of the next waiting or due job", |task| {
        Some(task.next_waiting_age.unwrap_or_default())
    });
    let keys = known.iter().filter_map(|task| Some((task, task.lanes?))).flat_map(|(task, lanes)| {
        let counts = [("ready", lanes.ready), ("resting", lanes.resting), ("full", lanes.full)];
        let label = |state: &str| vec![("task", named(&task.task)), ("state", state.to_owned())];
        counts.map(|(state, count)| (label(state), count as f64))
    });
    of.metrics.levels("lanes", "Keys with waiting jobs, by task and state", keys);
    of.time("lane_full", "How long the first full or paused key has been so", |task| {
        task.as_of.duration_since(task.lanes?.full_since?).ok()
    });
    of.level("task_paused", "Whether the task is paused", |task| task.paused.is_some().into());
    let slots = known.iter().map(|task| (of_task(task), task.slots as f64));
    of.metrics.levels("task_slots", "Job slots of all live workers, by task", slots);
    let lost = known.iter().map(|task| (of_task(task), lost_runs(&task.task, workers) as f64));
    of.metrics.levels("task_slots_lost", "Slots occupied by runs that lost their job, by task", lost);
    // The partition with the oldest epoch counts. A task has no epoch before its first snapshot.
    of.time("epoch_age", "Time since the last snapshot of stall detection", |task| {
        task.parts.iter().filter_map(|part| task.as_of.duration_since(part.epoch_at?).ok()).max()
    });
    of.time("interval", "The stall interval in force", |task| task.parts.iter().filter_map(|part| part.interval).max());
    let findings = tasks.iter().flat_map(|task| {
        let found = task.audited.iter().flat_map(|audit| &audit.found);
        found.map(move |(kind, count)| (vec![("task", named(&task.task)), ("kind", kind.to_string())], *count as f64))
    });
    let help = "Inconsistencies found by the last recorded audit, by task and kind";
    of.metrics.levels("audit_findings", help, findings);
    of.time("audit_age", "Time since the last recorded audit", |task| {
        Some(task.as_of.duration_since(task.audited.as_ref()?.at).unwrap_or_default())
    });
    of.level("silent_jobs", "Held jobs without a heartbeat since the last snapshot", |task| {
        task.parts.iter().map(|part| part.candidates).sum()
    });
}

/// How many runs of the task on live workers occupy a slot although they lost their job.
fn lost_runs(task: &str, workers: &[WorkerReport]) -> u64 {
    let live = workers.iter().filter(|worker| worker.state == WorkerState::Live).flat_map(|worker| &worker.tasks);
    live.filter(|its| its.task == task).map(|its| its.lost_runs).sum()
}

/// The schedules of each task that has or had some.
fn of_schedules(metrics: &mut Metrics, tasks: &[ScheduleCounts]) {
    let label = |own: &ScheduleCounts| vec![("task", named(&own.task))];
    metrics.levels("schedules", "Schedules by task", tasks.iter().map(|own| (label(own), own.schedules as f64)));
    let ticks = |own: &ScheduleCounts| {
        let counts = [
            (TickOutcome::Fired, own.fired),
            (TickOutcome::Overlapped, own.overlapped),
            (TickOutcome::Missed, own.missed),
            (TickOutcome::Paused, own.paused),
        ];
        let name = named(&own.task);
        counts.map(|(outcome, count)| (vec![("task", name.clone()), ("outcome", outcome.as_str().to_owned())], count))
    };
    metrics.counts("schedule_ticks", "Ticks of schedules by task and outcome", tasks.iter().flat_map(ticks));
    let late = tasks.iter().map(|own| (label(own), own.late));
    metrics.times("schedule_late", "How long the next tick of a task's schedules is overdue", late);
    let next = |own: &ScheduleCounts| {
        let since_1970 = own.next_at?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some((label(own), since_1970))
    };
    let help = "When the next tick of a task's schedules fires, since 1970";
    metrics.times("schedule_next_timestamp", help, tasks.iter().filter_map(next));
}

fn of_workflows(metrics: &mut Metrics, flows: &[WorkflowReport]) {
    let label = |flow: &WorkflowReport| vec![("workflow", named(&flow.workflow))];
    let sound = || flows.iter().filter(|flow| flow.fault.is_none());
    let instances = |flow: &WorkflowReport| {
        let counts = [
            (WorkflowState::Running, flow.running),
            (WorkflowState::Paused, flow.paused),
            (WorkflowState::Completed, flow.completed),
            (WorkflowState::Failed, flow.failed),
            (WorkflowState::Cancelled, flow.cancelled),
        ];
        let name = named(&flow.workflow);
        counts.map(|(state, count)| (vec![("workflow", name.clone()), ("state", state.to_string())], count as f64))
    };
    metrics.levels("workflow_instances", "Workflow instances by workflow and state", sound().flat_map(instances));
    let unplaced = sound().map(|flow| (label(flow), flow.unplaced as f64));
    metrics.levels("workflow_unplaced", "Lower bound of the instances whose state the server lost", unplaced);
    let readable = flows.iter().map(|flow| (label(flow), flag(flow.fault.is_none())));
    metrics.levels("workflow_readable", "Whether the keys of the workflow can be read", readable);
    let corrupt = sound().map(|flow| (label(flow), flow.corrupt));
    metrics.counts("workflow_corrupt", "Unreadable values found in the data of a workflow", corrupt);
    let oldest = sound().map(|flow| (label(flow), flow.oldest_step.unwrap_or_default()));
    let help = "Age of the oldest pending step of a workflow: a node to dispatch or an end to process";
    metrics.times("workflow_oldest_step", help, oldest);
    let looked =
        sound().filter_map(|flow| Some((label(flow), flow.as_of.duration_since(flow.looked_at?).unwrap_or_default())));
    metrics.times("workflow_look_age", "Time since a worker last checked the workflow for pending steps", looked);
}

fn of_workers(metrics: &mut Metrics, fleet: &FleetReport) {
    metrics.levels(
        "task_workers_known",
        "Whether the workers of the task are known; 0 if the cluster node that lists them is unreachable",
        fleet.tasks.iter().map(|task| (of_task(task), flag(task.knows_workers))),
    );
    // A count of 0 would be wrong if the workers are unknown.
    let counts = fleet.tasks.iter().filter(|task| task.knows_workers).flat_map(|task| {
        [WorkerState::Live, WorkerState::Quiet, WorkerState::Stopping, WorkerState::Silent].map(|state| {
            let works =
                |worker: &&WorkerReport| worker.state == state && worker.tasks.iter().any(|its| its.task == task.task);
            let labels = vec![("task", named(&task.task)), ("state", state.to_string())];
            (labels, fleet.workers.iter().filter(works).count() as f64)
        })
    });
    metrics.levels("workers", "Workers by task and state", counts);
    let is_blocked = |worker: &&WorkerReport| worker.state.is_live() && worker.runtime_blocked.is_some();
    let blocked = fleet.workers.iter().filter(is_blocked).count();
    metrics.number("workers_blocked", "Workers whose runtime is blocked by handlers", blocked);
    let denied = fleet.workers.iter().filter(|worker| worker.was_denied(fleet.as_of)).count();
    metrics.number("workers_denied", "Workers that the server denies a command or key", denied);
}

/// The server, or all primaries of a cluster, as seen `age` ago: the sum of the memory, the maximum of the times.
fn of_servers(metrics: &mut Metrics, servers: &[ServerReport], age: Duration) {
    let known = || servers.iter().filter(|server| server.fault.is_none());
    let refusing = known().filter(|server| server.write_refusal.is_some()).count();
    metrics.number("redis_servers", "Redis servers: 1, or the primaries of a cluster", servers.len());
    metrics.number("redis_servers_up", "Redis servers that answer", known().count());
    metrics.number("redis_servers_refusing_writes", "Redis servers that answer but refuse writes", refusing);
    let sum = |of: fn(&ServerReport) -> u64| known().map(of).sum::<u64>() as f64;
    let (used, limit) = (sum(|server| server.used_memory), sum(|server| server.max_memory));
    let round_trip = known().map(|server| server.round_trip).max().unwrap_or_default();
    let then = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let skew = known().map(|server| server.clock.duration_since(then).unwrap_or_else(|e| e.duration()));
    let (round_trip, skew) = (round_trip.as_secs_f64(), skew.max().unwrap_or_default().as_secs_f64());
    for (name, help, unit, value) in [
        ("redis_memory", "Memory used by Redis", Unit::Bytes, used),
        ("redis_memory_limit", "Memory limit of Redis (maxmemory); 0 if none", Unit::Bytes, limit),
        ("redis_round_trip", "Median round trip of a short call to Redis", Unit::Seconds, round_trip),
        ("redis_clock_skew", "Difference between the clocks of Redis and of this process", Unit::Seconds, skew),
    ] {
        metrics.0.register_with_unit(name, help, unit, level(value));
    }
}

/// The name of a task as a label value. The encoder does not escape, and the lists in Redis can contain any bytes.
fn named(task: &str) -> String {
    let lines = task.split('\n').map(|line| shown(line).replace('\\', r"\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join(r"\n")
}
