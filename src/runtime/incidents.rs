//! Failures of Redis from a worker's view: it does not answer, or refuses calls. Logged when they begin and when they
//! end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::error::Error;
use crate::mutex::Mutex;
use crate::worker_id::WorkerId;

/// The part of the worker that calls, and the number and name of the task or workflow that it calls for.
type PartCall = (&'static str, usize, String);

/// For calls that concern no task.
pub(crate) const NO_TASK: (usize, &str) = (0, "");

/// The open incidents of a worker. Each part of the worker has its own connections. An incident lasts until every part
/// that reported it is answered again.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    /// Whether any incident is open: a quick check for the many calls that are answered.
    any: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    incidents: Vec<Incident>,
    /// Calls whose connection closed once. The next attempt uses a new connection, and usually succeeds.
    dropped: BTreeSet<PartCall>,
}

#[derive(Debug)]
struct Incident {
    cause: IncidentCause,
    began: Moment,
    calls: BTreeSet<PartCall>,
}

#[derive(Debug, PartialEq, Eq)]
enum IncidentCause {
    NoAnswer,
    /// The server accepts no writes, or no longer accepts our user: every part gets this answer.
    Server(String),
    /// Only this call.
    Call(String, PartCall),
}

impl IncidentCause {
    fn of(call: &PartCall, e: &Error, is_unreachable: bool) -> IncidentCause {
        match e {
            _ if is_unreachable => IncidentCause::NoAnswer,
            Error::Refused { source } | Error::Connect { source } => {
                IncidentCause::Server(source.code().unwrap_or_default().to_owned())
            }
            Error::Denied { source } | Error::Server { source, .. } => {
                IncidentCause::Call(source.code().unwrap_or_default().to_owned(), call.clone())
            }
            _ => IncidentCause::Call(String::new(), call.clone()),
        }
    }
}

impl Incidents {
    /// Records that a part got no answer, or was refused. Returns the incidents that begin or end.
    pub(crate) fn failed(&self, part: &'static str, of: (usize, &str), e: &Error, is_unreachable: bool) -> Vec<Change> {
        let call = (part, of.0, of.1.to_owned());
        let cause = IncidentCause::of(&call, e, is_unreachable);
        let mut open = self.open.lock();
        self.any.store(true, Ordering::SeqCst);
        let is_known = open.incidents.iter().any(|incident| incident.cause == cause);
        if !is_known && e.is_dropped() && open.dropped.insert(call.clone()) {
            return Vec::new();
        }
        let mut changes = open.close(&call, Some(&cause));
        match open.incidents.iter_mut().find(|incident| incident.cause == cause) {
            Some(incident) => drop(incident.calls.insert(call)),
            None => {
                let (error, is_retryable) = (e.chain().to_string(), e.is_retryable());
                changes.push(Change::Begins { call: call.clone(), error, is_unreachable, is_retryable });
                open.incidents.push(Incident { cause, began: clock::now(), calls: BTreeSet::from([call]) });
            }
        }
        changes
    }

    /// Records that a part was answered. Returns the incidents that end.
    pub(crate) fn answered(&self, part: &'static str, of: (usize, &str)) -> Vec<Change> {
        if !self.any.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut open = self.open.lock();
        let changes = open.close(&(part, of.0, of.1.to_owned()), None);
        self.any.store(!open.incidents.is_empty() || !open.dropped.is_empty(), Ordering::SeqCst);
        changes
    }

    /// Whether Redis does not answer, according to the last calls.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.any.load(Ordering::SeqCst)
            && self.open.lock().incidents.iter().any(|incident| incident.cause == IncidentCause::NoAnswer)
    }
}

impl Open {
    /// Removes the call from all incidents except the one with this cause. Incidents without calls end.
    fn close(&mut self, call: &PartCall, but: Option<&IncidentCause>) -> Vec<Change> {
        self.dropped.remove(call);
        let mut changes = Vec::new();
        self.incidents.retain_mut(|incident| {
            if but == Some(&incident.cause) || !incident.calls.remove(call) || !incident.calls.is_empty() {
                return true;
            }
            let (is_unreachable, lasted) =
                (incident.cause == IncidentCause::NoAnswer, clock::now().since(incident.began));
            changes.push(Change::Ends { call: call.clone(), is_unreachable, lasted });
            false
        });
        changes
    }
}

/// An incident that begins or ends, to be logged.
#[derive(Debug)]
pub(crate) enum Change {
    Begins { call: PartCall, error: String, is_unreachable: bool, is_retryable: bool },
    Ends { call: PartCall, is_unreachable: bool, lasted: Duration },
}

impl Change {
    pub(crate) fn log(&self, worker_id: &WorkerId) {
        let (Change::Begins { call: (part, _, of), .. } | Change::Ends { call: (part, _, of), .. }) = self;
        // The presence of a worker concerns no task.
        let task = (!of.is_empty()).then_some(of.as_str());
        match self {
            Change::Begins { error, is_unreachable: true, .. } => {
                tracing::warn!(%worker_id, part, task, %error, "redis does not answer; calls are repeated until it does");
            }
            Change::Begins { error, is_retryable: true, .. } => {
                tracing::warn!(%worker_id, part, task, %error, effect = effect(part), "redis refuses a call; will retry");
            }
            Change::Begins { error, .. } => {
                tracing::error!(%worker_id, part, task, %error, effect = effect(part), "redis refuses a call; will retry");
            }
            Change::Ends { is_unreachable: true, lasted, .. } => {
                tracing::info!(%worker_id, away_ms = lasted.as_millis() as u64, "redis answers again");
            }
            Change::Ends { lasted, .. } => {
                tracing::info!(%worker_id, part, task, refused_ms = lasted.as_millis() as u64, "redis accepts the call again");
            }
        }
    }
}

/// What a worker cannot do if this is refused.
fn effect(part: &str) -> &'static str {
    match part {
        "beat" => "no heartbeats: its jobs may be taken from the worker",
        "counts" => "its health does not include waiting jobs",
        "declare" => "the options of the task are not written again",
        "enter" | "advance" | "follow" | "look" | "turn" => "workflows do not advance",
        "expiry" => "expired jobs do not end",
        "hints" => "cancels arrive with the next heartbeat",
        "notes" | "notes/outcomes" => "checkpoints and progress are not written",
        "presence" => "tools show the worker as silent",
        "reconcile" => "jobs of dead workers of this host are left to the sweep",
        "retention" => "ended jobs are kept for longer",
        "schedule names" => "its schedules are not written, and workers do not know that it fires ticks",
        "schedules" => "it fires no ticks of schedules",
        "sweep" => "stalled jobs are not recovered",
        "unique keys" => "unique keys of removed jobs stay",
        "wake" | "take" => "it looks for work every 5 s",
        _ => "outcomes and claims wait",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::classify::classify;

    fn said(code: &str) -> Error {
        classify("beat", redis::make_extension_error(code.to_owned(), Some("no".to_owned())))
    }

    /// `+` for an incident that begins, `-` for one that ends.
    fn shown(changes: Vec<Change>) -> String {
        let shown = |change| if matches!(change, Change::Begins { .. }) { '+' } else { '-' };
        changes.into_iter().map(shown).collect()
    }

    #[test]
    fn an_outage_begins_with_the_first_part_and_ends_with_the_last() {
        let (incidents, e) = (Incidents::default(), said("LOADING"));
        let failed = |part, of| shown(incidents.failed(part, (of, "a"), &e, true));
        let answered = |part, of| shown(incidents.answered(part, (of, "a")));
        assert_eq!(answered("beat", 0), "");
        assert_eq!([failed("beat", 0), failed("beat", 0), failed("settle", 0)], ["+", "", ""]);
        assert_eq!([answered("beat", 0), answered("beat", 1)], ["", ""]);
        assert!(incidents.is_unreachable());
        assert_eq!([answered("settle", 0), answered("settle", 0), failed("settle", 0)], ["-", "", "+"]);
    }

    #[test]
    fn a_connection_closed_once_is_not_an_outage() {
        let incidents = Incidents::default();
        let closed = || classify("beat", std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        let failed = |part| shown(incidents.failed(part, (0, "a"), &closed(), true));
        let answered = |part| shown(incidents.answered(part, (0, "a")));
        assert_eq!([failed("beat"), failed("settle"), answered("beat"), failed("beat")], [""; 4]);
        assert!(!incidents.is_unreachable());
        // Twice in a row counts.
        assert_eq!([failed("beat"), failed("settle"), answered("settle"), answered("beat")], ["+", "", "", "-"]);
    }

    #[test]
    fn a_server_that_refuses_writes_is_one_incident() {
        let incidents = Incidents::default();
        let failed = |part, code| shown(incidents.failed(part, (0, "a"), &said(code), false));
        assert_eq!([failed("beat", "MISCONF"), failed("settle", "MISCONF"), failed("beat", "MISCONF")], ["+", "", ""]);
        // The server also runs out of memory, and one part learns that first.
        assert_eq!([failed("beat", "OOM"), failed("settle", "OOM")], ["+", "-"]);
        assert!(!incidents.is_unreachable());
        assert_eq!(shown(incidents.failed("beat", (0, "a"), &said("LOADING"), true)), "+");
        assert_eq!(["settle", "beat"].map(|part| shown(incidents.answered(part, (0, "a")))), ["-", "-"]);
    }

    #[test]
    fn a_refusal_of_one_call_is_an_incident_of_its_own() {
        for code in ["NOPERM", "WRONGTYPE"] {
            let incidents = Incidents::default();
            let failed = |part, task| shown(incidents.failed(part, (0, task), &said(code), false));
            assert_eq!([failed("beat", "a"), failed("beat", "b"), failed("settle", "a")], ["+", "+", "+"], "{code}");
            assert_eq!([failed("beat", "a"), failed("beat", "b")], ["", ""], "{code}");
            assert_eq!(shown(incidents.answered("beat", (0, "a"))), "-", "{code}");
        }
    }
}
