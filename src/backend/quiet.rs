//! Asks a worker to claim no more jobs: a mark in its presence, and an entry among the events of its tasks (`lua/quiet.lua`).

use redis::Cmd;

use super::connection::Connection;
use super::engine::Store;
use super::keys::{self, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::Result;
use crate::limits::stored_number;

/// The field of a presence with the mark.
pub(crate) const QUIET: &str = "quiet";

/// The mark of a worker that is asked to claim no more jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuietMark {
    /// When, ms by the server's clock.
    pub(crate) at_ms: u64,
    /// Who asked.
    pub(crate) by: String,
}

impl QuietMark {
    /// Reads the field: time and name.
    pub(crate) fn from_wire(text: &str) -> QuietMark {
        let (at, by) = text.split_once(' ').unwrap_or((text, ""));
        QuietMark { at_ms: stored_number(at).unwrap_or(0), by: by.to_owned() }
    }
}

impl Store {
    /// Marks the worker as quiet, unless it has a mark. Returns the other mark that it has. It is safe to repeat.
    pub(crate) async fn mark_quiet(
        &self,
        conn: &mut impl Connection,
        worker: &str,
        mark: &QuietMark,
    ) -> Result<Option<QuietMark>> {
        let before = self.quiet_mark(conn, worker).await?;
        if before.is_none() {
            let value = format!("{} {}", mark.at_ms, mark.by);
            Cmd::hset(keys::worker(&self.prefix, worker), QUIET, value).call::<()>(conn, "presence").await?;
        }
        // After a lost reply this is the mark of this call.
        Ok(before.filter(|before| before != mark))
    }

    /// Removes the mark. It is safe to repeat.
    pub(crate) async fn end_quiet(&self, conn: &mut impl Connection, worker: &str) -> Result<()> {
        redis::cmd("HDEL").arg(keys::worker(&self.prefix, worker)).arg(QUIET).call(conn, "presence").await
    }

    pub(crate) async fn quiet_mark(&self, conn: &mut impl Connection, worker: &str) -> Result<Option<QuietMark>> {
        let key = keys::worker(&self.prefix, worker);
        let found: Option<Text> = redis::cmd("HGET").arg(key).arg(QUIET).call(conn, "presence").await?;
        Ok(found.map(|Text(mark)| QuietMark::from_wire(&mark)))
    }

    /// Makes the worker look at its presence now, by a hint on the channel of one of its tasks.
    pub(crate) async fn hint_worker(&self, conn: &mut impl Connection, worker: &str, task: &TaskKeys) -> Result<()> {
        redis::cmd("PUBLISH").arg(task.cancel_channel()).arg(worker).call::<()>(conn, "cancel hints").await
    }
}

/// Adds an entry to the events of a task of the worker.
pub(crate) async fn record(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    by: &str,
    worker: &str,
    is_quiet: bool,
) -> Result<()> {
    let word = if is_quiet { "quiet" } else { "unquiet" };
    scripts::QUIET.on(keys).arg(by).arg(word).arg(worker).answer(conn).await.map(drop)
}
