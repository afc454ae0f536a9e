//! The workflows, the instances of one, and an instance with its graph.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use futures_util::future::join_all;
use heartline::{Diagnosis, InstanceReport, NodeReport, NodeState, WorkflowReport, WorkflowState};
use serde::Deserialize;

use crate::badge::{self, Badge, grouped};
use crate::frame::Frame;
use crate::picture::{Picture, picture, url};
use crate::state::{Board, PageResult, answer, encoded};
use crate::trouble::{Advice, Trouble};
use heartline::inspect::describe::{advice, paused};
use heartline::inspect::text::exact;

/// The most instances on a page.
const LISTED: usize = 50;

/// The most subgraphs of failed nodes that are checked before the page links to them.
const CHECKED: usize = 10;

/// The states of instances, in the order of the page.
const PLACES: [WorkflowState; 5] = [
    WorkflowState::Running,
    WorkflowState::Paused,
    WorkflowState::Completed,
    WorkflowState::Failed,
    WorkflowState::Cancelled,
];

#[derive(Template)]
#[template(path = "flows.html")]
struct FlowsPage {
    frame: Frame,
    now: SystemTime,
    states: [WorkflowState; 5],
    flows: Vec<WorkflowReport>,
    troubles: Vec<Trouble>,
}

pub(crate) async fn all(State(board): State<Arc<Board>>, head: Parts) -> PageResult {
    let (flows, now) = board.or_failed(tokio::try_join!(board.inspector.workflows(), board.inspector.server_time()))?;
    let diagnoses: Vec<Diagnosis> = match flows.is_empty() {
        true => board.inspector.diagnose_empty_workflow_list().await,
        false => flows.iter().flat_map(WorkflowReport::diagnoses).collect(),
    };
    let frame = board.frame(&head);
    Ok(answer(&FlowsPage { troubles: Trouble::all(&diagnoses, &frame), frame, now, states: PLACES, flows }))
}

fn count(flow: &WorkflowReport, state: WorkflowState) -> u64 {
    match state {
        WorkflowState::Running => flow.running,
        WorkflowState::Paused => flow.paused,
        WorkflowState::Completed => flow.completed,
        WorkflowState::Failed => flow.failed,
        _ => flow.cancelled,
    }
}

#[derive(Deserialize)]
pub(crate) struct AskedList {
    workflow: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    cursor: String,
    #[serde(default)]
    oldest: String,
}

#[derive(Template)]
#[template(path = "flow.html")]
struct FlowPage {
    frame: Frame,
    workflow: String,
    states: [WorkflowState; 5],
    state: WorkflowState,
    is_oldest: bool,
    page: heartline::InstancePage,
    /// Whether a cause of an end or a pause is known.
    shows_why: bool,
    /// Whether the reader may retry these failed instances.
    offers_retry: bool,
    next: Option<String>,
}

pub(crate) async fn one(State(board): State<Arc<Board>>, head: Parts, Query(asked): Query<AskedList>) -> PageResult {
    let state = if asked.state.is_empty() { Ok(WorkflowState::Running) } else { asked.state.parse() };
    let state = board.or_failed(state.map_err(heartline::Error::from))?;
    let (newest, cursor) = (asked.oldest.is_empty(), Some(&*asked.cursor).filter(|cursor| !cursor.is_empty()));
    let page = board.or_failed(board.inspector.instances(&asked.workflow, state, newest, cursor, LISTED).await)?;
    if page.instances.is_empty() && cursor.is_none() {
        // The name may be mistyped.
        match board.inspector.workflows().await {
            Ok(flows) if flows.iter().all(|flow| flow.workflow != asked.workflow) => {
                let text = format!("There is no workflow {}.", asked.workflow);
                return Err(board.problem(StatusCode::NOT_FOUND, "There is no such workflow", &text));
            }
            _ => {}
        }
    }
    let oldest = if newest { "" } else { "&oldest=yes" };
    let next = |cursor: &String| {
        let (workflow, cursor) = (encoded(&asked.workflow), encoded(cursor));
        board.url(&format!("/flow?workflow={workflow}&state={state}{oldest}&cursor={cursor}"))
    };
    let frame = board.frame(&head);
    Ok(answer(&FlowPage {
        offers_retry: state == WorkflowState::Failed
            && (!page.instances.is_empty() || page.next.is_some())
            && frame.may("flow_retry"),
        frame,
        next: page.next.as_ref().map(next),
        shows_why: page.instances.iter().any(|row| row.code.is_some()),
        page,
        workflow: asked.workflow,
        states: PLACES,
        state,
        is_oldest: !newest,
    }))
}

#[derive(Deserialize)]
pub(crate) struct AskedInstance {
    workflow: String,
    id: String,
    #[serde(default)]
    from: u32,
    #[serde(default)]
    zoom: Zoom,
}

/// The size of a graph. A larger one than the page is panned by scrolling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Zoom {
    /// Not wider than the page.
    Fit,
    #[default]
    Normal,
    Large,
}

impl Zoom {
    /// All sizes with their names and labels.
    const ALL: [(Zoom, &str, &str); 3] =
        [(Zoom::Fit, "fit", "Fit"), (Zoom::Normal, "normal", "100 %"), (Zoom::Large, "large", "200 %")];

    /// The length in a drawing of this size.
    fn of(self, length: usize) -> usize {
        if self == Zoom::Large { 2 * length } else { length }
    }
}

#[derive(Template)]
#[template(path = "instance.html")]
struct InstancePage {
    frame: Frame,
    found: InstanceReport,
    badge: Badge,
    facts: Vec<(&'static str, String)>,
    broken: Option<String>,
    advice: Vec<Advice>,
    /// The node that failed first: what it is, and its page under the base of the board.
    failed_node: Option<(&'static str, String)>,
    acts: Vec<(&'static str, &'static str, bool)>,
    /// The graph, if it is small enough to be drawn.
    picture: Option<Picture>,
    zoom: Zoom,
    next: Option<String>,
    /// The instance that this is a subgraph of.
    root: Option<String>,
}

pub(crate) async fn instance(
    State(board): State<Arc<Board>>,
    head: Parts,
    Query(asked): Query<AskedInstance>,
) -> PageResult {
    let (id, workflow) = (&asked.id, &asked.workflow);
    let Some(mut found) = board.or_failed(board.inspector.instance(workflow, id, asked.from).await)? else {
        let text = format!("There is no instance {id} of the workflow {workflow}. It may have been removed.");
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such instance", &text));
    };
    for child in missing_children(&board, &found).await {
        let nodes = found.failed_node.iter_mut().chain(&mut found.nodes);
        nodes.filter(|node| node.child.as_ref() == Some(&child)).for_each(|node| node.child = None);
    }
    let frame = board.frame(&head);
    let is_root = !found.id.contains('/');
    let at = |from: u32| {
        let (workflow, id) = (encoded(&found.workflow), encoded(&found.id));
        board.url(&format!("/instance?workflow={workflow}&id={id}&from={from}"))
    };
    Ok(answer(&InstancePage {
        badge: badge::of_flow(found.state),
        facts: facts(&found),
        broken: broken(&found),
        // The page of a subgraph links to its instance, and that is all the advice about it.
        advice: advice(&found).iter().filter(|_| is_root).map(|line| Advice::of(line, &frame)).collect(),
        failed_node: found.failed_node.as_ref().and_then(|node| failed(&found.workflow, node)),
        acts: frame.offered(if is_root { acts_on(&found) } else { Vec::new() }),
        frame,
        picture: picture(&found),
        zoom: asked.zoom,
        next: found.next.map(at),
        root: found.id.split_once('/').map(|(root, _)| root.to_owned()),
        found,
    }))
}

/// The subgraphs of failed nodes without an instance: they could not start.
async fn missing_children(board: &Board, found: &InstanceReport) -> Vec<String> {
    let failed = found.failed_node.iter().chain(&found.nodes).filter(|node| node.state == NodeState::Failed);
    let children: BTreeSet<&String> = failed.filter_map(|node| node.child.as_ref()).take(CHECKED).collect();
    let reads = children.into_iter().map(|child| async {
        let read = board.inspector.instance(&found.workflow, child, 0).await;
        (!matches!(read, Ok(Some(_)))).then(|| child.clone())
    });
    join_all(reads).await.into_iter().flatten().collect()
}

fn failed(workflow: &str, node: &NodeReport) -> Option<(&'static str, String)> {
    let what = if node.child.is_some() { "Failed subgraph" } else { "Failed job" };
    Some((what, url(workflow, node)?))
}

fn facts(found: &InstanceReport) -> Vec<(&'static str, String)> {
    let stops = if found.is_stopping { " (stops)" } else { "" };
    let nodes = match found.state.is_ended() {
        true => ("Nodes", found.node_count.to_string()),
        false => ("Not ended", format!("{} of {} nodes, {} open", found.unfinished, found.node_count, found.open)),
    };
    let facts = [
        Some(("State", format!("{}{stops}", found.state))),
        paused(found).map(|by| ("Paused", by)),
        found.begins_at.map(|at| (if at > found.as_of { "Begins" } else { "Began" }, exact(at, found.as_of))),
        found.ended_at.map(|at| ("Ended", exact(at, found.as_of))),
        Some(nodes),
        (found.run > 1).then(|| ("Run", found.run.to_string())),
    ];
    facts.into_iter().flatten().collect()
}

fn broken(found: &InstanceReport) -> Option<String> {
    let message = found.message.as_ref()?;
    let code = found.code.as_deref().unwrap_or_default();
    let node = found.broken_by.as_ref().map_or_else(String::new, |node| format!("{node}: "));
    Some(format!("{node}{message} ({code})"))
}

/// The actions on an instance in its state.
fn acts_on(found: &InstanceReport) -> Vec<(&'static str, &'static str, bool)> {
    let (retry, cancel) = (("flow_retry", "Retry incomplete nodes", false), ("flow_cancel", "Cancel", true));
    match found.state {
        WorkflowState::Running => vec![("flow_pause", "Pause", false), cancel],
        // An instance with open nodes cannot be retried.
        WorkflowState::Paused if found.open > 0 => vec![("flow_resume", "Resume", false), cancel],
        WorkflowState::Paused => vec![("flow_resume", "Resume", false), retry, cancel],
        WorkflowState::Failed | WorkflowState::Cancelled => vec![retry],
        _ => Vec::new(),
    }
}
