//! `lua/note.lua`: writes the checkpoints and progress of handlers.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use super::connection::Connection;
use super::keys::{Key, TaskKeys};
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::Result;
use crate::job::id::JobId;
use crate::limits::{BATCH, BATCH_BYTES, stored_number};

/// Notes of one run that Redis does not have yet.
#[derive(Clone, Debug)]
pub(crate) struct RunNote {
    pub(crate) id: JobId,
    pub(crate) fence: u64,
    /// Grows with each note of the run.
    pub(crate) number: u64,
    /// As it is stored.
    pub(crate) checkpoint: Option<Arc<[u8]>>,
    /// As it is stored.
    pub(crate) progress: Option<Arc<[u8]>>,
}

impl RunNote {
    /// Its size in a call, apart from a few bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.checkpoint.as_ref().map_or(0, |value| value.len())
            + self.progress.as_ref().map_or(0, |value| 2 * value.len())
    }
}

/// Writes the notes of jobs that the worker holds. Returns the fences of the jobs that it no longer holds.
pub(crate) async fn note(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    worker: &str,
    notes: &[RunNote],
) -> Result<Vec<u64>> {
    const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    let mut call = scripts::NOTE.on(keys);
    call.arg(worker);
    for note in notes {
        let progress = note.progress.as_deref().unwrap_or_default();
        call.arg(note.id.as_str()).arg(note.fence).arg(note.number);
        call.arg(note.checkpoint.as_deref().unwrap_or_default()).arg(progress);
        call.arg(percent_encode(progress, UNSAFE).to_string());
    }
    let mut reply = call.answer(conn).await?;
    let lost: Vec<Text> = reply.next()?;
    lost.iter().map(|Text(fence)| fence.parse().map_err(|_| reply.unexpected(fence))).collect()
}

/// The stored checkpoint or progress of a job; `None` if there is none.
pub(crate) async fn stored(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    column: Key,
    id: &JobId,
) -> Result<Option<Stored>> {
    let found: Option<Vec<u8>> = redis::cmd("HGET").arg(keys.get(column)).arg(id.as_str()).call(conn, "note").await?;
    Ok(found.and_then(|found| Stored::from_wire(&found)))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// When it was written, ms by the server's clock.
    pub(crate) at_ms: u64,
    /// JSON, encoded if the App of the worker has a codec.
    pub(crate) value: Vec<u8>,
}

impl Stored {
    /// Reads the column: fence, number, time, value.
    pub(crate) fn from_wire(column: &[u8]) -> Option<Stored> {
        let mut words = column.splitn(4, |byte| *byte == b' ').skip(2);
        let at_ms = stored_number(std::str::from_utf8(words.next()?).ok()?)?;
        Some(Stored { at_ms, value: words.next()?.to_vec() })
    }
}

/// Splits the notes into calls of bounded size, oldest runs first.
pub(crate) fn in_calls(mut notes: Vec<RunNote>) -> Vec<Vec<RunNote>> {
    notes.sort_unstable_by_key(|note| note.fence);
    let mut calls: Vec<Vec<RunNote>> = Vec::new();
    let mut bytes = 0;
    for note in notes {
        bytes += note.bytes();
        match calls.last_mut() {
            Some(call) if call.len() < BATCH && bytes <= BATCH_BYTES => call.push(note),
            _ => {
                bytes = note.bytes();
                calls.push(vec![note]);
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_bounded_in_bytes_and_in_jobs() {
        let note = |fence: u64, bytes: usize| RunNote {
            id: JobId::from_wire("a"),
            fence,
            number: 1,
            checkpoint: Some(vec![b'x'; bytes].into()),
            progress: None,
        };
        let sizes = |notes: Vec<RunNote>| in_calls(notes).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..450).map(|fence| note(fence, 10)).collect()), [200, 200, 50]);
        assert_eq!(sizes((0..20).map(|fence| note(fence, 64 * 1024)).collect()), [8, 8, 4]);
        assert_eq!(sizes(Vec::new()), [0; 0]);
    }

    #[test]
    fn a_note_is_read_back_unchanged() {
        let stored = Stored::from_wire(br#"17 3 1700 {"a": "b c"}"#).unwrap();
        assert_eq!(stored, Stored { at_ms: 1700, value: br#"{"a": "b c"}"#.to_vec() });
        for other in ["", "1", "1 2 3", "1 2 soon {}"] {
            assert_eq!(Stored::from_wire(other.as_bytes()), None, "{other}");
        }
    }
}
