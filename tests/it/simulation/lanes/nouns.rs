//! Limits, jobs and calls, as a history knows them.

use std::collections::BTreeSet;

/// The limits of each key. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerKey {
    pub most: usize,
    pub rate: usize,
    pub window_us: u64,
}

impl PerKey {
    /// As the task declares them.
    pub fn text(&self) -> String {
        match self.most + self.rate {
            0 => String::new(),
            _ => format!("{} {} {}", self.most, self.rate, if self.rate > 0 { self.window_us } else { 0 }),
        }
    }

    pub fn is_set(&self) -> bool {
        self.most + self.rate > 0
    }
}

/// The settings of one key that were written at run time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    pub limits: Option<PerKey>,
    pub is_paused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Waiting,
    /// Delayed, until the history makes it due.
    Delayed {
        is_due: bool,
    },
    Held(Hold),
    Ended(&'static str),
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub worker: String,
    pub fence: u64,
    /// Whether it was claimed while keys had limits, and Redis has not lost that since.
    pub has_slot: bool,
    pub is_cancelled: bool,
}

/// Where the entry of a waiting job in `lanes` may be.
#[derive(Clone, Debug)]
pub struct Place {
    pub key: String,
    pub rank: u8,
    /// The time in `dispatchedAt`, us: for jobs that came from a list.
    pub exact: u64,
    /// The time before which its dispatch wrote an entry, us; 0 if it wrote none.
    pub before: u64,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub key: String,
    pub unique: Option<String>,
    /// As how many starts a run counts.
    pub cost: usize,
    pub state: State,
    pub place: Place,
}

/// What a worker reports about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    /// It begins after all.
    Begin,
    Failed,
    Retry,
    Snooze,
    Undecodable,
    /// It has not begun after all.
    Unstart,
    /// With how long its key rests, ms.
    Requeue(u64),
}

impl Outcome {
    pub fn ends_the_hold(self) -> bool {
        !matches!(self, Outcome::Begin | Outcome::Unstart)
    }
}

#[derive(Clone, Debug)]
pub struct Told {
    pub id: String,
    pub fence: u64,
    pub outcome: Outcome,
}

/// A settle call of a worker.
#[derive(Clone, Debug)]
pub struct Settle {
    pub number: u64,
    pub want: usize,
    /// How many more jobs it would claim ahead. Tasks with keys give out none.
    pub ahead: usize,
    pub told: Vec<Told>,
}

/// The reply to a settle call.
#[derive(Clone, Debug)]
pub struct Answer {
    pub lost: BTreeSet<u64>,
    pub taken: BTreeSet<u64>,
    pub first_fence: u64,
    pub claimed: Vec<String>,
}
