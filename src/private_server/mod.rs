//! A private Redis server, or a cluster of them, for tests, examples and benches (feature `private-server`).
//!
//! [`RedisServer`] runs `redis-server` on a free port of the loopback interface, with a temporary directory of its own. It shares nothing
//! with other servers. It ends when the value is dropped, and also when this process dies without running destructors. [`redis_url`] is a
//! shortcut for programs that use `REDIS_URL` if it is set. [`RedisCluster`] runs six servers as a Redis Cluster.
//!
//! Needs a Unix-like system and `redis-server` or `valkey-server`; [`RedisServer::start`] says where it searches.

mod cluster;
mod env_url;
mod host;
mod probe;
mod server;
mod start_error;

pub use cluster::RedisCluster;
pub use env_url::redis_url;
pub use host::SERVER_VARIABLE;
pub use server::{RedisServer, RedisServerBuilder};
pub use start_error::StartError;
