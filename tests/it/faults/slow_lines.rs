//! Workers with thousands of jobs on long and narrow lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heartline::{App, Context, JobError, TaskOptions};

use crate::faults::ground::far_away;
use crate::faults::waiting::{all_ran_once, begun, lasting, stalls, start_waiting_worker, start_witness};
use crate::support::journal::Journal;
use crate::support::task::options;
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, Warnings};

const JOBS: usize = 10_000;

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_jobs_on_a_long_line_all_get_heartbeats() {
    let interval = Duration::from_secs(2);
    let (redis, test, line) = far_away().await;
    let witness = start_witness(&test, &redis.url(), options(interval), "go").await;
    let worker = start_waiting_worker(&test, &line.url(), options(interval).concurrency(JOBS)).await;
    witness.jobs.dispatch_many(vec!["go".to_owned(); JOBS]).await.unwrap();
    begun(&test, JOBS + 1, PATIENCE * 2).await;
    // A round trip of 40 ms, and thousands of jobs to name in two thirds of a second.
    line.delay(Duration::from_millis(20));
    test.epochs_pass(3).await;
    assert_eq!(stalls(&test, &mut test.conn().await).await, 0);
    test.journal.open("go");
    all_ran_once(&test, JOBS + 1).await;
    worker.stop().await;
    witness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_that_take_over_a_period_are_no_outage() {
    let warnings = Warnings::capture();
    let interval = Duration::from_secs(6);
    let (redis, test, line) = far_away().await;
    let witness = start_witness(&test, &redis.url(), options(interval), "go").await;
    let worker = start_waiting_worker(&test, &line.url(), options(interval).concurrency(JOBS)).await;
    witness.jobs.dispatch_many(vec!["go".to_owned(); JOBS]).await.unwrap();
    begun(&test, JOBS + 1, PATIENCE * 2).await;
    // A heartbeat has about 0.5 MiB. Its answers come one by one.
    line.rate(Some(MIB as u64 / 6));
    test.epochs_pass(3).await;
    line.rate(None);
    assert_eq!(stalls(&test, &mut test.conn().await).await, 0);
    warnings.wait_for(&[&test.name, "heartbeats take over half of their period"], PATIENCE).await;
    let of_task = warnings.all().into_iter().filter(|line| line.contains(&test.name));
    let outages: Vec<String> = of_task.filter(|line| line.contains("redis does not answer")).collect();
    assert!(outages.is_empty(), "{outages:#?}");
    test.journal.open("go");
    all_ran_once(&test, JOBS + 1).await;
    worker.stop().await;
    witness.stop().await;
}

/// A text whose JSON has this many MiB with its quotes.
fn large(mib: usize) -> String {
    "x".repeat(mib * MIB - 2)
}

/// Waits, returns a large text, or returns the size of its input.
async fn handle(journal: Arc<Journal>, ctx: Context, input: String) -> Result<String, JobError> {
    journal.begin(&ctx);
    if input == "go" {
        journal.opened(&input).await;
    }
    Ok(match input.strip_prefix("give ") {
        Some(mib) => large(mib.parse()?),
        None => input.len().to_string(),
    })
}

/// One worker has a long and narrow line, ten thousand waiting jobs, and large values in both directions; a producer
/// of large values is at the same end of that line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_values_pass_a_long_narrow_line_with_ten_thousand_jobs() {
    let (interval, round_trip) = (Duration::from_secs(10), Duration::from_millis(100));
    let at_least = lasting(Duration::ZERO);
    let most = if at_least.is_zero() { 6 } else { 64 };
    let until = Instant::now() + at_least;
    let (redis, test, line) = far_away().await;
    let (mut workers, mut jobs) = (Vec::new(), 0);
    // The worker that looks for silent jobs claims only one.
    for (url, count) in [(redis.url(), 1), (line.url(), JOBS + 4)] {
        let (app, journal) = (test.app_at(&url).await, Arc::clone(&test.journal));
        let handler = move |ctx: Context, input: String| handle(Arc::clone(&journal), ctx, input);
        let task = app.task(&test.name, options(interval).concurrency(count), handler).unwrap();
        let worker = TestWorker::start(app.worker());
        let waiting = count.min(JOBS);
        let direct = workers.first().map_or(&task, |(_, first, _)| first);
        direct.dispatch_many(vec!["go".to_owned(); waiting]).await.unwrap();
        jobs += waiting;
        begun(&test, jobs, PATIENCE * 2).await;
        workers.push((app, task, worker));
    }

    line.delay(round_trip / 2);
    line.rate(Some(MIB as u64));

    // This producer dispatches values that are too large for others.
    let limit = TaskOptions::new().payload_limit(most * MIB);
    let producer = App::builder().redis(line.url()).task_defaults(limit).build().await.unwrap();
    let task = producer.task_ref::<String, String>(&test.name).unwrap();
    let mut mib = most;
    loop {
        let passes = async |input: String| task.dispatch(input).await.unwrap().result().await.unwrap();
        // Both directions at the same time, and as long again.
        let patience = PATIENCE + 4 * Duration::from_secs(mib as u64);
        let both = async { tokio::join!(passes(format!("give {mib}")), passes(large(mib))) };
        let (given, taken) = tokio::time::timeout(patience, both).await.expect("the large values do not pass");
        let length = mib * MIB - 2;
        assert_eq!((given.len(), taken), (length, length.to_string()));
        jobs += 2;
        assert_eq!(stalls(&test, &mut test.conn().await).await, 0);
        if Instant::now() >= until {
            break;
        }
        mib = fastrand::usize(1..=most);
    }
    test.journal.open("go");
    all_ran_once(&test, jobs).await;
    for (_app, _task, worker) in workers {
        worker.stop().await;
    }
}
