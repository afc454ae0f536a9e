//! The model's account of a schedule, and what must hold after each step.

use std::collections::BTreeMap;

use super::rules::Rule;
use super::view::View;
use super::{History, NAMES};

/// What cannot be read of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Damage {
    Rule,
    Ledger,
    Input,
}

/// A schedule that exists.
#[derive(Clone, Debug)]
pub struct Book {
    pub rule: Rule,
    /// Whether it was put at run time.
    pub is_put: bool,
    pub stamp: u64,
    /// How many ticks the rules in force had, up to `through`.
    pub ticks: u64,
    pub through: u64,
    pub damage: Option<Damage>,
    /// A look found it damaged, and put it off.
    pub is_hidden: bool,
}

impl Book {
    /// Counts the ticks up to this time.
    pub fn advance(&mut self, through: u64) {
        self.ticks += self.rule.count(self.through, through);
        self.through = self.through.max(through);
    }
}

/// The counts of a schedule that was removed.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    pub ticks: u64,
    pub when: u64,
}

pub type Books = BTreeMap<&'static str, Book>;

impl History {
    /// Checks the step from `before`, when these schedules existed.
    pub(super) fn check(&mut self, before: &View, books: &Books) {
        let made = self.new_jobs(before, books);
        for name in NAMES {
            if self.known.books.contains_key(name) {
                self.check_row(name);
            } else {
                let has_row = self.view.rules.contains_key(name) || self.view.at.contains_key(name);
                assert!(!has_row && !self.view.pending.contains(name), "{name} was removed");
            }
            let is_healthy = |books: &Books| books.get(name).is_some_and(|book| book.damage.is_none());
            if is_healthy(books) && is_healthy(&self.known.books) {
                let count = made.get(name).copied().unwrap_or(0);
                self.check_fired(name, before, &books[name], count);
            }
        }
        for (name, expected) in &self.expected {
            assert_eq!(self.view.ledgers.get(name), Some(expected), "the ledger of {name}");
        }
    }

    /// The ledger and the next tick of a schedule.
    fn check_row(&mut self, name: &'static str) {
        let Some(book) = self.known.books.get_mut(name).filter(|book| book.damage.is_none()) else { return };
        let ledger = self.view.ledgers.get(name).unwrap_or_else(|| panic!("the ledger of {name} is unreadable"));
        book.advance(ledger.last.unwrap_or(0));
        let (sum, ticks) = (ledger.sum(), book.ticks);
        let adds_up = if ledger.is_lower_bound { sum <= ticks } else { sum == ticks };
        assert!(adds_up, "{name} accounts for {sum} of {ticks} ticks: {ledger:?} {book:?}");
        assert_eq!(ledger.due, Some(book.rule.next_after(book.through)), "the next tick of {name}: {book:?}");
        let (due, at) = (ledger.due.unwrap_or(0), self.view.at.get(name).copied().unwrap_or(0));
        let is_in_time = at >= due && at <= due + book.rule.jitter();
        assert!(is_in_time || book.is_hidden && at > due, "{name} fires its tick {due} at {at}");
        assert_eq!(self.view.pending.contains(name), ledger.pending.is_some(), "{name}: {ledger:?}");
    }

    /// The new jobs of ticks, by schedule. Each is of a tick that was not accounted for yet, and is not early.
    fn new_jobs(&mut self, before: &View, books: &Books) -> BTreeMap<String, u64> {
        let mut made = BTreeMap::new();
        for (id, at) in self.view.made.iter().filter(|(id, at)| before.made.get(*id) != Some(*at)) {
            let (name, due) = id.split_once('@').unwrap();
            assert_eq!(*at, self.now, "{id}");
            if due.contains('~') {
                continue;
            }
            let due: u64 = due.parse().unwrap();
            assert!(due <= self.now, "{id} is early");
            assert!(self.known.made.insert(id.clone()), "{id} is a second job of its tick");
            let book = books.get(name).unwrap_or_else(|| panic!("{id} has no schedule"));
            assert_eq!(book.damage, None, "{id} is of a row that cannot be read");
            let was_pending = before.ledgers[name].pending == Some(due);
            assert!(was_pending || due > book.through && book.rule.is_tick(due), "{id} is no new tick of {book:?}");
            *made.entry(name.to_owned()).or_default() += 1;
        }
        made
    }

    /// Each tick that counts as fired has a new job, or had one before.
    fn check_fired(&mut self, name: &str, before: &View, old: &Book, made: u64) {
        let (then, now) = (before.ledgers[name].clone(), self.view.ledgers[name].clone());
        let fired = now.fired - then.fired;
        let had_job = |id: &&String| {
            let due = id.strip_prefix(name).and_then(|due| due.strip_prefix('@')?.parse().ok());
            due.is_some_and(|due: u64| due > old.through || then.pending == Some(due))
        };
        let had = before.made.keys().filter(had_job).count() as u64;
        assert!(made <= fired && fired <= made + had, "{name} fired {fired} ticks, and made {made} jobs: {now:?}");
        let kinds = [
            ("overlapped", now.overlapped > then.overlapped),
            ("missed", now.missed > then.missed),
            ("paused", now.paused > then.paused),
            ("pending", now.pending.is_some() && now.pending != then.pending),
        ];
        for (kind, _) in kinds.into_iter().filter(|(_, happened)| *happened) {
            self.saw(kind);
        }
    }
}
