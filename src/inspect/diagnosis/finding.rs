//! One finding: how severe it is, what it is about, and its kind.

use std::cmp::Reverse;
use std::fmt;

use serde::{Serialize, Serializer};

use super::kinds::DiagnosisKind;

/// How severe a [`Diagnosis`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It may be intended. A person should judge it.
    Note,
    /// Jobs are not processed, or are at risk.
    Risk,
}

/// What to check before following the hint of a [`Diagnosis`], because the hint lets jobs run.
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
/// As JSON it has `severity`, `task`, `server`, `kind` (in snake case), `facts` (the fields of the kind), `caution`, and the texts `what` and
/// `hint`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// How severe it is.
    pub severity: Severity,
    /// The task that it is about, if any.
    pub task: Option<String>,
    /// The server that it is about, if there are several.
    pub server: Option<String>,
    /// What is wrong.
    pub kind: DiagnosisKind,
    /// What to check before following the hint.
    pub caution: Option<Caution>,
}

impl DiagnosisKind {
    /// Its name in snake case, as `kind` in JSON.
    #[must_use]
    pub fn code(&self) -> String {
        let json = serde_json::to_value(self).unwrap_or_default();
        json.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned()
    }

    /// Whether it is about a server or the nodes of a cluster.
    #[must_use]
    pub fn is_of_servers(&self) -> bool {
        matches!(
            self,
            Self::ServerUnreachable { .. }
                | Self::WritesRefused { .. }
                | Self::ReplicasMissing { .. }
                | Self::Eviction { .. }
                | Self::NotDurable { .. }
                | Self::ServerRestarted { .. }
                | Self::Memory { .. }
                | Self::SlowRoundTrip { .. }
                | Self::ListUnreachable { .. }
                | Self::NodesUnreachable { .. }
                | Self::SlotsMoving { .. }
        )
    }

    /// Whether following the hint lets jobs run: it starts a worker, resumes a task, or repairs, recovers or retries jobs.
    pub(super) fn lets_jobs_run(&self) -> bool {
        match self {
            Self::ForeignKeys { workflow, .. } => workflow.is_none(),
            Self::LostWorker { jobs, .. } => *jobs > 0,
            Self::JobsFail { kept, .. } => *kept > 0,
            kind => matches!(
                kind,
                Self::JobsWithoutPlace { .. }
                    | Self::NoWorker { .. }
                    | Self::Paused { .. }
                    | Self::JobsRetry { .. }
                    | Self::JobSilent { .. }
                    | Self::JobsParked { .. }
                    | Self::JobsWillFail { .. }
                    | Self::SchedulesLate { .. }
            ),
        }
    }
}

impl Diagnosis {
    pub(super) fn risk(task: Option<&str>, kind: DiagnosisKind) -> Diagnosis {
        Diagnosis { severity: Severity::Risk, task: task.map(str::to_owned), server: None, kind, caution: None }
    }

    pub(super) fn note(task: Option<&str>, kind: DiagnosisKind) -> Diagnosis {
        Diagnosis { severity: Severity::Note, ..Diagnosis::risk(task, kind) }
    }

    pub(super) fn when(is_risk: bool, task: Option<&str>, kind: DiagnosisKind) -> Diagnosis {
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

    /// Whether none of them keeps jobs from being processed, or puts them at risk.
    #[must_use]
    pub fn is_healthy(all: &[Diagnosis]) -> bool {
        !all.iter().any(Diagnosis::is_risk)
    }

    /// Whether this reports the pause of its task.
    #[must_use]
    pub fn is_pause(&self) -> bool {
        matches!(self.kind, DiagnosisKind::Paused { .. })
    }

    pub(super) fn sort(all: &mut [Diagnosis]) {
        let is_over = |found: &Diagnosis| matches!(found.kind, DiagnosisKind::JobsRecovered { .. });
        all.sort_by_key(|found| (Reverse(found.severity), is_over(found)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_is_data_and_one_sentence() {
        let tasks = vec!["a".to_owned(), "b".to_owned()];
        let found = Diagnosis::risk(None, DiagnosisKind::NodesUnreachable { tasks, workers: 1 });
        let found = Diagnosis { server: Some("h:1".to_owned()), ..found };
        let what = "h:1: nodes of the cluster do not answer: 2 tasks: a, b; the presence of 1 live worker";
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!((&json["severity"], &json["kind"]), (&"risk".into(), &"nodes_unreachable".into()));
        assert_eq!((&json["what"], &json["facts"]["workers"]), (&what.into(), &1.into()));
        assert!(json["hint"].as_str().unwrap().contains("`heartline doctor`") && found.kind.is_of_servers());
    }

    #[test]
    fn texts_about_one_job_use_the_singular() {
        use DiagnosisKind::{DataLost, JobsRecovered, PayloadsLost};

        let recovered = |jobs, failed, cancelled| {
            let (workers, last_ago_ms) = (vec![], 1000);
            JobsRecovered { jobs, is_exact: true, workers, failed, cancelled, last_ago_ms }.to_string()
        };
        assert_eq!(recovered(1, 1, 0), "1 job recovered, the last 1.0s ago; it failed");
        assert_eq!(recovered(1, 0, 1), "1 job recovered, the last 1.0s ago; it was cancelled, as requested");
        assert_eq!(
            recovered(3, 1, 1),
            "3 jobs recovered, the last 1.0s ago; 1 of them failed; 1 of them cancelled, as requested"
        );
        let lost = PayloadsLost { jobs: 1, waiting: 0, first: None, removed_ago_ms: Some(1000) };
        assert_eq!(lost.to_string(), "1 job without payload was removed, the last 1.0s ago");
        let lost = DataLost { tasks: vec!["copy".to_owned()], only_options: false, ago_ms: 1000 };
        assert_eq!(lost.to_string(), "the server lost its data 1.0s ago: the jobs of copy are gone");
    }

    #[test]
    fn hints_name_steps_that_are_possible() {
        let hint = |by_person, has_live_workers| {
            let first = Some("a".to_owned());
            DiagnosisKind::JobsWillFail { jobs: 1, first, by_person, has_live_workers }.hint("pay")
        };
        assert!(hint(false, false).contains("before a worker starts, "), "{}", hint(false, false));
        for (by_person, has_live_workers) in [(false, true), (true, true), (true, false)] {
            assert!(!hint(by_person, has_live_workers).contains("before a worker starts"));
        }
        assert!(
            hint(true, true).ends_with("-t pay a` runs them again; do not use `recover worker`"),
            "{}",
            hint(true, true)
        );
        let fails = |failed_lately| {
            let (completed_lately, in_a_row, kept, last_failed_ago_ms) = (0, 0, 1, None);
            DiagnosisKind::JobsFail { failed_lately, completed_lately, in_a_row, kept, last_failed_ago_ms }.hint("pay")
        };
        assert!(
            fails(1).contains("The warning ends 5 minutes after the last failure, if jobs complete, or with"),
            "{}",
            fails(1)
        );
        assert!(fails(0).contains("The warning ends when jobs complete, or with"), "{}", fails(0));
        assert!(fails(1).contains("(jobs of workflows: `heartline flows list WORKFLOW`)"), "{}", fails(1));
    }

    #[test]
    fn settings_of_a_server_are_named_by_their_worst_part() {
        use DiagnosisKind::{Eviction, Memory, NotDurable, ReplicasMissing};

        let policy = || "allkeys-lru".to_owned();
        for (kind, what) in [
            (ReplicasMissing { replicas: 0, silent: 0, wanted: Some(1) }, "the server has no replica"),
            (ReplicasMissing { replicas: 2, silent: 1, wanted: None }, "1 of 2 replicas sent nothing for some seconds"),
            (
                ReplicasMissing { replicas: 1, silent: 0, wanted: Some(1) },
                "writes need 1 replica (min-replicas-to-write), and the server has 1",
            ),
            (Eviction { policy: policy(), keys: 0 }, "the maxmemory-policy is allkeys-lru"),
            (
                Eviction { policy: policy(), keys: 2 },
                "the server has evicted 2 keys since it started (maxmemory-policy allkeys-lru)",
            ),
            (NotDurable { save_failed: true, unsaved_writes: Some(3) }, "the last write to disk failed"),
            (
                NotDurable { save_failed: false, unsaved_writes: Some(3) },
                "the server writes no append-only file: a crash loses 3 writes since the last snapshot",
            ),
            (Memory { percent: None }, "the server has no maxmemory"),
            (
                Memory { percent: Some(100) },
                "100 % of maxmemory is used: dispatches, checkpoints and ticks are refused",
            ),
        ] {
            assert_eq!(kind.to_string(), what);
        }
    }
}
