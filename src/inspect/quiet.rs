//! Asks workers to claim no more jobs.

use std::time::Duration;

use super::Inspector;
use super::workers::{WorkerQuiet, WorkerReport, WorkerState};
use crate::backend::quiet::{self, QuietMark};
use crate::config_error::{ConfigError, ConfigErrors, shown};
use crate::error::Error;
use crate::escape::Escaped;
use crate::join::join_all;

impl Inspector {
    /// Asks a worker to claim no more jobs until [`resume_worker`](Inspector::resume_worker). It finishes the jobs that run, requeues those
    /// that it has claimed and not begun, and continues its heartbeats, sweeps and schedules. It learns of this at once, or within 10 s if
    /// it misses the hint. If it was quiet already, its earlier mark is kept and returned.
    ///
    /// The mark belongs to this worker: another process, also one of the same exclusive name, claims jobs.
    ///
    /// # Errors
    /// [`Error::Config`] if the worker is unknown, or has stopped.
    pub async fn quiet_worker(&self, worker: &str) -> Result<Option<WorkerQuiet>, Error> {
        let known = self.running(worker).await?;
        let mark = QuietMark { at_ms: self.now_ms().await?, by: self.by.to_string() };
        let before = self.ask(async |conn| self.store.mark_quiet(conn, worker, &mark).await).await?;
        self.tell(&known, before.is_none().then_some(true)).await;
        Ok(before.map(WorkerQuiet::of))
    }

    /// Lets a quiet worker claim jobs again. Returns for how long it was quiet, or `None` if it was not.
    ///
    /// # Errors
    /// [`Error::Config`] if the worker is unknown, or has stopped.
    pub async fn resume_worker(&self, worker: &str) -> Result<Option<Duration>, Error> {
        let known = self.running(worker).await?;
        // Read first, so that a lost reply to the removal does not hide that there was a mark.
        let Some(mark) = self.ask(async |conn| self.store.quiet_mark(conn, worker).await).await? else {
            return Ok(None);
        };
        self.ask(async |conn| self.store.end_quiet(conn, worker).await).await?;
        self.tell(&known, Some(false)).await;
        Ok(Some(Duration::from_millis(self.now_ms().await?.saturating_sub(mark.at_ms))))
    }

    /// The worker, if it has not stopped.
    async fn running(&self, worker: &str) -> Result<WorkerReport, Error> {
        let known = self.worker(worker).await?.filter(|known| known.state != WorkerState::Gone);
        let (rule, fix) = ("must be a worker that has not stopped", "`heartline workers` lists them");
        known.ok_or_else(|| Error::Config(ConfigErrors::from(ConfigError::new("worker", shown(worker), rule, fix))))
    }

    /// Makes the worker look at its mark, and records a change among the events of its tasks. The mark counts without both.
    async fn tell(&self, known: &WorkerReport, change: Option<bool>) {
        let worker = known.worker.as_str();
        let tables: Vec<_> = known.tasks.iter().map(|task| self.store.tables(&task.task).first()).collect();
        if let Some(keys) = tables.first() {
            let hint = self.ask(async |conn| self.store.hint_worker(conn, worker, keys).await).await;
            log_failure(worker, hint);
        }
        let Some(is_quiet) = change else { return };
        let records = tables
            .iter()
            .map(|keys| self.ask(async |conn| quiet::record(conn, keys, &self.by, worker, is_quiet).await));
        join_all(records).await.into_iter().for_each(|recorded| log_failure(worker, recorded));
    }
}

fn log_failure(worker: &str, told: Result<(), Error>) {
    if let Err(e) = told {
        tracing::debug!(worker = %Escaped(worker), error = %e.chain(),
            "the worker got no hint, or its quiet is not among the events");
    }
}
