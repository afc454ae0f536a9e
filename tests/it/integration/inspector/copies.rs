//! A job that is dispatched again as another one.

use heartline::{Error, JobState, JobValues, Priority, RetryPolicy, Unique};
use serde_json::json;
use serde_json::value::RawValue;
use std::time::Duration;

use super::{obedient, observed};
use crate::support::PATIENCE;
use crate::support::task::{TASK, fast};
use crate::support::worker::TestWorker;

#[tokio::test]
async fn a_copy_has_the_input_options_and_key_of_its_job() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast().key("/0"));
    let long = "x".repeat(600_000);
    let job = task.dispatch(format!("fail own {long}")).id("first").key("acme").priority(Priority::High);
    let job = job.header("trace", "7").attempts(3).retry(RetryPolicy::new()).cost(2).timeout(Duration::from_secs(9));
    job.unique(Unique::by("a key")).delay(Duration::from_secs(60)).await.unwrap();
    let first = inspector.job(TASK, "first", JobValues::All).await.unwrap().unwrap();

    let copy = inspector.dispatch_copy(TASK, "first", None).await.unwrap().unwrap().await.unwrap();
    let copied = inspector.job(TASK, copy.id().as_str(), JobValues::All).await.unwrap().unwrap();
    assert_ne!(copied.id, first.id);
    assert_eq!((copied.state, &copied.payload), (JobState::Waiting, &first.payload));
    assert_eq!((copied.priority, copied.key.as_deref()), (Priority::High, Some("acme")));
    assert_eq!((copied.options.delay, copied.options.attempts), (None, first.options.attempts));
    assert_eq!((&copied.options.timeout, &copied.options.headers), (&first.options.timeout, &first.options.headers));
    assert_eq!(copied.unique_key, None);
    assert!(test.column("options", copied.id.as_str()).await.unwrap().starts_with(r#"{"cost":2,"#));
    assert_eq!(inspector.job(TASK, "first", JobValues::All).await.unwrap().unwrap(), first);
}

#[tokio::test]
async fn a_job_is_dispatched_again_with_another_input() {
    let (test, app, inspector) = observed().await;
    let task = obedient(&test, &app, fast());
    let worker = TestWorker::start(app.worker());
    task.dispatch("fail own no".into()).id("first").await.unwrap();
    assert_eq!(inspector.wait(TASK, "first", PATIENCE).await.unwrap(), JobState::Failed);
    let input = RawValue::from_string("\"better\"".to_owned()).unwrap();
    let copy = inspector.dispatch_copy(TASK, "first", Some(input)).await.unwrap().unwrap().await.unwrap();
    assert_eq!(inspector.wait(TASK, copy.id().as_str(), PATIENCE).await.unwrap(), JobState::Completed);
    let copied = inspector.job(TASK, copy.id().as_str(), JobValues::All).await.unwrap().unwrap();
    assert_eq!(copied.payload, Some(json!("better")));
    assert!(inspector.dispatch_copy(TASK, "unknown", None).await.unwrap().is_none());
    let of_workflow = inspector.dispatch_copy(TASK, "~1.5.once.7", None).await;
    assert!(matches!(of_workflow, Err(Error::Config(_))), "{of_workflow:?}");
    worker.stop().await;
}
