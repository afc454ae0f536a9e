//! Results and their retention.

use crate::integration::fixtures::shared;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{Context, Error, Event, JobError, JobState, Retention, RetentionLimit, TaskRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Report {
    rows: u64,
    notes: Vec<String>,
    by_name: BTreeMap<String, Option<f64>>,
}

#[tokio::test]
async fn a_typed_result_is_returned_unchanged() {
    let (_test, app) = shared().await;
    let task: TaskRef<u64, Report> = app
        .task(TASK, fast(), |_, rows: u64| async move {
            let by_name = BTreeMap::from([("π \"\n".to_owned(), Some(3.5)), ("none".into(), None)]);
            Ok::<_, heartline::JobError>(Report { rows, notes: vec!["\u{0}ü".into()], by_name })
        })
        .unwrap();
    let nothing = app.task("nothing", fast(), |_, _: ()| async { Ok::<_, heartline::JobError>(()) }).unwrap();
    let maybe = app
        .task("maybe", fast(), |_, some: bool| async move { Ok::<_, heartline::JobError>(some.then_some(1)) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let report = task.dispatch(u64::MAX).await.unwrap().result().await.unwrap();
    assert_eq!((report.rows, report.notes[0].as_str(), report.by_name.len()), (u64::MAX, "\u{0}ü", 2));
    nothing.dispatch(()).await.unwrap().result().await.unwrap();
    assert_eq!(maybe.dispatch(true).await.unwrap().result().await.unwrap(), Some(1));
    assert_eq!(maybe.dispatch(false).await.unwrap().result().await.unwrap(), None);
    worker.stop().await;
}

#[tokio::test]
async fn the_status_of_a_job_has_its_progress_and_its_result() {
    let (_test, app) = shared().await;
    let (go_on, gate) = watch::channel(false);
    let task = app
        .task(TASK, fast(), move |ctx: Context, input: u32| {
            let mut gate = gate.clone();
            async move {
                ctx.progress(&40, "pages")?;
                gate.wait_for(|is_open| *is_open).await.map_err(|e| JobError::new(e.to_string()))?;
                if input == 0 { Err(JobError::new("nothing to do").with_code("empty")) } else { Ok(input + 1) }
            }
        })
        .unwrap();
    let job = task.dispatch(6).header("tenant", "acme").await.unwrap();
    job.clone().require_header("tenant", "acme").await.unwrap();
    for (name, value) in [("tenant", "globex"), ("customer", "acme")] {
        let refused = job.clone().require_header(name, value).await;
        assert!(matches!(refused, Err(Error::JobNotFound { .. })), "{name}");
    }
    let waiting = job.status().await.unwrap();
    assert_eq!((waiting.job.state, waiting.progress, waiting.result), (JobState::Waiting, None, None));
    let worker = TestWorker::start(app.worker());
    let reported = eventually("it reports progress", PATIENCE, async || {
        Some(job.status().await.unwrap()).filter(|status| status.progress.is_some())
    });
    let running = reported.await;
    assert_eq!((running.job.state, running.result), (JobState::Running, None));
    go_on.send_replace(true);
    assert_eq!(job.result().await.unwrap(), 7);
    let completed = job.status().await.unwrap();
    assert_eq!((completed.job.state, completed.result), (JobState::Completed, Some(7)));
    assert_eq!(completed.job.headers["tenant"], "acme");
    let json = serde_json::to_value(&completed).unwrap();
    assert_eq!(json.get("headers"), None);
    assert_eq!((&json["id"], &json["state"]), (&job.id().as_str().into(), &"completed".into()));
    assert_eq!((&json["progress"]["value"], &json["result"]), (&40.into(), &7.into()));

    let job = task.dispatch(0).await.unwrap();
    job.result().await.unwrap_err();
    let failed = job.status().await.unwrap();
    assert_eq!((failed.job.error.unwrap().code.as_str(), failed.result), ("empty", None));
    let unknown = task.handle("none").unwrap().status().await;
    assert!(matches!(unknown, Err(Error::JobNotFound { .. })), "{unknown:?}");
    worker.stop().await;
}

#[tokio::test]
async fn the_status_has_a_large_result_and_none_that_is_gone() {
    let (test, app) = shared().await;
    let task = app.task(TASK, fast(), |_, size: usize| async move { Ok::<_, JobError>("x".repeat(size)) }).unwrap();
    let worker = TestWorker::start(app.worker());
    for size in [3, 700_000] {
        let job = task.dispatch(size).await.unwrap();
        job.result().await.unwrap();
        assert_eq!(job.status().await.unwrap().result.map(|text| text.len()), Some(size));
        let _: u64 = test.run("HDEL", "result", &[job.id().as_str()]).await;
        assert_eq!(job.status().await.unwrap().result, None);
    }
    worker.stop().await;
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_handle_is_a_response_with_the_id_of_its_job() {
    use axum_core::response::IntoResponse;
    use futures_util::StreamExt;

    let (_test, app) = shared().await;
    let task: TaskRef<u32, u32> = app.task_ref(TASK).unwrap();
    for (status, existed) in [(202, false), (200, true)] {
        let response = task.dispatch(1).id("a").await.unwrap().into_response();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.headers()["content-type"], "application/json");
        let body: Vec<_> = response.into_body().into_data_stream().collect().await;
        let json: serde_json::Value = serde_json::from_slice(&body.into_iter().next().unwrap().unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({ "id": "a", "existed": existed }));
    }
}

#[tokio::test]
async fn a_value_that_is_not_a_number_fails_the_job() {
    let (_test, app) = shared().await;
    let task = app.task("root", fast(), |_, x: f64| async move { Ok::<f64, heartline::JobError>(x.sqrt()) }).unwrap();
    let worker = TestWorker::start(app.worker());
    let Error::JobFailed(failure) = task.dispatch(-1.0).await.unwrap().result().await.unwrap_err() else { panic!() };
    assert_eq!((&*failure.code, failure.failed_attempts), ("codec", 1));
    assert!(failure.message.contains("NaN"), "{failure}");
    assert_eq!(task.dispatch(4.0).await.unwrap().result().await.unwrap(), 2.0);
    worker.stop().await;
}

#[tokio::test]
async fn any_number_of_handles_in_any_process_get_the_same_result() {
    let (test, app) = shared().await;
    let task = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input + 1) }).unwrap();
    let elsewhere = test.app().await.task_ref::<u32, u32>(TASK).unwrap();
    let job = task.dispatch(1).id("a").delay(Duration::from_millis(200)).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for at in 0..50 {
        let handle = if at % 2 == 0 { job.clone() } else { elsewhere.handle("a").unwrap() };
        waiting.spawn(async move { handle.result().await.unwrap() });
    }
    let worker = TestWorker::start(app.worker());
    assert_eq!(tokio::time::timeout(PATIENCE, waiting.join_all()).await.unwrap(), [2; 50]);
    worker.stop().await;
}

#[tokio::test]
async fn a_missing_result_has_a_reason() {
    let (test, app) = shared().await;
    let task = app.task(TASK, fast(), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let worker = TestWorker::start(app.worker());
    let never = task.handle("never").unwrap();
    assert!(matches!(never.result().await, Err(Error::JobNotFound { id, .. }) if id.as_str() == "never"));
    assert!(matches!(never.state().await, Err(Error::JobNotFound { .. })));
    assert!(matches!(task.job("never").await, Err(Error::JobNotFound { .. })));
    let job = task.dispatch(5).id("a").await.unwrap();
    assert_eq!(job.result().await.unwrap(), 5);
    let text = test.app().await.task_ref::<u32, String>(TASK).unwrap();
    assert!(matches!(text.handle("a").unwrap().result().await, Err(Error::Codec { .. })));
    test.run::<u64>("HDEL", "result", &["a"]).await;
    assert!(matches!(job.result().await, Err(Error::ResultGone { id, .. }) if id.as_str() == "a"));
    assert_eq!(job.state().await.unwrap(), JobState::Completed);
    worker.stop().await;
}

#[tokio::test]
async fn without_retention_nothing_stays_and_a_waiting_handle_ends() {
    let (test, app) = shared().await;
    let options = fast().retention(Retention::remove_at_once());
    let task = app
        .task(TASK, options, |_, fail: bool| async move {
            if fail { Err::<_, heartline::JobError>("no".into()) } else { Ok(1) }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("its options are known", PATIENCE, async || test.epoch().await > 0).await;
    let done = task.dispatch(false).id("done").delay(Duration::from_millis(300)).max_stalls(3);
    let fails = task.dispatch(true).id("fails").delay(Duration::from_millis(300)).max_stalls(3);
    let cancelled = task.dispatch(true).id("cancelled").delay(Duration::from_secs(60)).max_stalls(3);
    let (done, fails, cancelled) = (done.await.unwrap(), fails.await.unwrap(), cancelled.await.unwrap());
    let waits = tokio::spawn({
        let cancelled = cancelled.clone();
        async move { cancelled.result().await }
    });
    let (done, fails, _) = tokio::join!(done.result(), fails.result(), cancelled.cancel(""));
    assert!(matches!(done, Err(Error::ResultGone { .. })), "{done:?}");
    assert!(matches!(&fails, Err(Error::JobFailed(failure)) if failure.code == "handler_error"), "{fails:?}");
    let cancelled = tokio::time::timeout(PATIENCE, waits).await.unwrap().unwrap();
    assert!(matches!(cancelled, Err(Error::JobCancelled { .. } | Error::JobNotFound { .. })), "{cancelled:?}");
    assert!(matches!(task.handle("done").unwrap().result().await, Err(Error::JobNotFound { .. })));
    // The id is free at once.
    assert_eq!(task.dispatch(false).id("done").await.unwrap().existed(), Some(false));
    eventually("it ran", PATIENCE, async || task.handle("done").unwrap().state().await.is_err()).await;
    worker.stop().await;
    let left: Vec<String> = test.redis().dump(&test.key("")).await.into_keys().collect();
    let mut left: Vec<&str> = left.iter().map(|key| key.rsplit_once("}:").unwrap().1).collect();
    left.retain(|key| !["replies", "events", "meta", "wake"].contains(key));
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn retention_trims_by_age_and_count_but_keeps_a_minute() {
    let test = TestTask::new();
    let keep =
        Retention::new().completed(RetentionLimit::count(2)).failed(RetentionLimit::age(Duration::from_secs(60)));
    let app = test.app().await;
    let task = app
        .task(TASK, fast().retention(keep), |_, fail: bool| async move {
            if fail { Err::<_, heartline::JobError>("no".into()) } else { Ok(1) }
        })
        .unwrap();
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    let ids = |kind: &str| (0..5).map(|at| format!("{kind}-{at}")).collect::<Vec<_>>();
    let (done, failed) = (ids("done"), ids("failed"));
    for id in done.iter().chain(&failed) {
        task.dispatch(id.starts_with("failed")).id(id).max_stalls(3).await.unwrap();
    }
    eventually("all have ended", PATIENCE, async || {
        let counts = task.counts().await.unwrap();
        (counts.completed, counts.failed) == (5, 5)
    })
    .await;
    worker.stop().await;
    // A worker trims when it starts; all of these are young.
    let worker = TestWorker::start(app.worker());
    eventually("it has sent a heartbeat", PATIENCE, async || test.column("meta", "ask").await.is_some()).await;
    test.epochs_pass(1).await;
    worker.stop().await;
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.completed, counts.failed), (5, 5));

    // Make the first four of each two minutes older.
    for (place, ids) in [("completed", &done), ("failed", &failed)] {
        for id in &ids[..4] {
            test.run::<f64>("ZINCRBY", place, &["-120000", id]).await;
        }
    }
    let worker = TestWorker::start(app.worker());
    eventually("both are trimmed", PATIENCE, async || {
        let counts = task.counts().await.unwrap();
        (counts.completed, counts.failed) == (2, 1)
    })
    .await;
    worker.stop().await;
    let removed: Vec<&String> = done[..3].iter().chain(&failed[..4]).collect();
    let dump = test.redis().dump(&test.key("")).await;
    for id in &removed {
        assert!(matches!(task.handle(id).unwrap().state().await, Err(Error::JobNotFound { .. })), "{id}");
        for (key, content) in &dump {
            let record = ["events", "replies"].iter().any(|name| key.ends_with(name));
            assert!(record || !content.contains(&format!("{id:?}")), "{key}: {content}");
        }
    }
    assert_eq!(task.handle(&done[3]).unwrap().result().await.unwrap(), 1);
    let mut told = Vec::new();
    while told.len() < removed.len() {
        if let Event::Removed { id, .. } = crate::support::events::next(&mut events).await {
            told.push(id.to_string());
        }
    }
    told.sort();
    assert_eq!(told.iter().collect::<Vec<_>>(), removed);
}

#[tokio::test]
async fn a_result_with_nan_inside_names_it() {
    let (_test, app) = shared().await;
    let task = app.task(TASK, fast(), |_, _: ()| async { Ok::<_, JobError>(vec![0.5, f64::NAN]) }).unwrap();
    let worker = TestWorker::start(app.worker());
    let unreadable = task.dispatch(()).await.unwrap().result().await.unwrap_err();
    assert!(unreadable.to_string().contains("(JSON writes null for NaN and infinity)"), "{unreadable}");
    worker.stop().await;
}
