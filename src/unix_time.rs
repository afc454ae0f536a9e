//! Times as numbers, for JSON.

use std::time::{Duration, SystemTime};

use serde::{Serialize as _, Serializer};

/// For `serialize_with`: ms since 1970; 0 for a time before.
pub(crate) fn ms_since_1970<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(to_ms(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

/// For `serialize_with`: ms since 1970, or null.
pub(crate) fn ms_since_1970_where_known<S: Serializer>(
    at: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    at.map(|at| to_ms(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())).serialize(serializer)
}

/// The time this many ms after 1970.
pub(crate) fn at_ms(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Ms since 1970; 0 for a time before.
pub(crate) fn ms_of(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// For `serialize_with`: whole ms.
pub(crate) fn as_ms<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(to_ms(*time))
}

/// For `serialize_with`: whole ms, or null.
pub(crate) fn as_ms_where_known<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(to_ms).serialize(serializer)
}

/// For `serialize_with`: whole us.
pub(crate) fn as_us<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(to_us(*time))
}

/// For `serialize_with`: whole us, or null.
pub(crate) fn as_us_where_known<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(to_us).serialize(serializer)
}

/// A duration for people, in one or two units: `840ms`, `32.1s`, `3m 5s`, `2h 4m`, `3d 1h`.
pub(crate) fn span(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{:.1}s", time.as_secs_f64()),
        60..3600 => format!("{}m {}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h {}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d {}h", whole / 86_400, whole / 3600 % 24),
    }
}

fn to_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up so that a time above 0 stays above 0. Saturates.
pub(crate) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A duration as integer milliseconds.
pub(crate) mod ms {
    pub(crate) use crate::unix_time::as_ms as serialize;
    use serde::{Deserialize, Deserializer};
    use std::time::Duration;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The same for an optional duration.
pub(crate) mod opt_ms {
    pub(crate) use crate::unix_time::as_ms_where_known as serialize;
    use serde::{Deserialize, Deserializer};
    use std::time::Duration;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let value = Option::<u64>::deserialize(deserializer)?;
        Ok(value.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_up_and_saturate() {
        assert_eq!(to_ms(Duration::ZERO), 0);
        assert_eq!(to_ms(Duration::from_nanos(1)), 1);
        assert_eq!(to_ms(Duration::from_millis(5)), 5);
        assert_eq!(to_ms(Duration::MAX), u64::MAX);
    }
}
