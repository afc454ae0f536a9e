//! One finding: how severe it is, what it is about, and its condition.

use std::cmp::Reverse;
use std::fmt;

use serde::{Serialize, Serializer};

use super::crash::CrashCondition;
use super::data::DataCondition;
use super::failure::FailureCondition;
use super::jobs::JobCondition;
use super::queue::QueueCondition;
use super::server::ServerCondition;
use super::worker::WorkerCondition;
use super::workflow::WorkflowCondition;

/// How severe a [`Diagnosis`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A person should judge it.
    Note,
    /// Jobs are not processed, or are at risk.
    Risk,
}

/// What to look at before following the hint of a [`Diagnosis`], since the hint lets jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Caution {
    /// The task has jobs that would fail when they are recovered.
    FailingJobs,
    /// The task has poison suspects, which may take down the next worker.
    Suspects,
}

/// Something that is wrong, or may be. [`Display`](fmt::Display) says what, [`hint`](Diagnosis::hint) what to do about it.
///
/// As JSON it has `severity`, `task`, `server`, `kind` (the condition in snake case), `facts` (its fields; times in ms), `caution`, and the
/// texts `what` and `hint`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// How severe it is.
    pub severity: Severity,
    /// The task that it is about, if it is about one.
    pub task: Option<String>,
    /// The server that it is about, where there are several.
    pub server: Option<String>,
    /// The condition.
    pub kind: DiagnosisKind,
    /// What to look at before following the hint.
    pub caution: Option<Caution>,
}

/// The condition of a [`Diagnosis`], by what it is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum DiagnosisKind {
    /// A server, or a node of a cluster.
    Server(ServerCondition),
    /// What is stored.
    Data(DataCondition),
    /// Jobs that wait.
    Queue(QueueCondition),
    /// Jobs that fail, or are never done.
    Failure(FailureCondition),
    /// Jobs of workers that died, froze or were cut off.
    Crash(CrashCondition),
    /// A worker.
    Worker(WorkerCondition),
    /// A workflow.
    Workflow(WorkflowCondition),
    /// One job.
    Job(JobCondition),
}

macro_rules! kinds {
    ($($kind:ident($condition:ty)),+ $(,)?) => {
        $(impl From<$condition> for DiagnosisKind {
            fn from(condition: $condition) -> DiagnosisKind {
                DiagnosisKind::$kind(condition)
            }
        })+

        impl fmt::Display for DiagnosisKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(DiagnosisKind::$kind(condition) => condition.fmt(f),)+
                }
            }
        }

        impl DiagnosisKind {
            /// The `kind` of the condition in JSON: its name in snake case.
            #[must_use]
            pub fn code(&self) -> String {
                let json = serde_json::to_value(self).unwrap_or_default();
                json.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned()
            }

            fn hint(&self, task: &str) -> String {
                match self {
                    $(DiagnosisKind::$kind(condition) => condition.hint(task),)+
                }
            }
        }
    };
}

kinds! {
    Server(ServerCondition),
    Data(DataCondition),
    Queue(QueueCondition),
    Failure(FailureCondition),
    Crash(CrashCondition),
    Worker(WorkerCondition),
    Workflow(WorkflowCondition),
    Job(JobCondition),
}

impl Diagnosis {
    pub(super) fn risk(task: Option<&str>, kind: impl Into<DiagnosisKind>) -> Diagnosis {
        let (task, kind) = (task.map(str::to_owned), kind.into());
        Diagnosis { severity: Severity::Risk, task, server: None, kind, caution: None }
    }

    pub(super) fn note(task: Option<&str>, kind: impl Into<DiagnosisKind>) -> Diagnosis {
        Diagnosis { severity: Severity::Note, ..Diagnosis::risk(task, kind) }
    }

    pub(super) fn when(is_risk: bool, task: Option<&str>, kind: impl Into<DiagnosisKind>) -> Diagnosis {
        if is_risk { Diagnosis::risk(task, kind) } else { Diagnosis::note(task, kind) }
    }

    /// Whether it keeps jobs from being processed, or puts them at risk.
    #[must_use]
    pub fn is_risk(&self) -> bool {
        self.severity == Severity::Risk
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        let hint = self.kind.hint(self.task.as_deref().unwrap_or_default());
        match self.caution {
            Some(Caution::Suspects) => format!("look at its poison suspects first; {hint}"),
            Some(Caution::FailingJobs) => format!("look at the jobs that will fail first; {hint}"),
            None => hint,
        }
    }

    /// Whether nothing of this keeps jobs from being processed.
    #[must_use]
    pub fn is_healthy(all: &[Diagnosis]) -> bool {
        !all.iter().any(Diagnosis::is_risk)
    }

    /// Whether following the hint lets jobs run: it starts a worker, resumes a task, or repairs, recovers or retries jobs.
    pub(super) fn lets_jobs_run(&self) -> bool {
        match &self.kind {
            DiagnosisKind::Queue(condition) => condition.lets_jobs_run(),
            DiagnosisKind::Data(condition) => condition.lets_jobs_run(),
            DiagnosisKind::Crash(condition) => condition.lets_jobs_run(),
            DiagnosisKind::Failure(condition) => condition.lets_jobs_run(),
            DiagnosisKind::Job(_) => true,
            DiagnosisKind::Server(_) | DiagnosisKind::Worker(_) | DiagnosisKind::Workflow(_) => false,
        }
    }

    pub(super) fn sort(all: &mut [Diagnosis]) {
        all.sort_by_key(|diagnosis| Reverse(diagnosis.severity));
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        self.kind.fmt(f)
    }
}

impl Serialize for Diagnosis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            severity: Severity,
            task: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            server: Option<&'a str>,
            #[serde(flatten)]
            kind: &'a DiagnosisKind,
            #[serde(skip_serializing_if = "Option::is_none")]
            caution: Option<Caution>,
            what: String,
            hint: String,
        }
        let (task, server) = (self.task.as_deref(), self.server.as_deref());
        let (what, hint) = (self.to_string(), self.hint());
        Json { severity: self.severity, task, server, kind: &self.kind, caution: self.caution, what, hint }
            .serialize(serializer)
    }
}

impl Diagnosis {
    /// Whether this reports the pause of its task.
    #[must_use]
    pub fn is_pause(&self) -> bool {
        matches!(self.kind, DiagnosisKind::Queue(QueueCondition::Paused { .. }))
    }
}
