//! `lua/take_name.lua`: exclusive names of workers.

use super::connection::Connection;
use super::engine::Store;
use super::fault::classify;
use super::keys::{self, TaskKeys};
use super::reply::Text;
use super::scripts;
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

    /// Asks the worker that had the name to stop: it reads that in its presence, and looks at once where the hint on the channel of one of
    /// its tasks reaches it.
    pub(crate) async fn ask_to_stop(
        &self,
        conn: &mut impl Connection,
        worker: &str,
        by: &str,
        task: &TaskKeys,
    ) -> Result<(), Error> {
        let mut ask = redis::cmd("HSET");
        ask.arg(keys::worker(&self.prefix, worker)).arg("successor").arg(by);
        ask.query_async::<()>(conn).await.map_err(|e| classify("presence", e))?;
        let mut hint = redis::cmd("PUBLISH");
        hint.arg(task.cancel_channel()).arg(worker);
        hint.query_async::<()>(conn).await.map_err(|e| classify("cancel hints", e))
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
