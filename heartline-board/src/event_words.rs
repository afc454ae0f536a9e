//! An event of a job in words.

use heartline::Event;
use heartline::inspect::describe::{rest_of, stall_reason};
use heartline::inspect::text::{brief, span};

use crate::badge::Badge;

/// How much of a value or a message is shown.
const LONGEST: usize = 200;

/// An event on the page of a job.
pub(crate) struct EventWords {
    /// Its icon and tone, and what happened.
    pub(crate) badge: Badge,
    /// The worker that it names.
    pub(crate) worker: Option<String>,
    /// What else it says; may be empty.
    pub(crate) detail: String,
}

impl EventWords {
    pub(crate) fn of(event: &Event) -> EventWords {
        let (tone, icon, what, worker, detail) = match event {
            Event::Dispatched { .. } => ("", "wait", "Dispatched".to_owned(), None, String::new()),
            Event::Claimed { worker, .. } => {
                ("blue", "claim", "Claimed ahead by".to_owned(), Some(worker), String::new())
            }
            Event::Started { attempt, waited, worker, .. } => {
                let waited = waited.map_or_else(String::new, |waited| format!("waited {}", span(waited)));
                ("blue", "play", format!("Attempt {attempt} started on"), Some(worker), waited)
            }
            Event::Progress { value, message, .. } => (
                "blue",
                "play",
                format!("Progress {}", brief(&value.to_string(), LONGEST)),
                None,
                brief(message, LONGEST),
            ),
            Event::Completed { ran, worker, .. } => {
                ("green", "check", format!("Completed after {} on", span(*ran)), Some(worker), String::new())
            }
            Event::Failed { code, message, worker, .. } => {
                ("red", "x", format!("Failed with {code}, reported by"), Some(worker), brief(message, LONGEST))
            }
            Event::Retrying { delay, code, message, worker, .. } => {
                let what = format!("Run failed with {code}, next in {}, on", span(*delay));
                ("red", "x", what, Some(worker), brief(message, LONGEST))
            }
            Event::Stalled(stalled) => {
                let what = format!("Stalled: {}, was held by", stalled.action);
                (
                    "red",
                    "flat",
                    what,
                    stalled.worker.as_ref(),
                    format!("{}, stall {}", stall_reason(stalled.reason), stalled.stalled_count),
                )
            }
            Event::Snoozed { delay, .. } => {
                ("amber", "clock", format!("Snoozed for {}", span(*delay)), None, String::new())
            }
            Event::Cancelled { by, .. } => ("", "slash", "Cancelled".to_owned(), None, named(by.as_deref())),
            Event::Requeued { by, .. } => ("amber", "fin", "Requeued".to_owned(), None, named(by.as_deref())),
            Event::ManuallyRetried { by, .. } => {
                ("", "retry", "Retried by hand".to_owned(), None, named(by.as_deref()))
            }
            Event::Promoted { by, .. } => ("", "retry", "Moved to the front".to_owned(), None, named(by.as_deref())),
            other => {
                let name = other.name().trim_start_matches("task:").replace('_', " ");
                ("", "info", sentence(&name), None, rest_of(other))
            }
        };
        EventWords { badge: Badge::new(tone, icon, what), worker: worker.map(ToString::to_string), detail }
    }
}

fn named(by: Option<&str>) -> String {
    by.map_or_else(String::new, |by| format!("by {by}"))
}

fn sentence(name: &str) -> String {
    let (first, rest) = name.split_at(usize::from(!name.is_empty()));
    format!("{}{rest}", first.to_ascii_uppercase())
}
