//! Copies of calls that arrive after their worker has gone, as over an old connection that a router delayed.

use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::faults::ground::proxied;
use crate::support::task::{INTERVAL, options};
use crate::support::{PATIENCE, Tap, TestRedis, eventually};

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
    let (redis, test, proxy) = proxied().await;
    let calls = [test.sha("settle").await, test.sha("settle_plain").await].map(|sha| Tap::on(&proxy, sha));
    let worker = test.start_worker_at(&proxy.url(), options(INTERVAL)).await;
    worker.working().await;
    test.journal.open("go");
    let first = worker.jobs.dispatch("go".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, first.result()).await.unwrap().unwrap();
    // The call that reported the job also claims, and has its reply.
    eventually("it looks for more", PATIENCE, async || {
        calls.iter().map(|calls| calls.requests().len()).sum::<usize>() >= 3
    })
    .await;
    worker.stop().await;

    let (_app, jobs) = test.producer().await;
    let job = jobs.dispatch("go".to_owned()).id("later").await.unwrap();
    let expected = ["*1 $6 closed ", "*1 $4 full "];
    let copies = calls
        .iter()
        .zip(expected)
        .flat_map(|(calls, expected)| calls.requests().into_iter().map(move |copy| (copy, expected)));
    for (copy, expected) in copies {
        let copy = &copy;
        let answer = send(&redis, copy).await;
        let mut conn = test.conn().await;
        assert!(
            !conn.hexists::<_, _, bool>(test.key("locks"), "later").await.unwrap(),
            "claimed for a stopped worker: {answer}"
        );
        assert_eq!(answer, expected);
    }
    // A live worker gets the job at once.
    let other = test.start_worker(options(INTERVAL)).await;
    tokio::time::timeout(PATIENCE, job.result()).await.expect("the job does not end").unwrap();
    assert_eq!(test.journal.runs_of("later").len(), 1);
    assert_eq!(test.dump("stalls").await, None);
    other.stop().await;
    test.nothing_is_left_but(2).await;
}
