//! A server that refuses calls: the worker logs the start and the end of that.

use heartline::testing::RedisServer;

use crate::faults::ground::alone;
use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::{PATIENCE, TestRedis, Warnings, eventually};

#[tokio::test]
async fn a_full_disk_is_logged_at_its_start_and_at_its_end() {
    let warnings = Warnings::capture();
    let server = RedisServer::builder().start().unwrap();
    let disk = server.dir().to_owned();
    let redis = TestRedis::from_process(server);
    let test = TestTask::on(&redis);
    let worker = test.start_worker(options(INTERVAL)).await;
    let conn = test.conn().await;
    let ask = async |words: &str| -> redis::RedisResult<String> {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap());
        cmd.arg(words.collect::<Vec<_>>()).query_async(&mut conn.clone()).await
    };
    let count = |parts: &[&str]| {
        let lines = warnings.lines();
        lines.iter().filter(|line| line.contains(&worker.id) && parts.iter().all(|part| line.contains(part))).count()
    };

    // From the first snapshot that fails the server refuses writes, if it makes snapshots.
    let mut save = redis::cmd("CONFIG");
    save.arg("SET").arg("save").arg("3600 1000").exec_async(&mut conn.clone()).await.unwrap();
    std::fs::remove_dir_all(disk).unwrap();
    eventually("it refuses writes", PATIENCE, async || {
        let _ = ask("BGSAVE").await;
        ask("SET x 1").await.is_err_and(|e| e.code() == Some("MISCONF"))
    })
    .await;
    let called = async || -> u64 {
        let told = ask("INFO commandstats").await.unwrap();
        let (_, told) = told.split_once("cmdstat_evalsha:calls=").unwrap();
        told.split(',').next().unwrap().parse().unwrap()
    };
    let before = called().await;
    eventually("scripts are called again and again", PATIENCE, async || called().await >= before + 30).await;
    assert_eq!(count(&["WARN", "redis refuses a call", "MISCONF"]), 1, "{:#?}", warnings.lines());

    ask("CONFIG SET stop-writes-on-bgsave-error no").await.unwrap();
    warnings.wait_for(&["INFO", &worker.id, "redis accepts the call again"], PATIENCE).await;
    test.journal.open("go");
    let jobs = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    jobs.result().await.unwrap();
    assert_eq!((count(&["WARN"]), count(&["redis accepts the call again"])), (1, 1), "{:#?}", warnings.lines());
    worker.stop().await;
}

#[tokio::test]
async fn connections_closed_once_are_not_an_outage() {
    let warnings = Warnings::capture();
    let (_redis, test) = alone();
    let worker = test.start_worker(options(INTERVAL)).await;
    let mut asks = test.conn().await;
    let are_open = async || {
        let open: String = redis::cmd("CLIENT").arg(&["LIST", "TYPE", "normal"]).query_async(&mut asks).await.unwrap();
        // One of them asks.
        open.lines().count() > 3
    };
    eventually("its connections are open", PATIENCE, are_open).await;
    let killed: u64 = {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes")
            .query_async(&mut test.conn().await)
            .await
            .unwrap()
    };
    assert!(killed >= 3, "{killed}");
    test.journal.open("go");
    let job = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the worker does not come back").unwrap();
    test.epochs_pass(2).await;
    let told = warnings.lines().into_iter().filter(|line| line.contains(&worker.id)).collect::<Vec<_>>();
    assert!(!told.iter().any(|line| line.contains("redis does not answer")), "{told:#?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_command_that_the_server_lacks_is_logged_once() {
    let warnings = Warnings::capture();
    let lacks = |server: heartline::testing::RedisServerBuilder, command: &str| {
        server.arg("--rename-command").arg(command).arg("")
    };
    let server = lacks(lacks(RedisServer::builder(), "BZPOPMIN"), "SUBSCRIBE").start().unwrap();
    let redis = TestRedis::from_process(server);
    let test = TestTask::on(&redis);
    let worker = test.start_worker(options(INTERVAL)).await;
    for (part, command) in [("wake", "BZPOPMIN"), ("hints", "subscribe")] {
        let line = warnings.wait_for(&["ERROR", &worker.id, &format!("part={part} "), "refuses"], PATIENCE).await;
        assert!(line.to_lowercase().contains(&command.to_lowercase()), "{line}");
    }
    // The worker runs jobs nevertheless.
    test.journal.open("go");
    let job = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the worker does not look for work").unwrap();
    let told = warnings.all().into_iter().filter(|line| line.contains(&worker.id)).collect::<Vec<_>>();
    assert_eq!(told.len(), 2, "{told:#?}");
    worker.stop().await;
}
