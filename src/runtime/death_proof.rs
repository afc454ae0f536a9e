//! Whether the process of another worker is gone, so that its jobs can be recovered without waiting.
//!
//! A worker is proven dead if its pid does not exist or now belongs to another process. Only a process of the same boot
//! and host, in the same pid namespace, can prove that. A host name proves nothing: another worker on the host may be
//! alive. In any doubt nothing is proven, and the sweep decides.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::enum_str::names;

/// How the death of a worker is known.
///
/// [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) use the name of the variant in lower case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeathProof {
    /// No process has its pid.
    Gone,
    /// Another process has its pid.
    PidReused,
    /// Its process has ended, and its parent has not collected its exit status yet.
    Unreaped,
    /// Another worker has its exclusive name.
    Replaced,
    /// A person declared it dead.
    SaidSo,
}

names!(DeathProof, "proof", {
    Gone = "gone",
    PidReused = "pid_reused",
    Unreaped = "unreaped",
    Replaced = "replaced",
    SaidSo = "said_so",
});

/// How far the server's clock may have moved against the boot clock of this host. A larger difference is the only sign
/// of a restored copy of a virtual machine that runs next to the original.
const CLOCK_SLACK_MS: u64 = 2_000;

/// This process according to `/proc`, to compare with the facts of others.
#[derive(Debug)]
pub(crate) struct Host {
    proc: PathBuf,
    boot_id: String,
    namespace: String,
    /// The namespace of start times; `None` if the kernel has none.
    time_namespace: Option<String>,
    /// When the boot clock was 0, by the server's clock, ms: our first and our last report of it.
    booted_at_ms: Vec<u64>,
}

impl Host {
    /// `None` if nothing can be proven: `/proc` is missing, or shows the processes of another namespace. `own` is the
    /// last presence of this worker.
    pub(crate) fn look(own: &HashMap<String, String>) -> Option<Host> {
        Host::look_at(PathBuf::from("/proc"), own)
    }

    fn look_at(proc: PathBuf, own: &HashMap<String, String>) -> Option<Host> {
        let boot_id = std::fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?.trim().to_owned();
        let namespace = std::fs::read_link(proc.join("self/ns/pid")).ok()?.to_string_lossy().into_owned();
        let link = std::fs::read_link(proc.join("self/ns/time")).ok();
        let time_namespace = link.map(|link| link.to_string_lossy().into_owned());
        let booted_at_ms: Vec<u64> = booted_at(own).collect();
        if booted_at_ms.is_empty() {
            return None;
        }
        let host = Host { proc, boot_id, namespace, time_namespace, booted_at_ms };
        // Check that our own pid is this process.
        let is_ours = own.get("bootId") == Some(&host.boot_id) && own.get("pidNamespace") == Some(&host.namespace);
        let stat = host.stat(own.get("pid")?)?;
        (is_ours && Some(&stat.start) == own.get("processStart")).then_some(host)
    }

    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Whether the worker with this presence runs, or ran, where this process can see it.
    pub(crate) fn is_here(&self, said: &HashMap<String, String>) -> bool {
        said.get("bootId") == Some(&self.boot_id)
            && said.get("pidNamespace") == Some(&self.namespace)
            && said.get("timeNamespace") == self.time_namespace.as_ref()
    }

    /// The proof that the worker with this presence is dead, if there is one.
    pub(crate) fn proof(&self, said: &HashMap<String, String>) -> Option<DeathProof> {
        let is_ours = |theirs: u64| self.booted_at_ms.iter().any(|ours| ours.abs_diff(theirs) <= CLOCK_SLACK_MS);
        if booted_at(said).any(is_ours) && self.is_here(said) { self.end_of(said) } else { None }
    }

    /// How the process with this pid and start time ended. Asks only the system.
    pub(crate) fn end_of(&self, said: &HashMap<String, String>) -> Option<DeathProof> {
        let (pid, start) = (said.get("pid")?, said.get("processStart")?);
        match self.stat(pid) {
            Some(stat) if stat.start != *start => Some(DeathProof::PidReused),
            Some(stat) if stat.has_ended => Some(DeathProof::Unreaped),
            Some(_) => None,
            None => (self.is_missing(pid) && no_process(pid)).then_some(DeathProof::Gone),
        }
    }

    fn stat(&self, pid: &str) -> Option<Stat> {
        Stat::read(&std::fs::read_to_string(self.proc.join(checked(pid)?).join("stat")).ok()?)
    }

    fn is_missing(&self, pid: &str) -> bool {
        let Some(pid) = checked(pid) else { return false };
        std::fs::symlink_metadata(self.proc.join(pid)).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    }
}

/// A pid, checked to be a number and not a path.
fn checked(pid: &str) -> Option<String> {
    pid.parse::<u32>().ok().filter(|pid| *pid > 0).map(|pid| pid.to_string())
}

/// Whether no process has this pid. Asks the kernel: `/proc` may hide the processes of other users.
#[cfg(target_os = "linux")]
fn no_process(pid: &str) -> bool {
    let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

#[cfg(not(target_os = "linux"))]
fn no_process(_pid: &str) -> bool {
    false
}

/// When the boot clock was 0, by the server's clock. The earliest value does not depend on late calls; the last value
/// follows a step of the server's clock.
fn booted_at(said: &HashMap<String, String>) -> impl Iterator<Item = u64> {
    let number = |field: &str| said.get(field)?.parse::<u64>().ok();
    let last = || number("lastSeenAt")?.checked_sub(number("bootClock")?);
    [number("bootedAt"), last()].into_iter().flatten()
}

/// The content of `/proc/<pid>/stat`.
struct Stat {
    start: String,
    has_ended: bool,
}

impl Stat {
    /// The fields are counted after the name of the command, which may contain spaces. State is field 3 of all, the
    /// number of threads 20, the start time 22 (proc(5)).
    fn read(stat: &str) -> Option<Stat> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let (state, threads, start) = (fields.first()?, fields.get(17)?, fields.get(19)?);
        // If the first thread of a process has ended, others may continue.
        let has_ended = matches!(*state, "Z" | "X") && matches!(*threads, "0" | "1");
        Some(Stat { start: (*start).to_owned(), has_ended })
    }
}

/// The start time of this process, in clock ticks since boot.
#[cfg(target_os = "linux")]
pub(crate) fn own_start() -> Option<String> {
    Some(Stat::read(&std::fs::read_to_string("/proc/self/stat").ok()?)?.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/proc` in which our process has the pid 7.
    fn proc(name: &str) -> PathBuf {
        let proc = std::env::temp_dir().join(format!("heartline-proc-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&proc);
        for folder in ["sys/kernel/random", "self/ns", "7"] {
            std::fs::create_dir_all(proc.join(folder)).unwrap();
        }
        std::fs::write(proc.join("sys/kernel/random/boot_id"), "boot\n").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("pid:[1]", proc.join("self/ns/pid")).unwrap();
        process(&proc, 7, "S", 3, 70);
        proc
    }

    fn process(proc: &std::path::Path, pid: u32, state: &str, threads: u32, start: u32) {
        std::fs::create_dir_all(proc.join(pid.to_string())).unwrap();
        let zeros = "0 ".repeat(16);
        let stat = format!("{pid} (a ) b) {state} {zeros}{threads} 0 {start} 9 9");
        std::fs::write(proc.join(pid.to_string()).join("stat"), stat).unwrap();
    }

    fn said(fields: &[(&str, &str)]) -> HashMap<String, String> {
        let usual = [
            ("bootId", "boot"),
            ("pidNamespace", "pid:[1]"),
            ("pid", "7"),
            ("processStart", "70"),
            ("bootClock", "5000"),
            ("lastSeenAt", "1000005000"),
        ];
        usual.iter().chain(fields).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// A pid that no process has: the highest on Linux is 2^22.
    const NO_PID: &str = "2000000000";

    #[cfg(target_os = "linux")]
    #[test]
    fn only_certain_evidence_proves_a_death() {
        let proc = proc("proofs");
        let host = Host::look_at(proc.clone(), &said(&[])).unwrap();
        let proof = |fields: &[(&str, &str)]| host.proof(&said(fields));
        assert_eq!(proof(&[("pid", NO_PID)]), Some(DeathProof::Gone));
        assert_eq!(proof(&[("processStart", "69")]), Some(DeathProof::PidReused));
        process(&proc, 8, "Z", 1, 80);
        assert_eq!(proof(&[("pid", "8"), ("processStart", "80")]), Some(DeathProof::Unreaped));
        // Alive: unchanged, or with another thread that continues.
        process(&proc, 9, "Z", 2, 90);
        for alive in [&[][..], &[("pid", "9"), ("processStart", "90")]] {
            assert_eq!(proof(alive), None, "{alive:?}");
        }
        // Elsewhere, unknown, or in doubt: another boot, another container, a copy of this machine, not a number.
        for doubt in [
            ("bootId", "other"),
            ("pidNamespace", "pid:[2]"),
            ("timeNamespace", "time:[2]"),
            ("lastSeenAt", "1000008000"),
            ("bootClock", "2000"),
            ("bootClock", ""),
            ("pid", "../7"),
            ("pid", "0"),
            ("pid", "-1"),
        ] {
            assert_eq!(proof(&[("pid", NO_PID), ("processStart", "1"), doubt]), None, "{doubt:?}");
        }
        // A late call reported a higher value than those before, and the server's clock may step.
        for moved in ["2000", "9000"] {
            let fields = [("pid", NO_PID), ("bootClock", moved), ("bootedAt", "1000000000")];
            assert_eq!(proof(&fields), Some(DeathProof::Gone), "{moved}");
            let own = Host::look_at(proc.clone(), &said(&fields[1..])).unwrap();
            assert_eq!(own.proof(&said(&[("pid", NO_PID)])), Some(DeathProof::Gone), "{moved}");
        }
        // Clocks may differ a little.
        assert_eq!(proof(&[("pid", NO_PID), ("bootClock", "4000")]), Some(DeathProof::Gone));
        // Hidden, not missing: the process with the pid of this test is alive.
        let own = std::process::id().to_string();
        assert_eq!(proof(&[("pid", &own), ("processStart", "1")]), None);
        std::fs::remove_dir_all(proc).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_process_that_cannot_see_itself_proves_nothing() {
        let proc = proc("blind");
        let look = |fields: &[(&str, &str)]| Host::look_at(proc.clone(), &said(fields)).is_some();
        assert!(look(&[]));
        // Another process has our pid: this is the `/proc` of the host or of another container.
        for other in
            [("processStart", "71"), ("pid", "6"), ("pidNamespace", "pid:[2]"), ("bootId", "x"), ("bootClock", "")]
        {
            assert!(!look(&[other]), "{other:?}");
        }
        std::fs::remove_dir_all(proc).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_sees_itself_and_is_alive() {
        let mut own: HashMap<String, String> = super::super::identity::process_facts().into_iter().collect();
        own.extend([("bootClock".to_owned(), "5".to_owned()), ("lastSeenAt".to_owned(), "9".to_owned())]);
        assert_eq!(own.get("processStart"), own_start().as_ref());
        let host = Host::look(&own).unwrap();
        assert_eq!(host.proof(&own), None);
        own.insert("pid".to_owned(), NO_PID.to_owned());
        assert_eq!(host.proof(&own), Some(DeathProof::Gone));
    }
}
