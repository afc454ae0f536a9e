//! How far a reader has read each stream.

use std::sync::{Arc, Weak};

use tokio::time::Duration;

use super::decode::{Decoded, total_of};
use super::source::Followed;
use super::stream_event::{self, StreamEvent};
use crate::backend::keys::TaskKeys;
use crate::backend::streams::Entry;
use crate::codec::Codecs;
use crate::escape::Escaped;

/// How far the stream of a task, or of one of its partitions, was read.
#[derive(Clone)]
pub(super) struct Position {
    pub(super) name: Arc<str>,
    pub(super) keys: Arc<TaskKeys>,
    pub(super) task: Weak<Followed>,
    pub(super) last_id: String,
    /// The stream's count of events up to there; unknown before the first entry.
    pub(super) total: Option<u64>,
    /// Whether the entry before the first one to read was looked up.
    pub(super) asked: bool,
    pub(super) has_read: bool,
}

impl Position {
    /// Whether this is the position in the stream of this table.
    pub(super) fn is_of(&self, task: &Followed, keys: &TaskKeys) -> bool {
        self.name == task.name && (self.keys.part(), self.keys.parts()) == (keys.part(), keys.parts())
    }
}

/// Whether an entry's id, `<ms>-<number>`, is lower than another.
pub(super) fn is_before(id: &str, other: &str) -> bool {
    let parts = |id: &str| {
        let (ms, number) = id.split_once('-').unwrap_or((id, "0"));
        (ms.parse::<u64>().unwrap_or(0), number.parse::<u64>().unwrap_or(0))
    };
    parts(id) < parts(other)
}

/// Where to begin so that no event of the last `ago` is missed. The margin covers the rounding of the clock and the
/// drift between ours and the server's.
pub(super) fn start_ms(server_ms: u64, ago: Duration) -> u64 {
    let margin = Duration::from_millis(5) + ago / 1000;
    server_ms.saturating_sub(u64::try_from((ago + margin).as_millis()).unwrap_or(u64::MAX))
}

/// Moves the position past the entry. Returns how many events before it or in it were missed, and the events in it.
pub(super) fn read_entry(position: &mut Position, entry: Entry, codecs: &Codecs) -> (u64, Vec<StreamEvent>) {
    let task = &*position.name;
    let (decoded, damaged) = match stream_event::read(task, &entry, codecs) {
        Ok(decoded) => (decoded, false),
        Err(field) => {
            tracing::warn!(task, entry = entry.id, field = %Escaped(&field), "an event entry is damaged and was skipped");
            (Decoded::default(), true)
        }
    };
    let total = total_of(&entry);
    let missed = match (position.total, total) {
        // Unknown fields of a later version may be events, which do not count as missed.
        (Some(before), Some(total)) if !decoded.unknown_fields => {
            total.saturating_sub(before).saturating_sub(decoded.events.len() as u64)
        }
        // Earlier entries are gone, and it is unknown how many of their events came after the start.
        (None, Some(total)) if position.asked && !decoded.unknown_fields => {
            u64::from(total > decoded.events.len() as u64)
        }
        _ => u64::from(damaged),
    };
    position.total = total.or(position.total);
    position.has_read = true;
    position.last_id = entry.id;
    (missed, decoded.events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> Position {
        let keys = Arc::new(TaskKeys::new("test", "t", false));
        Position {
            name: "t".into(),
            keys,
            task: Weak::new(),
            last_id: "0-0".into(),
            total: None,
            asked: false,
            has_read: false,
        }
    }

    fn entry(id: &str, fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Entry { id: id.into(), fields }
    }

    #[test]
    fn trimmed_events_are_counted() {
        let mut position = position();
        let mut read = |id: &str, fields: &[(&str, &str)]| {
            let (missed, events) = read_entry(&mut position, entry(id, fields), &Codecs::default());
            (missed, events.len())
        };
        assert_eq!(read("1-0", &[("total", "50"), ("dispatched", "a b")]), (0, 2), "no baseline yet");
        assert_eq!(read("2-0", &[("total", "51"), ("dispatched", "c")]), (0, 1));
        assert_eq!(read("9-0", &[("total", "60"), ("dispatched", "d e")]), (7, 2));
        assert_eq!(read("10-0", &[("total", "64"), ("retrying", "d e")]), (4, 0), "a damaged entry");
        assert_eq!(read("11-0", &[("total", "70"), ("archived", "d e")]), (0, 0), "a later version");
        assert_eq!(read("12-0", &[("total", "1"), ("dispatched", "f")]), (0, 1), "the stream started over");
        assert_eq!(position.last_id, "12-0");
    }

    #[test]
    fn the_start_is_slightly_before_the_call() {
        assert_eq!(start_ms(100_000, Duration::ZERO), 99_995);
        assert_eq!(start_ms(100_000, Duration::from_secs(10)), 89_985);
        assert_eq!(start_ms(3, Duration::MAX / 4), 0);
    }
}
