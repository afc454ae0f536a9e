//! Helpers for your own tests, demos and benches: contexts without a worker, an app with its own server, and a worker that runs until
//! no job waits.

mod app;
mod context;
mod drain;

#[doc(no_inline)]
pub use crate::private_server::{
    RedisCluster, RedisServer, RedisServerBuilder, SERVER_VARIABLE, StartError, redis_url,
};
pub use app::{TestApp, TestAppError};
pub use context::TestContext;
pub use drain::Drained;
