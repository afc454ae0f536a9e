//! Poison suspects: jobs that were held each time a worker died.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde::Serialize;

use super::Inspector;
use super::filter::JobFilter;
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::stall::action::{StallAction, StallReason, StalledEvent};
use crate::unix_time::ms_since_1970;
use crate::worker_id::WorkerId;

/// The most suspects that are reported.
const MOST: usize = 100;

/// The most workers that are looked up, to learn whether they were seen again.
const LOOKED_UP: usize = 500;

/// To find pending stalls, at most this many running jobs, and workers that hold them, are read.
const RUNNING: usize = 1000;
const HOLDERS: usize = 50;

/// The most other tasks of these workers whose stalls are read.
const OTHERS: usize = 20;

/// A job that was held when two or more workers died. See [`Inspector::suspects`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PoisonSuspect {
    /// The task.
    pub task: String,
    /// The job.
    pub id: JobId,
    /// How many workers died, or seemed to, while they held it.
    pub deaths: u64,
    /// At how many of those deaths the worker held no other job.
    pub alone: u64,
    /// How many of those deaths no other job explains. Another job explains a death if it was held then, and at more deaths than this one.
    pub unexplained: u64,
    /// Its share of the deaths if all jobs held by a worker are equally likely causes: the sum of 1 / (held jobs) over its deaths.
    pub share: f64,
    /// When the last of those workers was found dead.
    #[serde(rename = "last_at_ms", serialize_with = "ms_since_1970")]
    pub last_at: SystemTime,
    /// The decision about the job at that time.
    pub action: StallAction,
    /// Its current state. `None` if it was removed, or not looked up, see [`Inspector::suspects`].
    pub state: Option<JobState>,
}

impl PoisonSuspect {
    /// Whether it may still crash a worker: it has not ended or been removed, and no other job explains the deaths.
    #[must_use]
    pub fn is_at_large(&self) -> bool {
        self.unexplained > 1 && self.state.is_some_and(|state| !state.is_terminal())
    }

    /// The one suspect that is more suspicious than all others, if any. `suspects` must be sorted as by [`among`](PoisonSuspect::among).
    pub(super) fn foremost<'a>(suspects: &[&'a PoisonSuspect]) -> Option<&'a PoisonSuspect> {
        let weight = |suspect: &PoisonSuspect| (suspect.deaths, suspect.share);
        match suspects {
            [first, second, ..] if weight(first) == weight(second) => None,
            [first, ..] => Some(first),
            [] => None,
        }
    }

    /// The suspects among stalled jobs: those with the most deaths first, then those with the largest share. At most 100. The order
    /// of `stalls` does not matter.
    #[must_use]
    pub fn among<'a>(stalls: impl IntoIterator<Item = &'a StalledEvent>) -> Vec<PoisonSuspect> {
        let mut deaths: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
        let mut jobs: BTreeMap<(&str, &str), (BTreeSet<&str>, &StalledEvent)> = BTreeMap::new();
        for stall in stalls {
            let Some(worker) = stall.worker.as_ref().filter(|_| is_death(stall)) else { continue };
            let job = (stall.task.as_str(), stall.id.as_str());
            deaths.entry(worker.as_str()).or_default().insert(job);
            let (workers, last) = jobs.entry(job).or_insert_with(|| (BTreeSet::new(), stall));
            workers.insert(worker.as_str());
            if stall.at >= last.at {
                *last = stall;
            }
        }
        let held = |worker: &&str| deaths[*worker].len() as f64;
        let counts: BTreeMap<(&str, &str), usize> =
            jobs.iter().map(|(job, (workers, _))| (*job, workers.len())).collect();
        let is_explained = |worker: &str, own: usize| deaths[worker].iter().any(|job| counts[job] > own);
        let suspects =
            jobs.into_values().filter(|(workers, _)| workers.len() > 1).map(|(workers, last)| PoisonSuspect {
                task: last.task.clone(),
                id: last.id.clone(),
                deaths: workers.len() as u64,
                alone: workers.iter().filter(|worker| deaths[**worker].len() == 1).count() as u64,
                unexplained: workers.iter().filter(|worker| !is_explained(worker, workers.len())).count() as u64,
                share: workers.iter().map(|worker| 1.0 / held(worker)).sum(),
                last_at: last.at,
                action: last.action,
                state: None,
            });
        let mut suspects: Vec<PoisonSuspect> = suspects.collect();
        suspects.sort_by(|one, other| {
            other.deaths.cmp(&one.deaths).then(other.share.total_cmp(&one.share)).then(one.id.cmp(&other.id))
        });
        suspects.truncate(MOST);
        suspects
    }
}

/// Whether the worker seemed dead while the job ran. False if only the handler was silent, or if the job had not begun.
fn is_death(stall: &StalledEvent) -> bool {
    let is_dead = !matches!(stall.reason, StallReason::HandlerSilent | StallReason::Requeued);
    is_dead && !matches!(stall.action, StallAction::Requeued | StallAction::Dropped)
}

impl Inspector {
    /// Jobs that were held when two or more workers died, the most suspicious first. It reads the stored stalls, about 2,000. A job
    /// that crashes its process is among the suspects, and jobs that ran next to it may be, too. A worker that was seen after the stall
    /// does not count: it was frozen or cut off, not dead.
    pub async fn suspects(&self, task: &str) -> Result<Vec<PoisonSuspect>, Error> {
        let mut stalls = self.all_stalls(task).await?;
        match self.stalls_to_come(task).await {
            Ok(some) => stalls.extend(some),
            Err(e) if e.is_retryable() => return Err(e),
            // A damaged column does not hide the stored stalls.
            Err(_) => {}
        }
        let suspects = PoisonSuspect::among(&stalls);
        let of_suspects = stalls.iter().filter(|stall| suspects.iter().any(|suspect| suspect.id == stall.id));
        let workers: BTreeSet<&str> = of_suspects.filter_map(|stall| Some(stall.worker.as_ref()?.as_str())).collect();
        let (mut seen, mut others) = (BTreeMap::new(), BTreeSet::new());
        for worker in workers.into_iter().take(LOOKED_UP) {
            let Some(known) = self.worker(worker).await? else { continue };
            seen.insert(worker.to_owned(), known.last_seen_at);
            others.extend(known.tasks.into_iter().map(|its| its.task).filter(|other| other != task));
        }
        // The culprit may be a job of another task.
        for other in others.iter().take(OTHERS) {
            match self.all_stalls(other).await {
                Ok(some) => stalls.extend(some),
                Err(e) if e.is_retryable() => return Err(e),
                Err(_) => {}
            }
        }
        let survived = |stall: &StalledEvent| {
            let worker = stall.worker.as_ref().map_or("", |worker| worker.as_str());
            seen.get(worker).is_some_and(|seen| *seen > stall.at)
        };
        let mut suspects = PoisonSuspect::among(stalls.iter().filter(|stall| !survived(stall)));
        suspects.retain(|suspect| suspect.task == task);
        self.look_up_suspects(&mut suspects).await?;
        Ok(suspects)
    }

    /// The pending stalls of running jobs whose worker is known to be dead, as if they were recovered now. Perhaps no live worker is
    /// left to recover them. Reads the first 1,000 running jobs.
    pub(super) async fn stalls_to_come(&self, task: &str) -> Result<Vec<StalledEvent>, Error> {
        let running = self.jobs(task, &JobFilter::new(JobState::Running), None, RUNNING).await?.jobs;
        let mut dead: BTreeMap<WorkerId, Option<SystemTime>> = BTreeMap::new();
        let holders: BTreeSet<&WorkerId> = running.iter().filter_map(|job| job.worker.as_ref()).collect();
        for holder in holders.into_iter().take(HOLDERS) {
            let known = self.worker(holder.as_str()).await?.filter(|worker| worker.death.is_some());
            dead.insert(holder.clone(), known.map(|worker| worker.last_seen_at));
        }
        let stalls = running.into_iter().filter_map(|job| {
            let worker = job.worker?;
            let at = dead.get(&worker).copied().flatten()?;
            let (task, id, stalled_count) = (task.to_owned(), job.id, job.stalled_count.saturating_add(1));
            let (action, reason) = (StallAction::Recovered, StallReason::WorkerRestarted);
            Some(StalledEvent { task, id, stalled_count, action, worker: Some(worker), reason, at })
        });
        Ok(stalls.collect())
    }

    /// The stored stalls of a task.
    async fn all_stalls(&self, task: &str) -> Result<Vec<StalledEvent>, Error> {
        let (mut stalls, mut cursor) = (Vec::new(), None);
        loop {
            let (some, next) = self.stalled_events(task, cursor.as_deref()).await?;
            stalls.extend(some);
            match next {
                Some(next) => cursor = Some(next),
                None => return Ok(stalls),
            }
        }
    }

    /// Reads the current [`state`](PoisonSuspect::state) of suspects of any task.
    pub async fn look_up_suspects(&self, suspects: &mut [PoisonSuspect]) -> Result<(), Error> {
        let tasks: BTreeSet<String> = suspects.iter().map(|suspect| suspect.task.clone()).collect();
        for task in tasks {
            let own: Vec<&mut PoisonSuspect> = suspects.iter_mut().filter(|suspect| suspect.task == task).collect();
            let ids: Vec<JobId> = own.iter().map(|suspect| suspect.id.clone()).collect();
            let found = self.job_states(&task, &ids).await?;
            own.into_iter().zip(found).for_each(|(suspect, found)| suspect.state = found);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker_id::WorkerId;

    fn stall(id: &str, worker: &str, reason: StallReason, at: u64) -> StalledEvent {
        StalledEvent {
            task: "t".to_owned(),
            id: JobId::from_wire(id),
            stalled_count: 1,
            action: StallAction::Recovered,
            worker: Some(WorkerId::from_wire(worker)),
            reason,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(at),
        }
    }

    #[test]
    fn suspects_are_sorted_by_deaths_then_by_share() {
        let silent = StallReason::Silent;
        let stalls = [
            stall("poison", "a", silent, 1),
            stall("neighbour", "a", silent, 1),
            stall("poison", "b", silent, 2),
            stall("neighbour", "b", silent, 2),
            stall("other", "b", silent, 2),
            stall("poison", "c", silent, 3),
            stall("twice", "d", silent, 4),
            stall("twice", "e", silent, 5),
            // The same death twice; a handler that was silent; a job that had not begun.
            stall("other", "b", silent, 6),
            stall("slow", "f", StallReason::HandlerSilent, 7),
            stall("slow", "g", StallReason::HandlerSilent, 8),
            stall("ahead", "h", StallReason::Requeued, 9),
            stall("ahead", "i", StallReason::Requeued, 10),
            // Taken by a person.
            stall("twice", "e", StallReason::Manual, 11),
        ];
        let found = PoisonSuspect::among(stalls.iter().rev());
        let shown: Vec<_> = found.iter().map(|job| (job.id.as_str(), job.deaths, job.alone, job.unexplained)).collect();
        assert_eq!(shown, [("poison", 3, 1, 3), ("twice", 2, 2, 2), ("neighbour", 2, 0, 0)]);
        assert!((found[0].share - (0.5 + 1.0 / 3.0 + 1.0)).abs() < 1e-9, "{found:?}");
        assert_eq!(PoisonSuspect::foremost(&[&found[0], &found[1]]).map(|job| job.id.as_str()), Some("poison"));
        assert!(PoisonSuspect::foremost(&[&found[1], &found[1]]).is_none() && PoisonSuspect::foremost(&[]).is_none());
        assert_eq!(found[0].last_at, SystemTime::UNIX_EPOCH + Duration::from_secs(3));
    }
}
