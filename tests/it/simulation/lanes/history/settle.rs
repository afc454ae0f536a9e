//! Settle calls, and the keepers' calls for the jobs that their workers hold.

use redis::Value;

use super::{History, INTERVAL, MOST_WANTED, text};
use crate::simulation::FAR;
use crate::simulation::lanes::nouns::{Answer, Outcome, Settle, State, Told};
use crate::support::settle_args;

/// How long the key of a job rests at most, ms.
const LONGEST_REST_MS: u64 = 4;

impl History {
    /// A worker reports some of its jobs and claims others, or repeats a call whose reply was lost.
    pub(super) fn settle(&mut self, at: usize, everything: bool) {
        let call = match self.workers[at].unanswered.take() {
            Some(call) => call,
            None => self.next_call(at, everything),
        };
        let answer = self.execute(at, &call);
        if !everything && self.rng.u32(..12) == 0 {
            self.note("  the reply is lost".to_owned());
            self.workers[at].unanswered = Some(call);
            return;
        }
        let worker = &mut self.workers[at];
        for told in &call.told {
            if told.outcome.ends_the_hold() || answer.lost.contains(&told.fence) || answer.taken.contains(&told.fence) {
                worker.held.remove(&told.fence);
                worker.unstarted.remove(&told.fence);
            } else if told.outcome == Outcome::Unstart {
                worker.unstarted.insert(told.fence);
            } else {
                worker.unstarted.remove(&told.fence);
            }
        }
        for (id, fence) in answer.claimed.into_iter().zip(answer.first_fence..) {
            if id != "{}" {
                worker.held.insert(fence, id);
            }
        }
    }

    fn next_call(&mut self, at: usize, everything: bool) -> Settle {
        let (rng, worker) = (&mut self.rng, &mut self.workers[at]);
        worker.number += 1;
        let mut told = Vec::new();
        for (&fence, id) in &worker.held {
            let waits = worker.unstarted.contains(&fence);
            let outcome = match rng.u32(..24) {
                _ if everything && waits => Outcome::Begin,
                _ if everything => Outcome::Completed,
                0..6 if waits => Outcome::Begin,
                6..8 => Outcome::Requeue(0),
                _ if waits => continue,
                0..6 => Outcome::Completed,
                8 | 9 => Outcome::Failed,
                10 => Outcome::Retry,
                11 => Outcome::Snooze,
                12 => Outcome::Undecodable,
                13 => Outcome::Requeue(rng.u64(1..=LONGEST_REST_MS)),
                14 => Outcome::Unstart,
                _ => continue,
            };
            told.push(Told { id: id.clone(), fence, outcome });
        }
        told.sort_by_key(|told| match told.outcome {
            Outcome::Completed => 0,
            Outcome::Begin => 1,
            _ => 2,
        });
        let want = if everything { MOST_WANTED } else { [0, 1, 1, 2, 2, 3, 5, MOST_WANTED][rng.usize(..8)] };
        let ahead = if everything || rng.bool() { 0 } else { rng.usize(..4) };
        Settle { number: worker.number, want, ahead, told }
    }

    /// Makes a call that may have been executed before.
    fn execute(&mut self, at: usize, call: &Settle) -> Answer {
        let name = self.workers[at].name.clone();
        let repeated = self.books.repeated(&name, call.number);
        self.note(format!("{name} {call:?}"));
        if repeated.is_none() && call.want > 0 {
            // An idle worker takes the marker that woke it.
            self.task.take_marker();
        }
        let script = if self.books.is_keyed { "settle_keyed" } else { "settle" };
        let reply: Vec<Value> = self.task.call(script, &settle_args(&self.short(&name, call)));
        assert_eq!(text(&reply[0]), "settled", "{call:?}");
        let words = |at: usize| text(&reply[at]).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let fences = |at: usize| words(at).iter().map(|word| word.parse().unwrap()).collect();
        let first_fence = text(&reply[3]).parse().unwrap();
        let answer = Answer { lost: fences(1), taken: fences(2), first_fence, claimed: words(4) };
        self.note(format!("  claimed {:?} from {first_fence}", answer.claimed));
        match repeated {
            Some(expected) => assert_eq!(format!("{answer:?}"), format!("{expected:?}"), "a repeated call"),
            None => self.books.settle(&name, call, &answer),
        }
        answer
    }

    pub(super) fn beat(&mut self, at: usize) {
        let worker = &self.workers[at];
        let mut args = vec![worker.name.clone(), INTERVAL.to_owned(), worker.held.len().to_string(), "0".to_owned()];
        args.extend(worker.held.values().cloned());
        args.extend(worker.held.keys().map(u64::to_string));
        let reply: Vec<Value> = self.task.call("extend_locks", &args);
        let fences = |at: usize| redis::from_redis_value_ref::<Vec<u64>>(&reply[at]).unwrap();
        let (mut lost, mut cancelled) = (Vec::new(), Vec::new());
        for (&fence, id) in &worker.held {
            match self.books.holds(&worker.name, id, fence) {
                None => lost.push(fence),
                Some(hold) => cancelled.extend(hold.is_cancelled.then_some(fence)),
            }
        }
        assert_eq!((fences(3), fences(4)), (lost.clone(), cancelled), "lost and cancelled of {}", worker.name);
        self.note(format!("{} sends a heartbeat, and lost {lost:?}", self.workers[at].name));
        for fence in lost {
            self.workers[at].held.remove(&fence);
            self.workers[at].unstarted.remove(&fence);
        }
    }

    /// Resolves all jobs that were silent since the last sweep. They may be those of a live worker.
    pub(super) fn sweep(&mut self, at: usize) {
        let name = self.workers[at].name.clone();
        let args = [name.as_str(), INTERVAL, &self.epoch.to_string(), "5000", "0", "500", "auto", ""];
        let reply: Vec<Value> = self.task.call("sweep", &args.map(str::to_owned));
        self.epoch = text(&reply[1]).parse().unwrap();
        if text(&reply[0]) == "moved" {
            return;
        }
        let resolved: Vec<String> = redis::from_redis_value_ref(&reply[6]).unwrap();
        self.note(format!("{name} sweeps {}", resolved.join(" ")));
        for words in resolved.chunks(5) {
            let (id, action, fence) = (&words[0], words[2].as_str(), words[4].parse().unwrap());
            assert!(self.books.holds(&words[3], id, fence).is_some(), "{id} was not held by {}", words[3]);
            match action {
                "failed" | "cancelled" => self.books.end(id, action),
                "retrying" => self.books.set(id, State::Delayed { is_due: false }),
                _ => self.books.set(id, State::Waiting),
            }
        }
    }

    /// The arguments of `settle`, in short.
    fn short(&self, name: &str, call: &Settle) -> Vec<String> {
        let of = |outcome: Outcome| call.told.iter().filter(move |told| told.outcome == outcome);
        let (completed, begins) = (of(Outcome::Completed).count(), of(Outcome::Begin).count());
        let mut args = vec![call.number.to_string(), name.to_owned(), INTERVAL.to_owned()];
        let all = call.want + call.ahead;
        let is_ahead = self.books.is_keyed && call.ahead > 0;
        args.push(if is_ahead { format!("{all} {all} {}", call.want) } else { call.want.to_string() });
        args.extend([format!("{completed}{}", " 5".repeat(completed)), format!("0 {begins}")]);
        for outcome in [Outcome::Completed, Outcome::Begin] {
            args.extend(of(outcome).map(|told| told.id.clone()));
            args.extend(of(outcome).map(|told| told.fence.to_string()));
        }
        for told in &call.told {
            let (kind, count, detail) = match told.outcome {
                Outcome::Completed | Outcome::Begin => continue,
                Outcome::Failed => ("failed", "1", "e why 5".to_owned()),
                Outcome::Retry => ("retry", "1", format!("{FAR} e why 5")),
                Outcome::Snooze => ("snooze", "1:0", FAR.to_string()),
                Outcome::Undecodable => ("undecodable", "0:1", FAR.to_string()),
                Outcome::Unstart => ("unstart", "0", String::new()),
                Outcome::Requeue(0) => ("requeue", "0", String::new()),
                Outcome::Requeue(ms) => ("requeue", "0", ms.to_string()),
            };
            args.extend([told.id.clone(), told.fence.to_string()]);
            args.extend([kind, count, &detail, r#"{"code":"e"}"#].map(str::to_owned));
        }
        args
    }
}
