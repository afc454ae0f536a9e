//! What is wrong with workflows, and what may be done about an instance.

use std::time::Duration;

use heartline::{Inspector, InstanceReport, NodeReport, NodeState, TaskReport, WorkflowReport, WorkflowState, codes};

use crate::checks::Grade;
use crate::text::{chain, exact, many, quoted, shown, span};
use crate::troubles::{Trouble, is_moving};

/// A worker makes a step that somebody left within 15 s, and that of a task which it could not reach each 5 s.
const LATE: Duration = Duration::from_secs(30);

/// For so long it is told of what could not be read.
const TOLD_FOR: Duration = Duration::from_secs(24 * 3600);

/// The workflows, or that their list cannot be read.
///
/// # Errors
/// What is then not known.
pub async fn workflows(inspector: &Inspector) -> Result<Vec<WorkflowReport>, Trouble> {
    let e = match inspector.workflows().await {
        Ok(flows) => return Ok(flows),
        Err(e) => e,
    };
    let foreign = inspector.foreign_lists().await.unwrap_or_default();
    let named: Vec<String> = foreign.iter().map(ToString::to_string).collect();
    let (why, hint) = match named.is_empty() {
        false => (
            named.join(", "),
            "nothing starts, and nobody looks after what runs, until that key is renamed or deleted: workers list their workflows anew within a minute, and `heartline flows recover WORKFLOW` any other",
        ),
        true => (
            chain(&e),
            "jobs of no workflow go on; none starts, and whether others do go on is not known until it can be read",
        ),
    };
    let what = format!("the list of workflows cannot be read: {why}");
    Err(Trouble::risk(None, what, hint.to_owned()))
}

/// What is wrong with all of them.
#[must_use]
pub fn troubles_of_all(tasks: &[TaskReport], flows: &Result<Vec<WorkflowReport>, Trouble>) -> Vec<Trouble> {
    let flows = match flows {
        Ok(flows) => flows,
        Err(unlisted) => return vec![unlisted.clone()],
    };
    if let Some(task) = lost_list(tasks, flows) {
        let what = format!("no workflow is listed, and {} has jobs of some: the list is lost", shown(&task.task));
        let hint = "nobody looks after what runs. Workers list what they worked themselves within a minute; `heartline flows recover WORKFLOW` lists any other, and looks after it";
        return vec![Trouble::risk(None, what, hint.to_owned())];
    }
    flows.iter().flat_map(troubles_of).collect()
}

/// What is wrong where no workflow is listed, if something is: the list may be lost.
pub async fn unlisted(inspector: &Inspector) -> Vec<Trouble> {
    match inspector.tasks().await {
        Ok(tasks) => troubles_of_all(&tasks, &Ok(Vec::new())),
        Err(e) => {
            let what = format!("no workflow is listed, and whether that list is lost is not known: {}", chain(&e));
            vec![Trouble::risk(None, what, "the tasks cannot be listed, of which that is seen".to_owned())]
        }
    }
}

/// A task that has had jobs of workflows, where none of those is listed: what is ever listed stays so.
#[must_use]
pub fn lost_list<'a>(tasks: &'a [TaskReport], flows: &[WorkflowReport]) -> Option<&'a TaskReport> {
    tasks.iter().find(|task| task.has_workflows).filter(|_| flows.is_empty())
}

/// What is wrong with a workflow.
#[must_use]
pub fn troubles_of(flow: &WorkflowReport) -> Vec<Trouble> {
    let name = shown(&flow.workflow);
    if let Some(fault) = &flow.fault {
        let (what, hint) = match is_moving(fault) {
            _ if fault.contains("NOPERM") || fault.contains("NoPerm") => (
                format!("the workflow {name} cannot be read: {}", shown(fault)),
                "our own user lacks that right; whether its instances go on is not known",
            ),
            true => (
                format!("the workflow {name} is on the way to another node of the cluster"),
                "its slot is moved, and none of its instances goes on until that has arrived; where nobody moves it any more, `redis-cli --cluster check` and `--cluster fix` end that",
            ),
            false if fault.contains(" and should be a ") => (
                format!("the workflow {name} cannot be moved: {}", shown(fault)),
                "something foreign is stored under one of its keys: look at it, rename or delete it, and restore what was there if anybody has a copy; \
                 until then none of its instances starts or goes on, and `heartline flows recover` says behind that what became of them",
            ),
            false => (
                format!("the workflow {name} cannot be read: {}", shown(fault)),
                "none of its instances goes on until it can be",
            ),
        };
        return vec![Trouble::risk(None, what, hint.to_owned())];
    }
    let mut troubles = Vec::new();
    // One that has just begun nobody has looked after yet.
    let unseen = flow.looked_at.map_or(Duration::ZERO, |at| flow.as_of.duration_since(at).unwrap_or_default());
    let oldest = flow.oldest_step.filter(|oldest| *oldest >= LATE);
    let is_unseen = unseen >= LATE || flow.looked_at.is_none() && oldest.is_some();
    if flow.running > 0 && is_unseen {
        let long = flow.looked_at.map_or_else(String::new, |_| format!(" for {}", span(unseen)));
        let what =
            format!("nobody has looked after the workflow {name}{long}, and {} of it", are(flow.running, "running"));
        let hint =
            "start a worker of this prefix, whichever task it works; `heartline flows recover` looks after them once"
                .to_owned();
        troubles.push(Trouble::risk(None, what, hint));
    } else if let Some(oldest) = oldest {
        let (what, hint) = match flow.steps {
            0 => (
                format!("the workflow {name} could not be told of jobs that have ended, for {}", span(oldest)),
                "the server refuses that, or a field of it is damaged: `heartline flows recover` says why".to_owned(),
            ),
            steps => (
                format!(
                    "{} of the workflow {name} could not be made, the oldest for {}",
                    many(steps, "step"),
                    span(oldest)
                ),
                format!(
                    "a task of it cannot be reached, or refuses its jobs, and workers log why; its tasks: {}",
                    tasks(flow)
                ),
            ),
        };
        troubles.push(Trouble::risk(None, what, hint));
    }
    if flow.nowhere > 0 {
        let what = format!(
            "{} of the workflow {name}, at the least, {} in no place: the server lost that, and they do not go on",
            many(flow.nowhere, "instance"),
            if flow.nowhere == 1 { "stands" } else { "stand" }
        );
        let hint = format!(
            "`heartline flows recover {name}` pauses them, those that had ended, too, but for what was to stop; then resume, retry or cancel them"
        );
        troubles.push(Trouble::risk(None, what, hint));
    }
    let corrupt = flow.corrupt_at.map(|at| flow.as_of.duration_since(at).unwrap_or_default());
    if let Some(ago) = corrupt.filter(|ago| *ago < TOLD_FOR) {
        let times = many(flow.corrupt, "time");
        let what = format!(
            "something of the workflow {name} could not be read, {times} in all, the last one {} ago",
            span(ago)
        );
        let hint = format!(
            "somebody changed it in Redis, or the server lost it; what it belonged to failed, code corrupt: `heartline flows list {name}` lists instances, `flows show` says what; then retry them, or start them anew"
        );
        troubles.push(Trouble { grade: Grade::Note, ..Trouble::risk(None, what, hint) });
    }
    if flow.paused > 0 {
        let what = format!("{} of the workflow {name}", are(flow.paused, "paused"));
        let hint = format!(
            "`heartline flows list {name} --state paused` lists them; `flows show` tells why, then resume, retry or cancel them"
        );
        troubles.push(Trouble { grade: Grade::Note, ..Trouble::risk(None, what, hint) });
    }
    troubles
}

fn are(count: u64, state: &str) -> String {
    format!("{} {} {state}", many(count, "instance"), if count == 1 { "is" } else { "are" })
}

fn tasks(flow: &WorkflowReport) -> String {
    let named: Vec<String> = flow.tasks.iter().take(5).map(|task| shown(task)).collect();
    let more = flow.tasks.len().saturating_sub(named.len());
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

/// Since when, by whom and why an instance is paused; `None` where it is not, or nobody said.
#[must_use]
pub fn paused(found: &InstanceReport) -> Option<String> {
    let pause = found.pause.as_ref()?;
    let by = if pause.by.is_empty() { "a program".to_owned() } else { shown(&pause.by) };
    let reason = if pause.reason.is_empty() { String::new() } else { format!(" ({})", shown(&pause.reason)) };
    Some(format!("by {by}{reason}, {}", exact(pause.at, found.as_of)))
}

/// What may be done about an instance, a line each.
#[must_use]
pub fn advice(found: &InstanceReport) -> Vec<String> {
    let of = format!("{} {}", quoted(&found.workflow), quoted(&found.id));
    if let Some((root, _)) = found.id.split_once('/') {
        return vec![format!(
            "It runs as a node: `heartline flows show {} {}` shows what it is of.",
            quoted(&found.workflow),
            quoted(root)
        )];
    }
    let mut lines = Vec::new();
    match found.state {
        _ if found.node_count == 0 => lines.push(
            "Its graph is lost: it can neither go on nor run once more. Start it anew under another id.".to_owned(),
        ),
        _ if found.is_nowhere => lines.push(format!(
            "`heartline flows recover {}` pauses it; then resume it, run what did not complete once more, or cancel it.",
            quoted(&found.workflow)
        )),
        WorkflowState::Paused if found.pause.is_some() && found.broken_by.is_some() => lines.push(format!(
            "Somebody paused it: ask before you let it go on. `heartline flows resume {of}` lets what does not depend on the failure go on, and it then fails; {}`flows cancel` ends it.",
            if found.open == 0 { "`flows retry` runs what did not complete once more, " } else { "" }
        )),
        WorkflowState::Paused if found.broken_by.is_some() && found.open == 0 => lines.push(format!(
            "`heartline flows retry {of}` runs what did not complete once more, `flows resume` goes on without it, `flows cancel` ends it."
        )),
        WorkflowState::Running if found.broken_by.is_some() && !found.is_stopping => lines.push(format!(
            "It fails once what does not depend on the failure has ended, and `heartline flows retry {of}` runs what did not complete once more then; `flows cancel` ends it now."
        )),
        WorkflowState::Paused => lines.push(format!("`heartline flows resume {of}` lets it go on, `flows cancel` ends it.")),
        WorkflowState::Failed | WorkflowState::Cancelled => lines.push(format!(
            "`heartline flows retry {of}` runs what did not complete once more, with what has completed as it is: a node that made up for the failure (`always`) does not run again."
        )),
        _ => {}
    }
    // What could not be read may have no job, or one that has not failed.
    let is_corrupt = found.code.as_deref() == Some(codes::CORRUPT);
    let has_failed = |node: &&NodeReport| node.state == NodeState::Failed && node.job.is_some();
    let worst = found.nodes.iter().filter(|_| !is_corrupt).find(has_failed);
    if let Some((job, task)) = worst.and_then(|node| Some((node.job.as_ref()?, node.task.as_ref()?))) {
        lines.push(format!(
            "`heartline jobs show -t {} {}` shows how its job failed.",
            quoted(task),
            quoted(job.as_str())
        ));
    }
    lines
}

/// The most nodes of a graph that is drawn.
const DRAWN: usize = 60;

/// How large a node is drawn, and how far apart they stand.
const WIDTH: usize = 150;
const HEIGHT: usize = 30;
const ACROSS: usize = 210;
const DOWN: usize = 44;

/// How much of a name fits.
const LETTERS: usize = 18;

/// A graph as it is drawn: what a node waits for stands left of it.
#[derive(Debug)]
pub struct Picture {
    /// How large it is.
    pub width: usize,
    /// The same.
    pub height: usize,
    /// From where to where lines go.
    pub lines: Vec<String>,
    /// The nodes.
    pub boxes: Vec<NodeBox>,
}

/// A node as it is drawn.
#[derive(Debug)]
pub struct NodeBox {
    /// Where it stands.
    pub x: usize,
    /// The same.
    pub y: usize,
    /// Its name, as far as it fits.
    pub name: String,
    /// What is told of it where it is pointed at.
    pub told: String,
    /// By which it is coloured.
    pub state: NodeState,
}

/// Draws a graph whose nodes are all in the report; `None` of one that is too large to be seen.
#[must_use]
pub fn picture(found: &InstanceReport) -> Option<Picture> {
    if found.node_count > DRAWN || found.nodes.len() != found.node_count || found.node_count == 0 {
        return None;
    }
    // A node stands one column behind the last one that it waits for.
    let mut columns = vec![0; found.nodes.len()];
    for _ in 0..found.nodes.len() {
        let mut is_settled = true;
        for (at, node) in found.nodes.iter().enumerate() {
            let behind = node.after.iter().filter_map(|input| columns.get(*input as usize)).max();
            let column = behind.map_or(0, |column| column + 1);
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
        for (from, above) in node.after.iter().filter_map(|input| places.get(*input as usize)) {
            let (x1, y1, y2) = (from + WIDTH, above + HEIGHT / 2, y + HEIGHT / 2);
            let bend = (ACROSS - WIDTH) / 2;
            lines.push(format!("M{x1} {y1} C{} {y1} {} {y2} {x} {y2}", x1 + bend, x - bend));
        }
    }
    let boxes = found.nodes.iter().zip(places).map(|(node, (x, y))| {
        let name = shown(&node.name);
        let why = node.why.as_ref().map_or_else(String::new, |why| format!(": {}", shown(why)));
        NodeBox {
            x,
            y,
            told: format!("{name} is {}{why}", node.state),
            name: crate::text::brief(&name, LETTERS),
            state: node.state,
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

#[cfg(test)]
mod tests {
    use heartline::{App, Graph, TaskDef, WorkflowOptions};

    use super::*;

    #[tokio::test]
    async fn a_graph_is_drawn_from_left_to_right_in_the_order_of_what_waits() {
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
        assert_eq!(places, [(8, 8), (218, 8), (218, 52), (428, 8)]);
        assert_eq!((drawn.lines.len(), drawn.width, drawn.height), (5, 586, 96));
        assert_eq!(drawn.lines[0], "M158 23 C188 23 188 23 218 23");
        assert!(
            drawn.boxes[2].name.len() < 25 && drawn.boxes[2].told.contains("much-too-long-for-its-box is pending"),
            "{}",
            drawn.boxes[2].told
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
