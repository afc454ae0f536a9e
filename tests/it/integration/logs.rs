//! What an operator sees of runs and shutdowns in the logs, without reading Redis.

use crate::support::task::{TASK, TestTask, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings, eventually};
use heartline::{
    App, Context, Graph, JobError, JobState, OnCrash, RetryPolicy, StallOptions, TaskDef, TaskOptions, TaskRef,
    WorkflowDef,
};
use redis::AsyncCommands;
use std::time::Duration;
use tracing::Instrument;

/// A task with its own name, because tests of one process see each other's log lines.
async fn declared(test: &TestTask, options: TaskOptions) -> (App, TaskRef<String, ()>, String) {
    let app = test.app().await;
    let name = test.prefix.replace(':', "-");
    let task = app
        .task(&name, options, |ctx: Context, what: String| async move {
            tracing::info!("the handler says {what}");
            match what.as_str() {
                "panics" => panic!("no {what}"),
                "waits" => ctx.cancelled().await,
                _ => {}
            }
            Err::<(), _>(JobError::new(what).with_code("broke"))
        })
        .unwrap();
    (app, task, name)
}

#[tokio::test]
async fn a_handler_that_ignores_a_cancel_is_dropped_and_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let app = test.app().await;
    let deaf = |_: Context, (): ()| std::future::pending::<Result<(), JobError>>();
    let task = app.task(TASK, fast().cancel_grace(Duration::from_millis(50)), deaf).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(()).await.unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.is_ok_and(|state| state == JobState::Running)).await;
    job.cancel("enough").await.unwrap();
    warnings.wait_for(&["INFO", &format!("job_id={}", job.id()), "a handler was dropped"], PATIENCE).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_failed_run_logs_a_warning_and_a_failed_job_an_error() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1));
    let (app, task, name) = declared(&test, fast().retry(retry)).await;
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("first".to_owned()).await.unwrap();
    job.result().await.unwrap_err();
    let (id, task_field) = (format!("job_id={} ", job.id()), format!("task={name}"));
    let warning = warnings.wait_for(&["WARN", &id, "a run failed"], PATIENCE).await;
    for part in [&*task_field, "attempt=1", "max_attempts=2", "code=broke", "error=first", "next_in=1"] {
        assert!(warning.contains(part), "{part} is not in {warning}");
    }
    let error = warnings.wait_for(&["ERROR", &id, "the job failed"], PATIENCE).await;
    for part in [&*task_field, "attempt=2", "max_attempts=2", "code=broke", "error=first"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    // Log lines of the handler itself carry the job.
    let line = warnings.wait_for(&["INFO", "the handler says first", &name], PATIENCE).await;
    assert!(line.contains(&format!("in attempt{{task={name} job_id={} attempt=", job.id())), "{line}");
    let told = warnings.all().iter().filter(|line| line.contains(&id)).count();
    assert_eq!(told, 2, "{:#?}", warnings.all());
    worker.stop().await;
}

#[tokio::test]
async fn headers_are_in_every_line_of_a_run() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let name = test.prefix.replace(':', "-");
    let app = App::builder().redis(test.url()).prefix(&test.prefix).log_headers(["tenant", "region"]);
    let app = app.layer(|ctx, next| next.run(ctx).instrument(tracing::info_span!("inner"))).build().await.unwrap();
    let retry = RetryPolicy::new().attempts(3).on(&["busy"]);
    let task = app
        .task(&name, fast().retry(retry), |_: Context, (): ()| async {
            tracing::info!("the handler works");
            Err::<(), _>(JobError::new("no disk").with_code("disk"))
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(()).header("tenant", "acme\n").header("secret", "x").await.unwrap();
    job.result().await.unwrap_err();
    let line = warnings.wait_for(&["INFO", "the handler works", &name], PATIENCE).await;
    assert!(line.contains("headers=tenant=acme\\n") && !line.contains("secret"), "{line}");
    let line = warnings.wait_for(&["ERROR", "the job failed", &name], PATIENCE).await;
    assert!(line.contains("headers=tenant=acme\\n"), "{line}");
    assert!(line.contains("not_retried=its code is not in RetryPolicy::on"), "{line}");
    worker.stop().await;
}

#[tokio::test]
async fn a_panic_is_logged_with_its_file_and_line() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, task, _) = declared(&test, fast()).await;
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("panics".to_owned()).await.unwrap();
    job.result().await.unwrap_err();
    let line = warnings.wait_for(&["ERROR", job.id().as_str(), "code=panic", "no panics, at "], PATIENCE).await;
    assert!(line.contains("logs.rs:"), "{line}");
    worker.stop().await;
}

#[tokio::test]
async fn the_start_and_the_end_of_a_shutdown_are_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let options = fast().shutdown_grace(Duration::ZERO);
    let (app, task, name) = declared(&test, options).await;
    let worker = TestWorker::start(app.worker());
    let id = worker.id.clone();
    let job = task.dispatch("waits".to_owned()).await.unwrap();
    warnings.wait_for(&["INFO", "the handler says waits", &name], PATIENCE).await;
    worker.stop().await;
    let begins = warnings.wait_for(&["INFO", &id, "stopping"], PATIENCE).await;
    assert!(begins.contains("held=1") && begins.contains("longest="), "{begins}");
    warnings.wait_for(&["INFO", &id, "stopped"], PATIENCE).await;
    // A stop is not a failure of the job.
    let about = warnings.all().into_iter().filter(|line| line.contains(&job.id().to_string()));
    assert_eq!(about.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn a_handler_that_ends_well_although_it_was_told_to_stop_is_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, name) = (test.app().await, test.prefix.replace(':', "-"));
    let handler = async |ctx: Context, (): ()| {
        tracing::info!("the handler works");
        while ctx.heartbeat().is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok::<(), JobError>(())
    };
    let task = app.task(&name, fast().shutdown_grace(Duration::ZERO), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let (left, cancelled) = (task.dispatch(()).await.unwrap(), task.dispatch(()).await.unwrap());
    for job in [&left, &cancelled] {
        warnings.wait_for(&["the handler works", job.id().as_str()], PATIENCE).await;
    }
    cancelled.cancel("no longer wanted").await.unwrap();
    cancelled.result().await.unwrap_err();
    worker.stop().await;
    left.result().await.unwrap();
    let told = "the handler returned Ok although it should stop";
    warnings.wait_for(&["INFO", told, left.id().as_str()], PATIENCE).await;
    let is_about = |line: &String| line.contains(told) && line.contains(cancelled.id().as_str());
    assert!(!warnings.lines().iter().any(is_about), "a cancelled job does not complete");
}

#[tokio::test]
async fn a_handler_that_blocks_its_thread_is_logged_once() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, name) = (test.app().await, test.prefix.replace(':', "-"));
    let handler = async |_: Context, (): ()| {
        std::thread::sleep(Duration::from_millis(1_010));
        Ok::<(), JobError>(())
    };
    // With a short interval, a busy machine counts as a frozen process, which blames no handler.
    let task = app.task(&name, fast().stall(StallOptions::new().interval(PATIENCE)), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    for job in task.dispatch_many(vec![(); 2]).await.unwrap() {
        job.result().await.unwrap();
    }
    worker.stop().await;
    let lines = warnings.all();
    let told = lines.iter().filter(|line| line.contains("a handler blocked its thread") && line.contains(&name));
    assert_eq!(told.count(), 1, "{lines:#?}");
}

#[tokio::test]
async fn a_blocking_handler_that_works_on_after_its_run_is_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, name) = (test.app().await, test.prefix.replace(':', "-"));
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let def: TaskDef<(), ()> = TaskDef::new(Box::leak(name.into_boxed_str()));
    let def = def.options(fast());
    let handler = def.blocking(move |_: Context, (): ()| {
        tracing::info!("the handler works");
        let _ = opened.lock().unwrap().recv();
        Ok::<(), JobError>(())
    });
    let task = app.register(handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(()).await.unwrap();
    warnings.wait_for(&["the handler works", job.id().as_str()], PATIENCE).await;
    job.cancel("it takes too long").await.unwrap();
    job.result().await.unwrap_err();
    let told = ["WARN", "a blocking handler works on after its run is over", job.id().as_str()];
    warnings.wait_for(&told, PATIENCE).await;
    open.send(()).unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn a_failed_dispatch_is_logged_although_its_error_is_discarded() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (_app, task, name) = declared(&test, fast().payload_limit(8)).await;
    for _ in 0..3 {
        let _ = task.dispatch("far too large".to_owned()).await;
    }
    let _ = task.dispatch_many(["far too large".to_owned()]).await;
    let lines = warnings.all();
    let told: Vec<_> = lines.iter().filter(|line| line.contains("a dispatch failed") && line.contains(&name)).collect();
    assert!(matches!(told[..], [line] if line.contains("WARN") && line.contains("limit")), "{lines:#?}");
}

#[tokio::test]
async fn fields_that_the_type_of_an_input_does_not_know_are_logged_once() {
    #[derive(serde::Deserialize)]
    struct Export {
        #[serde(default)]
        rows: u32,
        by: std::collections::BTreeMap<String, Export>,
    }
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, name) = (test.app().await, test.prefix.replace(':', "-"));
    app.task(&name, fast(), async |_: Context, export: Export| {
        Ok::<u32, JobError>(export.rows + export.by.len() as u32)
    })
    .unwrap();
    let task = app.task_ref::<serde_json::Value, u32>(&name).unwrap();
    let worker = TestWorker::start(app.worker());
    let known = serde_json::json!({"rows": 1, "by": {}});
    let other = serde_json::json!({"row_count": 1, "by": {"ada@example.org": {"row_count": 1, "by": {}}}});
    for (input, value) in [(known, 1), (other.clone(), 1), (other, 1)] {
        assert_eq!(task.dispatch(input).await.unwrap().result().await.unwrap(), value);
    }
    worker.stop().await;
    let lines = warnings.lines();
    let told: Vec<_> =
        lines.iter().filter(|line| line.contains("its type does not know") && line.contains(&name)).collect();
    let is_told =
        matches!(told[..], [line] if line.contains("fields=by.* row_count ") && !line.contains("example.org"));
    assert!(is_told, "{lines:#?}");
}

#[tokio::test]
async fn a_subscription_to_stalls_after_the_start_of_a_worker_is_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, task, name) = declared(&test, fast()).await;
    let worker = TestWorker::start(app.worker());
    task.dispatch("begins".to_owned()).await.unwrap();
    warnings.wait_for(&["the handler says begins", &name], PATIENCE).await;
    let _stalls = app.on_stalled();
    let told = ["INFO", "stalls before this subscription are not delivered", &test.prefix];
    warnings.wait_for(&told, PATIENCE).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_whose_interval_is_not_in_force_says_so() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (slow, task, name) = declared(&test, fast().stall(StallOptions::new().interval(Duration::from_secs(60)))).await;
    let (quick, _, _) = declared(&test, fast()).await;
    let first = TestWorker::start(slow.worker());
    task.dispatch("begins".to_owned()).await.unwrap();
    warnings.wait_for(&["the handler says begins", &name], PATIENCE).await;
    let second = TestWorker::start(quick.worker());
    let told = ["INFO", "a longer stall interval is in force", &name, "own=1s", "in_force=60s"];
    warnings.wait_for(&told, PATIENCE).await;
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn a_job_that_never_begins_logs_a_warning() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, task, name) = declared(&test, fast()).await;
    let mut redis = test.conn().await;
    for (id, times) in [("twice", 2), ("thrice", 3)] {
        task.dispatch("first".to_owned()).id(id).delay(PATIENCE).await.unwrap();
        let told = format!("requeued web-1-7-00000001 1750000000000 {times}");
        let () = redis.hset(format!("{}:{{{name}}}:recovery", test.prefix), id, told).await.unwrap();
        app.inspector().run_now(&name, [id]).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    let warning = warnings.wait_for(&["WARN", "job_id=thrice ", "never began"], PATIENCE).await;
    assert!(warning.contains("times=3") && warning.contains(&format!("task={name}")), "{warning}");
    task.handle("twice").unwrap().result().await.unwrap_err();
    assert!(!warnings.all().iter().any(|line| line.contains("job_id=twice ") && line.contains("never began")));
    worker.stop().await;
}

#[tokio::test]
async fn on_crash_retry_with_one_attempt_logs_a_warning() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, _, name) = declared(&test, fast_with(StallOptions::new().on_crash(OnCrash::Retry))).await;
    let worker = TestWorker::start(app.worker());
    warnings.wait_for(&["WARN", &format!("task={name}"), "on_crash(Retry) without a second attempt"], PATIENCE).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_result_without_a_worker_is_logged_with_its_state() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (_app, task, name) = declared(&test, fast()).await;
    let job = task.dispatch("first".to_owned()).await.unwrap();
    let waiting = tokio::spawn({
        let job = job.clone();
        async move { job.result().await }
    });
    let line = warnings.wait_for(&["INFO", job.id().as_str(), "still waiting for the result"], PATIENCE).await;
    assert!(line.contains("state=waiting") && line.contains(&name), "{line}");
    waiting.abort();
}

#[tokio::test]
async fn a_workflow_without_a_worker_is_logged_with_its_state() {
    const COUNTS: WorkflowDef<u64> = WorkflowDef::new("counts");
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, _, name) = declared(&test, fast()).await;
    let graph = Graph::new();
    let count = graph.node("count", &TaskDef::<(), u64>::new("without-a-worker"), ());
    let flows = app.workflow_for(&COUNTS).unwrap();
    assert_eq!(flows.name(), COUNTS.name());
    let instance = flows.start(graph.output(&count)).id(&name).await.unwrap();
    let waiting = tokio::spawn(async move { instance.result().await });
    let line = warnings.wait_for(&["INFO", "workflow=counts", &name, "still waiting for the result"], PATIENCE).await;
    assert!(line.contains("state=running"), "{line}");
    waiting.abort();
}

#[tokio::test]
async fn an_id_that_is_used_again_with_another_input_is_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (_app, task, name) = declared(&test, fast()).await;
    let dispatch = async |input: &str| task.dispatch(input.to_owned()).id("one").await.unwrap().existed();
    let told = |warnings: &Warnings| {
        let is_it = |line: &String| line.contains(&format!("task={name}")) && line.contains("has another input");
        warnings.lines().into_iter().filter(is_it).count()
    };
    assert_eq!((dispatch("first").await, dispatch("first").await), (Some(false), Some(true)));
    assert_eq!(told(&warnings), 0);
    assert_eq!((dispatch("other").await, dispatch("third").await), (Some(true), Some(true)));
    assert_eq!(told(&warnings), 1);
}

#[tokio::test]
async fn a_task_that_is_declared_after_the_worker_is_logged() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let (app, _, name) = declared(&test, fast()).await;
    let late = format!("{name}-late");
    let declare = |name: &str| app.task(name, TaskOptions::new(), |_: Context, (): ()| async { Ok::<_, JobError>(()) });
    declare(&format!("{name}-early")).unwrap();
    let worker = app.worker();
    declare(&late).unwrap();
    warnings.wait_for(&["WARN", &format!("task={late}"), "declared after App::worker"], PATIENCE).await;
    assert!(!warnings.lines().iter().any(|line| line.contains(&format!("{name}-early"))));
    drop(worker);
}
