//! What handlers report of their runs, and what the test did to their processes, in one order: a list in Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult};

use crate::support::{PATIENCE, TestRedis, eventually};

/// The list of a test on the shared server, which no test breaks.
#[derive(Clone)]
pub struct Log {
    /// Kept while the test needs it. Child processes have the address only.
    _server: Option<Arc<TestRedis>>,
    url: String,
    name: String,
    conn: MultiplexedConnection,
}

/// One run of a handler. The fence is the time of its claim, us of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub pid: u32,
    pub fence: u64,
    pub key: String,
    pub id: String,
    pub has_ended: bool,
}

impl Log {
    pub async fn new() -> Log {
        let server = TestRedis::shared();
        let (url, name) = (server.url(), server.unique_prefix());
        let log = Log::at(&url, &name).await;
        Log { _server: Some(server), ..log }
    }

    /// The same list for a child process.
    pub async fn at(url: &str, name: &str) -> Log {
        let conn = TestRedis::conn_to(url).await;
        Log { _server: None, url: url.to_owned(), name: name.to_owned(), conn }
    }

    /// Where a child process finds the list.
    pub fn place(&self) -> (String, String) {
        (self.url.clone(), self.name.clone())
    }

    /// Appends a line. Returns once the server has it.
    pub async fn say(&self, line: String) {
        let () = self.conn.clone().rpush(format!("{}:runs", self.name), line).await.unwrap();
    }

    /// Lets the handler of this job end in this process, if the job waits for that.
    pub async fn open(&self, pid: u32, id: &str) {
        let () = self.conn.clone().set(format!("{}:open:{pid}:{id}", self.name), "1").await.unwrap();
    }

    pub async fn is_open(&self, pid: u32, id: &str) -> bool {
        let open: RedisResult<bool> = self.conn.clone().exists(format!("{}:open:{pid}:{id}", self.name)).await;
        open.unwrap_or(false)
    }

    pub async fn begins(&self, run: &Run) {
        self.say(format!("begin {} {} {} {}", run.pid, run.fence, run.key, run.id)).await;
    }

    pub async fn ends(&self, run: &Run) {
        self.say(format!("end {} {} {} {}", run.pid, run.fence, run.key, run.id)).await;
    }

    /// From here on, what the process reports does not count: it is frozen or dead.
    pub async fn is_gone(&self, pid: u32) {
        self.say(format!("gone {pid}")).await;
    }

    /// From here on, it counts again. What it ran before does not.
    pub async fn is_back(&self, pid: u32) {
        self.say(format!("back {pid}")).await;
    }

    /// From here on, the limit is another: [`Log::most_at_a_time`] begins again. Runs that have not ended count.
    pub async fn changes(&self) {
        self.say("change 0".to_owned()).await;
    }

    async fn lines(&self) -> Vec<String> {
        self.conn.clone().lrange(format!("{}:runs", self.name), 0, -1).await.unwrap()
    }

    /// All runs, in the order in which they began.
    pub async fn runs(&self) -> Vec<Run> {
        let (mut runs, mut ended) = (Vec::new(), BTreeSet::new());
        for line in self.lines().await {
            match Line::parse(&line) {
                Line::Begin(run) => runs.push(run),
                Line::End(run) => drop(ended.insert((run.pid, run.fence, run.id))),
                Line::Gone(_) | Line::Back(_) | Line::Change => {}
            }
        }
        for run in &mut runs {
            run.has_ended = ended.contains(&(run.pid, run.fence, run.id.clone()));
        }
        runs
    }

    pub async fn runs_of(&self, id: &str) -> Vec<Run> {
        self.runs().await.into_iter().filter(|run| run.id == id).collect()
    }

    /// Waits until the job has begun this many runs, and returns the last of them.
    pub async fn has_begun(&self, id: &str, count: usize) -> Run {
        eventually(&format!("{id} has begun {count} times"), PATIENCE, async || {
            self.runs_of(id).await.get(count - 1).cloned()
        })
        .await
    }

    /// The most runs of each key at a time, by the order of the reports. With the last limit only.
    pub async fn most_at_a_time(&self) -> BTreeMap<String, usize> {
        let (mut open, mut most) = (BTreeMap::<String, BTreeSet<(u32, u64, String)>>::new(), BTreeMap::new());
        // A process that is back reports the ends of runs that no longer count.
        let mut gone = BTreeSet::new();
        for line in self.lines().await {
            match Line::parse(&line) {
                Line::Begin(run) if !gone.contains(&run.pid) => {
                    let of_key = open.entry(run.key.clone()).or_default();
                    of_key.insert((run.pid, run.fence, run.id));
                    let most = most.entry(run.key).or_default();
                    *most = of_key.len().max(*most);
                }
                Line::End(run) => {
                    open.entry(run.key).or_default().remove(&(run.pid, run.fence, run.id));
                }
                Line::Gone(pid) => {
                    gone.insert(pid);
                    open.values_mut().for_each(|of_key| of_key.retain(|(own, ..)| *own != pid));
                }
                Line::Back(pid) => drop(gone.remove(&pid)),
                Line::Change => most.clear(),
                Line::Begin(_) => {}
            }
        }
        most
    }
}

enum Line {
    Begin(Run),
    End(Run),
    Gone(u32),
    Back(u32),
    Change,
}

impl Line {
    fn parse(line: &str) -> Line {
        let words: Vec<&str> = line.split(' ').collect();
        let pid = words[1].parse().unwrap();
        let run = || Run {
            pid,
            fence: words[2].parse().unwrap(),
            key: words[3].to_owned(),
            id: words[4].to_owned(),
            has_ended: false,
        };
        match words[0] {
            "begin" => Line::Begin(run()),
            "end" => Line::End(run()),
            "gone" => Line::Gone(pid),
            "back" => Line::Back(pid),
            "change" => Line::Change,
            _ => panic!("{line}"),
        }
    }
}
