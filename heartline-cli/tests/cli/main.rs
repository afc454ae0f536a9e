//! The command line, as people and programs use it, on real servers and workers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod acts;
mod cluster;
#[cfg(unix)]
mod demo;
#[cfg(target_os = "linux")]
mod explain;
mod find;
mod flows;
mod fuzz;
#[path = "../../../tests/it/fuzz/hostile.rs"]
mod hostile;
mod lanes;
#[cfg(target_os = "linux")]
mod lost_workers;
#[cfg(feature = "mcp")]
mod mcp;
mod metrics;
mod monitoring;
mod production;
mod reads;
mod rights;
mod run;
mod schedules;
mod tls;
#[cfg(target_os = "linux")]
mod top;
#[path = "../../../tests/it/support/turn.rs"]
mod turn;
mod unique;
mod usage;
#[cfg(target_os = "linux")]
mod work;
