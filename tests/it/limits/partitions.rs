//! Keys of a task with a partition on each node of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use heartline::{App, TaskRef};

use crate::cluster::six::{Six, ask};
use crate::limits::children::{Held, Plan, Site, Work, takes};
use crate::limits::log::Log;
use crate::support::task::{TASK, built};
use crate::support::{PATIENCE, TestRedis, eventually, is_thorough};

/// A key with many jobs, and keys with fewer.
const LARGE: usize = 60;
const SMALL: usize = 20;
const SMALL_KEYS: usize = 12;

fn plan() -> Plan {
    Plan { slots: 1, running: Some(1), partitions: Some(3), ..Plan::default() }
}

/// The keys of each partition, with its port and the part of its Redis keys up to the braces.
struct Part {
    port: u16,
    tag: String,
    keys: BTreeSet<String>,
}

/// Reads the partitions while all jobs wait.
async fn parts(six: &Six) -> Vec<Part> {
    let mut parts = Vec::new();
    for port in &six.ports()[..3] {
        for name in ask::<Vec<String>>(*port, &["KEYS", "*:laneOf"]).await.unwrap() {
            let keys: BTreeMap<String, String> = ask(*port, &["HGETALL", name.as_str()]).await.unwrap();
            let tag = name.trim_end_matches(":laneOf").to_owned();
            parts.push(Part { port: *port, tag, keys: keys.into_values().collect() });
        }
    }
    parts
}

async fn are_within_the_limit(parts: &[Part]) {
    for part in parts {
        let mut conn = TestRedis::conn_to(&format!("redis://127.0.0.1:{}", part.port)).await;
        Held::read(&mut conn, &part.tag).await.is_within(1);
    }
}

/// While each key has waiting jobs, those of a partition start equally many in one worker with one slot.
async fn keys_take_turns(parts: &[Part], log: &Log) {
    let starts = async || {
        let runs = log.runs().await;
        let of = |key: &String| runs.iter().filter(|run| run.key == *key).count();
        let of_part = |part: &Part| part.keys.iter().map(|key| (key.clone(), of(key))).collect();
        parts.iter().map(of_part).collect::<Vec<BTreeMap<String, usize>>>()
    };
    let enough = async || {
        let starts = starts().await;
        starts.iter().all(|part| part.values().all(|count| *count >= 3)).then_some(starts)
    };
    for part in eventually("each key has started jobs", PATIENCE, enough).await {
        let (least, most) = (part.values().min().unwrap(), part.values().max().unwrap());
        assert!(*most == SMALL || most - least <= 1, "{part:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_a_task_on_three_nodes_keeps_its_limit_over_kills() {
    let (log, six) = (Log::new().await, Six::start().await);
    let site = Site { url: six.cluster.url(), prefix: "heartline".to_owned(), log: log.clone() };
    let app = built(&site.url, &site.prefix).await;
    let task: TaskRef<Work, u64> = plan().declare(&app, &log);
    let small = (0..SMALL * SMALL_KEYS).map(|at| takes(3, &format!("small-{}", at % SMALL_KEYS)));
    let jobs = (0..LARGE).map(|_| takes(3, "large")).chain(small);
    let count = task.dispatch_many(jobs).await.unwrap().len() as u64;
    let parts = parts(&six).await;
    let keys: usize = parts.iter().map(|part| part.keys.len()).sum();
    assert_eq!((parts.len(), keys), (3, SMALL_KEYS + 1), "each key is in one partition");

    let mut workers = vec![site.start(&plan())];
    keys_take_turns(&parts, &log).await;
    workers.extend([site.start(&plan()), site.start(&plan())]);
    let before = task.counts().await.unwrap().completed;
    let kills = if is_thorough() { 40 } else { 5 };
    for round in 1..=kills {
        let enough = before + (count - before) * round / (kills + 1);
        eventually("jobs continue", PATIENCE, async || {
            are_within_the_limit(&parts).await;
            task.counts().await.unwrap().completed >= enough
        })
        .await;
        site.kill(workers.remove(0)).await;
        workers.push(site.start(&plan()));
    }
    eventually("all is done", PATIENCE, async || task.counts().await.unwrap().completed == count).await;
    let counts = task.counts().await.unwrap();
    assert_eq!((counts.failed, counts.pending_total()), (0, 0), "{counts:?}");
    let most = log.most_at_a_time().await;
    assert!(most.len() == keys && most.values().all(|most| *most == 1), "{most:?}");
    are_empty(&app, &parts).await;
}

/// No slot is taken, and some kills met running jobs.
async fn are_empty(app: &App, parts: &[Part]) {
    for part in parts {
        let mut conn = TestRedis::conn_to(&format!("redis://127.0.0.1:{}", part.port)).await;
        assert_eq!(Held::read(&mut conn, &part.tag).await, Held::default());
    }
    let stalls = app.inspector().stalls(TASK, None).await.unwrap().stalls;
    println!("{} stalls", stalls.len());
    assert!(!stalls.is_empty(), "the kills hit no running job");
}
