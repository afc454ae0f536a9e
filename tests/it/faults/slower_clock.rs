//! A failover to a server with an earlier clock: new entries of a stream have lower ids than those already read.

use std::time::Duration;

use heartline::{Event, RecvError, Subscription, TaskRef};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::faults::ground::proxied;
use crate::support::PATIENCE;
use crate::support::task::TestTask;

/// The stream of a task on the server with the earlier clock.
struct Behind {
    conn: MultiplexedConnection,
    key: String,
    ms: u64,
    total: u64,
}

impl Behind {
    /// Replaces the stream by its current content, with a clock ten minutes earlier. Unreplicated entries are lost.
    async fn takes_over(test: &TestTask) -> Behind {
        let (mut conn, key) = (test.conn().await, test.key("events"));
        let entries: redis::streams::StreamRangeReply = conn.xrange_all(&key).await.unwrap();
        let last = entries.ids.last().unwrap();
        let (ms, _) = last.id.split_once('-').unwrap();
        let total = last.get("total").unwrap();
        let () = conn.del(&key).await.unwrap();
        Behind { conn, key, ms: ms.parse::<u64>().unwrap() - 600_000, total }
    }

    /// Adds the entry of a dispatch of this job.
    async fn adds(&mut self, job: &str) {
        self.ms += 1;
        self.total += 1;
        let mut cmd = redis::cmd("XADD");
        cmd.arg(&self.key).arg(format!("{}-0", self.ms)).arg("total").arg(self.total).arg("worker").arg("");
        let _: String = cmd.arg("dispatched").arg(job).query_async(&mut self.conn).await.unwrap();
    }
}

/// What the subscriber gets next, within a moment.
async fn next(events: &mut Subscription<Event>) -> Option<Result<String, RecvError>> {
    let told = tokio::time::timeout(Duration::from_millis(300), events.recv()).await.ok()?;
    Some(told.map(|event| event.id().to_string()))
}

#[tokio::test]
async fn a_subscriber_gets_a_gap_when_stream_ids_become_lower() {
    let (_redis, test, proxy) = proxied().await;
    let app = test.app_at(&proxy.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let mut events = app.events();
    for id in ["one", "two", "three"] {
        jobs.dispatch("input".to_owned()).id(id).await.unwrap();
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("no event comes").unwrap();
        assert_eq!(event.id().as_str(), id);
    }

    proxy.refuse().await;
    let mut behind = Behind::takes_over(&test).await;
    for job in ["missed-1", "missed-2", "missed-3"] {
        behind.adds(job).await;
    }
    proxy.accept().await;

    // Some events may arrive, and the others are counted; later ones arrive.
    let (mut told, mut fresh) = (Vec::<Result<String, RecvError>>::new(), 0);
    let given = tokio::time::Instant::now();
    while !told.iter().any(|event| matches!(event, Ok(id) if id.starts_with("fresh-"))) {
        assert!(given.elapsed() < PATIENCE, "silence, after {fresh} more events: {told:?}");
        match next(&mut events).await {
            Some(event) => told.push(event),
            None => {
                fresh += 1;
                behind.adds(&format!("fresh-{fresh}")).await;
            }
        }
    }
    assert!(told.iter().any(|event| matches!(event, Err(RecvError::Lagged(_)))), "the gap was not reported: {told:?}");
    // From there on no event is missing.
    let Some(Ok(last)) = told.pop() else { panic!("{told:?}") };
    let heard: u64 = last.strip_prefix("fresh-").unwrap().parse().unwrap();
    behind.adds("last").await;
    let mut expected: Vec<String> = (heard + 1..=fresh).map(|at| format!("fresh-{at}")).collect();
    expected.push("last".to_owned());
    for id in expected {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("an event does not come").unwrap();
        assert_eq!(event.id().as_str(), id);
    }
}

#[tokio::test]
async fn a_quiet_subscriber_gets_a_gap_when_stream_ids_become_lower() {
    let (_redis, test, proxy) = proxied().await;
    let app = test.app_at(&proxy.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    jobs.dispatch("input".to_owned()).id("before").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut events = app.events();
    // It reads, and there is nothing to read.
    assert_eq!(next(&mut events).await, None);
    proxy.refuse().await;
    let mut behind = Behind::takes_over(&test).await;
    behind.adds("missed").await;
    proxy.accept().await;
    // With the next event it learns what it missed.
    let mut told = None;
    for at in 0..100 {
        behind.adds(&format!("heard-{at}")).await;
        told = next(&mut events).await;
        if told.is_some() {
            break;
        }
    }
    assert!(matches!(told, Some(Err(RecvError::Lagged(_)))), "{told:?}");
    let told = tokio::time::timeout(PATIENCE, events.recv()).await.expect("silence").unwrap();
    assert!(told.id().as_str().starts_with("heard-"));
}
