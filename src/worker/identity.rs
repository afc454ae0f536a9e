//! The name under which a worker works.

use crate::config_error::{ConfigErrors, text};

/// Whether a worker has an exclusive name. Set with [`Worker::identity`](crate::Worker::identity).
///
/// ```no_run
/// # use heartline::{App, StopReason, WorkerIdentity};
/// # async fn run(app: App) -> heartline::Result<StopReason> {
/// // The ordinal of a StatefulSet: at most one process has it.
/// let name = std::env::var("POD_NAME").unwrap_or_else(|_| "billing-0".to_owned());
/// app.worker().identity(WorkerIdentity::exclusive(name)).run_until_signal().await
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerIdentity(Option<String>);

impl WorkerIdentity {
    /// A new identity for each start: any number of workers may run at a time. The default.
    #[must_use]
    pub fn unique() -> WorkerIdentity {
        WorkerIdentity(None)
    }

    /// A name that one worker has at a time. A worker that starts with this name asks the earlier one to stop, as a signal would.
    /// It begins when the earlier one has stopped with [`StopReason::Replaced`](crate::StopReason::Replaced). If the earlier one
    /// gives no sign of life within 7 s, the new one takes its jobs at once, on any host, and counts a stall for each.
    ///
    /// Use it only if something else, such as a StatefulSet or a systemd unit, ensures that there is one such process. Two
    /// processes that share a name take each other's jobs. The name is exclusive among all apps with the same `prefix`, even if
    /// their tasks differ. 1 to 128 characters of `A-Z`, `a-z`, `0-9`, `.`, `_` and `-`.
    #[must_use]
    pub fn exclusive(name: impl Into<String>) -> WorkerIdentity {
        WorkerIdentity(Some(name.into()))
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(super) fn check(&self) -> Result<(), ConfigErrors> {
        let Some(name) = self.name() else { return Ok(()) };
        text(
            "worker.identity",
            name,
            128,
            |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'),
            "must be 1 to 128 characters of A-Z, a-z, 0-9, '.', '_' and '-'",
            "use a name like \"billing-0\"",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word() {
        assert!(WorkerIdentity::unique().check().is_ok() && WorkerIdentity::exclusive("billing-0").check().is_ok());
        for bad in ["", "a b", "{a}", "a:b"] {
            assert!(WorkerIdentity::exclusive(bad).check().is_err(), "{bad}");
        }
    }
}
