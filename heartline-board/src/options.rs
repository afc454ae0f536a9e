//! How a board is mounted, and what it lets people do.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;

use crate::guard::{Door, ShortToken};

type Named = Arc<dyn Fn(&HeaderMap) -> String + Send + Sync>;

/// How a board is mounted, who may see it, and what it lets them do.
///
/// There is no default: who may see it must be decided.
#[derive(Clone)]
#[must_use]
pub struct BoardOptions {
    pub(crate) door: Door,
    pub(crate) name: String,
    pub(crate) base: String,
    pub(crate) is_read_only: bool,
    pub(crate) shows_payloads: bool,
    pub(crate) hosts: Vec<String>,
    pub(crate) by: Named,
}

impl BoardOptions {
    /// Whoever knows the token may see it: typed into a login page, after which a cookie stands for it, or as `Authorization: Bearer`.
    /// The cookie goes over HTTPS alone, see [`plain_http`](BoardOptions::plain_http).
    ///
    /// # Errors
    /// [`ShortToken`] if it has fewer than 16 bytes.
    pub fn with_token(token: impl Into<String>) -> Result<BoardOptions, ShortToken> {
        Ok(BoardOptions::new(Door::with_token(token.into())?))
    }

    /// Something in front of it decides who may see it: a proxy, or a layer of your own service.
    pub fn behind_own_auth() -> BoardOptions {
        BoardOptions::new(Door::open())
    }

    fn new(door: Door) -> BoardOptions {
        BoardOptions {
            door,
            name: String::new(),
            base: String::new(),
            is_read_only: false,
            shows_payloads: true,
            hosts: Vec::new(),
            by: Arc::new(|_| "board".to_owned()),
        }
    }

    /// Stands in the title of every page: `production`, say. Defaults to nothing.
    pub fn name(mut self, name: impl Into<String>) -> BoardOptions {
        self.name = name.into();
        self
    }

    /// The path under which it is nested, as `/heartline`. Defaults to the root.
    pub fn base(mut self, path: impl AsRef<str>) -> BoardOptions {
        let path = path.as_ref().trim_matches('/');
        self.base = if path.is_empty() { String::new() } else { format!("/{path}") };
        self
    }

    /// Lets nobody do anything to a task or a job.
    pub fn read_only(mut self) -> BoardOptions {
        self.is_read_only = true;
        self
    }

    /// Whether payloads, results and checkpoints are shown, to those who ask for them. Defaults to `true`.
    pub fn payloads(mut self, are_shown: bool) -> BoardOptions {
        self.shows_payloads = are_shown;
        self
    }

    /// A name under which it is asked for, beside `localhost` and addresses. A request under any other name is refused: the page of
    /// another site could let a name of its own lead here.
    pub fn host(mut self, name: impl Into<String>) -> BoardOptions {
        self.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// Who acts, by the head of a request: it stands in the event of each act. Defaults to `board`.
    pub fn by(mut self, name: impl Fn(&HeaderMap) -> String + Send + Sync + 'static) -> BoardOptions {
        self.by = Arc::new(name);
        self
    }

    /// Lets the cookie of a session go over plain HTTP too: for a board on this machine.
    pub fn plain_http(mut self) -> BoardOptions {
        self.door.allow_plain_http();
        self
    }
}

impl fmt::Debug for BoardOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoardOptions")
            .field("name", &self.name)
            .field("base", &self.base)
            .field("is_read_only", &self.is_read_only)
            .field("shows_payloads", &self.shows_payloads)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
