//! Presence: what a worker reports about itself (`lua/enlist.lua`, `lua/announce.lua`), how its calls end
//! (`lua/close.lua`), and its exclusive name (`lua/take_name.lua`).

use std::collections::BTreeMap;

use futures_util::future::join;
use redis::Cmd;

use super::call_context;
use super::connection::{Connection, OwnConnection};
use super::engine::Store;
use super::keys::{self, TaskKeys};
use super::reply::PlainCall;
use super::scripts;
use super::settle::SEQUENCES;
use super::streams;
use crate::error::Result;
use crate::join::join_all;
use crate::limits::BATCH;

/// In a cluster, bounds a call to one node. If that node is unreachable, the calls to other nodes should still be made.
async fn in_time(is_routed: bool, call: impl Future<Output = Result<()>>) -> Result<()> {
    if !is_routed {
        return call.await;
    }
    tokio::time::timeout(streams::NODE_PATIENCE, call).await.unwrap_or_else(|_| Err(call_context::timed_out()))
}

/// Adds the worker to a list, with the server's time.
async fn enlist(conn: &mut OwnConnection, list: &str, worker: &str) -> Result<()> {
    let is_routed = conn.is_routed();
    let mut enlist = scripts::ENLIST.on_key(list);
    in_time(is_routed, async { enlist.arg(worker).call(conn).await.map(drop) }).await
}

/// Closes the call sequences of workers that have stopped or are dead. There may be thousands if a process dies at each start.
pub(super) async fn close_calls(
    conn: &mut impl Connection,
    keys: &TaskKeys,
    workers: &[impl AsRef<str>],
) -> Result<()> {
    for some in workers.chunks(BATCH) {
        let sequences =
            some.iter().flat_map(|worker| SEQUENCES.map(|sequence| format!("{}{sequence}", worker.as_ref())));
        scripts::CLOSE.on(keys).args(sequences).call(conn).await?;
    }
    Ok(())
}

impl Store {
    /// Adds the worker to the list of workers. Do this first: a worker that is not listed is never removed, and its
    /// death is never found.
    pub(crate) async fn enlist(&self, conn: &mut OwnConnection, worker: &str) -> Result<()> {
        enlist(conn, &keys::workers(&self.prefix), worker).await
    }

    /// Writes the worker's presence, and when it was seen.
    pub(crate) async fn announce(
        &self,
        conn: &mut OwnConnection,
        worker: &str,
        fields: &[(String, String)],
    ) -> Result<()> {
        let boot_id = fields.iter().find(|(name, _)| name == "bootId").map(|(_, boot_id)| boot_id);
        let lists = boot_id.map(|boot_id| keys::boot(&self.prefix, boot_id));
        let mut away = None;
        for list in lists.into_iter().chain([keys::workers(&self.prefix)]) {
            match enlist(conn, &list, worker).await {
                // In a cluster each list is on its own node. If one is unreachable, write the others.
                Err(e) if conn.is_routed() && e.is_outage() => away = Some(e),
                answer => drop(answer?),
            }
        }
        scripts::ANNOUNCE.on_key(&keys::worker(&self.prefix, worker)).arg(fields).call(conn).await?;
        away.map_or(Ok(()), Err)
    }

    /// Records that the worker has stopped, and how many jobs of each task it still holds. Its later calls are refused.
    /// Its records are removed an hour later.
    pub(crate) async fn close(
        &self,
        conn: &mut OwnConnection,
        worker: &str,
        tasks: &[(&str, &TaskKeys, usize)],
        boot_id: Option<&str>,
        phase: &str,
    ) -> Result<()> {
        // All at once: a round trip may take long.
        let closes = tasks.iter().map(|(_, keys, _)| {
            let mut conn = conn.clone();
            async move { close_calls(&mut conn, keys, &[worker]).await }
        });
        let leave = async {
            // Remove it from the list of its boot: a worker that has stopped needs no proof of death.
            let Some(boot_id) = boot_id else { return Ok(()) };
            let key = keys::boot(&self.prefix, boot_id);
            redis::cmd("ZREM").arg(key).arg(worker).call(&mut conn.clone(), "presence").await
        };
        let is_routed = conn.is_routed();
        let closes = join_all(closes.map(|close| in_time(is_routed, close)));
        let (mut answers, left) = join(closes, in_time(is_routed, leave)).await;
        answers.push(left);
        let mut away = None;
        for answer in answers {
            match answer {
                Err(e) if is_routed && e.is_outage() => away = Some(e),
                answer => answer?,
            }
        }
        let now = streams::server_time_ms(conn).await?;
        // The task names are needed to remove the worker's records later. The server may have lost the names that the
        // worker wrote before.
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        tasks.iter().for_each(|(name, _, jobs)| *held.entry(name).or_default() += jobs);
        let names: Vec<&str> = held.keys().copied().collect();
        let mut fields = vec![("stoppedAt".to_owned(), now.to_string()), ("tasks".to_owned(), names.join(" "))];
        fields.push(("phase".to_owned(), phase.to_owned()));
        fields.extend(held.iter().map(|(name, jobs)| (format!("held:{name}"), jobs.to_string())));
        self.announce(conn, worker, &fields).await?;
        away.map_or(Ok(()), Err)
    }

    /// Records in the presence of a worker that it is dead, and the proof. Does nothing if there is no presence.
    pub(crate) async fn note_death(&self, conn: &mut OwnConnection, worker: &str, by: &str, proof: &str) -> Result<()> {
        let key = keys::worker(&self.prefix, worker);
        let (seen, noted): (Option<f64>, Option<f64>) =
            redis::cmd("HMGET").arg(&key).arg("lastSeenAt").arg("deadAt").call(conn, "presence").await?;
        // Keep the first record, unless the worker was seen again after it.
        if seen.is_none_or(|seen| noted.is_some_and(|noted| noted >= seen)) {
            return Ok(());
        }
        let now = streams::server_time_ms(conn).await?;
        let words = [("deadSays", by), ("deadProof", proof)];
        redis::cmd("HSET").arg(&key).arg("deadAt").arg(now).arg(&words).call(conn, "presence").await
    }

    /// Takes an exclusive name for the worker. Returns the former owners that still have to be dropped.
    pub(crate) async fn take_name(&self, conn: &mut impl Connection, name: &str, worker: &str) -> Result<Vec<String>> {
        scripts::TAKE_NAME.on_key(&keys::name(&self.prefix, name)).arg(worker).answer(conn).await?.texts()
    }

    /// Asks the former owner of the name to stop: it reads the request in its presence. A hint on the channel of one of
    /// its tasks makes it look at once.
    pub(crate) async fn ask_to_stop(
        &self,
        conn: &mut impl Connection,
        worker: &str,
        by: &str,
        task: &TaskKeys,
    ) -> Result<()> {
        Cmd::hset(keys::worker(&self.prefix, worker), "successor", by).call::<()>(conn, "presence").await?;
        self.hint_worker(conn, worker, task).await
    }

    /// Drops former owners of the name.
    pub(crate) async fn drop_names(&self, conn: &mut impl Connection, name: &str, workers: &[String]) -> Result<()> {
        redis::cmd("ZREM").arg(keys::name(&self.prefix, name)).arg(workers).call(conn, "take_name").await
    }
}
