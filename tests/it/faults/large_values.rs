//! Large values and slow lines: the values take their time, arrive, and delay no others.

use std::sync::Arc;
use std::time::Duration;

use heartline::{App, JobHandle, JobState, StallOptions, TaskOptions, TaskRef};
use redis::AsyncCommands;

use crate::faults::ground::alone;
use crate::faults::watch::{KIB, MIB, Watch, nothing_is_left, text};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{Line, PATIENCE, TestRedis, eventually};

/// Bytes a second on a slow line. A large value takes longer on it than any test waits.
const SLOW: u64 = 256 * KIB as u64;

/// Bytes a second later in a test. A large value still takes longer than the timeout of a call that is not large.
const FASTER: u64 = MIB as u64;

const LARGE: usize = 6 * MIB;

/// Bytes for one transfer of a large value and all other traffic, and not for two.
const ONCE: u64 = LARGE as u64 * 3 / 2;

struct Far {
    _redis: TestRedis,
    test: TestTask,
    watch: Watch,
    line: Line,
    _near: App,
    /// Dispatches large jobs too, from close to the server.
    send: TaskRef<String, String>,
}

impl Far {
    async fn start() -> Far {
        let (redis, test) = alone();
        let watch = Watch::new(&test, &redis).await;
        let line = Line::start(redis.address()).await;
        let near = app_at(&redis.url()).await;
        let send = near.task_ref(&test.name).unwrap();
        Far { _redis: redis, test, watch, line, _near: near, send }
    }

    /// A worker at the end of the line, without settings for large jobs. The line is slow from now on.
    async fn worker(&self) -> TestWorker {
        let app = self.test.app_at(&self.line.url()).await;
        self.line.rate(Some(SLOW));
        self.works(&app)
    }

    /// A producer at the end of the line. The line is slow from now on.
    async fn producer(&self) -> (App, TaskRef<String, String>) {
        let app = app_at(&self.line.url()).await;
        let task: TaskRef<String, String> = app.task_ref(&self.test.name).unwrap();
        // Its connection exists.
        task.dispatch("10".to_owned()).id("first").await.unwrap();
        self.line.rate(Some(SLOW));
        (app, task)
    }

    /// Returns as many bytes as the input asks for, or has.
    fn works(&self, app: &App) -> TestWorker {
        let journal = Arc::clone(&self.test.journal);
        // A stalled job fails.
        let stall = StallOptions::new().interval(INTERVAL).max_count(0);
        let options = options(INTERVAL).stall(stall).shutdown_grace(Duration::ZERO);
        let handler = move |ctx, input: String| {
            journal.begin(&ctx);
            async move { Ok::<_, heartline::JobError>(input.parse().map_or_else(|_| input.len().to_string(), text)) }
        };
        app.task(&self.test.name, options, handler).unwrap();
        TestWorker::start(app.worker())
    }

    async fn small_jobs_end(&self) {
        for _ in 0..5 {
            let job = self.send.dispatch("10".to_owned()).await.unwrap();
            assert_eq!(value_of(&job).await, text(10));
        }
    }
}

/// An App that allows large payloads.
async fn app_at(url: &str) -> App {
    App::builder().redis(url).task_defaults(TaskOptions::new().payload_limit(2 * LARGE)).build().await.unwrap()
}

async fn value_of(job: &JobHandle<String>) -> String {
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap()
}

async fn is(job: &JobHandle<String>, state: JobState) {
    eventually(&format!("the job is {state:?}"), PATIENCE, async || job.state().await.unwrap() == state).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_payload_arrives_once_and_delays_no_small_job() {
    let far = Far::start().await;
    let large = far.send.dispatch(text(LARGE)).await.unwrap();
    let before = far.watch.sent().await;
    let worker = far.worker().await;
    is(&large, JobState::Running).await;
    far.small_jobs_end().await;
    assert_eq!(far.test.journal.runs_of(large.id()), [], "the small jobs came after the large one");
    assert_eq!(large.state().await.unwrap(), JobState::Running, "the large job was requeued");
    // Jobs without heartbeats are found in this time.
    far.watch.epochs_pass(3).await;
    assert_eq!(far.watch.stalls().await, 0);
    far.line.rate(Some(FASTER));
    assert_eq!(value_of(&large).await, (LARGE - 2).to_string());
    assert_eq!(far.test.journal.runs_of(large.id()).len(), 1);
    assert_eq!(far.watch.told("requeued").await, [[""; 0]; 0]);
    let sent = far.watch.sent().await - before;
    assert!(sent < ONCE, "{sent} bytes were sent for a payload of {LARGE}");
    worker.stop().await;
    nothing_is_left(&far.test).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_during_a_payload_read_requeues_the_job() {
    let far = Far::start().await;
    let large = far.send.dispatch(text(LARGE)).await.unwrap();
    let before = far.watch.sent().await;
    let worker = far.worker().await;
    is(&large, JobState::Running).await;
    eventually("the payload is on its way", PATIENCE, async || far.watch.sent().await > before + 256 * KIB as u64)
        .await;
    worker.stop().await;
    assert_eq!(large.state().await.unwrap(), JobState::Waiting);
    let near = far.works(&far._near);
    assert_eq!(value_of(&large).await, (LARGE - 2).to_string());
    assert_eq!(far.watch.stalls().await, 0);
    assert_eq!(far.test.journal.runs_of(large.id()).len(), 1);
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_result_is_recorded_and_delays_no_small_one() {
    let far = Far::start().await;
    let worker = far.worker().await;
    let before = far.watch.received().await;
    let large = far.send.dispatch(LARGE.to_string()).await.unwrap();
    eventually("it runs", PATIENCE, async || !far.test.journal.runs_of(large.id()).is_empty()).await;
    eventually("the result is on its way", PATIENCE, async || far.watch.received().await > before + 256 * KIB as u64)
        .await;
    far.small_jobs_end().await;
    assert_eq!(large.state().await.unwrap(), JobState::Running, "the small results came after the large one");
    far.watch.epochs_pass(2).await;
    far.line.rate(Some(FASTER));
    is(&large, JobState::Completed).await;
    assert_eq!(far.watch.stalls().await, 0);
    let received = far.watch.received().await - before;
    assert!(received < ONCE, "{received} bytes were sent for a result of {LARGE}");
    assert_eq!(value_of(&large).await.len(), LARGE - 2);
    assert_eq!(far.test.journal.runs_of(large.id()).len(), 1);
    worker.stop().await;
    nothing_is_left(&far.test).await;
}

/// A job with a large result, read over the line. The line is slow from now on.
async fn completed(far: &Far) -> (App, TaskRef<String, String>, JobHandle<String>) {
    let worker = far.works(&far._near);
    let large = far.send.dispatch(LARGE.to_string()).await.unwrap();
    is(&large, JobState::Completed).await;
    worker.stop().await;
    let app = far.test.app_at(&far.line.url()).await;
    let task: TaskRef<String, String> = app.task_ref(&far.test.name).unwrap();
    let seen = task.handle(large.id()).unwrap();
    far.line.rate(Some(SLOW));
    (app, task, seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_on_a_slow_line_reaches_its_reader_once() {
    let far = Far::start().await;
    let (_app, _task, job) = completed(&far).await;
    let before = far.watch.sent().await;
    let reading = tokio::spawn({
        let job = job.clone();
        async move { value_of(&job).await }
    });
    eventually("the result is on its way", PATIENCE, async || far.watch.sent().await > before + 256 * KIB as u64).await;
    // It does not wait for the large value on the same line.
    assert_eq!(job.state().await.unwrap(), JobState::Completed);
    assert!(!reading.is_finished());
    far.line.rate(Some(FASTER));
    assert_eq!(reading.await.unwrap().len(), LARGE - 2);
    let sent = far.watch.sent().await - before;
    assert!(sent < ONCE, "{sent} bytes were sent for a result of {LARGE}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspecting_a_job_does_not_read_its_result() {
    let far = Far::start().await;
    let (_app, task, job) = completed(&far).await;
    let before = far.watch.sent().await;
    assert_eq!(job.state().await.unwrap(), JobState::Completed);
    let found = task.job(job.id()).await.unwrap();
    assert_eq!((found.state, found.failed_attempts, found.error), (JobState::Completed, 0, None));
    let cancelled = job.cancel("").await.unwrap();
    assert_eq!(cancelled, heartline::CancelOutcome::AlreadyTerminal(JobState::Completed));
    let sent = far.watch.sent().await - before;
    assert!(sent < 100 * KIB as u64, "{sent} bytes were sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_dispatch_on_a_slow_line_delays_no_small_one() {
    let far = Far::start().await;
    let (_app, task) = far.producer().await;
    let before = far.watch.received().await;
    let large = tokio::spawn({
        let task = task.clone();
        async move { task.dispatch(text(LARGE)).await }
    });
    eventually("it is on its way", PATIENCE, async || far.watch.received().await > before + 256 * KIB as u64).await;
    for _ in 0..5 {
        let small = tokio::time::timeout(PATIENCE, task.dispatch("10".to_owned()));
        assert_eq!(small.await.expect("a small dispatch does not end").unwrap().existed(), Some(false));
    }
    assert!(!large.is_finished(), "the small dispatches came after the large one");
    far.line.rate(Some(FASTER));
    let large = large.await.unwrap().unwrap();
    assert_eq!(large.existed(), Some(false));
    assert_eq!(far.send.counts().await.unwrap().waiting, 7);
    let received = far.watch.received().await - before;
    assert!(received < ONCE, "{received} bytes were sent for a payload of {LARGE}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_large_jobs_on_a_slow_line_writes_each_once() {
    let far = Far::start().await;
    let (_app, task) = far.producer().await;
    let before = far.watch.received().await;
    let many = tokio::spawn({
        let task = task.clone();
        async move { task.dispatch_many((0..LARGE / MIB).map(|_| text(MIB))).await }
    });
    eventually("they are on their way", PATIENCE, async || far.watch.received().await > before + 256 * KIB as u64)
        .await;
    let small = task.dispatch("10".to_owned()).await.unwrap();
    assert_eq!(small.existed(), Some(false));
    assert!(!many.is_finished(), "the small dispatch came after the large ones");
    far.line.rate(Some(FASTER));
    let many = many.await.unwrap().unwrap();
    assert_eq!(many.iter().map(JobHandle::existed).collect::<Vec<_>>(), [Some(false); LARGE / MIB]);
    let payloads: usize = far.watch.conn.clone().hlen(far.test.key("payload")).await.unwrap();
    assert_eq!((payloads, far.send.counts().await.unwrap().waiting), (8, 8));
    let received = far.watch.received().await - before;
    assert!(received < ONCE, "{received} bytes were sent for {LARGE} bytes of payloads");
}
