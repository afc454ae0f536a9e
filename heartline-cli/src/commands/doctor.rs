//! `doctor`: what may go wrong with this server, these tasks and these workers, and what to do about it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use heartline::{ServerReport, TaskReport, WorkerReport, WorkerState};
use serde::Serialize;

use crate::failure::Failure;
use crate::session::Session;
use heartline_board::text::{shown, span};

/// Farther than this from our clock, and times that people compare are wrong.
const SKEW: Duration = Duration::from_secs(2);

/// Above this part of the memory there is little left for a burst of jobs, in percent.
const FULL: u64 = 80;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    /// All is well.
    Ok,
    /// It works, and could be better.
    Note,
    /// Jobs are at risk.
    Risk,
}

/// What was looked at, and what to do.
#[derive(Debug, Serialize)]
struct Checked {
    grade: Grade,
    what: String,
    todo: Option<String>,
}

fn ok(what: impl Into<String>) -> Checked {
    Checked { grade: Grade::Ok, what: what.into(), todo: None }
}

fn found(grade: Grade, what: impl Into<String>, todo: impl Into<String>) -> Checked {
    Checked { grade, what: what.into(), todo: Some(todo.into()) }
}

pub(super) async fn doctor(session: &Session) -> Result<(), Failure> {
    let server = session.inspector.server().await?;
    let (tasks, workers) = (session.inspector.tasks().await?, session.inspector.workers().await?);
    let mut checked = of_server(&server, SystemTime::now());
    checked.extend(of_intervals(&server, &tasks));
    checked.extend(of_workers(&workers));
    checked.extend(of_tasks(&tasks));
    let worst = checked.iter().map(|checked| checked.grade).max().unwrap_or(Grade::Ok);
    if session.out.is_json {
        session.out.json(&serde_json::json!({ "grade": worst, "checks": checked, "server": server }))?;
    } else {
        for checked in &checked {
            let mark = match checked.grade {
                Grade::Ok => "ok  ",
                Grade::Note => "note",
                Grade::Risk => "RISK",
            };
            session.out.line(format!("{mark}  {}", shown(&checked.what)))?;
            if let Some(todo) = &checked.todo {
                session.out.line(format!("      {}", shown(todo)))?;
            }
        }
    }
    if worst == Grade::Risk { Err(Failure::Told) } else { Ok(()) }
}

/// What puts jobs at risk by the server, and what to do.
pub(super) fn risks(server: &ServerReport) -> Vec<(String, String)> {
    let risks = of_server(server, SystemTime::now()).into_iter().filter(|checked| checked.grade == Grade::Risk);
    risks.map(|checked| (checked.what, checked.todo.unwrap_or_default())).collect()
}

fn of_server(server: &ServerReport, now: SystemTime) -> Vec<Checked> {
    let mut checked = vec![ok(format!("the server is {} {}", server.name, server.version))];
    checked.push(match (server.is_primary, server.replicas) {
        (false, _) => found(Grade::Risk, "it is a replica, which takes no writes", "connect to the primary"),
        (true, 0) => found(
            Grade::Note,
            "it has no replica",
            "with its host all jobs are lost: a replica, or an append-only file on a disk that outlives the host",
        ),
        (true, replicas) => ok(format!("{replicas} replicas follow it")),
    });
    checked.push(if server.eviction_policy == "noeviction" {
        ok("it evicts nothing")
    } else {
        let todo = "`CONFIG SET maxmemory-policy noeviction`: an evicted key is a column of all jobs of a task";
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
        let what = format!("it writes no append-only file: a crash of it loses {} writes now", server.unsaved_writes);
        found(
            Grade::Note,
            what,
            "`CONFIG SET appendonly yes`, with appendfsync everysec: then a crash loses about a second",
        )
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

/// A heartbeat has a third of the interval, and is to be answered within half of that.
fn of_intervals(server: &ServerReport, tasks: &[TaskReport]) -> Vec<Checked> {
    let (usual, longest) = (span_us(server.round_trip), span_us(server.longest_round_trip));
    let shortest = tasks.iter().flat_map(|task| &task.parts).filter_map(|part| part.interval).min();
    let Some(shortest) = shortest else { return vec![ok(format!("a short call takes {usual}, {longest} at most"))] };
    let what =
        format!("a short call takes {usual}, {longest} at most; the shortest stall interval is {}", span(shortest));
    if server.longest_round_trip > shortest / 6 {
        return vec![found(Grade::Risk, what, "a longer StallOptions::interval, or a server that is nearer")];
    }
    vec![ok(what)]
}

/// A time under a second in microseconds where that says more.
fn span_us(time: Duration) -> String {
    if time < Duration::from_millis(10) { format!("{}us", time.as_micros()) } else { span(time) }
}

fn of_workers(workers: &[WorkerReport]) -> Vec<Checked> {
    let live: Vec<&WorkerReport> = workers.iter().filter(|worker| worker.state.is_live()).collect();
    let versions: BTreeSet<&str> = live.iter().map(|worker| worker.version.as_str()).collect();
    let wires: BTreeSet<u32> = live.iter().map(|worker| worker.wire.unwrap_or(1)).collect();
    let mut checked = Vec::new();
    checked.push(if live.is_empty() {
        found(Grade::Note, "no worker is live", "start one; `heartline workers --all` shows those that are gone")
    } else {
        ok(format!("{} workers are live", live.len()))
    });
    if versions.len() > 1 {
        let named: Vec<&str> = versions.into_iter().collect();
        let what = format!("they are of the versions {}", named.join(", "));
        checked.push(found(Grade::Note, what, "that is well during a deploy"));
    }
    if wires.len() > 1 {
        let what = "they speak different versions of the wire format";
        checked.push(found(Grade::Note, what, "options that need the newer one are refused until all speak it"));
    }
    for worker in workers.iter().filter(|worker| worker.state == WorkerState::Silent) {
        let what = format!("the worker {} is silent", worker.worker);
        checked.push(found(Grade::Note, what, "its jobs are recovered by the others; see `heartline workers`"));
    }
    for worker in live.iter().filter(|worker| worker.runtime_blocked.is_some()) {
        let what = format!("handlers block the runtime of {}", worker.worker);
        checked.push(found(Grade::Note, what, "use spawn_blocking for work that does not yield"));
    }
    checked
}

fn of_tasks(tasks: &[TaskReport]) -> Vec<Checked> {
    let mut checked = Vec::new();
    for task in tasks {
        let name = &task.task;
        if let Some(fault) = &task.fault {
            let todo =
                format!("something foreign is stored under a key of it; `heartline audit -t {name}` looks closer");
            checked.push(found(Grade::Risk, format!("{name} cannot be read: {fault}"), todo));
        } else if task.options.values.is_empty() {
            let todo = "no worker has declared it: start one that has the task, or see whether the name is right";
            checked.push(found(Grade::Note, format!("nothing is known of the options of {name}"), todo));
        }
    }
    checked.push(ok(format!("{} tasks are known", tasks.len())));
    checked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_comes_last_in_the_order() {
        assert!(Grade::Risk > Grade::Note && Grade::Note > Grade::Ok);
        assert_eq!(
            (span_us(Duration::from_micros(180)), span_us(Duration::from_millis(40))),
            ("180us".into(), "40ms".into())
        );
    }
}
