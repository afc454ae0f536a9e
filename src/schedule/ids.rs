//! The names of schedules, and the ids of their jobs.

use crate::config_error::{ConfigError, shown};
use crate::crc16::crc16;
use crate::job::id::JobId;

/// The longest name of a schedule.
const LONGEST_NAME: usize = 64;

/// Among this many numbers at the end of an id, each partition has some.
const MOST_NUMBERS: u32 = 100_000;

/// Checks the name of a schedule: `[A-Za-z0-9._-]{1,64}`.
pub(crate) fn check_name(name: &str) -> Result<(), ConfigError> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let rule = "must be 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'";
    Err(ConfigError::new("schedule", shown(name), rule, "use a name like \"nightly\""))
}

/// The id of the job of a tick, in this partition of that many.
pub(crate) fn tick_id(name: &str, due_ms: u64, part: (u32, u32)) -> JobId {
    in_part(format!("{name}@{due_ms}"), part)
}

/// The id of a job that a person created for a tick. `n` tells apart those of one tick.
pub(crate) fn by_hand_id(name: &str, due_ms: u64, n: u64, part: (u32, u32)) -> JobId {
    in_part(format!("{name}@{due_ms}~{n}"), part)
}

/// The id itself, or with the smallest number at its end that leads to the partition.
fn in_part(id: String, (part, parts): (u32, u32)) -> JobId {
    if parts <= 1 {
        return JobId::from_wire(id);
    }
    let leads_there = |id: &String| u32::from(crc16(id.as_bytes())) % parts == part;
    let mut numbered = (0..MOST_NUMBERS).map(|k| format!("{id}.{k}"));
    JobId::from_wire(numbered.find(leads_there).unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_have_no_signs_of_ids() {
        for name in ["nightly", "a", "A-1_b.c", "x".repeat(64).as_str()] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "a@1", "a~1", "a:b", "{a}", "ä", "x".repeat(65).as_str()] {
            let fault = check_name(name).unwrap_err();
            assert_eq!((fault.field.as_str(), fault.value), ("schedule", shown(name)));
        }
    }

    #[test]
    fn an_id_leads_to_the_partition_of_its_schedule() {
        assert_eq!(tick_id("nightly", 7_000, (0, 1)).as_str(), "nightly@7000");
        assert_eq!(by_hand_id("nightly", 7_000, 9, (0, 1)).as_str(), "nightly@7000~9");
        for parts in [2, 3, 7, 64] {
            for part in 0..parts {
                let ids = [tick_id("nightly", 7_000, (part, parts)), by_hand_id("nightly", 7_000, 9, (part, parts))];
                for (id, start) in ids.iter().zip(["nightly@7000.", "nightly@7000~9."]) {
                    assert_eq!(u32::from(crc16(id.as_str().as_bytes())) % parts, part, "{id}");
                    assert!(id.as_str().starts_with(start), "{id}");
                }
            }
        }
    }

    #[test]
    fn the_number_of_an_id_is_the_smallest_that_fits() {
        // Stored ids depend on it: it must never change.
        let ids = [0, 1, 2].map(|part| tick_id("nightly", 1_790_000_000_000, (part, 3)));
        let ids = ids.map(String::from);
        assert_eq!(ids, ["nightly@1790000000000.1", "nightly@1790000000000.3", "nightly@1790000000000.0"]);
    }

    #[test]
    fn the_longest_id_is_an_id_that_a_caller_may_choose() {
        let id = by_hand_id(&"x".repeat(64), u64::MAX, u64::MAX, (63, 64));
        assert!(JobId::chosen(id.as_str()).is_ok(), "{id}");
    }
}
