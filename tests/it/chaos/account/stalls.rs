//! No job is taken from a worker that reaches Redis, and those of dead and frozen workers are decided in time.

use std::collections::BTreeMap;

use heartline::{Event, StalledEvent};

use super::Evidence;
use super::jobs::is_about;
use crate::chaos::outside::{Line, Reach, Run};
use crate::chaos::report::Report;
use crate::chaos::spans::{Hurt, Loses, Span, us_of};
use crate::support::task::INTERVAL;

const INTERVAL_US: u64 = INTERVAL.as_micros() as u64;

/// A worker that reached Redis for so long before the decision had sent three heartbeats.
const REACHED_US: u64 = INTERVAL_US * 4 / 3;

/// Two intervals and a heartbeat, and what the clocks of event and test may differ.
const BOUND_US: u64 = INTERVAL_US * 7 / 3 + 100_000;

/// The slowest round trip of a healthy worker.
const ROUND_TRIP_US: u64 = INTERVAL_US / 10;

/// What the processes measured.
struct Measured<'a> {
    /// The process of each worker.
    pids: BTreeMap<&'a str, u32>,
    reaches: BTreeMap<u32, Vec<Reach>>,
    breaks: Vec<(u64, u32)>,
}

impl<'a> Measured<'a> {
    fn of(evidence: &'a Evidence) -> Measured<'a> {
        let mut found = Measured { pids: evidence.pids(), reaches: BTreeMap::new(), breaks: Vec::new() };
        for (at, line) in &evidence.lines {
            match line {
                Line::Reach(reach) => found.reaches.entry(reach.pid).or_default().push(*reach),
                Line::Broke(broke) => found.breaks.push((*at, broke.pid)),
                _ => {}
            }
        }
        found
    }

    /// Whether the process reached Redis all this time, each time within this time.
    fn reached(&self, pid: u32, from_us: u64, to_us: u64, within_us: u64) -> bool {
        let mut since = None;
        for reach in self.reaches.get(&pid).into_iter().flatten() {
            let is_slow = reach.slowest_us > within_us;
            let continues = since.is_some_and(|(_, to)| to == reach.from_us) && !is_slow;
            let from = since.filter(|_| continues).map_or(reach.from_us, |(from, _)| from);
            since = (!is_slow).then_some((from, reach.to_us));
            if since.is_some_and(|(from, to)| from <= from_us && to >= to_us) {
                return true;
            }
        }
        false
    }
}

pub fn account(evidence: &Evidence, report: &mut Report) {
    let measured = Measured::of(evidence);
    let stalls: Vec<&StalledEvent> = evidence.events.iter().filter_map(stalled).collect();
    report.stalls += stalls.len();
    for stall in &stalls {
        let Some(worker) = &stall.worker else { continue };
        let pid = measured.pids[worker.as_str()];
        let at_us = us_of(stall.at);
        // A worker that was asked to stop leaves its jobs if it cannot report them soon.
        let stops = |span: &Span| span.hurt == Hurt::Worker(pid) && span.to_us == u64::MAX && span.from_us < at_us;
        let is_live = !evidence.spans.iter().any(stops);
        if !is_live || !measured.reached(pid, at_us - REACHED_US, at_us, u64::MAX) {
            continue;
        }
        if outcome_is_lost(evidence, stall, pid) {
            report.at_risk += 1;
        } else {
            report.false_stalls += 1;
            let faults = evidence.faults_before(at_us);
            let runs: Vec<_> =
                evidence.lines.iter().filter(|(_, line)| is_about(line, (&stall.task, stall.id.as_str()))).collect();
            let seen = format!("{stall:?} {faults:?} {runs:?}");
            report.breach("taken from a worker that reached Redis", stall.id.as_str(), seen);
        }
    }
    detections(evidence, &measured, &stalls, report);
}

/// Whether the run of this process had ended, and the server that recorded it may have lost that. Or whether it never
/// began, since the reply of its claim was lost with a server.
fn outcome_is_lost(evidence: &Evidence, stall: &StalledEvent, pid: u32) -> bool {
    let at_us = us_of(stall.at);
    let is_of = |run: &Run| run.pid == pid && run.task == stall.task && run.id == stall.id.as_str();
    // Fences are times: the stalled run is the last one that was claimed before.
    let claimed = evidence.begins().filter(|(_, run)| is_of(run) && run.fence < at_us).map(|(_, run)| run.fence).max();
    if claimed.is_none() {
        let fails = |span: &Span| span.loses != Loses::Nothing && span.overlaps(at_us - REACHED_US, at_us);
        return evidence.spans.iter().any(fails);
    }
    let mut ends = evidence.ends_of_runs().filter(|(_, run)| is_of(run) && Some(run.fence) == claimed);
    ends.any(|(ended_us, _)| ended_us < at_us && evidence.may_be_lost_by(ended_us, at_us))
}

fn stalled(event: &Event) -> Option<&StalledEvent> {
    match event {
        Event::Stalled(stalled) => Some(stalled),
        _ => None,
    }
}

/// Checks the bound of detection wherever a healthy worker watched all the time.
fn detections(evidence: &Evidence, measured: &Measured<'_>, stalls: &[&StalledEvent], report: &mut Report) {
    for span in evidence.spans.iter().filter(|span| span.what == "kill" || span.what == "freeze") {
        let Hurt::Worker(pid) = span.hurt else { continue };
        let (from_us, to_us) = (span.from_us, span.from_us + BOUND_US);
        let is_over = span.to_us > to_us;
        if !is_over || !is_watched(evidence, measured, pid, from_us, to_us) {
            continue;
        }
        let of_worker = |stall: &&StalledEvent| {
            let worker = stall.worker.as_ref().and_then(|worker| measured.pids.get(worker.as_str()));
            worker == Some(&pid)
        };
        let taken: Vec<&StalledEvent> = stalls.iter().copied().filter(of_worker).collect();
        for run in held(evidence, pid, from_us) {
            // Fences are times: the decision about this run is the first one after its claim.
            let is_of = |stall: &&&StalledEvent| {
                stall.task == run.task && stall.id.as_str() == run.id && us_of(stall.at) + 1_000 > run.fence
            };
            let at_us = taken.iter().find(is_of).map(|stall| us_of(stall.at));
            if at_us.is_some_and(|at_us| at_us + 1_000 < from_us) {
                continue;
            }
            let took_us = at_us.map(|at_us| at_us.saturating_sub(from_us));
            report.detections += 1;
            report.slowest_detection_ms = report.slowest_detection_ms.max(took_us.unwrap_or(0) / 1_000);
            if took_us.is_none_or(|took_us| took_us > BOUND_US) {
                report.breach("decided late", &run.id, format!("after {took_us:?} us: {span}, {run:?}"));
            }
        }
    }
}

/// Whether another worker was healthy and watched all this time, and no server failed.
fn is_watched(evidence: &Evidence, measured: &Measured<'_>, dead: u32, from_us: u64, to_us: u64) -> bool {
    let is_healthy = |pid: u32| {
        let is_hurt = |span: &Span| span.hurt == Hurt::Worker(pid) && span.overlaps(from_us - INTERVAL_US, to_us);
        let breaks =
            || measured.breaks.iter().any(|(at, own)| *own == pid && (from_us..=to_us + INTERVAL_US).contains(at));
        measured.reached(pid, from_us, to_us, ROUND_TRIP_US) && !breaks() && !evidence.spans.iter().any(is_hurt)
    };
    let workers = measured.pids.values().filter(|pid| **pid != dead);
    !evidence.servers_failed(from_us - INTERVAL_US, to_us) && workers.copied().any(is_healthy)
}

/// The runs that the process had begun and not ended at this time, without those that a server forgot.
fn held(evidence: &Evidence, pid: u32, at_us: u64) -> Vec<&Run> {
    let losses = evidence.spans.iter().filter(|span| span.loses != Loses::Nothing && span.from_us < at_us);
    let lost_us = losses.map(|span| span.to_us).max().unwrap_or(0);
    let begun = evidence.begins().filter(|(at, run)| run.pid == pid && *at < at_us && run.fence > lost_us);
    let mut held: BTreeMap<(&str, u64), &Run> = begun.map(|(_, run)| ((run.id.as_str(), run.fence), run)).collect();
    for (_, run) in evidence.ends_of_runs().filter(|(at, run)| run.pid == pid && *at < at_us + BOUND_US) {
        held.remove(&(run.id.as_str(), run.fence));
    }
    held.into_values().filter(|run| !run.id.starts_with("hook:")).collect()
}
