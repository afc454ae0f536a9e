//! Writes new jobs (`lua/dispatch.lua`, `lua/dispatch_unique.lua`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Connection;
use super::declare::WIRE_VERSION;
use super::keys::TaskKeys;
use super::scripts;
use crate::error::{Error, Result};
use crate::job::id::JobId;
use crate::options::modes::Priority;
use crate::options::overrides::Overrides;
use crate::options::unique::{NewUnique, Placed};
use crate::unix_time::to_ms;

/// How many of the keys of `dispatch` a plain job needs.
const PLAIN_KEYS: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub(crate) id: JobId,
    pub(crate) payload: Vec<u8>,
    pub(crate) priority: Option<Priority>,
    pub(crate) overrides: Overrides,
    /// How long after its dispatch the job fails if it has not begun.
    pub(crate) expires_after: Option<Duration>,
    /// When it was dispatched, ms since 1970, if its id does not contain the time.
    pub(crate) dispatched_at_ms: Option<u64>,
    /// Such a job has a call of its own.
    pub(crate) unique: Option<NewUnique>,
    /// In whose lane it waits. Empty for a job without a key, in a task whose jobs have keys.
    pub(crate) key: Option<String>,
}

impl AsRef<NewJob> for NewJob {
    fn as_ref(&self) -> &NewJob {
        self
    }
}

impl NewJob {
    /// Whether it has only an id and a payload.
    fn is_plain(&self) -> bool {
        let NewJob { id: _, payload: _, priority, overrides, expires_after, dispatched_at_ms, unique, key } = self;
        let has_times = expires_after.is_some() || dispatched_at_ms.is_some();
        priority.is_none() && overrides.is_empty() && !has_times && unique.is_none() && key.is_none()
    }
}

/// What a dispatch did with one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenJob {
    pub(crate) placed: Placed,
    /// The job that has the unique key, if the dispatch names one.
    pub(crate) holder: Option<JobId>,
    /// Whether it existed with another payload.
    pub(crate) differs: bool,
}

impl WrittenJob {
    /// A job without a unique key.
    pub(crate) fn plain(existed: bool) -> WrittenJob {
        WrittenJob { placed: if existed { Placed::Existed } else { Placed::New }, holder: None, differs: false }
    }

    pub(crate) fn existed(&self) -> bool {
        self.placed == Placed::Existed
    }
}

/// The answer to a dispatch.
#[derive(Debug)]
pub(crate) enum Dispatched {
    /// What it did with each job.
    Written(Vec<WrittenJob>),
    /// Nothing is written: the task has this number of partitions, which differs from the caller's.
    Partitions(u32),
    /// Nothing is written: each job needs a key, to which this JSON pointer leads in its input.
    Pointer(String),
}

/// Writes jobs of one partition, or one job with a unique key. Set `all_keys` if the task has a default priority: then
/// plain jobs also need all keys.
pub(crate) async fn dispatch(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    jobs: &[impl AsRef<NewJob>],
    all_keys: &AtomicBool,
) -> Result<Dispatched> {
    if let [job] = jobs
        && let Some(unique) = &job.as_ref().unique
    {
        return dispatch_unique(conn, keys, job.as_ref(), unique).await;
    }
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
    if word == "key" {
        return Ok(Dispatched::Pointer(reply.text()?));
    }
    if word != "dispatched" {
        return Err(reply.unexpected(&word));
    }
    let mut written = vec![WrittenJob::plain(false); jobs.len()];
    for index in reply.rest::<i64>()? {
        let at = usize::try_from(index.unsigned_abs()).ok().and_then(|number| number.checked_sub(1));
        if let Some(slot) = at.and_then(|at| written.get_mut(at)) {
            *slot = WrittenJob { differs: index < 0, ..WrittenJob::plain(true) };
        }
    }
    Ok(Dispatched::Written(written))
}

/// Writes a job with a unique key, unless a job that counts has it.
async fn dispatch_unique(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    job: &NewJob,
    NewUnique { key, mode, time, call: own }: &NewUnique,
) -> Result<Dispatched> {
    let mut call = scripts::DISPATCH_UNIQUE.on(keys);
    call.arg(WIRE_VERSION).arg(keys.parts()).arg(own.as_str()).arg(job.id.as_str()).arg(job.payload.as_slice());
    call.arg(key).arg(*mode).arg(to_ms(*time));
    for (column, value) in columns_of(job)? {
        call.arg(column).arg(1).arg(value);
    }
    let mut reply = call.call(conn).await?;
    let word: String = reply.next()?;
    match word.as_str() {
        "placed" => {
            let placed = reply.next::<String>()?.parse()?;
            let holder = Some(JobId::from_wire(reply.next::<String>()?));
            Ok(Dispatched::Written(vec![WrittenJob { placed, holder, differs: false }]))
        }
        "partitions" => Ok(Dispatched::Partitions(reply.next()?)),
        "key" => Ok(Dispatched::Pointer(reply.text()?)),
        other => Err(reply.unexpected(other)),
    }
}

/// The keys that every job needs come first; plain jobs need only those.
fn dispatch_call(keys: &TaskKeys, jobs: &[impl AsRef<NewJob>], plain: bool) -> Result<scripts::Invocation> {
    let mut call = if plain { scripts::DISPATCH.on_first(keys, PLAIN_KEYS) } else { scripts::DISPATCH.on(keys) };
    let mut triples = Vec::new();
    for (index, job) in jobs.iter().map(AsRef::as_ref).enumerate() {
        triples.extend(columns_of(job)?.into_iter().map(|(column, value)| (column, index + 1, value)));
    }
    let count = if triples.is_empty() { String::new() } else { jobs.len().to_string() };
    call.arg(WIRE_VERSION).arg(keys.parts()).arg(count);
    for job in jobs.iter().map(AsRef::as_ref) {
        call.arg(job.id.as_str()).arg(job.payload.as_slice());
    }
    for (column, index, value) in triples {
        call.arg(column).arg(index).arg(value);
    }
    Ok(call)
}

/// What differs from the defaults, by column.
fn columns_of(job: &NewJob) -> Result<Vec<(&'static str, String)>> {
    let mut columns = Vec::new();
    if let Some(delay) = job.overrides.delay {
        columns.push(("delay", to_ms(delay).to_string()));
    }
    if let Some(priority) = job.priority {
        columns.push(("priority", priority.as_str().to_owned()));
    }
    if let Some(time) = job.expires_after {
        columns.push(("expires", to_ms(time).to_string()));
    }
    if let Some(max_count) = job.overrides.max_count {
        columns.push(("maxCount", max_count.to_string()));
    }
    if !job.overrides.is_empty() {
        let json = serde_json::to_string(&job.overrides)
            .map_err(|source| Error::Codec { what: "the job's overrides".to_owned(), source })?;
        columns.push(("options", json));
    }
    if let Some(key) = &job.key {
        columns.push(("laneOf", key.clone()));
    }
    if let Some(at) = job.dispatched_at_ms {
        columns.push(("dispatchedAt", at.to_string()));
    }
    Ok(columns)
}
