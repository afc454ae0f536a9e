//! Why a private server could not start.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How long a server may take to answer after its start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a private server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No server program was found.
    #[error(
        "{wanted} not found: install it (`apt-get install redis-server` or `brew install redis`), or set \
         HEARTLINE_REDIS_SERVER"
    )]
    NotFound {
        /// The program that was searched for.
        wanted: String,
    },
    /// The operating system refused a file, a port or a process.
    #[error("cannot {action} for the private redis server")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The server ended before it answered.
    #[error("{} ended while starting: {reason}", binary.display())]
    Ended {
        /// The server program.
        binary: PathBuf,
        /// The last line of its log.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("{} did not answer on port {port} within {START_TIMEOUT:?}", binary.display())]
    Silent {
        /// The server program.
        binary: PathBuf,
        /// The port it was started with.
        port: u16,
    },
    /// The nodes did not form a cluster in time.
    #[error("the nodes of the private cluster did not form a cluster: one of them replied {reply} to {command}")]
    Apart {
        /// The last command that was sent.
        command: String,
        /// The reply.
        reply: String,
    },
    /// No free port was found, or another program took the port of a restarted server.
    #[error("no free port for the private redis server")]
    NoPort,
}

pub(super) fn io_error(action: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { action, source }
}
