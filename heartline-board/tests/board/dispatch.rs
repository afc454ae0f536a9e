//! A new job from a form, and a job that runs again as another one.

use heartline::JobState;
use heartline_board::BoardOptions;
use serde_json::Value;

use crate::site::{Site, hidden, until};

/// The address of the job that an action made.
fn made(page: &str) -> &str {
    let (before, _) = page.split_once("\">Open it</a>").expect(page);
    before.rsplit_once("href=\"").unwrap().1
}

#[tokio::test]
async fn a_job_runs_again_as_a_copy() {
    let site = Site::new().await;
    let worker = site.worker();
    site.export.dispatch("fail".into()).id("bad").await.unwrap();
    until("it failed", async || site.page("/job?task=export&id=bad").await.contains("value=\"retry\"")).await;
    let page = site.page("/job?task=export&id=bad").await;
    assert!(page.contains("value=\"dispatch_copy\"") && page.contains("Edit and dispatch"), "{page}");
    let done = site.post("/act", &[("act", "dispatch_copy"), ("task", "export"), ("id", "bad")]).await.body;
    let copy = made(&done).replace("&#38;", "&");
    assert_ne!(copy, "/job?task=export&id=bad");
    until("the copy failed, too", async || site.page(&copy).await.contains("value=\"retry\"")).await;
    let done = site.post("/act", &[("act", "dispatch_copy"), ("task", "export"), ("id", "none")]).await.body;
    assert!(done.contains("There is no such job. Nothing was dispatched."), "{done}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_is_edited_and_dispatched() {
    let site = Site::new().await;
    let worker = site.worker();
    site.export.dispatch("fail".into()).id("bad").await.unwrap();
    let page = site.page("/dispatch?task=export&id=bad").await;
    assert!(page.contains(">\n&#34;fail&#34;</textarea>"), "{page}");
    let form = |payload: &'static str| [("act", "dispatch"), ("task", "export"), ("id", "bad"), ("payload", payload)];
    // What was typed stays on the page.
    let wrong = site.post("/act", &form("\"fine")).await.body;
    assert!(wrong.contains("The input is not JSON: EOF while parsing a string"), "{wrong}");
    assert!(wrong.contains(">\n&#34;fine</textarea>"), "{wrong}");
    let done = site.post("/act", &form("\"fine\"")).await.body;
    let copy = made(&done).replace("&#38;", "&");
    until("it completed", async || site.page(&copy).await.contains(">completed<")).await;
    let long: &str = Box::leak(format!("\"{}\"", "x".repeat(16 * 1024)).into_boxed_str());
    assert!(site.post("/act", &form(long)).await.body.contains("the input is too long. Nothing was done."));
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_new_job_is_dispatched_from_the_page_of_its_task() {
    let site = Site::new().await;
    let worker = site.worker();
    until("the task is known", async || site.get("/task?task=export").await.status == 200).await;
    assert!(site.page("/task?task=export").await.contains("href=\"/dispatch?task=export\""));
    assert!(site.page("/dispatch?task=export").await.contains("With the options of the task."));
    let done = site.post("/act", &[("act", "dispatch"), ("task", "export"), ("payload", " \"x\" ")]).await.body;
    let id = made(&done).rsplit_once("id=").unwrap().1.to_owned();
    let job = site.export.handle(&id).unwrap();
    until("it completed", async || job.state().await.unwrap() == JobState::Completed).await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_form_that_is_sent_twice_dispatches_one_job() {
    let site = Site::new().await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    let page = site.page("/dispatch?task=export&id=a").await;
    let (_, id) = page.split_once("name=\"new_id\" value=\"").unwrap();
    let (id, _) = id.split_once('"').unwrap();
    let form = [("act", "dispatch"), ("task", "export"), ("id", "a"), ("new_id", id), ("payload", "\"y\"")];
    let done = site.post("/act", &form).await.body;
    assert!(done.contains(&format!("The job {id} was dispatched.")), "{done}");
    let done = site.post("/act", &form).await.body;
    assert!(done.contains(&format!("The job {id} was already dispatched.")), "{done}");
    assert!(made(&done).ends_with(id), "{done}");
    assert_eq!(site.export.counts().await.unwrap().waiting, 2);
}

#[tokio::test]
async fn two_clicks_on_run_a_copy_make_one_copy() {
    let site = Site::new().await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    let page = site.page("/job?task=export&id=a").await;
    let id = hidden(&page, "new_id");
    let form = [("act", "dispatch_copy"), ("task", "export"), ("id", "a"), ("new_id", id)];
    let done = site.post("/act", &form).await.body;
    assert!(done.contains(&format!("The job {id} was dispatched.")), "{done}");
    let done = site.post("/act", &form).await.body;
    assert!(done.contains(&format!("The job {id} was already dispatched.")), "{done}");
    assert_eq!(site.export.counts().await.unwrap().waiting, 2);
    // Another visit makes another copy.
    assert_ne!(hidden(&site.page("/job?task=export&id=a").await, "new_id"), id);
}

#[tokio::test]
async fn an_input_that_is_partly_hidden_is_not_edited() {
    let redacted = BoardOptions::behind_own_auth().redact(|_, _| Value::from("…"));
    let without = [
        (redacted, "Parts of it are hidden, and would be lost."),
        (BoardOptions::behind_own_auth().payloads(false), "This board shows no payloads and results."),
        (BoardOptions::behind_own_auth().read_only(), "You may not dispatch jobs on this board."),
    ];
    for (options, why) in without {
        let site = Site::with(options, "").await;
        site.export.dispatch("x".into()).id("a").await.unwrap();
        let page = site.get("/dispatch?task=export&id=a").await.body;
        assert!(page.contains(why), "{page}");
    }
    let options = BoardOptions::behind_own_auth().allow(|_, act| act != "dispatch");
    let site = Site::with(options, "").await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    let page = site.page("/job?task=export&id=a").await;
    assert!(!page.contains("dispatch_copy") && !page.contains("Edit and dispatch"), "{page}");
    for act in ["dispatch", "dispatch_copy"] {
        let refused = site.post("/act", &[("act", act), ("task", "export"), ("id", "a"), ("payload", "1")]).await;
        assert_eq!(refused.status, 403, "{act}");
    }
}
