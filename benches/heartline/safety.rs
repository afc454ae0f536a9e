//! What the promises cost: the same jobs, worked by processes whose settle script leaves a part out.

use anyhow::{Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::Bench;
use crate::child::Spec;
use crate::report::{Row, Runs, progress};
use crate::work::{self, TASK};

/// A part of the settle script that makes it safe, not right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// The record of each call, which answers a call that is repeated after a lost reply.
    Replay,
    /// The comparison of tokens, which refuses the outcome of a job that was taken.
    Fences,
    /// Types, terminal states, duplicates and requested cancels.
    Checks,
}

/// A row: its name, whether events are off, and what is left out.
const VARIANTS: [(&str, bool, &[Part]); 5] = [
    ("safety_events_off", true, &[]),
    ("safety_without_replay", false, &[Part::Replay]),
    ("safety_without_fences", false, &[Part::Fences]),
    ("safety_without_checks", false, &[Part::Checks]),
    ("safety_without_all", true, &[Part::Replay, Part::Fences, Part::Checks]),
];

/// For each part, what of the text is replaced, and by what.
const CUTS: [(Part, &str, &str); 8] = [
    (
        Part::Replay,
        "local repeated = replay(calls, line, call, worker, locks, payload, extra_columns)
if repeated then return repeated end
",
        "",
    ),
    (Part::Replay, "redis.call('HSET', calls, line, table.concat({ call, lost, ended, fence, started }, '\\n'))\n", ""),
    (Part::Fences, "local tokens, prefix = redis.call('HMGET', locks, unpack(ids)), worker .. ':'\n", ""),
    (Part::Fences, "if tokens[i] == prefix .. fences[i] then", "if true then"),
    (Part::Checks, "filled('ZCARD', KEYS[11], KEYS[12], KEYS[13])", "{}"),
    (Part::Checks, "local locked = redis.call('HMGET', locks, unpack(heads))\n", ""),
    (Part::Checks, "if not (seen[id] or locked[i] or terminal[i]) then", "if true then"),
    (
        Part::Checks,
        "if none_of(candidates, cancelling, KEYS[7], KEYS[9], delayed, unpack(KEYS, 17, 24)) then",
        "if true then",
    ),
];

pub fn rows() -> Vec<&'static str> {
    VARIANTS.iter().map(|(name, ..)| *name).collect()
}

/// Replaces the settle script of this process by one without the parts. A pattern that is not there exactly once means
/// that the script has changed, and the pattern has to.
pub fn leave_out(parts: &[Part]) -> Result<()> {
    if parts.is_empty() {
        return Ok(());
    }
    let settle = heartline::testing::scripts().into_iter().find(|script| script.name == "settle");
    let mut text = settle.ok_or_else(|| anyhow!("there is no script settle"))?.source.to_owned();
    for (part, pattern, instead) in CUTS.iter().filter(|(part, ..)| parts.contains(part)) {
        let found = text.matches(pattern).count();
        ensure!(found == 1, "settle has {found} times, not once, what is cut for {part:?}:\n{pattern}");
        text = text.replace(pattern, instead);
    }
    heartline::testing::replace_script("settle", text).map_err(|_| anyhow!("settle was in use already"))
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
