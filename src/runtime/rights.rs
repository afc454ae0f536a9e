//! Whether our user may run every command of the scripts that move jobs. A script that is refused midway leaves jobs
//! where no worker finds them. Rights are not replicated, so they are checked again at each new primary and after a
//! refusal.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::error::{Error, ServerErrorKind};
use crate::mutex::Mutex;

/// For how long after the last denial the name of the missing right is kept.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// What is known about the rights at the primary of a table.
#[derive(Debug)]
pub(crate) struct Rights {
    /// The primary that was checked last.
    primary_epoch: AtomicU64,
    is_doubted: AtomicBool,
    /// The last denial: its time, its text, and whether that names the right.
    denied: Mutex<Option<(Moment, String, bool)>>,
}

impl Rights {
    /// Rights that were checked at this primary.
    pub(crate) fn at(primary_epoch: u64) -> Rights {
        Rights {
            primary_epoch: AtomicU64::new(primary_epoch),
            is_doubted: AtomicBool::new(false),
            denied: Mutex::default(),
        }
    }

    pub(crate) fn heard(&self, e: &Error) {
        if e.is_denied() {
            self.is_doubted.store(true, Ordering::Relaxed);
        }
        // A node that does not know our user or its password refuses everything.
        let said = e.chain().to_string();
        let is_of_password = e.server_kind() == Some(ServerErrorKind::Auth) && !e.is_retryable();
        if e.is_denied() || is_of_password {
            self.note(said, false);
        }
    }

    /// Records the error of a call about this workflow.
    pub(crate) fn heard_of_workflow(&self, workflow: &str, e: &Error) {
        if e.is_denied() {
            self.note(format!("{workflow}: {}", e.chain()), true);
        }
    }

    /// Keeps a text that names the right for some time: the server's error for a script may not name it, but the check does.
    fn note(&self, said: String, names_right: bool) {
        let (mut denied, now) = (self.denied.lock(), clock::now());
        let is_late = denied.as_ref().is_none_or(|(at, ..)| now.since(*at) >= NAMED_FOR);
        match denied.as_mut() {
            Some((at, _, true)) if !names_right && !is_late => *at = now,
            _ => *denied = Some((now, said, names_right)),
        }
    }

    /// The time and text of the last denial.
    pub(crate) fn denied(&self) -> Option<(Moment, String)> {
        let denied = self.denied.lock();
        denied.as_ref().map(|(at, said, _)| (*at, said.clone()))
    }

    /// Checks the rights at this primary if they are unknown or in doubt.
    ///
    /// # Errors
    /// Those of the check: nothing may be written until it succeeds.
    pub(crate) async fn make_sure(
        &self,
        primary_epoch: u64,
        ask: impl AsyncFnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.primary_epoch.load(Ordering::Relaxed) == primary_epoch && !self.is_doubted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let asked = ask().await;
        if let Err(e) = asked.as_ref()
            && !e.is_retryable()
        {
            self.note(e.chain().to_string(), true);
        }
        asked?;
        self.primary_epoch.store(primary_epoch, Ordering::Relaxed);
        self.is_doubted.store(false, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::classify::classify;

    fn said(code: &str) -> Error {
        classify("beat", redis::make_extension_error(code.to_owned(), Some("no".to_owned())))
    }

    #[test]
    fn a_denial_and_a_password_unknown_to_a_node_are_kept() {
        for code in ["NOPERM", "WRONGPASS"] {
            let rights = Rights::at(0);
            rights.heard(&said("LOADING"));
            assert!(rights.denied().is_none());
            rights.heard(&said(code));
            assert!(rights.denied().unwrap().1.contains(code), "{code}");
            // Only a missing right leads to a new check.
            assert_eq!(rights.is_doubted.load(Ordering::Relaxed), code == "NOPERM");
        }
    }
}
