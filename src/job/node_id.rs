//! The job id of a workflow node. It names the instance, the node and the run.

use super::id::{JobId, MARK};

/// A node of an instance, in one of its runs. The id of its job is `~<definition>/<instance>/<node>/<run>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId {
    pub(crate) definition: String,
    pub(crate) instance: String,
    pub(crate) node: u32,
    pub(crate) run: u64,
}

impl NodeId {
    /// The node whose job has this id; `None` for any other job.
    pub(crate) fn of(id: &JobId) -> Option<NodeId> {
        let (rest, run) = id.as_str().strip_prefix(MARK)?.rsplit_once('/')?;
        let (rest, node) = rest.rsplit_once('/')?;
        let (definition, instance) = rest.split_once('/')?;
        Some(NodeId {
            definition: definition.to_owned(),
            instance: instance.to_owned(),
            node: node.parse().ok()?,
            run: run.parse().ok()?,
        })
    }

    /// The id of the instance that runs this node, if the node is a graph.
    pub(crate) fn child(&self) -> String {
        let NodeId { instance, node, run, .. } = self;
        format!("{instance}/{node}.{run}")
    }

    /// The instance that a start named: the outermost of those around the node.
    pub(crate) fn root(&self) -> &str {
        self.instance.split('/').next().unwrap_or_default()
    }

    /// How many graphs the node's instance is nested in.
    pub(crate) fn depth(&self) -> usize {
        self.instance.matches('/').count()
    }

    /// The words by which scripts name it.
    pub(crate) fn words(&self) -> (&str, u32, u64) {
        (&self.instance, self.node, self.run)
    }

    pub(crate) fn job_id(&self) -> JobId {
        let NodeId { definition, instance, node, run } = self;
        JobId::from_wire(format!("{MARK}{definition}/{instance}/{node}/{run}"))
    }
}

impl JobId {
    /// Whether this is the job of a workflow node.
    pub(crate) fn is_of_workflow(&self) -> bool {
        self.as_str().starts_with(MARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_back_from_the_id_of_its_job() {
        let node = NodeId { definition: "nightly".into(), instance: "2026-11-21".into(), node: 12, run: 3 };
        assert_eq!(node.job_id().as_str(), "~nightly/2026-11-21/12/3");
        assert_eq!(NodeId::of(&node.job_id()), Some(node));
        for other in ["export-7", "~", "~a/b/1", "~a/b/x/1", "~a/b/1/", "a/b/1/1"] {
            assert_eq!(NodeId::of(&JobId::from_wire(other)), None, "{other}");
        }
    }
}
