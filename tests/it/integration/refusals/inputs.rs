//! Names, ids, options and payloads that break a rule.

use crate::support::TestRedis;
use heartline::{
    App, ConfigErrors, Context, Error, JobError, OnLockRisk, Retention, RetentionLimit, RetryPolicy, StallOptions,
    StopReason, TaskOptions,
};
use std::time::Duration;

async fn app(redis: &TestRedis, defaults: TaskOptions) -> (App, String) {
    let prefix = redis.unique_prefix();
    let app = App::builder().redis(redis.app_url()).prefix(&prefix).task_defaults(defaults).build().await.unwrap();
    (app, prefix)
}

fn faults<T>(result: Result<T, Error>) -> ConfigErrors {
    match result {
        Err(Error::Config(faults)) => faults,
        Err(other) => panic!("not a config error: {other}"),
        Ok(_) => panic!("it was accepted"),
    }
}

fn fields(faults: &ConfigErrors) -> Vec<&str> {
    faults.iter().map(|fault| fault.field.as_str()).collect()
}

async fn idle(_: Context, (): ()) -> Result<(), JobError> {
    Ok(())
}

#[tokio::test]
async fn a_capacity_without_enough_memory_is_refused() {
    let redis = TestRedis::shared();
    for capacity in [1_000_001, usize::MAX] {
        let built = App::builder().redis(redis.app_url()).event_capacity(capacity).build().await;
        assert_eq!(fields(&faults(built)), ["event_capacity"]);
    }
    App::builder().redis(redis.app_url()).event_capacity(0).build().await.unwrap();
}

const LONG: Duration = Duration::from_secs(11 * 365 * 86_400);

fn every_option_wrong() -> TaskOptions {
    TaskOptions::new()
        .stall(StallOptions::new().interval(Duration::from_millis(10)))
        .retry(RetryPolicy::new().attempts(0))
        .timeout(Duration::ZERO)
        .concurrency(0)
        .shutdown_grace(LONG)
        .cancel_grace(Duration::from_secs(7200))
        .retention(
            Retention::new()
                .completed(RetentionLimit::age(LONG))
                .failed(RetentionLimit::age(LONG))
                .cancelled(RetentionLimit::age(LONG)),
        )
        .payload_limit(0)
}

const EVERY_FIELD: [&str; 10] = [
    "stall.interval",
    "retry.attempts",
    "timeout",
    "concurrency",
    "shutdown_grace",
    "cancel_grace",
    "retention.completed",
    "retention.failed",
    "retention.cancelled",
    "payload_limit",
];

#[tokio::test]
async fn a_bad_task_name_is_a_config_error_and_writes_nothing() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let long = "x".repeat(129);
    for name in ["", " ", "a b", "a:b", "{a}", "ä", "a\n", "a\0", long.as_str()] {
        assert_eq!(fields(&faults(app.task(name, TaskOptions::new(), idle))), ["task"], "{name:?}");
        assert_eq!(fields(&faults(app.task_ref::<(), ()>(name))), ["task"], "{name:?}");
    }
    assert!(redis.dump(&prefix).await.is_empty());
    assert!(app.task_ref::<(), ()>(&"x".repeat(128)).is_ok());
}

#[tokio::test]
async fn a_bad_id_is_a_config_error_and_writes_nothing() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let task = app.task_ref::<(), ()>("t").unwrap();
    let long = "x".repeat(129);
    let bad = ["", " ", "a b", "a{b", "a}b", "é", "\u{7f}", "a\n", long.as_str()];
    for id in bad {
        assert_eq!(fields(&faults(task.dispatch(()).id(id).await)), ["id"], "{id:?}");
        assert_eq!(fields(&faults(task.handle(id))), ["id"], "{id:?}");
        assert_eq!(fields(&faults(task.job(id).await)), ["id"], "{id:?}");
    }
    let many = bad.iter().map(|id| ((*id).to_owned(), ())).chain([("good".to_owned(), ())]);
    assert_eq!(faults(task.dispatch_many_with_ids(many).await).len(), bad.len());
    assert!(redis.dump(&prefix).await.is_empty());
    task.dispatch(()).id("x".repeat(128)).await.unwrap();
}

#[tokio::test]
async fn every_wrong_option_of_a_task_is_reported_at_once() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let found = faults(app.task("t", every_option_wrong(), idle));
    assert_eq!(fields(&found), EVERY_FIELD);
    for fault in &found {
        assert!(!fault.value.is_empty() && fault.rule.starts_with("must ") && !fault.fix.is_empty(), "{fault}");
    }
    let found = faults(app.task("bad name", every_option_wrong(), idle));
    assert_eq!(found.len(), EVERY_FIELD.len() + 1);
    assert_eq!(found.to_string().lines().count(), found.len());
    assert!(redis.dump(&prefix).await.is_empty());
    // The refused attempts did not declare the task.
    app.task("t", TaskOptions::new(), idle).unwrap();
}

#[tokio::test]
async fn every_wrong_default_of_an_app_is_reported_at_once() {
    let redis = TestRedis::shared();
    let built = App::builder().redis(redis.app_url()).task_defaults(every_option_wrong()).build().await;
    assert_eq!(fields(&faults(built)), EVERY_FIELD);
}

#[tokio::test]
async fn every_wrong_setting_of_a_builder_is_reported_at_once() {
    for timeout in [Duration::ZERO, Duration::from_secs(3601)] {
        let builder = App::builder().redis("no url").prefix("a{b}").task_defaults(every_option_wrong());
        let built = builder.dispatch_timeout(timeout).lazy().build().await;
        let found = faults(built);
        assert_eq!(found.len(), EVERY_FIELD.len() + 3, "{found}");
        assert!(found.to_string().contains("dispatch_timeout is "), "{found}");
    }
}

#[tokio::test]
async fn every_wrong_setting_of_a_dispatch_is_reported_at_once() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let task = app.task_ref::<(), ()>("t").unwrap();
    let dispatch = task.dispatch(()).id("a b").delay(LONG).attempts(0).timeout(Duration::ZERO);
    let dispatch = dispatch.cancel_grace(Duration::from_secs(7200)).max_stalls(0).on_lock_risk(OnLockRisk::Cancel);
    let found = faults(dispatch.await);
    assert_eq!(fields(&found), ["id", "delay", "attempts", "timeout", "cancel_grace"]);
    assert!(redis.dump(&prefix).await.is_empty());
}

#[tokio::test]
async fn a_bad_prefix_is_a_config_error() {
    for prefix in ["", "a b", "a{b}", &"x".repeat(65)] {
        let built = App::builder().prefix(prefix).lazy().build().await;
        assert_eq!(fields(&faults(built)), ["prefix"], "{prefix:?}");
    }
}

#[tokio::test]
async fn a_task_declared_twice_is_a_config_error() {
    let redis = TestRedis::shared();
    let (app, _) = app(&redis, TaskOptions::new()).await;
    app.task_ref::<(), ()>("t").unwrap();
    app.task("t", TaskOptions::new(), idle).unwrap();
    assert_eq!(fields(&faults(app.task("t", TaskOptions::new(), idle))), ["task"]);
}

#[tokio::test]
async fn a_worker_of_unknown_tasks_or_none_is_a_config_error() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    app.task_ref::<(), ()>("dispatched-only").unwrap();
    assert_eq!(fields(&faults(app.worker().run_until(async {}).await)), ["worker"]);
    app.task("t", TaskOptions::new(), idle).unwrap();
    let found = faults(app.worker().tasks(["nobody", "t", "dispatched-only"]));
    assert_eq!(found.len(), 2, "{found}");
    assert!(redis.dump(&prefix).await.is_empty());
    let stopped = app.worker().tasks(["t"]).unwrap().run_until(async {}).await.unwrap();
    assert_eq!(stopped, StopReason::Shutdown);
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_and_writes_nothing() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new().payload_limit(10)).await;
    let task = app.task_ref::<String, ()>("t").unwrap();
    let over = "x".repeat(9);
    let is_too_large =
        |error: Error| matches!(error, Error::TooLarge { what: None, size: 11, limit: 10 }) && !error.is_retryable();
    assert!(is_too_large(task.dispatch(over.clone()).await.unwrap_err()));
    assert!(is_too_large(task.dispatch_many(["a".to_owned(), over]).await.unwrap_err()));
    assert!(redis.dump(&prefix).await.is_empty());
    task.dispatch("x".repeat(8)).await.unwrap();
}

#[tokio::test]
async fn the_payload_limit_is_one_mebibyte_by_default() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let task = app.task_ref::<String, ()>("t").unwrap();
    let error = task.dispatch("x".repeat(1024 * 1024 - 1)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { size, limit: 1_048_576, .. } if size == 1_048_577), "{error}");
    assert!(redis.dump(&prefix).await.is_empty());
    task.dispatch("x".repeat(1024 * 1024 - 2)).await.unwrap();
}

#[tokio::test]
async fn an_input_that_is_not_json_is_a_codec_error_without_a_write() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let task = app.task_ref::<std::collections::HashMap<Vec<u8>, u8>, ()>("t").unwrap();
    let error = task.dispatch(std::collections::HashMap::from([(vec![1], 1)])).await.unwrap_err();
    assert!(matches!(error, Error::Codec { .. }), "{error}");
    assert!(redis.dump(&prefix).await.is_empty());
}

#[tokio::test]
async fn an_unknown_job_is_not_found() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let task = app.task_ref::<(), ()>("t").unwrap();
    let handle = task.handle("nobody").unwrap();
    let is_not_found = |error: Error| matches!(error, Error::JobNotFound { id, .. } if id.as_str() == "nobody");
    assert!(is_not_found(handle.state().await.unwrap_err()));
    assert!(is_not_found(handle.result().await.unwrap_err()));
    assert!(is_not_found(handle.cancel("why").await.unwrap_err()));
    assert!(is_not_found(task.job("nobody").await.unwrap_err()));
    assert!(redis.dump(&prefix).await.is_empty());
}

#[tokio::test]
async fn data_of_a_newer_wire_version_is_unsupported() {
    let redis = TestRedis::shared();
    let (app, prefix) = app(&redis, TaskOptions::new()).await;
    let task = app.task("t", TaskOptions::new(), idle).unwrap();
    let mut conn = redis.conn().await;
    let meta = format!("{prefix}:{{t}}:meta");
    let () = redis::AsyncCommands::hset(&mut conn, &meta, "wire", 1_000_000).await.unwrap();
    let before = redis.dump(&prefix).await;
    let is_unsupported = |error: Error| {
        matches!(&error, Error::Unsupported { what } if what.contains("1000000")) && !error.is_retryable()
    };
    assert!(is_unsupported(task.dispatch(()).await.unwrap_err()));
    match task.dispatch_many([(), ()]).await.unwrap_err() {
        Error::Partial { dispatched, source } => assert!(dispatched.is_empty() && is_unsupported(*source)),
        other => panic!("{other}"),
    }
    assert!(is_unsupported(app.worker().run_until(std::future::pending()).await.unwrap_err()));
    assert_eq!(redis.dump(&prefix).await, before);
}
