//! The runs of a job, taken from its events: each as a bar on one axis of time, and each event in words.

use std::time::{Duration, SystemTime};

use heartline::inspect::text::span;
use heartline::{Event, StallAction};

use crate::badge::Badge;

/// The length of the axis, in its own units.
const AXIS: f64 = 400.0;

/// The most runs on the page, the last ones.
const SHOWN: usize = 20;

/// The runs of a job, from the oldest shown to the newest.
pub(crate) struct JobRuns {
    pub(crate) runs: Vec<JobRun>,
    /// How many earlier runs are not shown.
    pub(crate) earlier: usize,
    /// The ends of the axis.
    pub(crate) axis: Option<(SystemTime, SystemTime)>,
}

/// A run.
pub(crate) struct JobRun {
    pub(crate) number: usize,
    pub(crate) outcome: Badge,
    pub(crate) worker: String,
    pub(crate) started: SystemTime,
    /// Since when it waited, if that is known.
    since: Option<SystemTime>,
    ended: SystemTime,
    /// How long it waited, and ran.
    pub(crate) waited: String,
    pub(crate) ran: String,
    /// The bars of waiting and of running: begin and length.
    pub(crate) wait_bar: (f64, f64),
    pub(crate) run_bar: (f64, f64),
}

impl JobRuns {
    /// The runs that these events show, oldest event first. A run that has not ended lasts until now. If the worker of the job is
    /// silent, it is unknown whether it does.
    pub(crate) fn of(events: &[Event], is_silent: bool, now: SystemTime) -> JobRuns {
        let (mut runs, mut since, mut open) = (Vec::new(), None, None);
        for event in events {
            if let Event::Started { at, waited, worker, .. } = event {
                since = since.or_else(|| at.checked_sub((*waited)?));
                open = Some((*at, since.take(), worker.to_string()));
                continue;
            }
            if let Some((outcome, ran)) = end_of(event)
                && let Some((started, since, worker)) = open.take()
            {
                runs.push(run(runs.len() + 1, outcome, worker, (since, started, event.at()), ran));
            }
            if waits_after(event) {
                since = Some(event.at());
            }
        }
        if let Some((started, since, worker)) = open {
            let running = match is_silent {
                true => Badge::new("amber", "flat", "silent"),
                false => Badge::new("blue", "play", "running"),
            };
            runs.push(run(runs.len() + 1, running, worker, (since, started, now.max(started)), None));
        }
        let earlier = runs.len().saturating_sub(SHOWN);
        JobRuns { runs: runs.split_off(earlier), earlier, axis: None }.drawn()
    }

    /// Places the bars on an axis from the first wait to the last end.
    fn drawn(mut self) -> JobRuns {
        let begin = self.runs.iter().map(|run| run.since.unwrap_or(run.started)).min();
        let Some((begin, end)) = begin.zip(self.runs.iter().map(|run| run.ended).max()) else { return self };
        let whole = end.duration_since(begin).unwrap_or_default().as_secs_f64().max(0.001);
        let place = |at: SystemTime| at.duration_since(begin).unwrap_or_default().as_secs_f64() / whole * AXIS;
        // A bar is never too thin to be seen, and stays on the axis.
        let bar = |from: SystemTime, to: SystemTime| {
            let width = (place(to) - place(from)).max(2.0);
            (round(place(from).min(AXIS - width)), round(width))
        };
        for run in &mut self.runs {
            run.wait_bar = run.since.map_or((0.0, 0.0), |since| bar(since, run.started));
            run.run_bar = bar(run.started, run.ended);
        }
        self.axis = Some((begin, end));
        self
    }
}

fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

type Times = (Option<SystemTime>, SystemTime, SystemTime);

fn run(number: usize, outcome: Badge, worker: String, (since, started, ended): Times, ran: Option<Duration>) -> JobRun {
    let between = |from: SystemTime, to: SystemTime| to.duration_since(from).unwrap_or_default();
    JobRun {
        number,
        outcome,
        worker,
        waited: since.map_or_else(|| "–".to_owned(), |since| span(between(since, started))),
        ran: span(ran.unwrap_or_else(|| between(started, ended))),
        since,
        started,
        ended,
        wait_bar: (0.0, 0.0),
        run_bar: (0.0, 0.0),
    }
}

/// How an event ends a run, and how long the run took if its worker measured that.
fn end_of(event: &Event) -> Option<(Badge, Option<Duration>)> {
    Some(match event {
        Event::Completed { ran, .. } => (Badge::new("green", "check", "completed"), Some(*ran)),
        Event::Failed { ran, .. } => (Badge::new("red", "x", "failed"), *ran),
        Event::Retrying { ran, .. } => (Badge::new("red", "x", "failed"), *ran),
        Event::Stalled(stalled) if stalled.action == StallAction::Requeued => {
            (Badge::new("amber", "fin", "requeued"), None)
        }
        Event::Stalled(_) => (Badge::new("red", "flat", "stalled"), None),
        Event::Snoozed { .. } => (Badge::new("amber", "clock", "snoozed"), None),
        Event::Undecodable { .. } => (Badge::new("amber", "clock", "undecodable"), None),
        Event::Cancelled { .. } => (Badge::new("", "slash", "cancelled"), None),
        Event::Requeued { .. } => (Badge::new("amber", "fin", "requeued"), None),
        Event::Finalizing { .. } => (Badge::new("violet", "fin", "finalizing"), None),
        _ => return None,
    })
}

/// Whether the job waits for its next run after this event.
fn waits_after(event: &Event) -> bool {
    match event {
        Event::Stalled(stalled) => !stalled.is_terminal(),
        event => matches!(
            event,
            Event::Dispatched { .. }
                | Event::Retrying { .. }
                | Event::Snoozed { .. }
                | Event::Undecodable { .. }
                | Event::Requeued { .. }
                | Event::ManuallyRetried { .. }
        ),
    }
}
