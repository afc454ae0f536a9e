//! The tick of a schedule that a job is for.

use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize};

use crate::unix_time::{at_ms, ms_since_1970, ms_since_1970_where_known};

/// The time of a schedule for which a job was created.
///
/// It is a nominal time: jitter, and the time until a worker noticed it, do not change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tick {
    /// The name of the schedule.
    pub schedule: String,
    /// The time of this tick.
    #[serde(rename = "due_ms", serialize_with = "ms_since_1970", deserialize_with = "time")]
    pub due: SystemTime,
    /// The time of the tick before, also if it was missed. `None` for the first tick of a schedule.
    #[serde(
        rename = "previous_ms",
        default,
        serialize_with = "ms_since_1970_where_known",
        deserialize_with = "time_where_known"
    )]
    pub previous: Option<SystemTime>,
}

impl Tick {
    /// A tick at these times, ms since 1970.
    #[cfg_attr(not(feature = "schedules"), allow(dead_code))]
    pub(crate) fn new(schedule: String, due_ms: u64, previous_ms: Option<u64>) -> Tick {
        Tick { schedule, due: at_ms(due_ms), previous: previous_ms.map(at_ms) }
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    u64::deserialize(deserializer).map(at_ms)
}

fn time_where_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
    Option::<u64>::deserialize(deserializer).map(|ms| ms.map(at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_of_a_tick_is_fixed() {
        let first = Tick::new("nightly".to_owned(), 86_400_000, None);
        let json = r#"{"schedule":"nightly","due_ms":86400000,"previous_ms":null}"#;
        assert_eq!(serde_json::to_string(&first).unwrap(), json);
        assert_eq!(serde_json::from_str::<Tick>(json).unwrap(), first);
        let next = Tick::new("nightly".to_owned(), 172_800_000, Some(86_400_000));
        let json = serde_json::to_string(&next).unwrap();
        assert!(json.ends_with(r#""previous_ms":86400000}"#), "{json}");
        assert_eq!(serde_json::from_str::<Tick>(&json).unwrap(), next);
    }
}
