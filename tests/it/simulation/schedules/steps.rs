//! What schedulers, workers, people and faults do.

use heartline::_internals::SimulatedLook;
use redis::{Commands, Value};

use super::book::Damage;
use super::clock::{Clocked, answered};
use super::rules::HOUR;
use super::view::Seen;
use super::{Held, History};
use crate::support::settle_args;

/// How long a row that cannot be read is put off, ms.
const PUT_OFF: u64 = 60_000;

impl History {
    /// Time passes, in which no scheduler acts: longer than the grace, or a day.
    pub(super) fn pass_time(&mut self) {
        self.read = self.now;
        let most = [30_000, 30_000, 30_000, 60_000, 120_000, 600_000, 2 * HOUR, 30 * HOUR][self.rng.usize(..8)];
        let now = self.now + self.rng.u64(..most);
        self.set_clock(now);
        self.note("it is this time now");
    }

    /// The server's clock is set, also between a look and its call.
    pub(super) fn jump(&mut self) {
        self.read = self.now;
        let (most, goes_back) = ([10_000, 60_000, HOUR][self.rng.usize(..3)], self.rng.u32(..3) > 0);
        let held = (goes_back && self.rng.bool()).then(|| self.look());
        let by = self.rng.u64(..most);
        self.set_clock(if goes_back { self.now - by } else { self.now + by });
        self.note("the clock jumped to this time");
        if goes_back {
            self.saw("the clock went back");
        }
        if let Some(held) = held {
            self.fire(held);
        }
    }

    /// One scheduler looks: it finds each schedule that is due and can be read.
    pub(super) fn look(&mut self) -> Held {
        let look: SimulatedLook = answered(self.schedules.look(&mut Clocked::of(&mut self.task)));
        assert_eq!(look.now_ms, self.now);
        self.note(&format!("a look: {:?}, unreadable {:?}", look.rows(), look.unreadable));
        let rows: Vec<Seen> = look.rows().into_iter().map(|row| self.seen_row(row)).collect();
        let found = |name: &str, is_pending| rows.iter().any(|row| row.name == name && row.is_pending == is_pending);
        for (name, book) in &mut self.known.books {
            let (at, ledger) = (self.view.at.get(*name).copied(), self.view.ledgers.get(*name));
            if book.damage.is_some() {
                let was_due = at.is_some_and(|at| at <= look.now_ms);
                assert_eq!(look.unreadable.iter().any(|other| other == name), was_due, "{name} at {at:?}: {book:?}");
                book.is_hidden |= was_due;
                continue;
            }
            let may_fire = ledger.is_some_and(|ledger| {
                let runs = ledger.job.as_ref().is_some_and(|job| self.view.open.contains(job));
                let is_due = ledger.pending.is_some_and(|due| due <= look.now_ms);
                is_due && !runs && !self.view.paused.contains(*name)
            });
            assert_eq!(found(name, false), at.is_some_and(|at| at <= look.now_ms), "{name} at {at:?}");
            assert_eq!(found(name, true), may_fire, "{name} pending: {ledger:?}");
        }
        for name in &look.unreadable {
            self.view.at.insert(name.clone(), look.now_ms + PUT_OFF);
        }
        if !look.unreadable.is_empty() {
            self.saw("hidden");
        }
        Held { look, rows }
    }

    /// The row of a look: what it says must be in force.
    fn seen_row(&self, (name, due, is_pending): (String, u64, bool)) -> Seen {
        let book = self.known.books.get(&*name).unwrap_or_else(|| panic!("{name} does not exist"));
        assert_eq!(book.damage, None, "{name} cannot be read");
        let ledger = &self.view.ledgers[&name];
        assert_eq!(Some(due), if is_pending { ledger.pending } else { ledger.due }, "{name}");
        let is_paused = self.view.paused.contains(&name);
        Seen { name, rule: book.rule, due, is_pending, is_paused }
    }

    /// A scheduler fires what it found, at once or late. Each answer and each ledger must be as the model says.
    pub(super) fn fire(&mut self, held: Held) {
        if held.rows.is_empty() {
            return;
        }
        let fired = answered(self.schedules.fire(&mut Clocked::of(&mut self.task), &held.look));
        let (mut ledgers, mut jobs, mut unknown) = (self.view.ledgers.clone(), self.view.jobs(), Vec::new());
        let answers = fired.answers();
        assert_eq!(answers.len(), held.rows.len());
        for (at, answer) in answers {
            let row = &held.rows[at];
            self.note(&format!("{answer} for {row:?} of {}", held.look.now_ms));
            let word = answer.split(' ').next().unwrap_or_default().to_owned();
            self.saw(format!("{} {word}", if row.is_pending { "pending" } else { "fire" }));
            let (known, ledger) = (self.known.books.get_mut(&*row.name), ledgers.get_mut(&row.name));
            let expected: &str = match (known, ledger) {
                _ if unknown.contains(&row.name) => &word,
                (None, _) => "Unknown",
                (Some(book), _) if book.damage.is_some() => "Unreadable",
                (Some(book), _) if book.rule != row.rule => "Changed",
                _ if self.view.paused.contains(&row.name) != row.is_paused => "Changed",
                (Some(_), Some(ledger)) if row.is_pending => row.fire_pending(self.now, ledger, &mut jobs),
                (Some(_), Some(ledger)) if ledger.due != Some(row.due) => "Moved",
                // The model does not know the jitter of each tick.
                (Some(book), Some(_)) if book.rule.jitter() > 0 => {
                    book.is_hidden &= word != "Done";
                    unknown.push(row.name.clone());
                    if word == "Early" { "Early" } else { "Done" }
                }
                (Some(book), Some(ledger)) => {
                    let expected = row.fire_due(held.look.now_ms, self.now, ledger, &mut jobs);
                    book.is_hidden &= expected != "Done";
                    expected
                }
                (Some(book), None) => panic!("{} has no ledger: {book:?}", row.name),
            };
            assert_eq!(word, expected, "{row:?}");
        }
        ledgers.retain(|name, _| held.rows.iter().any(|row| row.name == *name) && !unknown.contains(name));
        self.expected = ledgers;
        if self.rng.u32(..3) == 0 {
            self.saw("a reply was lost");
        } else {
            answered(self.schedules.cancel(&mut Clocked::of(&mut self.task), &fired));
        }
        self.sent.push(held);
    }

    /// A scheduler fires what it found some time ago.
    pub(super) fn fire_late(&mut self) {
        if !self.looks.is_empty() {
            let held = self.looks.remove(self.rng.usize(..self.looks.len()));
            self.fire(held);
        }
    }

    /// A call is repeated, since its reply was lost or it was on its way for long.
    pub(super) fn fire_again(&mut self) {
        if let Some(held) = self.rng.choice(&self.sent).cloned() {
            self.fire(held);
        }
    }

    pub(super) fn pause(&mut self) {
        let (name, pauses) = (self.some_name(), self.rng.bool());
        let changed = answered(self.schedules.pause(&mut Clocked::of(&mut self.task), name, pauses));
        self.note(&format!("pause {name} {pauses}: {changed:?}"));
        let is_known = self.known.books.contains_key(name);
        assert_eq!(changed, is_known.then(|| self.view.paused.contains(name) != pauses));
    }

    pub(super) fn run_by_hand(&mut self) {
        let name = self.some_name();
        let id = answered(self.schedules.run(&mut Clocked::of(&mut self.task), name));
        self.note(&format!("run {name} by hand: {id:?}"));
        assert_eq!(id.is_some(), self.known.books.get(name).is_some_and(|book| book.damage.is_none()));
        if id.is_some() {
            self.saw("run by hand");
        }
    }

    /// A part of a row is lost or overwritten.
    pub(super) fn damage(&mut self) {
        let name = self.some_name();
        let damage = [Damage::Rule, Damage::Ledger, Damage::Input][self.rng.usize(..3)];
        let Some(book) = self.known.books.get_mut(name).filter(|book| book.damage.is_none()) else { return };
        book.damage = Some(damage);
        let prefix = self.task.prefix().to_owned();
        let (rule, ledger) = (format!("{prefix}schedules:rule"), format!("{prefix}schedules:ledger"));
        let () = match damage {
            Damage::Rule => self.task.connection().hset(rule, name, "odd").unwrap(),
            Damage::Ledger => self.task.connection().hset(ledger, name, "- 1 odd").unwrap(),
            Damage::Input => self.task.connection().hdel(format!("{prefix}schedules:input"), name).unwrap(),
        };
        self.note(&format!("{name} is damaged: {damage:?}"));
        self.saw("damaged");
    }

    /// A worker takes a job, or ends one: a long job runs over many steps.
    pub(super) fn work(&mut self) {
        let held: Vec<(String, u64)> = self.known.held.clone().into_iter().collect();
        let Some((id, fence)) = self.rng.choice(held).filter(|_| self.rng.u32(..3) > 0) else {
            let reply = self.settle("1 1 1", &[]);
            let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap_or_default();
            let first: u64 = text(3).parse().unwrap_or(0);
            self.known.held.extend((first..).zip(text(4).split_whitespace()).map(|(fence, id)| (id.to_owned(), fence)));
            return;
        };
        let fails: &[&str] = if self.rng.u32(..3) == 0 { &["failed", "1", "panic - 5", "{}"] } else { &[] };
        let mut report = vec![id.clone(), fence.to_string()];
        report.extend(fails.iter().map(ToString::to_string));
        self.settle("0", &report);
        self.known.held.remove(&id);
        self.saw("a job ended");
    }

    fn settle(&mut self, want: &str, report: &[String]) -> Vec<Value> {
        self.calls += 1;
        let completed = if report.len() == 2 { "1" } else { "0" };
        let mut short = [&*format!("1/{}", self.calls), "w", "1000", want, completed, "0"].map(str::to_owned).to_vec();
        short.extend(report.iter().cloned());
        self.note(&format!("settle {}", short.join(" ")));
        let reply: Vec<Value> = self.task.call("settle", &settle_args(&short));
        assert_eq!(redis::from_redis_value_ref::<String>(&reply[0]).unwrap(), "settled");
        reply
    }
}
