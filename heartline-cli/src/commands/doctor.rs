//! `doctor`: what may go wrong with this server, these tasks and these workers, and what to do about it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use heartline::{ListsAway, ServerReport, TaskReport, WorkerReport, WorkerState};
use heartline_board::checks::{Checked, Grade, found, of_servers, ok};
use heartline_board::crashes::together;
use heartline_board::flows::troubles_of_all;
use heartline_board::text::{many, shown, span};
use heartline_board::troubles::{DENIED, known_troubles};

use crate::failure::{Failure, ended};
use crate::fleet::Fleet;
use crate::session::Session;

pub(super) async fn doctor(session: &Session) -> Result<(), Failure> {
    let fleet = Fleet::look(&session.inspector).await?;
    let lately = fleet.lately(&session.inspector).await?;
    let flows = troubles_of_all(&fleet.tasks, &fleet.flows);
    let Fleet { tasks, workers, holders, servers, away, damaged, ailing, .. } = fleet;
    let mut checked = vec![ok(session.place.clone())];
    checked.extend(of_servers(&servers, SystemTime::now()));
    checked.extend(of_intervals(&servers, &tasks));
    if away.workers.is_none() {
        checked.extend(of_workers(&workers));
    }
    if away.tasks.is_none() {
        checked.extend(of_tasks(&tasks));
    }
    // What `status` says, but for the server, which stands above.
    let is_new =
        tasks.is_empty() && away == ListsAway::default() && !workers.iter().any(|worker| worker.state.is_live());
    let others =
        [known_troubles(&tasks, &workers, &holders, &servers, &away), damaged, ailing, flows, lately.others].concat();
    let wrong = together(lately.suspicions, lately.doomed, others).into_iter().map(|trouble| {
        let grade = if is_new { Grade::Note } else { trouble.grade };
        let task = trouble.task.map_or_else(String::new, |task| format!("{task}: "));
        found(grade, format!("{task}{}", trouble.what), trouble.hint)
    });
    checked.extend(wrong);
    let worst = checked.iter().map(|checked| checked.grade).max().unwrap_or(Grade::Ok);
    let told = || {
        if session.out.is_json {
            return session.out.json(&serde_json::json!({ "grade": worst, "checks": checked, "servers": servers }));
        }
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
        Ok(())
    };
    ended(worst != Grade::Risk, told())
}

/// A heartbeat has a third of the interval, and is to be answered within half of that.
fn of_intervals(servers: &[ServerReport], tasks: &[TaskReport]) -> Vec<Checked> {
    let longest_round_trip = servers.iter().map(|server| server.longest_round_trip).max().unwrap_or_default();
    let usual = span_us(servers.iter().map(|server| server.round_trip).max().unwrap_or_default());
    let longest = span_us(longest_round_trip);
    let shortest = tasks.iter().flat_map(|task| &task.parts).filter_map(|part| part.interval).min();
    let Some(shortest) = shortest else { return vec![ok(format!("a short call takes {usual}, {longest} at most"))] };
    let what =
        format!("a short call takes {usual}, {longest} at most; the shortest stall interval is {}", span(shortest));
    if longest_round_trip > shortest / 6 {
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
    // Of one whose word is on a node that is away that is not known.
    let told = || live.iter().filter(|worker| !worker.is_away);
    let versions: BTreeSet<&str> = told().map(|worker| worker.version.as_str()).collect();
    let wires: BTreeSet<u32> = told().map(|worker| worker.wire.unwrap_or(1)).collect();
    let mut checked = Vec::new();
    checked.push(if live.is_empty() {
        found(Grade::Note, "no worker is live", "start one; `heartline workers --all` shows those that are gone")
    } else {
        let stopping = live.iter().filter(|worker| worker.state == WorkerState::Stopping).count();
        let stopping = if stopping > 0 { format!(", {stopping} of which are stopping") } else { String::new() };
        let are = if live.len() == 1 { "is" } else { "are" };
        ok(format!("{} {are} live{stopping}", many(live.len() as u64, "worker")))
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
        if let Some(fault) = task.fault.as_ref().filter(|_| !task.is_away) {
            let todo = match task.is_denied {
                true => DENIED.to_owned(),
                false => {
                    format!("something foreign is stored under a key of it; `heartline audit -t {name}` looks closer")
                }
            };
            checked.push(found(Grade::Risk, format!("{name} cannot be read: {fault}"), todo));
        }
    }
    let undeclared = tasks.iter().filter(|task| task.fault.is_none() && task.options.values.is_empty());
    let undeclared: Vec<&str> = undeclared.map(|task| task.task.as_str()).collect();
    if !undeclared.is_empty() {
        let some = undeclared.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let more = if undeclared.len() > 5 { format!(" and {} more", undeclared.len() - 5) } else { String::new() };
        let todo = "no worker has declared them: start one that has the task, or see whether the name is right";
        checked.push(found(Grade::Note, format!("nothing is known of the options of {some}{more}"), todo));
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
