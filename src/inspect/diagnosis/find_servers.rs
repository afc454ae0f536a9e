//! Finds what is wrong with servers and with nodes of a cluster.

use std::time::{Duration, SystemTime};

use super::super::lists::UnreachableLists;
use super::super::server::ServerReport;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::finding::{Diagnosis, Severity};
use super::server::ServerCondition;
use crate::error::ServerErrorKind;

/// Times that people compare are wrong from this difference on.
const SKEW: Duration = Duration::from_secs(2);

/// From this part of the memory on there is little left for a burst of jobs, in percent.
const FULL: u64 = 80;

/// A restart is reported for this long.
const RECENT: Duration = Duration::from_secs(3600);

/// The uptime of a server is known to the second.
const UPTIME_PRECISION: Duration = Duration::from_secs(2);

/// What is wrong with each server; with the name of the server, if there are several.
pub(super) fn of_servers(servers: &[ServerReport], now: SystemTime) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for server in servers {
        let mut own = of_server(server, now);
        if servers.len() > 1 {
            own.iter_mut().for_each(|diagnosis| diagnosis.server = Some(server.place.clone()));
        }
        found.extend(own);
    }
    found
}

/// What is wrong with a server.
pub(super) fn of_server(server: &ServerReport, now: SystemTime) -> Vec<Diagnosis> {
    if let Some(error) = &server.fault {
        return vec![Diagnosis::risk(None, ServerCondition::ServerUnreachable { error: error.clone() })];
    }
    let mut found = Vec::new();
    let mut push = |severity, condition: ServerCondition| {
        found.push(Diagnosis { severity, ..Diagnosis::risk(None, condition) });
    };
    let (replicas, silent) = (server.replicas, server.silent_replicas);
    match (server.is_primary, replicas) {
        (false, _) => push(Severity::Risk, ServerCondition::ServerIsReplica),
        (true, 0) => push(Severity::Note, ServerCondition::NoReplica),
        (true, _) if silent > 0 => push(Severity::Note, ServerCondition::SilentReplicas { replicas, silent }),
        (true, _) => {}
    }
    if let Some(wanted) = server.wanted_replicas.filter(|wanted| server.is_primary && replicas <= *wanted) {
        push(Severity::Note, ServerCondition::NoSpareReplica { wanted, replicas });
    }
    if let Some(answer) = server.write_refusal.clone().filter(|_| server.is_primary) {
        push(Severity::Risk, ServerCondition::WritesRefused { answer });
    }
    if server.eviction_policy != "noeviction" {
        let policy = server.eviction_policy.clone();
        // Volatile policies evict keys with a TTL only, and Heartline sets none.
        let severity = if policy.starts_with("allkeys") { Severity::Risk } else { Severity::Note };
        push(severity, ServerCondition::EvictionPolicy { policy });
    }
    if server.evicted_keys > 0 {
        push(Severity::Risk, ServerCondition::KeysEvicted { keys: server.evicted_keys });
    }
    if !server.has_append_only_file {
        let (has_snapshot, unsaved_writes) = (server.has_snapshot, server.unsaved_writes);
        push(Severity::Note, ServerCondition::NoAppendOnlyFile { has_snapshot, unsaved_writes });
    }
    if !server.is_saved_well {
        push(Severity::Risk, ServerCondition::SaveFailed);
    }
    match (server.used_memory * 100).checked_div(server.max_memory) {
        None => push(Severity::Note, ServerCondition::NoMemoryLimit),
        Some(percent) if percent >= FULL => push(Severity::Risk, ServerCondition::MemoryFull { percent }),
        Some(_) => {}
    }
    let skew = server.clock.duration_since(now).unwrap_or_else(|e| e.duration());
    if skew > SKEW {
        push(Severity::Note, ServerCondition::ClockSkew { skew });
    }
    found
}

/// Whether a call takes too long for the shortest stall interval: a heartbeat, sent each third of it, should be answered within half of that.
pub(super) fn of_round_trip(servers: &[ServerReport], tasks: &[TaskReport]) -> Option<Diagnosis> {
    let longest = servers.iter().map(|server| server.longest_round_trip).max()?;
    let interval = tasks.iter().flat_map(|task| &task.parts).filter_map(|part| part.interval).min()?;
    let is_slow = longest > interval / 6;
    is_slow.then(|| Diagnosis::risk(None, ServerCondition::SlowRoundTrip { longest, interval }))
}

/// If a server refuses writes, no worker can update its presence, and which of them live is unknown.
pub(super) fn presence_unknown(servers: &[ServerReport]) -> Option<ServerCondition> {
    let (server, answer) = servers.iter().find_map(|server| Some((server, server.write_refusal.clone()?)))?;
    Some(ServerCondition::PresenceUnknown { answer, is_primary: server.is_primary })
}

/// Whether a server restarted recently without an append-only file, while workers were live.
pub(super) fn restarted(server: &ServerReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    let started = server.clock.checked_sub(server.uptime)?;
    let is_older = |worker: &WorkerReport| {
        let before = worker.started_at.and_then(|at| started.duration_since(at).ok());
        worker.state.is_live() && before.is_some_and(|before| before > UPTIME_PRECISION)
    };
    // A server that has followed another one has its data.
    let keeps_data = server.has_followed || server.has_append_only_file;
    if server.fault.is_some() || keeps_data || server.uptime > RECENT || !workers.iter().any(is_older) {
        return None;
    }
    let (place, uptime) = (server.place.clone(), server.uptime);
    Some(Diagnosis::note(None, ServerCondition::ServerRestarted { place, uptime }))
}

/// The lists across all tasks that cannot be read.
pub(super) fn of_lists(away: &UnreachableLists) -> Vec<Diagnosis> {
    let conditions: Vec<ServerCondition> = match &away.says_down {
        Some(node) => vec![ServerCondition::ClusterDown { node: node.clone() }],
        None => {
            let tasks = away.tasks.clone().map(|node| ServerCondition::TaskListUnreachable { node });
            let workers = away.workers.clone().map(|node| ServerCondition::WorkerListUnreachable { node });
            tasks.into_iter().chain(workers).collect()
        }
    };
    conditions.into_iter().map(|condition| Diagnosis::risk(None, condition)).collect()
}

/// Tasks and workers whose nodes of the cluster do not answer, or whose slots are moving.
pub(super) fn of_nodes(tasks: &[TaskReport], workers: &[WorkerReport]) -> Vec<Diagnosis> {
    let (moving, away): (Vec<&TaskReport>, Vec<&TaskReport>) = tasks
        .iter()
        .filter(|task| task.is_unreachable)
        .partition(|task| task.fault_kind == Some(ServerErrorKind::TryAgain));
    let names = |tasks: Vec<&TaskReport>| tasks.into_iter().map(|task| task.task.clone()).collect::<Vec<String>>();
    let workers = workers.iter().filter(|worker| worker.is_unreachable && worker.state.is_live()).count() as u64;
    let mut found = Vec::new();
    if !moving.is_empty() {
        found.push(Diagnosis::risk(None, ServerCondition::TasksMoving { tasks: names(moving) }));
    }
    if !away.is_empty() || workers > 0 {
        found.push(Diagnosis::risk(None, ServerCondition::NodesUnreachable { tasks: names(away), workers }));
    }
    found
}
