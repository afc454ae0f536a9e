//! The worker processes: their tasks, and what they do with a job.

use std::net::SocketAddr;
use std::time::Duration;

use heartline::{
    App, Context, Durability, JobError, Limit, Outcome, Overlap, Rate, RetryPolicy, Schedule, StallOptions,
    TaskOptions, TaskRef,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::chaos::gauge;
use crate::chaos::outside::{Checkpoint, Outside, Run, Started};
use crate::chaos::plan::{Kind, Plan};
use crate::support::Child;
use crate::support::task::{INTERVAL, built};
use crate::workflows::world;

pub const PREFIX: &str = "chaos";
pub const PLAIN: &str = "plain";
pub const HOOKED: &str = "hooked";
pub const LONG: &str = "long";
pub const KEYED: &str = "keyed";
pub const UNIQUE: &str = "unique";
pub const TICKS: &str = "ticks";
/// The task with replicated durability; only there are replicas under Sentinel and in a cluster.
pub const SURE: &str = "sure";
pub const TASKS: [&str; 7] = [PLAIN, HOOKED, LONG, KEYED, UNIQUE, TICKS, SURE];

/// The schedules in code, each of which ticks every second.
pub const IN_CODE: [&str; 2] = ["export", "poll"];

/// How many steps a long job has, and how long each takes.
pub const STEPS: u32 = 6;
const STEP: Duration = Duration::from_millis(500);

/// How many jobs with keys start within any such time. More than arrive, so that this limits them after an outage.
pub const STARTS: u32 = 48;
pub const WINDOW: Duration = Duration::from_secs(2);

/// How long a failed job waits, or a handler before it calls again.
const PAUSE: Duration = Duration::from_millis(100);

/// The input of a job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Work {
    pub key: String,
    pub ms: u64,
    pub does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Does {
    Completes,
    /// After this many failed runs.
    Retries(u32),
    Fails,
    /// It stores a checkpoint after each step.
    Steps,
}

/// What a child process needs to know.
#[derive(Clone, Serialize, Deserialize)]
pub struct Role {
    pub url: String,
    /// The address of its own line to the server.
    pub line: Option<SocketAddr>,
    pub outside: String,
    pub kind: Kind,
    pub plan: Plan,
}

impl Role {
    pub fn start(&self) -> Child {
        let mut child = Child::start(module_path!(), "a_worker_in_chaos", &serde_json::to_string(self).unwrap());
        child.drain();
        child
    }
}

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_chaos() {
    let Some(role) = Child::role() else { return };
    let role: Role = serde_json::from_str(&role).unwrap();
    let outside = Outside::at(&role.outside).await;
    let app = built(&role.url, PREFIX).await;
    declare(&app, &role, &outside);
    let worker = app.worker();
    let started = Started { pid: std::process::id(), worker: worker.id().to_string(), plan: role.plan };
    outside.say("started", &started).await;
    gauge::start(&role.outside, role.line);
    tokio::spawn(gauge::report_breaks(worker.monitor(), outside));
    let _ = worker.run_until_signal().await.unwrap();
}

fn options(plan: &Plan) -> TaskOptions {
    // Faults may meet a job often.
    let stall = StallOptions::new().interval(INTERVAL).max_count(1_000);
    let options = TaskOptions::new().concurrency(plan.slots).stall(stall);
    let retry = RetryPolicy::new().attempts(1_000).fixed(PAUSE);
    options.retry(retry).shutdown_grace(Duration::from_millis(500)).cancel_grace(Duration::from_millis(200))
}

/// How many replicas must have what the task [`SURE`] acknowledges. Under Sentinel, an old primary may still accept
/// writes while another is promoted, so that all replicas must have them.
pub fn durability(kind: Kind) -> Option<Durability> {
    let within = Duration::from_secs(5);
    match kind {
        Kind::Server => None,
        Kind::Sentinel => Some(Durability::Replicated { replicas: 2, within }),
        Kind::Cluster => Some(Durability::Replicated { replicas: 1, within }),
    }
}

fn declare(app: &App, role: &Role, outside: &Outside) {
    let plan = &role.plan;
    let ahead = plan.prefetch.map_or_else(|| options(plan), |jobs| options(plan).prefetch(jobs));
    let add = |name: &str, options: TaskOptions| -> TaskRef<Work, u64> {
        let outside = outside.clone();
        app.task(name, options, move |ctx: Context, work: Work| works(ctx, work, outside.clone())).unwrap()
    };
    add(PLAIN, ahead.clone());
    add(LONG, options(plan));
    add(UNIQUE, ahead.clone());
    let of_key = Limit::new().running(plan.per_key);
    add(KEYED, options(plan).key("/key").per_key(of_key).max_running(plan.most).rate(Rate::new(STARTS, WINDOW)));
    if let Some(durability) = durability(role.kind) {
        add(SURE, ahead.clone().durability(durability).settle_replicated(true));
    }
    let done = outside.clone();
    let hook = move |ctx: Context, _: Outcome<u64>| {
        let done = done.clone();
        async move {
            let run = Run::of(&ctx, format!("hook:{}", ctx.id()), "");
            done.begins(&run).await;
            done.has_effect(&run).await;
            Ok::<_, JobError>(())
        }
    };
    add(HOOKED, ahead).on_complete(hook).unwrap();
    let mut ticks = add(TICKS, options(plan));
    for name in IN_CODE {
        ticks = ticks.schedule(name, each_second(), tick()).unwrap();
    }
    let noted = outside.clone();
    let node = move |ctx: Context, what: String| {
        let outside = noted.clone();
        async move {
            let run = Run::of(&ctx, ctx.id().to_string(), "");
            outside.begins(&run).await;
            let value = world::work(ctx, what).await;
            outside.say("ended", &run).await;
            value
        }
    };
    app.task(world::WORK, options(plan), node).unwrap();
}

pub fn each_second() -> Schedule {
    Schedule::every(Duration::from_secs(1)).overlap(Overlap::Allow)
}

/// The input of the job of a tick.
pub fn tick() -> Work {
    Work { key: String::new(), ms: 2, does: Does::Completes }
}

async fn works(ctx: Context, work: Work, outside: Outside) -> Result<u64, JobError> {
    let run = Run::of(&ctx, ctx.id().to_string(), &work.key);
    outside.begins(&run).await;
    match work.does {
        Does::Steps => steps(&ctx, &outside).await,
        _ => tokio::time::sleep(Duration::from_millis(work.ms)).await,
    }
    match work.does {
        Does::Retries(times) if ctx.attempt() <= times => {
            outside.say("ended", &run).await;
            return Err(JobError::new("not yet"));
        }
        Does::Fails => {
            outside.say("ended", &run).await;
            return Err(JobError::new("never").fatal());
        }
        _ => outside.has_effect(&run).await,
    }
    // Also if the store refused the effect: the queue must refuse the outcome by itself.
    Ok(run.fence)
}

async fn steps(ctx: &Context, outside: &Outside) {
    let said = |step| Checkpoint { id: ctx.id().to_string(), fence: ctx.fence(), step };
    let first = loop {
        match ctx.last_checkpoint::<u32>().await {
            Ok(step) => break step.unwrap_or(0),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    };
    outside.say("seen", &said(first)).await;
    let begun = Instant::now();
    for step in first + 1..=STEPS {
        // A process that was frozen is late, and makes its remaining steps at once.
        tokio::time::sleep_until(begun + (step - first) * STEP).await;
        if ctx.checkpoint_now(&step).await.is_ok() {
            outside.say("stored", &said(step)).await;
        }
    }
}
