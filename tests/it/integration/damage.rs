//! Tests damage the data of a job by hand: no tombstone job, no crash, a clear event, and other jobs run.

use crate::integration::fixtures::shared;
use crate::support::PATIENCE;
use crate::support::events::next;
use crate::support::task::{TASK, fast, fast_with};
use crate::support::worker::TestWorker;
use heartline::{App, Error, Event, Heartbeat, JobState, StallAction, StallOptions, TaskRef};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The ids of the runs that began.
type Runs = Arc<Mutex<Vec<String>>>;

/// A task whose jobs wait for a permit of the gate.
fn gated(app: &App) -> (TaskRef<u32, u32>, Arc<Semaphore>, Runs) {
    let (gate, ran) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (pass, log) = (gate.clone(), ran.clone());
    let task = app.task(TASK, fast(), move |ctx, input: u32| {
        log.lock().unwrap().push(ctx.id().to_string());
        let pass = pass.clone();
        async move {
            pass.acquire().await?.forget();
            Ok::<_, heartline::JobError>(input)
        }
    });
    (task.unwrap(), gate, ran)
}

#[tokio::test]
async fn a_waiting_job_without_payload_is_removed_and_reported() {
    let (test, app) = shared().await;
    let (task, gate, ran) = gated(&app);
    gate.add_permits(10);
    for (list, id) in [("wait", "gone"), ("wait", "after")] {
        task.dispatch(1).id(id).max_stalls(3).await.unwrap();
        assert_eq!(test.places(id).await, [list]);
    }
    test.run::<u64>("HDEL", "payload", &["gone"]).await;
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    // Events from a few milliseconds before the subscription may arrive first.
    let removed = loop {
        match next(&mut events).await {
            Event::Dispatched { .. } => {}
            event => break event,
        }
    };
    let is_told = matches!(&removed, Event::Removed { id, lost_payload: true, .. } if id.as_str() == "gone");
    assert!(is_told, "{removed:?}");
    let report = app.inspector().task(&test.name).await.unwrap();
    assert_eq!(report.lost_payloads, 1);
    assert!(report.payload_lost_at.is_some(), "{report:?}");
    assert_eq!(task.handle("after").unwrap().result().await.unwrap(), 1);
    assert_eq!(*ran.lock().unwrap(), ["after"]);
    assert!(test.places("gone").await.is_empty());
    assert!(matches!(task.handle("gone").unwrap().result().await, Err(Error::JobNotFound { .. })));
    for column in ["options", "maxCount", "dispatchedAt"] {
        assert_eq!(test.column(column, "gone").await, None, "{column}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_running_job_without_payload_still_ends_in_one_place() {
    let (test, app) = shared().await;
    let (task, gate, _) = gated(&app);
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(7).id("gone").await.unwrap();
    test.arrives("gone", "running").await;
    test.run::<u64>("HDEL", "payload", &["gone"]).await;
    gate.add_permits(1);
    assert_eq!(job.result().await.unwrap(), 7);
    assert_eq!(test.places("gone").await, ["completed"]);
    worker.stop().await;
}

/// Texts that are not counts. A number parser accepts some of them.
const NO_COUNTS: [&str; 11] =
    ["many", "", "1.5", "nan", "inf", "0x10", "1e3", "-1", " 1", "9223372036854775807", "99999999999999999999"];

#[tokio::test]
async fn a_malformed_counter_fails_its_waiting_job_and_no_other() {
    let (test, app) = shared().await;
    let (task, gate, ran) = gated(&app);
    gate.add_permits(100);
    let mut ids = Vec::new();
    for column in ["attempt", "stalledCount"] {
        for (at, count) in NO_COUNTS.into_iter().enumerate() {
            let id = format!("{column}-{at}");
            task.dispatch(0).id(&id).await.unwrap();
            test.run::<u64>("HSET", column, &[&id, count]).await;
            ids.push(id);
        }
    }
    let sound = task.dispatch(9).id("sound").await.unwrap();
    let worker = TestWorker::start(app.worker());
    let result = tokio::time::timeout(PATIENCE / 2, sound.result()).await;
    assert_eq!(result.expect("the valid job is not delayed").unwrap(), 9);
    for id in &ids {
        test.arrives(id, "failed").await;
        let job = task.job(id).await.unwrap();
        assert_eq!((job.state, job.error.unwrap().code.as_str()), (JobState::Failed, "corrupt"), "{id}");
    }
    assert_eq!(*ran.lock().unwrap(), ["sound"]);
    worker.stop().await;
}

#[tokio::test]
async fn other_damaged_columns_fall_back_to_the_task_options() {
    let (test, app) = shared().await;
    let (task, gate, _) = gated(&app);
    gate.add_permits(100);
    for column in ["options", "priority", "maxCount", "dispatchedAt", "error", "result"] {
        task.dispatch(3).id(column).await.unwrap();
        test.run::<u64>("HSET", column, &[column, "{\u{1}"]).await;
    }
    // Not even text.
    for column in ["options", "dispatchedAt", "attempt", "stalledCount"] {
        task.dispatch(3).id(format!("{column}-bytes")).await.unwrap();
        let mut set = redis::cmd("HSET");
        set.arg(test.key(column)).arg(format!("{column}-bytes")).arg(b"\xff\xfe");
        let () = set.query_async(&mut test.conn().await).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    for column in ["options", "dispatchedAt"] {
        assert_eq!(task.handle(format!("{column}-bytes")).unwrap().result().await.unwrap(), 3, "{column}");
    }
    for column in ["attempt", "stalledCount"] {
        let job = task.handle(format!("{column}-bytes")).unwrap();
        let failed = job.result().await.unwrap_err();
        assert!(matches!(&failed, Error::JobFailed(failure) if failure.code == "corrupt"), "{column}: {failed:?}");
        assert_eq!(task.job(job.id()).await.unwrap().error.unwrap().code, "corrupt");
    }
    for column in ["options", "priority", "maxCount", "dispatchedAt", "error", "result"] {
        assert_eq!(task.handle(column).unwrap().result().await.unwrap(), 3, "{column}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_silent_manual_job_missing_in_the_sets_is_restored_to_them() {
    let (test, app) = shared().await;
    let stall = StallOptions::new().heartbeat(Heartbeat::Manual).max_count(0);
    let task: TaskRef<u32, ()> = app
        .task(TASK, fast_with(stall), |ctx, _: u32| async move {
            ctx.cancelled().await;
            Ok::<_, heartline::JobError>(())
        })
        .unwrap();
    let mut stalls = app.on_stalled();
    let worker = TestWorker::start(app.worker());
    task.dispatch(0).id("hung").await.unwrap();
    test.arrives("hung", "running").await;
    test.run::<u64>("DEL", "active", &[]).await;
    test.run::<u64>("DEL", "candidates", &[]).await;
    let event = next(&mut stalls).await;
    assert_eq!((event.id.as_str(), event.action), ("hung", StallAction::Failed));
    assert_eq!(event.reason, heartline::StallReason::HandlerSilent);
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_lock_stops_the_handler_and_its_outcome_is_refused() {
    let (test, app) = shared().await;
    let (told, mut tell) = tokio::sync::mpsc::unbounded_channel();
    let task: TaskRef<u32, u32> = app
        .task(TASK, fast().cancel_grace(Duration::from_secs(5)), move |ctx, input: u32| {
            let told = told.clone();
            async move {
                ctx.cancelled().await;
                told.send(ctx.heartbeat())?;
                Ok::<_, heartline::JobError>(input)
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch(0).id("stolen").await.unwrap();
    test.arrives("stolen", "running").await;
    test.run::<u64>("HSET", "locks", &["stolen", "another-worker:1"]).await;
    assert_eq!(tell.recv().await, Some(Err(heartline::Interrupted::Lost)));
    test.epochs_pass(1).await;
    assert_eq!(test.column("locks", "stolen").await.as_deref(), Some("another-worker:1"));
    assert_eq!(test.places("stolen").await, ["running"]);
    worker.stop().await;
}
