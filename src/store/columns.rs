//! How many bytes each key of a task takes: `MEMORY USAGE`, which looks at some of a key's entries, however many it has.

use super::connection::Connection;
use super::fault::classify;
use super::keys::{Key, TaskKeys};
use crate::error::Error;

/// The keys of the task that are there, each with its bytes.
pub(crate) async fn columns(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Vec<(Key, u64)>, Error> {
    let mut ask = redis::pipe();
    for key in Key::ALL {
        ask.cmd("MEMORY").arg("USAGE").arg(keys.get(key));
    }
    let bytes: Vec<Option<u64>> = ask.query_async(conn).await.map_err(|e| classify("memory usage", e))?;
    Ok(Key::ALL.into_iter().zip(bytes).filter_map(|(key, bytes)| Some((key, bytes?))).collect())
}
