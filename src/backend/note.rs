//! `lua/note.lua`: writes the checkpoints and progress of handlers.

use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

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
    /// JSON.
    pub(crate) checkpoint: Option<Arc<str>>,
    /// JSON.
    pub(crate) progress: Option<Arc<str>>,
}

impl RunNote {
    /// Its size in a call, apart from a few bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.checkpoint.as_ref().map_or(0, |json| json.len()) + self.progress.as_ref().map_or(0, |json| 2 * json.len())
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
        call.arg(utf8_percent_encode(progress, UNSAFE).to_string());
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
    let text: Option<Text> = redis::cmd("HGET").arg(keys.get(column)).arg(id.as_str()).call(conn, "note").await?;
    Ok(text.and_then(|Text(text)| Stored::from_wire(&text)))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// When it was written, ms by the server's clock.
    pub(crate) at_ms: u64,
    pub(crate) json: String,
}

impl Stored {
    /// Reads the column: fence, number, time, JSON.
    pub(crate) fn from_wire(text: &str) -> Option<Stored> {
        let mut words = text.splitn(4, ' ').skip(2);
        Some(Stored { at_ms: stored_number(words.next()?)?, json: words.next()?.to_owned() })
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
            checkpoint: Some("x".repeat(bytes).into()),
            progress: None,
        };
        let sizes = |notes: Vec<RunNote>| in_calls(notes).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..450).map(|fence| note(fence, 10)).collect()), [200, 200, 50]);
        assert_eq!(sizes((0..20).map(|fence| note(fence, 64 * 1024)).collect()), [8, 8, 4]);
        assert_eq!(sizes(Vec::new()), [0; 0]);
    }

    #[test]
    fn a_note_is_read_back_unchanged() {
        let stored = Stored::from_wire(r#"17 3 1700 {"a": "b c"}"#).unwrap();
        assert_eq!(stored, Stored { at_ms: 1700, json: r#"{"a": "b c"}"#.to_owned() });
        for other in ["", "1", "1 2 3", "1 2 soon {}"] {
            assert_eq!(Stored::from_wire(other), None, "{other}");
        }
    }
}
