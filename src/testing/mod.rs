//! Support for tests of your own, for demos and benches: contexts without a worker, an App on a private server, and a worker that
//! works until nothing waits.

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
