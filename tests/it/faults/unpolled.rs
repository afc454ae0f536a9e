//! Futures of dispatches that are not polled: kept for later, or dropped. The runtime runs all the while.
//!
//! A future may stop at each of its awaits. It must not own what other callers need.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use heartline::{App, JobHandle, TaskRef};
use redis::AsyncCommands;

use crate::faults::ground::{alone, proxied};
use crate::support::PATIENCE;
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;

pub type Dispatching = futures_util::future::BoxFuture<'static, Result<JobHandle<u64>, heartline::Error>>;

/// A dispatch that was polled once and is under way, or waits for one that is.
pub fn polled_once(jobs: &TaskRef<String, u64>, id: &str) -> Dispatching {
    let mut dispatching: Dispatching = Box::pin(jobs.dispatch("input".to_owned()).id(id));
    assert!(dispatching.as_mut().now_or_never().is_none(), "it needs a reply of the server");
    dispatching
}

/// The same on another thread than the App's, where the reply may come before the first poll ends.
pub fn polled_elsewhere(jobs: &TaskRef<String, u64>, id: &str) -> Dispatching {
    let mut dispatching: Dispatching = Box::pin(jobs.dispatch("input".to_owned()).id(id));
    drop(dispatching.as_mut().now_or_never());
    dispatching
}

/// Awaits the future and returns its output; panics when it hangs.
pub async fn ends<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// The waiting ids, each of which must appear once.
pub async fn waiting(test: &TestTask) -> BTreeSet<String> {
    let ids: Vec<String> = test.conn().await.lrange(test.key("wait"), 0, -1).await.unwrap();
    let distinct: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    distinct
}

fn names(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn an_unpolled_dispatch_delays_no_other() {
    let (_redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    jobs.dispatch("input".to_owned()).id("before").await.unwrap();
    let kept = polled_once(&jobs, "kept");

    // In the task that keeps the future, one after the other and then concurrently.
    for id in ["first", "second"] {
        ends("a dispatch next to it", jobs.dispatch("input".to_owned()).id(id).into_future()).await.unwrap();
    }
    let together = ["third", "fourth"].map(|id| jobs.dispatch("input".to_owned()).id(id).into_future());
    for ended in ends("two dispatches next to it", futures_util::future::join_all(together)).await {
        ended.unwrap();
    }
    // And in an unrelated task.
    let elsewhere = tokio::spawn(jobs.dispatch("input".to_owned()).id("elsewhere").into_future());
    ends("a dispatch of another task", elsewhere).await.unwrap().unwrap();

    // It completes when it is polled again.
    assert_eq!(ends("the kept one", kept).await.unwrap().id().as_str(), "kept");
    assert_eq!(waiting(&test).await, names(&["before", "elsewhere", "first", "fourth", "kept", "second", "third"]));
}

#[tokio::test]
async fn dispatches_in_a_buffered_stream_and_its_consumer_all_end() {
    const ITEMS: usize = 200;
    let (_redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    // While the body of the loop runs, the items are not polled.
    let mut items = stream::iter(0..ITEMS)
        .map(|item| {
            let jobs = jobs.clone();
            async move {
                // The time before and after the dispatch differs from item to item.
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
async fn an_unpolled_first_use_of_a_lazy_app_delays_no_other() {
    let (redis, test) = alone();
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
async fn a_dispatch_dropped_while_it_waits_is_not_sent() {
    let (_redis, test, proxy) = proxied().await;
    let jobs: TaskRef<String, u64> = test.app_at(&proxy.url()).await.task_ref(&test.name).unwrap();
    jobs.dispatch("input".to_owned()).id("before").await.unwrap();
    // All replies after the held one wait, as if the server were frozen.
    let mut hold = proxy.hold_next_reply_to(test.sha("dispatch").await);
    let under_way = tokio::spawn(jobs.dispatch("input".to_owned()).id("under-way").into_future());
    hold.happened().await;
    let waiting_behind = polled_once(&jobs, "waiting-behind");
    let dropped: Vec<_> = (0..5).map(|at| polled_once(&jobs, &format!("dropped-{at}"))).collect();
    drop(dropped);
    drop(hold);
    ends("the first one", under_way).await.unwrap().unwrap();
    ends("the one after it", waiting_behind).await.unwrap();
    // A dispatch left in the queue would have been sent before this one.
    ends("one that came later", jobs.dispatch("input".to_owned()).id("after").into_future()).await.unwrap();
    assert_eq!(waiting(&test).await, names(&["after", "before", "under-way", "waiting-behind"]));
}

#[tokio::test]
async fn a_dispatch_dropped_under_way_delays_no_other() {
    let (_redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    drop(polled_once(&jobs, "dropped"));
    let kept: Vec<_> = (0..3).map(|at| polled_once(&jobs, &format!("kept-{at}"))).collect();
    let behind = jobs.dispatch("input".to_owned()).id("behind");
    ends("the one after them", behind.into_future()).await.unwrap();
    for (at, kept) in kept.into_iter().enumerate() {
        let kept = tokio::time::timeout(Duration::from_secs(15), kept).await.expect("a kept one does not end");
        assert_eq!(kept.unwrap().id().as_str(), format!("kept-{at}"));
    }
}

#[tokio::test]
async fn a_subscriber_that_blocks_its_only_thread_gets_events_once() {
    let (_redis, test) = alone();
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
