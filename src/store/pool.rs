//! The pool of connections for calls that are neither hot nor blocking nor large.

use std::time::Duration;

use bb8_redis::bb8;

use super::{CONNECT_TIMEOUT, OwnConnection, connect};
use crate::error::{Error, classify};

/// The most connections of the pool.
const MOST: u32 = 8;

/// How long an idle connection may take to show that it is still there, before it is replaced.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes the connections of a pool. The manager of `bb8-redis` has times built in that large fleets and slow lines exceed.
#[derive(Debug)]
pub(super) struct Manager(redis::Client);

/// A connection of the pool.
#[derive(Debug)]
pub(super) struct Pooled {
    pub(super) conn: OwnConnection,
    /// A call failed on it, so that it is not used again.
    pub(super) broken: bool,
}

/// A pool that has no connection yet.
pub(super) fn new(client: redis::Client) -> bb8::Pool<Manager> {
    bb8::Pool::builder().max_size(MOST).connection_timeout(CONNECT_TIMEOUT).build_unchecked(Manager(client))
}

impl bb8::ManageConnection for Manager {
    type Connection = Pooled;
    type Error = Error;

    async fn connect(&self) -> Result<Pooled, Error> {
        Ok(Pooled { conn: connect(&self.0, None).await?, broken: false })
    }

    async fn is_valid(&self, pooled: &mut Pooled) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        let answer = tokio::time::timeout(PING_TIMEOUT, ping.query_async::<()>(&mut pooled.conn)).await;
        answer.map_err(|_| Error::timed_out())?.map_err(|e| classify("ping", e))
    }

    fn has_broken(&self, pooled: &mut Pooled) -> bool {
        pooled.broken
    }
}
