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
    let page = site.page("/job?task=endless&id=a").await;
    assert!(page.contains("value=\"cancel\"") && !page.contains("asked to stop"), "{page}");
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

#[tokio::test]
async fn the_confirmation_of_a_cancel_asks_for_a_reason() {
    let site = Site::new().await;
    site.damaged(&["HSET meta declaredAt 1"]).await;
    for id in ["a", "b"] {
        site.export.dispatch("x".into()).id(id).await.unwrap();
    }
    let cancel = |id: &'static str| [("act", "cancel"), ("task", "export"), ("id", id)];
    let asked = site.post("/act", &cancel("a")).await.body;
    assert!(
        asked.contains("<input type=\"text\" name=\"reason\"") && asked.matches("\"reason\"").count() == 1,
        "{asked}"
    );
    let remove = site.post("/act", &[("act", "remove"), ("task", "export"), ("id", "a")]).await.body;
    assert!(!remove.contains("type=\"text\" name=\"reason\""), "{remove}");
    let yes = [("confirmed", "yes"), ("reason", "wrong month")];
    assert!(site.post("/act", &[&cancel("a")[..], &yes].concat()).await.body.contains("1 cancelled"));
    assert!(site.page("/job?task=export&id=a").await.contains("wrong month (cancelled by board)"));
    assert!(site.post("/act", &[&cancel("b")[..], &yes[..1]].concat()).await.body.contains("1 cancelled"));
    assert!(site.page("/job?task=export&id=b").await.contains("cancelled by board"));
}

#[tokio::test]
async fn acts_of_people_are_listed_with_person_and_reason() {
    let site = Site::of_one_table().await;
    site.run(&[("a", "fail"), ("b", "fail"), ("c", "fail")]).await;
    assert!(site.page("/acts?task=export").await.contains("No act of a person is stored."));
    assert!(site.page("/task?task=export").await.contains("href=\"/acts?task=export\""));
    let act = async |form: &[(&str, &str)]| site.post("/act", &[&[("task", "export")], form].concat()).await.body;
    assert!(act(&[("act", "pause"), ("reason", "disk <full>")]).await.contains("is paused"));
    assert!(act(&[("act", "resume")]).await.contains("is resumed"));
    let all = [("act", "retry"), ("state", "failed"), ("confirmed", "yes")];
    assert!(act(&all).await.contains("3 run again"));
    for id in ["a", "b"] {
        assert!(act(&[("act", "cancel"), ("id", id), ("confirmed", "yes")]).await.contains("1 cancelled"));
    }
    let page = site.page("/acts?task=export").await;
    for part in [
        "Paused the task",
        "disk &#60;full&#62;",
        "Resumed the task",
        "Retried: 3 jobs",
        "and 2 more",
        "Cancelled: 1 job",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("<td class=\"c-end\">board</td>").count(), 5, "{page}");
    assert!(page.find("Cancelled: 1 job") < page.find("Paused the task"), "the latest first: {page}");
    // An act on a worker is listed at once, too.
    let worker = site.worker();
    let quiet = [("act", "quiet_worker"), ("worker", worker.id().as_str())];
    let of_task = async || site.app.inspector().worker(worker.id().as_str()).await.unwrap();
    until("it reports its task", async || of_task().await.is_some_and(|it| !it.tasks.is_empty())).await;
    assert_eq!(site.post("/act", &quiet).await.status, 200);
    let page = site.page("/acts?task=export").await;
    assert!(page.contains("Asked a worker to claim no more jobs"), "{page}");
    let _ = worker.stop().await.unwrap();
    assert_eq!(site.get("/acts?task=exprt").await.status, 404);
}
