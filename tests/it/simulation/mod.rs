//! Random runs of dispatch, claim, heartbeat, settle, cancel, sweep, trim and manual actions on a real server, next to
//! a plain model. Workers die, stop, freeze and lose their connection; the server loses the options of the task. Seeds
//! run with a hook, without one, and with one that only some workers have; silent jobs may be parked, as the newest
//! worker declares.
//!
//! After each call the server must hold exactly what the model holds. Nothing waits: time is a number, and the witness
//! rule is the worker's own. A failure prints its seed and its history. `HEARTLINE_SIMULATION=<seed>` runs that seed
//! alone, `HEARTLINE_SIMULATION=<first>..<last>` a range; `HEARTLINE_SIMULATION_CLUSTER=1` uses a cluster.

mod lanes;
mod ledger;
mod model;
#[cfg(feature = "schedules")]
mod schedules;
mod task;
mod unique;
mod world;

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use self::world::World;
use crate::support::is_thorough;

/// A delay that never passes, ms; tests decide when a job is due.
const FAR: u64 = 86_400_000;

const STEPS: usize = 250;
const SEEDS: Range<u64> = 0..24;
/// Most runs see all of these transitions; which worker sweeps first may differ. Only a thorough run insists on all.
const QUICK: [u64; 8] = [0, 2, 7, 8, 12, 17, 21, 22];

/// The transitions that all runs together must have seen.
const TRANSITIONS: &str = "dispatched; claimed; started; restarted; completed; failed; retrying; requeued; cancelled; \
     stalled recovered; stalled requeued; stalled retrying; stalled failed; stalled cancelled; outcome_rejected; \
     removed; promoted; paused; resumed; finalizing; hook_retrying; hook_failed; hook stalled; \
     hook stalled for good; hook requeued; hook of a paused task; ended without its hook; too late to cancel; \
     parked; parked again; a longer wait ended; heard from, and no longer parked; taken by a person's decision; \
     failed by a person's decision; not taken by an old mark; taken back; left to a person; \
     put back before its run; put back after a run; settled as plain; left to settle";

fn seeds() -> Vec<u64> {
    let Ok(wanted) = std::env::var("HEARTLINE_SIMULATION") else {
        return if is_thorough() { SEEDS.collect() } else { QUICK.to_vec() };
    };
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|error| panic!("HEARTLINE_SIMULATION: {error}"));
    match wanted.split_once("..") {
        Some((first, last)) => (number(first)..number(last)).collect(),
        None => vec![number(&wanted)],
    }
}

fn simulate(keep: bool) {
    let mut seen = BTreeSet::new();
    for seed in seeds() {
        let mut world = World::new(seed, keep);
        let run = catch_unwind(AssertUnwindSafe(|| {
            world.run(STEPS);
            world.heal();
        }));
        if let Err(panic) = run {
            let lines: Vec<&str> = world.log.lines().collect();
            eprintln!("seed {seed}, the last steps:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            resume_unwind(panic);
        }
        println!("seed {seed}, kept {keep}, saw {:?}", world.seen);
        seen.extend(world.seen);
    }
    let of_kept: &[&str] = if keep { &["trimmed", "manually_retried"] } else { &[] };
    for what in TRANSITIONS.split("; ").chain(of_kept.iter().copied()) {
        assert!(
            seen.contains(what) || !is_thorough() || std::env::var_os("HEARTLINE_SIMULATION").is_some(),
            "no run has {what}: it proves nothing about that"
        );
    }
}

#[test]
fn no_job_is_lost_and_none_is_taken_from_a_live_worker() {
    simulate(true);
}

#[test]
fn live_workers_keep_their_jobs_if_terminal_jobs_are_not_kept() {
    simulate(false);
}
