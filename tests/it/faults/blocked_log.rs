//! A log whose reader stopped: every write to it blocks. The keeper of the worker must not wait for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use heartline::{App, CancelOutcome, Context, JobError, JobState};
use redis::AsyncCommands;
use tokio::sync::watch;

use crate::faults::ground::alone;
use crate::support::task::{INTERVAL, options};
use crate::support::{Child, PATIENCE, TestRedis, eventually};

/// More than the threads of the runtime.
const JOBS: usize = 4;

/// Not a test by itself: a worker that logs to its standard error, as programs do.
#[test]
fn a_worker_whose_handlers_log_all_the_time() {
    let Some(role) = Child::role() else { return };
    let (url, task) = role.split_once(' ').unwrap();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let worker = runtime.spawn({
        let (url, task) = (url.to_owned(), task.to_owned());
        async move {
            let mut conn = redis::Client::open(url.as_str())
                .unwrap()
                .get_multiplexed_async_connection_with_config(&TestRedis::patient())
                .await
                .unwrap();
            let pulse = format!("{task}:pulse");
            tokio::spawn(async move {
                loop {
                    conn.incr::<_, _, ()>(&pulse, 1).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            let app = App::builder().redis(url).build().await.unwrap();
            // The first handler would block the driver before it has claimed the others.
            let begun = Arc::new(watch::Sender::new(BTreeSet::new()));
            app.task(&task, options(INTERVAL).concurrency(JOBS), move |ctx: Context, line: String| {
                let begun = Arc::clone(&begun);
                async move {
                    begun.send_modify(|begun| begun.extend([ctx.id().clone()]));
                    begun.subscribe().wait_for(|begun| begun.len() == JOBS).await?;
                    while !ctx.is_cancelled() {
                        tracing::info!(job_id = %ctx.id(), "{line}");
                        // A handler that only yields may stay in the local queue of a blocked thread.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err::<u64, _>(JobError::from("cancelled"))
                }
            })
            .unwrap();
            app.worker().run().await.unwrap()
        }
    });
    let _ = runtime.block_on(worker).unwrap();
}

#[tokio::test]
async fn a_worker_whose_log_blocks_its_runtime_keeps_its_jobs() {
    let (redis, test) = alone();
    let role = format!("{} {}", redis.url(), test.name);
    let mut child = Child::start(module_path!(), "a_worker_whose_handlers_log_all_the_time", &role);
    let (_app, jobs) = test.producer().await;
    let handles = jobs.dispatch_many((0..JOBS).map(|_| "long ".repeat(100))).await.unwrap();
    let running = async || jobs.counts().await.unwrap().running == JOBS as u64;
    eventually("every job was claimed", PATIENCE, running).await;
    // A pipe without a reader is soon full, and then the runtime makes no progress.
    let (mut conn, pulse) = (test.conn().await, format!("{}:pulse", test.name));
    let mut last = 0;
    loop {
        let now: u64 = conn.get::<_, Option<u64>>(&pulse).await.unwrap().unwrap_or(0);
        if now == last && now > 0 {
            break;
        }
        last = now;
        tokio::time::sleep(INTERVAL).await;
    }

    let witness = test.start_worker(options(INTERVAL)).await;
    test.epochs_pass(5).await;
    assert_eq!(conn.get::<_, u64>(&pulse).await.unwrap(), last, "the runtime was not blocked");
    assert!(child.lives());
    assert_eq!(test.dump("stalls").await, None);
    for job in &handles {
        assert_eq!(job.state().await.unwrap(), JobState::Running);
    }

    // With a reader everything continues.
    child.drain();
    for job in &handles {
        assert_eq!(job.cancel("enough").await.unwrap(), CancelOutcome::Requested);
    }
    let cancelled = async || jobs.counts().await.unwrap().cancelled == JOBS as u64;
    eventually("the handlers notice", PATIENCE, cancelled).await;
    assert_eq!(test.journal.runs(), []);
    witness.stop().await;
}
