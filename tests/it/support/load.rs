//! Work that continues while servers fail, with an account of each acknowledged job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heartline::{
    App, Context, DetectorReset, Error, JobError, JobState, StallOptions, TaskOptions, TaskRef, WorkerMonitor,
};
use tokio::task::JoinHandle;

use super::journal::{Journal, Run};
use super::worker::TestWorker;
use super::{PATIENCE, ask_port, eventually};

/// The input of a job that runs through the failover.
const LONG: u64 = 0;

/// Producers and a worker that run all the time, and what was observed.
pub struct Load {
    journal: Arc<Journal>,
    /// The handles of each task.
    producers: Vec<TaskRef<u64, u64>>,
    worker: TestWorker,
    monitor: WorkerMonitor,
    stop: Arc<AtomicBool>,
    dispatching: Vec<JoinHandle<Vec<(String, Instant)>>>,
}

/// What a server acknowledged and lost.
pub struct Lost {
    /// Jobs, and ends of jobs, which then ran twice.
    pub jobs: usize,
    /// From the first of those jobs to the last.
    pub over: Duration,
}

impl Load {
    /// Starts the load for these tasks; one job of the first runs all the time.
    pub async fn start(url: &str, tasks: &[&str]) -> Load {
        Load::start_in(url, tasks, 1).await
    }

    /// The same with this many partitions of each.
    pub async fn start_in(url: &str, tasks: &[&str], partitions: u32) -> Load {
        let journal = Arc::new(Journal::default());
        let app = App::builder().redis(url).build().await.unwrap();
        let noted = Arc::clone(&journal);
        let stall = StallOptions::new().interval(Duration::from_secs(3)).max_count(9);
        let options = TaskOptions::new().concurrency(8).partitions(partitions).stall(stall);
        let handler = move |ctx: Context, input: u64| {
            let journal = Arc::clone(&noted);
            async move {
                journal.begin(&ctx);
                let takes = if input == LONG { Duration::from_secs(8) } else { Duration::from_millis(20) };
                tokio::time::sleep(takes).await;
                ctx.heartbeat()?;
                Ok::<_, JobError>(input)
            }
        };
        for task in tasks {
            app.task(task, options.clone(), handler.clone()).unwrap();
        }
        let worker = app.worker();
        let monitor = worker.monitor();
        let worker = TestWorker::start(worker);
        worker.working().await;
        let own = App::builder().redis(url).build().await.unwrap();
        let producers: Vec<TaskRef<u64, u64>> = tasks.iter().map(|task| own.task_ref(task).unwrap()).collect();
        producers[0].dispatch(LONG).id("long").await.unwrap();
        eventually("it runs", PATIENCE, async || !journal.runs_of("long").is_empty()).await;
        let stop = Arc::new(AtomicBool::new(false));
        let dispatch = |jobs: &TaskRef<u64, u64>| tokio::spawn(dispatch(jobs.clone(), Arc::clone(&stop)));
        let dispatching = producers.iter().map(dispatch).collect();
        Load { journal, producers, worker, monitor, stop, dispatching }
    }

    /// The runs so far.
    pub fn runs(&self) -> Vec<Run> {
        self.journal.runs()
    }

    /// How often this broke the watch of each task, in their order.
    pub fn broken_by(&self, cause: DetectorReset) -> Vec<u64> {
        let figures = self.monitor.stats();
        let of_task = |producer: &TaskRef<u64, u64>| {
            let of_task = figures.tasks.iter().find(|task| task.task == producer.name());
            of_task.map_or(0, |task| task.watch_breaks[&cause])
        };
        self.producers.iter().map(of_task).collect()
    }

    /// Waits until jobs of each task run again, some of them started after this call.
    pub async fn goes_on(&self, within: Duration) {
        self.goes_on_without("", within).await;
    }

    /// The same without this task.
    pub async fn goes_on_without(&self, closed: &str, within: Duration) {
        let tasks: Vec<&str> = self.producers.iter().map(TaskRef::name).filter(|task| *task != closed).collect();
        let runs = || {
            let runs = self.journal.runs();
            let of = |task: &&str| runs.iter().filter(|run| run.id.starts_with(&format!("{task}-"))).count();
            tasks.iter().map(of).collect::<Vec<_>>()
        };
        let (before, begun) = (runs(), Instant::now());
        let goes_on = async || runs().iter().zip(&before).all(|(now, before)| *now > before + 10);
        eventually("jobs continue", PATIENCE, goes_on).await;
        assert!(begun.elapsed() < within, "it took {:?}", begun.elapsed());
    }

    /// Ends the load and accounts for each acknowledged job. Returns what the server had acknowledged and lost.
    pub async fn accounted(self) -> Lost {
        self.stop.store(true, Ordering::SeqCst);
        let mut acknowledged = Vec::new();
        for (producer, dispatching) in self.producers.iter().zip(self.dispatching) {
            acknowledged.push((producer, dispatching.await.unwrap()));
            eventually("all jobs end", PATIENCE, async || producer.counts().await.unwrap().pending_total() == 0).await;
        }
        let mut runs: BTreeMap<String, usize> = BTreeMap::new();
        for run in self.journal.runs() {
            *runs.entry(run.id).or_default() += 1;
        }
        let mut lost = Vec::new();
        let jobs = acknowledged.iter().flat_map(|(producer, jobs)| jobs.iter().map(move |job| (producer, job)));
        for (producer, (id, at)) in jobs.clone() {
            match producer.job(id).await {
                Ok(job) => {
                    assert_eq!(job.state, JobState::Completed, "{id}");
                    // Its end was acknowledged, and then lost by the server: it was no longer held.
                    assert!(job.stalled_count == 0 || runs[id] > 1, "{id}: {job:?}");
                }
                Err(Error::JobNotFound { .. }) => lost.push(*at),
                Err(e) => panic!("{id}: {e}"),
            }
        }
        let twice = runs.values().filter(|count| **count > 1).count();
        println!("{} acknowledged, {} lost by the server, {twice} ran twice", jobs.count(), lost.len());
        let long = self.producers[0].job("long").await.unwrap();
        assert_eq!((long.state, long.stalled_count, runs["long"]), (JobState::Completed, 0, 1), "its worker lived");
        lost.sort_unstable();
        self.worker.stop().await;
        Lost { jobs: lost.len() + twice, over: lost.last().map_or(Duration::ZERO, |last| *last - lost[0]) }
    }
}

/// Dispatches until it is stopped. Returns what was acknowledged, and when.
async fn dispatch(jobs: TaskRef<u64, u64>, stopped: Arc<AtomicBool>) -> Vec<(String, Instant)> {
    let (mut acknowledged, mut number) = (Vec::new(), 0);
    while !stopped.load(Ordering::SeqCst) {
        let some = (number + 1..=number + 5).map(|number| (format!("{}-{number}", jobs.name()), number));
        number += 5;
        // The dispatch itself waits for the end of an outage, for 10 s.
        let some = jobs.dispatch_many_with_ids(some).await.unwrap_or_else(|e| panic!("{number}: {e}"));
        acknowledged.extend(some.iter().map(|job| (job.id().to_string(), Instant::now())));
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    acknowledged
}

/// Waits until the server at this port has at least this many client connections: those that were just cut may not be
/// back yet.
pub async fn connected(port: u16, least: usize) {
    let connections = async || {
        let mut count = 0;
        for kind in ["normal", "pubsub"] {
            let list = ask_port::<String>(port, &["CLIENT", "LIST", "TYPE", kind], PATIENCE).await;
            count += list.map_or(0, |list| list.lines().filter(|line| !line.contains("cmd=client|list")).count());
        }
        count
    };
    eventually("all connections are there", PATIENCE, async || connections().await >= least).await;
}

/// Cuts every client connection to each of these servers, including subscriptions. Returns how many there were at
/// each.
pub async fn cut(ports: impl IntoIterator<Item = u16>) -> Vec<u64> {
    let mut cut = Vec::new();
    for port in ports {
        let mut of_port = 0;
        for kind in ["normal", "pubsub"] {
            let words = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
            of_port += ask_port::<u64>(port, &words, PATIENCE).await.unwrap();
        }
        cut.push(of_port);
    }
    cut
}
