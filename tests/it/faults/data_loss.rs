//! A server that lost its data: workers write again what they have written once.

use std::time::Duration;

use heartline::testing::RedisServer;
use heartline::{Error, Priority, Retention, RetentionLimit, StallOptions, TaskOptions, codes};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::faults::ground::alone;
use crate::faults::watch::Watch;
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::{PATIENCE, TestRedis, eventually};

const OPTIONS: [&str; 8] =
    ["wire", "maxCount", "heartbeat", "eventMode", "priority", "keepCompleted", "keepFailed", "keepCancelled"];

fn at_most(max_count: u32) -> TaskOptions {
    options(INTERVAL).stall(StallOptions::new().interval(INTERVAL).max_count(max_count))
}

async fn flush(conn: &mut MultiplexedConnection) {
    let () = redis::cmd("FLUSHALL").query_async(conn).await.unwrap();
}

/// Two workers of a task whose jobs may not run twice have a data loss. A job that is dispatched after it kills its
/// worker.
async fn options_outlive(mut redis: TestRedis, loss: impl AsyncFnOnce(&mut TestRedis)) {
    let test = TestTask::on(&redis);
    let kept = RetentionLimit::age(Duration::from_secs(3600));
    let retention = Retention::remove_at_once().completed(kept).failed(kept);
    let options = at_most(0).priority(Priority::High).retention(retention);
    let mut workers =
        vec![test.start_mortal_worker(&redis, options.clone()).await, test.start_mortal_worker(&redis, options).await];
    let declared = async |watch: &Watch| -> Vec<Option<String>> {
        watch.conn.clone().hmget(test.key("meta"), &OPTIONS).await.unwrap()
    };
    let before = declared(&Watch::new(&test, &redis).await).await;
    loss(&mut redis).await;
    let watch = Watch::new(&test, &redis).await;
    let (app, task) = test.producer().await;
    // Without a dispatch the tools list the task again.
    let listed = async || app.inspector().task_names().await.is_ok_and(|names| names == [test.name.as_str()]);
    eventually("the task is listed again", PATIENCE, listed).await;
    let job = task.dispatch("late".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let holder = test.journal.runs_of(job.id())[0].worker.clone();
    let at = workers.iter().position(|worker| worker.id == holder).unwrap();
    workers.swap_remove(at).dies().await;
    eventually("the job is found stalled", PATIENCE, async || watch.stalls().await > 0).await;
    // A second run, which must not happen, would end at once.
    test.journal.open("late");
    let ended = tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end");
    assert!(matches!(&ended, Err(Error::JobFailed(failure)) if failure.code == codes::WORKER_CRASHED), "{ended:?}");
    assert_eq!(test.journal.runs_of(job.id()).len(), 1);
    assert_eq!(declared(&watch).await, before);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_workers_declare_options_again_after_a_flush() {
    options_outlive(TestRedis::start(), async |redis| flush(&mut redis.conn().await).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_workers_declare_options_again_after_an_empty_restart() {
    let redis = TestRedis::from_process(RedisServer::start().unwrap());
    options_outlive(redis, async |redis| redis.process().restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_of_the_newest_worker_apply_after_a_data_loss() {
    let (redis, test) = alone();
    let older = test.start_worker(at_most(0)).await;
    let newer = test.start_worker(at_most(3)).await;
    let watch = Watch::new(&test, &redis).await;
    let in_force = async || -> (Option<u32>, Option<String>) {
        watch.conn.clone().hmget(test.key("meta"), &["maxCount", "declaredAt"]).await.unwrap()
    };
    // The two workers notice it in a different order each time.
    for _ in 0..2 {
        flush(&mut watch.conn.clone()).await;
        eventually("the newer options are in force", PATIENCE, async || in_force().await.0 == Some(3)).await;
        watch.epochs_pass(1).await;
        assert_eq!(in_force().await.0, Some(3));
    }
    let settled = in_force().await;
    assert!(settled.1.is_some(), "the declaration has no stamp");
    let end = watch.epoch().await + 2;
    eventually("more epochs pass", PATIENCE, async || {
        assert_eq!(in_force().await, settled, "a worker declared again");
        watch.epoch().await >= end
    })
    .await;

    // The worker that starts during the loss is the newest.
    flush(&mut watch.conn.clone()).await;
    let newest = test.start_worker(at_most(5)).await;
    let end = watch.epoch().await + 2;
    eventually("more epochs pass", PATIENCE, async || {
        assert_eq!(in_force().await.0, Some(5), "an older worker declared over it");
        watch.epoch().await >= end
    })
    .await;
    for worker in [older, newer, newest] {
        worker.stop().await;
    }
}
