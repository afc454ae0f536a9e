//! The producers of a run: what they dispatch, and what was acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use heartline::{App, Dispatch, Error, Graph, JobState, Node, TaskRef, Unique, Workflow, WorkflowOptions};
use tokio::task::JoinHandle;

use crate::chaos::plan::Kind;
use crate::chaos::spans::now_us;
use crate::chaos::worker_process::{self, Does, HOOKED, KEYED, LONG, PLAIN, SURE, UNIQUE, Work};
use crate::workflows::world::{self, TASK};

pub const FLOW: &str = "flow";

/// How many nodes of a workflow run next to each other.
const WIDE: u64 = 4;

/// How many keys the jobs with keys have, and those that are unique.
const KEYS: u64 = 6;

/// A job that Redis acknowledged.
#[derive(Clone, Debug)]
pub struct Ack {
    pub task: &'static str,
    pub id: String,
    /// When it was sent, and when the reply came. It may have been written at any time between.
    pub sent_us: u64,
    pub at_us: u64,
    pub ends_as: JobState,
    /// The key of a unique job.
    pub unique: Option<String>,
    /// Whether another job had the key.
    pub existed: bool,
}

/// A workflow that Redis acknowledged.
#[derive(Clone, Debug)]
pub struct FlowAck {
    pub id: String,
    pub sent_us: u64,
    pub at_us: u64,
    pub value: u64,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub what: String,
    /// When it was sent, and when it failed.
    pub sent_us: u64,
    pub at_us: u64,
    pub error: String,
    pub is_retryable: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    pub jobs: Vec<Ack>,
    pub flows: Vec<FlowAck>,
    pub refusals: Vec<Refusal>,
}

/// Producers that dispatch all the time.
pub struct Load {
    stop: Arc<AtomicBool>,
    all: Arc<Mutex<Acknowledged>>,
    producers: Vec<JoinHandle<()>>,
}

/// The jobs of a task: how long until the next, and what it does.
type Next = fn(&mut Rng) -> (u64, Work, JobState);

const MIX: [(&str, Next); 5] = [(PLAIN, plain), (HOOKED, hooked), (LONG, long), (KEYED, keyed), (SURE, plain)];

fn work(key: String, ms: u64, does: Does) -> Work {
    Work { key, ms, does }
}

fn plain(rng: &mut Rng) -> (u64, Work, JobState) {
    let does = if rng.u32(..5) == 0 { Does::Retries(rng.u32(1..3)) } else { Does::Completes };
    (rng.u64(20..80), work(String::new(), rng.u64(..30), does), JobState::Completed)
}

fn hooked(rng: &mut Rng) -> (u64, Work, JobState) {
    let fails = rng.u32(..3) == 0;
    let (does, ends_as) = if fails { (Does::Fails, JobState::Failed) } else { (Does::Completes, JobState::Completed) };
    (rng.u64(50..250), work(String::new(), rng.u64(..30), does), ends_as)
}

fn long(rng: &mut Rng) -> (u64, Work, JobState) {
    (rng.u64(250..450), work(String::new(), 0, Does::Steps), JobState::Completed)
}

fn keyed(rng: &mut Rng) -> (u64, Work, JobState) {
    let key = format!("key-{}", rng.u64(..KEYS));
    (rng.u64(25..90), work(key, rng.u64(40..200), Does::Completes), JobState::Completed)
}

impl Load {
    pub fn start(app: &App, kind: Kind, seed: u64) -> Load {
        let load = Load { stop: Arc::default(), all: Arc::default(), producers: Vec::new() };
        let mut producers = Vec::new();
        for (at, (task, next)) in (0..).zip(MIX) {
            if task == SURE && worker_process::durability(kind).is_none() {
                continue;
            }
            let jobs: TaskRef<Work, u64> = app.task_ref(task).unwrap();
            let own = load.producer(seed + at);
            producers.push(tokio::spawn(own.dispatch(jobs, task, next, worker_process::durability(kind))));
        }
        producers.push(tokio::spawn(load.producer(seed + 10).dispatch_unique(app.task_ref(UNIQUE).unwrap())));
        let flow = app.workflow(FLOW, WorkflowOptions::new()).unwrap();
        producers.push(tokio::spawn(load.producer(seed + 11).start_workflows(flow)));
        Load { producers, ..load }
    }

    fn producer(&self, seed: u64) -> Producer {
        Producer { stop: Arc::clone(&self.stop), all: Arc::clone(&self.all), rng: Rng::with_seed(seed) }
    }

    /// Ends it. Returns what was acknowledged.
    pub async fn end(self) -> Acknowledged {
        self.stop.store(true, Ordering::SeqCst);
        for producer in self.producers {
            producer.await.unwrap();
        }
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}

struct Producer {
    stop: Arc<AtomicBool>,
    all: Arc<Mutex<Acknowledged>>,
    rng: Rng,
}

impl Producer {
    fn continues(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn note(&self, note: impl FnOnce(&mut Acknowledged)) {
        note(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn refused(&self, what: &str, sent_us: u64, error: &Error) {
        let (what, is_retryable) = (what.to_owned(), error.is_retryable());
        // With its sources.
        let error = format!("{error}: {error:?}");
        self.note(|all| all.refusals.push(Refusal { what, sent_us, at_us: now_us(), error, is_retryable }));
    }

    async fn dispatch(
        mut self,
        jobs: TaskRef<Work, u64>,
        task: &'static str,
        next: Next,
        durability: Option<heartline::Durability>,
    ) {
        let mut number = 0;
        while self.continues() {
            let (pause, work, ends_as) = next(&mut self.rng);
            let delay = if self.rng.u32(..8) == 0 && task != LONG { self.rng.u64(..800) } else { 0 };
            number += 1;
            let mut dispatch = jobs.dispatch(work).id(format!("{task}-{number}")).delay(Duration::from_millis(delay));
            if let Some(durability) = durability.filter(|_| task == SURE) {
                dispatch = dispatch.durability(durability);
            }
            self.send(dispatch, task, ends_as, None).await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn dispatch_unique(mut self, jobs: TaskRef<Work, u64>) {
        let mut number = 0;
        while self.continues() {
            let key = format!("unique-{}", self.rng.u64(..KEYS));
            number += 1;
            let dispatch = jobs.dispatch(work(key.clone(), self.rng.u64(..100), Does::Completes));
            let dispatch = dispatch.id(format!("unique-{number}")).unique(Unique::by(key.as_str()));
            self.send(dispatch, UNIQUE, JobState::Completed, Some(key)).await;
            tokio::time::sleep(Duration::from_millis(self.rng.u64(30..150))).await;
        }
    }

    async fn send(&self, dispatch: Dispatch<Work, u64>, task: &'static str, ends_as: JobState, unique: Option<String>) {
        let sent_us = now_us();
        match dispatch.await {
            Ok(job) => {
                let (id, existed) = (job.id().to_string(), job.existed() == Some(true));
                self.note(|all| {
                    all.jobs.push(Ack { task, id, sent_us, at_us: now_us(), ends_as, unique, existed });
                });
            }
            Err(e) => self.refused(task, sent_us, &e),
        }
    }

    async fn start_workflows(mut self, flow: Workflow<u64>) {
        let mut number = 0;
        while self.continues() {
            number += 1;
            let graph = Graph::new();
            let first = graph.node("first", &TASK, format!("value {number}"));
            let part = |n| graph.node(format!("part-{n}"), &TASK, "named first".to_owned()).after(&first);
            let parts: Vec<Node<u64>> = (0..WIDE).map(part).collect();
            let sum = graph.node("sum", &world::TASK, "sum".to_owned()).after(&parts);
            let (id, sent_us) = (format!("w-{number}"), now_us());
            match flow.start(graph.output(&sum)).id(&id).await {
                Ok(_) => {
                    let ack = FlowAck { id, sent_us, at_us: now_us(), value: (number + 1) * WIDE };
                    self.note(|all| all.flows.push(ack));
                }
                Err(e) => self.refused(FLOW, sent_us, &e),
            }
            tokio::time::sleep(Duration::from_millis(self.rng.u64(500..1_500))).await;
        }
    }
}
