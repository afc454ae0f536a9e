//! The failures of commands and their exit status: 1 for a failure, 2 for wrong usage.

use std::io;
use std::process::ExitCode;

use heartline::inspect::text::chain;
use heartline::{ServerError, ServerErrorKind};

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong usage; says what to do instead.
    Wrong(String),
    /// Any other failure.
    Failed(String),
    /// A key has the wrong type.
    WrongType(String),
    /// Redis is unreachable or does not answer.
    Unreachable(String),
    /// The failure was already printed.
    Printed,
    /// The reader of the output has closed it.
    OutputClosed,
}

impl Failure {
    pub(crate) fn wrong(what: impl Into<String>) -> Failure {
        Failure::Wrong(what.into())
    }

    /// What went wrong. Empty if it was printed.
    pub(crate) fn text(&self) -> &str {
        match self {
            Failure::Wrong(what) | Failure::Failed(what) | Failure::WrongType(what) | Failure::Unreachable(what) => {
                what
            }
            Failure::Printed | Failure::OutputClosed => "",
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Failure::Wrong(_) => ExitCode::from(2),
            Failure::Failed(_) | Failure::WrongType(_) | Failure::Unreachable(_) | Failure::Printed => {
                ExitCode::FAILURE
            }
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

/// The end of a command that has printed what is wrong. It fails even if the output was closed.
pub(crate) fn ended(is_well: bool, printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Ok(()) | Err(Failure::OutputClosed) if !is_well => Err(Failure::Printed),
        printed => printed,
    }
}

impl From<heartline::Error> for Failure {
    fn from(error: heartline::Error) -> Failure {
        let mut what = chain(&error);
        let kind = error.server_error().map(ServerError::kind);
        what.push_str(match kind {
            Some(ServerErrorKind::Auth) if error.server_error().and_then(ServerError::code) == Some("NOAUTH") => {
                "; the server needs a password: set HEARTLINE_URL to redis://:PASSWORD@host, or with sentinels to \
                 redis-sentinel://:PASSWORD@host?sentinelServiceName=NAME, with &sentinelPassword=… if the sentinels need one"
            }
            Some(ServerErrorKind::Auth) => {
                "; the user or the password in the address is wrong, or the user is off; write redis://USER:PASSWORD@host, with % as %25, \
                 @ as %40, : as %3A and / as %2F in both"
            }
            Some(ServerErrorKind::NoPermission) => "; docs/acl.md lists the rights that each role needs",
            Some(ServerErrorKind::OutOfMemory) => {
                "; raise maxmemory, or free memory, such as by `heartline task purge TASK --state completed`"
            }
            Some(ServerErrorKind::Timeout) => {
                "; the server is overloaded or frozen, or the network drops its packets: `redis-cli -u URL ping` checks whether it answers"
            }
            Some(ServerErrorKind::TryAgain) => "; its slot is moving to another cluster node; try again after the move",
            Some(ServerErrorKind::UntrustedCertificate) => "; pass the CA of the server's certificate with --tls-ca FILE",
            Some(ServerErrorKind::ClientCertificate) => "; pass a client certificate with --tls-cert FILE and --tls-key FILE",
            _ => "",
        });
        match &error {
            heartline::Error::Config(_) => Failure::Wrong(what),
            // A server that refuses has answered.
            heartline::Error::Connect { source } if error.is_retryable() || source.code().is_none() => {
                Failure::Unreachable(what)
            }
            _ if kind == Some(ServerErrorKind::WrongType) => Failure::WrongType(what),
            _ => Failure::Failed(what),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        // A closed pipe, as in `heartline jobs list | head`, must not look like a failure.
        if error.kind() == io::ErrorKind::BrokenPipe { Failure::OutputClosed } else { Failure::Failed(chain(&error)) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        Failure::Failed(chain(&error))
    }
}
