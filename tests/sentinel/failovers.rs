//! Work goes on by itself behind each kind of failover, and beyond what the server itself lost nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heartline::{App, Context, Error, JobError, JobState, StallOptions, TaskOptions, TaskRef, WatchBreak};

use crate::support::journal::Journal;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use crate::trio::{DOWN_AFTER, Trio, ask};

const TASK: &str = "work";

/// How long a failover itself may take: the sentinels agree, elect one of them, and that one promotes a replica.
const FAILOVER: Duration = Duration::from_secs(4);

/// By when work must go on behind that.
const RESUMES: Duration = Duration::from_secs(3);

/// The input of a job that runs through the failover.
const LONG: u64 = 0;

/// A producer and a worker that go on all the while, and what was seen from outside.
struct Load {
    journal: Arc<Journal>,
    producer: TaskRef<u64, u64>,
    worker: TestWorker,
    stop: Arc<AtomicBool>,
    dispatching: tokio::task::JoinHandle<Vec<(String, Instant)>>,
}

/// What a server acknowledged and lost.
struct Lost {
    /// Jobs, and ends of jobs, which then ran twice.
    jobs: usize,
    /// From the first of those jobs to the last.
    over: Duration,
}

impl Load {
    async fn start(url: &str) -> Load {
        let journal = Arc::new(Journal::default());
        let app = App::builder().redis(url).build().await.unwrap();
        let noted = Arc::clone(&journal);
        let options =
            TaskOptions::new().concurrency(8).stall(StallOptions::new().interval(Duration::from_secs(3)).max_count(9));
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
        app.task(TASK, options, handler).unwrap();
        let worker = TestWorker::start(app.worker());
        worker.working().await;
        let own = App::builder().redis(url).build().await.unwrap();
        let producer: TaskRef<u64, u64> = own.task_ref(TASK).unwrap();
        producer.dispatch(LONG).id("long").await.unwrap();
        eventually("it runs", PATIENCE, async || !journal.runs_of("long").is_empty()).await;
        let stop = Arc::new(AtomicBool::new(false));
        let (jobs, stopped) = (producer.clone(), Arc::clone(&stop));
        let dispatching = tokio::spawn(async move {
            let (mut acknowledged, mut number) = (Vec::new(), 0);
            while !stopped.load(Ordering::SeqCst) {
                let some = (number + 1..=number + 5).map(|number| (format!("job-{number}"), number));
                number += 5;
                // An outage is waited for by the dispatch itself, for 10 s.
                let some = jobs.dispatch_many_with_ids(some).await.unwrap_or_else(|e| panic!("{number}: {e}"));
                acknowledged.extend(some.iter().map(|job| (job.id().to_string(), Instant::now())));
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            acknowledged
        });
        Load { journal, producer, worker, stop, dispatching }
    }

    fn runs(&self) -> usize {
        self.journal.runs().len()
    }

    /// Waits until jobs run again, some of them begun behind this.
    async fn goes_on(&self, within: Duration) {
        let (before, begun) = (self.runs(), Instant::now());
        eventually("work goes on", PATIENCE, async || self.runs() > before + 20).await;
        assert!(begun.elapsed() < within, "it took {:?}", begun.elapsed());
    }

    /// Ends the load and accounts for each acknowledged job. Returns what the server had acknowledged and lost.
    async fn accounted(self) -> Lost {
        self.stop.store(true, Ordering::SeqCst);
        let acknowledged = self.dispatching.await.unwrap();
        let unfinished = async || self.producer.counts().await.unwrap().unfinished();
        eventually("all jobs end", PATIENCE, async || unfinished().await == 0).await;
        let mut runs: BTreeMap<String, usize> = BTreeMap::new();
        for run in self.journal.runs() {
            *runs.entry(run.id).or_default() += 1;
        }
        let mut lost = Vec::new();
        for (id, at) in &acknowledged {
            match self.producer.job(id).await {
                Ok(job) => {
                    assert_eq!(job.state, JobState::Completed, "{id}");
                    // Its end was acknowledged and lost by the server: nobody held it any more.
                    assert!(job.stalled_count == 0 || runs[id] > 1, "{id}: {job:?}");
                }
                Err(Error::JobNotFound { .. }) => lost.push(*at),
                Err(e) => panic!("{id}: {e}"),
            }
        }
        let twice = runs.values().filter(|count| **count > 1).count();
        println!("{} acknowledged, {} lost by the server, {twice} ran twice", acknowledged.len(), lost.len());
        let long = self.producer.job("long").await.unwrap();
        assert_eq!((long.state, long.stalled_count, runs["long"]), (JobState::Completed, 0, 1), "its worker lived");
        self.worker.stop().await;
        Lost { jobs: lost.len() + twice, over: lost.last().map_or(Duration::ZERO, |last| *last - lost[0]) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_when_the_primary_is_killed() {
    let mut trio = Trio::start().await;
    let load = Load::start(&trio.url()).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.servers[0].kill();
    tokio::time::timeout(DOWN_AFTER + FAILOVER, trio.another_than(before)).await.unwrap();
    load.goes_on(RESUMES).await;
    // What was on its way to the replicas.
    let lost = load.accounted().await;
    assert!(lost.jobs <= 50, "{}", lost.jobs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_when_the_primary_freezes_and_does_not_come_back() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url()).await;
    load.goes_on(PATIENCE).await;
    trio.servers[0].freeze().unwrap();
    tokio::time::timeout(DOWN_AFTER + FAILOVER, trio.another_than(trio.servers[0].port())).await.unwrap();
    load.goes_on(RESUMES).await;
    load.accounted().await;
    trio.servers[0].thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_primary_answers_that_woke_up_behind_its_failover_is_no_answer() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url()).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.servers[0].freeze().unwrap();
    trio.another_than(before).await;
    trio.servers[0].thaw().unwrap();
    load.goes_on(RESUMES).await;
    // What it answers when it wakes up it forgets when it is demoted.
    let lost = load.accounted().await;
    assert!(lost.jobs <= 50, "{}", lost.jobs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_in_order_is_heard_of_before_the_old_primary_is_told() {
    let trio = Trio::start().await;
    let load = Load::start(&trio.url()).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.fail_over().await;
    trio.another_than(before).await;
    load.goes_on(RESUMES).await;
    let inspector = App::builder().redis(trio.url()).build().await.unwrap().inspector();
    eventually("the worker says what broke its watch", PATIENCE, async || {
        let workers = inspector.workers().await.unwrap();
        let mut watches = workers.iter().flat_map(|worker| &worker.tasks).flat_map(|its| &its.watches);
        watches.any(|watch| watch.broken == Some(WatchBreak::PrimaryChanged))
    })
    .await;
    // It takes writes for 10 s more. The sentinels see the promotion up to a second late, and then all hear of it.
    let lost = load.accounted().await;
    assert!(lost.over < Duration::from_secs(3), "{:?}", lost.over);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_is_frozen_and_the_first_of_the_address_keeps_nobody_waiting() {
    let mut trio = Trio::start().await;
    trio.sentinels[0].signal("-STOP");
    let load = Load::start(&trio.url()).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.servers[0].kill();
    tokio::time::timeout(DOWN_AFTER + FAILOVER * 2, trio.another_than(before)).await.unwrap();
    load.goes_on(RESUMES).await;
    load.accounted().await;
    trio.sentinels[0].signal("-CONT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_lead_to_no_primary_say_what_is_wrong() {
    let mut trio = Trio::start().await;
    let build = async |url: String| App::builder().redis(url).build().await.unwrap_err();
    let url = trio.url().replace("=main", "=mian");
    let e = build(url).await;
    assert!(matches!(e, Error::Config(_)) && e.to_string().contains("sentinelServiceName"), "{e}");
    let e = build(format!("redis://127.0.0.1:{}", trio.sentinels[0].port)).await;
    assert!(e.to_string().contains("redis-sentinel://"), "{e}");
    let url = trio.url();
    trio.sentinels.clear();
    let e = build(url).await;
    assert!(matches!(e, Error::Connect { .. }) && e.to_string().contains("redis-sentinel://127.0.0.1"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_the_sentinels_needs_four_commands() {
    let trio = Trio::start().await;
    for sentinel in &trio.sentinels {
        let rule =
            "reset on >s3cret +hello +sentinel|master +sentinel|get-master-addr-by-name +subscribe &+switch-master";
        let words: Vec<&str> = ["ACL", "SETUSER", "jobs"].into_iter().chain(rule.split(' ')).collect();
        assert_eq!(ask::<String>(sentinel.port, &words).await.as_deref(), Some("OK"));
    }
    let url = format!("{}&sentinelUsername=jobs&sentinelPassword=s3cret", trio.url());
    let load = Load::start(&url).await;
    load.goes_on(PATIENCE).await;
    let before = trio.servers[0].port();
    trio.fail_over().await;
    trio.another_than(before).await;
    load.goes_on(RESUMES).await;
    load.accounted().await;
    let e = App::builder().redis(url.replace("s3cret", "other")).build().await.unwrap_err();
    assert!(e.to_string().contains("redis-sentinel://127.0.0.1") && !e.is_retryable(), "{e}");
}
