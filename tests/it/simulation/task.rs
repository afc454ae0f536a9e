//! The task on a real server: its scripts and its data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use heartline::_internals::{ScriptSource, scripts};
use heartline::testing::RedisCluster;
use redis::{Commands, Connection, FromRedisValue, Script, Value};

use crate::scripts::call::{COLUMNS, LAST_FENCE, timeless};
use crate::simulation::FAR;
use crate::simulation::model::View;
use crate::support::{READ_ALL, TestRedis, plain_args, shown};

/// Every script with its keys, by name. Hashing them takes long, so all tasks share them.
fn all_scripts() -> &'static BTreeMap<&'static str, (Script, Vec<&'static str>)> {
    static ALL: OnceLock<BTreeMap<&'static str, (Script, Vec<&'static str>)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let with_keys = |script: ScriptSource| (script.name, (Script::new(script.source), script.keys));
        scripts().into_iter().map(with_keys).collect()
    })
}

/// One task, called script by script.
pub struct Task {
    conn: Connection,
    prefix: String,
    last_entry: String,
    _server: Where,
}

/// Keeps the server of the task running.
enum Where {
    Server(Arc<TestRedis>),
    Cluster(Arc<RedisCluster>),
}

impl Where {
    /// A server, or a cluster if `HEARTLINE_SIMULATION_CLUSTER` is set.
    fn shared() -> Where {
        static CLUSTER: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
        if std::env::var_os("HEARTLINE_SIMULATION_CLUSTER").is_none() {
            return Where::Server(TestRedis::shared());
        }
        let mut shared = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
        Where::Cluster(shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(RedisCluster::start().unwrap());
            *shared = Arc::downgrade(&cluster);
            cluster
        }))
    }

    /// The server that has the keys with this prefix.
    fn url(&self, prefix: &str) -> String {
        match self {
            Where::Server(server) => server.url(),
            Where::Cluster(cluster) => {
                let port = cluster.nodes[cluster.primary_of(prefix).unwrap()].port();
                format!("redis://127.0.0.1:{port}")
            }
        }
    }
}

impl Task {
    pub fn new() -> Task {
        let mut task = Task::at(Where::shared());
        // Then two calls in a row claim under the same fences.
        let () = task.conn.hset(format!("{}meta", task.prefix), "fence", LAST_FENCE).unwrap();
        task
    }

    /// The only task of a server, which loses all other data. The fences of claims are their times, us.
    pub fn alone_on(server: &Arc<TestRedis>) -> Task {
        let mut task = Task::at(Where::Server(Arc::clone(server)));
        let () = redis::cmd("FLUSHALL").query(&mut task.conn).unwrap();
        task
    }

    fn at(server: Where) -> Task {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("s{}:{{task}}:", NEXT.fetch_add(1, Ordering::Relaxed));
        let conn = redis::Client::open(server.url(&prefix)).unwrap().get_connection().unwrap();
        Task { conn, prefix, last_entry: "-".to_owned(), _server: server }
    }

    pub fn call<T: FromRedisValue>(&mut self, name: &str, args: &[String]) -> T {
        let first = all_scripts()[name].1[0];
        self.call_on(first, name, args)
    }

    /// The same with another first key than in the table.
    pub fn call_on<T: FromRedisValue>(&mut self, first: &str, name: &str, args: &[String]) -> T {
        let (script, keys) = &all_scripts()[name];
        let mut call = script.prepare_invoke();
        for key in std::iter::once(first).chain(keys.iter().skip(1).copied()) {
            call.key(format!("{}{key}", self.prefix));
        }
        args.iter().for_each(|arg| {
            call.arg(arg);
        });
        call.invoke(&mut self.conn).unwrap_or_else(|error| panic!("{name} {args:?}: {error}"))
    }

    /// Calls `settle`. Before, calls `settle_plain` on a copy of the task if it may answer: then it leaves what `settle`
    /// leaves, or it leaves the call to `settle` and writes nothing. Also returns which.
    pub fn settle(&mut self, args: &[String]) -> (Vec<Value>, Option<&'static str>) {
        let Some(plain_args) = plain_args(args) else { return (self.settle_whole(args), None) };
        let (own, copy) = (self.prefix.clone(), format!("plain-{}", self.prefix));
        let names: BTreeSet<&str> = all_scripts()["settle"].1.iter().copied().collect();
        self.copy(&names, &own, &copy);
        let before = self.shown(&names, &own);
        self.prefix.clone_from(&copy);
        let plain: Vec<Value> = self.call("settle_plain", &plain_args);
        self.prefix.clone_from(&own);
        let reply = self.settle_whole(args);
        let (left, expected) = (self.shown(&names, &copy), self.shown(&names, &own));
        self.clear(&names, &copy);
        if plain == [Value::BulkString(b"full".to_vec())] {
            assert_eq!(left, before, "a call that is left to settle wrote something: {args:?}");
            return (reply, Some("left to settle"));
        }
        assert_eq!(left, expected, "settle_plain and settle differ: {args:?}");
        assert_eq!(plain[1..4], reply[3..6], "{args:?}");
        (reply, Some("settled as plain"))
    }

    /// Calls `settle`, or `settle_keyed` if jobs have keys.
    fn settle_whole(&mut self, args: &[String]) -> Vec<Value> {
        let reply: Vec<Value> = self.call("settle", args);
        let is_keyed = reply == [Value::BulkString(b"keyed".to_vec())];
        if is_keyed { self.call("settle_keyed", args) } else { reply }
    }

    /// An idle worker takes the marker that woke it.
    pub fn take_marker(&mut self) {
        let _: Vec<String> = redis::cmd("ZPOPMIN").arg(format!("{}wake", self.prefix)).query(&mut self.conn).unwrap();
    }

    /// Whether an idle worker would be woken.
    pub fn is_marked(&mut self) -> bool {
        self.conn.exists(format!("{}wake", self.prefix)).unwrap()
    }

    /// The entries of a key about lanes, each as key and id.
    pub fn lane_entries(&mut self, name: &str) -> Vec<(String, String)> {
        let entries: Vec<String> = self.conn.zrange(format!("{}{name}", self.prefix), 0, -1).unwrap();
        let words = |entry: &String| {
            let (key, rest) = entry.split_once('\0')?;
            Some((key.to_owned(), rest.rsplit('\0').next()?.to_owned()))
        };
        entries.iter().map(|entry| words(entry).unwrap()).collect()
    }

    /// The keys that have a turn, rest or are full.
    pub fn turns(&mut self) -> BTreeSet<String> {
        self.conn.zrange(format!("{}turns", self.prefix), 0, -1).unwrap()
    }

    /// These keys with a prefix, as text without current times.
    fn shown(&mut self, names: &BTreeSet<&str>, prefix: &str) -> Vec<String> {
        let mut read = redis::cmd("EVAL");
        read.arg(READ_ALL).arg(names.len());
        names.iter().for_each(|name| {
            read.arg(format!("{prefix}{name}"));
        });
        let held = shown(read.query(&mut self.conn).unwrap());
        held.into_iter().map(|(key, held)| format!("{} {}", &key[prefix.len()..], timeless(&held))).collect()
    }

    /// The prefix of its keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Deletes the options of the task.
    pub fn lose_options(&mut self) {
        let () = self.conn.hdel(format!("{}meta", self.prefix), "declaredAt").unwrap();
    }

    /// Whether producers are told that no slot is free.
    pub fn is_full(&mut self) -> bool {
        let full: Option<String> = self.conn.hget(format!("{}meta", self.prefix), "full").unwrap();
        full.as_deref() == Some("running")
    }

    /// The jobs whose hook waits, in their order.
    pub fn finalizing(&mut self) -> Vec<String> {
        self.conn.zrange(format!("{}finalizing", self.prefix), 0, -1).unwrap()
    }

    /// Makes a delayed job due; of all due jobs, the one with the least `rank` is first.
    pub fn make_due(&mut self, id: &str, rank: usize) {
        self.make_due_in("delayed", id, rank);
    }

    /// Makes a hook due that is to run later, as the first one.
    pub fn make_hook_due(&mut self, id: &str) {
        self.make_due_in("finalizing", id, 1);
    }

    fn make_due_in(&mut self, place: &str, id: &str, rank: usize) {
        let key = format!("{}{place}", self.prefix);
        let changed: usize =
            redis::cmd("ZADD").arg(key).arg("XX").arg("CH").arg(rank).arg(id).query(&mut self.conn).unwrap();
        assert_eq!(changed, 1, "{id} was not in {place}");
    }

    /// The fields of a hash, in order.
    pub fn fields(&mut self, name: &str) -> Vec<String> {
        let mut fields: Vec<String> = self.conn.hkeys(format!("{}{name}", self.prefix)).unwrap();
        fields.sort();
        fields
    }

    /// Where the copies of its keys are: in the same hash slot.
    fn copies(&self) -> String {
        format!("copy-{}", self.prefix)
    }

    /// Copies all keys, as a replica has them.
    pub fn copy_all(&mut self) {
        let (from, to) = (self.prefix.clone(), self.copies());
        self.replace(&from, &to);
    }

    /// Replaces all keys by their copies.
    pub fn restore_all(&mut self) {
        let (from, to) = (self.copies(), self.prefix.clone());
        self.replace(&from, &to);
        self.last_entry = "-".to_owned();
    }

    /// Removes all keys and their copies.
    pub fn remove_all(&mut self) {
        for prefix in [self.prefix.clone(), self.copies()] {
            self.clear(&self.names(), &prefix);
        }
    }

    fn replace(&mut self, from: &str, to: &str) {
        let names = self.names();
        self.copy(&names, from, to);
    }

    fn copy(&mut self, names: &BTreeSet<&str>, from: &str, to: &str) {
        self.clear(names, to);
        let mut copies = redis::pipe();
        for name in names {
            copies.cmd("COPY").arg(format!("{from}{name}")).arg(format!("{to}{name}")).ignore();
        }
        let () = copies.query(&mut self.conn).unwrap();
    }

    fn clear(&mut self, names: &BTreeSet<&str>, prefix: &str) {
        let keys: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
        let () = self.conn.del(keys).unwrap();
    }

    /// The names of all keys that scripts write.
    fn names(&self) -> BTreeSet<&'static str> {
        all_scripts().values().flat_map(|(_, keys)| keys.iter().copied()).collect()
    }

    /// The time of the server, ms.
    pub fn now_ms(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.conn).unwrap();
        seconds * 1000 + micros / 1000
    }

    /// When the last snapshot was taken.
    pub fn snapshot_at(&mut self) -> u64 {
        self.conn.hget(format!("{}meta", self.prefix), "snapshotAt").unwrap()
    }

    /// Makes the silence of jobs longer: of parked ones or, by the snapshot, of all that it found.
    pub fn pass_waits(&mut self, by_snapshot: bool) {
        let (meta, parked) = (format!("{}meta", self.prefix), format!("{}parked", self.prefix));
        if by_snapshot {
            let () = self.conn.hincr(meta, "snapshotAt", -(FAR as i64)).unwrap();
            return;
        }
        let marks: BTreeMap<String, String> = self.conn.hgetall(&parked).unwrap();
        for (id, mark) in marks {
            let (of, since) = mark.rsplit_once(' ').unwrap();
            let () = self.conn.hset(&parked, id, format!("{of} {}", since.parse::<u64>().unwrap() - FAR)).unwrap();
        }
    }

    /// The events written since the last check, one transition each.
    pub fn events(&mut self) -> Vec<String> {
        let key = format!("{}events", self.prefix);
        let entries: Vec<(String, Vec<String>)> =
            redis::cmd("XRANGE").arg(key).arg(&self.last_entry).arg("+").query(&mut self.conn).unwrap();
        let mut events = Vec::new();
        for (id, fields) in entries {
            self.last_entry = format!("({id}");
            let words = |name: &str| {
                let fields = fields.chunks(2).filter(|field| field[0] == name);
                fields.map(|field| field[1].split(' ').count()).sum::<usize>()
            };
            assert_eq!(words("ran"), words("completed"), "{fields:?}");
            for field in fields.chunks(2) {
                let words: Vec<&str> = field[1].split(' ').collect();
                // The number of words of each event, and how many of these the model knows: it has no error texts.
                let (each, known) = match field[0].as_str() {
                    "total" | "worker" | "reason" | "since" | "ran" | "by" | "watched" | "paused" | "resumed" => {
                        continue;
                    }
                    "failed" => (4, 2),
                    "retrying" => (6, 3),
                    "restarted" | "outcome_rejected" => (3, 3),
                    "stalled" => (4, 4),
                    "finalizing" => (2, 2),
                    "hook_retrying" => (5, 3),
                    "hook_failed" => (3, 2),
                    _ => (1, 1),
                };
                events.extend(words.chunks(each).map(|words| format!("{} {}", field[0], words[..known].join(" "))));
            }
        }
        events
    }

    /// The whole state. No column may have a job without a payload.
    pub fn view(&mut self) -> View {
        let lanes: Vec<String> = self.lane_entries("lanes").into_iter().map(|(_, id)| id).collect();
        let mut read = redis::pipe();
        let key = |name: &str| format!("{}{name}", self.prefix);
        for list in ["wait:high", "wait", "wait:low"] {
            read.lrange(key(list), 0, -1);
        }
        for place in ["delayed", "finalizing", "completed", "failed", "cancelled"] {
            read.zrange(key(place), 0, -1);
        }
        read.smembers(key("active")).smembers(key("candidates")).hgetall(key("locks"));
        read.hgetall(key("attempt")).hgetall(key("stalledCount")).hkeys(key("cancelling")).hkeys(key("payload"));
        read.hgetall(key("claimed")).hgetall(key("tombstones")).hmget(key("meta"), &["tombstones", "in", "out"]);
        read.hgetall(key("outcome")).hgetall(key("parked")).hget(key("meta"), "grace").hgetall(key("early"));
        for column in COLUMNS.split(' ') {
            read.hkeys(key(column));
        }
        let mut answers = read.query::<Vec<Value>>(&mut self.conn).unwrap().into_iter();
        fn next<T: FromRedisValue>(answers: &mut impl Iterator<Item = Value>) -> T {
            redis::from_redis_value(answers.next().unwrap()).unwrap()
        }
        let answers = &mut answers;
        let mut lists: [Vec<String>; 3] = [next(answers), next(answers), next(answers)];
        lists[0].extend(lanes);
        let (delayed, finalizing) = (next(answers), next(answers));
        let ended = [next(answers), next(answers), next(answers)];
        let (active, candidates, locks) = (next(answers), next(answers), next(answers));
        let (attempt, stalled_count) = (next(answers), next(answers));
        let (cancelling, payload): (_, BTreeSet<String>) = (next(answers), next(answers));
        let claimed = next(answers);
        let (tombstones, totals): (_, [Option<usize>; 3]) = (next(answers), next(answers));
        let totals = totals.map(Option::unwrap_or_default);
        let (outcome, parked, grace) = (next(answers), next(answers), next::<Option<String>>(answers));
        let early = next(answers);
        for column in answers {
            let ids: BTreeSet<String> = redis::from_redis_value(column).unwrap();
            assert!(ids.is_subset(&payload), "{ids:?} have a column and no payload");
        }
        View {
            lists,
            delayed,
            active,
            candidates,
            locks,
            cancelling,
            claimed,
            early,
            ended,
            finalizing,
            outcome,
            payload,
            attempt,
            stalled_count,
            tombstones,
            totals,
            grace: grace.unwrap_or_default(),
            parked,
        }
    }
}
