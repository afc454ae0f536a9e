//! Reads instances of a workflow: the place of one (`lua/flow_state.lua`), pages of them (`lua/flow_list.lua`), and how many there are.

use crate::backend::connection::Connection;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::reply::{PlainCall, Text};
use crate::backend::scripts;
use crate::error::Result;
use crate::job::instance::WorkflowState;
use crate::limits::{stored_number, stored_score};

/// The place of an instance. An unknown one, written by hand, counts as failed.
pub(super) fn place_of(word: &str) -> WorkflowState {
    word.parse().unwrap_or(WorkflowState::Failed)
}

#[derive(Debug)]
pub(crate) struct FlowState {
    pub(crate) place: WorkflowState,
    /// It is in no place; `place` is then `Failed`.
    pub(crate) is_unplaced: bool,
    pub(crate) run: u64,
    /// Nodes that have not ended.
    pub(crate) live: u64,
    pub(crate) open: u64,
    pub(crate) digest: String,
    /// The first node whose failure fails or pauses the instance, and this failure as JSON.
    pub(crate) broken_by: Option<(u32, String)>,
    /// Its output as JSON, or why it did not complete, or who paused it; else empty.
    pub(crate) answer: Vec<u8>,
    /// The size of its output if that is too large for this answer; `answer` is then empty.
    pub(crate) large_output: Option<usize>,
    /// How often it changed its place.
    pub(crate) turn: u64,
    /// No more nodes of it will open.
    pub(crate) is_stopping: bool,
}

/// Reads an instance; `None` if there is none.
pub(crate) async fn state(conn: &mut impl Connection, keys: &TaskKeys, instance: &str) -> Result<Option<FlowState>> {
    let mut reply = scripts::FLOW_STATE.on(keys).arg(instance).call(conn).await?;
    if reply.next::<String>()? != "state" {
        return Ok(None);
    }
    let place: String = reply.next()?;
    let (is_unplaced, place) = (place == "unknown", place_of(&place));
    let (run, live, open) = (reply.next()?, reply.next()?, reply.next()?);
    let (Text(digest), Text(bad), Text(said)) = (reply.next()?, reply.next()?, reply.next()?);
    let broken_by = bad.parse().ok().map(|node| (node, said));
    let (answer, large_output) = match reply.next()? {
        redis::Value::Int(bytes) => (Vec::new(), usize::try_from(bytes).ok()),
        answer => (redis::from_redis_value(answer).unwrap_or_default(), None),
    };
    let (turn, is_stopping) = (reply.next()?, reply.next::<u8>()? > 0);
    let state =
        FlowState { place, is_unplaced, run, live, open, digest, broken_by, answer, large_output, turn, is_stopping };
    Ok(Some(state))
}

#[derive(Debug)]
pub(crate) struct InstanceLine {
    pub(crate) id: String,
    /// Since when it is in its place, ms.
    pub(crate) since_ms: u64,
    pub(crate) run: u64,
    /// Nodes that have not ended, and those that are open.
    pub(crate) live: u64,
    pub(crate) open: u64,
    pub(crate) is_stopping: bool,
    /// A node of it has failed, so it will fail or is paused.
    pub(crate) is_broken: bool,
    /// The failure of that node as JSON, and why the instance ended; else empty.
    pub(crate) failure: String,
    pub(crate) end: String,
    /// When it began, or begins, ms.
    pub(crate) begins_ms: Option<u64>,
}

/// A page of the instances in this place, and the cursor of the next one.
pub(crate) async fn list(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    place: Key,
    (newest, cursor): (bool, &str),
    look: usize,
) -> Result<(Vec<InstanceLine>, Option<String>)> {
    let mut reply =
        scripts::FLOW_LIST.on_place(keys, place).arg(u8::from(newest)).arg(cursor).arg(look).answer(conn).await?;
    let Text(next) = reply.next()?;
    let words: Vec<Text> = reply.rest()?;
    let number = |word: &Text| word.0.parse().map_or(0, stored_score);
    let line = |words: &[Text]| InstanceLine {
        id: words[0].0.clone(),
        since_ms: number(&words[1]),
        run: number(&words[2]),
        live: number(&words[3]),
        open: number(&words[4]),
        is_stopping: words[5].0 == "1",
        is_broken: words[7].0 != "-",
        begins_ms: Some(number(&words[6])).filter(|ms| *ms > 0),
        failure: words[8].0.clone(),
        end: words[9].0.clone(),
    };
    Ok((words.chunks_exact(10).map(line).collect(), Some(next).filter(|next| !next.is_empty())))
}

/// Checks that scripts of a workflow can be called. While a slot is being moved, calls with a single key succeed, but a
/// script with several keys fails.
pub(crate) async fn can_be_called(conn: &mut impl Connection, keys: &TaskKeys) -> Result<()> {
    // The script uses only the first of these keys, but the server must find all of them.
    let others = scripts::FLOW_ADVANCE.keys().iter().filter(|key| !scripts::FLOW_LIST.keys().contains(key));
    let mut call = scripts::FLOW_LIST.with_keys(keys, scripts::FLOW_LIST.keys().iter().chain(others).copied());
    call.arg(1).arg("").arg(1).call(conn).await.map(drop)
}

#[derive(Debug, Default)]
pub(crate) struct FlowSizes {
    /// Includes those that run as nodes of others.
    pub(crate) running: u64,
    pub(crate) paused: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// Instances in no place: children that have ended, and lost ones.
    pub(crate) in_no_set: u64,
    /// How many of them are lost, at least.
    pub(crate) unplaced: u64,
    pub(crate) outbox: u64,
    /// When the newest failed one ended, ms.
    pub(crate) last_failed_ms: Option<u64>,
    /// Since when the oldest of them is due, ms.
    pub(crate) oldest_ms: Option<u64>,
    /// Since when entries have been delayed, and when that happened last, ms.
    pub(crate) put_off: Option<(u64, u64)>,
    /// The same for ended jobs that the workflow could not record.
    pub(crate) untold: Option<(u64, u64)>,
    /// How often its data could not be read, and when last, ms.
    pub(crate) corrupt: (u64, Option<u64>),
    pub(crate) tasks: Vec<String>,
}

/// Counts the instances and the outbox of a workflow.
pub(crate) async fn sizes(conn: &mut impl Connection, keys: &TaskKeys) -> Result<FlowSizes> {
    let mut pipe = redis::pipe();
    pipe.hlen(keys.get(Key::Instances));
    for key in [Key::Running, Key::Paused, Key::Completed, Key::Failed, Key::Cancelled, Key::Outbox, Key::Children] {
        pipe.zcard(keys.get(key));
    }
    pipe.zrange_withscores(keys.get(Key::Outbox), 0, 0)
        .zrange_withscores(keys.get(Key::Failed), -1, -1)
        .hmget(keys.get(Key::Meta), &["putOff", "untold", "corrupt", "corruptAt"]);
    pipe.zrange(keys.get(Key::FlowTasks), 0, -1);
    type Scored = Vec<(Text, f64)>;
    type Found = (u64, u64, u64, u64, u64, u64, u64, u64, Scored, Scored, [Option<Text>; 4], Vec<Text>);
    let found: Found = pipe.call(conn, "flow sizes").await?;
    let (lines, running, paused, completed, failed, cancelled, outbox, children, oldest, newest, times, tasks) = found;
    // Children that have ended are in no place.
    let in_no_set = lines.saturating_sub(running + paused + completed + failed + cancelled);
    let [put_off, untold, corrupt, corrupt_at] = times;
    let number = |text: Option<Text>| text.and_then(|Text(text)| stored_number(&text));
    Ok(FlowSizes {
        running,
        paused,
        completed,
        failed,
        cancelled,
        in_no_set,
        unplaced: in_no_set.saturating_sub(children),
        outbox,
        last_failed_ms: newest.first().map(|(_, score)| stored_score(*score)),
        oldest_ms: oldest.first().map(|(_, score)| stored_score(*score)),
        put_off: put_off.and_then(times_of),
        untold: untold.and_then(times_of),
        corrupt: (number(corrupt).unwrap_or(0), number(corrupt_at)),
        tasks: tasks.into_iter().map(|Text(task)| task).collect(),
    })
}

pub(crate) async fn is_there(conn: &mut impl Connection, keys: &TaskKeys) -> Result<bool> {
    let lines: u64 = redis::cmd("HLEN").arg(keys.get(Key::Instances)).call(conn, "flow sizes").await?;
    Ok(lines > 0)
}

/// Since when ended jobs could not be recorded, and when that was tried last, ms.
pub(crate) async fn untold(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<(u64, u64)>> {
    let text: Option<Text> = redis::cmd("HGET").arg(keys.get(Key::Meta)).arg("untold").call(conn, "untold").await?;
    Ok(text.and_then(times_of))
}

fn times_of(Text(text): Text) -> Option<(u64, u64)> {
    let (since, last) = text.split_once(' ')?;
    Some((stored_number(since)?, stored_number(last)?))
}
