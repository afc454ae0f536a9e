//! One job in full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;

use super::Inspector;
use super::lane::{LaneDetail, detail_of};
use super::lanes::HOLDERS;
use super::limits::LimitReached;
use super::page::{holder, priority_of, score};
use crate::backend::connection::OwnConnection;
use crate::backend::jobs::{self, Inspected};
use crate::backend::keys::{Key, TaskKeys};
use crate::backend::lanes;
use crate::backend::note::{self, Stored};
use crate::backend::overview;
use crate::backend::timeouts::response_time;
use crate::backend::values;
use crate::backend::workflow::advance;
use crate::codec::Codecs;
use crate::error::Error;
use crate::job::failure::{Failure, StoredError};
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::job::outcome::StoredOutcome;
use crate::job::progress::JobProgress;
use crate::job::state::JobState;
use crate::limits::LARGE;
use crate::options::modes::Priority;
use crate::options::overrides::Overrides;
use crate::stall::recovery::Recovery;
use crate::unix_time::{as_ms_where_known, at_ms, ms_of, ms_since_1970_where_known};
use crate::worker_id::WorkerId;

/// A job at the time of the call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobReport {
    /// Its task.
    pub task: String,
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// Its priority.
    pub priority: Priority,
    /// When it was dispatched, by the clock of the process that did.
    #[serde(rename = "dispatched_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub dispatched_at: Option<SystemTime>,
    /// Since when it waits or is delayed.
    #[serde(rename = "enqueued_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub enqueued_at: Option<SystemTime>,
    /// When it expires, if it has not begun by then.
    #[serde(rename = "expires_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub expires_at: Option<SystemTime>,
    /// When a delayed job is due. For a finalizing job that no worker holds: when its hook may run.
    #[serde(rename = "due_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub due_at: Option<SystemTime>,
    /// When the worker that holds it claimed it.
    #[serde(rename = "started_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub started_at: Option<SystemTime>,
    /// When it ended.
    #[serde(rename = "ended_at_ms", serialize_with = "ms_since_1970_where_known")]
    pub ended_at: Option<SystemTime>,
    /// The limit of its task or key that keeps it waiting, if one does.
    pub limit: Option<LimitReached>,
    /// The lane in which it waits, if it has a key.
    pub lane: Option<LaneDetail>,
    /// The worker that holds it.
    pub worker: Option<WorkerId>,
    /// The fence under which it is held.
    pub fence: Option<u64>,
    /// Whether it is held and was silent since the last snapshot.
    pub is_silent: bool,
    /// Its outcome, if it is finalizing.
    pub outcome: Option<StoredOutcome>,
    /// The reason of a requested cancel, while it is held.
    pub cancel_requested: Option<String>,
    /// Its unique key, as it is stored. [`Inspector::unique`] says whether the job still has it.
    pub unique_key: Option<String>,
    /// Its key, in a task whose jobs have keys.
    pub key: Option<String>,
    /// How many of its runs have failed.
    pub failed_attempts: u32,
    /// How often it stalled.
    pub stalled_count: u32,
    /// Its last recovery.
    pub recovery: Option<Recovery>,
    /// How often its handler snoozed it.
    pub snoozed_count: u32,
    /// How often it was postponed because a handler could not decode its payload.
    pub undecodable_count: u32,
    /// The options of its dispatch.
    pub options: JobOptions,
    /// Its last failure. `None` if it completed. A cancelled job has the code `cancelled`, and the reason as message.
    pub error: Option<Failure>,
    /// Its last progress, as set by `Context::progress`.
    pub progress: Option<JobProgress>,
    /// The size of its payload, bytes as stored.
    pub payload_bytes: usize,
    /// The size of its result, bytes as stored. 0 if none is stored.
    pub result_bytes: usize,
    /// The size of its last checkpoint and its metadata, bytes. 0 if there is none.
    pub checkpoint_bytes: usize,
    /// Its payload, as selected by [`JobValues`]. A string if it is not valid JSON. If this App cannot decode it, a string that says so and
    /// names the codec.
    pub payload: Option<Value>,
    /// Its result, selected in the same way.
    pub result: Option<Value>,
    /// Its last checkpoint, unless [`JobValues::None`] was passed.
    pub checkpoint: Option<Value>,
}

/// The options of a job's dispatch. Options that are `None` are those of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobOptions {
    /// How long it was delayed.
    #[serde(rename = "delay_ms", serialize_with = "as_ms_where_known")]
    pub delay: Option<Duration>,
    /// How many runs it gets.
    pub attempts: Option<u32>,
    /// How often it may stall.
    pub max_count: Option<u32>,
    /// How long one run may take.
    #[serde(rename = "timeout_ms", serialize_with = "as_ms_where_known")]
    pub timeout: Option<Duration>,
    /// Its headers. A node of a workflow has those of its instance.
    pub headers: BTreeMap<String, String>,
}

/// Which values of a job to read with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobValues {
    /// None.
    #[default]
    None,
    /// Values of up to 512 KiB.
    Small,
    /// All values. Larger ones are each read over a separate connection.
    All,
}

impl Inspector {
    /// One job with the requested values. `None` if it was never dispatched, or was removed.
    pub async fn job(&self, task: &str, id: &str, values: JobValues) -> Result<Option<JobReport>, Error> {
        self.first(task)?;
        let id = JobId::parse(id)?;
        let keys = self.table_of(task, &id).await?;
        let found = self.look(async |conn| jobs::inspect(conn, &keys, id.as_str()).await).await?;
        let Some(found) = found else { return Ok(None) };
        let mut report = report(task, id, found, &self.store.codecs);
        if let Some(node) = NodeId::of(&report.id) {
            let flow = self.store.workflow(&node.definition);
            // A job can be read even if its workflow cannot.
            let of_instance =
                self.look(async |conn| advance::headers(conn, &flow, &node).await).await.unwrap_or_default();
            for (name, value) in of_instance {
                report.options.headers.entry(name).or_insert(value);
            }
        }
        if report.state == JobState::Waiting {
            // A job can be read even if its task cannot. The rest of a task is compared with the clock of this process.
            let full = self.look(async |conn| overview::full(conn, &keys).await).await.ok().flatten();
            let of_task = full.and_then(|full| LimitReached::of(&full, ms_of(SystemTime::now())));
            if let Some(key) = &report.key {
                let read = async |conn: &mut OwnConnection| lanes::read(conn, &keys, key, HOLDERS).await;
                report.lane = Some(detail_of(self.look(read).await?, ms_of(SystemTime::now())));
            }
            report.limit = of_task.or(report.lane.as_ref().and_then(|lane| lane.lane.limit));
        }
        let is_wanted = |bytes: usize| match values {
            JobValues::None => false,
            JobValues::Small => bytes <= LARGE,
            JobValues::All => true,
        };
        if is_wanted(report.payload_bytes) {
            let payload = self.value(&keys, &report.id, report.payload_bytes, Column::Payload).await?;
            report.payload = payload.map(|payload| self.store.codecs.shown(&payload));
        }
        if report.checkpoint_bytes > 0 && values != JobValues::None {
            let stored = self.ask(async |conn| note::stored(conn, &keys, Key::Checkpoint, &report.id).await).await?;
            report.checkpoint = stored.map(|stored| self.store.codecs.shown(&stored.value));
        }
        if report.result_bytes > 0 && is_wanted(report.result_bytes) {
            let result = self.value(&keys, &report.id, report.result_bytes, Column::Result).await?;
            report.result = result.map(|result| self.store.codecs.shown(&result));
        }
        Ok(Some(report))
    }

    /// What a copy of a job needs, with its payload if asked. `None` if there is no such job.
    pub(super) async fn to_copy(&self, task: &str, id: &str, has_payload: bool) -> Result<Option<JobToCopy>, Error> {
        self.first(task)?;
        let id = JobId::parse(id)?;
        let keys = self.table_of(task, &id).await?;
        let found = self.look(async |conn| jobs::inspect(conn, &keys, id.as_str()).await).await?;
        let Some(found) = found else { return Ok(None) };
        let payload = match has_payload {
            true => self.value(&keys, &id, found.payload_bytes, Column::Payload).await?,
            false => Some(Vec::new()),
        };
        let overrides = serde_json::from_str(&found.overrides).unwrap_or_default();
        let priority = Some(priority_of(&found.priority)).filter(|priority| *priority != Priority::Normal);
        let key = Some(found.key).filter(|key| !key.is_empty());
        Ok(payload.map(|payload| JobToCopy { payload, overrides, priority, key }))
    }

    async fn value(
        &self,
        keys: &Arc<TaskKeys>,
        id: &JobId,
        bytes: usize,
        column: Column,
    ) -> Result<Option<Vec<u8>>, Error> {
        let (keys, id) = (Arc::clone(keys), id.clone());
        let read = move |mut conn| async move {
            match column {
                Column::Payload => values::payload(&mut conn, &keys, id.as_str()).await,
                Column::Result => values::result(&mut conn, &keys, id.as_str()).await,
            }
        };
        if bytes > LARGE {
            self.store.read_apart(response_time(bytes), read).await
        } else {
            self.store.read(response_time(bytes), async |conn| read(conn.clone()).await).await
        }
    }
}

/// The parts of a job that a copy of it has.
pub(super) struct JobToCopy {
    /// As it is stored.
    pub(super) payload: Vec<u8>,
    pub(super) overrides: Overrides,
    /// `None` for the normal one.
    pub(super) priority: Option<Priority>,
    pub(super) key: Option<String>,
}

#[derive(Clone, Copy)]
enum Column {
    Payload,
    Result,
}

fn report(task: &str, id: JobId, found: Inspected, codecs: &Codecs) -> JobReport {
    let Inspected { job, stamp, overrides, max_count, priority, dispatched_at_ms, enqueued_at_ms, .. } = found;
    let overrides: Overrides = serde_json::from_str(&overrides).unwrap_or_default();
    let state = job.state;
    let is_finalizing = state == JobState::Finalizing;
    let (worker, fence) = (state.is_held() || is_finalizing).then(|| holder(&stamp)).flatten().unzip();
    let dispatched_at = dispatched_at_ms.map(at_ms).or_else(|| id.created_at());
    let stands = matches!(state, JobState::Waiting | JobState::Delayed);
    let error = (!job.error.is_empty() && state != JobState::Completed).then(|| {
        let error = StoredError::from_json(&job.error);
        Failure::new(id.clone(), error, job.failed_attempts, job.stalled_count)
    });
    JobReport {
        task: task.to_owned(),
        state,
        priority: priority_of(&priority),
        dispatched_at,
        enqueued_at: enqueued_at_ms.map(at_ms).or(dispatched_at).filter(|_| stands),
        expires_at: found.expires_at_ms.map(at_ms).filter(|_| stands),
        due_at: score(&stamp).filter(|_| state == JobState::Delayed || is_finalizing),
        started_at: fence.map(|fence| at_ms(fence / 1000)),
        ended_at: score(&stamp).filter(|_| state.is_terminal()),
        limit: None,
        lane: None,
        worker,
        fence,
        is_silent: found.is_candidate && fence.is_some(),
        outcome: StoredOutcome::from_wire(&found.outcome),
        cancel_requested: Some(found.cancelling).filter(|reason| !reason.is_empty()),
        unique_key: Some(found.unique_key).filter(|key| !key.is_empty()),
        key: Some(found.key).filter(|key| !key.is_empty()),
        failed_attempts: job.failed_attempts,
        stalled_count: job.stalled_count,
        recovery: Recovery::from_wire(&found.recovery, job.stalled_count),
        snoozed_count: job.snoozes.snoozed,
        undecodable_count: job.snoozes.undecodable,
        options: JobOptions {
            delay: overrides.delay,
            attempts: overrides.attempts.or(overrides.retry.as_ref().map(|retry| retry.max_attempts())),
            max_count: max_count.or(overrides.max_count),
            timeout: overrides.timeout,
            headers: overrides.headers,
        },
        error,
        progress: Stored::from_wire(&found.progress)
            .map(|stored| JobProgress::read(&stored.value, codecs, stored.at_ms)),
        payload_bytes: found.payload_bytes,
        result_bytes: found.result_bytes,
        checkpoint_bytes: found.checkpoint_bytes,
        payload: None,
        result: None,
        checkpoint: None,
        id,
    }
}
