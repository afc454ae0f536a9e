//! Three primaries with a replica each: real servers, which are killed, frozen and failed over, and give their slots away.

mod anew;
mod api;
mod away;
mod columns;
mod connections;
mod cuts;
mod failovers;
mod rights;
mod risk;
mod six;
mod workflows;
