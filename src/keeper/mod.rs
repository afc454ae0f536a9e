//! The keeper: one OS thread with its own runtime and connection, which beats for every held job and sweeps.
//!
//! It is not on the user's runtime, so handlers that block every thread there cannot stop it. Nothing of the user's runs
//! on it: what it has to log is said on another thread.

pub(crate) mod beat;
pub(crate) mod hints;
#[cfg(feature = "testing")]
pub(crate) mod hooks;
pub(crate) mod line;
pub(crate) mod log;
pub(crate) mod pass;
pub(crate) mod presence;
pub(crate) mod retention;
pub(crate) mod roads;
pub(crate) mod round;
pub(crate) mod sweep;
pub(crate) mod thread;
pub(crate) mod tick;
pub(crate) mod watch;
pub(crate) mod wind_up;
