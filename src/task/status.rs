//! What a page about a job shows.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handle::JobHandle;
use super::job::Job;
use crate::backend::note::Stored;
use crate::error::Error;
use crate::job::progress::JobProgress;
use crate::job::state::JobState;

/// A job with its progress and its result, from [`JobHandle::status`]. As JSON, it has the fields of [`Job`], `progress` and `result`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobStatus<O> {
    /// Its state, and how often it failed.
    #[serde(flatten)]
    pub job: Job,
    /// What its handler reported last.
    pub progress: Option<JobProgress>,
    /// Its result. `None` unless it completed, and if the result is not kept.
    pub result: Option<O>,
}

impl<O: DeserializeOwned> JobHandle<O> {
    /// The job as it is now, with its progress, and its result if it completed. It does not wait for the end, and reads the result in a
    /// second call.
    ///
    /// # Errors
    /// - [`Error::JobNotFound`] if it was never dispatched, or retention removed it.
    /// - [`Error::Codec`] if the result cannot be decoded as `O`, [`Error::PayloadCodec`] if a codec is missing or fails.
    /// - [`Error::Connect`] if Redis cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn status(&self) -> Result<JobStatus<O>, Error> {
        let inspected = self.inspected().await?;
        let job = Job::new(self.id().clone(), &inspected);
        let progress = Stored::from_wire(&inspected.progress).map(|stored| self.read_progress(&stored));
        let result = match job.state {
            JobState::Completed => self.stored_result(inspected.result_bytes).await?,
            _ => None,
        };
        Ok(JobStatus { job, progress, result })
    }
}
