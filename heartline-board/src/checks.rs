//! What may go wrong with a server, and what to do about it: the same on a page and in a terminal.

use std::time::{Duration, SystemTime};

use heartline::ServerReport;
use serde::Serialize;

use crate::text::span;

/// Farther than this from our clock, and times that people compare are wrong.
const SKEW: Duration = Duration::from_secs(2);

/// Above this part of the memory there is little left for a burst of jobs, in percent.
const FULL: u64 = 80;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// All is well.
    Ok,
    /// It works, and could be better.
    Note,
    /// Jobs are at risk.
    Risk,
}

/// What was looked at, and what to do.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// How grave it is.
    pub grade: Grade,
    /// What was looked at.
    pub what: String,
    /// What to do.
    pub todo: Option<String>,
}

/// All is well with it.
pub fn ok(what: impl Into<String>) -> Checked {
    Checked { grade: Grade::Ok, what: what.into(), todo: None }
}

/// What is not well, and what to do.
pub fn found(grade: Grade, what: impl Into<String>, todo: impl Into<String>) -> Checked {
    Checked { grade, what: what.into(), todo: Some(todo.into()) }
}

/// What is well with each server and what is not; of several each with its place.
#[must_use]
pub fn of_servers(servers: &[ServerReport], now: SystemTime) -> Vec<Checked> {
    let is_alone = servers.len() == 1;
    let checked = servers.iter().flat_map(|server| {
        let named = |checked: Checked| Checked { what: format!("{}: {}", server.place, checked.what), ..checked };
        of_server(server, now).into_iter().map(move |checked| if is_alone { checked } else { named(checked) })
    });
    checked.collect()
}

/// What is well with a server and what is not.
#[must_use]
pub fn of_server(server: &ServerReport, now: SystemTime) -> Vec<Checked> {
    if let Some(fault) = &server.fault {
        let todo = "the jobs of its tasks stand still until it is back, or its replica is the primary: `redis-cli CLUSTER NODES`";
        return vec![found(Grade::Risk, format!("it cannot be asked: {fault}"), todo)];
    }
    let mut checked = vec![ok(format!("the server is {} {}", server.name, server.version))];
    checked.push(match (server.is_primary, server.replicas) {
        (false, _) => found(Grade::Risk, "it is a replica, which takes no writes", "connect to the primary"),
        (true, 0) => found(
            Grade::Note,
            "it has no replica",
            "with its host all jobs are lost: a replica, or an append-only file on a disk that outlives the host",
        ),
        (true, replicas) if server.silent_replicas > 0 => found(
            Grade::Note,
            format!("{replicas} replicas follow it, {} of which said nothing for some seconds", server.silent_replicas),
            "see to them: what they do not have is lost with the primary, and a dispatch that waits for them fails",
        ),
        (true, replicas) => ok(format!("{replicas} replicas follow it")),
    });
    if let Some(wanted) = server.wanted_replicas.filter(|wanted| server.is_primary && server.replicas <= *wanted) {
        let what =
            format!("it takes writes only with {wanted} replicas (min-replicas-to-write), and has {}", server.replicas);
        let todo = "one more than it asks for, or `CONFIG SET min-replicas-to-write 0`: when one of them is promoted, or away, those that are left are too few, and every write is refused until another one follows";
        checked.push(found(Grade::Note, what, todo));
    }
    if let Some(refusal) = server.write_refusal.as_ref().filter(|_| server.is_primary) {
        let todo = "nothing is dispatched, claimed or reported until it takes writes: NOREPLICAS asks for a replica, MISCONF for room on its disk, CLUSTERDOWN for the node that is away, or `cluster-require-full-coverage no`";
        checked.push(found(Grade::Risk, format!("it refuses to write: {refusal}"), todo));
    }
    checked.push(if server.eviction_policy == "noeviction" {
        ok("it evicts nothing")
    } else {
        let todo = "`CONFIG SET maxmemory-policy noeviction`, and the same in its configuration file (or `CONFIG REWRITE`), else the next start forgets it: an evicted key is a column of all jobs of a task";
        let grade = if server.eviction_policy.starts_with("allkeys") { Grade::Risk } else { Grade::Note };
        found(grade, format!("its maxmemory-policy is {}", server.eviction_policy), todo)
    });
    if server.evicted_keys > 0 {
        let what = format!("it has evicted {} keys since it started", server.evicted_keys);
        checked.push(found(Grade::Risk, what, "`heartline audit` tells whether keys of ours are damaged"));
    }
    checked.push(if server.has_append_only_file {
        ok("it writes an append-only file")
    } else {
        let what = match server.has_snapshot {
            true => format!(
                "it writes no append-only file: a crash of it loses all since its last snapshot, {} writes now",
                server.unsaved_writes
            ),
            false => "it writes no append-only file, and has written no snapshot since it started: a restart of it may lose every job".to_owned(),
        };
        let todo = "`CONFIG SET appendonly yes`, and `appendonly yes` in its configuration file (or `CONFIG REWRITE`): without that the next start ignores the file, and every job is gone. With appendfsync everysec a crash then loses about a second";
        found(Grade::Note, what, todo)
    });
    if !server.is_saved_well {
        checked.push(found(Grade::Risk, "its last write to disk failed", "see its log: the disk may be full"));
    }
    checked.push(match (server.used_memory * 100).checked_div(server.max_memory) {
        None => found(
            Grade::Note,
            "it has no maxmemory",
            "the system may kill it when memory is short: set maxmemory to some 70 % of what the host has",
        ),
        Some(percent) if percent >= 100 => {
            let todo = "raise maxmemory, or remove ended jobs (`heartline task purge TASK --state completed`): what runs is still reported";
            found(Grade::Risk, format!("{percent} % of its maxmemory are used: dispatches are refused now"), todo)
        }
        Some(percent) if percent >= FULL => {
            let todo =
                "raise maxmemory, or keep ended jobs for a shorter time; when it is full, dispatches are refused";
            found(Grade::Risk, format!("{percent} % of its maxmemory are used"), todo)
        }
        Some(percent) => ok(format!("{percent} % of its maxmemory are used")),
    });
    let skew = server.clock.duration_since(now).unwrap_or_else(|e| e.duration());
    checked.push(if skew > SKEW {
        let what = format!("its clock and that of this machine differ by {}", span(skew));
        found(Grade::Note, what, "let both follow NTP: no decision about a job compares them, people do")
    } else {
        ok(format!("its clock agrees with that of this machine to {}", span(skew.max(server.round_trip))))
    });
    checked
}
