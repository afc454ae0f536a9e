//! Copies of calls that arrive after their worker has gone, as over an old connection that a router delayed.

use redis::{AsyncCommands, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::task::{INTERVAL, TestTask, options};
use crate::support::{PATIENCE, Proxy, Tap, TestRedis, dump, eventually, settle_args};

/// Sends the bytes as they are; returns the reply with its line ends as spaces.
async fn send(redis: &TestRedis, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(redis.address()).await.unwrap();
    // The second reply shows that the first is complete.
    stream.write_all(request).await.unwrap();
    stream.write_all(b"*2\r\n$4\r\nECHO\r\n$11\r\nend-of-copy\r\n").await.unwrap();
    let mut answer = String::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while !answer.contains("end-of-copy") {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the server hung up: {answer}");
            answer.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("no answer");
    answer.split_once("$11\r\nend-of-copy").unwrap().0.replace("\r\n", " ")
}

#[tokio::test]
async fn a_repeated_claim_of_a_stopped_worker_gets_nothing() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let proxy = Proxy::start(redis.address()).await;
    let settles = Tap::on(&proxy, test.sha("settle").await);
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    worker.working().await;
    test.journal.open("go");
    let first = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, first.result()).await.unwrap().unwrap();
    // The call that reported the job also claims, and has its reply.
    eventually("it looks for more", PATIENCE, async || settles.requests().len() >= 3).await;
    worker.stop().await;

    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("go".to_owned()).id("later").await.unwrap();
    let copies = settles.requests();
    for copy in &copies {
        let answer = send(&redis, copy).await;
        let mut conn = test.conn().await;
        assert!(
            !conn.hexists::<_, _, bool>(test.key("locks"), "later").await.unwrap(),
            "claimed for a stopped worker: {answer}"
        );
        assert_eq!(answer, "*1 $6 closed ");
    }
    // A live worker gets the job at once.
    let other = test.start_worker(options(INTERVAL)).await;
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    assert_eq!(test.journal.runs_of("later").len(), 1);
    assert_eq!(test.dump("stalls").await, None);
    other.stop().await;
    test.nothing_is_left_but(2).await;
}

#[tokio::test]
async fn a_call_on_a_closed_line_fails_and_writes_nothing() {
    let redis = TestRedis::start();
    let test = TestTask::on(&redis);
    let (_app, jobs) = test.producer().await;
    jobs.dispatch("go".to_owned()).id("waits").await.unwrap();
    let mut conn = test.conn().await;
    let () = conn.hset_multiple(test.key("replies"), &[("gone", "closed"), ("gone/2", "closed")]).await.unwrap();
    let () = conn.hset(test.key("locks"), "held", "gone:7").await.unwrap();
    let () = conn.sadd(test.key("active"), "held").await.unwrap();
    let settle = heartline::_internals::scripts().into_iter().find(|script| script.name == "settle").unwrap();
    let keys: Vec<String> = settle.keys.iter().map(|key| test.key(key)).collect();
    let before = dump(&mut conn, "").await;
    for call in ["1", "99", "1/2"] {
        // A claim, and an outcome that the worker should have reported earlier.
        for args in [&["1", "0", "0"][..], &["0", "1", "0", "held", "7"]] {
            let mut cmd = redis::cmd("EVAL");
            let args = settle_args(&[&[call, "gone", "1000"], args].concat());
            cmd.arg(settle.source).arg(keys.len()).arg(&keys).arg(&args);
            let answer: Value = cmd.query_async(&mut conn).await.unwrap();
            assert_eq!(redis::from_redis_value::<Vec<String>>(answer).unwrap(), ["closed"], "{call} {args:?}");
        }
    }
    assert_eq!(dump(&mut conn, "").await, before);
}
