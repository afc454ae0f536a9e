//! The lanes of a task: lists them (`lua/lanes.lua`), and removes what jobs that are gone have left (`lua/trim_lanes.lua`).

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Result;

/// The scores of `turns`, as `lua/lib/lanes.lua` has them: plus until when a key rests, or since when it is full, ms.
pub(crate) const RESTING: u64 = 4_000_000_000_000_000;
pub(crate) const FULL: u64 = 6_000_000_000_000_000;

/// What is trimmed.
pub(crate) const PLACES: [&str; 4] = ["laneOf", "laneStarts", "laneHeld", "lanes"];

/// Trims about `count` entries of a place. The cursor is empty at the beginning and at the end. Returns the next cursor.
pub(crate) async fn trim(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: &str,
    cursor: &str,
    count: usize,
) -> Result<String> {
    let mut reply = scripts::TRIM_LANES.on(keys).arg(place).arg(cursor).arg(count).answer(conn).await?;
    let Text(next) = reply.next()?;
    Ok(next)
}

/// The lane of a key, as it is stored.
#[derive(Debug)]
pub(crate) struct StoredLane {
    pub(crate) key: String,
    /// Its score in `turns`.
    pub(crate) turn: String,
    pub(crate) waiting: u64,
    pub(crate) held: u64,
}

/// Some lanes of a table, and how many of its keys are ready, resting and full.
#[derive(Debug)]
pub(crate) struct LanePage {
    pub(crate) counts: [u64; 3],
    pub(crate) lanes: Vec<StoredLane>,
}

/// Reads up to `count` lanes in this state.
pub(crate) async fn list(conn: &mut impl Connection, keys: &TaskKeys, state: &str, count: usize) -> Result<LanePage> {
    let mut reply = scripts::LANES.on(keys).arg(state).arg(count).answer(conn).await?;
    let counts = [reply.next()?, reply.next()?, reply.next()?];
    let words = reply.texts()?;
    let lane = |words: &[String]| {
        let [key, turn, waiting, held] = words else { return None };
        Some(StoredLane {
            key: key.clone(),
            turn: turn.clone(),
            waiting: waiting.parse().ok()?,
            held: held.parse().ok()?,
        })
    };
    Ok(LanePage { counts, lanes: words.chunks_exact(4).filter_map(lane).collect() })
}
