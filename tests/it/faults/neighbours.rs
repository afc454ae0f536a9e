//! Tasks that share only their worker.

use std::time::Duration;

use redis::AsyncCommands;

use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, TestRedis, eventually};

/// Longer than a heartbeat period of the short interval, and much shorter than one of the long interval.
const HICCUP: Duration = Duration::from_millis(650);

#[tokio::test]
async fn hiccups_seen_by_a_short_interval_do_not_delay_a_long_one() {
    const LONG: Duration = Duration::from_secs(6);
    let redis = TestRedis::start();
    let (short, long) = (TestTask::on(&redis), TestTask::on(&redis));
    let app = short.app_at(&redis.url()).await;
    for (test, interval) in [(&short, INTERVAL), (&long, LONG)] {
        let journal = test.journal.clone();
        let handler = move |ctx: heartline::Context, gate: String| {
            let journal = journal.clone();
            async move {
                journal.begin(&ctx);
                journal.opened(&gate).await;
                Ok::<_, heartline::JobError>(ctx.fence())
            }
        };
        app.task(&test.name, options(interval), handler).unwrap();
        let jobs = app.task_ref::<String, u64>(&test.name).unwrap();
        jobs.dispatch("go".to_owned()).id("alive").await.unwrap();
    }
    let worker = TestWorker::start(app.worker());
    for test in [&short, &long] {
        eventually("the job has begun", PATIENCE, async || test.journal.runs().len() == 1).await;
    }

    // What a worker leaves that died with a job.
    let mut conn = long.conn().await;
    let () = conn.hset(long.key("payload"), "orphan", "\"go\"").await.unwrap();
    let () = conn.hset(long.key("locks"), "orphan", "gone-4242-0a1b2c3d:1").await.unwrap();
    let () = conn.sadd(long.key("active"), "orphan").await.unwrap();
    let hiccups = async {
        let mut conn = short.conn().await;
        loop {
            let pause = HICCUP.as_millis() as u64;
            let () = redis::cmd("CLIENT").arg("PAUSE").arg(pause).arg("ALL").query_async(&mut conn).await.unwrap();
            tokio::time::sleep(HICCUP + Duration::from_secs(1)).await;
        }
    };
    let promised = 2 * LONG + LONG / 3;
    tokio::select! {
        () = hiccups => {}
        () = eventually("the worker gets the orphan", promised + PATIENCE / 2, async || {
            !long.journal.runs_of("orphan").is_empty()
        }) => {}
    }
    let told: Option<String> = conn.hget(long.key("stalledCount"), "orphan").await.unwrap();
    assert_eq!(told.as_deref(), Some("1"));
    for test in [&short, &long] {
        test.journal.open("go");
        let alive = app.task_ref::<String, u64>(&test.name).unwrap().handle("alive").unwrap();
        tokio::time::timeout(PATIENCE, alive.result()).await.unwrap().unwrap();
        let runs = test.journal.runs_of("alive");
        assert_eq!(runs.iter().map(|run| run.stalled_count).collect::<Vec<_>>(), [0]);
    }
    assert_eq!(short.dump("stalls").await, None);
    worker.stop().await;
}
