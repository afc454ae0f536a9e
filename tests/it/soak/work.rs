//! The work of the process: in each round, a worker starts, jobs of every kind end, and it stops.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use heartline::{
    App, Context, Dispatch, Graph, JobError, JobHandle, Retention, RetentionLimit, RetryPolicy, Schedule, StallOptions,
    TaskDef, TaskOptions, TaskRef, Unique, WorkflowOptions,
};

use super::figures::{Figures, Process};
use super::sizes::{self, sizes};
use crate::support::task::built;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

const PREFIX: &str = "soak";
const WORK: TaskDef<u32, u32> = TaskDef::new("work");
const MINUTE: Duration = Duration::from_secs(60);

/// The input of jobs with a key.
type Order = BTreeMap<String, u32>;

/// The tasks of an App.
struct Tasks {
    app: App,
    work: TaskRef<u32, u32>,
    keyed: TaskRef<Order, u32>,
}

fn options() -> TaskOptions {
    let kept = RetentionLimit::age(MINUTE);
    TaskOptions::new()
        .stall(StallOptions::new().interval(Duration::from_secs(2)))
        .retry(RetryPolicy::new().attempts(2).fixed(Duration::from_millis(20)))
        .retention(Retention::new().completed(kept).failed(kept).cancelled(kept))
        .concurrency(8)
        .shutdown_grace(Duration::from_secs(1))
}

/// A process with all tasks. The input 1 modulo 8 fails, 2 and 3 take a moment.
async fn process(url: &str) -> Tasks {
    let app = built(url, PREFIX).await;
    let handler = |ctx: Context, input: u32| async move {
        match input % 8 {
            1 => return Err(JobError::new("it fails".to_owned()).with_code("fails")),
            2 | 3 => {
                ctx.checkpoint(&input).map_err(|e| JobError::new(e.to_string()))?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => {}
        }
        Ok(input)
    };
    let work = app.register(WORK.options(options()).handler(handler)).unwrap();
    let work = work.schedule("often", Schedule::every(Duration::from_secs(1)), 0).unwrap();
    let keyed = app.task("keyed", options().key("/customer"), |_: Context, order: Order| async move {
        Ok::<_, JobError>(order.len() as u32)
    });
    Tasks { keyed: keyed.unwrap(), work, app }
}

/// Dispatches, again if the server restarts.
async fn dispatched<P, O>(dispatch: impl Fn() -> Dispatch<P, O>) -> JobHandle<O>
where
    P: serde::Serialize + Send + Sync,
    O: serde::de::DeserializeOwned + 'static,
{
    eventually("the server accepts a job", PATIENCE, async || dispatch().await.ok()).await
}

/// Waits for the end, whatever it is.
async fn ended<O: serde::de::DeserializeOwned + Send + 'static>(job: JobHandle<O>) {
    eventually("the job has ended", PATIENCE, async || match job.result().await {
        Err(e) if e.is_retryable() => None,
        _ => Some(()),
    })
    .await;
}

/// One round. Returns how many jobs ended in it.
async fn round(url: &str, number: u32) -> u64 {
    let tasks = process(url).await;
    let worker = TestWorker::start(tasks.app.worker());
    worker.working().await;
    let work = &tasks.work;
    let mut jobs = Vec::new();
    for input in 0..32 {
        jobs.push(dispatched(|| work.dispatch(input)).await);
    }
    jobs.push(dispatched(|| work.dispatch(4).delay(Duration::from_millis(100))).await);
    jobs.push(dispatched(|| work.dispatch(5).unique(Unique::by(format!("once-{number}")))).await);
    let mut keyed = Vec::new();
    for customer in 0..6 {
        keyed.push(dispatched(|| tasks.keyed.dispatch(Order::from([("customer".to_owned(), customer % 3)]))).await);
    }
    let cancelled = dispatched(|| work.dispatch(6).delay(MINUTE * 60)).await;
    let flow =
        tasks.app.workflow::<u32>("flow", WorkflowOptions::new().retention(RetentionLimit::age(MINUTE))).unwrap();
    let run = eventually("the workflow starts", PATIENCE, async || {
        let graph = Graph::new();
        let first = graph.node("first", &WORK, 8);
        let second = graph.node("second", &WORK, 2).after(&first);
        flow.start(graph.output(&second)).await.ok()
    })
    .await;
    let count = (jobs.len() + keyed.len()) as u64 + 3;
    for job in jobs {
        ended(job).await;
    }
    for job in keyed {
        ended(job).await;
    }
    eventually("the job is cancelled", PATIENCE, async || cancelled.cancel("not needed").await.ok()).await;
    eventually("the workflow has ended", PATIENCE, async || match run.result().await {
        Err(e) if e.is_retryable() => None,
        _ => Some(()),
    })
    .await;
    worker.stop().await;
    count
}

/// Waits until the process has no more files, threads and tasks than at the start, or for a minute.
async fn at_rest(start: Process) -> Process {
    let begun = Instant::now();
    loop {
        let now = Process::now();
        if now.is_within(start) || begun.elapsed() > MINUTE {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until retention has removed every job and every instance. A day shorter than that is not judged by its keys.
async fn is_trimmed(stays: &Tasks, url: &str, length: Duration) -> bool {
    if length < MINUTE * 2 {
        return false;
    }
    let inspector = stays.app.inspector();
    eventually("retention has removed all jobs", MINUTE * 5, async || {
        let tasks = inspector.tasks().await.ok()?;
        let ended = tasks.iter().map(|task| task.counts.completed + task.counts.failed + task.counts.cancelled);
        (ended.sum::<u64>() == 0).then_some(())
    })
    .await;
    eventually("retention has removed all instances", MINUTE * 5, async || {
        let flows = inspector.workflows().await.ok()?;
        flows.iter().all(|flow| flow.completed + flow.failed == 0).then_some(())
    })
    .await;
    // The entries of unique jobs are removed later, once a minute.
    let unique = format!("{PREFIX}:{{work}}:uniqueOf");
    eventually("the entries of unique jobs are removed", MINUTE * 5, async || {
        sizes::is_gone(url, &unique).await.filter(|is_gone| *is_gone)
    })
    .await;
    true
}

/// Weighs the keys while no job waits or runs: a tick would add some. Returns also whether no job is kept.
async fn weighed(stays: &Tasks, url: &str, length: Duration) -> (BTreeMap<String, u64>, u64, bool) {
    let schedules = stays.work.schedules();
    eventually("the schedule is paused", PATIENCE, async || schedules.pause("often", "keys are weighed").await.ok())
        .await;
    eventually("no job is left to do", PATIENCE, async || {
        (stays.work.counts().await.ok()?.pending_total() == 0).then_some(())
    })
    .await;
    let is_trimmed = is_trimmed(stays, url, length).await;
    let (keys, server) = sizes(url, PREFIX).await;
    eventually("the schedule continues", PATIENCE, async || schedules.resume("often").await.ok()).await;
    (keys, server, is_trimmed)
}

/// Makes rounds for this long, next to a worker that stays.
pub async fn day(url: &str, length: Duration) -> Figures {
    let (begun, mut figures) = (Instant::now(), Figures::default());
    let stays = process(url).await;
    let worker = TestWorker::start(stays.app.worker());
    worker.working().await;
    ended(dispatched(|| stays.work.dispatch(0)).await).await;
    let start = Process::now();
    let mut is_early = true;
    while begun.elapsed() < length || figures.rounds < 6 {
        figures.jobs += round(url, figures.rounds as u32).await;
        figures.rounds += 1;
        figures.rss_kib.push(Process::now().rss_kib);
        if is_early && begun.elapsed() > length / 3 {
            is_early = false;
            (figures.early, figures.server[0], _) = weighed(&stays, url, length).await;
        }
    }
    (figures.start, figures.end) = (start, at_rest(start).await);
    (figures.late, figures.server[1], figures.is_trimmed) = weighed(&stays, url, length).await;
    worker.stop().await;
    figures
}
