//! Times as numbers, for those who read values of ours as JSON.

use std::time::{Duration, SystemTime};

use serde::{Serialize as _, Serializer};

use crate::options::to_ms;

/// For `serialize_with`: ms since 1970; 0 for a time before.
pub(crate) fn ms_since_1970<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(to_ms(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
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

fn to_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
