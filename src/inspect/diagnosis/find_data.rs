//! Finds lost or damaged data of tasks.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::super::describe::is_task_name;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::task_facts::{RECENT, ago};
use crate::unix_time::to_ms;

/// A loss of data is a risk for this long, and a note afterwards.
const NEW: Duration = Duration::from_secs(300);

/// Reports that the task cannot be read.
pub(super) fn task_unreadable(task: &str, error: String, is_denied: bool) -> Diagnosis {
    let what = "task".to_owned();
    Diagnosis::risk(Some(task), DiagnosisKind::Unreadable { what, error, is_denied })
}

/// Why a task cannot be read, if so.
pub(super) fn unreadable(task: &TaskReport) -> Option<Diagnosis> {
    let error = task.fault.clone().filter(|_| !task.is_unreachable)?;
    let name = Some(&*task.task);
    Some(match task.is_denied {
        _ if !is_task_name(&task.task) => Diagnosis::risk(name, DiagnosisKind::InvalidTaskName { error }),
        false if !task.foreign.is_empty() => {
            Diagnosis::risk(name, DiagnosisKind::ForeignKeys { keys: task.foreign.clone(), workflow: None })
        }
        is_denied => task_unreadable(&task.task, error, is_denied),
    })
}

/// Options, counters and payloads of the task that were lost recently.
pub(super) fn of_losses(task: &TaskReport) -> Vec<Diagnosis> {
    let recent = |at: Option<SystemTime>| at.map(|at| ago(task, at)).filter(|ago| *ago < RECENT).map(to_ms);
    let options = recent(task.options_lost_at).map(|ago_ms| DiagnosisKind::DataLost {
        tasks: vec![task.task.clone()],
        only_options: true,
        ago_ms,
    });
    let removed_ago_ms = recent(task.payload_lost_at).filter(|_| task.lost_payloads > 0);
    let payloads = removed_ago_ms.map(|_| DiagnosisKind::PayloadsLost {
        jobs: task.lost_payloads,
        waiting: 0,
        first: None,
        removed_ago_ms,
    });
    options.into_iter().chain(payloads).map(|kind| Diagnosis::note(Some(&task.task), kind)).collect()
}

/// The tasks whose data the server lost recently.
pub(super) fn of_lost_data(tasks: &[TaskReport]) -> Option<Diagnosis> {
    let since = |task: &TaskReport| task.data_lost_at.map(|at| ago(task, at)).filter(|ago| *ago < RECENT);
    let newest = tasks.iter().filter_map(since).min()?;
    let lost: Vec<String> = tasks.iter().filter(|task| since(task).is_some()).map(|task| task.task.clone()).collect();
    let task = lost.first().filter(|_| lost.len() == 1).cloned();
    let kind = DiagnosisKind::DataLost { tasks: lost, only_options: false, ago_ms: to_ms(newest) };
    Some(Diagnosis::when(newest < NEW, task.as_deref(), kind))
}

/// Reports tasks of live workers that are missing from the list of tasks, or that the list is empty.
pub(super) fn of_lost_tasks(tasks: &[TaskReport], workers: &[WorkerReport]) -> Option<Diagnosis> {
    let live = || workers.iter().filter(|worker| worker.state.is_live());
    let names: BTreeSet<&str> = live().flat_map(|worker| &worker.tasks).map(|its| &*its.task).collect();
    let lost = names.into_iter().filter(|name| !tasks.iter().any(|task| task.task == *name));
    let lost: Vec<String> = lost.map(str::to_owned).collect();
    let is_lost = tasks.is_empty() || !lost.is_empty();
    let kind = DiagnosisKind::TasksNotListed { tasks: lost, has_workers: live().next().is_some() };
    is_lost.then(|| Diagnosis::risk(None, kind))
}
