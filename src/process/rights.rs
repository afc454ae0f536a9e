//! Whether our user of the server may write all that scripts write. Rights are not replicated: of a primary that has just become one, and behind a refusal, that
//! is asked anew, since a script that is refused in the middle leaves jobs where nobody finds them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::Error;

/// What is known of the rights at the primary of a table.
#[derive(Debug)]
pub(crate) struct Rights {
    /// The primary that was asked last.
    reign: AtomicU64,
    is_doubted: AtomicBool,
}

impl Rights {
    /// Those that this primary said are there.
    pub(crate) fn at(reign: u64) -> Rights {
        Rights { reign: AtomicU64::new(reign), is_doubted: AtomicBool::new(false) }
    }

    /// A call failed so.
    pub(crate) fn heard(&self, e: &Error) {
        if e.is_denied() {
            self.is_doubted.store(true, Ordering::Relaxed);
        }
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
        ask().await?;
        self.reign.store(reign, Ordering::Relaxed);
        self.is_doubted.store(false, Ordering::Relaxed);
        Ok(())
    }
}
