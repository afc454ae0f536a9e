//! Acts on many jobs, step by step: with progress, and an end at Ctrl-C that loses no account.

use std::io::{self, Read};
use std::time::SystemTime;

use heartline::{Act, ActReport, Error, JobSelection, JobState};
use indicatif::{ProgressBar, ProgressStyle};

use super::known_task;
use crate::args::Selected;
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;
use heartline::inspect::describe::changed;
use heartline::inspect::text::{many, shown};

/// How many jobs a step takes at most.
const A_STEP: usize = 200;

/// How many refusals are told to people.
const TOLD: usize = 20;

/// Which jobs an act takes.
pub(super) struct Chosen {
    pub(super) selection: JobSelection,
    /// About how many those are; at least, where not all were looked at.
    pub(super) count: u64,
    is_exact: bool,
    /// When they were counted, by the clock of the server: what comes to fit while a person thinks is let be.
    as_of: SystemTime,
    /// The state in which jobs must be that were named by their ids.
    state: Option<JobState>,
}

impl Chosen {
    /// An act on those that were meant, as of when they were counted.
    pub(super) fn decided(&self, act: Act) -> Act {
        let act = act.as_of(self.as_of);
        match self.state {
            Some(state) => act.in_state(state),
            None => act,
        }
    }

    /// The same for acts on named jobs that nobody is asked about but in production.
    pub(super) async fn bound_in_production(&self, session: &Session, act: &mut Act) -> Result<String, Failure> {
        if session.consent.is_production { self.bound(session, act).await } else { Ok(String::new()) }
    }

    /// Binds an act to the states of the jobs that were named by their ids, where a person is asked about it. Returns what the question says of those.
    pub(super) async fn bound(&self, session: &Session, act: &mut Act) -> Result<String, Failure> {
        if self.state.is_some() || !session.consent.asks() {
            return Ok(String::new());
        }
        let told = act.bind().await?.into_iter().map(|(state, count)| match state {
            Some(state) => format!("{count} {state}"),
            None => format!("{count} unknown"),
        });
        let told: Vec<String> = told.collect();
        Ok(if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) })
    }
}

/// Which jobs an act takes, as they stand now.
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

/// The ids that were named, with those of standard input in place of `-`.
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

/// Asks about an act on what a filter finds: who names jobs has chosen them.
pub(super) fn confirm_filter(
    session: &Session,
    jobs: &Selected,
    verb: &str,
    (chosen, more): (&Chosen, &str),
) -> Result<(), Failure> {
    let (count, least) = (chosen.count, if chosen.is_exact { "about" } else { "at least" });
    match jobs.by_filter() {
        // What comes from now on is not taken.
        Some(_) if count == 0 && chosen.is_exact => {
            if let Some(code) = &jobs.filter.code {
                let task = &jobs.task;
                let what = format!(
                    "no such job has the code {}: `heartline jobs codes -t {task}` counts those of jobs that failed, or are tried again",
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

/// Refuses a state whose jobs the act would refuse, each of them.
pub(super) fn can_be(jobs: &Selected, done: &str, states: &[JobState]) -> Result<(), Failure> {
    match jobs.filter.state {
        Some(state) if !states.contains(&state) => {
            let named: Vec<String> = states.iter().map(ToString::to_string).collect();
            Err(Failure::wrong(format!("{state} jobs cannot be {done}, only those that are {}", named.join(" or "))))
        }
        _ => Ok(()),
    }
}

/// Makes the act, and tells what came of it. `of` is about how many jobs it takes.
pub(super) async fn run(session: &Session, mut act: Act, done: &str, of: u64) -> Result<(), Failure> {
    let bar = if session.out.is_json { ProgressBar::hidden() } else { ProgressBar::new(of) };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let mut stop = std::pin::pin!(heartline::shutdown_signal());
    let (mut failure, mut is_denied, mut was_refused, mut is_stopped) = (None, false, false, false);
    while !is_stopped {
        let stepped = {
            let mut step = std::pin::pin!(act.step());
            tokio::select! {
                biased;
                stepped = &mut step => stepped,
                () = &mut stop => {
                    is_stopped = true;
                    say!("stopping behind the step that is under way; once more breaks it off");
                    // A step is not given up in its middle, unless a person insists: what it did is to be told.
                    tokio::select! {
                        stepped = step => stepped,
                        () = heartline::shutdown_signal() => {
                            failure = Some(Failure::Failed("broken off".to_owned()));
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
                // That is asked before anything is written, where the server can tell.
                is_denied = matches!(&e, Error::Denied { source } if source.wrote_nothing());
                // A server that takes no writes takes none of a step.
                was_refused = matches!(&e, Error::Connect { source } | Error::Refused { source }
                    if matches!(source.code(), Some("NOREPLICAS" | "MISCONF" | "READONLY")));
                failure = Some(Failure::from(e));
                break;
            }
        }
    }
    bar.finish_and_clear();
    let told = tell(session, act.report(), done, is_denied);
    match failure {
        Some(failure) if is_denied => Err(failure),
        Some(failure) => {
            if !was_refused {
                let most = bar.length().map_or(A_STEP as u64, |all| (A_STEP as u64).min(all.max(1)));
                say!("note: the step that was under way may have taken up to {most} jobs more");
            }
            Err(failure)
        }
        None if is_stopped && !act.report().is_complete => {
            Err(Failure::Failed("stopped; the others are as they were".to_owned()))
        }
        None => told,
    }
}

/// Tells what an act did, and fails if it did nothing but refuse.
pub(super) fn tell(session: &Session, report: &ActReport, done: &str, is_denied: bool) -> Result<(), Failure> {
    let nothing = report.done + report.requested == 0 && report.refused > 0;
    ended(!nothing, told(session, report, done, is_denied))
}

fn told(session: &Session, report: &ActReport, done: &str, is_denied: bool) -> Result<(), Failure> {
    if session.out.is_json {
        session.out.json(report)?;
    } else {
        let asked =
            if report.requested > 0 { format!(", {} asked of their workers", report.requested) } else { String::new() };
        session.out.line(format!("{}{asked}, {} refused", changed(report, done), report.refused))?;
        for refused in report.refusals.iter().take(TOLD) {
            session.out.line(format!("  {}: {}", shown(&refused.id), refused.why))?;
        }
        if report.refused as usize > TOLD {
            session.out.line(format!("  and {} more; --json lists up to 1,000", report.refused as usize - TOLD))?;
        }
        if report.swept_by_worker {
            // Its sweep may have been no more than a snapshot.
            session.out.line(
                "Somebody else swept meanwhile, a live worker or another person: `heartline stalls list` tells what was decided, then or at the next sweep.",
            )?;
        }
        if !report.is_complete && !report.swept_by_worker {
            let again = if is_denied { "the others are as they were" } else { "repeat it for the others" };
            session.out.line(format!("It did not come to its end: {again}."))?;
        }
    }
    Ok(())
}
