//! Two workers with one exclusive name, as in a deploy that starts the new one first.

use std::time::Duration;

use heartline::{
    App, Context, JobError, StallAction, StallOptions, StallReason, StopReason, TaskOptions, WorkerIdentity,
};
use redis::AsyncCommands;

use crate::faults::ground::alone;
use crate::support::task::TestTask;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};

/// A job that stalls once fails.
fn strict() -> TaskOptions {
    let stall = StallOptions::new().interval(Duration::from_secs(30)).max_count(0);
    TaskOptions::new().stall(stall).concurrency(1).cancel_grace(Duration::from_millis(100))
}

async fn named(test: &TestTask, redis: &TestRedis, options: TaskOptions) -> (App, TestWorker) {
    let app = test.app_at(&redis.url()).await;
    test.declare_at(&app, options);
    let worker = TestWorker::start(app.worker().identity(WorkerIdentity::exclusive("billing-0")));
    (app, worker)
}

#[tokio::test]
async fn a_worker_whose_name_is_taken_finishes_its_jobs() {
    let (redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    let (_old_app, mut old) = named(&test, &redis, strict().shutdown_grace(PATIENCE)).await;
    let held = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&held)).await;
    let (app, new) = named(&test, &redis, strict()).await;
    eventually("the old one stops", PATIENCE, async || {
        let report = app.inspector().worker(&old.id).await.unwrap();
        report.is_some_and(|worker| worker.state == heartline::WorkerState::Stopping)
    })
    .await;
    let next = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.journal.open("gate");
    assert_eq!(old.ends().await.unwrap(), StopReason::Replaced { left: Vec::new() });
    test.each_ran_once(&[held, next.clone()]).await;
    assert_eq!(test.journal.runs_of(next.id())[0].worker, new.id);
    new.stop().await;
}

#[tokio::test]
async fn a_replaced_worker_gives_up_its_jobs_without_a_stall() {
    let (redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    let (_old_app, mut old) = named(&test, &redis, strict().shutdown_grace(Duration::ZERO)).await;
    let held = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&held)).await;
    let (_new_app, new) = named(&test, &redis, strict()).await;
    assert_eq!(old.ends().await.unwrap(), StopReason::Replaced { left: Vec::new() });
    test.journal.open("gate");
    tokio::time::timeout(PATIENCE, held.result()).await.expect("it does not run again").unwrap();
    let runs: Vec<_> = test.journal.runs_of(held.id()).into_iter().map(|run| (run.worker, run.stalled_count)).collect();
    assert_eq!(runs, [(old.id.clone(), 0), (new.id.clone(), 0)]);
    assert_eq!(test.dump("stalls").await, None);
    new.stop().await;
}

/// It takes 10 s or more: the old worker reads the request that late.
#[tokio::test]
async fn a_live_worker_that_hears_no_hint_is_not_taken_for_dead() {
    let (redis, test) = alone();
    let mut conn = test.conn().await;
    let () = redis::cmd("ACL").arg(&["SETUSER", "default", "-subscribe"]).query_async(&mut conn).await.unwrap();
    let (_app, jobs) = test.producer().await;
    let (_old_app, mut old) = named(&test, &redis, strict().shutdown_grace(PATIENCE)).await;
    let held = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&held)).await;
    // The next sign of life is as far away as it can be.
    let presence = format!("heartline:worker:{}", old.id);
    let mut seen = async || conn.hget::<_, _, u64>(&presence, "lastSeenAt").await.unwrap();
    let before = seen().await;
    eventually("it reports its presence", PATIENCE, async || seen().await > before).await;
    let (app, new) = named(&test, &redis, strict()).await;
    eventually("the old one stops", PATIENCE, async || {
        let report = app.inspector().worker(&old.id).await.unwrap();
        report.is_some_and(|worker| worker.state == heartline::WorkerState::Stopping)
    })
    .await;
    test.journal.open("gate");
    assert_eq!(old.ends().await.unwrap(), StopReason::Replaced { left: Vec::new() });
    test.each_ran_once(&[held]).await;
    assert_eq!(test.dump("stalls").await, None);
    new.stop().await;
}

/// It takes 10 s or more: the new worker waits this long after the grace.
#[tokio::test]
async fn a_live_worker_that_does_not_stop_is_replaced() {
    let (redis, test) = alone();
    let (old_app, jobs) = test.producer().await;
    let (old, presence) = ("old-1-00000000", "heartline:worker:old-1-00000000");
    let held = jobs.dispatch(String::new()).id("held").await.unwrap();
    let mut conn = test.conn().await;
    let now_ms = async |conn: &mut redis::aio::MultiplexedConnection| -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(conn).await.unwrap();
        seconds * 1000 + micros / 1000
    };
    let facts = [("tasks", test.name.as_str()), ("longestShutdown", "0"), ("lastSeenAt", "0")];
    let () = conn.hset_multiple(presence, &facts).await.unwrap();
    let at = now_ms(&mut conn).await;
    let () = conn.hset(presence, "lastSeenAt", at).await.unwrap();
    let () = conn.zadd("heartline:name:billing-0", old, at).await.unwrap();
    let () = conn.lrem(test.key("wait"), 0, "held").await.unwrap();
    let () = conn.hset(test.key("locks"), "held", format!("{old}:7")).await.unwrap();
    let () = conn.sadd(test.key("active"), "held").await.unwrap();
    let mut stalls = old_app.on_stalled();
    let app = test.app_at(&redis.url()).await;
    let told = std::sync::Arc::clone(&test.journal);
    app.task(&test.name, strict(), move |ctx: Context, _: String| {
        told.note(format!("{:?} {}", ctx.recovery().map(|recovery| recovery.reason), ctx.stalled_count()));
        async move { Ok::<_, JobError>(ctx.fence()) }
    })
    .unwrap();
    let worker = TestWorker::start(app.worker().identity(WorkerIdentity::exclusive("billing-0")));
    let lives = tokio::spawn(async move {
        loop {
            let at = now_ms(&mut conn).await;
            let () = conn.hset(presence, "lastSeenAt", at).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let stall =
        tokio::time::timeout(PATIENCE, stalls.recv()).await.expect("the worker waits for it without end").unwrap();
    lives.abort();
    let told = (stall.reason, stall.action, stall.stalled_count);
    assert_eq!(told, (StallReason::Replaced, StallAction::Requeued, 0));
    tokio::time::timeout(PATIENCE, held.result()).await.expect("it does not run").unwrap();
    assert_eq!(test.journal.interruptions(), ["Some(Replaced) 0"]);
    worker.stop().await;
}
