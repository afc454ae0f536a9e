//! The unique keys of a task.

use std::time::SystemTime;

use serde::Serialize;

use super::Inspector;
use super::parts::config;
use crate::backend::jobs;
use crate::backend::tables::part_of;
use crate::backend::unique;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::options::unique::{UniqueMode, stored_key};
use crate::unix_time::{at_ms, ms_since_1970_where_known};

/// A unique key at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UniqueEntry {
    /// Its task.
    pub task: String,
    /// The key as it is stored: a key of over 128 bytes as a hash.
    pub key: String,
    /// The last job that got the key.
    pub job: JobId,
    /// The state of that job. `None` if it was removed.
    pub state: Option<JobState>,
    /// For how long the key is taken.
    pub mode: UniqueMode,
    /// The end of the period, or until when a debounced job may be postponed.
    #[serde(rename = "until_ms", serialize_with = "ms_since_1970_where_known")]
    pub until: Option<SystemTime>,
    /// Whether the key is taken: a dispatch with it writes no second job.
    pub is_taken: bool,
}

impl Inspector {
    /// The entry of a unique key. `None` if no job has or had it, or a worker removed the entry after its job was removed.
    ///
    /// # Errors
    /// [`Error::Config`] if the key is empty.
    pub async fn unique(&self, task: &str, key: &str) -> Result<Option<UniqueEntry>, Error> {
        if key.is_empty() {
            return Err(config("key", "\"\"", "must not be empty", "name the unique key"));
        }
        let (tables, key) = (self.tables(task).await?, stored_key(key));
        let keys = &*tables[part_of(&key, tables.len())];
        let Some(found) = self.look(async |conn| unique::entry(conn, keys, &key).await).await? else { return Ok(None) };
        let ids = [found.id];
        let looked = self.look(async |conn| jobs::states(conn, keys, &ids).await).await?;
        let (now_ms, [job]) = (self.now_ms().await?, ids);
        let state = looked.jobs.into_iter().flatten().next().map(|(state, _)| state);
        let is_pending = |state| matches!(state, JobState::Waiting | JobState::Delayed | JobState::Claimed);
        let is_taken = match found.mode {
            UniqueMode::Done => state.is_some_and(|state| !state.is_terminal()),
            UniqueMode::Started => state.is_some_and(is_pending),
            UniqueMode::Period => now_ms < found.until_ms,
        };
        let until = (found.until_ms > 0).then(|| at_ms(found.until_ms));
        Ok(Some(UniqueEntry { task: task.to_owned(), key, job, state, mode: found.mode, until, is_taken }))
    }
}
