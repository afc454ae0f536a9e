//! What the other workers of a task must speak before this one may work it.

use crate::error::Error;
use crate::process::task::Definition;
use crate::store::declare::{check_wire, wire_of};
use crate::store::engine::Store;
use crate::store::fleet::named;
use crate::store::partitions::other_number;
use crate::store::patience::RESPONSE_TIMEOUT;

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
    let older = store.older_workers(&task.name, needed).await?;
    if older.is_empty() {
        return Ok(());
    }
    let what = format!("the options of the task {} need {}", task.name, named(&older, needed));
    Err(Error::Unsupported { what })
}
