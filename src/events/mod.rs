//! Events of jobs: what they say, how a stream entry is read, and the subscriptions to them.
//!
//! Every script call that changes something adds one entry to the event stream of its task. An [`EventHub`] reads the
//! streams of all tasks of an app over one connection ([`reader`]) and passes them on ([`subscription`]).

mod looker;
mod reader;
mod subscription;

use std::time::{Duration, SystemTime};

use crate::job::JobId;
use crate::stall::action::StalledEvent;
use crate::store::streams::Entry;

pub(crate) use looker::End;
pub(crate) use reader::{EventHub, Followed};
pub use subscription::{RecvError, Subscription};

/// One transition of one job.
///
/// When an event arrives, the state in Redis has already changed, and may have changed again since.
///
/// A transition is one event. A job that ends by a stall is told by `Stalled` alone, whose action is then `failed` or
/// `cancelled`: listen to both to hear of every job that failed.
///
/// | event | name | when |
/// |---|---|---|
/// | `Dispatched` | `task:dispatched` | the job was written; it waits, or is delayed |
/// | `Started` | `task:started` | a worker claimed it and runs it |
/// | `Completed` | `task:completed` | the handler returned a value |
/// | `Failed` | `task:failed` | a run failed and no other follows |
/// | `Retrying` | `task:retrying` | a run failed, another one follows after the delay |
/// | `Stalled` | `task:stalled` | its worker was silent; the event says what became of the job |
/// | `Cancelled` | `task:cancelled` | it was cancelled while it waited, or its handler was |
/// | `Requeued` | `task:requeued` | its worker put it back unfinished; no attempt is counted |
/// | `Removed` | `task:removed` | retention removed it, or it was claimed and had no payload |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The job was written; it waits, or is delayed.
    #[non_exhaustive]
    Dispatched {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
    },
    /// A worker claimed the job and runs it.
    #[non_exhaustive]
    Started {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// Which attempt this run is, from 1; a run that stalled does not count.
        attempt: u32,
        /// How often the job stalled before.
        stalled_count: u32,
        /// The worker.
        worker: String,
    },
    /// The handler returned a value.
    #[non_exhaustive]
    Completed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// The worker that ran it.
        worker: String,
    },
    /// A run failed and no other follows: the job ended as failed. For a job that ended by a stall see `Stalled`.
    #[non_exhaustive]
    Failed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// The failure code.
        code: String,
        /// The worker that reported it.
        worker: String,
    },
    /// A run failed and another one follows.
    #[non_exhaustive]
    Retrying {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
        /// How many runs have failed so far.
        failed_attempts: u32,
        /// How long until the next one.
        delay: Duration,
    },
    /// The job was found stalled.
    Stalled(StalledEvent),
    /// The job was cancelled. For one that was cancelled when it had stalled see `Stalled`.
    #[non_exhaustive]
    Cancelled {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
    },
    /// The worker put the job back unfinished.
    #[non_exhaustive]
    Requeued {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
    },
    /// What was left of the job was removed.
    #[non_exhaustive]
    Removed {
        /// The task.
        task: String,
        /// The job.
        id: JobId,
    },
}

impl Event {
    /// The task of the job.
    #[must_use]
    pub fn task(&self) -> &str {
        match self {
            Event::Dispatched { task, .. }
            | Event::Started { task, .. }
            | Event::Completed { task, .. }
            | Event::Failed { task, .. }
            | Event::Retrying { task, .. }
            | Event::Cancelled { task, .. }
            | Event::Requeued { task, .. }
            | Event::Removed { task, .. } => task,
            Event::Stalled(stalled) => &stalled.task,
        }
    }

    /// The job.
    #[must_use]
    pub fn id(&self) -> &JobId {
        match self {
            Event::Dispatched { id, .. }
            | Event::Started { id, .. }
            | Event::Completed { id, .. }
            | Event::Failed { id, .. }
            | Event::Retrying { id, .. }
            | Event::Cancelled { id, .. }
            | Event::Requeued { id, .. }
            | Event::Removed { id, .. } => id,
            Event::Stalled(stalled) => &stalled.id,
        }
    }

    /// The name of the event: `task:completed`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Dispatched { .. } => "task:dispatched",
            Event::Started { .. } => "task:started",
            Event::Completed { .. } => "task:completed",
            Event::Failed { .. } => "task:failed",
            Event::Retrying { .. } => "task:retrying",
            Event::Stalled(_) => "task:stalled",
            Event::Cancelled { .. } => "task:cancelled",
            Event::Requeued { .. } => "task:requeued",
            Event::Removed { .. } => "task:removed",
        }
    }

    /// Whether the job ended with this event: completed, failed, cancelled, or stalled with an action that ends it.
    ///
    /// `Removed` is not terminal: it mostly follows, much later, an event that was.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        match self {
            Event::Completed { .. } | Event::Failed { .. } | Event::Cancelled { .. } => true,
            Event::Stalled(stalled) => stalled.is_terminal(),
            Event::Dispatched { .. }
            | Event::Started { .. }
            | Event::Retrying { .. }
            | Event::Requeued { .. }
            | Event::Removed { .. } => false,
        }
    }
}

/// What one stream entry says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    events: Vec<Event>,
    /// Whether there were fields that this version does not know, which may be events too.
    unknown_fields: bool,
}

/// The cumulative count of a stream's events, up to and including this entry.
fn total_of(entry: &Entry) -> Option<u64> {
    let (_, total) = entry.fields.iter().find(|(name, _)| name == "total")?;
    total.parse().ok()
}

/// Reads the events of an entry, in the order in which they happened.
///
/// # Errors
/// The name of the field that is no list of words as `docs/wire-format.md` has it.
fn decode(task: &str, entry: &Entry) -> Result<Decoded, String> {
    let mut decoded = Decoded::default();
    let (mut worker, mut reason) = ("", None);
    let owned = || task.to_owned();
    for (name, value) in &entry.fields {
        let events = &mut decoded.events;
        let read = match name.as_str() {
            "total" => value.parse::<u64>().ok().map(drop),
            "worker" => {
                worker = value;
                Some(())
            }
            "reason" => {
                reason = value.parse().ok();
                reason.map(drop)
            }
            "dispatched" => groups(value, |[id]| {
                events.push(Event::Dispatched { task: owned(), id: job(id) });
                Some(())
            }),
            "started" => groups(value, |[id]| {
                let (id, worker) = (job(id), worker.to_owned());
                events.push(Event::Started { task: owned(), id, attempt: 1, stalled_count: 0, worker });
                Some(())
            }),
            "restarted" => groups(value, |[id, failed_attempts, stalled_count]| {
                let (id, worker, task) = (job(id), worker.to_owned(), owned());
                let attempt = failed_attempts.parse::<u32>().ok()?.saturating_add(1);
                let stalled_count = stalled_count.parse().ok()?;
                events.push(Event::Started { task, id, attempt, stalled_count, worker });
                Some(())
            }),
            "completed" => groups(value, |[id]| {
                events.push(Event::Completed { task: owned(), id: job(id), worker: worker.to_owned() });
                Some(())
            }),
            "failed" => groups(value, |[id, code]| {
                let (id, code, worker) = (job(id), code.to_owned(), worker.to_owned());
                events.push(Event::Failed { task: owned(), id, code, worker });
                Some(())
            }),
            "retrying" => groups(value, |[id, failed_attempts, delay_ms]| {
                let (id, failed_attempts) = (job(id), failed_attempts.parse().ok()?);
                let delay = Duration::from_millis(delay_ms.parse().ok()?);
                events.push(Event::Retrying { task: owned(), id, failed_attempts, delay });
                Some(())
            }),
            "stalled" => groups(value, |[id, count, action, holder]| {
                events.push(Event::Stalled(StalledEvent {
                    task: owned(),
                    id: job(id),
                    count: count.parse().ok()?,
                    action: action.parse().ok()?,
                    worker: (holder != "-").then(|| holder.to_owned()),
                    reason: reason?,
                    at: written_at(&entry.id)?,
                }));
                Some(())
            }),
            "cancelled" => groups(value, |[id]| {
                events.push(Event::Cancelled { task: owned(), id: job(id) });
                Some(())
            }),
            "requeued" => groups(value, |[id]| {
                events.push(Event::Requeued { task: owned(), id: job(id) });
                Some(())
            }),
            "removed" => groups(value, |[id]| {
                events.push(Event::Removed { task: owned(), id: job(id) });
                Some(())
            }),
            _ => {
                decoded.unknown_fields = true;
                Some(())
            }
        };
        read.ok_or_else(|| name.clone())?;
    }
    Ok(decoded)
}

/// Hands the words on, `N` at a time; `None` when they do not come out even, or are refused.
fn groups<'a, const N: usize>(words: &'a str, mut each: impl FnMut([&'a str; N]) -> Option<()>) -> Option<()> {
    let mut words = words.split_ascii_whitespace().peekable();
    while words.peek().is_some() {
        let mut group = [""; N];
        for word in &mut group {
            *word = words.next()?;
        }
        each(group)?;
    }
    Some(())
}

fn job(id: &str) -> JobId {
    JobId::from_wire(id)
}

/// When the entry was written: the first half of its id.
fn written_at(entry_id: &str) -> Option<SystemTime> {
    let (ms, _) = entry_id.split_once('-')?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stall::action::{StallAction, StallReason};
    use proptest::prelude::*;

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Entry { id: "1700000000123-4".into(), fields }
    }

    fn names(decoded: &Decoded) -> Vec<String> {
        decoded.events.iter().map(|event| format!("{} {}", event.name(), event.id())).collect()
    }

    #[test]
    fn an_entry_of_settle_reads_in_the_order_of_its_fields() {
        let entry = entry(&[
            ("total", "9"),
            ("worker", "host-1-00000000"),
            ("completed", "a b"),
            ("failed", "c timeout d panic"),
            ("retrying", "e 2 1500"),
            ("requeued", "f"),
            ("cancelled", "g"),
            ("failed", "h corrupt"),
            ("started", "i"),
            ("restarted", "j 1 3"),
            ("removed", "k"),
        ]);
        assert_eq!(total_of(&entry), Some(9));
        let decoded = decode("export", &entry).unwrap();
        assert!(!decoded.unknown_fields);
        assert_eq!(
            names(&decoded),
            [
                "task:completed a",
                "task:completed b",
                "task:failed c",
                "task:failed d",
                "task:retrying e",
                "task:requeued f",
                "task:cancelled g",
                "task:failed h",
                "task:started i",
                "task:started j",
                "task:removed k",
            ]
        );
        let (task, worker) = ("export".to_owned(), "host-1-00000000".to_owned());
        let failed = Event::Failed { task: task.clone(), id: job("c"), code: "timeout".into(), worker: worker.clone() };
        assert_eq!(decoded.events[2], failed);
        let delay = Duration::from_millis(1500);
        assert_eq!(decoded.events[4], Event::Retrying { task: task.clone(), id: job("e"), failed_attempts: 2, delay });
        let first =
            Event::Started { task: task.clone(), id: job("i"), attempt: 1, stalled_count: 0, worker: worker.clone() };
        assert_eq!(decoded.events[8], first);
        assert_eq!(decoded.events[9], Event::Started { task, id: job("j"), attempt: 2, stalled_count: 3, worker });
        assert!(decoded.events.iter().all(|event| event.task() == "export"));
    }

    #[test]
    fn an_entry_of_sweep_tells_who_stalled_and_when() {
        let fields = [
            ("total", "2"),
            ("worker", "witness"),
            ("reason", "handler_silent"),
            ("stalled", "a 1 recovered host-1-00000000 b 2 failed -"),
        ];
        let decoded = decode("export", &entry(&fields)).unwrap();
        let event = StalledEvent {
            task: "export".into(),
            id: job("a"),
            count: 1,
            action: StallAction::Recovered,
            worker: Some("host-1-00000000".into()),
            reason: StallReason::HandlerSilent,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        };
        assert_eq!(decoded.events[0], Event::Stalled(event));
        assert!(!decoded.events[0].is_terminal() && decoded.events[1].is_terminal());
        assert!(matches!(&decoded.events[1], Event::Stalled(stalled) if stalled.worker.is_none()));
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let decoded = decode("t", &entry(&[("total", "3"), ("paused", "x y"), ("dispatched", "a")])).unwrap();
        assert_eq!((names(&decoded), decoded.unknown_fields), (vec!["task:dispatched a".to_owned()], true));
    }

    #[test]
    fn a_damaged_entry_names_its_field() {
        for (name, value) in [
            ("total", "many"),
            ("failed", "a"),
            ("retrying", "a 1 soon"),
            ("restarted", "a 1"),
            ("restarted", "a -1 0"),
            ("reason", "boredom"),
            ("stalled", "a 1 recovered w"),
        ] {
            assert_eq!(decode("t", &entry(&[(name, value)])), Err(name.to_owned()));
        }
        let twice = [("reason", "silent"), ("stalled", "a 1 forgotten w")];
        assert_eq!(decode("t", &entry(&twice)), Err("stalled".to_owned()));
    }

    #[test]
    fn no_entry_makes_the_decoder_panic() {
        let names = "total|worker|reason|dispatched|started|restarted|failed|retrying|stalled|removed|[a-z]{0,3}";
        let fields = prop::collection::vec((names, "[a-z0-9 -]{0,20}|\\PC{0,8}"), 0..6);
        proptest!(|(id in "\\PC{0,20}", fields in fields)| {
            let entry = Entry { id, fields };
            let _ = (total_of(&entry), decode("t", &entry));
        });
    }
}
