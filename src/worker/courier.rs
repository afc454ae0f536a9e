//! The courier of a worker: tells workflows how nodes ended, sends what opened, asks for runs whether they may begin, and looks after
//! workflows that somebody left half moved.
//!
//! All that it does stands in an outbox first, and is done again by anybody who looks. So nothing here waits for what does not
//! answer: it is left to a look.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};

use crate::error::Error;
use crate::flow::mover::{Ended, Mover};
use crate::job::node_id::NodeId;
use crate::limits::{BATCH, BATCH_BYTES, ENDS};
use crate::pauses::Pauses;
use crate::process::desk::{Ask, Inbox, Notice};
use crate::process::shared::WorkerShared;
use crate::store::flow_advance::Advanced;
use crate::store::flow_enter;
use crate::store::keys::TaskKeys;
use crate::store::patience::RESPONSE_TIMEOUT;

/// How often each workflow is looked after, by whichever worker.
const LOOK: Duration = Duration::from_secs(5);

/// A little less: by a millisecond too much a workflow would be looked after each other time alone.
const LOOKED: Duration = Duration::from_millis(4500);

/// How many workflows of which a node was ever here are written into their list again: its server may have lost that list alone.
const MOST_SEEN: usize = 1000;

/// How many workflows are looked after at the same time, and for how long at the most: the next look goes on.
const LOOKS: usize = 4;
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// What is behind more calls than this is left to a look.
const FOLLOWED: usize = 256;

/// Nodes that wait to be told take no more memory than this, a workflow: what comes then is left to a look.
const WAITING_BYTES: usize = 16 * 1024 * 1024;

/// How often the pause grows between questions that are asked in vain.
const PAUSES: u32 = 10;

/// How long the last calls of a worker that stops may take.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// What is under way of one workflow, and what waits behind it.
#[derive(Default)]
struct Errands {
    ended: VecDeque<Ended>,
    /// Of these.
    bytes: usize,
    tells: bool,
    asks: Vec<Ask>,
    asking: bool,
}

/// What a call of the courier was about.
enum Done {
    /// The nodes of which the workflow was told, and what follows from it.
    Told(String, Option<(Vec<Ended>, Advanced)>),
    Followed,
    Asked(String, Vec<Ask>, Advanced),
    Looked(String),
    LookedAt(Arc<TaskKeys>),
    /// The workflows to look after, and whether there may be more.
    Turn(Vec<String>, bool),
}

struct Courier {
    worker: Arc<WorkerShared>,
    mover: Arc<Mover>,
    errands: HashMap<String, Errands>,
    calls: JoinSet<Done>,
    /// Workflows that are to be looked after.
    turns: Vec<String>,
    /// There may be more of them.
    more_turns: bool,
    /// Those that are being looked after.
    looking: HashSet<String>,
    following: usize,
    /// Workflows of which a node was ever here, and when they were put into their list last.
    seen: (HashSet<String>, Instant),
    /// Tables whose ended jobs are being looked for, and whether that is to be done once more.
    tables: HashMap<(String, u32), bool>,
}

/// Runs until the worker's drivers have ended, which `over` tells.
pub(super) async fn run(worker: Arc<WorkerShared>, mut inbox: Inbox, over: tokio_util::sync::CancellationToken) {
    let mover = Arc::new(Mover::new(Arc::clone(&worker.store)));
    let mut courier = Courier {
        worker,
        mover,
        errands: HashMap::new(),
        calls: JoinSet::new(),
        turns: Vec::new(),
        more_turns: false,
        looking: HashSet::new(),
        following: 0,
        seen: (HashSet::new(), Instant::now()),
        tables: HashMap::new(),
    };
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut notices = Vec::new();
    while !over.is_cancelled() {
        tokio::select! {
            _ = inbox.notices.recv_many(&mut notices, BATCH) => courier.take_in(notices.drain(..)),
            Some(ask) = inbox.asks.recv() => courier.ask(ask),
            Some(done) = courier.calls.join_next() => courier.done(done),
            _ = look.tick() => courier.take_turn(),
            () = over.cancelled() => {}
        }
        courier.go_on();
    }
    // What the drivers left last.
    while let Ok(notice) = inbox.notices.try_recv() {
        courier.take_in(std::iter::once(notice));
    }
    let last = async {
        courier.turns.clear();
        courier.more_turns = false;
        courier.go_on();
        while let Some(done) = courier.calls.join_next().await {
            courier.done(done);
            courier.turns.clear();
            courier.more_turns = false;
            courier.go_on();
        }
    };
    if tokio::time::timeout(LAST_CALLS, last).await.is_err() {
        tracing::debug!("some workflows are left to be told by others that nodes of theirs ended");
    }
}

impl Courier {
    fn take_in(&mut self, notices: impl Iterator<Item = Notice>) {
        for notice in notices {
            match notice {
                Notice::Ended(node, table) => {
                    let own = self.errands.entry(node.id.definition.clone()).or_default();
                    if own.bytes < WAITING_BYTES {
                        let ended = Ended { node, table: Some(table) };
                        own.bytes += size_of_ended(&ended);
                        own.ended.push_back(ended);
                    }
                }
                Notice::LookAt(table) => self.look_at(table),
            }
        }
    }

    fn ask(&mut self, ask: Ask) {
        if self.seen.0.len() < MOST_SEEN {
            self.seen.0.insert(ask.node.definition.clone());
        }
        self.errands.entry(ask.node.definition.clone()).or_default().asks.push(ask);
    }

    /// Looks for ended jobs of a table now; once more where that is being done already.
    fn look_at(&mut self, table: Arc<TaskKeys>) {
        if let Some(again) = self.tables.get_mut(&named(&table)) {
            *again = true;
            return;
        }
        self.tables.insert(named(&table), false);
        let mover = Arc::clone(&self.mover);
        self.calls.spawn(async move {
            if let Err(e) = mover.look_at(&table, Duration::ZERO).await {
                tracing::debug!(task = table.task(), error = %e.chain(), "ended jobs of workflows are left to a look");
            }
            Done::LookedAt(table)
        });
    }

    /// Takes workflows to look after, where nothing is left of those that were taken before.
    fn take_turn(&mut self) {
        if !self.turns.is_empty() {
            return;
        }
        self.more_turns = false;
        let worker = Arc::clone(&self.worker);
        // Who works no nodes needs no right to them.
        let is_used = !self.seen.0.is_empty();
        let mut listed = Vec::new();
        if self.seen.1.elapsed() >= self.worker.store.timings.relist {
            listed.extend(self.seen.0.iter().cloned());
            self.seen.1 = Instant::now();
        }
        self.calls.spawn(async move {
            let store = &worker.store;
            let names: Vec<&str> = listed.iter().map(String::as_str).collect();
            let list = async |conn: &mut _| store.list_workflows(conn, &names).await;
            if !names.is_empty()
                && let Err(e) = store.shared(RESPONSE_TIMEOUT, list).await
            {
                tracing::debug!(error = %e.chain(), "the list of workflows could not be written");
            }
            let take = async |conn: &mut _| store.take_workflows(conn, LOOKED).await;
            let taken = store.shared(RESPONSE_TIMEOUT, take).await;
            if is_used {
                heard(&worker, "turn", "the list of workflows", &taken);
            }
            let taken = taken.unwrap_or_else(|e| {
                tracing::debug!(error = %e.chain(), "no workflows can be looked after now");
                (Vec::new(), false)
            });
            Done::Turn(taken.0, taken.1)
        });
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        let done = match done {
            Ok(done) => done,
            // Whoever waits for the courier is to know.
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => return,
        };
        match done {
            Done::Told(name, told) => {
                if let Some(own) = self.errands.get_mut(&name) {
                    own.tells = false;
                }
                if let Some((ended, advanced)) = told {
                    self.follow(name, ended, advanced);
                }
            }
            Done::Followed => self.following -= 1,
            Done::Asked(name, again, follows) => {
                if let Some(own) = self.errands.get_mut(&name) {
                    own.asking = false;
                    own.asks.extend(again);
                }
                if !follows.is_empty() {
                    self.follow(name, Vec::new(), follows);
                }
            }
            Done::Looked(name) => {
                self.looking.remove(&name);
            }
            Done::Turn(names, more) => {
                self.turns.extend(names);
                self.more_turns = more;
            }
            Done::LookedAt(table) => {
                if self.tables.remove(&named(&table)) == Some(true) {
                    self.look_at(table);
                }
            }
        }
    }

    /// Does what follows beside what the workflow is told next: the node of a task may be away.
    fn follow(&mut self, name: String, ended: Vec<Ended>, advanced: Advanced) {
        if self.following >= FOLLOWED {
            return;
        }
        self.following += 1;
        let (mover, worker) = (Arc::clone(&self.mover), Arc::clone(&self.worker));
        self.calls.spawn(async move {
            let followed = mover.follow(&worker.store.workflow(&name), &ended, advanced).await;
            heard(&worker, "follow", &name, &followed);
            if let Err(e) = followed {
                tracing::debug!(workflow = name, error = %e.chain(), "a workflow goes on with a look");
            }
            Done::Followed
        });
    }

    /// Starts the calls for which there is something to say, one of each kind for each workflow.
    fn go_on(&mut self) {
        for (name, own) in &mut self.errands {
            if !own.asks.is_empty() && !own.asking {
                own.asking = true;
                let asks: Vec<Ask> = own.asks.drain(..own.asks.len().min(BATCH)).collect();
                let (worker, name) = (Arc::clone(&self.worker), name.clone());
                self.calls.spawn(async move {
                    let (again, follows) = enter(&worker, &name, asks).await;
                    Done::Asked(name, again, follows)
                });
            }
            if !own.ended.is_empty() && !own.tells {
                own.tells = true;
                let (mut bytes, mut count) = (0, 0);
                for ended in own.ended.iter().take(ENDS) {
                    bytes += ended.node.said.len();
                    if count > 0 && bytes > BATCH_BYTES {
                        break;
                    }
                    count += 1;
                }
                let ended: Vec<Ended> = own.ended.drain(..count).collect();
                own.bytes -= ended.iter().map(size_of_ended).sum::<usize>();
                let (mover, worker, name) = (Arc::clone(&self.mover), Arc::clone(&self.worker), name.clone());
                self.calls.spawn(async move {
                    let told = mover.tell(&worker.store.workflow(&name), &ended).await;
                    heard(&worker, "tell", &name, &told);
                    match told {
                        Ok(advanced) => Done::Told(name, Some((ended, advanced))),
                        Err(e) => {
                            tracing::debug!(workflow = name, error = %e.chain(), "a workflow is told of ended nodes later");
                            Done::Told(name, None)
                        }
                    }
                });
            }
        }
        self.errands.retain(|_, own| own.asking || own.tells || !own.asks.is_empty() || !own.ended.is_empty());
        while self.looking.len() < LOOKS
            && let Some(name) = self.turns.pop()
        {
            // One that takes long leaves room for the others.
            if !self.looking.insert(name.clone()) {
                continue;
            }
            let (mover, worker) = (Arc::clone(&self.mover), Arc::clone(&self.worker));
            let is_used = self.seen.0.contains(&name);
            self.calls.spawn(async move {
                let grace = worker.store.timings.workflow_grace;
                let looked = tokio::time::timeout(LONGEST_LOOK, mover.look(&name, grace)).await;
                let looked = looked.unwrap_or_else(|_| Err(Error::timed_out()));
                if is_used {
                    heard(&worker, "look", &name, &looked);
                }
                if let Err(e) = looked {
                    tracing::debug!(workflow = name, error = %e.chain(), "a workflow is looked after later");
                }
                Done::Looked(name)
            });
        }
        if self.turns.is_empty() && self.more_turns {
            self.take_turn();
        }
    }
}

/// Notes how a call for a workflow ended. An outage is not noted: another worker may take over the workflow.
fn heard<T>(worker: &WorkerShared, part: &'static str, name: &str, answer: &Result<T, Error>) {
    match answer {
        Ok(_) => worker.answered(part, (0, name)),
        Err(e) if e.is_refusal() => {
            worker.flow_rights.heard_of_workflow(name, e);
            worker.failed(part, (0, name), e);
        }
        Err(_) => {}
    }
}

/// How much memory a node takes that waits to be told: its value, and its names.
fn size_of_ended(ended: &Ended) -> usize {
    ended.node.said.len() + 256
}

/// A table by its task and partition.
fn named(table: &TaskKeys) -> (String, u32) {
    (table.task().to_owned(), table.part())
}

/// Asks for the runs whether they may begin. Returns those that were not answered, after a pause, and what follows from those that may not.
async fn enter(worker: &WorkerShared, name: &str, asks: Vec<Ask>) -> (Vec<Ask>, Advanced) {
    let asks: Vec<Ask> = asks.into_iter().filter(|ask| !ask.answer.is_closed()).collect();
    if asks.is_empty() {
        worker.answered("enter", (0, name));
        return (asks, Advanced::default());
    }
    let keys = worker.store.workflow(name);
    let nodes: Vec<NodeId> = asks.iter().map(|ask| ask.node.clone()).collect();
    let call = async |conn: &mut _| flow_enter::enter(conn, &keys, &nodes).await;
    match worker.store.shared(RESPONSE_TIMEOUT, call).await {
        Ok((answers, follows)) => {
            worker.answered("enter", (0, name));
            for (ask, answer) in asks.into_iter().zip(answers) {
                // Whoever asked may have been dropped.
                let _ = ask.answer.send(answer);
            }
            (Vec::new(), follows)
        }
        Err(e) => {
            worker.flow_rights.heard_of_workflow(name, &e);
            worker.failed("enter", (0, name), &e);
            let tries = asks.iter().map(|ask| ask.tries).max().unwrap_or(0);
            let mut pauses = Pauses::until_answered();
            let pause = (0..=tries.min(PAUSES)).map(|_| pauses.next()).last().unwrap_or_default();
            tokio::time::sleep(pause).await;
            let again = asks.into_iter().map(|ask| Ask { tries: ask.tries.saturating_add(1), ..ask });
            (again.collect(), Advanced::default())
        }
    }
}
