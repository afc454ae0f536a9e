//! The channel on which keepers receive cancel hints.

use super::classify::classify;
use super::connection::OwnConnection;
use super::timeouts::RESPONSE_TIMEOUT;
use crate::error::{Error, Result};

/// The channel and the text of a message.
pub(super) fn hint_of(data: Vec<redis::Value>) -> Option<(String, String)> {
    let mut words = data.into_iter().map(|word| match word {
        redis::Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        redis::Value::SimpleString(text) => Some(text),
        _ => None,
    });
    Some((words.next()??, words.next()??))
}

/// Checks that the server of a connection for hints still answers.
pub(crate) async fn ping(conn: &mut OwnConnection) -> Result<()> {
    let ping = redis::cmd("PING");
    let answer = tokio::time::timeout(RESPONSE_TIMEOUT, ping.query_async::<redis::Value>(conn)).await;
    answer.map_err(|_| Error::timed_out())?.map(drop).map_err(|e| classify("cancel hints", e))
}
