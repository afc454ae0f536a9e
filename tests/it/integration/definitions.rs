//! Definitions of tasks in one place, and what handlers may return and share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heartline::{
    App, Context, Error, Event, Interrupted, JobError, JobState, Next, RetryPolicy, TaskDef, TaskOptions, TaskRef,
    codes,
};

use crate::integration::fixtures::{alone, shared};
use crate::support::task::{TASK, TestTask, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings, eventually};

const DOUBLE: TaskDef<u32, u64> = TaskDef::new(TASK).options(TaskOptions::new().payload_limit(2));

#[derive(Debug, thiserror::Error)]
enum Payment {
    #[error("the card was declined")]
    Declined,
    #[error("the bank is closed for {0:?}")]
    Closed(Duration),
    #[error("the bank said no")]
    Bank(#[source] std::io::Error),
}

async fn double(_: Context, n: u32) -> Result<u64, String> {
    Ok(u64::from(n) * 2)
}

#[tokio::test]
async fn a_task_defined_once_has_its_types_and_options_everywhere() {
    let test = TestTask::new();
    let (app, other) = (test.app().await, test.app().await);
    app.register(DOUBLE.handler(double)).unwrap();
    let worker = TestWorker::start(app.worker());
    let jobs = other.task_ref_for(&DOUBLE).unwrap();
    assert_eq!(jobs.dispatch(21).await.unwrap().result().await.unwrap(), 42);
    let error = jobs.dispatch(100).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: None, size: 3, limit: 2 }), "{error:?}");
    // A task that was declared earlier without the options keeps those of its declaration.
    let named: TaskRef<u32, u64> = test.app().await.task_ref(TASK).unwrap();
    assert_eq!(named.dispatch(100).await.unwrap().result().await.unwrap(), 200);
    worker.stop().await;
}

#[tokio::test]
async fn a_definition_dispatches_its_jobs_itself() {
    let test = TestTask::new();
    let (app, other) = (test.app().await, test.app().await);
    app.register(DOUBLE.handler(double)).unwrap();
    let worker = TestWorker::start(app.worker());
    for producer in [&app, &other, &other] {
        let job = DOUBLE.dispatch(producer, 21).header("k", "v").await.unwrap();
        assert_eq!(job.result().await.unwrap(), 42);
    }
    assert!(matches!(DOUBLE.dispatch(&other, 100).await.unwrap_err(), Error::TooLarge { .. }), "its options count");
    const WRONG: TaskDef<u32, u64> = TaskDef::new("no name").options(TaskOptions::new().concurrency(0));
    let wrong = WRONG.dispatch(&app, 1).id("a");
    assert_eq!(wrong.task(), "no name");
    let Error::Config(faults) = wrong.await.unwrap_err() else { panic!() };
    assert_eq!(faults.len(), 2);
    worker.stop().await;
}

#[tokio::test]
async fn a_definition_keeps_its_options_next_to_another_reference() {
    let (_test, app) = shared().await;
    let named: TaskRef<u32, u64> = app.task_ref(TASK).unwrap();
    let defined = app.task_ref_for(&DOUBLE).unwrap();
    named.dispatch(100).await.unwrap();
    assert!(matches!(defined.dispatch(100).await.unwrap_err(), Error::TooLarge { .. }));
}

#[tokio::test]
async fn a_definition_with_faults_is_refused_with_a_list_of_them() {
    const WRONG: TaskDef<u32, u64> = TaskDef::new("no name").options(TaskOptions::new().concurrency(0));
    let (_test, app) = shared().await;
    let Error::Config(faults) = app.register(WRONG.handler(double)).unwrap_err() else { panic!() };
    assert_eq!(faults.len(), 2);
    let Error::Config(faults) = app.task_ref_for(&WRONG).unwrap_err() else { panic!() };
    assert_eq!(faults.len(), 2);
    app.register(DOUBLE.handler(double)).unwrap();
    assert!(matches!(app.register(DOUBLE.handler(double)).unwrap_err(), Error::Config(_)), "twice");
}

#[tokio::test]
async fn handlers_may_return_any_error() {
    let (_test, app) = shared().await;
    async fn any(_: Context, _: ()) -> anyhow::Result<()> {
        Err(anyhow::anyhow!("inner").context("outer"))
    }
    async fn boxed(_: Context, _: ()) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err("boxed")?
    }
    async fn text(_: Context, _: ()) -> Result<(), String> {
        Err("text".to_owned())
    }
    async fn own(_: Context, _: ()) -> Result<(), Payment> {
        Err(Payment::Bank(std::io::Error::other("no money")))
    }
    let tasks = [
        ("any", app.task("any", fast(), any).unwrap(), "outer: inner"),
        ("boxed", app.task("boxed", fast(), boxed).unwrap(), "boxed"),
        ("text", app.task("text", fast(), text).unwrap(), "text"),
        ("own", app.task("own", fast(), own).unwrap(), "the bank said no: no money"),
        ("closure", app.task("closure", fast(), async |_, ()| Err::<(), _>(JobError::new("c"))).unwrap(), "c"),
    ];
    let worker = TestWorker::start(app.worker());
    for (name, task, message) in tasks {
        let Error::JobFailed(failure) = task.dispatch(()).await.unwrap().result().await.unwrap_err() else { panic!() };
        assert_eq!((failure.code.as_str(), failure.message.as_str()), (codes::HANDLER_ERROR, message), "{name}");
    }
    worker.stop().await;
}

/// What the handler returns, and through which type.
async fn pay(_: Context, how: String) -> Result<(), JobError> {
    match how.as_str() {
        "declined" => Err(Payment::Declined)?,
        "closed" => Err(Payment::Closed(Duration::from_secs(3600)))?,
        "anyhow" => Err(anyhow::Error::from(Payment::Declined).context("while paying"))?,
        "cause" => Err(Payment::Bank(std::io::Error::other("no money")))?,
        _ => Err("something else")?,
    }
    Ok(())
}

#[tokio::test]
async fn a_custom_error_is_mapped_once_per_task_and_once_per_app() {
    let test = TestTask::new();
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix);
    let app = app
        .on_error(|_: &std::io::Error, error| error.with_code("io"))
        .on_error(|_: &Payment, error| error.with_code("never_asked"));
    let app = app.build().await.unwrap();
    const PAY: TaskDef<String, ()> =
        TaskDef::new(TASK).options(TaskOptions::new().retry(RetryPolicy::new().attempts(2)));
    let handler = PAY.handler(pay).on_error(|payment: &Payment, error| match payment {
        Payment::Declined => error.with_code("declined").fatal(),
        Payment::Closed(time) => error.with_code("closed").retry_after(*time),
        Payment::Bank(_) => error.with_code("bank").fatal(),
    });
    let jobs = app.register(handler).unwrap();
    let mut events = jobs.events();
    let worker = TestWorker::start(app.worker());
    for (how, code) in [("declined", "declined"), ("anyhow", "declined"), ("cause", "bank")] {
        let job = jobs.dispatch(how.to_owned()).await.unwrap();
        let Error::JobFailed(failure) = job.result().await.unwrap_err() else { panic!() };
        assert_eq!((failure.code.as_str(), failure.failed_attempts), (code, 1), "{how}");
    }
    jobs.dispatch("closed".to_owned()).id("closed").await.unwrap();
    let retrying = async {
        loop {
            if let Event::Retrying { id, delay, .. } = events.recv().await.unwrap() {
                return (id.to_string(), delay);
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, retrying).await.unwrap();
    assert_eq!(told, ("closed".to_owned(), Duration::from_secs(3600)));
    worker.stop().await;
}

#[tokio::test]
async fn an_error_known_to_the_app_is_found_among_the_causes() {
    let test = TestTask::new();
    let app = App::builder().redis(test.redis().app_url()).prefix(&test.prefix);
    let app = app.on_error(|_: &std::io::Error, error| error.with_code("io")).build().await.unwrap();
    let jobs = app.task(TASK, fast(), pay).unwrap();
    let worker = TestWorker::start(app.worker());
    for (how, code) in [("cause", "io"), ("declined", codes::HANDLER_ERROR)] {
        let job = jobs.dispatch(how.to_owned()).await.unwrap();
        let Error::JobFailed(failure) = job.result().await.unwrap_err() else { panic!() };
        assert_eq!(failure.code, code, "{how}");
    }
    worker.stop().await;
}

struct Pool(u32);

async fn uses_the_pool(ctx: Context, (): ()) -> Result<u32, JobError> {
    Ok(ctx.state::<Pool>()?.0)
}

#[tokio::test]
async fn handlers_share_data_and_a_worker_without_it_does_not_start() {
    const USES: TaskDef<(), u32> = TaskDef::new(TASK);
    let test = TestTask::new();
    let builder = || App::builder().redis(test.redis().app_url()).prefix(&test.prefix);
    let app = builder().state(Pool(1)).state(Pool(7)).build().await.unwrap();
    let jobs = app.register(USES.handler(uses_the_pool).needs::<Pool>()).unwrap();
    let worker = TestWorker::start(app.worker());
    assert_eq!(jobs.dispatch(()).await.unwrap().result().await.unwrap(), 7);
    worker.stop().await;

    let bare = builder().build().await.unwrap();
    bare.register(USES.handler(uses_the_pool).needs::<Pool>().needs::<String>()).unwrap();
    let warnings = Warnings::capture();
    let worker = bare.worker();
    let named = format!("worker_id={}", worker.id());
    let Error::Config(faults) = worker.run().await.unwrap_err() else { panic!() };
    let is_logged = |line: &String| {
        line.contains("the worker ended with an error") && line.contains(&named) && line.contains("Pool")
    };
    assert!(warnings.all().iter().any(is_logged), "{:#?}", warnings.all());
    let told = faults.to_string();
    assert!(faults.len() == 2 && told.contains("Pool") && told.contains("String"), "{told}");
    assert!(told.contains("AppBuilder::state"), "{told}");

    let bare = builder().build().await.unwrap();
    let jobs = bare.task(TASK, fast().retry(RetryPolicy::new().attempts(9)), uses_the_pool).unwrap();
    let worker = TestWorker::start(bare.worker());
    let Error::JobFailed(failure) = jobs.dispatch(()).await.unwrap().result().await.unwrap_err() else { panic!() };
    assert_eq!((failure.code.as_str(), failure.failed_attempts), (codes::MISSING_STATE, 1));
    worker.stop().await;
}

#[tokio::test]
async fn headers_are_delivered_with_a_job_and_are_bounded() {
    let (_test, app) = shared().await;
    let handler = async |ctx: Context, name: String| Ok::<_, JobError>(ctx.header(&name).map(str::to_owned));
    let jobs = app.task(TASK, fast(), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let job = jobs.dispatch("trace".to_owned()).header("trace", "old").header("trace", "00-ab").header("x", "y");
    assert_eq!(job.await.unwrap().result().await.unwrap().as_deref(), Some("00-ab"));
    assert_eq!(jobs.dispatch("trace".to_owned()).await.unwrap().result().await.unwrap(), None);
    let error = jobs.dispatch(String::new()).header("k", "v".repeat(4096)).await.unwrap_err();
    assert!(matches!(&error, Error::Config(faults) if faults.to_string().starts_with("headers is")), "{error:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_producer_that_sets_attempts_leaves_delays_to_the_worker() {
    let (test, app) = shared().await;
    let policy = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(10));
    let handler = async |_: Context, (): ()| Err::<(), _>(JobError::new("always"));
    app.task(TASK, fast().retry(policy), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let producer = test.app().await;
    let jobs: TaskRef<(), ()> = producer.task_ref(TASK).unwrap();
    let mut events = jobs.events();
    let job = jobs.dispatch(()).attempts(4).await.unwrap();
    let Error::JobFailed(failure) = job.result().await.unwrap_err() else { panic!() };
    assert_eq!(failure.failed_attempts, 4);
    let mut delays = Vec::new();
    while delays.len() < 3 {
        if let Event::Retrying { delay, .. } = events.recv().await.unwrap() {
            delays.push(delay);
        }
    }
    assert!(delays.iter().all(|delay| *delay <= Duration::from_millis(20)), "{delays:?}");
    let error = jobs.dispatch(()).attempts(0).await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    worker.stop().await;
}

#[tokio::test]
async fn result_within_is_bounded_and_a_subscription_has_one_task() {
    let (_test, app) = shared().await;
    let jobs = app.task(TASK, fast(), double).unwrap();
    let others: TaskRef<u32, u64> = app.task_ref("others").unwrap();
    let mut events = jobs.events();
    let job = jobs.dispatch(1).await.unwrap();
    let error = job.result_within(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }) && error.is_retryable(), "{error:?}");
    for _ in 0..10 {
        others.dispatch(1).await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    assert_eq!(job.result_within(PATIENCE).await.unwrap(), 2);
    let mut names = Vec::new();
    while names.last() != Some(&"task:completed") {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        assert_eq!(event.task(), TASK);
        names.push(event.name());
    }
    assert_eq!(names, ["task:dispatched", "task:started", "task:completed"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_dispatch_is_a_future_like_any_other() {
    let (_test, app) = shared().await;
    let jobs: TaskRef<u32, u64> = app.task_ref(TASK).unwrap();
    let spawned = tokio::spawn(jobs.dispatch(1).id("spawned")).await.unwrap().unwrap();
    assert_eq!((spawned.id().as_str(), spawned.existed()), ("spawned", Some(false)));
    let joined = futures_util::future::join_all((0..5).map(|n| jobs.dispatch(n))).await;
    assert!(joined.iter().all(Result::is_ok));
    assert_eq!(jobs.counts().await.unwrap().waiting, 6);
    assert_eq!(jobs.handle("spawned").unwrap().existed(), None);
}

tokio::task_local! {
    static TENANT: String;
}

#[tokio::test]
async fn layers_run_around_each_handler_in_their_order() {
    let (redis, test) = alone();
    let said = Arc::new(Mutex::new(Vec::new()));
    let says = |name: &'static str| {
        let said = Arc::clone(&said);
        move |ctx: Context, next: Next| {
            let said = Arc::clone(&said);
            async move {
                said.lock().unwrap().push(format!("{name} begins"));
                let ended = next.run(ctx).await;
                let code = ended.as_ref().err().and_then(|failure| failure.job_error()).map(|e| e.code().to_owned());
                said.lock().unwrap().push(format!("{name} ends {}", code.unwrap_or_default()));
                ended
            }
        }
    };
    let tenant = async |ctx: Context, next: Next| match ctx.header("tenant").map(str::to_owned) {
        Some(tenant) => TENANT.scope(tenant, next.run(ctx)).await,
        None => Err(JobError::new("no tenant").with_code("no_tenant").fatal().into()),
    };
    let app = App::builder().redis(redis.url()).prefix(&test.prefix);
    let app = app.layer(says("outer")).layer(says("inner")).layer(tenant).build().await.unwrap();
    let handler = |_: Context, fails: bool| async move {
        if fails { Err(JobError::new("no").with_code("broken")) } else { Ok::<_, JobError>(TENANT.get()) }
    };
    let task = app.task(TASK, fast(), handler).unwrap();
    let worker = TestWorker::start(app.worker());
    let run = async |fails: bool, tenant: &str| {
        let job = task.dispatch(fails);
        let job = if tenant.is_empty() { job } else { job.header("tenant", tenant) };
        let ended = job.await.unwrap().result().await.map_err(|e| e.to_string());
        (ended, std::mem::take(&mut *said.lock().unwrap()))
    };
    let around = |code: &str| {
        [
            "outer begins".to_owned(),
            "inner begins".to_owned(),
            format!("inner ends {code}"),
            format!("outer ends {code}"),
        ]
    };
    assert_eq!(run(false, "acme").await, (Ok("acme".to_owned()), around("").to_vec()));
    for (tenant, code) in [("acme", "broken"), ("", "no_tenant")] {
        let (ended, said) = run(true, tenant).await;
        assert!(ended.unwrap_err().contains(code));
        assert_eq!(said, around(code));
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_blocking_handler_keeps_no_other_job_waiting_and_learns_that_it_timed_out() {
    const BLOCKS: TaskDef<u32, u32> = TaskDef::new("blocks");
    let (_test, app) = shared().await;
    // While a test blocks, the only thread of its runtime is free.
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    let threads = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&threads);
    let handler = move |ctx: Context, n: u32| {
        let change = |by: i32| {
            let mut threads = counted.lock().unwrap();
            threads.0 += by;
            threads.1 = threads.0.max(threads.1);
        };
        assert_ne!(n, 1, "it panics");
        change(1);
        if n == 0 {
            opened.lock().unwrap().recv().unwrap();
        }
        let ended = ctx.heartbeat();
        change(-1);
        if n == 0 {
            assert_eq!(ended, Err(Interrupted::Ended))
        }
        Ok::<u32, JobError>(n)
    };
    app.register(BLOCKS.options(fast().concurrency(1)).blocking(handler)).unwrap();
    let worker = TestWorker::start(app.worker());
    let ended = async |n: u32, ms: u64| {
        let job = BLOCKS.dispatch(&app, n).timeout(Duration::from_millis(ms)).await.unwrap();
        job.result().await.map_err(|e| e.to_string())
    };
    assert_eq!(ended(7, 60_000).await, Ok(7));
    assert!(ended(1, 60_000).await.unwrap_err().contains("panic"));
    assert!(ended(0, 100).await.unwrap_err().contains("timeout"));
    // Its thread counts until it returns.
    assert!(ended(8, 100).await.unwrap_err().contains("timeout"));
    gate.send(()).unwrap();
    assert_eq!(ended(9, 60_000).await, Ok(9));
    assert_eq!(threads.lock().unwrap().1, 1);
    worker.stop().await;
}

const MAIL: TaskDef<String, u32> = TaskDef::new("mail");

#[tokio::test]
async fn a_handler_dispatches_with_the_app_of_its_worker() {
    const REPORT: TaskDef<u32, String> = TaskDef::new("report");
    const BILL: TaskDef<u32, ()> = TaskDef::new("bill");
    let test = TestTask::new();
    let dropped = Arc::new(());
    let billing = App::builder().redis(test.url()).prefix("billing").build().await.unwrap();
    let building = App::builder().redis(test.url()).prefix(&test.prefix).state(Arc::clone(&dropped)).state(billing);
    let app = building.build().await.unwrap();
    let report = |ctx: Context, month: u32| async move {
        BILL.dispatch(ctx.state::<App>()?, month).await?;
        let mail = MAIL.dispatch(ctx.app()?, format!("month {month}")).await?;
        Ok::<_, JobError>(mail.id().to_string())
    };
    app.register(REPORT.handler(report)).unwrap();
    app.register(MAIL.handler(|_, text: String| async move { Ok::<_, JobError>(text.len() as u32) })).unwrap();
    let worker = TestWorker::start(app.worker());
    let mail = REPORT.dispatch(&app, 7).await.unwrap().result().await.unwrap();
    assert_eq!(MAIL.handle(&app, &mail).unwrap().result().await.unwrap(), 7);
    assert_eq!(MAIL.job(&app, &mail).await.unwrap().state, JobState::Completed);
    assert!(matches!(MAIL.handle(&app, "a b"), Err(Error::Config(_))));
    worker.stop().await;
    drop(app);
    eventually("the App is dropped", PATIENCE, async || Arc::strong_count(&dropped) == 1).await;
}
