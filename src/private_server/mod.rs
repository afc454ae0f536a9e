//! A private Redis server, or a cluster of them, for tests, examples and benches (feature `private-server`).
//!
//! [`RedisServer`] runs `redis-server` on a free port of the loopback interface, with its own temporary directory and
//! nothing shared with any other server. It ends with its value, and also when this process dies in a way that runs no
//! destructor. [`redis_url`] is the short form for programs that use `REDIS_URL` when it is set. [`RedisCluster`] runs six of them as
//! a Redis Cluster.
//!
//! Needs a Unix-like system and a `redis-server` or `valkey-server` program; see [`RedisServer::start`] for where it is
//! looked for.

mod cluster;
mod server;

pub use cluster::RedisCluster;
pub use server::{RedisServer, RedisServerBuilder, SERVER_VARIABLE, StartError, redis_url};
