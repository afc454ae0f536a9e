//! What programs leave behind: processes whose parents have ended. As the first process of a container we inherit them in any case, and a
//! process that nobody waits for stays in the table of the kernel for ever, until that is full and nothing can be started.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};
use tokio::process::{Child, Command};

/// How often orphans that ended are looked for.
const EACH: Duration = Duration::from_secs(1);

/// The children that somebody else waits for.
#[derive(Clone, Default)]
pub(super) struct Children(Arc<Mutex<BTreeSet<i32>>>);

/// One of them, until it was waited for.
pub(super) struct Listed {
    children: Children,
    pid: Option<i32>,
}

impl Children {
    fn own(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child that the caller waits for.
    ///
    /// # Errors
    /// Those of the start.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<(Child, Listed)> {
        // Nobody may take it for an orphan before it is listed.
        let mut own = self.own();
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        own.extend(pid);
        Ok((child, Listed { children: self.clone(), pid }))
    }

    /// Inherits what programs leave behind from now on, and waits for its ends.
    pub(super) async fn wait_for_orphans(self) {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let mut each = tokio::time::interval(EACH);
        each.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            each.tick().await;
            let has_any = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
            if matches!(has_any, Ok(Some(_))) {
                let children = self.clone();
                // It reads many files where many processes are.
                let _ = tokio::task::spawn_blocking(move || children.reap()).await;
            }
        }
    }

    fn reap(&self) {
        let Ok(processes) = fs::read_dir("/proc") else { return };
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.filter(|pid| has_ended(*pid)) {
            let own = self.own();
            if !own.contains(&pid) {
                let _ = Pid::from_raw(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
            }
        }
    }
}

/// Whether it is a child of ours that has ended, and that nobody has waited for.
fn has_ended(pid: i32) -> bool {
    // The name of the program, in brackets, may have anything in it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.next() == Some("Z") && fields.next().and_then(|parent| parent.parse().ok()) == Some(std::process::id())
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            self.children.own().remove(&pid);
        }
    }
}
