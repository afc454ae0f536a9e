//! The schedules that a process declares in code for a task.

use std::sync::Arc;

use crate::config_error::{ConfigError, ConfigErrors};
use crate::schedule::rule::Schedule;

/// A schedule that the code declares.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredSchedule {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
    /// Names the rule and the input.
    pub(crate) digest: String,
    /// The input of its jobs, as it is stored.
    pub(crate) input: Arc<[u8]>,
}

/// The schedules of a task, until a worker is made.
#[derive(Debug, Default)]
pub(crate) struct DeclaredSchedules {
    all: Vec<DeclaredSchedule>,
    is_closed: bool,
}

impl DeclaredSchedules {
    /// Adds a schedule of the task.
    ///
    /// # Errors
    /// If its name is taken, or no more schedules are accepted.
    pub(crate) fn add(&mut self, task: &str, new: DeclaredSchedule) -> Result<(), ConfigErrors> {
        if self.is_closed {
            let rule = "must have its handler in this App, and must get its schedules before a worker is made";
            return Err(ConfigError::new("task", task, rule, "call schedule right after App::task").into());
        }
        if self.named(&new.name).is_some() {
            let fix = "give one of the two another name";
            return Err(ConfigError::new("schedule", new.name, "must be declared once for a task", fix).into());
        }
        self.all.push(new);
        Ok(())
    }

    /// Accepts no more schedules.
    pub(crate) fn close(&mut self) -> Arc<[DeclaredSchedule]> {
        self.is_closed = true;
        self.all.clone().into()
    }

    pub(crate) fn named(&self, name: &str) -> Option<&DeclaredSchedule> {
        self.all.iter().find(|declared| declared.name == name)
    }
}
