//! How a command fails, and with which exit status: 1 if it failed, 2 if it was used wrongly.

use std::io;
use std::process::ExitCode;

use heartline::inspect::text::chain;
use heartline::{ServerError, ServerErrorKind};

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was used wrongly; what to do instead.
    Wrong(String),
    /// It failed.
    Failed(String),
    /// A key holds a value of another type.
    WrongType(String),
    /// Redis was not reached, or gave no answer.
    Away(String),
    /// It has said already what is wrong.
    Told,
    /// Whoever read the output has gone.
    Unread,
}

impl Failure {
    pub(crate) fn wrong(what: impl Into<String>) -> Failure {
        Failure::Wrong(what.into())
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Failure::Wrong(_) => ExitCode::from(2),
            Failure::Failed(_) | Failure::WrongType(_) | Failure::Away(_) | Failure::Told => ExitCode::FAILURE,
            Failure::Unread => ExitCode::SUCCESS,
        }
    }
}

/// How a command ends that has told what it found, also where nobody reads that.
pub(crate) fn ended(is_well: bool, told: Result<(), Failure>) -> Result<(), Failure> {
    match told {
        Ok(()) | Err(Failure::Unread) if !is_well => Err(Failure::Told),
        told => told,
    }
}

impl From<heartline::Error> for Failure {
    fn from(error: heartline::Error) -> Failure {
        let mut what = chain(&error);
        let kind = error.server_error().map(ServerError::kind);
        what.push_str(match kind {
            Some(ServerErrorKind::Auth) => {
                "; put the password into the address: redis://:PASSWORD@host; with sentinels redis-sentinel://:PASSWORD@host?sentinelServiceName=NAME \
                 for the servers, and &sentinelPassword=… for the sentinels; best in HEARTLINE_URL"
            }
            Some(ServerErrorKind::TryAgain) => "; its slot is moving to another node of the cluster: try again when the move has ended",
            Some(ServerErrorKind::UntrustedCertificate) => "; --tls-ca FILE names the CA that signed the certificate of the server",
            Some(ServerErrorKind::ClientCertificate) => "; --tls-cert FILE and --tls-key FILE name the client certificate",
            _ => "",
        });
        match &error {
            heartline::Error::Config(_) => Failure::Wrong(what),
            // One that says no has answered.
            heartline::Error::Connect { source } if error.is_retryable() || source.code().is_none() => {
                Failure::Away(what)
            }
            _ if kind == Some(ServerErrorKind::WrongType) => Failure::WrongType(what),
            _ => Failure::Failed(what),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        // `heartline jobs list | head` is no fault.
        if error.kind() == io::ErrorKind::BrokenPipe { Failure::Unread } else { Failure::Failed(chain(&error)) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        match error.io_error_kind() {
            Some(io::ErrorKind::BrokenPipe) => Failure::Unread,
            _ => Failure::Failed(chain(&error)),
        }
    }
}
