//! What the tests of this crate and of `crash.rs` stand on: a prefix of their own, workers that are stopped, workers
//! that only pretend, and looks at the keys.

// Failures of helpers are failures of the test; the attribute also tells clippy so.
#![cfg(test)]

use crate::support::{PATIENCE, TestRedis, eventually};
use heartline::testing::scripts;
use heartline::{App, StallOptions, StopReason, Subscription, TaskOptions, Worker};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue, RedisResult, Script, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The task of most tests.
pub const TASK: &str = "work";

/// The shortest interval there is, and no waiting for handlers at the end of a test.
pub fn fast() -> TaskOptions {
    TaskOptions::new()
        .stall(StallOptions::new().interval(Duration::from_secs(1)))
        .shutdown_grace(Duration::ZERO)
        .cancel_grace(Duration::from_millis(200))
}

/// The same for a task with its own settings of stalls.
pub fn fast_with(stall: StallOptions) -> TaskOptions {
    fast().stall(stall.interval(Duration::from_secs(1)))
}

/// One prefix on the shared server.
pub struct Fixture {
    pub redis: Arc<TestRedis>,
    pub prefix: String,
    pub conn: MultiplexedConnection,
}

impl Fixture {
    pub async fn new() -> Fixture {
        let redis = TestRedis::shared();
        let (prefix, conn) = (redis.unique_prefix(), redis.conn().await);
        Fixture { redis, prefix, conn }
    }

    /// An App of its own on the prefix: what one process would have.
    pub async fn app(&self) -> App {
        App::builder().redis(self.redis.url()).prefix(&self.prefix).build().await.unwrap()
    }

    pub fn key(&self, suffix: &str) -> String {
        format!("{}:{{{TASK}}}:{suffix}", self.prefix)
    }

    pub async fn run<T: FromRedisValue>(&self, command: &str, suffix: &str, args: &[&str]) -> T {
        let mut cmd = redis::cmd(command);
        cmd.arg(self.key(suffix)).arg(args);
        cmd.query_async(&mut self.conn.clone()).await.unwrap()
    }

    /// A field of a column.
    pub async fn column(&self, name: &str, id: &str) -> Option<String> {
        self.conn.clone().hget(self.key(name), id).await.unwrap()
    }

    pub async fn epoch(&self) -> u64 {
        self.column("meta", "epoch").await.map_or(0, |epoch| epoch.parse().unwrap())
    }

    /// Waits until so many more epochs have begun.
    pub async fn epochs_pass(&self, count: u64) {
        let end = self.epoch().await + count;
        eventually("the epochs pass", PATIENCE, async || self.epoch().await >= end).await;
    }

    /// Waits until the job is a candidate.
    pub async fn becomes_candidate(&self, id: &str) {
        eventually("the job is a candidate", PATIENCE, async || {
            self.run::<bool>("SISMEMBER", "candidates", &[id]).await
        })
        .await;
    }

    /// Every place of the keyspace that holds the job; more or less than one is a bug, unless the job never was.
    pub async fn places(&self, id: &str) -> Vec<String> {
        let mut conn = self.conn.clone();
        let mut places = Vec::new();
        for list in ["wait:high", "wait", "wait:low"] {
            let ids: Vec<String> = conn.lrange(self.key(list), 0, -1).await.unwrap();
            places.extend(ids.iter().filter(|other| *other == id).map(|_| list.to_owned()));
        }
        for zset in ["delayed", "completed", "failed", "cancelled"] {
            let score: Option<f64> = conn.zscore(self.key(zset), id).await.unwrap();
            places.extend(score.map(|_| zset.to_owned()));
        }
        if conn.hexists(self.key("locks"), id).await.unwrap() {
            places.push("running".to_owned());
        }
        places
    }

    /// Waits until the job is in this place, then checks that it is in no other.
    pub async fn arrives(&self, id: &str, place: &str) {
        let what = format!("{id} is in {place}");
        eventually(&what, PATIENCE, async || self.places(id).await.contains(&place.to_owned())).await;
        assert_eq!(self.places(id).await, [place], "{id}");
    }

    /// The ids of each entry of `stalls` with their actions, entry by entry.
    pub async fn stalls(&self) -> Vec<Vec<(String, String)>> {
        let reply: redis::streams::StreamRangeReply = self.conn.clone().xrange_all(self.key("stalls")).await.unwrap();
        let entries = reply.ids.iter().map(|entry| {
            let words: String = entry.get("stalled").unwrap();
            let words: Vec<&str> = words.split(' ').collect();
            words.chunks(4).map(|four| (four[0].to_owned(), four[2].to_owned())).collect()
        });
        entries.collect()
    }

    /// A worker that obeys the protocol only as far as the test says. Left alone it is a dead one: it holds its jobs
    /// and does not beat.
    pub fn puppet(&self) -> Puppet {
        let name = format!("puppet-{}", self.redis.unique_prefix());
        Puppet { keys: self.key(""), conn: self.conn.clone(), name, call: 0 }
    }
}

/// A worker of the App that runs in this process and must be stopped.
pub struct Running {
    pub id: String,
    stop: oneshot::Sender<()>,
    joined: JoinHandle<heartline::Result<StopReason>>,
}

pub fn start(worker: Worker) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let id = worker.id().to_string();
    let joined = tokio::spawn(worker.run_until(async move {
        let _ = stopped.await;
    }));
    Running { id, stop, joined }
}

impl Running {
    /// Stops it, and checks that nothing was left behind.
    pub async fn stop(self) {
        drop(self.stop);
        let reason = tokio::time::timeout(PATIENCE, self.joined).await.expect("the worker stops").unwrap().unwrap();
        assert_eq!(reason, StopReason::Shutdown);
    }
}

/// The next event; a subscription that lags fails the test.
pub async fn next<T: Clone + Send + 'static>(events: &mut Subscription<T>) -> T {
    tokio::time::timeout(PATIENCE, events.recv()).await.expect("an event comes").expect("no event was missed")
}

/// A job that a puppet holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub fence: u64,
}

/// What a puppet says of a job: kind, attempt, code or delay in ms, error.
pub type Said<'a> = (&'a Token, &'a str, u32, &'a str, &'a str);

/// See [`Fixture::puppet`].
pub struct Puppet {
    keys: String,
    conn: MultiplexedConnection,
    pub name: String,
    call: u64,
}

/// What settle told a puppet.
#[derive(Debug)]
pub struct Settled {
    pub lost: Vec<u64>,
    pub cancelled: Vec<u64>,
    pub claimed: Vec<Token>,
}

/// What sweep told a puppet: the ids that it resolved.
#[derive(Debug)]
pub struct Swept {
    pub epoch: u64,
    pub cursor: String,
    pub snapshot: bool,
    pub ids: Vec<String>,
}

impl Puppet {
    async fn call<T: FromRedisValue>(&mut self, name: &str, args: &[String]) -> RedisResult<T> {
        // As if a worker had started before.
        let meta = format!("{}meta", self.keys);
        let () = redis::cmd("HSETNX").arg(meta).arg("declaredAt").arg(1).query_async(&mut self.conn).await?;
        let script = scripts().into_iter().find(|script| script.name == name).unwrap();
        let call = Script::new(script.source);
        let mut call = call.prepare_invoke();
        for key in &script.keys {
            call.key(format!("{}{key}", self.keys));
        }
        args.iter().for_each(|arg| {
            call.arg(arg);
        });
        call.invoke_async(&mut self.conn).await
    }

    /// One settle: completed jobs, other outcomes, and how many to claim.
    pub async fn settle(&mut self, completed: &[Token], said: &[Said<'_>], want: usize) -> Settled {
        self.call += 1;
        let mut args = [self.call.to_string(), self.name.clone(), "1000".into(), want.to_string()].to_vec();
        args.extend([completed.len().to_string(), "0".into()]);
        args.extend(completed.iter().map(|token| token.id.clone()));
        args.extend(completed.iter().map(|token| token.fence.to_string()));
        for (token, kind, attempt, detail, error) in said {
            args.extend([token.id.clone(), token.fence.to_string(), (*kind).into(), attempt.to_string()]);
            args.extend([(*detail).to_owned(), (*error).to_owned()]);
        }
        type Reply = (String, String, String, u64, String, Value, Value, Value);
        let (word, lost, cancelled, fence, ids, _, _, _): Reply = self.call("settle", &args).await.unwrap();
        assert_eq!(word, "settled");
        let claimed = ids.split_whitespace().map(str::to_owned).zip(fence..).map(|(id, fence)| Token { id, fence });
        let fences = |words: String| words.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let (lost, cancelled, claimed) = (fences(lost), fences(cancelled), claimed.collect());
        Settled { lost, cancelled, claimed }
    }

    pub async fn claim(&mut self, want: usize) -> Vec<Token> {
        self.settle(&[], &[], want).await.claimed
    }

    /// Claims exactly these jobs, which must be what waits.
    pub async fn claim_all(&mut self, ids: &[&str]) -> Vec<Token> {
        let tokens = self.claim(ids.len()).await;
        assert_eq!(tokens.iter().map(|token| token.id.as_str()).collect::<Vec<_>>(), ids);
        tokens
    }

    /// One beat. Returns the fences that were lost.
    pub async fn beat(&mut self, tokens: &[Token]) -> Vec<u64> {
        let mut args = [self.name.clone(), "1000".into(), tokens.len().to_string(), "0".into()].to_vec();
        args.extend(tokens.iter().map(|token| token.id.clone()));
        args.extend(tokens.iter().map(|token| token.fence.to_string()));
        type Reply = (String, u64, u64, Vec<u64>, Value, Value, Value, Value);
        let (_, _, _, lost, _, _, _, _): Reply = self.call("extend_locks", &args).await.unwrap();
        lost
    }

    /// One call of sweep, as a witness that has watched `epoch` for a second. `None`: the epoch is another one.
    pub async fn sweep(&mut self, epoch: u64, cursor: &str, limit: usize) -> Option<Swept> {
        let args =
            [self.name.clone(), "1000".into(), epoch.to_string(), "1000".into(), cursor.into(), limit.to_string()];
        let reply: Vec<Value> = self.call("sweep", &args).await.unwrap();
        let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap();
        match text(0).as_str() {
            "moved" => None,
            "swept" => {
                let words: Vec<String> = redis::from_redis_value_ref(&reply[6]).unwrap();
                let ids = words.chunks(5).map(|five| five[0].clone()).collect();
                Some(Swept { epoch: text(1).parse().unwrap(), cursor: text(3), snapshot: text(4) == "1", ids })
            }
            other => panic!("sweep answered {other}"),
        }
    }
}
