//! Runtimes and references that end while others of the same App continue.

use std::collections::BTreeMap;
use std::time::Duration;

use heartline::{Event, TaskRef};
use tokio::runtime::{Builder, Runtime};

use crate::faults::ground::alone;
use crate::support::{Line, PATIENCE, eventually};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn runtimes_that_end_during_a_connect_leak_no_connections() {
    let (redis, test) = alone();
    let main = runtime();
    let (line, _app, job) = main.block_on(async {
        let line = Line::start(redis.address()).await;
        let app = test.app_at(&line.url()).await;
        let task: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
        let job = task.dispatch("go".to_owned()).await.unwrap();
        (line, app, job)
    });
    line.delay(Duration::from_millis(100));
    // More than the connections for such calls.
    for _ in 0..9 {
        let asks = async { tokio::time::timeout(Duration::from_millis(40), job.state()).await };
        assert!(runtime().block_on(asks).is_err(), "it is over before its runtime ends");
    }
    line.delay(Duration::ZERO);
    main.block_on(eventually("a read is answered", PATIENCE, async || job.state().await.is_ok()));
}

#[tokio::test]
async fn a_task_reference_that_is_recreated_gets_each_event_once() {
    let (redis, test) = alone();
    let app = test.app_at(&redis.url()).await;
    let mut events = app.events();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut hear = async |wait| {
        let event: Event = tokio::time::timeout(wait, events.recv()).await.ok()?.unwrap();
        *seen.entry(event.id().to_string()).or_default() += 1;
        Some((event.id().to_string(), seen.clone()))
    };
    let reference = || -> TaskRef<String, u64> { app.task_ref(&test.name).unwrap() };
    let first = reference();
    first.dispatch("go".to_owned()).id("one").await.unwrap();
    while hear(PATIENCE).await.expect("no event of the first job").0 != "one" {}
    drop(first);
    let again = reference();
    again.dispatch("go".to_owned()).id("two").await.unwrap();
    while hear(PATIENCE).await.expect("no event of the second job").0 != "two" {}
    // For another task the events are read from the last position of each task.
    let other: TaskRef<String, u64> = app.task_ref(&format!("{}-other", test.name)).unwrap();
    for number in 0.. {
        assert!(number < 100, "the other task is not subscribed");
        other.dispatch("go".to_owned()).id(format!("other-{number}")).await.unwrap();
        if hear(Duration::from_millis(300)).await.is_some_and(|(id, _)| id.starts_with("other")) {
            break;
        }
    }
    // An event that arrives twice arrives before this one.
    again.dispatch("go".to_owned()).id("three").await.unwrap();
    let seen = loop {
        let (id, seen) = hear(PATIENCE).await.expect("no event of the third job");
        if id == "three" {
            break seen;
        }
    };
    let counts: Vec<_> = ["one", "two", "three"].map(|id| seen[id]).to_vec();
    assert_eq!(counts, [1; 3], "{seen:?}");
}
