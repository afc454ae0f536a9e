//! Calls that were executed but whose replies were lost: they are repeated, and nothing happens twice.

use std::sync::Arc;
use std::time::Duration;

use heartline::RetryPolicy;
use redis::AsyncCommands;

use crate::faults::ground::alone;
use crate::support::events::events_until;
use crate::support::task::{INTERVAL, TaskWorker, TestTask, options};
use crate::support::{PATIENCE, Proxy, TestRedis, eventually};

const ONCE: [&str; 3] = ["task:dispatched", "task:started", "task:completed"];

fn holds(request: &[u8], needle: &str) -> bool {
    request.windows(needle.len()).any(|window| window == needle.as_bytes())
}

struct Behind {
    redis: TestRedis,
    test: TestTask,
    proxy: Arc<Proxy>,
    settle: String,
}

impl Behind {
    async fn start() -> Behind {
        let (redis, test) = alone();
        let proxy = Arc::new(Proxy::start(redis.address()).await);
        let settle = test.sha("settle").await;
        Behind { redis, test, proxy, settle }
    }

    /// Matches calls, of either script, that report this job.
    fn report_of(&self, id: &'static str) -> impl Fn(&[u8]) -> bool + Send + 'static {
        let replies = self.test.key("replies");
        move |request| holds(request, &replies) && holds(request, id)
    }

    /// A worker with one slot, all of whose traffic passes the proxy.
    async fn worker(&self) -> TaskWorker {
        self.test.start_worker_at(&self.proxy.url(), options(INTERVAL).concurrency(1)).await
    }
}

#[tokio::test]
async fn a_claim_with_a_lost_reply_is_answered_again_and_runs_once() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    test.journal.open("go");
    let first = jobs.dispatch("go".to_owned()).id("first").await.unwrap();
    // The job waits already, so that the very first settle claims it.
    let cut = proxy.cut_next_reply_to(behind.settle.as_str());
    let worker = behind.worker().await;
    cut.happened().await;
    let last = jobs.dispatch("go".to_owned()).id("last").await.unwrap();
    test.each_ran_once(&[first, last]).await;
    let seen = events_until(&mut events, "last").await;
    assert_eq!((&seen["first"][..], &seen["last"][..]), (&ONCE[..], &ONCE[..]));
    worker.stop().await;
    test.nothing_is_left_but(2).await;
}

#[tokio::test]
async fn a_job_with_a_late_claim_reply_gets_heartbeats_meanwhile() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let (_app, jobs) = test.producer().await;
    test.journal.open("go");
    let job = jobs.dispatch("go".to_owned()).max_stalls(0).await.unwrap();
    let mut hold = proxy.hold_next_reply_to(behind.settle.as_str());
    let worker = behind.worker().await;
    hold.happened().await;
    let witness = test.start_worker(options(INTERVAL)).await;
    // Redis gave the job out; only the record of the call knows it.
    test.epochs_pass(3).await;
    assert_eq!(test.dump("stalls").await, None);
    drop(hold);
    test.each_ran_once(std::slice::from_ref(&job)).await;
    assert_eq!(test.journal.runs_of(job.id())[0].worker, worker.id, "it was kept, not requeued");
    worker.stop().await;
    witness.stop().await;
    test.nothing_is_left_but(1).await;
}

#[tokio::test]
async fn a_settle_call_with_a_lost_reply_counts_once() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    let worker = behind.worker().await;
    let first = jobs.dispatch("go".to_owned()).id("first").await.unwrap();
    test.started(std::slice::from_ref(&first)).await;
    // The worker has one slot: the call that reports the first job claims the second.
    let second = jobs.dispatch("go".to_owned()).id("second").await.unwrap();
    let cut = proxy.cut_next_reply_matching(behind.report_of("first"));
    test.journal.open("go");
    cut.happened().await;
    let last = jobs.dispatch("go".to_owned()).id("last").await.unwrap();
    test.each_ran_once(&[first, second, last]).await;
    let seen = events_until(&mut events, "last").await;
    for id in ["first", "second", "last"] {
        assert_eq!(seen[id], ONCE, "{id}");
    }
    worker.stop().await;
    test.nothing_is_left_but(3).await;
}

#[tokio::test]
async fn two_calls_with_lost_replies_are_both_answered_again() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let (_app, jobs) = test.producer().await;
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL).concurrency(2)).await;
    let mut running = Vec::new();
    for gate in ["one", "two"] {
        running.push(jobs.dispatch(gate.to_owned()).await.unwrap());
    }
    test.started(&running).await;
    for _ in 0..2 {
        running.push(jobs.dispatch("go".to_owned()).await.unwrap());
    }
    test.journal.open("go");
    proxy.cut_replies();
    let mut conn = test.conn().await;
    for (gate, recorded) in [("one", 1), ("two", 2)] {
        // The second call is made while the first waits for its reply.
        test.journal.open(gate);
        eventually("the outcome is recorded", PATIENCE, async || {
            conn.zcard::<_, usize>(test.key("completed")).await.unwrap() == recorded
        })
        .await;
    }
    assert_eq!(conn.hlen::<_, usize>(test.key("locks")).await.unwrap(), 2, "each call claimed a job");
    proxy.restore_replies();
    test.each_ran_once(&running).await;
    worker.stop().await;
    test.nothing_is_left_but(4).await;
}

#[tokio::test]
async fn a_failed_run_with_a_lost_reply_uses_up_one_attempt() {
    let behind = Behind::start().await;
    let test = &behind.test;
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    let retry = RetryPolicy::new().attempts(3).fixed(Duration::from_millis(100));
    let worker = test
        .start_worker_with(&behind.proxy.url(), options(INTERVAL).retry(retry), |journal, ctx, _| async move {
            journal.begin(&ctx);
            journal.note(format!("attempt {}", ctx.attempt()));
            if ctx.attempt() < 3 { Err("again".into()) } else { Ok(ctx.fence()) }
        })
        .await;
    let cut = behind.proxy.cut_next_reply_matching(behind.report_of("failing"));
    let job = jobs.dispatch(String::new()).id("failing").await.unwrap();
    cut.happened().await;
    tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    assert_eq!(test.journal.interruptions(), ["attempt 1", "attempt 2", "attempt 3"]);
    let seen = events_until(&mut events, "failing").await;
    let run = ["task:started", "task:retrying"];
    assert_eq!(
        seen["failing"],
        [&["task:dispatched"], &run[..], &run[..], &["task:started", "task:completed"]].concat()
    );
    assert_eq!(test.dump("stalls").await, None);
    worker.stop().await;
    test.nothing_is_left_but(1).await;
}

#[tokio::test]
async fn the_sweep_requeues_a_claim_that_never_got_its_reply() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    let job = jobs.dispatch("go".to_owned()).id("job").await.unwrap();
    let settle = behind.settle.clone();
    let cut = proxy.cut_and_pause(move |request| holds(request, &settle));
    let claimer = behind.worker().await;
    cut.happened().await;
    let locked: String = test.conn().await.hget(test.key("locks"), "job").await.unwrap();
    assert!(locked.starts_with(&claimer.id), "{locked}");

    let other = test.start_worker(options(INTERVAL).concurrency(1)).await;
    test.started(std::slice::from_ref(&job)).await;
    proxy.resume();
    // The claiming worker is back when it runs a job, which needs its reply.
    let busy = jobs.dispatch("go".to_owned()).id("last").await.unwrap();
    test.started(std::slice::from_ref(&busy)).await;
    test.journal.open("go");
    for job in [&job, &busy] {
        tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    }
    let runs = test.journal.runs_of("job");
    assert_eq!(runs.iter().map(|run| (&run.worker, run.stalled_count)).collect::<Vec<_>>(), [(&other.id, 1)]);
    assert_eq!(test.journal.runs_of("last")[0].worker, claimer.id);
    let seen = events_until(&mut events, "last").await;
    assert_eq!(seen["job"][..4], ["task:dispatched", "task:started", "task:stalled", "task:started"]);
    assert_eq!(test.journal.interruptions(), [""; 0]);
    other.stop().await;
    claimer.stop().await;
    test.nothing_is_left_but(2).await;
}

#[tokio::test]
async fn an_outcome_without_reply_for_two_intervals_is_recorded_once() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let (app, jobs) = test.producer().await;
    let mut events = app.events();
    let worker = behind.worker().await;
    let job = jobs.dispatch("go".to_owned()).id("job").await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let witness = test.start_worker(options(INTERVAL).concurrency(1)).await;
    let cut = proxy.cut_and_pause(behind.report_of("job"));
    test.journal.open("go");
    cut.happened().await;
    test.epochs_pass(2).await;
    proxy.resume();
    witness.stop().await;
    // Only the worker behind the proxy is left to run it.
    let last = jobs.dispatch("go".to_owned()).id("last").await.unwrap();
    test.each_ran_once(&[job, last]).await;
    let seen = events_until(&mut events, "last").await;
    assert_eq!((&seen["job"][..], &seen["last"][..]), (&ONCE[..], &ONCE[..]));
    worker.stop().await;
    test.nothing_is_left_but(2).await;
}

#[tokio::test]
async fn a_dispatch_with_a_lost_reply_creates_one_job() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let dispatch = test.sha("dispatch").await;
    let worker = test.start_worker(options(INTERVAL)).await;
    let mut events = worker.app.events();
    let app = test.app_at(&proxy.url()).await;
    let jobs = app.task_ref::<String, u64>(&test.name).unwrap();
    test.journal.open("go");

    let cut = proxy.cut_next_reply_to(dispatch.as_str());
    let named = jobs.dispatch("go".to_owned()).id("named").await.unwrap();
    cut.happened().await;
    assert_eq!(named.existed(), Some(true), "the repeated call cannot know that the job is its own");

    let cut = proxy.cut_next_reply_to(dispatch.as_str());
    let unnamed = jobs.dispatch("go".to_owned()).await.unwrap();
    cut.happened().await;

    let cut = proxy.cut_next_reply_to(dispatch.as_str());
    let many = jobs.dispatch_many((0..5).map(|_| "go".to_owned())).await.unwrap();
    cut.happened().await;

    let last = jobs.dispatch("go".to_owned()).id("last").await.unwrap();
    assert_eq!(last.existed(), Some(false));
    let all: Vec<_> = [named, unnamed].into_iter().chain(many).chain([last]).collect();
    test.each_ran_once(&all).await;
    assert_eq!(test.journal.runs().len(), 8);
    let seen = events_until(&mut events, "last").await;
    assert_eq!(seen.len(), 8);
    for (id, names) in &seen {
        assert_eq!(names[..2], ONCE[..2], "{id}");
    }
    worker.stop().await;
    test.nothing_is_left_but(8).await;
}

#[tokio::test]
async fn a_heartbeat_with_lost_replies_still_keeps_the_job() {
    // Without replies, a worker that waits a third of the interval for a processor cannot know that it kept the job.
    let options = || options(Duration::from_secs(3)).concurrency(1);
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    let worker = test.start_worker_at(&proxy.url(), options()).await;
    let job = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    test.started(std::slice::from_ref(&job)).await;
    let witness = test.start_worker(options()).await;
    proxy.cut_replies();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(proxy.discarded() > 0);
    proxy.restore_replies();
    test.epochs_pass(2).await;
    test.journal.open("go");
    test.each_ran_once(&[job]).await;
    eventually("the job has left the worker", PATIENCE, async || worker.jobs.counts().await.unwrap().running == 0)
        .await;
    witness.stop().await;
    worker.stop().await;
    test.nothing_is_left_but(1).await;
}

#[tokio::test]
async fn an_outcome_waits_until_its_notes_are_written() {
    let behind = Behind::start().await;
    let (test, proxy) = (&behind.test, &behind.proxy);
    // After the first checkpoint the keeper writes none for a third of the interval.
    let options = options(Duration::from_secs(60)).retry(RetryPolicy::new().attempts(2).fixed(Duration::ZERO));
    let worker = test
        .start_worker_with(&proxy.url(), options, |journal, ctx, gate| async move {
            if ctx.attempt() == 2 {
                return Ok(ctx.last_checkpoint().await?.unwrap_or_default());
            }
            ctx.checkpoint(&1)?;
            journal.opened(&gate).await;
            ctx.checkpoint(&2)?;
            Err("half way".into())
        })
        .await;
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("go".to_owned()).id("job").await.unwrap();
    eventually("the first is written", PATIENCE, async || test.column("checkpoint", "job").await.is_some()).await;
    // The call is lost with its connection: the server forgets its script just before, and does nothing.
    let (note, client) = (test.sha("note").await, redis::Client::open(behind.redis.url()).unwrap());
    let cut = proxy.cut_next_reply_matching(move |request| {
        let is_note = holds(request, &note);
        if is_note {
            let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut client.get_connection().unwrap()).unwrap();
        }
        is_note
    });
    test.journal.open("go");
    cut.happened().await;
    let last = tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    assert_eq!(last, 2, "the second run starts from the first checkpoint");
    worker.stop().await;
}
