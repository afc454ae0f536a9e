//! `lua/states.lua`: tells where jobs are.

use super::connection::Connection;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::Error;
use crate::job::state::JobState;

/// Where jobs are.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Whether the workers of the task write its events; `None` when no worker has told.
    pub(crate) events: Option<bool>,
    /// Of each job its state and the size of its result in bytes; `None` of one that is not there.
    pub(crate) jobs: Vec<Option<(JobState, usize)>>,
}

/// Tells where the jobs are, at most `LOOK_BATCH` of them. No value is read.
pub(crate) async fn states(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    ids: &[crate::job::id::JobId],
) -> Result<Looked, Error> {
    let mut call = scripts::STATES.on(keys);
    for id in ids {
        call.arg(id.as_str());
    }
    let mut reply = call.call(conn).await?;
    let _: String = reply.next()?;
    let mode: String = reply.next()?;
    let (states, bytes): (Vec<String>, Vec<usize>) = (reply.next()?, reply.next()?);
    let jobs = states.iter().zip(bytes).map(|(state, bytes)| match state.as_str() {
        "unknown" => Ok(None),
        state => Ok(Some((state.parse()?, bytes))),
    });
    let jobs = jobs.collect::<Result<_, Error>>()?;
    Ok(Looked { events: (!mode.is_empty()).then(|| mode != "off"), jobs })
}
