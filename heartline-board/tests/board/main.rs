//! The board over HTTP, as a browser uses it, on real servers and workers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod acts;
mod cluster;
mod dispatch;
mod find;
mod flows;
mod fuzz;
#[path = "../../../tests/it/fuzz/hostile.rs"]
mod hostile;
mod lanes;
mod lists;
mod live;
mod long;
mod pages;
mod safety;
mod schedules;
mod site;
#[path = "../../../tests/it/support/turn.rs"]
mod turn;
mod workers;
