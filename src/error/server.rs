//! What the client and the server say about a call that failed, and what that means for the caller.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use super::Error;
use crate::shown::Shown;

/// What the client or the server said about a call that failed.
///
/// Its text is one line, and never holds a password.
#[derive(Clone)]
pub struct ServerError(Box<Said>);

#[derive(Clone)]
struct Said {
    error: RedisError,
    code: Option<String>,
    /// Whether nothing was heard of the server before.
    connecting: bool,
    /// The other end may not speak TLS where we do, or the other way round.
    suspects_tls: bool,
    place: Option<Arc<str>>,
}

/// No answer came in the time that a call had.
#[derive(Debug, thiserror::Error)]
#[error("no answer in time")]
struct Late;

const AUTH_CODES: [&str; 2] = ["NOAUTH", "WRONGPASS"];
const REFUSING_CODES: [&str; 4] = ["OOM", "READONLY", "NOREPLICAS", "MISCONF"];
/// What a server says that was the primary and is none, or that is cut off from the others.
const ELSEWHERE_CODES: [&str; 5] = ["READONLY", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN"];
const UNREADY_CODES: [&str; 6] = ["LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "UNKILLABLE"];

impl ServerError {
    fn new(error: RedisError, connecting: bool) -> ServerError {
        let code = code_of(&error);
        ServerError(Box::new(Said { error, code, connecting, suspects_tls: false, place: None }))
    }

    /// The code that the server answered with: `OOM`, `NOPERM`, `WRONGPASS`. `None` when it gave no answer, or one without.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Whether no answer came in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.0.error.is_timeout()
    }

    pub(super) fn set_connecting(&mut self) {
        self.0.connecting = true;
    }

    pub(super) fn set_place(&mut self, place: &Arc<str>) {
        self.0.place.get_or_insert_with(|| Arc::clone(place));
    }

    /// Of a server that does not speak TLS where we do there is no answer, or one that is no TLS; one that does where we do
    /// not closes the connection.
    fn suspect_tls(&mut self, over_tls: bool) {
        let closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe];
        let kind = self.io().map(io::Error::kind);
        self.0.suspects_tls = if over_tls {
            self.is_timeout() || self.has_wrong_bytes()
        } else {
            kind.is_some_and(|kind| closed.contains(&kind))
        };
    }

    fn io(&self) -> Option<&io::Error> {
        // The client keeps what it was given behind a shared pointer.
        let given = StdError::source(&self.0.error)?;
        match given.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
            Some(shared) => shared.downcast_ref(),
            None => given.downcast_ref(),
        }
    }

    #[cfg(feature = "tls")]
    fn tls_fault(&self) -> Option<&rustls::Error> {
        self.io()?.get_ref()?.downcast_ref()
    }

    #[cfg(feature = "tls")]
    fn has_wrong_bytes(&self) -> bool {
        matches!(self.tls_fault(), Some(rustls::Error::InvalidMessage(_)))
    }

    #[cfg(feature = "tls")]
    fn is_tls_fault(&self) -> bool {
        self.tls_fault().is_some()
    }

    #[cfg(not(feature = "tls"))]
    fn has_wrong_bytes(&self) -> bool {
        false
    }

    #[cfg(not(feature = "tls"))]
    fn is_tls_fault(&self) -> bool {
        false
    }

    /// Where the server is, as far as it is known.
    pub(super) fn place(&self) -> impl fmt::Display {
        self.0.place.as_ref().map_or("redis".to_owned(), |place| format!("redis at {place}"))
    }

    /// An answer that did not come in time to a call that was sent.
    pub(super) fn late() -> ServerError {
        ServerError::new(io::Error::new(io::ErrorKind::TimedOut, Late).into(), false)
    }

    pub(super) fn is_late(&self) -> bool {
        self.io().and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<Late>())
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.0.error.to_string().contains("invalid bulk length")
    }

    /// Whether the connection was closed, gave no answer in time, or one that cannot be read.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.0.error.kind(), ErrorKind::Io | ErrorKind::Parse) || says_full(&self.0.error)
    }

    /// Whether the server says that the primary may be elsewhere.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.code().is_some_and(|code| ELSEWHERE_CODES.contains(&code))
    }

    /// Whether what answers does not speak the protocol.
    fn is_no_redis(&self) -> bool {
        self.0.connecting && self.0.error.kind() == ErrorKind::Parse
    }

    /// Whether it can go away by itself: a wrong password or address does not.
    pub(super) fn may_pass(&self) -> bool {
        let wrong_settings = matches!(
            self.0.error.kind(),
            ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::EmptySentinelList
        );
        let wrong_database = self.0.error.to_string().contains("DB index is out of range");
        let wrong_user = self.code().is_some_and(|code| AUTH_CODES.contains(&code));
        !wrong_settings && !wrong_database && !wrong_user && !self.is_no_redis() && !self.is_tls_fault()
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_no_redis() {
            return f.write_str("what answers there is not Redis");
        }
        Shown(&self.0.error.to_string()).fmt(f)?;
        if self.0.suspects_tls { f.write_str("; does the port speak TLS?") } else { Ok(()) }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerError").field(&self.to_string()).finish()
    }
}

impl StdError for ServerError {}

/// The code the server answered with.
///
/// For a pipeline `RedisError::code` knows only the codes that the client has a name for, so the first
/// failure in it is asked instead.
fn code_of(error: &RedisError) -> Option<String> {
    let first =
        error.clone().into_server_errors().and_then(|all| all.first().map(|(_, first)| first.code().to_owned()));
    let code = first.or_else(|| error.code().map(str::to_owned))?;
    if code == "ERR" {
        return raised_inside(&error.to_string()).or(Some(code));
    }
    Some(code)
}

/// Redis 6.2 wraps what a command inside a script raised: `ERR Error running script (call to …): @user_script:3: WRONGTYPE …`;
/// and what it does not let the script do, twice: `…: @user_script:3: @user_script: 3: -OOM …`.
fn raised_inside(text: &str) -> Option<String> {
    let (_, raised) = text.rsplit_once("@user_script:")?;
    let word = raised.split_whitespace().nth(1)?.trim_start_matches('-');
    (word.len() > 1 && word.bytes().all(|b| b.is_ascii_uppercase())).then(|| word.to_owned())
}

/// Whether the server has as many connections as it may have; it closes this one.
pub(crate) fn says_full(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("max number of clients"))
}

/// Sorts what the client reports about a call of the script `name` by what the caller can do about it.
pub(crate) fn classify(name: &'static str, e: RedisError) -> Error {
    sort(name, e, false)
}

/// Sorts what keeps a connection from coming up.
pub(crate) fn not_connected(e: RedisError, over_tls: bool) -> Error {
    match sort("connect", e, true) {
        Error::Server { mut source, .. } | Error::Connect { mut source } => {
            source.suspect_tls(over_tls);
            Error::Connect { source }
        }
        other => other,
    }
}

fn sort(name: &'static str, e: RedisError, connecting: bool) -> Error {
    let source = ServerError::new(e, connecting);
    let code = source.code().unwrap_or_default();
    if code == "NEWERWIRE" {
        let what = source.0.error.detail().unwrap_or("data of a newer wire version").to_owned();
        return Error::Unsupported { what };
    }
    if code == "NOPERM" {
        return Error::Denied { source };
    }
    if REFUSING_CODES.contains(&code) {
        return Error::Refused { source };
    }
    if UNREADY_CODES.contains(&code) || AUTH_CODES.contains(&code) || says_full(&source.0.error) {
        return Error::Connect { source };
    }
    match source.0.error.kind() {
        ErrorKind::RESP3NotSupported => Error::Unsupported { what: "the server does not speak RESP3".to_owned() },
        // After a reply that cannot be parsed the connection is of no use any more.
        ErrorKind::Io
        | ErrorKind::Parse
        | ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel
        | ErrorKind::EmptySentinelList => Error::Connect { source },
        _ => Error::Server { name, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::make_extension_error;

    fn server(code: &str) -> Error {
        classify("settle", make_extension_error(code.into(), Some("detail".into())))
    }

    #[test]
    fn a_server_that_refuses_to_write_is_refused() {
        for code in REFUSING_CODES {
            let error = server(code);
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            assert!(error.is_retryable());
        }
        let wrapped = |raised: &str| {
            let text = format!("Error running script (call to f_1): @user_script:3: {raised}");
            classify("settle", make_extension_error("ERR".into(), Some(text)))
        };
        let error = wrapped("@user_script: 3: -OOM command not allowed when used memory > 'maxmemory'.");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let error = wrapped("@user_script: 3: -READONLY You can't write against a read only replica.");
        assert!(error.is_demoted() && error.ends_connection(), "{error:?}");
        let error = wrapped("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert!(matches!(&error, Error::Server { source, .. } if source.code() == Some("WRONGTYPE")), "{error:?}");
    }

    #[test]
    fn an_unready_server_is_a_connect_error() {
        for code in UNREADY_CODES {
            let error = server(code);
            assert!(matches!(error, Error::Connect { .. }) && error.is_retryable(), "{error:?}");
        }
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionRefused] {
            let error = classify("settle", io::Error::from(kind).into());
            assert!(matches!(error, Error::Connect { .. }) && error.is_retryable());
        }
    }

    #[test]
    fn only_a_call_that_was_sent_is_late_and_an_answer_that_says_no_ends_no_connection() {
        assert!(Error::late().is_late() && Error::late().is_timeout() && Error::late().ends_connection());
        assert!(!Error::timed_out().is_late() && Error::timed_out().ends_connection());
        for code in ELSEWHERE_CODES {
            assert!(server(code).ends_connection() && !server(code).is_broken(), "{code}");
        }
        for code in ["NOPERM", "BUSY", "TRYAGAIN", "OOM", "WRONGTYPE"] {
            assert!(!server(code).ends_connection(), "{code}");
        }
    }

    #[test]
    fn wrong_credentials_are_not_worth_a_retry() {
        for code in AUTH_CODES {
            let error = server(code);
            assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable(), "{error:?}");
        }
        let error = classify("hello", (ErrorKind::AuthenticationFailed, "no").into());
        assert!(matches!(error, Error::Connect { .. }) && !error.is_retryable());
    }

    #[test]
    fn other_codes_name_their_script() {
        let error = server("NEWERWIRE");
        assert!(matches!(&error, Error::Unsupported { what } if what == "detail"));
        for code in ["BADSTATE", "WRONGTYPE", "ERR"] {
            let error = server(code);
            assert!(matches!(error, Error::Server { name: "settle", .. }), "{error:?}");
            assert!(!error.is_retryable());
            assert_eq!(error.to_string(), "the script settle failed");
        }
    }
}
