//! Finds what is lost or damaged of a task.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::super::describe::is_task_name;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::data::DataCondition;
use super::finding::Diagnosis;
use super::task_facts::{RECENT, ago};

/// For this long a loss of data is a risk, then a note.
const NEW: Duration = Duration::from_secs(300);

/// Why a task cannot be read, if so.
pub(super) fn unreadable(task: &TaskReport) -> Option<Diagnosis> {
    let error = task.fault.clone().filter(|_| !task.is_unreachable)?;
    let condition = match task.is_denied {
        _ if !is_task_name(&task.task) => DataCondition::InvalidTaskName { error },
        false if !task.foreign.is_empty() => DataCondition::ForeignKeys { keys: task.foreign.clone() },
        is_denied => DataCondition::TaskUnreadable { error, is_denied },
    };
    Some(Diagnosis::risk(Some(&task.task), condition))
}

/// Options, counters and payloads of the task that were lost recently.
pub(super) fn of_losses(task: &TaskReport) -> Vec<Diagnosis> {
    let recent = |at: Option<SystemTime>| at.map(|at| ago(task, at)).filter(|ago| *ago < RECENT);
    let options = recent(task.options_lost_at).map(|ago| DataCondition::OptionsLost { ago });
    let jobs = task.lost_payloads;
    let payloads =
        recent(task.payload_lost_at).filter(|_| jobs > 0).map(|ago| DataCondition::PayloadsLost { jobs, ago });
    let lost = options.into_iter().chain(payloads);
    lost.map(|condition| Diagnosis::note(Some(&task.task), condition)).collect()
}

/// The tasks whose data the server lost recently.
pub(super) fn of_lost_data(tasks: &[TaskReport]) -> Option<Diagnosis> {
    let since = |task: &TaskReport| task.data_lost_at.map(|at| ago(task, at)).filter(|ago| *ago < RECENT);
    let newest = tasks.iter().filter_map(since).min()?;
    let lost: Vec<String> = tasks.iter().filter(|task| since(task).is_some()).map(|task| task.task.clone()).collect();
    let task = lost.first().filter(|_| lost.len() == 1).cloned();
    let condition = DataCondition::DataLost { tasks: lost, ago: newest };
    Some(Diagnosis::when(newest < NEW, task.as_deref(), condition))
}

/// Tasks of live workers that are missing from the list of tasks; or no task at all.
pub(super) fn of_lost_tasks(tasks: &[TaskReport], workers: &[WorkerReport]) -> Vec<Diagnosis> {
    let live = || workers.iter().filter(|worker| worker.state.is_live());
    if tasks.is_empty() {
        let has_workers = live().next().is_some();
        let condition = if has_workers { DataCondition::TaskListLost } else { DataCondition::NoTasks };
        return vec![Diagnosis::risk(None, condition)];
    }
    let names: BTreeSet<&str> = live().flat_map(|worker| &worker.tasks).map(|its| &*its.task).collect();
    let lost = names.into_iter().filter(|name| !tasks.iter().any(|task| task.task == *name));
    lost.map(|name| Diagnosis::risk(Some(name), DataCondition::TaskNotListed)).collect()
}
