//! The keys of a task whose jobs wait.

use std::time::SystemTime;

use serde::Serialize;

use super::Inspector;
use super::limits::LimitReached;
use super::parts::config;
use crate::backend::lanes;
use crate::enum_str::names;
use crate::error::Error;
use crate::unix_time::{at_ms, ms_since_1970};

/// The most lanes that one call returns.
const MOST: usize = 1_000;

/// Whether a key may start jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LaneState {
    /// It waits for its turn.
    Ready,
    /// It rests until a time: its rate is used up, or a handler was rate limited.
    Resting,
    /// As many of its jobs run as its limit allows.
    Full,
}

names!(LaneState, "state of a lane", { Ready = "ready", Resting = "resting", Full = "full" });

/// The lane of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lane {
    /// The key. `None` for the jobs without one.
    pub key: Option<String>,
    /// Whether the key may start jobs. It is what the last claim found.
    pub state: LaneState,
    /// Since when it is full, or until when it rests.
    pub limit: Option<LimitReached>,
    /// How many of its jobs wait. Jobs that were handed back count from the next claim on.
    pub waiting: u64,
    /// How many of its jobs workers hold. 0 if keys have no limits.
    pub held: u64,
}

/// The lanes of a task. See [`Inspector::lanes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneReport {
    /// When it was read, by the server's clock.
    #[serde(rename = "as_of_ms", serialize_with = "ms_since_1970")]
    pub as_of: SystemTime,
    /// How many keys wait for their turn.
    pub ready: u64,
    /// How many keys rest.
    pub resting: u64,
    /// How many keys are full.
    pub full: u64,
    /// Full ones first, then resting ones, then those that are next.
    pub lanes: Vec<Lane>,
}

impl Inspector {
    /// The keys of a task whose jobs wait, up to `limit` of them (1 to 1,000): all, or those in one state.
    ///
    /// Each partition is read at a different moment. A key without waiting jobs is not listed, except for a moment.
    ///
    /// # Errors
    /// [`Error::Config`] if the limit is not 1 to 1,000.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lanes(&self, task: &str, state: Option<LaneState>, limit: usize) -> Result<LaneReport, Error> {
        if !(1..=MOST).contains(&limit) {
            return Err(config("limit", &limit.to_string(), &format!("must be 1 to {MOST}"), "ask for fewer"));
        }
        let now_ms = self.now_ms().await?;
        let mut report = LaneReport { as_of: at_ms(now_ms), ready: 0, resting: 0, full: 0, lanes: Vec::new() };
        let tables = self.tables(task).await?;
        for asked in [LaneState::Full, LaneState::Resting, LaneState::Ready] {
            let is_wanted = state.is_none_or(|state| state == asked);
            // Each call counts all states, so the first one is made anyway.
            let counts = asked == LaneState::Full;
            for keys in tables.iter().filter(|_| is_wanted || counts) {
                let left = if is_wanted { limit - report.lanes.len() } else { 0 };
                let found = self.look(async |conn| lanes::list(conn, keys, asked.as_str(), left).await).await?;
                if counts {
                    let [ready, resting, full] = found.counts;
                    report.ready += ready;
                    report.resting += resting;
                    report.full += full;
                }
                report.lanes.extend(found.lanes.into_iter().map(|lane| Lane {
                    key: Some(lane.key).filter(|key| !key.is_empty()),
                    state: asked,
                    limit: LimitReached::of_key(&lane.turn, now_ms),
                    waiting: lane.waiting,
                    held: lane.held,
                }));
            }
        }
        Ok(report)
    }
}
