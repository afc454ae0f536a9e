//! Whether our user of the server may write all that scripts write. Rights are not replicated: of a primary that has just become one, and behind a refusal, that
//! is asked anew, since a script that is refused in the middle leaves jobs where nobody finds them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::clock::{self, Moment};
use crate::error::Error;

/// What is known of the rights at the primary of a table.
#[derive(Debug)]
pub(crate) struct Rights {
    /// The primary that was asked last.
    reign: AtomicU64,
    is_doubted: AtomicBool,
    /// When a call was denied last, and what was said of it.
    denied: Mutex<Option<(Moment, String)>>,
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
            self.note(e);
        }
    }

    fn note(&self, e: &Error) {
        let said = Some((clock::now(), e.chain().to_string()));
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// When a call was denied last, and what was said of it.
    pub(crate) fn denied(&self) -> Option<(Moment, String)> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
            self.note(e);
        }
        asked?;
        self.reign.store(reign, Ordering::Relaxed);
        self.is_doubted.store(false, Ordering::Relaxed);
        Ok(())
    }
}
