//! Heartbeats and sweeps as a worker's keeper makes them.

use redis::Value;

use std::collections::BTreeSet;

use super::{Answer, MAX_COUNT, SWEEP_LIMIT, World};
use crate::simulation::model::{Place, Report, Resolved, Said, Verdict, Wait};

/// The reply to a heartbeat: the word, the epoch, the interval, lost fences, cancelled fences, when the options were
/// declared, and the numbers of candidates and active jobs.
pub(super) type Beaten = (String, u64, u64, Vec<u64>, Vec<u64>, u64, usize, usize);

impl World {
    /// The keeper of a worker sends a heartbeat for all that it holds, when due.
    pub(super) fn beat(&mut self, at: usize) {
        let now = self.now;
        let away = self.outage || now < self.workers[at].away_until;
        let worker = &mut self.workers[at];
        if let Some(answer) = worker.answer.take() {
            if away || now.min(answer.arrives) > answer.sent + worker.period() {
                worker.witness.broken(now);
            } else if answer.arrives > now {
                worker.answer = Some(answer);
                return;
            } else {
                worker.witness.beat_answered(answer.due, now, answer.epoch, answer.interval);
                worker.beat_due = (answer.due + worker.period()).max(now);
            }
        }
        if worker.beat_due > now {
            return;
        }
        if away {
            worker.witness.broken(now);
            worker.beat_due = now + worker.interval / 6;
            worker.witness.next_beat_at(worker.beat_due);
            return;
        }
        let (name, interval, due) = (worker.name.clone(), worker.interval, worker.beat_due);
        // Also for jobs of a claim whose reply did not arrive: the record of the call has them.
        let record = self.model.repeated(&name);
        let unanswered =
            record.filter(|(number, _)| worker.unanswered.as_ref().is_some_and(|call| call.number == *number));
        let unanswered = unanswered.into_iter().flat_map(|(_, answer)| (answer.first_fence..).zip(answer.claimed));
        let held = worker.held.iter().map(|(&fence, id)| (fence, id.clone())).chain(unanswered);
        let held = held.filter(|(_, id)| id != "{}").map(|(fence, id)| Report { id, fence, said: Said::Requeue });
        let held: Vec<Report> = held.collect();
        let (epoch, in_force, lost, declared_at) = self.extend(&name, interval, &held);
        let slow = if self.chance(10) { self.rng.u64(..interval) } else { 0 };
        let is_lost = self.chance(5);
        let worker = &mut self.workers[at];
        if is_lost {
            worker.witness.broken(now);
            worker.beat_due = now + interval / 6;
            worker.witness.next_beat_at(worker.beat_due);
            return;
        }
        // A worker drops a lost job when it learns of it; an outcome on its way may still show the token.
        lost.iter().for_each(|fence| {
            worker.held.remove(fence);
        });
        if slow > 0 {
            worker.answer = Some(Answer { sent: now, arrives: now + slow, due, epoch, interval: in_force });
            return;
        }
        worker.witness.beat_answered(due, now, epoch, in_force);
        worker.beat_due = (due + worker.period()).max(now);
        if declared_at == 0 {
            self.declare_again(at);
        }
    }

    fn extend(&mut self, name: &str, interval: u64, held: &[Report]) -> (u64, u64, Vec<u64>, u64) {
        self.note(&format!("{name} sends a heartbeat for {}", held.len()));
        let mut args = vec![name.to_owned(), interval.to_string(), held.len().to_string(), "0".to_owned()];
        args.extend(held.iter().map(|report| report.id.clone()));
        args.extend(held.iter().map(|report| report.fence.to_string()));
        let (word, epoch, in_force, lost, cancelled, declared_at, candidates, active): Beaten =
            self.task.call("extend_locks", &args);
        assert_eq!(declared_at, self.model.declared_at);
        assert_eq!((candidates, active), (self.model.candidates().len(), self.model.active()), "before the heartbeat");
        assert_eq!((word.as_str(), epoch), ("beaten", self.model.epoch));
        let marked = held.iter().any(|report| self.model.is_parked(&report.id));
        assert_eq!((lost.clone(), cancelled), self.model.extend(name, interval, held));
        assert_eq!(in_force, self.model.interval());
        for report in held.iter().filter(|report| !lost.contains(&report.fence)) {
            self.heard.insert(report.fence, (self.now, interval));
            if self.parked.remove(&report.fence) && marked {
                self.seen.insert("heard from, and no longer parked".to_owned());
            }
        }
        self.check();
        (epoch, in_force, lost, declared_at)
    }

    /// The keeper of a worker sweeps, if its witness allows it.
    pub(super) fn sweep(&mut self, at: usize) {
        let mut cursor = "0".to_owned();
        loop {
            let now = self.now;
            let worker = &mut self.workers[at];
            if self.outage || now < worker.away_until {
                return;
            }
            let Some((epoch, waited)) = worker.witness.may_sweep(now) else { return };
            let (name, ask) = (worker.name.clone(), worker.interval);
            self.note(&format!("{name} sweeps {epoch} after {waited}"));
            let mut args = vec![name, ask.to_string(), epoch.to_string(), waited.to_string()];
            args.extend([cursor, SWEEP_LIMIT.to_string(), "auto".to_owned(), String::new()]);
            let reply: Vec<Value> = self.task.call("sweep", &args);
            let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap();
            let refused = self.model.refuses_sweep(epoch, waited);
            assert_eq!(text(0), refused.unwrap_or("swept"));
            if refused == Some("undeclared") {
                self.check();
                self.declare_again(at);
                return;
            }
            cursor = "0".to_owned();
            let mut done = refused.is_some();
            if !done {
                cursor = text(3);
                done = text(4) == "1";
                let parked = reply.get(7).map_or(0, |count| redis::from_redis_value_ref(count).unwrap());
                self.swept(redis::from_redis_value_ref(&reply[6]).unwrap(), parked, done);
                assert_eq!(text(5), self.model.candidates().len().to_string());
                if done {
                    let at = self.task.snapshot_at();
                    self.model.snapshot(ask, at);
                }
            }
            self.check();
            let lost = self.chance(10);
            let worker = &mut self.workers[at];
            if lost {
                worker.witness.broken(now);
                return;
            }
            worker.witness.sweep_answered(now, text(1).parse().unwrap(), text(2).parse().unwrap());
            if done {
                return;
            }
        }
    }

    /// A sweep resolved some candidates and parked this many: these left the candidates without an event.
    fn swept(&mut self, words: Vec<String>, parked: usize, snapshot: bool) {
        let told = resolved(&words);
        let ids: Vec<String> = told.iter().map(|resolved| resolved.id.clone()).collect();
        // If none is left, the snapshot has made candidates of others.
        let left = if snapshot { BTreeSet::new() } else { self.task.view().candidates };
        let gone: BTreeSet<String> = self.model.candidates().difference(&left).cloned().collect();
        assert!(gone.len() <= SWEEP_LIMIT, "{gone:?} were looked at");
        assert!(ids.iter().all(|id| gone.contains(id)), "{ids:?} were not candidates");
        let waiting: BTreeSet<String> = gone.into_iter().filter(|id| !ids.contains(id)).collect();
        self.note(&format!("  resolved {ids:?}, parked {waiting:?}"));
        assert_eq!(waiting.len(), parked);
        for id in &ids {
            self.was_silent(id);
            assert_ne!(self.model.wait_of(id), Wait::Off, "{id} waits for a person");
            assert!(!self.model.waits_longer(id), "{id} was resolved too early");
            if self.model.wait_of(id) == Wait::Longer {
                self.seen.insert("a longer wait ended".to_owned());
            }
        }
        for id in &waiting {
            assert!(self.model.waits_longer(id), "{id} is parked but waits for nothing");
            let fence = self.was_silent(id);
            let is_new = self.parked.insert(fence);
            self.seen.insert(if is_new { "parked" } else { "parked again" }.to_owned());
        }
        self.crashed(&told);
        assert_eq!(told, self.model.resolve(&ids, MAX_COUNT, Verdict::Auto));
        self.model.parked(&waiting);
    }

    /// A crash ends no job whose handler did not run. A job whose handler always crashes runs at most twice more than its
    /// stalls allow: once uncounted, and once to be found.
    pub(super) fn crashed(&mut self, told: &[Resolved]) {
        for Resolved { id, action, fence, .. } in told {
            let job = &self.model.jobs[id];
            if job.claimed || job.outcome.is_some() {
                continue;
            }
            let ran = !job.early || self.ran.contains(fence);
            assert!(ran || action != "failed", "{id} failed by a stall, and its handler did not run");
            let count = self.crashes.entry(id.clone()).or_default();
            *count += 1;
            let most = job.max_count.unwrap_or(MAX_COUNT) + 2;
            assert!(*count <= most || self.model.crash.on != "recover", "{id} ran {count} times, and may {most} times");
            if job.early && action == "requeued" {
                self.seen.insert(if ran { "put back after a run" } else { "put back before its run" }.to_owned());
            }
        }
    }

    /// Checks that the job was silent for an interval, and that its holder had trouble of its own. Returns the fence.
    pub(super) fn was_silent(&self, id: &str) -> u64 {
        let Place::Running { worker, fence } = &self.model.jobs[id].place else { panic!("{id} did not run") };
        let (heard, interval) = self.heard[fence];
        let silent = self.now - heard;
        assert!(silent >= interval, "{id} was taken from {worker} after {silent} of {interval} ms");
        let holder = self.workers.iter().find(|holder| holder.name == *worker && holder.held.contains_key(fence));
        let trouble = holder.is_none_or(|holder| holder.trouble_until() > heard);
        assert!(trouble, "{id} was taken from {worker}, which had no trouble of its own since {heard}");
        *fence
    }

    /// A sweep that did not wait, or that watched another epoch, changes nothing.
    pub(super) fn sweep_too_early(&mut self, at: usize) {
        let (epoch, waited) = match self.rng.bool() {
            true => (self.model.epoch, self.model.interval().saturating_sub(1)),
            false => (self.model.epoch + 1, self.model.interval()),
        };
        let Some(refused) = self.model.refuses_sweep(epoch, waited) else { return };
        let before = self.task.view();
        let worker = &self.workers[at];
        let mut args = vec![worker.name.clone(), worker.interval.to_string(), epoch.to_string(), waited.to_string()];
        args.extend(["0".to_owned(), SWEEP_LIMIT.to_string(), "auto".to_owned(), String::new()]);
        let reply: Vec<Value> = self.task.call("sweep", &args);
        assert_eq!(redis::from_redis_value_ref::<String>(&reply[0]).unwrap(), refused);
        assert_eq!(self.task.view(), before);
    }
}

/// The decisions in a reply, five words each.
pub(super) fn resolved(words: &[String]) -> Vec<Resolved> {
    let of = |five: &[String]| Resolved {
        id: five[0].clone(),
        count: five[1].parse().unwrap(),
        action: five[2].clone(),
        worker: five[3].clone(),
        fence: five[4].parse().unwrap(),
    };
    words.chunks(5).map(of).collect()
}
