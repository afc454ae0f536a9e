//! Large texts, and reads of what each call to Redis did.

use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use redis::{AsyncCommands, AsyncConnectionConfig, InfoDict};

use crate::support::task::TestTask;
use crate::support::{PATIENCE, TestRedis, eventually};

pub const KIB: usize = 1024;
pub const MIB: usize = 1024 * KIB;

/// A text that takes this many bytes as JSON.
pub fn text(bytes: usize) -> String {
    "x".repeat(bytes - 2)
}

/// No job is held, and none waits.
pub async fn nothing_is_left(test: &TestTask) {
    let (_app, task) = test.producer().await;
    let counts = task.counts().await.unwrap();
    assert_eq!([counts.waiting, counts.delayed, counts.running], [0; 3], "{counts:?}");
}

/// Reads a task repeatedly over one connection: next to large values a new one may be late.
pub struct Watch {
    pub conn: MultiplexedConnection,
    test: TestTask,
}

impl Watch {
    pub async fn new(test: &TestTask, redis: &TestRedis) -> Watch {
        let config = AsyncConnectionConfig::new();
        let config = config.set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let client = redis::Client::open(redis.url()).unwrap();
        let conn = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        Watch { conn, test: test.clone() }
    }

    /// The fields of one kind of event, call by call: one entry of the stream belongs to one call. With the time of
    /// the call in milliseconds of the server clock.
    pub async fn told_at(&self, kind: &str) -> Vec<(u64, Vec<String>)> {
        let reply: StreamRangeReply = self.conn.clone().xrange_all(self.test.key("events")).await.unwrap();
        let told = reply.ids.iter().filter_map(|entry| {
            let words: String = entry.get(kind)?;
            let (ms, _) = entry.id.split_once('-').unwrap();
            Some((ms.parse().unwrap(), words.split(' ').map(str::to_owned).collect()))
        });
        told.collect()
    }

    /// The same without the times.
    pub async fn told(&self, kind: &str) -> Vec<Vec<String>> {
        self.told_at(kind).await.into_iter().map(|(_, words)| words).collect()
    }

    async fn stat(&self, name: &str) -> u64 {
        let info: InfoDict = redis::cmd("INFO").arg("stats").query_async(&mut self.conn.clone()).await.unwrap();
        info.get(name).unwrap()
    }

    /// The bytes that the server has sent so far.
    pub async fn sent(&self) -> u64 {
        self.stat("total_net_output_bytes").await
    }

    /// The bytes that the server has received so far.
    pub async fn received(&self) -> u64 {
        self.stat("total_net_input_bytes").await
    }

    pub async fn epoch(&self) -> u64 {
        let epoch: Option<u64> = self.conn.clone().hget(self.test.key("meta"), "epoch").await.unwrap();
        epoch.unwrap_or(0)
    }

    /// Waits until the epoch has advanced by `count`: a worker watched as many intervals, and swept.
    pub async fn epochs_pass(&self, count: u64) {
        let end = self.epoch().await + count;
        eventually("epochs pass", PATIENCE, async || self.epoch().await >= end).await;
    }

    /// The number of sweeps that found stalled jobs.
    pub async fn stalls(&self) -> usize {
        self.conn.clone().xlen(self.test.key("stalls")).await.unwrap()
    }
}
