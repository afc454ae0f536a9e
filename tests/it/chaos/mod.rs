//! Worker processes, producers and servers that fail all the time, and an account of everything at the end.
//!
//! The faults follow from a seed. `HEARTLINE_CHAOS_SEED` sets it, and `HEARTLINE_CHAOS_SECONDS` how long a run takes
//! without start and account, over all engines; `make chaos` sets both. [The page on reliability](../../../docs/reliability.md)
//! says what the line of JSON means.

mod account;
mod crew;
mod gauge;
mod load;
mod outside;
mod plan;
mod report;
mod rest;
mod servers;
mod spans;
mod worker_process;

use std::env;
use std::time::{Duration, Instant};

use heartline::{App, Event, RecvError, Subscription, TaskRef};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::account::Evidence;
use self::crew::{Site, Way};
use self::load::Load;
use self::outside::{Outside, Store};
use self::plan::{Kind, Lane, Plan};
use self::report::Report;
use self::servers::{Homes, Servers};
use self::spans::{Book, Hurt, Loses};
use self::worker_process::{KEYED, PREFIX, Role, TASKS, Work};
use crate::support::task::built;
use crate::support::{PATIENCE, eventually, turn};
use crate::workflows::world;

/// How long `make test` lets it run, on one server only.
const SHORT: u64 = 10;

const WORKERS: usize = 4;

/// How many events may wait to be read.
const EVENTS: usize = 50_000;

/// The lane of the producers, and that of the servers.
const PRODUCERS: u64 = 50;
const SERVERS: u64 = 51;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_job_is_accounted_for_under_chaos() {
    turn::with_cluster();
    let seconds = number("HEARTLINE_CHAOS_SECONDS");
    let seed = number("HEARTLINE_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("SEED={seed}");
    // Failovers need more time than the faults of one server.
    let parts = match seconds {
        None => vec![(Kind::Server, SHORT)],
        Some(all) => vec![(Kind::Server, all / 3), (Kind::Sentinel, all / 3), (Kind::Cluster, all - 2 * (all / 3))],
    };
    let mut report = Report { seed, seconds: seconds.unwrap_or(SHORT), ..Report::default() };
    for (kind, seconds) in parts {
        let before = report.breaches.len();
        let evidence = part(kind, Duration::from_secs(seconds), seed).await;
        account::account(&evidence, &mut report);
        report.engines.push(kind);
        if report.breaches.len() > before {
            eprintln!("the faults of seed {seed} on {kind:?}:");
            evidence.spans.iter().for_each(|span| eprintln!("  {span}"));
            // Now, since the other parts may take long.
            eprintln!("{}", serde_json::to_string(&report.breaches[before..]).unwrap());
        }
    }
    println!("{}", serde_json::to_string(&report).unwrap());
    let breaches = report.breaches.len() + report.more_breaches;
    assert!(breaches == 0, "{breaches} breaches; repeat them with SEED={seed}");
}

/// Runs the chaos on one engine.
async fn part(kind: Kind, lasts: Duration, seed: u64) -> Evidence {
    let store = Store::start();
    let outside = Outside::at(&store.url()).await;
    let mut servers = Servers::start(kind).await;
    let homes = servers.homes();
    let book = Book::default();
    outside.set_homes(&homes.primaries().await).await;
    let follow = tokio::spawn(homes.clone().follow(outside.clone(), book.clone()));

    let role = Role { url: servers.url(), line: None, outside: store.url(), kind, plan: Plan::FIRST };
    let server = match homes {
        Homes::One(port) => Some(([127, 0, 0, 1], port).into()),
        _ => None,
    };
    let site = Site::new(role, outside.clone(), book.clone());
    let crew = crew::start(&site, server, WORKERS).await;
    let app = watching(&servers.url()).await;
    let events = follow_events(&app);
    let way = match server {
        Some(server) => Some(Way::to(server).await),
        None => None,
    };
    let url = way.as_ref().map_or_else(|| servers.url(), Way::url);
    let producing = built(&url, PREFIX).await;
    // Before a worker declares the pointer to the key, jobs get no key.
    eventually("the key is declared", PATIENCE, async || {
        let tasks = app.inspector().tasks().await.ok()?;
        tasks.iter().any(|task| task.task == KEYED && task.options.declared_by.is_some()).then_some(())
    })
    .await;
    let load = Load::start(&producing, kind, seed);
    let put_us = rest::put(&app).await;

    let until = Instant::now() + lasts;
    let (crew, (), ()) = tokio::join!(
        crew::live(crew, seed, kind, until),
        servers.live(Lane::new(seed, kind, SERVERS), &book, until),
        producers_are_cut(way.as_ref(), Lane::new(seed, kind, PRODUCERS), &book, until),
    );
    let acknowledged = load.end().await;
    let found = rest::rest(&app, kind, acknowledged, put_us).await;
    for mut member in crew {
        member.leaves().await;
    }
    follow.abort();
    let (events, missed_events) = events.end().await;
    let lines = outside.lines().await;
    found.evidence(events, missed_events, lines, book.all())
}

async fn producers_are_cut(way: Option<&Way>, mut lane: Lane, book: &Book, until: Instant) {
    let Some(way) = way else { return };
    loop {
        let step = lane.of_producers();
        let next = Instant::now() + Duration::from_millis(step.after);
        if next >= until {
            return;
        }
        tokio::time::sleep_until(next.into()).await;
        let (cut, ms) = step.fault;
        let open = book.open(format!("cut {cut:?}"), Hurt::Producers, Loses::Nothing);
        way.fails(cut, ms).await;
        book.close(open);
    }
}

/// An App that can buffer the events of a run. It is built again if a busy machine answers late.
async fn watching(url: &str) -> App {
    let build = async || App::builder().redis(url).prefix(PREFIX).event_capacity(EVENTS).build().await.ok();
    eventually("the App is built", PATIENCE, build).await
}

/// The events of a run, read as they come.
struct Events {
    /// The events of a task are read as long as it is kept.
    _tasks: Vec<TaskRef<Work, u64>>,
    _nodes: TaskRef<String, u64>,
    end: oneshot::Sender<()>,
    read: JoinHandle<(Vec<Event>, u64)>,
}

fn follow_events(app: &App) -> Events {
    let tasks = TASKS.map(|task| app.task_ref(task).unwrap()).to_vec();
    let nodes = app.task_ref(world::WORK).unwrap();
    let mut events: Subscription<Event> = app.events();
    let (end, mut ended) = oneshot::channel();
    let read = tokio::spawn(async move {
        let (mut all, mut missed) = (Vec::new(), 0);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => all.push(event),
                    Err(RecvError::Lagged(count)) => missed += count,
                    Err(_) => return (all, missed),
                },
                _ = &mut ended => return (all, missed),
            }
        }
    });
    Events { _tasks: tasks, _nodes: nodes, end, read }
}

impl Events {
    /// Ends the reading a moment after the last event.
    async fn end(self) -> (Vec<Event>, u64) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _ = self.end.send(());
        self.read.await.unwrap()
    }
}
