//! The unique keys of a task: reads one, and removes those of jobs that are gone (`lua/trim_unique.lua`).

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::Result;
use crate::job::id::JobId;
use crate::limits::{MIN_AGE_MS, stored_number};
use crate::options::unique::UniqueMode;

/// The entry of a unique key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredUnique {
    pub(crate) id: JobId,
    pub(crate) mode: UniqueMode,
    /// The end of the period, or until when a debounced job may be postponed; 0 for none.
    pub(crate) until_ms: u64,
}

impl StoredUnique {
    /// Reads an entry; `None` if it is unreadable.
    fn from_wire(text: &str) -> Option<StoredUnique> {
        let mut words = text.split(' ');
        let (id, mode, until) = (words.next()?, words.next()?, words.next()?);
        Some(StoredUnique { id: JobId::from_wire(id), mode: mode.parse().ok()?, until_ms: stored_number(until)? })
    }
}

/// The entry of a key, as it is stored; `None` if there is none.
pub(crate) async fn entry(conn: &mut impl Connection, keys: &TaskKeys, key: &str) -> Result<Option<StoredUnique>> {
    let text: Option<Text> = redis::cmd("HGET").arg(keys.get(Key::Unique)).arg(key).call(conn, "unique").await?;
    Ok(text.and_then(|Text(text)| StoredUnique::from_wire(&text)))
}

/// Removes keys of jobs that are gone, among about `count` jobs. The cursor is 0 at the beginning and at the end. Returns
/// the next cursor, and how many jobs were read and removed.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    cursor: u64,
    count: usize,
) -> Result<(u64, usize, usize)> {
    let mut reply = scripts::TRIM_UNIQUE.on(keys).arg(cursor).arg(count).arg(MIN_AGE_MS).answer(conn).await?;
    let next: String = reply.next()?;
    Ok((next.parse().unwrap_or(0), reply.next()?, reply.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_from_its_words() {
        let entry = StoredUnique::from_wire("a period 9 5 a new - b replaced a").unwrap();
        assert_eq!((entry.id.as_str(), entry.mode, entry.until_ms), ("a", UniqueMode::Period, 9));
        for damaged in ["", "a", "a done", "a weekly 9 5", "a done soon 5"] {
            assert_eq!(StoredUnique::from_wire(damaged), None, "{damaged}");
        }
    }
}
