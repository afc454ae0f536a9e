//! What Redis holds, next to the books.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, FromRedisValue, Value};

use crate::simulation::lanes::books::Books;
use crate::simulation::lanes::nouns::{Place, State};

/// The least score in `turns` of a key that rests, and of one that is full.
const RESTING: f64 = 4e15;
const FULL: f64 = 6e15;
/// The longest rest of a key in a history, ms.
pub const LONGEST_REST: f64 = 60.0;

/// An entry of `lanes`.
#[derive(Debug)]
struct Entry {
    key: String,
    rank: u8,
    us: u64,
    id: String,
}

impl Entry {
    fn of(text: &str) -> Entry {
        let words: Vec<&str> = text.split('\0').collect();
        let [key, place, id] = words[..] else { panic!("{text:?} in lanes") };
        assert_eq!(place.len(), 20, "the place in {text:?}");
        let (rank, us) = (place[..1].parse().unwrap(), place[1..17].parse().unwrap());
        Entry { key: key.to_owned(), rank, us, id: id.to_owned() }
    }

    fn is_at(&self, place: &Place) -> bool {
        let in_time = self.us == place.exact || (1..place.before).contains(&self.us) && self.us > place.exact;
        self.key == place.key && self.rank == place.rank && in_time
    }
}

fn next<T: FromRedisValue>(values: &mut impl Iterator<Item = Value>) -> T {
    redis::from_redis_value(values.next().unwrap()).unwrap()
}

/// The keys of a task, as they are.
#[derive(Debug)]
pub struct Seen {
    listed: Vec<String>,
    lanes: Vec<Entry>,
    held: BTreeSet<String>,
    turns: BTreeMap<String, f64>,
    delayed: BTreeSet<String>,
    ended: [BTreeSet<String>; 3],
    locks: BTreeMap<String, String>,
    watched: Vec<String>,
    payload: BTreeSet<String>,
    tombstones: BTreeMap<String, usize>,
    total: usize,
    full: Option<String>,
    full_until: Option<String>,
    declared_at: String,
    is_marked: bool,
    now_ms: f64,
}

impl Seen {
    pub fn read(conn: &mut Connection, prefix: &str) -> Seen {
        let key = |name: &str| format!("{prefix}{name}");
        let mut read = redis::pipe();
        for list in ["wait:high", "wait", "wait:low"] {
            read.lrange(key(list), 0, -1);
        }
        for set in ["lanes", "laneHeld", "delayed", "completed", "failed", "cancelled"] {
            read.zrange(key(set), 0, -1);
        }
        read.zrange_withscores(key("turns"), 0, -1).hgetall(key("locks")).smembers(key("active"));
        read.smembers(key("candidates")).hkeys(key("payload")).hgetall(key("tombstones"));
        read.hmget(key("meta"), &["tombstones", "full", "fullUntil", "declaredAt"]).exists(key("wake")).cmd("TIME");
        let mut values = read.query::<Vec<Value>>(conn).unwrap().into_iter();
        let values = &mut values;
        let listed = [next::<Vec<String>>(values), next(values), next(values)].concat();
        let lanes = next::<Vec<String>>(values).iter().map(|text| Entry::of(text)).collect();
        let (held, delayed) = (next(values), next(values));
        let ended = [next(values), next(values), next(values)];
        let turns = next::<Vec<(String, f64)>>(values).into_iter().collect();
        let locks = next(values);
        let watched = [next::<Vec<String>>(values), next(values)].concat();
        let (payload, tombstones) = (next(values), next(values));
        let [total, full, full_until, declared_at] = next::<[Option<String>; 4]>(values);
        let (total, declared_at) = (total.map_or(0, |total| total.parse().unwrap()), declared_at.unwrap());
        let (is_marked, (s, us)) = (next(values), next::<(f64, f64)>(values));
        let now_ms = (1_000.0 * s + us / 1_000.0).floor();
        Seen {
            listed,
            lanes,
            held,
            turns,
            delayed,
            ended,
            locks,
            watched,
            payload,
            tombstones,
            total,
            full,
            full_until,
            declared_at,
            is_marked,
            now_ms,
        }
    }

    /// Whether nothing waits, not even a tombstone.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.lanes.is_empty()
    }

    pub fn check(&self, books: &Books) {
        self.check_places(books);
        self.check_entries(books);
        self.check_slots(books);
        if !books.is_broken {
            self.check_turns(books);
            self.check_wake(books);
        }
    }

    /// Each job is where the replies said.
    fn check_places(&self, books: &Books) {
        let of = |of: &dyn Fn(&State) -> bool| books.ids(of).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(self.delayed, of(&|state| matches!(state, State::Delayed { .. })), "delayed");
        for ((word, _), ended) in books.keeps().zip(&self.ended) {
            assert_eq!(*ended, of(&|state| *state == State::Ended(word)), "{word}");
        }
        assert_eq!(self.payload, of(&|state| *state != State::Gone), "jobs");
        let locks = books.held().map(|(id, _, hold)| (id.clone(), format!("{}:{}", hold.worker, hold.fence)));
        assert_eq!(self.locks, locks.collect(), "held");
        let mut watched = self.watched.clone();
        watched.sort();
        assert!(watched.iter().eq(self.locks.keys()), "{watched:?} are watched, and {:?} are held", self.locks);
    }

    /// Each waiting job has one entry, in the lane of its key, and all others are counted as tombstones.
    fn check_entries(&self, books: &Books) {
        let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
        for id in self.listed.iter().chain(self.lanes.iter().map(|entry| &entry.id)) {
            *counts.entry(id).or_default() += 1;
        }
        let mut expected: BTreeMap<&String, usize> = self.tombstones.iter().map(|(id, count)| (id, *count)).collect();
        let waiting = books.ids(|state| *state == State::Waiting);
        for id in &waiting {
            *expected.entry(id).or_default() += 1;
        }
        assert_eq!(counts, expected, "entries, and waiting jobs with tombstones");
        assert_eq!(self.total, self.tombstones.values().sum::<usize>(), "the number of tombstones");
        for id in waiting.iter().filter(|id| !self.listed.contains(id)) {
            let place = &books.jobs[id].place;
            let entries: Vec<&Entry> = self.lanes.iter().filter(|entry| entry.id == *id).collect();
            assert!(entries.iter().any(|entry| entry.is_at(place)), "{id} waits at {entries:?}, not at {place:?}");
        }
    }

    /// A held job has a slot of its key if keys had limits when it was claimed.
    fn check_slots(&self, books: &Books) {
        let slots = books.held().filter(|(_, _, hold)| hold.has_slot);
        let slots: BTreeSet<String> = slots.map(|(id, job, _)| format!("{}\0{id}", job.key)).collect();
        assert_eq!(self.held, slots, "slots of keys");
        if self.full.as_deref() == Some("running") && !books.is_declared {
            assert!(books.is_full(), "a slot of the task is free");
        }
        let until = self.full.as_ref().and_then(|full| full.split(' ').next()?.parse::<u64>().ok());
        assert!(until.is_none_or(|until| until <= books.longest_rest), "the task rests for the job of a key");
    }

    /// Each key with entries has its turn, or it waits for one for a reason.
    fn check_turns(&self, books: &Books) {
        for entry in &self.lanes {
            let (key, score) = (&entry.key, self.turns.get(&entry.key));
            let score = *score.unwrap_or_else(|| panic!("{key:?} has entries and no turn"));
            let is_full = score >= FULL;
            assert!(
                !is_full || self.looks_at_full_keys() || !books.has_free_slot(key) || books.is_key_paused(key),
                "{key:?} is full, and has a free slot"
            );
            let rests_for = if is_full { 0.0 } else { score - RESTING - self.now_ms };
            assert!(rests_for <= LONGEST_REST, "{key:?} rests for {rests_for} ms");
        }
    }

    /// Whether the next claims look at full keys again, since the options are new.
    fn looks_at_full_keys(&self) -> bool {
        self.full_until != Some(format!("{} 0", self.declared_at))
    }

    /// No worker sleeps next to a job that may be claimed.
    fn check_wake(&self, books: &Books) {
        // A worker knows until when the whole task rests.
        let rests = self.full.as_ref().is_some_and(|full| full != "running");
        if books.is_paused || books.is_full() || books.is_declared || rests {
            return;
        }
        let may_run = |id: &&String| {
            let job = &books.jobs[*id];
            let is_ready = self.turns.get(&job.key).is_none_or(|score| *score < RESTING);
            let may_start = is_ready && books.has_free_slot(&job.key) && !books.is_key_paused(&job.key);
            job.state == State::Waiting && (!books.is_keyed || may_start)
        };
        let id = self.listed.iter().chain(self.lanes.iter().map(|entry| &entry.id)).find(may_run);
        assert!(id.is_none() || self.is_marked, "{id:?} may be claimed, and no worker is woken");
    }
}
