//! Errors: [`Error`] for callers, [`JobError`] for handlers.

mod cause;
pub(crate) mod chain;
pub(crate) mod job_error;
pub(crate) mod kind;
pub(crate) mod server;
pub(crate) mod value;

pub use job_error::{JobError, MissingState};
pub use kind::ServerErrorKind;
pub use server::ServerError;

use std::sync::Arc;
use std::{fmt, io};

use self::chain::Chain;
use self::server::Nature;
use crate::codec::CodecError;
use crate::config_error::ConfigErrors;
use crate::escape::Escaped;
use crate::job::failure::Failure;
use crate::job::id::JobId;
use crate::plural::many;

/// The result of Heartline's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// The variants differ in what the caller can do. Every call to Redis may fail with `Connect`, `Denied`, `Unsupported` (when it first
/// checks the server) or `Server` (a foreign value under a key). Each function lists its other errors. The text of an error omits its
/// cause, the [`source`](std::error::Error::source). So print the whole chain, as [`Debug`](fmt::Debug) does. Handlers return a
/// [`JobError`] instead.
///
/// ```no_run
/// # use heartline::{Error, TaskRef};
/// # async fn run(mails: TaskRef<String, ()>) -> heartline::Result<()> {
/// match mails.dispatch("ada".to_owned()).id("welcome-ada").await {
///     Ok(job) => println!("{}", job.id()),
///     Err(e) if e.is_retryable() => println!("retry later with the same id: {e:?}"),
///     Err(e) => return Err(e),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument is not valid. All faults of the call are listed. Nothing was changed.
    #[error(transparent)]
    Config(#[from] ConfigErrors),

    /// Redis is unreachable, did not answer in time, is not ready, accepts no more clients, or rejects the credentials or the
    /// database. The text contains the address.
    ///
    /// A call whose reply was lost may have been carried out.
    #[error("cannot reach {}", source.place())]
    Connect {
        /// What the client reported.
        source: ServerError,
    },

    /// The Redis user lacks a permission.
    #[error("{} denied permission", source.place())]
    Denied {
        /// What the server answered. It names the permission.
        source: ServerError,
    },

    /// Redis refuses writes: it is out of memory, read-only, or lacks the replicas or the disk that it requires.
    #[error("redis refuses writes")]
    Refused {
        /// What the server answered.
        source: ServerError,
    },

    /// This version cannot work with the server or its data.
    #[error("not supported: {}", Escaped(what))]
    Unsupported {
        /// The reason: an old server, a newer wire version, an eviction policy that loses jobs.
        what: String,
    },

    /// The payload is larger than the task's `payload_limit`, or a workflow node is too large. Nothing was dispatched.
    #[error("{}", too_large(what.as_deref(), *size, *limit))]
    TooLarge {
        /// Which part of the node is too large. `None` for a payload.
        what: Option<String>,
        /// Size of the encoded value, bytes.
        size: usize,
        /// The limit, bytes.
        limit: usize,
    },

    /// The write is stored, but fewer replicas than [`Durability::Replicated`](crate::Durability::Replicated) requires acknowledged
    /// it in time.
    ///
    /// It is safe to repeat the call with the same id. It then waits for the replicas again.
    #[error("the write is stored, but only {acked} of {replicas} replicas acknowledged it")]
    NotReplicated {
        /// How many replicas acknowledged the write.
        acked: u32,
        /// How many were required.
        replicas: u32,
    },

    /// A dispatch of many jobs failed midway. `dispatched` may be empty.
    ///
    /// It is safe to repeat the whole call with the same ids.
    #[error("the dispatch failed after it had written {}", many(dispatched.len() as u64, "job"))]
    Partial {
        /// The jobs known to be in Redis, in the order of the call.
        dispatched: Vec<JobId>,
        /// Why the call stopped.
        source: Box<Error>,
    },

    /// No job has this id: it was never dispatched, or retention removed it.
    #[error("the task {task} has no job {id}: it was never dispatched, or is no longer kept")]
    JobNotFound {
        /// The task.
        task: String,
        /// The id.
        id: JobId,
    },

    /// The job completed, but its result is not stored, or no longer.
    #[error("the result of job {id} of the task {task} is not stored")]
    ResultGone {
        /// The task of the job.
        task: String,
        /// The job.
        id: JobId,
    },

    /// The job failed.
    #[error("{0}")]
    JobFailed(Failure),

    /// The job was cancelled.
    #[error("job {id} was cancelled: {}", Escaped(reason))]
    JobCancelled {
        /// The job.
        id: JobId,
        /// The reason given with the cancel.
        reason: String,
    },

    /// No instance of the workflow has this id: it was never started, or retention removed it.
    #[error("the workflow {workflow} has no instance {id}")]
    WorkflowNotFound {
        /// The workflow.
        workflow: String,
        /// The id.
        id: String,
    },

    /// The workflow instance failed.
    #[error("the instance {id} of the workflow {workflow} failed{}", how_failed(node, failure))]
    WorkflowFailed {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// The first node that failed. Empty if the deadline passed, or the stored instance is damaged.
        node: String,
        /// How that node failed.
        failure: Box<Failure>,
    },

    /// The workflow instance cannot be retried while any of its nodes is open.
    #[error("the instance {id} of the workflow {workflow} still has {open} open node(s); retry when they have ended")]
    WorkflowBusy {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// How many of its nodes are open.
        open: u64,
    },

    /// The workflow instance was cancelled.
    #[error("the instance {id} of the workflow {workflow} was cancelled: {}", Escaped(reason))]
    WorkflowCancelled {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// The reason given with the cancel.
        reason: String,
    },

    /// A value cannot be encoded as JSON, or JSON cannot be decoded into the requested type.
    #[error("cannot encode or decode {what}{}", chain::no_number(source))]
    Codec {
        /// What was converted.
        what: String,
        /// Where and why it failed.
        source: serde_json::Error,
    },

    /// The [`PayloadCodec`](crate::PayloadCodec) of the App failed, or the value was encoded by a codec that the App does not have.
    #[error("cannot encode or decode {what}")]
    PayloadCodec {
        /// What was encoded or decoded.
        what: String,
        /// Why it failed.
        source: CodecError,
    },

    /// A script failed for another reason: a broken invariant, a foreign value under a key of Heartline, or a bug.
    #[error("the script {name} failed")]
    Server {
        /// The script, named like its file in `lua/`, or the command.
        name: &'static str,
        /// What the server answered.
        source: ServerError,
    },

    /// The wait for the job timed out. The job is not affected.
    #[error("job {id} of the task {task} did not end within {after:?}")]
    TimedOut {
        /// The task of the job.
        task: String,
        /// The job.
        id: JobId,
        /// How long the call waited.
        after: std::time::Duration,
    },

    /// The wait for the workflow instance timed out. The instance is not affected.
    #[error("the instance {id} of the workflow {workflow} did not end within {after:?}")]
    WorkflowTimedOut {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// How long the call waited.
        after: std::time::Duration,
    },

    /// The tokio runtime that carried the call shut down before the call finished.
    #[error("the tokio runtime shut down before the call finished")]
    Closed,
}

impl fmt::Debug for Error {
    /// The text with its causes, as `unwrap` and a `main` that returns the error show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // One fault per line.
            Error::Config(faults) => write!(f, "{faults}"),
            other => write!(f, "{}", other.chain()),
        }
    }
}

impl Error {
    /// Whether the same call, unchanged, may succeed later.
    ///
    /// True if Redis is unreachable or refuses writes. False for rejected credentials and for everything that needs a change first.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Connect { source } => source.may_pass(),
            Error::Refused { .. }
            | Error::TimedOut { .. }
            | Error::WorkflowTimedOut { .. }
            | Error::NotReplicated { .. }
            | Error::WorkflowBusy { .. } => true,
            Error::Partial { source, .. } => source.is_retryable(),
            Error::Config(_)
            | Error::Unsupported { .. }
            | Error::TooLarge { .. }
            | Error::JobNotFound { .. }
            | Error::ResultGone { .. }
            | Error::JobFailed(_)
            | Error::JobCancelled { .. }
            | Error::WorkflowNotFound { .. }
            | Error::WorkflowFailed { .. }
            | Error::WorkflowCancelled { .. }
            | Error::Denied { .. }
            | Error::Codec { .. }
            | Error::PayloadCodec { .. }
            | Error::Server { .. }
            | Error::Closed => false,
        }
    }

    /// What the server or the client reported, if that made the call fail.
    #[must_use]
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Error::Connect { source }
            | Error::Denied { source }
            | Error::Refused { source }
            | Error::Server { source, .. } => Some(source),
            Error::Partial { source, .. } => source.server_error(),
            _ => None,
        }
    }

    /// The kind of that error.
    pub(crate) fn server_kind(&self) -> Option<ServerErrorKind> {
        self.server_error().map(ServerError::kind)
    }
}

fn too_large(what: Option<&str>, size: usize, limit: usize) -> String {
    match what {
        None => format!("the payload has {size} bytes, the payload_limit of the task in this App is {limit}"),
        Some(what) => format!("{what} has {size} bytes, the limit in a workflow is {limit}"),
    }
}

/// How an instance failed, and at which node. A node that is a subgraph has no job.
fn how_failed(node: &str, failure: &Failure) -> String {
    let at = if node.is_empty() { String::new() } else { format!(" at its node {node}") };
    format!("{at} ({}): {}", Escaped(&failure.code), Escaped(&failure.message))
}

impl Error {
    /// The error with its causes on one line, for logs.
    pub(crate) fn chain(&self) -> Chain<'_> {
        Chain(self)
    }

    /// A copy of the error, for another caller that waited for the same call.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Connect { source } => Error::Connect { source: source.clone() },
            Error::Denied { source } => Error::Denied { source: source.clone() },
            Error::Refused { source } => Error::Refused { source: source.clone() },
            Error::Server { name, source } => Error::Server { name, source: source.clone() },
            Error::Config(faults) => Error::Config(faults.clone()),
            Error::NotReplicated { acked, replicas } => Error::NotReplicated { acked: *acked, replicas: *replicas },
            Error::Closed => Error::Closed,
            // Shared calls return no other errors.
            other => Error::Unsupported {
                what: match other {
                    Error::Unsupported { what } => what.clone(),
                    other => other.to_string(),
                },
            },
        }
    }

    /// A call was sent, and its answer did not arrive in time. The next call should get more time.
    pub(crate) fn late() -> Error {
        Error::Connect { source: ServerError::silence(Nature::Late) }
    }

    /// Adds the cluster node, which may differ from the configured address.
    pub(crate) fn by_node(mut self, node: Option<String>) -> Error {
        if let (Error::Connect { source }, Some(node)) = (&mut self, node) {
            source.0.text = format!("{node}: {}", source.0.text);
        }
        self
    }

    /// Another server is the primary now, so answers of the previous one do not count.
    pub(crate) fn primary_changed() -> Error {
        Error::Connect { source: ServerError::closed("another server is the primary now") }
    }

    /// Whether the error is [`Error::late`].
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_late())
    }

    /// Whether a value is larger than the server accepts.
    pub(crate) fn is_too_large(&self) -> bool {
        self.server_kind() == Some(ServerErrorKind::TooLarge)
    }

    /// No answer arrived in time.
    pub(crate) fn timed_out() -> Error {
        Error::Connect { source: ServerError::silence(Nature::TimedOut) }
    }

    /// Whether the error is [`Error::Connect`].
    pub(crate) fn is_connection(&self) -> bool {
        matches!(self, Error::Connect { .. })
    }

    /// Whether the error may go away without a change: the server is unreachable, is not ready, or is no longer the primary. In the
    /// last case its address soon leads to another server.
    pub(crate) fn is_outage(&self) -> bool {
        self.is_connection() && self.is_retryable() || self.is_demoted()
    }

    /// Whether the server closed an open connection, as servers do with idle ones.
    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_dropped())
    }

    /// Whether the server answered and rejected the call.
    pub(crate) fn is_refusal(&self) -> bool {
        !self.is_outage() && !matches!(self, Error::Closed)
    }

    /// Whether only a change of the server or of a setting helps.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_refusal() && !self.is_retryable() && !self.is_connection()
    }

    /// Whether the connection was closed, or gave no readable answer in time.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_broken())
    }

    /// Whether the connection must be replaced: it is broken, or leads to a server that may no longer be the primary. A rejected
    /// call (a missing permission, a busy server) does not end the connection.
    pub(crate) fn ends_connection(&self) -> bool {
        self.is_broken()
            || matches!(self, Error::Connect { source } | Error::Refused { source } if source.is_elsewhere())
    }

    /// Whether the server is no longer the primary, or has lost its replicas, for example because it was cut off from them. After a
    /// failover a new connection to its address leads to another server.
    pub(crate) fn is_demoted(&self) -> bool {
        let codes = [Some("READONLY"), Some("NOREPLICAS")];
        matches!(self, Error::Refused { source } if codes.contains(&source.code()))
    }

    /// Whether the Redis user lacks a permission.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Error::Denied { .. })
    }

    /// Whether no answer arrived in time.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_timeout())
    }

    /// Marks the error as one of the first calls over a new connection.
    pub(crate) fn at_first(mut self) -> Error {
        if let Error::Connect { source } = &mut self {
            source.0.connecting = true;
        }
        self
    }

    /// Adds the address of the server.
    pub(crate) fn at(mut self, place: &Arc<str>) -> Error {
        if let Error::Connect { source }
        | Error::Denied { source }
        | Error::Refused { source }
        | Error::Server { source, .. } = &mut self
        {
            source.set_place(place);
        }
        self
    }

    /// The operating system did not start what a worker needs.
    pub(crate) fn from_io(what: &'static str, e: io::Error) -> Error {
        Error::Unsupported { what: format!("{what} did not start: {e}") }
    }
}

/// Why a handler should stop, from [`Context::heartbeat`](crate::Context::heartbeat).
///
/// Return it with `?`. After an interruption, an error that the handler returns does not count as a failed attempt: the
/// interruption decides what happens to the job. If the job was not lost or cancelled, a returned value is recorded, so do not
/// return `Ok` for unfinished work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Interrupted {
    /// The lock is lost: another worker may hold the job, and the outcome of this run is dropped.
    #[error("the lock of this job was lost")]
    Lost,
    /// The job was cancelled.
    #[error("this job was cancelled")]
    Cancelled,
    /// The lock may soon be lost, and `OnLockRisk::Cancel` is set. The job is requeued.
    #[error("the lock of this job may soon be lost; the handler should stop")]
    AtRisk,
    /// The worker is shutting down and the grace period is over. If the handler returns an error, the job is requeued. A value
    /// still completes it.
    #[error("the worker is shutting down")]
    Shutdown,
    /// The process was frozen for so long that another worker may hold the job. This lasts until a heartbeat is answered.
    #[error("the process was frozen and may have lost this job")]
    Frozen,
    /// The handler has returned, or timed out. Only code that outlives the handler sees this, such as a `spawn_blocking` closure.
    #[error("the run of this job has ended")]
    Ended,
}

/// Why [`Context::checkpoint`](crate::Context::checkpoint), [`progress`](crate::Context::progress) or a similar call failed.
///
/// A handler that returns it with `?` fails. An interruption is handled as after `heartbeat`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// The handler should stop. If the run was lost or has ended, nothing is written.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),

    /// The encoded value is too large. Nothing was stored.
    #[error("the {what} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// `checkpoint` or `progress`.
        what: &'static str,
        /// Bytes of JSON, or of what the codec of the App returned.
        size: usize,
        /// The limit, bytes.
        limit: usize,
    },

    /// The value cannot be encoded as JSON.
    #[error("cannot encode the {what}")]
    Codec {
        /// `checkpoint` or `progress`.
        what: &'static str,
        /// Where and why it failed.
        source: serde_json::Error,
    },

    /// The [`PayloadCodec`](crate::PayloadCodec) of the App failed.
    #[error("cannot encode or decode the {what}")]
    PayloadCodec {
        /// `checkpoint` or `progress`.
        what: &'static str,
        /// Why it failed.
        source: CodecError,
    },

    /// The call to Redis failed. The checkpoint or progress may still have been stored.
    #[error("the call to redis failed")]
    Redis(#[from] Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_is_as_retryable_as_its_cause() {
        let partial = |source: Error| Error::Partial { dispatched: vec![], source: Box::new(source) };
        assert!(partial(Error::timed_out()).is_retryable());
        assert!(!partial(Error::Closed).is_retryable());
    }
}
