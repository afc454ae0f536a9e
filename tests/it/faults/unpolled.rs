//! Futures of dispatches that nobody polls any more: kept aside, dropped, or left behind in a runtime that stands still.
//!
//! A future may be left alone at each of its awaits. What others need must then not be in its hands.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use heartline::{App, JobHandle, TaskRef};
use redis::AsyncCommands;
use tokio::sync::oneshot;

use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, eventually};

type Dispatching = futures_util::future::BoxFuture<'static, Result<JobHandle<u64>, heartline::Error>>;

/// A dispatch that was polled once and is under way, or waits behind one that is.
fn polled_once(jobs: &TaskRef<String, u64>, id: &str) -> Dispatching {
    let mut dispatching: Dispatching = Box::pin(jobs.dispatch("input".to_owned()).id(id));
    assert!(dispatching.as_mut().now_or_never().is_none(), "it needs an answer of the server");
    dispatching
}

/// Gives what was awaited; panics when it hangs.
async fn ends<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// The ids that wait, each of which must be there once.
async fn waiting(test: &TestTask) -> BTreeSet<String> {
    let ids: Vec<String> = test.conn().await.lrange(test.key("wait"), 0, -1).await.unwrap();
    let distinct: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    distinct
}

fn names(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn a_dispatch_that_is_kept_and_not_polled_holds_up_no_other() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (_app, jobs) = test.producer().await;
    jobs.dispatch("input".to_owned()).id("before").await.unwrap();
    let kept = polled_once(&jobs, "kept");

    // In the body of the very task that keeps it, one after the other and side by side.
    for id in ["first", "second"] {
        ends("a dispatch beside it", jobs.dispatch("input".to_owned()).id(id).into_future()).await.unwrap();
    }
    let together = ["third", "fourth"].map(|id| jobs.dispatch("input".to_owned()).id(id).into_future());
    for ended in ends("two dispatches beside it", futures_util::future::join_all(together)).await {
        ended.unwrap();
    }
    // And in a task that knows nothing of it.
    let elsewhere = tokio::spawn(jobs.dispatch("input".to_owned()).id("elsewhere").into_future());
    ends("a dispatch of another task", elsewhere).await.unwrap().unwrap();

    // It is as good as new when it is polled again.
    assert_eq!(ends("the kept one", kept).await.unwrap().id().as_str(), "kept");
    assert_eq!(waiting(&test).await, names(&["before", "elsewhere", "first", "fourth", "kept", "second", "third"]));
}

#[tokio::test]
async fn dispatches_in_the_items_of_a_buffered_stream_and_in_the_body_of_its_consumer_all_end() {
    const ITEMS: usize = 200;
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (_app, jobs) = test.producer().await;
    // While the body of the loop runs nobody polls the items.
    let mut items = stream::iter(0..ITEMS)
        .map(|item| {
            let jobs = jobs.clone();
            async move {
                // What an item does before and after takes another time for each.
                tokio::time::sleep(Duration::from_millis(item as u64 * 7 % 5)).await;
                jobs.dispatch("input".to_owned()).id(format!("item-{item}")).await.unwrap();
                tokio::time::sleep(Duration::from_millis(item as u64 * 3 % 4)).await;
                item
            }
        })
        .buffer_unordered(8);
    ends("the stream", async {
        while let Some(item) = items.next().await {
            jobs.dispatch("input".to_owned()).id(format!("follow-up-{item}")).await.unwrap();
        }
    })
    .await;
    let expected = (0..ITEMS).flat_map(|item| [format!("item-{item}"), format!("follow-up-{item}")]);
    assert_eq!(waiting(&test).await, expected.collect());
}

#[tokio::test]
async fn a_first_use_of_a_lazy_app_that_is_not_polled_holds_up_neither_tasks_nor_workers() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let lazy = async || App::builder().redis(redis.url()).lazy().build().await.unwrap();

    let app = lazy().await;
    let kept = polled_once(&app.task_ref("of-the-kept-one").unwrap(), "kept");
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    ends("a dispatch of another task", jobs.dispatch("input".to_owned()).id("first").into_future()).await.unwrap();
    assert_eq!(ends("a question", jobs.counts()).await.unwrap().waiting, 1);
    ends("the kept one", kept).await.unwrap();

    let app = lazy().await;
    let kept = polled_once(&app.task_ref("of-the-kept-one").unwrap(), "kept-too");
    assert_eq!(ends("a question", app.task_ref::<String, u64>(&test.name).unwrap().counts()).await.unwrap().waiting, 1);
    drop(kept);

    let app = lazy().await;
    let kept = polled_once(&app.task_ref("of-the-kept-one").unwrap(), "kept-as-well");
    let jobs = app
        .task(&test.name, options(INTERVAL), async |ctx: heartline::Context, _: String| {
            Ok::<u64, heartline::JobError>(ctx.fence())
        })
        .unwrap();
    let worker = TestWorker::start(app.worker());
    ends("the job of a worker", jobs.handle("first").unwrap().result()).await.unwrap();
    let _ = ends("the worker", worker.begin_stop()).await.unwrap().unwrap();
    drop(kept);
}

#[tokio::test]
async fn a_dispatch_that_was_dropped_while_it_waited_behind_another_is_not_sent_any_more() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let proxy = Proxy::start(redis.address()).await;
    let jobs: TaskRef<String, u64> = test.app_at(&proxy.url()).await.task_ref(&test.name).unwrap();
    jobs.dispatch("input".to_owned()).id("before").await.unwrap();
    // Nothing goes on behind the answer that is held back, as if the server stood still.
    let mut hold = proxy.hold_next_reply_to(test.sha("dispatch").await);
    let under_way = tokio::spawn(jobs.dispatch("input".to_owned()).id("under-way").into_future());
    hold.happened().await;
    let waiting_behind = polled_once(&jobs, "waiting-behind");
    let dropped: Vec<_> = (0..5).map(|at| polled_once(&jobs, &format!("dropped-{at}"))).collect();
    drop(dropped);
    drop(hold);
    ends("the first one", under_way).await.unwrap().unwrap();
    ends("the one behind it", waiting_behind).await.unwrap();
    // What was left in the queue would have gone out before this one.
    ends("one that came later", jobs.dispatch("input".to_owned()).id("after").into_future()).await.unwrap();
    assert_eq!(waiting(&test).await, names(&["after", "before", "under-way", "waiting-behind"]));
}

/// A thread with a runtime of one thread, which is driven as long as `work` goes on, and then kept as it is.
pub struct Alone<T> {
    pub ended: oneshot::Receiver<T>,
    _kept: std::sync::mpsc::Sender<()>,
}

impl<T: Send + 'static> Alone<T> {
    pub fn runs(work: impl Future<Output = T> + Send + 'static) -> Alone<T> {
        let (end, ended) = oneshot::channel();
        let (kept, until_dropped) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = end.send(runtime.block_on(work));
            let _ = until_dropped.recv();
        });
        Alone { ended, _kept: kept }
    }
}

/// Dispatches are under way in a runtime that is then driven no more, and others come from a second one. `early`: the
/// second one was the first to use the App, so that the shared connection was made there.
async fn left_behind(early: bool) {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let proxy = Proxy::start(redis.address()).await;
    let app = test.app_at(&proxy.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let ((up, is_up), (go, gone)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
    let (leave, left) = oneshot::channel::<()>();

    let other = Alone::runs({
        let jobs = jobs.clone();
        async move {
            if early {
                jobs.dispatch("input".to_owned()).id("early").await.unwrap();
            }
            up.send(()).unwrap();
            // Its own connections go on meanwhile.
            gone.await.unwrap();
            for at in 0..3 {
                ends("a dispatch", jobs.dispatch("input".to_owned()).id(format!("other-{at}")).into_future()).await?;
            }
            Ok::<(), heartline::Error>(())
        }
    });
    is_up.await.unwrap();
    let mut hold = proxy.hold_next_reply_to("under-way-");
    let one = Alone::runs(async move {
        jobs.dispatch("input".to_owned()).id("first").await.unwrap();
        for at in 0..5 {
            tokio::spawn(jobs.dispatch("input".to_owned()).id(format!("under-way-{at}")).into_future());
        }
        left.await.unwrap();
    });
    hold.happened().await;
    leave.send(()).unwrap();
    one.ended.await.unwrap();
    drop(hold);
    // Nobody reads the answer that comes now.
    go.send(()).unwrap();
    let answered = tokio::time::timeout(PATIENCE * 2, other.ended).await;
    answered.expect("the second runtime hangs").expect("a dispatch there hangs").unwrap();
    let waiting = waiting(&test).await;
    assert!((0..3).all(|at| waiting.contains(&format!("other-{at}"))), "{waiting:?}");
    drop((one._kept, other._kept));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_stands_still_with_dispatches_under_way_and_the_connection_in_it_holds_up_no_other_runtime() {
    left_behind(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_stands_still_with_dispatches_under_way_holds_up_no_other_that_made_the_connection() {
    left_behind(true).await;
}

#[tokio::test]
async fn a_dispatch_that_is_dropped_while_it_is_under_way_holds_up_no_other() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (_app, jobs) = test.producer().await;
    drop(polled_once(&jobs, "dropped"));
    let kept: Vec<_> = (0..3).map(|at| polled_once(&jobs, &format!("kept-{at}"))).collect();
    let behind = jobs.dispatch("input".to_owned()).id("behind");
    ends("the one behind them", behind.into_future()).await.unwrap();
    for (at, kept) in kept.into_iter().enumerate() {
        let kept = tokio::time::timeout(Duration::from_secs(15), kept).await.expect("a kept one does not end");
        assert_eq!(kept.unwrap().id().as_str(), format!("kept-{at}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_dispatches_left_behind_in_a_runtime_that_stands_still_keep_their_turns_from_nobody() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let proxy = Proxy::start(redis.address()).await;
    let app = test.app_at(&proxy.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    jobs.dispatch("input".to_owned()).id("first").await.unwrap();
    proxy.pause();
    let one = Alone::runs({
        let jobs = jobs.clone();
        async move {
            // More than have a turn, and as many that wait for one.
            for _ in 0..20 {
                tokio::spawn(jobs.dispatch("x".repeat(600_000)).into_future());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    one.ended.await.unwrap();
    proxy.resume();
    ends("a large dispatch", jobs.dispatch("x".repeat(600_000)).id("large").into_future()).await.unwrap();
    drop(one._kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_events_in_a_runtime_that_stands_still_holds_up_no_subscriber_of_another() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (app, jobs) = test.producer().await;
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    // The first who listens has the reader in its runtime.
    let one = Alone::runs(async move { tokio::time::timeout(Duration::from_millis(300), job.result()).await.is_err() });
    assert!(one.ended.await.unwrap());
    let mut events = app.events();
    jobs.dispatch("input".to_owned()).id("heard-of").await.unwrap();
    let heard = async {
        loop {
            match events.recv().await {
                Ok(event) if event.id().as_str() == "heard-of" => break,
                // What the left one had in hand may be missing, and is told.
                Ok(_) | Err(heartline::RecvError::Lagged(_)) => {}
                Err(e) => panic!("{e}"),
            }
        }
    };
    ends("the subscriber", heard).await;
    drop(one._kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_waits_for_a_result_replaces_a_reader_that_stands_still() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (_app, jobs) = test.producer().await;
    let (job, other) =
        (jobs.dispatch("input".to_owned()).await.unwrap(), jobs.dispatch("input".to_owned()).await.unwrap());
    let mut conn = redis.conn().await;
    let mut readers = async || {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut conn).await.unwrap();
        clients.matches("name=heartline:events:").count()
    };
    let (began, has_begun) = tokio::sync::oneshot::channel::<()>();
    let (overlaps, has_other) = tokio::sync::oneshot::channel::<()>();
    // The first who waits has the reader in its runtime, which stands still when another one waits too.
    let one = Alone::runs(async move {
        let waits = tokio::time::timeout(Duration::from_millis(300), job.result());
        let wait = tokio::join!(waits, async { began.send(()).unwrap() });
        has_other.await.unwrap();
        wait.0.is_err()
    });
    has_begun.await.unwrap();
    eventually("the reader runs", PATIENCE, async || readers().await == 1).await;
    let waits = tokio::spawn(async move { other.result().await });
    overlaps.send(()).unwrap();
    assert!(one.ended.await.unwrap());
    eventually("another reader runs", PATIENCE, async || readers().await == 2).await;
    waits.abort();
    drop(one._kept);
}

#[test]
fn a_subscription_goes_from_one_runtime_to_the_next_and_misses_nothing() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (keeps_redis, first, second) = (runtime(), runtime(), runtime());
    let (redis, test) = keeps_redis.block_on(async {
        let redis = TestRedis::start();
        let test = TestTask::on(&redis);
        (redis, test)
    });
    let (mut events, jobs) = first.block_on(async {
        let (app, jobs) = test.producer().await;
        let mut events = app.events();
        jobs.dispatch("input".to_owned()).id("one").await.unwrap();
        assert_eq!(ends("the first event", events.recv()).await.unwrap().id().as_str(), "one");
        // Its timer and the reader are of this runtime.
        assert!(tokio::time::timeout(Duration::from_millis(50), events.recv()).await.is_err());
        (events, jobs)
    });
    drop(first);
    for id in ["two", "three"] {
        second.block_on(async {
            jobs.dispatch("input".to_owned()).id(id).await.unwrap();
            assert_eq!(ends("the next event", events.recv()).await.unwrap().id().as_str(), id);
        });
    }
    drop(redis);
}

#[tokio::test]
async fn a_subscriber_that_blocks_its_only_thread_for_long_gets_each_event_once() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    for id in ["a", "b", "c", "d"] {
        jobs.dispatch("input".to_owned()).id(id).await.unwrap();
        let event = ends("an event", events.recv()).await;
        assert_eq!(event.map(|event| event.id().to_string()), Ok(id.to_owned()));
        std::thread::sleep(Duration::from_millis(1_300));
    }
    assert_eq!(events.try_recv(), Ok(None));
}
