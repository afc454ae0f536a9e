//! What the handler of a workflow node can read about other nodes.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::context::{Context, GivenNode};
use crate::backend::engine::Store;
use crate::backend::keys::TaskKeys;
use crate::backend::repeated::{CallDeadline, repeated};
use crate::backend::timeouts::{RESPONSE_TIMEOUT, response_time};
use crate::backend::workflow::nodes;
use crate::codec::Codecs;
use crate::config_error::{self, ConfigError, ConfigErrors};
use crate::error::Error;
use crate::error::value::read_value;
use crate::job::failure::{Failure, StoredError, codes};
use crate::job::id::JobId;
use crate::job::node_id::NodeId;
use crate::job::shape::Shape;
use crate::limits::{LOOK_BATCH, NODE_LIMIT};

/// How long a failover may take: by default, cluster nodes wait 15 s before they begin one.
const FAILOVER: Duration = Duration::from_secs(60);

/// How many values are read in one call. Each may have 1 MiB.
const VALUES: usize = 8;

/// The name of a node with the type of its value. Use one constant where the graph is built and where the value is read.
///
/// ```
/// # use heartline::{Context, Graph, JobError, NodeName, TaskDef};
/// # const FETCH: TaskDef<String, Vec<u8>> = TaskDef::new("fetch");
/// # const COUNT: TaskDef<(), usize> = TaskDef::new("count");
/// const PAGE: NodeName<Vec<u8>> = NodeName::new("page");
///
/// fn graph() -> Graph<usize> {
///     let graph = Graph::new();
///     let page = graph.node(PAGE, &FETCH, "https://example.org".to_owned());
///     let count = graph.node("count", &COUNT, ()).after(&page);
///     graph.output(&count)
/// }
///
/// async fn count(ctx: Context, _: ()) -> Result<usize, JobError> {
///     Ok(ctx.upstream(PAGE).await?.len())
/// }
/// ```
pub struct NodeName<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> NodeName<T> {
    /// Makes a name. It is checked when it is used.
    #[must_use]
    pub const fn new(name: &'static str) -> NodeName<T> {
        NodeName { name, value: PhantomData }
    }

    /// The name as text.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.name
    }
}

impl<T> Clone for NodeName<T> {
    fn clone(&self) -> NodeName<T> {
        *self
    }
}

impl<T> Copy for NodeName<T> {}

impl<T> std::fmt::Debug for NodeName<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeName").field(&self.name).finish()
    }
}

impl<T> From<NodeName<T>> for String {
    fn from(name: NodeName<T>) -> String {
        name.name.to_owned()
    }
}

/// Anything that names a node whose value is a `T`: text, a [`NodeName`], or the [`Node`](crate::Node) itself.
pub trait Upstream<T>: sealed::Sealed {
    /// The name of the node.
    fn node_name(&self) -> Cow<'_, str>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for &str {}
    impl Sealed for &String {}
    impl<T> Sealed for super::NodeName<T> {}
}

impl<T> Upstream<T> for &str {
    fn node_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<T> Upstream<T> for &String {
    fn node_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<T> Upstream<T> for NodeName<T> {
    fn node_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name)
    }
}

/// The access of a handler to its instance.
struct NodeReader<'a> {
    store: &'a Store,
    keys: TaskKeys,
    node: NodeId,
    shape: Arc<Shape>,
}

impl Context {
    /// The value of a node of the same instance that has completed, usually one that this node waited for. While Redis
    /// is unreachable or a failover is under way, the read is repeated for a minute, or for
    /// [`AppBuilder::dispatch_timeout`](crate::AppBuilder::dispatch_timeout) if that is longer.
    ///
    /// # Errors
    /// - [`Error::JobFailed`] if the node did not complete: with its failure, or with the code `cancelled`, `skipped`
    ///   if it did not run, or `not_ended`.
    /// - [`Error::Config`] if the graph has no node of this name, or this job is not a node of a workflow.
    /// - [`Error::Codec`] if its value cannot be decoded as `T`.
    /// - Those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn upstream<T: DeserializeOwned>(&self, node: impl Upstream<T>) -> Result<T, Error> {
        if !self.0.given.is_empty() {
            let name = node.node_name();
            let given = self.0.given.iter().find(|(given, _)| *given == name).ok_or_else(|| no_such_node(&name))?;
            return self.given(given)?.1.map_err(Error::JobFailed);
        }
        let (name, reader) = (node.node_name(), self.reader().await?);
        let index = number_of(&reader.shape, &name)?;
        let found = reader.read::<T>(&[index]).await?.pop();
        found.ok_or(Error::Closed)?.1.map_err(Error::JobFailed)
    }

    /// The names of all nodes that this one waits for, in the order in which they were named, with their values or
    /// failures. If this node [waits for some of them](crate::Node::at_least), the others may end meanwhile. The read
    /// is repeated as by [`upstream`](Context::upstream).
    ///
    /// # Errors
    /// [`Error::Config`] if this job is not a node of a workflow. [`Error::Codec`] if a value cannot be decoded as `T`.
    /// And those of every call, see [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn upstreams<T: DeserializeOwned>(&self) -> Result<Vec<(String, Result<T, Failure>)>, Error> {
        if !self.0.given.is_empty() {
            return self.0.given.iter().map(|given| self.given(given)).collect();
        }
        let reader = self.reader().await?;
        let inputs = reader.shape.nodes.get(reader.node.node as usize).map(|node| node.inputs.clone());
        reader.read(&inputs.unwrap_or_default()).await
    }

    /// The value that a test has set.
    fn given<T: DeserializeOwned>(&self, (name, said): &GivenNode) -> Result<(String, Result<T, Failure>), Error> {
        let value = match said {
            Ok(json) => Ok(serde_json::from_slice(json).map_err(|source| {
                let what = format!("the value of the node {}", config_error::shown(name));
                Error::Codec { what, source }
            })?),
            Err(error) => Err(Failure::new(self.id().clone(), error.clone(), 0, 0)),
        };
        Ok((name.clone(), value))
    }

    async fn reader(&self) -> Result<NodeReader<'_>, Error> {
        let (Some(node), Some(notes)) = (NodeId::of(self.id()), &self.0.note_store) else {
            return Err(no_node(self.id()));
        };
        let store = &*notes.store;
        let keys = store.workflow(&node.definition);
        let gone = || Error::WorkflowNotFound { workflow: node.definition.clone(), id: node.instance.clone() };
        let of = (&keys, &*node.instance);
        let look = |mut conn| async move { nodes::digest(&mut conn, of.0, of.1).await };
        let digest = repeated(deadline(store, 0), || store.ask(RESPONSE_TIMEOUT, look)).await?.ok_or_else(gone)?;
        let name = format!("{}/{digest}", node.definition);
        let shape = match notes.shapes.get(&name) {
            Some(shape) => shape,
            None => notes.shapes.keep(name, read_shape(store, &keys, &digest).await?.ok_or_else(gone)?),
        };
        Ok(NodeReader { store, keys, node, shape })
    }
}

/// The number of the node of this name.
///
/// # Errors
/// `Config` if the graph has none.
pub(crate) fn number_of(shape: &Shape, name: &str) -> Result<u32, Error> {
    let found = (0..).zip(&shape.nodes).find(|(_, node)| node.name == name);
    found.map(|(number, _)| number).ok_or_else(|| no_such_node(name))
}

fn no_such_node(name: &str) -> Error {
    let rule = "must be the name of a node of the graph";
    let fix = "use one constant for both, see NodeName";
    Error::Config(ConfigErrors::from(ConfigError::new("node", config_error::shown(name), rule, fix)))
}

pub(crate) fn no_node(id: &JobId) -> Error {
    let fix = "start it as a node of a graph, with Workflow::start";
    let fault = ConfigError::new("job", id.to_string(), "must be a node of a workflow", fix);
    Error::Config(ConfigErrors::from(fault))
}

/// How long a read of this many bytes is repeated: over a failover, since losing the run would cost more.
fn deadline(store: &Store, bytes: usize) -> CallDeadline {
    CallDeadline::new(store.dispatch_timeout.max(FAILOVER), Instant::now(), bytes)
}

async fn read_shape(store: &Store, keys: &TaskKeys, digest: &str) -> Result<Option<Shape>, Error> {
    let read = |mut conn| async move { nodes::shape(&mut conn, keys, digest).await };
    let json = repeated(deadline(store, NODE_LIMIT), || store.ask(response_time(NODE_LIMIT), read)).await?;
    let read = json.map(|json| serde_json::from_slice(&json)).transpose();
    read.map_err(|source| Error::Codec { what: "the graph of the workflow".to_owned(), source })
}

impl NodeReader<'_> {
    /// The names of these nodes, with their values or failures.
    async fn read<T: DeserializeOwned>(&self, nodes: &[u32]) -> Result<Vec<(String, Result<T, Failure>)>, Error> {
        let (keys, instance) = (&self.keys, &*self.node.instance);
        let mut found = Vec::with_capacity(nodes.len());
        for some in nodes.chunks(LOOK_BATCH) {
            let look = |mut conn| async move { nodes::states(&mut conn, keys, instance, some).await };
            let states = repeated(deadline(self.store, 0), || self.store.ask(RESPONSE_TIMEOUT, look)).await?;
            for (some, states) in some.chunks(VALUES).zip(states.chunks(VALUES)) {
                let read = async |conn: &mut _| nodes::values(conn, keys, instance, some).await;
                let bytes = VALUES * NODE_LIMIT;
                let values =
                    repeated(deadline(self.store, bytes), || self.store.read(response_time(bytes), read)).await?;
                for ((node, state), value) in some.iter().zip(states).zip(values) {
                    let name = self.shape.nodes.get(*node as usize).map_or_else(String::new, |node| node.name.clone());
                    let job = NodeId { node: *node, ..self.node.clone() }.job_id();
                    let said =
                        value_or_failure(&name, job, state.as_deref().unwrap_or_default(), value, &self.store.codecs)?;
                    found.push((name, said));
                }
            }
        }
        Ok(found)
    }
}

/// The value or failure of a node, from its state and its stored value or error.
///
/// # Errors
/// `Codec` or `PayloadCodec` if its value cannot be decoded as `T`.
pub(crate) fn value_or_failure<T: DeserializeOwned>(
    name: &str,
    job: JobId,
    state: &str,
    kept: Option<Vec<u8>>,
    codecs: &Codecs,
) -> Result<Result<T, Failure>, Error> {
    let plain = |code: &str, message: &str| StoredError { code: code.to_owned(), message: message.to_owned() };
    let error = match state.as_bytes().first() {
        Some(b'c') => {
            let what = || format!("the value of the node {}", config_error::shown(name));
            return read_value(kept.as_deref().unwrap_or(b"null"), codecs, what).map(Ok);
        }
        Some(b'f' | b'x') => StoredError::from_json(&String::from_utf8_lossy(&kept.unwrap_or_default())),
        Some(b's') => plain(codes::SKIPPED, "the node did not run"),
        _ => plain(codes::NOT_ENDED, "the node has not ended: name it in Node::after"),
    };
    Ok(Err(Failure::new(job, error, 0, 0)))
}
