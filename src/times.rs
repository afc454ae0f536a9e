//! Times as numbers, for those who read values of ours as JSON.

use std::time::{Duration, SystemTime};

use serde::Serializer;

use crate::options::to_ms;

/// For `serialize_with`: ms since 1970; 0 for a time before.
pub(crate) fn ms_since_1970<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(to_ms(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

/// For `serialize_with`: whole ms.
pub(crate) fn as_ms<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(to_ms(*time))
}
