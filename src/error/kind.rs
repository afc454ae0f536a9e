//! The kinds of errors that a server or the client reports.

use serde::Serialize;

/// The kind of an error that the server or the client reported. See [`ServerError::kind`](super::ServerError::kind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// The user lacks a permission (`NOPERM`).
    NoPermission,
    /// The user or the password is wrong, or missing (`NOAUTH`, `WRONGPASS`).
    Auth,
    /// The server is a replica (`READONLY`).
    ReadOnly,
    /// The server has fewer replicas than it needs to take writes (`NOREPLICAS`).
    NoReplicas,
    /// The server has reached `maxmemory` (`OOM`).
    OutOfMemory,
    /// The server cannot write to its disk (`MISCONF`).
    DiskFailure,
    /// The key holds a value of another type (`WRONGTYPE`).
    WrongType,
    /// The slot of the key is moving to another node of the cluster (`TRYAGAIN`).
    TryAgain,
    /// A part of the cluster is down (`CLUSTERDOWN`).
    ClusterDown,
    /// The server accepts no more connections.
    TooManyClients,
    /// The server has no database of this number.
    WrongDatabase,
    /// The value is larger than the server accepts.
    TooLarge,
    /// The certificate of the server is signed by a CA that is not trusted.
    UntrustedCertificate,
    /// The server asks for a client certificate.
    ClientCertificate,
    /// TLS failed in another way, or one side speaks TLS and the other does not.
    Tls,
    /// No answer arrived in time.
    Timeout,
    /// The connection was closed, or could not be opened.
    Closed,
    /// The answer cannot be read.
    Unreadable,
    /// Another error.
    #[default]
    Other,
}

impl ServerErrorKind {
    /// The kind of an error with this code.
    pub(crate) fn of_code(code: &str) -> ServerErrorKind {
        match code {
            "NOPERM" => ServerErrorKind::NoPermission,
            "NOAUTH" | "WRONGPASS" => ServerErrorKind::Auth,
            "READONLY" => ServerErrorKind::ReadOnly,
            "NOREPLICAS" => ServerErrorKind::NoReplicas,
            "OOM" => ServerErrorKind::OutOfMemory,
            "MISCONF" => ServerErrorKind::DiskFailure,
            "WRONGTYPE" => ServerErrorKind::WrongType,
            "TRYAGAIN" => ServerErrorKind::TryAgain,
            "CLUSTERDOWN" => ServerErrorKind::ClusterDown,
            _ => ServerErrorKind::Other,
        }
    }
}
