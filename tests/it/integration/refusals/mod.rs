//! Wrong inputs, wrong servers, no memory, and shutdown in every moment: each ends in a typed error or a typed outcome, and
//! nothing is half-written, lost or counted.

mod acl;
mod foreign;
mod inputs;
mod maxmemory;
mod roles;
mod servers;
mod shutdown;
mod tls;
