//! Lets workers process waiting no-op jobs, in this process or in others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use heartline::{App, Context, Event, EventMode, JobError, RecvError, StopReason, Subscription, TaskOptions};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::child::{Child, Spec};
use crate::dispatch::{app, fill, options};
use crate::server::{Counted, Server};

/// The task of the measured jobs.
pub const TASK: &str = "noop";
const PATIENCE: Duration = Duration::from_secs(120);

/// What is retained of an ended job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// Default retention; handlers return nothing.
    Default,
    /// Default retention, and each handler returns a value.
    Result,
}

/// Whether events are written and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    Off,
    On,
    /// On, with one subscriber in the worker's process.
    Subscribed,
}

/// The result of handlers with [`Keep::Result`].
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    status: u16,
    bytes: u64,
    name: String,
}

/// The cost of processing the jobs.
#[derive(Debug)]
pub struct Worked {
    /// From the first handler until Redis had every outcome.
    pub took: Duration,
    pub counted: Counted,
    /// The numbers of events that the subscriber received and missed.
    pub events: (u64, u64),
}

/// Processes `n` jobs of `bytes` each with one worker in this process.
pub async fn in_process(
    bench: &mut Bench,
    (concurrency, prefetch): (usize, Option<usize>),
    (n, bytes): (usize, usize),
    keep: Keep,
    events: Events,
) -> Result<Worked> {
    let app = app(&bench.server).await?;
    let done = Arc::new(Done::default());
    let options = match keep {
        Keep::Nothing => options(),
        Keep::Default | Keep::Result => TaskOptions::new(),
    };
    let mode = if events == Events::Off { EventMode::Off } else { EventMode::On };
    let options = options.concurrency(concurrency).events(mode);
    let options = if let Some(jobs) = prefetch { options.prefetch(jobs) } else { options };
    if keep == Keep::Result {
        let task = declare(&app, options, &done, n, || Answer { status: 200, bytes: 1_048_576, name: "a.txt".into() })?;
        fill(&task, n, bytes).await?;
    } else {
        let task = declare(&app, options, &done, n, || ())?;
        fill(&task, n, bytes).await?;
    }
    let subscriber = (events == Events::Subscribed).then(|| count_events(app.events()));
    let before = bench.server.counted()?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let worker = app.worker();
    let worker = tokio::spawn(async move { worker.run_until(async move { stopped.cancelled().await }).await });
    tokio::time::timeout(PATIENCE, done.all.notified()).await?;
    while held(&mut bench.server)? > 0 {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let took = done.first.get().context("no handler ran")?.elapsed();
    let counted = bench.server.counted()?.since(&before);
    stop.cancel();
    let reason = worker.await??;
    ensure!(matches!(reason, StopReason::Shutdown), "the worker ended with {reason:?}");
    ensure!(done.count.load(Ordering::SeqCst) == n, "jobs ran twice");
    ensure_kept(&mut bench.server, if keep == Keep::Nothing { 0 } else { n })?;
    drop(app);
    let events = match subscriber {
        Some(subscriber) => subscriber.await?,
        None => (0, 0),
    };
    bench.server.clean()?;
    Ok(Worked { took, counted, events })
}

fn declare<O, F>(
    app: &App,
    options: TaskOptions,
    done: &Arc<Done>,
    n: usize,
    answer: F,
) -> Result<heartline::TaskRef<String, O>>
where
    O: Serialize + Send + 'static,
    F: Fn() -> O + Copy + Send + Sync + 'static,
{
    let done = Arc::clone(done);
    Ok(app.task(TASK, options, move |_: Context, _: String| {
        done.count(n);
        async move { Ok::<O, JobError>(answer()) }
    })?)
}

/// Counts events until the app is dropped.
fn count_events(mut events: Subscription<Event>) -> JoinHandle<(u64, u64)> {
    tokio::spawn(async move {
        let (mut got, mut missed) = (0, 0);
        loop {
            match events.recv().await {
                Ok(_) => got += 1,
                Err(RecvError::Lagged(n)) => missed += n,
                Err(_) => return (got, missed),
            }
        }
    })
}

/// Processes `n` jobs with this number of worker processes, until Redis has every outcome.
pub async fn in_children(bench: &mut Bench, workers: usize, spec: &Spec, n: usize) -> Result<Worked> {
    let task = app(&bench.server).await?.task_ref::<String, ()>(&spec.task)?;
    fill(&task, n, 64).await?;
    let mut children = Vec::new();
    for _ in 0..workers {
        children.push(Child::start(bench, spec).await?);
    }
    let before = bench.server.counted()?;
    for child in &mut children {
        child.go().await?;
    }
    while held(&mut bench.server)? == 0 && waiting(&mut bench.server)? == n {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    settled(&mut bench.server).await?;
    let took = start.elapsed();
    let counted = bench.server.counted()?.since(&before);
    for child in children {
        child.finish().await?;
    }
    ensure_kept(&mut bench.server, 0)?;
    bench.server.clean()?;
    Ok(Worked { took, counted, events: (0, 0) })
}

/// Waits until no job is waiting or held. Asks the server every millisecond.
pub async fn settled(server: &mut Server) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if waiting(server)? == 0 && held(server)? == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("outcomes were not recorded in time")
}

fn waiting(server: &mut Server) -> Result<usize> {
    let wait = server.key(TASK, "wait");
    server.ask(&["LLEN", &wait])
}

/// The number of jobs held by workers.
pub fn held(server: &mut Server) -> Result<usize> {
    let locks = server.key(TASK, "locks");
    server.ask(&["HLEN", &locks])
}

fn ensure_kept(server: &mut Server, expected: usize) -> Result<()> {
    let (payloads, completed) = (server.key(TASK, "payload"), server.key(TASK, "completed"));
    let left: usize = server.ask(&["HLEN", &payloads])?;
    let kept: usize = server.ask(&["ZCARD", &completed])?;
    ensure!(
        left == expected && kept == expected,
        "{left} payloads and {kept} completed jobs are left instead of {expected}"
    );
    Ok(())
}

/// Counts runs of the handler.
#[derive(Default)]
struct Done {
    count: AtomicUsize,
    first: std::sync::OnceLock<Instant>,
    all: Notify,
}

impl Done {
    fn count(&self, n: usize) {
        self.first.get_or_init(Instant::now);
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == n {
            self.all.notify_one();
        }
    }
}
