//! A user of the server that lacks one right.

use std::sync::Arc;
use std::time::Duration;

use heartline::{Context, Error, JobError};

use crate::faults::ground::alone;
use crate::support::journal::Journal;
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::{PATIENCE, TestRedis, Warnings, eventually, stat};

#[tokio::test]
async fn a_worker_without_the_right_to_block_polls_and_logs_it_once() {
    let warnings = Warnings::capture();
    let (redis, test) = alone();
    let (mut conn, url) = bounded(&test, &redis, &["bzpopmin"]).await;
    let (_app, jobs) = test.producer().await;

    let before = stat(&mut conn, "total_connections_received").await;
    let worker = test.start_worker_at(&url, options(INTERVAL)).await;
    // It is idle this long, and has no reason to connect.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let connections = stat(&mut conn, "total_connections_received").await - before;
    assert!(connections <= 15, "{connections} connections in 3 s: its own, and about ten others at most");

    test.journal.open("go");
    let job = jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("no worker looks for jobs").unwrap();
    let is_told = |line: &String| line.contains(&*worker.id) && line.to_lowercase().contains("bzpopmin");
    let told: Vec<_> = warnings.all().into_iter().filter(is_told).collect();
    assert!(told.len() == 1 && told[0].starts_with("ERROR "), "{told:?}");
    worker.stop().await;
}

/// A user of the server that has all rights but these, on its own connection.
async fn bounded(test: &TestTask, redis: &TestRedis, lacks: &[&str]) -> (redis::aio::MultiplexedConnection, String) {
    let mut conn = test.conn().await;
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("bounded").arg("on").arg(">secret").arg("~*").arg("&*").arg("+@all");
    let rights: Vec<String> = lacks.iter().map(|right| format!("-{right}")).collect();
    let () = acl.arg(rights).query_async(&mut conn).await.unwrap();
    (conn, redis.url().replace("redis://", "redis://bounded:secret@"))
}

/// Redis 7.0 and later report the rights of a user; older servers are not asked.
async fn reports_rights(test: &TestTask) -> bool {
    let mut info = redis::cmd("INFO");
    let info: redis::InfoDict = info.arg("server").query_async(&mut test.conn().await).await.unwrap();
    let version: String = info.get("redis_version").unwrap();
    version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7
}

#[tokio::test]
async fn a_worker_without_a_right_to_write_does_not_start() {
    let (redis, test) = alone();
    if !reports_rights(&test).await {
        return;
    }
    for command in ["lpush", "rpush", "hincrby", "sadd", "zadd", "rename", "ltrim"] {
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg("bounded").arg("on").arg(">secret").arg("resetkeys").arg("~*").arg("&*");
        let () = acl.arg("+@all").arg(format!("-{command}")).query_async(&mut test.conn().await).await.unwrap();
        let url = redis.url().replace("redis://", "redis://bounded:secret@");
        let mut worker = test.start_worker_at(&url, options(INTERVAL)).await;
        let ended = worker.ends().await;
        let Err(Error::Unsupported { what }) = ended else { panic!("{ended:?}") };
        assert!(what.contains(&command.to_uppercase()), "{what}");
    }
}

#[tokio::test]
async fn a_dispatch_that_is_denied_midway_writes_nothing() {
    let (redis, test) = alone();
    let (mut conn, url) = bounded(&test, &redis, &["zadd"]).await;
    let app = test.app_at(&url).await;
    let jobs = app.task_ref::<String, u64>(&test.name).unwrap();
    let dispatch = || jobs.dispatch("go".to_owned()).id("later").delay(Duration::from_millis(1));
    dispatch().await.unwrap_err();
    set_right(&mut conn, "+zadd").await;
    let job = dispatch().await.unwrap();
    assert_eq!(job.existed(), Some(false), "it counted as written");
    test.journal.open("go");
    let worker = test.start_worker(options(INTERVAL)).await;
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not run").unwrap();
    eventually("it is alone", PATIENCE, async || jobs.counts().await.unwrap().completed == 1).await;
    worker.stop().await;
}

/// Removes or restores a right of a user of the server.
async fn set_right(conn: &mut redis::aio::MultiplexedConnection, right: &str) {
    let mut acl = redis::cmd("ACL");
    let () = acl.arg("SETUSER").arg("bounded").arg(right).query_async(conn).await.unwrap();
}

#[tokio::test]
async fn a_right_revoked_at_run_time_costs_only_the_calls_under_way() {
    let (redis, test) = alone();
    if !reports_rights(&test).await {
        return;
    }
    let (mut conn, url) = bounded(&test, &redis, &[]).await;
    let (_app, jobs) = test.producer().await;
    let all = jobs.dispatch_many((0..2_000).map(|at| at.to_string())).await.unwrap();
    let handler = |_: Arc<Journal>, _: Context, _: String| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok::<u64, JobError>(1)
    };
    let worker = test.start_worker_with(&url, options(INTERVAL).concurrency(20), handler).await;
    eventually("it works", PATIENCE, async || jobs.counts().await.unwrap().completed > 100).await;
    set_right(&mut conn, "-hset").await;
    // A worker would repeat its calls several times in that time, each with other jobs.
    let before = jobs.counts().await.unwrap();
    tokio::time::sleep(INTERVAL * 2).await;
    let counts = jobs.counts().await.unwrap();
    assert_eq!(counts.completed, before.completed, "nothing is written without the right");
    set_right(&mut conn, "+hset").await;
    eventually("the rest is done", PATIENCE, async || {
        let counts = jobs.counts().await.unwrap();
        counts.waiting + counts.held_total() == 0
    })
    .await;
    let counts = jobs.counts().await.unwrap();
    let nowhere = all.len() as u64 - counts.completed - counts.failed;
    // The two calls that were under way when the right was removed.
    assert!(nowhere <= 2 * 20, "{nowhere} are nowhere: {counts:?}");
    worker.stop().await;
}

#[tokio::test]
async fn jobs_of_a_dead_worker_stay_until_a_worker_has_the_rights() {
    let (redis, test) = alone();
    if !reports_rights(&test).await {
        return;
    }
    let (mut conn, url) = bounded(&test, &redis, &[]).await;
    let (_app, jobs) = test.producer().await;
    let dead = test.start_mortal_worker(&redis, options(INTERVAL).concurrency(50)).await;
    let all = jobs.dispatch_many((0..50).map(|at| at.to_string())).await.unwrap();
    eventually("it holds them all", PATIENCE, async || jobs.counts().await.unwrap().running == 50).await;
    let worker = test.start_worker_at(&url, options(INTERVAL).concurrency(50)).await;
    worker.working().await;
    for right in ["lpush", "hincrby", "xadd"] {
        set_right(&mut conn, &format!("-{right}")).await;
    }
    dead.dies().await;
    tokio::time::sleep(INTERVAL * 5).await;
    assert_eq!(jobs.counts().await.unwrap().running, 50, "they were taken and are in no place");
    for right in ["lpush", "hincrby", "xadd"] {
        set_right(&mut conn, &format!("+{right}")).await;
    }
    for at in 0..50 {
        test.journal.open(&at.to_string());
    }
    for job in &all {
        tokio::time::timeout(PATIENCE, job.result()).await.expect("it is lost").unwrap();
    }
    worker.stop().await;
}
