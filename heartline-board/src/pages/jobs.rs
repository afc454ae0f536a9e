//! The jobs in one state. The address of the page contains the filter.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::{Error, JobCount, JobFilter, JobState, TaskReport};
use serde::Deserialize;

use crate::badge::{self, Badge, grouped};
use crate::frame::Frame;
use crate::pages::task::failed_codes;
use crate::state::{Board, PageResult, answer, encoded};
use heartline::inspect::describe::{CodeCount, STATES, is_overdue};
use heartline::inspect::text::many;

/// The most jobs on a page.
const ROWS: usize = 50;

/// The jobs of a page, or of an action on all that match.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    pub(crate) task: String,
    pub(crate) state: String,
    pub(crate) code: String,
    pub(crate) text: String,
    pub(crate) older: String,
    /// `oldest` for the oldest first.
    pub(crate) order: String,
    pub(crate) cursor: String,
}

impl Asked {
    /// The filter, or why it is invalid.
    pub(crate) fn filter(&self) -> Result<JobFilter, String> {
        let state = if self.state.is_empty() { Ok(JobState::Failed) } else { self.state.parse() };
        let mut filter = JobFilter::new(state.map_err(|e: heartline::ConfigErrors| e.to_string())?);
        if !self.code.is_empty() {
            filter = filter.code(&self.code);
        }
        if !self.text.is_empty() {
            filter = filter.message_contains(&self.text);
        }
        if !self.older.is_empty() {
            let age: Duration = humantime::parse_duration(&self.older)
                .map_err(|e| format!("{:?} is not a time span such as 10m: {e}", self.older))?;
            filter = filter.older_than(age);
        }
        Ok(if self.is_oldest_first() { filter.oldest_first() } else { filter })
    }

    /// Whether the oldest jobs come first.
    fn is_oldest_first(&self) -> bool {
        self.order == "oldest"
    }

    /// Whether the server must read many jobs for it.
    fn is_looked_through(&self) -> bool {
        !(self.code.is_empty() && self.text.is_empty())
    }

    /// How many jobs match. If many jobs must be read, open pages share a count that is up to a minute old.
    async fn count(&self, board: &Board, filter: &JobFilter) -> Result<Arc<JobCount>, Arc<Error>> {
        let count = board.inspector.count(&self.task, filter);
        if !self.is_looked_through() {
            return Ok(Arc::new(count.await?));
        }
        let which = format!("{filter:?}");
        board.counts.of((&self.task, &which), |_| true, count).await
    }

    /// The address of the page with these jobs.
    pub(crate) fn url(&self, board: &Board) -> String {
        let mut url = format!("/jobs?task={}&state={}", encoded(&self.task), encoded(&self.state));
        for (name, value) in
            [("code", &self.code), ("text", &self.text), ("older", &self.older), ("order", &self.order)]
        {
            if !value.is_empty() {
                url.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        board.url(&url)
    }
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    asked: Asked,
    tabs: Vec<Tab>,
    counted: String,
    page: heartline::JobPage,
    /// Whether silent jobs were silent for longer than a healthy job is.
    is_late: bool,
    /// Whether jobs in this state become due.
    shows_due: bool,
    /// Whether workers hold jobs in this state.
    shows_worker: bool,
    /// The filters in force, each with the page without it.
    filters: Vec<Chip>,
    /// The codes of failed jobs, each with the page of those that have it.
    codes: Vec<Chip>,
    /// The page in the other order, if the state has an order.
    other_order: Option<String>,
    next: Option<String>,
    acts: Vec<(&'static str, &'static str, bool)>,
}

/// A filter.
struct Chip {
    name: String,
    value: String,
    url: String,
}

/// The most codes that are offered as filters.
const CODES: usize = 4;

/// The filters in force.
fn filters(board: &Board, asked: &Asked) -> Vec<Chip> {
    let without = |name: &str, value: &str, change: fn(&mut Asked)| {
        let mut other = asked.clone();
        change(&mut other);
        Chip { name: name.to_owned(), value: value.to_owned(), url: other.url(board) }
    };
    let all = [
        without("Code", &asked.code, |other| other.code.clear()),
        without("Message contains", &asked.text, |other| other.text.clear()),
        without("Older than", &asked.older, |other| other.older.clear()),
    ];
    all.into_iter().filter(|chip| !chip.value.is_empty()).collect()
}

/// The most frequent codes of the failed jobs that were read, as filters.
async fn codes_of(board: &Board, asked: &Asked, task: &TaskReport) -> Result<Vec<Chip>, Arc<Error>> {
    if asked.state != JobState::Failed.as_str() || !asked.code.is_empty() {
        return Ok(Vec::new());
    }
    let chip = |count: &CodeCount| {
        let other = Asked { code: count.code.clone(), ..asked.clone() };
        Chip { name: grouped(&count.jobs), value: count.code.clone(), url: other.url(board) }
    };
    let counts = failed_codes(board, task).await?;
    Ok(counts.iter().filter(|count| !count.code.is_empty()).take(CODES).map(chip).collect())
}

/// A state with the number of its jobs, and the address of its list.
pub(crate) struct Tab {
    pub(crate) badge: Badge,
    pub(crate) jobs: u64,
    pub(crate) url: String,
    /// Whether its list is the page.
    pub(crate) is_here: bool,
}

/// The states of the jobs of a task; `here` is the one that the page lists.
pub(crate) fn tabs(board: &Board, task: &TaskReport, here: Option<JobState>) -> Vec<Tab> {
    let tab = |state: JobState| Tab {
        badge: badge::of_job(state),
        jobs: task.counts.count(state),
        url: board.url(&format!("/jobs?task={}&state={state}", encoded(&task.task))),
        is_here: here == Some(state),
    };
    STATES.map(tab).into()
}

/// The actions on jobs in a state: name, label, and whether it cannot be undone.
pub(crate) fn acts_on(state: JobState) -> Vec<(&'static str, &'static str, bool)> {
    match state {
        JobState::Waiting => vec![("cancel", "Cancel", true), ("remove", "Remove", true)],
        JobState::Delayed => {
            vec![("run_now", "Run now", false), ("cancel", "Cancel", true), ("remove", "Remove", true)]
        }
        JobState::Claimed | JobState::Running => vec![("cancel", "Cancel", true)],
        JobState::Failed | JobState::Cancelled => vec![("retry", "Retry", false), ("remove", "Remove", true)],
        JobState::Completed => vec![("remove", "Remove", true)],
        _ => Vec::new(),
    }
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(mut asked): Query<Asked>) -> PageResult {
    if asked.state.is_empty() {
        asked.state = JobState::Failed.to_string();
    }
    let filter = asked.filter().map_err(|wrong| board.invalid(&wrong))?;
    board.must_know(&asked.task).await?;
    let cursor = Some(asked.cursor.as_str()).filter(|cursor| !cursor.is_empty());
    let looked = async {
        let page = board.inspector.jobs(&asked.task, &filter, cursor, ROWS).await?;
        // If all are on this page, they need no count.
        let is_all = cursor.is_none() && page.next.is_none();
        let count = if is_all { None } else { Some(asked.count(&board, &filter).await?) };
        // A healthy job is silent for up to a third of each interval.
        let has_silent = page.jobs.iter().any(|job| job.is_silent);
        let task = board.inspector.task(&asked.task).await?;
        let is_late = has_silent && is_overdue(&task);
        let codes = codes_of(&board, &asked, &task).await?;
        Ok::<_, Arc<Error>>((page, count, is_late, task, codes))
    };
    let (page, count, is_late, task, codes) = board.or_failed(looked.await)?;
    let jobs = count.as_ref().map_or(page.jobs.len() as u64, |count| count.jobs);
    let counted = match count {
        Some(count) if !count.is_exact => format!("at least {jobs} of {} read", count.looked),
        _ => many(jobs, "job"),
    };
    let state: JobState = asked.state.parse().unwrap_or(JobState::Failed);
    let frame = board.frame(&head);
    let order = if asked.is_oldest_first() { String::new() } else { "oldest".to_owned() };
    let is_ordered = state.is_terminal() || state == JobState::Delayed;
    Ok(answer(&JobsPage {
        tabs: tabs(&board, &task, Some(state)),
        shows_due: matches!(state, JobState::Delayed | JobState::Finalizing),
        shows_worker: matches!(state, JobState::Claimed | JobState::Running | JobState::Finalizing),
        filters: filters(&board, &asked),
        codes,
        other_order: is_ordered.then(|| Asked { order, ..asked.clone() }.url(&board)),
        next: page.next.as_deref().map(|next| format!("{}&cursor={}", asked.url(&board), encoded(next))),
        acts: if jobs > 0 { frame.offered(acts_on(state)) } else { Vec::new() },
        frame,
        counted,
        page,
        is_late,
        asked,
    }))
}
