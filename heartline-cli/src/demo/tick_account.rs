//! Counts the ticks of the demo's schedules by the clock, by jobs and by runs, and compares them with the ledger.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use heartline::{App, JobFilter, JobState, ScheduleInfo};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

/// The last line of the demo.
#[derive(Serialize)]
struct TickVerdict {
    schedules: usize,
    seconds: u64,
    /// Worker processes that were killed.
    kills: usize,
    /// By the clock: one for each second from the creation of a schedule to its next tick, without those that wait for the last job.
    ticks: u64,
    /// This and the next three are of the ledger.
    fired: u64,
    overlapped: u64,
    missed: u64,
    paused: u64,
    /// Jobs of ticks, by their names in Redis.
    jobs: usize,
    /// Ticks with a recorded run.
    ran: usize,
    /// Runs that began twice although their worker lived.
    doubled: usize,
    /// Runs that began before their tick.
    early: usize,
}

/// The due times of each schedule, in ms.
type Ticks = HashMap<String, HashSet<u64>>;

/// What was found outside of the ledger.
#[derive(Default)]
pub(super) struct TickAccount {
    /// Ticks whose jobs have completed.
    jobs: Ticks,
    /// Ticks with a recorded run.
    runs: Ticks,
    doubled: usize,
    early: usize,
}

/// Ms since 1970.
pub(super) fn ms(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// How many ticks a schedule had, by the clock: each has one a second. The ledger does not count a tick that waits for the last job yet.
fn ticks_of(info: &ScheduleInfo) -> u64 {
    let waiting = u64::from(info.pending.is_some());
    info.next.map_or(0, |next| (ms(next) / 1000).saturating_sub(ms(info.since) / 1000 + 1 + waiting))
}

impl TickAccount {
    /// Reads the jobs of the task, and the file of runs.
    pub(super) async fn read(app: &App, task: &str, records: &Path) -> Result<TickAccount, Failure> {
        let mut account = TickAccount::default();
        account.read_jobs(app, task).await?;
        account.read_runs(records)?;
        Ok(account)
    }

    async fn read_jobs(&mut self, app: &App, task: &str) -> Result<(), Failure> {
        let (inspector, filter) = (app.inspector(), JobFilter::new(JobState::Completed));
        let mut cursor: Option<String> = None;
        loop {
            let page = inspector.jobs(task, &filter, cursor.as_deref(), 1000).await?;
            for job in &page.jobs {
                if let Some((name, due)) = job.id.as_str().split_once('@')
                    && let Ok(due) = due.parse()
                {
                    self.jobs.entry(name.to_owned()).or_default().insert(due);
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Each line has schedule, due, attempt and stall count, and when the run began.
    fn read_runs(&mut self, file: &Path) -> Result<(), Failure> {
        let (text, mut seen) = (fs::read_to_string(file)?, HashSet::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let &[name, due_word, run, at_word] = words.as_slice() else {
                return Err(Failure::Failed(format!("{} has an unreadable line: {line}", file.display())));
            };
            let due: u64 = due_word.parse().unwrap_or(u64::MAX);
            let at: u64 = at_word.parse().unwrap_or(0);
            self.early += usize::from(at < due);
            self.doubled += usize::from(!seen.insert((name, due_word, run)));
            self.runs.entry(name.to_owned()).or_default().insert(due);
        }
        Ok(())
    }

    /// Whether the counts of a schedule add up, and agree with the jobs and the runs that were found.
    fn is_accounted(&self, info: &ScheduleInfo) -> bool {
        let none = HashSet::new();
        let jobs = self.jobs.get(&info.name).unwrap_or(&none);
        let runs = self.runs.get(&info.name).unwrap_or(&none);
        let ticks = ticks_of(info);
        let counted = info.fired + info.overlapped + info.missed_ticks + info.paused_ticks;
        let is_sound = counted == ticks && jobs.len() as u64 == info.fired && jobs == runs;
        if !is_sound {
            let (name, fired, jobs, runs) = (&info.name, info.fired, jobs.len(), runs.len());
            say!("{name} had {ticks} ticks and counted {counted}; {fired} fired, {jobs} jobs are kept, {runs} ran");
        }
        is_sound
    }

    /// Prints the verdict as JSON. Returns whether all is well.
    pub(super) fn print(
        &self,
        infos: &[ScheduleInfo],
        seconds: u64,
        kills: usize,
        out: Output,
    ) -> Result<bool, Failure> {
        let unsound = infos.iter().filter(|info| !self.is_accounted(info)).count();
        let sum = |of: fn(&ScheduleInfo) -> u64| infos.iter().map(of).sum::<u64>();
        let total = |ticks: &Ticks| ticks.values().map(HashSet::len).sum::<usize>();
        let verdict = TickVerdict {
            schedules: infos.len(),
            seconds,
            kills,
            ticks: sum(ticks_of),
            fired: sum(|info| info.fired),
            overlapped: sum(|info| info.overlapped),
            missed: sum(|info| info.missed_ticks),
            paused: sum(|info| info.paused_ticks),
            jobs: total(&self.jobs),
            ran: total(&self.runs),
            doubled: self.doubled,
            early: self.early,
        };
        out.json_line(&verdict)?;
        Ok(unsound + self.doubled + self.early == 0)
    }
}
