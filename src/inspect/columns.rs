//! How many bytes a task takes in Redis, column by column.

use std::cmp::Reverse;

use serde::Serialize;

use super::Inspector;
use crate::error::Error;
use crate::store::columns;
use crate::store::keys::Key;

/// A key of a task, and what it takes. See [`Inspector::columns`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ColumnReport {
    /// The task.
    pub task: String,
    /// Its name, the last part of the key: `payload`, `completed`, `events`. The wire format tells what is in each.
    pub column: String,
    /// Bytes that it takes, reckoned by Redis from some of its entries.
    pub bytes: u64,
}

impl Inspector {
    /// What each column of a task takes in Redis, the largest first. It costs the same however many jobs there are.
    ///
    /// # Errors
    /// [`Error::Config`] if the name is not valid, [`Error::Denied`] without the right `memory|usage`, and what every call may give, see
    /// [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn columns(&self, task: &str) -> Result<Vec<ColumnReport>, Error> {
        let keys = self.keys(task)?;
        let found = self
            .ask(|mut conn| {
                let keys = keys.clone();
                async move { columns::columns(&mut conn, &keys).await }
            })
            .await?;
        let report =
            |(key, bytes): (Key, u64)| ColumnReport { task: task.to_owned(), column: key.suffix().to_owned(), bytes };
        let mut columns: Vec<ColumnReport> = found.into_iter().map(report).collect();
        columns.sort_by_key(|column| Reverse(column.bytes));
        Ok(columns)
    }
}
