//! Reads values that are too large to come with others, each on a separate connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::engine::Store;
use super::keys::TaskKeys;
use super::narrow::Closings;
use super::replicated;
use super::timeouts::{doubled, response_time};
use super::values::{self, ValuePlace};
use crate::error::Error;

/// The pause between two tries to read a large value.
pub(crate) const READ_AGAIN: Duration = Duration::from_secs(1);

/// Why a value was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The server closes the connection each time it sends the value.
    TooLarge(Error),
    Failed(Error),
}

/// Reads a large value; `None` if it does not exist. Tries again while the server answers, but not its value.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn read(store: &Store, keys: &TaskKeys, place: &ValuePlace) -> Result<Option<Vec<u8>>, Unread> {
    let (mut timeout, mut closings) = (response_time(place.bytes), Closings::default());
    loop {
        let (keys, column, key) = (keys.clone(), place.column, place.field.clone());
        let connected = Arc::new(AtomicBool::new(false));
        let connects = Arc::clone(&connected);
        let read = move |conn| async move {
            let mut conn = replicated::answering(&conn, &keys).await?;
            connects.store(true, Ordering::SeqCst);
            values::value(&mut conn, &keys, column, &key).await
        };
        let e = match store.read_apart(timeout, read).await {
            Ok(value) => return Ok(value),
            Err(e) => e,
        };
        if !e.is_outage() || !connected.load(Ordering::SeqCst) {
            return Err(Unread::Failed(e));
        }
        if closings.failed(e.is_broken() && !e.is_late()) {
            return Err(Unread::TooLarge(e));
        }
        if e.is_late() {
            timeout = doubled(timeout);
        }
        let ValuePlace { field, bytes, .. } = place;
        tracing::debug!(key = column.suffix(), field, bytes, error = %e.chain(), "a large value cannot be read; will retry");
        tokio::time::sleep(READ_AGAIN).await;
    }
}
