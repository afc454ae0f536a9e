//! An outage behind a proxy that accepts connections and closes them at once: it says nothing about large values.

use std::net::SocketAddr;
use std::time::Duration;

use heartline::{Context, JobError, RetryPolicy, StallOptions, TaskOptions, TaskRef};
use tokio::net::TcpListener;

use crate::faults::ground::proxied;
use crate::faults::watch::{KIB, text};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, Warnings};

/// Longer than the time after which a value counts as too large for the server.
const OUTAGE: Duration = Duration::from_secs(8);

/// Listens until the runtime ends, and closes what it accepts.
async fn closes_all() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    address
}

/// The next value that is read alone gets no answer. Then the server is away for a while.
async fn is_away_during_a_read(proxy: &Proxy, redis: &TestRedis, meanwhile: impl AsyncFnOnce()) {
    let reads = |request: &[u8]| request.windows(6).any(|part| part == b"\r\nHGET");
    let cut = proxy.cut_next_reply_matching(reads);
    meanwhile().await;
    cut.happened().await;
    proxy.lead_to(closes_all().await);
    proxy.drop_connections();
    tokio::time::sleep(OUTAGE).await;
    proxy.lead_to(redis.address());
    proxy.drop_connections();
}

fn options() -> TaskOptions {
    let stall = StallOptions::new().interval(Duration::from_secs(30));
    TaskOptions::new().concurrency(4).retry(RetryPolicy::new().attempts(1)).stall(stall)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_payload_is_read_after_an_outage_behind_a_proxy() {
    let warnings = Warnings::capture();
    let (redis, test, proxy) = proxied().await;
    let (app, direct) = (test.app_at(&proxy.url()).await, test.app_at(&redis.url()).await);
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input.len()) };
    let _: TaskRef<String, usize> = app.task(&test.name, options(), handler).unwrap();
    let task = direct.task_ref::<String, usize>(&test.name).unwrap();
    let worker = TestWorker::start(app.worker());
    let mut jobs = Vec::new();
    is_away_during_a_read(&proxy, &redis, async || {
        jobs.push(task.dispatch(text(700 * KIB)).await.unwrap());
    })
    .await;
    jobs.extend(task.dispatch_many((0..20).map(|_| text(400 * KIB / 20))).await.unwrap());
    for job in jobs {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("it never runs").unwrap();
    }
    let lines = warnings.all();
    assert!(
        !lines.iter().any(|line| line.contains(&test.name) && line.contains("closes the connection during")),
        "{lines:?}"
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_is_read_after_an_outage_behind_a_proxy() {
    let (redis, test, proxy) = proxied().await;
    let (proxied, app) = (test.app_at(&proxy.url()).await, test.app_at(&redis.url()).await);
    let handler = |_: Context, bytes: usize| async move { Ok::<_, JobError>(text(bytes)) };
    let task: TaskRef<usize, String> = app.task(&test.name, options(), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(700 * KIB).await.unwrap();
    job.result().await.unwrap();
    let job = proxied.task_ref::<usize, String>(&test.name).unwrap().handle(job.id().as_str()).unwrap();
    let mut waits = None;
    is_away_during_a_read(&proxy, &redis, async || {
        waits = Some(tokio::spawn(async move { job.result().await }));
    })
    .await;
    let result = tokio::time::timeout(PATIENCE, waits.unwrap()).await.expect("it is never read").unwrap();
    assert_eq!(result.unwrap().len(), 700 * KIB - 2);
    worker.stop().await;
}
