//! Pages of jobs, and counts of jobs that match a filter.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use super::filter::JobFilter;
use super::parts::{Cursors, PartPage, config, merged};
use super::tasks::in_state_since;
use crate::backend::jobs::{self, PageLook, PageRow};
use crate::backend::keys::TaskKeys;
use crate::error::Error;
use crate::job::failure::codes;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::join::try_join_all;
use crate::limits::stored_score;
use crate::options::modes::Priority;
use crate::unix_time::{as_ms, at_ms, ms_of, ms_since_1970, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// The most rows of a page.
pub(super) const MOST_ROWS: usize = 1000;

/// The most jobs that a page with a filter reads.
pub(super) const LOOKED: usize = 1000;

/// The most jobs that one call reads.
const A_CALL: usize = 200;

/// The most jobs that a count reads.
const COUNTED: usize = 10_000;

/// A page of jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobPage {
    /// When this was read.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// The cursor of the next page. `None` at the end.
    pub next: Option<String>,
    /// How many jobs were read. A page with a filter reads at most 1,000, and may be short or empty although others follow.
    pub looked: usize,
}

/// A job of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobRow {
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// Its priority.
    pub priority: Priority,
    /// How many of its runs have ended in failure.
    pub failed_attempts: u32,
    /// How often it stalled.
    pub stalled_count: u32,
    /// How often it may stall, if its dispatch set a limit. Otherwise the task's limit applies.
    pub max_count: Option<u32>,
    /// When it was dispatched, by the clock of the process that did.
    #[serde(rename = "dispatched_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub dispatched_at: Option<SystemTime>,
    /// Since when it has been in its state. A terminal job: since it ended. A running job: since it was claimed.
    #[serde(rename = "since_ms", serialize_with = "ms_since_1970_where_known")]
    pub since: Option<SystemTime>,
    /// When a delayed job is due. For a finalizing job that no worker holds: when its hook may run.
    #[serde(rename = "due_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub due_at: Option<SystemTime>,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The fence under which it is held.
    pub fence: Option<u64>,
    /// Whether it is held and was silent since the last snapshot.
    pub is_silent: bool,
    /// The code of its last failure. A cancelled job has `cancelled`.
    pub code: Option<String>,
    /// The beginning of the message of its last failure, or the reason of its cancel.
    pub message: Option<String>,
    /// The cursor after it.
    #[serde(skip)]
    pub(super) cursor: String,
    /// Proof of the state in which it was read, which an act checks.
    #[serde(skip)]
    pub(super) stamp: String,
}

/// How many jobs match a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobCount {
    /// How many jobs match, at least.
    pub jobs: u64,
    /// Whether these are all matching jobs, except those that moved meanwhile. See [`Inspector::count`].
    pub is_exact: bool,
    /// How many jobs were read. 0 if Redis could count them.
    pub looked: u64,
    /// How long the count took.
    #[serde(rename = "took_ms", serialize_with = "as_ms")]
    pub took: Duration,
}

impl Inspector {
    /// A page of up to `limit` jobs (1 to 1,000). The cursor is the [`JobPage::next`] of the previous page, or `None` to begin.
    ///
    /// The cost of a page does not depend on the number of jobs. Terminal and delayed jobs come in a stable order of time. A later
    /// page of waiting jobs may skip or repeat jobs that moved meanwhile. A page of held jobs may exceed `limit` slightly and may
    /// repeat jobs.
    pub async fn jobs(
        &self,
        task: &str,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<JobPage, Error> {
        if limit == 0 || limit > MOST_ROWS {
            let rule = format!("must be 1 to {MOST_ROWS}");
            return Err(config("limit", &limit.to_string(), &rule, "ask for the next page with its cursor"));
        }
        // Waiting jobs come in the order in which they are claimed.
        let filter =
            JobFilter { oldest_first: filter.oldest_first || filter.state == JobState::Waiting, ..filter.clone() };
        let cursor = cursor.unwrap_or_default();
        let cursors = Cursors::parse(cursor, self.tables(task).await?.len())?;
        cursors.0.iter().flatten().try_for_each(|cursor| check_cursor(&filter, cursor))?;
        let now = self.now_ms().await?;
        self.page(task, &filter, cursor, limit, now).await
    }

    /// [`Inspector::jobs`] without its checks. Ages are counted back from `began_ms`.
    pub(super) async fn page(
        &self,
        task: &str,
        filter: &JobFilter,
        cursor: &str,
        limit: usize,
        began_ms: u64,
    ) -> Result<JobPage, Error> {
        for (field, word) in [("filter.code", &filter.code), ("filter.text", &filter.text)] {
            if word.as_deref() == Some("") {
                return Err(config(field, "", "must not be empty", "leave it out to match any"));
            }
        }
        let tables = self.tables(task).await?;
        let mut cursors = Cursors::parse(cursor, tables.len())?;
        if let [keys] = &tables[..] {
            return self.page_of(keys, filter, cursor, (limit, LOOKED), began_ms).await;
        }
        let mut looked = 0;
        if matches!(filter.state, JobState::Claimed | JobState::Running | JobState::Finalizing) {
            // Without an order, read one partition after the other.
            let mut jobs = Vec::new();
            while let Some(at) =
                cursors.0.iter().position(Option::is_some).filter(|_| jobs.len() < limit && looked < LOOKED)
            {
                let from = cursors.0[at].clone().unwrap_or_default();
                let page =
                    self.page_of(&tables[at], filter, &from, (limit - jobs.len(), LOOKED - looked), began_ms).await?;
                looked += page.looked;
                jobs.extend(page.jobs);
                cursors.0[at] = page.next;
            }
            return Ok(JobPage { as_of: at_ms(began_ms), jobs, next: cursors.text(), looked });
        }
        // Read no more jobs from all partitions together than from a task without partitions.
        let each = LOOKED / tables.len();
        let reads = cursors.0.iter().zip(tables.iter()).map(|(from, keys)| async move {
            let page = match from {
                Some(from) => Some(self.page_of(keys, filter, from, (limit, each), began_ms).await?),
                None => None,
            };
            Ok::<_, Error>((from.clone(), page))
        });
        let mut pages = Vec::with_capacity(tables.len());
        for (from, page) in try_join_all(reads).await? {
            let (rows, next) = page.map_or((Vec::new(), None), |page| {
                looked += page.looked;
                let with_cursor = |row: JobRow| {
                    let at = row.cursor.clone();
                    (row, at)
                };
                (page.jobs.into_iter().map(with_cursor).collect(), page.next)
            });
            pages.push(PartPage { from, rows, next });
        }
        let (jobs, cursors) = merged(pages, limit, |one, other| in_order(filter, one, other));
        Ok(JobPage { as_of: at_ms(began_ms), jobs, next: cursors.text(), looked })
    }

    /// A page of one table: at most `limit` jobs. With a filter, about `looks` jobs are read.
    async fn page_of(
        &self,
        keys: &Arc<TaskKeys>,
        filter: &JobFilter,
        cursor: &str,
        (limit, looks): (usize, usize),
        began_ms: u64,
    ) -> Result<JobPage, Error> {
        let text = filter.text.as_deref().map(json_text).unwrap_or_default();
        let code = filter.code.as_deref().map(json_text).unwrap_or_default();
        let (mut rows, mut cursor, mut looked) = (Vec::new(), cursor.to_owned(), 0);
        let most = if filter.looks_inside() { looks } else { limit };
        let next = loop {
            let scores = if filter.is_ordered() { filter.times(began_ms) } else { (None, None) };
            let count = if filter.looks_inside() { A_CALL } else { A_CALL.min(limit - rows.len()) };
            let count = count.min(most.saturating_sub(looked)).max(1);
            let look = PageLook {
                state: filter.state,
                newest_first: !filter.oldest_first,
                cursor: &cursor,
                count,
                scores,
                code: &code,
                text: &text,
            };
            let page = self.look(async |conn| jobs::jobs(conn, keys, &look).await).await?;
            looked += page.looked;
            let found = page.rows.into_iter().map(|row| job_row(filter.state, row));
            rows.extend(found.filter(|row| filter.is_ordered() || is_within(row, filter.times(began_ms))));
            if !filter.state.is_held() && rows.len() > limit {
                rows.truncate(limit);
                break rows.last().map(|last| last.cursor.clone());
            }
            if page.next.is_empty() {
                break None;
            }
            cursor = page.next;
            if rows.len() >= limit || looked >= most {
                break Some(cursor);
            }
        };
        Ok(JobPage { as_of: at_ms(began_ms), jobs: rows, next, looked })
    }

    /// How many jobs match. A filter by state alone, or by age of terminal and delayed jobs, is counted exactly, at a cost that does not
    /// depend on their number. For any other filter at most 10,000 jobs are read.
    pub async fn count(&self, task: &str, filter: &JobFilter) -> Result<JobCount, Error> {
        let begun = std::time::Instant::now();
        let now = self.now_ms().await?;
        if !filter.looks_inside() {
            let jobs = match filter.times(now) {
                (None, None) => self.task_counts(task).await?.count(filter.state),
                times => {
                    let tables = self.tables(task).await?;
                    let counts = tables.iter().map(|keys| {
                        self.look(async move |conn| jobs::count_between(conn, keys, filter.state, times).await)
                    });
                    try_join_all(counts).await?.into_iter().sum()
                }
            };
            return Ok(JobCount { jobs, is_exact: true, looked: 0, took: begun.elapsed() });
        }
        let (mut jobs, mut looked, mut cursor) = (0, 0, Some(String::new()));
        while let Some(at) = cursor.filter(|_| looked < COUNTED) {
            let page = self.page(task, filter, &at, MOST_ROWS, now).await?;
            jobs += page.jobs.len() as u64;
            looked += page.looked;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(JobCount { jobs, is_exact: true, looked: looked as u64, took: begun.elapsed() });
            }
        }
        Ok(JobCount { jobs, is_exact: false, looked: looked as u64, took: begun.elapsed() })
    }
}

/// The order of jobs of different partitions.
fn in_order(filter: &JobFilter, one: &JobRow, other: &JobRow) -> Ordering {
    let by_time = one.since.cmp(&other.since);
    match filter.state {
        JobState::Waiting => {
            let order = (one.priority as u8).cmp(&(other.priority as u8)).then(by_time);
            if filter.oldest_first { order } else { order.reverse() }
        }
        JobState::Delayed if filter.oldest_first => one.due_at.cmp(&other.due_at),
        JobState::Delayed => other.due_at.cmp(&one.due_at),
        _ if filter.oldest_first => by_time,
        _ => by_time.reverse(),
    }
}

/// Refuses cursors that no page returned. They would silently begin elsewhere.
fn check_cursor(filter: &JobFilter, cursor: &str) -> Result<(), Error> {
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit()) && word.parse::<u64>().is_ok();
    // A person may also pass a score.
    let is_score = |word: &str| word.parse::<f64>().is_ok_and(|score| !score.is_nan());
    let is_id = |word: &str| !word.is_empty() && !word.contains(char::is_whitespace);
    let words: Vec<&str> = cursor.split(' ').collect();
    let is_valid = match (filter.state, &words[..]) {
        (_, [""]) => true,
        (JobState::Claimed | JobState::Running | JobState::Finalizing, [at]) => is_number(at),
        (JobState::Waiting, ["l", "-"]) => true,
        (JobState::Waiting, ["l", place, id, ..]) => place.bytes().all(|b| b.is_ascii_digit()) && is_id(id),
        (JobState::Waiting, [list, at]) => ["1", "2", "3"].contains(list) && is_number(at),
        (JobState::Claimed | JobState::Running | JobState::Finalizing | JobState::Waiting, _) => false,
        (_, [score, id]) => is_score(score) && is_id(id),
        _ => false,
    };
    let rule = "must be the `next` of a page of the same task and state";
    if is_valid { Ok(()) } else { Err(config("cursor", cursor, rule, "begin again without a cursor")) }
}

/// Refuses a stream cursor that no page returned.
pub(super) fn check_entry(cursor: &str) -> Result<(), Error> {
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit()) && word.parse::<u64>().is_ok();
    let is_valid = cursor.is_empty() || cursor.split_once('-').is_some_and(|(ms, at)| is_number(ms) && is_number(at));
    let rule = "must be the `next` of a page of the same task";
    if is_valid { Ok(()) } else { Err(config("cursor", cursor, rule, "begin again without a cursor")) }
}

/// Escapes the text as in a JSON string.
fn json_text(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

fn is_within(row: &JobRow, (least, most): (Option<u64>, Option<u64>)) -> bool {
    if least.is_none() && most.is_none() {
        return true;
    }
    let Some(since) = row.since.map(ms_of) else { return false };
    least.is_none_or(|least| since >= least) && most.is_none_or(|most| since <= most)
}

/// The worker and the fence of a token.
pub(super) fn holder(token: &str) -> Option<(WorkerId, u64)> {
    let (worker, fence) = token.rsplit_once(':')?;
    Some((WorkerId::from_wire(worker), fence.parse().ok()?))
}

/// The time of a score.
pub(super) fn score(stamp: &str) -> Option<SystemTime> {
    stamp.parse().ok().map(|ms| at_ms(stored_score(ms)))
}

/// Decodes the beginning of a JSON string, up to its closing quote or to where it was cut.
fn message_of(json: &str) -> String {
    let mut end = json.len();
    let mut escaped = false;
    for (at, c) in json.char_indices() {
        if c == '"' && !escaped {
            end = at;
            break;
        }
        escaped = c == '\\' && !escaped;
    }
    // If it was cut inside an escape, drop bytes until the rest is valid.
    let read = |less: usize| {
        let cut = json.get(..end.checked_sub(less)?)?;
        serde_json::from_str(&format!("\"{cut}\"")).ok()
    };
    (0..12).find_map(read).unwrap_or_else(|| json.to_owned())
}

pub(super) fn priority_of(word: &str) -> Priority {
    word.parse().unwrap_or(Priority::Normal)
}

fn job_row(state: JobState, row: PageRow) -> JobRow {
    let held = (state.is_held() || state == JobState::Finalizing).then(|| holder(&row.stamp)).flatten();
    let dispatched_at = row.dispatched_at_ms.map(at_ms).or_else(|| row.id.created_at());
    let since = match state {
        JobState::Claimed | JobState::Running => held.as_ref().map(|(_, fence)| at_ms(fence / 1000)),
        // When its hook was claimed, or when it may run.
        JobState::Finalizing => held.as_ref().map_or_else(|| score(&row.stamp), |(_, fence)| Some(at_ms(fence / 1000))),
        JobState::Waiting | JobState::Delayed => in_state_since(&row.id, row.enqueued_at_ms.or(row.dispatched_at_ms)),
        JobState::Completed | JobState::Failed | JobState::Cancelled => score(&row.stamp),
    };
    // If the job completed, the failure of an earlier run is not an error of the job.
    let has_failed = state != JobState::Completed && !(row.code.is_empty() && row.message.is_empty());
    let code = has_failed.then(|| if row.code.is_empty() { codes::CORRUPT.to_owned() } else { row.code });
    let message = has_failed.then(|| message_of(&row.message));
    let (worker, fence) = held.unzip();
    JobRow {
        state,
        priority: priority_of(&row.priority),
        failed_attempts: row.failed_attempts,
        stalled_count: row.stalled_count,
        max_count: row.max_count,
        dispatched_at,
        since,
        due_at: matches!(state, JobState::Delayed | JobState::Finalizing).then(|| score(&row.stamp)).flatten(),
        worker,
        fence,
        is_silent: row.is_candidate,
        code,
        message,
        cursor: row.cursor,
        stamp: row.stamp,
        id: row.id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_cut_is_decoded_up_to_the_cut() {
        let whole = r#"too \"late\" \u00e9 by far"}"#;
        assert_eq!(message_of(whole), "too \"late\" \u{e9} by far");
        assert_eq!(message_of(r#"a","code":"b"}"#), "a");
        for end in 0..whole.len() {
            let message = message_of(&whole[..end]);
            assert!("too \"late\" \u{e9} by far".starts_with(&message), "{end}: {message}");
        }
    }

    #[test]
    fn a_cursor_of_another_state_is_refused() {
        let check = |state, cursor: &str| check_cursor(&JobFilter::new(state), cursor).is_ok();
        assert!(check(JobState::Failed, "") && check(JobState::Failed, "1700000000000 a"));
        assert!(
            check(JobState::Waiting, "2 100") && check(JobState::Running, "1234") && check(JobState::Claimed, "1234")
        );
        assert!(!check(JobState::Failed, "17") && !check(JobState::Waiting, "a b") && !check(JobState::Running, "1 2"));
    }

    #[test]
    fn text_is_searched_as_it_is_escaped_in_json() {
        assert_eq!(json_text("a \"b\"\n"), r#"a \"b\"\n"#);
        assert_eq!(json_text("/é"), "/é");
    }
}
