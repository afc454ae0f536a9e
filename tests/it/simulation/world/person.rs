//! What a person decides about parked jobs, and about workers that are known to be dead.

use std::collections::BTreeSet;

use redis::Value;

use super::keeper::resolved;
use super::{INTERVALS, MAX_COUNT, World};
use crate::simulation::model::{Verdict, Wait};

impl World {
    /// A person decides about parked jobs, or about any: others do not change.
    pub(super) fn decide_by_hand(&mut self) {
        let mut named: Vec<String> = (0..self.rng.usize(1..6)).map(|_| format!("job-{}", self.rng.u32(..60))).collect();
        for id in self.model.jobs.keys() {
            if self.model.has_old_mark(id) || self.model.is_parked(id) && self.rng.bool() {
                named.push(id.clone());
            }
        }
        self.rng.shuffle(&mut named);
        let verdict = if self.rng.u32(..3) == 0 { Verdict::Fail } else { Verdict::Recover };
        self.decide(verdict, &named);
    }

    /// A worker is silent until a sweep has parked its jobs, and then returns: its next call may come before the
    /// heartbeat that removes the marks.
    pub(super) fn be_silent_for_long(&mut self, at: usize) {
        let end = self.now + 4 * INTERVALS[1];
        self.note(&format!("{} is away for long", self.workers[at].name));
        self.workers[at].away_until = end;
        while self.now < end && !self.workers[at].held.values().any(|id| self.model.is_parked(id)) {
            self.pass_time();
        }
        let worker = &mut self.workers[at];
        (worker.away_until, worker.frozen_until) = (self.now, worker.frozen_until.min(self.now));
        self.note(&format!("{} is back", self.workers[at].name));
        // A call that was not answered is repeated first.
        for _ in 0..self.rng.u32(..3) {
            self.settle(at, false);
            self.decide_by_old_marks();
        }
    }

    /// An outdated mark stays until the next snapshot or heartbeat: a person may act before.
    pub(super) fn decide_by_old_marks(&mut self) {
        if self.model.jobs.keys().any(|id| self.model.has_old_mark(id)) && self.chance(50) {
            self.decide_by_hand();
        }
    }

    fn decide(&mut self, verdict: Verdict, named: &[String]) {
        let word = if verdict == Verdict::Fail { "fail" } else { "recover" };
        self.note(&format!("anna decides: {word} {}", named.join(" ")));
        let mut args = ["person", "0", "", "0", "0", "1", word, "anna"].map(str::to_owned).to_vec();
        args.extend(named.iter().cloned());
        let reply: Vec<Value> = self.task.call("sweep", &args);
        let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap();
        if self.model.declared_at == 0 {
            assert_eq!(text(0), "undeclared");
            self.check();
            return;
        }
        let ids = self.model.decided_by_hand(named);
        if named.iter().any(|id| self.model.has_old_mark(id)) {
            self.seen.insert("not taken by an old mark".to_owned());
        }
        for id in &ids {
            let fence = self.was_silent(id);
            assert!(self.parked.remove(&fence), "{id} was heard from since it was parked");
            self.seen.insert(format!("{} by a person's decision", if word == "fail" { "failed" } else { "taken" }));
        }
        self.by_hand += ids.len() as u32;
        let told = resolved(&redis::from_redis_value_ref::<Vec<String>>(&reply[6]).unwrap());
        self.note(&format!("  decided {ids:?}"));
        assert_eq!(told, self.model.resolve(&ids, MAX_COUNT, verdict));
        self.model.drop_marks_of(&ids);
        let (epoch, interval) = (self.model.epoch.to_string(), self.model.interval().to_string());
        let left = self.model.candidates().len().to_string();
        assert_eq!([0, 1, 2, 3, 4, 5].map(text), ["swept".to_owned(), epoch, interval, "0".into(), "0".into(), left]);
        assert_eq!(reply.len(), 7, "a person parks nothing");
        self.check();
    }

    /// The death of workers is proven, or a person declares one dead.
    pub(super) fn take_back(&mut self) {
        if self.dead.is_empty() {
            return;
        }
        let (count, at) = (self.dead.len(), self.rng.usize(..self.dead.len()));
        let (by, dead) = match self.rng.u32(..3) {
            0 => ("anna", vec![self.dead[at].clone()]),
            1 => ("", vec![self.dead[at].clone()]),
            _ => ("", self.dead[count.saturating_sub(3)..].to_vec()),
        };
        self.note(&format!("the jobs of {dead:?} are resolved, by {by:?}"));
        let lines = dead.iter().flat_map(|name| ["", "/2", "/3"].map(|line| format!("{name}{line}")));
        let [word]: [String; 1] = self.task.call("close", &lines.collect::<Vec<_>>());
        assert_eq!(word, "closed");
        let reason = if by.is_empty() { "worker_restarted" } else { "manual" };
        let mut args = ["neighbour", reason, by, "0", "500"].map(str::to_owned).to_vec();
        args.extend(dead.iter().cloned());
        let reply: Vec<Value> = self.task.call("reconcile", &args);
        let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap();
        if self.model.declared_at == 0 {
            assert_eq!(text(0), "undeclared");
            self.check();
            return;
        }
        assert_eq!([0, 1, 2].map(text), ["reconciled", "0", "0"]);
        let told = resolved(&redis::from_redis_value_ref::<Vec<String>>(&reply[3]).unwrap());
        let ids: Vec<String> = told.iter().map(|resolved| resolved.id.clone()).collect();
        let (mut expected, held) = (self.model.held_by(&dead), self.model.held_by(&dead).len());
        if by.is_empty() {
            expected.retain(|id| self.model.wait_of(id) != Wait::Off);
        }
        assert_eq!(ids.iter().cloned().collect::<BTreeSet<_>>(), expected);
        if expected.len() < held {
            self.seen.insert("left to a person".to_owned());
        }
        self.seen.extend((!ids.is_empty()).then(|| "taken back".to_owned()));
        self.note(&format!("  resolved {ids:?}"));
        self.crashed(&told);
        assert_eq!(told, self.model.resolve(&ids, MAX_COUNT, Verdict::Auto));
        self.check();
    }

    /// Lets the wait of silent jobs pass.
    pub(super) fn pass_waits(&mut self, by_snapshot: bool) {
        // Before the first snapshot no job was silent.
        if self.model.epoch == 0 {
            return;
        }
        self.note(if by_snapshot { "the snapshot is old" } else { "parked jobs waited for long" });
        self.task.pass_waits(by_snapshot);
        self.model.pass_waits(by_snapshot);
        self.check();
    }

    /// Jobs that are still parked have waited for long enough, or a person decides about them.
    pub(super) fn end_all_waits(&mut self) {
        self.pass_waits(false);
        let waits = |id: &&String| self.model.is_parked(id) && self.model.wait_of(id) == Wait::Off;
        let named: Vec<String> = self.model.jobs.keys().filter(waits).cloned().collect();
        let verdict = if self.rng.bool() { Verdict::Fail } else { Verdict::Recover };
        self.decide(verdict, &named);
        assert!(named.iter().all(|id| !self.model.is_parked(id)), "a decision without an effect");
    }
}
