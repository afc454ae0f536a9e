//! Workers whose data is overwritten while they run.

use heartline::{App, Context, JobError, TaskRef};

use super::hostile::{Stranger, Tasks, declare, dispatch, options, rounds};
use crate::support::task::built;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis};

const PREFIX: &str = "fuzz";

/// Every round, a job of another task must end. At the end the overwritten keys are removed, and jobs run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_survive_overwritten_data_and_run_other_jobs() {
    let redis = TestRedis::start();
    let (app, tasks) = process(&redis).await;
    let (other, _) = process(&redis).await;
    // It reads no stream of the overwritten tasks.
    let producer = built(&redis.url(), PREFIX).await;
    let safe: TaskRef<u64, u64> = producer.task_ref("safe").unwrap();
    let workers = [TestWorker::start(app.worker()), TestWorker::start(other.worker())];
    for worker in &workers {
        worker.working().await;
    }
    // A mark in the presence of a worker makes it quiet, as a person may.
    let kept = [":{safe}:", &format!("worker:{}", workers[0].id), &format!("worker:{}", workers[1].id)];
    let mut stranger = Stranger::new(redis.conn().await, PREFIX, &kept);
    for round in 0..rounds(60) as u64 {
        if round % 8 == 0 {
            let _ = tokio::time::timeout(PATIENCE, dispatch(&app, &tasks)).await;
            stranger.leave_held_jobs().await;
        }
        stranger.overwrite().await;
        let job = safe.dispatch(round).await.unwrap();
        let end = tokio::time::timeout(PATIENCE, job.result()).await;
        assert!(matches!(end, Ok(Ok(value)) if value == round), "{end:?} after {:#?}", stranger.log);
    }
    stranger.remove_all().await;
    for input in [0, 4, 8] {
        let job = tasks.hurt.dispatch(input).await.unwrap();
        let end = tokio::time::timeout(PATIENCE, job.result()).await;
        assert!(matches!(end, Ok(Ok(value)) if value == input), "{end:?} after {:#?}", stranger.log);
    }
    for worker in workers {
        worker.stop().await;
    }
}

/// An App with the overwritten tasks, and `safe`.
async fn process(redis: &TestRedis) -> (App, Tasks) {
    let app = built(&redis.url(), PREFIX).await;
    let tasks = declare(&app);
    app.task("safe", options(), |_: Context, input: u64| async move { Ok::<_, JobError>(input) }).unwrap();
    (app, tasks)
}
