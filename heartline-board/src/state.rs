//! The state of the board: the inspector, the options, and recent reads.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::http::StatusCode;
use axum::http::request::{Parts, Request};
use axum::response::{Html, IntoResponse, Response};
use heartline::inspect::describe::CodeCount;
use heartline::inspect::text::{chain, quoted, shown};
use heartline::{
    AuditReport, Error, FleetReport, Inspector, JobCount, PersonAct, RejectedReport, SeriesSpan, TaskCounts, TaskSeries,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::frame::Frame;
use crate::history::History;
use crate::live::Live;
use crate::options::BoardOptions;
use crate::pages::stalls::StalledJobs;
use crate::plot::{self, Sparkline};
use crate::running::Running;
use crate::runs::Runs;
use crate::scans::Scans;
use crate::schedules::Schedules;
use crate::sizes::Sizes;
use crate::strip::Stalls;

/// How long a report of all tasks and workers is used, so that open browsers share it.
const FRESH: Duration = Duration::from_secs(1);

/// How long a report of the servers is used.
const SLOW_FRESH: Duration = Duration::from_secs(15);

/// How long it is used while a server is unreachable.
const AWAY_FRESH: Duration = Duration::from_secs(2);

/// How long a time series is used: a keeper adds to it every 30 s.
const RECORDED: Duration = Duration::from_secs(30);

/// The actions, by their names in [`BoardOptions::allow`].
pub(crate) const ACTS: [&str; 27] = [
    "pause",
    "resume",
    "retry",
    "run_now",
    "dispatch",
    "cancel",
    "remove",
    "requeue_claimed",
    "recover_running",
    "fail_running",
    "recover_worker",
    "quiet_worker",
    "resume_worker",
    "sweep",
    "audit",
    "repair",
    "flow_pause",
    "flow_resume",
    "flow_retry",
    "flow_cancel",
    "schedule_run",
    "schedule_pause",
    "schedule_resume",
    "lane_pause",
    "lane_resume",
    "lane_set",
    "lane_reset",
];

/// How long a count of jobs, or a list of acts, is used.
const COUNTED: Duration = Duration::from_secs(60);

/// How long a list of schedules is used.
const SCHEDULED: Duration = Duration::from_secs(2);

/// The state of the board.
pub(crate) struct Board {
    pub(crate) inspector: Inspector,
    pub(crate) options: BoardOptions,
    pub(crate) live: Live,
    pub(crate) runs: Runs,
    /// By task: when the last audit ended, and what it found.
    pub(crate) audits: std::sync::Mutex<BTreeMap<String, (SystemTime, Arc<AuditReport>)>>,
    pub(crate) stalls: Stalls,
    pub(crate) sizes: Scans<Sizes>,
    pub(crate) histories: Scans<History>,
    /// The late outcomes of tasks.
    pub(crate) late: Scans<Vec<RejectedReport>>,
    /// The error codes of failed jobs.
    pub(crate) codes: Scans<Vec<CodeCount>>,
    pub(crate) counts: Scans<JobCount>,
    /// What people did to a task.
    pub(crate) person_acts: Scans<Vec<PersonAct>>,
    /// By task and span; the sparkline without a span.
    pub(crate) series: Scans<TaskSeries>,
    run_times: Scans<Option<Duration>>,
    /// By task; those of all tasks without a name.
    pub(crate) schedules: Scans<Schedules>,
    /// Those of all tasks, without a name.
    pub(crate) running: Scans<Running>,
    /// The states of stalled jobs, by task and page.
    pub(crate) stalled: Scans<StalledJobs>,
    /// How many actions have ended.
    acts: AtomicU64,
    /// Locked during a read, so that concurrent requests share it.
    seen: Mutex<Looks>,
}

/// The last reads of the fleet.
#[derive(Default)]
struct Looks {
    last: Option<Seen>,
    /// How many actions had ended when it began.
    acts: u64,
    /// The tasks and workers of the read before.
    earlier: Option<Arc<FleetReport>>,
    /// The last error, and when it occurred.
    failed: Option<(Instant, Arc<Error>)>,
}

/// One read of the fleet.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// When the servers were checked. These checks are reused, since they change slowly.
    checked: Instant,
    pub(crate) fleet: Arc<FleetReport>,
}

/// A page, or the page that says why there is none.
pub(crate) type PageResult = Result<Response, Response>;

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
            person_acts: Scans::lasting(COUNTED),
            series: Scans::lasting(RECORDED),
            run_times: Scans::lasting(RECORDED),
            schedules: Scans::lasting(SCHEDULED),
            running: Scans::default(),
            stalled: Scans::default(),
            acts: AtomicU64::new(0),
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

    /// Whether the sender may use this action.
    pub(crate) fn may(&self, head: &Parts, act: &str) -> bool {
        (act == "audit" || !self.options.is_read_only) && (self.options.allow)(head, act)
    }

    /// The options for server and prefix. The address has no password.
    pub(crate) fn command_options(&self) -> String {
        format!("--redis {} --prefix {}", quoted(self.inspector.server_url()), quoted(self.inspector.prefix()))
    }

    /// The last 24 hours of a task; `None` if they are not known or cannot be read.
    pub(crate) async fn sparkline(&self, task: &str) -> Option<Sparkline> {
        let read = self.inspector.sparkline(task);
        plot::sparkline(&*self.series.of((task, ""), |_| true, read).await.ok()?)
    }

    /// How long 95 % of the runs of the last hour took at most; `None` if none ended, or they cannot be read.
    pub(crate) async fn run_time(&self, task: &str) -> Option<Duration> {
        let read = async { Ok(self.inspector.series(task, SeriesSpan::Hour).await?.ran.map(|ran| ran.p95)) };
        *self.run_times.of((task, ""), |_| true, read).await.ok()?
    }

    /// All tasks and workers, read at most a second ago, and those of the read before.
    pub(crate) async fn look(&self) -> Result<(Seen, Option<Arc<FleetReport>>), Arc<Error>> {
        let came = Instant::now();
        let mut looks = self.seen.lock().await;
        // Callers that waited for a failed read must not each try again.
        if let Some((_, e)) = looks.failed.as_ref().filter(|(at, _)| *at >= came) {
            return Err(Arc::clone(e));
        }
        // Before the read: one that began before the end of an action may have missed it.
        let acts = self.acts.load(Ordering::SeqCst);
        let is_outdated = looks.acts != acts;
        let is_fresh = |last: &Seen| last.at.elapsed() < FRESH;
        if let Some(last) = looks.last.as_ref().filter(|last| is_fresh(last) && !is_outdated) {
            return Ok((last.clone(), looks.earlier.clone()));
        }
        match self.look_anew(looks.last.as_ref().filter(|_| !is_outdated)).await {
            Ok(seen) => {
                looks.acts = acts;
                let before = looks.last.replace(seen.clone());
                // Rates over less than a second say nothing.
                if let Some(before) = before.filter(|before| !is_fresh(before)) {
                    looks.earlier = Some(before.fleet);
                }
                Ok((seen, looks.earlier.clone()))
            }
            Err(e) => {
                let e = Arc::new(e);
                looks.failed = Some((Instant::now(), Arc::clone(&e)));
                Err(e)
            }
        }
    }

    /// Reads everything again that an action may have changed, when the next page needs it. An action on a worker or a workflow has no task
    /// and may change the jobs of all.
    pub(crate) fn forget(&self, task: &str) {
        self.acts.fetch_add(1, Ordering::SeqCst);
        self.counts.forget(task);
        self.codes.forget(task);
        self.late.forget(task);
        self.person_acts.forget(task);
        self.running.forget("");
        self.stalls.forget();
        self.stalled.forget("");
        self.schedules.forget("");
    }

    async fn look_anew(&self, last: Option<&Seen>) -> Result<Seen, Error> {
        // A node that did not answer may be back soon.
        let is_fresh = |last: &&Seen| {
            let is_unreachable = last.fleet.checks.servers.iter().any(|server| server.fault.is_some());
            last.checked.elapsed() < if is_unreachable { AWAY_FRESH } else { SLOW_FRESH }
        };
        let fresh = last.filter(is_fresh);
        let checks = fresh.map(|last| Arc::clone(&last.fleet.checks));
        let fleet = Arc::new(self.inspector.fleet(checks).await?);
        let at = Instant::now();
        Ok(Seen { at, checked: fresh.map_or(at, |last| last.checked), fleet })
    }

    /// A page with an error.
    pub(crate) fn problem(&self, status: StatusCode, title: &str, text: &str) -> Response {
        self.problem_that(false, status, title, text)
    }

    /// As [`problem`](Self::problem). If a server is unreachable, the page reloads itself.
    fn problem_that(&self, is_unreachable: bool, status: StatusCode, title: &str, text: &str) -> Response {
        let mut frame = self.frame(&Request::new(()).into_parts().0);
        frame.section = ("", false);
        let page = ProblemPage { frame, title, text, is_unreachable };
        (status, answer(&page)).into_response()
    }

    /// The page of an action that failed before it changed anything.
    pub(crate) fn not_begun(&self, error: &Error) -> Response {
        self.failure(error, false, &format!("{}. Nothing was done.", chain(error)))
    }

    /// The page of an error.
    pub(crate) fn failed(&self, error: &Error) -> Response {
        self.failure(error, true, &chain(error))
    }

    /// The page for an impossible request.
    pub(crate) fn invalid(&self, text: &str) -> Response {
        self.problem(StatusCode::BAD_REQUEST, "Invalid request", text)
    }

    /// The value, or the page of its error.
    pub(crate) fn or_failed<T>(&self, read: Result<T, impl Borrow<Error>>) -> Result<T, Response> {
        read.map_err(|e| self.failed(e.borrow()))
    }

    /// As [`failed`](Self::failed), with this text. With `asks_again` the page reloads itself if the error is temporary.
    fn failure(&self, error: &Error, asks_again: bool, text: &str) -> Response {
        match error {
            Error::Config(_) => self.invalid(text),
            e if e.is_retryable() => {
                let title = match self.inspector.is_cluster() {
                    true => "A node of the cluster does not answer",
                    false => "Redis does not answer",
                };
                self.problem_that(asks_again, StatusCode::SERVICE_UNAVAILABLE, title, text)
            }
            _ => {
                tracing::warn!(error = %shown(text), "a page of the board failed");
                self.problem(StatusCode::INTERNAL_SERVER_ERROR, "The request failed", text)
            }
        }
    }

    /// When this board's last audit of a task ended, and what it found.
    pub(crate) fn audited(&self, task: &str) -> Option<(SystemTime, Arc<AuditReport>)> {
        self.audits.lock().unwrap_or_else(PoisonError::into_inner).get(task).cloned()
    }

    /// Whether a task exists. If not, its name is most likely mistyped.
    pub(crate) async fn knows(&self, task: &str) -> Result<bool, Error> {
        if self.inspector.listed_task_names().await?.iter().any(|name| name == task) {
            return Ok(true);
        }
        // The list of tasks may be lost.
        let report = self.inspector.task(task).await?;
        Ok(report.dispatched > 0 || report.options.declared_by.is_some() || report.counts != TaskCounts::default())
    }

    /// # Errors
    /// The page for a task that does not exist or cannot be read.
    pub(crate) async fn must_know(&self, task: &str) -> Result<(), Response> {
        if self.or_failed(self.knows(task).await)? {
            return Ok(());
        }
        let text = format!("There is no task {task}.");
        Err(self.problem(StatusCode::NOT_FOUND, "There is no such task", &text))
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: Frame,
    title: &'a str,
    text: &'a str,
    /// Whether the error is temporary, so that the page reloads itself.
    is_unreachable: bool,
}

/// A filled template.
pub(crate) fn answer(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Percent-encodes a text for a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
