//! Cancels in every state of a job.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::task::{TASK, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};
use heartline::{
    App, CancelOutcome, Error, Event, Interrupted, JobState, RetryPolicy, StallOptions, TaskOptions, TaskRef,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// Reports when it is dropped.
struct Tell(mpsc::UnboundedSender<&'static str>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// A task whose jobs react to a cancel as their input says.
fn obeying(
    app: &App,
    options: TaskOptions,
) -> (TaskRef<String, u32>, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (told, tell) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let resume = go_on.clone();
    let task = app.task(TASK, options, move |ctx, input: String| {
        let (told, resume) = (told.clone(), resume.clone());
        async move {
            let _told = Tell(told.clone());
            match input.as_str() {
                "ignore" => std::future::pending().await,
                "unaware" => resume.notified().await,
                _ => ctx.cancelled().await,
            }
            assert_eq!(ctx.is_cancelled(), input != "unaware");
            if input != "unaware" {
                assert_eq!(ctx.heartbeat(), Err(Interrupted::Cancelled));
                told.send("cancelled")?;
            }
            match input.as_str() {
                "err" => Err::<_, heartline::JobError>("gave up".into()),
                "question mark" => Ok(ctx.heartbeat().map(|()| 0)?),
                "panic" => panic!("gave up"),
                _ => Ok(7),
            }
        }
    });
    (task.unwrap(), tell, go_on)
}

async fn reason_of(task: &TaskRef<String, u32>, id: &str) -> String {
    match task.handle(id).unwrap().result().await {
        Err(Error::JobCancelled { reason, .. }) => reason,
        other => panic!("{id}: {other:?}"),
    }
}

#[tokio::test]
async fn a_cancelled_waiting_or_delayed_job_never_runs() {
    let (test, app) = shared().await;
    let (task, mut tell, _) = obeying(&app, fast());
    test.declared().await;
    let mut events = app.events();
    for (id, delay) in [("waits", 0), ("delayed", 60)] {
        let job = task.dispatch("".into()).id(id).delay(Duration::from_secs(delay)).await.unwrap();
        assert_eq!(job.cancel(format!("{id}!")).await.unwrap(), CancelOutcome::Cancelled);
        assert_eq!(job.state().await.unwrap(), JobState::Cancelled);
        assert_eq!(job.cancel("again").await.unwrap(), CancelOutcome::AlreadyTerminal(JobState::Cancelled));
        assert_eq!(test.places(id).await, ["cancelled"]);
        assert_eq!(reason_of(&task, id).await, format!("{id}!"));
        assert_eq!(next(&mut events).await.name(), "task:dispatched");
        assert!(matches!(next(&mut events).await, Event::Cancelled { id: other, .. } if other.as_str() == id));
    }
    for priority in [heartline::Priority::High, heartline::Priority::Low] {
        let job = task.dispatch("".into()).id(priority.as_str()).priority(priority).await.unwrap();
        assert_eq!(job.cancel("").await.unwrap(), CancelOutcome::Cancelled);
        assert_eq!(test.places(priority.as_str()).await, ["cancelled"]);
    }
    let worker = TestWorker::start(app.worker());
    test.epochs_pass(1).await;
    assert!(tell.try_recv().is_err(), "something ran");
    worker.stop().await;
}

#[tokio::test]
async fn a_running_job_is_cancelled_whatever_its_handler_does() {
    let (test, app) = shared().await;
    let (task, mut tell, go_on) = obeying(&app, fast().retry(RetryPolicy::new().attempts(5)));
    let worker = TestWorker::start(app.worker());
    for input in ["ok", "err", "question mark", "panic", "unaware", "ignore"] {
        let id = input.replace(' ', "-");
        let job = task.dispatch(input.into()).id(&id).await.unwrap();
        test.arrives(&id, "running").await;
        assert_eq!(job.cancel(input).await.unwrap(), CancelOutcome::Requested);
        assert!(matches!(
            job.cancel("a later reason").await.unwrap(),
            CancelOutcome::Requested | CancelOutcome::AlreadyTerminal(_)
        ));
        go_on.notify_waiters();
        assert_eq!(reason_of(&task, &id).await, input);
        assert_eq!(test.places(&id).await, ["cancelled"], "{input}");
        assert_eq!(test.column("attempt", &id).await, None, "{input}");
        if !["unaware", "ignore"].contains(&input) {
            assert_eq!(tell.recv().await, Some("cancelled"), "{input}");
        }
        assert_eq!(tell.recv().await, Some("dropped"), "{input}");
    }
    assert_eq!(test.run::<u64>("EXISTS", "cancelling", &[]).await, 0);
    assert_eq!(test.run::<u64>("EXISTS", "result", &[]).await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_handler_that_ignores_a_cancel_is_dropped_after_its_grace() {
    let (test, app) = shared().await;
    let (task, mut tell, _) = obeying(&app, fast().concurrency(1).cancel_grace(Duration::from_secs(60)));
    let worker = TestWorker::start(app.worker());
    let grace = Duration::from_millis(600);
    let job = task.dispatch("ignore".into()).id("a").cancel_grace(grace).await.unwrap();
    test.arrives("a", "running").await;
    let begun = Instant::now();
    job.cancel("").await.unwrap();
    assert_eq!(tell.recv().await, Some("dropped"));
    assert!(begun.elapsed() >= grace, "{:?}", begun.elapsed());
    test.arrives("a", "cancelled").await;
    // Its slot is free again.
    task.dispatch("ok".into()).id("b").await.unwrap();
    test.arrives("b", "running").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_reaches_the_handler_before_the_next_heartbeat() {
    let (test, app) = shared().await;
    let long = fast().stall(StallOptions::new().interval(Duration::from_secs(300)));
    let (task, mut tell, _) = obeying(&app, long);
    let worker = TestWorker::start(app.worker());
    for id in ["first", "second"] {
        let job = task.dispatch("ok".into()).id(id).await.unwrap();
        test.arrives(id, "running").await;
        job.cancel("now").await.unwrap();
        // The next heartbeat is 100 s away.
        let told = tokio::time::timeout(PATIENCE, tell.recv()).await.expect("the hint comes");
        assert_eq!(told, Some("cancelled"));
        assert_eq!(tell.recv().await, Some("dropped"));
        assert_eq!(reason_of(&task, id).await, "now");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_with_a_lost_hint_arrives_with_the_next_heartbeat() {
    let (test, app) = shared().await;
    let (task, mut tell, _) = obeying(&app, fast());
    let worker = TestWorker::start(app.worker());
    task.dispatch("ok".into()).id("a").await.unwrap();
    test.arrives("a", "running").await;
    // The effect of the script, without its hint.
    test.run::<u64>("HSET", "cancelling", &["a", "by hand"]).await;
    assert_eq!(tokio::time::timeout(PATIENCE, tell.recv()).await.unwrap(), Some("cancelled"));
    assert_eq!(reason_of(&task, "a").await, "by hand");
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_that_races_with_the_end_leaves_the_job_in_one_place() {
    let (test, app) = shared().await;
    let task = app
        .task(TASK, fast().concurrency(50), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    let mut races = tokio::task::JoinSet::new();
    for input in 0..200 {
        let task = task.clone();
        races.spawn(async move {
            let job = task.dispatch(input).await.unwrap();
            let outcome = job.cancel("race").await.unwrap();
            let result = job.result().await;
            match outcome {
                CancelOutcome::AlreadyTerminal(JobState::Completed) => assert_eq!(result.unwrap(), input),
                CancelOutcome::Cancelled | CancelOutcome::Requested => {
                    assert!(matches!(result, Err(Error::JobCancelled { .. })), "{outcome:?}: {result:?}");
                }
                other => panic!("{other:?}"),
            }
            job.id().to_string()
        });
    }
    while let Some(id) = races.join_next().await {
        assert_eq!(test.places(&id.unwrap()).await.len(), 1);
    }
    eventually("no flag is left", PATIENCE, async || test.run::<u64>("EXISTS", "cancelling", &[]).await == 0).await;
    worker.stop().await;
}
