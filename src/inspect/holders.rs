//! Which workers hold the jobs of a task, according to the locks.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;

use super::Inspector;
use super::page::holder;
use crate::backend::audit;
use crate::error::Error;
use crate::unix_time::{at_ms, ms_since_1970};
use crate::worker_id::WorkerId;

/// The most held jobs that are read.
const LOOKED: usize = 10_000;

/// About how many of them one call reads.
const A_CALL: u64 = 500;

/// Which workers hold the jobs of a task. See [`Inspector::lock_holders`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HolderReport {
    /// The task.
    pub task: String,
    /// The workers that hold jobs, the one with the most first.
    pub holders: Vec<Holder>,
    /// Whether all held jobs were read. If not, the counts are lower bounds, and other workers may hold jobs, too.
    pub is_whole: bool,
}

/// A worker that holds jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The worker. It may be dead.
    pub worker: WorkerId,
    /// How many jobs it holds, including those that it has not begun.
    pub jobs: u64,
    /// When it claimed the first of them.
    #[serde(rename = "first_claimed_at_ms", serialize_with = "ms_since_1970")]
    pub first_claimed_at: SystemTime,
    /// When it claimed the last of them.
    #[serde(rename = "last_claimed_at_ms", serialize_with = "ms_since_1970")]
    pub last_claimed_at: SystemTime,
}

impl Inspector {
    /// Which workers hold the jobs of a task, according to the locks in Redis. A dead worker holds its jobs until they are resolved.
    /// About 10,000 held jobs are read at most.
    pub async fn lock_holders(&self, task: &str) -> Result<HolderReport, Error> {
        let tables = self.tables(task).await?;
        // A scan may name a job twice.
        let (mut tokens, mut is_whole) = (BTreeMap::new(), true);
        for (part, keys) in tables.iter().enumerate() {
            let (mut cursor, most) = (0, LOOKED * (part + 1) / tables.len());
            loop {
                let (next, some) = self.look(async |conn| audit::locks(conn, keys, cursor, A_CALL).await).await?;
                tokens.extend(some);
                cursor = next;
                if cursor == 0 || tokens.len() >= most {
                    is_whole &= cursor == 0;
                    break;
                }
            }
        }
        Ok(HolderReport { task: task.to_owned(), holders: holders(tokens.values()), is_whole })
    }
}

fn holders<'a>(tokens: impl Iterator<Item = &'a String>) -> Vec<Holder> {
    let mut found: BTreeMap<String, Holder> = BTreeMap::new();
    for (worker, fence) in tokens.filter_map(|token| holder(token)) {
        let at = at_ms(fence / 1000);
        let its = found.entry(worker.to_string()).or_insert(Holder {
            worker,
            jobs: 0,
            first_claimed_at: at,
            last_claimed_at: at,
        });
        its.jobs += 1;
        its.first_claimed_at = its.first_claimed_at.min(at);
        its.last_claimed_at = its.last_claimed_at.max(at);
    }
    let mut holders: Vec<Holder> = found.into_values().collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.jobs));
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_holder() {
        let tokens = ["a-1:3000", "b-2:2000", "b-2:5000", "no token"].map(str::to_owned);
        let found: Vec<_> = holders(tokens.iter())
            .into_iter()
            .map(|holder| (holder.worker.to_string(), holder.jobs, holder.first_claimed_at, holder.last_claimed_at))
            .collect();
        assert_eq!(found, [("b-2".to_owned(), 2, at_ms(2), at_ms(5)), ("a-1".to_owned(), 1, at_ms(3), at_ms(3))]);
    }
}
