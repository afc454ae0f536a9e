//! The memory of a task in Redis, by column.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::Inspector;
use crate::backend::overview;
use crate::error::Error;
use crate::join::try_join_all;

/// The memory of one column of a task. See [`Inspector::columns`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ColumnReport {
    /// The task.
    pub task: String,
    /// The last part of the key: `payload`, `completed`, `events`. The wire format describes each.
    pub column: String,
    /// Its size in bytes, estimated by Redis from some of its entries.
    pub bytes: u64,
}

impl Inspector {
    /// The memory of each column of a task in Redis, the largest first. The cost does not depend on the number of jobs.
    ///
    /// # Errors
    /// [`Error::Denied`] without the permission `memory|usage`.
    pub async fn columns(&self, task: &str) -> Result<Vec<ColumnReport>, Error> {
        let tables = self.tables(task).await?;
        let looks = tables.iter().map(|keys| self.ask(async move |conn| overview::key_sizes(conn, keys).await));
        let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (key, bytes) in try_join_all(looks).await?.into_iter().flatten() {
            *sums.entry(key.suffix()).or_default() += bytes;
        }
        let report =
            |(column, bytes): (&str, u64)| ColumnReport { task: task.to_owned(), column: column.to_owned(), bytes };
        let mut columns: Vec<ColumnReport> = sums.into_iter().map(report).collect();
        columns.sort_by_key(|column| Reverse(column.bytes));
        Ok(columns)
    }
}
