//! The observable history of jobs whose outcome is stored, kept without the model: the outcome never changes, the
//! handler never begins again, and the hook runs before the job is terminal.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::model::View;

#[derive(Debug)]
struct Stored {
    kind: String,
    /// Whether a worker finished the hook.
    ran: bool,
    /// Whether an event said that the hook runs no more.
    failed: bool,
}

/// The jobs whose outcome is stored, or that have ended since this call began.
#[derive(Debug, Default)]
pub struct Ledger {
    stored: BTreeMap<String, Stored>,
    /// Whether every job of the task has a hook, from the first to the last.
    always: bool,
    /// Which of these happened to hooks.
    pub seen: BTreeSet<&'static str>,
}

impl Ledger {
    pub fn new(always: bool) -> Ledger {
        Ledger { always, ..Ledger::default() }
    }

    /// A worker received the job: for its handler or, with an outcome, for its hook.
    pub fn claimed(&self, id: &str, outcome: &str) {
        match self.stored.get(id) {
            None => assert_eq!(outcome, "", "{id} has a hook to run without a reported outcome"),
            Some(stored) => {
                assert_eq!(outcome.split(' ').next(), Some(&*stored.kind), "{id} is claimed as another job")
            }
        }
    }

    /// The worker that held the job reports that the hook has run.
    pub fn ran(&mut self, id: &str) {
        let stored = self.stored.get_mut(id);
        stored.unwrap_or_else(|| panic!("the hook of {id} ran without a reported outcome")).ran = true;
    }

    /// The outcomes that a call reported, and the stored state after it.
    pub fn look(&mut self, events: &[String], view: &View) {
        for event in events {
            let words: Vec<&str> = event.split(' ').collect();
            let id = words[1];
            match words[0] {
                "finalizing" => self.store(id, words[2]),
                "hook_failed" => self.of(id).failed = true,
                "completed" | "failed" | "cancelled" => self.end(id, words[0]),
                "requeued" if self.stored.contains_key(id) => drop(self.seen.insert("hook requeued")),
                "stalled" if self.stored.contains_key(id) => self.stall(id, words[3]),
                "removed" => drop(self.stored.remove(id)),
                "dispatched" | "claimed" | "started" | "restarted" | "retrying" | "manually_retried" | "promoted" => {
                    assert!(!self.stored.contains_key(id), "{event}, although its outcome was stored");
                }
                _ => {}
            }
        }
        for (id, text) in &view.outcome {
            assert_eq!(text.split(' ').next(), Some(&*self.of(id).kind), "{id} has another outcome now");
        }
        assert!(self.stored.keys().eq(view.outcome.keys()), "an outcome is missing: {self:?} {view:?}");
    }

    fn store(&mut self, id: &str, kind: &str) {
        let stored = Stored { kind: kind.to_owned(), ran: false, failed: false };
        let before = self.stored.insert(id.to_owned(), stored);
        assert!(before.is_none(), "{id} is {kind}, and was {before:?}");
    }

    /// The worker that ran the hook is dead: the hook runs again, or the job ends.
    fn stall(&mut self, id: &str, action: &str) {
        let kind = &self.of(id).kind;
        assert!(action == "requeued" || action == kind, "{id} is {action}, although its outcome was stored");
        self.seen.insert(if action == "requeued" { "hook stalled" } else { "hook stalled for good" });
    }

    /// The job is terminal.
    fn end(&mut self, id: &str, kind: &str) {
        let Some(stored) = self.stored.remove(id) else {
            assert!(!self.always, "{id} is {kind} without a stored outcome");
            return;
        };
        assert_eq!(kind, stored.kind, "{id} ended unlike its stored outcome");
        if !stored.ran && !stored.failed {
            assert!(!self.always, "{id} is {kind} before its hook ran");
            self.seen.insert("ended without its hook");
        }
    }

    fn of(&mut self, id: &str) -> &mut Stored {
        self.stored.get_mut(id).unwrap_or_else(|| panic!("no outcome of {id} was reported"))
    }
}
