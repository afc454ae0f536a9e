//! The clock of every deadline in a worker. Unlike `Instant`, it keeps running while the machine is suspended.

use std::time::Duration;

/// A point on the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Milliseconds since a point that is fixed until the machine restarts.
    pub(crate) fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment that [`Moment::as_millis`] returned.
    pub(crate) fn from_millis(millis: u64) -> Moment {
        Moment(millis)
    }

    /// The time since `earlier`; zero if that is in the future.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This moment plus `duration`.
    pub(crate) fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration.as_millis() as u64))
    }
}

/// Now, on the boot-time clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Moment(time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}

/// Now, on the best clock that this platform offers without unsafe code. It may not count suspended time.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    Moment(START.get_or_init(Instant::now).elapsed().as_millis() as u64)
}
