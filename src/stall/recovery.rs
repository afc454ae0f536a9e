//! How a job was recovered, as its next run sees it.

use std::time::SystemTime;

use serde::Serialize;

use super::action::StallReason;
use crate::limits::stored_number;
use crate::unix_time::{at_ms, ms_since_1970};
use crate::worker_id::WorkerId;

/// Why a job was given another run: the worker that held it was silent or dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recovery {
    /// How this was detected.
    pub reason: StallReason,
    /// The worker that held the job.
    pub worker: Option<WorkerId>,
    /// How often the job has stalled.
    pub stalled_count: u32,
    /// How often in a row it was requeued before it had begun; 0 for other reasons.
    pub requeued_count: u32,
    /// When it was recovered, to the millisecond, by the clock of the Redis server.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
}

impl Recovery {
    /// Reads the column; `None` if it is empty or malformed.
    pub(crate) fn from_wire(text: &str, stalled_count: u32) -> Option<Recovery> {
        let words: Vec<&str> = text.split(' ').collect();
        let [reason, worker, at_ms_text, ref times @ ..] = words[..] else { return None };
        let reason: StallReason = reason.parse().ok()?;
        let requeued_count = match (reason, times) {
            (StallReason::Requeued, [times]) => times.parse().ok()?,
            (StallReason::Requeued, _) | (_, [_, ..]) => return None,
            (_, []) => 0,
        };
        Some(Recovery {
            reason,
            requeued_count,
            worker: (worker != "-").then(|| WorkerId::from_wire(worker)),
            stalled_count,
            at: at_ms(stored_number(at_ms_text)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_is_read_and_unknown_text_is_none() {
        let recovery = Recovery::from_wire("handler_silent w-1-00000001 5", 3).unwrap();
        assert_eq!((recovery.reason, recovery.stalled_count), (StallReason::HandlerSilent, 3));
        assert_eq!((recovery.worker.unwrap().as_str(), recovery.at), ("w-1-00000001", at_ms(5)));
        assert_eq!(Recovery::from_wire("silent - 5", 1).unwrap().worker, None);
        let requeued = Recovery::from_wire("requeued w 5 3", 1).unwrap();
        assert_eq!((requeued.reason, requeued.requeued_count, requeued.stalled_count), (StallReason::Requeued, 3, 1));
        for other in ["", "silent w", "silent w soon", "later w 5", "silent w 5 6", "requeued w 5", "requeued w 5 6 7"]
        {
            assert_eq!(Recovery::from_wire(other, 1), None, "{other}");
        }
    }
}
