//! Conditions of what is stored: foreign keys, lost data, lost payloads.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::tasks::KeyConflict;
use super::super::text::{many, printed, span};
use super::server::listed;
use crate::unix_time::as_ms;

/// What is wrong with what is stored of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DataCondition {
    /// No task is listed, although live workers are there.
    TaskListLost,
    /// No task is listed.
    NoTasks,
    /// Live workers have this task, and it is not in the list of tasks.
    TaskNotListed,
    /// An entry of the list of tasks is not a valid name.
    InvalidTaskName { error: String },
    /// The task cannot be read.
    TaskUnreadable { error: String, is_denied: bool },
    /// Keys of the task hold values of another type.
    ForeignKeys { keys: Vec<KeyConflict> },
    /// The server lost the data of these tasks.
    DataLost {
        tasks: Vec<String>,
        #[serde(rename = "ago_ms", serialize_with = "as_ms")]
        ago: Duration,
    },
    /// The options and counters of the task were lost, its jobs were not.
    OptionsLost {
        #[serde(rename = "ago_ms", serialize_with = "as_ms")]
        ago: Duration,
    },
    /// Jobs are in no list or set.
    JobsWithoutPlace { jobs: u64 },
    /// Jobs without payload: `waiting` of them among the `read` ones that wait.
    JobsWithoutPayload { jobs: u64, read: u64, waiting: u64, first: Option<String> },
    /// Jobs were removed, since their payload was lost.
    PayloadsLost {
        jobs: u64,
        #[serde(rename = "ago_ms", serialize_with = "as_ms")]
        ago: Duration,
    },
}

/// The keys, each with what it holds.
pub(super) fn named(keys: &[KeyConflict]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What to do if the user that looks lacks a right.
pub(super) const DENIED: &str = "your own user lacks a right (see docs/acl.md); nothing else is known to be wrong";

impl fmt::Display for DataCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TaskListLost => f.write_str("live workers are there, and no task is listed"),
            Self::NoTasks => f.write_str("there is no task under this prefix"),
            Self::TaskNotListed => f.write_str("live workers have it, and it is missing from the list of tasks"),
            Self::InvalidTaskName { error } => write!(f, "it is not a valid task name: {error}"),
            Self::TaskUnreadable { error, .. } => write!(f, "the task cannot be read: {error}"),
            Self::ForeignKeys { keys } => write!(f, "calls that need these keys fail: {}", named(keys)),
            Self::DataLost { tasks, ago } if tasks.len() == 1 => {
                write!(f, "the server lost its data {} ago: its jobs are gone", span(*ago))
            }
            Self::DataLost { tasks, ago } => {
                write!(f, "the server lost its data {} ago: the jobs of {} are gone", span(*ago), listed(tasks))
            }
            Self::OptionsLost { ago } => {
                write!(f, "its options and counters were lost {} ago, and its workers declared them again", span(*ago))
            }
            Self::JobsWithoutPlace { jobs } => {
                write!(f, "{} in no list or set: no worker will run them", many(*jobs, "job"))
            }
            Self::JobsWithoutPayload { jobs, read, first: None, .. } => {
                write!(f, "{} without payload, none of them among the first {read} that wait", many(*jobs, "job"))
            }
            Self::JobsWithoutPayload { jobs, read, waiting, first: Some(first) } => write!(
                f,
                "{} without payload, {waiting} of them among the first {read} that wait, for example {first}: a claim removes them",
                many(*jobs, "job")
            ),
            Self::PayloadsLost { jobs, ago } => {
                write!(f, "{} had lost the payload and were removed, the last {} ago", many(*jobs, "job"), span(*ago))
            }
        }
    }
}

impl DataCondition {
    pub(super) fn hint(&self, task: &str) -> String {
        match self {
            Self::TaskListLost => {
                "the server lost its data, or the key `tasks` under the prefix was deleted. Starting workers and dispatches add their tasks again"
                    .to_owned()
            }
            Self::NoTasks => {
                "check --prefix and --redis; or the data is gone, or nothing was dispatched yet".to_owned()
            }
            Self::TaskNotListed => {
                "its workers add it again within a minute; if they do not, or its jobs are gone, the server lost data".to_owned()
            }
            Self::InvalidTaskName { .. } => format!(
                "something else wrote it to the key `tasks` under the prefix: `redis-cli ZREM KEY {}` removes it",
                printed(task)
            ),
            Self::TaskUnreadable { is_denied: true, .. } => DENIED.to_owned(),
            Self::TaskUnreadable { .. } => format!("`heartline audit -t {task}` looks closer"),
            Self::ForeignKeys { keys } => {
                let holds_options = keys.iter().any(|key| key.holds_options);
                let pause = if holds_options { " A pause is gone with this key: pause the task again." } else { "" };
                format!(
                    "rename or delete the key, and restore its value if you have a copy. Do not stop workers before: they keep outcomes until they \
                     can be written.{pause} Then run `heartline audit -t {task}`; `heartline repair -t {task}` asks before a job runs again or is removed"
                )
            }
            Self::DataLost { .. } => {
                "dispatch the unfinished jobs again, by your own records. Pauses are gone too, and outcomes of jobs that still run are rejected. \
                 `heartline doctor` checks whether the server keeps its data"
                    .to_owned()
            }
            Self::OptionsLost { .. } => {
                "the key `…:meta` was deleted, or the server lost it. A pause is gone with it: pause the task again if it was paused".to_owned()
            }
            Self::JobsWithoutPlace { .. } => format!(
                "a key was deleted, or the server lost it: `heartline audit -t {task}` names the jobs, `heartline repair -t {task}` asks before \
                 they run again. A job that a worker held may still run for a third of the stall interval: repair after that"
            ),
            Self::JobsWithoutPayload { first: None, .. } => {
                "the payloads were deleted or lost; ended jobs need theirs only for a retry".to_owned()
            }
            Self::JobsWithoutPayload { .. } => format!(
                "the payloads were deleted or lost: `heartline events -t {task}` names each removed job (lost_payload=true); dispatch it again"
            ),
            Self::PayloadsLost { .. } => format!(
                "the payloads were deleted or lost: `heartline events -t {task}` names the jobs (lost_payload=true). None had ended: dispatch them \
                 again. Jobs of workflows, whose ids have a leading ~, are sent again automatically"
            ),
        }
    }

    pub(super) fn lets_jobs_run(&self) -> bool {
        matches!(self, Self::ForeignKeys { .. } | Self::JobsWithoutPlace { .. })
    }
}
