//! The tokio runtime on which an App was built may end, and others may block, and no call hangs.

use std::time::Duration;

use futures_util::future::join_all;
use heartline::{App, Error, Event, RecvError, TaskRef};
use tokio::sync::oneshot;

use crate::faults::ground::{alone, proxied};
use crate::faults::unpolled::{ends, polled_elsewhere, waiting};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::{PATIENCE, eventually};

/// A runtime in a thread of its own. It runs until the test ends it.
struct Elsewhere {
    end: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Elsewhere {
    /// An App that is built there.
    async fn with_app(test: &TestTask, url: &str) -> (Elsewhere, App) {
        let ((end, ended), (built, is_built)) = (oneshot::channel::<()>(), oneshot::channel());
        let (test, url) = (test.clone(), url.to_owned());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                built.send(test.app_at(&url).await).ok().unwrap();
                ended.await.unwrap();
            });
        });
        (Elsewhere { end, thread }, is_built.await.unwrap())
    }

    async fn end(self) {
        self.end.send(()).unwrap();
        tokio::task::spawn_blocking(move || self.thread.join().unwrap()).await.unwrap();
    }
}

/// Uses the App from here in each way once.
async fn is_of_use(app: &App, test: &TestTask, round: &str) {
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let mut events = app.events();
    ends("a dispatch", jobs.dispatch("open".to_owned()).id(format!("{round}-alone")).into_future()).await.unwrap();
    let together = (0..20).map(|at| jobs.dispatch("open".to_owned()).id(format!("{round}-{at}")).into_future());
    for dispatched in ends("dispatches side by side", join_all(together)).await {
        dispatched.unwrap();
    }
    let large = jobs.dispatch("x".repeat(600_000)).id(format!("{round}-large"));
    ends("a large dispatch", large.into_future()).await.unwrap();
    ends("a question", jobs.counts()).await.unwrap();
    let told = async { while events.recv().await.unwrap().id().as_str() != format!("{round}-alone") {} };
    ends("an event", told).await;
    let alone = jobs.handle(format!("{round}-alone")).unwrap();
    ends("a result", alone.result()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_reconnects_after_its_runtime_has_ended() {
    let (redis, test) = alone();
    let worker = test.start_worker(options(INTERVAL)).await;
    test.journal.open("open");
    test.journal.open(&"x".repeat(600_000));
    let (runtime, app) = Elsewhere::with_app(&test, &redis.url()).await;
    is_of_use(&app, &test, "before").await;
    // Both use the runtime that ends.
    let mut events = app.events();
    let late = app.task_ref::<String, u64>(&test.name).unwrap().handle("late").unwrap();
    let (_near, near) = test.producer().await;
    near.dispatch("gate".to_owned()).id("late").await.unwrap();
    ends("an event", events.recv()).await.unwrap();
    let waits = tokio::spawn(async move { late.result().await });

    runtime.end().await;
    is_of_use(&app, &test, "after").await;
    test.journal.open("gate");
    ends("the result of before", waits).await.unwrap().unwrap();
    let mut heard = Vec::new();
    while heard.last().map(String::as_str) != Some("after-alone") {
        // The reader may have missed events between its two runtimes.
        match ends("an event of after", events.recv()).await {
            Ok(event @ Event::Dispatched { .. }) => heard.push(event.id().to_string()),
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert!(!heard.contains(&"before-alone".to_owned()), "{heard:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_end_when_the_runtime_of_the_app_ends() {
    let (_redis, test, proxy) = proxied().await;
    let (runtime, app) = Elsewhere::with_app(&test, &proxy.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    jobs.dispatch("input".to_owned()).id("before").await.unwrap();
    // A single call, then calls that a task of that runtime carries, then calls with a connection each.
    proxy.pause();
    let connections = proxy.connections();
    let dispatch = |id: String, input: &str| tokio::spawn(jobs.dispatch(input.to_owned()).id(id).into_future());
    let small = (0..10).map(|at| dispatch(format!("small-{at}"), "input"));
    let large = "x".repeat(600_000);
    let under_way: Vec<_> = small.chain((0..10).map(|at| dispatch(format!("large-{at}"), &large))).collect();
    let looks = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.counts().await }
    });
    eventually("all are under way", PATIENCE, async || proxy.connections() >= connections + 8).await;
    runtime.end().await;
    proxy.resume();
    let mut written = Vec::new();
    for ended in ends("the dispatches", join_all(under_way)).await {
        match ended.unwrap() {
            Ok(job) => written.push(job.id().to_string()),
            Err(e) => assert!(matches!(e, Error::Closed) || e.is_retryable(), "{e:?}"),
        }
    }
    let _ = ends("the question", looks).await.unwrap();
    ends("a dispatch of after", jobs.dispatch("input".to_owned()).id("after").into_future()).await.unwrap();
    let waiting = waiting(&test).await;
    assert!(written.iter().chain(&["after".to_owned()]).all(|id| waiting.contains(id)), "{written:?} {waiting:?}");
}

/// A runtime of one thread, which runs until the work is done. Then it is kept, and no thread polls it.
struct StandsStill {
    _kept: std::sync::mpsc::Sender<()>,
}

impl StandsStill {
    /// The value of the work is kept too.
    async fn after<T>(work: impl Future<Output = T> + Send + 'static) -> StandsStill {
        let (end, ended) = oneshot::channel();
        let (kept, until_dropped) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _left = runtime.block_on(work);
            end.send(()).unwrap();
            let _ = until_dropped.recv();
        });
        ended.await.unwrap();
        StandsStill { _kept: kept }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_blocked_runtime_delays_no_caller() {
    let (redis, test) = alone();
    let worker = test.start_worker(options(INTERVAL)).await;
    test.journal.open("open");
    test.journal.open("input");
    test.journal.open(&"x".repeat(600_000));
    let app = test.app_at(&redis.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let stands_still = StandsStill::after({
        let (app, jobs) = (app.clone(), jobs.clone());
        async move {
            // It is the first to use the App, and leaves all of this under way.
            let mut events = app.events();
            assert!(tokio::time::timeout(Duration::from_millis(1), events.recv()).await.is_err());
            let waits = jobs.handle("left-0").unwrap();
            tokio::spawn(async move { waits.result().await });
            let left: Vec<_> = (0..20).map(|at| polled_elsewhere(&jobs, &format!("left-{at}"))).collect();
            (0..20).for_each(|_| drop(tokio::spawn(jobs.dispatch("x".repeat(600_000)).into_future())));
            tokio::task::yield_now().await;
            (events, left)
        }
    })
    .await;
    is_of_use(&app, &test, "here").await;
    drop(stands_still);
    worker.stop().await;
}
