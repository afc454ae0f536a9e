//! Conditions of jobs that run and are not done: they fail, are snoozed, break off, or cannot be decoded.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::text::{brief, many, quoted, span};
use crate::unix_time::{as_ms, as_ms_where_known};

/// How many bytes of a message are shown.
const MESSAGE: usize = 80;

/// Why jobs of a task are not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum FailureCondition {
    /// Jobs fail. `in_a_row` counts the jobs that failed since a run completed; 0 if others completed in between.
    JobsFail {
        failed_lately: u64,
        completed_lately: u64,
        in_a_row: u64,
        are_final: bool,
        kept: u64,
        has_workflows: bool,
        #[serde(rename = "last_failed_ago_ms", serialize_with = "as_ms_where_known")]
        last_failed_ago: Option<Duration>,
    },
    /// Jobs wait for another run after a failed one. Of `read_delayed` delayed jobs `delayed_retries` do, of `read_waiting` waiting jobs
    /// `waiting_retries` do.
    JobsRetry {
        delayed: u64,
        read_delayed: u64,
        delayed_retries: u64,
        waiting: u64,
        read_waiting: u64,
        waiting_retries: u64,
        code: String,
        message: String,
        is_paused: bool,
        #[serde(rename = "last_failed_ago_ms", serialize_with = "as_ms_where_known")]
        last_failed_ago: Option<Duration>,
        #[serde(rename = "last_completed_ago_ms", serialize_with = "as_ms_where_known")]
        last_completed_ago: Option<Duration>,
    },
    /// No worker can read the payload of about this many delayed jobs: their producer is newer.
    NewerProducer { jobs: u64 },
    /// Delayed jobs snooze again and again while none completes.
    JobsSnooze { delayed: u64, read: u64, snoozing: u64, most: u32, first: String },
    /// A worker of `heartline work` cannot start its program.
    ProgramNotStarted { message: String },
    /// Runs break off, as workers stop or die, while none completes: `rounds` for each job that can run.
    RunsBreakOff {
        runs: u64,
        rounds: u64,
        has_completed: bool,
        #[serde(rename = "last_ago_ms", serialize_with = "as_ms")]
        last_ago: Duration,
    },
    /// Hooks failed for good.
    HooksFail {
        hooks: u64,
        #[serde(rename = "over_ms", serialize_with = "as_ms")]
        over: Duration,
        #[serde(rename = "last_ago_ms", serialize_with = "as_ms")]
        last_ago: Duration,
    },
    /// The delayed jobs of this many tasks were not read.
    DelayedJobsNotRead { tasks: u64 },
}

fn when(ago: Option<Duration>) -> String {
    ago.map_or_else(|| "never".to_owned(), |ago| format!("{} ago", span(ago)))
}

impl fmt::Display for FailureCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobsFail { failed_lately: 0, in_a_row, are_final, last_failed_ago, .. } => {
                let what = if *are_final { "job" } else { "run" };
                let last =
                    if *in_a_row == 1 { format!("the last {what}") } else { format!("the last {in_a_row} {what}s") };
                write!(f, "{last} failed, most recently {}, and none completed since", when(*last_failed_ago))
            }
            Self::JobsFail { failed_lately, completed_lately, in_a_row, .. } => {
                write!(f, "{} failed in the last 5 minutes", many(*failed_lately, "job"))?;
                if *completed_lately > 0 {
                    write!(f, ", {completed_lately} completed")?;
                }
                if *in_a_row > 0 { write!(f, "; THE LAST {in_a_row} ALL FAILED") } else { Ok(()) }
            }
            Self::JobsRetry { code, message, last_failed_ago, last_completed_ago, .. } => {
                self.retries(f)?;
                write!(
                    f,
                    " after a failed run, the first with {code}: {}; the last run failed {}, the last one completed {}",
                    brief(message, MESSAGE),
                    when(*last_failed_ago),
                    when(*last_completed_ago)
                )
            }
            Self::NewerProducer { jobs } => write!(
                f,
                "{} delayed, since no worker can read the payload: a producer is newer than its workers",
                many(*jobs, "job")
            ),
            Self::JobsSnooze { delayed, read, snoozing, most, .. } => write!(
                f,
                "{} delayed; {snoozing} of the next {read} snooze again and again, up to {most} times, and none completed in the last 5 minutes",
                many(*delayed, "job")
            ),
            Self::ProgramNotStarted { message } => write!(f, "a worker cannot start its program: {message}"),
            Self::RunsBreakOff { runs, rounds, has_completed, last_ago } => {
                let since = if *has_completed { "since one completed" } else { "and none completed" };
                write!(
                    f,
                    "{} broke off {since}, as workers stopped or died: {rounds} for each job that can run, the last {} ago",
                    many(*runs, "run"),
                    span(*last_ago)
                )
            }
            Self::HooksFail { hooks, over, last_ago } => write!(
                f,
                "{} failed for good in {}, the last {} ago: their work is not done",
                many(*hooks, "hook"),
                span(*over),
                span(*last_ago)
            ),
            Self::DelayedJobsNotRead { tasks } => {
                write!(f, "the delayed jobs of {} were not read", many(*tasks, "task"))
            }
        }
    }
}

impl FailureCondition {
    /// Which jobs wait for another run.
    fn retries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::JobsRetry { delayed, read_delayed, delayed_retries, waiting, read_waiting, waiting_retries, .. } =
            self
        else {
            return Ok(());
        };
        match (*delayed_retries, *read_delayed) {
            (0, _) => write!(f, "{}, {waiting_retries} of the last {read_waiting} back", many(*waiting, "waiting job")),
            (retries, read) if retries == read => write!(f, "{} delayed, all of those read", many(*delayed, "job")),
            (retries, read) => write!(f, "{} delayed, {retries} of the next {read}", many(*delayed, "job")),
        }
    }

    pub(super) fn hint(&self, task: &str) -> String {
        match self {
            Self::JobsFail { kept, has_workflows, .. } if *kept > 0 => {
                let of_workflows = if *has_workflows {
                    ". Jobs of workflows, whose ids have a leading `~`, run again with their instance: `heartline flows retry NAME ID`"
                } else {
                    ""
                };
                format!(
                    "`heartline jobs codes -t {task}` counts the reasons; `heartline jobs retry -t {task} --state failed` runs the jobs again when that \
                     is fixed. This ends when jobs complete, or with `heartline task purge {task} --state failed`, which throws them away\
                     {of_workflows}"
                )
            }
            Self::JobsFail { .. } => {
                format!("the log of a worker, or `heartline events -t {task}`, says why; this ends when jobs complete")
            }
            Self::JobsRetry { delayed_retries, code, is_paused, .. } => {
                let mut hint = match delayed_retries {
                    0 => format!("`heartline jobs list -t {task} -s waiting` lists them"),
                    _ => format!("`heartline jobs list -t {task} -s delayed --oldest-first` lists their next runs"),
                };
                if !is_paused {
                    hint += &format!("; `heartline task pause {task}` holds them back meanwhile");
                }
                let code = quoted(code);
                format!(
                    "{hint}; jobs that have failed by then run again with `heartline jobs retry -t {task} --state failed --code {code}`"
                )
            }
            Self::NewerProducer { .. } => format!(
                "deploy the workers: until then each job is tried again for up to 24 h (`undecodable_for`) and uses no attempt; \
                 `heartline jobs list -t {task} -s delayed --code codec` lists them"
            ),
            Self::JobsSnooze { first, .. } => format!(
                "what they wait for may never come: see `heartline jobs show -t {task} {}`, and the log of a worker",
                quoted(first)
            ),
            Self::ProgramNotStarted { .. } => {
                format!("check the program on the host of that worker; `heartline workers` lists those of {task}")
            }
            Self::RunsBreakOff { .. } => format!(
                "each run starts from the beginning: `heartline workers --all` shows when workers started and ended, `heartline stalls list -t {task}` \
                 which jobs were recovered. Give workers a longer grace period than a job takes, or use checkpoints"
            ),
            Self::HooksFail { .. } => format!(
                "`heartline events -t {task}` names the jobs and the reasons (task:hook_failed); these hooks are not retried"
            ),
            Self::DelayedJobsNotRead { .. } => {
                "they have fewer failed or delayed jobs than the tasks that were read: `heartline task show` checks one"
                    .to_owned()
            }
        }
    }

    pub(super) fn lets_jobs_run(&self) -> bool {
        matches!(self, Self::JobsFail { kept: 1.., .. } | Self::JobsRetry { .. })
    }
}
