//! The workflow runner of a worker. It reports ended nodes to workflows, sends opened nodes and asks whether runs may begin. It also
//! continues workflows that another worker left unfinished.
//!
//! Each step is in an outbox first, and any worker that visits the workflow can repeat it. So the workflow runner does not wait for a
//! call without an answer: a later visit repeats it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::{JoinError, JoinSet};

use crate::backend::keys::TaskKeys;
use crate::backend::workflow::advance::{self, Advanced, Ended};
use crate::backoff::Pauses;
use crate::error::Error;
use crate::job::node_id::NodeId;
use crate::limits::{BATCH, BATCH_BYTES, ENDS};
use crate::runtime::shared::WorkerShared;
use crate::runtime::workflow_queue::{Ask, Inbox, Notice};
use crate::workflow::progress::WorkflowProgress;

/// How often a workflow is visited, by any worker.
const LOOK: Duration = Duration::from_secs(5);

/// A workflow visited less than this ago is skipped. A little less than [`LOOK`], so that a visit may come a millisecond early.
const LOOKED: Duration = Duration::from_millis(4500);

/// How many workflows with a node on this worker it re-adds to the list of workflows, since the server may have lost only that list.
const MOST_SEEN: usize = 1000;

/// How many workflows are visited at a time, and for how long at most. The next visit continues the work.
const LOOKS: usize = 4;
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// Above this number of follow-up calls, the rest is left to a visit.
const FOLLOWED: usize = 256;

/// The memory limit per workflow for ended nodes that wait to be reported. Later ones are left to a visit.
const WAITING_BYTES: usize = 16 * 1024 * 1024;

/// How often the pause between repeats of an unanswered question grows.
const PAUSES: u32 = 10;

/// How long the last calls of a stopping worker may take.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// The calls in flight for one workflow, and what waits for them.
#[derive(Default)]
struct Errands {
    ended: VecDeque<Ended>,
    /// The size of `ended`.
    bytes: usize,
    is_reporting: bool,
    asks: Vec<Ask>,
    is_asking: bool,
}

/// The result of a call of the workflow runner.
enum Done {
    /// The nodes that were reported to the workflow, and what follows from them.
    Reported(String, Option<(Vec<Ended>, Advanced)>),
    Followed,
    Asked(String, Vec<Ask>, Advanced),
    Looked(String),
    LookedAt(Arc<TaskKeys>),
    /// The workflows to visit, and whether there may be more.
    Turn(Vec<String>, bool),
}

struct WorkflowRunner {
    worker: Arc<WorkerShared>,
    progress: Arc<WorkflowProgress>,
    errands: HashMap<String, Errands>,
    /// Boxed calls, so that the code of a spawned task is compiled once.
    calls: JoinSet<Done>,
    /// Workflows to visit.
    turns: Vec<String>,
    /// Whether there may be more workflows to visit.
    more_turns: bool,
    /// Workflows that are being visited.
    looking: HashSet<String>,
    following: usize,
    /// Workflows with a node on this worker, and when they were last written to their list.
    seen: (HashSet<String>, Instant),
    /// Tables that are searched for ended jobs, and whether to search once more afterwards.
    tables: HashMap<(String, u32), bool>,
}

/// Runs until `over` is cancelled, after the worker's drivers have ended.
pub(super) async fn run(worker: Arc<WorkerShared>, mut inbox: Inbox, over: tokio_util::sync::CancellationToken) {
    let progress = Arc::new(WorkflowProgress::new(Arc::clone(&worker.store)));
    let mut workflow_runner = WorkflowRunner {
        worker,
        progress,
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
            _ = inbox.notices.recv_many(&mut notices, BATCH) => workflow_runner.take_in(notices.drain(..)),
            Some(ask) = inbox.asks.recv() => workflow_runner.ask(ask),
            Some(done) = workflow_runner.calls.join_next() => workflow_runner.done(done),
            _ = look.tick() => workflow_runner.take_turn(),
            () = over.cancelled() => {}
        }
        workflow_runner.start_calls();
    }
    // Notices that the drivers left last.
    while let Ok(notice) = inbox.notices.try_recv() {
        workflow_runner.take_in(std::iter::once(notice));
    }
    let last = async {
        loop {
            workflow_runner.turns.clear();
            workflow_runner.more_turns = false;
            workflow_runner.start_calls();
            let Some(done) = workflow_runner.calls.join_next().await else { break };
            workflow_runner.done(done);
        }
    };
    if tokio::time::timeout(LAST_CALLS, last).await.is_err() {
        tracing::debug!("some ended nodes could not be reported; another worker will report them");
    }
}

impl WorkflowRunner {
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

    /// Searches a table for ended jobs now, or once more after the search under way.
    fn look_at(&mut self, table: Arc<TaskKeys>) {
        if let Some(again) = self.tables.get_mut(&named(&table)) {
            *again = true;
            return;
        }
        self.tables.insert(named(&table), false);
        let progress = Arc::clone(&self.progress);
        self.calls.spawn(FutureExt::boxed(async move {
            if let Err(e) = progress.look_at(&table, Duration::ZERO).boxed().await {
                tracing::debug!(task = table.task(), error = %e.chain(), "ended jobs could not be reported to their workflows; a visit will retry");
            }
            Done::LookedAt(table)
        }));
    }

    /// Takes workflows to visit, if all earlier ones were visited.
    fn take_turn(&mut self) {
        if !self.turns.is_empty() {
            return;
        }
        self.more_turns = false;
        let worker = Arc::clone(&self.worker);
        // A worker without workflow nodes needs no permission for workflows.
        let is_used = !self.seen.0.is_empty();
        let mut listed = Vec::new();
        if self.seen.1.elapsed() >= self.worker.store.timings.relist {
            listed.extend(self.seen.0.iter().cloned());
            self.seen.1 = Instant::now();
        }
        self.calls.spawn(FutureExt::boxed(async move {
            let store = &worker.store;
            let names: Vec<&str> = listed.iter().map(String::as_str).collect();
            let list = async |conn: &mut _| store.list_workflows(conn, &names).await;
            if !names.is_empty()
                && let Err(e) = store.call(list).await
            {
                tracing::debug!(error = %e.chain(), "the list of workflows could not be written; will retry");
            }
            let taken = store.call(async |conn| store.take_workflows(conn, LOOKED).await).await;
            if is_used {
                record_answer(&worker, "turn", "the list of workflows", &taken);
            }
            let taken = taken.unwrap_or_else(|e| {
                tracing::debug!(error = %e.chain(), "workflow recovery failed; will retry");
                (Vec::new(), false)
            });
            Done::Turn(taken.0, taken.1)
        }));
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        let done = match done {
            Ok(done) => done,
            // A panic must reach the task that waits for the workflow runner.
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => return,
        };
        match done {
            Done::Reported(name, reported) => {
                if let Some(own) = self.errands.get_mut(&name) {
                    own.is_reporting = false;
                }
                if let Some((ended, advanced)) = reported {
                    self.follow(name, ended, advanced);
                }
            }
            Done::Followed => self.following -= 1,
            Done::Asked(name, again, follows) => {
                if let Some(own) = self.errands.get_mut(&name) {
                    own.is_asking = false;
                    // They were asked before the others.
                    own.asks.splice(0..0, again);
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

    /// Follows up concurrently with the next reports to the workflow: the server of a task may be unreachable.
    fn follow(&mut self, name: String, ended: Vec<Ended>, advanced: Advanced) {
        if self.following >= FOLLOWED {
            return;
        }
        self.following += 1;
        let (progress, worker) = (Arc::clone(&self.progress), Arc::clone(&self.worker));
        self.calls.spawn(FutureExt::boxed(async move {
            let followed = progress.follow(&worker.store.workflow(&name), &ended, advanced).await;
            record_answer(&worker, "follow", &name, &followed);
            if let Err(e) = followed {
                tracing::debug!(workflow = name, error = %e.chain(), "the next step of a workflow failed; a visit will retry");
            }
            Done::Followed
        }));
    }

    /// Starts the calls that are due, one of each kind per workflow.
    fn start_calls(&mut self) {
        for (name, own) in &mut self.errands {
            if !own.asks.is_empty() && !own.is_asking {
                own.is_asking = true;
                let asks: Vec<Ask> = own.asks.drain(..own.asks.len().min(BATCH)).collect();
                let (worker, name) = (Arc::clone(&self.worker), name.clone());
                self.calls.spawn(FutureExt::boxed(async move {
                    let (again, follows) = enter(&worker, &name, asks).await;
                    Done::Asked(name, again, follows)
                }));
            }
            if !own.ended.is_empty() && !own.is_reporting {
                own.is_reporting = true;
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
                let (progress, worker, name) = (Arc::clone(&self.progress), Arc::clone(&self.worker), name.clone());
                self.calls.spawn(FutureExt::boxed(async move {
                    let reported = progress.report(&worker.store.workflow(&name), &ended).await;
                    record_answer(&worker, "advance", &name, &reported);
                    match reported {
                        Ok(advanced) => Done::Reported(name, Some((ended, advanced))),
                        Err(e) => {
                            tracing::debug!(workflow = name, error = %e.chain(), "ended nodes could not be reported to their workflow; will retry");
                            Done::Reported(name, None)
                        }
                    }
                }));
            }
        }
        self.errands
            .retain(|_, own| own.is_asking || own.is_reporting || !own.asks.is_empty() || !own.ended.is_empty());
        while self.looking.len() < LOOKS
            && let Some(name) = self.turns.pop()
        {
            // A slow workflow leaves room for the others.
            if !self.looking.insert(name.clone()) {
                continue;
            }
            let (progress, worker) = (Arc::clone(&self.progress), Arc::clone(&self.worker));
            let is_used = self.seen.0.contains(&name);
            self.calls.spawn(FutureExt::boxed(async move {
                let grace = worker.store.timings.workflow_grace;
                let looked = tokio::time::timeout(LONGEST_LOOK, progress.look(&name, grace)).await;
                let looked = looked.unwrap_or_else(|_| Err(Error::timed_out()));
                if is_used {
                    record_answer(&worker, "look", &name, &looked);
                }
                if let Err(e) = looked {
                    tracing::debug!(workflow = name, error = %e.chain(), "a visit to a workflow failed; will retry");
                }
                Done::Looked(name)
            }));
        }
        if self.turns.is_empty() && self.more_turns {
            self.take_turn();
        }
    }
}

/// Records how a call for a workflow ended. Outages are not recorded: another worker may take over the workflow.
fn record_answer<T>(worker: &WorkerShared, part: &'static str, name: &str, answer: &Result<T, Error>) {
    match answer {
        Ok(_) => worker.answered(part, (0, name)),
        Err(e) if e.is_refusal() => {
            worker.flow_rights.heard_of_workflow(name, e);
            worker.failed(part, (0, name), e);
        }
        Err(_) => {}
    }
}

/// The memory of an ended node that waits to be reported: its value and its names.
fn size_of_ended(ended: &Ended) -> usize {
    ended.node.said.len() + 256
}

/// A table by its task and partition.
fn named(table: &TaskKeys) -> (String, u32) {
    (table.task().to_owned(), table.part())
}

/// Asks whether the runs may begin. Returns the unanswered ones, after a pause if the call failed, and what follows from
/// the runs that may not.
async fn enter(worker: &WorkerShared, name: &str, asks: Vec<Ask>) -> (Vec<Ask>, Advanced) {
    let asks: Vec<Ask> = asks.into_iter().filter(|ask| !ask.answer.is_closed()).collect();
    if asks.is_empty() {
        worker.answered("enter", (0, name));
        return (asks, Advanced::default());
    }
    let keys = worker.store.workflow(name);
    let nodes: Vec<NodeId> = asks.iter().map(|ask| ask.node.clone()).collect();
    match worker.store.call(async |conn| advance::enter(conn, &keys, &nodes).await).await {
        Ok((answers, follows)) => {
            worker.answered("enter", (0, name));
            let mut again = Vec::new();
            for (ask, answer) in asks.into_iter().zip(answers) {
                match answer {
                    // The run that asked may have been dropped.
                    Some(answer) => drop(ask.answer.send(answer)),
                    None => again.push(ask),
                }
            }
            (again, follows)
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
