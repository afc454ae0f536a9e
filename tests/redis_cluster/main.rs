//! Three primaries with a replica each: real servers, which are killed, frozen and failed over, and give their slots away.

#![cfg(test)]
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod cluster_anew;
mod cluster_api;
mod cluster_away;
mod cluster_columns;
mod cluster_connections;
mod cluster_cuts;
mod cluster_failovers;
mod cluster_rights;
mod cluster_risk;
mod cluster_workflows;
mod six;
