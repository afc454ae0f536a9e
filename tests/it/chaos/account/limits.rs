//! No key, and no task, has more jobs at a time than its limit, and no task has more starts than its rate.

use std::collections::BTreeMap;

use super::Evidence;
use crate::chaos::outside::{Line, Run};
use crate::chaos::plan::Plan;
use crate::chaos::report::Report;
use crate::chaos::spans::{Hurt, Loses, RISK_US};
use crate::chaos::worker_process::{KEYED, STARTS, WINDOW};

/// How long a new limit may take until it applies.
const APPLIES_US: u64 = 5_000_000;

/// The same after a loss of data: the worker that declares the limit again may be frozen or die meanwhile.
const AFTER_LOSS_US: u64 = 10_000_000;

/// A run, and the time for which its job surely was held: until the run ended, its process met a fault, or its server
/// lost data.
struct Held<'a> {
    run: &'a Run,
    from_us: u64,
    to_us: u64,
}

pub fn account(evidence: &Evidence, report: &mut Report) {
    starts(evidence, report);
    let mut held: Vec<Held<'_>> = Vec::new();
    for one in runs(evidence) {
        // All of these are held at this moment. So they were all held when the last of them was claimed.
        held.retain(|other| other.to_us > one.from_us);
        let (key, id, now) = (one.run.key.clone(), one.run.id.clone(), one.from_us);
        held.push(one);
        let of_task: Vec<&Run> = held.iter().map(|held| held.run).collect();
        let of_key: Vec<&Run> = of_task.iter().copied().filter(|run| run.key == key).collect();
        let limit = |held: &[&Run], limit_of: fn(&Plan) -> u32| {
            limit_at(evidence, held.iter().map(|run| run.fence).max().unwrap_or(now), limit_of)
        };
        let of_a_key = ("over the limit of a key", limit(&of_key, |plan| plan.per_key), of_key);
        let of_the_task = ("over the limit of a task", limit(&of_task, |plan| plan.most), of_task);
        for (what, limit, held) in [of_a_key, of_the_task] {
            if held.len() as u32 > limit {
                report.over_limit += 1;
                report.breach(what, &id, format!("{} of {limit} at {now}: {held:?}", held.len()));
            }
        }
    }
}

/// No more jobs with keys start within the window of their rate than it says, wherever the window begins.
fn starts(evidence: &Evidence, report: &mut Report) {
    // The fence is the time of the start.
    let mut starts: Vec<u64> =
        evidence.begins().filter(|(_, run)| run.task == KEYED).map(|(_, run)| run.fence).collect();
    starts.sort_unstable();
    for window in starts.windows(STARTS as usize + 1) {
        let (first, last) = (window[0], window[STARTS as usize]);
        if last - first < WINDOW.as_micros() as u64 && !is_after_loss(evidence, first, last) {
            report.over_limit += 1;
            report.breach("over the rate of a task", KEYED, format!("{} starts from {first} to {last}", window.len()));
        }
    }
}

/// The runs with keys, by the begin of each.
fn runs(evidence: &Evidence) -> Vec<Held<'_>> {
    let ends: BTreeMap<(&str, u64), u64> =
        evidence.ends_of_runs().map(|(at, run)| ((run.id.as_str(), run.fence), at)).collect();
    let mut runs = Vec::new();
    for (from_us, run) in evidence.begins().filter(|(_, run)| run.task == KEYED) {
        let end = ends.get(&(run.id.as_str(), run.fence)).copied().unwrap_or(u64::MAX);
        // The fence is the time of the claim.
        let faults = evidence.spans.iter().filter(|span| {
            let is_hurt = span.hurt == Hurt::Worker(run.pid) || span.loses != Loses::Nothing;
            is_hurt && span.to_us >= run.fence
        });
        let from_fault = |loses: Loses, from_us: u64| if loses == Loses::Recent { from_us - RISK_US } else { from_us };
        let fault = faults.map(|span| from_fault(span.loses, span.from_us)).min().unwrap_or(u64::MAX);
        let to_us = end.min(fault);
        if to_us > from_us {
            runs.push(Held { run, from_us, to_us });
        }
    }
    runs.sort_by_key(|run| run.from_us);
    runs
}

/// The largest limit that may be in force at this time.
fn limit_at(evidence: &Evidence, at_us: u64, limit_of: fn(&Plan) -> u32) -> u32 {
    // After a loss of data, older processes may declare theirs first.
    if is_after_loss(evidence, at_us, at_us) {
        return u32::MAX;
    }
    let started = evidence.lines.iter().filter_map(|(started_us, line)| match line {
        Line::Started(started) if *started_us <= at_us => Some((*started_us, started.plan)),
        _ => None,
    });
    let plans: Vec<(u64, Plan)> = [(0, Plan::FIRST)].into_iter().chain(started).collect();
    let applies = plans.iter().rposition(|(started_us, _)| started_us + APPLIES_US < at_us).unwrap_or(0);
    plans[applies..].iter().map(|(_, plan)| limit_of(plan)).max().unwrap_or(u32::MAX)
}

/// Whether a server lost data within this time or shortly before.
fn is_after_loss(evidence: &Evidence, from_us: u64, to_us: u64) -> bool {
    let from_us = from_us.saturating_sub(AFTER_LOSS_US);
    evidence.spans.iter().any(|span| span.loses != Loses::Nothing && span.overlaps(from_us, to_us))
}
