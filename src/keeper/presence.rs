//! Tells who works, and forgets workers that are long gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::HOUSEKEEPING;
use super::Keeper;
use crate::clock::{self, Moment};
use crate::error::Error;
use crate::process::identity;

/// How long this process itself must have seen nothing of a worker. The clock of the server may have jumped by an hour,
/// and then every worker looks long gone until it has announced itself again.
const WATCHED: Duration = Duration::from_secs(60);

/// Tells that the worker is there, whatever else is to be done.
pub(super) async fn run(keeper: Arc<Keeper>) {
    let mut unseen = HashMap::new();
    loop {
        match run_once(&keeper, &mut unseen).await {
            Ok(_) => keeper.answered("presence", 0),
            Err(e) if e.is_outage() => keeper.unanswered("presence", 0, e),
            Err(e) => keeper.log.line(move || tracing::warn!(error = %e.chain(), "presence could not be told")),
        }
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

/// Announces this worker, and forgets those that were not seen for an hour; `unseen` tells since when they look so from
/// here. Returns how many were forgotten.
async fn run_once(keeper: &Keeper, unseen: &mut HashMap<String, Moment>) -> Result<usize, Error> {
    let tasks = keeper.watches.iter().map(|watch| (&*watch.task.name, watch.task.held.len()));
    let fields = identity::presence(&keeper.facts, tasks);
    let (store, id) = (&keeper.worker.store, keeper.worker.id.as_str());
    keeper.housekeeping_call(async |conn| store.announce(conn, id, &fields).await).await?;
    let gone = keeper.housekeeping_call(async |conn| store.long_gone(conn).await).await?;
    let gone = gone.into_iter().filter(|worker| worker != id).collect();
    let forgotten = watched(unseen, gone, clock::now());
    for worker in &forgotten {
        keeper.housekeeping_call(async |conn| store.forget(conn, worker).await).await?;
    }
    Ok(forgotten.len())
}

/// Those of the workers that look long gone that have looked so for long enough.
fn watched(unseen: &mut HashMap<String, Moment>, gone: Vec<String>, now: Moment) -> Vec<String> {
    let since = |worker: &str| unseen.get(worker).copied().unwrap_or(now);
    *unseen = gone.into_iter().map(|worker| (worker.clone(), since(&worker))).collect();
    let long = unseen.iter().filter(|(_, since)| now.since(**since) >= WATCHED);
    long.map(|(worker, _)| worker.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_forgotten_only_when_it_looks_gone_for_a_minute_on_end() {
        let (mut unseen, gone) =
            (HashMap::new(), |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect());
        let start = clock::now();
        let at = |seconds| start.after(Duration::from_secs(seconds));
        // The clock of the server jumped: until they announce themselves again all look gone.
        assert!(watched(&mut unseen, gone(&["live", "dead"]), at(0)).is_empty());
        assert!(watched(&mut unseen, gone(&["dead"]), at(5)).is_empty());
        assert!(watched(&mut unseen, gone(&["live", "dead"]), at(59)).is_empty());
        assert_eq!(watched(&mut unseen, gone(&["live", "dead"]), at(60)), ["dead"]);
        assert!(watched(&mut unseen, gone(&[]), at(65)).is_empty() && unseen.is_empty());
    }
}
