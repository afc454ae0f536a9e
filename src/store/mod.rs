//! The only holder of connections, keys and scripts. Each script has one file here, typed in and out.
//!
//! Dispatch and settle share one multiplexed connection, whoever asks about jobs another, and the reading of values a third;
//! the keeper, the wake block, the cancel hints, each event reader and each large value have their own.

pub(crate) mod address;
pub(crate) mod announce;
pub(crate) mod audited;
pub(crate) mod cancel;
pub(crate) mod close;
pub(crate) mod columns;
pub(crate) mod connection;
pub(crate) mod counts;
pub(crate) mod declare;
pub(crate) mod dispatch;
#[cfg(feature = "testing")]
pub(crate) mod drain;
pub(crate) mod engine;
pub(crate) mod expire;
pub(crate) mod extend_locks;
pub(crate) mod fault;
pub(crate) mod forget;
pub(crate) mod hints;
pub(crate) mod history;
pub(crate) mod inspect;
pub(crate) mod jobs;
pub(crate) mod joint;
pub(crate) mod keys;
pub(crate) mod look;
pub(crate) mod mend;
pub(crate) mod names;
pub(crate) mod note;
pub(crate) mod overview;
pub(crate) mod patience;
pub(crate) mod pause;
pub(crate) mod reconcile;
pub(crate) mod records;
pub(crate) mod registry;
pub(crate) mod remove;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod retry;
pub(crate) mod rights;
pub(crate) mod run_now;
pub(crate) mod scan;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod settle;
pub(crate) mod shrink;
pub(crate) mod slot;
pub(crate) mod states;
pub(crate) mod streams;
pub(crate) mod sweep;
pub(crate) mod told;
pub(crate) mod trim;
pub(crate) mod turns;
pub(crate) mod values;
pub(crate) mod wake;
