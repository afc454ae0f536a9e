//! Describes jobs, tasks, workers and workflows in words, for the command line and the web page.

mod job;
mod task;
mod worker;
mod workflow;

pub use job::{CodeCount, PROGRAM_NOT_STARTED, STATES, changed, codes, facts, meaning, rest_of, runs_again};
pub use task::{heard, is_overdue, is_task_name, live_workers, options};
pub use worker::{Beat, beats, is_watch_broken, proof, watch_word, watches, worker_facts, worker_state};
pub use workflow::{advice, paused};
