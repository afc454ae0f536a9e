//! The lanes of a task: reads them (`lua/lanes.lua`, `lua/lane_read.lua`), changes the settings of a key (`lua/lane_put.lua`),
//! and removes what jobs that are gone have left (`lua/trim_lanes.lua`).

use super::connection::Connection;
use super::keys::TaskKeys;
use super::reply::Text;
use super::scripts;
use crate::error::Result;
use crate::options::rate::Limits;

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
    /// Its score in `turns`; empty if it is not there.
    pub(crate) turn: String,
    pub(crate) waiting: u64,
    pub(crate) held: u64,
    /// Its settings, as `lua/lib/own_settings.lua` has them; empty for none.
    pub(crate) own: String,
}

/// Some lanes of a table, and how many of its keys are ready, resting and full.
#[derive(Debug)]
pub(crate) struct LanePage {
    pub(crate) counts: [u64; 3],
    /// The option `perKey`; empty for none.
    pub(crate) per_key: String,
    pub(crate) lanes: Vec<StoredLane>,
}

/// Reads up to `count` lanes in this state, or with `own` those of the keys that have settings.
pub(crate) async fn list(conn: &mut impl Connection, keys: &TaskKeys, state: &str, count: usize) -> Result<LanePage> {
    let mut reply = scripts::LANES.on(keys).arg(state).arg(count).answer(conn).await?;
    let counts = [reply.next()?, reply.next()?, reply.next()?];
    let Text(per_key) = reply.next()?;
    let words = reply.texts()?;
    let lane = |words: &[String]| {
        let [key, turn, waiting, held, own] = words else { return None };
        Some(StoredLane {
            key: key.clone(),
            turn: turn.clone(),
            waiting: waiting.parse().ok()?,
            held: held.parse().ok()?,
            own: own.clone(),
        })
    };
    Ok(LanePage { counts, per_key, lanes: words.chunks_exact(5).filter_map(lane).collect() })
}

/// The lane of one key, and who holds its jobs.
#[derive(Debug)]
pub(crate) struct StoredLaneDetail {
    pub(crate) lane: StoredLane,
    /// The option `perKey`; empty for none.
    pub(crate) per_key: String,
    /// How many keys are next before it.
    pub(crate) ahead: u64,
    /// Ids of held jobs, each with its token.
    pub(crate) holders: Vec<(String, String)>,
}

/// Reads the lane of a key with up to `most` of its held jobs.
pub(crate) async fn read(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    key: &str,
    most: usize,
) -> Result<StoredLaneDetail> {
    let mut reply = scripts::LANE_READ.on(keys).arg(key).arg(most).answer(conn).await?;
    let (Text(turn), waiting, held, Text(own), Text(per_key)) =
        (reply.next()?, reply.next()?, reply.next()?, reply.next()?, reply.next()?);
    let ahead = reply.next()?;
    let holders = reply.texts()?.chunks_exact(2).map(|words| (words[0].clone(), words[1].clone())).collect();
    Ok(StoredLaneDetail { lane: StoredLane { key: key.to_owned(), turn, waiting, held, own }, per_key, ahead, holders })
}

/// A change of the settings of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LaneChange {
    Limits(Limits),
    Weight(u32),
    Pause,
    Resume,
    /// The key has no settings any more.
    Reset,
}

/// Changes the settings of a key. Returns whether it was paused before.
pub(crate) async fn put(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    key: &str,
    change: LaneChange,
    by: &str,
) -> Result<bool> {
    let (what, value) = match change {
        LaneChange::Limits(limits) => ("limits", limits.words()),
        LaneChange::Weight(weight) => ("weight", weight.to_string()),
        LaneChange::Pause => ("pause", String::new()),
        LaneChange::Resume => ("resume", String::new()),
        LaneChange::Reset => ("reset", String::new()),
    };
    let mut reply = scripts::LANE_PUT.on(keys).arg(key).arg(what).arg(value).arg(by).answer(conn).await?;
    Ok(reply.next::<u64>()? == 1)
}
