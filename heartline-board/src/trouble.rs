//! A diagnosis on a page: a sentence with links, the buttons of the next steps, and advice with its commands in a fold.

use heartline::{Diagnosis, DiagnosisKind as Kind};

use crate::frame::Frame;
use crate::steps::{Pages, Step, steps, worker_of};

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
    /// The task, if the trouble is that its jobs fail.
    pub(crate) fails: Option<String>,
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
            fails: diagnosis.task.clone().filter(|_| matches!(diagnosis.kind, Kind::JobsFail { .. })),
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
        Kind::NoWorker { quiet: Some(_), .. } => "quiet",
        Kind::NoWorker { .. } => "no worker",
        Kind::Paused { .. } => "paused",
        Kind::JobsFail { .. } => "failing",
        Kind::JobsRetry { .. } => "retrying",
        Kind::LostWorker { .. } => "lost worker",
        Kind::MuteWorker { .. } => "mute worker",
        Kind::JobsParked { .. } => "silent jobs",
        Kind::SlotsTaken { .. } => "slots taken",
        Kind::SlotsHeldByLostRuns { .. } => "slots lost",
        Kind::KeyFull { .. } => "keys full or paused",
        Kind::KeysPaused { .. } => "keys paused",
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
        Kind::SchedulesPaused { .. } => "schedule paused",
        Kind::SchedulesUnreadable { .. } | Kind::SchedulesOverlap { .. } | Kind::SchedulesDiffer { .. } => "schedules",
        Kind::Unreadable { .. } | Kind::ForeignKeys { .. } | Kind::InvalidTaskName { .. } => "unreadable",
        _ => "note",
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

/// What a diagnosis is about, and its page.
fn subject(diagnosis: &Diagnosis, frame: &Frame) -> (String, Option<String>) {
    let pages = Pages(&frame.base);
    let flow = |workflow: &String| (workflow.clone(), Some(pages.of("flow", &[("workflow", workflow)])));
    match (&diagnosis.task, &diagnosis.kind) {
        (Some(task), _) => (task.clone(), Some(pages.of("task", &[("task", task)]))),
        (None, kind) if kind.is_of_servers() => ("Redis".to_owned(), Some(pages.of("server", &[]))),
        (
            None,
            Kind::WorkflowStalled { workflow, .. }
            | Kind::InstancesStopped { workflow, .. }
            | Kind::InstancesFailed { workflow, .. },
        ) => flow(workflow),
        (None, Kind::WorkflowListLost { .. }) => ("Workflows".to_owned(), Some(pages.of("flows", &[]))),
        (None, kind) => match worker_of(kind) {
            Some(worker) => ("Worker".to_owned(), Some(pages.worker(worker))),
            None => ("Tasks".to_owned(), None),
        },
    }
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
