//! The largest columns of all tasks.

use std::cmp::Reverse;

use futures_util::future::join_all;
use heartline::inspect::text::chain;
use heartline::{ColumnReport, Error, Inspector};

/// The most tasks that are read.
const TASKS: usize = 100;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

/// The most columns shown.
const SHOWN: usize = 20;

/// The largest columns, and how many of all tasks were read.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) largest: Vec<ColumnReport>,
    pub(crate) looked: usize,
    pub(crate) tasks: usize,
    /// Why a task could not be read.
    pub(crate) fault: Option<String>,
}

impl Sizes {
    /// Reads all tasks. An unreadable one does not hide the others.
    pub(crate) async fn look(inspector: &Inspector) -> Result<Sizes, Error> {
        let mut sizes = Sizes::default();
        let names = inspector.listed_task_names().await?;
        sizes.tasks = names.len();
        for some in names[..names.len().min(TASKS)].chunks(TOGETHER) {
            for columns in join_all(some.iter().map(|task| inspector.columns(task))).await {
                match columns {
                    Ok(columns) => {
                        sizes.largest.extend(columns);
                        sizes.looked += 1;
                    }
                    Err(e) => sizes.fault = Some(chain(&e)),
                }
            }
        }
        sizes.largest.sort_by_key(|column| Reverse(column.bytes));
        sizes.largest.truncate(SHOWN);
        Ok(sizes)
    }
}
