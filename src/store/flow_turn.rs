//! `lua/flow_turn.lua`: which workflows somebody is to look after.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::engine::Store;
use super::fault::classify;
use super::keys::{self, TaskKeys};
use super::reply::Text;
use super::scripts;
use super::tables::Tables;
use crate::error::Error;
use crate::times::to_ms;

/// The most workflows that a worker takes at a time.
const TAKEN: usize = 20;

impl Store {
    /// The keys of a workflow.
    pub(crate) fn workflow(&self, name: &str) -> TaskKeys {
        TaskKeys::of_workflow(&self.prefix, name, self.is_cluster())
    }

    /// The table of a workflow, for whoever reads its events.
    pub(crate) fn workflow_tables(&self, name: &str) -> Arc<Tables> {
        self.tables(&keys::workflow_tag(name))
    }

    /// Puts workflows among those that are looked after.
    pub(crate) async fn list_workflows(&self, conn: &mut impl Connection, names: &[&str]) -> Result<(), Error> {
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(keys::flows(&self.prefix)).arg("NX");
        for name in names {
            // Due at once, where it is new.
            cmd.arg(0).arg(name);
        }
        cmd.query_async(conn).await.map_err(|e| classify("flows", e))
    }

    /// Notes that a workflow was looked after just now.
    pub(crate) async fn looked_after(&self, conn: &mut impl Connection, name: &str) -> Result<(), Error> {
        scripts::ENLIST.on_key(&keys::flows(&self.prefix)).arg(name).call(conn).await.map(drop)
    }

    /// Takes those that nobody has looked after for so long. Returns whether there may be more.
    pub(crate) async fn take_workflows(
        &self,
        conn: &mut impl Connection,
        pause: Duration,
    ) -> Result<(Vec<String>, bool), Error> {
        let mut call = scripts::FLOW_TURN.on_key(&keys::flows(&self.prefix));
        call.arg(to_ms(pause)).arg(TAKEN);
        let mut reply = call.call(conn).await?;
        let _: String = reply.next()?;
        let names: Vec<String> = reply.rest::<Text>()?.into_iter().map(|Text(name)| name).collect();
        let more = names.len() >= TAKEN;
        Ok((names, more))
    }
}
