//! Settle calls, as a worker's driver makes them: each is repeated until it is answered.

use redis::Value;

use super::keeper::Beaten;
use super::{Call, World};
use crate::FAR;
use crate::model::{Place, Report, Said, Settled};

impl World {
    /// A worker reports some of its jobs and claims, or makes again the call that was not answered.
    pub(super) fn settle(&mut self, at: usize, everything: bool) {
        let (away, frozen) = (self.now < self.workers[at].away_until, self.now < self.workers[at].frozen_until);
        if frozen {
            return;
        }
        let call = match self.workers[at].unanswered.take() {
            Some(call) => call,
            None => self.next_call(at, everything),
        };
        if away || self.chance(8) {
            self.note(&format!("{} cannot send {call:?}", self.workers[at].name));
            self.workers[at].unanswered = Some(call);
            return;
        }
        let Some(settled) = self.execute(at, &call) else {
            // Nothing was done: the call is made again once the options are there.
            self.declare_again(at);
            self.workers[at].unanswered = Some(call);
            return;
        };
        if self.chance(8) {
            self.note("  the answer is lost");
            self.workers[at].unanswered = Some(call);
            return;
        }
        let worker = &mut self.workers[at];
        for report in &call.reports {
            let is_gone = settled.lost.contains(&report.fence) || settled.taken.contains(&report.fence);
            if report.said.ends_the_hold() || is_gone {
                worker.held.remove(&report.fence);
            }
        }
        let claimed = settled.claimed.iter().zip(settled.first_fence..).filter(|(id, _)| *id != "{}");
        worker.held.extend(claimed.map(|(id, fence)| (fence, id.clone())));
        worker.old.push(call);
    }

    fn next_call(&mut self, at: usize, everything: bool) -> Call {
        let rng = &mut self.rng;
        let worker = &mut self.workers[at];
        worker.number += 1;
        let mut reports = Vec::new();
        for (&fence, id) in &worker.held {
            // One that was taken, ended elsewhere and was removed is held until a beat tells.
            let job = self.model.jobs.get(id);
            let attempt = job.map_or(0, |job| job.attempt) + 1;
            let said = match rng.u32(..10) {
                _ if everything && job.is_some_and(|job| job.claimed) => Said::Begin,
                _ if everything => Said::Completed,
                0..5 if job.is_some_and(|job| job.claimed) => Said::Begin,
                5 if job.is_some_and(|job| job.claimed) => Said::Requeue,
                _ if job.is_some_and(|job| job.claimed) => continue,
                5 => Said::Unstart,
                0 | 1 => Said::Completed,
                2 => Said::Failed { attempt },
                3 => Said::Retry { attempt },
                4 => Said::Requeue,
                _ => continue,
            };
            reports.push(Report { id: id.clone(), fence, said });
        }
        // As the arguments have it: completed jobs first.
        reports.sort_by_key(|report| report.said.rank());
        let want = if everything { 5 } else { rng.usize(..6) };
        let begin = rng.usize(..=want);
        let want = if everything || rng.bool() { (want, want, want) } else { (want, begin, rng.usize(..=begin)) };
        Call { number: worker.number, want, reports }
    }

    /// Makes a call that may have been executed before. Without declared options a new one does nothing.
    fn execute(&mut self, at: usize, call: &Call) -> Option<Settled> {
        let (name, interval) = (self.workers[at].name.clone(), self.workers[at].interval);
        self.note(&format!("{name} {call:?}"));
        let reply = self.send((&name, ""), interval, call);
        let known = self.model.repeated(&name).is_some_and(|(number, _)| number == call.number);
        if self.model.declared_at == 0 && !known {
            assert_eq!(reply, ["undeclared"]);
            self.check();
            return None;
        }
        let [word, lost, taken, fence, claimed, _, _, _, begin] = &reply[..] else {
            panic!("settle answered {reply:?}")
        };
        assert_eq!(word, "settled");
        let fences = |words: &String| words.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let settled = Settled {
            lost: fences(lost),
            taken: fences(taken),
            first_fence: fence.parse().unwrap(),
            claimed: claimed.split_whitespace().map(str::to_owned).collect(),
            begin: begin.parse().unwrap(),
        };
        let expected = match self.model.repeated(&name) {
            Some((number, answer)) if number == call.number => answer,
            _ => {
                let newest = self.heard.keys().next_back().copied().unwrap_or(0);
                assert!(settled.claimed.is_empty() || settled.first_fence > newest, "fences do not grow");
                let id = (name.as_str(), call.number, interval);
                let expected = self.model.settle(id, &call.reports, call.want, settled.first_fence);
                for (fence, _) in (settled.first_fence..).zip(&settled.claimed) {
                    self.heard.insert(fence, (self.now, interval));
                }
                expected
            }
        };
        assert_eq!(settled, expected);
        self.check();
        Some(settled)
    }

    /// A worker that stops ends its lines: a copy of a call of it that comes late does nothing.
    pub(super) fn close(&mut self, at: usize) {
        let worker = &self.workers[at];
        let (name, interval) = (worker.name.clone(), worker.interval);
        let calls: Vec<Call> = worker.unanswered.iter().chain(worker.old.last()).cloned().collect();
        self.note(&format!("{name} closes its lines"));
        let [word]: [String; 1] = self.task.call("close", &["", "/2", "/3"].map(|line| format!("{name}{line}")));
        assert_eq!(word, "closed");
        for call in calls {
            assert_eq!(self.send((&name, ""), interval, &call), ["closed"]);
        }
        self.check();
    }

    /// `line` is empty for the first line of calls of a worker.
    fn send(&mut self, (name, line): (&str, &str), interval: u64, call: &Call) -> Vec<String> {
        let (completed, others): (Vec<_>, Vec<_>) =
            call.reports.iter().partition(|report| report.said == Said::Completed);
        let mut args = vec![format!("{}{line}", call.number), name.to_owned()];
        let (want, begin, at_once) = call.want;
        let want = if want == at_once { want.to_string() } else { format!("{want} {begin} {at_once}") };
        args.extend([interval.to_string(), want]);
        // How long each ran: its own fence, by which it is known again.
        let ran: String = completed.iter().map(|report| format!(" {}", report.fence)).collect();
        let begins = call.reports.iter().filter(|report| report.said == Said::Begin);
        let (begins, counts) = (begins.collect::<Vec<_>>(), |begin: usize| format!("0 {begin}"));
        let counts = if begins.is_empty() { "0".to_owned() } else { counts(begins.len()) };
        args.extend([format!("{}{ran}", completed.len()), counts]);
        args.extend(completed.iter().map(|report| report.id.clone()));
        args.extend(completed.iter().map(|report| report.fence.to_string()));
        args.extend(begins.iter().map(|report| report.id.clone()));
        args.extend(begins.iter().map(|report| report.fence.to_string()));
        for report in others.into_iter().filter(|report| report.said != Said::Begin) {
            let (kind, attempt, detail) = match report.said {
                Said::Failed { attempt } => ("failed", attempt, "e why 5".to_owned()),
                Said::Retry { attempt } => ("retry", attempt, format!("{FAR} e why 5")),
                Said::Unstart => ("unstart", 0, String::new()),
                Said::Requeue | Said::Completed | Said::Begin => ("requeue", 0, String::new()),
            };
            let error = r#"{"code":"e"}"#.to_owned();
            args.extend([
                report.id.clone(),
                report.fence.to_string(),
                kind.to_owned(),
                attempt.to_string(),
                detail,
                error,
            ]);
        }
        let reply: Vec<Value> = self.task.call("settle", &args);
        reply.iter().map(|word| redis::from_redis_value_ref(word).unwrap_or_default()).collect()
    }

    /// A copy of a call that comes late, from a connection that was given up.
    pub(super) fn repeat_an_old_call(&mut self, at: usize) {
        let worker = &self.workers[at];
        let (name, interval) = (worker.name.clone(), worker.interval);
        let last = self.model.repeated(&name).map_or(0, |(number, _)| number);
        let Some(call) = worker.old.iter().rfind(|call| call.number < last).cloned() else { return };
        self.note(&format!("{name} repeats {}", call.number));
        let before = self.task.view();
        assert_eq!(self.send((&name, ""), interval, &call), ["stale"]);
        assert_eq!(self.task.view(), before);
    }

    /// Whoever shows a token that is not in force changes nothing; that it did is told.
    pub(super) fn show_a_wrong_token(&mut self, at: usize) {
        let Some((id, fence)) = self.model.jobs.iter().find_map(|(id, job)| match job.place {
            Place::Running { fence, .. } => Some((id.clone(), fence)),
            _ => None,
        }) else {
            return;
        };
        let (owner, other) = (self.workers[at].name.clone(), "nobody".to_owned());
        let (name, shown) = if self.rng.bool() { (other, fence) } else { (owner, fence + 1_000_000_000_000) };
        self.note(&format!("{name} shows {shown} for {id}"));
        let interval = self.workers[at].interval.min(self.model.interval()).max(1);
        let said = [Said::Completed, Said::Failed { attempt: 1 }, Said::Retry { attempt: 1 }, Said::Requeue];
        let report = Report { id, fence: shown, said: said[self.rng.usize(..4)] };
        let args = [name.clone(), interval.to_string(), "1".into(), "0".into(), report.id.clone(), shown.to_string()];
        let (_, _, _, lost, ..): Beaten = self.task.call("extend_locks", &args);
        assert_eq!(lost, [shown]);
        self.model.extend(&name, interval, std::slice::from_ref(&report));
        self.wrong_calls += 1;
        let call = Call { number: self.wrong_calls, want: (0, 0, 0), reports: vec![report] };
        let reply = self.send((&name, "/2"), interval, &call);
        if self.model.declared_at == 0 {
            assert_eq!(reply, ["undeclared"]);
        } else {
            assert_eq!(reply[1], shown.to_string());
            self.model.refuse(&call.reports[0]);
            self.model.strip();
        }
        self.check();
    }
}
