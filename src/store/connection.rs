//! What a call goes over.

pub(crate) use redis::aio::{ConnectionLike as Connection, MultiplexedConnection as OwnConnection};
