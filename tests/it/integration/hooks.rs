//! Hooks run between the outcome of a job and its end, whatever caused the outcome and whichever worker dies.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    App, CancelOutcome, Context, Error, Event, JobError, JobFilter, JobHandle, JobState, JobValues, Outcome, Retention,
    RetryPolicy, StallAction, StallOptions, StalledEvent, Subscription, TaskDef, TaskOptions, TaskRef,
};

use crate::integration::fixtures::{alone, shared};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, fast, fast_with};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, eventually};

/// What handlers and hooks did, in order.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn say(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, line: &str) -> usize {
        self.all().iter().filter(|said| *said == line).count()
    }
}

/// What a handler does with its input.
async fn work(ctx: Context, input: String) -> Result<u64, JobError> {
    match input.as_str() {
        "fail" => Err(JobError::new("no luck").with_code("luck").fatal()),
        "never" => std::future::pending().await,
        _ => Ok(ctx.id().as_str().len() as u64),
    }
}

/// A task whose handler is [`work`], with this hook.
fn declare<F, Fut>(test: &TestTask, app: &App, options: TaskOptions, done: &Done, hook: F) -> TaskRef<String, u64>
where
    F: Fn(Context, Outcome<u64>, Done) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), JobError>> + Send + 'static,
{
    let task = without_hook(test, app, options, done);
    let done = done.clone();
    task.on_complete(move |ctx, outcome| {
        done.say(format!("hook {} {}", ctx.id(), line(&outcome)));
        hook(ctx, outcome, done.clone())
    })
    .unwrap();
    task
}

fn without_hook(test: &TestTask, app: &App, options: TaskOptions, done: &Done) -> TaskRef<String, u64> {
    let done = done.clone();
    let handler = move |ctx: Context, input: String| {
        done.say(format!("handler {}", ctx.id()));
        work(ctx, input)
    };
    app.task(&test.name, options, handler).unwrap()
}

fn line(outcome: &Outcome<u64>) -> String {
    match outcome {
        Outcome::Completed(value) => format!("completed {value}"),
        Outcome::Failed(failure) => format!("failed {} {} {}", failure.code, failure.message, failure.failed_attempts),
        Outcome::Cancelled { reason } => format!("cancelled {reason}"),
    }
}

async fn fine(_: Context, _: Outcome<u64>, _: Done) -> Result<(), JobError> {
    Ok(())
}

/// The names of the next events of this job, until it has ended.
async fn events_of(events: &mut Subscription<Event>, id: &str) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let event = next(events).await;
        if event.id().as_str() == id {
            names.push(event.name().trim_start_matches("task:").to_owned());
            if event.is_terminal() {
                return names;
            }
        }
    }
}

#[tokio::test]
async fn a_hook_sees_every_outcome_and_delays_the_result() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let open = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = Arc::clone(&open);
    let task = declare(&test, &app, fast(), &done, move |_, _, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    let mut events = task.events();
    let worker = TestWorker::start(app.worker());
    let ids = ["returns", "fails", "runs"];
    for (id, input) in ids.into_iter().zip(["ok", "fail", "never"]) {
        task.dispatch(input.into()).id(id).await.unwrap();
    }
    let running = task.handle("runs").unwrap();
    eventually("it runs", PATIENCE, async || done.count("handler runs") == 1).await;
    assert_eq!(running.cancel("not wanted").await.unwrap(), CancelOutcome::Requested);
    eventually("all hooks run", PATIENCE, async || done.all().len() == 6).await;
    let inspector = app.inspector();
    for id in ids {
        let handle = task.handle(id).unwrap();
        assert_eq!(handle.state().await.unwrap(), JobState::Finalizing);
        assert_eq!(handle.cancel("too late").await.unwrap(), CancelOutcome::TooLate);
        assert!(
            tokio::time::timeout(Duration::from_millis(20), handle.result()).await.is_err(),
            "it waits for the hook"
        );
        let report = inspector.job(TASK, id, JobValues::None).await.unwrap().unwrap();
        assert_eq!(report.worker, Some(worker_id(&app).await));
        assert!(report.outcome.is_some() && report.started_at.is_some());
    }
    assert_eq!(task.counts().await.unwrap().finalizing, 3);
    let listed = inspector.jobs(TASK, &JobFilter::new(JobState::Finalizing), None, 10).await.unwrap();
    assert_eq!(listed.jobs.len(), 3);
    open.add_permits(3);
    assert_eq!(task.handle("returns").unwrap().result().await.unwrap(), 7);
    assert!(matches!(task.handle("fails").unwrap().result().await, Err(Error::JobFailed(_))));
    assert!(matches!(running.result().await, Err(Error::JobCancelled { reason, .. }) if reason == "not wanted"));
    let mut said = done.all();
    said.sort();
    let hooks = ["hook fails failed luck no luck 1", "hook returns completed 7", "hook runs cancelled not wanted"];
    assert_eq!(said[3..], hooks);
    assert_eq!(events_of(&mut events, "returns").await, ["dispatched", "started", "finalizing", "completed"]);
    worker.stop().await;
    assert_eq!(task.counts().await.unwrap().finalizing, 0);
    assert_eq!((test.dump("outcome").await, test.dump("finalizing").await), (None, None));
}

/// The id of the only worker.
async fn worker_id(app: &App) -> heartline::WorkerId {
    let workers = app.inspector().workers().await.unwrap();
    workers.into_iter().next().unwrap().worker
}

#[tokio::test]
async fn a_hook_runs_for_jobs_that_never_ran() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let task = declare(&test, &app, fast(), &done, fine);
    // A worker has declared the hook.
    TestWorker::start(app.worker()).stop().await;
    for id in ["waits", "later", "expires", "removed"] {
        let dispatch = task.dispatch("ok".into()).id(id);
        match id {
            "later" => dispatch.delay(Duration::from_secs(1000)).await.unwrap(),
            "expires" => dispatch.expires_after(Duration::from_millis(1)).await.unwrap(),
            _ => dispatch.await.unwrap(),
        };
    }
    for id in ["waits", "later"] {
        let handle = task.handle(id).unwrap();
        assert_eq!(handle.cancel("why").await.unwrap(), CancelOutcome::Cancelled);
        assert_eq!(handle.cancel("again").await.unwrap(), CancelOutcome::TooLate);
    }
    let inspector = app.inspector();
    inspector.remove(TASK, ["removed".to_owned()]).await.unwrap();
    let worker = TestWorker::start(app.worker());
    for id in ["waits", "later", "expires"] {
        assert!(task.handle(id).unwrap().result().await.is_err());
    }
    let mut said = done.all();
    said.sort();
    let expired = "hook expires failed expired no worker began the job before it expired 0";
    assert_eq!(said, [expired, "hook later cancelled why", "hook waits cancelled why"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_hook_that_fails_is_retried_and_finally_left_out() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let retry = RetryPolicy::new().attempts(4).fixed(Duration::from_millis(1)).on(&["luck"]);
    let options = fast().retry(retry).timeout(Duration::from_millis(100));
    let task = declare(&test, &app, options, &done, |ctx, _, done: Done| async move {
        done.say(format!("attempt {} of {}", ctx.attempt(), ctx.max_attempts()));
        match ctx.attempt() {
            1 => Err(JobError::new("down")),
            2 => panic!("oh"),
            _ => std::future::pending().await,
        }
    });
    let mut events = task.events();
    let worker = TestWorker::start(app.worker());
    let handle = task.dispatch("ok".into()).id("a").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 1);
    let attempts: Vec<String> = done.all().into_iter().filter(|line| line.starts_with("attempt")).collect();
    assert_eq!(attempts, ["attempt 1 of 4", "attempt 2 of 4", "attempt 3 of 4", "attempt 4 of 4"]);
    assert_eq!(done.count("handler a"), 1);
    let mut told = Vec::new();
    loop {
        match next(&mut events).await {
            Event::HookRetrying { failed_attempts, code, .. } => told.push(format!("{failed_attempts} {code}")),
            Event::HookFailed { code, message, .. } => told.push(format!("{code} {message}")),
            Event::Completed { .. } => break,
            _ => {}
        }
    }
    assert_eq!(told, ["1 handler_error", "2 panic", "3 timeout", "timeout the hook took longer than 100ms"]);
    let report = app.inspector().task(task.name()).await.unwrap();
    assert_eq!((report.hooks_failed, report.hooks_failed_in_a_row), (1, 1));
    assert!(report.hook_failed_at.is_some() && report.hook_failed_at == report.hooks_failing_since);
    worker.stop().await;
}

#[tokio::test]
async fn a_hook_may_snooze_or_give_up() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let task =
        declare(&test, &app, fast().retry(RetryPolicy::new().attempts(9)), &done, |ctx, _, done: Done| async move {
            done.say(format!("attempt {} after {} snoozes", ctx.attempt(), ctx.snoozed_count()));
            match done.count(&format!("hook {} completed 1", ctx.id())) {
                1 => Err(JobError::snooze(Duration::from_millis(1))),
                _ => Err(JobError::new("for good").fatal()),
            }
        });
    let worker = TestWorker::start(app.worker());
    assert_eq!(task.dispatch("ok".into()).id("a").await.unwrap().result().await.unwrap(), 1);
    assert_eq!(done.count("hook a completed 1"), 2);
    assert_eq!((done.count("attempt 1 after 0 snoozes"), done.count("attempt 2 after 0 snoozes")), (1, 1));
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_with_the_hook_finalizes_jobs_of_one_without() {
    let test = TestTask::new();
    let (old, new) = (test.app().await, test.app().await);
    let (old_done, new_done) = (Done::default(), Done::default());
    let task = without_hook(&test, &old, fast().concurrency(4), &old_done);
    let worker = TestWorker::start(old.worker());
    worker.working().await;
    // All slots of the new worker are taken, so it runs no handler.
    declare(&test, &new, fast().concurrency(1), &new_done, fine);
    let with_hook = TestWorker::start(new.worker());
    with_hook.working().await;
    eventually("the hook is declared", PATIENCE, async || test.column("meta", "hook").await.as_deref() == Some("1"))
        .await;
    let ids: Vec<String> = (0..20).map(|at| format!("job-{at}")).collect();
    for id in &ids {
        task.dispatch("ok".into()).id(id).await.unwrap();
    }
    for id in &ids {
        task.handle(id).unwrap().result().await.unwrap();
        assert_eq!(new_done.count(&format!("hook {id} completed {}", id.len())), 1);
    }
    assert!(old_done.all().iter().all(|line| line.starts_with("handler")));
    with_hook.stop().await;
    // An outcome is stored, and no worker has the hook.
    let left = task.dispatch("ok".into()).id("left").await.unwrap();
    left_finalizing(&left).await;
    // The newest start declares that there is no hook.
    let newest = test.app().await;
    without_hook(&test, &newest, fast(), &old_done);
    let last = TestWorker::start(newest.worker());
    assert_eq!(left.result().await.unwrap(), 4);
    assert_eq!(new_done.count("hook left completed 4"), 0);
    last.stop().await;
    worker.stop().await;
    test.nothing_is_left_but(21).await;
}

async fn left_finalizing(job: &JobHandle<u64>) {
    eventually("its outcome is stored", PATIENCE, async || job.state().await.unwrap() == JobState::Finalizing).await;
}

#[tokio::test]
async fn hooks_run_while_the_task_is_paused() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let task = declare(&test, &app, fast(), &done, fine);
    TestWorker::start(app.worker()).stop().await;
    app.inspector().pause(TASK, "a test").await.unwrap();
    let waits = task.dispatch("ok".into()).id("waits").await.unwrap();
    let ended = task.dispatch("ok".into()).id("ended").await.unwrap();
    for prefetch in [0, 5] {
        let other = test.app().await;
        declare(&test, &other, fast().prefetch(prefetch), &done, fine);
        let worker = TestWorker::start(other.worker());
        let id = format!("ended-{prefetch}");
        let ended = task.dispatch("ok".into()).id(&id).await.unwrap();
        ended.cancel("why").await.unwrap();
        assert!(matches!(ended.result().await, Err(Error::JobCancelled { .. })));
        assert_eq!(done.count(&format!("hook {id} cancelled why")), 1);
        worker.stop().await;
    }
    drop(ended);
    assert_eq!(waits.state().await.unwrap(), JobState::Waiting);
    assert!(done.all().iter().all(|line| line.starts_with("hook")));
}

/// A worker that stops soon, with a job whose hook runs in it and never ends.
async fn hangs(test: &TestTask, app: &App, done: &Done) -> (TestWorker, JobHandle<u64>) {
    let short = fast().shutdown_grace(Duration::from_millis(10)).cancel_grace(Duration::from_millis(10));
    let task = declare(test, app, short, done, |_, _, _| std::future::pending());
    let worker = TestWorker::start(app.worker());
    let job = task.dispatch("ok".into()).id("a").await.unwrap();
    eventually("the hook runs", PATIENCE, async || done.count("hook a completed 1") == 1).await;
    (worker, job)
}

/// A worker behind a proxy, with a job whose hook runs in it and never ends.
async fn stuck(test: &TestTask, redis: &TestRedis, done: &Done, options: TaskOptions) -> (Proxy, TestWorker) {
    let line = Proxy::start(redis.address()).await;
    let app = test.app_at(&line.url()).await;
    let task = declare(test, &app, options, done, |_, _, _| std::future::pending());
    let worker = TestWorker::start(app.worker());
    task.dispatch("ok".into()).id("a").await.unwrap();
    eventually("the hook runs", PATIENCE, async || done.count("hook a completed 1") == 1).await;
    (line, worker)
}

#[tokio::test]
async fn the_hook_of_a_dead_worker_runs_again_and_can_detect_it() {
    let (redis, test) = alone();
    let done = Done::default();
    let (line, dead) = stuck(&test, &redis, &done, fast()).await;
    let app = test.app().await;
    let task = declare(&test, &app, fast(), &done, |ctx, _, done: Done| async move {
        done.say(format!("stalled {} {:?}", ctx.stalled_count(), ctx.recovery().map(|told| told.stalled_count)));
        Ok(())
    });
    let mut stalls = app.on_stalled();
    let worker = TestWorker::start(app.worker());
    line.refuse().await;
    dead.abort();
    let StalledEvent { action, stalled_count, .. } = next(&mut stalls).await;
    assert_eq!((action, stalled_count), (StallAction::Requeued, 1));
    assert_eq!(task.handle("a").unwrap().result().await.unwrap(), 1);
    assert_eq!(done.all(), ["handler a", "hook a completed 1", "hook a completed 1", "stalled 1 Some(1)"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_hook_that_stalls_too_often_is_skipped() {
    let (redis, test) = alone();
    let done = Done::default();
    let options = || fast_with(StallOptions::new().max_count(0));
    let (line, dead) = stuck(&test, &redis, &done, options()).await;
    let app = test.app().await;
    let task = declare(&test, &app, options(), &done, fine);
    let (mut stalls, mut events) = (app.on_stalled(), task.events());
    let worker = TestWorker::start(app.worker());
    line.refuse().await;
    dead.abort();
    let stall = next(&mut stalls).await;
    assert_eq!((stall.action, stall.stalled_count), (StallAction::Completed, 1));
    assert_eq!(task.handle("a").unwrap().result().await.unwrap(), 1);
    assert_eq!(done.count("hook a completed 1"), 1);
    // An event from just before the subscription may arrive too.
    let told = events_of(&mut events, "a").await;
    assert_eq!(told[told.len().saturating_sub(3)..], ["stalled", "hook_failed", "completed"], "{told:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_hook_runs_for_a_job_that_stalled_too_often() {
    let (redis, test) = alone();
    let done = Done::default();
    let options = || fast_with(StallOptions::new().max_count(0));
    let dead = test.start_mortal_worker(&redis, options()).await;
    let app = test.app().await;
    let task = declare(&test, &app, options(), &done, fine);
    let job = task.dispatch("never".into()).id("a").await.unwrap();
    eventually("it runs", PATIENCE, async || job.state().await.unwrap() == JobState::Running).await;
    let worker = TestWorker::start(app.worker());
    worker.working().await;
    dead.dies().await;
    assert!(matches!(job.result().await, Err(Error::JobFailed(failure)) if failure.code == "worker_crashed"));
    let said = done.all();
    assert!(said.len() == 1 && said[0].starts_with("hook a failed worker_crashed "), "{said:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_hook_receives_a_large_value_and_a_null() {
    let (test, app) = shared().await;
    let large = "x".repeat(700 * 1024);
    let (given, seen) = (large.clone(), Arc::new(Mutex::new(Vec::new())));
    let handler = move |_: Context, input: u32| {
        let value = (input > 0).then(|| given.clone());
        async move { Ok::<Option<String>, JobError>(value) }
    };
    let told = Arc::clone(&seen);
    let hook = move |_: Context, outcome: Outcome<Option<String>>| {
        let told = Arc::clone(&told);
        async move {
            let Outcome::Completed(value) = outcome else { panic!("{outcome:?}") };
            told.lock().unwrap().push(value);
            Ok::<_, JobError>(())
        }
    };
    const LARGE: TaskDef<u32, Option<String>> =
        TaskDef::new(TASK).options(TaskOptions::new().retention(Retention::remove_at_once()));
    let task = app.register(LARGE.handler(handler).on_complete(hook)).unwrap();
    let worker = TestWorker::start(app.worker());
    for input in 0..2 {
        let _ = task.dispatch(input).await.unwrap().result().await;
        eventually("its hook has run", PATIENCE, async || seen.lock().unwrap().len() == 1 + input as usize).await;
    }
    assert!(*seen.lock().unwrap() == [None, Some(large)]);
    worker.stop().await;
    eventually("nothing is kept", PATIENCE, async || test.run::<u64>("EXISTS", "payload", &[]).await == 0).await;
    assert_eq!((test.dump("outcome").await, test.dump("result").await), (None, None));
}

#[tokio::test]
async fn hooks_do_not_wait_for_prefetched_jobs() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let task = declare(&test, &app, fast().concurrency(2).prefetch(50), &done, fine);
    task.dispatch_many(vec!["ok".to_owned(); 400]).await.unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 400).await;
    let said = done.all();
    assert_eq!(said.len(), 800);
    let first = said.iter().position(|line| line.starts_with("hook")).unwrap();
    assert!(first < 200, "the first hook came after {first} handlers");
    worker.stop().await;
    test.nothing_is_left_but(400).await;
}

#[tokio::test]
async fn a_hook_is_set_once_with_the_handler_and_before_a_worker() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let set = |task: &TaskRef<String, u64>| task.on_complete(|_, _| async { Ok::<_, JobError>(()) });
    let refused = |set: Result<TaskRef<String, u64>, Error>| match set {
        Err(Error::Config(e)) => assert!(e.to_string().contains("hook"), "{e}"),
        other => panic!("{other:?}"),
    };
    refused(set(&app.task_ref("elsewhere").unwrap()));
    let task = without_hook(&test, &app, fast(), &done);
    set(&task).unwrap();
    refused(set(&task));
    let other = test.app().await;
    let task = without_hook(&test, &other, fast(), &done);
    let _worker = other.worker();
    refused(set(&task));
}

#[tokio::test]
async fn a_drain_waits_for_hooks() {
    let test = TestTask::new();
    let (app, done) = (test.app().await, Done::default());
    let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_secs(3600));
    let task = declare(&test, &app, fast().retry(retry), &done, |ctx, _, done: Done| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if ctx.attempt() == 1 {
            return Err(JobError::new("down"));
        }
        done.say("told".to_owned());
        Ok(())
    });
    let job = task.dispatch("ok".into()).await.unwrap();
    app.worker().drain().await.unwrap();
    assert_eq!((job.state().await.unwrap(), done.count("told")), (JobState::Completed, 1));
}

#[tokio::test]
async fn a_hook_ended_by_a_shutdown_runs_at_once_without_the_handler() {
    let test = TestTask::new();
    let done = Done::default();
    let (one, two) = (test.app().await, test.app().await);
    let (worker, job) = hangs(&test, &one, &done).await;
    declare(&test, &two, fast(), &done, fine);
    let idle = TestWorker::start(two.worker());
    idle.working().await;
    worker.stop().await;
    // Less than the interval at which an idle worker polls.
    tokio::time::timeout(Duration::from_secs(3), job.result()).await.expect("no worker was woken").unwrap();
    assert_eq!((done.count("handler a"), done.count("hook a completed 1")), (1, 2));
    assert_eq!(test.dump("stalls").await, None);
    idle.stop().await;
}
