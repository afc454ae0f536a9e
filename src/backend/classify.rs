//! What a reply of the client or the server means for the caller.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::error::server::{NO_ANSWER, Nature, Said, ServerError};
use crate::error::{Error, ServerErrorKind};

const AUTH_CODES: [&str; 2] = ["NOAUTH", "WRONGPASS"];

/// How servers report, without a code, that a script may not run a command or use a key: Redis 6.2 and 7.0, later Redis and Valkey.
const DENIED_IN_SCRIPT: [&str; 2] = ["The user executing the script can't ", "ACL failure in script: "];

/// How they report that they do not know the command of a script: Redis, Valkey, and the check of rights of either.
const UNKNOWN_IN_SCRIPT: [&str; 3] =
    ["nknown Redis command", "nknown command called from script", "Invalid command passed to "];

const REFUSING_CODES: [&str; 4] = ["OOM", "READONLY", "NOREPLICAS", "MISCONF"];

const UNREADY_CODES: [&str; 8] =
    ["LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "UNKILLABLE"];

/// The code of the server's error.
///
/// For a pipeline, `RedisError::code` knows only codes that the client has a name for. So look at the first failure in it.
fn code_of(error: &RedisError) -> Option<String> {
    let first =
        error.clone().into_server_errors().and_then(|all| all.first().map(|(_, first)| first.code().to_owned()));
    let code = first.or_else(|| error.code().map(str::to_owned))?;
    if code != "ERR" {
        return Some(code);
    }
    let text = error.to_string();
    if DENIED_IN_SCRIPT.iter().any(|denied| text.contains(denied)) {
        return Some("NOPERM".to_owned());
    }
    raised_inside(&text).or(Some(code))
}

/// The error inside a wrapped one. Redis 6.2 wraps what a command in a script raised: `ERR Error running script (call to …):
/// @user_script:3: WRONGTYPE …`. It wraps an error about what scripts may not do twice: `…: @user_script:3: @user_script: 3: -OOM …`.
fn raised_inside(text: &str) -> Option<String> {
    let (_, raised) = text.rsplit_once("@user_script:")?;
    let word = raised.split_whitespace().nth(1)?.trim_start_matches('-');
    (word.len() > 1 && word.bytes().all(|b| b.is_ascii_uppercase())).then(|| word.to_owned())
}

/// Whether the server has reached its connection limit. It closes this connection.
pub(crate) fn says_full(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| text.contains("max number of clients"))
}

/// The kind of an error whose code does not determine it, or that has no code of its own.
fn kind_without_code(error: &RedisError, text: &str) -> ServerErrorKind {
    match text {
        _ if says_full(error) => ServerErrorKind::TooManyClients,
        _ if text.contains("DB index is out of range") => ServerErrorKind::WrongDatabase,
        _ if text.contains("invalid bulk length") => ServerErrorKind::TooLarge,
        _ if error.kind() == ErrorKind::AuthenticationFailed || text.contains("assword") => ServerErrorKind::Auth,
        _ if text.contains("TryAgain") => ServerErrorKind::TryAgain,
        _ if text.contains("UnknownIssuer") => ServerErrorKind::UntrustedCertificate,
        _ if text.contains("CertificateRequired") => ServerErrorKind::ClientCertificate,
        _ if is_tls_fault(error) => ServerErrorKind::Tls,
        _ => ServerErrorKind::Other,
    }
}

/// The kind of an error that a worker stored as text. The text begins with the code, or has it after the address.
pub(crate) fn kind_of_stored(text: &str) -> ServerErrorKind {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    let kinds = words.map(ServerErrorKind::of_code).find(|kind| *kind != ServerErrorKind::Other);
    let is_of_password = text.contains("assword");
    kinds.unwrap_or(if is_of_password { ServerErrorKind::Auth } else { ServerErrorKind::Other })
}

/// Whether a sentinel knows no primary of the name.
pub(super) fn knows_no_primary(error: &RedisError) -> bool {
    error.to_string().contains("No such master")
}

/// Whether the server does not belong to a cluster.
pub(super) fn is_no_cluster(error: &RedisError) -> bool {
    error.to_string().contains("cluster support disabled")
}

/// Classifies an error of a call of the script `name` by what the caller can do about it.
pub(crate) fn classify(name: &'static str, e: RedisError) -> Error {
    sort(name, &e, false)
}

/// Classifies an error of a new connection.
pub(crate) fn not_connected(e: &RedisError, over_tls: bool) -> Error {
    match sort("connect", e, true) {
        Error::Server { mut source, .. } | Error::Connect { mut source } => {
            (source.0.is_over_tls, source.0.suspects_tls) = (over_tls, suspects_tls(e, over_tls));
            Error::Connect { source }
        }
        other => other,
    }
}

fn sort(name: &'static str, e: &RedisError, connecting: bool) -> Error {
    let source = ServerError(Box::new(said(e, connecting)));
    let code = source.code().unwrap_or_default();
    if code == "NEWERWIRE" || code == "OTHERPARTITIONS" {
        let what = e.detail().unwrap_or("data of a newer wire version").to_owned();
        return Error::Unsupported { what };
    }
    if code == "NOPERM" {
        return Error::Denied { source };
    }
    if let Some(command) = missing_command(name, &e.to_string()) {
        let what =
            format!("the server has no {command}: it may be a proxy, or a service that renamed or removed the command");
        return Error::Unsupported { what };
    }
    if REFUSING_CODES.contains(&code) {
        return Error::Refused { source };
    }
    if UNREADY_CODES.contains(&code) || AUTH_CODES.contains(&code) || says_full(e) {
        return Error::Connect { source };
    }
    match e.kind() {
        ErrorKind::RESP3NotSupported => Error::Unsupported { what: "the server does not speak RESP3".to_owned() },
        // After a reply that cannot be parsed, the connection is unusable.
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

/// The command that the server does not know: `ERR unknown command 'TIME', with args …`, in Redis 6.2 with other
/// quotes. Inside a script, the server does not name it.
fn missing_command(script: &str, text: &str) -> Option<String> {
    if UNKNOWN_IN_SCRIPT.iter().any(|unknown| text.contains(unknown)) {
        return Some(format!("TIME, no RENAME, or no other command that the script {script} calls"));
    }
    let (_, rest) = text.split_once("unknown command ")?;
    rest.split(['\'', '`', '"']).find(|word| !word.is_empty()).map(str::to_owned)
}

/// How to fix a rejected certificate.
fn certificate_advice(text: &str) -> &'static str {
    match text {
        _ if text.contains("CaUsedAsEndEntity") => {
            "; the certificate of the server is that of a CA, like every self-signed one: give the server one with CA:FALSE \
             that this CA has signed, and pass the CA to tls_ca"
        }
        _ if text.contains("UnknownIssuer") => "; pass the CA that signed it to tls_ca",
        _ => "",
    }
}

fn said(e: &RedisError, connecting: bool) -> Said {
    let code = code_of(e);
    let wrong_settings = matches!(
        e.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::EmptySentinelList
    );
    let wrong_user = code.as_deref().is_some_and(|code| AUTH_CODES.contains(&code));
    let nature = match e.kind() {
        _ if e.is_timeout() => Nature::TimedOut,
        ErrorKind::Io => Nature::Closed,
        ErrorKind::Parse => Nature::Unreadable,
        _ => Nature::Refused,
    };
    let text = match nature {
        Nature::TimedOut => unanswered(e).map_or_else(|| NO_ANSWER.to_owned(), ToString::to_string),
        _ => {
            let text = e.to_string();
            format!("{text}{}", certificate_advice(&text))
        }
    };
    let kind = code.as_deref().map_or(ServerErrorKind::Other, ServerErrorKind::of_code);
    let kind = if kind == ServerErrorKind::Other { kind_without_code(e, &e.to_string()) } else { kind };
    let wrong_database = kind == ServerErrorKind::WrongDatabase;
    let is_of_settings = wrong_settings || wrong_database || wrong_user || is_tls_fault(e);
    let closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe];
    let is_dropped = io_error(e).is_some_and(|e| closed.contains(&e.kind()));
    // This is the text of a script that checks its rights before it writes.
    let wrote_nothing = text.contains("our user may not run");
    Said { text, code, kind, nature, connecting, is_of_settings, is_dropped, wrote_nothing, ..Said::default() }
}

/// Whether the server may not speak TLS: it then gives a TLS client no answer, or an answer that is not TLS.
fn suspects_tls(e: &RedisError, over_tls: bool) -> bool {
    over_tls && (e.is_timeout() || has_wrong_bytes(e))
}

/// This server did not answer in time. The user's address names another one.
#[derive(Debug, thiserror::Error)]
#[error("{0}: no answer in time")]
pub(super) struct Unanswered(String);

impl Unanswered {
    pub(super) fn by(node: impl fmt::Display) -> RedisError {
        io::Error::new(io::ErrorKind::TimedOut, Unanswered(node.to_string())).into()
    }
}

/// The server that did not answer, if the user's address does not name it.
fn unanswered(e: &RedisError) -> Option<&Unanswered> {
    io_error(e)?.get_ref()?.downcast_ref()
}

pub(super) fn io_error(e: &RedisError) -> Option<&io::Error> {
    // The client keeps the error in a shared pointer.
    let given = StdError::source(e)?;
    match given.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => given.downcast_ref(),
    }
}

#[cfg(feature = "tls")]
fn tls_fault(e: &RedisError) -> Option<&rustls::Error> {
    io_error(e)?.get_ref()?.downcast_ref()
}

#[cfg(feature = "tls")]
fn has_wrong_bytes(e: &RedisError) -> bool {
    matches!(tls_fault(e), Some(rustls::Error::InvalidMessage(_)))
}

#[cfg(feature = "tls")]
fn is_tls_fault(e: &RedisError) -> bool {
    tls_fault(e).is_some()
}

#[cfg(not(feature = "tls"))]
fn has_wrong_bytes(_e: &RedisError) -> bool {
    false
}

#[cfg(not(feature = "tls"))]
fn is_tls_fault(_e: &RedisError) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::server::ELSEWHERE_CODES;
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
    fn a_missing_command_is_named() {
        for quote in ["'", "`"] {
            let text = format!("unknown command {quote}TIME{quote}, with args beginning with: ");
            let error = classify("time", make_extension_error("ERR".into(), Some(text)));
            assert!(matches!(&error, Error::Unsupported { what } if what.contains("has no TIME:")), "{error:?}");
        }
        for of in ["Redis ", ""] {
            let text = format!("Unknown {of}command called from script script: 5ca1ab1e, on @user_script:3.");
            let error = classify("sweep", make_extension_error("ERR".into(), Some(text)));
            assert!(matches!(&error, Error::Unsupported { what } if what.contains("no RENAME")), "{error:?}");
        }
        // A fault of the script, not of the server.
        let text = "Wrong number of args for redis.acl_check_cmd() script: 5ca1ab1e, on @user_script:1.".to_owned();
        let error = classify("sweep", make_extension_error("ERR".into(), Some(text)));
        assert!(matches!(error, Error::Server { .. }), "{error:?}");
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
    fn only_a_sent_call_is_late_and_a_refusal_keeps_the_connection() {
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
    fn a_denied_command_in_a_script_is_denied_in_every_wording() {
        let texts = [
            "The user executing the script can't run this command or subcommand script: 5ca1ab1e, on @user_script:1.",
            "Error running script (call to f_1): @user_script:3: @user_script: 3: The user executing the script can't access at least one of the keys mentioned in the command arguments",
            "ACL failure in script: User u has no permissions to run the 'zadd' command script: 5ca1ab1e, on @user_script:1.",
            "ACL failure in script: No permissions to access a key script: 5ca1ab1e, on @user_script:1.",
        ];
        for text in texts {
            let error = classify("settle", make_extension_error("ERR".into(), Some(text.into())));
            assert!(error.is_denied() && !error.is_retryable(), "{error:?}");
        }
        let error = classify("settle", make_extension_error("NOPERM".into(), Some("ACL failure in script".into())));
        assert!(error.is_denied(), "{error:?}");
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

    #[test]
    fn an_error_has_a_kind_by_its_code_or_its_text() {
        use ServerErrorKind::{Auth, NoPermission, OutOfMemory, TooManyClients, TryAgain, WrongDatabase, WrongType};

        let kind = |error: &Error| error.server_error().map(ServerError::kind);
        for (code, expected) in [
            ("NOPERM", NoPermission),
            ("OOM", OutOfMemory),
            ("WRONGTYPE", WrongType),
            ("TRYAGAIN", TryAgain),
            ("NOAUTH", Auth),
        ] {
            assert_eq!(kind(&server(code)), Some(expected), "{code}");
        }
        for (text, expected) in
            [("DB index is out of range", WrongDatabase), ("max number of clients reached", TooManyClients)]
        {
            let error = classify("select", make_extension_error("ERR".into(), Some(text.into())));
            assert_eq!(kind(&error), Some(expected), "{text}");
        }
        let stored = [
            ("redis at redis://host:1 denied permission: NOPERM this user has no permissions", NoPermission),
            ("cannot reach redis: WRONGPASS: invalid username-password pair", Auth),
            ("cannot reach redis: Password authentication failed", Auth),
        ];
        for (text, expected) in stored {
            assert_eq!(kind_of_stored(text), expected, "{text}");
        }
    }
}
