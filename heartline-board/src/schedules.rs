//! The schedules of tasks: the totals of each task, and as many rows as a page shows.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use heartline::inspect::text::{chain, span};
use heartline::{Inspector, ScheduleCounts, ScheduleInfo};

/// The most schedules on a page.
const LISTED: usize = 200;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

/// A tick that is this late is a problem: workers look for late ticks every 5 s.
const OVERDUE: Duration = Duration::from_secs(10);

/// What was read of the schedules of some tasks.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    /// The totals of each task that has schedules.
    pub(crate) tasks: Vec<ScheduleCounts>,
    /// Schedules with the names of their tasks: unreadable ones, then by their next ticks.
    pub(crate) rows: Vec<(String, ScheduleInfo)>,
    /// The tasks that could not be read, and why.
    pub(crate) faults: Vec<String>,
}

impl Schedules {
    /// Reads the totals of these tasks, and schedules until a page is full. An unreadable task does not hide the others.
    pub(crate) async fn look(inspector: &Inspector, names: &[String]) -> Schedules {
        let mut found = Schedules::default();
        for some in names.chunks(TOGETHER) {
            let totals = join_all(some.iter().map(|task| inspector.schedule_totals(task))).await;
            for (task, totals) in some.iter().zip(totals) {
                match totals {
                    Ok(totals) if totals.schedules == 0 => {}
                    Ok(totals) => found.tasks.push(totals),
                    Err(e) => found.faults.push(format!("{task} ({})", chain(&e))),
                }
            }
        }
        for some in found.listed().chunks(TOGETHER) {
            let lists = join_all(some.iter().map(|task| inspector.schedules(task))).await;
            for (task, list) in some.iter().zip(lists) {
                match list {
                    Ok(list) => found.rows.extend(list.schedules.into_iter().map(|info| (task.clone(), info))),
                    Err(e) => found.faults.push(format!("{task} ({})", chain(&e))),
                }
            }
        }
        found.rows.sort_by(|one, other| order(one).cmp(&order(other)));
        found.rows.truncate(LISTED);
        found
    }

    /// The tasks whose schedules fill a page.
    fn listed(&self) -> Vec<String> {
        let (mut listed, mut before) = (Vec::new(), 0);
        for totals in &self.tasks {
            if before >= LISTED as u64 {
                break;
            }
            before += totals.schedules;
            listed.push(totals.task.clone());
        }
        listed
    }

    /// How many schedules are not among the rows.
    pub(crate) fn more(&self) -> u64 {
        let all: u64 = self.tasks.iter().map(|totals| totals.schedules).sum();
        all.saturating_sub(self.rows.len() as u64)
    }
}

/// Unreadable ones come first, then those with the earliest next tick, and those without one last.
fn order((task, info): &(String, ScheduleInfo)) -> (bool, bool, Option<SystemTime>, &str, &str) {
    (info.fault.is_none(), info.next.is_none(), info.next, task.as_str(), info.name.as_str())
}

/// How long a tick is overdue, if that is a problem.
pub(crate) fn overdue(late: Duration) -> Option<String> {
    (late >= OVERDUE).then(|| format!("{} overdue", span(late)))
}
