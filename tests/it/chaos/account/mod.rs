//! The account of a run: what was acknowledged, next to what the queue and the store outside say.

mod jobs;
mod limits;
mod stalls;
mod ticks;

use std::collections::{BTreeMap, BTreeSet};

use heartline::{Event, ScheduleInfo};

use crate::chaos::load::{Acknowledged, FlowAck};
use crate::chaos::outside::{Line, Run};
use crate::chaos::report::Report;
use crate::chaos::spans::{Hurt, Loses, Span};

/// How a job has ended, as the queue says at the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With the fence under which it ran.
    Completed(u64),
    Failed(String),
    Missing,
    Other(String),
}

/// How a workflow has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    Completed(u64),
    Missing,
    Other(String),
}

/// The ticks of a schedule, and which of their jobs exist.
pub struct Ticks {
    pub info: ScheduleInfo,
    /// The ids of the jobs of all its ticks.
    pub ids: Vec<String>,
    pub ends: BTreeMap<String, End>,
}

/// All that is known about a run after it has come to rest.
pub struct Evidence {
    pub acknowledged: Acknowledged,
    /// By task and id.
    pub ends: BTreeMap<(String, String), End>,
    pub flows: Vec<(FlowAck, FlowEnd)>,
    pub ticks: Vec<Ticks>,
    /// When the schedule of the run was put, if it is missing.
    pub lost_schedule_us: Option<u64>,
    pub events: Vec<Event>,
    /// How many events the subscription missed.
    pub missed_events: u64,
    pub lines: Vec<(u64, Line)>,
    pub spans: Vec<Span>,
}

impl Evidence {
    /// Whether a fault of the servers overlaps this time.
    fn servers_failed(&self, from_us: u64, to_us: u64) -> bool {
        self.spans.iter().any(|span| span.hurt == Hurt::Servers && span.overlaps(from_us, to_us))
    }

    /// Whether what a server acknowledged at this time may be lost.
    fn may_be_lost(&self, at_us: u64) -> bool {
        self.may_be_lost_by(at_us, u64::MAX)
    }

    /// Whether a write at some time between these may be lost.
    fn may_be_lost_between(&self, sent_us: u64, at_us: u64) -> bool {
        self.spans.iter().any(|span| span.may_lose_between(sent_us, at_us))
    }

    /// Whether it may be lost at this later time.
    fn may_be_lost_by(&self, at_us: u64, by_us: u64) -> bool {
        self.spans.iter().any(|span| span.may_lose(at_us) && span.from_us <= by_us)
    }

    /// Whether a job with replicated durability may be lost: only if its server is emptied.
    fn may_be_emptied(&self, at_us: u64) -> bool {
        self.spans.iter().any(|span| span.loses == Loses::All && span.may_lose(at_us))
    }

    /// The faults in the 15 s before this time.
    fn faults_before(&self, at_us: u64) -> Vec<String> {
        let is_near = |span: &&Span| span.overlaps(at_us.saturating_sub(15_000_000), at_us);
        self.spans.iter().filter(is_near).map(Span::to_string).collect()
    }

    /// The process of each worker.
    fn pids(&self) -> BTreeMap<&str, u32> {
        let started = self.lines.iter().filter_map(|(_, line)| match line {
            Line::Started(started) => Some((started.worker.as_str(), started.pid)),
            _ => None,
        });
        started.collect()
    }

    fn runs<'a>(&'a self, is_wanted: impl Fn(&Line) -> Option<&Run> + 'a) -> impl Iterator<Item = (u64, &'a Run)> {
        self.lines.iter().filter_map(move |(at, line)| Some((*at, is_wanted(line)?)))
    }

    /// The begin of each run, the newest of each job last.
    fn begins(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs(|line| match line {
            Line::Began(run) => Some(run),
            _ => None,
        })
    }

    /// The runs whose effect the store outside accepted.
    fn effects(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs(|line| match line {
            Line::Accepted(run) => Some(run),
            _ => None,
        })
    }

    /// The end of each run that reported one.
    fn ends_of_runs(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs(|line| match line {
            Line::Accepted(run) | Line::Again(run) | Line::Refused(run) | Line::Ended(run) => Some(run),
            _ => None,
        })
    }
}

/// Checks everything.
pub fn account(evidence: &Evidence, report: &mut Report) {
    jobs::account(evidence, report);
    stalls::account(evidence, report);
    limits::account(evidence, report);
    ticks::account(evidence, report);
    let faults = |word: &str| evidence.spans.iter().filter(|span| span.what.starts_with(word)).count();
    report.kills += faults("kill");
    report.freezes += faults("freeze");
    report.deploys += faults("deploy");
    report.cuts += faults("cut") + faults("ClientKill");
    report.failovers += faults("another primary");
    report.server_faults += evidence.spans.iter().filter(|span| span.hurt == Hurt::Servers).count();
    let jobs: BTreeSet<&str> = evidence.acknowledged.jobs.iter().map(|ack| ack.id.as_str()).collect();
    report.jobs += jobs.len();
    report.workflows += evidence.flows.len();
}
