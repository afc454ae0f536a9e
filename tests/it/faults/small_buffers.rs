//! A server whose output buffers are smaller than its replies.

use std::time::Duration;

use heartline::{Context, Error, JobError, RetryPolicy, StallOptions, TaskOptions, TaskRef, codes};

use crate::faults::watch::{KIB, text};
use crate::support::task::TestTask;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, Warnings};

async fn small_buffers(test: &TestTask) {
    let mut config = redis::cmd("CONFIG");
    config.arg("SET").arg("client-output-buffer-limit").arg("normal 256kb 128kb 1");
    config.query_async::<()>(&mut test.conn().await).await.unwrap();
}

fn lengths(test: &TestTask, app: &heartline::App) -> TaskRef<String, usize> {
    let retry = RetryPolicy::new().attempts(1);
    let options =
        TaskOptions::new().concurrency(4).retry(retry).stall(StallOptions::new().interval(Duration::from_secs(30)));
    app.task(&test.name, options, |_: Context, input: String| async move { Ok::<_, JobError>(input.len()) }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_the_server_cannot_send_delays_no_other() {
    let warnings = Warnings::capture();
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let app = test.app_at(&redis.url()).await;
    let task = lengths(&test, &app);
    small_buffers(&test).await;
    let mut unsent = Vec::new();
    // One payload comes with a claim, the other is read separately at once.
    for bytes in [400 * KIB, 700 * KIB] {
        unsent.push(task.dispatch(text(bytes)).await.unwrap());
    }
    let small: Vec<_> = task.dispatch_many((0..20).map(|_| text(100))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for job in small {
        let length = tokio::time::timeout(PATIENCE, job.result()).await.expect("a small job waits").unwrap();
        assert_eq!(length, 98);
    }
    for job in unsent {
        let ended = tokio::time::timeout(PATIENCE * 3, job.result()).await.expect("it is tried repeatedly");
        let Err(Error::JobFailed(failure)) = ended else { panic!("{ended:?}") };
        assert_eq!(failure.code, codes::PAYLOAD_UNREADABLE, "{failure}");
        assert!(failure.message.contains("client-output-buffer-limit"), "{failure}");
    }
    let lines = warnings.all();
    let told =
        lines.iter().filter(|line| line.contains(&test.name) && line.contains("closes the connection during answers"));
    assert_eq!(told.count(), 1, "{lines:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_that_only_fit_alone_are_read_one_by_one() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let app = test.app_at(&redis.url()).await;
    let task = lengths(&test, &app);
    small_buffers(&test).await;
    let jobs = task.dispatch_many((0..12).map(|_| text(100 * KIB))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for job in jobs {
        let length = tokio::time::timeout(PATIENCE, job.result()).await.expect("it is never claimed").unwrap();
        assert_eq!(length, 100 * KIB - 2);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_the_server_cannot_send_delays_no_other() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let app = test.app_at(&redis.url()).await;
    let options = TaskOptions::new().concurrency(4).stall(StallOptions::new().interval(Duration::from_secs(30)));
    let handler = |_: Context, bytes: usize| async move { Ok::<_, JobError>(text(bytes)) };
    let task: TaskRef<usize, String> = app.task(&test.name, options, handler).unwrap();
    small_buffers(&test).await;
    let worker = TestWorker::start(app.worker());
    let unsent = task.dispatch(400 * KIB).await.unwrap();
    let sent = task.dispatch_many([100, 100 * KIB, 100, 100 * KIB, 100 * KIB]).await.unwrap();
    let waits = tokio::spawn(async move { unsent.result().await });
    for job in sent {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("it waits for another result").unwrap();
    }
    let ended = tokio::time::timeout(PATIENCE * 3, waits).await.expect("it is read repeatedly").unwrap();
    assert!(matches!(ended, Err(Error::Connect { .. })), "{:?}", ended.map(|value| value.len()));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_jobs_with_large_headers_are_claimed_in_parts() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let app = test.app_at(&redis.url()).await;
    let options = TaskOptions::new().concurrency(400).stall(StallOptions::new().interval(Duration::from_secs(30)));
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input.len()) };
    let task: TaskRef<String, usize> = app.task(&test.name, options, handler).unwrap();
    small_buffers(&test).await;
    let mut jobs = Vec::new();
    for _ in 0..200 {
        jobs.push(task.dispatch(text(10)).header("trace", text(3 * KIB)).await.unwrap());
    }
    let worker = TestWorker::start(app.worker());
    for job in jobs {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("it is never claimed").unwrap();
    }
    worker.stop().await;
}
