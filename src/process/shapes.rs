//! Shapes of workflows whose nodes run here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job::shape::Shape;

/// With so many of them all are forgotten.
const KNOWN: usize = 256;

/// By workflow and instance.
#[derive(Debug, Default)]
pub(crate) struct KnownShapes(Mutex<HashMap<String, Arc<Shape>>>);

impl KnownShapes {
    fn shapes(&self) -> MutexGuard<'_, HashMap<String, Arc<Shape>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, instance: &str) -> Option<Arc<Shape>> {
        self.shapes().get(instance).cloned()
    }

    pub(crate) fn keep(&self, instance: String, shape: Shape) -> Arc<Shape> {
        let (mut shapes, shape) = (self.shapes(), Arc::new(shape));
        if shapes.len() >= KNOWN {
            shapes.clear();
        }
        shapes.insert(instance, Arc::clone(&shape));
        shape
    }
}
