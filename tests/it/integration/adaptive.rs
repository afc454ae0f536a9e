//! The adaptive prefetch, which is the default: short jobs are claimed ahead, and handed back when a run is long.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use heartline::{App, Context, Event, JobError, OnCrash, RetryPolicy, StallOptions, Subscription, TaskRef};

use crate::integration::prefetch::{app_with_room, ids, most_running, quick};
use crate::support::events::next;
use crate::support::task::{TASK, TestTask, adaptive, fast};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, Tap, early_begins, early_begins_of, eventually};

/// A task whose handler blocks the runtime of another one.
const BLOCKER: &str = "blocker";

#[tokio::test]
async fn instant_jobs_are_claimed_ahead_and_run_once() {
    for concurrency in [1, 10] {
        let (events, early) = quick(adaptive().concurrency(concurrency), 2_000).await;
        assert!(!early.is_empty(), "{concurrency}");
        let most = most_running(&events);
        assert!((concurrency + 1..=concurrency + 50).contains(&most), "{concurrency}: {most}");
        assert!(!events.iter().any(|event| matches!(event, Event::Claimed { .. })), "such a job would wait for a call");
    }
}

#[tokio::test]
async fn without_prefetch_a_worker_holds_no_more_than_its_slots() {
    let options = fast();
    let one_run = adaptive().stall(StallOptions::new().max_count(0).interval(Duration::from_secs(5)));
    let failing = adaptive().stall(StallOptions::new().on_crash(OnCrash::Fail).interval(Duration::from_secs(5)));
    for options in [options, one_run, failing] {
        let (events, early) = quick(options.concurrency(2), 500).await;
        assert!(most_running(&events) <= 2);
        assert_eq!(early, [0; 0]);
    }
}

/// These jobs take far longer than a round trip, even on a machine where many tests run.
#[tokio::test]
async fn jobs_that_take_time_are_claimed_only_when_they_run() {
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let settles = test.settles(&proxy).await;
    let app = test.app_at(&proxy.url()).await;
    let task = app
        .task(TASK, adaptive().concurrency(2), |_: Context, _: String| async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<u64, JobError>(1)
        })
        .unwrap();
    task.dispatch_many_with_ids(ids(6).into_iter().map(|id| (id, "x".to_owned()))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == 6).await;
    worker.stop().await;
    assert_eq!(early_begins(&settles), [0; 0]);
}

#[tokio::test]
async fn almost_all_calls_of_a_usual_task_are_plain() {
    // Each retry needs three calls of the other script: in larger batches that is a larger share of fewer calls.
    for (failing, options) in [(0, adaptive()), (1, fast())] {
        let test = TestTask::plain();
        let proxy = Proxy::start(test.redis().address()).await;
        let [plain, full] = [test.sha("settle_plain").await, test.sha("settle").await].map(|sha| Tap::on(&proxy, sha));
        let app = test.app_at(&proxy.url()).await;
        let retry = RetryPolicy::new().attempts(2).fixed(Duration::from_millis(50));
        // One in a hundred fails once.
        let handler = move |ctx: Context, input: u64| async move {
            let fails = input % 100 < failing && ctx.attempt() == 1;
            if fails { Err("once".into()) } else { Ok::<u64, JobError>(input) }
        };
        let task = app.task(TASK, options.concurrency(1).retry(retry), handler).unwrap();
        task.dispatch_many(0..4_000).await.unwrap();
        let worker = TestWorker::start(app.worker());
        let ended = async || task.counts().await.unwrap().completed == 4_000;
        eventually("all have ended", PATIENCE * 3, ended).await;
        worker.stop().await;
        let (plain, full) = (plain.requests().len(), full.requests().len());
        assert!(full * 20 < plain + full, "{full} of {} calls needed settle", plain + full);
    }
}

/// A task whose jobs end at once, except for those whose input is not `x`: they wait for the gate of that name.
async fn mixed(test: &TestTask, app: &App) -> (TaskRef<String, u64>, Arc<AtomicUsize>) {
    let (journal, ran) = (Arc::clone(&test.journal), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Context, input: String| {
        let (journal, ran) = (Arc::clone(&journal), Arc::clone(&counted));
        async move {
            ran.fetch_add(1, Ordering::SeqCst);
            if input == "x" { Ok::<u64, JobError>(1) } else { journal.work(ctx, input).await }
        }
    };
    (app.task(TASK, adaptive().concurrency(1), handler).unwrap(), ran)
}

/// How many jobs were requeued before this one was dispatched, and had not begun again.
async fn requeued_before(events: &mut Subscription<Event>, last: &str) -> usize {
    let mut requeued = BTreeSet::new();
    loop {
        match next(events).await {
            Event::Requeued { id, .. } => drop(requeued.insert(id)),
            // On a busy machine a worker hands back jobs and claims them again.
            Event::Started { id, .. } => drop(requeued.remove(&id)),
            Event::Dispatched { id, .. } if id.as_str() == last => return requeued.len(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_long_run_hands_the_others_back_to_another_worker() {
    let test = TestTask::new();
    let app = app_with_room(&test).await;
    let mut events = app.events();
    let (task, ran) = mixed(&test, &app).await;
    // A long job may be the last that began, so there are several.
    let long = ["job-300", "job-400", "job-500", "job-600", "job-700", "job-800"];
    let input = |id: &str| if long.contains(&id) { id } else { "x" }.to_owned();
    task.dispatch_many_with_ids(ids(1_000).into_iter().map(|id| (id.clone(), input(&id)))).await.unwrap();
    let worker = TestWorker::start(app.worker());
    let (mut ends, mut back) = (1_000, 0);
    for gate in long {
        test.started(&[task.handle(gate).unwrap()]).await;
        eventually("only the long job is held", PATIENCE, async || {
            let counts = task.counts().await.unwrap();
            (counts.running, counts.claimed) == (1, 0)
        })
        .await;
        let last = task.dispatch("x".to_owned()).await.unwrap();
        ends += 1;
        back = requeued_before(&mut events, last.id().as_str()).await;
        if back > 0 {
            // The long job still runs, and another worker runs all others up to the next long one.
            let (other_app, before) = (app_with_room(&test).await, task.counts().await.unwrap().completed);
            let (_, ran_there) = mixed(&test, &other_app).await;
            let other = TestWorker::start(other_app.worker());
            eventually("another worker runs them", PATIENCE, async || {
                task.counts().await.unwrap().completed >= before + back as u64
            })
            .await;
            long.iter().for_each(|gate| test.journal.open(gate));
            eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == ends).await;
            other.stop().await;
            assert_eq!((ran.load(Ordering::SeqCst) + ran_there.load(Ordering::SeqCst)) as u64, ends);
            break;
        }
        test.journal.open(gate);
    }
    assert!(back > 0, "no job had begun after a long one");
    worker.stop().await;
    assert_eq!(test.dump("stalls").await, None);
    // On a busy machine the keeper may hand back a job with a slot, which counts until the next one completes.
    let broken_off = test.run::<Option<u64>>("HGET", "meta", &["brokenOffSinceCompleted"]).await;
    assert_eq!(broken_off.unwrap_or(0), 0, "no run broke off");
    test.nothing_is_left_but(ends as usize).await;
}

/// Handlers that block their thread until they may go on.
#[derive(Default)]
struct Blocks {
    /// The jobs that block or have blocked, and those that may go on.
    jobs: Mutex<[BTreeSet<String>; 2]>,
    changed: Condvar,
}

impl Blocks {
    fn block(&self, id: &str) {
        let mut jobs = self.jobs.lock().unwrap();
        jobs[0].insert(id.to_owned());
        drop(self.changed.wait_while(jobs, |[_, free]| !free.contains(id)).unwrap());
    }

    fn arrive(&self, id: &str) {
        self.jobs.lock().unwrap()[0].insert(id.to_owned());
    }

    fn has_begun(&self, id: &str) -> bool {
        self.jobs.lock().unwrap()[0].contains(id)
    }

    fn free(&self, id: &str) {
        self.jobs.lock().unwrap()[1].insert(id.to_owned());
        self.changed.notify_all();
    }
}

/// The thread of the runtime is blocked, so the driver cannot hand the jobs back. The keeper does.
#[tokio::test]
async fn a_handler_that_blocks_its_runtime_does_not_keep_the_others() {
    let test = TestTask::new();
    let app = app_with_room(&test).await;
    let mut events = app.events();
    let (blocks, ran) = (Arc::new(Blocks::default()), Arc::new(AtomicUsize::new(0)));
    let long: Vec<String> = (3..9).map(|at| format!("job-{at}00")).collect();
    let task: TaskRef<String, u64> = app.task_ref(TASK).unwrap();
    let input = |id: &str| if long.iter().any(|other| other == id) { "block" } else { "x" }.to_owned();
    task.dispatch_many_with_ids(ids(1_000).into_iter().map(|id| (id.clone(), input(&id)))).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (own, its_blocks, its_ran) = (test.clone(), Arc::clone(&blocks), Arc::clone(&ran));
    let user = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let app = app_with_room(&own).await;
            let handler = move |ctx: Context, input: String| {
                its_ran.fetch_add(1, Ordering::SeqCst);
                if input == "block" {
                    its_blocks.block(ctx.id().as_str());
                }
                async { Ok::<u64, JobError>(1) }
            };
            app.task(TASK, adaptive().concurrency(1), handler).unwrap();
            app.worker().run_until(async { drop(stopped.await) }).await.unwrap()
        })
    });
    let (mut ends, mut back) = (1_000, 0);
    for id in &long {
        eventually("a handler blocks", PATIENCE, async || blocks.has_begun(id)).await;
        // Outcomes of jobs before it may wait in the blocked runtime: these stay held.
        let held = async || task.counts().await.unwrap().held_total();
        let mut before = held().await;
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = held().await;
            if now == before {
                break;
            }
            before = now;
        }
        let last = task.dispatch("x".to_owned()).await.unwrap();
        ends += 1;
        back = requeued_before(&mut events, last.id().as_str()).await;
        if back > 0 {
            break;
        }
        blocks.free(id);
    }
    assert!(back > 0, "no job was claimed ahead of a handler that blocks");
    let other_app = app_with_room(&test).await;
    let there = Arc::clone(&ran);
    let handler = move |_: Context, _: String| {
        there.fetch_add(1, Ordering::SeqCst);
        async { Ok::<u64, JobError>(1) }
    };
    other_app.task(TASK, adaptive().concurrency(1), handler).unwrap();
    let other = TestWorker::start(other_app.worker());
    eventually("another worker runs all others", PATIENCE, async || task.counts().await.unwrap().waiting == 0).await;
    long.iter().for_each(|id| blocks.free(id));
    eventually("all have ended", PATIENCE, async || task.counts().await.unwrap().completed == ends).await;
    stop.send(()).unwrap();
    eventually("the worker stops", PATIENCE, async || user.is_finished()).await;
    assert_eq!(user.join().unwrap(), heartline::StopReason::Shutdown);
    other.stop().await;
    assert_eq!(ran.load(Ordering::SeqCst) as u64, ends, "each job ran once");
    assert_eq!(test.dump("stalls").await, None);
    test.nothing_is_left_but(ends as usize).await;
}

/// A claim sent while a slot is free: its answer comes when another task has blocked the runtime.
#[tokio::test]
async fn a_blocked_runtime_gives_back_a_claim_without_its_reply() {
    const SLOTS: usize = 2;
    let test = TestTask::plain();
    let proxy = Proxy::start(test.redis().address()).await;
    let (blocks, ran) = (Arc::new(Blocks::default()), Arc::new(AtomicUsize::new(0)));
    let (go, goes) = tokio::sync::oneshot::channel::<()>();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (own, url, its_blocks, its_ran) = (test.clone(), proxy.url(), Arc::clone(&blocks), Arc::clone(&ran));
    let goes = Arc::new(tokio::sync::Mutex::new(Some(goes)));
    let user = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let app = own.app_at(&url).await;
            let handler = move |_: Context, _: String| {
                its_ran.fetch_add(1, Ordering::SeqCst);
                async { Ok::<u64, JobError>(1) }
            };
            app.task(&own.name, adaptive().concurrency(SLOTS), handler).unwrap();
            let blocker = move |_: Context, (): ()| {
                let (blocks, goes) = (Arc::clone(&its_blocks), Arc::clone(&goes));
                async move {
                    blocks.arrive("waits");
                    let goes = goes.lock().await.take().unwrap();
                    goes.await.unwrap();
                    blocks.block("blocks");
                    Ok::<(), JobError>(())
                }
            };
            app.task(BLOCKER, adaptive(), blocker).unwrap();
            app.worker().run_until(async { drop(stopped.await) }).await.unwrap()
        })
    });
    let (app, jobs) = test.producer().await;
    let blocker: TaskRef<(), ()> = app.task_ref(BLOCKER).unwrap();
    blocker.dispatch(()).await.unwrap();
    eventually("the handler waits", PATIENCE, async || blocks.has_begun("waits")).await;

    let (replies, shas) = (test.key("replies"), [test.sha("settle").await, test.sha("settle_plain").await]);
    let has = |request: &[u8], word: &str| request.windows(word.len()).any(|part| part == word.as_bytes());
    let mut hold = proxy.hold_next_reply_matching(move |request| {
        has(request, &replies) && shas.iter().any(|sha| has(request, sha)) && early_begins_of(request) > SLOTS
    });
    jobs.dispatch_many((0..500).map(|_| "x".to_owned())).await.unwrap();
    hold.happened().await;
    go.send(()).unwrap();
    eventually("the runtime is blocked", PATIENCE, async || blocks.has_begun("blocks")).await;
    let held = async || jobs.counts().await.unwrap().held_total();
    // An earlier claim may have filled the slots when the runtime was blocked: those jobs stay.
    eventually("its jobs are given back", PATIENCE, async || held().await <= SLOTS as u64).await;
    blocks.free("blocks");
    drop(hold);
    eventually("all have ended", PATIENCE, async || jobs.counts().await.unwrap().completed == 500).await;
    stop.send(()).unwrap();
    eventually("the worker stops", PATIENCE, async || user.is_finished()).await;
    assert_eq!(user.join().unwrap(), heartline::StopReason::Shutdown);
    assert_eq!(ran.load(Ordering::SeqCst), 500, "each job ran once");
    assert_eq!(test.dump("stalls").await, None);
}
