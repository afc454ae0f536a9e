//! Why a worker stopped.

use std::fmt;
use std::io::Write;
use std::process::{ExitCode, Termination};

use serde::Serialize;

use crate::job::id::JobId;

/// Why a worker stopped.
///
/// If `main` returns it, it makes the exit code: 0 for `Shutdown`, 1 for the others, which are also printed to stderr.
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
#[must_use = "a worker that left jobs behind, or broke, returns Ok too"]
#[non_exhaustive]
pub enum StopReason {
    /// It was asked to, and every job that it held was recorded or requeued.
    Shutdown,
    /// It was asked to, and Redis could not be told about these jobs in time. The sweep of another worker finds them
    /// and counts a stall for each.
    Unclean {
        /// The jobs that were left. None are named when all that is open is a claim that Redis did not answer.
        left: Vec<JobId>,
    },
    /// Another worker took its exclusive name ([`WorkerIdentity::exclusive`](crate::WorkerIdentity::exclusive)) and asked it to stop, or a
    /// person said that it is dead. Other workers have its jobs.
    Replaced {
        /// The jobs that it still held. None if it stopped within its grace.
        left: Vec<JobId>,
    },
    /// A part of it ended by itself, which is a bug, here or in code that the part called: a subscriber of `tracing` that
    /// panics, say. It told Redis what it could, and beats for no job any more.
    Broken {
        /// What ended.
        part: WorkerPart,
        /// The jobs that were let go: the sweep of another worker finds them and counts a stall for each.
        left: Vec<JobId>,
    },
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Shutdown => f.write_str("shut down"),
            StopReason::Unclean { left } if left.is_empty() => {
                f.write_str("shut down, with a claim that was not answered left to the sweep")
            }
            StopReason::Unclean { left } => write!(f, "shut down, with {} jobs left to the sweep", left.len()),
            StopReason::Replaced { left } => {
                write!(
                    f,
                    "replaced: a worker has started under its name, or somebody said that it was dead; others have its jobs, {}",
                    left.len()
                )
            }
            StopReason::Broken { part, left } => {
                write!(f, "its {part} ended, with {} jobs left to the sweep", left.len())
            }
        }
    }
}

impl Termination for StopReason {
    fn report(self) -> ExitCode {
        if self == StopReason::Shutdown {
            return ExitCode::SUCCESS;
        }
        // There is nobody else to tell when this cannot be written.
        let _ = writeln!(std::io::stderr(), "the worker stopped: {self}");
        ExitCode::FAILURE
    }
}

/// A part of a worker without which it cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerPart {
    /// The thread that beats for its jobs.
    Keeper,
    /// The loop that claims jobs of a task and reports how they ended.
    Driver,
    /// What waits for new work.
    Wake,
    /// What shows that the runtime runs.
    Canary,
    /// What moves workflows on.
    Courier,
}

impl WorkerPart {
    /// The name: `keeper`, `driver`, `wake`, `canary` or `courier`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            WorkerPart::Keeper => "keeper",
            WorkerPart::Driver => "driver",
            WorkerPart::Wake => "wake",
            WorkerPart::Canary => "canary",
            WorkerPart::Courier => "courier",
        }
    }
}

impl fmt::Display for WorkerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
