//! The registry of tasks (`lua/enlist.lua`), for people and tools. No decision about a job depends on it.

use std::time::{Duration, Instant};

use futures_util::future::join;
use redis::Cmd;

use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::keys;
use super::reply::{PlainCall, Text};
use super::scripts;
use crate::error::{Error, Result, ServerErrorKind};
use crate::limits::stored_score;

/// How often a process registers a task to which it dispatches.
const AGAIN: Duration = Duration::from_secs(60);

/// How long to wait after a failure in a cluster.
const PAUSE: Duration = Duration::from_secs(10);

/// How long this may delay a dispatch.
const PATIENCE: Duration = Duration::from_secs(1);

impl Store {
    pub(crate) async fn register(&self, conn: &mut impl Connection, task: &str) -> Result<()> {
        scripts::ENLIST.on_key(&keys::tasks(&self.prefix)).arg(task).call(conn).await.map(drop)
    }

    /// Adds the tasks that the registry lacks. Its node may have lost the registry and nothing else.
    pub(crate) async fn relist(&self, conn: &mut impl Connection, tasks: &[&str], now_ms: u64) -> Result<()> {
        if tasks.is_empty() {
            return Ok(());
        }
        let seen: Vec<(u64, &&str)> = tasks.iter().map(|task| (now_ms, task)).collect();
        redis::cmd("ZADD").arg(keys::tasks(&self.prefix)).arg("NX").arg(seen).call(conn, "tasks").await
    }

    /// Registers a task once a minute, in case it was forgotten or the registry was lost. This must not fail or delay a
    /// dispatch. After an outage the next dispatch tries again.
    pub(crate) async fn register_once(&self, task: &str) {
        if self.registered.lock().get(task).is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        match self.shared(PATIENCE, async |conn| self.register(conn, task).await).await {
            Err(e) if e.is_outage() => {
                tracing::debug!(%task, error = %e.chain(), "the task could not be added to the list of tasks; will retry");
                // In a cluster the registry is on its own node. While that is unreachable, most dispatches should not
                // wait for it.
                if let Some(soon) = Instant::now().checked_sub(AGAIN - PAUSE).filter(|_| self.is_cluster()) {
                    self.registered.lock().insert(task.to_owned(), soon);
                }
                return;
            }
            Err(e) => tracing::debug!(%task, error = %e.chain(), "the task could not be added to the list of tasks"),
            Ok(()) => {}
        }
        self.registered.lock().insert(task.to_owned(), Instant::now());
    }

    /// Every task, with when a process last registered it, ms.
    pub(crate) async fn tasks(&self, conn: &mut impl Connection) -> Result<Vec<(String, u64)>> {
        let found: Vec<(Text, f64)> =
            Cmd::zrange_withscores(keys::tasks(&self.prefix), 0, -1).call(conn, "tasks").await?;
        Ok(found.into_iter().map(|(Text(task), ms)| (task, stored_score(ms))).collect())
    }

    /// Which nodes of the lists of tasks and of workers are unreachable, and whether they report the cluster as down.
    pub(crate) async fn unreachable_lists(&self, conn: &OwnConnection) -> [Option<(String, bool)>; 2] {
        let looks = [keys::tasks(&self.prefix), keys::workers(&self.prefix)].map(|list| async move {
            let looked =
                redis::cmd("ZRANGE").arg(&list).arg(0).arg(0).call::<Vec<Text>>(&mut conn.clone(), "lists").await;
            let away = looked.err().filter(Error::is_outage)?;
            Some((
                self.place_of(&list).unwrap_or_else(|| "a node that is not known".to_owned()),
                away.server_kind() == Some(ServerErrorKind::ClusterDown),
            ))
        });
        let [tasks, workers] = looks;
        join(tasks, workers).await.into()
    }

    pub(crate) async fn unregister(&self, conn: &mut impl Connection, task: &str) -> Result<()> {
        self.registered.lock().remove(task);
        redis::cmd("ZREM").arg(keys::tasks(&self.prefix)).arg(task).call(conn, "tasks").await
    }
}
