//! Worker processes, and what they do with a job.

use std::time::Duration;

use heartline::{App, Context, Durability, JobError, Limit, Rate, StallOptions, TaskOptions, TaskRef};
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use crate::limits::log::{Log, Run};
use crate::support::Child;
use crate::support::task::{INTERVAL, TASK, adaptive, built};

/// The input of the jobs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Work {
    /// The key of the job.
    customer: String,
    ms: u64,
    does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
enum Does {
    Nothing,
    /// It waits for [`Log::open`].
    Waits,
    /// Its first run ends the process.
    Dies,
}

/// A job of this key that takes so long, in ms.
pub fn takes(ms: u64, customer: &str) -> Work {
    Work { customer: customer.to_owned(), ms, does: Does::Nothing }
}

/// A job of this key that ends after [`Log::open`].
pub fn waits(customer: &str) -> Work {
    Work { customer: customer.to_owned(), ms: 0, does: Does::Waits }
}

/// A job that ends the first process that runs it.
pub fn dies(customer: &str) -> Work {
    Work { customer: customer.to_owned(), ms: 0, does: Does::Dies }
}

/// The options of a worker process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Plan {
    pub slots: usize,
    /// How many jobs of a key may run at a time.
    pub running: Option<u32>,
    /// How many jobs of a key may start within how many ms.
    pub key_rate: Option<(u32, u64)>,
    /// The same for the whole task.
    pub rate: Option<(u32, u64)>,
    pub partitions: Option<u32>,
    /// How many replicas must have what is acknowledged.
    pub replicas: Option<u32>,
}

impl Plan {
    pub fn options(&self) -> TaskOptions {
        let rate = |(starts, ms)| Rate::new(starts, Duration::from_millis(ms));
        let mut limit = Limit::new();
        if let Some(jobs) = self.running {
            limit = limit.running(jobs);
        }
        if let Some(of_key) = self.key_rate {
            limit = limit.rate(rate(of_key));
        }
        // Kills may meet a job often.
        let stall = StallOptions::new().interval(INTERVAL).max_count(1000);
        let mut options = adaptive().stall(stall).concurrency(self.slots).key("/customer");
        if self.running.is_some() || self.key_rate.is_some() {
            options = options.per_key(limit);
        }
        if let Some(of_task) = self.rate {
            options = options.rate(rate(of_task));
        }
        if let Some(count) = self.partitions {
            options = options.partitions(count);
        }
        if let Some(replicas) = self.replicas {
            let durability = Durability::Replicated { replicas, within: Duration::from_secs(10) };
            options = options.durability(durability).settle_replicated(true);
        }
        options
    }

    /// Declares the task at an App, with the handler of all processes.
    pub fn declare(&self, app: &App, log: &Log) -> TaskRef<Work, u64> {
        let log = log.clone();
        app.task(TASK, self.options(), move |ctx: Context, work: Work| works(ctx, work, log.clone())).unwrap()
    }
}

async fn works(ctx: Context, work: Work, log: Log) -> Result<u64, JobError> {
    let (pid, fence) = (std::process::id(), ctx.fence());
    let run = Run { pid, fence, key: work.customer, id: ctx.id().to_string(), has_ended: false };
    log.begins(&run).await;
    if work.does == Does::Dies && ctx.stalled_count() == 0 {
        std::process::abort();
    }
    while work.does == Does::Waits && !log.is_open(pid, &run.id).await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(Duration::from_millis(work.ms)).await;
    log.ends(&run).await;
    Ok(fence)
}

/// What a child process needs to know.
#[derive(Deserialize, Serialize)]
struct Role {
    url: String,
    prefix: String,
    log: (String, String),
    plan: Plan,
}

/// The program of a child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_limited_jobs() {
    let Some(role) = Child::role() else { return };
    let role: Role = serde_json::from_str(&role).unwrap();
    let log = Log::at(&role.log.0, &role.log.1).await;
    let app = built(&role.url, &role.prefix).await;
    role.plan.declare(&app, &log);
    let _ = app.worker().run_until_signal().await.unwrap();
}

/// Where the processes of a test work: a server, a prefix, and the log of the test.
#[derive(Clone)]
pub struct Site {
    pub url: String,
    pub prefix: String,
    pub log: Log,
}

impl Site {
    pub fn start(&self, plan: &Plan) -> Child {
        let (url, prefix, log) = (self.url.clone(), self.prefix.clone(), self.log.place());
        let role = Role { url, prefix, log, plan: plan.clone() };
        let mut child =
            Child::start(module_path!(), "a_worker_of_limited_jobs", &serde_json::to_string(&role).unwrap());
        child.drain();
        child
    }

    /// Kills a process. It is stopped first: so the log says exactly which of its reports no longer count.
    pub async fn kill(&self, child: Child) {
        child.signal("STOP");
        self.log.is_gone(child.pid()).await;
        drop(child);
    }
}

/// The keys of held jobs whose slots are taken, and how many jobs are held, in one look at a table of the task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The key and the id of each, in the order of the keys.
    pub slots: Vec<(String, String)>,
    pub jobs: Vec<String>,
}

impl Held {
    /// `tag` is the part of the keys of the table up to its braces.
    pub async fn read(conn: &mut MultiplexedConnection, tag: &str) -> Held {
        let script = "return { redis.call('HKEYS', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1) }";
        let keys = [format!("{tag}:locks"), format!("{tag}:laneHeld")];
        let reply = redis::cmd("EVAL").arg(script).arg(2).arg(&keys).query_async(conn).await;
        let (mut jobs, slots): (Vec<String>, Vec<String>) = reply.unwrap();
        jobs.sort_unstable();
        let slots = slots.iter().map(|entry| entry.split_once('\0').unwrap());
        Held { slots: slots.map(|(key, id)| (key.to_owned(), id.to_owned())).collect(), jobs }
    }

    /// Checks that each held job has the slot of its key, no other has one, and no key has more than `most`.
    pub fn is_within(&self, most: usize) {
        let mut ids: Vec<&String> = self.slots.iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, self.jobs.iter().collect::<Vec<_>>(), "{self:?}");
        for (key, _) in &self.slots {
            assert!(self.of(key) <= most, "{key} has more than {most}: {self:?}");
        }
    }

    /// How many slots the key has.
    pub fn of(&self, key: &str) -> usize {
        self.slots.iter().filter(|(own, _)| own == key).count()
    }
}
