//! Wrong inputs, wrong servers, no memory, and shutdown in every moment: each ends in a typed error or a typed outcome, and
//! nothing is half-written, lost or counted.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

// The tests of single scripts use the rest.
#[allow(dead_code)]
#[path = "../scripts/call.rs"]
mod call;

mod acl;
mod foreign;
mod inputs;
mod maxmemory;
mod servers;
mod shutdown;
mod tls;
