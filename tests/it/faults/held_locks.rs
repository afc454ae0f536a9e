//! What must not cost a worker the locks that it holds, and what must not keep it from recovering those of a dead one.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use heartline::{Context, JobError, TaskRef};
use redis::AsyncCommands;

use crate::faults::ground::{alone, far_away, proxied};
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Proxy, TestRedis, Warnings, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_may_not_list_workers_recovers_jobs_anyway() {
    // Longer than the time between two such reads: an interruption of each watch would let none complete.
    const INTERVAL: Duration = Duration::from_secs(6);
    let (redis, test) = alone();
    // The command is allowed on tables of tasks, and denied on the list of workers. Redis 6.2 has no selectors: there
    // the worker may read it.
    let mut conn = test.conn().await;
    for rules in [&["+@all"][..], &["-zrangebyscore", "(+zrangebyscore ~heartline:{*)"]] {
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg("bounded").arg("on").arg(">secret").arg("~*").arg("&*").arg(rules);
        let set: redis::RedisResult<()> = acl.query_async(&mut conn).await;
        assert!(set.is_ok() || rules.len() == 2, "{set:?}");
    }
    let dead = test.start_mortal_worker(&redis, options(INTERVAL)).await;
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let url = redis.url().replace("redis://", "redis://bounded:secret@");
    let bounded = test.start_worker_at(&url, options(INTERVAL)).await;
    bounded.working().await;
    dead.dies().await;
    eventually("the job runs again", PATIENCE * 2, async || test.journal.runs_of(job.id()).len() == 2).await;
    assert_eq!(test.journal.runs_of(job.id())[1].worker, bounded.id);
    test.journal.open("gate");
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    bounded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_fails_at_once_is_repeated_soon() {
    const INTERVAL: Duration = Duration::from_secs(12);
    // Heartbeats of this interval are four seconds apart: one of them falls into the outage, shortly before its end.
    const OUTAGE: Duration = Duration::from_millis(4_500);
    const SOON: Duration = Duration::from_secs(2);
    let (_redis, test, proxy) = proxied().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let mut conn = test.conn().await;
    // A heartbeat moves it back.
    let mut beaten = async |deadline| {
        let (active, candidates, id) = (test.key("active"), test.key("candidates"), job.id().as_str());
        let () = conn.smove(&active, &candidates, id).await.unwrap();
        eventually("a beat", deadline, async || conn.sismember::<_, _, bool>(&active, id).await.unwrap()).await;
    };
    beaten(PATIENCE).await;
    proxy.refuse().await;
    tokio::time::sleep(OUTAGE).await;
    proxy.accept().await;
    beaten(SOON).await;
    test.journal.open("gate");
    test.each_ran_once(&[job]).await;
    worker.stop().await;
}

/// A waker that returns only when the test lets it go.
struct Blocking {
    woken: Mutex<bool>,
    let_go: Mutex<Receiver<()>>,
}

impl Wake for Blocking {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        let _ = self.let_go.lock().unwrap().recv_timeout(PATIENCE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waker_that_blocks_does_not_cost_another_job_its_lock() {
    let (redis, test) = alone();
    let (let_go, waits) = channel();
    let blocking = Arc::new(Blocking { woken: Mutex::new(false), let_go: Mutex::new(waits) });
    let its_waker = Waker::from(Arc::clone(&blocking));
    let worker = test
        .start_worker_with(&redis.url(), options(INTERVAL), move |journal, ctx, gate| {
            let waker = its_waker.clone();
            async move {
                if gate != "blocks" {
                    return journal.work(ctx, gate).await;
                }
                let other = ctx.clone();
                let mut told = Box::pin(async move { other.cancelled().await });
                let polled = told.as_mut().poll(&mut std::task::Context::from_waker(&waker));
                assert_eq!(polled, Poll::Pending);
                journal.begin(&ctx);
                journal.opened(&gate).await;
                drop(told);
                Ok(ctx.fence())
            }
        })
        .await;
    let (_app, task) = test.producer().await;
    let jobs = task.dispatch_many(["blocks".to_owned(), "gate".to_owned()]).await.unwrap();
    test.started(&jobs).await;
    // It would find jobs without heartbeats.
    let healthy = test.start_worker(options(INTERVAL)).await;
    jobs[0].cancel("not wanted").await.unwrap();
    eventually("the waker is woken", PATIENCE, async || *blocking.woken.lock().unwrap()).await;
    test.epochs_pass(3).await;
    assert_eq!(test.journal.runs_of(jobs[1].id()).len(), 1, "the lock was lost");
    assert_eq!(test.dump("stalls").await, None);
    drop(let_go);
    test.journal.open("blocks");
    test.journal.open("gate");
    test.each_ran_once(&jobs[1..]).await;
    worker.stop().await;
    healthy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_outlives_a_broken_driver_sees_its_job_lost() {
    let warnings = Warnings::capture();
    let redis = TestRedis::start();
    let (test, other) = (TestTask::on(&redis), TestTask::on(&redis));
    let proxy = Proxy::start(redis.address()).await;
    let app = test.app_at(&proxy.url()).await;
    let journal = Arc::clone(&test.journal);
    let thread = move |ctx: Context, _: String| {
        let journal = Arc::clone(&journal);
        async move {
            journal.begin(&ctx);
            let working = tokio::task::spawn_blocking(move || {
                while ctx.heartbeat().is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                journal.note(format!("{:?}", ctx.heartbeat()));
            });
            working.await?;
            Err::<u64, JobError>("told".into())
        }
    };
    let jobs: TaskRef<String, u64> = app.task(&test.name, options(INTERVAL), thread).unwrap();
    // Its job keeps the worker from ending for a while.
    let journal = Arc::clone(&other.journal);
    let long = move |ctx: Context, gate: String| {
        let journal = Arc::clone(&journal);
        async move { journal.work(ctx, gate).await }
    };
    let grace = options(INTERVAL).shutdown_grace(PATIENCE);
    let others: TaskRef<String, u64> = app.task(&other.name, grace, long).unwrap();
    let _broken = TestWorker::start(app.worker());
    let neighbour = others.dispatch("gate".to_owned()).await.unwrap();
    other.started(&[neighbour]).await;
    let (_app, task) = test.producer().await;
    let job = task.dispatch("first".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let healthy = test.start_worker(options(INTERVAL).concurrency(16)).await;

    // The driver warns of a lost reply, and its warning meets a broken subscriber.
    warnings.break_at(&[&test.name, "settle failed; will retry"]);
    // The other task has its own calls.
    let cut = proxy.cut_next_reply_to(test.key("replies"));
    jobs.dispatch_many(["go".to_owned(), "go".to_owned()]).await.unwrap();
    cut.happened().await;
    eventually("the job runs again", PATIENCE, async || test.journal.runs_of(job.id()).len() == 2).await;
    assert_eq!(test.journal.runs_of(job.id())[1].worker, healthy.id);
    let told = async || test.journal.interruptions().contains(&"Err(Lost)".to_owned());
    eventually("the thread is asked to stop", Duration::from_secs(5), told).await;
    for gate in ["first", "go"] {
        test.journal.open(gate);
    }
    other.journal.open("gate");
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    healthy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_slow_heartbeats_claims_fewer_jobs() {
    const GATES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
    let warnings = Warnings::capture();
    let (_redis, test, line) = far_away().await;
    let worker = test.start_worker_at(&line.url(), options(INTERVAL).concurrency(8)).await;
    worker.working().await;
    // A round trip of 200 ms, which is 60 % of a period.
    line.delay(Duration::from_millis(100));
    let (_app, task) = test.producer().await;
    let mut jobs = vec![task.dispatch("one".to_owned()).await.unwrap()];
    test.started(&jobs).await;
    let told = [test.name.as_str(), "heartbeats take over half of their period, so fewer jobs are claimed"];
    warnings.wait_for(&told, PATIENCE).await;
    // The first job still runs, so that heartbeats stay slow. A claim that was sent before takes the second one.
    jobs.push(task.dispatch("two".to_owned()).await.unwrap());
    test.started(&jobs).await;
    // Heartbeats of two jobs allow for four; without the limit a claim takes four more.
    jobs.extend(task.dispatch_many(GATES[2..].iter().map(ToString::to_string)).await.unwrap());
    test.started(&jobs).await;
    let begun = test.begun_together().await;
    assert!(begun[..2] == [1, 1] && begun[2] <= 2, "{begun:?}");
    for gate in GATES {
        test.journal.open(gate);
    }
    test.each_ran_once(&jobs).await;
    worker.stop().await;
}

/// A waker that panics.
struct Rude;

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("as expected");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_panics_does_not_block_signals_of_other_jobs() {
    const JOBS: usize = 8;
    let (redis, test) = alone();
    let worker = test
        .start_worker_with(&redis.url(), options(INTERVAL).concurrency(JOBS), move |journal, ctx, gate| async move {
            let other = ctx.clone();
            let mut told = Box::pin(async move { other.cancelled().await });
            if gate == "rude" {
                let waker = Waker::from(Arc::new(Rude));
                assert_eq!(told.as_mut().poll(&mut std::task::Context::from_waker(&waker)), Poll::Pending);
            }
            journal.begin(&ctx);
            if gate == "rude" {
                journal.opened(&gate).await;
            }
            ctx.cancelled().await;
            journal.note("told");
            drop(told);
            Ok(ctx.fence())
        })
        .await;
    let (_app, task) = test.producer().await;
    let inputs = (0..JOBS).map(|at| if at % 2 == 0 { "rude".to_owned() } else { String::new() });
    let jobs = task.dispatch_many(inputs).await.unwrap();
    test.started(&jobs).await;
    // One heartbeat reports all of them.
    let mut conn = test.conn().await;
    let fields: Vec<(&str, &str)> = jobs.iter().map(|job| (job.id().as_str(), "not wanted")).collect();
    let () = conn.hset_multiple(test.key("cancelling"), &fields).await.unwrap();
    eventually("each of the others is signalled", PATIENCE, async || test.journal.interruptions().len() == JOBS / 2)
        .await;
    test.journal.open("rude");
    worker.stop().await;
}

#[tokio::test]
async fn a_job_cancelled_before_its_handler_begins_does_not_begin() {
    let (redis, test) = alone();
    let (_app, task) = test.producer().await;
    let jobs = task.dispatch_many(["blocks".to_owned(), "other".to_owned()]).await.unwrap();
    let (blocks, blocked) = channel::<()>();
    let (go, gone) = channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let (app, journal) = (test.app_at(&redis.url()).await, Arc::clone(&test.journal));
    let handler = move |ctx: Context, input: String| {
        journal.begin(&ctx);
        let (blocks, gone) = (blocks.clone(), Arc::clone(&gone));
        async move {
            if input == "blocks" {
                // One claim took both, and the runtime has one thread.
                blocks.send(()).unwrap();
                let _ = gone.lock().unwrap().recv_timeout(PATIENCE);
            }
            Ok::<u64, JobError>(ctx.fence())
        }
    };
    let stall = heartline::StallOptions::new().interval(Duration::from_secs(10));
    app.task(&test.name, options(INTERVAL).stall(stall), handler).unwrap();
    let worker = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stop = async { tokio::time::sleep(Duration::from_secs(6)).await };
            app.worker().run_until(stop).await.unwrap()
        })
    });
    tokio::task::spawn_blocking(move || blocked.recv_timeout(PATIENCE).unwrap()).await.unwrap();
    jobs[1].cancel("not wanted").await.unwrap();
    // The keeper receives it at once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    go.send(()).unwrap();
    let ended = tokio::time::timeout(PATIENCE, jobs[1].result()).await.expect("it does not end").unwrap_err();
    assert!(matches!(ended, heartline::Error::JobCancelled { .. }), "{ended:?}");
    assert_eq!(test.journal.runs_of(jobs[1].id()).len(), 0, "it began");
    let _ = tokio::task::spawn_blocking(move || worker.join().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_with_unreported_outcomes_get_no_more_heartbeats() {
    let redis = TestRedis::start();
    let (test, other) = (TestTask::on(&redis), TestTask::on(&redis));
    let app = test.app_at(&redis.url()).await;
    let at_once = options(INTERVAL).shutdown_grace(Duration::ZERO).cancel_grace(Duration::ZERO);
    let jobs = test.declare_at(&app, at_once);
    let others = other.declare_at(&app, options(INTERVAL).shutdown_grace(PATIENCE * 2));
    let worker = TestWorker::start(app.worker());
    let job = jobs.dispatch("gate".to_owned()).await.unwrap();
    let neighbour = others.dispatch("gate".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    other.started(&[neighbour]).await;
    let healthy = test.start_worker(options(INTERVAL)).await;

    // Its outcomes are refused, and its heartbeats are not.
    let (mut conn, calls) = (test.conn().await, test.key("replies"));
    let mut replace = redis::pipe();
    let () = replace.atomic().del(&calls).set(&calls, "foreign").query_async(&mut conn).await.unwrap();
    let stopping = worker.begin_stop();
    eventually("the sweep finds its job", PATIENCE, async || test.dump("stalls").await.is_some()).await;
    assert!(!stopping.is_finished(), "the other task still runs");
    let () = conn.del(&calls).await.unwrap();
    test.journal.open("gate");
    other.journal.open("gate");
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    let _ = stopping.await.unwrap().unwrap();
    healthy.stop().await;
}
