//! The Redis server: its version, persistence, replication and round trip.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use crate::backend::keys::{Key, tasks};
use crate::backend::server::{ServerLook, look_at_all};
use crate::error::Error;
use crate::unix_time::{as_ms, as_us, at_ms, ms_since_1970};

/// A Redis server at the time of the call. Values that it does not report are `None` or 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerReport {
    /// Its address, without secrets. For a cluster node `host:port`.
    pub place: String,
    /// Why it could not be read, if so. The other fields are then not valid. One cluster node may be down while the others work.
    pub fault: Option<String>,
    /// `redis` or `valkey`, as it reports.
    pub name: String,
    /// Its version. For Valkey, the version of Valkey.
    pub version: String,
    /// How long it has run.
    #[serde(rename = "uptime_ms", serialize_with = "as_ms")]
    pub uptime: Duration,
    /// Its clock.
    #[serde(rename = "clock_ms", serialize_with = "ms_since_1970")]
    pub clock: SystemTime,
    /// The median round trip of some short calls.
    #[serde(rename = "round_trip_us", serialize_with = "as_us")]
    pub round_trip: Duration,
    /// The longest of these round trips.
    #[serde(rename = "longest_round_trip_us", serialize_with = "as_us")]
    pub longest_round_trip: Duration,
    /// Whether it is a primary, and not a replica.
    pub is_primary: bool,
    /// The number of its replicas.
    pub replicas: u64,
    /// How many replicas have sent nothing for 4 s or longer. They may be frozen.
    pub silent_replicas: u64,
    /// How many replicas it requires for writes (`min-replicas-to-write`), if any. 1 if the number is unknown.
    pub wanted_replicas: Option<u64>,
    /// Whether it has been a replica since its start. Its data is then that of its former primary.
    pub has_followed: bool,
    /// The memory in use, bytes.
    pub used_memory: u64,
    /// The memory limit, bytes. 0 if there is none.
    pub max_memory: u64,
    /// What it does at the memory limit: `noeviction` or another policy.
    pub eviction_policy: String,
    /// Keys evicted since its start.
    pub evicted_keys: u64,
    /// Whether it writes an append-only file.
    pub has_append_only_file: bool,
    /// Whether it last wrote both its snapshot and its append-only file without an error.
    pub is_saved_well: bool,
    /// Writes since the last snapshot.
    pub unsaved_writes: u64,
    /// Whether it has written a snapshot since its start.
    pub has_snapshot: bool,
    /// Connected clients.
    pub clients: u64,
    /// Its error answer to a write, if it refuses writes.
    pub write_refusal: Option<String>,
}

impl Inspector {
    /// Each server: the single one, or every primary of a cluster. Measures the round trips from this process.
    pub async fn servers(&self) -> Result<Vec<ServerReport>, Error> {
        let names = match self.task_names().await {
            Err(e) if self.hides_all(&e) => return Err(e),
            // Report the servers even if the list of tasks cannot be read.
            names => names.unwrap_or_default(),
        };
        let keys = names.iter().map(|name| self.store.tables(name).first().get(Key::Delayed).to_owned());
        let keys: Vec<String> = std::iter::once(tasks(self.store.prefix())).chain(keys).collect();
        let looks = self.look(async |conn| look_at_all(conn, &keys).await);
        let reports = looks.await?.into_iter().map(|(place, look)| {
            let place = if place.is_empty() { self.store.place().to_string() } else { place };
            match look {
                Ok(look) => ServerReport::of(place, look),
                Err(e) => {
                    let (fault, name) = (Some(e.chain().to_string()), String::new());
                    ServerReport { fault, name, ..ServerReport::of(place, ServerLook::nothing()) }
                }
            }
        });
        Ok(reports.collect())
    }
}

impl ServerReport {
    fn of(place: String, mut look: ServerLook) -> ServerReport {
        let text = |field: &str| look.info.get::<String>(field);
        let number = |field: &str| look.info.get::<u64>(field).unwrap_or(0);
        let is_ok = |field: &str| text(field).is_none_or(|status| status == "ok");
        // In Valkey, `redis_version` is the Redis version with which it is compatible.
        let valkey = text("valkey_version");
        look.round_trips.sort_unstable();
        let middle = look.round_trips.get(look.round_trips.len() / 2).copied().unwrap_or_default();
        ServerReport {
            place,
            fault: None,
            name: if valkey.is_some() { "valkey" } else { "redis" }.to_owned(),
            version: valkey.or_else(|| text("redis_version")).unwrap_or_default(),
            uptime: Duration::from_secs(number("uptime_in_seconds")),
            clock: at_ms(look.now_ms),
            round_trip: middle,
            longest_round_trip: look.round_trips.last().copied().unwrap_or_default(),
            is_primary: text("role").is_none_or(|role| role == "master"),
            replicas: number("connected_slaves"),
            silent_replicas: (0..number("connected_slaves"))
                .filter_map(|replica| text(&format!("slave{replica}")))
                .filter(|said| is_silent(said))
                .count() as u64,
            wanted_replicas: look.wanted_replicas,
            // From Redis 7.0 on, the second offset survives a restart, so it proves nothing.
            has_followed: match text("total_net_repl_input_bytes") {
                Some(bytes) => bytes != "0",
                None => text("second_repl_offset").is_some_and(|offset| offset != "-1"),
            },
            used_memory: number("used_memory"),
            max_memory: number("maxmemory"),
            eviction_policy: text("maxmemory_policy").unwrap_or_default(),
            evicted_keys: number("evicted_keys"),
            has_append_only_file: number("aof_enabled") == 1,
            is_saved_well: is_ok("rdb_last_bgsave_status") && is_ok("aof_last_write_status"),
            unsaved_writes: number("rdb_changes_since_last_save"),
            has_snapshot: text("rdb_last_bgsave_time_sec").is_some_and(|seconds| seconds != "-1"),
            clients: number("connected_clients"),
            write_refusal: look.refusal,
        }
    }
}

/// Whether a replica has been silent for seconds, by its line of `INFO replication`. A healthy one reports every second.
fn is_silent(said: &str) -> bool {
    let lag = said.split(',').find_map(|word| word.strip_prefix("lag=")?.parse::<u64>().ok());
    lag.is_some_and(|seconds| seconds >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_silent_by_what_the_server_last_heard_of_it() {
        let said = |lag: u64| format!("ip=127.0.0.1,port=7001,state=online,offset=1200,lag={lag}");
        assert!(!is_silent(&said(0)) && !is_silent(&said(1)) && is_silent(&said(4)));
        assert!(!is_silent("ip=127.0.0.1,port=7001,state=wait_bgsave,offset=0"));
    }
}
