//! A slot that moves key by key takes every column of its task along.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use heartline::{
    App, CancelOutcome, Context, JobError, JobReport, JobState, JobValues, Outcome, Priority, RetryPolicy,
    StallOptions, TaskOptions, TaskRef,
};
use redis::aio::MultiplexedConnection;

use crate::cluster::six::{Six, TASKS, ask};
use crate::support::journal::Journal;
use crate::support::worker::TestWorker;
use crate::support::{Child, PATIENCE, TestRedis, dump, eventually};

const TASK: &str = TASKS[0];

/// What handlers and the hook wait for.
const GATE: &str = "gate";

const HOUR: Duration = Duration::from_secs(3600);

/// The input says what a job does. A job that is silent in its hook waits for a person.
async fn app(url: &str, journal: &Arc<Journal>) -> (App, TaskRef<String, u64>) {
    let app = App::builder().redis(url).build().await.unwrap();
    let stall = StallOptions::new().interval(Duration::from_secs(2)).recover_finalizing(false);
    let options = TaskOptions::new().concurrency(4).prefetch(1).cancel_grace(HOUR);
    let options = options.retry(RetryPolicy::new().attempts(2)).stall(stall);
    let gates = Arc::clone(journal);
    let handler = move |ctx: Context, what: String| {
        let gates = Arc::clone(&gates);
        async move {
            gates.begin(&ctx);
            match what.as_str() {
                "fails" => return Err(JobError::new("no luck").with_code("luck").fatal()),
                "retries" if ctx.attempt() == 1 => return Err(JobError::new("not yet").retry_after(HOUR)),
                "snoozes" if ctx.snoozed_count() == 0 => return Err(JobError::snooze(HOUR)),
                "works" => {
                    ctx.checkpoint_now("half").await?;
                    ctx.progress(&50, "half of it")?;
                    gates.opened(GATE).await;
                }
                _ => {}
            }
            Ok::<_, JobError>(ctx.header("answer").map_or(7, |answer| answer.parse().unwrap()))
        }
    };
    let task = app.task(TASK, options, handler).unwrap();
    let gates = Arc::clone(journal);
    let hook = move |ctx: Context, _: Outcome<u64>| {
        let gates = Arc::clone(&gates);
        async move {
            if ctx.id().as_str().ends_with("hook") {
                gates.opened(GATE).await;
            }
            Ok::<_, JobError>(())
        }
    };
    task.on_complete(hook).unwrap();
    (app, task)
}

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_process_with_a_hook() {
    if let Some(url) = Child::role() {
        let _ = app(&url, &Arc::default()).await.0.worker().run().await.unwrap();
    }
}

async fn is(task: &TaskRef<String, u64>, id: &str, state: JobState) {
    let handle = task.handle(id).unwrap();
    eventually(&format!("{id} is {state}"), PATIENCE, async || handle.state().await.unwrap() == state).await;
}

/// What a node has of the task, by key names, without what heartbeats and idle looks change at any moment.
async fn held_at(port: u16) -> (BTreeSet<String>, BTreeMap<String, String>) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    let mut conn: MultiplexedConnection =
        client.get_multiplexed_async_connection_with_config(&TestRedis::patient()).await.unwrap();
    let prefix = format!("heartline:{{{TASK}}}:");
    let mut all = dump(&mut conn, &prefix).await;
    all = all.into_iter().map(|(key, value)| (key[prefix.len()..].to_owned(), value)).collect();
    let names = all.keys().cloned().collect();
    all.retain(|name, _| !["active", "candidates", "replies", "events", "meta", "wake"].contains(&name.as_str()));
    (names, all)
}

/// The names of all keys that a task can have, by the description of the format.
fn described() -> BTreeSet<String> {
    let text = include_str!("../../../docs/wire-format.md");
    let (_, rest) = text.split_once("| name | type | holds |\n|---|---|---|\n").unwrap();
    let rows = rest.lines().map_while(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split_once('`').unwrap().0.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_key_by_key_keeps_every_column_of_its_task() {
    let six = Six::start().await;
    let journal = Arc::new(Journal::default());
    let (app, task) = app(&six.cluster.url(), &journal).await;
    let inspector = app.inspector();
    // A process dies with a running job and with one in its hook.
    let dead = Child::start(module_path!(), "a_worker_process_with_a_hook", &six.cluster.url());
    task.dispatch("works".into()).id("stalled").await.unwrap();
    task.dispatch("ends".into()).id("silent-in-its-hook").await.unwrap();
    is(&task, "stalled", JobState::Running).await;
    is(&task, "silent-in-its-hook", JobState::Finalizing).await;
    drop(dead);
    let worker = TestWorker::start(app.worker());
    // Jobs that end at once, are delayed, fill the four slots, and are claimed ahead.
    let later = task.dispatch("ends".into()).id("delayed").delay(HOUR).header("answer", "42");
    later.priority(Priority::High).attempts(3).max_stalls(5).await.unwrap();
    task.dispatch("ends".into()).id("cancelled").delay(HOUR).await.unwrap().cancel("no more").await.unwrap();
    for (id, what) in [("completed", "ends"), ("failed", "fails"), ("retried", "retries"), ("snoozed", "snoozes")] {
        task.dispatch(what.into()).id(id).await.unwrap();
    }
    is(&task, "completed", JobState::Completed).await;
    is(&task, "failed", JobState::Failed).await;
    is(&task, "retried", JobState::Delayed).await;
    is(&task, "snoozed", JobState::Delayed).await;
    is(&task, "stalled", JobState::Running).await;
    for (id, what) in [("in-its-hook", "ends"), ("works", "works"), ("to-be-cancelled", "works")] {
        task.dispatch(what.into()).id(id).await.unwrap();
    }
    is(&task, "in-its-hook", JobState::Finalizing).await;
    is(&task, "works", JobState::Running).await;
    is(&task, "to-be-cancelled", JobState::Running).await;
    let cancelled = task.handle("to-be-cancelled").unwrap().cancel("enough").await.unwrap();
    assert_eq!(cancelled, CancelOutcome::Requested);
    task.dispatch("ends".into()).id("claimed").await.unwrap();
    is(&task, "claimed", JobState::Claimed).await;
    for (id, priority) in [("low", Priority::Low), ("first", Priority::Normal), ("tombstone", Priority::Normal)] {
        task.dispatch("ends".into()).id(id).priority(priority).expires_after(HOUR).await.unwrap();
    }
    task.dispatch("ends".into()).id("high").priority(Priority::High).await.unwrap();
    task.handle("tombstone").unwrap().cancel("no more").await.unwrap();
    let silent = async || inspector.silent_jobs(TASK, None).await.unwrap().jobs.into_iter().any(|job| job.is_parked);
    eventually("the job that was in its hook is parked", PATIENCE, silent).await;
    let noted = async |id: &str| inspector.job(TASK, id, JobValues::Small).await.unwrap().unwrap();
    for id in ["works", "stalled"] {
        eventually("progress is written", PATIENCE, async || noted(id).await.progress.is_some()).await;
    }

    let from = six.primary_of(TASK, six.ports()[0]).await.unwrap();
    let to = six.ports()[..3].iter().copied().find(|port| *port != from).unwrap();
    // The unreported end of a node of a workflow.
    let outbox = format!("heartline:{{{TASK}}}:outbox");
    let _: Option<u64> = ask(from, &["ZADD", &outbox, "1", "~nobody/a/0/1"]).await;
    // The mark of an earlier run that began early.
    let _: Option<u64> = ask(from, &["HSET", &format!("heartline:{{{TASK}}}:early"), "works", "1"]).await;
    // What keys leave.
    let _: Option<u64> = ask(from, &["HSET", &format!("heartline:{{{TASK}}}:laneOf"), "gone", "k"]).await;
    let _: Option<u64> = ask(from, &["HSET", &format!("heartline:{{{TASK}}}:laneStarts"), "k", "1 1 1 1|"]).await;
    let _: Option<u64> = ask(from, &["HSET", &format!("heartline:{{{TASK}}}:laneOwn"), "k", "- - - 2 0 ada"]).await;
    let _: Option<u64> = ask(from, &["HSET", &format!("heartline:{{{TASK}}}:series"), "m0", "1 1 1 1"]).await;
    for place in ["lanes", "turns", "laneHeld"] {
        let _: Option<u64> = ask(from, &["ZADD", &format!("heartline:{{{TASK}}}:{place}"), "0", "k\x002\0gone"]).await;
    }
    let (names, before) = held_at(from).await;
    // Silent jobs and the marker change all the time.
    let missing: Vec<String> = described().into_iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.iter().all(|name| ["active", "candidates", "wake"].contains(&name.as_str())), "{missing:?}");
    let other = app.task_ref::<String, u64>(TASKS[1]).unwrap();
    six.migrate(TASK, from, to, async || {
        other.dispatch("elsewhere".into()).await.unwrap();
    })
    .await;
    eventually("calls reach its new node", PATIENCE, async || task.counts().await.is_ok()).await;
    let (left, _) = held_at(from).await;
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(held_at(to).await.1, before);
    let _: Option<u64> = ask(to, &["DEL", &format!("heartline:{{{TASK}}}:lanes")]).await;
    let audit = inspector.audit(TASK).await.unwrap();
    assert!(audit.is_clean(), "{audit:?}");

    let job: JobReport = noted("delayed").await;
    assert_eq!((job.state, job.priority, job.options.attempts), (JobState::Delayed, Priority::High, Some(3)));
    assert_eq!((job.options.max_count, &*job.options.headers["answer"]), (Some(5), "42"));
    let job = noted("retried").await;
    assert_eq!((job.state, job.failed_attempts, &*job.error.unwrap().message), (JobState::Delayed, 1, "not yet"));
    assert_eq!(noted("snoozed").await.snoozed_count, 1);
    assert_eq!(
        (noted("completed").await.result, noted("failed").await.error.unwrap().code),
        (Some(7.into()), "luck".into())
    );
    let job = noted("works").await;
    assert_eq!((job.state, job.checkpoint, job.stalled_count), (JobState::Running, Some("half".into()), 0));
    assert_eq!((job.progress.unwrap().message.as_str(), job.recovery), ("half of it", None));
    let job = noted("stalled").await;
    assert_eq!((job.state, job.stalled_count, job.recovery.is_some()), (JobState::Running, 1, true));
    assert_eq!(noted("to-be-cancelled").await.cancel_requested.as_deref(), Some("enough"));
    assert!(noted("first").await.expires_at.is_some());
    assert_eq!(noted("in-its-hook").await.state, JobState::Finalizing);
    assert!(silent().await, "it still waits for a person");

    // All jobs continue.
    journal.open(GATE);
    let due = inspector.run_now(TASK, ["delayed", "retried", "snoozed"].map(str::to_owned).to_vec()).await.unwrap();
    assert_eq!((due.done, due.refused), (3, 0), "{due:?}");
    for (id, value) in [("delayed", 42), ("retried", 7), ("snoozed", 7), ("stalled", 7), ("works", 7), ("claimed", 7)] {
        let result = task.handle(id).unwrap().result_within(PATIENCE).await;
        assert_eq!(result.unwrap(), value, "{id}");
    }
    for id in ["in-its-hook", "low", "first", "high"] {
        assert_eq!(task.handle(id).unwrap().result_within(PATIENCE).await.unwrap(), 7, "{id}");
    }
    is(&task, "to-be-cancelled", JobState::Cancelled).await;
    let counts = task.counts().await.unwrap();
    // The tombstone is one of the cancelled jobs; the parked job stays.
    assert_eq!(
        (counts.completed, counts.failed, counts.cancelled, counts.pending_total()),
        (11, 1, 3, 1),
        "{counts:?}"
    );
    for run in ["works", "in-its-hook", "to-be-cancelled", "claimed", "low", "first", "high"] {
        assert_eq!(journal.runs_of(run).len(), 1, "{run}");
    }
    worker.stop().await;
}
