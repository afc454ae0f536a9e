//! Finds what is wrong with workflows.

use std::time::Duration;

use super::super::Inspector;
use super::super::tasks::TaskReport;
use super::super::workflow_report::WorkflowReport;
use super::finding::Diagnosis;
use super::kinds::DiagnosisKind;
use super::texts::named;
use crate::error::{Error, ServerErrorKind};
use crate::unix_time::to_ms;

/// A worker makes a leftover step within 15 s, and retries an unreachable task every 5 s.
const LATE: Duration = Duration::from_secs(30);

/// Data that could not be read, and instances that failed, are reported for this long.
const RECENT: Duration = Duration::from_secs(24 * 3600);

/// A task that has had jobs of workflows, although no workflow is listed. A listed workflow stays listed, so the list is lost.
pub(super) fn lost_list<'a>(tasks: &'a [TaskReport], flows: &[WorkflowReport]) -> Option<&'a TaskReport> {
    tasks.iter().find(|task| task.has_workflows).filter(|_| flows.is_empty())
}

/// Reports the instances that are kept as failed, if the newest failed in the last day.
fn failed(flow: &WorkflowReport) -> Option<Diagnosis> {
    let ago = flow.as_of.duration_since(flow.last_failed_at?).unwrap_or_default();
    let kind = DiagnosisKind::InstancesFailed {
        workflow: flow.workflow.clone(),
        failed: flow.failed,
        last_ago_ms: to_ms(ago),
    };
    (ago < RECENT).then(|| Diagnosis::note(None, kind))
}

/// What is wrong with the list of workflows, and with each workflow.
pub(super) fn of_all(tasks: &[TaskReport], flows: &[WorkflowReport]) -> Vec<Diagnosis> {
    match lost_list(tasks, flows) {
        Some(task) => {
            let of_task = task.task.clone();
            vec![Diagnosis::risk(None, DiagnosisKind::WorkflowListLost { of_task })]
        }
        None => flows.iter().flat_map(WorkflowReport::diagnoses).collect(),
    }
}

/// Reports that the list of workflows cannot be read.
fn unlisted(error: String) -> Diagnosis {
    let what = "list of workflows".to_owned();
    Diagnosis::risk(None, DiagnosisKind::Unreadable { what, error, is_denied: false })
}

impl WorkflowReport {
    /// Why it cannot be read. `None` if it can.
    fn unreadable(&self) -> Option<DiagnosisKind> {
        let (error, what) = (self.fault.clone()?, format!("workflow {}", self.workflow));
        Some(match self.fault_kind {
            Some(ServerErrorKind::TryAgain) => {
                DiagnosisKind::SlotsMoving { tasks: Vec::new(), workflow: Some(self.workflow.clone()) }
            }
            _ if !self.foreign.is_empty() => {
                DiagnosisKind::ForeignKeys { keys: self.foreign.clone(), workflow: Some(what) }
            }
            kind => {
                let is_denied = kind == Some(ServerErrorKind::NoPermission);
                DiagnosisKind::Unreadable { what, error, is_denied }
            }
        })
    }

    /// What keeps the workflow from advancing, if anything.
    fn stalled(&self) -> Option<DiagnosisKind> {
        // No worker has visited a workflow that has just started.
        let ago = self.looked_at.map(|at| self.as_of.duration_since(at).unwrap_or_default());
        let oldest = self.oldest_step.filter(|oldest| *oldest >= LATE);
        let is_left = self.running > 0 && ago.map_or(oldest.is_some(), |ago| ago >= LATE);
        (is_left || oldest.is_some()).then(|| DiagnosisKind::WorkflowStalled {
            workflow: self.workflow.clone(),
            running: if is_left { self.running } else { 0 },
            steps: self.steps,
            tasks: self.tasks.clone(),
            waited_ms: if is_left { ago } else { oldest }.map(to_ms),
        })
    }

    /// What is wrong with this workflow.
    #[must_use]
    pub fn diagnoses(&self) -> Vec<Diagnosis> {
        if let Some(kind) = self.unreadable() {
            return vec![Diagnosis::risk(None, kind)];
        }
        let mut found: Vec<Diagnosis> = self.stalled().map(|kind| Diagnosis::risk(None, kind)).into_iter().collect();
        let corrupt = self.corrupt_at.map(|at| self.as_of.duration_since(at).unwrap_or_default());
        let corrupt_ago_ms = corrupt.filter(|ago| *ago < RECENT).map(to_ms);
        let (lost, paused, corrupt) = (self.unplaced, self.paused, self.corrupt);
        if lost > 0 || paused > 0 || corrupt_ago_ms.is_some() {
            let workflow = self.workflow.clone();
            let kind = DiagnosisKind::InstancesStopped { workflow, lost, paused, corrupt, corrupt_ago_ms };
            found.push(Diagnosis::when(lost > 0, None, kind));
        }
        found.extend(failed(self));
        found
    }
}

impl Inspector {
    /// The workflows, or why their list cannot be read.
    pub(super) async fn workflows_or_diagnosis(&self) -> Result<Vec<WorkflowReport>, Diagnosis> {
        let error = match self.workflows().await {
            Ok(flows) => return Ok(flows),
            Err(e) => e.chain().to_string(),
        };
        let keys = self.foreign_lists().await.unwrap_or_default();
        Err(unlisted(if keys.is_empty() { error } else { named(&keys) }))
    }

    /// What is wrong if no workflow is listed: the list may be lost.
    pub async fn diagnose_empty_workflow_list(&self) -> Vec<Diagnosis> {
        let lost: Result<Vec<Diagnosis>, Error> = self.tasks().await.map(|tasks| of_all(&tasks, &[]));
        lost.unwrap_or_else(|e| vec![unlisted(e.chain().to_string())])
    }
}
