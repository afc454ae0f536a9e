//! Whether our user of the server may run all that scripts run which move jobs. Rights are not replicated: of a primary that has just become one, and behind a refusal, that
//! is asked anew, since a script that is refused in the middle leaves jobs where nobody finds them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::error::{Error, ServerErrorKind};

/// How long the name of a right that is lacking is kept from the last denial on.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// What is known of the rights at the primary of a table.
#[derive(Debug)]
pub(crate) struct Rights {
    /// The primary that was asked last.
    reign: AtomicU64,
    is_doubted: AtomicBool,
    /// When a call was denied last, what was said of it, and whether that names the right.
    denied: Mutex<Option<(Moment, String, bool)>>,
}

impl Rights {
    /// Those that this primary said are there.
    pub(crate) fn at(reign: u64) -> Rights {
        Rights { reign: AtomicU64::new(reign), is_doubted: AtomicBool::new(false), denied: Mutex::default() }
    }

    /// A call failed so.
    pub(crate) fn heard(&self, e: &Error) {
        if e.is_denied() {
            self.is_doubted.store(true, Ordering::Relaxed);
        }
        // A node that does not know our user, or its password, denies all.
        let said = e.chain().to_string();
        let is_of_password = e.server_kind() == Some(ServerErrorKind::Auth) && !e.is_retryable();
        if e.is_denied() || is_of_password {
            self.note(said, false);
        }
    }

    /// A call about this workflow failed so.
    pub(crate) fn heard_of_workflow(&self, workflow: &str, e: &Error) {
        if e.is_denied() {
            self.note(format!("{workflow}: {}", e.chain()), true);
        }
    }

    /// What a script is denied a server may tell without the right: who has asked for that knows more, for some time.
    fn note(&self, said: String, names_right: bool) {
        let (mut denied, now) = (self.denied.lock().unwrap_or_else(PoisonError::into_inner), clock::now());
        let is_late = denied.as_ref().is_none_or(|(at, ..)| now.since(*at) >= NAMED_FOR);
        match denied.as_mut() {
            Some((at, _, true)) if !names_right && !is_late => *at = now,
            _ => *denied = Some((now, said, names_right)),
        }
    }

    /// When a call was denied last, and what was said of it.
    pub(crate) fn denied(&self) -> Option<(Moment, String)> {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        denied.as_ref().map(|(at, said, _)| (*at, said.clone()))
    }

    /// Asks this primary, where that is not known.
    ///
    /// # Errors
    /// What the answer was: nothing may be written until it is another one.
    pub(crate) async fn make_sure(
        &self,
        reign: u64,
        ask: impl AsyncFnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.reign.load(Ordering::Relaxed) == reign && !self.is_doubted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let asked = ask().await;
        if let Err(e) = asked.as_ref()
            && !e.is_retryable()
        {
            self.note(e.chain().to_string(), true);
        }
        asked?;
        self.reign.store(reign, Ordering::Relaxed);
        self.is_doubted.store(false, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fault::classify;

    fn said(code: &str) -> Error {
        classify("beat", redis::make_extension_error(code.to_owned(), Some("no".to_owned())))
    }

    #[test]
    fn a_denial_and_a_password_that_a_node_does_not_know_are_kept() {
        for code in ["NOPERM", "WRONGPASS"] {
            let rights = Rights::at(0);
            rights.heard(&said("LOADING"));
            assert!(rights.denied().is_none());
            rights.heard(&said(code));
            assert!(rights.denied().unwrap().1.contains(code), "{code}");
            // Only a right that is missing is asked for.
            assert_eq!(rights.is_doubted.load(Ordering::Relaxed), code == "NOPERM");
        }
    }
}
