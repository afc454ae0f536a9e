//! `lua/partitions.lua`: how many partitions a task has.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, OwnConnection};
use super::declare::WIRE_VERSION;
use super::engine::Store;
use super::keys::{Key, TaskKeys};
use super::reply::PlainCall;
use super::scripts;
use super::tables::Tables;
use super::timeouts::RESPONSE_TIMEOUT;
use crate::config_error::{ConfigError, ConfigErrors};
use crate::error::{Error, Result};

/// For how long a known number of partitions is not read again.
const FRESH: Duration = Duration::from_secs(5);

impl Tables {
    /// Reads the number of partitions.
    pub(crate) async fn refresh(&self, store: &Store) -> Result<()> {
        let first = &self.first();
        let count = store.ask(RESPONSE_TIMEOUT, |mut conn| async move { count(&mut conn, first).await }).await?;
        self.learn(count);
        Ok(())
    }

    /// Reads the number over this connection, if the known number is old.
    pub(crate) async fn refresh_over(&self, conn: &mut OwnConnection) -> Result<()> {
        if self.is_old() {
            self.learn(count(conn, &self.first()).await?);
        }
        Ok(())
    }

    /// Whether the number was read some seconds ago, or never.
    pub(crate) fn is_old(&self) -> bool {
        // A number above 1 changes only if the task is forgotten.
        let fresh = if self.parts() > 1 { 12 * FRESH } else { FRESH };
        self.asked_at().is_none_or(|at| at.elapsed() > fresh)
    }

    /// All tables of the task. Reads their number if the known one is old.
    pub(crate) async fn asked(&self, store: &Store) -> Result<Arc<[Arc<TaskKeys>]>> {
        if self.is_old() {
            match self.refresh(store).await {
                // A known number above 1 stays valid while the node of the first partition is unreachable.
                Err(e) if e.is_outage() && self.parts() > 1 => {}
                answer => answer?,
            }
        }
        Ok(self.all())
    }

    /// Sets the number of partitions, if nothing of the task was declared or dispatched yet.
    ///
    /// # Errors
    /// `Config` if it has another number.
    pub(crate) async fn claim(&self, store: &Store, count: u32) -> Result<()> {
        let first = self.first();
        let has = store.shared(RESPONSE_TIMEOUT, async |conn| partitions(conn, &first, count).await).await?;
        self.learn(has);
        if has == count { Ok(()) } else { Err(other_number(first.task(), count, has)) }
    }
}

/// Reads the number of partitions from the first one.
async fn count(conn: &mut impl Connection, first: &TaskKeys) -> Result<u32> {
    let key = first.get(Key::Meta);
    let count: Option<u32> = redis::cmd("HGET").arg(key).arg("partitions").call(conn, "partitions").await?;
    Ok(count.unwrap_or(1))
}

/// Sets the number of partitions if the task has no keys yet. Returns the number in force.
async fn partitions(conn: &mut impl Connection, keys: &TaskKeys, count: u32) -> Result<u32> {
    scripts::PARTITIONS.on(keys).arg(WIRE_VERSION).arg(count).answer(conn).await?.next()
}

/// The error for options that set another number of partitions than the task has.
pub(crate) fn other_number(task: &str, wanted: u32, has: u32) -> Error {
    let fix = "leave the option out to use that number; to change it, end all jobs, stop workers and producers, forget \
               the task (`heartline task forget`), and declare it again";
    let rule = format!("must be {has}, the number that was set when the task {task} was first used");
    Error::Config(ConfigErrors::from(ConfigError::new("partitions", wanted.to_string(), rule, fix)))
}
