//! What the client or the server said about a call that failed, without a name of the client's.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::kind::ServerErrorKind;
use crate::shown::Shown;

/// What the client or the server said about a call that failed.
///
/// Its text is one line, and never holds a password.
#[derive(Clone)]
pub struct ServerError(Box<Said>);

/// What became of the call, and what was said of it.
#[derive(Clone, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// The code that the server answered with.
    pub(crate) code: Option<String>,
    pub(crate) kind: ServerErrorKind,
    pub(crate) nature: Nature,
    /// Whether nothing was heard of the server before.
    pub(crate) connecting: bool,
    /// The other end may not speak TLS where we do.
    pub(crate) suspects_tls: bool,
    /// The other end closed the connection, as one does that speaks TLS where we do not, or that wants a certificate.
    pub(crate) is_dropped: bool,
    /// Whether the connection is one over TLS.
    pub(crate) is_over_tls: bool,
    /// Whether a setting of ours is wrong: a password, a database, an address, a certificate.
    pub(crate) is_of_settings: bool,
    /// Whether a script asked for its rights first, and wrote nothing.
    pub(crate) wrote_nothing: bool,
    /// Where the server is, as far as it is known.
    pub(crate) place: Option<Arc<str>>,
}

/// What became of a call that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The server said no, or the client did.
    #[default]
    Refused,
    /// The connection was closed, or did not come up.
    Closed,
    /// No answer came in time.
    TimedOut,
    /// The same of a call that was sent: the next one is to be given more.
    Late,
    /// What came is no answer.
    Unreadable,
}

/// What is said of a call that was not answered in time.
pub(crate) const NO_ANSWER: &str = "no answer in time";

/// What a server says that was the primary and is none, or that is cut off from the others.
pub(crate) const ELSEWHERE_CODES: [&str; 5] = ["READONLY", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN"];

impl ServerError {
    pub(crate) fn new(said: Said) -> ServerError {
        ServerError(Box::new(said))
    }

    /// An answer that did not come in time.
    pub(super) fn silence(nature: Nature) -> ServerError {
        ServerError::new(Said { text: NO_ANSWER.to_owned(), nature, ..Said::default() })
    }

    /// A connection that leads to no primary any more.
    pub(super) fn closed(text: &str) -> ServerError {
        ServerError::new(Said { text: text.to_owned(), nature: Nature::Closed, ..Said::default() })
    }

    /// The code that the server answered with: `OOM`, `NOPERM`, `WRONGPASS`. `None` when it gave no answer, or one without.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// What kind of error it is.
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

    /// Whether the call was denied before it wrote anything, as far as that is known.
    #[must_use]
    pub fn wrote_nothing(&self) -> bool {
        self.0.wrote_nothing
    }

    /// Whether no answer came in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.nature, Nature::TimedOut | Nature::Late)
    }

    pub(super) fn set_connecting(&mut self) {
        self.0.connecting = true;
    }

    pub(crate) fn set_tls(&mut self, is_over_tls: bool, suspects: bool) {
        (self.0.is_over_tls, self.0.suspects_tls) = (is_over_tls, suspects);
    }

    pub(super) fn set_node(&mut self, node: &str) {
        self.0.text = format!("{node}: {}", self.0.text);
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

    /// Whether the other end closed a connection that was up.
    pub(super) fn is_dropped(&self) -> bool {
        self.0.is_dropped && !self.0.connecting
    }

    /// Whether the connection was closed, gave no answer in time, or one that cannot be read.
    pub(super) fn is_broken(&self) -> bool {
        self.0.nature != Nature::Refused || self.0.kind == ServerErrorKind::TooManyClients
    }

    /// Whether the server says that the primary may be elsewhere.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.code().is_some_and(|code| ELSEWHERE_CODES.contains(&code))
    }

    /// Whether what answers does not speak the protocol.
    fn is_no_redis(&self) -> bool {
        self.0.connecting && self.0.nature == Nature::Unreadable
    }

    /// Whether it can go away by itself: a wrong password or address does not.
    pub(super) fn may_pass(&self) -> bool {
        !self.0.is_of_settings && !self.is_no_redis()
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_no_redis() {
            return f.write_str("what answers there is not Redis");
        }
        Shown(&self.0.text).fmt(f)?;
        if self.0.suspects_tls {
            return f.write_str("; does the port speak TLS?");
        }
        match self.0.connecting && self.0.is_dropped {
            true => f.write_str("; does the port speak TLS, or want a certificate of ours?"),
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
