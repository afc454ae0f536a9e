//! The worker processes: started, killed, frozen, and started again.

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
}

impl Crew {
    pub fn start(size: usize, url: &str, prefix: &str) -> Result<Crew> {
        let children = (0..size).map(|_| spawn(url, prefix)).collect::<Result<_>>()?;
        let state = Mutex::new(State { children, deaths: 0 });
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
        let _ = state.children[index].kill();
    }

    /// Sends SIGKILL to the process of a worker, which is named `<host>-<pid>-<random>`.
    pub fn kill_worker(&self, worker: &str) {
        let pid = worker.rsplit('-').nth(1).and_then(|pid| pid.parse::<u32>().ok());
        let mut state = self.state();
        if let Some(child) = state.children.iter_mut().find(|child| Some(child.id()) == pid) {
            let _ = child.kill();
        }
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
