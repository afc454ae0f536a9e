//! Conditions of workers.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::text::{many, span};
use super::data::DENIED;
use super::lost_holder::LostHolder;
use crate::error::ServerErrorKind;
use crate::unix_time::as_ms;
use crate::worker_id::WorkerId;

/// What is wrong with a worker, or with the workers together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WorkerCondition {
    /// Its presence cannot be read.
    WorkerUnreadable { worker: WorkerId, error: String, is_denied: bool },
    /// The server denies it calls of a task.
    WorkerDenied { worker: WorkerId, of_task: String, answer: String, error: Option<ServerErrorKind> },
    /// The server denies it calls of a workflow.
    WorkflowDenied { worker: WorkerId, answer: String },
    /// The server refuses its sweeps of a task.
    SweepRefused { worker: WorkerId, of_task: String },
    /// It fell silent, and holds no job.
    WorkerSilent { holder: LostHolder },
    /// Handlers block its runtime.
    RuntimeBlocked {
        worker: WorkerId,
        #[serde(rename = "blocked_ms", serialize_with = "as_ms")]
        blocked: Duration,
    },
    /// No worker is live.
    NoLiveWorker,
    /// Live workers are of different versions.
    MixedVersions { versions: Vec<String> },
    /// Live workers speak different versions of the wire format.
    MixedWireVersions { versions: Vec<u32> },
    /// No worker has declared the options of these tasks.
    OptionsUnknown { tasks: Vec<String> },
}

impl fmt::Display for WorkerCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerUnreadable { worker, error, .. } => {
                write!(f, "the presence of the worker {worker} cannot be read: {error}")
            }
            Self::WorkerDenied { worker, of_task, answer, .. } => {
                write!(f, "the server denies the worker {worker} calls of the task {of_task}: {answer}")
            }
            Self::WorkflowDenied { worker, answer } => {
                write!(f, "the server denies the worker {worker} calls of a workflow: {answer}")
            }
            Self::SweepRefused { worker, of_task } => {
                write!(f, "the server refuses sweeps of the task {of_task} by the worker {worker}")
            }
            Self::WorkerSilent { holder } => write!(f, "the worker {holder}"),
            Self::RuntimeBlocked { worker, blocked } => {
                write!(f, "handlers have blocked the runtime of {worker} for {}", span(*blocked))
            }
            Self::NoLiveWorker => f.write_str("no worker is live"),
            Self::MixedVersions { versions } => write!(f, "live workers have the versions {}", versions.join(", ")),
            Self::MixedWireVersions { .. } => f.write_str("live workers speak different versions of the wire format"),
            Self::OptionsUnknown { tasks } => {
                let first = tasks.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more = if tasks.len() > 5 { ", …" } else { "" };
                write!(f, "the options of {} are unknown: {first}{more}", many(tasks.len() as u64, "task"))
            }
        }
    }
}

impl WorkerCondition {
    pub(super) fn hint(&self, _task: &str) -> String {
        match self {
            Self::WorkerUnreadable { is_denied: true, .. } => DENIED,
            Self::WorkerUnreadable { .. } => {
                "its key has another type: delete it, and the worker writes it again within 5 s"
            }
            Self::WorkerDenied { error: Some(ServerErrorKind::Auth), .. } => {
                "create the user of the worker with its password on that server: each node and replica has its own users. The worker retries within a minute"
            }
            Self::WorkerDenied { .. } => {
                "grant its user the right (docs/acl.md); the worker retries within a minute. `heartline audit` may find faults meanwhile: repair \
                 them only after that"
            }
            Self::WorkflowDenied { .. } => {
                "nodes that it claims do not start: grant its user the keys `{<workflow>:flow}:*` and `flows` under the prefix (docs/acl.md); the \
                 worker retries within a minute"
            }
            Self::SweepRefused { .. } => {
                "its log says why: mostly its user lacks a right (docs/acl.md), or a key of the task has another type; the worker retries"
            }
            Self::WorkerSilent { .. } => "it holds no job; a handler of it may still run next to the next run of its job",
            Self::RuntimeBlocked { .. } => "a handler computes or waits without `await`: use spawn_blocking for that",
            Self::NoLiveWorker => "start one; `heartline workers --all` lists those that are gone",
            Self::MixedVersions { .. } => "that is normal during a deploy",
            Self::MixedWireVersions { .. } => "options that need the newer version are refused until all workers speak it",
            Self::OptionsUnknown { .. } => "no worker has declared them: start one that has the task, or correct the name",
        }
        .to_owned()
    }
}
