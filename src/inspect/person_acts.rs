//! What people did to a task and its jobs, by the stored events.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Inspector;
use super::history::{PauseEvent, TaskEvent, read};
use crate::backend::keys::{Key, TaskKeys};
use crate::error::Error;
use crate::job::id::JobId;
use crate::join::try_join_all;
use crate::unix_time::ms_since_1970;
use crate::worker_id::WorkerId;

/// The most acts of one answer.
const MOST: usize = 100;

/// An act on many jobs writes several entries. Those that are this close are one act, if at least one of them is about several jobs.
const SAME_ACT: Duration = Duration::from_secs(10);

/// What a person did. See [`Inspector::person_acts`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PersonAct {
    /// When it was done. An act on many jobs has the time of its end.
    #[serde(rename = "at_ms", serialize_with = "ms_since_1970")]
    pub at: SystemTime,
    /// Who, as given to [`Inspector::by`].
    pub by: String,
    /// The name of its event, such as `paused`, `cancelled` or `manually_retried`.
    pub act: String,
    /// How many jobs it changed. 0 for an act on the task or on a worker.
    pub jobs: u64,
    /// One of these jobs.
    pub job: Option<JobId>,
    /// The worker, if the act was on one.
    pub worker: Option<WorkerId>,
    /// The reason of a pause. May be empty.
    pub reason: String,
}

impl Inspector {
    /// What people did to a task and its jobs, the latest first, at most `limit` and 100. It reads the stored events, about 10,000
    /// entries, so earlier acts are not known.
    ///
    /// A program that acts without [`by`](Inspector::by) is listed as `inspector`. The events do not name the person who cancelled a running
    /// job, since its worker reports the end, nor acts on schedules, keys and instances of workflows.
    /// A task with [`EventMode::Off`](crate::EventMode) has no events.
    pub async fn person_acts(&self, task: &str, limit: usize) -> Result<Vec<PersonAct>, Error> {
        let tables = self.tables(task).await?;
        let mut found = try_join_all(tables.iter().map(|keys| self.person_acts_of(task, keys))).await?.concat();
        found.sort_by_key(|act| Reverse(act.at));
        Ok(merged(found, limit.min(MOST)))
    }

    async fn person_acts_of(&self, task: &str, keys: &Arc<TaskKeys>) -> Result<Vec<PersonAct>, Error> {
        let mut acts: Vec<PersonAct> = Vec::new();
        for entry in self.entries_with(keys, Key::Events, "by", (0, None)).await? {
            let Some((_, by)) = entry.fields.iter().find(|(name, _)| name == "by") else { continue };
            let first = acts.len();
            for event in read(task, &entry, &self.store.codecs) {
                let act = act_of(&event, by);
                // All partitions are paused together.
                if act.job.is_none() && act.worker.is_none() && keys.part() > 0 {
                    continue;
                }
                match acts[first..].iter_mut().find(|known| known.act == act.act && known.worker == act.worker) {
                    Some(known) => known.jobs += act.jobs,
                    None => acts.push(act),
                }
            }
        }
        Ok(acts)
    }
}

/// The first of these acts, with the entries of each one together. The latest comes first.
fn merged(found: Vec<PersonAct>, limit: usize) -> Vec<PersonAct> {
    let mut acts: Vec<PersonAct> = Vec::new();
    for act in found {
        let is_close = |known: &PersonAct| known.at.duration_since(act.at).is_ok_and(|apart| apart < SAME_ACT);
        let back = acts.iter().rev().take_while(|known| is_close(known)).position(|known| is_same(known, &act));
        match back.map(|back| acts.len() - 1 - back) {
            Some(at) => acts[at].jobs += act.jobs,
            None if acts.len() < limit => acts.push(act),
            // Earlier ones may still belong to the listed acts.
            None if acts.last().is_some_and(is_close) => {}
            None => break,
        }
    }
    acts
}

/// Whether both may be parts of one act. Two acts on one job each are not.
fn is_same(known: &PersonAct, act: &PersonAct) -> bool {
    let is_of_jobs = known.jobs > 0 && act.jobs > 0 && known.jobs.max(act.jobs) > 1;
    is_of_jobs && known.act == act.act && known.by == act.by
}

fn act_of(event: &TaskEvent, by: &str) -> PersonAct {
    let act = |at: &SystemTime, act: &str, worker: Option<&WorkerId>, reason: &str| PersonAct {
        at: *at,
        by: by.to_owned(),
        act: act.to_owned(),
        jobs: 0,
        job: None,
        worker: worker.cloned(),
        reason: reason.to_owned(),
    };
    match event {
        TaskEvent::Job(event) => {
            let name = event.name().trim_start_matches("task:");
            PersonAct { jobs: 1, job: Some(event.id().clone()), ..act(&event.at(), name, None, "") }
        }
        TaskEvent::Pause(PauseEvent::Paused { at, reason, .. }) => act(at, "paused", None, reason),
        TaskEvent::Pause(PauseEvent::Resumed { at, .. }) => act(at, "resumed", None, ""),
        TaskEvent::Pause(PauseEvent::WorkerQuiet { at, worker, .. }) => act(at, "worker_quiet", Some(worker), ""),
        TaskEvent::Pause(PauseEvent::WorkerResumed { at, worker, .. }) => act(at, "worker_resumed", Some(worker), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(at: u64, jobs: u64) -> PersonAct {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        let (by, act, reason) = ("ada".to_owned(), "cancelled".to_owned(), String::new());
        PersonAct { at, by, act, jobs, job: None, worker: None, reason }
    }

    #[test]
    fn entries_of_one_act_are_merged_and_single_acts_are_not() {
        let counts =
            |acts: &[PersonAct], limit| merged(acts.to_vec(), limit).iter().map(|act| act.jobs).collect::<Vec<_>>();
        assert_eq!(counts(&[act(50, 1), act(49, 1)], 9), [1, 1]);
        assert_eq!(counts(&[act(50, 1), act(49, 200), act(48, 200), act(30, 200)], 9), [401, 200]);
        assert_eq!(counts(&[act(50, 0), act(49, 0), act(48, 3)], 9), [0, 0, 3]);
        assert_eq!(counts(&[act(50, 2), act(30, 1), act(29, 1), act(28, 2), act(10, 2)], 2), [2, 3]);
        assert!(counts(&[act(50, 2)], 0).is_empty());
    }
}
