//! Writes an instance: in one call, or in parts if the graph is large.

use std::time::Duration;

use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::replicated::{Copied, ask_copied};
use crate::backend::timeouts::response_time;
use crate::backend::workflow::start::{self, NewInstance, Staged, StagedPart, StartContent, Started};
use crate::backoff::Pauses;
use crate::error::Error;
use crate::job::id::JobId;
use crate::limits::{BATCH_BYTES, NODE_BATCH};
use crate::options::modes::Durability;

/// The most nodes, records or inputs in a part. More would take the server over 2 ms.
const PART: usize = 250;

/// How often a start in parts is begun, if parts were removed meanwhile.
const BEGINS: usize = 3;

/// The first and the longest pause while another process writes an instance of the same id.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Writes an instance.
pub(super) struct Starter<'a> {
    pub(super) store: &'a Store,
    pub(super) keys: &'a TaskKeys,
    pub(super) instance: &'a NewInstance<'a>,
    pub(super) durability: Durability,
}

impl Starter<'_> {
    /// Writes the instance. With `call_deadline`, each call is repeated until then. Without it, no call is repeated.
    pub(super) async fn start(&self, call_deadline: Option<CallDeadline>) -> Result<Copied<Started>, Error> {
        let NewInstance { shape, .. } = self.instance;
        if shape.states.len() <= NODE_BATCH && self.instance.bytes() <= BATCH_BYTES {
            match self.begin(StartContent::Instance, call_deadline).await? {
                (Started::ShapeUnknown, _) => match self.begin(StartContent::InstanceAndShape, call_deadline).await? {
                    (Started::Left, _) => {}
                    started => return Ok(started),
                },
                (Started::Left, _) => {}
                started => return Ok(started),
            }
        }
        for _ in 0..BEGINS {
            if let Some(started) = self.start_in_parts(call_deadline).await? {
                return Ok(started);
            }
        }
        Err(Error::timed_out())
    }

    /// Makes the call that starts the instance. The parts of a large instance are written before, so a replica that has this write has
    /// them, too.
    async fn begin(
        &self,
        comes: StartContent<'_>,
        call_deadline: Option<CallDeadline>,
    ) -> Result<Copied<Started>, Error> {
        let bytes = if matches!(comes, StartContent::Parts { .. }) { 0 } else { self.instance.bytes() };
        let is_there = |started: &Started| matches!(started, Started::Now(_) | Started::InParts | Started::Existed);
        let call = || async move {
            if self.durability.copies().is_none() {
                let start = async move |conn: &mut _| start::start(conn, self.keys, self.instance, comes).await;
                return Ok((self.store.shared(response_time(bytes), start).await?, Ok(())));
            }
            let start = |mut conn| async move { start::start(&mut conn, self.keys, self.instance, comes).await };
            ask_copied(self.store, self.keys, self.durability, response_time(bytes), is_there, start).await
        };
        asked(call_deadline, call).await
    }

    /// Starts a large instance. `None` if some of its parts were removed meanwhile.
    async fn start_in_parts(&self, call_deadline: Option<CallDeadline>) -> Result<Option<Copied<Started>>, Error> {
        let nonce = JobId::generate().to_string();
        let (mut part, mut is_known, mut pauses) = (0, true, Pauses::new(FIRST_LOOK, LAST_LOOK));
        let first = StagedPart {
            states: (0..self.instance.shape.states.len().min(PART) as u32).collect(),
            ..StagedPart::default()
        };
        let mut rest = Vec::new().into_iter();
        let mut next = Some(first);
        while let Some(some) = next.take() {
            let call = || {
                let stage =
                    async |conn: &mut _| start::stage(conn, self.keys, self.instance, (&nonce, part), &some).await;
                self.store.shared(response_time(BATCH_BYTES), stage)
            };
            match asked(call_deadline, call).await? {
                Staged::Written { shape_is_known } => {
                    if part == 0 {
                        is_known = shape_is_known;
                        rest = self.parts(is_known).into_iter();
                    }
                    part += 1;
                    next = rest.next();
                }
                Staged::Left => {
                    self.clear_away(call_deadline).await?;
                    next = Some(some);
                }
                // The call below also answers that the instance existed, and waits for replicas.
                Staged::Existed => break,
                Staged::PartsUnknown => return Ok(None),
                Staged::Other if call_deadline.is_none_or(|call_deadline| call_deadline.is_over()) => {
                    return Err(Error::timed_out());
                }
                Staged::Other => {
                    tokio::time::sleep(pauses.next()).await;
                    next = Some(some);
                }
            }
        }
        match self.begin(StartContent::Parts { nonce: &nonce, parts: part, is_new: !is_known }, call_deadline).await? {
            (Started::PartsUnknown | Started::ShapeUnknown, _) => Ok(None),
            started => Ok(Some(started)),
        }
    }

    /// Removes the parts that another process wrote for an instance with the same id before that process gave up or died.
    async fn clear_away(&self, call_deadline: Option<CallDeadline>) -> Result<(), Error> {
        let call = || self.store.call(async |conn| start::unstage(conn, self.keys, Some(self.instance.id)).await);
        while asked(call_deadline, call).await? {}
        Ok(())
    }

    /// The parts after the first nodes, each within the size of a call.
    fn parts(&self, shape_is_known: bool) -> Vec<StagedPart> {
        let NewInstance { shape, inputs, .. } = self.instance;
        let mut parts = vec![(StagedPart::default(), 0, 0)];
        let mut add = |size: usize, put: &dyn Fn(&mut StagedPart)| {
            if parts.last().is_some_and(|(_, count, bytes)| *count >= PART || *count > 0 && bytes + size > BATCH_BYTES)
            {
                parts.push((StagedPart::default(), 0, 0));
            }
            if let Some((part, count, bytes)) = parts.last_mut() {
                put(part);
                *count += 1;
                *bytes += size;
            }
        };
        for index in PART.min(shape.states.len())..shape.states.len() {
            add(32, &|part| part.states.push(index as u32));
        }
        // The last record is written with the start.
        let records = shape.records.iter().enumerate().take(shape.records.len() - 1).filter(|_| !shape_is_known);
        for (index, (_, record)) in records {
            add(record.len(), &|part| part.records.push(index));
        }
        for (index, (_, payload)) in inputs.iter().enumerate() {
            add(payload.len(), &|part| part.inputs.push(index));
        }
        parts.into_iter().filter(|(_, count, _)| *count > 0).map(|(part, ..)| part).collect()
    }
}

/// Makes a call. With `call_deadline`, repeats it until then.
async fn asked<T, F: Future<Output = Result<T, Error>>>(
    call_deadline: Option<CallDeadline>,
    call: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut call = call;
    match call_deadline {
        Some(call_deadline) => repeated(call_deadline, call).await,
        None => call().await,
    }
}
