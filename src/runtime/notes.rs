//! The notes of a handler about its job, until Redis has them.

use std::sync::Arc;

use serde::Serialize;

use crate::backend::note::RunNote;
use crate::codec::Codecs;
use crate::error::NoteError;
use crate::job::id::JobId;
use crate::mutex::Mutex;

/// The most bytes of a checkpoint.
pub(crate) const CHECKPOINT_LIMIT: usize = 64 * 1024;

/// The most bytes of a progress value with its message.
pub(crate) const PROGRESS_LIMIT: usize = 1024;

/// A longer progress message is cut to this many bytes.
pub(crate) const MESSAGE_CUT: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    number: u64,
    /// Notes that Redis may not have yet, each with its number.
    checkpoint: Option<(u64, Arc<[u8]>)>,
    progress: Option<(u64, Arc<[u8]>)>,
    /// A graph that replaces the node of a workflow.
    grown: Option<Arc<[u8]>>,
}

impl Notes {
    pub(crate) fn grow(&self, graph: Vec<u8>) {
        self.0.lock().grown = Some(graph.into());
    }

    pub(crate) fn grown(&self) -> Option<Arc<[u8]>> {
        self.0.lock().grown.clone()
    }

    pub(crate) fn set_checkpoint(&self, value: impl Into<Arc<[u8]>>) {
        let mut latest = self.0.lock();
        latest.number += 1;
        latest.checkpoint = Some((latest.number, value.into()));
    }

    pub(crate) fn set_progress(&self, value: impl Into<Arc<[u8]>>) {
        let mut latest = self.0.lock();
        latest.number += 1;
        latest.progress = Some((latest.number, value.into()));
    }

    /// The note to write; `None` if Redis has everything. Without `with_checkpoints`, only the progress.
    pub(crate) fn pending(&self, id: &JobId, fence: u64, with_checkpoints: bool) -> Option<RunNote> {
        let latest = self.0.lock();
        let checkpoint = latest.checkpoint.as_ref().filter(|_| with_checkpoints);
        if checkpoint.is_none() && latest.progress.is_none() {
            return None;
        }
        Some(RunNote {
            id: id.clone(),
            fence,
            number: latest.number,
            checkpoint: checkpoint.map(|(_, value)| Arc::clone(value)),
            progress: latest.progress.as_ref().map(|(_, value)| Arc::clone(value)),
        })
    }

    /// The checkpoint that Redis does not have yet, if any.
    pub(crate) fn unwritten_checkpoint(&self) -> Option<Arc<[u8]>> {
        self.0.lock().checkpoint.as_ref().map(|(_, value)| Arc::clone(value))
    }

    /// The progress that Redis does not have yet, if any.
    #[cfg(feature = "testing")]
    pub(crate) fn unwritten_progress(&self) -> Option<Arc<[u8]>> {
        self.0.lock().progress.as_ref().map(|(_, value)| Arc::clone(value))
    }

    /// Whether there is a checkpoint that Redis does not have yet.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.0.lock().checkpoint.is_some()
    }

    /// Records that Redis has this note, or refused it. A newer one must still be written.
    pub(crate) fn written(&self, note: &RunNote) {
        let mut latest = self.0.lock();
        if note.checkpoint.is_some() {
            latest.checkpoint.take_if(|(number, _)| *number <= note.number);
        }
        if note.progress.is_some() {
            latest.progress.take_if(|(number, _)| *number <= note.number);
        }
    }
}

/// The stored form of a progress value.
#[derive(Serialize)]
struct WithMessage<'a, T: ?Sized> {
    value: &'a T,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

pub(crate) fn encoded_checkpoint<T: Serialize + ?Sized>(state: &T, codecs: &Codecs) -> Result<Vec<u8>, NoteError> {
    encoded("checkpoint", serde_json::to_vec(state), CHECKPOINT_LIMIT, codecs)
}

pub(crate) fn encoded_progress<T: Serialize + ?Sized>(
    value: &T,
    message: &str,
    codecs: &Codecs,
) -> Result<Vec<u8>, NoteError> {
    encoded("progress", serde_json::to_vec(&WithMessage { value, message }), PROGRESS_LIMIT, codecs)
}

fn encoded(
    what: &'static str,
    json: serde_json::Result<Vec<u8>>,
    limit: usize,
    codecs: &Codecs,
) -> Result<Vec<u8>, NoteError> {
    let json = json.map_err(|source| NoteError::Codec { what, source })?;
    let value = codecs.encode(json).map_err(|source| NoteError::PayloadCodec { what, source })?;
    let size = value.len();
    if size > limit { Err(NoteError::TooLarge { what, size, limit }) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_note_is_written_and_later_ones_are_kept() {
        let (notes, id) = (Notes::default(), JobId::from_wire("a"));
        assert!(notes.pending(&id, 7, true).is_none());
        notes.set_checkpoint(*b"1");
        notes.set_checkpoint(*b"2");
        notes.set_progress(*b"3");
        let note = notes.pending(&id, 7, false).unwrap();
        assert_eq!((note.number, note.checkpoint, note.progress.as_deref()), (3, None, Some(&b"3"[..])));
        let note = notes.pending(&id, 7, true).unwrap();
        assert_eq!(note.checkpoint.as_deref(), Some(&b"2"[..]));
        notes.set_checkpoint(*b"4");
        notes.written(&note);
        let left = notes.pending(&id, 7, true).unwrap();
        assert_eq!((left.number, left.checkpoint.as_deref(), left.progress.as_deref()), (4, Some(&b"4"[..]), None));
        notes.written(&left);
        assert!(notes.pending(&id, 7, true).is_none());
    }

    #[test]
    fn a_note_that_is_too_large_is_refused_with_its_size() {
        let none = &Codecs::default();
        assert_eq!(encoded_progress(&40, "", none).unwrap(), br#"{"value":40}"#);
        assert_eq!(encoded_progress("a", "b", none).unwrap(), br#"{"value":"a","message":"b"}"#);
        let refused = encoded_checkpoint(&"x".repeat(CHECKPOINT_LIMIT - 1), none).unwrap_err().to_string();
        assert_eq!(refused, "the checkpoint has 65537 bytes, the limit is 65536");
        assert!(encoded_checkpoint(&"x".repeat(CHECKPOINT_LIMIT - 2), none).is_ok());
    }
}
