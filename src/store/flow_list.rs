//! `lua/flow_list.lua`: pages of the instances of a workflow; and how many there are of each kind, by plain commands.

use super::connection::Connection;
use super::engine::Store;
use super::fault::classify;
use super::keys::{self, Key, TaskKeys};
use super::reply::Text;
use super::scripts;
use crate::error::Error;
use crate::limits::{stored_number, stored_score};

/// The most workflows of one answer.
const MOST: isize = 1000;

/// An instance of a page.
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
    /// A node of it has failed, for which it fails, or is paused.
    pub(crate) is_broken: bool,
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
) -> Result<(Vec<InstanceLine>, Option<String>), Error> {
    let mut call = scripts::FLOW_LIST.on_place(keys, place);
    call.arg(u8::from(newest)).arg(cursor).arg(look);
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
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
    };
    Ok((words.chunks_exact(8).map(line).collect(), Some(next).filter(|next| !next.is_empty())))
}

/// Whether scripts of a workflow can be called: where some of its keys are on their way to another node, each alone is found, and none can.
pub(crate) async fn can_be_called(conn: &mut impl Connection, keys: &TaskKeys) -> Result<(), Error> {
    // It reads the first of these keys; the others are named for the server.
    let others = scripts::FLOW_ADVANCE.keys().iter().filter(|key| !scripts::FLOW_LIST.keys().contains(key));
    let mut call = scripts::FLOW_LIST.with_keys(keys, scripts::FLOW_LIST.keys().iter().chain(others).copied());
    call.arg(1).arg("").arg(1);
    call.call(conn).await.map(drop)
}

/// How much there is of a workflow.
#[derive(Debug, Default)]
pub(crate) struct FlowSizes {
    /// With those that run as nodes of others.
    pub(crate) running: u64,
    pub(crate) paused: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// Those in no place: children that have ended, and what the server lost; and how many are lost at the least.
    pub(crate) unplaced: u64,
    pub(crate) nowhere: u64,
    /// What is to be done.
    pub(crate) outbox: u64,
    /// Since when the oldest of it is, ms.
    pub(crate) oldest_ms: Option<u64>,
    /// Since when some of it was put off again and again, and when last, ms.
    pub(crate) put_off: Option<(u64, u64)>,
    /// The same of jobs of which the workflow could not be told.
    pub(crate) untold: Option<(u64, u64)>,
    /// How often something of it could not be read, and when last, ms.
    pub(crate) corrupt: (u64, Option<u64>),
    pub(crate) tasks: Vec<String>,
}

/// Counts what there is of a workflow.
pub(crate) async fn sizes(conn: &mut impl Connection, keys: &TaskKeys) -> Result<FlowSizes, Error> {
    let mut pipe = redis::pipe();
    pipe.hlen(keys.get(Key::Head));
    for key in [Key::Running, Key::Paused, Key::Completed, Key::Failed, Key::Cancelled, Key::Outbox, Key::Children] {
        pipe.zcard(keys.get(key));
    }
    pipe.zrange_withscores(keys.get(Key::Outbox), 0, 0)
        .hmget(keys.get(Key::Meta), &["putOff", "untold", "corrupt", "corruptAt"]);
    pipe.zrange(keys.get(Key::FlowTasks), 0, -1);
    type Found = (u64, u64, u64, u64, u64, u64, u64, u64, Vec<(Text, f64)>, [Option<Text>; 4], Vec<Text>);
    let found: Found = pipe.query_async(conn).await.map_err(|e| classify("flow sizes", e))?;
    let (lines, running, paused, completed, failed, cancelled, outbox, children, oldest, times, tasks) = found;
    // Children that have ended stand in no place.
    let unplaced = lines.saturating_sub(running + paused + completed + failed + cancelled);
    let nowhere = unplaced.saturating_sub(children);
    let oldest_ms = oldest.first().map(|(_, score)| stored_score(*score));
    let tasks = tasks.into_iter().map(|Text(task)| task).collect();
    let [put_off, untold, corrupt, corrupt_at] = times;
    let number = |text: Option<Text>| text.and_then(|Text(text)| stored_number(&text));
    let corrupt = (number(corrupt).unwrap_or(0), number(corrupt_at));
    let (put_off, untold) = (put_off.and_then(times_of), untold.and_then(times_of));
    Ok(FlowSizes {
        running,
        paused,
        completed,
        failed,
        cancelled,
        unplaced,
        nowhere,
        outbox,
        oldest_ms,
        put_off,
        untold,
        corrupt,
        tasks,
    })
}

/// Whether there is anything of a workflow.
pub(crate) async fn is_there(conn: &mut impl Connection, keys: &TaskKeys) -> Result<bool, Error> {
    let mut cmd = redis::cmd("HLEN");
    let lines: u64 = cmd.arg(keys.get(Key::Head)).query_async(conn).await.map_err(|e| classify("flow sizes", e))?;
    Ok(lines > 0)
}

/// Since when the workflow could not be told of jobs, and when that was tried last, ms.
pub(crate) async fn untold(conn: &mut impl Connection, keys: &TaskKeys) -> Result<Option<(u64, u64)>, Error> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(keys.get(Key::Meta)).arg("untold");
    let text: Option<Text> = cmd.query_async(conn).await.map_err(|e| classify("untold", e))?;
    Ok(text.and_then(times_of))
}

fn times_of(Text(text): Text) -> Option<(u64, u64)> {
    let (since, last) = text.split_once(' ')?;
    Some((stored_number(since)?, stored_number(last)?))
}

/// Since when what is to be done with these nodes is to be done, ms; `None` of those with which nothing is.
pub(crate) async fn in_outbox(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    entries: &[String],
) -> Result<Vec<Option<u64>>, Error> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let mut cmd = redis::cmd("ZMSCORE");
    cmd.arg(keys.get(Key::Outbox));
    for entry in entries {
        cmd.arg(entry);
    }
    let found: Vec<Option<f64>> = cmd.query_async(conn).await.map_err(|e| classify("outbox", e))?;
    Ok(found.into_iter().map(|score| score.map(stored_score)).collect())
}

impl Store {
    /// The workflows that are looked after, at most 1,000, and when somebody did last, ms.
    pub(crate) async fn workflows(&self, conn: &mut impl Connection) -> Result<Vec<(String, u64)>, Error> {
        let mut cmd = redis::cmd("ZRANGE");
        cmd.arg(keys::flows(&self.prefix)).arg(0).arg(MOST - 1).arg("WITHSCORES");
        let found: Vec<(Text, f64)> = cmd.query_async(conn).await.map_err(|e| classify("flows", e))?;
        let mut found: Vec<(String, u64)> =
            found.into_iter().map(|(Text(name), ms)| (name, stored_score(ms))).collect();
        found.sort();
        Ok(found)
    }
}
