//! Writes the jobs of a task to Redis, each to its partition.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::dispatch_buffer::{DispatchBuffer, IN_FLIGHT, bytes_of};
use crate::backend::dispatch::NewJob;
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::repeated::repeated;
use crate::backend::tables::{Tables, part_of};
use crate::config_error::{ConfigError, ConfigErrors};
use crate::error::Error;
use crate::job::id::{JobId, MARK};
use crate::limits::{BATCH, BATCH_BYTES, LARGE};
use crate::mutex::Mutex;
use crate::options::key::key_of;
use crate::options::modes::{Copies, Durability};
use crate::options::unique::Placed;

/// Up to this many partitions, each has its own calls in flight, since the partitions may be on different nodes.
const NODES: usize = 4;

/// Sends the jobs of one task to Redis.
///
/// A lone dispatch is sent by its caller's own future. That call carries no other job, since the future may never be polled again.
/// Dispatches that come meanwhile are gathered, and a tokio task on the runtime of the App sends them together. No job waits for more
/// jobs to come.
pub(crate) struct Dispatcher {
    tables: Arc<Tables>,
    /// How many partitions the task should have, if the options say so.
    wanted: Option<u32>,
    /// Whether that number was checked.
    agreed: AtomicBool,
    /// The buffer of a task with one partition, for jobs that do not wait for replicas.
    buffer: Arc<DispatchBuffer>,
    /// The other buffers, by partition, number of partitions, number of replicas and time to wait for them.
    others: Mutex<BTreeMap<BufferKey, Arc<DispatchBuffer>>>,
}

type BufferKey = (u32, u32, Option<Copies>);

/// How often jobs are dispatched again because the number of partitions, or where the jobs have keys, turned out to be different.
const LAYOUTS: usize = 4;

/// What the dispatch of a job depends on: the number of partitions, and the pointer to the keys.
type Layout = (u32, Option<Arc<str>>);

impl Dispatcher {
    pub(crate) fn new(store: Arc<Store>, tables: Arc<Tables>, wanted: Option<u32>) -> Dispatcher {
        let buffer = Arc::new(DispatchBuffer::new(store, Arc::clone(&tables), tables.first(), None));
        Dispatcher { tables, wanted, agreed: AtomicBool::new(false), buffer, others: Mutex::default() }
    }

    /// The buffer of a job, with the known partitions of the task.
    fn buffer(&self, id: &JobId, durability: Durability) -> Arc<DispatchBuffer> {
        if durability.copies().is_none() && self.tables.parts() == 1 && self.buffer.keys.parts() == 1 {
            return Arc::clone(&self.buffer);
        }
        self.buffer_to(self.tables.of(id.as_str()), durability)
    }

    /// The buffer to a table.
    fn buffer_to(&self, keys: Arc<TaskKeys>, durability: Durability) -> Arc<DispatchBuffer> {
        let copies = durability.copies();
        let mut buffers = self.others.lock();
        let buffer = buffers.entry((keys.parts(), keys.part(), copies)).or_insert_with(|| {
            let (store, tables) = (Arc::clone(&self.buffer.store), Arc::clone(&self.tables));
            Arc::new(DispatchBuffer::new(store, tables, keys, copies))
        });
        Arc::clone(buffer)
    }

    /// Checks, once, that the task has as many partitions as its options say. Sets that number if the task is new.
    pub(super) async fn agree(&self) -> Result<(), Error> {
        let Some(wanted) = self.wanted.filter(|_| !self.agreed.load(Ordering::Acquire)) else { return Ok(()) };
        let store = &self.buffer.store;
        let agree = || async {
            store.ready().await?;
            self.tables.claim(store, wanted).await
        };
        repeated(self.buffer.deadline(0), agree).await?;
        self.agreed.store(true, Ordering::Release);
        Ok(())
    }

    /// Handles a changed number of partitions: if the options ask for one, checks it again.
    async fn agree_again(&self) -> Result<(), Error> {
        self.agreed.store(false, Ordering::Release);
        self.agree().await
    }

    fn layout(&self) -> Layout {
        (self.tables.parts(), self.tables.pointer())
    }

    /// Prepares a job for this layout: gives it its key, and an id in the partition of its key.
    fn fit(&self, job: &mut Arc<NewJob>, (parts, pointer): &Layout) -> Result<(), Error> {
        if let Some(pointer) = pointer.as_deref().filter(|_| job.key.is_none()) {
            // A node may come from a process with another codec: without a readable input it has no key.
            let input = self.buffer.store.codecs.decode(&job.payload).unwrap_or_default();
            let key = key_of(&input, pointer);
            let is_node = job.id.as_str().starts_with(MARK);
            Arc::make_mut(job).key = Some(match key {
                // Its id decides about its partition.
                Ok(_) if is_node && *parts > 1 => String::new(),
                // It waits with the jobs without keys.
                Err(_) if is_node => String::new(),
                key => key?,
            });
        }
        if *parts > 1 && (job.unique.is_some() || job.key.is_some()) {
            move_to_its_key(Arc::make_mut(job), *parts as usize)?;
        }
        Ok(())
    }

    /// Writes a job. Returns the job that the dispatch leads to, and what the dispatch did.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may be written or not, but nothing is sent from then on. Jobs of other callers are not affected.
    pub(crate) async fn dispatch(&self, job: NewJob, durability: Durability) -> Result<(JobId, Placed), Error> {
        self.agree().await?;
        let (mut job, mut layouts) = (Arc::new(job), 1..LAYOUTS);
        let written = loop {
            let layout = self.layout();
            self.fit(&mut job, &layout)?;
            match self.buffer(&job.id, durability).dispatch(Arc::clone(&job)).await {
                Err(_) if layout != self.layout() && layouts.next().is_some() => self.agree_again().await?,
                answer => break answer?,
            }
        };
        Ok((written.holder.unwrap_or_else(|| job.id.clone()), written.placed))
    }

    /// Writes jobs in calls of bounded size, two of which are under way at a time. Returns the id of each job, and whether it existed
    /// before.
    ///
    /// # Errors
    /// `Partial` with the jobs that are known to be written.
    pub(crate) async fn dispatch_many(
        &self,
        jobs: Vec<NewJob>,
        durability: Durability,
    ) -> Result<Vec<(JobId, bool)>, Error> {
        self.agree().await?;
        let mut jobs: Vec<Arc<NewJob>> = jobs.into_iter().map(Arc::new).collect();
        let mut layouts = 1..LAYOUTS;
        loop {
            let (layout, tables) = (self.layout(), self.tables.all());
            jobs.iter_mut().try_for_each(|job| self.fit(job, &layout))?;
            match self.write_many(&tables, &jobs, durability).await {
                // Some jobs may be written already; repeating them is safe, since they keep their ids.
                Err(_) if layout != self.layout() && layouts.next().is_some() => self.agree_again().await?,
                existed => {
                    // A job with a key may have got another id, in the partition of its key.
                    let ids = jobs.iter().map(|job| job.id.clone());
                    return existed.map(|existed| ids.zip(existed).collect());
                }
            }
        }
    }

    /// Writes jobs, each to its table.
    async fn write_many(
        &self,
        tables: &[Arc<TaskKeys>],
        jobs: &[Arc<NewJob>],
        durability: Durability,
    ) -> Result<Vec<bool>, Error> {
        let nodes = if durability.copies().is_some() { 1 } else { tables.len().min(NODES) };
        let mut calls = calls(tables.len(), jobs).into_iter();
        // Once replicas have not confirmed a call in time, the other calls do not wait for replicas.
        let is_alone = AtomicBool::new(false);
        let write = |(part, places): (usize, Vec<usize>)| {
            let durability = if is_alone.load(Ordering::Relaxed) { Durability::Memory } else { durability };
            let buffer = self.buffer_to(Arc::clone(&tables[part]), durability);
            let written = async move {
                let chunk: Vec<Arc<NewJob>> = places.iter().map(|at| Arc::clone(&jobs[*at])).collect();
                let answer = match &chunk[..] {
                    [job] if job.payload.len() > LARGE => buffer.write_large(Arc::clone(job)).await,
                    chunk => repeated(buffer.deadline(bytes_of(chunk)), || buffer.write(chunk)).await,
                };
                (places, answer)
            };
            written.boxed()
        };
        let mut under_way: FuturesOrdered<_> = calls.by_ref().take(IN_FLIGHT * nodes).map(write).collect();
        let (mut existed, mut dispatched, mut failure) = (vec![false; jobs.len()], Vec::new(), None);
        let mut alone = None;
        // After a failure, make no further call. Await calls under way, since they may write jobs.
        while let Some((places, answer)) = under_way.next().await {
            match answer {
                Ok(chunk) => {
                    places.iter().zip(chunk).for_each(|(at, written)| existed[*at] = written.existed());
                    dispatched.extend(places);
                }
                // The jobs of this call are written. Continue with the others.
                Err(e @ Error::NotReplicated { .. }) => {
                    dispatched.extend(places);
                    is_alone.store(true, Ordering::Relaxed);
                    alone.get_or_insert(e);
                }
                Err(e) => {
                    failure.get_or_insert(e);
                }
            }
            if failure.is_none() {
                under_way.extend(calls.next().map(write));
            }
        }
        match failure.or(alone) {
            None => Ok(existed),
            Some(source) => {
                dispatched.sort_unstable();
                let dispatched = dispatched.into_iter().map(|at: usize| jobs[at].id.clone()).collect();
                Err(Error::Partial { dispatched, source: Box::new(source) })
            }
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // The caller of a dispatch keeps its dispatcher alive. So the callers of the jobs that are left have given up.
        let others = self.others.get_mut();
        for buffer in others.values().chain([&self.buffer]) {
            buffer.dropped.cancel();
        }
    }
}

/// Gives a job with a key, or a unique key, an id in the partition of that key.
fn move_to_its_key(job: &mut NewJob, parts: usize) -> Result<(), Error> {
    let refused =
        |field, value: &str, rule, fix| Error::Config(ConfigErrors::from(ConfigError::new(field, value, rule, fix)));
    let key = match (&job.unique, job.key.as_deref().filter(|key| !key.is_empty())) {
        (Some(unique), Some(key)) if part_of(&unique.key, parts) != part_of(key, parts) => {
            let rule = format!("must not be set: the task has {parts} partitions, and the jobs have keys, too");
            return Err(refused("unique", &unique.key, rule, "use one partition, or the same key for both"));
        }
        (Some(unique), _) => unique.key.clone(),
        (None, Some(key)) => key.to_owned(),
        (None, None) => return Ok(()),
    };
    let has_own_id = job.unique.as_ref().map_or(job.dispatched_at_ms.is_some(), |unique| unique.call != job.id);
    if has_own_id {
        let rule = format!("must be left to the dispatch: the task has {parts} partitions, and the job a key");
        return Err(refused("id", job.id.as_str(), rule, "leave the id or the key out"));
    }
    let part = part_of(&key, parts);
    while part_of(job.id.as_str(), parts) != part {
        job.id = JobId::generate();
    }
    if let Some(unique) = &mut job.unique {
        unique.call = job.id.clone();
    }
    Ok(())
}

/// Groups the jobs into calls, each for one partition, with the positions of its jobs. The partitions take turns.
fn calls(parts: usize, jobs: &[Arc<NewJob>]) -> Vec<(usize, Vec<usize>)> {
    let mut of_part = vec![Vec::new(); parts];
    for (at, job) in jobs.iter().enumerate() {
        of_part[part_of(job.id.as_str(), parts)].push(at);
    }
    let mut calls = Vec::new();
    for (part, places) in of_part.into_iter().enumerate() {
        let its: Vec<&NewJob> = places.iter().map(|at| &*jobs[*at]).collect();
        let its = chunks(&its).into_iter().enumerate();
        calls.extend(its.map(|(turn, range)| (turn, part, places[range].to_vec())));
    }
    calls.sort_by_key(|(turn, ..)| *turn);
    calls.into_iter().map(|(_, part, places)| (part, places)).collect()
}

fn chunks(jobs: &[impl AsRef<NewJob>]) -> Vec<Range<usize>> {
    let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, job) in jobs.iter().map(AsRef::as_ref).enumerate() {
        if at > start && (at - start == BATCH || bytes + job.payload.len() > BATCH_BYTES) {
            chunks.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += job.payload.len();
    }
    if start < jobs.len() {
        chunks.push(start..jobs.len());
    }
    chunks
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::backend::classify::classify;
    use crate::backend::repeated::CallDeadline;
    use crate::options::overrides::Overrides;
    use crate::options::unique::Unique;

    fn job(bytes: usize) -> NewJob {
        NewJob {
            id: JobId::generate(),
            payload: vec![b'1'; bytes],
            priority: None,
            overrides: Overrides::default(),
            expires_after: None,
            dispatched_at_ms: None,
            unique: None,
            key: None,
        }
    }

    #[test]
    fn a_unique_job_is_in_the_partition_of_its_key() {
        let id = JobId::generate();
        let unique = Unique::by("order-7").to_send("order-7".to_owned(), id.clone());
        let mut job = NewJob { id: id.clone(), unique: Some(unique), ..job(1) };
        move_to_its_key(&mut job, 7).unwrap();
        assert_eq!(part_of(job.id.as_str(), 7), part_of("order-7", 7));
        assert_eq!(job.unique.as_ref().map(|unique| &unique.call), Some(&job.id));
        job.id = JobId::from_wire("chosen");
        assert!(move_to_its_key(&mut job, 7).is_err());
    }

    #[test]
    fn a_job_is_in_the_partition_of_its_key() {
        let mut keyed = NewJob { key: Some("acme".to_owned()), ..job(1) };
        move_to_its_key(&mut keyed, 7).unwrap();
        assert_eq!(part_of(keyed.id.as_str(), 7), part_of("acme", 7));
        keyed.dispatched_at_ms = Some(1);
        assert!(move_to_its_key(&mut keyed, 7).is_err(), "its id was chosen");
        let unkeyed = &mut NewJob { key: Some(String::new()), ..keyed };
        assert!(move_to_its_key(unkeyed, 7).is_ok());
    }

    #[test]
    fn chunks_are_bounded_in_jobs_and_bytes_and_cover_all_in_order() {
        let jobs: Vec<NewJob> = (0..2 * BATCH + 1).map(|_| job(1)).collect();
        assert_eq!(chunks(&jobs), [0..BATCH, BATCH..2 * BATCH, 2 * BATCH..2 * BATCH + 1]);
        let half = BATCH_BYTES / 2;
        let sizes = [half, half, 1, BATCH_BYTES + 1, 1];
        assert_eq!(chunks(&sizes.map(job)), [0..2, 2..3, 3..4, 4..5]);
        assert!(chunks(&[] as &[NewJob]).is_empty());
    }

    #[tokio::test]
    async fn only_a_lost_connection_causes_a_repeat() {
        let mut calls = 0;
        let deadline = CallDeadline::new(Duration::from_secs(10), Instant::now(), 0);
        let answer = repeated(deadline, || {
            calls += 1;
            let away = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            let answer = if calls < 3 { Err(classify("dispatch", away.into())) } else { Err(Error::Closed) };
            std::future::ready::<Result<(), Error>>(answer)
        });
        assert!(matches!(answer.await, Err(Error::Closed)));
        assert_eq!(calls, 3);
    }
}
