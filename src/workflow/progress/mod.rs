//! Advances workflows. Any process may repeat any step at any time: a step that is already done has no effect.

mod audit;
mod cancel;
mod look;
pub(crate) mod retry;
pub(crate) mod send;
mod stale;
mod targets;
mod values;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::targets::{Targets, in_order, not_cleared};
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::workflow::advance::{self, Advanced, Ended, EndedNode, Step, Target};
use crate::backend::workflow::instances::{self, FlowState};
use crate::backend::workflow::nodes;
use crate::backend::workflow::outbox;
use crate::error::Error;
use crate::job::shape::Shape;
use crate::join::join_all;
use crate::limits::{BATCH_BYTES, ENDS};
use crate::mutex::Mutex;
use crate::task::dispatcher::Dispatcher;

/// From this many tasks on, idle dispatchers are dropped.
const MANY: usize = 1000;

/// For how long an unreachable task or table is skipped, so that it does not delay others. The next look picks it up.
const AWAY: Duration = Duration::from_secs(5);

/// The counters of [`WorkflowProgress::tally`].
const REPORTED: usize = 0;
const SENT: usize = 1;
const SYNTHESISED: usize = 2;
const PLACED: usize = 3;

/// Advances workflows, on behalf of producers and workers.
pub(crate) struct WorkflowProgress {
    store: Arc<Store>,
    dispatchers: Mutex<HashMap<String, Arc<Dispatcher>>>,
    /// Tasks and tables (by one of their keys) that were unreachable, and since when.
    away: Mutex<HashMap<String, Instant>>,
    /// Workflows with a task whose jobs could not be sent, or with `GRAPH` for a graph that could not start. Each is logged once.
    unsent: Mutex<HashSet<(String, String)>>,
    targets: Targets,
    /// Nodes reported, nodes sent, nodes whose jobs were lost, instances without a state.
    tally: [AtomicU64; 4],
}

impl WorkflowProgress {
    pub(crate) fn new(store: Arc<Store>) -> WorkflowProgress {
        WorkflowProgress {
            store,
            dispatchers: Mutex::default(),
            away: Mutex::default(),
            unsent: Mutex::default(),
            targets: Targets::default(),
            tally: Default::default(),
        }
    }

    /// Counts of this process: nodes reported to workflows, nodes sent, nodes ended because their jobs were lost, and instances without
    /// a state that it paused.
    pub(crate) fn tally(&self) -> [u64; 4] {
        self.tally.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn count(&self, what: usize, many: usize) {
        self.tally[what].fetch_add(many as u64, Ordering::Relaxed);
    }

    fn dispatcher(&self, task: &str) -> Arc<Dispatcher> {
        let mut known = self.dispatchers.lock();
        if known.len() >= MANY {
            known.retain(|_, dispatcher| Arc::strong_count(dispatcher) > 1);
        }
        let new = || Arc::new(Dispatcher::new(Arc::clone(&self.store), self.store.tables(task), None));
        Arc::clone(known.entry(task.to_owned()).or_insert_with(new))
    }

    /// Records that nodes of a workflow reached a task, or that graphs of it started.
    fn was_sent(&self, keys: &TaskKeys, task: &str) {
        let mut unsent = self.unsent.lock();
        if !unsent.is_empty() && unsent.remove(&(keys.task().to_owned(), task.to_owned())) {
            drop(unsent);
            tracing::info!(workflow = keys.task(), task, "nodes of a workflow can be sent again");
        }
    }

    fn is_unreachable(&self, place: &str) -> bool {
        self.away.lock().get(place).is_some_and(|since| since.elapsed() < AWAY)
    }

    /// Does the work at a task or table, unless that did not answer a moment ago. Otherwise hundreds of steps would each wait for it.
    async fn unless_away<T>(
        &self,
        place: &str,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        if self.is_unreachable(place) {
            return Err(Error::timed_out());
        }
        // Boxed, since steps nest.
        let done = work.boxed().await;
        if done.as_ref().is_err_and(Error::is_outage) {
            self.went_away(place);
        }
        done
    }

    /// Records that a task or table did not answer. Returns whether this is new.
    fn went_away(&self, place: &str) -> bool {
        let mut away = self.away.lock();
        away.retain(|_, since| since.elapsed() < AWAY);
        let is_news = !away.contains_key(place);
        away.entry(place.to_owned()).or_insert_with(Instant::now);
        is_news
    }

    /// The targets of a call that reports these ends. In a cluster there are none: another node may have the task.
    fn targets_of(&self, keys: &TaskKeys, ended: &[Ended]) -> Vec<Target> {
        if self.store.is_cluster() {
            return Vec::new();
        }
        let mut targets = self.targets.of(keys.task(), ended, |task| self.store.tables(task).of(""));
        // Tasks that could not be reached get a dispatch of their own, which logs when they can be reached again.
        let unsent = self.unsent.lock();
        targets.retain(|target| {
            unsent.is_empty() || !unsent.contains(&(keys.task().to_owned(), target.table.task().to_owned()))
        });
        targets
    }

    /// Takes a step with targets. If the server refuses that, perhaps because of their keys, without.
    async fn step(
        &self,
        keys: &TaskKeys,
        targets: &[Target],
        time: Duration,
        step: &Step<'_>,
    ) -> Result<Advanced, Error> {
        let with = async |conn: &mut _| advance::advance(conn, keys, step, targets).await;
        let advanced = match self.store.shared(time, with).await {
            Err(e) if !targets.is_empty() && e.is_refusal() => {
                let without = async |conn: &mut _| advance::advance(conn, keys, step, &[]).await;
                let advanced = self.store.shared(time, without).await?;
                self.targets.refused(keys.task());
                advanced
            }
            advanced => advanced?,
        };
        self.count(SENT, advanced.dispatched);
        Ok(advanced)
    }

    /// Reports ended nodes, all of one workflow. Call [`WorkflowProgress::follow`] afterwards.
    pub(crate) async fn report(&self, keys: &TaskKeys, ended: &[Ended]) -> Result<Advanced, Error> {
        let targets = self.targets_of(keys, ended);
        let nodes: Vec<EndedNode> = in_order(&targets, ended).into_iter().map(|ended| ended.node.clone()).collect();
        let bytes = nodes.iter().map(|node| node.said.len()).sum();
        let advanced = self.step(keys, &targets, response_time(bytes), &Step::Ends(&nodes)).await?;
        self.count(REPORTED, nodes.len());
        Ok(advanced)
    }

    /// Removes reported nodes from the outboxes of their tasks, and sends the nodes that opened.
    pub(crate) async fn follow(&self, keys: &TaskKeys, ended: &[Ended], advanced: Advanced) -> Result<(), Error> {
        let left = not_cleared(&advanced, ended);
        let ((), stepped) = tokio::join!(self.clear_outboxes(left), self.take_next_steps(keys, advanced));
        stepped
    }

    /// Reports ended nodes, removes them from the outboxes of their tasks, and sends the nodes that opened.
    async fn advance(&self, keys: &TaskKeys, ended: &[Ended]) -> Result<(), Error> {
        for some in ended.chunks(ENDS) {
            let advanced = self.report(keys, some).await?;
            self.follow(keys, some, advanced).await?;
        }
        Ok(())
    }

    /// Removes reported nodes from the outboxes of their tasks. A node that remains is reported again.
    async fn clear_outboxes(&self, ended: Vec<&Ended>) {
        let mut tables: Vec<(&Arc<TaskKeys>, Vec<String>)> = Vec::new();
        for Ended { node, table } in ended {
            let Some(table) = table else { continue };
            let id = node.id.job_id().to_string();
            match tables.iter_mut().find(|(known, _)| Arc::ptr_eq(known, table)) {
                Some((_, ids)) => ids.push(id),
                None => tables.push((table, vec![id])),
            }
        }
        let clears = tables.into_iter().map(|(table, ids)| async move {
            if let Err(e) = self.store.call(async |conn| outbox::done(conn, table, &ids).await).await {
                tracing::debug!(task = table.task(), error = %e.chain(), "reported jobs could not be removed from the outbox; they will be reported again");
            }
        });
        join_all(clears).await;
    }

    /// Sends opened nodes, visits the remaining dependents of ended nodes, and cancels open nodes of instances that are stopping.
    pub(crate) fn take_next_steps<'a>(
        &'a self,
        keys: &'a TaskKeys,
        advanced: Advanced,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.send(keys, advanced.sends).await;
            let mut entries = VecDeque::from(advanced.entries);
            while let Some(entry) = entries.pop_front() {
                let Some(mark) = entry.strip_prefix("v ") else {
                    // A failed step stays in the outbox and does not delay others: the node of one task may be unreachable.
                    if let Err(e) = self.carry_out(keys, &entry).await {
                        tracing::debug!(workflow = keys.task(), entry, error = %e.chain(), "a step of a workflow failed; will retry");
                    }
                    continue;
                };
                let targets = self.targets_of(keys, &[]);
                let Advanced { entries: more, sends, .. } =
                    self.step(keys, &targets, RESPONSE_TIMEOUT, &Step::Visit(mark)).await?;
                entries.extend(more);
                self.send(keys, sends).await;
            }
            Ok(())
        })
    }

    /// Opens the ready nodes of an instance, and sends them.
    pub(crate) async fn open(&self, keys: &TaskKeys, instance: &str, run: u64) -> Result<(), Error> {
        loop {
            let open = async |conn: &mut _| advance::open(conn, keys, instance, run).await;
            let (follows, more) = self.store.shared(response_time(BATCH_BYTES), open).await?;
            self.take_next_steps(keys, follows).await?;
            if !more {
                return Ok(());
            }
        }
    }

    pub(in crate::workflow) async fn state(&self, keys: &TaskKeys, instance: &str) -> Result<Option<FlowState>, Error> {
        let look = |mut conn| async move { instances::state(&mut conn, keys, instance).await };
        self.store.ask(response_time(BATCH_BYTES), look).await
    }

    /// The run of an instance, and the states of `count` of its nodes, in pages of 500; `None` if it does not exist.
    pub(in crate::workflow) async fn node_states(
        &self,
        keys: &TaskKeys,
        instance: &str,
        count: usize,
    ) -> Result<Option<(u64, Vec<String>)>, Error> {
        let (mut run, mut states) = (0, Vec::with_capacity(count));
        while states.len() < count {
            let from = states.len() as u32;
            let page = |mut conn| async move { nodes::nodes(&mut conn, keys, instance, from).await };
            let Some(page) = self.store.ask(RESPONSE_TIMEOUT, page).await? else { return Ok(None) };
            if page.states.is_empty() {
                break;
            }
            run = page.run;
            states.extend(page.states);
        }
        Ok(Some((run, states)))
    }

    /// The shape with this digest; `None` if it does not exist.
    pub(in crate::workflow) async fn shape(
        &self,
        keys: &TaskKeys,
        instance: &str,
        digest: &str,
    ) -> Result<Option<Shape>, Error> {
        let read = |mut conn| async move { nodes::shape(&mut conn, keys, digest).await };
        let Some(found) = self.store.ask(response_time(BATCH_BYTES), read).await? else { return Ok(None) };
        serde_json::from_slice(&found).map(Some).map_err(|source| unreadable(keys.task(), instance, source))
    }
}

/// The error for stored data of an instance that cannot be read.
pub(in crate::workflow) fn unreadable(workflow: &str, instance: &str, source: serde_json::Error) -> Error {
    Error::Codec { what: format!("the stored data of the instance {instance} of the workflow {workflow}"), source }
}
