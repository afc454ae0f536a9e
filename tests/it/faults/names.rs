//! Task names from outside, which must leave nothing in memory.

use heartline::TaskRef;

use crate::faults::ground::proxied;
use crate::support::{PATIENCE, Tap, eventually};

#[tokio::test]
async fn thousands_of_unused_task_names_cost_no_memory_and_no_reads() {
    const NAMES: usize = 8_000;
    let (_redis, test, proxy) = proxied().await;
    let reads = Tap::on(&proxy, "XREAD");
    let app = test.app_at(&proxy.url()).await;
    let jobs: TaskRef<String, u64> = app.task_ref(&test.name).unwrap();
    let mut events = app.events();

    for at in 0..NAMES {
        let looked_at: TaskRef<String, u64> = app.task_ref(&format!("looked-at-{at}")).unwrap();
        assert_eq!(looked_at.name(), format!("looked-at-{at}"));
    }
    let shown = format!("{app:?}");
    assert!(shown.contains(&test.name), "{shown}");
    assert_eq!(shown.matches("looked-at-").count(), 0, "the App stores them all");

    // The reader gets the event of a job, and then continues.
    let job = jobs.dispatch("input".to_owned()).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("no event comes").unwrap();
    assert_eq!(event.id(), job.id());
    let before = reads.requests().len();
    jobs.dispatch("input".to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, events.recv()).await.expect("no event comes").unwrap();
    eventually("it continues to read", PATIENCE, async || reads.requests().len() > before).await;
    let last = String::from_utf8(reads.requests().pop().unwrap()).unwrap();
    assert!(last.contains(&test.key("events")), "{last}");
    assert_eq!(last.matches("}:events").count(), 1, "it reads the streams of dropped names");

    // A name is subscribed as long as a reference exists, even if it was dropped before.
    let again: TaskRef<String, u64> = app.task_ref("looked-at-7").unwrap();
    let late = again.dispatch("input".to_owned()).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("no event comes").unwrap();
    assert_eq!((event.task(), event.id()), ("looked-at-7", late.id()));
}
