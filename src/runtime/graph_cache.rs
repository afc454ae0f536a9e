//! The shapes of workflows whose nodes run here.

use std::collections::HashMap;
use std::sync::Arc;

use crate::job::shape::Shape;
use crate::mutex::Mutex;

/// At this number all are dropped.
const KNOWN: usize = 256;

/// By workflow and digest, since another instance may reuse an id that is free again.
#[derive(Debug, Default)]
pub(crate) struct GraphCache(Mutex<HashMap<String, Arc<Shape>>>);

impl GraphCache {
    pub(crate) fn get(&self, shape: &str) -> Option<Arc<Shape>> {
        self.0.lock().get(shape).cloned()
    }

    pub(crate) fn keep(&self, name: String, shape: Shape) -> Arc<Shape> {
        let (mut shapes, shape) = (self.0.lock(), Arc::new(shape));
        if shapes.len() >= KNOWN {
            shapes.clear();
        }
        shapes.insert(name, Arc::clone(&shape));
        shape
    }
}
