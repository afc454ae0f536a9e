//! `lua/take_name.lua`: exclusive names of workers.

use super::connection::Connection;
use super::engine::Store;
use super::fault::classify;
use super::keys;
use super::scripts::{self, Text};
use crate::error::Error;

impl Store {
    /// Takes the name for the worker. Returns who had it before and is not done with.
    pub(crate) async fn take_name(
        &self,
        conn: &mut impl Connection,
        name: &str,
        worker: &str,
    ) -> Result<Vec<String>, Error> {
        let mut take = scripts::TAKE_NAME.on_key(&keys::name(&self.prefix, name));
        let mut reply = take.arg(worker).call(conn).await?;
        let _: String = reply.next()?;
        Ok(reply.rest::<Text>()?.into_iter().map(|Text(worker)| worker).collect())
    }

    /// Those who had the name before are done with.
    pub(crate) async fn drop_names(
        &self,
        conn: &mut impl Connection,
        name: &str,
        workers: &[String],
    ) -> Result<(), Error> {
        let mut cmd = redis::cmd("ZREM");
        cmd.arg(keys::name(&self.prefix, name)).arg(workers);
        cmd.query_async(conn).await.map_err(|e| classify("take_name", e))
    }
}
