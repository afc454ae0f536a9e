//! What every page and act works with: the inspector, the options, and what was read recently.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::http::StatusCode;
use axum::http::request::{Parts, Request};
use axum::response::{Html, IntoResponse, Response};
use heartline::inspect::describe::CodeCount;
use heartline::inspect::text::{chain, placed, quoted, shown};
use heartline::{AuditReport, Error, FleetReport, Inspector, JobCount, LateReport, TaskCounts};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::history::History;
use crate::live::Live;
use crate::options::{BoardOptions, Colour};
use crate::runs::Runs;
use crate::scans::Scans;
use crate::sizes::Sizes;
use crate::strip::Stalls;

/// How long a look at all tasks and workers is used: ten open browsers ask for the same page.
const FRESH: Duration = Duration::from_secs(1);

/// The same of the servers.
const SLOW_FRESH: Duration = Duration::from_secs(15);

/// The same while a server cannot be asked.
const AWAY_FRESH: Duration = Duration::from_secs(2);

/// How many looks are remembered, for the curve of the overview.
const REMEMBERED: usize = 120;

/// What can be done, by the names under which [`BoardOptions::allow`] is asked.
pub(crate) const ACTS: [&str; 17] = [
    "pause",
    "resume",
    "retry",
    "run_now",
    "cancel",
    "remove",
    "requeue_claimed",
    "recover_running",
    "fail_running",
    "recover_worker",
    "sweep",
    "audit",
    "repair",
    "flow_pause",
    "flow_resume",
    "flow_retry",
    "flow_cancel",
];

/// How long a count of jobs is used.
const COUNTED: Duration = Duration::from_secs(60);

/// What every page and act works with.
pub(crate) struct Board {
    pub(crate) inspector: Inspector,
    pub(crate) options: BoardOptions,
    pub(crate) live: Live,
    pub(crate) runs: Runs,
    /// When the last audits ended, and what they found, by their tasks.
    pub(crate) audits: std::sync::Mutex<BTreeMap<String, (SystemTime, Arc<AuditReport>)>>,
    pub(crate) stalls: Stalls,
    pub(crate) sizes: Scans<Sizes>,
    /// What has happened to jobs.
    pub(crate) histories: Scans<History>,
    /// Outcomes that came too late, of tasks.
    pub(crate) late: Scans<Vec<LateReport>>,
    /// Why jobs of tasks failed.
    pub(crate) codes: Scans<Vec<CodeCount>>,
    pub(crate) counts: Scans<JobCount>,
    /// Those who come together wait for one look.
    seen: Mutex<Looks>,
}

/// What was seen of late.
#[derive(Default)]
struct Looks {
    last: Option<Seen>,
    earlier: Earlier,
    /// The last one that failed, and when.
    failed: Option<(Instant, Arc<Error>)>,
}

/// What is kept of looks before the last one: no more than is shown of them, since a fleet may be large.
#[derive(Clone, Default)]
pub(crate) struct Earlier {
    /// The look before the last one.
    pub(crate) fleet: Option<Arc<FleetReport>>,
    /// How many jobs had ended by each look, the last one included.
    pub(crate) ended: VecDeque<(Instant, u64)>,
}

/// Everything at one time.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// When the checks were made, which change slowly.
    checked: Instant,
    pub(crate) fleet: Arc<FleetReport>,
}

/// The frame of every page.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) base: String,
    /// Where what it shows is from.
    pub(crate) place: String,
    /// The options by which commands look there too.
    options: String,
    pub(crate) is_production: bool,
    pub(crate) is_read_only: bool,
    pub(crate) has_sessions: bool,
    may: Vec<&'static str>,
}

impl Frame {
    /// The address of the overview: axum serves a nested router without a slash after its path.
    pub(crate) fn home(&self) -> &str {
        if self.base.is_empty() { "/" } else { &self.base }
    }

    /// The line, with the commands that it names as they are to be pasted.
    pub(crate) fn placed(&self, line: &str) -> String {
        placed(line, &self.options)
    }

    /// Whether this is offered.
    pub(crate) fn may(&self, act: &str) -> bool {
        self.may.contains(&act)
    }

    /// What is offered of these.
    pub(crate) fn offered<T>(&self, acts: Vec<(&'static str, T, bool)>) -> Vec<(&'static str, T, bool)> {
        acts.into_iter().filter(|(act, ..)| self.may(act)).collect()
    }
}

impl Board {
    pub(crate) fn new(inspector: Inspector, options: BoardOptions) -> Board {
        Board {
            inspector,
            options,
            live: Live::new(),
            runs: Runs::default(),
            audits: std::sync::Mutex::default(),
            stalls: Stalls::default(),
            sizes: Scans::default(),
            histories: Scans::default(),
            late: Scans::default(),
            codes: Scans::default(),
            counts: Scans::lasting(COUNTED),
            seen: Mutex::default(),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.options.base)
    }

    /// The address of the overview.
    pub(crate) fn home(&self) -> &str {
        if self.options.base.is_empty() { "/" } else { &self.options.base }
    }

    /// Whether the sender may do that.
    pub(crate) fn may(&self, head: &Parts, act: &str) -> bool {
        (act == "audit" || !self.options.is_read_only) && (self.options.allow)(head, act)
    }

    /// The options by which commands look where this does. The address is without its password.
    pub(crate) fn command_options(&self) -> String {
        format!("--redis {} --prefix {}", quoted(self.inspector.place()), quoted(self.inspector.prefix()))
    }

    pub(crate) fn frame(&self, head: &Parts) -> Frame {
        let BoardOptions { name, colour, base, is_production, is_read_only, door, .. } = &self.options;
        Frame {
            name: name.clone(),
            colour: colour.map_or("", Colour::as_str),
            base: base.clone(),
            place: format!("{} under the prefix {}", self.inspector.place(), self.inspector.prefix()),
            options: self.command_options(),
            is_production: *is_production,
            is_read_only: *is_read_only,
            has_sessions: door.has_sessions(),
            may: ACTS.into_iter().filter(|act| self.may(head, act)).collect(),
        }
    }

    /// All tasks and workers, now or a moment ago, and what is known of before.
    pub(crate) async fn look(&self) -> Result<(Seen, Earlier), Arc<Error>> {
        let came = Instant::now();
        let mut looks = self.seen.lock().await;
        // Those who waited for a look that failed do not each try for as long again.
        if let Some((_, e)) = looks.failed.as_ref().filter(|(at, _)| *at >= came) {
            return Err(Arc::clone(e));
        }
        if let Some(last) = looks.last.as_ref().filter(|last| last.at.elapsed() < FRESH) {
            return Ok((last.clone(), looks.earlier.clone()));
        }
        match self.look_anew(looks.last.as_ref()).await {
            Ok(seen) => {
                let before = looks.last.replace(seen.clone());
                looks.earlier.fleet = before.map(|before| before.fleet);
                let ended = &mut looks.earlier.ended;
                if ended.len() >= REMEMBERED {
                    ended.pop_front();
                }
                ended.push_back((seen.at, seen.fleet.tasks.iter().map(|task| task.ended).sum()));
                Ok((seen, looks.earlier.clone()))
            }
            Err(e) => {
                let e = Arc::new(e);
                looks.failed = Some((Instant::now(), Arc::clone(&e)));
                Err(e)
            }
        }
    }

    async fn look_anew(&self, last: Option<&Seen>) -> Result<Seen, Error> {
        // A node that did not answer may be back.
        let is_fresh = |last: &&Seen| {
            let is_away = last.fleet.checks.servers.iter().any(|server| server.fault.is_some());
            last.checked.elapsed() < if is_away { AWAY_FRESH } else { SLOW_FRESH }
        };
        let fresh = last.filter(is_fresh);
        let checks = fresh.map(|last| Arc::clone(&last.fleet.checks));
        let fleet = Arc::new(self.inspector.fleet(checks).await?);
        let at = Instant::now();
        Ok(Seen { at, checked: fresh.map_or(at, |last| last.checked), fleet })
    }

    /// A page that says what went wrong.
    pub(crate) fn problem(&self, status: StatusCode, title: &str, text: &str) -> Response {
        self.problem_that(false, status, title, text)
    }

    /// The same; one that passes by itself asks again.
    fn problem_that(&self, is_away: bool, status: StatusCode, title: &str, text: &str) -> Response {
        let page = ProblemPage { frame: self.frame(&Request::new(()).into_parts().0), title, text, is_away };
        (status, answer(&page)).into_response()
    }

    /// The page of an act that failed before anything was done.
    pub(crate) fn not_begun(&self, error: &Error) -> Response {
        self.failure(error, false, &format!("{}. Nothing was done.", chain(error)))
    }

    /// The page of an error: in its own words, without a trace.
    pub(crate) fn failed(&self, error: &Error) -> Response {
        self.failure(error, true, &chain(error))
    }

    /// The same with this text; one that can be asked for again is, where that may help.
    fn failure(&self, error: &Error, asks_again: bool, text: &str) -> Response {
        match error {
            Error::Config(_) => self.problem(StatusCode::BAD_REQUEST, "That cannot be asked for", text),
            e if e.is_retryable() => {
                let title = match self.inspector.is_cluster() {
                    true => "A node of the cluster does not answer",
                    false => "Redis does not answer",
                };
                self.problem_that(asks_again, StatusCode::SERVICE_UNAVAILABLE, title, text)
            }
            _ => {
                tracing::warn!(error = %shown(text), "a page of the board failed");
                self.problem(StatusCode::INTERNAL_SERVER_ERROR, "That failed", text)
            }
        }
    }

    /// When the last audit of a task ended, and what it found.
    pub(crate) fn audited(&self, task: &str) -> Option<(SystemTime, Arc<AuditReport>)> {
        self.audits.lock().unwrap_or_else(PoisonError::into_inner).get(task).cloned()
    }

    /// Whether anything is known of a task: of one of which nothing is, the name is most likely wrong.
    pub(crate) async fn knows(&self, task: &str) -> Result<bool, Error> {
        if self.inspector.listed_task_names().await?.iter().any(|name| name == task) {
            return Ok(true);
        }
        // The list of tasks may have been lost alone.
        let report = self.inspector.task(task).await?;
        Ok(report.dispatched > 0 || report.options.declared_by.is_some() || report.counts != TaskCounts::default())
    }

    /// The page for a task of which nothing is known, or that cannot be asked for.
    pub(crate) async fn must_know(&self, task: &str) -> Result<(), Response> {
        match self.knows(task).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!("There is no task {task}.");
                Err(self.problem(StatusCode::NOT_FOUND, "There is no such task", &text))
            }
            Err(e) => Err(self.failed(&e)),
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: Frame,
    title: &'a str,
    text: &'a str,
    /// Whether that will pass by itself.
    is_away: bool,
}

/// A filled template.
pub(crate) fn answer(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
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
