//! Reads the schedules of one task or of all.

use futures_util::future::join_all;
use heartline::ScheduleInfo;
use heartline::inspect::text::{chain, shown};
use serde::Serialize;

use super::known_task;
use crate::failure::{Failure, ended};
use crate::session::Session;

/// How many tasks are read at a time.
const TOGETHER: usize = 20;

/// A schedule and its task.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) task: String,
    #[serde(flatten)]
    pub(super) schedule: ScheduleInfo,
}

/// Schedules of one task or of all.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// Tasks that have more schedules than were read.
    pub(super) cut: Vec<String>,
    /// Whether every task could be read.
    is_whole: bool,
}

/// The schedules of this task, or of all. Prints an error for each task that cannot be read, unless it is the only one.
pub(super) async fn read(session: &Session, task: Option<&str>) -> Result<Rows, Failure> {
    let tasks = match task {
        Some(task) => vec![task.to_owned()],
        None => session.inspector.task_names().await?,
    };
    let mut found = Rows { rows: Vec::new(), cut: Vec::new(), is_whole: true };
    for some in tasks.chunks(TOGETHER) {
        let lists = join_all(some.iter().map(|name| session.inspector.schedules(name))).await;
        for (name, list) in some.iter().zip(lists) {
            match list {
                Ok(list) => {
                    let row = |schedule| Row { task: name.clone(), schedule };
                    found.rows.extend(list.schedules.into_iter().map(row));
                    found.cut.extend(list.more.then(|| name.clone()));
                }
                Err(e) if task.is_some() => return Err(e.into()),
                // A damaged or unreachable task must not hide the others.
                Err(e) => {
                    found.is_whole = false;
                    session.out.error(&Failure::Failed(format!("{name}: {}", chain(&e))));
                }
            }
        }
    }
    if let (Some(task), true) = (task, found.rows.is_empty()) {
        known_task(session, task).await?;
    }
    Ok(found)
}

impl Rows {
    /// The end of a command that printed these rows: names what is missing or cannot be read.
    pub(super) fn end(
        &self,
        session: &Session,
        task: Option<&str>,
        printed: Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.rows.is_empty() && self.is_whole {
            let of = task.map_or_else(|| format!("on {}", session.place), |task| format!("of {}", shown(task)));
            session.out.hint(format!("There are no schedules {of}."));
        }
        for task in &self.cut {
            session.out.hint(format!("{} has more schedules than were read.", shown(task)));
        }
        let mut is_sound = self.is_whole;
        for Row { task, schedule } in &self.rows {
            if let Some(fault) = &schedule.fault {
                is_sound = false;
                let (name, task) = (shown(&schedule.name), shown(task));
                session.out.hint(format!("error: {name} of {task} cannot be read: {}", shown(fault)));
            }
        }
        ended(is_sound, printed)
    }
}
