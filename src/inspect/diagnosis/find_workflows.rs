//! Finds what is wrong with workflows.

use std::time::Duration;

use super::super::Inspector;
use super::super::tasks::TaskReport;
use super::super::workflows::WorkflowReport;
use super::finding::Diagnosis;
use super::workflow::WorkflowCondition;
use crate::error::{Error, ServerErrorKind};

/// A worker makes a step that is left over within 15 s, and retries a task that it could not reach every 5 s.
const LATE: Duration = Duration::from_secs(30);

/// What could not be read is reported for this long.
const RECENT: Duration = Duration::from_secs(24 * 3600);

/// A task that has had jobs of workflows, although no workflow is listed: a workflow stays listed once it is.
pub(super) fn lost_list<'a>(tasks: &'a [TaskReport], flows: &[WorkflowReport]) -> Option<&'a TaskReport> {
    tasks.iter().find(|task| task.has_workflows).filter(|_| flows.is_empty())
}

/// What is wrong with the workflows together, and with each.
pub(super) fn of_all(tasks: &[TaskReport], flows: &[WorkflowReport]) -> Vec<Diagnosis> {
    match lost_list(tasks, flows) {
        Some(task) => {
            let of_task = task.task.clone();
            vec![Diagnosis::risk(None, WorkflowCondition::WorkflowListLost { of_task })]
        }
        None => flows.iter().flat_map(WorkflowReport::diagnoses).collect(),
    }
}

impl WorkflowReport {
    /// Why it cannot be read, if so.
    fn fault_condition(&self) -> Option<WorkflowCondition> {
        let (workflow, error) = (self.workflow.clone(), self.fault.clone()?);
        Some(match self.fault_kind {
            Some(ServerErrorKind::TryAgain) => WorkflowCondition::WorkflowMoving { workflow },
            _ if !self.foreign.is_empty() => {
                WorkflowCondition::WorkflowForeignKeys { workflow, keys: self.foreign.clone() }
            }
            kind => {
                let is_denied = kind == Some(ServerErrorKind::NoPermission);
                WorkflowCondition::WorkflowUnreadable { workflow, error, is_denied }
            }
        })
    }

    /// What keeps the workflow from advancing, if something does.
    fn late_condition(&self) -> Option<WorkflowCondition> {
        // A workflow that has just started has not been advanced yet.
        let ago = self.looked_at.map(|at| self.as_of.duration_since(at).unwrap_or_default());
        let oldest = self.oldest_step.filter(|oldest| *oldest >= LATE);
        let is_left = ago.map_or(oldest.is_some(), |ago| ago >= LATE);
        let workflow = self.workflow.clone();
        if self.running > 0 && is_left {
            return Some(WorkflowCondition::WorkflowNotAdvanced { workflow, running: self.running, ago });
        }
        let waited = oldest?;
        Some(match self.steps {
            0 => WorkflowCondition::OutcomesNotDelivered { workflow, waited },
            steps => WorkflowCondition::StepsOverdue { workflow, steps, tasks: self.tasks.clone(), waited },
        })
    }

    /// What is wrong with this workflow.
    #[must_use]
    pub fn diagnoses(&self) -> Vec<Diagnosis> {
        let mut found: Vec<Diagnosis> = Vec::new();
        if let Some(condition) = self.fault_condition() {
            return vec![Diagnosis::risk(None, condition)];
        }
        found.extend(self.late_condition().map(|condition| Diagnosis::risk(None, condition)));
        let workflow = || self.workflow.clone();
        if self.nowhere > 0 {
            let instances = self.nowhere;
            found.push(Diagnosis::risk(
                None,
                WorkflowCondition::InstancesWithoutPlace { workflow: workflow(), instances },
            ));
        }
        let corrupt = self.corrupt_at.map(|at| self.as_of.duration_since(at).unwrap_or_default());
        if let Some(last_ago) = corrupt.filter(|ago| *ago < RECENT) {
            let times = self.corrupt;
            found.push(Diagnosis::note(
                None,
                WorkflowCondition::WorkflowCorrupt { workflow: workflow(), times, last_ago },
            ));
        }
        if self.paused > 0 {
            let instances = self.paused;
            found.push(Diagnosis::note(None, WorkflowCondition::InstancesPaused { workflow: workflow(), instances }));
        }
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
        Err(Diagnosis::risk(None, WorkflowCondition::WorkflowListUnreadable { error, keys }))
    }

    /// What is wrong if no workflow is listed: the list may be lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn diagnose_empty_workflow_list(&self) -> Vec<Diagnosis> {
        let lost: Result<Vec<Diagnosis>, Error> = self.tasks().await.map(|tasks| of_all(&tasks, &[]));
        lost.unwrap_or_else(|e| {
            let error = e.chain().to_string();
            vec![Diagnosis::risk(None, WorkflowCondition::WorkflowListUnknown { error })]
        })
    }
}
