//! Checkpoints and progress: notes of a handler reach Redis, the next run and readers, and only the worker that holds
//! the job can write them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    Context, Event, Interrupted, JobError, JobState, JobValues, NoteError, Retention, RetryPolicy, StallReason,
    TaskOptions, TaskRef,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::integration::fixtures::{producing, shared};
use crate::support::events::next;
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, eventually};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Page {
    number: u32,
    token: String,
}

fn page(number: u32) -> Page {
    Page { number, token: format!("after {number}") }
}

/// The checkpoints that each run found.
type Found = Arc<Mutex<Vec<Option<Page>>>>;

/// A handler that notes a page and fails, until it finds one.
fn once(
    found: &Found,
) -> impl Fn(Context, String) -> futures_util::future::BoxFuture<'static, Result<u64, JobError>> + use<> {
    let found = Arc::clone(found);
    move |ctx, _| {
        let found = Arc::clone(&found);
        Box::pin(async move {
            let last = ctx.last_checkpoint::<Page>().await?;
            found.lock().unwrap().push(last.clone());
            match last {
                Some(page) => Ok(page.number.into()),
                None => {
                    ctx.checkpoint(&page(6))?;
                    ctx.checkpoint(&page(7))?;
                    Err("half way".into())
                }
            }
        })
    }
}

#[tokio::test]
async fn a_retried_run_continues_from_the_last_checkpoint() {
    let test = TestTask::new();
    let (app, found) = (test.app().await, Found::default());
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::ZERO);
    let task = app.task(TASK, fast().retry(retry), once(&found)).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("x".into()).id("a").await.unwrap();
    assert_eq!(job.result().await.unwrap(), 7);
    assert_eq!(*found.lock().unwrap(), [None, Some(page(7))]);
    // No run continues a completed job.
    assert_eq!(test.dump("checkpoint").await, None);
    worker.stop().await;
}

#[tokio::test]
async fn a_failed_job_keeps_its_checkpoint_for_a_manual_retry() {
    let test = TestTask::new();
    let (app, found) = (test.app().await, Found::default());
    let task = app.task(TASK, fast(), once(&found)).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("x".into()).id("a").await.unwrap();
    job.result().await.unwrap_err();
    let inspector = app.inspector();
    let report = inspector.job(TASK, "a", JobValues::Small).await.unwrap().unwrap();
    assert_eq!(report.checkpoint, Some(serde_json::to_value(page(7)).unwrap()));
    assert!(report.checkpoint_bytes > 20 && report.state == JobState::Failed);
    inspector.retry(TASK, "a").await.unwrap();
    eventually("it completes", PATIENCE, async || job.state().await.unwrap() == JobState::Completed).await;
    assert_eq!(*found.lock().unwrap(), [None, Some(page(7))]);
    worker.stop().await;
}

/// A worker whose handlers note what the test sends, and report the replies.
async fn scribe(test: &TestTask, url: &str, options: TaskOptions) -> (TestWorker, mpsc::UnboundedSender<Step>, Told) {
    let app = test.app_at(url).await;
    let (send, receive) = mpsc::unbounded_channel::<Step>();
    let (receive, told) = (Arc::new(tokio::sync::Mutex::new(receive)), Told::default());
    let says = Arc::clone(&told);
    let _: TaskRef<String, u64> = app
        .task(&test.name, options, move |ctx: Context, _: String| {
            let (receive, told) = (Arc::clone(&receive), Arc::clone(&says));
            async move {
                let mut receive = receive.lock().await;
                while let Some(step) = receive.recv().await {
                    let said = match step {
                        Step::Checkpoint(number) => ctx.checkpoint(&page(number)),
                        Step::Now(number) => ctx.checkpoint_now(&page(number)).await,
                        Step::Progress(percent) => ctx.progress(&percent, "pages"),
                        Step::Block(time) => {
                            std::thread::sleep(time);
                            Ok(())
                        }
                        Step::Return(outcome) => return outcome,
                    };
                    told.lock().unwrap().push(said.map_err(|e| match e {
                        NoteError::Interrupted(interrupted) => Some(interrupted),
                        _ => None,
                    }));
                }
                Ok(0)
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    (worker, send, told)
}

enum Step {
    Checkpoint(u32),
    Now(u32),
    Progress(u32),
    Block(Duration),
    Return(Result<u64, JobError>),
}

type Told = Arc<Mutex<Vec<Result<(), Option<Interrupted>>>>>;

/// The stored checkpoint.
async fn stored(test: &TestTask, id: &str) -> Option<Page> {
    let text = test.column("checkpoint", id).await?;
    serde_json::from_str(text.splitn(4, ' ').nth(3).unwrap()).unwrap()
}

#[tokio::test]
async fn the_latest_note_is_written_while_the_handler_continues() {
    let (test, app, task) = producing().await;
    let mut events = app.events();
    let (worker, steps, _) = scribe(&test, &test.redis().app_url(), fast()).await;
    let job = task.dispatch("x".into()).id("a").await.unwrap();
    assert_eq!(job.progress().await.unwrap(), None);
    for number in 1..=9 {
        steps.send(Step::Checkpoint(number)).ok().unwrap();
        steps.send(Step::Progress(number * 10)).ok().unwrap();
    }
    eventually("it is written", PATIENCE, async || stored(&test, "a").await == Some(page(9))).await;
    let said = eventually("progress is stored", PATIENCE, async || {
        job.progress().await.unwrap().filter(|progress| progress.value == 90)
    })
    .await;
    assert_eq!(said.message, "pages");
    let report = app.inspector().job(TASK, "a", JobValues::None).await.unwrap().unwrap();
    assert_eq!((report.progress, report.checkpoint), (Some(said), None));
    let told = loop {
        if let Event::Progress { id, value, message, worker, .. } = next(&mut events).await
            && value == 90
        {
            break (id.to_string(), message, worker.to_string());
        }
    };
    assert_eq!(told, ("a".to_owned(), "pages".to_owned(), worker.id.clone()));
    steps.send(Step::Return(Ok(1))).ok().unwrap();
    job.result().await.unwrap();
    worker.stop().await;
}

/// A single thread, which the handler blocks: nothing else of the user's runtime runs meanwhile.
#[tokio::test(flavor = "current_thread")]
async fn notes_are_written_while_the_handler_blocks_the_runtime() {
    let (test, _app, task) = producing().await;
    let (worker, steps, _) = scribe(&test, &test.redis().app_url(), fast()).await;
    steps.send(Step::Checkpoint(3)).ok().unwrap();
    steps.send(Step::Block(Duration::from_millis(2_500))).ok().unwrap();
    steps.send(Step::Return(Ok(1))).ok().unwrap();
    let client = redis::Client::open(test.redis().url()).unwrap();
    let key = test.key("checkpoint");
    let watcher = std::thread::spawn(move || {
        let mut conn = client.get_connection().unwrap();
        let began = std::time::Instant::now();
        loop {
            let text: Option<String> = redis::cmd("HGET").arg(&key).arg("a").query(&mut conn).unwrap();
            if text.is_some() || began.elapsed() > Duration::from_secs(20) {
                return (text, std::time::Instant::now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let job = task.dispatch("x".into()).id("a").await.unwrap();
    job.result().await.unwrap();
    let ended = std::time::Instant::now();
    let (text, written) = watcher.join().unwrap();
    assert!(text.is_some_and(|text| text.contains("after 3")));
    assert!(ended - written > Duration::from_millis(200), "it was written only after the handler");
    worker.stop().await;
}

/// In either case the handler waits for the test and is dropped.
#[tokio::test]
async fn a_stopped_or_dropped_worker_writes_notes_and_then_hands_back() {
    for is_dropped in [false, true] {
        let (test, _app, task) = producing().await;
        let (worker, steps, told) = scribe(&test, &test.redis().app_url(), fast()).await;
        task.dispatch("x".into()).id("a").await.unwrap();
        steps.send(Step::Checkpoint(1)).ok().unwrap();
        eventually("it is written", PATIENCE, async || stored(&test, "a").await == Some(page(1))).await;
        steps.send(Step::Checkpoint(2)).ok().unwrap();
        eventually("it is noted", PATIENCE, async || told.lock().unwrap().len() == 2).await;
        match is_dropped {
            false => worker.stop().await,
            true => worker.abort(),
        }
        test.arrives("a", "wait").await;
        assert_eq!(stored(&test, "a").await, Some(page(2)), "{is_dropped}");
    }
}

#[tokio::test]
async fn checkpoint_now_returns_when_redis_has_it_or_fails() {
    let test = TestTask::plain();
    let (_app, task) = test.producer().await;
    let line = Proxy::start(test.redis().address()).await;
    let (worker, steps, told) = scribe(&test, &line.url(), fast()).await;
    let job = task.dispatch("x".into()).id("a").await.unwrap();
    steps.send(Step::Now(1)).ok().unwrap();
    eventually("the handler replies", PATIENCE, async || told.lock().unwrap().len() == 1).await;
    assert_eq!((stored(&test, "a").await, told.lock().unwrap()[0]), (Some(page(1)), Ok(())));
    line.refuse().await;
    steps.send(Step::Now(2)).ok().unwrap();
    eventually("the handler replies", PATIENCE, async || told.lock().unwrap().len() == 2).await;
    assert_eq!(told.lock().unwrap()[1], Err(None), "it may or may not be written");
    line.accept().await;
    // The worker tries again.
    eventually("it is written", PATIENCE, async || stored(&test, "a").await == Some(page(2))).await;
    steps.send(Step::Return(Ok(1))).ok().unwrap();
    job.result().await.unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_that_lost_the_job_writes_no_notes() {
    let (test, _app, task) = producing().await;
    let (worker, steps, told) = scribe(&test, &test.redis().app_url(), fast()).await;
    task.dispatch("x".into()).id("a").await.unwrap();
    steps.send(Step::Now(1)).ok().unwrap();
    eventually("the handler replies", PATIENCE, async || told.lock().unwrap().len() == 1).await;
    // The effect of a sweep and a claim by another worker.
    test.run::<u64>("HSET", "locks", &["a", "other:9000000000000000"]).await;
    steps.send(Step::Now(2)).ok().unwrap();
    eventually("the handler replies", PATIENCE, async || told.lock().unwrap().len() == 2).await;
    assert_eq!(told.lock().unwrap()[1], Err(Some(Interrupted::Lost)));
    steps.send(Step::Checkpoint(3)).ok().unwrap();
    steps.send(Step::Progress(3)).ok().unwrap();
    eventually("the handler replies", PATIENCE, async || told.lock().unwrap().len() == 4).await;
    assert_eq!(told.lock().unwrap()[2..], [Err(Some(Interrupted::Lost)); 2]);
    test.epochs_pass(2).await;
    assert_eq!((stored(&test, "a").await, test.dump("progress").await), (Some(page(1)), None));
    steps.send(Step::Return(Ok(1))).ok().unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn the_run_after_a_crash_has_the_checkpoint_of_the_dead_worker() {
    let test = TestTask::new();
    let (app, found) = (test.app().await, Found::default());
    let recovered = Arc::new(Mutex::new(None));
    let (found_by, told) = (Arc::clone(&found), Arc::clone(&recovered));
    let task = app
        .task(TASK, fast(), move |ctx: Context, _: String| {
            let (found, told) = (Arc::clone(&found_by), Arc::clone(&told));
            async move {
                let last = ctx.last_checkpoint::<Page>().await?;
                *told.lock().unwrap() = ctx.recovery().map(|recovery| recovery.reason);
                found.lock().unwrap().push(last);
                Ok::<u64, JobError>(1)
            }
        })
        .unwrap();
    let job = task.dispatch("x".into()).id("a").await.unwrap();
    let mut dead = Puppet::of(&test).await;
    let tokens = dead.claim_all(&["a"]).await;
    dead.note(&tokens[0], 1, &serde_json::to_string(&page(5)).unwrap()).await;
    let worker = TestWorker::start(app.worker());
    job.result().await.unwrap();
    assert_eq!(*found.lock().unwrap(), [Some(page(5))]);
    assert_eq!(*recovered.lock().unwrap(), Some(StallReason::Silent));
    worker.stop().await;
}

#[tokio::test]
async fn a_note_too_large_or_of_another_type_is_refused() {
    let (_test, app) = shared().await;
    let task = app
        .task(TASK, fast().retention(Retention::new()), |ctx: Context, _: String| async move {
            let large = ctx.checkpoint(&"x".repeat(64 * 1024));
            assert!(matches!(large, Err(NoteError::TooLarge { what: "checkpoint", size: 65_538, limit: 65_536 })));
            // Longer messages are cut.
            ctx.progress(&50, "x".repeat(2000)).unwrap();
            let large = ctx.progress(&"x".repeat(1024), "");
            assert!(matches!(large, Err(NoteError::TooLarge { what: "progress", .. })));
            assert_eq!(ctx.last_checkpoint::<u32>().await.unwrap(), None);
            // JSON has no such type.
            let odd = std::collections::HashMap::from([((1, 2), 3)]);
            assert!(matches!(ctx.checkpoint(&odd), Err(NoteError::Codec { what: "checkpoint", .. })));
            ctx.checkpoint_now(&"text").await.unwrap();
            assert_eq!(ctx.last_checkpoint::<String>().await.unwrap().as_deref(), Some("text"));
            assert_eq!(ctx.last_checkpoint::<u32>().await.unwrap(), None);
            Ok::<u64, JobError>(1)
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch("x".into()).await.unwrap().result().await.unwrap();
    worker.stop().await;
}

#[test]
fn a_handler_is_tested_with_a_checkpoint_and_without_redis() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let test = Context::for_test().checkpoint(&page(3)).unwrap();
        let ctx = test.context();
        assert_eq!(ctx.last_checkpoint::<Page>().await.unwrap(), Some(page(3)));
        ctx.checkpoint_now(&page(4)).await.unwrap();
        ctx.progress(&40, "pages").unwrap();
        assert_eq!(test.last_checkpoint(), Some(serde_json::to_string(&page(4)).unwrap()));
        let progress = test.progress().unwrap();
        assert_eq!((progress.value, progress.message.as_str()), (40.into(), "pages"));
        test.lose();
        assert!(matches!(ctx.checkpoint(&page(5)), Err(NoteError::Interrupted(Interrupted::Lost))));
        assert_eq!(test.last_checkpoint(), Some(serde_json::to_string(&page(4)).unwrap()));
    });
}
