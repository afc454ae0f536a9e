//! A handler replaces its node by a graph.

use super::graph::Graph;
use super::options::OnFailure;
use super::shape::plan;
use crate::config_error::{ConfigError, ConfigErrors};
use crate::error::Error;
use crate::job::node_id::NodeId;
use crate::runtime::context::Context;
use crate::runtime::upstream::no_node;

impl Context {
    /// Replaces the node by a graph. The graph starts when the handler has returned a value. The node ends with the graph, in the
    /// same state. Its value is the output of the graph, which must have the type of the task's value. If the graph has no output,
    /// the value of the node is what the handler returned.
    ///
    /// Redis records the graph and the end of the job in one step. If the handler fails, no graph starts. If this is called again,
    /// the last graph counts. The graph follows the [`OnFailure`] of the instance, with `Finish` in place of `Pause`. The names of
    /// its nodes are separate from those of the instance. Its nodes cannot read values of nodes outside the graph: pass such values
    /// as inputs.
    ///
    /// # Errors
    /// - [`Error::Config`] if this job is not a node of a workflow, or if this is its hook.
    /// - [`Error::Config`] if the graph has faults, or is more than eight deep.
    /// - [`Error::Codec`] if an input cannot be written as JSON, [`Error::TooLarge`] if the graph takes over 1 MiB with all inputs.
    ///
    /// ```
    /// # use heartline::{Context, Graph, JobError, TaskDef};
    /// const CRAWL: TaskDef<String, u64> = TaskDef::new("crawl");
    ///
    /// async fn crawl(ctx: Context, url: String) -> Result<u64, JobError> {
    ///     let links: Vec<String> = Vec::new(); // the links of the page
    ///     let graph = Graph::new();
    ///     for (number, link) in links.into_iter().enumerate() {
    ///         graph.node(format!("link-{number}"), &CRAWL, link).optional();
    ///     }
    ///     if !graph.is_empty() {
    ///         ctx.expand(graph)?;
    ///     }
    ///     Ok(1)
    /// }
    /// ```
    pub fn expand<T>(&self, graph: Graph<T>) -> Result<(), Error> {
        let Some(node) = NodeId::of(self.id()) else { return Err(no_node(self.id())) };
        if self.0.is_hook {
            let fix = "call it in the handler: the graph is written with the handler's outcome";
            let fault = ConfigError::new("hook", self.id().to_string(), "must not change the outcome", fix);
            return Err(Error::Config(ConfigErrors::from(fault)));
        }
        let planned = plan(&graph, OnFailure::Finish, node.depth() + 1, &self.codecs())?;
        self.0.held.notes.grow(planned.into_child("the graph")?);
        Ok(())
    }
}
