//! What the test did to which process and when, by the clock of this machine.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a primary acknowledged for this long before it failed may not have reached its replica.
pub const RISK_US: u64 = 2_000_000;

pub fn now_us() -> u64 {
    us_of(SystemTime::now())
}

pub fn us_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hurt {
    /// The worker process with this id.
    Worker(u32),
    /// The connections of the producers.
    Producers,
    Servers,
}

/// What a server may forget with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loses {
    Nothing,
    /// What it acknowledged in the last two seconds, and until the end of the fault.
    Recent,
    /// All that it acknowledged before the end of the fault.
    All,
}

#[derive(Clone, Debug)]
pub struct Span {
    pub what: String,
    pub hurt: Hurt,
    pub loses: Loses,
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    pub fn overlaps(&self, from_us: u64, to_us: u64) -> bool {
        self.from_us <= to_us && from_us <= self.to_us
    }

    /// Whether what was acknowledged at this time may be lost.
    pub fn may_lose(&self, at_us: u64) -> bool {
        self.may_lose_between(at_us, at_us)
    }

    /// Whether what was written at some time between these may be lost.
    pub fn may_lose_between(&self, from_us: u64, to_us: u64) -> bool {
        match self.loses {
            Loses::Nothing => false,
            Loses::Recent => self.from_us.saturating_sub(RISK_US) <= to_us && from_us <= self.to_us,
            Loses::All => from_us <= self.to_us,
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.to_us.saturating_sub(self.from_us) / 1_000;
        write!(f, "{} {} for {ms} ms: {:?}", self.from_us, self.what, self.hurt)
    }
}

/// The faults of a run so far. Clones share them.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<Vec<Span>>>);

/// A fault that has begun.
#[must_use]
pub struct Open(usize);

impl Book {
    fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a fault before it begins. Until it is closed, it has no end.
    pub fn open(&self, what: impl Into<String>, hurt: Hurt, loses: Loses) -> Open {
        self.open_since(now_us(), what, hurt, loses)
    }

    /// Records a fault that the test observed, and that began earlier.
    pub fn open_since(&self, from_us: u64, what: impl Into<String>, hurt: Hurt, loses: Loses) -> Open {
        let mut spans = self.spans();
        spans.push(Span { what: what.into(), hurt, loses, from_us, to_us: u64::MAX });
        Open(spans.len() - 1)
    }

    pub fn close(&self, open: Open) {
        self.spans()[open.0].to_us = now_us();
    }

    pub fn all(&self) -> Vec<Span> {
        self.spans().clone()
    }
}
