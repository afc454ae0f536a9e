//! A prefix with something of everything, and a stranger who overwrites it. The tests of the tools include this file.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use heartline::{
    App, Context, Graph, JobError, RetryPolicy, Schedule, StallOptions, TaskDef, TaskOptions, TaskRef, Unique,
    WorkflowOptions,
};
use redis::aio::MultiplexedConnection;

/// Values that no reader expects.
const JUNK: [&[u8]; 36] = [
    b"",
    b"-1",
    b"+1",
    b" 1",
    b"0x10",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775807",
    b"9007199254740993",
    b"4294967296 4294967295",
    b"2147483648",
    b"1e308",
    b"nan",
    b"inf",
    b"-inf",
    b"\xff\xfe\x00",
    b"\x1b[31mX\x07",
    b"\x02",
    b"\x02 x",
    b"\x02none {}",
    b"\x0118446744073709551615 x",
    b"{\"a\":",
    b"[]",
    b"null",
    b"\"\\ud800\"",
    b"0 0 0 0 0",
    b"a b c d e f g",
    b"\r\nX: y",
    b"<script>alert(1)</script>",
    b"1 18446744073709551615 18446744073709551615 no_answer 18446744073709551615",
    b"{\"delay_ms\":18446744073709551615,\"timeout_ms\":18446744073709551615,\"attempts\":-1}",
    b"{\"code\":\"\\u0000\",\"message\":\"\\u001b[2J\"}",
    b"1 1 18446744073709551615 {\"value\":1e400}",
    b"silent w 18446744073709551615",
    b"18446744073709551615 18446744073709551615 18446744073709551615 18446744073709551615 d 18446744073709551615",
    b"{\"nodes\":[{\"name\":\"a\",\"task\":\"hurt\",\"inputs\":[0]}],\"on_failure\":\"finish\",\"output\":9}",
];

/// Scores that no reader expects.
const SCORES: [&str; 7] = ["-1", "0", "1e300", "inf", "-inf", "9223372036854775808", "0.5"];

const HURT: TaskDef<u32, u32> = TaskDef::new("hurt");

/// The input of jobs with a key.
pub type Order = BTreeMap<String, String>;

/// The tasks that are overwritten.
pub struct Tasks {
    pub hurt: TaskRef<u32, u32>,
    pub keyed: TaskRef<Order, u32>,
}

/// The shortest interval, and fast retries.
pub fn options() -> TaskOptions {
    TaskOptions::new()
        .stall(StallOptions::new().interval(Duration::from_secs(1)))
        .retry(RetryPolicy::new().attempts(2).fixed(Duration::from_millis(10)))
        .concurrency(4)
        .shutdown_grace(Duration::ZERO)
}

/// Declares them. Jobs complete, fail or panic by their input.
pub fn declare(app: &App) -> Tasks {
    let handler = |_: Context, input: u32| async move {
        match input % 4 {
            1 => Err(JobError::new("no".to_owned()).with_code("no")),
            _ => Ok(input),
        }
    };
    let hurt = app.register(HURT.options(options()).handler(handler)).unwrap();
    let hurt = hurt.schedule("often", Schedule::every(Duration::from_secs(1)), 4).unwrap();
    let keyed =
        app.task("keyed", options().key("/customer"), |_: Context, _: Order| async { Ok::<_, JobError>(1) }).unwrap();
    Tasks { hurt, keyed }
}

/// Dispatches jobs of every kind, and starts workflows.
pub async fn dispatch(app: &App, tasks: &Tasks) {
    for (at, id) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
        let _ = tasks.hurt.dispatch(at as u32).id(id).await;
    }
    let _ = tasks.hurt.dispatch(0).id("later").delay(Duration::from_secs(3600)).await;
    let _ = tasks.hurt.dispatch(0).unique(Unique::by("order")).await;
    let _ = tasks.hurt.dispatch(0).id("short").expires_after(Duration::from_secs(3600)).await;
    for customer in ["x", "y", "z"] {
        let _ = tasks.keyed.dispatch(Order::from([("customer".to_owned(), customer.to_owned())])).await;
    }
    let flow = app.workflow::<u32>("flow", WorkflowOptions::new()).unwrap();
    for input in [0, 1] {
        let graph = Graph::new();
        let first = graph.node("first", &HURT, input);
        let second = graph.node("second", &HURT, 2).after(&first);
        let _ = flow.start(graph.output(&second)).await;
    }
}

/// A stranger with all rights.
pub struct Stranger {
    conn: MultiplexedConnection,
    rng: fastrand::Rng,
    prefix: String,
    /// Parts of the names of keys that stay as they are.
    kept: Vec<String>,
    /// The last changes, for a failure.
    pub log: VecDeque<String>,
}

impl Stranger {
    pub fn new(conn: MultiplexedConnection, prefix: &str, kept: &[&str]) -> Stranger {
        let seed = std::env::var("HEARTLINE_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let kept = kept.iter().map(|part| (*part).to_owned()).collect();
        let log = VecDeque::from([format!("seed {seed}")]);
        Stranger { conn, rng: fastrand::Rng::with_seed(seed), prefix: prefix.to_owned(), kept, log }
    }

    pub fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }

    /// A worker that is gone, and the jobs that it holds and has ended.
    pub async fn leave_held_jobs(&mut self) {
        let fence = 1_700_000_000_000_000_u64;
        for (at, id) in ["held", "ahead", "silent", "ended"].into_iter().enumerate() {
            self.run(&["HSET", "{hurt}:payload", id, "0"]).await;
            if id != "ended" {
                let token = format!("h-1-00000001:{}", fence + at as u64);
                self.run(&["HSET", "{hurt}:locks", id, &token]).await;
                self.run(&["SADD", if id == "silent" { "{hurt}:candidates" } else { "{hurt}:active" }, id]).await;
            }
        }
        for words in [
            "HSET {hurt}:claimed ahead 1700000000000001",
            "HSET {hurt}:early held 1700000000000000",
            "HSET {hurt}:cancelling held why",
            "HSET {hurt}:attempt held 1",
            "HSET {hurt}:stalledCount held 1",
            "HSET {hurt}:maxCount held 3",
            "HSET {hurt}:snoozes later 1:1",
            "ZADD {hurt}:finalizing 5 ended",
            "HSET {hurt}:replies h-1-00000001 3",
            "ZADD workers 1700000000000 h-1-00000001",
            "HSET worker:h-1-00000001 host h pid 1 tasks hurt lastSeenAt 1700000000000 startedAt 1 wire 1 held:hurt 3",
            "SET {hurt}:other 1",
        ] {
            self.run(&words.split(' ').collect::<Vec<_>>()).await;
        }
        self.run(&["HSET", "{hurt}:outcome", "ended", "failed 0 0 5"]).await;
        self.run(&["HSET", "{hurt}:parked", "held", "1700000000000000 running 1700000000000"]).await;
        self.run(&["HSET", "{hurt}:progress", "held", r#"5 1 1700000000000 {"value":3}"#]).await;
        self.run(&["HSET", "worker:h-1-00000001", "watch:hurt", "5 20000 30000 no_answer 20000"]).await;
    }

    /// Runs a command on a key of the prefix. Errors do not matter.
    pub async fn run(&mut self, words: &[&str]) {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(format!("{}:{}", self.prefix, words[1])).arg(&words[2..]);
        let _: redis::RedisResult<redis::Value> = cmd.query_async(&mut self.conn).await;
    }

    /// The keys that may be overwritten.
    pub async fn keys(&mut self) -> Vec<String> {
        let mut cmd = redis::cmd("KEYS");
        let keys: Vec<String> = cmd.arg(format!("{}:*", self.prefix)).query_async(&mut self.conn).await.unwrap();
        let mut keys: Vec<String> =
            keys.into_iter().filter(|key| self.kept.iter().all(|part| !key.contains(part))).collect();
        keys.sort_unstable();
        keys
    }

    /// All of them, to restore.
    pub async fn dump(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for key in self.keys().await {
            let value: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut self.conn).await.unwrap();
            all.push((key, value));
        }
        all
    }

    pub async fn restore(&mut self, all: &[(String, Vec<u8>)]) {
        self.remove_all().await;
        let mut pipe = redis::pipe();
        for (key, value) in all {
            pipe.cmd("RESTORE").arg(key).arg(0).arg(value).ignore();
        }
        let () = pipe.query_async(&mut self.conn).await.unwrap();
    }

    /// Removes what it may overwrite.
    pub async fn remove_all(&mut self) {
        for key in self.keys().await {
            let () = redis::cmd("DEL").arg(key).query_async(&mut self.conn).await.unwrap();
        }
    }

    /// Changes one to three elements, and sometimes the type of a key.
    pub async fn overwrite(&mut self) {
        let keys = self.keys().await;
        for _ in 0..self.rng.usize(1..=3) {
            let Some(key) = self.rng.choice(&keys).cloned() else { return };
            self.overwrite_element(&key).await;
        }
        if self.rng.u8(..) < 20
            && let Some(key) = self.rng.choice(&keys).cloned()
        {
            let _: redis::RedisResult<()> = redis::cmd("DEL").arg(&key).query_async(&mut self.conn).await;
            self.change("SET", &key, &[b"of another type"]).await;
        }
    }

    async fn overwrite_element(&mut self, key: &str) {
        let kind: String = redis::cmd("TYPE").arg(key).query_async(&mut self.conn).await.unwrap();
        let junk = if self.rng.u8(..) < 8 { &[b'['; 5_000][..] } else { JUNK[self.rng.usize(..JUNK.len())] };
        let elements: Vec<Vec<u8>> = match kind.as_str() {
            "hash" => redis::cmd("HKEYS").arg(key).query_async(&mut self.conn).await.unwrap(),
            "zset" => redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query_async(&mut self.conn).await.unwrap(),
            _ => Vec::new(),
        };
        let known = self.rng.choice(&elements).cloned().unwrap_or_default();
        let score = SCORES[self.rng.usize(..SCORES.len())].as_bytes();
        match (kind.as_str(), self.rng.u8(..)) {
            ("hash", 0..40) => self.change("HSET", key, &[junk, b"1"]).await,
            ("hash", _) => self.change("HSET", key, &[&known, junk]).await,
            ("zset", 0..128) => self.change("ZADD", key, &[b"1700000000000", junk]).await,
            ("zset", _) => self.change("ZADD", key, &[score, &known]).await,
            ("set", _) => self.change("SADD", key, &[junk]).await,
            ("list", _) => self.change("LPUSH", key, &[junk]).await,
            ("stream", _) => {
                let fields = ["total", "stalled", "watched", "since", "started", "failed", "node", "by", "reason"];
                let fields = [&fields[..], &["ended", "ran", "retrying", "progress", "dispatched", "snoozed"]].concat();
                let field = fields[self.rng.usize(..fields.len())].as_bytes();
                self.change("XADD", key, &[b"*", b"total", b"2", b"worker", b"w", field, junk]).await;
            }
            _ => {}
        }
    }

    async fn change(&mut self, command: &str, key: &str, words: &[&[u8]]) {
        let shown: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(60)])).collect();
        self.log.push_back(format!("{command} {key} {shown:?}"));
        if self.log.len() > 30 {
            self.log.remove(1);
        }
        let _: redis::RedisResult<redis::Value> =
            redis::cmd(command).arg(key).arg(words).query_async(&mut self.conn).await;
    }
}

/// How many rounds a test makes: `HEARTLINE_FUZZ`, or this many.
pub fn rounds(default: usize) -> usize {
    std::env::var("HEARTLINE_FUZZ").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}
