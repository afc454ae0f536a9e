//! Turns a graph into the records that a start writes.

use std::collections::HashSet;

use uuid::Uuid;

use super::graph::{Graph, GraphNode, NodeInput};
use super::options::OnFailure;
use crate::backend::workflow::start::{GRAPH, ShapeRecords};
use crate::codec::Codecs;
use crate::config_error::{self, ConfigError, Faults};
use crate::error::Error;
use crate::error::value::encoded_value;
use crate::job::child_graph::{self, StoredInput};
use crate::job::shape::{Shape, ShapeNode};
use crate::limits::{DEPENDENTS, DEPTH, MOST_EDGES, MOST_INPUTS, MOST_NODES, NODE_LIMIT};
use crate::options::validate;

/// A graph without faults.
pub(crate) struct GraphPlan {
    pub(super) shape: Shape,
    /// The inputs of the nodes that have one of their own.
    pub(super) inputs: Vec<StoredInput>,
}

impl GraphPlan {
    /// The graph with its inputs, for a node that runs it. `named` is its name in errors.
    pub(crate) fn into_child(mut self, named: &str) -> Result<Vec<u8>, Error> {
        if self.shape.on_failure == OnFailure::Pause.as_str() {
            // If the nested graph fails, its node fails. An outer instance with the policy `Pause` then pauses.
            self.shape.on_failure = OnFailure::Finish.as_str().to_owned();
        }
        let written = child_graph::write(self.shape, self.inputs);
        let bytes = written.map_err(|source| Error::Codec { what: "the graph".to_owned(), source })?;
        if bytes.len() > NODE_LIMIT {
            let what = format!("{named} with all inputs");
            return Err(Error::TooLarge { what: Some(what), size: bytes.len(), limit: NODE_LIMIT });
        }
        Ok(bytes)
    }
}

/// Checks a graph that is nested `depth` deep, and separates its inputs.
///
/// # Errors
/// `Config` with every fault of the graph; `Codec`, `PayloadCodec` and `TooLarge` for inputs.
pub(crate) fn plan<T>(
    graph: &Graph<T>,
    on_failure: OnFailure,
    depth: usize,
    codecs: &Codecs,
) -> Result<GraphPlan, Error> {
    let mut nodes = graph.nodes.lock();
    let mut faults = Faults::default();
    if depth > DEPTH {
        let fix = "put its nodes into the graph around it";
        let fault = ConfigError::new("graph", format!("{depth} deep"), format!("must be at most {DEPTH} deep"), fix);
        return Err(Error::Config(fault.into()));
    }
    for node in nodes.iter_mut() {
        // Keep each node once, in the order in which they were named.
        let mut seen = HashSet::new();
        node.inputs.retain(|input| seen.insert(*input));
    }
    check(&nodes, graph.output, &mut faults);
    let mut children = Vec::new();
    for node in nodes.iter() {
        let NodeInput::Graph(child) = &node.input else { continue };
        match plan(child, on_failure, depth + 1, codecs) {
            Err(Error::Config(found)) => faults.extend(found.within(&node.name)),
            planned => {
                children.push(planned?.into_child(&format!("the graph {}", config_error::shown(&node.name)))?);
            }
        }
    }
    faults.finish()?;
    let (mut inputs, mut children) = (Vec::new(), children.into_iter());
    for (index, node) in (0..).zip(nodes.iter_mut()) {
        let what = || format!("the input of the node {}", config_error::shown(&node.name));
        let payload = match &mut node.input {
            NodeInput::Own(json) => {
                let json = std::mem::replace(json, Ok(Vec::new()));
                encoded_value(json.map_err(|source| Error::Codec { what: what(), source })?, codecs, what)?
            }
            NodeInput::Graph(_) => children.next().unwrap_or_default(),
            NodeInput::Value => continue,
        };
        if payload.len() > NODE_LIMIT {
            return Err(Error::TooLarge { what: Some(what()), size: payload.len(), limit: NODE_LIMIT });
        }
        inputs.push((index, payload));
    }
    let mut shape_nodes = Vec::with_capacity(nodes.len());
    for node in nodes.iter() {
        let own = if node.own.is_empty() { String::new() } else { json(&node.own)? };
        shape_nodes.push(ShapeNode {
            name: node.name.clone(),
            task: node.task.clone(),
            inputs: node.inputs.clone(),
            at_least: node.at_least,
            always: node.always,
            optional: node.optional,
            is_graph: matches!(node.input, NodeInput::Graph(_)),
            takes_value: matches!(node.input, NodeInput::Value),
            own,
        });
    }
    let shape = Shape { nodes: shape_nodes, output: graph.output, on_failure: on_failure.as_str().to_owned() };
    Ok(GraphPlan { shape, inputs })
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|source| Error::Codec { what: "the graph".to_owned(), source })
}

fn check(nodes: &[GraphNode], output: Option<u32>, faults: &mut Faults) {
    if nodes.is_empty() {
        faults.add("graph", "without a node", "must have one", "add one with Graph::node");
    }
    faults.number("nodes", nodes.len().max(1) as u64, 1, MOST_NODES as u64);
    let edges = nodes.iter().map(|node| node.inputs.len() as u64).sum();
    faults.number("edges", edges, 0, MOST_EDGES);
    if output.is_some_and(|output| output as usize >= nodes.len()) {
        let fix = "name a node that this graph made";
        faults.add("output", "a node of another graph", "must be a node of the graph", fix);
    }
    let mut names = HashSet::new();
    for node in nodes {
        let name = config_error::shown(&node.name);
        let field = format!("node {name}");
        let is_allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b'{' | b'}' | b'/');
        let rule = "must be 1 to 64 bytes of printable ASCII without space, '{', '}' and '/'";
        faults.gather(config_error::text("node", &node.name, 64, is_allowed, rule, "use a name like \"resize-64\""));
        if !names.insert(&node.name) {
            faults.add(&field, &name, "must be the only node of its name", "give one of them another name");
        }
        if matches!(node.input, NodeInput::Graph(_)) {
            if !node.own.is_empty() {
                let (rule, fix) = ("must have none, since it is not a job", "give them to the nodes of the graph");
                faults.add(&field, "a graph with a delay, priority, attempts or timeout", rule, fix);
            }
        } else {
            faults.gather(validate::task_name(&node.task).map_err(|found| found.of_node(&node.name)));
        }
        faults.gather(node.own.overrides.validate().map_err(|found| found.of_node(&node.name)));
        if node.is_mixed {
            let fix = "name nodes that this graph made";
            faults.add(&field, "after a node of another graph", "must wait for nodes of its own graph", fix);
        }
        let count = node.inputs.len() as u64;
        faults.number(&format!("{field}, after"), count, 0, MOST_INPUTS);
        if matches!(node.input, NodeInput::Value)
            && (node.always || node.at_least.is_some_and(|least| u64::from(least) < count))
        {
            let (rule, fix) = (
                "must wait for the node whose value it takes",
                "give it an input, and read the value with Context::upstream",
            );
            faults.add(&field, "a node made by `then` that may run without its input", rule, fix);
        }
        if let Some(least) = node.at_least {
            if node.always {
                let fix = "leave one of the two out";
                faults.add(&field, "at_least and always", "must be one of them", fix);
            }
            if least == 0 || u64::from(least) > count {
                let rule = match count {
                    0 => "must not be set, since the node waits for no others".to_owned(),
                    _ => format!("must be 1 to {count}, the number of nodes that it waits for"),
                };
                let fix = "name them with `after` first";
                faults.add(format!("{field}, at_least"), least.to_string(), rule, fix);
            }
        }
    }
    if let Some(node) = on_a_cycle(nodes) {
        let fix = "remove the edge by which a node waits for itself";
        faults.add(
            "graph",
            format!("a cycle through the node {}", config_error::shown(&node.name)),
            "must have none",
            fix,
        );
    }
}

/// A node that waits for itself, directly or through others (Kahn's algorithm). Nodes that are left over are on a cycle or depend on
/// one.
fn on_a_cycle(nodes: &[GraphNode]) -> Option<&GraphNode> {
    let mut left: Vec<usize> = nodes.iter().map(|node| node.inputs.len()).collect();
    let dependents = dependents(nodes.iter().map(|node| &*node.inputs));
    let mut free: Vec<usize> = (0..nodes.len()).filter(|index| left[*index] == 0).collect();
    let mut seen = 0;
    while let Some(index) = free.pop() {
        seen += 1;
        for dependent in dependents[index].iter().map(|index| *index as usize) {
            left[dependent] -= 1;
            if left[dependent] == 0 {
                free.push(dependent);
            }
        }
    }
    (seen < nodes.len()).then(|| nodes.iter().zip(left).find(|(_, left)| *left > 0).map(|(node, _)| node)).flatten()
}

/// For each node, the nodes that wait for it.
fn dependents<'a>(inputs: impl Iterator<Item = &'a [u32]> + Clone) -> Vec<Vec<u32>> {
    let mut found = vec![Vec::new(); inputs.clone().count()];
    for (index, inputs) in (0..).zip(inputs) {
        for input in inputs {
            if let Some(known) = found.get_mut(*input as usize) {
                known.push(index);
            }
        }
    }
    found
}

/// The records that `lua/lib/flow.lua` reads.
///
/// # Errors
/// `Codec` if the shape cannot be written as JSON.
pub(super) fn records(shape: &Shape) -> Result<ShapeRecords, Error> {
    let text = json(shape)?;
    // Named by its content, so that all instances of the same graph share it.
    let digest = base62::encode(Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).as_u128());
    let output = shape.output.map_or_else(|| "-".to_owned(), |output| output.to_string());
    let mut records = vec![(digest.clone(), text.into_bytes())];
    let dependents = dependents(shape.nodes.iter().map(|node| &*node.inputs));
    let mut states = Vec::with_capacity(shape.nodes.len());
    let mut tasks: Vec<String> = Vec::new();
    for ((index, node), dependents) in shape.nodes.iter().enumerate().zip(dependents) {
        states.push(match (node.inputs.is_empty(), node.is_graph) {
            (true, true) => "g".to_owned(),
            (true, false) => "o".to_owned(),
            _ => node.waits(0),
        });
        let source = if node.takes_value { node.inputs.first() } else { None };
        let source = source.map_or_else(|| "-".to_owned(), u32::to_string);
        let flags = match (node.optional, node.is_graph) {
            (true, true) => "og",
            (true, false) => "o",
            (false, true) => "g",
            _ => "-",
        };
        let task = if node.is_graph { GRAPH } else { &node.task };
        let mut pages = dependents.chunks(DEPENDENTS);
        let words = |page: &[u32]| page.iter().map(|index| format!(" {index}")).collect::<String>();
        let first = words(pages.next().unwrap_or_default());
        let record = format!("{flags} {source} {task}\n{}\n{}{first}", node.own, dependents.len());
        records.push((format!("{digest}/{index}"), record.into_bytes()));
        for (page, named) in (1..).zip(pages) {
            records.push((format!("{digest}/{index}/{page}"), words(named).into_bytes()));
        }
        if !node.is_graph && !tasks.contains(&node.task) {
            tasks.push(node.task.clone());
        }
    }
    // Written last: a reader that finds this record finds all others.
    let all = format!("{} {} {output}", shape.nodes.len(), shape.on_failure);
    records.push((format!("{digest}@"), all.into_bytes()));
    Ok(ShapeRecords { digest, states, tasks, records })
}
