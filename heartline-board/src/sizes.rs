//! The largest columns of all tasks, looked at now and then for all who ask.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use heartline::{ColumnReport, Inspector};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::pages::told_of;

/// For how long a look stands.
const FRESH: Duration = Duration::from_secs(60);

/// How many tasks are looked at.
const TASKS: usize = 100;

/// How many of them at a time.
const TOGETHER: usize = 20;

/// How many columns are shown.
const SHOWN: usize = 20;

/// The largest columns, and of how many tasks of all they are.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) largest: Vec<ColumnReport>,
    pub(crate) looked: usize,
    pub(crate) tasks: usize,
    /// Why one of them could not be looked at.
    pub(crate) fault: Option<String>,
}

/// The last look, and when it was. Those who come together wait for one.
pub(crate) type LastSizes = Mutex<Option<(Instant, Arc<Sizes>)>>;

impl Sizes {
    /// What the last look saw, or a new one where that is old.
    pub(crate) async fn of(last: &LastSizes, inspector: &Inspector) -> Arc<Sizes> {
        let mut last = last.lock().await;
        if let Some((at, sizes)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return Arc::clone(sizes);
        }
        let sizes = Arc::new(Sizes::look(inspector).await);
        *last = Some((Instant::now(), Arc::clone(&sizes)));
        sizes
    }

    async fn look(inspector: &Inspector) -> Sizes {
        let mut sizes = Sizes::default();
        let names = match inspector.task_names().await {
            Ok(names) => names,
            Err(e) => return Sizes { fault: Some(told_of(&e)), ..sizes },
        };
        sizes.tasks = names.len();
        for some in names[..names.len().min(TASKS)].chunks(TOGETHER) {
            for columns in join_all(some.iter().map(|task| inspector.columns(task))).await {
                match columns {
                    Ok(columns) => {
                        sizes.largest.extend(columns);
                        sizes.looked += 1;
                    }
                    Err(e) => sizes.fault = Some(told_of(&e)),
                }
            }
        }
        sizes.largest.sort_by_key(|column| Reverse(column.bytes));
        sizes.largest.truncate(SHOWN);
        sizes
    }
}
