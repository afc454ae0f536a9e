//! `Heartbeat::Manual` with many handlers whose heartbeats are rare, and with one that the worker's own sweep finds
//! silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heartline::{Heartbeat, StallOptions, TaskOptions};

use crate::faults::ground::{alone, proxied};
use crate::support::task::options;
use crate::support::{PATIENCE, Tap, Warnings, eventually, scripts_run, stat};

fn manual(interval: Duration) -> TaskOptions {
    options(interval).stall(StallOptions::new().interval(interval).heartbeat(Heartbeat::Manual))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_with_rare_heartbeats_cost_few_calls() {
    const JOBS: usize = 500;
    const INTERVAL: Duration = Duration::from_secs(3);
    const PERIOD: Duration = Duration::from_secs(1);
    // Further apart than the worker's own heartbeats, and often enough.
    const PULSE: Duration = Duration::from_millis(1_350);
    let (redis, test) = alone();
    let place = Arc::new(AtomicU64::new(0));
    let worker = test
        .start_worker_with(&redis.url(), manual(INTERVAL).concurrency(JOBS), move |journal, ctx, gate| {
            let at = place.fetch_add(1, Ordering::Relaxed) % JOBS as u64;
            async move {
                journal.begin(&ctx);
                // Each handler has its own phase.
                tokio::time::sleep(PULSE * at as u32 / JOBS as u32).await;
                let mut pulse = tokio::time::interval(PULSE);
                loop {
                    tokio::select! {
                        () = journal.opened(&gate) => return Ok(ctx.fence()),
                        // Other tests check the result.
                        _ = pulse.tick() => drop(ctx.heartbeat()),
                    }
                }
            }
        })
        .await;
    let jobs = worker.jobs.dispatch_many((0..JOBS).map(|_| "go".to_owned())).await.unwrap();
    test.started(&jobs).await;
    // All of them send heartbeats from now on.
    tokio::time::sleep(PULSE).await;

    let mut conn = test.conn().await;
    let (calls, bytes) = (scripts_run(&mut conn).await, stat(&mut conn, "total_net_input_bytes").await);
    let since = Instant::now();
    test.epochs_pass(2).await;
    let calls = scripts_run(&mut conn).await - calls;
    let bytes = stat(&mut conn, "total_net_input_bytes").await - bytes;
    let periods = since.elapsed().as_secs_f64() / PERIOD.as_secs_f64();
    // At most ten for the heartbeats of handlers, and the worker's own: its heartbeat, and sometimes a sweep or
    // housekeeping.
    assert!((calls as f64) < 13.0 * periods, "{calls} calls in {periods:.1} beat periods");
    // An id and a fence are 52 bytes of a call. The worker's heartbeat names each job once, and each handler at most
    // once more.
    let names = bytes as f64 / 52.0 / JOBS as f64;
    assert!(names < 3.0 * periods, "{names:.1} times all the jobs in {periods:.1} beat periods");

    assert_eq!(test.dump("stalls").await, None);
    test.journal.open("go");
    let ended = async || worker.jobs.counts().await.unwrap().completed == JOBS as u64;
    eventually("all have ended", PATIENCE, ended).await;
    assert_eq!(test.journal.runs().len(), JOBS, "one was run twice");
    assert_eq!(test.dump("stalls").await, None);
    worker.stop().await;
}

#[tokio::test]
async fn the_sweep_of_its_own_worker_finds_a_silent_handler() {
    // The sweep comes just after a heartbeat, and the next heartbeat is a third of this interval away.
    const INTERVAL: Duration = Duration::from_secs(3);
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let worker = test
        .start_worker_with(&redis.url(), manual(INTERVAL), move |journal, ctx, what| async move {
            journal.begin(&ctx);
            if ctx.stalled_count() > 0 {
                return Ok(ctx.fence());
            }
            if what == "waits" {
                ctx.cancelled().await;
                journal.note("the one that waits was told");
                journal.open("wake up");
            } else {
                journal.opened("wake up").await;
                journal.note(format!("the one that wakes up: {:?}", ctx.heartbeat()));
            }
            Err("not reported".into())
        })
        .await;
    let mut stalled = worker.app.on_stalled();
    let jobs = worker.jobs.dispatch_many(["waits".to_owned(), "wakes up".to_owned()]).await.unwrap();
    for _ in &jobs {
        let event = tokio::time::timeout(PATIENCE, stalled.recv()).await.expect("nothing was found").unwrap();
        assert_eq!(event.worker.as_ref().map(AsRef::as_ref), Some(worker.id.as_str()));
    }
    eventually("both are cancelled", PATIENCE, async || test.journal.interruptions().len() == 2).await;
    let expected = ["the one that waits was told", "the one that wakes up: Err(Lost)"];
    assert_eq!(test.journal.interruptions(), expected);
    for job in &jobs {
        // The log of the keeper is in order: a heartbeat would have reported the loss only after the sweep had logged
        // it.
        let id = job.id().as_str();
        warnings.wait_for(&["WARN", id, "stalled"], PATIENCE).await;
        let lines: Vec<String> = warnings.all().into_iter().filter(|line| line.contains(id)).collect();
        assert!(lines[0].contains("the lock of a job is lost") && lines[1].contains("stalled"), "{lines:#?}");
        tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not run again").unwrap();
    }
    worker.stop().await;
}

#[tokio::test]
async fn an_unanswered_heartbeat_of_a_handler_is_sent_again() {
    // After a third of this interval in silence, the next sign of a handler requests a heartbeat of its own.
    const INTERVAL: Duration = Duration::from_secs(4);
    // How a heartbeat names the job: to extend its lock, or only to check it.
    const EXTENDS: &str = "\r\n$1\r\n1\r\n$1\r\n0\r\n$3\r\njob\r\n";
    const ASKS: &str = "\r\n$1\r\n0\r\n$1\r\n1\r\n$3\r\njob\r\n";
    let (_redis, test, proxy) = proxied().await;
    let (asked, named) = (Tap::on(&proxy, ASKS), Tap::on(&proxy, "\r\njob\r\n"));
    let worker = test
        .start_worker_with(&proxy.url(), manual(INTERVAL), |journal, ctx, gate| async move {
            journal.opened("beat").await;
            ctx.heartbeat()?;
            journal.opened(&gate).await;
            Ok(ctx.fence())
        })
        .await;
    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("go".to_owned()).id("job").await.unwrap();
    // A third of the interval lies between two checks. A regular heartbeat would be repeated over other connections.
    eventually("it checks the silent handler twice", PATIENCE, async || asked.requests().len() > 1).await;
    let before = named.requests().len();
    let cut = proxy.cut_next_reply_to(EXTENDS);
    test.journal.open("beat");
    cut.happened().await;
    let extends = |call: &Vec<u8>| call.windows(EXTENDS.len()).any(|part| part == EXTENDS.as_bytes());
    let next = eventually("the next heartbeat is sent", PATIENCE, async || {
        let calls = named.requests().split_off(before);
        let cut = calls.iter().position(extends)?;
        calls.get(cut + 1).cloned()
    })
    .await;
    assert!(extends(&next), "the heartbeat of the handler is lost");
    test.journal.open("go");
    tokio::time::timeout(PATIENCE, job.result()).await.unwrap().unwrap();
    assert_eq!(test.dump("stalls").await, None);
    worker.stop().await;
}
