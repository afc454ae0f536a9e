//! Conditions of servers and of the nodes of a cluster.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::super::text::{many, span};
use crate::unix_time::{as_ms, as_us};

/// What is wrong with a server, or with nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "facts", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ServerCondition {
    /// It does not answer.
    ServerUnreachable { error: String },
    /// It is a replica.
    ServerIsReplica,
    /// It refuses writes, and answers this.
    WritesRefused { answer: String },
    /// It refuses writes, so workers cannot update their presence: which of them live is unknown.
    PresenceUnknown { answer: String, is_primary: bool },
    /// No replica follows it.
    NoReplica,
    /// Some of its replicas have sent nothing for seconds.
    SilentReplicas { replicas: u64, silent: u64 },
    /// `min-replicas-to-write` asks for every replica that there is.
    NoSpareReplica { wanted: u64, replicas: u64 },
    /// Its `maxmemory-policy` evicts keys.
    EvictionPolicy { policy: String },
    /// It has evicted keys since it started.
    KeysEvicted { keys: u64 },
    /// It writes no append-only file.
    NoAppendOnlyFile { has_snapshot: bool, unsaved_writes: u64 },
    /// Its last write to disk failed.
    SaveFailed,
    /// It has no `maxmemory`.
    NoMemoryLimit,
    /// This part of its `maxmemory` is used.
    MemoryFull { percent: u64 },
    /// Its clock and ours differ.
    ClockSkew {
        #[serde(rename = "skew_ms", serialize_with = "as_ms")]
        skew: Duration,
    },
    /// A call takes long compared with the shortest stall interval.
    SlowRoundTrip {
        #[serde(rename = "longest_us", serialize_with = "as_us")]
        longest: Duration,
        #[serde(rename = "interval_ms", serialize_with = "as_ms")]
        interval: Duration,
    },
    /// It started this long ago, without an append-only file.
    ServerRestarted {
        place: String,
        #[serde(rename = "uptime_ms", serialize_with = "as_ms")]
        uptime: Duration,
    },
    /// A node reports that the cluster is down.
    ClusterDown { node: String },
    /// The node with the list of tasks does not answer.
    TaskListUnreachable { node: String },
    /// The node with the list of workers does not answer.
    WorkerListUnreachable { node: String },
    /// The slots of these tasks are moving to another node.
    TasksMoving { tasks: Vec<String> },
    /// Nodes with these tasks, or with the presence of this many live workers, do not answer.
    NodesUnreachable { tasks: Vec<String>, workers: u64 },
}

/// The first names, with how many there are.
pub(super) fn listed(names: &[String]) -> String {
    let first = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > 5 { ", …" } else { "" };
    format!("{}: {first}{more}", many(names.len() as u64, "task"))
}

impl fmt::Display for ServerCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerUnreachable { error } => write!(f, "the server does not answer: {error}"),
            Self::ServerIsReplica => f.write_str("the server is a replica, which takes no writes"),
            Self::WritesRefused { answer } => write!(f, "the server refuses writes: {answer}"),
            Self::PresenceUnknown { answer, is_primary: true } => {
                write!(f, "which workers live is unknown, since the server refuses writes: {answer}")
            }
            Self::PresenceUnknown { answer, is_primary: false } => {
                write!(f, "which workers live is unknown, since the server is a replica: {answer}")
            }
            Self::NoReplica => f.write_str("the server has no replica"),
            Self::SilentReplicas { replicas, silent } => {
                write!(f, "{silent} of {} sent nothing for some seconds", many(*replicas, "replica"))
            }
            Self::NoSpareReplica { wanted, replicas } => write!(
                f,
                "writes need {} (min-replicas-to-write), and the server has {replicas}",
                many(*wanted, "replica")
            ),
            Self::EvictionPolicy { policy } => write!(f, "the maxmemory-policy is {policy}"),
            Self::KeysEvicted { keys } => write!(f, "the server has evicted {} since it started", many(*keys, "key")),
            Self::NoAppendOnlyFile { has_snapshot: true, unsaved_writes } => write!(
                f,
                "the server writes no append-only file: a crash loses {} since the last snapshot",
                many(*unsaved_writes, "write")
            ),
            Self::NoAppendOnlyFile { .. } => {
                f.write_str("the server writes no append-only file and has no snapshot: a restart may lose every job")
            }
            Self::SaveFailed => f.write_str("the last write to disk failed"),
            Self::NoMemoryLimit => f.write_str("the server has no maxmemory"),
            Self::MemoryFull { percent } if *percent >= 100 => {
                write!(f, "{percent} % of maxmemory is used: dispatches are refused")
            }
            Self::MemoryFull { percent } => write!(f, "{percent} % of maxmemory is used"),
            Self::ClockSkew { skew } => write!(f, "the clock differs from that of this machine by {}", span(*skew)),
            Self::SlowRoundTrip { longest, interval } => write!(
                f,
                "a call takes up to {}, and the shortest stall interval is {}",
                span(*longest),
                span(*interval)
            ),
            Self::ServerRestarted { place, uptime } => {
                write!(f, "the server {place} started {} ago without an append-only file", span(*uptime))
            }
            Self::ClusterDown { node } => {
                write!(f, "{node} reports that the cluster is down: tasks and live workers are unknown")
            }
            Self::TaskListUnreachable { node } => {
                write!(f, "the node with the list of tasks ({node}) does not answer: the tasks are unknown")
            }
            Self::WorkerListUnreachable { node } => {
                write!(f, "the node with the list of workers ({node}) does not answer: which workers live is unknown")
            }
            Self::TasksMoving { tasks } => write!(f, "slots are moving to another node: {}", listed(tasks)),
            Self::NodesUnreachable { tasks, workers } => {
                f.write_str("nodes of the cluster do not answer: ")?;
                if !tasks.is_empty() {
                    write!(f, "{}", listed(tasks))?;
                }
                if *workers > 0 {
                    let and = if tasks.is_empty() { "" } else { "; " };
                    write!(f, "{and}the presence of {}", many(*workers, "live worker"))?;
                }
                Ok(())
            }
        }
    }
}

impl ServerCondition {
    pub(super) fn hint(&self, _task: &str) -> String {
        match self {
            Self::ServerUnreachable { .. } => {
                "jobs of its tasks wait until it is back, or its replica is promoted: see `redis-cli CLUSTER NODES`"
            }
            Self::ServerIsReplica => "connect to the primary",
            Self::WritesRefused { .. } => {
                "no job is dispatched, claimed or reported until it takes writes: NOREPLICAS needs a replica, MISCONF room on its disk, \
                 CLUSTERDOWN the missing node or `cluster-require-full-coverage no`"
            }
            Self::PresenceUnknown { .. } => {
                "workers cannot update their presence. Recover nothing by hand; look again when the server takes writes"
            }
            Self::NoReplica => {
                "all jobs are lost with its host: add a replica, or an append-only file on a disk that survives the host"
            }
            Self::SilentReplicas { .. } => {
                "check them: what they lack is lost with the primary, and dispatches that wait for replicas fail"
            }
            Self::NoSpareReplica { .. } => {
                "add one replica more than that, or `CONFIG SET min-replicas-to-write 0`: after one failover every write is refused"
            }
            Self::EvictionPolicy { .. } => {
                "`CONFIG SET maxmemory-policy noeviction`, then `CONFIG REWRITE`: an evicted key is a column of all jobs of a task"
            }
            Self::KeysEvicted { .. } => "run `heartline audit` to see whether keys of tasks are damaged",
            Self::NoAppendOnlyFile { .. } => {
                "`CONFIG SET appendonly yes`, then `CONFIG REWRITE`: else the next start ignores the file. A crash then loses about a second"
            }
            Self::SaveFailed => "read its log: the disk may be full",
            Self::NoMemoryLimit => {
                "set maxmemory to about 70 % of the memory of the host, else the system may kill the server"
            }
            Self::MemoryFull { percent } if *percent >= 100 => {
                "raise maxmemory, or remove ended jobs (`heartline task purge TASK --state completed`); outcomes are still recorded"
            }
            Self::MemoryFull { .. } => "raise maxmemory, or keep ended jobs for less time: dispatches are refused when it is full",
            Self::ClockSkew { .. } => "let both follow NTP: people compare these times, Heartline does not",
            Self::SlowRoundTrip { .. } => "use a longer StallOptions::interval, or a closer server",
            Self::ServerRestarted { .. } => {
                "changes after its last snapshot are lost: jobs may be missing, and jobs that ended since may run again"
            }
            Self::ClusterDown { .. } => {
                "a node with slots is down. Restore it or promote its replica; `heartline doctor` names it. With \
                 `cluster-require-full-coverage no` the other nodes keep answering"
            }
            Self::TaskListUnreachable { .. } => {
                "tasks on other nodes may continue; name one: `heartline task show NAME`, `heartline jobs list -t NAME`"
            }
            Self::WorkerListUnreachable { .. } => {
                "workers continue with tasks on other nodes; starting workers wait until the node is back or its replica is promoted"
            }
            Self::TasksMoving { .. } => {
                "their jobs are not dispatched, claimed or reported until the move ends; if it is stuck, run `redis-cli --cluster fix`"
            }
            Self::NodesUnreachable { .. } => {
                "these tasks wait until the node is back or its replica is promoted (`heartline doctor` names it); nothing is damaged, and \
                 whether those workers live is unknown"
            }
        }
        .to_owned()
    }
}
