//! The buttons next to a trouble: pages to look at, and the action that its advice names.

use heartline::inspect::diagnosis::Rescuer;
use heartline::{Caution, Diagnosis, DiagnosisKind as Kind};

use crate::frame::Frame;
use crate::state::encoded;

/// A button: a link to a page, or an action with the fields of its form.
pub(crate) struct Step {
    pub(crate) label: &'static str,
    pub(crate) url: String,
    /// Empty for a link.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// Whether it is what Heartline recommends.
    pub(crate) is_primary: bool,
}

/// The addresses of pages.
pub(crate) struct Pages<'a>(pub(crate) &'a str);

impl Pages<'_> {
    pub(crate) fn of(&self, page: &str, fields: &[(&str, &str)]) -> String {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let query = if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) };
        format!("{}/{page}{query}", self.0)
    }

    pub(crate) fn worker(&self, worker: &str) -> String {
        self.of("worker", &[("worker", worker)])
    }

    fn jobs(&self, task: &str, state: &str) -> String {
        self.of("jobs", &[("task", task), ("state", state)])
    }
}

/// The worker that a diagnosis is about, if it is one.
pub(crate) fn worker_of(kind: &Kind) -> Option<&str> {
    Some(match kind {
        Kind::LostWorker { holder, .. } => holder.worker.as_str(),
        Kind::MuteWorker { worker, .. }
        | Kind::JobSilent { worker }
        | Kind::WorkerDenied { worker, .. }
        | Kind::RuntimeBlocked { worker, .. }
        | Kind::WorkerQuiet { worker, .. }
        | Kind::NoWorker { quiet: Some(worker), .. }
        | Kind::HeartbeatsSlow { worker, .. } => worker.as_str(),
        _ => return None,
    })
}

/// The next steps: pages to look at, then the action that the advice names.
pub(crate) fn steps(diagnosis: &Diagnosis, frame: &Frame) -> Vec<Step> {
    let task = diagnosis.task.as_deref().unwrap_or_default();
    let mut steps = match diagnosis.caution {
        Some(Caution::Suspects) => vec![link("Suspects", Pages(&frame.base).of("stalls", &[("task", task)]))],
        Some(_) => vec![link("Running jobs", Pages(&frame.base).jobs(task, "running"))],
        None => Vec::new(),
    };
    // A person must look first: no action is then the recommended one.
    let is_first = steps.is_empty();
    let more = if diagnosis.kind.is_of_servers() {
        vec![link("Server", Pages(&frame.base).of("server", &[]))]
    } else {
        of_kind(diagnosis, task, &Pages(&frame.base))
    };
    for mut step in more {
        step.is_primary &= is_first;
        if !steps.iter().any(|known| known.label == step.label) {
            steps.push(step);
        }
    }
    steps.retain(|step| match step.fields.first() {
        Some((_, act)) => frame.may(act),
        None => step.url != frame.url,
    });
    steps
}

fn link(label: &'static str, url: String) -> Step {
    Step { label, url, fields: Vec::new(), is_primary: false }
}

/// An action; its name is the first field.
fn act(label: &'static str, is_primary: bool, fields: &[(&'static str, &str)]) -> Step {
    let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Step { label, url: String::new(), fields, is_primary }
}

fn of_kind(diagnosis: &Diagnosis, task: &str, pages: &Pages<'_>) -> Vec<Step> {
    let by_task = |label, page| link(label, pages.of(page, &[("task", task)]));
    let jobs = |label, state| link(label, pages.jobs(task, state));
    let schedule = |name: &str| link("Schedule", pages.of("schedule", &[("task", task), ("name", name)]));
    let job = |label, id: &str| link(label, pages.of("job", &[("task", task), ("id", id)]));
    let worker = |id: &str| link("Worker", pages.worker(id));
    match &diagnosis.kind {
        Kind::NoWorker { waiting: 0, .. } => vec![link("Workers", pages.of("workers", &[("all", "yes")]))],
        Kind::NoWorker { quiet: Some(quiet), .. } => vec![
            worker(quiet.as_str()),
            act("Claim jobs again", false, &[("act", "resume_worker"), ("worker", quiet.as_str())]),
        ],
        Kind::NoWorker { .. } => {
            vec![jobs("Waiting jobs", "waiting"), link("Workers", pages.of("workers", &[("all", "yes")]))]
        }
        Kind::Paused { .. } => vec![act("Resume", true, &[("act", "resume"), ("task", task)])],
        Kind::JobsFail { kept: 0, .. } => vec![jobs("Failed jobs", "failed")],
        Kind::JobsFail { .. } => vec![
            jobs("Failed jobs", "failed"),
            act("Retry all …", false, &[("act", "retry"), ("task", task), ("state", "failed")]),
        ],
        Kind::JobsRetry { .. } | Kind::NewerProducer { .. } => vec![jobs("Delayed jobs", "delayed")],
        Kind::JobsSnooze { first, .. } => vec![job("First job", first)],
        Kind::SlotsTaken { .. } => vec![jobs("Running jobs", "running"), by_task("Lanes", "lanes")],
        Kind::JobsParked { .. } => vec![jobs("Running jobs", "running")],
        Kind::KeyFull { .. } | Kind::KeysPaused { .. } => {
            vec![link("Full or paused keys", pages.of("lanes", &[("task", task), ("state", "full")]))]
        }
        Kind::JobsWillFail { first: Some(first), .. } => vec![job("First job", first)],
        Kind::JobsWillFail { .. } => vec![jobs("Running jobs", "running")],
        Kind::PoisonSuspects { top: Some(top), .. } => vec![
            by_task("Suspects", "stalls"),
            act("Cancel the first …", false, &[("act", "cancel"), ("task", task), ("id", top)]),
        ],
        Kind::PoisonSuspects { .. } | Kind::FailedSuspects { .. } => vec![by_task("Suspects", "stalls")],
        Kind::JobsRecovered { .. } | Kind::RunsBreakOff { .. } => vec![by_task("Stalls", "stalls")],
        Kind::SweepOverdue { .. } | Kind::HooksFail { .. } => vec![by_task("Task", "task")],
        Kind::JobsWithoutPlace { .. } | Kind::PayloadsLost { .. } | Kind::JobsNotClaimed { .. } => {
            vec![by_task("Audit", "audit")]
        }
        Kind::Unreadable { .. } | Kind::ForeignKeys { .. } if !task.is_empty() => vec![by_task("Audit", "audit")],
        Kind::SchedulesLate { .. } => vec![by_task("Schedules", "schedules")],
        Kind::SchedulesUnreadable { first, .. }
        | Kind::SchedulesOverlap { first, .. }
        | Kind::SchedulesPaused { first, .. }
        | Kind::SchedulesDiffer { first, .. } => vec![schedule(first)],
        Kind::LostWorker { jobs, holder, more: 0, rescuer, .. } if *jobs > 0 && holder.is_known => vec![
            worker(holder.worker.as_str()),
            act(
                "Recover its jobs …",
                matches!(rescuer, Some(Rescuer::Person)),
                &[("act", "recover_worker"), ("worker", holder.worker.as_str())],
            ),
        ],
        Kind::LostWorker { .. } | Kind::HoldersNotRead { .. } | Kind::TasksNotListed { .. } => {
            vec![link("Workers", pages.of("workers", &[("all", "yes")]))]
        }
        Kind::WorkerQuiet { worker: quiet, .. } => vec![
            worker(quiet.as_str()),
            act("Claim jobs again", false, &[("act", "resume_worker"), ("worker", quiet.as_str())]),
        ],
        Kind::WorkflowStalled { workflow, .. } => vec![link("Workflow", pages.of("flow", &[("workflow", workflow)]))],
        Kind::InstancesFailed { workflow, .. } => {
            vec![link("Failed instances", pages.of("flow", &[("workflow", workflow), ("state", "failed")]))]
        }
        Kind::InstancesStopped { workflow, .. } => {
            vec![link("Paused instances", pages.of("flow", &[("workflow", workflow), ("state", "paused")]))]
        }
        kind => worker_of(kind).map(worker).into_iter().collect(),
    }
}
