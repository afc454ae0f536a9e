//! The events and stalls of a job.

use std::time::SystemTime;

use heartline::{Event, JobReport, JobState, StallReport};

/// The events and stalls of a job. They are valid while its place is the same.
pub(crate) struct History {
    pub(crate) place: Place,
    pub(crate) events: Vec<Event>,
    pub(crate) stalls: Vec<StallReport>,
}

/// The place of a job. Every event of the job changes one of these values, except progress and rejected outcomes.
pub(crate) type Place = (JobState, u32, u32, u32, Option<u64>, Option<SystemTime>, Option<String>);

pub(crate) fn place_of(job: &JobReport) -> Place {
    let JobReport { state, failed_attempts, stalled_count, snoozed_count, fence, .. } = job;
    let since = job.ended_at.or(job.due_at).or(job.enqueued_at);
    (*state, *failed_attempts, *stalled_count, *snoozed_count, *fence, since, job.cancel_requested.clone())
}
