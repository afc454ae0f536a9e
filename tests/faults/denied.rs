//! A user of the server who may do all but one thing.

use std::time::Duration;

use crate::site::{INTERVAL, Site, options};
use crate::support::{PATIENCE, TestRedis, Warnings, stat};

#[tokio::test]
async fn a_worker_that_may_not_block_for_work_looks_for_it_now_and_then_and_says_so_once() {
    let warnings = Warnings::capture();
    let redis = TestRedis::start();
    let site = Site::new(&redis);
    let mut conn = site.conn().await;
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER").arg("bounded").arg("on").arg(">secret").arg("~*").arg("&*").arg("+@all").arg("-bzpopmin");
    let () = acl.query_async(&mut conn).await.unwrap();
    let url = redis.url().replace("redis://", "redis://bounded:secret@");
    let (_app, jobs) = site.producer().await;

    let before = stat(&mut conn, "total_connections_received").await;
    let worker = site.hire_at(&url, options(INTERVAL)).await;
    // So long it is idle, and has nothing to connect for.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let connections = stat(&mut conn, "total_connections_received").await - before;
    assert!(connections <= 15, "{connections} connections in 3 s: its own, and about ten others at most");

    site.journal.open("go");
    let job = jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("nobody looks for work").unwrap();
    let told = warnings.all().into_iter().filter(|line| line.to_lowercase().contains("bzpopmin")).collect::<Vec<_>>();
    assert!(told.len() == 1 && told[0].starts_with("ERROR "), "{told:?}");
    worker.leave().await;
}
