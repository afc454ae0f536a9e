//! The calls of producers and of one worker of a task, for the bench that counts the instructions of the server.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::backend::connection::Connection;
use crate::backend::declare;
use crate::backend::dispatch::{self, NewJob};
use crate::backend::extend_locks;
use crate::backend::keys::TaskKeys;
use crate::backend::report::{Disposition, Report};
use crate::backend::settle::{self, PlainFirst, SettleCall, SettleReply, Want};
use crate::error::Result;
use crate::job::id::JobId;
use crate::options::overrides::Overrides;
use crate::options::resolved::Resolved;
use crate::options::task::TaskOptions;

/// A task with the default options, and the jobs that its worker holds.
#[doc(hidden)]
#[derive(Debug)]
pub struct TaskCalls {
    keys: TaskKeys,
    worker: String,
    options: Resolved,
    settles: u64,
    held: Vec<(JobId, u64)>,
    plain_first: PlainFirst,
}

impl TaskCalls {
    /// No call is made yet.
    pub fn new(prefix: &str, task: &str, worker: &str) -> Result<TaskCalls> {
        let (keys, options) = (TaskKeys::new(prefix, task, false), TaskOptions::new().resolve(&TaskOptions::new())?);
        Ok(TaskCalls {
            keys,
            worker: worker.to_owned(),
            options,
            settles: 0,
            held: Vec::new(),
            plain_first: PlainFirst::default(),
        })
    }

    /// Writes the options of the task, as a worker does at its start.
    pub async fn declare(&self, conn: &mut impl Connection) -> Result<()> {
        declare::declare(conn, &self.keys, &self.worker, None, &self.options).await?;
        Ok(())
    }

    /// Dispatches jobs with these ids in one call.
    pub async fn dispatch(&self, conn: &mut impl Connection, ids: &[String], payload: &[u8]) -> Result<()> {
        let job = |id: &String| NewJob {
            id: JobId::from_wire(id.as_str()),
            payload: payload.to_vec(),
            priority: None,
            overrides: Overrides::default(),
            expires_after: None,
            dispatched_at_ms: None,
            unique: None,
            key: None,
        };
        let jobs: Vec<NewJob> = ids.iter().map(job).collect();
        dispatch::dispatch(conn, &self.keys, &jobs, &AtomicBool::new(false)).await?;
        Ok(())
    }

    /// Reports every held job as completed and claims more jobs, in one call. Returns how many it claimed; `None` if the
    /// server refused the call or a report.
    pub async fn settle(&mut self, conn: &mut impl Connection, jobs: usize) -> Result<Option<usize>> {
        self.settles += 1;
        let report = |(id, fence): (JobId, u64)| Report {
            ran: Duration::from_millis(1),
            attempt: 1,
            ..Report::without_run(id, fence, Disposition::Completed(None))
        };
        let reports: Vec<Report> = self.held.drain(..).map(report).collect();
        let want = Want { jobs, begin: jobs, with_slot: jobs, ..Want::NONE };
        let (number, ask) = (self.settles, self.options.interval);
        let call = SettleCall { worker: &self.worker, sequence: 0, number, ask, want, reports: &reports };
        match settle::settle(conn, &self.keys, call, &self.plain_first).await? {
            SettleReply::Settled(settled) if settled.lost.is_empty() => {
                self.held = settled.claimed.into_iter().map(|job| (job.id, job.fence)).collect();
                Ok(Some(self.held.len()))
            }
            _ => Ok(None),
        }
    }

    /// Sends a heartbeat for every held job. Returns how many were lost.
    pub async fn extend_locks(&self, conn: &mut impl Connection) -> Result<usize> {
        let ask = self.options.interval;
        Ok(extend_locks::extend_locks(conn, &self.keys, &self.worker, ask, &self.held, &[]).await?.lost.len())
    }
}
