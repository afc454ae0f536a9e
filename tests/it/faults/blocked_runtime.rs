//! Handlers that block every thread of the user's runtime.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use heartline::{App, Context, JobError};

use crate::faults::ground::alone;
use crate::support::task::{INTERVAL, options};
use crate::support::{PATIENCE, Warnings, eventually};

#[tokio::test]
async fn handlers_that_block_every_thread_keep_their_jobs() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let (url, task, journal) = (redis.url(), test.name.clone(), test.journal.clone());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let user = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let worker = runtime.spawn(async move {
            let app = App::builder().redis(url).build().await.unwrap();
            let both = Arc::new(Barrier::new(2));
            app.task(&task, options(INTERVAL), move |ctx: Context, _: String| {
                let (journal, both) = (journal.clone(), both.clone());
                async move {
                    journal.begin(&ctx);
                    // Each on its own thread; otherwise one thread would run both jobs in turn.
                    both.wait();
                    std::thread::sleep(4 * INTERVAL);
                    if let Err(e) = ctx.heartbeat() {
                        journal.note(e.to_string());
                    }
                    Ok::<_, JobError>(ctx.fence())
                }
            })
            .unwrap();
            app.worker().run_until(async { drop(stopped.await) }).await.unwrap()
        });
        runtime.block_on(worker).unwrap()
    });

    let (_app, jobs) = test.producer().await;
    let handles = jobs.dispatch_many(["a".to_owned(), "b".to_owned()]).await.unwrap();
    test.started(&handles).await;
    let before = test.epoch().await;
    // A second worker watches too, and would run the jobs that the first loses.
    let witness = test.start_worker(options(INTERVAL)).await;
    eventually("the runtime is free again", PATIENCE, async || jobs.counts().await.unwrap().completed == 2).await;
    assert!(test.epoch().await >= before + 3, "the sweep was blocked too");
    test.each_ran_once(&handles).await;
    let over = "the runtime runs again";
    // On a busy machine the runtime may also have been late before.
    let is_told = |line: &String| line.contains(over) && blocked_for(line) >= 4 * INTERVAL - INTERVAL / 10;
    eventually("the log says for how long", PATIENCE, async || warnings.all().iter().any(is_told)).await;

    witness.stop().await;
    stop.send(()).unwrap();
    eventually("the blocked worker stops", PATIENCE, async || user.is_finished()).await;
    assert_eq!(user.join().unwrap(), heartline::StopReason::Shutdown);
    test.nothing_is_left_but(2).await;
}

/// The field `blocked_ms` of a warning.
fn blocked_for(line: &str) -> Duration {
    let (_, rest) = line.split_once("blocked_ms=").unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    Duration::from_millis(digits.parse().unwrap())
}
