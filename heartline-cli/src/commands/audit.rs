//! `audit` and `repair`.

use std::collections::BTreeMap;

use heartline::inspect::describe::{is_task_name, meaning, runs_again};
use heartline::inspect::text::{bytes, many, shown};
use heartline::{AuditReport, ColumnReport, Finding, Inconsistency};
use indicatif::ProgressBar;
use serde::Serialize;

use super::known_task;
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;

/// The findings of a task, and the sizes of its columns.
#[derive(Serialize)]
struct Audited<'a> {
    #[serde(flatten)]
    report: &'a AuditReport,
    columns: Vec<ColumnReport>,
}

/// The most columns named.
const NAMED: usize = 5;

/// The most faults listed of each kind.
const LISTED: usize = 20;

/// Audits a task, with a progress bar.
async fn look(session: &Session, task: &str) -> Result<AuditReport, Failure> {
    // This also covers keys that an audit does not read.
    if let Some(foreign) = foreign(session, task).await {
        return Err(foreign);
    }
    let bar = if session.out.is_json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    bar.set_message(task.to_owned());
    let mut audit = session.inspector.audit(task);
    loop {
        match audit.step().await {
            Ok(Some(progress)) => {
                bar.set_length(progress.of);
                bar.set_position(progress.read.min(progress.of));
            }
            Ok(None) => break,
            Err(e) => return Err(foreign(session, task).await.unwrap_or_else(|| e.into())),
        }
    }
    bar.finish_and_clear();
    // A user who may only read can audit, too.
    if let Err(e) = session.inspector.note_audit(audit.report()).await {
        session.out.hint(format!("the result of the audit could not be stored: {}", shown(&e.to_string())));
    }
    Ok(audit.report().clone())
}

/// Keys of the wrong type, if any. No script can read the task then.
async fn foreign(session: &Session, task: &str) -> Option<Failure> {
    let foreign = session.inspector.foreign_keys(task).await.ok().filter(|foreign| !foreign.is_empty())?;
    let named: Vec<String> = foreign.iter().map(ToString::to_string).collect();
    let what = format!("{}: rename or delete it, then audit again", named.join(", "));
    Some(Failure::Failed(what))
}

pub(super) async fn audit(session: &Session, task: Option<String>) -> Result<(), Failure> {
    let tasks = match task {
        Some(task) => {
            known_task(session, &task).await?;
            vec![task]
        }
        None => session.inspector.task_names().await?,
    };
    if tasks.is_empty() {
        // The prefix may be wrong, or the list lost: this must not look like success.
        session.out.hint(format!("No task is listed on {}; nothing was audited.", session.place));
        return ended(false, print_audits(session, &[]));
    }
    let mut reports = Vec::new();
    let mut failed = Vec::new();
    let (tasks, foreign): (Vec<String>, Vec<String>) = tasks.into_iter().partition(|task| is_task_name(task));
    failed.extend(foreign.iter().map(|name| format!("{name} is not a valid task name; see `heartline status`")));
    for task in &tasks {
        match look(session, task).await {
            Ok(report) => reports.push(report),
            // A damaged task must not hide the others.
            Err(Failure::Failed(what) | Failure::WrongType(what) | Failure::Unreachable(what)) if tasks.len() > 1 => {
                failed.push(format!("{task} cannot be audited: {what}"))
            }
            Err(e) => return Err(e),
        }
    }
    for what in &failed {
        say!("error: {}", shown(what));
    }
    let mut audited = Vec::with_capacity(reports.len());
    for report in &reports {
        // A user without the right to read sizes can audit, too.
        let columns = session.inspector.columns(&report.task).await.unwrap_or_else(|e| {
            session.out.hint(format!("the sizes of the columns are unknown: {}", shown(&e.to_string())));
            Vec::new()
        });
        audited.push(Audited { report, columns });
    }
    let is_clean = failed.is_empty() && reports.iter().all(AuditReport::is_clean);
    ended(is_clean, print_audits(session, &audited))
}

fn print_audits(session: &Session, audited: &[Audited]) -> Result<(), Failure> {
    let Some(out) = session.out.for_person(&audited)? else { return Ok(()) };
    for Audited { report, columns } in audited {
        let (looked, found) = totals(report);
        out.line(format!("{}: {}, {}", report.task, many(looked, "job") + " audited", many(found, "fault")))?;
        sizes(session, columns)?;
        findings(session, report.findings())?;
        if found > 0 {
            out.hint(format!("`heartline repair -t {} --dry-run` shows what would be repaired.", report.task));
        }
    }
    Ok(())
}

pub(super) async fn repair(session: &Session, task: &str, dry_run: bool) -> Result<(), Failure> {
    known_task(session, task).await?;
    let report = look(session, task).await?;
    let preview = session.inspector.preview_repair(&report).await?;
    let count = preview.mended.len();
    if dry_run || count == 0 {
        if session.out.is_json {
            // A repair reports `mended`: a script must not take this for one.
            return session.out.json(&serde_json::json!({ "would_mend": preview.mended, "gone": preview.gone }));
        }
        session.out.line(format!("{} would be repaired", many(count as u64, "fault")))?;
        return findings(session, preview.mended.iter());
    }
    if !session.out.is_json {
        findings(session, preview.mended.iter())?;
    }
    let again = runs_again(preview.mended.iter());
    confirm(&session.consent, &format!("repair {} of {task}{again}", many(count as u64, "fault")))?;
    let repaired = session.inspector.repair(&report).await?;
    let Some(out) = session.out.for_person(&repaired)? else { return Ok(()) };
    out.line(format!("{} repaired, {} no longer present", repaired.mended.len(), repaired.gone.len()))
}

fn totals(report: &AuditReport) -> (u64, u64) {
    report.parts.iter().fold((0, 0), |(looked, found), part| (looked + part.looked, found + part.found))
}

/// Prints the size of the task in Redis, and its largest columns.
fn sizes(session: &Session, columns: &[ColumnReport]) -> Result<(), Failure> {
    let whole: u64 = columns.iter().map(|column| column.bytes).sum();
    let named = columns.iter().take(NAMED).map(|column| format!("{} {}", column.column, bytes(column.bytes)));
    if whole > 0 {
        session.out.line(format!(
            "  {} in Redis; largest columns: {}",
            bytes(whole),
            named.collect::<Vec<_>>().join(", ")
        ))?;
    }
    Ok(())
}

/// Prints the faults by kind, with the meaning of each kind.
fn findings<'a>(session: &Session, found: impl Iterator<Item = &'a Finding>) -> Result<(), Failure> {
    let mut kinds: BTreeMap<Inconsistency, Vec<&Finding>> = BTreeMap::new();
    found.for_each(|finding| kinds.entry(finding.fault).or_default().push(finding));
    for (fault, found) in kinds {
        session.out.line(format!("  {} x {fault}: {}", found.len(), meaning(fault)))?;
        for finding in found.iter().take(LISTED) {
            session.out.line(format!("    {}", shown(&finding.what)))?;
        }
        if found.len() > LISTED {
            session.out.line(format!("    and {} more; --json shows all", found.len() - LISTED))?;
        }
    }
    Ok(())
}
