//! Values that are too large for the server or for a client buffer. The server closes the connection each time such a
//! value is transferred.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::error::Error;

/// How long answers stay small after the server closed connections during larger ones.
const LASTS: Duration = Duration::from_secs(600);

/// If sending one value closed the connection this often, over at least [`TIME`], the value is too large.
const TRIES: u32 = 5;
const TIME: Duration = Duration::from_secs(5);

/// How often in a row the connection closed during a value, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Closings(Option<(u32, Moment)>);

impl Closings {
    /// Counts a failed try. `is_closed` is false if the server was unreachable or slow, which says nothing about the
    /// value. Returns whether the value is too large.
    pub(crate) fn failed(&mut self, is_closed: bool) -> bool {
        let (tries, first) = self.0.filter(|_| is_closed).unwrap_or((0, clock::now()));
        self.0 = is_closed.then_some((tries + 1, first));
        tries + 1 >= TRIES && clock::now().since(first) >= TIME
    }
}

/// The message about a value that the server does not send.
pub(crate) fn unreadable(what: &str, bytes: usize, e: &Error) -> String {
    let limit = "the client-output-buffer-limit of the server may be too small";
    format!("its {what} of {bytes} bytes cannot be read, {limit}: {}", e.chain())
}

/// Whether answers should be small: if values exceed `NARROW_BYTES`, each is read separately.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    /// Ms on the boot-time clock.
    until: AtomicU64,
}

impl Narrow {
    pub(crate) fn is_on(&self) -> bool {
        clock::now() < Moment::from_millis(self.until.load(Ordering::SeqCst))
    }

    /// Keeps answers small for a while. Returns whether this is new.
    pub(crate) fn begin(&self) -> bool {
        let was_on = self.is_on();
        self.until.store(clock::now().after(LASTS).as_millis(), Ordering::SeqCst);
        !was_on
    }
}
