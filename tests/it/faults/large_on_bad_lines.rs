//! Large values with a bad line, a refusing server or retention.

use std::sync::Arc;
use std::time::Duration;

use heartline::{App, Context, Error, Heartbeat, JobError, JobHandle, JobState, StallOptions, TaskOptions, TaskRef};
use redis::AsyncCommands;
use tokio::task::JoinSet;

use crate::faults::ground::{alone, far_away};
use crate::faults::watch::{KIB, MIB, Watch, text};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{Line, PATIENCE, Proxy, eventually};

/// So long that no job becomes silent or needs a second heartbeat.
const LONG: Duration = Duration::from_secs(30);

async fn length_of(job: &JobHandle<String>) -> usize {
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap().len()
}

/// A task whose handler waits at the gate and returns a large text.
fn gives_large(test: &TestTask, app: &App) -> TaskRef<String, String> {
    let journal = Arc::clone(&test.journal);
    let handler = move |ctx: Context, gate: String| {
        let journal = Arc::clone(&journal);
        async move {
            journal.begin(&ctx);
            journal.opened(&gate).await;
            Ok::<_, JobError>(text(MIB))
        }
    };
    app.task(&test.name, options(LONG), handler).unwrap()
}

async fn begins(test: &TestTask, job: &JobHandle<String>) {
    eventually("it runs", PATIENCE, async || !test.journal.runs_of(job.id()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_handler_is_not_silent_while_its_payload_is_read() {
    let (redis, test) = alone();
    let watch = Watch::new(&test, &redis).await;
    let line = Line::start(redis.address()).await;
    let app = test.app_at(&line.url()).await;
    line.rate(Some(256 * KIB as u64));
    let limits = TaskOptions::new().payload_limit(16 * MIB);
    let stall = StallOptions::new().interval(INTERVAL).max_count(0).heartbeat(Heartbeat::Manual);
    let journal = Arc::clone(&test.journal);
    let handler = move |ctx: Context, input: String| {
        journal.begin(&ctx);
        async move {
            ctx.heartbeat()?;
            Ok::<_, JobError>(input.len())
        }
    };
    app.task(&test.name, limits.clone().stall(stall), handler).unwrap();
    let near = App::builder().redis(redis.url()).task_defaults(limits).build().await.unwrap();
    let task: TaskRef<String, usize> = near.task_ref(&test.name).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(text(6 * MIB)).await.unwrap();
    eventually("it is claimed", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    watch.epochs_pass(3).await;
    assert_eq!((watch.stalls().await, test.journal.runs().len()), (0, 0));
    line.rate(None);
    let length = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    assert_eq!((length, test.journal.runs().len()), (6 * MIB - 2, 1));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_outcome_waits_for_a_server_that_refuses_writes() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let task = gives_large(&test, &app);
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("go".to_owned()).await.unwrap();
    begins(&test, &job).await;
    let mut conn = test.conn().await;
    let mut replicas = redis::cmd("CONFIG");
    let () = replicas.arg("SET").arg("min-replicas-to-write").arg(1).query_async(&mut conn).await.unwrap();
    test.journal.open("go");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut replicas = redis::cmd("CONFIG");
    let () = replicas.arg("SET").arg("min-replicas-to-write").arg(0).query_async(&mut conn).await.unwrap();
    assert_eq!(length_of(&job).await, MIB - 2);
    assert_eq!(test.journal.runs().len(), 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_outcome_on_a_silent_connection_moves_to_another() {
    let (redis, test, line) = far_away().await;
    let app = test.app_at(&line.url()).await;
    gives_large(&test, &app);
    let near = test.app_at(&redis.url()).await;
    let task: TaskRef<String, String> = near.task_ref(&test.name).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("go".to_owned()).await.unwrap();
    begins(&test, &job).await;
    // So slow that the first read on the new connection has no reply yet.
    let round_trip = Duration::from_secs(1);
    line.delay(round_trip / 2);
    tokio::time::sleep(round_trip).await;
    let number = line.connections();
    test.journal.open("go");
    eventually("it connects", PATIENCE, async || line.connections() > number).await;
    tokio::time::sleep(round_trip * 3 / 2).await;
    assert!(line.hush_number(number));
    line.delay(Duration::ZERO);
    assert_eq!(length_of(&job).await, MIB - 2);
    assert_eq!(test.journal.runs().len(), 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_large_results_use_few_connections() {
    const RESULTS: usize = 100;
    const SMALL: u64 = 12;
    let (redis, test) = alone();
    let near = test.app_at(&redis.url()).await;
    let task = gives_large(&test, &near);
    let worker = TestWorker::start(near.worker());
    let job = task.dispatch("go".to_owned()).await.unwrap();
    test.journal.open("go");
    assert_eq!(length_of(&job).await, MIB - 2);
    let line = Line::start(redis.address()).await;
    let far = test.app_at(&line.url()).await;
    let task: TaskRef<String, String> = far.task_ref(&test.name).unwrap();
    let job = task.handle(job.id()).unwrap();
    assert_eq!(job.state().await.unwrap(), JobState::Completed);
    let before = line.connections();
    // One takes sixteen seconds at this rate.
    line.rate(Some(64 * KIB as u64));
    let read = |job: JobHandle<String>| async move { length_of(&job).await };
    let mut reading: JoinSet<usize> = (0..RESULTS).map(|_| read(job.clone())).collect();
    eventually("some are on their way", PATIENCE, async || line.connections() - before >= 8).await;
    // All others would have connected before a read is answered and another second has passed.
    assert_eq!(job.state().await.unwrap(), JobState::Completed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let connections = line.connections() - before;
    assert!(connections <= SMALL, "{connections} connections for {RESULTS} results");
    line.rate(None);
    while let Some(length) = reading.join_next().await {
        assert_eq!(length.unwrap(), MIB - 2);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_removed_before_it_is_read_is_missing_and_not_null() {
    let (redis, test) = alone();
    let near = test.app_at(&redis.url()).await;
    let handler = |_: Context, bytes: usize| async move { Ok::<_, JobError>(Some(text(bytes))) };
    let task: TaskRef<usize, Option<String>> = near.task(&test.name, options(LONG), handler).unwrap();
    let worker = TestWorker::start(near.worker());
    let proxy = Proxy::start(redis.address()).await;
    let far = test.app_at(&proxy.url()).await;
    let seen: TaskRef<usize, Option<String>> = far.task_ref(&test.name).unwrap();
    let mut conn = test.conn().await;
    for bytes in [100, 600 * KIB] {
        let job = task.dispatch(bytes).await.unwrap();
        job.result().await.unwrap();
        let mut look = proxy.hold_next_reply_to(test.sha("states").await);
        let job = seen.handle(job.id()).unwrap();
        let id = job.id().clone();
        let reading = tokio::spawn(async move { job.result().await });
        look.happened().await;
        let () = conn.hdel(test.key("result"), id.as_str()).await.unwrap();
        let removed: u64 = conn.zrem(test.key("completed"), id.as_str()).await.unwrap();
        assert_eq!(removed, 1);
        drop(look);
        let read = tokio::time::timeout(PATIENCE, reading).await.expect("it waits forever").unwrap();
        let is_gone = matches!(read, Err(Error::ResultGone { .. } | Error::JobNotFound { .. }));
        assert!(is_gone, "of {bytes} bytes: {:?}", read.map(|value| value.map(|value| value.len())));
    }
    worker.stop().await;
}
