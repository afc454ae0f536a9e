//! The pages: each asks the `Inspector`, and fills a template that escapes whatever it shows.

pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod overview;
pub(crate) mod server;
pub(crate) mod stalls;
pub(crate) mod task;
pub(crate) mod workers;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use heartline::{Error, Inspector, TaskReport, WorkerReport};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::options::BoardOptions;
use crate::text::shown;

/// For how long what was seen of all tasks and workers stands: a page that is open in ten browsers is asked for by each.
const FRESH: Duration = Duration::from_secs(1);

/// What every page and act works with.
pub(crate) struct Board {
    pub(crate) inspector: Inspector,
    pub(crate) options: BoardOptions,
    /// What was seen last of all tasks and workers, and before that. Those who come together wait for one look.
    seen: Mutex<Option<(Seen, Option<Seen>)>>,
}

/// All tasks and workers at one time.
#[derive(Clone)]
pub(crate) struct Seen {
    at: Instant,
    pub(crate) tasks: Arc<Vec<TaskReport>>,
    pub(crate) workers: Arc<Vec<WorkerReport>>,
}

/// What stands around every page.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) base: String,
    pub(crate) is_read_only: bool,
}

impl Frame {
    /// The address of the overview: axum serves a nested router without a slash behind its path.
    pub(crate) fn home(&self) -> &str {
        if self.base.is_empty() { "/" } else { &self.base }
    }
}

impl Board {
    pub(crate) fn new(inspector: Inspector, options: BoardOptions) -> Board {
        Board { inspector, options, seen: Mutex::default() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.options.base)
    }

    pub(crate) fn frame(&self) -> Frame {
        let BoardOptions { name, base, is_read_only, .. } = &self.options;
        Frame { name: name.clone(), base: base.clone(), is_read_only: *is_read_only }
    }

    /// All tasks and workers, now or a moment ago, and as they were some time before.
    pub(crate) async fn look(&self) -> Result<(Seen, Option<Seen>), Error> {
        let mut seen = self.seen.lock().await;
        if let Some(seen) = seen.as_ref().filter(|(last, _)| last.at.elapsed() < FRESH) {
            return Ok(seen.clone());
        }
        let tasks = Arc::new(self.inspector.tasks().await?);
        let workers = Arc::new(self.inspector.workers().await?);
        let now = Seen { at: Instant::now(), tasks, workers };
        let before = seen.take().map(|(last, _)| last);
        Ok(seen.insert((now, before)).clone())
    }

    /// A page that says what went wrong.
    pub(crate) fn problem(&self, status: StatusCode, title: &str, text: &str) -> Response {
        let page = ProblemPage { frame: self.frame(), title, text };
        (status, answer(&page)).into_response()
    }

    /// The page of an error: in its own words, without a trace.
    pub(crate) fn failed(&self, error: &Error) -> Response {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        match error {
            Error::Config(_) => self.problem(StatusCode::BAD_REQUEST, "That cannot be asked for", &text),
            e if e.is_retryable() => self.problem(StatusCode::SERVICE_UNAVAILABLE, "Redis does not answer", &text),
            _ => {
                tracing::warn!(error = %shown(&text), "a page of the board failed");
                self.problem(StatusCode::INTERNAL_SERVER_ERROR, "That failed", &text)
            }
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: Frame,
    title: &'a str,
    text: &'a str,
}

/// A filled template.
pub(crate) fn answer(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("../../assets/board.css")).into_response()
}

pub(crate) async fn script() -> Response {
    let kind = "text/javascript; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], include_str!("../../assets/board.js")).into_response()
}

pub(crate) async fn not_found(State(board): State<Arc<Board>>) -> Response {
    board.problem(StatusCode::NOT_FOUND, "There is no such page", "It may have moved.")
}

/// A text within a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            told.push(char::from(byte));
        } else {
            told.push_str(&format!("%{byte:02X}"));
        }
    }
    told
}
