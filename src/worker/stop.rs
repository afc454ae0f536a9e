//! Why a worker stopped.

use std::fmt;
use std::io::Write;
use std::process::{ExitCode, Termination};

use serde::Serialize;

use crate::enum_str::names;
use crate::job::id::JobId;
use crate::plural::many;

/// Why a worker stopped.
///
/// Returned from `main`, it sets the exit code: 0 for `Shutdown`, 1 for the others, which are also printed to stderr.
///
/// ```no_run
/// # use heartline::{App, StopReason};
/// #[tokio::main]
/// async fn main() -> heartline::Result<StopReason> {
///     let app = App::builder().lazy().build().await?;
///     app.worker().run_until_signal().await
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[must_use = "a worker that left jobs, or broke, also returns Ok"]
#[non_exhaustive]
pub enum StopReason {
    /// It was asked to stop, and every job that it held was recorded or requeued.
    Shutdown,
    /// It was asked to stop, and could not report these jobs to Redis in time. The sweep of another worker recovers them and counts a
    /// stall for each.
    Unclean {
        /// The jobs that were left. Empty if only a claim was left without an answer.
        left: Vec<JobId>,
    },
    /// Another worker took its exclusive name ([`WorkerIdentity::exclusive`](crate::WorkerIdentity::exclusive)) and
    /// asked it to stop, or a person reported it dead. Other workers have its jobs.
    Replaced {
        /// The jobs that it still held. Empty if it stopped within its grace.
        left: Vec<JobId>,
    },
    /// A part of it ended by itself. This is a bug here, or in code that the part called, such as a `tracing`
    /// subscriber that panics. It reported what it could, and sends no more heartbeats.
    Broken {
        /// The part that ended.
        part: WorkerPart,
        /// The jobs that it left. The sweep of another worker recovers them and counts a stall for each.
        left: Vec<JobId>,
    },
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Shutdown => f.write_str("shut down"),
            StopReason::Unclean { left } if left.is_empty() => {
                f.write_str("shut down; a claim got no answer, and the sweep recovers the jobs that it claimed")
            }
            StopReason::Unclean { left } => {
                write!(f, "shut down, with {} left to the sweep", many(left.len() as u64, "job"))
            }
            StopReason::Replaced { left } => {
                f.write_str("replaced: another worker has its name, or a person declared it dead")?;
                if left.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; other workers have its {}", many(left.len() as u64, "job"))
                }
            }
            StopReason::Broken { part, left } => {
                write!(f, "its {part} ended, with {} left to the sweep", many(left.len() as u64, "job"))
            }
        }
    }
}

impl Termination for StopReason {
    fn report(self) -> ExitCode {
        if self == StopReason::Shutdown {
            return ExitCode::SUCCESS;
        }
        // If this cannot be written, there is nowhere else to report it.
        let _ = writeln!(std::io::stderr(), "the worker stopped: {self}");
        ExitCode::FAILURE
    }
}

/// A part that a worker cannot work without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerPart {
    /// The thread that sends heartbeats for its jobs.
    Keeper,
    /// The loop that claims jobs of a task and reports their outcomes.
    Driver,
    /// The loop that waits for new work.
    Wake,
    /// The probe that shows that the runtime runs.
    LivenessProbe,
    /// The loop that advances workflows.
    WorkflowRunner,
}

names!(WorkerPart, "part of a worker", {
    Keeper = "keeper",
    Driver = "driver",
    Wake = "wake",
    LivenessProbe = "liveness_probe",
    WorkflowRunner = "workflow_runner",
});
