//! What the page after an action says, and what the other pages show then.

use heartline::{Context, JobError, JobState, RunningWorker, TaskOptions, TaskRef};

use crate::site::{Site, until};

/// A task whose job runs until it is cancelled.
async fn running(site: &Site) -> (TaskRef<u32, ()>, RunningWorker) {
    let handler = |ctx: Context, _: u32| async move {
        ctx.cancelled().await;
        Err::<(), _>(JobError::new("it was cancelled"))
    };
    let task = site.app.task("endless", TaskOptions::new(), handler).unwrap();
    task.dispatch(1).id("a").await.unwrap();
    let worker = site.worker();
    until("it runs", async || task.job("a").await.unwrap().state == JobState::Running).await;
    (task, worker)
}

#[tokio::test]
async fn a_cancel_says_that_a_running_job_was_asked_to_stop() {
    let site = Site::new().await;
    let (task, worker) = running(&site).await;
    let cancel = [("act", "cancel"), ("task", "endless"), ("id", "a"), ("confirmed", "yes")];
    let done = site.post("/act", &cancel).await.body;
    assert!(done.contains("<p>1 running job asked to stop, 0 refused</p>"), "{done}");
    assert!(done.contains("ends as cancelled when its handler has stopped."), "{done}");
    until("it has stopped", async || task.job("a").await.unwrap().state == JobState::Cancelled).await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_overview_is_right_at_once_after_an_action() {
    let site = Site::new().await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    until("it is listed", async || site.page("/").await.contains("/task?task=export")).await;
    let calm = site.page("/").await;
    assert!(!calm.contains("Paused by") && !calm.contains("paused</span>"), "{calm}");
    let pause = [("act", "pause"), ("task", "export"), ("reason", "disk is full")];
    assert!(site.post("/act", &pause).await.body.contains("export is paused"));
    let page = site.page("/").await;
    assert!(page.contains("Paused by board") && page.contains("disk is full"), "{page}");
    assert!(site.post("/act", &[("act", "resume"), ("task", "export")]).await.body.contains("is resumed"));
    let page = site.page("/").await;
    assert!(!page.contains("Paused by board"), "{page}");
}
