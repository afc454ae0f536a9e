//! What the other workers of a task must speak before this one may work it.

use futures_util::future::try_join_all;

use crate::error::Error;
use crate::process::task::Definition;
use crate::shown::Shown;
use crate::store::declare::{check_wire, wire_of};
use crate::store::engine::Store;
use crate::store::partitions::other_number;
use crate::store::patience::RESPONSE_TIMEOUT;
use crate::store::streams::server_time_ms;

/// The most workers that are looked at, and named.
const MOST: usize = 5000;
const NAMED: usize = 5;

/// How many of them are asked about at the same time.
const TOGETHER: usize = 50;

/// Whether the task may be worked with its options: by what is written of it, and, where they ask for more than that, by what the
/// workers of the task speak that live.
///
/// # Errors
/// `Unsupported` when this version is too old, or one of them is; `Config` when the task has another number of partitions.
pub(super) async fn check(store: &Store, task: &Definition) -> Result<(), Error> {
    let (written, parts) = store.shared(RESPONSE_TIMEOUT, async |conn| check_wire(conn, &task.keys).await).await?;
    if let (Some(wanted), Some(has)) = (task.options.partitions, parts)
        && wanted != has
    {
        return Err(other_number(&task.name, wanted, has));
    }
    store.tables(&task.name).learn(parts.or(task.options.partitions).unwrap_or(1));
    let needed = wire_of(&task.options);
    if written >= needed {
        return Ok(());
    }
    let now = store.shared(RESPONSE_TIMEOUT, async |conn| server_time_ms(conn).await).await?;
    let listed = async |conn: &mut _| store.workers(conn, now, [MOST, 0, 0]).await;
    let listed = store.shared(RESPONSE_TIMEOUT, listed).await?;
    let mut older = Vec::new();
    for some in listed.chunks(TOGETHER) {
        // Together: a round trip may take long.
        let looks = some.iter().map(|(worker, _)| {
            store.shared(RESPONSE_TIMEOUT, async move |conn: &mut _| store.presence(conn, worker).await)
        });
        for ((worker, _), said) in some.iter().zip(try_join_all(looks).await?) {
            let works = said.get("tasks").is_some_and(|names| names.split_whitespace().any(|name| name == &*task.name));
            // A version that does not say what it speaks speaks the first.
            let speaks = said.get("wire").and_then(|wire| wire.parse().ok()).unwrap_or(1);
            if works && !said.contains_key("stoppedAt") && !said.contains_key("deadAt") && speaks < needed {
                older.push(worker.as_str());
            }
        }
    }
    if older.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = older.iter().take(NAMED).map(|worker| Shown(worker).to_string()).collect();
    let (count, named, name) = (older.len(), named.join(", "), &task.name);
    let what = format!(
        "the options of the task {name} need workers that speak version {needed} of the wire format, and {count} of its \
         workers speak an older one ({named}): deploy this version of the crate everywhere first, then the options"
    );
    Err(Error::Unsupported { what })
}
