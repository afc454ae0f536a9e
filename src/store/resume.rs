//! `lua/resume.lua`: ends the pause of a task.

use std::time::Duration;

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;

/// Ends the pause. Returns how long it lasted; `None` when the task was not paused.
pub(crate) async fn resume(conn: &mut impl Connection, keys: &TaskKeys, by: &str) -> Result<Option<Duration>, Error> {
    let mut reply = scripts::RESUME.on(keys).arg(by).call(conn).await?;
    if reply.next::<String>()? == "already" {
        return Ok(None);
    }
    Ok(Some(Duration::from_millis(reply.next()?)))
}
