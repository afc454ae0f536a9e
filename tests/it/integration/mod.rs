//! Heartline through its public API, on a real server. Dead workers are simulated here; `crash.rs` kills real ones.

mod adaptive;
mod cancel;
#[cfg(feature = "schedules")]
mod codec;
mod credentials;
mod damage;
mod definitions;
mod diagnosis;
mod dispatch;
mod events;
mod fan_out;
pub mod fixtures;
mod handler_errors;
mod hooks;
mod inspector;
mod keys;
mod limits;
mod liveness;
mod logs;
#[cfg(feature = "metrics")]
mod metrics;
mod notes;
mod observer;
mod outcomes;
mod parked;
mod partitions;
mod prefetch;
mod prefetch_failures;
#[cfg(feature = "probes")]
mod probes;
mod put_off;
mod quiet;
mod recovery;
mod refusals;
mod replicated;
mod results;
#[cfg(feature = "schedules")]
pub mod schedules;
mod stalls;
mod test_kit;
mod unique;
mod workers;
