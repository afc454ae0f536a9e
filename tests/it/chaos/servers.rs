//! The servers of a run, and what happens to them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use heartline::testing::RedisServer;
use redis::Value;
use tokio::task::block_in_place;

use crate::chaos::outside::Outside;
use crate::chaos::plan::{Kind, Lane, ServerFault};
use crate::chaos::spans::{Book, Hurt, Loses, now_us};
use crate::chaos::worker_process::TASKS;
use crate::cluster::six::Six;
use crate::limits::failovers::leave;
use crate::sentinel::trio::Trio;
use crate::support::sentinel::{SERVICE, ask};
use crate::support::{PATIENCE, eventually, load};

/// How often the test looks which servers are primaries.
const LOOK: Duration = Duration::from_millis(100);

pub enum Servers {
    One(RedisServer),
    Trio(Trio),
    Six(Six),
}

impl Servers {
    pub async fn start(kind: Kind) -> Servers {
        match kind {
            Kind::Server => {
                let start = || RedisServer::builder().persistent().start().unwrap();
                Servers::One(tokio::task::spawn_blocking(start).await.unwrap())
            }
            Kind::Sentinel => {
                let trio = Trio::start().await;
                // Sentinels wait for twice this time before they begin another failover.
                trio.set("failover-timeout", "2000").await;
                Servers::Trio(trio)
            }
            Kind::Cluster => Servers::Six(Six::start().await),
        }
    }

    pub fn url(&self) -> String {
        match self {
            Servers::One(server) => server.url(),
            Servers::Trio(trio) => trio.url(),
            Servers::Six(six) => six.cluster.url(),
        }
    }

    /// Where to ask which servers are primaries.
    pub fn homes(&self) -> Homes {
        match self {
            Servers::One(server) => Homes::One(server.port()),
            Servers::Trio(trio) => Homes::Sentinels {
                sentinels: trio.sentinels.iter().map(|sentinel| sentinel.port).collect(),
                servers: trio.servers.iter().map(RedisServer::port).collect(),
            },
            Servers::Six(six) => Homes::Nodes(six.ports()),
        }
    }

    /// Meets the faults of the lane until the time is over.
    pub async fn live(&mut self, mut lane: Lane, book: &Book, until: Instant) {
        loop {
            let step = lane.of_servers();
            let next = Instant::now() + Duration::from_millis(step.after);
            if next >= until {
                return;
            }
            tokio::time::sleep_until(next.into()).await;
            self.meet(step.fault, book).await;
        }
    }

    async fn meet(&mut self, fault: ServerFault, book: &Book) {
        let loses = match fault {
            ServerFault::Empty => Loses::All,
            ServerFault::KillPrimary(_) | ServerFault::FreezePrimary | ServerFault::FailOver => Loses::Recent,
            _ => Loses::Nothing,
        };
        let open = book.open(format!("{fault:?}"), Hurt::Servers, loses);
        let primaries = self.homes().primaries().await;
        match (fault, &mut *self) {
            (ServerFault::ScriptFlush, _) => each(&primaries, &["SCRIPT", "FLUSH"]).await,
            (ServerFault::ClientKill, _) => drop(load::cut(primaries).await),
            (ServerFault::ClientPause(ms), _) => {
                each(&primaries, &["CLIENT", "PAUSE", &ms.to_string()]).await;
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            (ServerFault::Maxmemory(ms), _) => {
                each(&primaries, &["CONFIG", "SET", "maxmemory", "1"]).await;
                tokio::time::sleep(Duration::from_millis(ms)).await;
                each(&primaries, &["CONFIG", "SET", "maxmemory", "0"]).await;
            }
            (ServerFault::Empty, _) => each(&primaries, &["FLUSHALL"]).await,
            (ServerFault::Restart(ms), Servers::One(server)) => {
                block_in_place(|| server.kill());
                tokio::time::sleep(Duration::from_millis(ms)).await;
                block_in_place(|| server.restart().unwrap());
            }
            (fault, Servers::Trio(trio)) => another_is_promoted(trio, fault).await,
            (ServerFault::KillPrimary(which), Servers::Six(six)) => a_node_dies(six, which).await,
            (fault, _) => panic!("{fault:?} on another engine"),
        }
        book.close(open);
    }
}

async fn each(ports: &[u16], words: &[&str]) {
    for port in ports {
        // A server that is replaced at this moment does not answer.
        let _: Option<String> = ask(*port, words).await;
    }
}

async fn another_is_promoted(trio: &mut Trio, fault: ServerFault) {
    let before = trio.primary().await;
    let at = trio.servers.iter().position(|server| server.port() == before).unwrap();
    match fault {
        ServerFault::KillPrimary(_) => block_in_place(|| trio.servers[at].kill()),
        ServerFault::FreezePrimary => trio.servers[at].freeze().unwrap(),
        _ => trio.fails_over(before).await,
    }
    trio.another_than(before).await;
    match fault {
        ServerFault::KillPrimary(_) => block_in_place(|| trio.servers[at].restart().unwrap()),
        ServerFault::FreezePrimary => trio.servers[at].thaw().unwrap(),
        _ => {}
    }
    leave(before).await;
    // On a slow machine, the sentinels may have promoted a third one. The next fault must not promote a replica that has
    // not caught up.
    eventually("both others follow the primary", PATIENCE * 2, async || {
        let told: String = ask(trio.primary().await, &["INFO", "replication"]).await.unwrap_or_default();
        (told.lines().filter(|line| line.contains(",state=online,")).count() == 2).then_some(())
    })
    .await;
}

async fn a_node_dies(six: &mut Six, which: usize) {
    let (at, before) = six.home_of(TASKS[which % TASKS.len()]).await;
    block_in_place(|| six.cluster.nodes[at].kill());
    six.another_than(before, TASKS[which % TASKS.len()]).await;
    block_in_place(|| six.cluster.nodes[at].restart().unwrap());
    let port = six.cluster.nodes[at].port();
    eventually("the dead node returns as a replica", PATIENCE * 2, async || {
        let told: String = ask(port, &["INFO", "replication"]).await?;
        (told.contains("role:slave") && told.contains("master_link_status:up")).then_some(())
    })
    .await;
}

/// Where to ask which servers are primaries.
#[derive(Clone)]
pub enum Homes {
    One(u16),
    Sentinels { sentinels: Vec<u16>, servers: Vec<u16> },
    Nodes(Vec<u16>),
}

impl Homes {
    /// Whether no server but these is a primary. Sentinels report a promoted server seconds after it stopped following
    /// its primary, which accepts writes until then.
    async fn are_alone(&self, primaries: &[u16]) -> bool {
        let Homes::Sentinels { servers, .. } = self else { return true };
        let roles = servers.iter().map(|port| async {
            let role: Vec<Value> = ask(*port, &["ROLE"]).await?;
            let is_primary = redis::from_redis_value::<String>(role.into_iter().next()?).ok()? == "master";
            is_primary.then_some(*port)
        });
        join_all(roles).await.into_iter().flatten().eq(primaries.iter().copied())
    }

    /// The ports of the primaries, in order, as most of those that answer say.
    pub async fn primaries(&self) -> Vec<u16> {
        let mut votes: BTreeMap<Vec<u16>, usize> = BTreeMap::new();
        match self {
            Homes::One(port) => return vec![*port],
            Homes::Sentinels { sentinels, .. } => {
                for port in sentinels {
                    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
                    let at: Option<(String, u16)> = ask(*port, &words).await;
                    at.into_iter().for_each(|(_, port)| *votes.entry(vec![port]).or_default() += 1);
                }
            }
            Homes::Nodes(nodes) => {
                for port in nodes {
                    let rows: Option<Vec<Vec<Value>>> = ask(*port, &["CLUSTER", "SLOTS"]).await;
                    let first = |row: Vec<Value>| match row.into_iter().nth(2) {
                        Some(Value::Array(node)) => redis::from_redis_value(node.into_iter().nth(1)?).ok(),
                        _ => None,
                    };
                    let mut ports: Vec<u16> = rows.into_iter().flatten().filter_map(first).collect();
                    ports.sort_unstable();
                    ports.dedup();
                    *votes.entry(ports).or_default() += 1;
                }
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(ports, _)| ports).unwrap_or_default()
    }

    /// Says which servers are the primaries, and records each change: on a machine that stood still, replicas may be
    /// promoted without a fault of the test.
    pub async fn follow(self, outside: Outside, book: Book) {
        let (mut before, mut alone_us, mut open) = (Vec::new(), now_us(), None);
        loop {
            let begun_us = now_us();
            let now = self.primaries().await;
            if now != before && !now.is_empty() {
                outside.set_homes(&now).await;
                if !before.is_empty() {
                    let begin = || book.open_since(alone_us, "another primary", Hurt::Servers, Loses::Recent);
                    open.get_or_insert_with(begin);
                }
                before = now;
            }
            if self.are_alone(&before).await {
                open.take().into_iter().for_each(|open| book.close(open));
                alone_us = begun_us;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
