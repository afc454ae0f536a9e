//! A diagnosis on a page: a sentence with links, the buttons of the next steps, and advice with its commands in a fold.

use heartline::inspect::diagnosis::Rescuer;
use heartline::{Caution, Diagnosis, DiagnosisKind as Kind};

use crate::state::{Frame, encoded};

/// A diagnosis as a page shows it.
pub(crate) struct Trouble {
    /// The class of its tone, and the id of its icon.
    pub(crate) tone: &'static str,
    pub(crate) icon: &'static str,
    /// Its severity in a word.
    pub(crate) severity: &'static str,
    /// What it is about, and the page of that.
    pub(crate) subject: (String, Option<String>),
    /// What is wrong.
    pub(crate) what: Vec<Part>,
    pub(crate) steps: Vec<Step>,
    pub(crate) advice: Advice,
}

/// What to do.
pub(crate) struct Advice {
    /// Its text; commands in it are marked.
    pub(crate) parts: Vec<(String, bool)>,
    /// The complete commands, to copy.
    pub(crate) commands: Vec<String>,
}

impl Advice {
    /// The advice of a line with commands between backticks.
    pub(crate) fn of(line: &str, frame: &Frame) -> Advice {
        let split = |line: &str| line.split('`').map(str::to_owned).collect::<Vec<_>>();
        let commands = split(&frame.placed(line)).into_iter().skip(1).step_by(2);
        Advice {
            parts: split(line).into_iter().enumerate().map(|(at, text)| (text, at % 2 == 1)).collect(),
            commands: commands.filter(|command| command.starts_with("heartline ")).collect(),
        }
    }
}

/// A part of a sentence, with the page that it links to.
#[derive(Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) url: Option<String>,
}

/// A button: a link to a page, or an action with the fields of its form.
pub(crate) struct Step {
    pub(crate) label: &'static str,
    pub(crate) url: String,
    /// Empty for a link.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// Whether it is what Heartline recommends.
    pub(crate) is_primary: bool,
}

impl Trouble {
    pub(crate) fn of(diagnosis: &Diagnosis, frame: &Frame) -> Trouble {
        let (tone, icon, severity) = match (&diagnosis.kind, diagnosis.is_risk()) {
            (_, true) => ("red", "crit", "Risk"),
            (Kind::JobsRecovered { .. }, false) => ("", "info", "Note"),
            _ => ("amber", "warn", "Note"),
        };
        Trouble {
            tone,
            icon,
            severity,
            subject: subject(diagnosis, frame),
            what: linked(&sentence(&diagnosis.to_string()), &links(diagnosis, frame)),
            steps: steps(diagnosis, frame),
            advice: Advice::of(&diagnosis.hint(), frame),
        }
    }

    pub(crate) fn all(diagnoses: &[Diagnosis], frame: &Frame) -> Vec<Trouble> {
        diagnoses.iter().map(|diagnosis| Trouble::of(diagnosis, frame)).collect()
    }
}

/// A word for the row of a task: what its most severe diagnosis is about.
pub(crate) fn word(kind: &Kind) -> &'static str {
    match kind {
        Kind::NoWorker { .. } => "no worker",
        Kind::Paused { .. } => "paused",
        Kind::JobsFail { .. } => "failing",
        Kind::JobsRetry { .. } => "retrying",
        Kind::LostWorker { .. } => "lost worker",
        Kind::MuteWorker { .. } => "mute worker",
        Kind::JobsParked { .. } => "silent jobs",
        Kind::SlotsTaken { .. } => "slots taken",
        Kind::SlotsHeldByLostRuns { .. } => "slots lost",
        Kind::KeyFull { .. } => "keys full",
        Kind::PoisonSuspects { .. } | Kind::FailedSuspects { .. } => "suspects",
        Kind::JobsWillFail { .. } => "will fail",
        Kind::JobsWithoutPlace { .. } => "misplaced",
        Kind::PayloadsLost { .. } => "payloads lost",
        Kind::DataLost { .. } => "data lost",
        Kind::JobsNotClaimed { .. } => "not claimed",
        Kind::NewerProducer { .. } => "newer payloads",
        Kind::JobsSnooze { .. } => "snoozing",
        Kind::RunsBreakOff { .. } => "broken runs",
        Kind::HooksFail { .. } => "hooks fail",
        Kind::SweepOverdue { .. } => "not swept",
        Kind::JobsRecovered { .. } => "recovered",
        Kind::SchedulesLate { .. } => "ticks late",
        Kind::SchedulesUnreadable { .. } | Kind::SchedulesOverlap { .. } | Kind::SchedulesDiffer { .. } => "schedules",
        Kind::Unreadable { .. } | Kind::ForeignKeys { .. } | Kind::InvalidTaskName { .. } => "unreadable",
        _ => "look",
    }
}

/// A diagnosis as a sentence. A name at its beginning stays as it is.
fn sentence(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let is_word = first.len() < text.len() && first.bytes().all(|b| b.is_ascii_lowercase());
    let (head, rest) = text.split_at(usize::from(is_word));
    let end = if text.ends_with(['.', '…', '!', '?']) { "" } else { "." };
    format!("{}{rest}{end}", head.to_ascii_uppercase())
}

/// Splits a sentence at the first place of each name that has a page.
fn linked(text: &str, links: &[(String, String)]) -> Vec<Part> {
    let mut places: Vec<(usize, &(String, String))> = Vec::new();
    let mut links: Vec<&(String, String)> = links.iter().filter(|(name, _)| !name.is_empty()).collect();
    // A name may be the beginning of another one.
    links.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for link in links {
        let is_free =
            |at: &usize| places.iter().all(|(from, (name, _))| at + link.0.len() <= *from || *at >= from + name.len());
        if let Some(at) = text.match_indices(&link.0).map(|(at, _)| at).find(is_free) {
            places.push((at, link));
        }
    }
    places.sort_by_key(|(at, _)| *at);
    let (mut parts, mut from) = (Vec::new(), 0);
    let part = |text: &str, url: Option<&String>| Part { text: text.to_owned(), url: url.cloned() };
    for (at, (name, url)) in places {
        parts.push(part(&text[from..at], None));
        parts.push(part(name, Some(url)));
        from = at + name.len();
    }
    parts.push(part(&text[from..], None));
    parts.retain(|part| !part.text.is_empty());
    parts
}

/// The addresses of pages.
struct Pages<'a>(&'a str);

impl Pages<'_> {
    fn of(&self, page: &str, fields: &[(&str, &str)]) -> String {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let query = if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) };
        format!("{}/{page}{query}", self.0)
    }

    fn worker(&self, worker: &str) -> String {
        self.of("worker", &[("worker", worker)])
    }

    fn jobs(&self, task: &str, state: &str) -> String {
        self.of("jobs", &[("task", task), ("state", state)])
    }
}

/// What a diagnosis is about, and its page.
fn subject(diagnosis: &Diagnosis, frame: &Frame) -> (String, Option<String>) {
    let pages = Pages(&frame.base);
    let flow = |workflow: &String| (workflow.clone(), Some(pages.of("flow", &[("workflow", workflow)])));
    match (&diagnosis.task, &diagnosis.kind) {
        (Some(task), _) => (task.clone(), Some(pages.of("task", &[("task", task)]))),
        (None, kind) if kind.is_of_servers() => ("Redis".to_owned(), Some(pages.of("server", &[]))),
        (None, Kind::WorkflowStalled { workflow, .. } | Kind::InstancesStopped { workflow, .. }) => flow(workflow),
        (None, Kind::WorkflowListLost { .. }) => ("Workflows".to_owned(), Some(pages.of("flows", &[]))),
        (None, kind) => match worker_of(kind) {
            Some(worker) => ("Worker".to_owned(), Some(pages.worker(worker))),
            None => ("Tasks".to_owned(), None),
        },
    }
}

/// The worker that a diagnosis is about, if it is one.
fn worker_of(kind: &Kind) -> Option<&str> {
    Some(match kind {
        Kind::LostWorker { holder, .. } => holder.worker.as_str(),
        Kind::MuteWorker { worker, .. }
        | Kind::JobSilent { worker }
        | Kind::WorkerDenied { worker, .. }
        | Kind::RuntimeBlocked { worker, .. }
        | Kind::HeartbeatsSlow { worker, .. } => worker.as_str(),
        _ => return None,
    })
}

/// The names in the sentence that have pages.
fn links(diagnosis: &Diagnosis, frame: &Frame) -> Vec<(String, String)> {
    let pages = Pages(&frame.base);
    let task = diagnosis.task.as_deref().unwrap_or_default();
    let worker = |worker: &str| (worker.to_owned(), pages.worker(worker));
    let job = |id: &String| (id.clone(), pages.of("job", &[("task", task), ("id", id)]));
    let tasks = |names: &Vec<String>| {
        names.iter().map(|name| (name.clone(), pages.of("task", &[("task", name)]))).collect::<Vec<_>>()
    };
    match &diagnosis.kind {
        Kind::JobsRecovered { workers, .. } => workers.iter().map(|own| worker(own.as_str())).collect(),
        Kind::SlotsHeldByLostRuns { workers, .. } => workers.iter().map(|own| worker(own.worker.as_str())).collect(),
        Kind::SchedulesDiffer { by, other, .. } => vec![worker(by.as_str()), worker(other.as_str())],
        Kind::PoisonSuspects { jobs, .. } | Kind::FailedSuspects { jobs } => jobs.iter().take(3).map(job).collect(),
        Kind::PayloadsLost { first: Some(first), .. } => vec![job(first)],
        Kind::DataLost { tasks: names, .. }
        | Kind::NodesUnreachable { tasks: names, .. }
        | Kind::SlotsMoving { tasks: names, .. } => tasks(names),
        kind => worker_of(kind).into_iter().map(worker).collect(),
    }
}

/// The next steps: pages to look at, then the action that the advice names.
fn steps(diagnosis: &Diagnosis, frame: &Frame) -> Vec<Step> {
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
        Kind::KeyFull { .. } => {
            vec![link("Full keys", pages.of("lanes", &[("task", task), ("state", "full")]))]
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
        Kind::WorkflowStalled { workflow, .. } => vec![link("Workflow", pages.of("flow", &[("workflow", workflow)]))],
        Kind::InstancesStopped { workflow, .. } => {
            vec![link("Paused instances", pages.of("flow", &[("workflow", workflow), ("state", "paused")]))]
        }
        kind => worker_of(kind).map(worker).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_keeps_names_and_ends_with_a_point() {
        assert_eq!(sentence("paused by ann"), "Paused by ann.");
        assert_eq!(sentence("web-1: it fails"), "web-1: it fails.");
        assert_eq!(sentence("3 jobs wait …"), "3 jobs wait …");
    }

    #[test]
    fn each_name_in_a_sentence_links_to_its_page_once() {
        let links = [("web-1".to_owned(), "/w1".to_owned()), ("web-10".to_owned(), "/w10".to_owned())];
        let parts = linked("lost web-10 and web-1", &links[1..]);
        assert_eq!(parts.len(), 3);
        let both = linked("lost web-10 and web-1", &links);
        let urls: Vec<_> = both.iter().map(|part| (part.text.as_str(), part.url.as_deref())).collect();
        assert_eq!(urls, [("lost ", None), ("web-10", Some("/w10")), (" and ", None), ("web-1", Some("/w1"))]);
        assert_eq!(linked("nothing", &[]).len(), 1);
    }
}
