//! Wrong inputs, wrong servers, full memory, and shutdown at every moment: each ends in a typed error or outcome, with
//! no partial write, loss or count.

mod acl;
mod foreign;
mod inputs;
mod maxmemory;
mod roles;
mod servers;
mod shutdown;
mod tls;
