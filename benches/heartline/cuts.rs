//! What can be cut out of the settle script, to see what it costs. A test of the costs makes each cut too.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

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

/// For each part, what of the text is replaced, and by what.
const CUTS: [(Part, &str, &str); 7] = [
    (
        Part::Replay,
        "local repeated = replay(calls, line, call, worker, locks, places, extra_columns, most)
if repeated then return repeated end
",
        "",
    ),
    (
        Part::Replay,
        "redis.call('HSET', calls, line, table.concat({ call, lost, taken, first, begin, given }, '\\n'))\n",
        "",
    ),
    (Part::Fences, "local tokens, prefix = redis.call('HMGET', locks, unpack(ids)), worker .. ':'\n", ""),
    (Part::Fences, "if tokens[index] == prefix .. fences[index] then", "if true then"),
    (Part::Checks, "local locked = redis.call('HMGET', locks, unpack(heads))\n", ""),
    (
        Part::Checks,
        "if seen[id] or locked[head] or elsewhere[head] or has_run or known[head] and not payloads[head] then",
        "if false then",
    ),
    (
        Part::Checks,
        "  local rare = redis.call('EXISTS', keys.candidates, keys.cancelling, keys.lists[1], keys.lists[3], keys.delayed,
    keys.completed, keys.failed, keys.cancelled, keys.attempt, keys.stalled_count, keys.options, keys.dispatched_at,
    keys.result, keys.errors, keys.max_count, keys.priority, keys.deferred, keys.waiting_since, keys.recovery,
    keys.expires_at, keys.checkpoint, keys.progress, keys.outcome, keys.ghosts)
",
        "  local rare = 0
",
    ),
];

/// The text of the settle script without the parts.
///
/// # Errors
/// When a pattern is not there exactly once: the script has changed, and the pattern has to.
pub fn cut(settle: &str, parts: &[Part]) -> Result<String> {
    let mut text = settle.to_owned();
    for (part, pattern, instead) in CUTS.iter().filter(|(part, ..)| parts.contains(part)) {
        let found = text.matches(pattern).count();
        ensure!(found == 1, "settle has {found} times, not once, what is cut for {part:?}:\n{pattern}");
        text = text.replace(pattern, instead);
    }
    Ok(text)
}
