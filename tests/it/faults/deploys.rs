//! Workers of different versions at the same time, as in a rolling deploy.

use std::collections::BTreeMap;

use heartline::{Error, JobState, Retention, RetentionLimit, RetryPolicy, StallOptions, TaskOptions};
use redis::AsyncCommands;

use crate::faults::ground::alone;
use crate::faults::watch::Watch;
use crate::support::task::{INTERVAL, options};
use crate::support::worker::TestWorker;
use crate::support::{PATIENCE, eventually};

#[tokio::test]
async fn a_worker_without_retention_keeps_what_a_newer_one_retains() {
    let (redis, test) = alone();
    let forever = Retention::new()
        .completed(RetentionLimit::forever())
        .failed(RetentionLimit::forever())
        .cancelled(RetentionLimit::forever());
    let kept_none = Retention::remove_at_once().failed(RetentionLimit::count(1));
    let old = test.start_worker(options(INTERVAL).retention(kept_none)).await;
    let new = test.start_worker(options(INTERVAL).retention(forever)).await;
    test.journal.open("go");
    let job = new.jobs.dispatch("go".to_owned()).id("export-7").await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();

    // Other jobs ended long ago, and are more than the old worker would keep.
    let watch = Watch::new(&test, &redis).await;
    let (mut conn, long_ago) = (watch.conn.clone(), 1_700_000_000_000_u64);
    for id in ["old-1", "old-2", "old-3"] {
        let () = conn.hset(test.key("payload"), id, "\"go\"").await.unwrap();
        let () = conn.zadd(test.key("failed"), id, long_ago).await.unwrap();
    }

    // The old worker updates its presence each time before it looks for jobs to remove.
    let presence = format!("heartline:worker:{}", old.id);
    let mut last_seen = async || -> u64 { conn.hget(&presence, "lastSeenAt").await.unwrap() };
    let before = last_seen().await;
    eventually("the old worker cleans up", PATIENCE, async || last_seen().await != before).await;
    watch.epochs_pass(1).await;
    assert_eq!(job.state().await.unwrap(), JobState::Completed);
    let again = new.jobs.dispatch("go".to_owned()).id("export-7").await.unwrap();
    assert_eq!(again.existed(), Some(true));
    assert_eq!(test.journal.runs_of("export-7").len(), 1);
    assert_eq!(new.jobs.counts().await.unwrap().failed, 3);
    old.stop().await;
    new.stop().await;
}

#[tokio::test]
async fn a_start_refused_for_one_task_leaves_the_others_options() {
    let (redis, test) = alone();
    let names = ["a", "b", "c"].map(|name| format!("{}-{name}", test.name));
    let worker = async |options: TaskOptions| {
        let app = test.app_at(&redis.url()).await;
        for name in &names {
            app.task(name, options.clone(), |_, (): ()| async { Ok::<_, heartline::JobError>(()) }).unwrap();
        }
        app.worker()
    };
    TestWorker::start(worker(options(INTERVAL)).await).stop().await;
    let mut conn = Watch::new(&test, &redis).await.conn;
    let metas = names.each_ref().map(|name| format!("heartline:{{{name}}}:meta"));
    // The task in the middle belongs to a newer version, whatever order the worker uses.
    let () = conn.hset(&metas[1], "wire", 99).await.unwrap();
    let mut stored = async || {
        let mut all: Vec<BTreeMap<String, String>> = Vec::new();
        for meta in &metas {
            all.push(conn.hgetall(meta).await.unwrap());
        }
        all
    };
    let before = stored().await;
    let other = TaskOptions::new()
        .retry(RetryPolicy::new().attempts(2))
        .retention(Retention::remove_at_once())
        .stall(StallOptions::new().interval(INTERVAL).max_count(9));
    let refused = worker(other).await.run().await;
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert_eq!(stored().await, before);
}
