//! The ground for a fault: a server that only one test uses, a task on it, and what is in front of the server.

pub use crate::integration::fixtures::alone;
use crate::support::task::TestTask;
use crate::support::{Line, Proxy, TestRedis};

pub async fn proxied() -> (TestRedis, TestTask, Proxy) {
    let (redis, test) = alone();
    let proxy = Proxy::start(redis.address()).await;
    (redis, test, proxy)
}

pub async fn far_away() -> (TestRedis, TestTask, Line) {
    let (redis, test) = alone();
    let line = Line::start(redis.address()).await;
    (redis, test, line)
}
