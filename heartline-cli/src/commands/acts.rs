//! Changes to many jobs, step by step, with a progress bar. Ctrl-C stops after a step and still prints the report.

use std::io::{self, Read};
use std::time::SystemTime;

use heartline::{BulkAction, BulkReport, Error, JobSelection, JobState, RefusalReason};
use indicatif::{ProgressBar, ProgressStyle};

use super::known_task;
use crate::args::Selected;
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;
use heartline::inspect::describe::changed;
use heartline::inspect::text::{many, shown};

/// The most jobs of a step.
const A_STEP: usize = 200;

/// The most refusals printed without `--json`.
const PRINTED: usize = 20;

/// The hint if another process swept first. Its sweep may only have taken a snapshot.
pub(super) const SWEPT_BY_OTHER: &str = "A worker of the task is alive, or another person swept: nothing to decide. `heartline stalls list` shows what that sweep or the next one decides.";

/// The jobs of an act, as a person selected them.
pub(super) struct Chosen {
    pub(super) selection: JobSelection,
    /// About how many jobs these are; a lower bound unless `is_exact`.
    pub(super) count: u64,
    is_exact: bool,
    /// When they were counted, by the server's clock. Jobs that match the filter only later are left alone.
    as_of: SystemTime,
    /// The state that jobs named by id must be in.
    state: Option<JobState>,
}

impl Chosen {
    /// Limits an act to the jobs as they were counted.
    pub(super) fn decided(&self, act: BulkAction) -> BulkAction {
        let act = act.before(self.as_of);
        match self.state {
            Some(state) => act.in_state(state),
            None => act,
        }
    }

    /// If the person will be asked, limits an act on named jobs to their present states. Returns the states, for the question.
    pub(super) async fn bound(&self, session: &Session, act: &mut BulkAction) -> Result<String, Failure> {
        if self.state.is_some() || session.consent.yes {
            return Ok(String::new());
        }
        let states = act.pin().await?.into_iter().map(|(state, count)| match state {
            Some(state) => format!("{count} {state}"),
            None => format!("{count} unknown"),
        });
        let states: Vec<String> = states.collect();
        Ok(if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) })
    }
}

/// Reads which jobs are selected, and counts them.
pub(super) async fn chosen(session: &Session, jobs: &Selected) -> Result<Chosen, Failure> {
    known_task(session, &jobs.task).await?;
    let as_of = session.inspector.server_time().await?;
    if let Some(filter) = jobs.by_filter() {
        let counted = session.inspector.count(&jobs.task, &filter).await?;
        let (count, is_exact) = (counted.jobs, counted.is_exact);
        return Ok(Chosen { selection: filter.into(), count, is_exact, as_of, state: None });
    }
    let ids = ids_of(&jobs.ids)?;
    Ok(Chosen { count: ids.len() as u64, is_exact: true, selection: ids.into(), as_of, state: jobs.filter.state })
}

/// The given ids; `-` is replaced by those of standard input.
pub(super) fn ids_of(named: &[String]) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::with_capacity(named.len());
    for id in named {
        if id == "-" {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text)?;
            ids.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        } else {
            ids.push(id.clone());
        }
    }
    Ok(ids)
}

/// Asks before an act on the jobs of a filter, and in production before every act.
pub(super) fn confirm_filter(
    session: &Session,
    jobs: &Selected,
    verb: &str,
    (chosen, more): (&Chosen, &str),
) -> Result<(), Failure> {
    let (count, least) = (chosen.count, if chosen.is_exact { "about" } else { "at least" });
    match jobs.by_filter() {
        // Jobs that match from now on are not included.
        Some(_) if count == 0 && chosen.is_exact => {
            if let Some(code) = &jobs.filter.code {
                let task = &jobs.task;
                let what = format!(
                    "no such job has the code {}; `heartline jobs codes -t {task}` lists the codes",
                    shown(code)
                );
                session.out.hint(what);
            }
            Ok(())
        }
        Some(_) => {
            let state = jobs.filter.state.unwrap_or(JobState::Waiting);
            confirm(
                &session.consent,
                &format!("{verb} {least} {} of {}{more}", many(count, &format!("{state} job")), jobs.task),
            )
        }
        None if session.consent.is_production => {
            confirm(&session.consent, &format!("{verb} {} of {}{more}", many(count, "job"), jobs.task))
        }
        None => Ok(()),
    }
}

/// Asks before an act on the chosen jobs as [`confirm_filter`] does, and runs it. The words are its verb, its participle, and what the
/// question adds.
pub(super) async fn decide(
    session: &Session,
    jobs: &Selected,
    (chosen, act): (&Chosen, BulkAction),
    (verb, done, more): (&str, &str, &str),
) -> Result<(), Failure> {
    let mut act = chosen.decided(act);
    let states = if session.consent.is_production { chosen.bound(session, &mut act).await? } else { String::new() };
    confirm_filter(session, jobs, verb, (chosen, &format!("{states}{more}")))?;
    run(session, act, done, chosen.count).await
}

/// Refuses a state in which the act is impossible.
pub(super) fn can_be(jobs: &Selected, done: &str, states: &[JobState]) -> Result<(), Failure> {
    match jobs.filter.state {
        Some(state) if !states.contains(&state) => {
            let named: Vec<String> = states.iter().map(ToString::to_string).collect();
            Err(Failure::wrong(format!("{state} jobs cannot be {done}, only those that are {}", named.join(" or "))))
        }
        _ => Ok(()),
    }
}

/// Runs the act and prints its report. `of` is about how many jobs it has.
pub(super) async fn run(session: &Session, mut act: BulkAction, done: &str, of: u64) -> Result<(), Failure> {
    let bar = if session.out.is_json { ProgressBar::hidden() } else { ProgressBar::new(of) };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let mut stop = std::pin::pin!(heartline::shutdown_signal());
    let (mut failure, mut is_denied, mut was_refused, mut is_stopped) = (None, false, false, false);
    while !is_stopped {
        let stepped = {
            let mut step = std::pin::pin!(act.next_batch());
            tokio::select! {
                biased;
                stepped = &mut step => stepped,
                () = &mut stop => {
                    is_stopped = true;
                    say!("stopping after this step; press Ctrl-C again to abort it");
                    // The report does not include an aborted step, so only a second Ctrl-C aborts it.
                    tokio::select! {
                        stepped = step => stepped,
                        () = heartline::shutdown_signal() => {
                            failure = Some(Failure::Failed("aborted".to_owned()));
                            break;
                        }
                    }
                }
            }
        };
        match stepped {
            Ok(Some(so_far)) => bar.set_position(so_far.done + so_far.requested + so_far.refused),
            Ok(None) => break,
            Err(e) => {
                // If the server can check rights in advance, nothing was written.
                is_denied = matches!(&e, Error::Denied { source } if source.wrote_nothing());
                // A server that refuses writes has applied no part of the step.
                was_refused = matches!(&e, Error::Connect { source } | Error::Refused { source }
                    if matches!(source.code(), Some("NOREPLICAS" | "MISCONF" | "READONLY")));
                failure = Some(Failure::from(e));
                break;
            }
        }
    }
    bar.finish_and_clear();
    let printed = print_report(session, act.report(), done, is_denied);
    match failure {
        Some(failure) if is_denied => Err(failure),
        Some(failure) => {
            if !was_refused {
                let most = bar.length().map_or(A_STEP as u64, |all| (A_STEP as u64).min(all.max(1)));
                say!("note: the interrupted step may have changed up to {most} more jobs");
            }
            Err(failure)
        }
        None if is_stopped && !act.report().is_complete => {
            Err(Failure::Failed("stopped; the other jobs are unchanged".to_owned()))
        }
        None => printed,
    }
}

/// Prints the report of an act, and fails if every job was refused.
pub(super) fn print_report(session: &Session, report: &BulkReport, done: &str, is_denied: bool) -> Result<(), Failure> {
    let nothing = report.done + report.requested == 0 && report.refused > 0;
    ended(!nothing, print_lines(session, report, done, is_denied))
}

fn print_lines(session: &Session, report: &BulkReport, done: &str, is_denied: bool) -> Result<(), Failure> {
    let Some(out) = session.out.for_person(report)? else { return Ok(()) };
    out.line(format!("{}, {} refused", changed(report, done), report.refused))?;
    for refused in report.refusals.iter().take(PRINTED) {
        out.line(format!("  {}", shown(&refused.to_string())))?;
    }
    if report.refused as usize > PRINTED {
        out.line(format!("  and {} more; --json shows up to 1,000", report.refused as usize - PRINTED))?;
    }
    if report.refusals.iter().any(|refused| refused.why == RefusalReason::Duplicate) {
        out.hint("With --anyway, these jobs run without their unique key.");
    }
    if report.swept_by_worker {
        out.line(SWEPT_BY_OTHER)?;
    }
    if !report.is_complete && !report.swept_by_worker {
        let again = if is_denied { "the other jobs are unchanged" } else { "repeat the command for the other jobs" };
        out.line(format!("Not complete: {again}."))?;
    }
    Ok(())
}
