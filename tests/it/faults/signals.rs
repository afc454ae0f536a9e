//! Worker processes that service managers stop.

use std::time::Duration;

use heartline::{App, Context, JobError, JobState, StopReason, TaskRef};
use redis::AsyncCommands;

use crate::support::task::options;
use crate::support::{Child, PATIENCE, TestRedis, eventually};

/// A sweep within this interval would fail the test by its stall.
const LONG: Duration = Duration::from_secs(30);

/// Not a test by itself: the program of the children.
#[test]
fn a_process_that_works_until_a_signal() {
    let Some(role) = Child::role() else { return };
    let (url, name) = role.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let app = App::builder().redis(url).build().await.unwrap();
        let options = options(LONG).shutdown_grace(Duration::from_secs(600)).cancel_grace(Duration::from_secs(2));
        app.task(name, options, |ctx: Context, what: String| async move {
            let mut conn = redis::Client::open(what.as_str())
                .unwrap()
                .get_multiplexed_async_connection_with_config(&crate::support::TestRedis::patient())
                .await
                .unwrap();
            conn.rpush::<_, _, ()>("began", ctx.id().as_str()).await.unwrap();
            if ctx.id().as_str() == "ends" {
                ctx.shutting_down().await;
                return Ok(());
            }
            ctx.cancelled().await;
            Err(JobError::new("told to stop"))
        })
        .unwrap();
        assert!(app.worker().max_shutdown_time() > Duration::from_secs(600));
        let stopped = tokio::spawn(app.worker().run_until_signal()).await.unwrap();
        assert_eq!(stopped.unwrap(), StopReason::Shutdown);
    });
}

/// A process that runs these jobs.
async fn working(redis: &TestRedis, ids: &[&str]) -> (Child, App, TaskRef<String, ()>) {
    let name = redis.unique_prefix();
    let app = App::builder().redis(redis.url()).build().await.unwrap();
    let task: TaskRef<String, ()> = app.task_ref(&name).unwrap();
    let mut child =
        Child::start(module_path!(), "a_process_that_works_until_a_signal", &format!("{} {name}", redis.url()));
    child.drain();
    for id in ids {
        task.dispatch(redis.url()).id(*id).await.unwrap();
    }
    let conn = redis.conn().await;
    eventually("the jobs run", PATIENCE, async || conn.clone().llen::<_, usize>("began").await.unwrap() == ids.len())
        .await;
    (child, app, task)
}

#[tokio::test]
async fn a_terminated_process_finishes_its_jobs_and_exits_with_zero() {
    let redis = TestRedis::start();
    let (mut child, _app, task) = working(&redis, &["ends"]).await;
    child.signal("TERM");
    assert!(child.exits().await.success());
    assert_eq!(task.handle("ends").unwrap().state().await.unwrap(), JobState::Completed);
}

#[tokio::test]
async fn a_second_signal_ends_the_grace_and_requeues_unfinished_jobs() {
    let redis = TestRedis::start();
    let (mut child, _app, task) = working(&redis, &["ends", "stays"]).await;
    child.signal("INT");
    tokio::time::timeout(PATIENCE, task.handle("ends").unwrap().result()).await.unwrap().unwrap();
    // The other process has its grace, and uses it.
    assert!(child.lives());
    assert_eq!(task.handle("stays").unwrap().state().await.unwrap(), JobState::Running);
    child.signal("TERM");
    assert!(child.exits().await.success());
    let job = task.job("stays").await.unwrap();
    assert_eq!((job.state, job.failed_attempts, job.stalled_count), (JobState::Waiting, 0, 0));
}
