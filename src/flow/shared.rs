//! What all handles of a definition share.

use std::sync::Arc;

use super::mover::Mover;
use super::options::WorkflowOptions;
use crate::store::engine::Store;
use crate::store::keys::TaskKeys;

pub(crate) struct WorkflowShared {
    pub(super) keys: TaskKeys,
    pub(super) store: Arc<Store>,
    pub(super) mover: Arc<Mover>,
    pub(super) options: WorkflowOptions,
}
