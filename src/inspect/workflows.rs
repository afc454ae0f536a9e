//! Workflows: their definitions, pages of their instances, and recovery.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Inspector;
use super::instance_view::end_of;
use super::parts::config;
use super::tasks::{KeyConflict, foreign_key};
use super::workflow_report::{InstancePage, InstanceRetries, InstanceRow, RecoveredWorkflow, WorkflowReport};
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::overview;
use crate::backend::timeouts::RESPONSE_TIMEOUT;
use crate::backend::workflow::instances::{self, FlowSizes};
use crate::config_error::ConfigErrors;
use crate::error::Error;
use crate::job::instance::WorkflowState;
use crate::join::join_all;
use crate::unix_time::at_ms;
use crate::workflow::definition::{check_name, handle_of};
use crate::workflow::handle::WorkflowHandle;
use crate::workflow::progress::WorkflowProgress;

/// How many workflows are read at a time.
const TOGETHER: usize = 50;

/// Postponed steps are retried well within this time.
const PUT_OFF: Duration = Duration::from_secs(60);

/// Updates of a workflow that were refused are retried every 5 s, well within this time.
pub(super) const UNREPORTED: Duration = Duration::from_secs(20);

/// The most rows of a page, and the most reads for it. A read also returns instances that run as nodes, which the page leaves out.
const MOST_ROWS: usize = 500;
const LOOKS: usize = 10;

/// How many failed instances a call retries.
const RETRIED: usize = 50;

impl Inspector {
    /// The workflows that have started an instance, at most 1,000, sorted by name. A workflow that cannot be read has a
    /// [`fault`](WorkflowReport::fault).
    pub async fn workflows(&self) -> Result<Vec<WorkflowReport>, Error> {
        let now = self.now_ms().await?;
        let found = self.look(async |conn| self.store.workflows(conn).await).await?;
        let mut reports = Vec::with_capacity(found.len());
        for some in found.chunks(TOGETHER) {
            reports.extend(join_all(some.iter().map(|(name, looked)| self.workflow_report(name, *looked, now))).await);
        }
        Ok(reports)
    }

    async fn workflow_report(&self, name: &str, looked_ms: u64, now_ms: u64) -> WorkflowReport {
        let keys = &self.store.workflow(name);
        let sizes = async {
            let sizes = self.look(async |conn| instances::sizes(conn, keys).await).await?;
            if self.store.is_cluster() {
                self.look(async |conn| instances::can_be_called(conn, keys).await).await?;
            }
            Ok::<_, Error>(sizes)
        };
        let sizes = sizes.await;
        let is_hidden = sizes.as_ref().is_err_and(|e| e.is_outage() || e.is_denied());
        // Every script of the workflow fails at a key of another type.
        let foreign: Vec<KeyConflict> = match is_hidden {
            true => Vec::new(),
            false => {
                let read = self.look(async |conn| overview::foreign_of_workflow(conn, keys).await);
                read.await.unwrap_or_default().into_iter().map(foreign_key).collect()
            }
        };
        let named = foreign.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let fault_kind = sizes.as_ref().err().and_then(Error::server_kind);
        let fault = match &sizes {
            _ if !foreign.is_empty() => Some(named),
            Ok(_) => None,
            Err(e) => Some(e.chain().to_string()),
        };
        let sizes = sizes.unwrap_or_default();
        let FlowSizes { running, paused, completed, failed, cancelled, outbox, oldest_ms, put_off, untold, .. } = sizes;
        let last_failed_at = sizes.last_failed_ms.map(at_ms);
        // The outbox has the time of the next try of a postponed step, so use the time when it was first postponed. An end that
        // could not be recorded is in the outbox of its task.
        let since_ms = lately_since(put_off, PUT_OFF, now_ms);
        let untold_ms = lately_since(untold, UNREPORTED, now_ms);
        let oldest_ms = oldest_ms.map_or(untold_ms, |ms| Some(since_ms.map_or(ms, |since_ms| ms.min(since_ms))));
        WorkflowReport {
            as_of: at_ms(now_ms),
            workflow: name.to_owned(),
            running,
            paused,
            completed,
            failed,
            last_failed_at,
            cancelled,
            unplaced: sizes.unplaced,
            steps: outbox,
            oldest_step: oldest_ms.map(|ms| Duration::from_millis(now_ms.saturating_sub(ms))),
            looked_at: (looked_ms > 0).then(|| at_ms(looked_ms)),
            corrupt: sizes.corrupt.0,
            corrupt_at: sizes.corrupt.1.map(at_ms),
            tasks: sizes.tasks,
            fault,
            fault_kind,
            foreign,
        }
    }

    /// A page of up to `limit` instances (1 to 500) in this state, newest or oldest first. The cursor is the [`InstancePage::next`] of
    /// the previous page, or `None` to begin. Subgraphs are left out. The cost of a page does not depend on the number of instances.
    pub async fn instances(
        &self,
        workflow: &str,
        state: WorkflowState,
        newest: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<InstancePage, Error> {
        if limit == 0 || limit > MOST_ROWS {
            return Err(config("limit", &limit.to_string(), "must be 1 to 500", "use 100"));
        }
        let is_cursor = |text: &str| text.split_once(' ').is_some_and(|(score, _)| score.parse::<f64>().is_ok());
        if let Some(text) = cursor.filter(|text| !text.is_empty() && !is_cursor(text)) {
            let rule = "must be the `next` of a page of the same workflow";
            return Err(config("cursor", text, rule, "begin again without a cursor"));
        }
        let keys = &self.workflow_keys(workflow)?;
        let place = key_of(state);
        let now = self.now_ms().await?;
        let (mut lines, mut next) = (Vec::new(), Some(cursor.unwrap_or_default().to_owned()));
        for _ in 0..LOOKS {
            let Some(after) = next.as_deref().filter(|_| lines.len() < limit) else { break };
            let (from, left) = ((newest, after), limit - lines.len());
            let (some, after) = self.ask(async |conn| instances::list(conn, keys, place, from, left).await).await?;
            lines.extend(some);
            next = after;
        }
        let row = |line: instances::InstanceLine| {
            let broken = line.is_broken.then_some((None, &*line.failure));
            let (code, message) = end_of(state, &line.end, broken).map(|error| (error.code, error.message)).unzip();
            InstanceRow {
                id: line.id,
                state,
                since: at_ms(line.since_ms),
                begins_at: line.begins_ms.map(at_ms),
                run: line.run,
                unfinished: line.live,
                open: line.open,
                is_stopping: line.is_stopping,
                is_broken: line.is_broken,
                code,
                message,
            }
        };
        Ok(InstancePage { as_of: at_ms(now), instances: lines.into_iter().map(row).collect(), next })
    }

    /// A handle to an instance, to cancel, pause, resume or retry it, or to wait for it. Pauses and resumes carry the name set by
    /// [`by`](Inspector::by). It does not check whether the instance exists.
    pub fn workflow_handle(&self, workflow: &str, id: &str) -> Result<WorkflowHandle<Value>, Error> {
        let progress = Arc::new(WorkflowProgress::new(Arc::clone(&self.store)));
        handle_of(workflow, id, Arc::clone(&self.store), progress, Arc::clone(&self.by))
    }

    /// Retries the instances of a workflow that failed before this time by the server's clock ([`Inspector::server_time`]), up to 50 a
    /// call, the oldest first. With a code only those whose failure has it. Repeat the call with [`next`](InstanceRetries::next) until that
    /// is `None`. Each instance is retried as by [`WorkflowHandle::retry_failed`].
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the cursor is not valid, and what every call may return, see [`Error`]. Some may run again then.
    pub async fn retry_failed_instances(
        &self,
        workflow: &str,
        code: Option<&str>,
        before: SystemTime,
        cursor: Option<&str>,
    ) -> Result<InstanceRetries, Error> {
        let page = self.instances(workflow, WorkflowState::Failed, false, cursor, RETRIED).await?;
        // One that has failed again since is left alone.
        let read = page.instances.len();
        let due: Vec<InstanceRow> = page.instances.into_iter().take_while(|row| row.since <= before).collect();
        let (looked, is_whole) = (due.len() as u64, due.len() == read);
        let fits = |row: &InstanceRow| code.is_none_or(|code| row.code.as_deref() == Some(code));
        let ids: Vec<String> = due.into_iter().filter(fits).map(|row| row.id).collect();
        let done = self.retry_instances(workflow, &ids).await?;
        Ok(InstanceRetries { looked, next: page.next.filter(|_| is_whole), ..done })
    }

    /// Retries these instances of a workflow, each only if it has failed and was not retried since.
    ///
    /// # Errors
    /// [`Error::Config`] if a name is not valid, and what every call may return, see [`Error`]. Some may run again then.
    pub async fn retry_instances(&self, workflow: &str, ids: &[String]) -> Result<InstanceRetries, Error> {
        let mut done = InstanceRetries { looked: ids.len() as u64, ..InstanceRetries::default() };
        let progress = Arc::new(WorkflowProgress::new(Arc::clone(&self.store)));
        for id in ids {
            let (store, progress) = (Arc::clone(&self.store), Arc::clone(&progress));
            let handle: WorkflowHandle<Value> = handle_of(workflow, id, store, progress, Arc::clone(&self.by))?;
            match handle.retry_if_failed().await {
                Ok(None) => done.retried += 1,
                Ok(Some(state)) => done.refused.push((id.clone(), format!("it is {state}"))),
                Err(e) if e.is_outage() => return Err(e),
                Err(e) => done.refused.push((id.clone(), e.chain().to_string())),
            }
        }
        Ok(done)
    }

    /// Recovers every workflow now, as workers do within 15 s to 75 s. It records ended jobs, sends pending nodes, stops instances past
    /// their deadlines, and compares every instance with its jobs. It is safe while workers run, and safe to repeat.
    ///
    /// # Errors
    /// Only before anything was done. A later failure for one workflow is its [`fault`](RecoveredWorkflow::fault).
    pub async fn recover_stuck_workflows(&self) -> Result<Vec<RecoveredWorkflow>, Error> {
        let found = self.ask(async |conn| self.store.workflows(conn).await).await?;
        let mut done = Vec::with_capacity(found.len());
        for (name, _) in found {
            done.push(self.recovered(name).await);
        }
        Ok(done)
    }

    /// Recovers one workflow, as [`recover_stuck_workflows`](Inspector::recover_stuck_workflows). If the server lost it from the list of
    /// workflows, it is added again. `None` if no data of it exists.
    pub async fn recover_workflow(&self, workflow: &str) -> Result<Option<RecoveredWorkflow>, Error> {
        let keys = &self.workflow_keys(workflow)?;
        if !self.ask(async |conn| instances::is_there(conn, keys).await).await? {
            return Ok(None);
        }
        let names = &[workflow];
        self.store.shared(RESPONSE_TIMEOUT, async |conn: &mut _| self.store.list_workflows(conn, names).await).await?;
        Ok(Some(self.recovered(workflow.to_owned()).await))
    }

    async fn recovered(&self, workflow: String) -> RecoveredWorkflow {
        let progress = WorkflowProgress::new(Arc::clone(&self.store));
        let fault = Box::pin(progress.recover(&workflow)).await.err().map(|e| e.chain().to_string());
        let [told, sent, synthesised, placed] = progress.tally();
        RecoveredWorkflow { workflow, told, sent, synthesised, placed, fault }
    }

    /// Reports jobs of this table that have just ended to their workflows. If that fails, a worker does it later.
    pub(super) fn move_workflows<'a>(&'a self, table: &'a Arc<TaskKeys>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let progress = WorkflowProgress::new(Arc::clone(&self.store));
            let reported = tokio::time::timeout(RESPONSE_TIMEOUT, progress.look_at(table, Duration::ZERO)).await;
            if let Err(e) = reported.unwrap_or_else(|_| Err(Error::timed_out())) {
                tracing::debug!(task = table.task(), error = %e.chain(), "could not report ended jobs to their workflows; a worker retries");
            }
        })
    }

    pub(super) fn workflow_keys(&self, workflow: &str) -> Result<TaskKeys, ConfigErrors> {
        check_name(workflow)?;
        Ok(self.store.workflow(workflow))
    }
}

/// The first of two times, if the second one is recent.
pub(super) fn lately_since(times: Option<(u64, u64)>, lately: Duration, now_ms: u64) -> Option<u64> {
    let (since_ms, _) = times.filter(|(_, last_ms)| now_ms.saturating_sub(*last_ms) < lately.as_millis() as u64)?;
    Some(since_ms)
}

pub(super) fn key_of(state: WorkflowState) -> Key {
    match state {
        WorkflowState::Running => Key::Running,
        WorkflowState::Paused => Key::Paused,
        WorkflowState::Completed => Key::Completed,
        WorkflowState::Failed => Key::Failed,
        WorkflowState::Cancelled => Key::Cancelled,
    }
}
