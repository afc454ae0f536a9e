//! Finds what is wrong with servers and with nodes of a cluster.

use std::time::Duration;

use super::super::lists::UnreachableLists;
use super::super::server::ServerReport;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::RECENT;
use crate::error::ServerErrorKind;
use crate::unix_time::to_ms;

/// From this percentage of the memory on, little is left for a burst of jobs.
const FULL: u64 = 80;

/// A server reports its uptime in whole seconds.
const UPTIME_PRECISION: Duration = Duration::from_secs(2);

/// What is wrong with each server. Names the server if there are several.
pub(super) fn of_servers(servers: &[ServerReport]) -> Vec<Diagnosis> {
    let place = |server: &ServerReport| (servers.len() > 1).then(|| server.place.clone());
    let named = |server| of_server(server).into_iter().map(move |own| Diagnosis { server: place(server), ..own });
    servers.iter().flat_map(named).collect()
}

/// What is wrong with a server.
pub(super) fn of_server(server: &ServerReport) -> Vec<Diagnosis> {
    if let Some(error) = server.fault.clone() {
        return vec![Diagnosis::risk(None, DiagnosisKind::ServerUnreachable { error })];
    }
    let mut found = Vec::new();
    let mut push = |is_risk, kind| found.push(Diagnosis::when(is_risk, None, kind));
    let (replicas, silent) = (server.replicas, server.silent_replicas);
    let wanted = server.wanted_replicas.filter(|wanted| replicas <= *wanted);
    if server.is_primary && (replicas == 0 || silent > 0 || wanted.is_some()) {
        push(false, DiagnosisKind::ReplicasMissing { replicas, silent, wanted });
    }
    let replica = || (!server.is_primary).then(|| "it is a replica".to_owned());
    if let Some(answer) = server.write_refusal.clone().or_else(replica) {
        push(true, DiagnosisKind::WritesRefused { answer });
    }
    let (policy, keys) = (server.eviction_policy.clone(), server.evicted_keys);
    if policy != "noeviction" || keys > 0 {
        // Volatile policies evict keys with a TTL only, and Heartline sets none.
        push(keys > 0 || policy.starts_with("allkeys"), DiagnosisKind::Eviction { policy, keys });
    }
    let save_failed = !server.is_saved_well;
    if save_failed || !server.has_append_only_file {
        let unsaved_writes = server.has_snapshot.then_some(server.unsaved_writes);
        push(save_failed, DiagnosisKind::NotDurable { save_failed, unsaved_writes });
    }
    let percent = (server.used_memory * 100).checked_div(server.max_memory);
    if percent.is_none_or(|percent| percent >= FULL) {
        push(percent.is_some(), DiagnosisKind::Memory { percent });
    }
    found
}

/// Reports that calls are too slow for the shortest stall interval. A heartbeat is sent each third of it, and should be answered within
/// half of that time.
pub(super) fn of_round_trip(servers: &[ServerReport], tasks: &[TaskReport]) -> Option<Diagnosis> {
    let longest = servers.iter().map(|server| server.longest_round_trip).max()?;
    let interval = tasks.iter().flat_map(|task| &task.parts).filter_map(|part| part.interval).min()?;
    let is_slow = longest > interval / 6;
    let (longest_ms, interval_ms) = (to_ms(longest), to_ms(interval));
    is_slow.then(|| Diagnosis::risk(None, DiagnosisKind::SlowRoundTrip { longest_ms, interval_ms }))
}

/// Reports that a server refuses writes. No worker can then update its presence, so it is unknown which workers are live.
pub(super) fn writes_refused(servers: &[ServerReport]) -> Option<Diagnosis> {
    let answer = servers.iter().find_map(|server| server.write_refusal.clone())?;
    Some(Diagnosis::risk(None, DiagnosisKind::WritesRefused { answer }))
}

/// Reports that a server restarted recently without an append-only file, while workers were live.
pub(super) fn restarted(server: &ServerReport, workers: &[WorkerReport]) -> Option<Diagnosis> {
    let started = server.clock.checked_sub(server.uptime)?;
    let is_older = |worker: &WorkerReport| {
        let before = worker.started_at.and_then(|at| started.duration_since(at).ok());
        worker.state.is_live() && before.is_some_and(|before| before > UPTIME_PRECISION)
    };
    // A server that was a replica has the data of its former primary.
    let keeps_data = server.has_followed || server.has_append_only_file;
    if server.fault.is_some() || keeps_data || server.uptime > RECENT || !workers.iter().any(is_older) {
        return None;
    }
    let (place, uptime_ms) = (server.place.clone(), to_ms(server.uptime));
    Some(Diagnosis::note(None, DiagnosisKind::ServerRestarted { place, uptime_ms }))
}

/// Reports the lists across all tasks that cannot be read.
pub(super) fn of_lists(away: &UnreachableLists) -> Vec<Diagnosis> {
    let lists = match &away.says_down {
        Some(node) => vec![("tasks and workers", Some(node))],
        None => vec![("tasks", away.tasks.as_ref()), ("workers", away.workers.as_ref())],
    };
    let is_down = away.says_down.is_some();
    let unread = lists
        .into_iter()
        .filter_map(|(list, node)| Some(DiagnosisKind::ListUnreachable { list, node: node?.clone(), is_down }));
    unread.map(|kind| Diagnosis::risk(None, kind)).collect()
}

/// Reports tasks and workers whose cluster nodes do not answer, or whose slots are moving.
pub(super) fn of_nodes(tasks: &[TaskReport], workers: &[WorkerReport]) -> Vec<Diagnosis> {
    let (moving, away): (Vec<&TaskReport>, Vec<&TaskReport>) = tasks
        .iter()
        .filter(|task| task.is_unreachable)
        .partition(|task| task.fault_kind == Some(ServerErrorKind::TryAgain));
    let names = |tasks: Vec<&TaskReport>| tasks.into_iter().map(|task| task.task.clone()).collect::<Vec<String>>();
    let workers = workers.iter().filter(|worker| worker.is_unreachable && worker.state.is_live()).count() as u64;
    let mut found = Vec::new();
    if !moving.is_empty() {
        found.push(Diagnosis::risk(None, DiagnosisKind::SlotsMoving { tasks: names(moving), workflow: None }));
    }
    if !away.is_empty() || workers > 0 {
        found.push(Diagnosis::risk(None, DiagnosisKind::NodesUnreachable { tasks: names(away), workers }));
    }
    found
}
