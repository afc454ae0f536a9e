//! The start of a worker of many tasks, on a line that is slow or becomes silent.

use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, StopReason, TaskOptions, WorkerPhase};

use crate::support::task::TestTask;
use crate::support::worker::TestWorker;
use crate::support::{Line, PATIENCE, Proxy};

async fn app_of(test: &TestTask, url: &str, tasks: usize, options: TaskOptions) -> App {
    let app = test.app_at(url).await;
    for at in 0..tasks {
        app.task(&format!("task-{at}"), options.clone(), |_: Context, (): ()| async { Ok::<_, JobError>(()) }).unwrap();
    }
    app
}

#[tokio::test]
async fn many_tasks_and_partitions_start_together() {
    for (tasks, options) in [(150, TaskOptions::new()), (2, TaskOptions::new().partitions(64))] {
        let test = TestTask::plain();
        let line = Line::start(test.redis().address()).await;
        let app = app_of(&test, &line.url(), tasks, options).await;
        line.delay(Duration::from_millis(50));
        let began = Instant::now();
        let worker = TestWorker::start(app.worker());
        worker.working().await;
        let took = began.elapsed();
        line.delay(Duration::ZERO);
        // One after the other, some 300 calls of 100 ms each would take 30 s, and 13 s.
        assert!(took < Duration::from_secs(10), "it took {took:?}");
        worker.stop_within(PATIENCE * 2).await;
    }
}

#[tokio::test]
async fn a_stop_ends_a_start_at_once() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let app = app_of(&test, &proxy.url(), 1, TaskOptions::new()).await;
    let worker = app.worker();
    let monitor = worker.monitor();
    let mut hold = proxy.hold_next_reply_to(test.sha("rights").await);
    let worker = TestWorker::start(worker);
    hold.happened().await;
    assert_eq!(monitor.health().phase, WorkerPhase::Starting);
    let began = Instant::now();
    let stopped = worker.begin_stop();
    let reason = tokio::time::timeout(PATIENCE, stopped).await.expect("the start does not end").unwrap().unwrap();
    assert_eq!(reason, StopReason::Shutdown);
    // The call that is held back waits 5 s for its reply.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(hold);
}

#[tokio::test]
async fn a_worker_stopped_during_its_start_is_recorded_as_stopped() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let app = app_of(&test, &proxy.url(), 1, TaskOptions::new()).await;
    let worker = app.worker();
    let id = worker.id().clone();
    let mut hold = proxy.hold_next_reply_to(test.sha("declare").await);
    let worker = TestWorker::start(worker);
    hold.happened().await;
    let stopped = worker.begin_stop();
    tokio::task::yield_now().await;
    drop(hold);
    assert_eq!(stopped.await.unwrap().unwrap(), StopReason::Shutdown);
    let report = test.app().await.inspector().worker(id.as_str()).await.unwrap().unwrap();
    assert!(report.stopped_at.is_some(), "{report:?}");
}
