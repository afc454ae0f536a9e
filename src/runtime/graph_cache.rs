//! The shapes of workflows whose nodes run here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job::shape::Shape;

/// At this number all are dropped.
const KNOWN: usize = 256;

/// By workflow and digest, since another instance may reuse an id that is free again.
#[derive(Debug, Default)]
pub(crate) struct GraphCache(Mutex<HashMap<String, Arc<Shape>>>);

impl GraphCache {
    fn shapes(&self) -> MutexGuard<'_, HashMap<String, Arc<Shape>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, shape: &str) -> Option<Arc<Shape>> {
        self.shapes().get(shape).cloned()
    }

    pub(crate) fn keep(&self, name: String, shape: Shape) -> Arc<Shape> {
        let (mut shapes, shape) = (self.shapes(), Arc::new(shape));
        if shapes.len() >= KNOWN {
            shapes.clear();
        }
        shapes.insert(name, Arc::clone(&shape));
        shape
    }
}
