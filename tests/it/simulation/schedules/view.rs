//! What the server holds about schedules and their jobs, and what one call must do to it.

use std::collections::{BTreeMap, BTreeSet};

use heartline::{Missed, Overlap};

use super::rules::Rule;
use crate::simulation::task::Task;

/// The most ticks that one call fires for a schedule.
const MOST_FIRED: usize = 50;

/// The words of a ledger that the model knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    pub due: Option<u64>,
    pub since: u64,
    pub fired: u64,
    pub overlapped: u64,
    pub missed: u64,
    pub paused: u64,
    pub last: Option<u64>,
    pub job: Option<String>,
    pub pending: Option<u64>,
    pub is_lower_bound: bool,
}

impl Ledger {
    fn of(line: &str) -> Option<Ledger> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[due, since, fired, overlapped, missed, paused, _, last, job, _, _, pending, _, bound] = &words[..] else {
            return None;
        };
        let count = |word: &str| word.parse::<u64>().unwrap_or_else(|error| panic!("{line}: {error}"));
        let time = |word: &str| (word != "-").then(|| count(word));
        Some(Ledger {
            due: time(due),
            since: count(since),
            fired: count(fired),
            overlapped: count(overlapped),
            missed: count(missed),
            paused: count(paused),
            last: time(last),
            job: (job != "-").then(|| job.to_owned()),
            pending: time(pending),
            is_lower_bound: bound == "+",
        })
    }

    /// All ticks that it accounts for.
    pub fn sum(&self) -> u64 {
        self.fired + self.overlapped + self.missed + self.paused + u64::from(self.pending.is_some())
    }

    fn displace(&mut self) {
        self.overlapped += u64::from(self.pending.take().is_some());
    }

    fn fire(&mut self, name: &str, due: u64, jobs: &mut Jobs) {
        let id = format!("{name}@{due}");
        self.fired += 1;
        if jobs.made.insert(id.clone()) {
            jobs.open.insert(id.clone());
        }
        self.job = Some(id);
    }
}

/// The jobs as one call finds and leaves them.
#[derive(Clone, Debug)]
pub struct Jobs {
    pub made: BTreeSet<String>,
    /// Those that have not ended.
    pub open: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub struct View {
    /// Those that can be read.
    pub ledgers: BTreeMap<String, Ledger>,
    pub rules: BTreeMap<String, String>,
    /// When the next tick of each schedule is to be fired.
    pub at: BTreeMap<String, u64>,
    pub pending: BTreeSet<String>,
    pub paused: BTreeSet<String>,
    /// When each job was written.
    pub made: BTreeMap<String, u64>,
    pub open: BTreeSet<String>,
}

impl View {
    pub fn read(task: &mut Task) -> View {
        let prefix = task.prefix().to_owned();
        let key = |name: &str| format!("{prefix}{name}");
        let mut read = redis::pipe();
        read.hgetall(key("schedules:ledger")).hgetall(key("schedules:rule"));
        read.zrange_withscores(key("schedules"), 0, -1).zrange(key("schedules:pending"), 0, -1);
        read.hkeys(key("schedules:paused")).hgetall(key("dispatchedAt")).hkeys(key("payload"));
        for place in ["completed", "failed", "cancelled"] {
            read.zrange(key(place), 0, -1);
        }
        type Names = BTreeSet<String>;
        type Read = (
            BTreeMap<String, String>,
            BTreeMap<String, String>,
            Vec<(String, f64)>,
            Names,
            Names,
            BTreeMap<String, u64>,
            Names,
            Names,
            Names,
            Names,
        );
        let answers: Read = read.query(task.connection()).unwrap();
        let (lines, rules, at, pending, paused, made, mut open, completed, failed, cancelled) = answers;
        open.retain(|id| !completed.contains(id) && !failed.contains(id) && !cancelled.contains(id));
        let at = at.into_iter().map(|(name, at)| (name, at as u64)).collect();
        let ledgers = lines.into_iter().filter_map(|(name, line)| Some((name, Ledger::of(&line)?))).collect();
        View { ledgers, rules, at, pending, paused, made, open }
    }

    pub fn jobs(&self) -> Jobs {
        Jobs { made: self.made.keys().cloned().collect(), open: self.open.clone() }
    }
}

/// A schedule as a look found it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub rule: Rule,
    pub due: u64,
    pub is_pending: bool,
    pub is_paused: bool,
}

impl Seen {
    /// Fires the tick that waited for the last job, if it may. Returns the answer.
    pub fn fire_pending(&self, now: u64, ledger: &mut Ledger, jobs: &mut Jobs) -> &'static str {
        if ledger.pending != Some(self.due) {
            return "Moved";
        }
        if self.due > now || ledger.job.as_ref().is_some_and(|job| jobs.open.contains(job)) {
            return "Early";
        }
        ledger.pending = None;
        ledger.fire(&self.name, self.due, jobs);
        "Done"
    }

    /// Accounts for the ticks that were due at `read`, if the server's time is `now`. Returns the answer.
    pub fn fire_due(&self, read: u64, now: u64, ledger: &mut Ledger, jobs: &mut Jobs) -> &'static str {
        let (fire, missed, through) = self.planned(read);
        if through > now {
            return "Early";
        }
        if self.is_paused {
            ledger.paused += missed;
        } else {
            ledger.missed += missed;
        }
        for due in fire {
            let waits = ledger.job.as_ref().is_some_and(|job| jobs.open.contains(job));
            match self.rule.overlap {
                Overlap::Skip if waits => ledger.overlapped += 1,
                Overlap::Queue | Overlap::Replace if waits => {
                    ledger.displace();
                    ledger.pending = Some(due);
                }
                _ => {
                    ledger.displace();
                    ledger.fire(&self.name, due, jobs);
                }
            }
        }
        (ledger.last, ledger.due) = (Some(through), Some(self.rule.next_after(through)));
        "Done"
    }

    /// The ticks that fire, how many make no job since they are late or the schedule is paused, and the last of all.
    fn planned(&self, read: u64) -> (Vec<u64>, u64, u64) {
        let Seen { rule, due, .. } = self;
        let newest = |until: u64| rule.newest(*due, until, 1).first().copied();
        if self.is_paused {
            return (Vec::new(), rule.count(due - 1, read), newest(read).unwrap());
        }
        let end = read - rule.grace - 1;
        let most = match rule.missed {
            Missed::Once { within } => {
                usize::from(newest(end).is_some_and(|newest| u128::from(read - newest) <= within.as_millis()))
            }
            Missed::All(most) => most as usize,
            _ => 0,
        };
        let mut fire = rule.newest(*due, end, most);
        let missed = rule.count(due - 1, end) - fire.len() as u64;
        let mut at = rule.next_after(end.max(due - 1));
        while at <= read && fire.len() < MOST_FIRED {
            fire.push(at);
            at = rule.next_after(at);
        }
        fire.truncate(MOST_FIRED);
        let through = fire.last().copied().or_else(|| newest(end)).unwrap();
        (fire, missed, through)
    }
}
