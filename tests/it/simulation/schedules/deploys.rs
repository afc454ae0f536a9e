//! What changes the rules: deploys, schedules that are put at run time, removals, and reports of names.

use std::collections::BTreeSet;

use heartline::_internals::SimulatedWriter;

use super::book::{Book, Damage, Removed};
use super::clock::{Clocked, answered};
use super::rules::Rule;
use super::view::View;
use super::{History, NAMES};

/// How long a removed schedule may return with its counts, ms.
const KEPT: u64 = 30 * 86_400_000;

/// How long a schedule in code stays if no worker names it, ms.
const UNNAMED: u64 = 600_000;

/// A worker that was not heard from for longer removes none.
const STEADY: u64 = 60_000;

/// How far from the server's time a rule may be computed, ms.
const STALE: u64 = 60_000;

/// A rule that a process wants to write.
struct Deploy {
    name: &'static str,
    rule: Rule,
    /// When its worker started, if it is in code.
    stamp: Option<u64>,
}

impl History {
    /// A worker starts, or one that started earlier declares again, or a process puts a schedule. Some keep the rule.
    fn some_deploy(&mut self) -> Deploy {
        let name = self.some_name();
        let rule = Rule::any(&mut self.rng, self.zone);
        let old = self.known.books.get(name).map(|book| book.rule);
        let rule = old.filter(|_| self.rng.u32(..4) == 0).unwrap_or(rule);
        let stamp = match self.rng.u32(..8) {
            0 => None,
            1 | 2 if self.starts > 0 => Some(self.rng.u64(1..=self.starts)),
            _ => {
                self.starts += 1;
                Some(self.starts)
            }
        };
        Deploy { name, rule, stamp }
    }

    /// Why this deploy changes no rule, if it does not.
    fn is_refused(&self, deploy: &Deploy) -> Option<&'static str> {
        let book = self.known.books.get(deploy.name)?;
        let is_newer = |stamp: u64| book.is_put || book.stamp > stamp;
        match book.damage {
            Some(Damage::Rule) => None,
            _ if deploy.stamp.is_some_and(is_newer) => Some("Kept"),
            None | Some(Damage::Input) if book.rule == deploy.rule => Some("Same"),
            _ => None,
        }
    }

    /// A process reads, fires what is due under the old rule, and writes.
    pub(super) fn put(&mut self) {
        let deploy = self.some_deploy();
        let (schedule, input) = (deploy.rule.schedule(), [deploy.rule.input]);
        let writer = SimulatedWriter { stamp: deploy.stamp, name: deploy.name, schedule: &schedule, input: &input };
        let answer = answered(self.schedules.put(&mut Clocked::of(&mut self.task), writer));
        let word = self.told("put", &deploy, &answer);
        let is_hidden = self.known.books.get(deploy.name).is_some_and(|book| book.is_hidden);
        if word == "Again" && is_hidden {
            return;
        }
        assert_eq!(word, self.is_refused(&deploy).unwrap_or("Written"), "{answer}");
        self.look_again();
        // A refused call leaves a damaged ledger as it is.
        let last = self.view.ledgers.get(deploy.name).and_then(|ledger| ledger.last);
        self.follow(&deploy, &answer, self.now.max(last.unwrap_or(0)));
    }

    /// A process writes what it computed from an earlier time.
    pub(super) fn put_late(&mut self) {
        let deploy = self.some_deploy();
        let basis = self.read + self.rng.u64(..2_000);
        let (schedule, input) = (deploy.rule.schedule(), [deploy.rule.input]);
        let writer = SimulatedWriter { stamp: deploy.stamp, name: deploy.name, schedule: &schedule, input: &input };
        let answer = answered(self.schedules.put_after(&mut Clocked::of(&mut self.task), writer, basis));
        let word = self.told("put_after", &deploy, &answer);
        let book = self.known.books.get(deploy.name);
        let ledger = self.view.ledgers.get(deploy.name).filter(|_| book.is_some());
        let due = ledger.and_then(|ledger| ledger.due).filter(|due| *due <= self.now);
        let last = due.or(ledger.and_then(|ledger| ledger.last)).unwrap_or(0);
        let has_rule = book.is_some_and(|book| book.damage != Some(Damage::Rule));
        let newest = self.now.max(last);
        let is_stale = basis < last || basis > newest || basis + STALE < newest;
        let expected = match self.is_refused(&deploy) {
            Some(refused) => refused,
            None if due.is_some() && has_rule => "Due",
            None if is_stale => "Again",
            None => "Written",
        };
        assert_eq!(word, expected, "{answer} {basis}");
        self.look_again();
        self.follow(&deploy, &answer, basis);
    }

    /// The first word of an answer.
    fn told(&mut self, call: &str, deploy: &Deploy, answer: &str) -> String {
        let Deploy { name, rule, stamp } = deploy;
        self.note(&format!("{call} {name} {stamp:?} {rule:?}: {answer}"));
        let word = answer.split(' ').next().unwrap_or_default().to_owned();
        self.saw(format!("{call} {word}"));
        word
    }

    /// The model follows an answer.
    fn follow(&mut self, deploy: &Deploy, answer: &str, basis: u64) {
        let &Deploy { name, rule, stamp } = deploy;
        if answer.starts_with("Written") {
            let is_new = !self.known.books.contains_key(name);
            assert_eq!(answer.contains("is_new: true"), is_new, "{answer}");
            let ticks = self.ticks_until(name, basis);
            let (is_put, stamp) = (stamp.is_none(), stamp.unwrap_or(0));
            let book = Book { rule, is_put, stamp, ticks, through: basis, damage: None, is_hidden: false };
            self.known.books.insert(name, book);
            self.known.gone.remove(name);
            self.known.named.remove(name);
            if !is_put {
                self.known.named.insert(name, self.now);
            }
        } else if let Some(book) = self.known.books.get_mut(name).filter(|_| answer.starts_with("Same")) {
            book.stamp = stamp.map_or(0, |stamp| stamp.max(book.stamp));
            book.is_put = stamp.is_none();
            if book.damage.take().is_some() {
                self.saw("repaired");
            }
            if stamp.is_none() {
                self.known.named.remove(name);
            }
        }
    }

    /// The ticks of a schedule before its new rule, which counts from `basis` on.
    fn ticks_until(&mut self, name: &'static str, basis: u64) -> u64 {
        let ledger = &self.view.ledgers[name];
        if let Some(mut book) = self.known.books.get(name).cloned().filter(|book| book.damage != Some(Damage::Ledger)) {
            book.advance(ledger.last.unwrap_or(0));
            if book.damage.is_some() {
                // A due tick counts as missed, and says that there may be more.
                book.advance(self.now);
                self.saw("repaired");
            }
            assert!(book.rule.next_after(book.through) > self.now, "{name} changed before its due tick: {book:?}");
            return book.ticks;
        }
        let kept = self.known.gone.get(name).filter(|gone| self.now < gone.when + KEPT).copied();
        if let Some(kept) = kept.filter(|_| !self.known.books.contains_key(name)) {
            self.saw("returned");
            return kept.ticks;
        }
        assert_eq!((ledger.since, ledger.sum()), (basis, 0), "{name} is a new schedule: {ledger:?}");
        self.forget_jobs(name);
        0
    }

    /// A schedule that begins once more may have ticks that were fired before, if the clock went back.
    fn forget_jobs(&mut self, name: &str) {
        self.known.made.retain(|id| id.split_once('@').is_none_or(|(of, _)| of != name));
    }

    pub(super) fn remove(&mut self) {
        let name = self.some_name();
        let was_there = answered(self.schedules.remove(&mut Clocked::of(&mut self.task), name));
        self.note(&format!("remove {name}: {was_there}"));
        assert_eq!(was_there, self.known.books.contains_key(name));
        if was_there {
            let before = self.view.clone();
            self.look_again();
            self.removed(name, &before);
            self.saw("removed");
        }
    }

    /// A removed schedule keeps its counts; a pending tick overlapped.
    fn removed(&mut self, name: &'static str, before: &View) {
        self.known.books.remove(name);
        self.known.named.remove(name);
        self.known.gone.remove(name);
        if let Some(ledger) = self.view.ledgers.get(name) {
            assert_eq!((ledger.pending, ledger.due, ledger.sum()), (None, None, before.ledgers[name].sum()), "{name}");
            self.known.gone.insert(name, Removed { ticks: ledger.sum(), when: self.now });
        }
        self.forget_jobs(name);
    }

    /// A worker says which schedules it has, and removes those that no worker has.
    pub(super) fn report_names(&mut self) {
        let (prunes, at) = (self.rng.bool(), self.rng.usize(..=NAMES.len()));
        let worker = format!("w{}", self.rng.u32(..3));
        // Only a worker that reported less than a minute ago may remove any.
        if prunes && self.rng.bool() {
            self.report(&worker, at, false);
        }
        self.report(&worker, at, prunes);
    }

    fn report(&mut self, worker: &str, at: usize, prunes: bool) {
        let names: Vec<&'static str> = NAMES.into_iter().skip(at).collect();
        let now = self.now;
        let is_steady = self.known.heard.get(worker).is_some_and(|heard| now <= heard + STEADY);
        self.known.heard.insert(worker.to_owned(), now);
        self.known.heard.retain(|_, heard| *heard + STEADY >= now);
        let conn = &mut Clocked::of(&mut self.task);
        let (removed, missing) = answered(self.schedules.report_names(conn, worker, &names, prunes));
        self.note(&format!("{worker} names {names:?}, prunes {prunes}: {removed:?}, missing {missing:?}"));
        let is_whole = |name: &str| self.known.books.get(name).is_some_and(|book| book.damage.is_none());
        let expected: Vec<&str> = names.iter().copied().filter(|name| !is_whole(name)).collect();
        assert_eq!(missing, expected);
        if !missing.is_empty() {
            self.saw("missing");
        }
        for name in names {
            self.known.named.insert(name, self.now);
        }
        let old = self.known.named.iter().filter(|(_, at)| prunes && is_steady && **at + UNNAMED < self.now);
        let old: Vec<&'static str> = old.map(|(name, _)| *name).collect();
        let (before, mut pruned) = (self.view.clone(), BTreeSet::new());
        self.look_again();
        for name in old {
            let book = self.known.books.get(name);
            if book.is_some_and(|book| !book.is_put && book.damage != Some(Damage::Rule)) {
                pruned.insert(name.to_owned());
                self.removed(name, &before);
                self.saw("pruned");
            } else {
                self.known.named.remove(name);
            }
        }
        assert_eq!(removed.into_iter().collect::<BTreeSet<_>>(), pruned);
    }
}
