//! What is counted, and what counts as growth.

use std::collections::BTreeMap;
use std::fmt;

/// The process at rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub rss_kib: u64,
    pub files: u64,
    pub threads: u64,
    pub tasks: u64,
}

impl Process {
    /// As the kernel and the runtime count now.
    pub fn now() -> Process {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Process {
            rss_kib: of("VmRSS:").unwrap_or(0),
            files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
            threads: of("Threads:").unwrap_or(0),
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64,
        }
    }

    /// Whether it has hardly more files, threads and tasks than this. One of each may be about to end.
    pub fn is_within(self, other: Process) -> bool {
        self.files <= other.files + 1 && self.threads <= other.threads + 1 && self.tasks <= other.tasks + 1
    }
}

/// What is counted over the day.
#[derive(Debug, Default)]
pub struct Figures {
    pub rounds: usize,
    pub jobs: u64,
    /// The memory of the process after each round.
    pub rss_kib: Vec<u64>,
    /// The process with the worker that stays, before the first round and after the last one.
    pub start: Process,
    pub end: Process,
    /// Whether retention has removed all jobs, so that the bytes of keys can be compared.
    pub is_trimmed: bool,
    /// Bytes of each key, early and at the end.
    pub early: BTreeMap<String, u64>,
    pub late: BTreeMap<String, u64>,
    /// Memory that the server uses, bytes.
    pub server: [u64; 2],
}

/// By how much the memory of the process may grow from the second quarter to the last: its allocator keeps free memory.
const RSS_KIB: u64 = 6 * 1024;

/// Keys that keep something for a time, and how many bytes more they may have at the end. The streams keep about 10,000
/// entries, the series a row for each minute of a day. A stopped worker is listed for a time, with its closed sequences.
const KEPT: [(&str, u64); 6] = [
    (":events", 8 << 20),
    (":stalls", 1 << 20),
    (":series", 1 << 20),
    (":replies", 1 << 20),
    (":workers", 1 << 20),
    (":worker:", 4 << 20),
];

/// How many bytes more all other keys may have: counters have more digits.
const OTHERS: u64 = 4096;

fn kept_by(key: &str) -> Option<&'static (&'static str, u64)> {
    KEPT.iter().find(|(part, _)| key.contains(part))
}

impl Figures {
    /// What has grown, if anything.
    pub fn fault(&self) -> Option<String> {
        let (start, end) = (self.start, self.end);
        if !end.is_within(start) {
            return Some(format!("files, threads or tasks grew from {start:?} to {end:?}"));
        }
        let quarter = self.rss_kib.len() / 4;
        let least = |some: &[u64]| some.iter().copied().min().unwrap_or(0);
        let (early, late) = (least(&self.rss_kib[quarter..=2 * quarter]), least(&self.rss_kib[3 * quarter..]));
        if late > early + RSS_KIB {
            return Some(format!("the memory of the process grew from {early} to {late} KiB"));
        }
        let is_new = |key: &&String| !self.early.contains_key(*key) && kept_by(key).is_none();
        match self.late.keys().find(is_new) {
            Some(key) if !self.is_trimmed => Some(format!("{key} is new")),
            _ => self.grown_key().filter(|_| self.is_trimmed),
        }
    }

    fn grown_key(&self) -> Option<String> {
        let growth = |key: &str| {
            let of = |keys: &BTreeMap<String, u64>| keys.get(key).copied().unwrap_or(0);
            of(&self.late).saturating_sub(of(&self.early))
        };
        let mut others = 0;
        for key in self.late.keys() {
            match kept_by(key) {
                Some((_, most)) if growth(key) > *most => return Some(format!("{key} grew by {} bytes", growth(key))),
                Some(_) => {}
                None => others += growth(key),
            }
        }
        let all = self.late.keys().filter(|key| kept_by(key).is_none() && growth(key) > 0);
        let all: Vec<String> = all.map(|key| format!("{key} by {}", growth(key))).collect();
        (others > OTHERS).then(|| format!("other keys grew by {others} bytes: {}", all.join(", ")))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.start, self.end);
        let sum = |keys: &BTreeMap<String, u64>| keys.values().sum::<u64>();
        write!(
            f,
            r#"{{"rounds":{},"jobs":{},"rss_kib":[{},{}],"files":[{},{}],"threads":[{},{}],"tasks":[{},{}],"keys":[{},{}],"key_bytes":[{},{}],"server_bytes":[{},{}]}}"#,
            self.rounds,
            self.jobs,
            start.rss_kib,
            end.rss_kib,
            start.files,
            end.files,
            start.threads,
            end.threads,
            start.tasks,
            end.tasks,
            self.early.len(),
            self.late.len(),
            sum(&self.early),
            sum(&self.late),
            self.server[0],
            self.server[1],
        )
    }
}
