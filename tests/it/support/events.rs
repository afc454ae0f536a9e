use super::PATIENCE;
use heartline::{Event, RecvError, Subscription};
use std::collections::BTreeMap;

/// The next event; a subscription that lags fails the test.
pub async fn next<T: Clone + Send + 'static>(events: &mut Subscription<T>) -> T {
    tokio::time::timeout(PATIENCE, events.recv()).await.expect("an event comes").expect("no event was missed")
}

/// The names of the events by job, up to the end of the job `last`.
pub async fn events_until(events: &mut Subscription<Event>, last: &str) -> BTreeMap<String, Vec<&'static str>> {
    let mut seen: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let reading = async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    seen.entry(event.id().to_string()).or_default().push(event.name());
                    if event.id().as_str() == last && event.is_terminal() {
                        return;
                    }
                }
                Err(e @ RecvError::Lagged(_)) => panic!("{e}"),
                Err(e) => panic!("{e}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the last job does not end");
    seen
}
