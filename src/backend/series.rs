//! The time series of a task: records its counters and durations (`lua/series_add.lua`), and reads its rows.

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::Result;
use crate::limits::stored_number;
use crate::log_buckets::{BUCKETS, BucketCounts};

/// A length of the rows: `m` for a minute, `h` for an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowKind {
    name: char,
    pub(crate) ms: u64,
    /// How many rows there are, after which they are used again.
    pub(crate) rows: u64,
}

pub(crate) const MINUTES: RowKind = RowKind { name: 'm', ms: 60_000, rows: 1440 };
pub(crate) const HOURS: RowKind = RowKind { name: 'h', ms: 3_600_000, rows: 720 };

/// The most fields that one call reads.
const FIELDS: usize = 480;

/// How long runs waited, and how long they took.
#[derive(Clone, Debug)]
pub(crate) struct Durations {
    pub(crate) waited: BucketCounts,
    pub(crate) ran: BucketCounts,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { waited: [0; BUCKETS], ran: [0; BUCKETS] }
    }
}

impl Durations {
    pub(crate) fn merge(&mut self, other: &Durations) {
        let counts = [(&mut self.waited, &other.waited), (&mut self.ran, &other.ran)];
        for (sums, counts) in counts {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
    }

    fn add(&mut self, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        for pair in words.chunks_exact(2) {
            let Some((kind, bucket)) = pair[0].split_at_checked(1) else { continue };
            let counts = match kind {
                "w" => &mut self.waited,
                "r" => &mut self.ran,
                _ => continue,
            };
            let bucket = bucket.parse().ok().and_then(|bucket: usize| counts.get_mut(bucket));
            if let Some((bucket, count)) = bucket.zip(stored_number(pair[1])) {
                *bucket = bucket.saturating_add(count);
            }
        }
    }
}

/// The last record within one minute or hour.
#[derive(Clone, Debug)]
pub(crate) struct SeriesRow {
    pub(crate) at_ms: u64,
    pub(crate) dispatched: u64,
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    /// Those of the whole minute or hour, if they were asked for.
    pub(crate) durations: Durations,
}

impl SeriesRow {
    fn from_wire(counters: &str) -> Option<SeriesRow> {
        let numbers: Vec<u64> = counters.split(' ').map_while(stored_number).collect();
        let [at_ms, dispatched, ended, failed] = numbers[..] else { return None };
        Some(SeriesRow { at_ms, dispatched, ended, failed, durations: Durations::default() })
    }
}

/// Records the counters of the task now, and how many runs waited and took how long: by bucket.
pub(crate) async fn add(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    waited: &[(usize, u64)],
    ran: &[(usize, u64)],
) -> Result<()> {
    let words = |kind, counts: &[(usize, u64)]| {
        counts.iter().map(move |(bucket, count)| format!("{kind}{bucket} {count}")).collect::<Vec<_>>()
    };
    let durations = [words('w', waited), words('r', ran)].concat().join(" ");
    scripts::SERIES_ADD.on(keys).arg(durations).answer(conn).await.map(drop)
}

/// Reads the rows of these minutes or hours since 1970. A row that was not recorded, or has been used again, is left out.
pub(crate) async fn read(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    kind: RowKind,
    numbers: &[u64],
    has_durations: bool,
) -> Result<Vec<SeriesRow>> {
    let (mut rows, fields_of_row) = (Vec::new(), 1 + usize::from(has_durations));
    for numbers in numbers.chunks(FIELDS / fields_of_row) {
        let mut call = redis::cmd("HMGET");
        call.arg(keys.get(Key::Series));
        for number in numbers {
            let row = format!("{}{}", kind.name, number % kind.rows);
            if has_durations {
                call.arg(format!("{row}d"));
            }
            call.arg(row);
        }
        let words: Vec<Option<Text>> = call.call(conn, "series").await?;
        for (number, words) in numbers.iter().zip(words.chunks(fields_of_row)) {
            let counters = words.last().and_then(Option::as_ref);
            let row = counters.and_then(|Text(counters)| SeriesRow::from_wire(counters));
            let Some(mut row) = row.filter(|row| row.at_ms / kind.ms == *number) else { continue };
            if let [Some(Text(durations)), _] = words {
                row.durations.add(durations);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_rows_are_left_out() {
        assert_eq!(SeriesRow::from_wire("9 1 2 3").map(|row| (row.at_ms, row.failed)), Some((9, 3)));
        for damaged in ["", "9", "9 1 2", "9 1 2 x", "9 1 2 3 4"] {
            assert!(SeriesRow::from_wire(damaged).is_none(), "{damaged}");
        }
        let mut durations = Durations::default();
        durations.add("r3 2 w64 1 x1 1 r3 1 é 1 w5 4 w");
        assert_eq!((durations.ran[3], durations.waited[5]), (3, 4));
        assert_eq!(durations.waited.iter().chain(&durations.ran).sum::<u64>(), 7);
    }
}
