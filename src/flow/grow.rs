//! A node that goes on as a graph which its handler made.

use super::graph::Graph;
use super::options::OnFailure;
use super::shape::plan;
use crate::error::Error;
use crate::faults::{ConfigError, ConfigErrors};
use crate::job::node_id::NodeId;
use crate::process::context::Context;
use crate::process::upstream::no_node;

impl Context {
    /// Lets the node go on as a graph: once the handler has returned a value, the node ends when the graph has ended, as it did. Its value is then the output of
    /// the graph, which is to be of the type of the task's value, or, where the graph has none, what the handler returned. The graph is written with the
    /// end of the job, so neither is there without the other, and goes by the [`OnFailure`] of the instance (under `Pause` by `Finish`); a handler that fails has grown nothing. Called again, the last graph counts.
    ///
    /// The names of its nodes are its own, and its nodes read no values of those around it: give them as inputs.
    ///
    /// # Errors
    /// - [`Error::Config`] if this job is no node of a workflow, or this is its hook, or the graph has faults, or would stand more than eight deep.
    /// - [`Error::Codec`] and [`Error::TooLarge`] of a graph that is no JSON, or takes, with all inputs, over 1 MiB.
    ///
    /// ```
    /// # use heartline::{Context, Graph, JobError, TaskDef};
    /// const CRAWL: TaskDef<String, u64> = TaskDef::new("crawl");
    ///
    /// async fn crawl(ctx: Context, url: String) -> Result<u64, JobError> {
    ///     let links: Vec<String> = Vec::new(); // .. of the page
    ///     let graph = Graph::new();
    ///     for (number, link) in links.into_iter().enumerate() {
    ///         graph.node(format!("link-{number}"), &CRAWL, link).optional();
    ///     }
    ///     if !graph.is_empty() {
    ///         ctx.grow(graph)?;
    ///     }
    ///     Ok(1)
    /// }
    /// ```
    pub fn grow<T>(&self, graph: Graph<T>) -> Result<(), Error> {
        let Some(node) = NodeId::of(self.id()) else { return Err(no_node(self.id())) };
        if self.0.is_hook {
            let fix = "call it in the handler: what the node goes on as is written with its outcome";
            let fault = ConfigError::new("hook", self.id().to_string(), "must leave the outcome as it is", fix);
            return Err(Error::Config(ConfigErrors::from(fault)));
        }
        let planned = plan(&graph, OnFailure::Finish, node.depth() + 1)?;
        self.0.held.notes.grow(planned.into_child("the graph")?);
        Ok(())
    }
}
