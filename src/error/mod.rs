//! Everything that can go wrong: [`Error`] for callers, [`JobError`] for handlers, [`ConfigErrors`] for settings.

mod chain;
mod job_error;
mod server;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use self::chain::Chain;
use crate::job::{Failure, JobId};
use crate::shown::Shown;

pub(crate) use job_error::{ErrorMap, error_map, mapped};
pub use job_error::{JobError, MissingData};
pub use server::ServerError;
pub(crate) use server::{classify, not_connected, says_full};

/// What Heartline's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not do what it was asked to.
///
/// The variants follow what the caller can do about it. Every call that asks Redis may fail with `Connect`, `Denied`,
/// `Unsupported` (its first look at the server) or `Server` (something foreign under a key); what else a call gives is said
/// there. An error says what failed and leaves the cause to
/// [`source`](std::error::Error::source), so print the whole chain, as [`Debug`](fmt::Debug) does. A handler returns a
/// [`JobError`], not this.
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

    /// The payload is larger than the task's `payload_limit`. Nothing was dispatched.
    #[error("the payload has {size} bytes, the payload_limit of the task is {limit}")]
    TooLarge {
        /// Size of the encoded payload in bytes.
        size: usize,
        /// The limit in force in bytes.
        limit: usize,
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
            Error::Refused { .. } | Error::TimedOut { .. } => true,
            Error::Partial { source, .. } => source.is_retryable(),
            Error::Config(_)
            | Error::Unsupported { .. }
            | Error::TooLarge { .. }
            | Error::JobNotFound { .. }
            | Error::ResultGone { .. }
            | Error::JobFailed(_)
            | Error::JobCancelled { .. }
            | Error::Denied { .. }
            | Error::Codec { .. }
            | Error::Server { .. }
            | Error::Closed => false,
        }
    }
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
        Error::Connect { source: ServerError::late() }
    }

    /// Whether a call that was sent was not answered in the time that it had.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Error::Connect { source } if source.is_late())
    }

    /// Whether the server said that a value is larger than it takes.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Error::Server { source, .. } if source.is_too_large())
    }

    /// An answer that did not come in time.
    pub(crate) fn timed_out() -> Error {
        classify("call", io::Error::from(io::ErrorKind::TimedOut).into())
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

    /// Whether the server is a primary no more. After a failover its address leads to another one, over a new connection.
    pub(crate) fn is_demoted(&self) -> bool {
        matches!(self, Error::Refused { source } if source.code() == Some("READONLY"))
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

/// Every fault of one configuration, found in one go.
///
/// Displayed one fault a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `Ok` when there is no fault.
    pub(crate) fn check(faults: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if faults.is_empty() { Ok(()) } else { Err(ConfigErrors(faults)) }
    }

    /// The faults, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }

    /// How many faults there are; at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no fault, which never happens in an error that was returned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(fault: ConfigError) -> Self {
        ConfigErrors(vec![fault])
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl StdError for ConfigErrors {}

/// One setting that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {}: it {rule}; {fix}", Shown(value))]
#[non_exhaustive]
pub struct ConfigError {
    /// The setting, as a path: `stall.interval`.
    pub field: String,
    /// What it was set to.
    pub value: String,
    /// The rule it breaks: `must be 1 s to 24 h`.
    pub rule: String,
    /// What to do about it.
    pub fix: String,
}

impl ConfigError {
    /// One fault.
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        ConfigError { field: field.into(), value: value.into(), rule: rule.into(), fix: fix.into() }
    }
}

/// Why a call of `ctx` tells the handler to stop.
///
/// Return it with `?`. An error that a handler returns after an interruption is not counted as its own: what becomes of the job
/// is decided by what interrupted it. A value is recorded all the same if the job was not lost or cancelled, so do not
/// return `Ok` for work that is half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Interrupted {
    /// The lock is gone: another worker may hold the job, and this run's outcome will be dropped.
    #[error("the lock of this job was lost")]
    Lost,
    /// Somebody cancelled the job.
    #[error("this job was cancelled")]
    Cancelled,
    /// `OnRisk::Cancel` came true: the lock may soon be lost. The job is requeued.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::MESSAGE_LIMIT;
    use crate::options::validate;
    use proptest::prelude::*;
    use redis::make_extension_error;
    use std::io;
    use std::time::Duration;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    fn chain(texts: &[&'static str]) -> Link {
        let (text, rest) = texts.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(chain(rest)));
        Link { text, source }
    }

    fn server(code: &str) -> Error {
        classify("settle", make_extension_error(code.into(), Some("detail".into())))
    }

    #[test]
    fn partial_is_as_retryable_as_its_cause() {
        let partial = |source: Error| Error::Partial { dispatched: vec![], source: Box::new(source) };
        assert!(partial(server("OOM")).is_retryable());
        assert!(!partial(Error::Closed).is_retryable());
    }

    #[test]
    fn config_errors_show_one_fault_a_line() {
        let fault = |field: &str| ConfigError::new(field, "0", "must be 1 to 5", "use 1");
        let error = ConfigErrors::check(vec![fault("a"), fault("b")]).unwrap_err();
        assert_eq!(error.len(), 2);
        let text = "a is 0: it must be 1 to 5; use 1\nb is 0: it must be 1 to 5; use 1";
        assert_eq!(Error::from(error).to_string(), text);
    }

    #[test]
    fn everything_a_handler_returns_converts() {
        fn io() -> Result<(), JobError> {
            Err(io::Error::other("disk"))?;
            Ok(())
        }
        fn text() -> Result<(), JobError> {
            Err("text")?;
            Ok(())
        }
        fn any() -> Result<(), JobError> {
            Err(anyhow::anyhow!("inner").context("outer"))?;
            Ok(())
        }
        fn stop() -> Result<(), JobError> {
            Err(Interrupted::Lost)?;
            Ok(())
        }
        fn own() -> Result<(), JobError> {
            Err(Error::Closed)?;
            Ok(())
        }
        fn already() -> Result<(), JobError> {
            Err(JobError::new("x").fatal())?;
            Ok(())
        }
        assert_eq!(io().unwrap_err().message(), "disk");
        assert_eq!(text().unwrap_err().code(), "handler_error");
        assert_eq!(any().unwrap_err().to_string(), "outer: inner");
        assert_eq!(stop().unwrap_err().message(), "the lock of this job was lost");
        assert_eq!(own().unwrap_err().message(), "the runtime was shut down before the call was through");
        assert!(already().unwrap_err().is_fatal());
    }

    #[test]
    fn the_message_follows_the_chain_and_repeats_nothing() {
        assert_eq!(JobError::from(chain(&["a", "b", "c"])).message(), "a: b: c");
        assert_eq!(JobError::from(chain(&["a: b", "b", "c"])).message(), "a: b: c");
    }

    #[test]
    fn bad_codes_become_handler_error_and_stay_in_the_message() {
        let good = JobError::new("e").with_code("no_money");
        assert_eq!((good.code(), good.message().as_str()), ("no_money", "e"));
        let long = "x".repeat(65);
        for bad in ["", "Bad Code", "é", "worker_crashed", "timeout", long.as_str()] {
            let error = JobError::new("e").with_code(bad);
            assert_eq!(error.code(), "handler_error");
            let head: String = bad.chars().take(64).collect();
            let wanted = format!("[code {head:?} is reserved or malformed] e");
            assert_eq!(error.message(), wanted);
        }
    }

    #[test]
    fn the_message_is_bounded_between_characters() {
        proptest!(|(head in 0usize..8, text in "[aé€😀]{1000,2500}")| {
            let text = format!("{}{text}", "x".repeat(head));
            let message = JobError::from(text.clone()).message();
            prop_assert!(message.len() <= MESSAGE_LIMIT);
            prop_assert!(message.len() + 3 >= MESSAGE_LIMIT.min(text.len()));
            prop_assert!(text.starts_with(&message));
        });
    }

    #[test]
    fn a_display_that_gives_up_does_not_panic() {
        #[derive(Debug)]
        struct Rude;
        impl fmt::Display for Rude {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                Err(fmt::Error)
            }
        }
        impl StdError for Rude {}
        assert_eq!(JobError::from(Rude).message(), "");
    }

    #[test]
    fn flags_are_kept() {
        assert!(JobError::new("x").fatal().is_fatal());
        let error = JobError::new("x").retry_after(Duration::MAX);
        assert_eq!(error.retry_after_delay(), Some(validate::LONGEST));
        assert!(!error.is_fatal());
        assert!(format!("{error:?}").contains("handler_error"));
    }
}
