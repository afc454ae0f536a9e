//! A task on a private server, used without a worker, that counts the cost of each call.

// Failures of helpers are failures of the test; the attribute also tells clippy so.
#![cfg(test)]

use crate::scripts::call::{LAST_FENCE, Task};
use crate::support::TestRedis;
use redis::aio::MultiplexedConnection;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// As long as the ids of workers.
pub const WORKER: &str = "bench-host-4242-0a1b2c3d";
/// How long each job runs, us.
pub const RAN: &str = "153";
/// The interval that the worker asks for, ms.
const ASK: &str = "1000";

/// A job that the worker holds: id and fence.
type Held = (String, String);

pub struct Meter {
    pub task: Task,
    /// The jobs that the worker holds, the oldest first.
    pub held: VecDeque<Held>,
    /// The cost of the last call: how many commands, and which.
    pub cost: String,
    dispatched: usize,
    calls: usize,
    last_settle: Vec<String>,
}

/// Every command since CONFIG RESETSTAT, including those of scripts, without the commands that read these numbers.
pub async fn commands(conn: &mut MultiplexedConnection) -> BTreeMap<String, u64> {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(conn).await.unwrap();
    let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    let counts = lines.map(|(name, stats)| (name.to_owned(), stats.split(',').next().unwrap().parse().unwrap()));
    // A subcommand has its own line since Redis 7.
    counts.filter(|(name, _)| !["config", "config|resetstat", "info"].contains(&name.as_str())).collect()
}

impl Meter {
    /// A task as a worker declares it: it keeps its terminal jobs (`keep` is "1") or none of them ("0").
    pub async fn new(keep: &str) -> Meter {
        let task = Task::on(Arc::new(TestRedis::start()), "").await;
        let held = VecDeque::new();
        let mut meter = Meter { task, held, cost: String::new(), dispatched: 0, calls: 0, last_settle: Vec::new() };
        meter.task.hset("meta", &[("fence", &LAST_FENCE.to_string())]).await;
        let mut args =
            vec!["1", "", WORKER, "maxCount", "1", "heartbeat", "automatic", "eventMode", "on", "priority", "normal"];
        args.extend(["keepCompleted", keep, "maxAgeCompleted", "86400000", "maxCountCompleted", "100000"]);
        args.extend(["keepFailed", keep, "maxAgeFailed", "2592000000", "maxCountFailed", ""]);
        args.extend(["keepCancelled", keep, "maxAgeCancelled", "2592000000", "maxCountCancelled", ""]);
        meter.call("declare", &args).await;
        meter
    }

    /// Calls a script and counts the commands of the server.
    pub async fn call(&mut self, name: &str, args: &[&str]) -> String {
        // A worker has taken the marker, so that each call that wakes one writes it again.
        self.task.del("wake").await;
        let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut self.task.conn).await.unwrap();
        let reply = self.task.ok(name, args).await;
        self.cost = self.spent().await;
        reply
    }

    /// The commands of the script since CONFIG RESETSTAT.
    async fn spent(&mut self) -> String {
        let mut spent = commands(&mut self.task.conn).await;
        assert_eq!(spent.remove("eval"), Some(1), "one call is measured, without other clients");
        let total: u64 = spent.values().sum();
        let spent: Vec<String> = spent.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("{total}: {}", spent.join(", "))
    }

    /// Dispatches plain jobs in one call, with payloads of 64 bytes and ids as long as generated ones.
    pub async fn dispatch(&mut self, n: usize) {
        self.dispatch_with(n, &[]).await;
    }

    /// The same for jobs with a column of their own: column and value.
    pub async fn dispatch_with(&mut self, n: usize, own: &[(&str, &str)]) {
        let mut args = vec!["1".to_owned(), "1".to_owned(), n.to_string()];
        for _ in 0..n {
            self.dispatched += 1;
            args.extend([self.last_id(), format!("\"{}\"", "x".repeat(62))]);
        }
        for job in 1..=n {
            args.extend(
                own.iter().flat_map(|(column, value)| [column.to_string(), job.to_string(), value.to_string()]),
            );
        }
        assert_eq!(self.call_with("dispatch", &args).await, "dispatched");
    }

    /// The id of the last dispatched job.
    pub fn last_id(&self) -> String {
        format!("job{:019}", self.dispatched)
    }

    async fn call_with(&mut self, name: &str, args: &[String]) -> String {
        self.call(name, &args.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// Dispatches jobs and claims them.
    pub async fn run(&mut self, n: usize) {
        for first in (0..n).step_by(500) {
            self.dispatch(500.min(n - first)).await;
        }
        while self.held.len() < n {
            assert!(self.settle(0, None, 200.min(n)).await > 0);
        }
    }

    /// Settles: completes the `n` oldest jobs, each with the value if there is one, and claims. Returns the number of
    /// claimed jobs.
    pub async fn settle(&mut self, n: usize, value: Option<&str>, want: usize) -> usize {
        let done: Vec<Held> = self.held.drain(..n).collect();
        let mut rest: Vec<String> = done.iter().map(|(id, _)| id.clone()).collect();
        rest.extend(done.iter().map(|(_, fence)| fence.clone()));
        for at in 1..=n {
            rest.extend(value.iter().flat_map(|value| [at.to_string(), value.to_string()]));
        }
        let ran = format!(" {RAN}").repeat(n);
        self.settle_with(want, format!("{n}{ran}"), if value.is_some() { n } else { 0 }, rest).await
    }

    /// Settles: reports the same for the `n` oldest jobs, none of which completed (kind, attempt, detail, error), and
    /// claims.
    pub async fn settle_other(&mut self, n: usize, said: [&str; 4], want: usize) -> usize {
        let mut rest = Vec::new();
        for (id, fence) in self.held.drain(..n) {
            rest.extend([id, fence]);
            rest.extend(said.map(str::to_owned));
        }
        self.settle_with(want, "0".to_owned(), 0, rest).await
    }

    async fn settle_with(&mut self, want: usize, completed: String, r: usize, rest: Vec<String>) -> usize {
        self.calls += 1;
        let mut args = vec![self.calls.to_string(), WORKER.to_owned(), ASK.to_owned()];
        args.extend([want.to_string(), completed, r.to_string()]);
        args.extend(rest);
        let reply = self.call_with("settle", &args).await;
        self.last_settle = args;
        let words: Vec<&str> = reply.split(' ').collect();
        assert_eq!(words[..3], ["[settled", "''", "''"], "no job was lost and none cancelled");
        let first: u64 = words[3].parse().unwrap();
        let ids = words[4..].iter().take_while(|word| !word.starts_with('[') && **word != "''");
        let before = self.held.len();
        self.held.extend(ids.zip(first..).map(|(id, fence)| (id.to_string(), fence.to_string())));
        self.held.len() - before
    }

    /// Repeats the last settle, as a worker without a reply does.
    pub async fn settle_again(&mut self) -> String {
        let args = self.last_settle.clone();
        self.call_with("settle", &args).await
    }

    /// Sends a heartbeat for the `n` oldest jobs.
    pub async fn beat(&mut self, n: usize) {
        let mut args = vec![WORKER.to_owned(), ASK.to_owned(), n.to_string(), "0".to_owned()];
        args.extend(self.held.iter().take(n).map(|(id, _)| id.clone()));
        args.extend(self.held.iter().take(n).map(|(_, fence)| fence.clone()));
        let reply = self.call_with("extend_locks", &args).await;
        assert!(reply.starts_with("[beaten ") && reply.contains(" [] [] 1"), "{reply}");
    }

    /// Sweeps as a witness that has watched for an interval. Returns how many jobs were resolved.
    pub async fn sweep(&mut self) -> usize {
        let epoch = self.task.epoch().await.to_string();
        let reply = self.call("sweep", &["witness", ASK, &epoch, ASK, "0", "200", "auto", ""]).await;
        assert!(reply.starts_with("[swept "), "{reply}");
        reply.matches(WORKER).count()
    }

    /// A query about one key of the task.
    pub async fn ask(&mut self, command: &[&str], key: &str, args: &[&str]) -> u64 {
        let mut cmd = redis::cmd(command[0]);
        cmd.arg(&command[1..]).arg(self.task.key(key)).arg(args);
        cmd.query_async(&mut self.task.conn).await.unwrap()
    }

    /// Bytes of one key, all its elements counted.
    pub async fn memory(&mut self, key: &str) -> f64 {
        self.ask(&["MEMORY", "USAGE"], key, &["SAMPLES", "0"]).await as f64
    }

    /// The keys of the task, sorted. The server is private and small.
    pub async fn keys(&mut self) -> Vec<String> {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut self.task.conn).await.unwrap();
        let mut keys: Vec<String> =
            keys.iter().map(|key| key.strip_prefix(&self.task.prefix).unwrap().to_owned()).collect();
        keys.sort();
        keys
    }

    /// The type of a key.
    pub async fn kind(&mut self, key: &str) -> String {
        redis::cmd("TYPE").arg(self.task.key(key)).query_async(&mut self.task.conn).await.unwrap()
    }
}
