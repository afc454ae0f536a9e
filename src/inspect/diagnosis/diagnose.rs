//! Puts diagnoses together: of everything, of one task, and of what to know before jobs run again.

use std::time::SystemTime;

use super::super::Inspector;
use super::super::holders::HolderReport;
use super::super::lists::UnreachableLists;
use super::super::poison::PoisonSuspect;
use super::super::server::ServerReport;
use super::super::tasks::TaskReport;
use super::super::workers::WorkerReport;
use super::find_crashes;
use super::find_crashes::{CrashDiagnoses, RecentStalls};
use super::find_data;
use super::find_servers;
use super::find_tasks;
use super::find_workers;
use super::finding::{Caution, Diagnosis};
use super::fleet::FleetReport;
use super::kinds::DiagnosisKind;
use super::task_facts::{Seen, if_readable};
use super::texts;
use crate::error::Error;

impl Inspector {
    /// Everything that is wrong, or may be, the most severe first. It makes some calls per task and per worker, for any number of jobs.
    ///
    /// ```no_run
    /// # async fn run(app: heartline::App) -> heartline::Result<()> {
    /// for diagnosis in app.inspector().diagnose().await? {
    ///     println!("{}: {diagnosis}", diagnosis.task.as_deref().unwrap_or("all"));
    ///     println!("    {}", diagnosis.hint());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn diagnose(&self) -> Result<Vec<Diagnosis>, Error> {
        let fleet = self.fleet(None).await?;
        let recent = self.recent_stalls(&fleet.tasks).await;
        self.diagnose_fleet(&fleet, &recent).await
    }

    /// Everything that is wrong with this fleet, including what its last stalls show.
    pub async fn diagnose_fleet(&self, fleet: &FleetReport, recent: &RecentStalls) -> Result<Vec<Diagnosis>, Error> {
        Ok(fleet.diagnoses_with(&self.diagnose_crashes(fleet, recent).await?))
    }

    /// What the last stalls of this fleet show, see [`FleetReport::diagnoses_with`].
    pub async fn diagnose_crashes(&self, fleet: &FleetReport, recent: &RecentStalls) -> Result<CrashDiagnoses, Error> {
        let mut crashes = Box::pin(self.crashes(recent, fleet.seen())).await?;
        crashes.others = find_crashes::recovered(recent, fleet.as_of);
        Ok(crashes)
    }

    /// What is wrong with one task: what [`diagnose`](Inspector::diagnose) reports about it.
    pub async fn diagnose_task(&self, task: &TaskReport) -> Result<Vec<Diagnosis>, Error> {
        let tasks = std::slice::from_ref(task);
        let (workers, holders) = self.workers_and_holders(tasks).await?;
        let seen = Seen { tasks, workers: &workers, holders: &holders };
        let mut found = of_fleet(seen, &UnreachableLists::default());
        found.extend(Box::pin(self.diagnose_retries(tasks)).await);
        #[cfg(feature = "schedules")]
        found.extend(Box::pin(self.diagnose_schedules(tasks)).await.1);
        let mut found = together(&self.crashes_of(task, seen).await?, found);
        found.retain(|diagnosis| diagnosis.task.as_deref() == Some(&*task.task));
        // Ask the servers only if something is wrong.
        if !found.is_empty()
            && let Some(unknown) = self.presence_unknown().await
        {
            found = vec![Diagnosis { task: Some(task.task.clone()), ..unknown }];
            found.extend(find_data::unreadable(task));
        }
        Ok(found)
    }

    async fn crashes_of(&self, task: &TaskReport, seen: Seen<'_>) -> Result<CrashDiagnoses, Error> {
        let (stalls, _) = if_readable(self.last_stalls(&task.task).await)?;
        Box::pin(self.crashes(&RecentStalls { stalls, ..RecentStalls::default() }, seen)).await
    }

    async fn workers_and_holders(&self, tasks: &[TaskReport]) -> Result<(Vec<WorkerReport>, Vec<HolderReport>), Error> {
        let mut workers = self.listed_workers().await?;
        let holders = Box::pin(self.suspicious_holders(tasks, &mut workers)).await?;
        Ok((workers, holders))
    }

    /// What a person should know before jobs of this task run again: its poison suspects, and the jobs that will fail when recovered.
    pub async fn diagnose_recovery(&self, task: &str) -> Result<Vec<Diagnosis>, Error> {
        Ok(together(&self.crashes_now(&self.task(task).await?).await?, Vec::new()))
    }

    /// What the last stalls of a task show, given the current state of its workers.
    pub(super) async fn crashes_now(&self, task: &TaskReport) -> Result<CrashDiagnoses, Error> {
        let tasks = std::slice::from_ref(task);
        let (workers, holders) = self.workers_and_holders(tasks).await?;
        self.crashes_of(task, Seen { tasks, workers: &workers, holders: &holders }).await
    }

    /// Reports a server that refuses writes: it is then unknown which workers are live. `None` also if this user may not ask the servers.
    pub async fn presence_unknown(&self) -> Option<Diagnosis> {
        find_servers::writes_refused(&self.servers().await.ok()?)
    }

    /// Reports that no server accepts writes, so that each call that changes something fails.
    pub async fn writes_refused(&self) -> Option<Diagnosis> {
        let servers = self.servers().await.ok()?;
        let refuses = |server: &ServerReport| server.fault.is_some() || server.write_refusal.is_some();
        find_servers::writes_refused(&servers).filter(|_| servers.iter().all(refuses))
    }
}

impl UnreachableLists {
    /// A diagnosis for each list that cannot be read.
    #[must_use]
    pub fn diagnoses(&self) -> Vec<Diagnosis> {
        find_servers::of_lists(self)
    }
}

impl ServerReport {
    /// What is wrong with the server, or could be better.
    #[must_use]
    pub fn diagnoses(&self) -> Vec<Diagnosis> {
        find_servers::of_server(self)
    }
}

/// What is wrong with tasks and workers according to their reports.
fn of_fleet(seen: Seen<'_>, away: &UnreachableLists) -> Vec<Diagnosis> {
    let Seen { tasks, workers, holders } = seen;
    let mut found = find_servers::of_lists(away);
    found.extend(find_data::of_lost_data(tasks));
    for task in tasks {
        let own = holders.iter().find(|report| report.task == task.task);
        found.extend(find_tasks::of_task(task, own, workers));
    }
    found.extend(find_servers::of_nodes(tasks, workers));
    let now = tasks.iter().map(|task| task.as_of).max().unwrap_or_else(SystemTime::now);
    found.extend(workers.iter().filter_map(|worker| find_workers::of_worker(worker, now)));
    if away.tasks.is_none() {
        found.extend(find_data::of_lost_tasks(tasks, workers));
    }
    Diagnosis::sort(&mut found);
    found
}

impl FleetReport {
    /// What is wrong according to this report alone, without the last stalls. For health checks.
    #[must_use]
    pub fn diagnoses(&self) -> Vec<Diagnosis> {
        self.diagnoses_with(&CrashDiagnoses::default())
    }

    /// Adds what the last stalls show to [`diagnoses`](FleetReport::diagnoses).
    #[must_use]
    pub fn diagnoses_with(&self, crashes: &CrashDiagnoses) -> Vec<Diagnosis> {
        let mut found = self.found();
        found.extend(crashes.others.iter().cloned());
        together(crashes, found)
    }

    fn found(&self) -> Vec<Diagnosis> {
        let servers = &self.checks.servers;
        let mut found = find_servers::of_servers(servers);
        found.retain(Diagnosis::is_risk);
        found.extend(servers.iter().filter_map(|server| find_servers::restarted(server, &self.workers)));
        match find_servers::writes_refused(servers) {
            None => found.extend(of_fleet(self.seen(), &self.away)),
            Some(_) => {
                // No worker can update its presence, so do not report workers as silent.
                found.extend(find_servers::of_lists(&self.away));
                found.extend(self.tasks.iter().filter_map(find_data::unreadable));
            }
        }
        found.extend(self.checks.found.iter().cloned());
        found
    }
}

/// All diagnoses, the most severe first. Among equally severe ones, suspects and jobs that will fail come first, and what was recovered
/// last. Each hint that lets jobs run gets a caution about suspects and jobs that will fail.
fn together(crashes: &CrashDiagnoses, mut others: Vec<Diagnosis>) -> Vec<Diagnosis> {
    let CrashDiagnoses { at_large, failed, will_fail, .. } = crashes;
    // If the cause is known, do not also report that the runs of the task fail.
    let explained: Vec<Option<String>> =
        others.iter().filter(|found| explains_failures(found)).map(|found| found.task.clone()).collect();
    others.retain(|found| !(are_retries(found) && explained.contains(&found.task)));
    add_caution(&mut others, will_fail, Caution::FailingJobs);
    let mut all = [&will_fail[..], &others].concat();
    add_caution(&mut all, at_large, Caution::Suspects);
    let mut all = [&at_large[..], &all, failed].concat();
    Diagnosis::sort(&mut all);
    all
}

/// Adds the caution to diagnoses whose hint lets jobs run, if `about` has a diagnosis of the same task.
pub(super) fn add_caution(found: &mut [Diagnosis], about: &[Diagnosis], caution: Caution) {
    let is_risky = |found: &Diagnosis| found.kind.lets_jobs_run() && about.iter().any(|risk| risk.task == found.task);
    found.iter_mut().filter(|found| is_risky(found)).for_each(|found| found.caution = Some(caution));
}

fn explains_failures(found: &Diagnosis) -> bool {
    matches!(found.kind, DiagnosisKind::NewerProducer { .. } | DiagnosisKind::SlotsHeldByLostRuns { .. })
}

/// Whether it reports failed runs, none of whose jobs failed in the last minutes.
fn are_retries(found: &Diagnosis) -> bool {
    matches!(found.kind, DiagnosisKind::JobsFail { failed_lately: 0, .. })
}

impl PoisonSuspect {
    /// What to do about these poison suspects of a task. `None` if none of them can still take a worker down.
    #[must_use]
    pub fn advice(task: &TaskReport, suspects: &[PoisonSuspect]) -> Option<String> {
        let all: Vec<&PoisonSuspect> = suspects.iter().collect();
        let at_large: Vec<&PoisonSuspect> = suspects.iter().filter(|suspect| suspect.is_at_large()).collect();
        match find_crashes::poison_suspects(&all, &at_large, task.paused.is_some(), task.live_workers > 0) {
            DiagnosisKind::PoisonSuspects { jobs, others, top, always_alone, is_paused, .. } if !jobs.is_empty() => {
                Some(texts::suspects_hint(&task.task, &jobs, others, top.as_deref(), always_alone, is_paused))
            }
            _ => None,
        }
    }
}
