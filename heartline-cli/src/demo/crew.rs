//! The worker processes of the demo: started, killed, frozen, and started again.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// How long workers may take to shut down.
const STOP: Duration = Duration::from_secs(15);

/// Some worker processes. They end when this process does: each reads a pipe that only it holds open.
pub(super) struct Crew {
    url: String,
    workers: Vec<Child>,
}

impl Crew {
    pub(super) fn start(size: usize, url: &str) -> Result<Crew, Failure> {
        let workers = (0..size).map(|_| spawn(url)).collect::<Result<_, _>>()?;
        Ok(Crew { url: url.to_owned(), workers })
    }

    /// Starts a new process for each that died; how many had died.
    pub(super) fn tend(&mut self) -> Result<u64, Failure> {
        let mut died = 0;
        for worker in &mut self.workers {
            if worker.try_wait()?.is_some() {
                *worker = spawn(&self.url)?;
                died += 1;
            }
        }
        Ok(died)
    }

    /// Sends SIGKILL to one of them; its process id.
    pub(super) fn kill(&mut self, number: usize) -> u32 {
        let at = number % self.workers.len();
        // It may have ended by itself.
        let _ = self.workers[at].kill();
        self.workers[at].id()
    }

    /// Halts one of them, or lets it go on; its process id.
    pub(super) fn signal(&self, number: usize, signal: Signal) -> u32 {
        let worker = self.workers[number % self.workers.len()].id();
        if let Some(pid) = i32::try_from(worker).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
        worker
    }

    /// Lets those go on that were frozen.
    pub(super) fn thaw(&self) {
        for at in 0..self.workers.len() {
            self.signal(at, Signal::CONT);
        }
    }

    /// Lets all of them shut down in order; one that takes too long is killed when this is dropped.
    pub(super) fn stop(&mut self) {
        self.thaw();
        for worker in &mut self.workers {
            drop(worker.stdin.take());
        }
        let until = Instant::now() + STOP;
        while Instant::now() < until && self.workers.iter_mut().any(|worker| matches!(worker.try_wait(), Ok(None))) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn spawn(url: &str) -> Result<Child, Failure> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("_demo-worker").env("HEARTLINE_URL", url).env_remove("HEARTLINE_PREFIX");
    // A group of its own: Ctrl-C is told to this process alone.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn()?)
}
