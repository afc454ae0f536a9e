//! Events: one per transition, in order, for the whole life of a job.

use crate::integration::fixtures::shared;
use crate::support::events::next;
use crate::support::puppet::Puppet;
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings, eventually};
use heartline::{App, Event, EventMode, Jitter, JobError, RecvError, RetryPolicy, StallAction, Subscription, TaskRef};
use std::collections::BTreeMap;
use std::time::Duration;

/// An event without the parts that differ from run to run.
fn short(event: &Event) -> String {
    match event {
        Event::Started { attempt, stalled_count, .. } => format!("started {attempt} {stalled_count}"),
        Event::Failed { code, .. } => format!("failed {code}"),
        Event::Retrying { failed_attempts, delay, .. } => format!("retrying {failed_attempts} {}", delay.as_millis()),
        Event::Stalled(stall) => format!("stalled {} {}", stall.stalled_count, stall.action),
        other => other.name().trim_start_matches("task:").to_owned(),
    }
}

/// The events by job, until this many jobs have ended.
async fn lives(events: &mut Subscription<Event>, ends: usize) -> BTreeMap<String, Vec<String>> {
    let mut lives: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ended = 0;
    while ended < ends {
        let event = next(events).await;
        assert_eq!(event.task(), TASK);
        ended += usize::from(event.is_terminal());
        lives.entry(event.id().to_string()).or_default().push(short(&event));
    }
    lives
}

fn scripted(app: &App) -> TaskRef<String, ()> {
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(1)).jitter(Jitter::None);
    let handler = |ctx: heartline::Context, input: String| async move {
        match (input.as_str(), ctx.attempt()) {
            ("second", 1) | ("never", _) => Err(JobError::from("no")),
            ("stay", _) if !ctx.is_shutting_down() => {
                ctx.cancelled().await;
                Err("interrupted".into())
            }
            _ => Ok(()),
        }
    };
    app.task(TASK, fast().retry(retry), handler).unwrap()
}

#[tokio::test]
async fn each_transition_of_a_job_is_one_event_in_order() {
    let (test, app) = shared().await;
    let task = scripted(&app);
    let (mut events, mut stalls) = (app.events(), app.on_stalled());
    task.dispatch("".into()).id("stalls").await.unwrap();
    task.dispatch("".into()).id("last").max_stalls(0).await.unwrap();
    let mut dead = Puppet::of(&test).await;
    dead.claim_all(&["stalls", "last"]).await;
    for (id, input) in [("plain", ""), ("retried", "second"), ("fails", "never"), ("handed-back", "stay")] {
        task.dispatch(input.into()).id(id).await.unwrap();
    }
    let cancelled = task.dispatch("".into()).id("cancelled").delay(Duration::from_secs(60)).await.unwrap();
    cancelled.cancel("").await.unwrap();
    let worker = TestWorker::start(app.worker());
    let mut found = lives(&mut events, 6).await;
    worker.stop().await;
    task.handle("handed-back").unwrap().cancel("").await.unwrap();
    for (id, more) in lives(&mut events, 1).await {
        found.entry(id).or_default().extend(more);
    }
    let expected: [(&str, &[&str]); 7] = [
        ("cancelled", &["dispatched", "cancelled"]),
        ("fails", &["dispatched", "started 1 0", "retrying 1 1", "started 2 0", "failed handler_error"]),
        ("handed-back", &["dispatched", "started 1 0", "requeued", "cancelled"]),
        ("last", &["dispatched", "started 1 0", "stalled 1 failed", "failed worker_crashed"]),
        ("plain", &["dispatched", "started 1 0", "completed"]),
        ("retried", &["dispatched", "started 1 0", "retrying 1 1", "started 2 0", "completed"]),
        ("stalls", &["dispatched", "started 1 0", "stalled 1 recovered", "started 1 1", "completed"]),
    ];
    for (id, life) in expected {
        assert_eq!(found.remove(id).unwrap(), life, "{id}");
    }
    assert!(found.is_empty(), "{found:?}");
    let stalls = [next(&mut stalls).await, next(&mut stalls).await];
    let mut stalls = stalls.map(|stall| (stall.id.to_string(), stall.stalled_count, stall.action));
    stalls.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(stalls, [("last".into(), 1, StallAction::Failed), ("stalls".into(), 1, StallAction::Recovered)]);
}

#[tokio::test]
async fn an_event_arrives_when_its_state_is_already_visible() {
    let (_test, app) = shared().await;
    let task = scripted(&app);
    let mut events = app.events();
    let worker = TestWorker::start(app.worker());
    for _ in 0..20 {
        let job = task.dispatch("".into()).await.unwrap();
        loop {
            let event = next(&mut events).await;
            if event.is_terminal() {
                assert_eq!(event.id(), job.id());
                assert!(job.state().await.unwrap().is_terminal());
                break;
            }
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn every_subscriber_gets_all_events_of_its_app_and_no_other() {
    let test = TestTask::new();
    let (app, elsewhere) = (test.app().await, test.app().await);
    let task = scripted(&app);
    let other = elsewhere.task_ref::<u32, ()>("other").unwrap();
    let mut subscribers = [app.events(), app.events()];
    other.dispatch(0).await.unwrap();
    let worker = TestWorker::start(app.worker());
    task.dispatch("".into()).id("a").await.unwrap();
    for subscriber in &mut subscribers {
        assert_eq!(lives(subscriber, 1).await["a"], ["dispatched", "started 1 0", "completed"]);
    }
    let late = elsewhere.task_ref::<String, ()>(TASK).unwrap();
    let mut elsewhere = elsewhere.events();
    late.dispatch("".into()).id("b").await.unwrap();
    loop {
        let event = next(&mut elsewhere).await;
        if event.is_terminal() && event.id().as_str() == "b" {
            break;
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_function_is_called_with_each_event_until_the_app_is_gone() {
    let warnings = Warnings::capture();
    let test = TestTask::new();
    let app =
        App::builder().redis(test.redis().app_url()).prefix(&test.prefix).event_capacity(4).build().await.unwrap();
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let calls = tokio::spawn(app.events().each(move |event| {
        tell.send(event.id().to_string()).unwrap();
        std::future::ready(())
    }));
    task.dispatch(0).id("a").await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "a");
    // It continues after events that it missed.
    task.dispatch_many(0..1000).await.unwrap();
    warnings.wait_for(&["WARN", "a subscriber was too slow and missed events"], PATIENCE).await;
    drop((task, app));
    tokio::time::timeout(PATIENCE, calls).await.expect("it ends with the App").unwrap();
}

#[tokio::test]
async fn a_slow_subscriber_gets_the_number_of_events_it_missed() {
    let test = TestTask::new();
    let app =
        App::builder().redis(test.redis().app_url()).prefix(&test.prefix).event_capacity(4).build().await.unwrap();
    let task = app.task_ref::<u32, ()>(TASK).unwrap();
    let mut events = app.events();
    task.dispatch_many(0..1000).await.unwrap();
    let (mut seen, mut missed) = (0, 0);
    while seen + missed < 1000 {
        match tokio::time::timeout(PATIENCE, events.recv()).await.expect("all events are received or counted as missed")
        {
            Ok(_) => seen += 1,
            Err(RecvError::Lagged(count)) => missed += count,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(seen + missed, 1000);
    assert_eq!(events.try_recv(), Ok(None));
}

#[tokio::test]
async fn without_events_only_stalls_are_written_and_results_arrive() {
    let (test, app) = shared().await;
    let task = app
        .task(TASK, fast().events(EventMode::Off), |_, input: u32| async move { Ok::<_, heartline::JobError>(input) })
        .unwrap();
    let mut stalls = app.on_stalled();
    // The mode belongs to the task; a worker writes it when it starts.
    let first = TestWorker::start(app.worker());
    eventually("it works", PATIENCE, async || test.epoch().await > 0).await;
    first.stop().await;
    let job = task.dispatch(5).id("a").await.unwrap();
    Puppet::of(&test).await.claim_all(&["a"]).await;
    let worker = TestWorker::start(app.worker());
    assert_eq!(next(&mut stalls).await.id.as_str(), "a");
    assert_eq!(job.result().await.unwrap(), 5);
    assert_eq!(test.run::<u64>("EXISTS", "events", &[]).await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_task_created_later_is_subscribed_too() {
    let (_test, app) = shared().await;
    let busy = app.task_ref::<u32, ()>("busy").unwrap();
    let mut events = app.events();
    let flow = tokio::spawn(async move {
        loop {
            busy.dispatch(0).await.unwrap();
        }
    });
    for number in 0..10 {
        let task = app.task_ref::<u32, ()>(&format!("late-{number}")).unwrap();
        let job = task.dispatch(0).await.unwrap();
        let heard = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.id() == job.id() => break,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, heard).await.unwrap_or_else(|_| panic!("late-{number} is never read"));
    }
    flow.abort();
}
