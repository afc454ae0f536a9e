//! A user name and password that may change while connections are open.

use std::fmt;

/// Credentials that change while the process runs: a token of a cloud identity service, or a rotated password. See
/// [`AppBuilder::credentials`](crate::AppBuilder::credentials).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl Credentials {
    /// A user name and its password, or a token in place of the password.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { username: username.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}
