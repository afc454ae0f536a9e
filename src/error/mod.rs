//! Everything that can go wrong: [`Error`] for callers, [`JobError`] for handlers.

mod cause;
pub(crate) mod chain;
pub(crate) mod job_error;
pub(crate) mod kind;
pub(crate) mod server;

pub use job_error::{JobError, MissingData};
pub use kind::ServerErrorKind;
pub use server::ServerError;

use std::sync::Arc;
use std::{fmt, io};

use self::chain::Chain;
use self::server::Nature;
use crate::faults::ConfigErrors;
use crate::job::failure::Failure;
use crate::job::id::JobId;
use crate::shown::Shown;

/// What Heartline's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not do what it was asked to.
///
/// The variants follow what the caller can do about it. Every call that asks Redis may fail with `Connect`, `Denied`,
/// `Unsupported` (its first look at the server) or `Server` (something foreign under a key); what else a call gives is said
/// there. An error says what failed and leaves the cause to
/// [`source`](std::error::Error::source), so print the whole chain, as [`Debug`](fmt::Debug) does. A handler returns a
/// [`JobError`], not this.
///
/// ```no_run
/// # use heartline::{Error, TaskRef};
/// # async fn run(mails: TaskRef<String, ()>) -> heartline::Result<()> {
/// match mails.dispatch("ada".to_owned()).id("welcome-ada").await {
///     Ok(job) => println!("{}", job.id()),
///     Err(e) if e.is_retryable() => println!("later again, with the same id: {e:?}"),
///     Err(e) => return Err(e),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument breaks a rule. All faults of the call are listed; nothing was changed.
    #[error(transparent)]
    Config(#[from] ConfigErrors),

    /// Redis cannot be reached, did not answer in time, is not ready, takes no more clients, or does not accept our credentials
    /// or database.
    /// The text says where that is.
    ///
    /// A call whose answer was lost may have been carried out.
    #[error("cannot reach {}", source.place())]
    Connect {
        /// What the client reported.
        source: ServerError,
    },

    /// Our user of the server lacks a right.
    #[error("{} denies a right", source.place())]
    Denied {
        /// What the server answered: it names the right.
        source: ServerError,
    },

    /// Redis refuses to write: it is out of memory, read-only, or lacks the replicas or the disk it insists on.
    #[error("redis refuses to write")]
    Refused {
        /// What the server answered.
        source: ServerError,
    },

    /// The server or its data is nothing this version can work with.
    #[error("not supported: {}", Shown(what))]
    Unsupported {
        /// What is in the way: an old server, a newer wire version, an eviction policy that loses jobs.
        what: String,
    },

    /// The payload is larger than the task's `payload_limit`, or a node of a workflow has too much. Nothing was dispatched.
    #[error("{}", too_large(what.as_deref(), *size, *limit))]
    TooLarge {
        /// What of a node is too large; `None` of a payload.
        what: Option<String>,
        /// Size of the encoded payload in bytes.
        size: usize,
        /// The limit in force in bytes.
        limit: usize,
    },

    /// Fewer replicas than [`Durability::Replicated`](crate::Durability::Replicated) wants had the write when the time was over. It is in place.
    ///
    /// It is safe to repeat the call with the same id, which waits for them again.
    #[error("{acked} of {replicas} replicas have the write; it is in place")]
    NotReplicated {
        /// How many replicas have it.
        acked: u32,
        /// How many were to have it.
        replicas: u32,
    },

    /// A dispatch of many jobs failed after as many as `dispatched` were written, which may be none.
    ///
    /// It is safe to repeat the whole call with the same ids.
    #[error("the dispatch failed after {} jobs were written", dispatched.len())]
    Partial {
        /// The jobs that are known to be in Redis, in the order of the call.
        dispatched: Vec<JobId>,
        /// What stopped the call.
        source: Box<Error>,
    },

    /// No job has this id: it was never dispatched, or retention removed it.
    #[error("the task {task} has no job {id}")]
    JobNotFound {
        /// The task asked.
        task: String,
        /// The id asked for.
        id: JobId,
    },

    /// The job completed, but its value is not kept (any more).
    #[error("the result of job {id} of the task {task} is not kept")]
    ResultGone {
        /// The task of the job.
        task: String,
        /// The job.
        id: JobId,
    },

    /// The job asked for ended as failed.
    #[error("{0}")]
    JobFailed(Failure),

    /// The job asked for was cancelled.
    #[error("job {id} was cancelled: {}", Shown(reason))]
    JobCancelled {
        /// The job.
        id: JobId,
        /// The reason given with the cancel.
        reason: String,
    },

    /// No instance of the workflow has this id: it was never started, or is not kept any more.
    #[error("the workflow {workflow} has no instance {id}")]
    WorkflowNotFound {
        /// The workflow asked.
        workflow: String,
        /// The id asked for.
        id: String,
    },

    /// The instance of a workflow that was asked for ended as failed.
    #[error("the instance {id} of the workflow {workflow} failed{}", how_failed(node, failure))]
    WorkflowFailed {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// The first node that broke it; empty where its deadline did, or what is stored of the instance is damaged.
        node: String,
        /// How that node failed.
        failure: Box<Failure>,
    },

    /// Nodes of the instance of a workflow are open: it cannot run once more now.
    #[error("{open} open node(s) of the instance {id} of the workflow {workflow}: it runs once more when none is")]
    WorkflowBusy {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// How many of its nodes are open.
        open: u64,
    },

    /// The instance of a workflow that was asked for was cancelled.
    #[error("the instance {id} of the workflow {workflow} was cancelled: {}", Shown(reason))]
    WorkflowCancelled {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// The reason given with the cancel.
        reason: String,
    },

    /// A value cannot be turned into JSON, or JSON into the type asked for.
    #[error("cannot encode or decode {what}")]
    Codec {
        /// What was being converted.
        what: String,
        /// Where and why it failed.
        source: serde_json::Error,
    },

    /// A script ended in an error that is none of the above: a broken invariant, a foreign value under one of
    /// our keys, or a bug.
    #[error("the script {name} failed")]
    Server {
        /// The script, named as its file in `lua/`, or the command.
        name: &'static str,
        /// What the server answered.
        source: ServerError,
    },

    /// The job asked for had not ended when the time for waiting was over. It goes on as it would.
    #[error("job {id} of the task {task} has not ended within {after:?}")]
    TimedOut {
        /// The task of the job.
        task: String,
        /// The job.
        id: JobId,
        /// How long was waited.
        after: std::time::Duration,
    },

    /// The instance of a workflow that was asked for had not ended when the time for waiting was over. It continues.
    #[error("the instance {id} of the workflow {workflow} has not ended within {after:?}")]
    WorkflowTimedOut {
        /// The workflow.
        workflow: String,
        /// The instance.
        id: String,
        /// How long was waited.
        after: std::time::Duration,
    },

    /// The call could not be finished because the runtime that would have carried it is shut down.
    #[error("the runtime was shut down before the call was through")]
    Closed,
}

impl fmt::Debug for Error {
    /// The text with that of the causes: what `unwrap`, and a `main` that returns it, show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A fault a line.
            Error::Config(faults) => write!(f, "{faults}"),
            other => write!(f, "{}", other.chain()),
        }
    }
}

impl Error {
    /// Whether the same call, unchanged, may succeed later.
    ///
    /// True while Redis is away or refuses to write; false for refused credentials and for everything that
    /// needs a change first.
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
            | Error::Server { .. }
            | Error::Closed => false,
        }
    }
}

impl Error {
    /// What the server or the client reported, if the call failed by that.
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

/// Of nodes the limit is the same for all.
fn too_large(what: Option<&str>, size: usize, limit: usize) -> String {
    match what {
        None => format!("the payload has {size} bytes, the payload_limit of the task is {limit}"),
        Some(what) => format!("{what} has {size} bytes, and a workflow takes at most {limit}"),
    }
}

/// At which node an instance failed, if it was one, and how. A node may be a graph, and have no job.
fn how_failed(node: &str, failure: &Failure) -> String {
    let at = if node.is_empty() { String::new() } else { format!(" at its node {node}") };
    format!("{at} ({}): {}", Shown(&failure.code), Shown(&failure.message))
}

impl Error {
    /// The error with its causes on one line, for the log.
    pub(crate) fn chain(&self) -> Chain<'_> {
        Chain(self)
    }

    /// The error of one call, for one more of those who waited for it.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Connect { source } => Error::Connect { source: source.clone() },
            Error::Denied { source } => Error::Denied { source: source.clone() },
            Error::Refused { source } => Error::Refused { source: source.clone() },
            Error::Server { name, source } => Error::Server { name, source: source.clone() },
            Error::Config(faults) => Error::Config(faults.clone()),
            Error::NotReplicated { acked, replicas } => Error::NotReplicated { acked: *acked, replicas: *replicas },
            Error::Closed => Error::Closed,
            // A call for many ends in none of the others.
            other => Error::Unsupported {
                what: match other {
                    Error::Unsupported { what } => what.clone(),
                    other => other.to_string(),
                },
            },
        }
    }

    /// A call that was sent, and whose answer did not come in time: the next one is to be given more.
    pub(crate) fn late() -> Error {
        Error::Connect { source: ServerError::silence(Nature::Late) }
    }

    /// The same of a node of a cluster, which is not the one that people named.
    pub(crate) fn by_node(mut self, node: Option<String>) -> Error {
        if let (Error::Connect { source }, Some(node)) = (&mut self, node) {
            source.set_node(&node);
        }
        self
    }

    /// Another server is the primary now: an answer of the one before is none.
    pub(crate) fn primary_changed() -> Error {
        Error::Connect { source: ServerError::closed("another server is the primary now") }
    }

    /// Whether a call that was sent was not answered in the time that it had.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_late())
    }

    /// Whether a node said that the cluster is down.
    pub(crate) fn says_down(&self) -> bool {
        matches!(self, Error::Connect { source } if source.code() == Some("CLUSTERDOWN"))
    }

    /// Whether the server said that a value is larger than it takes.
    pub(crate) fn is_too_large(&self) -> bool {
        self.server_kind() == Some(ServerErrorKind::TooLarge)
    }

    /// An answer that did not come in time.
    pub(crate) fn timed_out() -> Error {
        Error::Connect { source: ServerError::silence(Nature::TimedOut) }
    }

    /// Whether the server could not be asked, or its answer did not come.
    pub(crate) fn is_connection(&self) -> bool {
        matches!(self, Error::Connect { .. })
    }

    /// Whether time alone may mend it: the server is away, is not ready, or is a primary no more, in which case its address
    /// leads to another one after a while.
    pub(crate) fn is_outage(&self) -> bool {
        self.is_connection() && self.is_retryable() || self.is_demoted()
    }

    /// Whether the other end closed a connection that was up, as servers do with one that was idle.
    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_dropped())
    }

    /// Whether the server was heard, and says no.
    pub(crate) fn is_refusal(&self) -> bool {
        !self.is_outage() && !matches!(self, Error::Closed)
    }

    /// The same, where only a change of the server or of a setting helps.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_refusal() && !self.is_retryable() && !self.is_connection()
    }

    /// Whether the connection was closed, or gave no answer in time.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_broken())
    }

    /// Whether the connection is of no use any more: it is broken, or leads to a server that may not be the primary any more,
    /// while the address leads to another one. An answer that merely says no (a missing right, a busy server) does not end it.
    pub(crate) fn ends_connection(&self) -> bool {
        self.is_broken()
            || matches!(self, Error::Connect { source } | Error::Refused { source } if source.is_elsewhere())
    }

    /// Whether the server is a primary no more, or has lost its replicas, as one has that was cut off from the others. After a failover its address
    /// leads to another one, over a new connection.
    pub(crate) fn is_demoted(&self) -> bool {
        let codes = [Some("READONLY"), Some("NOREPLICAS")];
        matches!(self, Error::Refused { source } if codes.contains(&source.code()))
    }

    /// Whether our user of the server lacks a right.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Error::Denied { .. })
    }

    /// Whether an answer did not come in time.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_timeout())
    }

    /// The same error of the first calls that a server was asked.
    pub(crate) fn at_first(mut self) -> Error {
        if let Error::Connect { source } = &mut self {
            source.set_connecting();
        }
        self
    }

    /// The same error, which says where the server is.
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

    /// Something of the operating system's that a worker cannot do without.
    pub(crate) fn from_io(what: &'static str, e: io::Error) -> Error {
        Error::Unsupported { what: format!("{what} could not be started: {e}") }
    }
}

/// Why a handler should stop, from [`Context::heartbeat`](crate::Context::heartbeat).
///
/// Return it with `?`. An error that a handler returns after an interruption does not count as a failed attempt: the interruption
/// decides what becomes of the job. If the job was not lost or cancelled, a value is recorded, so do not return `Ok` for work
/// that is half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Interrupted {
    /// The lock is gone: another worker may hold the job, and this run's outcome will be dropped.
    #[error("the lock of this job was lost")]
    Lost,
    /// Somebody cancelled the job.
    #[error("this job was cancelled")]
    Cancelled,
    /// The lock may soon be lost, and `OnRisk::Cancel` is set. The job is requeued.
    #[error("this job may soon be lost and is to stop")]
    AtRisk,
    /// The worker is shutting down and the grace period is over. With an error the job is requeued; a value
    /// still completes it.
    #[error("the worker is shutting down")]
    Shutdown,
    /// The process was stopped for so long that the job may be held elsewhere. It holds until a beat is
    /// answered.
    #[error("the process was frozen and may have lost this job")]
    Frozen,
    /// The run is over: it returned, or its time-out dropped it. Only what outlived it sees this, as a `spawn_blocking`
    /// closure does.
    #[error("the run of this job is over")]
    Ended,
}

/// Why [`Context::checkpoint`](crate::Context::checkpoint), [`progress`](crate::Context::progress) and their kin did not do what they were asked to.
///
/// A handler that returns it with `?` fails; one that was interrupted is treated as it is after `heartbeat`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// The handler should stop. Of a run that was lost, or has ended, nothing is written.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),

    /// The JSON is larger than what is taken. Nothing was noted.
    #[error("the {what} has {size} bytes of JSON, the limit is {limit}")]
    TooLarge {
        /// `checkpoint` or `progress`.
        what: &'static str,
        /// Bytes of JSON.
        size: usize,
        /// The most bytes that are taken.
        limit: usize,
    },

    /// The value cannot be turned into JSON.
    #[error("cannot encode the {what}")]
    Codec {
        /// `checkpoint` or `progress`.
        what: &'static str,
        /// Where and why it failed.
        source: serde_json::Error,
    },

    /// Redis did not take the note, or gave no answer; it may have been written.
    #[error("redis did not answer as it should")]
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
