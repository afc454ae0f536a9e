//! The options of a board.

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use serde_json::Value;

use crate::token::{ShortToken, Token};

type Allowed = Arc<dyn Fn(&Parts, &str) -> bool + Send + Sync>;
type Redacted = Arc<dyn Fn(&str, Value) -> Value + Send + Sync>;
type Named = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// The colour of the line above every page, to tell several boards apart.
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
    /// All colours.
    pub const ALL: [Colour; 4] = [Colour::Blue, Colour::Green, Colour::Orange, Colour::Violet];

    /// The name in lower case.
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

/// Who may see a board, what they may do, and how it is mounted.
///
/// There is no default, since you must decide who may see it.
#[derive(Clone)]
#[must_use]
pub struct BoardOptions {
    /// `None` admits everyone.
    pub(crate) token: Option<Token>,
    /// Whether browsers may send the cookie over plain HTTP.
    pub(crate) allows_plain_http: bool,
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
    /// Requires a token: on a login page, which sets a session cookie, or as `Authorization: Bearer`. Browsers send the cookie over HTTPS
    /// only, see [`plain_http`](BoardOptions::plain_http).
    ///
    /// # Errors
    /// [`ShortToken`] if the token has fewer than 16 bytes.
    pub fn with_token(token: impl Into<String>) -> Result<BoardOptions, ShortToken> {
        Ok(BoardOptions::new(Some(Token::new(token.into())?)))
    }

    /// Requires no token: a proxy, or a layer of your service, decides who may see the board.
    pub fn behind_own_auth() -> BoardOptions {
        BoardOptions::new(None)
    }

    fn new(token: Option<Token>) -> BoardOptions {
        BoardOptions {
            token,
            allows_plain_http: false,
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

    /// A name for the title of every page, such as `production`. Defaults to none.
    pub fn name(mut self, name: impl Into<String>) -> BoardOptions {
        self.name = name.into();
        self
    }

    /// Shows a line of this colour above every page. Defaults to none.
    pub fn colour(mut self, colour: Colour) -> BoardOptions {
        self.colour = Some(colour);
        self
    }

    /// Marks every page as production. To confirm an action, or to retry a single job, the person must type the name of the board, or
    /// `production` if it has none.
    pub fn production(mut self) -> BoardOptions {
        self.is_production = true;
        self
    }

    /// The name to type before an action, if any.
    pub(crate) fn to_type(&self) -> Option<&str> {
        let name = if self.name.is_empty() { "production" } else { &self.name };
        self.is_production.then_some(name)
    }

    /// The path under which the board is nested, such as `/heartline`. Defaults to the root.
    pub fn base(mut self, path: impl AsRef<str>) -> BoardOptions {
        let path = path.as_ref().trim_matches('/');
        self.base = if path.is_empty() { String::new() } else { format!("/{path}") };
        self
    }

    /// Allows no changes to tasks, jobs, schedules and workflows. Audits are allowed.
    pub fn read_only(mut self) -> BoardOptions {
        self.is_read_only = true;
        self
    }

    /// Whether people can view payloads, results and checkpoints. Defaults to `true`.
    pub fn payloads(mut self, are_shown: bool) -> BoardOptions {
        self.shows_payloads = are_shown;
        self
    }

    /// A host name to accept requests for, besides `localhost` and addresses. Other names are refused, which prevents DNS rebinding.
    pub fn host(mut self, name: impl Into<String>) -> BoardOptions {
        self.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// Returns the name of the person who sent a request, recorded in the event of each action. Defaults to `board`.
    ///
    /// ```
    /// # use heartline_board::BoardOptions;
    /// #[derive(Clone)]
    /// struct User(String); // A layer of your service put it into the extensions of the request.
    ///
    /// let options = BoardOptions::behind_own_auth()
    ///     .by(|head| head.extensions.get::<User>().map_or("unknown".to_owned(), |user| user.0.clone()));
    /// ```
    pub fn by(mut self, name: impl Fn(&Parts) -> String + Send + Sync + 'static) -> BoardOptions {
        self.by = Arc::new(name);
        self
    }

    /// Decides which actions the sender of a request may use, by their names: `pause`, `resume`, `retry`, `run_now`, `dispatch`, `cancel`, `remove`,
    /// `requeue_claimed`, `recover_running`, `fail_running`, `recover_worker`, `quiet_worker`, `resume_worker`, `sweep`, `audit` (which reads a
    /// whole task), `repair`; for workflows `flow_pause`, `flow_resume`, `flow_retry` (also of all failed instances) and `flow_cancel`; for schedules `schedule_run`, `schedule_pause` and
    /// `schedule_resume`; for keys `lane_pause`, `lane_resume`, `lane_set` and `lane_reset`. Other actions are hidden and refused. Defaults to all.
    pub fn allow(mut self, is_allowed: impl Fn(&Parts, &str) -> bool + Send + Sync + 'static) -> BoardOptions {
        self.allow = Arc::new(is_allowed);
        self
    }

    /// Changes a payload, result or checkpoint of a task before it is shown. Defaults to no change.
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

    /// Allows the session cookie over plain HTTP, for a board on this machine.
    pub fn plain_http(mut self) -> BoardOptions {
        self.allows_plain_http = true;
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
