//! What all handles of a definition share.

use std::sync::Arc;

use super::options::WorkflowOptions;
use super::progress::WorkflowProgress;
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;

pub(crate) struct WorkflowShared {
    pub(super) keys: TaskKeys,
    pub(super) store: Arc<Store>,
    pub(super) progress: Arc<WorkflowProgress>,
    pub(super) options: WorkflowOptions,
}
