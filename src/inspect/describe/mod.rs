//! Describes jobs, lanes, schedules, tasks, workers and workflows in words, for the command line and the web page.

mod job;
mod lane;
#[cfg(feature = "schedules")]
mod schedule;
mod task;
mod worker;
mod workflow;

pub use job::{
    CodeCount, PROGRAM_NOT_STARTED, STATES, changed, codes, facts, meaning, rest_of, runs_again, stall_reason,
};
pub use lane::{lane_counts, lane_limits, lane_state, waits_because};
#[cfg(feature = "schedules")]
pub use schedule::{NextTick, next_ticks};
pub use task::{heard, is_overdue, is_task_name, live_workers, options, task_limit};
pub use worker::{Beat, beats, is_watch_broken, proof, watch_word, watches, worker_facts, worker_state};
pub use workflow::{advice, instance_of, paused};
