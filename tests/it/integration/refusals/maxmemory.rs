//! A server at maxmemory accepts nothing new, and existing jobs continue.

use super::shutdown::stall;
use crate::scripts::call::Task;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};
use heartline::{App, Context, Error, JobError, TaskOptions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

struct Full {
    app: App,
    by_hand: Task,
}

impl Full {
    async fn new() -> Full {
        let redis = Arc::new(TestRedis::start());
        let by_hand = Task::on(redis.clone(), "").await;
        let (prefix, _) = by_hand.prefix.split_once(":{").unwrap();
        let app = App::builder().redis(redis.app_url()).prefix(prefix).build().await.unwrap();
        Full { app, by_hand }
    }

    async fn limit(&mut self, bytes: u64) {
        let mut cmd = redis::cmd("CONFIG");
        let () = cmd.arg("SET").arg("maxmemory").arg(bytes).query_async(&mut self.by_hand.conn).await.unwrap();
    }

    async fn fill(&mut self) {
        self.limit(1).await;
        let set: redis::RedisResult<()> = redis::AsyncCommands::set(&mut self.by_hand.conn, "more", "1").await;
        assert_eq!(set.unwrap_err().code(), Some("OOM"));
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Refused { .. }) && error.is_retryable()
}

#[tokio::test]
async fn dispatch_is_refused_and_works_again_when_memory_is_free() {
    let mut full = Full::new().await;
    let task = full.app.task_ref::<u32, ()>("task").unwrap();
    task.dispatch(0).await.unwrap();
    full.fill().await;
    let before = full.by_hand.exact().await;
    assert!(is_refused(&task.dispatch(1).await.unwrap_err()));
    assert!(is_refused(&task.dispatch(2).delay(Duration::from_secs(9)).attempts(3).await.unwrap_err()));
    match task.dispatch_many(0..1000).await.unwrap_err() {
        Error::Partial { dispatched, source } => assert!(dispatched.is_empty() && is_refused(&source)),
        other => panic!("{other:?}"),
    }
    assert_eq!(full.by_hand.exact().await, before);
    assert_eq!(task.counts().await.unwrap().waiting, 1);
    full.limit(0).await;
    task.dispatch(1).await.unwrap();
    assert_eq!(task.counts().await.unwrap().waiting, 2);
}

#[tokio::test]
async fn running_jobs_are_settled_and_waiting_ones_run() {
    let mut full = Full::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let passed = Arc::clone(&gate);
    let handler = move |ctx: Context, number: u32| {
        let passed = Arc::clone(&passed);
        async move {
            passed.acquire().await?.forget();
            match number {
                1 => {
                    // The checkpoint is refused, and delays no outcome.
                    ctx.checkpoint(&number)?;
                    Err(JobError::new("as it must").fatal())
                }
                number => Ok(number * 2),
            }
        }
    };
    let options = TaskOptions::new().concurrency(2).stall(stall(1));
    let task = full.app.task("task", options, handler).unwrap();
    let handles = task.dispatch_many(0..4).await.unwrap();
    let worker = TestWorker::start(full.app.worker());
    eventually("two jobs run", PATIENCE, async || task.counts().await.unwrap().running == 2).await;
    full.fill().await;
    // Three epochs in which no worker is considered dead.
    let epoch = full.by_hand.epoch().await;
    eventually("three epochs pass", PATIENCE, async || full.by_hand.epoch().await >= epoch + 3).await;
    assert_eq!(full.by_hand.held("stalls").await, "");
    gate.add_permits(4);
    assert_eq!(handles[0].result().await.unwrap(), 0);
    assert!(matches!(handles[1].result().await.unwrap_err(), Error::JobFailed(_)));
    assert_eq!(handles[2].result().await.unwrap(), 4);
    assert_eq!(handles[3].result().await.unwrap(), 6);
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_on_a_full_server_starts_sweeps_and_drains() {
    let mut full = Full::new().await;
    let task = full.app.task_ref::<u32, u32>("task").unwrap();
    task.dispatch(1).id("waiting").await.unwrap();
    full.by_hand.hset("payload", &[("dead", "2"), ("poison", "3")]).await;
    full.by_hand.hset("maxCount", &[("poison", "0")]).await;
    full.by_hand.hset("locks", &[("dead", "gone-1-00000000:5"), ("poison", "gone-1-00000000:6")]).await;
    full.by_hand.sadd("active", &["dead", "poison"]).await;
    full.fill().await;
    let working = App::builder().redis(full.by_hand.url()).prefix(full.by_hand.app_prefix()).build().await.unwrap();
    let handler = async |_: Context, number: u32| Ok::<_, JobError>(number * 2);
    let task = working.task("task", TaskOptions::new().stall(stall(1)), handler).unwrap();
    let worker = TestWorker::start(working.worker());
    assert_eq!(task.handle("waiting").unwrap().result().await.unwrap(), 2);
    assert_eq!(task.handle("dead").unwrap().result().await.unwrap(), 4);
    match task.handle("poison").unwrap().result().await.unwrap_err() {
        Error::JobFailed(failure) => assert_eq!((failure.code.as_str(), failure.stalled_count), ("worker_crashed", 1)),
        other => panic!("{other:?}"),
    }
    assert_eq!(task.job("dead").await.unwrap().stalled_count, 1);
    worker.stop().await;
}

/// Housekeeping runs every 5 s: a refusal must not interrupt the watch of a longer interval.
#[tokio::test]
async fn a_dead_job_is_swept_with_an_interval_over_housekeeping() {
    let mut full = Full::new().await;
    full.by_hand.hset("payload", &[("dead", "2")]).await;
    full.by_hand.hset("locks", &[("dead", "gone-1-00000000:5")]).await;
    full.by_hand.sadd("active", &["dead"]).await;
    let handler = async |_: Context, number: u32| Ok::<_, JobError>(number * 2);
    let task = full.app.task("task", TaskOptions::new().stall(stall(7)), handler).unwrap();
    let worker = TestWorker::start(full.app.worker());
    full.fill().await;
    let ended = tokio::time::timeout(Duration::from_secs(25), task.handle("dead").unwrap().result()).await;
    assert_eq!(ended.expect("no worker swept it within 25 s, more than three intervals").unwrap(), 4);
    worker.stop().await;
}
