//! `lua/history.lua`: looks for a job in the entries of a stream.

use redis::Value;

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use super::streams::{Entry, entry};
use crate::error::Error;

/// Looks at up to `look` entries behind `after`, up to `until`, for those that name the word. Returns them, and the id of the
/// last entry that was looked at; `None` when there are no more.
pub(crate) async fn history(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    stream: Key,
    word: &str,
    (after, until): (&str, &str),
    look: usize,
) -> Result<(Vec<Entry>, Option<String>), Error> {
    let mut reply =
        scripts::HISTORY.on_place(keys, stream).arg(word).arg(after).arg(until).arg(look).call(conn).await?;
    let _: String = reply.next()?;
    let Text(last) = reply.next()?;
    let found: Vec<Value> = reply.next()?;
    Ok((found.into_iter().filter_map(entry).collect(), Some(last).filter(|last| !last.is_empty())))
}
