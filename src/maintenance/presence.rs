//! Tells who works, and forgets workers that are long gone.

use crate::error::Error;
use crate::worker::keeper::Keeper;

/// Announces this worker, and forgets those that were not seen for an hour. Returns how many were forgotten.
pub(crate) async fn run_once(keeper: &Keeper) -> Result<usize, Error> {
    let Some(watch) = keeper.watches.first() else { return Ok(0) };
    let mut fields = keeper.facts.clone();
    let names: Vec<&str> = keeper.watches.iter().map(|watch| &*watch.task.name).collect();
    fields.push(("tasks".to_owned(), names.join(" ")));
    for watch in keeper.watches.iter() {
        fields.push((format!("held:{}", watch.task.name), watch.task.held.len().to_string()));
    }
    let (store, id) = (&keeper.worker.store, keeper.worker.id.as_str());
    let gone = keeper
        .call(watch, async |conn| {
            store.announce(conn, id, &fields).await?;
            store.long_gone(conn).await
        })
        .await?;
    for worker in gone.iter().filter(|worker| worker.as_str() != id) {
        keeper.call(watch, async |conn| store.forget(conn, worker).await).await?;
    }
    Ok(gone.len())
}
