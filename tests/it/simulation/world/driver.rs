//! Settle calls as a worker's driver makes them: each is repeated until it is answered.

use redis::Value;

use super::keeper::Beaten;
use super::{Call, World};
use crate::simulation::FAR;
use crate::simulation::model::{Job, Place, Report, Said, Settled, Want};
use crate::support::settle_args;

impl World {
    /// A worker reports some of its jobs and claims, or repeats the call that was not answered.
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
            // Nothing was done: the call is repeated once the options are back.
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
        for ((id, hook), fence) in settled.claimed.into_iter().zip(&settled.hooks).zip(settled.first_fence..) {
            if id != "{}" {
                worker.held.insert(fence, id);
                worker.hooks.extend((!hook.is_empty()).then_some(fence));
            }
        }
        worker.old.push(call);
    }

    fn next_call(&mut self, at: usize, everything: bool) -> Call {
        let rng = &mut self.rng;
        let worker = &mut self.workers[at];
        worker.number += 1;
        let mut reports = Vec::new();
        for (&fence, id) in &worker.held {
            // A job that was taken, ended elsewhere and was removed counts as held until a heartbeat reports it.
            let job = self.model.jobs.get(id);
            let attempt = job.map_or(0, |job| job.attempt) + 1;
            if worker.hooks.contains(&fence) {
                let failed = job.and_then(|job| job.outcome.as_ref()).map_or(0, |outcome| outcome.failed) + 1;
                let said = match rng.u32(..10) {
                    _ if everything => Said::Hooked { failed: false },
                    0..3 => Said::Hooked { failed: false },
                    3 => Said::Hooked { failed: true },
                    4 => Said::HookRetry { failed },
                    5 => Said::Requeue,
                    _ => continue,
                };
                reports.push(Report { id: id.clone(), fence, said });
                continue;
            }
            let waits = job.is_some_and(|job| job.early) && !self.ran.contains(&fence);
            let said = match rng.u32(..10) {
                _ if everything && job.is_some_and(|job| job.claimed) => Said::Begin { early: false },
                _ if everything => Said::Completed,
                0..5 if job.is_some_and(|job| job.claimed) => {
                    let may_begin_early = self.model.crash.on == "recover" && job.is_some_and(Job::may_begin_early);
                    Said::Begin { early: may_begin_early && rng.bool() }
                }
                5 if job.is_some_and(|job| job.claimed) => Said::Requeue,
                _ if job.is_some_and(|job| job.claimed) => continue,
                5 => Said::Unstart,
                4 => Said::Requeue,
                // It began early, and still waits for a slot.
                _ if waits && rng.bool() => continue,
                0 | 1 => Said::Completed,
                2 => Said::Failed { attempt },
                3 => Said::Retry { attempt },
                _ => {
                    self.ran.insert(fence);
                    continue;
                }
            };
            if !matches!(said, Said::Begin { .. } | Said::Unstart | Said::Requeue) {
                self.ran.insert(fence);
            }
            reports.push(Report { id: id.clone(), fence, said });
        }
        // In the order of the arguments: completed jobs first.
        reports.sort_by_key(|report| report.said.rank());
        let jobs = if everything { 5 } else { rng.usize(..6) };
        let begin = rng.usize(..=jobs);
        let (begin, with_slot) = if everything || rng.bool() { (jobs, jobs) } else { (begin, rng.usize(..=begin)) };
        let want = Want { jobs, begin, with_slot, hooks: worker.has_hook };
        Call { number: worker.number, want, reports }
    }

    /// Makes a call that may have been executed before. Without declared options, a new one does nothing.
    fn execute(&mut self, at: usize, call: &Call) -> Option<Settled> {
        let (name, interval) = (self.workers[at].name.clone(), self.workers[at].interval);
        self.note(&format!("{name} {call:?}"));
        let finalizing = self.task.finalizing();
        let known = self.model.repeated(&name).is_some_and(|(number, _)| number == call.number);
        if !known && call.want.jobs > 0 && self.model.declared_at > 0 && self.model.keyed {
            self.task.take_marker();
        }
        let reply = self.send((&name, ""), interval, call);
        if self.model.declared_at == 0 && !known {
            assert_eq!(text(&reply[0]), "undeclared");
            self.check();
            return None;
        }
        let settled = settled(&reply);
        let expected = match self.model.repeated(&name) {
            Some((number, answer)) if number == call.number => answer,
            _ => {
                let newest = self.heard.keys().next_back().copied().unwrap_or(0);
                assert!(settled.claimed.is_empty() || settled.first_fence > newest, "fences do not grow");
                let id = (name.as_str(), call.number, interval);
                let expected = self.model.settle(
                    id,
                    &call.reports,
                    call.want,
                    (settled.first_fence, &settled.claimed),
                    &finalizing,
                );
                let hooks_left = reply.get(9).is_some_and(|more| matches!(more, Value::Int(more) if more & 1 == 1));
                assert_eq!(hooks_left, self.model.has_due_hooks(), "hooks that are left");
                self.tell_ledger(call, &settled);
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

    /// A worker that stops closes its call sequences: late copies of its calls do nothing.
    pub(super) fn close(&mut self, at: usize) {
        let worker = &self.workers[at];
        let (name, interval) = (worker.name.clone(), worker.interval);
        let calls: Vec<Call> = worker.unanswered.iter().chain(worker.old.last()).cloned().collect();
        self.note(&format!("{name} closes its call sequences"));
        let [word]: [String; 1] = self.task.call("close", &["", "/2", "/3"].map(|line| format!("{name}{line}")));
        assert_eq!(word, "closed");
        for call in calls {
            assert_eq!(text(&self.send((&name, ""), interval, &call)[0]), "closed");
        }
        self.check();
    }

    /// `line` is empty for the first call sequence of a worker.
    fn send(&mut self, (name, line): (&str, &str), interval: u64, call: &Call) -> Vec<Value> {
        let (completed, others): (Vec<_>, Vec<_>) =
            call.reports.iter().partition(|report| report.said == Said::Completed);
        let mut args = vec![format!("{}{line}", call.number), name.to_owned()];
        let Want { jobs, begin, with_slot, hooks } = call.want;
        let want = if jobs == with_slot { jobs.to_string() } else { format!("{jobs} {begin} {with_slot}") };
        args.extend([interval.to_string(), if hooks { want + " hooks" } else { want }]);
        // The run time of each is its fence, which identifies it later.
        let ran: String = completed.iter().map(|report| format!(" {}", report.fence)).collect();
        let begins = call.reports.iter().filter(|report| matches!(report.said, Said::Begin { .. })).collect::<Vec<_>>();
        let with_slot = begins.iter().filter(|report| report.said == Said::Begin { early: false }).count();
        let counts = if begins.is_empty() { "0".to_owned() } else { format!("0 {} {with_slot}", begins.len()) };
        args.extend([format!("{}{ran}", completed.len()), counts]);
        args.extend(completed.iter().map(|report| report.id.clone()));
        args.extend(completed.iter().map(|report| report.fence.to_string()));
        args.extend(begins.iter().map(|report| report.id.clone()));
        args.extend(begins.iter().map(|report| report.fence.to_string()));
        for report in others.into_iter().filter(|report| !matches!(report.said, Said::Begin { .. })) {
            let (kind, attempt, detail) = match report.said {
                Said::Failed { attempt } => ("failed", attempt, "e why 5".to_owned()),
                Said::Retry { attempt } => ("retry", attempt, format!("{FAR} e why 5")),
                Said::Unstart => ("unstart", 0, String::new()),
                Said::Hooked { failed } => ("hooked", 0, if failed { "e why" } else { "" }.to_owned()),
                Said::HookRetry { failed } => ("hook_retry", failed, format!("{FAR} e why")),
                Said::Requeue | Said::Completed | Said::Begin { .. } => ("requeue", 0, String::new()),
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
        let (reply, plain) = self.task.settle(&settle_args(&args));
        if let Some(how) = plain {
            self.seen.insert(how.to_owned());
        }
        reply
    }

    /// The effect of a call that was executed for the first time, as its worker sees it.
    fn tell_ledger(&mut self, call: &Call, settled: &Settled) {
        let held = call.reports.iter().filter(|report| !settled.lost.contains(&report.fence));
        for report in held.filter(|report| report.said == Said::Hooked { failed: false }) {
            self.ledger.ran(&report.id);
        }
        // The event of the call itself comes after it.
        let before = |id: &&String| !call.reports.iter().any(|report| report.id == **id);
        for (id, outcome) in settled.claimed.iter().zip(&settled.hooks).filter(|(id, _)| before(id)) {
            self.ledger.claimed(id, outcome);
        }
        if settled.begin < -1 {
            self.seen.insert("hook of a paused task".to_owned());
        }
    }

    /// A late copy of a call, from a connection that was given up.
    pub(super) fn repeat_an_old_call(&mut self, at: usize) {
        let worker = &self.workers[at];
        let (name, interval) = (worker.name.clone(), worker.interval);
        let last = self.model.repeated(&name).map_or(0, |(number, _)| number);
        let Some(call) = worker.old.iter().rfind(|call| call.number < last).cloned() else { return };
        self.note(&format!("{name} repeats {}", call.number));
        let before = self.task.view();
        assert_eq!(text(&self.send((&name, ""), interval, &call)[0]), "stale");
        assert_eq!(self.task.view(), before);
    }

    /// A call with an outdated token changes nothing except for the event of the refusal.
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
        let hooked = [Said::Hooked { failed: false }, Said::HookRetry { failed: 1 }];
        let said = [Said::Completed, Said::Failed { attempt: 1 }, Said::Retry { attempt: 1 }, Said::Requeue];
        let said = [&said[..], &hooked].concat();
        let report = Report { id, fence: shown, said: said[self.rng.usize(..said.len())] };
        let args = [name.clone(), interval.to_string(), "1".into(), "0".into(), report.id.clone(), shown.to_string()];
        let (_, _, _, lost, ..): Beaten = self.task.call("extend_locks", &args);
        assert_eq!(lost, [shown]);
        self.model.extend(&name, interval, std::slice::from_ref(&report));
        self.wrong_calls += 1;
        // Without the hook it would end jobs whose hook runs nowhere.
        let want = Want { jobs: 0, begin: 0, with_slot: 0, hooks: true };
        let call = Call { number: self.wrong_calls, want, reports: vec![report] };
        let reply = self.send((&name, "/2"), interval, &call);
        if self.model.declared_at == 0 {
            assert_eq!(text(&reply[0]), "undeclared");
        } else {
            assert_eq!(text(&reply[1]), shown.to_string());
            self.model.refuse(&call.reports[0]);
            self.model.strip();
        }
        self.check();
    }
}

fn text(value: &Value) -> String {
    redis::from_redis_value_ref(value).unwrap()
}

/// The reply to an executed call. For a hook it has the value, or the error, in place of a payload.
fn settled(reply: &[Value]) -> Settled {
    assert!(reply.len() >= 9 && text(&reply[0]) == "settled", "settle answered {reply:?}");
    let fences = |at: usize| text(&reply[at]).split_whitespace().map(|word| word.parse().unwrap()).collect();
    let claimed: Vec<String> = text(&reply[4]).split_whitespace().map(str::to_owned).collect();
    let mut hooks = vec![String::new(); claimed.len()];
    let extras: Vec<Vec<String>> = redis::from_redis_value_ref(&reply[6]).unwrap();
    for extra in extras {
        let at = extra[0].parse::<usize>().unwrap() - 1;
        if extra.len() == 9 && claimed[at] != "{}" {
            // The size of the payload follows the outcome.
            let (outcome, _) = extra[8].rsplit_once(' ').unwrap();
            hooks[at] = outcome.to_owned();
        }
    }
    let payloads: Vec<String> = redis::from_redis_value_ref(&reply[5]).unwrap();
    for ((id, hook), payload) in claimed.iter().zip(&hooks).zip(&payloads) {
        let code = match hook.split(' ').next() {
            _ if id == "{}" => "",
            Some("failed") => r#""code":""#,
            Some("cancelled") => r#""code":"cancelled""#,
            Some("completed") => "",
            _ => "{}",
        };
        assert!(payload.contains(code) && payload.is_empty() == code.is_empty(), "{id} {hook:?} with {payload}");
    }
    Settled {
        lost: fences(1),
        taken: fences(2),
        first_fence: text(&reply[3]).parse().unwrap(),
        claimed,
        hooks,
        begin: text(&reply[8]).parse().unwrap(),
    }
}
