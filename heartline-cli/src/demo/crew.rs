//! The worker processes of the demo: started, killed, frozen, and started again.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::target::Target;

/// How long workers may take to shut down.
const STOP: Duration = Duration::from_secs(15);

/// How often dead workers are looked for.
const TEND: Duration = Duration::from_millis(100);

/// The workers. They end when this process does: each reads a pipe that only this process holds open.
pub(super) struct Crew {
    url: String,
    prefix: String,
    state: Mutex<State>,
}

struct State {
    /// The arguments of the next process.
    arguments: Vec<String>,
    workers: Vec<Child>,
    deaths: usize,
    /// By process id: the place in the crew, and when the process died.
    died: HashMap<u32, (usize, Instant)>,
}

impl State {
    fn died(&mut self, index: usize) {
        let pid = self.workers[index].id();
        self.died.entry(pid).or_insert((index, Instant::now()));
    }
}

impl Crew {
    pub(super) fn start(size: usize, target: &Target, arguments: &[&str]) -> Result<Crew, Failure> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let state = Mutex::new(State { arguments, workers: Vec::new(), deaths: 0, died: HashMap::new() });
        let crew = Crew { url: target.url.clone(), prefix: target.prefix.clone(), state };
        {
            let mut state = crew.state();
            for _ in 0..size {
                let worker = crew.spawn(&state.arguments)?;
                state.workers.push(worker);
            }
        }
        Ok(crew)
    }

    fn spawn(&self, arguments: &[String]) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("_demo-worker").args(arguments);
        command.env("HEARTLINE_URL", &self.url).env("HEARTLINE_PREFIX", &self.prefix);
        // In a group of its own it gets no Ctrl-C from the terminal.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.spawn()?)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new process for each that died, until aborted.
    pub(super) async fn tend(self: Arc<Self>) -> Result<(), Failure> {
        loop {
            {
                let mut state = self.state();
                for index in 0..state.workers.len() {
                    if state.workers[index].try_wait()?.is_some() {
                        state.died(index);
                        state.workers[index] = self.spawn(&state.arguments)?;
                        state.deaths += 1;
                    }
                }
            }
            tokio::time::sleep(TEND).await;
        }
    }

    /// Sets the arguments of processes that start from now on.
    pub(super) fn deploy(&self, arguments: &[&str]) {
        self.state().arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    }

    /// Shuts one of the processes down.
    pub(super) fn shut_down(&self, index: usize) {
        drop(self.state().workers[index].stdin.take());
    }

    /// Sends SIGKILL to one of the processes; returns its id.
    pub(super) fn kill(&self, number: usize) -> u32 {
        let mut state = self.state();
        let index = number % state.workers.len();
        state.died(index);
        // It may have ended by itself.
        let _ = state.workers[index].kill();
        state.workers[index].id()
    }

    /// Sends SIGKILL to the process of a worker.
    pub(super) fn kill_worker(&self, worker: &str) {
        let index = self.state().workers.iter().position(|child| Some(child.id()) == pid_of(worker));
        if let Some(index) = index {
            self.kill(index);
        }
    }

    /// How long ago the process of a worker died, and its place in the crew.
    pub(super) fn death_of(&self, worker: &str) -> Option<(usize, Duration)> {
        let (index, at) = *self.state().died.get(&pid_of(worker)?)?;
        Some((index, at.elapsed()))
    }

    /// Stops a process for some time (SIGSTOP, SIGCONT). On waking it has lost its jobs.
    pub(super) async fn freeze(&self, index: usize, time: Duration) {
        let pid = self.state().workers[index].id();
        signal(pid, Signal::STOP);
        tokio::time::sleep(time).await;
        signal(pid, Signal::CONT);
    }

    /// Shuts all processes down. One that takes too long is killed when the crew is dropped.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.workers.iter_mut().for_each(|worker| drop(worker.stdin.take()));
        let until = Instant::now() + STOP;
        while Instant::now() < until && state.workers.iter_mut().any(|worker| matches!(worker.try_wait(), Ok(None))) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many processes died.
    pub(super) fn deaths(&self) -> usize {
        self.state().deaths
    }
}

impl Drop for Crew {
    /// Kills frozen processes, too.
    fn drop(&mut self) {
        let mut state = self.state();
        state.workers.iter_mut().for_each(|worker| drop(worker.kill().and_then(|()| worker.wait())));
    }
}

/// A worker is named `<host>-<pid>-<random>`.
fn pid_of(worker: &str) -> Option<u32> {
    worker.rsplit('-').nth(1)?.parse().ok()
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
