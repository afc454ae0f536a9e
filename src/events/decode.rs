//! Decodes the entries of event streams.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use percent_encoding::percent_decode_str;

use super::event::Event;
use crate::backend::streams::Entry;
use crate::codec::Codecs;
use crate::job::id::JobId;
use crate::job::progress::JobProgress;
use crate::job::snooze::Snoozes;
use crate::limits::stored_number;
use crate::stall::action::{StallReason, StalledEvent};
use crate::worker_id::WorkerId;

/// The content of a stream entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded<E = Event> {
    pub(crate) events: Vec<E>,
    /// Whether there were fields that this version does not know, which may also be events.
    pub(super) unknown_fields: bool,
}

impl<E> Default for Decoded<E> {
    fn default() -> Decoded<E> {
        Decoded { events: Vec::new(), unknown_fields: false }
    }
}

/// The cumulative count of a stream's events, up to and including this entry.
pub(super) fn total_of(entry: &Entry) -> Option<u64> {
    let (_, total) = entry.fields.iter().find(|(name, _)| name == "total")?;
    stored_number(total)
}

/// Decodes the events of an entry, in the order in which they happened.
///
/// # Errors
/// The name of a field whose words do not match `docs/wire-format.md`.
pub(crate) fn decode(task: &str, entry: &Entry, codecs: &Codecs) -> Result<Decoded, String> {
    let mut reading = Reading {
        task,
        codecs,
        at: written_at(&entry.id),
        worker: "",
        reason: None,
        by: None,
        lost_payload: false,
        since: HashMap::new(),
        ran: "".split_ascii_whitespace(),
        decoded: Decoded::default(),
    };
    for (name, value) in &entry.fields {
        let read = if is_context(name) { reading.take_context(name, value) } else { reading.take_events(name, value) };
        read.ok_or_else(|| name.clone())?;
    }
    Ok(reading.decoded)
}

/// Whether a field describes the events in the fields after it, and is not an event itself.
fn is_context(name: &str) -> bool {
    let words = ["total", "worker", "reason", "since", "ran", "by", "why", "watched"];
    words.contains(&name) || ["paused", "resumed", "quiet", "unquiet"].contains(&name)
}

struct Reading<'a> {
    task: &'a str,
    codecs: &'a Codecs,
    at: Option<SystemTime>,
    worker: &'a str,
    reason: Option<StallReason>,
    by: Option<&'a str>,
    lost_payload: bool,
    /// By job: when it was dispatched, and how long it was delayed, ms.
    since: HashMap<&'a str, (&'a str, u64)>,
    /// How long each completed job ran.
    ran: std::str::SplitAsciiWhitespace<'a>,
    decoded: Decoded,
}

impl<'a> Reading<'a> {
    fn take_context(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "total" => value.parse::<u64>().ok().map(drop),
            "worker" => {
                self.worker = value;
                Some(())
            }
            "reason" => {
                self.reason = value.parse().ok();
                self.reason.map(drop)
            }
            "by" => {
                self.by = Some(value);
                Some(())
            }
            "why" => {
                self.lost_payload = value == "no_payload";
                Some(())
            }
            // For people, who read them directly.
            "watched" | "paused" | "resumed" | "quiet" | "unquiet" => Some(()),
            "since" => groups(value, |[id, dispatched_at, delay_ms]| {
                self.since.insert(id, (dispatched_at, stored_number(delay_ms)?));
                Some(())
            }),
            _ => {
                self.ran = value.split_ascii_whitespace();
                Some(())
            }
        }
    }

    /// Takes the events of a field, and notes a field that this version does not know.
    fn take_events(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "dispatched" => {
                groups(value, |[id]| self.push(Event::Dispatched { task: self.task_name(), id: job(id), at: self.at? }))
            }
            "claimed" => groups(value, |[id]| {
                let worker = self.holder();
                self.push(Event::Claimed { task: self.task_name(), id: job(id), at: self.at?, worker })
            }),
            "started" => groups(value, |[id]| {
                let (task, worker, at, own) = (self.task_name(), self.holder(), self.at?, self.since.get(id).copied());
                let id = job(id);
                let waited = waited(&id, own, at);
                self.push(Event::Started { task, id, at, attempt: 1, stalled_count: 0, waited, worker })
            }),
            "restarted" => groups(value, |[id, failed_attempts, stalled_count]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                let attempt = failed_attempts.parse::<u32>().ok()?.saturating_add(1);
                let stalled_count = stalled_count.parse().ok()?;
                self.push(Event::Started { task, id, at, attempt, stalled_count, waited: None, worker })
            }),
            "progress" => groups(value, |[id, said]| {
                let JobProgress { value, message, .. } =
                    JobProgress::read(&Cow::from(percent_decode_str(said)), self.codecs, 0);
                let (task, worker) = (self.task_name(), self.holder());
                self.push(Event::Progress { task, id: job(id), at: self.at?, value, message, worker })
            }),
            "scheduled" | "overlapped" | "missed" => self.take_ticks(name, value),
            _ => self.take_outcomes(name, value),
        }
    }

    /// Takes the ticks of schedules: fired, overlapped and missed ones.
    fn take_ticks(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "scheduled" => groups(value, |[schedule, due_ms, id, late_ms]| {
                let (task, id, at, schedule) = (self.task_name(), job(id), self.at?, schedule.to_owned());
                let (due, late) = (time(due_ms)?, delay_of(late_ms)?);
                self.push(Event::Scheduled { task, id, at, schedule, due, late })
            }),
            "overlapped" => groups(value, |[schedule, due_ms]| {
                let (task, id, at) = (self.task_name(), tick_of(schedule, due_ms), self.at?);
                self.push(Event::Overlapped { task, id, at, schedule: schedule.to_owned(), due: time(due_ms)? })
            }),
            _ => groups(value, |[schedule, due_ms, count]| {
                let (task, id, at) = (self.task_name(), tick_of(schedule, due_ms), self.at?);
                let (due, count) = (time(due_ms)?, stored_number(count)?);
                self.push(Event::Missed { task, id, at, schedule: schedule.to_owned(), due, count })
            }),
        }
    }

    /// Takes what a worker reported about its runs.
    fn take_outcomes(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "completed" => groups(value, |[id]| {
                let ran = Duration::from_micros(stored_number(self.ran.next()?)?);
                let (task, worker) = (self.task_name(), self.holder());
                self.push(Event::Completed { task, id: job(id), at: self.at?, ran, worker })
            }),
            "failed" => groups(value, |[id, code, brief, ran]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                let (code, message, ran) = (code.to_owned(), message_of(brief), ran_of(ran)?);
                self.push(Event::Failed { task, id, at, code, message, ran, worker })
            }),
            "retrying" => groups(value, |[id, failed_attempts, delay_ms, code, brief, ran]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                let failed_attempts = failed_attempts.parse().ok()?;
                let (delay, ran) = (delay_of(delay_ms)?, ran_of(ran)?);
                let (code, message) = (code.to_owned(), message_of(brief));
                self.push(Event::Retrying { task, id, at, failed_attempts, delay, code, message, ran, worker })
            }),
            "snoozed" => groups(value, |[id, snoozes, delay_ms]| {
                let (task, id, at) = (self.task_name(), job(id), self.at?);
                let snoozed_count = Snoozes::from_wire(snoozes).snoozed;
                self.push(Event::Snoozed { task, id, at, snoozed_count, delay: delay_of(delay_ms)? })
            }),
            "undecodable" => groups(value, |[id, snoozes, delay_ms]| {
                let (task, id, at) = (self.task_name(), job(id), self.at?);
                let undecodable_count = Snoozes::from_wire(snoozes).undecodable;
                self.push(Event::Undecodable { task, id, at, undecodable_count, delay: delay_of(delay_ms)? })
            }),
            "outcome_rejected" => groups(value, |[id, fence, outcome]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                let (fence, outcome) = (fence.parse().ok()?, outcome.parse().ok()?);
                self.push(Event::OutcomeRejected { task, id, at, fence, outcome, worker })
            }),
            _ => self.take_hooks(name, value),
        }
    }

    /// Takes what happened to the hooks of jobs.
    fn take_hooks(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "finalizing" => groups(value, |[id, outcome]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                self.push(Event::Finalizing { task, id, at, outcome: outcome.parse().ok()?, worker })
            }),
            "hook_retrying" => groups(value, |[id, failed_attempts, delay_ms, code, brief]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                let (failed_attempts, delay) = (failed_attempts.parse().ok()?, delay_of(delay_ms)?);
                let (code, message) = (code.to_owned(), message_of(brief));
                self.push(Event::HookRetrying { task, id, at, failed_attempts, delay, code, message, worker })
            }),
            "hook_failed" => groups(value, |[id, code, brief]| {
                let (task, id, at, worker) = (self.task_name(), job(id), self.at?, self.holder());
                let (code, message) = (code.to_owned(), message_of(brief));
                self.push(Event::HookFailed { task, id, at, code, message, worker })
            }),
            _ => self.take_stalls_and_acts(name, value),
        }
    }

    /// Takes stalls, and what people or workers did to jobs outside of a run.
    fn take_stalls_and_acts(&mut self, name: &str, value: &'a str) -> Option<()> {
        match name {
            "stalled" => groups(value, |[id, count, action, holder]| {
                self.push(Event::Stalled(StalledEvent {
                    task: self.task_name(),
                    id: job(id),
                    stalled_count: count.parse().ok()?,
                    action: action.parse().ok()?,
                    worker: (holder != "-").then(|| WorkerId::from_wire(holder)),
                    reason: self.reason?,
                    at: self.at?,
                }))
            }),
            "cancelled" => groups(value, |[id]| {
                self.push(Event::Cancelled { task: self.task_name(), id: job(id), at: self.at?, by: self.asker() })
            }),
            "requeued" => groups(value, |[id]| {
                self.push(Event::Requeued { task: self.task_name(), id: job(id), at: self.at?, by: self.asker() })
            }),
            "removed" => groups(value, |[id]| {
                let (task, id, by, lost_payload) = (self.task_name(), job(id), self.asker(), self.lost_payload);
                self.push(Event::Removed { task, id, at: self.at?, by, lost_payload })
            }),
            "manually_retried" => groups(value, |[id]| {
                let by = self.asker();
                self.push(Event::ManuallyRetried { task: self.task_name(), id: job(id), at: self.at?, by })
            }),
            "replaced" => {
                groups(value, |[id]| self.push(Event::Replaced { task: self.task_name(), id: job(id), at: self.at? }))
            }
            "promoted" => groups(value, |[id]| {
                self.push(Event::Promoted { task: self.task_name(), id: job(id), at: self.at?, by: self.asker() })
            }),
            _ => {
                self.decoded.unknown_fields = true;
                Some(())
            }
        }
    }

    fn push(&mut self, event: Event) -> Option<()> {
        self.decoded.events.push(event);
        Some(())
    }

    fn task_name(&self) -> String {
        self.task.to_owned()
    }

    fn holder(&self) -> WorkerId {
        WorkerId::from_wire(self.worker)
    }

    /// Who asked for it.
    fn asker(&self) -> Option<String> {
        self.by.map(str::to_owned)
    }
}

/// How long a job waited until it started. The time counts from when the job could first be claimed: its dispatch, from
/// the id or from `since`, plus its delay.
fn waited(id: &JobId, since: Option<(&str, u64)>, started: SystemTime) -> Option<Duration> {
    let (dispatched_at, delay_ms) = since.unwrap_or(("-", 0));
    let dispatched_at = if dispatched_at == "-" { id.created_at() } else { time(dispatched_at) };
    let claimable = dispatched_at?.checked_add(Duration::from_millis(delay_ms))?;
    Some(started.duration_since(claimable).unwrap_or_default())
}

/// How long a run took; the inner `None` if unknown, since its worker died.
fn ran_of(us: &str) -> Option<Option<Duration>> {
    if us == "-" { Some(None) } else { stored_number(us).map(|us| Some(Duration::from_micros(us))) }
}

fn delay_of(ms: &str) -> Option<Duration> {
    stored_number(ms).map(Duration::from_millis)
}

/// Calls `each` with `N` words at a time; `None` if some are left over or are refused.
pub(super) fn groups<'a, const N: usize>(
    words: &'a str,
    mut each: impl FnMut([&'a str; N]) -> Option<()>,
) -> Option<()> {
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

/// The beginning of an error. It is percent-encoded in an entry, since words have no spaces.
fn message_of(brief: &str) -> String {
    if brief == "-" { String::new() } else { percent_decode_str(brief).decode_utf8_lossy().into_owned() }
}

/// The id that the job of a tick would have without partitions.
fn tick_of(schedule: &str, due_ms: &str) -> JobId {
    job(&format!("{schedule}@{due_ms}"))
}

fn job(id: &str) -> JobId {
    JobId::from_wire(id)
}

/// When the entry was written: the first half of its id.
pub(super) fn written_at(entry_id: &str) -> Option<SystemTime> {
    let (ms, _) = entry_id.split_once('-')?;
    time(ms)
}

fn time(ms: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(stored_number(ms)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stall::action::StallAction;
    use crate::unix_time::to_ms;
    use proptest::prelude::*;

    fn entry(fields: &[(&str, &str)]) -> Entry {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Entry { id: "1700000000123-4".into(), fields }
    }

    fn names(decoded: &Decoded) -> Vec<String> {
        decoded.events.iter().map(|event| format!("{} {}", event.name(), event.id())).collect()
    }

    #[test]
    fn an_entry_of_settle_has_its_fields_in_order() {
        let entry = entry(&[
            ("total", "9"),
            ("worker", "host-1-00000000"),
            ("ran", "1500 0"),
            ("completed", "a b"),
            ("failed", "c timeout too%20late 20000 d panic - 7"),
            ("retrying", "e 2 1500 busy 100%25 8"),
            ("requeued", "f"),
            ("cancelled", "g"),
            ("failed", "h corrupt a%0Ab -"),
            ("since", "i 1700000000000 100"),
            ("started", "i"),
            ("restarted", "j 1 3"),
            ("removed", "k"),
        ]);
        assert_eq!(total_of(&entry), Some(9));
        let decoded = decode("export", &entry, &Codecs::default()).unwrap();
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
        let json: Vec<String> =
            [0, 2, 3, 4, 7, 8, 9].map(|i| serde_json::to_string(&decoded.events[i]).unwrap()).into();
        let shown = |event: &str, id: &str, rest: &str| {
            let (at, worker) = (r#""at_ms":1700000000123"#, r#""worker":"host-1-00000000""#);
            format!(r#"{{"event":"{event}","task":"export","id":"{id}",{at},{rest},{worker}}}"#)
        };
        let wanted = [
            shown("completed", "a", r#""ran_us":1500"#),
            shown("failed", "c", r#""code":"timeout","message":"too late","ran_us":20000"#),
            shown("failed", "d", r#""code":"panic","message":"","ran_us":7"#),
            shown("retrying", "e", r#""failed_attempts":2,"delay_ms":1500,"code":"busy","message":"100%","ran_us":8"#),
            shown("failed", "h", r#""code":"corrupt","message":"a\nb","ran_us":null"#),
            shown("started", "i", r#""attempt":1,"stalled_count":0,"waited_ms":23"#),
            shown("started", "j", r#""attempt":2,"stalled_count":3,"waited_ms":null"#),
        ];
        assert_eq!(json, wanted);
        assert!(decoded.events.iter().all(|event| event.task() == "export"));
    }

    #[test]
    fn the_wait_of_a_job_counts_from_when_it_became_claimable() {
        let made = JobId::generate();
        let dispatched = to_ms(made.created_at().unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap());
        let waited = |id: &str, since: &str| {
            let mut entry = entry(&[("since", since), ("started", id)]);
            entry.id = format!("{}-0", dispatched + 5000);
            match &decode("export", &entry, &Codecs::default()).unwrap().events[..] {
                [Event::Started { waited, .. }] => waited.map(to_ms),
                other => panic!("{other:?}"),
            }
        };
        let id = made.as_str();
        assert_eq!(waited(id, ""), Some(5000), "the id contains the time");
        assert_eq!(waited(id, &format!("{id} - 4000")), Some(1000), "it was delayed");
        assert_eq!(
            waited("mine", &format!("mine {} 0", dispatched + 2000)),
            Some(3000),
            "a chosen id contains no time"
        );
        assert_eq!(waited("mine", ""), None);
        assert_eq!(waited(id, &format!("{id} - 6000")), Some(0), "the clocks disagree");
        assert_eq!(waited(id, &format!("{id} {0} {0}", u64::MAX)), Some(0));
    }

    #[test]
    fn an_entry_of_sweep_names_the_stalled_job_and_the_time() {
        let fields = [
            ("total", "2"),
            ("worker", "witness"),
            ("reason", "handler_silent"),
            ("stalled", "a 1 recovered host-1-00000000 b 2 failed -"),
        ];
        let decoded = decode("export", &entry(&fields), &Codecs::default()).unwrap();
        let event = StalledEvent {
            task: "export".into(),
            id: job("a"),
            stalled_count: 1,
            action: StallAction::Recovered,
            worker: Some(WorkerId::from_wire("host-1-00000000")),
            reason: StallReason::HandlerSilent,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        };
        assert_eq!(decoded.events[0], Event::Stalled(event));
        assert!(decoded.events.iter().all(|event| !event.is_terminal()), "another event reports the end");
        assert!(matches!(&decoded.events[1], Event::Stalled(stalled) if stalled.worker.is_none()));
    }

    #[test]
    fn the_ticks_of_schedules_have_events() {
        let fields = [
            ("total", "5"),
            ("worker", "w"),
            ("dispatched", "a@60000"),
            ("scheduled", "a 60000 a@60000 12"),
            ("overlapped", "b 60000"),
            ("missed", "c 50000 7 d 1 1"),
        ];
        let decoded = decode("export", &entry(&fields), &Codecs::default()).unwrap();
        assert!(!decoded.unknown_fields);
        let named = ["dispatched a@60000", "scheduled a@60000", "overlapped b@60000", "missed c@50000", "missed d@1"];
        assert_eq!(names(&decoded), named.map(|name| format!("task:{name}")));
        let json: Vec<String> = [1, 2, 3].map(|at: usize| serde_json::to_string(&decoded.events[at]).unwrap()).into();
        let shown = |event: &str, id: &str, rest: &str| {
            let at = r#""at_ms":1700000000123"#;
            format!(r#"{{"event":"{event}","task":"export","id":"{id}",{at},{rest}}}"#)
        };
        let wanted = [
            shown("scheduled", "a@60000", r#""schedule":"a","due_ms":60000,"late_ms":12"#),
            shown("overlapped", "b@60000", r#""schedule":"b","due_ms":60000"#),
            shown("missed", "c@50000", r#""schedule":"c","due_ms":50000,"count":7"#),
        ];
        assert_eq!(json, wanted);
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let decoded =
            decode("t", &entry(&[("total", "3"), ("archived", "x y"), ("dispatched", "a")]), &Codecs::default())
                .unwrap();
        assert_eq!((names(&decoded), decoded.unknown_fields), (vec!["task:dispatched a".to_owned()], true));
    }

    #[test]
    fn a_damaged_entry_names_its_field() {
        for (name, value) in [
            ("total", "many"),
            ("failed", "a timeout -"),
            ("failed", "a timeout - soon"),
            ("completed", "a"),
            ("since", "a - soon"),
            ("retrying", "a 1 soon timeout - 5"),
            ("restarted", "a 1"),
            ("restarted", "a -1 0"),
            ("reason", "boredom"),
            ("stalled", "a 1 recovered w"),
            ("scheduled", "a 1 a@1"),
            ("overlapped", "a soon"),
            ("missed", "a 1 many"),
        ] {
            assert_eq!(decode("t", &entry(&[(name, value)]), &Codecs::default()), Err(name.to_owned()));
        }
        let twice = [("reason", "silent"), ("stalled", "a 1 forgotten w")];
        assert_eq!(decode("t", &entry(&twice), &Codecs::default()), Err("stalled".to_owned()));
    }

    #[test]
    fn no_entry_makes_the_decoder_panic() {
        let names = "total|worker|reason|dispatched|since|started|restarted|ran|completed|failed|retrying|stalled|removed|[a-z]{0,3}";
        let fields = prop::collection::vec((names, "[a-z0-9 -]{0,20}|\\PC{0,8}"), 0..6);
        proptest!(|(id in "\\PC{0,20}", fields in fields)| {
            let entry = Entry { id, fields };
            let _ = (total_of(&entry), decode("t", &entry, &Codecs::default()));
        });
    }
}
