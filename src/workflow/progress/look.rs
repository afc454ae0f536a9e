//! Makes steps that were not made in time, because a process died or something was unreachable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::WorkflowProgress;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::timeouts::response_time;
use crate::backend::workflow::advance::{Advanced, Ended};
use crate::backend::workflow::outbox::{self, ended, put_jobs_off};
use crate::backend::workflow::start;
use crate::backend::workflow::upkeep;
use crate::error::Error;
use crate::job::id::JobId;
use crate::join::join_all;
use crate::limits::BATCH_BYTES;

/// An instance that did not advance for this long is compared with its jobs.
const UNMOVED: Duration = Duration::from_secs(60);

/// The most rounds of one look; the next look continues.
const ROUNDS: usize = 50;

/// The most calls of one look that remove ended instances, of 500 nodes each. Between two looks, fewer instances of a definition
/// end.
const TRIMS: usize = 400;

impl WorkflowProgress {
    /// Makes every pending step of a workflow at once, and compares all its instances with their jobs.
    pub(crate) async fn recover(&self, name: &str) -> Result<(), Error> {
        let (began, keys) = (Instant::now(), self.store.workflow(name));
        self.place_lost(&keys).await?;
        // Audit before any step: an instance that advanced since this began is skipped.
        while self.audit(&keys, began.elapsed()).await? {}
        self.look(name, Duration::ZERO).await?;
        self.store.call(async |conn: &mut _| self.store.upkeep_done(conn, name).await).await
    }

    /// Makes every pending step of a workflow that is older than the grace.
    pub(crate) async fn look(&self, name: &str, grace: Duration) -> Result<(), Error> {
        let keys = self.store.workflow(name);
        for _ in 0..ROUNDS {
            let look = async |conn: &mut _| outbox::look(conn, &keys, grace).await;
            let (found, more) = self.store.shared(response_time(BATCH_BYTES), look).await?;
            self.send(&keys, found.sends).await;
            for entry in found.entries {
                if let Err(e) = self.carry_out(&keys, &entry).await {
                    tracing::debug!(workflow = name, entry, error = %e.chain(), "a step of a workflow failed; will retry");
                    let entry = [entry];
                    self.store.call(async |conn| outbox::put_off(conn, &keys, &entry).await).await?;
                }
            }
            if !more {
                break;
            }
        }
        let tasks = self.store.call(async |conn| upkeep::tasks(conn, &keys).await).await?;
        // Each task on its own: the node of one may be unreachable.
        let looks = tasks.iter().map(|task| async move {
            if let Err(e) = self.look_at_task(task, grace).await {
                tracing::debug!(task, error = %e.chain(), "the ended jobs of workflows could not be read; will retry");
            }
        });
        join_all(looks).await;
        self.audit(&keys, UNMOVED).await?;
        let unstage = async |conn: &mut _| start::unstage(conn, &keys, None).await;
        for _ in 0..ROUNDS {
            if !self.store.call(unstage).await? {
                break;
            }
        }
        self.trim(&keys).await
    }

    pub(super) async fn carry_out(&self, keys: &TaskKeys, entry: &str) -> Result<(), Error> {
        let (kind, named) = entry.split_once(' ').unwrap_or((entry, ""));
        let instance = named.rsplit_once('/').and_then(|(instance, run)| Some((instance, run.parse::<u64>().ok()?)));
        match (kind, instance) {
            // These steps remove their own entry.
            ("v", _) => {
                let entries = vec![entry.to_owned()];
                return self.take_next_steps(keys, Advanced { entries, ..Advanced::default() }).await;
            }
            ("o", Some((instance, run))) => return self.open(keys, instance, run).await,
            ("r", Some((instance, _))) => {
                self.retry(keys, instance, true).boxed().await?;
            }
            ("x", Some((instance, run))) => self.cancel_open(keys, instance, run).await?,
            _ => {}
        }
        let entry = [entry.to_owned()];
        self.store.call(async |conn| outbox::done(conn, keys, &entry).await).await
    }

    /// Reports to workflows the jobs of a task that ended longer ago than the grace.
    async fn look_at_task(&self, task: &str, grace: Duration) -> Result<(), Error> {
        let tables = self.store.tables(task);
        let tables = self.unless_away(task, tables.asked(&self.store)).await?;
        let mut done = Ok(());
        for table in tables.iter() {
            done = done.and(self.unless_away(table.get(Key::Outbox), self.look_at(table, grace)).await);
        }
        done
    }

    /// Reports to workflows the jobs of one table that ended longer ago than the grace.
    pub(crate) async fn look_at(&self, table: &Arc<TaskKeys>, grace: Duration) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let look = async |conn: &mut _| ended(conn, table, grace).await;
            let (found, strange, more) = self.store.shared(response_time(BATCH_BYTES), look).await?;
            let is_empty = found.is_empty() && strange.is_empty();
            let mut by_workflow: BTreeMap<String, Vec<Ended>> = BTreeMap::new();
            for ended in self.with_outcomes(table, found).await? {
                by_workflow.entry(ended.node.id.definition.clone()).or_default().push(ended);
            }
            for (name, ended) in by_workflow {
                let keys = self.store.workflow(&name);
                if let Err(e) = self.unless_away(keys.get(Key::Outbox), self.advance(&keys, &ended)).await {
                    tracing::debug!(workflow = name, error = %e.chain(), "ended jobs could not be reported to their workflow; will retry");
                    // Record it for tools. If this fails too, tools see that the workflow is unreachable.
                    let note = async |conn: &mut _| outbox::put_off(conn, &keys, &[]).await;
                    let _ = self.unless_away(keys.get(Key::Outbox), self.store.call(note)).await;
                    let ids: Vec<String> = ended.iter().map(|ended| ended.node.id.job_id().to_string()).collect();
                    self.store.call(async |conn| put_jobs_off(conn, table, &ids).await).await?;
                }
            }
            let strange: Vec<&str> = strange.iter().map(JobId::as_str).collect();
            self.store.call(async |conn| outbox::done(conn, table, &strange).await).await?;
            if !more || is_empty {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes instances that ended long ago.
    async fn trim(&self, keys: &TaskKeys) -> Result<(), Error> {
        let Some(limit) = self.store.call(async |conn| upkeep::kept(conn, keys).await).await? else { return Ok(()) };
        for place in [Key::Completed, Key::Failed, Key::Cancelled] {
            for _ in 0..TRIMS {
                let (_, more) = self.store.call(async |conn| upkeep::trim(conn, keys, place, limit).await).await?;
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }
}
