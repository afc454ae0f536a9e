//! The jobs of an act, and its result.

use std::fmt;

use serde::Serialize;

use super::filter::JobFilter;
use super::text::quoted;
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::job::state::JobState;

/// The most refusals that are reported by id.
const MOST: usize = 1000;

/// The jobs of an act: ids, or all that match a filter. Converts from either.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JobSelection {
    /// These jobs, in any state.
    Ids(Vec<String>),
    /// Every job that matched when the act began.
    Filter(JobFilter),
}

impl From<JobFilter> for JobSelection {
    fn from(filter: JobFilter) -> JobSelection {
        JobSelection::Filter(filter)
    }
}

impl From<&str> for JobSelection {
    fn from(id: &str) -> JobSelection {
        JobSelection::Ids(vec![id.to_owned()])
    }
}

impl From<String> for JobSelection {
    fn from(id: String) -> JobSelection {
        JobSelection::Ids(vec![id])
    }
}

impl From<JobId> for JobSelection {
    fn from(id: JobId) -> JobSelection {
        id.as_str().into()
    }
}

impl From<&JobId> for JobSelection {
    fn from(id: &JobId) -> JobSelection {
        id.as_str().into()
    }
}

impl<T: AsRef<str>> From<Vec<T>> for JobSelection {
    fn from(ids: Vec<T>) -> JobSelection {
        JobSelection::Ids(ids.iter().map(|id| id.as_ref().to_owned()).collect())
    }
}

impl<T: AsRef<str>, const N: usize> From<[T; N]> for JobSelection {
    fn from(ids: [T; N]) -> JobSelection {
        JobSelection::Ids(ids.iter().map(|id| id.as_ref().to_owned()).collect())
    }
}

/// The result of an act so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BulkReport {
    /// How many jobs it changed.
    pub done: u64,
    /// How many of these were cancelled instead, because a cancel was already pending.
    pub cancelled_instead: u64,
    /// How many held jobs got a cancel request, so that their workers stop them.
    pub requested: u64,
    /// How many jobs it refused.
    pub refused: u64,
    /// The first 1,000 refused jobs, with reasons.
    pub refusals: Vec<RefusedJob>,
    /// How many jobs were read.
    pub looked: u64,
    /// Whether a worker swept first. That worker decides about the silent jobs, in that sweep or its next one.
    pub swept_by_worker: bool,
    /// Whether it has finished.
    pub is_complete: bool,
}

/// A job that an act refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedJob {
    /// The id, as passed.
    pub id: String,
    /// The reason.
    pub why: RefusalReason,
    /// The job that has its unique key, for a [`RefusalReason::Duplicate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_holder: Option<JobId>,
}

impl fmt::Display for RefusedJob {
    /// The id and the reason. For the job of a workflow node also the command that runs it again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.why)?;
        if let Some(holder) = &self.key_holder {
            write!(f, ": {holder}")?;
        }
        match NodeId::of(&JobId::from_wire(&*self.id)).filter(|_| self.why == RefusalReason::PartOfWorkflow) {
            // A subgraph is retried with the instance that it belongs to.
            Some(NodeId { definition, instance, .. }) => {
                let instance = instance.split('/').next().unwrap_or_default();
                write!(f, ": `heartline flows retry {} {}`", quoted(&definition), quoted(instance))
            }
            None => Ok(()),
        }
    }
}

/// Why an act refused a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalReason {
    /// It is in this state, which the act does not change.
    State(JobState),
    /// It changed after the act read it.
    Changed,
    /// There is no such job: it was never dispatched, or was removed.
    Unknown,
    /// The text is not a valid job id.
    InvalidId,
    /// It entered its state after the act began. For a dispatched job, this compares with the clock of the process that dispatched.
    Later,
    /// It sent a heartbeat, or is not held: there is nothing to recover.
    NotSilent,
    /// It is silent, and a worker's sweep has just parked it for a person. Repeat the call to decide about it.
    Parked,
    /// It is the job of a workflow node. Only the workflow runs it again or removes it.
    PartOfWorkflow,
    /// Another job has its unique key. [`BulkAction::anyway`](crate::BulkAction::anyway) runs it without the key.
    Duplicate,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::State(state) => write!(f, "it is {state}"),
            RefusalReason::Changed => f.write_str("it changed meanwhile"),
            RefusalReason::Unknown => f.write_str("there is no such job"),
            RefusalReason::InvalidId => f.write_str("not a valid job id"),
            RefusalReason::Later => f.write_str("it arrived after the act began"),
            RefusalReason::NotSilent => f.write_str("it is not silent, or no worker holds it"),
            RefusalReason::Parked => f.write_str("a worker has just parked it for a person: try again"),
            RefusalReason::PartOfWorkflow => {
                f.write_str("it is the job of a workflow node, and is retried or removed with its instance")
            }
            RefusalReason::Duplicate => f.write_str("another job has its unique key"),
        }
    }
}

impl BulkReport {
    pub(super) fn refuse(&mut self, id: String, why: RefusalReason) {
        self.add(RefusedJob { id, why, key_holder: None });
    }

    /// Refuses a job because this one has its unique key.
    pub(super) fn refuse_duplicate(&mut self, id: String, holder: JobId) {
        self.add(RefusedJob { id, why: RefusalReason::Duplicate, key_holder: Some(holder) });
    }

    fn add(&mut self, refused: RefusedJob) {
        self.refused += 1;
        if self.refusals.len() < MOST {
            self.refusals.push(refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_workflow_job_names_the_command_that_retries_it() {
        let refused = |id: &str, why| RefusedJob { id: id.to_owned(), why, key_holder: None }.to_string();
        let line = "it is the job of a workflow node, and is retried or removed with its instance";
        for id in ["~nightly/one/0/1", "~nightly/one/3.1/0/1"] {
            let command = "`heartline flows retry nightly one`";
            assert_eq!(refused(id, RefusalReason::PartOfWorkflow), format!("{id}: {line}: {command}"));
        }
        assert_eq!(refused("~odd", RefusalReason::PartOfWorkflow), format!("~odd: {line}"));
        assert_eq!(refused("~nightly/one/0/1", RefusalReason::Unknown), "~nightly/one/0/1: there is no such job");
        let mut report = BulkReport::default();
        report.refuse_duplicate("a".to_owned(), JobId::from_wire("b"));
        assert_eq!(report.refusals[0].to_string(), "a: another job has its unique key: b");
    }
}
