//! Writes the notes of a handler at once, and reads those of an earlier run.

use std::collections::HashMap;
use std::sync::Arc;

use super::held_jobs::HeldJob;
use crate::backend::engine::Store;
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::note::{self, Stored};
use crate::backend::timeouts::response_time;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::shape::Shape;
use crate::mutex::Mutex;
use crate::worker_id::WorkerId;

/// Where the notes of a run are written.
pub(crate) struct NoteStore {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: Arc<TaskKeys>,
    pub(crate) worker: WorkerId,
    pub(crate) shapes: GraphCache,
}

impl NoteStore {
    /// Writes the notes that Redis does not have yet. Returns whether the worker still holds the job.
    pub(crate) async fn write(&self, held: &HeldJob) -> Result<bool, Error> {
        let Some(note) = held.pending_note(true) else { return Ok(true) };
        let call =
            async |conn: &mut _| note::note(conn, &self.keys, self.worker.as_str(), std::slice::from_ref(&note)).await;
        let lost = self.store.shared(response_time(note.bytes()), call).await?;
        held.notes.written(&note);
        Ok(lost.is_empty())
    }

    /// The value in this column of the job.
    pub(crate) async fn stored(&self, column: Key, id: &JobId) -> Result<Option<Stored>, Error> {
        self.store.call(async |conn| note::stored(conn, &self.keys, column, id).await).await
    }
}

/// At this number of shapes all are dropped.
const SHAPES: usize = 256;

/// The shapes of workflows whose nodes run here, by workflow and digest: another instance may reuse an id that is free
/// again.
#[derive(Debug, Default)]
pub(crate) struct GraphCache(Mutex<HashMap<String, Arc<Shape>>>);

impl GraphCache {
    pub(crate) fn get(&self, shape: &str) -> Option<Arc<Shape>> {
        self.0.lock().get(shape).cloned()
    }

    pub(crate) fn keep(&self, name: String, shape: Shape) -> Arc<Shape> {
        let (mut shapes, shape) = (self.0.lock(), Arc::new(shape));
        if shapes.len() >= SHAPES {
            shapes.clear();
        }
        shapes.insert(name, Arc::clone(&shape));
        shape
    }
}
