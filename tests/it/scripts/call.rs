//! Calls the scripts by hand, with keys and arguments of the test's own, and shows what they leave.

use crate::support::{TestRedis, dump, settle_args};
use heartline::_internals::{ScriptSource, scripts};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError, Value};
use std::sync::Arc;

/// A fence far ahead of the server's clock, so that the next claims get the numbers after it.
pub const LAST_FENCE: u64 = 4_000_000_000_000_000;

/// How a dump shows the time of the manual declaration. Dumps omit it, since every task has it.
const DECLARED: &str = r#""declaredAt": "1""#;

/// One task on a server, without the library.
pub struct Task {
    pub conn: MultiplexedConnection,
    /// The prefix of every key, up to and including the colon after the task.
    pub prefix: String,
    /// The text in front of every script.
    header: &'static str,
    scripts: Vec<ScriptSource>,
    /// A connection whose user may touch only the declared keys of a call.
    bound: Option<MultiplexedConnection>,
    /// Whether it is a workflow, whose events only [`events`](Self::events) shows.
    is_workflow: bool,
    /// Keeps the server running.
    _redis: Arc<TestRedis>,
    /// The database. Dumps show its keys, but on a shared server none of other tests.
    url: String,
}

/// The code of an error. Redis 6.2 adds ERR to an error that a command raised inside a script, and keeps the code in
/// the text.
pub fn code_of(error: &redis::RedisError) -> String {
    let code = error.code().unwrap_or_default();
    let inner = ["WRONGTYPE", "OOM"].into_iter().find(|inner| code == "ERR" && error.to_string().contains(inner));
    inner.unwrap_or(code).to_owned()
}

impl Task {
    /// A task with a new name on the shared server, with [`LAST_FENCE`].
    pub async fn new() -> Task {
        let redis = TestRedis::shared();
        let url = redis.own_database();
        let mut task = Task::at(redis, url, "").await;
        task.hset("meta", &[("fence", &LAST_FENCE.to_string())]).await;
        task
    }

    /// A task with a new name on `redis`, with declared options. Each script gets `header` as its first line.
    pub async fn on(redis: Arc<TestRedis>, header: &'static str) -> Task {
        let url = redis.url();
        Task::at(redis, url, header).await
    }

    async fn at(redis: Arc<TestRedis>, url: String, header: &'static str) -> Task {
        let prefix = format!("{}:{{task}}:", redis.unique_prefix());
        let mut task = Task {
            conn: TestRedis::conn_to(&url).await,
            prefix,
            header,
            scripts: scripts(),
            bound: None,
            is_workflow: false,
            _redis: redis,
            url,
        };
        task.declared().await;
        task
    }

    /// Declares the options of the task, once: without them settle, sweep and trim do nothing.
    pub async fn declared(&mut self) {
        self.hset("meta", &[("declaredAt", "1")]).await;
    }

    /// Deletes the options of the task.
    pub async fn lose_options(&mut self) {
        let () = self.conn.hdel(self.key("meta"), "declaredAt").await.unwrap();
    }

    /// From now on, each call runs as a user who may touch only the keys of that call.
    pub async fn bind_to_declared_keys(&mut self) {
        self.bind(&[]).await;
        let url = self.url().replace("redis://", "redis://bound:secret@");
        self.bound = Some(TestRedis::conn_to(&url).await);
    }

    /// From now on, each call runs as a user who may run every command but this one.
    pub async fn lack(&mut self, command: &str) {
        let name = format!("lacks-{}", self.prefix.replace([':', '{', '}'], "-"));
        let mut cmd = redis::cmd("ACL");
        cmd.arg("SETUSER").arg(&name).arg("on").arg(">secret").arg("resetkeys");
        // The same keys as a user made by the documentation.
        cmd.arg(format!("~{}*", self.prefix)).arg("allchannels").arg("+@all");
        let () = cmd.arg(format!("-{command}")).query_async(&mut self.conn).await.unwrap();
        if self.bound.is_none() {
            let url = self.url().replace("redis://", &format!("redis://{name}:secret@"));
            self.bound = Some(TestRedis::conn_to(&url).await);
        }
    }

    async fn bind(&mut self, keys: &[String]) {
        let mut cmd = redis::cmd("ACL");
        cmd.arg("SETUSER").arg("bound").arg("on").arg(">secret").arg("+@all").arg("allchannels").arg("resetkeys");
        for key in keys {
            cmd.arg(format!("~{key}"));
        }
        let () = cmd.query_async(&mut self.conn).await.unwrap();
    }

    /// Any text as a script, called like the others.
    pub async fn eval(&mut self, source: &str, keys: &[String], args: &[&str]) -> Result<String, RedisError> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(format!("{}{source}", self.header)).arg(keys.len()).arg(keys).arg(args);
        let value: Value = match self.bound.clone() {
            Some(mut bound) => {
                self.bind(keys).await;
                cmd.query_async(&mut bound).await?
            }
            None => cmd.query_async(&mut self.conn).await?,
        };
        Ok(text(&value))
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The prefix for an app of this task.
    pub fn app_prefix(&self) -> &str {
        self.prefix.split_once(":{").unwrap().0
    }

    /// The current epoch.
    pub async fn epoch(&mut self) -> u64 {
        let epoch: Option<u64> = self.conn.hget(self.key("meta"), "epoch").await.unwrap();
        epoch.unwrap_or(0)
    }

    /// The server's time, ms.
    pub async fn now_ms(&mut self) -> f64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut self.conn).await.unwrap();
        (seconds * 1000 + micros / 1000) as f64
    }

    pub fn key(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    pub fn script(&self, name: &str) -> &ScriptSource {
        self.scripts.iter().find(|script| script.name == name).unwrap_or_else(|| panic!("no script {name}"))
    }

    /// Calls a script and returns its reply as text: `[settled '' '' 1 a [..]]`. The arguments of `settle` are
    /// [in short](settle_args).
    pub async fn call(&mut self, name: &str, args: &[&str]) -> Result<String, RedisError> {
        let keys = self.script(name).keys.clone();
        if name == "settle" {
            let args = settle_args(args);
            return self.call_on(name, &keys, &args.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
        self.call_on(name, &keys, args).await
    }

    /// Like [`call`](Self::call), with other keys than those in the table.
    pub async fn call_on(&mut self, name: &str, keys: &[&str], args: &[&str]) -> Result<String, RedisError> {
        let keys = keys.iter().map(|key| self.key(key)).collect::<Vec<_>>();
        let source = self.script(name).source;
        self.is_workflow |= name.starts_with("flow_");
        self.eval(source, &keys, args).await
    }

    /// Like [`call`](Self::call); panics if the call is refused.
    pub async fn ok(&mut self, name: &str, args: &[&str]) -> String {
        self.call(name, args).await.unwrap_or_else(|error| panic!("{name} {args:?}: {error}"))
    }

    /// Like [`call`](Self::call) for a call that must be refused; returns the error code.
    pub async fn refused(&mut self, name: &str, args: &[&str]) -> String {
        match self.call(name, args).await {
            Ok(reply) => panic!("{name} {args:?} was not refused: {reply}"),
            Err(error) => code_of(&error),
        }
    }

    pub async fn hset(&mut self, key: &str, fields: &[(&str, &str)]) {
        let () = self.conn.hset_multiple(self.key(key), fields).await.unwrap();
    }

    pub async fn rpush(&mut self, key: &str, ids: &[&str]) {
        let () = self.conn.rpush(self.key(key), ids).await.unwrap();
    }

    pub async fn sadd(&mut self, key: &str, ids: &[&str]) {
        let () = self.conn.sadd(self.key(key), ids).await.unwrap();
    }

    pub async fn zadd(&mut self, key: &str, score: f64, id: &str) {
        let () = self.conn.zadd(self.key(key), id, score).await.unwrap();
    }

    pub async fn del(&mut self, key: &str) {
        let () = self.conn.del(self.key(key)).await.unwrap();
    }

    /// Stores a value of another type under the key, in one step, since a worker may be writing to it.
    pub async fn make_foreign(&mut self, key: &str) {
        let other = if ["wait", "wait:high", "wait:low"].contains(&key) { "HSET" } else { "RPUSH" };
        let full = self.key(key);
        let mut replace = redis::pipe();
        replace.atomic().del(&full).ignore().cmd(other).arg(&full).arg(&["foreign", "value"]).ignore();
        let () = replace.query_async(&mut self.conn).await.unwrap();
    }

    pub async fn list(&mut self, key: &str) -> Vec<String> {
        self.conn.lrange(self.key(key), 0, -1).await.unwrap()
    }

    pub async fn score(&mut self, key: &str, id: &str) -> f64 {
        self.conn.zscore(self.key(key), id).await.unwrap()
    }

    pub async fn field(&mut self, key: &str, name: &str) -> String {
        self.conn.hget(self.key(key), name).await.unwrap()
    }

    /// Adds jobs with payload `{}` and these ids to `wait`, without a script.
    pub async fn waiting(&mut self, ids: &[&str]) {
        for id in ids {
            self.hset("payload", &[(id, "{}")]).await;
        }
        self.rpush("wait", ids).await;
    }

    /// Writes running jobs without a script: `worker` holds each under its fence.
    pub async fn running(&mut self, worker: &str, jobs: &[(&str, u64)]) {
        for (id, fence) in jobs {
            self.hset("payload", &[(id, "{}")]).await;
            self.hset("locks", &[(id, &format!("{worker}:{fence}"))]).await;
            self.sadd("active", &[id]).await;
        }
    }

    /// Turns the active jobs into candidates, as a snapshot does.
    pub async fn snapshot(&mut self) {
        let () = self.conn.rename(self.key("active"), self.key("candidates")).await.unwrap();
    }

    /// Every key and its contents, one a line. Current times and ids of stream entries read NOW. Omits what
    /// [`declared`](Self::declared) writes, the [`totals`](Self::totals), and the counts of recent runs.
    pub async fn keys(&mut self) -> Vec<String> {
        let dump = dump(&mut self.conn, &self.prefix).await;
        let shown = dump.iter().map(|(key, held)| {
            let key = &key[self.prefix.len()..];
            let held = if key == "meta" { without_totals(held, self.is_workflow) } else { held.clone() };
            let held = timeless(&held);
            // The time at which an instance began is left out too.
            let held = match key {
                "instances" => ["c", "f", "x"].iter().fold(held.replace(" NOW\"", "\""), |held, over| {
                    held.replace(&format!(" NOW {over}\""), &format!(" 0 {over}\""))
                }),
                _ => held,
            };
            format!("{key} {held}")
        });
        let is_left_out =
            |line: &String| line == "meta hash {}" || self.is_workflow && line.starts_with("events stream ");
        shown.filter(|line| !is_left_out(line)).collect()
    }

    /// Each entry of the stream of events: its total, and its fields.
    pub async fn events(&mut self) -> Vec<String> {
        let entries: Vec<(String, Vec<String>)> =
            redis::cmd("XRANGE").arg(self.key("events")).arg("-").arg("+").query_async(&mut self.conn).await.unwrap();
        let shown = entries.into_iter().map(|(_, fields)| {
            let pairs = fields.chunks(2).filter(|pair| pair[0] != "worker" && pair[0] != "total");
            let pairs: Vec<String> = pairs.map(|pair| format!("{} {}", pair[0], pair[1])).collect();
            format!("{}: {}", fields[1], pairs.join(", "))
        });
        shown.collect()
    }

    /// The number of dispatched and of ended jobs in `meta`; empty if it has none.
    pub async fn totals(&mut self) -> [String; 2] {
        let totals: [Option<String>; 2] = self.conn.hmget(self.key("meta"), &["in", "out"]).await.unwrap();
        totals.map(Option::unwrap_or_default)
    }

    /// Every key byte by byte, to compare before and after.
    pub async fn exact(&mut self) -> Vec<(String, String)> {
        dump(&mut self.conn, &self.prefix).await.into_iter().collect()
    }

    /// The contents of one key, as [`keys`](Self::keys) shows them; empty if there is no such key.
    pub async fn held(&mut self, key: &str) -> String {
        let start = format!("{key} ");
        let keys = self.keys().await;
        keys.iter().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().to_owned()
    }
}

/// A dump of `meta` without the fields that every task has.
fn without_totals(held: &str, is_workflow: bool) -> String {
    let fields = held.trim_start_matches("hash {").trim_end_matches('}').split(", ");
    let totals = [
        "in",
        "out",
        "lastCompletedAt",
        "lastFailedAt",
        "lastBrokenOffAt",
        "failedSinceCompleted",
        "brokenOffSinceCompleted",
    ];
    let is_total = |field: &str| totals.iter().any(|total| field.starts_with(&format!("\"{total}\": ")));
    let is_events = |field: &str| is_workflow && field.starts_with(r#""events": "#);
    let is_shown = |field: &&str| *field != DECLARED && !is_total(field) && !is_events(field);
    format!("hash {{{}}}", fields.filter(is_shown).collect::<Vec<_>>().join(", "))
}

fn text(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) if bytes.is_empty() => "''".to_owned(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(" ")),
        other => format!("{other:?}"),
    }
}

/// A current time in ms has 13 digits and starts with 1; the id of an entry has `-` and another number after it.
pub fn timeless(held: &str) -> String {
    let mut out = String::new();
    let mut rest = held;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, more) = rest.split_at(end);
        rest = more;
        if digits.len() == 13 && digits.starts_with('1') {
            out.push_str("NOW");
            if let Some(behind) = rest.strip_prefix('-') {
                rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
            }
        } else {
            out.push_str(digits);
        }
    }
    out + rest
}

/// The keys and their contents, without those named.
pub fn without(keys: Vec<String>, names: &[&str]) -> Vec<String> {
    keys.into_iter().filter(|line| !names.contains(&line.split(' ').next().unwrap_or_default())).collect()
}
