//! A graph of jobs, as a plain value.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::options::OwnOptions;
use crate::mutex::Mutex;
use crate::options::modes::Priority;
use crate::runtime::upstream::{self, Upstream};
use crate::task::definition::TaskDef;
use crate::task::task_ref::TaskRef;

/// A graph of jobs for a [`Workflow`](crate::Workflow) to start: nodes, and what each of them waits for. `T` is the
/// type of its [`output`](Graph::output).
///
/// It is a plain value that does no I/O: build it in a function, test it, pass it on.
/// [`Workflow::start`](crate::Workflow::start) reports all its faults together.
///
/// ```
/// use heartline::{Graph, TaskDef};
///
/// const FETCH: TaskDef<String, Vec<u8>> = TaskDef::new("fetch");
/// const RESIZE: TaskDef<u32, String> = TaskDef::new("resize");
/// const PUBLISH: TaskDef<(), u64> = TaskDef::new("publish");
///
/// let graph = Graph::new();
/// let fetch = graph.node("fetch", &FETCH, "cat.png".to_owned());
/// let sizes: Vec<_> = [64, 256, 1024].map(|px| graph.node(format!("resize-{px}"), &RESIZE, px).after(&fetch).optional()).into();
/// // Two of the three are enough, and one that fails does not fail the instance.
/// let publish = graph.node("publish", &PUBLISH, ()).after(&sizes).at_least(2);
/// let graph: Graph<u64> = graph.output(&publish);
/// ```
pub struct Graph<T = ()> {
    pub(super) nodes: Nodes,
    pub(super) output: Option<u32>,
    answers: PhantomData<fn() -> T>,
}

type Nodes = Arc<Mutex<Vec<GraphNode>>>;

/// A node while its graph is built.
#[derive(Debug)]
pub(super) struct GraphNode {
    pub(super) name: String,
    pub(super) task: String,
    pub(super) input: NodeInput,
    pub(super) inputs: Vec<u32>,
    pub(super) at_least: Option<u32>,
    pub(super) always: bool,
    pub(super) optional: bool,
    pub(super) own: OwnOptions,
    /// Whether it was made to wait for a node of another graph, which is a fault.
    pub(super) is_mixed: bool,
}

/// The input of a node.
#[derive(Debug)]
pub(super) enum NodeInput {
    Own(Result<Vec<u8>, serde_json::Error>),
    /// The value of the node that [`Node::then`] was called on.
    Value,
    /// The node is a graph.
    Graph(Graph),
}

/// A task by its name, with the types of its input and its value: a [`TaskDef`] or a [`TaskRef`].
pub trait NodeTask<I, O>: sealed::Sealed {
    /// The name of the task.
    fn task_name(&self) -> &str;
}

/// One or several nodes for which another node waits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a node nor a list of nodes of one type",
    note = "name nodes of different types one after another: `.after(&one).after(&other)`"
)]
pub trait NodeInputs: sealed::Sealed {
    #[doc(hidden)]
    type Value;

    #[doc(hidden)]
    fn list(&self) -> &[Node<Self::Value>];
}

mod sealed {
    pub trait Sealed {}
}

impl<I, O> sealed::Sealed for TaskDef<I, O> {}
impl<I, O> sealed::Sealed for TaskRef<I, O> {}
impl<T> sealed::Sealed for Node<T> {}
impl<T> sealed::Sealed for Vec<Node<T>> {}
impl<T> sealed::Sealed for [Node<T>] {}
impl<T, const N: usize> sealed::Sealed for [Node<T>; N] {}

impl<I, O> NodeTask<I, O> for TaskDef<I, O> {
    fn task_name(&self) -> &str {
        self.name()
    }
}

impl<I, O> NodeTask<I, O> for TaskRef<I, O> {
    fn task_name(&self) -> &str {
        self.name()
    }
}

impl<T> NodeInputs for Node<T> {
    type Value = T;

    fn list(&self) -> &[Node<T>] {
        std::slice::from_ref(self)
    }
}

impl<T> NodeInputs for [Node<T>] {
    type Value = T;

    fn list(&self) -> &[Node<T>] {
        self
    }
}

impl<T> NodeInputs for Vec<Node<T>> {
    type Value = T;

    fn list(&self) -> &[Node<T>] {
        self
    }
}

impl<T, const N: usize> NodeInputs for [Node<T>; N] {
    type Value = T;

    fn list(&self) -> &[Node<T>] {
        self
    }
}

impl Graph {
    /// A graph without nodes.
    #[must_use]
    pub fn new() -> Graph {
        Graph { nodes: Arc::default(), output: None, answers: PhantomData }
    }
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl<T> Graph<T> {
    /// Adds a node: a job of this task with this input. Other nodes use the name to read the value of the node. It is
    /// unique in the graph: 1 to 64 bytes of printable ASCII without space, braces and `/`.
    ///
    /// It runs when the graph starts, unless it waits for other nodes.
    pub fn node<I: Serialize, O>(&self, name: impl Into<String>, task: &impl NodeTask<I, O>, input: I) -> Node<O> {
        add(&self.nodes, name.into(), task.task_name(), NodeInput::Own(serde_json::to_vec(&input)))
    }

    /// Adds a graph as a node. It starts when the node would run, and its output is the value of the node. If the graph
    /// fails, the node fails; a retry runs the whole graph again.
    ///
    /// Graphs nest up to eight deep. A graph with all inputs of its nodes takes at most 1 MiB of JSON. The names of its nodes are separate
    /// from those of the outer graph: [`Context::upstream`](crate::Context::upstream) reads only nodes of the same graph.
    pub fn subgraph<O>(&self, name: impl Into<String>, graph: Graph<O>) -> Node<O> {
        let Graph { nodes, output, .. } = graph;
        add(&self.nodes, name.into(), "", NodeInput::Graph(Graph { nodes, output, answers: PhantomData }))
    }

    /// Makes the value of this node the output of the graph. If the node was skipped or failed, the output is missing,
    /// and the instance ends as failed.
    #[must_use]
    pub fn output<O>(self, node: &Node<O>) -> Graph<O> {
        let is_own = Arc::ptr_eq(&self.nodes, &node.nodes);
        // The start reports a node of another graph as a fault.
        let output = if is_own { node.index } else { u32::MAX };
        Graph { nodes: self.nodes, output: Some(output), answers: PhantomData }
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.lock().len()
    }

    /// Whether it has no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn add<O>(nodes: &Nodes, name: String, task: &str, input: NodeInput) -> Node<O> {
    let mut all = nodes.lock();
    let index = u32::try_from(all.len()).unwrap_or(u32::MAX);
    all.push(GraphNode {
        name,
        task: task.to_owned(),
        input,
        inputs: Vec::new(),
        at_least: None,
        always: false,
        optional: false,
        own: OwnOptions::default(),
        is_mixed: false,
    });
    Node { nodes: Arc::clone(nodes), index, value: PhantomData }
}

impl<T> fmt::Debug for Graph<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.nodes.lock().iter().map(|node| node.name.clone()).collect();
        f.debug_struct("Graph").field("nodes", &names).finish_non_exhaustive()
    }
}

/// A node of a [`Graph`], with the type of its value. Cloning is cheap; clones are the same node.
pub struct Node<T> {
    nodes: Nodes,
    index: u32,
    value: PhantomData<fn() -> T>,
}

impl<T> Node<T> {
    /// Makes this node wait for one or several nodes. It runs when all of them have completed. It is skipped once one of them can
    /// no longer complete. Repeated calls add nodes.
    pub fn after<N: NodeInputs + ?Sized>(self, inputs: &N) -> Node<T> {
        let is_own = |input: &&Node<N::Value>| Arc::ptr_eq(&input.nodes, &self.nodes);
        let (own, others): (Vec<_>, Vec<_>) = inputs.list().iter().partition(is_own);
        self.with(|node| {
            node.inputs.extend(own.iter().map(|input| input.index));
            node.is_mixed |= !others.is_empty();
        })
    }

    /// Runs this node as soon as `count` of the nodes for which it waits have completed. The others continue. It is skipped once `count`
    /// can no longer be reached. If one of the others fails, the instance fails, unless that node is [`optional`](Node::optional).
    pub fn at_least(self, count: u32) -> Node<T> {
        self.with(|node| node.at_least = Some(count))
    }

    /// [`at_least(1)`](Node::at_least).
    pub fn any(self) -> Node<T> {
        self.at_least(1)
    }

    /// Runs this node when all nodes for which it waits have ended, completed or not: to clean up, to compensate, to notify. A failed
    /// node still fails the instance, unless it is [`optional`](Node::optional). This node does not run if the instance was cancelled,
    /// or after a failure under [`OnFailure::Cancel`](crate::OnFailure::Cancel).
    pub fn always(self) -> Node<T> {
        self.with(|node| node.always = true)
    }

    /// Lets this node fail without failing the instance.
    pub fn optional(self) -> Node<T> {
        self.with(|node| node.optional = true)
    }

    /// Delays the job by this time, counted from when the node opens.
    pub fn delay(self, delay: Duration) -> Node<T> {
        self.with(|node| node.own.overrides.delay = Some(delay).filter(|delay| !delay.is_zero()))
    }

    /// The priority of its job. Defaults to that of the task.
    pub fn priority(self, priority: Priority) -> Node<T> {
        self.with(|node| node.own.priority = Some(priority))
    }

    /// How many runs its handler gets, 1 to 1,000,000. Defaults to that of the task.
    pub fn attempts(self, attempts: u32) -> Node<T> {
        self.with(|node| node.own.overrides.attempts = Some(attempts))
    }

    /// How long one run of its handler may take. Defaults to that of the task.
    pub fn timeout(self, timeout: Duration) -> Node<T> {
        self.with(|node| node.own.overrides.timeout = Some(timeout))
    }

    fn with(self, change: impl FnOnce(&mut GraphNode)) -> Node<T> {
        if let Some(node) = self.nodes.lock().get_mut(self.index as usize) {
            change(node);
        }
        self
    }

    /// Adds a node that takes the value of this one as its input. It may wait for other nodes too, but runs only if this one completed.
    pub fn then<O>(&self, name: impl Into<String>, task: &impl NodeTask<T, O>) -> Node<O> {
        add::<O>(&self.nodes, name.into(), task.task_name(), NodeInput::Value).after(self)
    }
}

impl<T> upstream::sealed::Sealed for &Node<T> {}

impl<T> Upstream<T> for &Node<T> {
    fn node_name(&self) -> Cow<'_, str> {
        let name = self.nodes.lock().get(self.index as usize).map(|node| node.name.clone());
        Cow::Owned(name.unwrap_or_default())
    }
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Node<T> {
        Node { nodes: Arc::clone(&self.nodes), index: self.index, value: PhantomData }
    }
}

impl<T> fmt::Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.nodes.lock().get(self.index as usize).map(|node| node.name.clone());
        f.debug_struct("Node").field("name", &name).finish_non_exhaustive()
    }
}
