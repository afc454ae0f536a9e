//! What a live worker can rely on.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy};
use heartline::{App, Context, Heartbeat, Interrupted, JobError, StallAction, StallOptions};
use std::time::Duration;
use tokio::sync::mpsc;

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
    let (test, app) = shared().await;
    let options = fast_with(StallOptions::new().heartbeat(Heartbeat::Manual).max_count(0)).concurrency(2);
    let (told, mut tell) = mpsc::unbounded_channel();
    let handler = move |ctx: Context, beats: bool| {
        let told = told.clone();
        async move {
            if beats {
                while ctx.heartbeat().is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            } else {
                ctx.cancelled().await;
            }
            told.send((ctx.id().to_string(), ctx.heartbeat()))?;
            Ok::<_, JobError>(())
        }
    };
    let task = app.task(TASK, options, handler).unwrap();
    let mut stalls = app.on_stalled();
    let worker = TestWorker::start(app.worker());
    task.dispatch(true).id("beats").await.unwrap();
    task.dispatch(false).id("hangs").await.unwrap();
    let event = next(&mut stalls).await;
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
