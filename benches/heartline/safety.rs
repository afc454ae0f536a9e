//! What the promises cost: the same jobs, worked by processes whose settle script leaves a part out.

use anyhow::Result;

use crate::Bench;
use crate::child::Spec;
use crate::cuts::Part;
use crate::report::{Row, Runs, progress};
use crate::work::{self, TASK};

/// A row: its name, whether events are off, and what is left out.
const VARIANTS: [(&str, bool, &[Part]); 5] = [
    ("safety_events_off", true, &[]),
    ("safety_without_replay", false, &[Part::Replay]),
    ("safety_without_fences", false, &[Part::Fences]),
    ("safety_without_checks", false, &[Part::Checks]),
    ("safety_without_all", true, &[Part::Replay, Part::Fences, Part::Checks]),
];

pub fn rows() -> Vec<&'static str> {
    VARIANTS.iter().map(|(name, ..)| *name).collect()
}

pub async fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    let (n, count) = (bench.size(200_000), bench.runs());
    let variants: Vec<_> = VARIANTS.iter().filter(|(name, ..)| bench.wants(name)).collect();
    let mut runs = vec![Runs::default(); variants.len()];
    for run in 1..=count {
        progress(&format!("what safety costs: {n} jobs, run {run} of {count}"));
        for ((_, events_off, without), runs) in variants.iter().zip(&mut runs) {
            // The whole beside each variant, since the machine's mood changes.
            let whole = Spec::new(TASK, 100);
            let worked = work::in_children(bench, 1, &whole, n).await?;
            runs.raw(n, worked.took, &worked.counted);
            let less = Spec { events_off: *events_off, without: without.to_vec(), ..whole };
            let worked = work::in_children(bench, 1, &less, n).await?;
            runs.own(n, worked.took, &worked.counted);
        }
    }
    let rows = variants.iter().zip(runs).map(|((name, ..), runs)| {
        runs.row(name).note("concurrency 100, a worker process; raw: the whole, in turn with it")
    });
    Ok(rows.collect())
}
