//! What a server does not take, or does not send: it closes the connection each time, as where its buffers are small.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{self, Moment};

/// For how long answers stay small, once the server closed connections under larger ones.
const LASTS: Duration = Duration::from_secs(600);

/// One value under which a connection was closed this often, and for this long, does not get through.
const TRIES: u32 = 5;
const TIME: Duration = Duration::from_secs(5);

/// How often in a row the connection was closed under a value, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Closings(Option<(u32, Moment)>);

impl Closings {
    /// Counts a try that failed. Where `is_closed` is false the server was not there, or slow, which says nothing of the value.
    /// Returns whether the value does not get through.
    pub(crate) fn failed(&mut self, is_closed: bool) -> bool {
        let (tries, first) = self.0.filter(|_| is_closed).unwrap_or((0, clock::now()));
        self.0 = is_closed.then_some((tries + 1, first));
        tries + 1 >= TRIES && clock::now().since(first) >= TIME
    }
}

/// Whether answers are to be small: of more than `NARROW_BYTES` of values, each is read apart.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    /// Ms on the boot-time clock.
    until: AtomicU64,
}

impl Narrow {
    pub(crate) fn is_on(&self) -> bool {
        clock::now() < Moment::from_millis(self.until.load(Ordering::SeqCst))
    }

    /// Has answers be small for a while. Returns whether they were not.
    pub(crate) fn begin(&self) -> bool {
        let was_on = self.is_on();
        self.until.store(clock::now().after(LASTS).as_millis(), Ordering::SeqCst);
        !was_on
    }
}
