//! Counts with their nouns, for messages.

/// A count with its noun: `1 job`, `2 jobs`.
#[must_use]
pub fn many(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
