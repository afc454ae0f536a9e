//! The worker processes: started, killed, frozen, and started again.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Some worker processes. They end when this process does: each reads a pipe that only it holds open.
pub struct Crew {
    url: String,
    prefix: String,
    state: Mutex<State>,
}

struct State {
    children: Vec<Child>,
    deaths: usize,
    /// Which of the crew a process was, from 1, and when it died, by its pid.
    died: HashMap<u32, (usize, Instant)>,
}

impl State {
    fn died(&mut self, index: usize) {
        let pid = self.children[index].id();
        self.died.entry(pid).or_insert((index + 1, Instant::now()));
    }
}

impl Crew {
    pub fn start(size: usize, url: &str, prefix: &str) -> Result<Crew> {
        let children = (0..size).map(|_| spawn(url, prefix)).collect::<Result<_>>()?;
        let state = Mutex::new(State { children, deaths: 0, died: HashMap::new() });
        Ok(Crew { url: url.to_owned(), prefix: prefix.to_owned(), state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new process for each that died, until aborted.
    pub async fn tend(self: Arc<Self>) -> Result<()> {
        loop {
            {
                let mut state = self.state();
                for i in 0..state.children.len() {
                    if state.children[i].try_wait()?.is_some() {
                        state.died(i);
                        state.children[i] = spawn(&self.url, &self.prefix)?;
                        state.deaths += 1;
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends SIGKILL to one of the processes.
    pub fn kill(&self, number: usize) {
        let mut state = self.state();
        let index = number % state.children.len();
        state.died(index);
        let _ = state.children[index].kill();
    }

    /// Sends SIGKILL to the process of a worker.
    pub fn kill_worker(&self, worker: &str) {
        let index = self.state().children.iter().position(|child| Some(child.id()) == pid_of(worker));
        if let Some(index) = index {
            self.kill(index);
        }
    }

    /// Which of the crew a worker was whose process died, from 1, and how long ago that was.
    pub fn death_of(&self, worker: &str) -> Option<(usize, Duration)> {
        let (number, at) = *self.state().died.get(&pid_of(worker)?)?;
        Some((number, at.elapsed()))
    }

    /// Stops a process for a while (SIGSTOP, SIGCONT): it wakes as a zombie whose jobs were taken.
    pub async fn freeze(&self, index: usize, time: Duration) -> Result<()> {
        let pid = self.state().children[index].id();
        signal("-STOP", pid)?;
        tokio::time::sleep(time).await;
        signal("-CONT", pid)
    }

    /// Lets all processes shut down in order; what takes longer than 15 s is killed when the crew is dropped.
    pub fn stop(&self) {
        let mut state = self.state();
        state.children.iter_mut().for_each(|child| drop(child.stdin.take()));
        let until = Instant::now() + Duration::from_secs(15);
        while Instant::now() < until && state.children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many processes died.
    pub fn deaths(&self) -> usize {
        self.state().deaths
    }
}

impl Drop for Crew {
    /// Nothing outlives the demo, a frozen process neither: SIGKILL reaches that too.
    fn drop(&mut self) {
        let mut state = self.state();
        state.children.iter_mut().for_each(|child| drop(child.kill().and_then(|()| child.wait())));
    }
}

/// A worker is named `<host>-<pid>-<random>`.
fn pid_of(worker: &str) -> Option<u32> {
    worker.rsplit('-').nth(1)?.parse().ok()
}

fn spawn(url: &str, prefix: &str) -> Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["--worker", prefix])
        .env("REDIS_URL", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("a worker process could not be started")
}

fn signal(name: &str, pid: u32) -> Result<()> {
    Command::new("kill").args([name, &pid.to_string()]).status().context("kill could not be run")?;
    Ok(())
}
