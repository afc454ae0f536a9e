//! The audits of all tasks, and the findings of one with their repair.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::request::Parts;
use heartline::{AuditReport, ColumnReport, Inconsistency, TaskReport};
use serde::Deserialize;

use crate::frame::Frame;
use crate::state::{Board, PageResult, answer};
use heartline::inspect::text::{chain, exact};

/// The most findings on a page.
const SHOWN: usize = 500;

#[derive(Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    task: String,
}

#[derive(Template)]
#[template(path = "audits.html")]
struct AuditsPage {
    frame: Frame,
    rows: Vec<(String, String, String)>,
    is_unreachable: bool,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    task: String,
    noted: String,
    /// The findings of this board's last audit. Only these can be repaired.
    found: Option<Found>,
    /// The columns with their sizes, or why these are unknown.
    columns: Result<Vec<ColumnReport>, String>,
}

struct Found {
    /// When the audit ended.
    audited: SystemTime,
    report: Arc<AuditReport>,
    looked: u64,
    found: u64,
    kinds: BTreeMap<Inconsistency, u64>,
    /// How many findings are not on the page.
    more: u64,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<Asked>) -> PageResult {
    let (frame, now) = (board.frame(&head), board.inspector.now().await);
    if asked.task.is_empty() {
        let (seen, _) = board.or_failed(board.look().await)?;
        let is_unreachable = seen.fleet.away.tasks.is_some();
        let rows = seen.fleet.tasks.iter().map(|task| {
            let (when, found) = noted(task, now);
            (task.task.clone(), when, found)
        });
        return Ok(answer(&AuditsPage { frame, rows: rows.collect(), is_unreachable }));
    }
    board.must_know(&asked.task).await?;
    let task = board.or_failed(board.inspector.task(&asked.task).await)?;
    let (when, found) = noted(&task, now);
    let columns = board.inspector.columns(&asked.task).await.map_err(|e| chain(&e));
    Ok(answer(&AuditPage {
        frame,
        columns,
        noted: format!("Last audit: {when}, {found}."),
        found: board.audited(&asked.task).map(|(at, report)| found_by(at, report)),
        task: asked.task,
    }))
}

/// When a task was last audited, and what was found.
fn noted(task: &TaskReport, now: SystemTime) -> (String, String) {
    if task.fault.is_some() {
        return ("unknown: the task cannot be read now".to_owned(), "–".to_owned());
    }
    let Some(audit) = &task.audited else { return ("never".to_owned(), "no findings".to_owned()) };
    let kinds = audit.found.iter().map(|(kind, count)| format!("{count} {kind}"));
    let found = kinds.collect::<Vec<_>>().join(", ");
    (exact(audit.at, now), if found.is_empty() { "nothing is wrong".to_owned() } else { found })
}

fn found_by(audited: SystemTime, report: Arc<AuditReport>) -> Found {
    let mut kinds = BTreeMap::new();
    for finding in report.findings() {
        *kinds.entry(finding.fault).or_insert(0) += 1;
    }
    let looked = report.parts.iter().map(|part| part.looked).sum();
    let found = report.parts.iter().map(|part| part.found).sum();
    let more = found - report.findings().take(SHOWN).count() as u64;
    Found { audited, report, looked, found, kinds, more }
}
