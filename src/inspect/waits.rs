//! Says why a node of a workflow waits.

use std::time::SystemTime;

use crate::escape::cut;
use crate::job::failure::StoredError;
use crate::job::state::JobState;
use crate::unix_time::ms_of;

/// How many bytes of the message of a failed run are shown.
const SHORT: usize = 200;

/// How long until an instance is compared with its jobs.
pub(super) const COMPARED: &str = "two minutes, or later if more than 2,000 instances of the workflow wait";

/// What is known of the workers of a task.
#[derive(Clone, Copy)]
pub(super) struct Worked {
    /// Whether a live worker has the task.
    pub(super) is_worked: bool,
    /// Whether any worker is live. Each one advances workflows.
    pub(super) has_live_workers: bool,
    pub(super) is_paused: bool,
    /// Whether silent jobs wait for a person: claimed, running and finalizing ones.
    pub(super) for_people: [bool; 3],
}

impl Worked {
    /// Reads `for_people` from the option `grace` of the task.
    pub(super) fn for_people(grace: &str) -> [bool; 3] {
        let mut phases = grace.split(' ').map(|phase| phase == "off");
        std::array::from_fn(|_| phases.next().unwrap_or(false))
    }

    /// When a worker makes the next step of the workflow.
    pub(super) fn soon(has_live_workers: bool, within: &str) -> String {
        match has_live_workers {
            true => format!("a worker does this within {within}"),
            false => "no worker is running".to_owned(),
        }
    }
}

/// The job of an open node.
pub(super) struct NodeJob<'a> {
    pub(super) task: &'a str,
    pub(super) state: Option<JobState>,
    /// Whether it has ended and its workflow is not updated yet.
    pub(super) is_to_be_told: bool,
    /// Whether it is parked and sent no heartbeat since.
    pub(super) is_parked: bool,
    /// The failure of its last run, if it is delayed.
    pub(super) failed: Option<&'a StoredError>,
    pub(super) to_send_since: Option<SystemTime>,
    /// Since when the server has refused to update the workflow, if it does.
    pub(super) refused_since: Option<SystemTime>,
}

/// Why an open node does not run yet. `None` if it runs.
pub(super) fn why_open(job: &NodeJob<'_>, of_task: Worked, now_ms: u64) -> Option<String> {
    let Worked { is_worked, has_live_workers, is_paused, for_people } = of_task;
    let (task, is_parked) = (job.task, job.is_parked);
    let no_worker = || format!("no live worker has the task {task}");
    let soon = |within| Worked::soon(has_live_workers, within);
    let waits_for_a_person = match job.state {
        Some(JobState::Claimed) => for_people[0],
        Some(JobState::Running) => for_people[1],
        Some(JobState::Finalizing) => for_people[2],
        _ => false,
    };
    match job.state {
        Some(state) if state.is_terminal() && job.is_to_be_told => {
            let when = job.refused_since.map_or_else(
                || soon("15 s"),
                |since| {
                    let seconds = now_ms.saturating_sub(ms_of(since)) / 1000;
                    format!("the server has refused this for {seconds} s or longer: `flows recover` says why")
                },
            );
            Some(format!("its job {}, and its workflow is not updated yet: {when}", ended(state)))
        }
        Some(state) if state.is_terminal() => {
            Some(format!("its job {}, and its workflow was not updated: {}", ended(state), soon(COMPARED)))
        }
        Some(JobState::Waiting) if is_paused => Some(format!("its job waits, and the task {task} is paused")),
        Some(JobState::Waiting) if !is_worked => Some(format!("its job waits, and {}", no_worker())),
        Some(JobState::Waiting) => Some(format!("its job waits for a free worker of the task {task}")),
        Some(JobState::Delayed) => {
            let what = job.failed.map_or_else(
                || "its job is delayed".to_owned(),
                |e| format!("its job waits for its next run after a failure ({}): {}", e.code, cut(&e.message, SHORT)),
            );
            Some(if is_worked { what } else { format!("{what}, and {}", no_worker()) })
        }
        Some(_) if is_parked && waits_for_a_person => Some(
            "its worker died or went silent, and its job is parked until a person runs it again or fails it".to_owned(),
        ),
        Some(_) if is_parked => {
            Some("its worker died or went silent, and its job is parked until its recovery delay is over".to_owned())
        }
        Some(_) if !is_worked && waits_for_a_person => {
            Some(format!("its job is held, and {}: the next one parks it for a person if it is silent", no_worker()))
        }
        Some(_) if !is_worked => Some(format!("its job is held, and {}: the next one recovers it", no_worker())),
        Some(JobState::Finalizing) => {
            Some("the outcome of its job is stored, but its hook has not finished".to_owned())
        }
        Some(_) => None,
        None => Some(match job.to_send_since {
            Some(since) => format!("its job waits to be sent{}", waited_and_why(since, has_live_workers, now_ms)),
            None => format!("its job is missing and will be sent again: {}", soon(COMPARED)),
        }),
    }
}

fn ended(state: JobState) -> &'static str {
    match state {
        JobState::Completed => "has completed",
        JobState::Cancelled => "was cancelled",
        _ => "has failed",
    }
}

/// How long a step has waited and why, as ` for 12 s or longer: reason`. Empty within the first second.
pub(super) fn waited_and_why(since: SystemTime, has_live_workers: bool, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(ms_of(since)) / 1000;
    if seconds == 0 {
        return String::new();
    }
    let why = match has_live_workers {
        true => "its task is unreachable, the server refused it, or the worker that tried it died".to_owned(),
        false => Worked::soon(false, ""),
    };
    format!(" for {seconds} s or longer: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix_time::at_ms;

    #[test]
    fn a_late_step_reports_how_long_it_has_waited() {
        assert_eq!(waited_and_why(at_ms(5000), true, 5999), "");
        assert!(waited_and_why(at_ms(5000), true, 17_100).starts_with(" for 12 s or longer: its task is unreachable"));
        assert_eq!(waited_and_why(at_ms(5000), false, 6000), " for 1 s or longer: no worker is running");
    }

    #[test]
    fn the_grace_option_names_the_phases_that_wait_for_a_person() {
        assert_eq!(Worked::for_people(""), [false; 3]);
        assert_eq!(Worked::for_people("0 off 60000"), [false, true, false]);
    }
}
