//! What a live worker can rely on.

use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, eventually};
use heartline::{App, Heartbeat, Interrupted, StallAction, StallOptions, TaskOptions};
use std::time::Duration;
use tokio::sync::mpsc;

#[tokio::test]
async fn fences_grow_from_claim_to_claim_and_never_repeat() {
    let test = TestTask::new();
    let app = test.app().await;
    let task = app
        .task(TASK, fast().concurrency(3), |ctx, _: u32| async move { Ok::<_, heartline::JobError>(ctx.fence()) })
        .unwrap();
    let workers = [TestWorker::start(app.worker()), TestWorker::start(app.worker())];
    let mut last = 0;
    for round in 0..20 {
        let handles = task.dispatch_many(0..5).await.unwrap();
        let mut fences = Vec::new();
        for handle in &handles {
            fences.push(handle.result().await.unwrap());
        }
        fences.sort();
        fences.dedup();
        assert_eq!(fences.len(), 5);
        assert!(fences[0] > last, "round {round}: {fences:?} after {last}");
        last = fences[4];
    }
    // Fences must not fall after a restart of Redis that lost the counter, or after a clock that went back.
    let ahead = last + 3_600_000_000;
    test.run::<u64>("HSET", "meta", &["fence", &ahead.to_string()]).await;
    let fence = task.dispatch(0).await.unwrap().result().await.unwrap();
    assert_eq!(fence, ahead + 1);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_handler_learns_of_the_risk_before_the_job_can_be_requeued() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let app = App::builder().redis(proxy.url()).prefix(&test.prefix).build().await.unwrap();
    let (told, mut tell) = mpsc::unbounded_channel();
    let task = app.task(TASK, fast().cancel_grace(Duration::from_secs(5)), move |ctx, _: u32| {
        let told = told.clone();
        async move {
            ctx.lock_at_risk().await;
            told.send(ctx.heartbeat())?;
            ctx.cancelled().await;
            told.send(ctx.heartbeat())?;
            Ok::<_, heartline::JobError>(())
        }
    });
    let task = task.unwrap();
    let witness = test.app().await;
    let done = witness
        .task(TASK, fast(), |ctx, _: u32| async move { Ok::<_, heartline::JobError>(ctx.stalled_count()) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch(0).id("far").await.unwrap();
    test.arrives("far", "running").await;
    let other = TestWorker::start(witness.worker());
    proxy.pause();
    let first = tokio::time::timeout(PATIENCE, tell.recv()).await.unwrap();
    assert_eq!(first, Some(Ok(())), "the keeper ticks, so this is no freeze");
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 0, "the warning came first");
    assert_eq!(done.handle("far").unwrap().result().await.unwrap(), 1);
    proxy.resume();
    let second = tokio::time::timeout(PATIENCE, tell.recv()).await.unwrap();
    assert_eq!(second, Some(Err(Interrupted::Lost)));
    other.stop().await;
    worker.stop().await;
    assert_eq!(test.places("far").await, ["completed"]);
}

#[tokio::test]
async fn a_silent_manual_handler_is_found_and_an_active_one_is_kept() {
    let test = TestTask::new();
    let app = test.app().await;
    let stall = StallOptions::new().interval(Duration::from_secs(1)).heartbeat(Heartbeat::Manual).max_count(0);
    let options = fast().stall(stall).concurrency(2);
    let (told, mut tell) = mpsc::unbounded_channel();
    let task = app.task(TASK, options, move |ctx, beats: bool| {
        let told = told.clone();
        async move {
            if !beats {
                ctx.cancelled().await;
                told.send((ctx.id().to_string(), ctx.heartbeat()))?;
                return Ok::<_, heartline::JobError>(());
            }
            while ctx.heartbeat().is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            told.send((ctx.id().to_string(), ctx.heartbeat()))?;
            Ok(())
        }
    });
    let task = task.unwrap();
    let mut stalls = app.on_stalled();
    let worker = TestWorker::start(app.worker());
    task.dispatch(true).id("beats").await.unwrap();
    task.dispatch(false).id("hangs").await.unwrap();
    let event = crate::support::events::next(&mut stalls).await;
    assert_eq!((event.id.as_str(), event.action, event.stalled_count), ("hangs", StallAction::Failed, 1));
    let heard = tokio::time::timeout(PATIENCE, tell.recv()).await.unwrap().unwrap();
    assert_eq!(heard, ("hangs".to_owned(), Err(Interrupted::Lost)));
    // Its slot is free again.
    task.dispatch(false).id("next").await.unwrap();
    test.arrives("next", "running").await;
    test.arrives("beats", "running").await;
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_finished_job_gets_heartbeats_until_its_outcome_is_recorded() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let app = App::builder().redis(proxy.url()).prefix(&test.prefix).build().await.unwrap();
    let task = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("it idles", PATIENCE, async || test.epoch().await > 0).await;
    // The outcome is executed and its reply lost; the repeated call must be answered from the record.
    let settle = heartline::_internals::scripts().into_iter().find(|script| script.name == "settle").unwrap();
    let hash = redis::Script::new(settle.source).get_hash().to_owned();
    let lost_claim =
        proxy.cut_next_reply_matching(move |request| request.windows(hash.len()).any(|part| part == hash.as_bytes()));
    let job = task.dispatch(4).id("once").await.unwrap();
    lost_claim.happened().await;
    assert_eq!(job.result().await.unwrap(), 4);
    test.epochs_pass(2).await;
    assert_eq!(test.run::<u64>("XLEN", "stalls", &[]).await, 0);
    assert_eq!(test.places("once").await, ["completed"]);
    worker.stop().await;
}

#[tokio::test]
async fn presence_is_reported_until_the_worker_has_stopped() {
    let test = TestTask::new();
    let app = test.app().await;
    let task = app.task(TASK, TaskOptions::new(), |_, _: u32| async { Ok::<_, heartline::JobError>(()) }).unwrap();
    let worker = TestWorker::start(app.worker());
    let id = worker.id.clone();
    task.dispatch(0).await.unwrap().result().await.unwrap();
    let seen = async || {
        let mut conn = test.conn().await;
        let score: Option<f64> =
            redis::cmd("ZSCORE").arg(format!("{}:workers", test.prefix)).arg(&id).query_async(&mut conn).await.unwrap();
        score.is_some()
    };
    eventually("its presence is listed", PATIENCE, seen).await;
    assert!(test.column("replies", &id).await.is_some());
    worker.stop().await;
    // The key that is left says that the worker has stopped, so that late copies of its calls have no effect.
    let key = format!("{}:worker:{id}", test.prefix);
    let mut conn = test.conn().await;
    let stopped: Option<u64> = redis::cmd("HGET").arg(key).arg("stoppedAt").query_async(&mut conn).await.unwrap();
    assert!(stopped.is_some());
    assert_eq!(test.column("replies", &id).await.as_deref(), Some("closed"));
}
