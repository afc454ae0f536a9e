//! Searches all histories within the bounds, with all rules and without each of them. `docs/reliability.md` shows what
//! is found without a rule.

use std::collections::BTreeSet;

use heartline_model::{Bounds, Rules, Sweeps, trace};
use stateright::{Checker, HasDiscoveries, Model};

/// Two of: a fault, a call that arrives late, a failover.
const BOUNDS: Bounds = Bounds { all: 2, faults: 1, late_calls: 1, failovers: 1, lost_snapshots: 1 };

const PAGE: &str = include_str!("../../docs/reliability.md");

#[test]
fn every_promise_holds_in_every_history() {
    let faults = if std::env::var_os("HEARTLINE_THOROUGH").is_some() { 2 } else { 1 };
    let model = Sweeps { rules: Rules::ALL, bounds: Bounds { faults, ..BOUNDS }, jobs_are_alike: true };
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{} states, at most {} steps from the first", checker.unique_state_count(), checker.max_depth());
    if let Some((promise, path)) = checker.discoveries().into_iter().next() {
        panic!("{promise} does not hold:\n{}{:#?}", trace(&path), path.last_state());
    }
}

/// Finds the shortest history that breaks the promise, and compares it with the page.
#[track_caller]
fn breaks(promise: &'static str, rule: &str, rules: Rules, failovers: u8) {
    let model = Sweeps { rules, bounds: Bounds { all: 1, failovers, ..BOUNDS }, jobs_are_alike: false };
    let wanted = HasDiscoveries::AnyOf(BTreeSet::from([promise]));
    let checker = model.checker().finish_when(wanted).spawn_bfs().join();
    let path = checker.discovery(promise).unwrap_or_else(|| panic!("{promise} holds without {rule}"));
    let steps = trace(&path);
    println!("without {rule}, {promise} breaks:\n{steps}");
    assert!(PAGE.contains(&steps), "docs/reliability.md shows another history without {rule}");
}

#[test]
fn without_the_witness_a_live_worker_loses_its_job() {
    breaks("P3", "the witness", Rules { witness: false, ..Rules::ALL }, 1);
}

#[test]
fn without_epochs_a_live_worker_loses_its_job() {
    breaks("P3", "epochs", Rules { epochs: false, ..Rules::ALL }, 1);
}

#[test]
fn without_the_longest_interval_a_live_worker_loses_its_job() {
    breaks("P3", "the longest interval", Rules { intervals: false, ..Rules::ALL }, 1);
}

#[test]
fn without_fences_a_worker_records_a_job_that_it_lost() {
    breaks("P4", "fences", Rules { fences: false, ..Rules::ALL }, 0);
}
