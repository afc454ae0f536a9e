//! The notes of a handler about its job, until Redis has them.

use std::sync::Arc;

use serde::Serialize;

use crate::backend::note::RunNote;
use crate::error::NoteError;
use crate::job::id::JobId;
use crate::mutex::Mutex;

/// The most bytes of JSON in a checkpoint.
pub(crate) const CHECKPOINT_LIMIT: usize = 64 * 1024;

/// The most bytes of JSON in a progress value with its message.
pub(crate) const PROGRESS_LIMIT: usize = 1024;

/// A longer progress message is cut to this many bytes.
pub(crate) const MESSAGE_CUT: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    number: u64,
    /// Notes that Redis may not have yet, each with its number.
    checkpoint: Option<(u64, Arc<str>)>,
    progress: Option<(u64, Arc<str>)>,
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

    pub(crate) fn set_checkpoint(&self, json: impl Into<Arc<str>>) {
        let mut latest = self.0.lock();
        latest.number += 1;
        latest.checkpoint = Some((latest.number, json.into()));
    }

    pub(crate) fn set_progress(&self, json: impl Into<Arc<str>>) {
        let mut latest = self.0.lock();
        latest.number += 1;
        latest.progress = Some((latest.number, json.into()));
    }

    /// The note to write; `None` if Redis has everything. Without `with_checkpoints`, only the progress.
    pub(crate) fn pending(&self, id: &JobId, fence: u64, with_checkpoints: bool) -> Option<RunNote> {
        let latest = self.0.lock();
        let checkpoint = latest.checkpoint.as_ref().filter(|_| with_checkpoints);
        if checkpoint.is_none() && latest.progress.is_none() {
            return None;
        }
        let json = |note: &Option<(u64, Arc<str>)>| note.as_ref().map(|(_, json)| json.clone());
        Some(RunNote {
            id: id.clone(),
            fence,
            number: latest.number,
            checkpoint: checkpoint.map(|(_, json)| json.clone()),
            progress: json(&latest.progress),
        })
    }

    /// The checkpoint that Redis does not have yet, if any.
    pub(crate) fn unwritten_checkpoint(&self) -> Option<String> {
        self.0.lock().checkpoint.as_ref().map(|(_, json)| json.to_string())
    }

    /// The progress that Redis does not have yet, if any.
    #[cfg(feature = "testing")]
    pub(crate) fn unwritten_progress(&self) -> Option<String> {
        self.0.lock().progress.as_ref().map(|(_, json)| json.to_string())
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

pub(crate) fn checkpoint_json<T: Serialize + ?Sized>(state: &T) -> Result<String, NoteError> {
    bounded("checkpoint", serde_json::to_string(state), CHECKPOINT_LIMIT)
}

pub(crate) fn progress_json<T: Serialize + ?Sized>(value: &T, message: &str) -> Result<String, NoteError> {
    bounded("progress", serde_json::to_string(&WithMessage { value, message }), PROGRESS_LIMIT)
}

fn bounded(what: &'static str, json: serde_json::Result<String>, limit: usize) -> Result<String, NoteError> {
    let json = json.map_err(|source| NoteError::Codec { what, source })?;
    let size = json.len();
    if size > limit { Err(NoteError::TooLarge { what, size, limit }) } else { Ok(json) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_note_is_written_and_later_ones_are_kept() {
        let (notes, id) = (Notes::default(), JobId::from_wire("a"));
        assert!(notes.pending(&id, 7, true).is_none());
        notes.set_checkpoint("1");
        notes.set_checkpoint("2");
        notes.set_progress("3");
        let note = notes.pending(&id, 7, false).unwrap();
        assert_eq!((note.number, note.checkpoint, note.progress.as_deref()), (3, None, Some("3")));
        let note = notes.pending(&id, 7, true).unwrap();
        assert_eq!(note.checkpoint.as_deref(), Some("2"));
        notes.set_checkpoint("4");
        notes.written(&note);
        let left = notes.pending(&id, 7, true).unwrap();
        assert_eq!((left.number, left.checkpoint.as_deref(), left.progress.as_deref()), (4, Some("4"), None));
        notes.written(&left);
        assert!(notes.pending(&id, 7, true).is_none());
    }

    #[test]
    fn a_note_that_is_too_large_is_refused_with_its_size() {
        assert_eq!(progress_json(&40, "").unwrap(), r#"{"value":40}"#);
        assert_eq!(progress_json("a", "b").unwrap(), r#"{"value":"a","message":"b"}"#);
        let refused = checkpoint_json(&"x".repeat(CHECKPOINT_LIMIT - 1)).unwrap_err().to_string();
        assert_eq!(refused, "the checkpoint has 65537 bytes of JSON, the limit is 65536");
        assert!(checkpoint_json(&"x".repeat(CHECKPOINT_LIMIT - 2)).is_ok());
    }
}
