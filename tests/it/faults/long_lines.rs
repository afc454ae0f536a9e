//! Impatient callers, and long lines: a dead connection is replaced, and many calls are under way at a time.

use std::time::Duration;

use futures_util::future::join_all;
use heartline::{App, Event, JobState, RecvError, StallOptions, TaskOptions, TaskRef};
use redis::AsyncCommands;
use tokio::time::timeout;

use crate::faults::ground::{alone, far_away, proxied};
use crate::faults::watch::{KIB, Watch, text};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{Line, PATIENCE, Proxy, Tap, TestRedis, eventually};

/// An App at the end of a line.
struct Far {
    redis: TestRedis,
    test: TestTask,
    line: Line,
    app: App,
}

impl Far {
    async fn start() -> Far {
        let (redis, test, line) = far_away().await;
        let app = test.app_at(&line.url()).await;
        Far { redis, test, line, app }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_replaced_for_impatient_callers() {
    let Far { redis: _redis, test, line, app } = Far::start().await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    job.state().await.unwrap();
    // In the last round the calls are further apart.
    for (patience, pause) in [(1_500, 0), (600, 0), (600, 1_200)] {
        let (patience, pause) = (Duration::from_millis(patience), Duration::from_millis(pause));
        line.hush();
        let (mut dispatches, mut questions) = (0, 0);
        while timeout(patience, jobs.dispatch("input".to_owned()).into_future()).await.is_err() {
            dispatches += 1;
            assert!(dispatches < 4, "no dispatch comes through");
            tokio::time::sleep(pause).await;
        }
        while timeout(patience, job.state()).await.is_err() {
            questions += 1;
            assert!(questions < 4, "no read comes through");
            tokio::time::sleep(pause).await;
        }
    }
}

#[tokio::test]
async fn a_read_on_a_closed_connection_is_repeated() {
    let (_redis, test) = alone();
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(job.state().await.unwrap(), JobState::Waiting);
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
        let killed: usize = kill.query_async(&mut test.conn().await).await.unwrap();
        assert!(killed > 0);
        assert_eq!(jobs.counts().await.unwrap().waiting, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_reads_on_a_long_line_share_one_connection() {
    let Far { redis: _redis, test, line, app } = Far::start().await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    job.state().await.unwrap();
    let before = line.connections();
    line.delay(Duration::from_millis(100));
    for state in timeout(PATIENCE, join_all((0..300).map(|_| job.state()))).await.expect("they do not end") {
        assert_eq!(state.unwrap(), JobState::Waiting);
    }
    assert_eq!(line.connections(), before);
}

#[tokio::test]
async fn gathered_dispatches_do_not_wait_for_the_call_before() {
    let (_redis, test, proxy) = proxied().await;
    let jobs: TaskRef<String, u64> = test.app_at(&proxy.url()).await.task_ref(&test.name).unwrap();
    jobs.dispatch("input".to_owned()).await.unwrap();
    let (_app, direct) = test.producer().await;
    let arrive = async |count| {
        eventually(&format!("{count} arrive"), PATIENCE, async || direct.counts().await.unwrap().waiting == count)
            .await;
    };
    // All replies after the held one wait too: those to the first caller and to two calls of gathered jobs.
    let hold = proxy.hold_next_reply_to(test.sha("dispatch").await);
    let mut callers = Vec::new();
    for count in 2..=4 {
        callers.push(tokio::spawn(jobs.dispatch("input".to_owned()).into_future()));
        arrive(count).await;
    }
    callers.extend((5..=8).map(|_| tokio::spawn(jobs.dispatch("input".to_owned()).into_future())));
    drop(hold);
    for caller in join_all(callers).await {
        caller.unwrap().unwrap();
    }
    arrive(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_a_long_line_receives_a_cancel_at_once() {
    // Heartbeats of this interval come much later.
    let interval = Duration::from_secs(120);
    let Far { redis: _redis, test, line, app } = Far::start().await;
    let worker = test.declare_at(&app, options(interval));
    for at in 0..30 {
        let handler = async |_: heartline::Context, (): ()| Ok::<_, heartline::JobError>(());
        app.task(&format!("{}-{at}", test.name), options(interval), handler).unwrap();
    }
    let running = TestWorker::start(app.worker());
    let job = worker.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    // The connection of the hints breaks too, and is opened again over the long line.
    line.delay(Duration::from_millis(100));
    let mut kill = redis::cmd("CLIENT");
    let _: usize = kill.arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut test.conn().await).await.unwrap();
    let channel = format!("heartline:{{{}}}:cancel", test.name);
    let listeners = async || -> u64 {
        let mut cmd = redis::cmd("PUBSUB");
        let (_, count): (String, u64) =
            cmd.arg("NUMSUB").arg(&channel).query_async(&mut test.conn().await).await.unwrap();
        count
    };
    eventually("the worker subscribes again", PATIENCE * 2, async || listeners().await >= 1).await;
    let (_app, jobs) = test.producer().await;
    jobs.handle(job.id()).unwrap().cancel("").await.unwrap();
    let cancelled = async || !test.journal.interruptions().is_empty();
    eventually("the handler is cancelled", Duration::from_secs(10), cancelled).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_events_arrives_in_several_replies() {
    let Far { redis: _redis, test, line, app } = Far::start().await;
    let _task: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let mut events = app.events();
    let (_app, jobs) = test.producer().await;
    jobs.dispatch("input".to_owned()).await.unwrap();
    timeout(PATIENCE, events.recv()).await.expect("no event comes").unwrap();
    // Entries of 24 KiB; a hundred of them take twelve seconds.
    line.rate(Some(200 * KIB as u64));
    let ids = (0..20_000).map(|at| (format!("{at:0>120}"), String::new()));
    jobs.dispatch_many_with_ids(ids).await.unwrap();
    let mut heard = 0;
    let hears = async {
        while heard < 5_000 {
            match events.recv().await {
                Ok(_) => heard += 1,
                Err(RecvError::Lagged(missed)) => heard += missed,
                Err(e) => panic!("{e}"),
            }
        }
    };
    assert!(timeout(Duration::from_secs(60), hears).await.is_ok(), "silence");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_task_names_do_not_starve_the_event_reader() {
    let Far { redis: _redis, test, line, app } = Far::start().await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    line.delay(Duration::from_millis(100));
    let mut events = app.events();
    let (names_app, prefix) = (app.clone(), test.name.clone());
    let names = tokio::spawn(async move {
        let mut kept = std::collections::VecDeque::new();
        for at in 0.. {
            kept.push_back(names_app.task_ref::<String, u64>(&format!("{prefix}-{at}")).unwrap());
            if kept.len() > 3 {
                kept.pop_front();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    let event = timeout(Duration::from_secs(15), events.recv()).await.expect("no event comes").unwrap();
    assert_eq!(event.id(), job.id());
    names.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_prolong_each_wait_for_a_result() {
    let Far { redis, test, line, app } = Far::start().await;
    let jobs: TaskRef<String, ()> = app.task_ref(&test.name).unwrap();
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    let waits = tokio::spawn({
        let job = job.clone();
        async move { job.result().await }
    });
    // Each time a read is late, and the next one gets a new connection; the event reader opens its own later.
    for _ in 0..4 {
        let before = line.connections();
        line.hush();
        eventually("another look", PATIENCE * 4, async || line.connections() > before).await;
    }
    line.hush();
    let near = test.app_at(&redis.url()).await;
    let handler = async |_: heartline::Context, _: String| Ok::<_, heartline::JobError>(());
    near.task(&test.name, TaskOptions::new(), handler).unwrap();
    let running = TestWorker::start(near.worker());
    timeout(Duration::from_secs(15), waits).await.expect("the result does not come").unwrap().unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_value_with_many_waiters_is_read_once() {
    const WAIT: usize = 50;
    let (redis, test) = alone();
    let near = test.app_at(&redis.url()).await;
    let handler = async |_: heartline::Context, _: String| Ok::<_, heartline::JobError>(text(100 * KIB));
    let task = near.task(&test.name, options(INTERVAL), handler).unwrap();
    let running = TestWorker::start(near.worker());
    let job = task.dispatch(String::new()).await.unwrap();
    job.result().await.unwrap();
    running.stop().await;
    let proxy = Proxy::start(redis.address()).await;
    let tap = Tap::on(&proxy, "HMGET");
    let app = test.app_at(&proxy.url()).await;
    let seen = app.task_ref::<String, String>(&test.name).unwrap().handle(job.id()).unwrap();
    for value in join_all((0..WAIT).map(|_| seen.result())).await {
        assert_eq!(value.unwrap().len(), 100 * KIB - 2);
    }
    let asked = |request: &Vec<u8>| request.windows(22).filter(|part| *part == job.id().as_str().as_bytes()).count();
    let asked: usize = tap.requests().iter().map(asked).sum();
    assert!(asked <= 5, "it was read {asked} times for {WAIT}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_results_keep_no_more_jobs_than_there_are_slots() {
    const SLOTS: usize = 4;
    let (redis, test) = alone();
    let watch = Watch::new(&test, &redis).await;
    let line = Line::start(redis.address()).await;
    let app = test.app_at(&line.url()).await;
    let stall = StallOptions::new().interval(Duration::from_secs(30));
    let handler = async |_: heartline::Context, _: String| Ok::<_, heartline::JobError>(text(300 * KIB));
    let task = app.task(&test.name, TaskOptions::new().stall(stall).concurrency(SLOTS), handler).unwrap();
    task.dispatch_many((0..60).map(|at| at.to_string())).await.unwrap();
    line.rate(Some(KIB as u64 * KIB as u64));
    let running = TestWorker::start(app.worker());
    let mut most = 0;
    let completed = async || {
        let held: usize = watch.conn.clone().hlen(test.key("locks")).await.unwrap();
        most = most.max(held);
        watch.conn.clone().zcard::<_, usize>(test.key("completed")).await.unwrap()
    };
    let mut completed = completed;
    eventually("a third completes", PATIENCE * 2, async || completed().await >= 20).await;
    // The jobs of two calls under way, in addition to the running ones.
    assert!(most <= 3 * SLOTS, "{most} jobs were held");
    line.rate(None);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_while_it_reads_payloads_requeues_in_time() {
    const JOBS: usize = 60;
    let (redis, test) = alone();
    let watch = Watch::new(&test, &redis).await;
    let line = Line::start(redis.address()).await;
    let near = test.app_at(&redis.url()).await;
    let send: TaskRef<String, String> = near.task_ref(&test.name).unwrap();
    send.dispatch_many((0..JOBS).map(|_| text(600 * KIB))).await.unwrap();
    let app = test.app_at(&line.url()).await;
    let interval = Duration::from_secs(6);
    let options = options(interval).concurrency(2 * JOBS).shutdown_grace(Duration::ZERO).cancel_grace(Duration::ZERO);
    let handler = async |_: heartline::Context, _: String| Ok::<_, heartline::JobError>(String::new());
    app.task(&test.name, options, handler).unwrap();
    line.delay(Duration::from_millis(100));
    line.rate(Some(64 * KIB as u64));
    let running = TestWorker::start(app.worker());
    let held = async || watch.conn.clone().hlen::<_, usize>(test.key("locks")).await.unwrap();
    eventually("all are held", PATIENCE, async || held().await == JOBS).await;
    running.stop().await;
    assert_eq!((held().await, send.counts().await.unwrap().waiting), (0, JOBS as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reads_of_results_do_not_delay_a_large_dispatch() {
    let (redis, test, line) = far_away().await;
    let near = test.app_at(&redis.url()).await;
    let handler = async |_: heartline::Context, _: String| Ok::<_, heartline::JobError>(text(8 * KIB * KIB));
    let task = near.task(&test.name, options(INTERVAL), handler).unwrap();
    let running = TestWorker::start(near.worker());
    let job = task.dispatch(String::new()).await.unwrap();
    job.result().await.unwrap();
    running.stop().await;
    let app: App = test.app_at(&line.url()).await;
    let far: TaskRef<String, String> = app.task_ref(&test.name).unwrap();
    // Each takes half a minute.
    line.rate(Some(256 * KIB as u64));
    let before = line.connections();
    let reads: Vec<_> = (0..8)
        .map(|_| {
            let job = far.handle(job.id()).unwrap();
            tokio::spawn(async move { job.result().await })
        })
        .collect();
    eventually("all read", PATIENCE, async || line.connections() >= before + 8).await;
    timeout(Duration::from_secs(10), far.dispatch(text(600 * KIB)).into_future())
        .await
        .expect("a large dispatch waits for the reads")
        .unwrap();
    assert!(reads.iter().all(|read| !read.is_finished()));
    reads.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_miss_nothing_when_the_runtime_of_the_app_ends() {
    for outage in [false, true] {
        let (_redis, test, proxy) = proxied().await;
        let (_near, jobs) = test.producer().await;
        let ((told, is_told), (end, ends)) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
        let (built, is_built) = tokio::sync::oneshot::channel();
        let first = std::thread::spawn({
            let (test, url) = (test.clone(), proxy.url());
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let app = test.app_at(&url).await;
                    let task: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
                    let mut events = app.events();
                    built.send((app, task)).ok().unwrap();
                    events.recv().await.unwrap();
                    told.send(()).unwrap();
                    tokio::task::spawn_blocking(move || ends.recv()).await.unwrap().unwrap();
                });
            }
        });
        // The App was built on the first runtime, which has the reader.
        let (app, _task) = is_built.await.unwrap();
        let mut greeted = false;
        while !greeted {
            jobs.dispatch("input".to_owned()).await.unwrap();
            greeted = is_told.recv_timeout(Duration::from_millis(100)).is_ok();
        }
        let mut events = app.events();
        let second = tokio::spawn(async move {
            let mut heard = Vec::new();
            while heard.last().map(String::as_str) != Some("after") {
                match events.recv().await {
                    Ok(event @ Event::Dispatched { .. }) => heard.push(event.id().to_string()),
                    other => panic!("{other:?}"),
                }
            }
            heard
        });
        if outage {
            proxy.refuse().await;
            for id in ["one", "two", "three"] {
                jobs.dispatch("input".to_owned()).id(id).await.unwrap();
            }
        }
        end.send(()).unwrap();
        first.join().unwrap();
        if outage {
            proxy.accept().await;
        }
        jobs.dispatch("input".to_owned()).id("after").await.unwrap();
        let heard = timeout(PATIENCE, second).await.expect("the second gets no more").unwrap();
        let expected: &[&str] = if outage { &["one", "two", "three", "after"] } else { &["after"] };
        assert!(heard.ends_with(&expected.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()), "{heard:?}");
    }
}

#[tokio::test]
async fn a_subscriber_whose_first_events_were_trimmed_gets_a_gap() {
    let (_redis, test, proxy) = proxied().await;
    let app = test.app_at(&proxy.url()).await;
    let _task: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let (_near, jobs) = test.producer().await;
    proxy.refuse().await;
    let mut events = app.events();
    for id in ["one", "two", "three"] {
        jobs.dispatch("input".to_owned()).id(id).await.unwrap();
    }
    let trimmed: u64 =
        test.conn().await.xtrim(test.key("events"), redis::streams::StreamMaxlen::Equals(1)).await.unwrap();
    assert_eq!(trimmed, 2);
    proxy.accept().await;
    let first = timeout(PATIENCE, events.recv()).await.expect("no event comes");
    assert!(matches!(first, Err(RecvError::Lagged(_))), "{first:?}");
    assert_eq!(timeout(PATIENCE, events.recv()).await.unwrap().unwrap().id().as_str(), "three");
}
