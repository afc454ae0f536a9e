//! Writes new jobs (`lua/dispatch.lua`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Connection;
use super::declare::WIRE_VERSION;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::{Error, Result};
use crate::options::modes::Priority;
use crate::options::overrides::Overrides;
use crate::unix_time::to_ms;

/// How many of the keys of `dispatch` a plain job needs.
const PLAIN_KEYS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) id: crate::job::id::JobId,
    pub(crate) payload: Vec<u8>,
    pub(crate) priority: Option<Priority>,
    pub(crate) overrides: Overrides,
    /// How long after its dispatch the job fails if it has not begun.
    pub(crate) expires_after: Option<Duration>,
    /// When it was dispatched, ms since 1970, if its id does not contain the time.
    pub(crate) dispatched_at_ms: Option<u64>,
}

impl AsRef<NewJob> for NewJob {
    fn as_ref(&self) -> &NewJob {
        self
    }
}

impl NewJob {
    /// Whether it has only an id and a payload.
    fn is_plain(&self) -> bool {
        let NewJob { id: _, payload: _, priority, overrides, expires_after, dispatched_at_ms } = self;
        priority.is_none() && overrides.is_empty() && expires_after.is_none() && dispatched_at_ms.is_none()
    }
}

/// The answer to a dispatch.
#[derive(Debug)]
pub(crate) enum Dispatched {
    /// The jobs are written: for each, whether it existed before.
    Existed(Vec<bool>),
    /// Nothing is written: the task has this number of partitions, which differs from the caller's.
    Partitions(u32),
}

/// Writes jobs of one partition. Set `all_keys` if the task has a default priority: then plain jobs also need all keys.
pub(crate) async fn dispatch(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[impl AsRef<NewJob>],
    all_keys: &AtomicBool,
) -> Result<Dispatched> {
    let plain = !all_keys.load(Ordering::Relaxed) && jobs.iter().all(|job| job.as_ref().is_plain());
    let mut reply = dispatch_call(keys, jobs, plain)?.call(conn).await?;
    let mut word: String = reply.next()?;
    if word == "more" {
        all_keys.store(true, Ordering::Relaxed);
        reply = dispatch_call(keys, jobs, false)?.call(conn).await?;
        word = reply.next()?;
    }
    if word == "partitions" {
        return Ok(Dispatched::Partitions(reply.next()?));
    }
    if word != "dispatched" {
        return Err(reply.unexpected(&word));
    }
    let mut existed = vec![false; jobs.len()];
    for index in reply.rest::<usize>()? {
        if let Some(slot) = index.checked_sub(1).and_then(|i| existed.get_mut(i)) {
            *slot = true;
        }
    }
    Ok(Dispatched::Existed(existed))
}

/// The keys that every job needs come first; plain jobs need only those.
fn dispatch_call(keys: &TaskKeys, jobs: &[impl AsRef<NewJob>], plain: bool) -> Result<scripts::Invocation> {
    let mut call = if plain { scripts::DISPATCH.on_first(keys, PLAIN_KEYS) } else { scripts::DISPATCH.on(keys) };
    call.arg(WIRE_VERSION).arg(keys.parts()).arg(jobs.len());
    for job in jobs.iter().map(AsRef::as_ref) {
        call.arg(job.id.as_str()).arg(job.payload.as_slice());
    }
    for (index, job) in jobs.iter().map(AsRef::as_ref).enumerate() {
        let mut extra = |column: &str, value: String| {
            call.arg(column).arg(index + 1).arg(value);
        };
        if let Some(delay) = job.overrides.delay {
            extra("delay", to_ms(delay).to_string());
        }
        if let Some(priority) = job.priority {
            extra("priority", priority.as_str().to_owned());
        }
        if let Some(time) = job.expires_after {
            extra("expires", to_ms(time).to_string());
        }
        if let Some(max_count) = job.overrides.max_count {
            extra("maxCount", max_count.to_string());
        }
        if !job.overrides.is_empty() {
            let json = serde_json::to_string(&job.overrides)
                .map_err(|source| Error::Codec { what: "the job's overrides".to_owned(), source })?;
            extra("options", json);
        }
        if let Some(at) = job.dispatched_at_ms {
            extra("dispatchedAt", at.to_string());
        }
    }
    Ok(call)
}
