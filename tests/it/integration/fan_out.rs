//! Handlers that wait for other jobs: with free slots they get their results, without one a warning is logged.

use crate::integration::fixtures::shared;
use crate::support::task::fast;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings};
use heartline::{App, Context, JobError, JobState, TaskOptions, TaskRef};
use std::time::Duration;

/// A task whose jobs each wait for another job of the same task, down to zero.
fn nested(app: &App, name: &str, options: TaskOptions) -> TaskRef<u32, u32> {
    let itself: TaskRef<u32, u32> = app.task_ref(name).unwrap();
    let handler = move |_: Context, depth: u32| {
        let itself = itself.clone();
        async move {
            if depth == 0 {
                return Ok::<_, JobError>(0);
            }
            Ok(itself.dispatch(depth - 1).await?.result().await? + 1)
        }
    };
    app.task(name, options, handler).unwrap()
}

#[tokio::test]
async fn a_task_whose_slots_all_wait_for_it_is_reported_once() {
    let warnings = Warnings::capture();
    let (test, app) = shared().await;
    let name = test.prefix.replace(':', "-");
    let task = nested(&app, &name, fast().concurrency(2).shutdown_grace(Duration::ZERO).cancel_grace(Duration::ZERO));
    let worker = TestWorker::start(app.worker());
    assert_eq!(task.dispatch(1).await.unwrap().result().await.unwrap(), 1);
    let stuck = task.dispatch(2).await.unwrap();
    let line = warnings.wait_for(&["WARN", &worker.id, "every slot", "docs/fan-out.md"], PATIENCE).await;
    assert!(line.contains(&format!("concurrency 2 of the task {name}")), "{line}");
    // Long enough for a second warning, if there were one.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let told = || warnings.all().iter().filter(|line| line.contains(&name) && line.contains("every slot")).count();
    assert_eq!(told(), 1);
    assert_eq!(stuck.state().await.unwrap(), JobState::Running);
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_whose_slots_all_wait_for_jobs_is_reported_once() {
    let warnings = Warnings::capture();
    let (test, app) = shared().await;
    let name = test.prefix.replace(':', "-");
    let options = fast().shutdown_grace(Duration::ZERO).cancel_grace(Duration::ZERO);
    let children: TaskRef<(), ()> =
        app.task(&format!("{name}-child"), options.clone(), |_, (): ()| async { Ok::<_, JobError>(()) }).unwrap();
    let parents: TaskRef<(), ()> = app
        .task(&format!("{name}-parent"), options, move |_: Context, (): ()| {
            let children = children.clone();
            async move {
                children.dispatch(()).await?.result().await?;
                Ok::<_, JobError>(())
            }
        })
        .unwrap();
    parents.dispatch_many([(); 2]).await.unwrap();
    let worker = TestWorker::start(app.worker().max_jobs(2));
    let line = warnings.wait_for(&["WARN", &worker.id, "every slot"], PATIENCE).await;
    assert!(line.contains("max_jobs 2 of the worker"), "{line}");
    worker.stop().await;
}

/// The advice of docs/fan-out.md: the parent snoozes and holds no slot meanwhile.
#[tokio::test]
async fn a_parent_that_snoozes_needs_no_slot_while_it_waits() {
    let (_test, app) = shared().await;
    let one = fast().concurrency(1);
    let children: TaskRef<u32, u32> =
        app.task("child", one.clone(), |_, n: u32| async move { Ok::<_, JobError>(n * n) }).unwrap();
    let parents: TaskRef<u32, u32> = app
        .task("parent", one, move |ctx: Context, n: u32| {
            let children = children.clone();
            async move {
                let ids = |i| format!("{}.{i}", ctx.id());
                // Ids make it repeatable: a second run dispatches no job twice.
                let handles = children.dispatch_many_with_ids((0..n).map(|i| (ids(i), i))).await?;
                let mut sum = 0;
                for handle in handles {
                    if !handle.state().await?.is_terminal() {
                        return Err(JobError::snooze(Duration::from_millis(50)));
                    }
                    sum += handle.result().await?;
                }
                Ok(sum)
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker().max_jobs(1));
    let sums = parents.dispatch_many([3, 4, 5]).await.unwrap();
    for (sum, wanted) in sums.iter().zip([5, 14, 30]) {
        assert_eq!(tokio::time::timeout(PATIENCE, sum.result()).await.unwrap().unwrap(), wanted);
    }
    worker.stop().await;
}
