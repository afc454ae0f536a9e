//! Calls the scripts by hand, with keys and arguments of the test's own, and shows what they leave.

use crate::support::{TestRedis, dump, settle_args};
use heartline::_internals::{ScriptSource, scripts};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A fence far ahead of the server's clock, so that the next claims get the numbers after it.
pub const LAST_FENCE: u64 = 4_000_000_000_000_000;

/// Checks that the task has exactly these [rows](Task::seen).
macro_rules! assert_keys {
    ($task:expr, $rows:expr $(, $($why:tt)+)?) => {{
        let rows: &str = &$rows;
        let seen = $task.seen(rows).await;
        assert_eq!(seen, rows $(, $($why)+)?);
    }};
}

/// Checks that these rows are all keys of the task.
macro_rules! assert_all {
    ($task:expr, $rows:expr) => {
        assert_eq!($task.rest("").await, $rows)
    };
}

/// Checks that these rows are all keys of the task, without those that are named first.
macro_rules! assert_rest {
    ($task:expr, $left_out:expr, $rows:expr $(, $($why:tt)+)?) => {{
        let rest = $task.rest($left_out).await;
        assert_eq!(rest, $rows $(, $($why)+)?);
    }};
}

/// Checks a text by these methods of `str`: `assert_text!(reply, contains("a"), ends_with("b"))`.
macro_rules! assert_text {
    ($text:expr, $($check:ident($part:expr)),+ $(,)?) => {{
        let text = $text;
        $(assert!(text.$check($part), "{text}");)+
    }};
}

/// The value of the expression, which must not change the task.
macro_rules! unchanged {
    ($task:expr, $calls:expr) => {{
        let before = $task.exact().await;
        let value = $calls;
        assert_eq!($task.exact().await, before, "after {}", stringify!($calls));
        value
    }};
}

pub(crate) use {assert_all, assert_keys, assert_rest, assert_text, unchanged};

/// The arguments of a script: words, or a text of words like `1 'two words' -`, in which `-` is the empty word.
pub trait Args {
    fn words(&self) -> Vec<String>;
}

impl Args for str {
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (at, part) in self.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(|word| if word == "-" { "" } else { word })),
                _ => words.push(part),
            }
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

impl<A: Args + ?Sized> Args for &A {
    fn words(&self) -> Vec<String> {
        (*self).words()
    }
}

impl Args for String {
    fn words(&self) -> Vec<String> {
        self.as_str().words()
    }
}

impl<S: AsRef<str>> Args for [S] {
    fn words(&self) -> Vec<String> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<S: AsRef<str>, const N: usize> Args for [S; N] {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

impl<S: AsRef<str>> Args for Vec<S> {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

/// The columns of a job, without its payload.
pub const COLUMNS: &str = "attempt stalledCount result error options maxCount priority dispatchedAt snoozes enqueuedAt \
     recovery expiresAt checkpoint progress";

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

    /// The same with these [rows](Task::write).
    pub async fn with(rows: &str) -> Task {
        let mut task = Task::new().await;
        task.write(rows).await;
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
    pub async fn call(&mut self, name: &str, args: &(impl Args + ?Sized)) -> Result<String, RedisError> {
        let keys = self.script(name).keys.clone();
        let args = args.words();
        self.call_on(name, &keys, &if name == "settle" || name == "settle_keyed" { settle_args(&args) } else { args })
            .await
    }

    /// Like [`call`](Self::call), with other keys than those in the table.
    pub async fn call_on(
        &mut self,
        name: &str,
        keys: &[&str],
        args: &(impl Args + ?Sized),
    ) -> Result<String, RedisError> {
        let keys = keys.iter().map(|key| self.key(key)).collect::<Vec<_>>();
        let source = self.script(name).source;
        self.is_workflow |= name.starts_with("flow_");
        self.eval(source, &keys, &args.words().iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Like [`call`](Self::call); panics if the call is refused.
    pub async fn ok(&mut self, name: &str, args: &(impl Args + ?Sized)) -> String {
        self.call(name, args).await.unwrap_or_else(|error| panic!("{name} {:?}: {error}", args.words()))
    }

    /// Like [`call`](Self::call) for a call of the workflow `w` with a target: the task `t`, whose keys begin with `t:`.
    /// `ended` of the ended nodes are its jobs.
    pub async fn call_to(
        &mut self,
        name: &str,
        args: &(impl Args + ?Sized),
        ended: usize,
    ) -> Result<String, RedisError> {
        let mut keys: Vec<&str> = self.script(name).keys.clone();
        keys.extend(["t:payload", "t:completed", "t:failed", "t:cancelled", "t:wait"]);
        keys.extend(["t:meta", "t:events", "t:wake", "t:dispatchedAt", "t:outbox"]);
        let mut args = args.words();
        args.push(format!("1 w t {ended}"));
        self.call_on(name, &keys, &args).await
    }

    /// Like [`call_to`](Self::call_to); panics if the call is refused.
    pub async fn ok_to(&mut self, name: &str, args: &(impl Args + ?Sized), ended: usize) -> String {
        let said = self.call_to(name, args, ended).await;
        said.unwrap_or_else(|error| panic!("{name} {:?}: {error}", args.words()))
    }

    /// Like [`ok`](Self::ok) with this key instead of the first one in the table.
    pub async fn ok_at(&mut self, place: &str, name: &str, args: &(impl Args + ?Sized)) -> String {
        let mut keys: Vec<&str> = self.script(name).keys.clone();
        keys[0] = place;
        self.call_on(name, &keys, args).await.unwrap_or_else(|error| panic!("{name} {:?}: {error}", args.words()))
    }

    /// Like [`ok`](Self::ok) for a call that writes nothing.
    pub async fn unchanged(&mut self, name: &str, args: &(impl Args + ?Sized)) -> String {
        let before = self.exact().await;
        let reply = self.ok(name, args).await;
        assert_eq!(self.exact().await, before, "{name} {:?} was answered with {reply}", args.words());
        reply
    }

    /// Like [`ok_to`](Self::ok_to) for a call that writes nothing.
    pub async fn unchanged_to(&mut self, name: &str, args: &(impl Args + ?Sized), ended: usize) -> String {
        let before = self.exact().await;
        let reply = self.ok_to(name, args, ended).await;
        assert_eq!(self.exact().await, before, "{name} {:?} was answered with {reply}", args.words());
        reply
    }

    /// Like [`call`](Self::call) for a call that must be refused, and so writes nothing; returns the error code.
    pub async fn refused(&mut self, name: &str, args: &(impl Args + ?Sized)) -> String {
        let before = self.exact().await;
        let error = match self.call(name, args).await {
            Ok(reply) => panic!("{name} {:?} was not refused: {reply}", args.words()),
            Err(error) => code_of(&error),
        };
        assert_eq!(self.exact().await, before, "{name} {:?} was refused with {error}", args.words());
        error
    }

    /// Writes rows without a script: `wait a b; attempt a=1, b=2; delayed c=5`. A row has the name of a key and its
    /// elements; strings with `, ` or `; ` in them need [`hset`](Self::hset). Others are `waits a b` for
    /// [`waiting`](Self::waiting), `runs w: a=7, b=8` for [`running`](Self::running), [`snapshot`](Self::snapshot), and
    /// `no wake, running.a` for [`lose`](Self::lose).
    pub async fn write(&mut self, rows: &str) {
        for row in rows.split("; ") {
            let (name, rest) = row.split_once(' ').unwrap_or((row, ""));
            let words: Vec<&str> = rest.split(' ').collect();
            let pairs = |rest: &'_ str| -> Vec<(String, String)> {
                let pairs = rest.split(", ").map(|pair| pair.split_once('=').unwrap_or_else(|| panic!("{row}")));
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
            };
            match (name, kind_of(name)) {
                ("waits", _) => self.waiting(&words).await,
                ("runs", _) => {
                    let (worker, jobs) = rest.split_once(": ").unwrap();
                    for (id, fence) in pairs(jobs) {
                        self.running(worker, &[(&id, fence.parse().unwrap())]).await;
                    }
                }
                ("snapshot", _) => self.snapshot().await,
                ("no", _) => {
                    for path in rest.split(", ") {
                        self.lose(path).await;
                    }
                }
                (_, "list") => self.rpush(name, &words).await,
                (_, "set") => self.sadd(name, &words).await,
                (_, "zset") => {
                    for (id, score) in pairs(rest) {
                        self.zadd(name, score.parse().unwrap(), &id).await;
                    }
                }
                _ => {
                    let () = self.conn.hset_multiple(self.key(name), &pairs(rest)).await.unwrap();
                }
            }
        }
    }

    /// The server loses a key, or an element of one: `wake`, `payload.a`, `running.a`.
    pub async fn lose(&mut self, path: &str) {
        let (key, element) = path.split_once('.').map_or((path, None), |(key, element)| (key, Some(element)));
        let command = match (element, kind_of(key)) {
            (None, _) => "DEL",
            (_, "zset") => "ZREM",
            (_, "set") => "SREM",
            _ => "HDEL",
        };
        let mut lose = redis::cmd(command);
        let () = lose.arg(self.key(key)).arg(element).query_async(&mut self.conn).await.unwrap();
    }

    pub async fn hset(&mut self, key: &str, fields: &[(&str, &str)]) {
        let () = self.conn.hset_multiple(self.key(key), fields).await.unwrap();
    }

    pub async fn rpush(&mut self, key: &str, ids: &[impl AsRef<str>]) {
        let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
        let () = self.conn.rpush(self.key(key), ids).await.unwrap();
    }

    pub async fn sadd(&mut self, key: &str, ids: &[impl AsRef<str>]) {
        let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
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
        let other = if kind_of(key) == "list" { "HSET" } else { "RPUSH" };
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
    pub async fn waiting(&mut self, ids: &[impl AsRef<str>]) {
        for id in ids {
            self.hset("payload", &[(id.as_ref(), "{}")]).await;
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

    /// Writes 1 into these columns of the jobs.
    pub async fn columns(&mut self, columns: &str, ids: &[&str]) {
        for column in columns.split(' ') {
            let ones: Vec<(&str, &str)> = ids.iter().map(|id| (*id, "1")).collect();
            self.hset(column, &ones).await;
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

    /// The rows of this text as they are now, to compare with it.
    ///
    /// A row is a key with its elements, as [`write`](Self::write) takes them: `wait a b; attempt a=1, b=2`. Events are
    /// `{started=a, total=1}`, and a key of another type than usual says so. Others are `meta.tombstones=1` for one
    /// field, `no wake, locks` for keys that are missing, and of the instance `a` of a workflow
    /// `place a=running; head a=1 0 2 1 d -; states a=c, p 1 1`.
    pub async fn seen(&mut self, rows: &str) -> String {
        let all: BTreeMap<String, String> =
            self.keys().await.iter().map(|line| (line.split(' ').next().unwrap().to_owned(), short(line))).collect();
        let row_of = |key: &str| all.get(key).cloned();
        let mut seen = Vec::new();
        for row in rows.split("; ") {
            let name = row.split([' ', '=']).next().unwrap();
            let id = row.split_once(' ').and_then(|(_, rest)| Some(rest.split_once('=')?.0));
            seen.push(match (name, id) {
                ("no", _) => {
                    assert!(!row.contains('.'), "{row}: only keys");
                    let held: Vec<String> = row["no ".len()..].split(", ").filter_map(row_of).collect();
                    if held.is_empty() { row.to_owned() } else { held.join(", ") }
                }
                ("place", Some(id)) => format!("place {id}={}", self.place(id).await),
                ("head", Some(id)) => format!("head {id}={}", self.head(id).await),
                ("states", Some(id)) => format!("states {id}={}", self.states(id, row.split(", ").count()).await),
                _ if name.contains('.') => {
                    let path = row.split_once('=').unwrap().0;
                    let (key, field) = path.split_once('.').unwrap();
                    let value: Option<String> = self.conn.hget(self.key(key), field).await.unwrap();
                    value.map_or(format!("no {path}"), |value| format!("{path}={value}"))
                }
                _ => row_of(name).unwrap_or(format!("no {name}")),
            });
        }
        seen.join("; ")
    }

    /// All keys as rows, without these: `meta, wake`.
    pub async fn rest(&mut self, left_out: &str) -> String {
        let rest = without(self.keys().await, &left_out.split(", ").collect::<Vec<_>>());
        rest.iter().map(|line| short(line)).collect::<Vec<_>>().join("; ")
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

/// The usual type of a key.
fn kind_of(key: &str) -> &'static str {
    match key.strip_prefix("t:").unwrap_or(key) {
        "wait" | "wait:high" | "wait:low" => "list",
        "active" | "candidates" => "set",
        "events" | "stalls" => "stream",
        "delayed" | "expires" | "finalizing" | "completed" | "failed" | "cancelled" | "outbox" | "wake" => "zset",
        "running" | "paused" | "children" | "deadlines" | "tasks" | "workers" | "workflows" => "zset",
        "schedules" | "schedules:pending" | "schedules:keepers" | "schedules:named" | "schedules:gone" => "zset",
        _ => "hash",
    }
}

/// A line of [`Task::keys`] as a row of [`Task::seen`]: without quotes, and without the usual type.
fn short(line: &str) -> String {
    let (key, held) = line.split_once(' ').unwrap();
    let (kind, held) = held.split_once(' ').unwrap();
    let Some(held) = held.strip_suffix(['}', ']']) else { return line.to_owned() };
    let (mut row, mut chars, mut is_quoted) = (String::new(), held[1..].chars(), false);
    while let Some(c) = chars.next() {
        match c {
            '"' => is_quoted = !is_quoted,
            '\\' => {
                let escaped = chars.next().unwrap();
                if !['"', '\''].contains(&escaped) {
                    row.push('\\');
                }
                row.push(escaped);
            }
            ':' if !is_quoted => {
                row.push('=');
                chars.next();
            }
            ',' if !is_quoted && ["list", "set"].contains(&kind) => {}
            c => row.push(c),
        }
    }
    match kind {
        "stream" => format!("{key} {}", row.replace("NOW {", "{")),
        _ if kind == kind_of(key) => format!("{key} {row}"),
        _ => format!("{key} {kind} {row}"),
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
            if let Some(after) = rest.strip_prefix('-') {
                rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
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
