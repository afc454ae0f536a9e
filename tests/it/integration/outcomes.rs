//! How a run can end: value, error, retry, timeout, panic, unreadable payload.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy};
use heartline::{App, Error, Event, Failure, Interrupted, Jitter, JobError, RetryPolicy, TaskOptions, TaskRef};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The delays of the retries of a job until it ended.
async fn delays(events: &mut heartline::Subscription<Event>, id: &str) -> Vec<Duration> {
    let mut delays = Vec::new();
    loop {
        match next(events).await {
            Event::Retrying { id: other, failed_attempts: attempt, delay, .. } if other.as_str() == id => {
                delays.push(delay);
                assert_eq!(attempt as usize, delays.len());
            }
            event if event.id().as_str() == id && event.is_terminal() => return delays,
            _ => {}
        }
    }
}

async fn failure<O: serde::de::DeserializeOwned>(task: &TaskRef<Value, O>, id: &str) -> Failure {
    match task.handle(id).unwrap().result().await.map(|_| ()) {
        Err(Error::JobFailed(failure)) => failure,
        other => panic!("{id}: {other:?}"),
    }
}

/// A task whose jobs end as their input says.
fn scripted(app: &App, options: TaskOptions) -> TaskRef<Value, u32> {
    let handler = |ctx: heartline::Context, input: Value| {
        if input == "panic early" {
            panic!("before the future");
        }
        async move {
            match input.as_str().unwrap_or_default() {
                "fatal" => Err(JobError::new("no use").fatal()),
                "later" => Err(JobError::new("not yet").retry_after(ms(70))),
                "coded" => Err(JobError::new("no money").with_code("card_declined")),
                "bad code" => Err(JobError::new("odd").with_code("Bad Code")),
                "reserved code" => Err(JobError::new("odd").with_code("timeout")),
                "panic" => panic!("boom {}", 7),
                "hang" => std::future::pending().await,
                "third time" if ctx.attempt() == 3 => Ok(ctx.max_attempts()),
                "chain" => Err(std::io::Error::other(std::fmt::Error))?,
                _ => Err("always".into()),
            }
        }
    };
    app.task(TASK, options, handler).unwrap()
}

#[tokio::test]
async fn the_attempts_of_a_job_are_its_runs_in_total() {
    let (test, app) = shared().await;
    let retry = RetryPolicy::new().attempts(4).exponential(ms(20), 2.0).jitter(Jitter::None).max_delay(ms(50));
    let task = scripted(&app, fast().retry(retry));
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    task.dispatch("x".into()).id("a").await.unwrap();
    assert_eq!(delays(&mut events, "a").await, [ms(20), ms(40), ms(50)]);
    let failed = failure(&task, "a").await;
    assert_eq!((failed.code.as_str(), failed.message.as_str(), failed.failed_attempts), ("handler_error", "always", 4));
    assert_eq!(test.places("a").await, ["failed"]);

    task.dispatch("x".into()).id("own").attempts(2).await.unwrap();
    assert_eq!(delays(&mut events, "own").await, [ms(20)]);
    let own = RetryPolicy::new().attempts(3).fixed(ms(1)).jitter(Jitter::None);
    task.dispatch("x".into()).id("policy").retry(own).await.unwrap();
    assert_eq!(delays(&mut events, "policy").await, [ms(1), ms(1)]);
    worker.stop().await;
}

#[tokio::test]
async fn an_attempt_runs_no_earlier_than_its_delay() {
    let (test, app) = shared().await;
    let runs = Arc::new(Mutex::new(Vec::new()));
    let log = runs.clone();
    let retry = RetryPolicy::new().attempts(2).fixed(ms(600)).jitter(Jitter::None);
    let task: TaskRef<Value, ()> = app
        .task(TASK, fast().retry(retry), move |_, _: Value| {
            log.lock().unwrap().push(std::time::Instant::now());
            async { Err::<_, heartline::JobError>("no".into()) }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch(Value::Null).id("a").await.unwrap();
    test.arrives("a", "delayed").await;
    failure(&task, "a").await;
    let runs = runs.lock().unwrap().clone();
    assert!(runs.len() == 2 && runs[1] - runs[0] >= ms(599), "{runs:?}");
    worker.stop().await;
}

#[tokio::test]
async fn an_error_of_the_handler_takes_precedence_over_the_policy() {
    let (_test, app) = shared().await;
    let retry = RetryPolicy::new().attempts(2).fixed(ms(1)).jitter(Jitter::None);
    let task = scripted(&app, fast().retry(retry));
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    for (input, expected) in [
        ("fatal", vec![]),
        ("later", vec![ms(70)]),
        ("coded", vec![ms(1)]),
        ("bad code", vec![ms(1)]),
        ("reserved code", vec![ms(1)]),
    ] {
        let id = input.replace(' ', "-");
        task.dispatch(input.into()).id(&id).await.unwrap();
        assert_eq!(delays(&mut events, &id).await, expected, "{input}");
    }
    for (id, code, message, attempt) in [
        ("fatal", "handler_error", "no use", 1),
        ("later", "handler_error", "not yet", 2),
        ("coded", "card_declined", "no money", 2),
    ] {
        let failed = failure(&task, id).await;
        assert_eq!((failed.code.as_str(), failed.message.as_str(), failed.failed_attempts), (code, message, attempt));
    }
    for id in ["bad-code", "reserved-code"] {
        assert_eq!(failure(&task, id).await.code, "handler_error");
    }
    task.dispatch("chain".into()).id("chain").attempts(1).await.unwrap();
    assert!(failure(&task, "chain").await.message.contains("formatting"));
    worker.stop().await;
}

#[tokio::test]
async fn a_run_that_times_out_fails_and_is_retried() {
    let (_test, app) = shared().await;
    let retry = RetryPolicy::new().attempts(2).fixed(ms(1)).jitter(Jitter::None);
    let task = scripted(&app, fast().retry(retry).timeout(ms(100)).concurrency(1));
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    task.dispatch("hang".into()).id("a").await.unwrap();
    assert_eq!(delays(&mut events, "a").await, [ms(1)]);
    let failed = failure(&task, "a").await;
    assert_eq!((failed.code.as_str(), failed.failed_attempts), ("timeout", 2));
    task.dispatch("hang".into()).id("own").timeout(ms(10)).attempts(1).await.unwrap();
    let failed = failure(&task, "own").await;
    assert!(failed.code == "timeout" && failed.message.contains("10ms"), "{failed}");
    worker.stop().await;
}

#[tokio::test]
async fn a_task_that_outlives_its_run_sees_that_the_run_is_over() {
    let (_test, app) = shared().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let options = fast().timeout(ms(100)).retry(RetryPolicy::new().attempts(2).fixed(ms(1)));
    let task: TaskRef<(), ()> = app
        .task(TASK, options, move |ctx, (): ()| {
            let tell = tell.clone();
            async move {
                let waiting = ctx.clone();
                let ended = tokio::spawn(async move { waiting.cancelled().await });
                let thread = tokio::task::spawn_blocking(move || {
                    let error = loop {
                        if let Err(e) = ctx.heartbeat() {
                            break e;
                        }
                        std::thread::sleep(ms(1));
                    };
                    assert!(ctx.is_cancelled());
                    tell.send((error, ended)).unwrap();
                });
                Ok::<_, heartline::JobError>(thread.await?)
            }
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch(()).await.unwrap();
    for _ in 0..2 {
        let (error, ended) = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
        assert_eq!(error, Interrupted::Ended);
        tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap();
    }
    assert!(matches!(job.result().await, Err(Error::JobFailed(failure)) if failure.code == "timeout"));
    worker.stop().await;
}

/// An error that panics when it is displayed.
#[derive(Debug)]
struct Unreadable;

impl std::fmt::Display for Unreadable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("in its Display")
    }
}

impl std::error::Error for Unreadable {}

/// A value that panics again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in its Drop")
    }
}

#[tokio::test]
async fn an_error_or_panic_value_that_panics_is_an_outcome_too() {
    let (_test, app) = shared().await;
    let task: TaskRef<String, ()> = app
        .task(TASK, fast().concurrency(1), |_, what: String| async move {
            if what == "panic" {
                std::panic::panic_any(Bomb);
            }
            Err::<_, heartline::JobError>(Unreadable.into())
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    for (what, message) in [("error", "in its Display"), ("panic", "the handler panicked")] {
        let job = task.dispatch(what.into()).await.unwrap();
        match tokio::time::timeout(PATIENCE, job.result()).await.expect("the job ends").unwrap_err() {
            Error::JobFailed(failure) => {
                assert!(failure.code == "panic" && failure.message.starts_with(message), "{failure}");
            }
            other => panic!("{other}"),
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_value_that_is_too_large_to_store_fails_the_job() {
    let (_test, app) = shared().await;
    let task = app
        .task(TASK, fast(), |_, mib: usize| async move { Ok::<_, heartline::JobError>("x".repeat(mib << 20)) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    match task.dispatch(64).await.unwrap().result().await.unwrap_err() {
        Error::JobFailed(failure) => {
            assert!(failure.code == "codec" && failure.message.contains("67108866 bytes"), "{failure}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(task.dispatch(1).await.unwrap().result().await.unwrap().len(), 1 << 20);
    worker.stop().await;
}

#[tokio::test]
async fn large_values_are_sent_in_calls_of_bounded_size() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    let _never = proxy.cut_next_reply_matching(move |request| {
        seen.fetch_max(request.len(), Ordering::SeqCst);
        false
    });
    let app = App::builder().redis(proxy.url()).prefix(&test.prefix).build().await.unwrap();
    let all = Arc::new(tokio::sync::Barrier::new(16));
    let task = app
        .task(TASK, fast().concurrency(16), move |_, (): ()| {
            let all = all.clone();
            async move {
                all.wait().await;
                Ok::<_, heartline::JobError>("x".repeat(100 << 10))
            }
        })
        .unwrap();
    let jobs = task.dispatch_many([(); 16]).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for job in jobs {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("its outcome is recorded").unwrap();
    }
    worker.stop().await;
    let largest = largest.load(Ordering::SeqCst);
    assert!((200 << 10..(512 << 10) + 10_000).contains(&largest), "a call of {largest} bytes");
}

#[tokio::test]
async fn a_panic_is_an_outcome_and_the_worker_continues() {
    let (_test, app) = shared().await;
    let retry = RetryPolicy::new().attempts(2).fixed(ms(1));
    let task = scripted(&app, fast().retry(retry).concurrency(1));
    let worker = TestWorker::start(app.worker());
    for (input, message) in [("panic", "boom 7"), ("panic early", "before the future")] {
        let id = input.replace(' ', "-");
        task.dispatch(input.into()).id(&id).await.unwrap();
        let failed = failure(&task, &id).await;
        assert_eq!((failed.code.as_str(), failed.failed_attempts), ("panic", 2));
        let place = failed.message.strip_prefix(message).unwrap();
        assert!(place.starts_with(", at ") && place.contains("outcomes.rs:"), "{}", failed.message);
    }
    task.dispatch("third time".into()).attempts(3).await.unwrap().result().await.unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn an_unreadable_payload_fails_as_codec_without_a_retry() {
    let (test, app) = shared().await;
    let at_once = fast().undecodable_for(Duration::ZERO);
    let task = app.task(TASK, at_once, |_, input: u32| async move { Ok::<_, heartline::JobError>(input) }).unwrap();
    let wrong = test.app().await.task_ref::<Value, u32>(TASK).unwrap();
    let worker = TestWorker::start(app.worker());
    wrong.dispatch("seven".into()).id("text").attempts(5).await.unwrap();
    wrong.dispatch(Value::from(-1)).id("negative").await.unwrap();
    wrong.dispatch(Value::from(1)).id("bytes").delay(ms(200)).await.unwrap();
    test.run::<u64>("HSET", "payload", &["bytes", "\u{0}{not json"]).await;
    for id in ["text", "negative", "bytes"] {
        let failed = failure(&wrong, id).await;
        assert_eq!((failed.code.as_str(), failed.failed_attempts), ("codec", 1), "{id}");
    }
    assert_eq!(task.dispatch(3).await.unwrap().result().await.unwrap(), 3);
    worker.stop().await;
}

#[tokio::test]
async fn a_value_that_is_not_json_fails_as_codec() {
    let (test, app) = shared().await;
    let task: TaskRef<Value, BTreeMap<(u8, u8), u8>> = app
        .task(TASK, fast(), |_, _: Value| async { Ok::<_, heartline::JobError>(BTreeMap::from([((1, 2), 3)])) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch(Value::Null).id("a").await.unwrap();
    test.arrives("a", "failed").await;
    assert_eq!(task.job("a").await.unwrap().error.unwrap().code, "codec");
    worker.stop().await;
}
