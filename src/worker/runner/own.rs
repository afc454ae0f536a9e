//! The options, headers and tick of one dispatch.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::settle::Claimed;
use crate::escape::Escaped;
use crate::job::tick::Tick;
use crate::options::overrides::{Headers, Overrides};
use crate::options::resolved::Resolved;

/// The options, headers and tick of one dispatch.
pub(in crate::worker) struct Own {
    /// The options of the task with the job's overrides.
    pub(in crate::worker) options: Arc<Resolved>,
    pub(super) headers: Headers,
    pub(super) tick: Option<Tick>,
    pub(super) delay: Duration,
}

impl Own {
    pub(in crate::worker) fn of(job: &Claimed, task: &Arc<Resolved>) -> Own {
        let none = || Own { options: Arc::clone(task), headers: Headers::new(), tick: None, delay: Duration::ZERO };
        if job.overrides.is_empty() {
            return none();
        }
        match serde_json::from_str::<Overrides>(&job.overrides) {
            Ok(overrides) => Own {
                options: Arc::new(task.with(&overrides)),
                headers: overrides.headers,
                tick: overrides.tick,
                delay: overrides.delay.unwrap_or_default(),
            },
            Err(e) => {
                tracing::warn!(job_id = %job.id, error = %Escaped(&e.to_string()),
                    "the job's own options cannot be read; using those of the task");
                none()
            }
        }
    }
}
