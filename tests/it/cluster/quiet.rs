//! A worker is made quiet whose presence and tasks are on several nodes.

use std::sync::Arc;
use std::time::Duration;

use heartline::{App, Context, JobError, PauseEvent, StallOptions, TaskEvent, TaskOptions, TaskRef};
use tokio::sync::Semaphore;

use crate::cluster::six::{Six, TASKS};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

/// Waits until each task has this many waiting and claimed jobs.
async fn counts(tasks: &[TaskRef<u64, u64>], waiting: u64, claimed: u64) {
    eventually(&format!("{waiting} waiting and {claimed} claimed"), PATIENCE, async || {
        for task in tasks {
            let counts = task.counts().await.unwrap();
            if (counts.waiting, counts.claimed, counts.running) != (waiting, claimed, 1) {
                return false;
            }
        }
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_tasks_on_each_node_is_made_quiet() {
    let six = Six::start().await;
    let (app, gate) = (App::builder().redis(six.cluster.url()).build().await.unwrap(), Arc::new(Semaphore::new(0)));
    let handler = move |_: Context, input: u64| {
        let gate = Arc::clone(&gate);
        async move {
            if input == 0 {
                gate.acquire().await.unwrap().forget();
            }
            Ok::<_, JobError>(input)
        }
    };
    let stall = StallOptions::new().interval(Duration::from_secs(3));
    let options = TaskOptions::new().concurrency(1).prefetch(2).stall(stall).cancel_grace(Duration::ZERO);
    let options = options.shutdown_grace(Duration::ZERO);
    let tasks: Vec<_> = TASKS.iter().map(|task| app.task(task, options.clone(), handler.clone()).unwrap()).collect();
    let worker = TestWorker::start(app.worker());
    for task in &tasks {
        task.dispatch_many([0, 1, 2]).await.unwrap();
    }
    counts(&tasks, 0, 2).await;
    let ada = app.inspector().by("ada");
    assert_eq!(ada.quiet_worker(&worker.id).await.unwrap(), None);
    counts(&tasks, 2, 0).await;
    for task in &tasks {
        let told = ada.events(task.name(), None).await.unwrap().events;
        let is_told =
            |event: &TaskEvent| matches!(event, TaskEvent::Pause(PauseEvent::WorkerQuiet { by, .. }) if by == "ada");
        assert!(told.iter().any(is_told), "{told:?}");
    }
    assert!(ada.resume_worker(&worker.id).await.unwrap().is_some());
    counts(&tasks, 0, 2).await;
    worker.stop().await;
}
