//! Each acknowledged job ended once, and its effect was recorded under the fence of the run that ended it.

use std::collections::{BTreeMap, BTreeSet};

use heartline::{Event, JobState};

use super::{End, Evidence, FlowEnd};
use crate::chaos::load::Ack;
use crate::chaos::outside::{Checkpoint, Line, Run};
use crate::chaos::report::Report;
use crate::chaos::spans::{Hurt, Span, us_of};
use crate::chaos::worker_process::{HOOKED, LONG, SURE};

/// The task and the id of a job.
pub(super) type Job<'a> = (&'a str, &'a str);

/// When a terminal event was, and the process of the worker that completed the job.
type Terminal = (u64, Option<u32>);

/// What the store outside and the events say about each job.
struct Known<'a> {
    /// With the fence and the process of each.
    effects: BTreeMap<Job<'a>, Vec<&'a Run>>,
    begins: BTreeMap<Job<'a>, Vec<u64>>,
    terminal: BTreeMap<Job<'a>, Vec<Terminal>>,
}

impl<'a> Known<'a> {
    fn of(evidence: &'a Evidence) -> Known<'a> {
        let mut known = Known { effects: BTreeMap::new(), begins: BTreeMap::new(), terminal: BTreeMap::new() };
        for (_, run) in evidence.effects() {
            known.effects.entry((&run.task, &run.id)).or_default().push(run);
        }
        for (at, run) in evidence.begins() {
            known.begins.entry((&run.task, &run.id)).or_default().push(at);
        }
        let pids = evidence.pids();
        for event in evidence.events.iter().filter(|event| event.is_terminal()) {
            let pid = match event {
                Event::Completed { worker, .. } => pids.get(worker.as_str()).copied(),
                _ => None,
            };
            known.terminal.entry((event.task(), event.id().as_str())).or_default().push((us_of(event.at()), pid));
        }
        known
    }
}

pub fn account(evidence: &Evidence, report: &mut Report) {
    let known = Known::of(evidence);
    let mut seen = BTreeSet::new();
    for ack in &evidence.acknowledged.jobs {
        if seen.insert((ack.task, ack.id.as_str())) {
            is_recorded_once(evidence, &known, ack, report);
            has_ended(evidence, &known, ack, report);
        }
    }
    for (_, line) in &evidence.lines {
        if let Line::Again(run) = line {
            report.double_recorded += 1;
            report.breach("recorded twice under one fence", &run.id, format!("{run:?}"));
        }
    }
    unique(evidence, report);
    checkpoints(evidence, report);
    workflows(evidence, report);
    refusals(evidence, report);
}

/// A call fails only during a fault, and it is safe to repeat it.
fn refusals(evidence: &Evidence, report: &mut Report) {
    for refusal in &evidence.acknowledged.refusals {
        let is_fault =
            |span: &Span| !matches!(span.hurt, Hurt::Worker(_)) && span.overlaps(refusal.sent_us, refusal.at_us);
        if !refusal.is_retryable || !evidence.spans.iter().any(is_fault) {
            let seen = format!("from {} to {}: {}", refusal.sent_us, refusal.at_us, refusal.error);
            report.breach("refused without a fault", &refusal.what, seen);
        }
    }
    report.refused += evidence.acknowledged.refusals.len();
    report.missed_events += evidence.missed_events;
}

/// Whether the job ended as it should.
fn has_ended(evidence: &Evidence, known: &Known<'_>, ack: &Ack, report: &mut Report) {
    let job = (ack.task, ack.id.as_str());
    let ends = known.terminal.get(&job).map_or(&[][..], Vec::as_slice);
    let end = &evidence.ends[&(ack.task.to_owned(), ack.id.clone())];
    let says = || format!("{end:?}, {ack:?}, terminal events: {ends:?}");
    let may_be_lost = |sent_us, at_us| match ack.task {
        SURE => evidence.may_be_emptied(sent_us),
        _ => evidence.may_be_lost_between(sent_us, at_us),
    };
    let ended_as = match end {
        // It ended before its server lost everything.
        End::Missing if ends.iter().any(|(at, _)| may_be_lost(*at, *at)) => return,
        End::Missing if may_be_lost(ack.sent_us, ack.at_us) => {
            report.at_risk += 1;
            return;
        }
        End::Missing | End::Other(_) => {
            report.lost += 1;
            report.breach("lost", &ack.id, says());
            return;
        }
        End::Completed(_) => JobState::Completed,
        End::Failed(_) => JobState::Failed,
    };
    if ended_as != ack.ends_as {
        report.breach("ended otherwise", &ack.id, says());
    }
    let hook = format!("hook:{}", ack.id);
    if ack.task == HOOKED && !known.effects.contains_key(&(HOOKED, hook.as_str())) {
        report.breach("ended without its hook", &ack.id, says());
    }
}

/// Whether the job ended once, by a run whose effect the store outside accepted.
fn is_recorded_once(evidence: &Evidence, known: &Known<'_>, ack: &Ack, report: &mut Report) {
    let job = (ack.task, ack.id.as_str());
    let ends = known.terminal.get(&job).map_or(&[][..], Vec::as_slice);
    let effects = known.effects.get(&job).map_or(&[][..], Vec::as_slice);
    let begins = known.begins.get(&job).map_or(&[][..], Vec::as_slice);
    let end = &evidence.ends[&(ack.task.to_owned(), ack.id.clone())];
    let says = || {
        let lines: Vec<_> = evidence.lines.iter().filter(|(_, line)| is_about(line, job)).collect();
        format!("{end:?}, {ack:?}, terminal events: {ends:?}, {lines:?}")
    };
    match ends {
        // Its first end may be lost with a primary, and then it runs again.
        [(first, _), (second, _), ..] if evidence.may_be_lost_by(*first, *second) => report.at_risk += 1,
        [_, _, ..] => {
            report.double_recorded += 1;
            report.breach("ended twice", &ack.id, says());
        }
        _ => {}
    }
    // A claim may be lost with a primary: then an earlier run ends the job.
    let is_newest = |by_us: u64| {
        let newest = begins.iter().filter(|at| **at <= by_us).max();
        newest.is_some_and(|at| !evidence.may_be_lost_by(*at, by_us))
    };
    // If the task has a hook, the event names the worker that ran the hook.
    let by_event = ack.task != HOOKED
        && ends
            .iter()
            .any(|(at, pid)| pid.is_some_and(|pid| effects.iter().all(|run| run.pid != pid)) && is_newest(*at));
    let by_value = match end {
        End::Completed(fence) => effects.iter().all(|run| run.fence != *fence) && is_newest(u64::MAX),
        _ => false,
    };
    if by_event || by_value {
        report.double_recorded += 1;
        report.breach("ended by a run without an accepted effect", &ack.id, says());
    }
}

/// Whether a line is about this job.
pub(super) fn is_about(line: &Line, (task, id): Job<'_>) -> bool {
    match line {
        Line::Began(run) | Line::Accepted(run) | Line::Again(run) | Line::Refused(run) | Line::Ended(run) => {
            run.task == task && run.id == id
        }
        Line::Stored(checkpoint) | Line::Seen(checkpoint) => checkpoint.id == id,
        _ => false,
    }
}

/// No second job has a key before the first one has ended.
fn unique(evidence: &Evidence, report: &mut Report) {
    let ended = evidence.events.iter().filter(|event| event.is_terminal());
    let ends: BTreeMap<&str, u64> = ended.map(|event| (event.id().as_str(), us_of(event.at()))).collect();
    let mut holders: BTreeMap<&str, &Ack> = BTreeMap::new();
    for ack in evidence.acknowledged.jobs.iter().filter(|ack| !ack.existed) {
        let Some(key) = &ack.unique else { continue };
        let Some(before) = holders.insert(key, ack) else { continue };
        let Some(ended) = ends.get(before.id.as_str()) else { continue };
        // Events have the time in ms.
        if ack.at_us + 1_000 < *ended && !evidence.may_be_lost_by(before.at_us, ack.at_us) {
            report.breach("two jobs had one key", &ack.id, format!("{before:?} ended at {ended}: {ack:?}"));
        }
    }
}

/// A run begins with the newest checkpoint that Redis had acknowledged before, unless a newer run has ended the job: then
/// it has none.
fn checkpoints(evidence: &Evidence, report: &mut Report) {
    let mut stored: BTreeMap<&str, Vec<(u64, &Checkpoint)>> = BTreeMap::new();
    let mut ended: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, line) in &evidence.lines {
        match line {
            Line::Stored(checkpoint) => stored.entry(&checkpoint.id).or_default().push((*at, checkpoint)),
            Line::Accepted(run) => {
                let fence = ended.entry(&run.id).or_default();
                *fence = run.fence.max(*fence);
            }
            Line::Seen(seen) if ended.get(seen.id.as_str()).is_none_or(|fence| *fence < seen.fence) => {
                report.checkpoints += usize::from(seen.step > 0);
                let earlier = stored.get(seen.id.as_str()).map_or(&[][..], Vec::as_slice);
                // The fence is the time of the claim.
                let is_kept = |stored_us: u64| stored_us < seen.fence && !evidence.may_be_lost_by(stored_us, *at);
                let newest = earlier.iter().filter(|(at, _)| is_kept(*at)).map(|(_, kept)| kept.step).max();
                if seen.step < newest.unwrap_or(0) {
                    let lines: Vec<_> =
                        evidence.lines.iter().filter(|(_, line)| is_about(line, (LONG, &seen.id))).collect();
                    let faults = evidence.faults_before(*at);
                    report.breach("an old checkpoint", &seen.id, format!("{seen:?} at {at}: {faults:?} {lines:?}"));
                }
            }
            _ => {}
        }
    }
}

fn workflows(evidence: &Evidence, report: &mut Report) {
    for (ack, end) in &evidence.flows {
        match end {
            FlowEnd::Completed(value) if *value == ack.value => {}
            FlowEnd::Missing if evidence.may_be_lost_between(ack.sent_us, ack.at_us) => report.at_risk += 1,
            FlowEnd::Missing => {
                report.lost += 1;
                report.breach("a workflow is lost", &ack.id, format!("{ack:?}"));
            }
            _ => report.breach("a workflow ended otherwise", &ack.id, format!("{end:?}: {ack:?}")),
        }
    }
}
