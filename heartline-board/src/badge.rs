//! Badges and meters: a state as a shape, a word and a tone, so that no state is shown by its colour alone.

use std::time::SystemTime;

use heartline::inspect::text::{relative, rfc3339};
use heartline::{JobState, NodeState, WorkerReport, WorkerState, WorkflowState};

/// A state or a severity, for people.
pub(crate) struct Badge {
    /// The classes of its tone.
    pub(crate) tone: &'static str,
    /// The id of its icon.
    pub(crate) icon: &'static str,
    pub(crate) word: String,
}

impl Badge {
    pub(crate) fn new(tone: &'static str, icon: &'static str, word: impl Into<String>) -> Badge {
        Badge { tone, icon, word: word.into() }
    }
}

/// The state of a job.
pub(crate) fn of_job(state: JobState) -> Badge {
    let (tone, icon) = match state {
        JobState::Waiting => ("", "wait"),
        JobState::Delayed => ("amber", "clock"),
        JobState::Claimed => ("blue", "claim"),
        JobState::Running => ("blue", "play"),
        JobState::Finalizing => ("violet", "fin"),
        JobState::Completed => ("green", "check"),
        JobState::Failed => ("red", "x"),
        _ => ("", "slash"),
    };
    Badge::new(tone, icon, state.as_str())
}

/// The state of a worker; `leaves` if jobs are left that it held.
pub(crate) fn of_worker(worker: &WorkerReport, leaves: bool) -> Badge {
    let word = worker.state.to_string();
    match worker.state {
        _ if worker.is_unreachable && !worker.state.is_live() => Badge::new("amber", "warn", "unknown"),
        _ if leaves => Badge::new("red", "crit", word),
        WorkerState::Live => Badge::new("green plain", "check", word),
        WorkerState::Stopping => Badge::new("amber", "fin", word),
        WorkerState::Quiet => Badge::new("amber", "pause", word),
        WorkerState::Silent => Badge::new("red", "crit", word),
        _ => Badge::new("plain", "dash", word),
    }
}

/// The state of an instance of a workflow.
pub(crate) fn of_flow(state: WorkflowState) -> Badge {
    let (tone, icon) = match state {
        WorkflowState::Running => ("blue", "play"),
        WorkflowState::Paused => ("amber", "pause"),
        WorkflowState::Completed => ("green", "check"),
        WorkflowState::Failed => ("red", "x"),
        _ => ("", "slash"),
    };
    Badge::new(tone, icon, state.to_string())
}

/// The state of a node of a workflow.
pub(crate) fn of_node(state: NodeState) -> Badge {
    let (tone, icon) = match state {
        NodeState::Completed => ("green", "check"),
        NodeState::Failed => ("red", "x"),
        NodeState::Cancelled => ("", "slash"),
        NodeState::Skipped => ("", "dash"),
        NodeState::Pending => ("", "wait"),
        _ => ("blue", "play"),
    };
    Badge::new(tone, icon, state.to_string())
}

/// How much of something is used, as a bar.
pub(crate) struct Meter {
    /// The length of the filled part, of 64.
    pub(crate) width: u64,
    pub(crate) tone: &'static str,
}

impl Meter {
    pub(crate) fn new(used: u64, of: u64) -> Meter {
        let width = used.saturating_mul(64).checked_div(of).map_or(0, |width| width.min(64));
        Meter { width, tone: if of > 0 && used >= of { " full" } else { "" } }
    }
}

/// A time in UTC.
pub(crate) fn iso(at: &SystemTime) -> String {
    rfc3339(*at)
}

/// The distance of a time to now.
pub(crate) fn ago(at: &SystemTime, now: &SystemTime) -> String {
    relative(*at, *now)
}

/// A number with a comma between thousands.
pub(crate) fn grouped(number: &u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas_and_a_meter_stays_in_its_frame() {
        assert_eq!([0, 999, 1000, 1_234_567].map(|number| grouped(&number)), ["0", "999", "1,000", "1,234,567"]);
        let width = |used, of| Meter::new(used, of).width;
        assert_eq!((width(0, 0), width(1, 2), width(9, 3)), (0, 32, 64));
        assert_eq!((Meter::new(3, 3).tone, Meter::new(0, 0).tone), (" full", ""));
    }
}
