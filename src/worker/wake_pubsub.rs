//! How idle tasks learn of new work in a cluster: one subscription per node that has tasks of the worker, which
//! receives marker events. A worker that receives one, or goes idle, tries to take the marker, and claims if it
//! succeeded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::backend::keys::Key;
use crate::backend::wake_pubsub::{self, ClusterNode};
use crate::backoff::{DENIED_PAUSE, Pauses};
use crate::runtime::incidents::NO_TASK;
use crate::runtime::shared::WorkerShared;
use crate::runtime::task::TaskRuntime;

/// How often the node of each task is checked.
const LOOK: Duration = Duration::from_millis(250);

/// What all subscriptions of a worker share.
struct WakeSubscriptions {
    worker: Arc<WorkerShared>,
    tasks: Arc<[Arc<TaskRuntime>]>,
    /// Tasks whose marker may exist.
    heard: UnboundedSender<usize>,
}

/// Listens for the idle tasks until the worker stops.
pub(super) async fn run(worker: Arc<WorkerShared>, tasks: Arc<[Arc<TaskRuntime>]>) {
    let (heard, mut markers) = unbounded_channel();
    let subscriptions = &WakeSubscriptions { worker, tasks, heard };
    let (wake, stopping) = (&subscriptions.worker.wake, &subscriptions.worker.stopping);
    let (mut at_nodes, mut nodes) = (FuturesUnordered::new(), Vec::new());
    let (mut takes, mut returns) = (FuturesUnordered::new(), FuturesUnordered::new());
    // Tasks whose marker is being taken; `true`: try once more afterwards.
    let mut taking = BTreeMap::new();
    let mut look = tokio::time::interval(LOOK);
    loop {
        // At most one attempt per task is in flight. Later events are handled after it.
        let mut wanted = wake.take_came();
        for task in wake.take_returned(false) {
            returns.push(subscriptions.put_back(task));
        }
        tokio::select! {
            () = stopping.cancelled() => break,
            () = wake.changed.notified() => {}
            Some(task) = markers.recv() => wanted.extend(wake.is_idle(task).then_some(task)),
            Some((task, is_taken)) = takes.next() => {
                if is_taken && wake.wake(task) {
                    subscriptions.tasks[task].poke.notify_one();
                } else if is_taken {
                    returns.push(subscriptions.put_back(task));
                }
                wanted.extend(taking.remove(&task).filter(|again| *again && wake.is_idle(task)).map(|_| task));
            }
            Some(()) = returns.next() => {}
            Some(node) = at_nodes.next() => nodes.retain(|own| *own != node),
            _ = look.tick() => {
                for node in subscriptions.nodes() {
                    if !nodes.contains(&node) {
                        nodes.push(node.clone());
                        at_nodes.push(subscriptions.at(node));
                    }
                }
            }
        }
        for task in wanted {
            taking.entry(task).and_modify(|again| *again = true).or_insert_with(|| {
                takes.push(subscriptions.take(task));
                false
            });
        }
    }
    // Return markers that no driver used, for other workers.
    while let Some((task, is_taken)) = takes.next().await {
        if is_taken {
            returns.push(subscriptions.put_back(task));
        }
    }
    for task in wake.take_returned(true) {
        returns.push(subscriptions.put_back(task));
    }
    while returns.next().await.is_some() {}
}

impl WakeSubscriptions {
    /// The nodes that have a task of the worker.
    fn nodes(&self) -> Vec<ClusterNode> {
        let mut nodes: Vec<ClusterNode> =
            self.tasks.iter().filter_map(|task| self.worker.store.node_of(&task.keys)).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// The tasks on a node.
    fn tasks_of(&self, node: &ClusterNode) -> Vec<usize> {
        let is_there = |task: &&Arc<TaskRuntime>| self.worker.store.node_of(&task.keys).as_ref() == Some(node);
        self.tasks.iter().filter(is_there).map(|task| task.index).collect()
    }

    /// Tries to take the marker of the task. Returns whether it did. If that is unknown, returns true, so that the driver looks for
    /// work itself.
    async fn take(&self, task: usize) -> (usize, bool) {
        let keys = &self.tasks[task].keys;
        let taken = self.worker.store.call(async |conn| wake_pubsub::take(conn, keys).await).await;
        match taken {
            Ok(is_taken) => {
                self.worker.answered("take", self.tasks[task].of());
                (task, is_taken)
            }
            Err(e) if e.is_lasting() => {
                self.worker.failed("take", self.tasks[task].of(), &e);
                (task, false)
            }
            Err(e) => {
                tracing::debug!(error = %e.chain(), "a wake marker could not be taken");
                (task, true)
            }
        }
    }

    async fn put_back(&self, task: usize) {
        let keys = &self.tasks[task].keys;
        let put = self.worker.store.call(async |conn| wake_pubsub::put_back(conn, keys).await).await;
        if let Err(e) = put {
            // Other workers look for work by themselves every 5 s.
            tracing::debug!(error = %e.chain(), "a wake marker could not be put back");
        }
    }

    /// Listens at a node for as long as it has a task of the worker.
    async fn at(&self, node: ClusterNode) -> ClusterNode {
        let mut pauses = Pauses::until_answered();
        loop {
            let tasks = self.tasks_of(&node);
            if tasks.is_empty() {
                return node;
            }
            let keys: Vec<_> = tasks.iter().map(|task| &*self.tasks[*task].keys).collect();
            let worked = || {
                pauses.reset();
                self.worker.answered("wake", NO_TASK);
            };
            let listening = async {
                let subscription = match self.worker.store.wake_subscription(&node, &keys).await {
                    Ok(subscription) => subscription,
                    Err(e) => return e,
                };
                // A marker may have been set while no connection listened.
                tasks.iter().for_each(|task| self.hear(*task));
                let named = |name: &str| tasks.iter().find(|task| self.tasks[**task].keys.get(Key::Wake) == name);
                subscription.listen(|name| named(name).into_iter().for_each(|task| self.hear(*task)), worked).await
            };
            let moved = async {
                while self.tasks_of(&node) == tasks {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let e = tokio::select! {
                e = listening => e,
                () = moved => continue,
            };
            let pause = if e.is_lasting() { DENIED_PAUSE } else { pauses.next() };
            if e.is_lasting() {
                self.worker.failed("wake", NO_TASK, &e);
            } else {
                tracing::debug!(error = %e.chain(), "the wake connection dropped");
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn hear(&self, task: usize) {
        // The receiver lives as long as this does.
        let _ = self.heard.send(task);
    }
}
