//! The store outside the queue: a server that no fault reaches, with what the handlers did, in one order.

use std::time::Duration;

use heartline::Context;
use heartline::testing::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue, Script};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::chaos::plan::Plan;
use crate::support::TestRedis;

/// The list of all lines: time (us), word, JSON.
const LOG: &str = "log";

/// The servers that the workers must reach, as ports.
const HOMES: &str = "homes";

/// KEYS: log. ARGV: word, JSON.
const SAY: &str = r"
local time = redis.call('TIME')
redis.call('RPUSH', KEYS[1], string.format('%d%06d %s %s', time[1], time[2], ARGV[1], ARGV[2]))
";

/// A run begins: from now on, effects of runs of the same job with a lower fence are refused.
/// KEYS: log, newest fences, last begin. ARGV: word, JSON, job, fence.
const BEGIN: &str = r"
if tonumber(redis.call('HGET', KEYS[2], ARGV[3]) or 0) < tonumber(ARGV[4]) then
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
end
redis.call('INCR', KEYS[3])
";

/// The effect of a run: accepted once under each fence, and refused after a newer one. A repeated call has the same nonce.
/// KEYS: log, newest fences, effects. ARGV: -, JSON, job, fence, nonce.
const EFFECT: &str = r"
local own, word = ARGV[3] .. ' ' .. ARGV[4], 'accepted'
local before = redis.call('HGET', KEYS[3], own)
if before == ARGV[5] then return end
if before then
  word = 'again'
elseif tonumber(redis.call('HGET', KEYS[2], ARGV[3]) or 0) > tonumber(ARGV[4]) then
  word = 'refused'
else
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
  redis.call('HSET', KEYS[3], own, ARGV[5])
end
ARGV[1] = word
";

/// A run of a handler or a hook. The fence is the time of its claim, us of the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    pub task: String,
    /// The job; for a hook with `hook:` before it.
    pub id: String,
    pub fence: u64,
    pub pid: u32,
    pub key: String,
}

impl Run {
    pub fn of(ctx: &Context, id: String, key: &str) -> Run {
        let (task, pid) = (ctx.task().to_owned(), std::process::id());
        Run { task, id, fence: ctx.fence(), pid, key: key.to_owned() }
    }

    fn job(&self) -> String {
        format!("{}/{}", self.task, self.id)
    }
}

/// A checkpoint that Redis has, or that a run began with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: String,
    pub fence: u64,
    pub step: u32,
}

/// A worker process that starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    pub pid: u32,
    pub worker: String,
    pub plan: Plan,
}

/// A time in which a process reached Redis over new connections all the time, and how long the slowest took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reach {
    pub pid: u32,
    pub from_us: u64,
    pub to_us: u64,
    pub slowest_us: u64,
}

/// The watch of a process over a task broke: what broke it since the start, and how often.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Broke {
    pub pid: u32,
    pub task: String,
    pub causes: Vec<String>,
}

#[derive(Clone, Debug)]
pub enum Line {
    Began(Run),
    /// The effect of the run was accepted: it has ended.
    Accepted(Run),
    /// It was accepted under this fence before.
    Again(Run),
    Refused(Run),
    /// The run has ended without an effect.
    Ended(Run),
    Stored(Checkpoint),
    Seen(Checkpoint),
    Started(Started),
    Reach(Reach),
    Broke(Broke),
}

impl Line {
    fn parse(text: &str) -> (u64, Line) {
        let mut words = text.splitn(3, ' ');
        let (at, word, body) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let line = match word {
            "began" => Line::Began(read(body)),
            "accepted" => Line::Accepted(read(body)),
            "again" => Line::Again(read(body)),
            "refused" => Line::Refused(read(body)),
            "ended" => Line::Ended(read(body)),
            "stored" => Line::Stored(read(body)),
            "seen" => Line::Seen(read(body)),
            "started" => Line::Started(read(body)),
            "reach" => Line::Reach(read(body)),
            "broke" => Line::Broke(read(body)),
            _ => panic!("{text}"),
        };
        (at.parse().unwrap(), line)
    }
}

fn read<T: DeserializeOwned>(body: &str) -> T {
    serde_json::from_str(body).unwrap()
}

/// The server of a run.
pub struct Store(RedisServer);

impl Store {
    pub fn start() -> Store {
        Store(RedisServer::start().unwrap())
    }

    pub fn url(&self) -> String {
        self.0.url()
    }
}

/// A connection to the store.
#[derive(Clone)]
pub struct Outside {
    conn: MultiplexedConnection,
}

impl Outside {
    pub async fn at(url: &str) -> Outside {
        Outside { conn: TestRedis::conn_to(url).await }
    }

    /// A process that was frozen may find that its call has timed out meanwhile.
    async fn call<T: FromRedisValue>(&self, script: &str, keys: &[&str], args: &[String]) -> T {
        let script = Script::new(script);
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for arg in args {
            call.arg(arg);
        }
        loop {
            match call.invoke_async(&mut self.conn.clone()).await {
                Ok(reply) => return reply,
                Err(e) if e.is_timeout() => {}
                Err(e) => panic!("the store outside fails: {e}"),
            }
        }
    }

    pub async fn say(&self, word: &str, body: &impl Serialize) {
        let body = serde_json::to_string(body).unwrap();
        let () = self.call(SAY, &[LOG], &[word.to_owned(), body]).await;
    }

    pub async fn begins(&self, run: &Run) {
        let (script, last) = (format!("{BEGIN}{SAY}"), last_begin(run.pid, &run.task));
        let args = ["began".to_owned(), serde_json::to_string(run).unwrap(), run.job(), run.fence.to_string()];
        let () = self.call(&script, &[LOG, "newest", &last], &args).await;
    }

    pub async fn has_effect(&self, run: &Run) {
        let (script, nonce) = (format!("{EFFECT}{SAY}"), fastrand::u64(..).to_string());
        let args = [String::new(), serde_json::to_string(run).unwrap(), run.job(), run.fence.to_string(), nonce];
        let () = self.call(&script, &[LOG, "newest", "effects"], &args).await;
    }

    /// How many runs of the task this process has begun.
    pub async fn begun(&self, pid: u32, task: &str) -> u64 {
        let count: Option<u64> = self.conn.clone().get(last_begin(pid, task)).await.unwrap();
        count.unwrap_or(0)
    }

    /// Says which servers the workers must reach.
    pub async fn set_homes(&self, ports: &[u16]) {
        let () = self.conn.clone().set(HOMES, serde_json::to_string(ports).unwrap()).await.unwrap();
    }

    /// All lines, with the time of each, us.
    pub async fn lines(&self) -> Vec<(u64, Line)> {
        let lines: Vec<String> = self.conn.clone().lrange(LOG, 0, -1).await.unwrap();
        lines.iter().map(|line| Line::parse(line)).collect()
    }
}

fn last_begin(pid: u32, task: &str) -> String {
    format!("begun:{pid}:{task}")
}

/// The connection of the gauge, which has a thread of its own.
pub struct Blocking(redis::Connection);

impl Blocking {
    pub fn at(url: &str) -> Blocking {
        let conn = redis::Client::open(url).unwrap().get_connection().unwrap();
        conn.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Blocking(conn)
    }

    pub fn homes(&mut self) -> Vec<u16> {
        let ports: Option<String> = redis::Commands::get(&mut self.0, HOMES).unwrap();
        ports.map(|ports| read(&ports)).unwrap_or_default()
    }

    pub fn say(&mut self, word: &str, body: &impl Serialize) {
        let body = serde_json::to_string(body).unwrap();
        let () = Script::new(SAY).key(LOG).arg(word).arg(body).invoke(&mut self.0).unwrap();
    }
}
