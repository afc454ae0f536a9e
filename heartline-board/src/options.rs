//! How a board is mounted, and what it lets people do.

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use serde_json::Value;

use crate::token::{Door, ShortToken};

type Allowed = Arc<dyn Fn(&Parts, &str) -> bool + Send + Sync>;
type Redacted = Arc<dyn Fn(&str, Value) -> Value + Send + Sync>;
type Named = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// The colour of the line above every page, by which somebody with several boards tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Colour {
    /// Blue.
    Blue,
    /// Green.
    Green,
    /// Orange.
    Orange,
    /// Violet.
    Violet,
}

impl Colour {
    /// All of them.
    pub const ALL: [Colour; 4] = [Colour::Blue, Colour::Green, Colour::Orange, Colour::Violet];

    /// Its name, in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Colour::Blue => "blue",
            Colour::Green => "green",
            Colour::Orange => "orange",
            Colour::Violet => "violet",
        }
    }
}

/// How a board is mounted, who may see it, and what it lets them do.
///
/// There is no default: who may see it must be decided.
#[derive(Clone)]
#[must_use]
pub struct BoardOptions {
    pub(crate) door: Door,
    pub(crate) name: String,
    pub(crate) colour: Option<Colour>,
    pub(crate) base: String,
    pub(crate) is_production: bool,
    pub(crate) is_read_only: bool,
    pub(crate) shows_payloads: bool,
    pub(crate) hosts: Vec<String>,
    pub(crate) by: Named,
    pub(crate) allow: Allowed,
    pub(crate) redact: Redacted,
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
            colour: None,
            base: String::new(),
            is_production: false,
            is_read_only: false,
            shows_payloads: true,
            hosts: Vec::new(),
            by: Arc::new(|_| "board".to_owned()),
            allow: Arc::new(|_, _| true),
            redact: Arc::new(|_, value| value),
        }
    }

    /// Stands in the title of every page: `production`, say. Defaults to nothing.
    pub fn name(mut self, name: impl Into<String>) -> BoardOptions {
        self.name = name.into();
        self
    }

    /// A line of this colour stands above every page, to tell one board from another. Defaults to none.
    pub fn colour(mut self, colour: Colour) -> BoardOptions {
        self.colour = Some(colour);
        self
    }

    /// Marks every page as of production. Before an act that is asked about, and a retry of one job too, the name of the board has to be
    /// typed, or `production` where it has none.
    pub fn production(mut self) -> BoardOptions {
        self.is_production = true;
        self
    }

    /// What has to be typed before an act, if anything.
    pub(crate) fn to_type(&self) -> Option<&str> {
        let name = if self.name.is_empty() { "production" } else { &self.name };
        self.is_production.then_some(name)
    }

    /// The path under which it is nested, as `/heartline`. Defaults to the root.
    pub fn base(mut self, path: impl AsRef<str>) -> BoardOptions {
        let path = path.as_ref().trim_matches('/');
        self.base = if path.is_empty() { String::new() } else { format!("/{path}") };
        self
    }

    /// Lets nobody do anything to a task or a job; audits can be made.
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
    ///
    /// ```
    /// # use heartline_board::BoardOptions;
    /// #[derive(Clone)]
    /// struct User(String); // What a layer of yours put into the extensions of the request.
    ///
    /// let options = BoardOptions::behind_own_auth()
    ///     .by(|head| head.extensions.get::<User>().map_or("nobody".to_owned(), |user| user.0.clone()));
    /// ```
    pub fn by(mut self, name: impl Fn(&Parts) -> String + Send + Sync + 'static) -> BoardOptions {
        self.by = Arc::new(name);
        self
    }

    /// What they may do, by the head of a request and the name of the act: `pause`, `resume`, `retry`, `run_now`, `cancel`, `remove`,
    /// `requeue_claimed`, `recover_running`, `fail_running`, `recover_worker`, `sweep`, `audit` (which reads all of a task), `repair`, and of workflows `flow_pause`, `flow_resume`, `flow_retry` and `flow_cancel`. Defaults to everything.
    /// What they may not do they are not offered.
    pub fn allow(mut self, is_allowed: impl Fn(&Parts, &str) -> bool + Send + Sync + 'static) -> BoardOptions {
        self.allow = Arc::new(is_allowed);
        self
    }

    /// What is shown of a payload, a result or a checkpoint of this task. Defaults to all of it.
    ///
    /// ```
    /// # use heartline_board::BoardOptions;
    /// # use serde_json::Value;
    /// let options = BoardOptions::behind_own_auth().redact(|_task, mut value| {
    ///     if let Some(card) = value.get_mut("card") {
    ///         *card = Value::from("…");
    ///     }
    ///     value
    /// });
    /// ```
    pub fn redact(mut self, shown: impl Fn(&str, Value) -> Value + Send + Sync + 'static) -> BoardOptions {
        self.redact = Arc::new(shown);
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
            .field("colour", &self.colour)
            .field("base", &self.base)
            .field("is_production", &self.is_production)
            .field("is_read_only", &self.is_read_only)
            .field("shows_payloads", &self.shows_payloads)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
