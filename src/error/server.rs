//! What the server or the client reported about a failed call, without types of the client.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::kind::ServerErrorKind;
use crate::escape::Escaped;

/// What the server or the client reported about a failed call.
///
/// The text is one line and never contains a password.
#[derive(Clone)]
pub struct ServerError(pub(crate) Box<Said>);

/// The facts of a [`ServerError`].
#[derive(Clone, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// The code that the server answered with.
    pub(crate) code: Option<String>,
    pub(crate) kind: ServerErrorKind,
    pub(crate) nature: Nature,
    /// Whether the call was one of the first over a new connection.
    pub(crate) connecting: bool,
    /// Whether only one side may speak TLS.
    pub(crate) suspects_tls: bool,
    /// Whether the server closed the connection, as it does if only one side speaks TLS or the client certificate is missing.
    pub(crate) is_dropped: bool,
    /// Whether the connection uses TLS.
    pub(crate) is_over_tls: bool,
    /// Whether a setting is wrong: a password, a database, an address, a certificate.
    pub(crate) is_of_settings: bool,
    /// Whether a script found a permission missing before it wrote anything.
    pub(crate) wrote_nothing: bool,
    /// The address of the server, if known.
    pub(crate) place: Option<Arc<str>>,
}

/// How a call failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The server or the client rejected the call.
    #[default]
    Refused,
    /// The connection was closed, or could not be opened.
    Closed,
    /// No answer arrived in time.
    TimedOut,
    /// The call was sent, and no answer arrived in time. The next call should get more time.
    Late,
    /// The answer cannot be read.
    Unreadable,
}

/// The text of a call that was not answered in time.
pub(crate) const NO_ANSWER: &str = "no answer in time";

/// Codes of a server that is no longer the primary, or is cut off from the others.
pub(crate) const ELSEWHERE_CODES: [&str; 5] = ["READONLY", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN"];

impl ServerError {
    /// No answer arrived in time.
    pub(super) fn silence(nature: Nature) -> ServerError {
        ServerError(Box::new(Said { text: NO_ANSWER.to_owned(), nature, ..Said::default() }))
    }

    /// The connection is closed, or no longer leads to the primary.
    pub(super) fn closed(text: &str) -> ServerError {
        ServerError(Box::new(Said { text: text.to_owned(), nature: Nature::Closed, ..Said::default() }))
    }

    /// The code that the server answered with: `OOM`, `NOPERM`, `WRONGPASS`. `None` without an answer, or if the answer has no code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ServerErrorKind {
        let said = &self.0;
        match said.nature {
            _ if said.kind != ServerErrorKind::Other => said.kind,
            _ if said.suspects_tls => ServerErrorKind::Tls,
            Nature::Closed if said.connecting && said.is_dropped => match said.is_over_tls {
                true => ServerErrorKind::ClientCertificate,
                false => ServerErrorKind::Tls,
            },
            Nature::TimedOut | Nature::Late => ServerErrorKind::Timeout,
            Nature::Closed => ServerErrorKind::Closed,
            Nature::Unreadable => ServerErrorKind::Unreadable,
            Nature::Refused => ServerErrorKind::Other,
        }
    }

    /// Whether the call is known to have been denied before it wrote anything.
    #[must_use]
    pub fn wrote_nothing(&self) -> bool {
        self.0.wrote_nothing
    }

    /// Whether no answer arrived in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.nature, Nature::TimedOut | Nature::Late)
    }

    pub(super) fn set_place(&mut self, place: &Arc<str>) {
        let scheme = place.split("://").next().unwrap_or_default();
        self.0.is_over_tls |= ["rediss", "valkeys"].iter().any(|tls| scheme.starts_with(tls));
        self.0.place.get_or_insert_with(|| Arc::clone(place));
    }

    pub(super) fn place(&self) -> impl fmt::Display {
        self.0.place.as_ref().map_or("redis".to_owned(), |place| format!("redis at {place}"))
    }

    pub(super) fn is_late(&self) -> bool {
        self.0.nature == Nature::Late
    }

    /// Whether the server closed an open connection.
    pub(super) fn is_dropped(&self) -> bool {
        self.0.is_dropped && !self.0.connecting
    }

    /// Whether the connection was closed, or gave no readable answer in time.
    pub(super) fn is_broken(&self) -> bool {
        self.0.nature != Nature::Refused || self.0.kind == ServerErrorKind::TooManyClients
    }

    /// Whether another server may be the primary now.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.code().is_some_and(|code| ELSEWHERE_CODES.contains(&code))
    }

    /// Whether the server does not speak the Redis protocol.
    fn is_no_redis(&self) -> bool {
        self.0.connecting && self.0.nature == Nature::Unreadable
    }

    /// Whether the error may go away without a change. A wrong password or address does not.
    pub(super) fn may_pass(&self) -> bool {
        !self.0.is_of_settings && !self.is_no_redis()
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_no_redis() {
            return f.write_str("the server at this address is not Redis");
        }
        Escaped(&self.0.text).fmt(f)?;
        if self.0.suspects_tls {
            return f.write_str("; does the port speak TLS?");
        }
        match self.0.connecting && self.0.is_dropped {
            true => f.write_str("; does the port speak TLS, or require a client certificate?"),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerError").field(&self.to_string()).finish()
    }
}

impl StdError for ServerError {}
