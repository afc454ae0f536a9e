//! What all references to one task share.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use super::dispatcher::Dispatcher;
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::tables::Tables;
use crate::error::Error;
use crate::escape::cut;
use crate::events::hub::EventHub;
use crate::events::source::Followed;
use crate::job::id::JobId;
use crate::limits::MESSAGE_LIMIT;
use crate::mutex::Mutex;
use crate::options::resolved::Resolved;
use crate::runtime::handler::Hook;

/// What the log says of an error: no value of the input, and no text of user code, which may contain one.
fn without_values(error: &Error) -> String {
    match error {
        Error::Config(faults) => {
            let wrong: BTreeSet<String> =
                faults.iter().map(|fault| format!("{} {}", fault.field, fault.rule)).collect();
            format!("settings are not valid: {}", wrong.into_iter().collect::<Vec<_>>().join(", "))
        }
        Error::Codec { .. } | Error::PayloadCodec { .. } => "the input cannot be encoded".to_owned(),
        Error::Partial { source, .. } => without_values(source),
        other => cut(&other.chain().to_string(), MESSAGE_LIMIT).to_owned(),
    }
}

/// The shortest time between two log lines about failed dispatches.
const FAILURES_APART: Duration = Duration::from_secs(60);

pub(crate) struct TaskShared {
    pub(crate) name: Arc<str>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) store: Arc<Store>,
    pub(crate) options: Resolved,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) events: Arc<EventHub>,
    /// The hook, which runs before a job ends. The App that has the handler can set it until a worker is made.
    pub(crate) hook: OnceLock<Option<Hook>>,
    /// The schedules that the code declares. The App that has the handler can add some until a worker is made.
    #[cfg(feature = "schedules")]
    pub(crate) schedules: Mutex<crate::runtime::schedules::DeclaredSchedules>,
    /// Logs once that a job has no key, although there are limits of each key.
    key_warning: Once,
    /// When a failed dispatch was last logged.
    failure_logged: Mutex<Option<Instant>>,
    /// While this exists, the reader of events follows the task.
    pub(super) followed: Arc<Followed>,
}

impl TaskShared {
    /// A task whose name and options were checked. Its events are read from now on, for as long as the value exists.
    pub(crate) fn new(name: Arc<str>, store: Arc<Store>, options: Resolved, events: Arc<EventHub>) -> Arc<TaskShared> {
        let tables = store.tables(&name);
        if let Some(pointer) = options.keyed.pointer {
            tables.learn_pointer(pointer);
        }
        let followed = events.follow(&name, &tables);
        let dispatcher = Dispatcher::new(store.clone(), tables.clone(), options.partitions);
        let hook = OnceLock::new();
        Arc::new(TaskShared {
            name,
            tables,
            store,
            options,
            dispatcher,
            events,
            hook,
            #[cfg(feature = "schedules")]
            schedules: Mutex::default(),
            key_warning: Once::new(),
            failure_logged: Mutex::default(),
            followed,
        })
    }

    /// Logs once that no limit applies to a job, since it has no key.
    pub(super) fn warn_without_key(&self, key: Option<&str>) {
        if key.is_none() && self.options.keyed.limits.any() && self.tables.pointer().is_none() {
            self.key_warning.call_once(|| {
                tracing::warn!(task = %self.name,
                    "a job has no key, so no limit of a key applies to it; set TaskOptions::key or Dispatch::key");
            });
        }
    }

    /// Logs a failed dispatch, at most once a minute: its caller may discard the error.
    pub(super) fn warn_of_failure(&self, error: &Error) {
        let now = Instant::now();
        let is_due = {
            let mut logged = self.failure_logged.lock();
            let is_due = logged.is_none_or(|at| now.duration_since(at) >= FAILURES_APART);
            if is_due {
                *logged = Some(now);
            }
            is_due
        };
        if is_due {
            // A log subscriber is user code.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                tracing::warn!(task = %self.name, error = without_values(error), "a dispatch failed");
            }));
        }
    }

    /// Asks about a job in its partition. If the job is not there, and the task turns out to have another number of partitions, asks
    /// once more.
    pub(super) async fn find<T, F>(&self, id: &JobId, ask: impl Fn(Arc<TaskKeys>) -> F) -> Result<Option<T>, Error>
    where
        F: Future<Output = Result<Option<T>, Error>>,
    {
        let keys = self.tables.of(id.as_str());
        let found = ask(Arc::clone(&keys)).await?;
        if found.is_some() || !self.is_elsewhere(&keys).await? {
            return Ok(found);
        }
        ask(self.tables.of(id.as_str())).await
    }

    /// Whether the task turns out to have another number of partitions than these keys.
    pub(super) async fn is_elsewhere(&self, keys: &TaskKeys) -> Result<bool, Error> {
        match self.tables.refresh(&self.store).await {
            // A known number above 1 stays valid while the node of the first partition is unreachable.
            Err(e) if e.is_outage() && self.tables.parts() > 1 => {}
            answer => answer?,
        }
        Ok(self.tables.parts() != keys.parts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_error::{ConfigError, ConfigErrors};

    #[test]
    fn the_log_of_a_failed_dispatch_shows_no_value() {
        let fault = ConfigError::new("key", "ada@example.org", "must be short", "use a hash");
        let error = Error::Config(ConfigErrors::from(fault));
        assert_eq!(without_values(&error), "settings are not valid: key must be short");
        let source = Box::new(Error::TooLarge { what: None, size: 2, limit: 1 });
        let partial = without_values(&Error::Partial { dispatched: Vec::new(), source });
        assert!(partial.contains("limit"), "{partial}");
    }
}
