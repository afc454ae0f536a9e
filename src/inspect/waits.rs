//! Why a node of a workflow does not go on, in words.

use std::time::SystemTime;

use crate::job::failure::StoredError;
use crate::job::state::JobState;
use crate::shown::cut;
use crate::times::ms_of;

/// How many bytes are shown of the message of a run that failed.
const SHORT: usize = 200;

/// When an instance is compared with its jobs.
pub(super) const COMPARED: &str = "two minutes, or later where more than 2,000 instances of the workflow wait";

/// Who is there for the jobs of a task, as far as is known.
#[derive(Clone, Copy)]
pub(super) struct Worked {
    /// A live worker works it.
    pub(super) is_worked: bool,
    /// A live worker is there, whatever it works: it moves workflows on.
    pub(super) is_anybody: bool,
    pub(super) is_paused: bool,
    /// Whether silent jobs wait for a person that are claimed, running and finalizing.
    pub(super) for_people: [bool; 3],
}

impl Worked {
    /// Whether silent jobs of the task wait for a person, by what its options say of patience.
    pub(super) fn for_people(patience: &str) -> [bool; 3] {
        let mut phases = patience.split(' ').map(|phase| phase == "off");
        std::array::from_fn(|_| phases.next().unwrap_or(false))
    }

    /// Who does what is to be done for the workflow.
    pub(super) fn soon(is_anybody: bool, within: &str) -> String {
        match is_anybody {
            true => format!("a worker does that within {within}"),
            false => "no worker is there that would".to_owned(),
        }
    }
}

/// The job of an open node, as it was asked for.
pub(super) struct NodeJob<'a> {
    pub(super) task: &'a str,
    pub(super) state: Option<JobState>,
    /// It has ended, and its workflow is still to be told.
    pub(super) is_to_be_told: bool,
    /// It was set aside, and not heard from since.
    pub(super) is_aside: bool,
    /// What its last run came to, of a delayed one.
    pub(super) failed: Option<&'a StoredError>,
    pub(super) to_send_since: Option<SystemTime>,
    /// Since when the workflow could not be told of jobs, if that is so.
    pub(super) refused_since: Option<SystemTime>,
}

/// Why an open node whose job was asked for does not run, or goes on only later.
pub(super) fn why_open(job: &NodeJob<'_>, of_task: Worked, now_ms: u64) -> Option<String> {
    let Worked { is_worked, is_anybody, is_paused, for_people } = of_task;
    let (task, is_aside) = (job.task, job.is_aside);
    let nobody = || format!("no worker works the task {task}");
    let soon = |within| Worked::soon(is_anybody, within);
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
                    format!("that was refused, for {seconds} s or longer: `flows recover` says why")
                },
            );
            Some(format!("its job {}, and the workflow is to be told: {when}", ended(state)))
        }
        Some(state) if state.is_terminal() => {
            Some(format!("its job {}, and nobody told the workflow: {}", ended(state), soon(COMPARED)))
        }
        Some(JobState::Waiting) if is_paused => Some(format!("its job waits, and the task {task} is paused")),
        Some(JobState::Waiting) if !is_worked => Some(format!("its job waits, and {}", nobody())),
        Some(JobState::Waiting) => Some(format!("its job waits for a free worker of the task {task}")),
        Some(JobState::Delayed) => {
            let what = job.failed.map_or_else(
                || "its job is delayed".to_owned(),
                |e| {
                    format!(
                        "its job waits for its next run, after one that failed ({}): {}",
                        e.code,
                        cut(&e.message, SHORT)
                    )
                },
            );
            Some(if is_worked { what } else { format!("{what}, and {}", nobody()) })
        }
        Some(_) if is_aside && waits_for_a_person => Some(
            "its worker died or fell silent, and its job is set aside for a person, who lets it run again or fail"
                .to_owned(),
        ),
        Some(_) if is_aside => {
            Some("its worker died or fell silent, and its job is set aside until its patience is over".to_owned())
        }
        Some(_) if !is_worked && waits_for_a_person => {
            Some(format!("its job is held, and {}: the next one sets it aside for a person, if it is silent", nobody()))
        }
        Some(_) if !is_worked => Some(format!("its job is held, and {}: the next one takes it back", nobody())),
        Some(JobState::Finalizing) => Some("its job has its outcome, and what follows on that runs".to_owned()),
        Some(_) => None,
        None => Some(match job.to_send_since {
            Some(since) => format!("its job is to be sent{}", for_so_long(since, is_anybody, now_ms)),
            None => format!("its job is not there, and is to be sent again: {}", soon(COMPARED)),
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

/// ` for 12 s`, where it is that long.
pub(super) fn for_so_long(since: SystemTime, is_anybody: bool, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(ms_of(since)) / 1000;
    if seconds == 0 {
        return String::new();
    }
    let why = match is_anybody {
        true => "its task could not be reached, the server refused it, or whoever was to do it died".to_owned(),
        false => Worked::soon(false, ""),
    };
    format!(" for {seconds} s or longer: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at_ms;

    #[test]
    fn a_step_that_is_late_says_for_how_long() {
        assert_eq!(for_so_long(at_ms(5000), true, 5999), "");
        assert!(for_so_long(at_ms(5000), true, 17_100).starts_with(" for 12 s or longer: its task could not"));
        assert_eq!(for_so_long(at_ms(5000), false, 6000), " for 1 s or longer: no worker is there that would");
    }

    #[test]
    fn of_each_phase_it_is_known_whether_it_waits_for_a_person() {
        assert_eq!(Worked::for_people(""), [false; 3]);
        assert_eq!(Worked::for_people("0 off 60000"), [false, true, false]);
    }
}
