//! Draws the graph of an instance from left to right.

use heartline::inspect::text::{brief, shown};
use heartline::{InstanceReport, NodeReport, NodeState};

use crate::state::encoded;

/// Larger graphs are not drawn.
const DRAWN: usize = 60;

/// The size of a node, and the distance between nodes.
const WIDTH: usize = 150;
const HEIGHT: usize = 46;
const ACROSS: usize = 210;
const DOWN: usize = 60;

/// The most letters of a name, and of the line below it.
const LETTERS: usize = 15;
const WORDS: usize = 22;

/// A drawing of a graph. The nodes that a node waits for are to its left.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) lines: Vec<Edge>,
    pub(crate) boxes: Vec<NodeBox>,
}

/// The line from a node to one that waits for it.
#[derive(Debug)]
pub(crate) struct Edge {
    /// The SVG path.
    pub(crate) path: String,
    /// Whether the first node has completed.
    pub(crate) is_done: bool,
}

/// The box of a node.
#[derive(Debug)]
pub(crate) struct NodeBox {
    pub(crate) x: usize,
    pub(crate) y: usize,
    /// The name, shortened to fit.
    pub(crate) name: String,
    /// The tooltip.
    pub(crate) title: String,
    /// The state, for the colour.
    pub(crate) state: NodeState,
    /// What the node does or waits for, shortened to fit.
    pub(crate) word: String,
    /// The page of its job or of its subgraph, under the base of the board.
    pub(crate) url: Option<String>,
}

/// Draws a graph; `None` if it is too large, or the report has only some of its nodes.
#[must_use]
pub(crate) fn picture(found: &InstanceReport) -> Option<Picture> {
    if found.node_count > DRAWN || found.nodes.len() != found.node_count || found.node_count == 0 {
        return None;
    }
    // A node is in the column after the last node that it waits for.
    let mut columns = vec![0; found.nodes.len()];
    for _ in 0..found.nodes.len() {
        let mut is_settled = true;
        for (at, node) in found.nodes.iter().enumerate() {
            let after = node.after.iter().filter_map(|input| columns.get(*input as usize)).max();
            let column = after.map_or(0, |column| column + 1);
            is_settled &= columns[at] == column;
            columns[at] = column;
        }
        if is_settled {
            break;
        }
    }
    let mut taken = vec![0; columns.iter().max().map_or(1, |most| most + 1)];
    let mut places = Vec::with_capacity(columns.len());
    for column in &columns {
        let row = taken.get_mut(*column)?;
        places.push((8 + column * ACROSS, 8 + *row * DOWN));
        *row += 1;
    }
    let mut lines = Vec::new();
    for (node, (x, y)) in found.nodes.iter().zip(&places) {
        let inputs = node.after.iter().map(|input| *input as usize);
        for (input, (from, above)) in inputs.filter_map(|input| Some((input, places.get(input)?))) {
            let (x1, y1, y2) = (from + WIDTH, above + HEIGHT / 2, y + HEIGHT / 2);
            let bend = (ACROSS - WIDTH) / 2;
            let path = format!("M{x1} {y1} C{} {y1} {} {y2} {x} {y2}", x1 + bend, x - bend);
            lines.push(Edge { path, is_done: found.nodes[input].state == NodeState::Completed });
        }
    }
    let boxes = found.nodes.iter().zip(places).map(|(node, (x, y))| {
        let name = shown(&node.name);
        let why = node.why.as_ref().map_or_else(String::new, |why| format!(": {}", shown(why)));
        NodeBox {
            x,
            y,
            title: format!("{name} is {}{why}", node.state),
            name: brief(&name, LETTERS),
            state: node.state,
            word: brief(&word(node), WORDS),
            url: url(&found.workflow, node),
        }
    });
    let rows = taken.iter().max().copied().unwrap_or(1);
    Some(Picture {
        width: 16 + (taken.len() - 1) * ACROSS + WIDTH,
        height: 8 + rows * DOWN,
        lines,
        boxes: boxes.collect(),
    })
}

/// The state of a node: that of its job, if it has one that has not ended.
fn word(node: &NodeReport) -> String {
    match node.job_state.filter(|_| node.state == NodeState::Open) {
        Some(state) => state.to_string(),
        None => node.state.to_string(),
    }
}

/// The page of the job or the subgraph of a node.
pub(crate) fn url(workflow: &str, node: &NodeReport) -> Option<String> {
    if let Some(child) = &node.child {
        return Some(format!("/instance?workflow={}&id={}", encoded(workflow), encoded(child)));
    }
    let (task, job) = (node.task.as_ref()?, node.job.as_ref()?);
    Some(format!("/job?task={}&id={}", encoded(task), encoded(job.as_str())))
}

#[cfg(test)]
mod tests {
    use heartline::{App, Graph, TaskDef, WorkflowOptions};

    use super::*;

    #[tokio::test]
    async fn a_graph_is_drawn_in_the_order_of_its_dependencies() {
        const TASK: TaskDef<u32, u32> = TaskDef::new("work");
        let test = heartline::testing::TestApp::start().await.unwrap();
        let app: &App = test.app();
        let flow = app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
        let graph = Graph::new();
        let first = graph.node("first", &TASK, 1);
        let parts = [
            graph.node("one", &TASK, 1).after(&first),
            graph.node("a-name-that-is-much-too-long-for-its-box", &TASK, 1).after(&first),
        ];
        graph.node("last", &TASK, 1).after(&parts).after(&first);
        flow.start(graph).id("x").await.unwrap();
        let found = app.inspector().instance("nightly", "x", 0).await.unwrap().unwrap();
        let drawn = picture(&found).unwrap();
        let places: Vec<(usize, usize)> = drawn.boxes.iter().map(|node| (node.x, node.y)).collect();
        assert_eq!(places, [(8, 8), (218, 8), (218, 68), (428, 8)]);
        assert_eq!((drawn.lines.len(), drawn.width, drawn.height), (5, 586, 128));
        assert_eq!(drawn.lines[0].path, "M158 31 C188 31 188 31 218 31");
        assert!(
            drawn.boxes[2].name.len() < 25 && drawn.boxes[2].title.contains("much-too-long-for-its-box is pending"),
            "{}",
            drawn.boxes[2].title
        );
        let large = Graph::new();
        for n in 0..61 {
            large.node(format!("n-{n}"), &TASK, 1);
        }
        flow.start(large).id("y").await.unwrap();
        let found = app.inspector().instance("nightly", "y", 0).await.unwrap().unwrap();
        assert!(picture(&found).is_none());
    }
}
