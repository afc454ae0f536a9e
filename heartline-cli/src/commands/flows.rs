//! `flows …`: workflows, their instances, and why nodes wait.

use std::time::SystemTime;

use heartline::inspect::describe;
use heartline::inspect::text::{exact, many, quoted, relative, shown, span};
use heartline::{Error, InstanceReport, InstanceRetries, NodeReport, NodeState, WorkflowReport, WorkflowState};
use serde_json::json;

use super::{health, unknown, when};
use crate::args::{FlowsCommand, InstanceNamed};
use crate::ask::confirm;
use crate::failure::{Failure, ended};
use crate::session::Session;

pub(super) async fn run(session: &Session, command: FlowsCommand) -> Result<(), Failure> {
    use WorkflowState::{Cancelled, Failed, Paused, Running};

    match command {
        FlowsCommand::Summary => summary(session).await,
        FlowsCommand::List { workflow, state, limit, oldest_first, cursor } => {
            let states = state.map_or_else(
                || vec![WorkflowState::Paused, WorkflowState::Running, WorkflowState::Failed],
                |state| vec![state],
            );
            list(session, &workflow, &states, (!oldest_first, cursor.as_deref(), limit)).await
        }
        FlowsCommand::Show { of, all, from } => show(session, of, all, from).await,
        FlowsCommand::Cancel { of, reason } => {
            let reason = reason.unwrap_or_else(|| format!("cancelled by {}", session.by));
            confirm(&session.consent, &format!("cancel the instance {} of {}", shown(&of.id), shown(&of.workflow)))?;
            act(session, of, &[Running, Paused], None, async |handle| handle.cancel(reason).await).await
        }
        FlowsCommand::Pause { of, reason } => {
            let (workflow, id) = (of.workflow.clone(), of.id.clone());
            let pause = async |handle: heartline::WorkflowHandle<_>| handle.pause(&reason).await;
            act(session, of, &[Running, Paused], Some(Paused), pause).await?;
            let Some(found) = session.inspector.instance(&workflow, &id, 0).await? else { return Ok(()) };
            match found.pause.as_ref().filter(|_| found.state == Paused) {
                Some(pause) if pause.by == session.by && pause.reason == reason => {}
                Some(_) => session.out.hint(format!(
                    "It was already paused, {}; that pause remains.",
                    describe::paused(&found).unwrap_or_default()
                )),
                None => session
                    .out
                    .hint("Its failure policy had already paused it; your name and reason were not recorded."),
            }
            Ok(())
        }
        FlowsCommand::Resume(of) => {
            act(session, of, &[Paused, Running], Some(Running), async |handle| handle.resume().await).await
        }
        FlowsCommand::Retry(of) => {
            if session.consent.is_production {
                confirm(&session.consent, &format!("retry the instance {} of {}", shown(&of.id), shown(&of.workflow)))?;
            }
            act(session, of, &[Failed, Cancelled, Paused], None, async |handle| handle.retry_failed().await).await
        }
        FlowsCommand::RetryFailed { workflow, code } => retry_failed(session, &workflow, code.as_deref()).await,
        FlowsCommand::Recover { workflow } => recover(session, workflow.as_deref()).await,
    }
}

async fn summary(session: &Session) -> Result<(), Failure> {
    let flows = session.inspector.workflows().await?;
    let is_sound = flows.iter().all(|flow| flow.fault.is_none());
    if session.out.is_json {
        return ended(is_sound, session.out.json(&flows));
    }
    if flows.is_empty() {
        let lost = session.inspector.diagnose_empty_workflow_list().await;
        for diagnosis in &lost {
            session.out.hint(health::lines(diagnosis, false));
        }
        if lost.is_empty() {
            session.out.hint(format!("No workflow was started on {}.", session.place));
        }
        return ended(lost.is_empty(), Ok(()));
    }
    const COLUMNS: [&str; 9] =
        ["WORKFLOW", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED", "STEPS", "OLDEST", "LAST CHECKED"];
    let now = session.inspector.server_time().await?;
    let cells = |flow: &WorkflowReport| {
        // Its diagnosis is printed below.
        if flow.fault.is_some() {
            return vec![shown(&flow.workflow), "?".to_owned()];
        }
        let counts = [flow.running, flow.paused, flow.completed, flow.failed, flow.cancelled, flow.steps];
        let mut cells = vec![shown(&flow.workflow)];
        cells.extend(counts.map(|count| count.to_string()));
        cells.push(flow.oldest_step.map_or_else(|| "-".to_owned(), span));
        cells.push(when(flow.looked_at, now));
        cells
    };
    session.out.table(&COLUMNS, flows.iter().map(cells).collect())?;
    if flows.iter().any(|flow| flow.running > 0) {
        session.out.hint("RUNNING includes subgraphs.");
    }
    for flow in &flows {
        for diagnosis in flow.diagnoses() {
            session.out.hint(health::lines(&diagnosis, false));
        }
    }
    ended(is_sound, Ok(()))
}

async fn list(
    session: &Session,
    workflow: &str,
    states: &[WorkflowState],
    (newest, cursor, limit): (bool, Option<&str>, usize),
) -> Result<(), Failure> {
    known(session, workflow).await?;
    if cursor.is_some() && states.len() > 1 {
        return Err(Failure::wrong("--cursor needs --state"));
    }
    let (mut instances, mut next, mut more, mut as_of) = (Vec::new(), None, Vec::new(), session.inspector.now().await);
    for state in states {
        let page = session.inspector.instances(workflow, *state, newest, cursor, limit).await?;
        instances.extend(page.instances);
        as_of = page.as_of;
        if page.next.is_some() {
            more.push(state.as_str());
        }
        // A cursor is for one state.
        next = page.next.filter(|_| states.len() == 1);
    }
    if session.out.is_json {
        return session.out.json(&json!({ "instances": instances, "next": next, "more": more }));
    }
    if instances.is_empty() && more.is_empty() {
        let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
        session.out.hint(format!("No instance of {} is {}.", shown(workflow), words.join(" or ")));
        return Ok(());
    }
    let rows = instances.iter().map(|instance| {
        let state = match (instance.is_stopping, instance.is_broken && instance.state == WorkflowState::Running) {
            (true, _) => format!("{} (stops)", instance.state),
            (_, true) => format!("{} (broken)", instance.state),
            _ => instance.state.to_string(),
        };
        vec![
            shown(&instance.id),
            state,
            instance.begins_at.map_or_else(|| "-".to_owned(), |at| relative(at, as_of)),
            if instance.state.is_ended() { relative(instance.since, as_of) } else { "-".to_owned() },
            instance.run.to_string(),
            instance.unfinished.to_string(),
            instance.open.to_string(),
            instance.code.as_deref().map_or_else(|| "-".to_owned(), shown),
        ]
    });
    if !instances.is_empty() {
        session.out.table(&["ID", "STATE", "BEGAN", "ENDED", "RUN", "UNFINISHED", "OPEN", "CODE"], rows.collect())?;
    }
    if let Some(next) = next {
        session.out.hint(format!("There are more: --cursor {}", quoted(&next)));
    } else if let Some(state) = more.first() {
        session.out.hint(format!("There are more that are {}: --state {state} lists more", more.join(" or ")));
    }
    Ok(())
}

async fn retry_failed(session: &Session, workflow: &str, code: Option<&str>) -> Result<(), Failure> {
    known(session, workflow).await?;
    let of_code = code.map(|code| format!(" with the code {}", shown(code))).unwrap_or_default();
    confirm(&session.consent, &format!("retry all failed instances of {}{of_code}", shown(workflow)))?;
    let begun = session.inspector.server_time().await?;
    let mut done = InstanceRetries::default();
    loop {
        let cursor = done.next.take();
        let some = session.inspector.retry_failed_instances(workflow, code, begun, cursor.as_deref()).await?;
        done.looked += some.looked;
        done.retried += some.retried;
        done.refused.extend(some.refused);
        done.next = some.next;
        if done.next.is_none() {
            break;
        }
        session.out.hint(format!("{} run again so far.", many(done.retried, "instance")));
    }
    let is_sound = done.refused.is_empty();
    if session.out.is_json {
        return ended(is_sound, session.out.json(&done));
    }
    for (id, error) in &done.refused {
        session.out.hint(format!("{}: {}", shown(id), shown(error)));
    }
    let runs = if done.retried == 1 { "runs" } else { "run" };
    session.out.hint(format!("{} of {} {runs} again.", done.retried, many(done.looked, "failed instance")));
    ended(is_sound, Ok(()))
}

async fn show(session: &Session, of: InstanceNamed, all: bool, from: u32) -> Result<(), Failure> {
    let found = found(session, &of, from).await?;
    let Some(out) = session.out.for_person(&found)? else { return Ok(()) };
    let now = found.as_of;
    let left = if found.state.is_ended() || found.node_count == 0 {
        String::new()
    } else {
        format!(", {} of {} not ended, {} open", found.unfinished, many(found.node_count as u64, "node"), found.open)
    };
    let stops = if found.is_stopping { " (stops)" } else { "" };
    let broken = found.broken_by.as_ref().map(|node| format!("node {}", shown(node)));
    let why = found.message.as_ref().map(|message| {
        let code = found.code.as_deref().unwrap_or_default();
        format!("{}: {}", shown(code), shown(message))
    });
    out.facts(vec![
        ("instance", Some(format!("{} of {}", shown(&found.id), shown(&found.workflow)))),
        ("state", Some(format!("{}{stops}{left}", found.state))),
        ("paused", describe::paused(&found)),
        ("began", found.begins_at.filter(|at| *at <= now).map(|at| exact(at, now))),
        ("begins", found.begins_at.filter(|at| *at > now).map(|at| exact(at, now))),
        ("ended", found.ended_at.map(|at| exact(at, now))),
        ("run", Some(found.run.to_string()).filter(|_| found.run > 1)),
        ("broken by", broken),
        ("why", why),
    ])?;
    out.line("")?;
    // Of a large graph, nodes that completed or were skipped are hidden.
    let is_told = |node: &&NodeReport| {
        all || found.node_count <= 40 || !matches!(node.state, NodeState::Completed | NodeState::Skipped)
    };
    let rows: Vec<Vec<String>> = found.nodes.iter().filter(is_told).map(|node| row(node, now)).collect();
    let hidden = found.nodes.len() - rows.len();
    out.table(&["NODE", "STATE", "TASK", "JOB", "WHY"], rows)?;
    if hidden > 0 {
        out.hint(format!("{} completed or skipped: --all shows all.", many(hidden as u64, "node")));
    }
    if let Some(next) = found.next {
        out.hint(format!("There are more nodes: --from {next}"));
    }
    for line in describe::advice(&found) {
        out.hint(line);
    }
    Ok(())
}

fn row(node: &NodeReport, now: SystemTime) -> Vec<String> {
    let job = match (&node.job, node.job_state) {
        (Some(job), Some(state)) => format!("{} ({state})", shown(job.as_str())),
        (Some(job), None) if node.state == NodeState::Open => format!("{} (missing)", shown(job.as_str())),
        (Some(job), None) => shown(job.as_str()),
        (None, _) => node.child.as_ref().map_or_else(|| "-".to_owned(), |child| shown(child)),
    };
    let why = node.why.as_ref().map_or_else(String::new, |why| shown(why));
    let since = node.to_send_since.map_or_else(String::new, |at| format!(" (since {})", exact(at, now)));
    let task = node.task.as_ref().map_or_else(|| "a subgraph".to_owned(), |task| shown(task));
    vec![shown(&node.name), node.state.to_string(), task, job, format!("{why}{since}")]
}

/// The instance, or an error that suggests the right name.
async fn found(session: &Session, of: &InstanceNamed, from: u32) -> Result<InstanceReport, Failure> {
    if let Some(found) = session.inspector.instance(&of.workflow, &of.id, from).await? {
        return Ok(found);
    }
    known(session, &of.workflow).await?;
    Err(gone(of))
}

fn gone(of: &InstanceNamed) -> Failure {
    let (id, workflow) = (shown(&of.id), shown(&of.workflow));
    Failure::Failed(format!("there is no instance {id} of {workflow}, or it is no longer kept"))
}

/// Refuses an unknown workflow: most likely its name is mistyped.
async fn known(session: &Session, workflow: &str) -> Result<(), Failure> {
    let names: Vec<String> = session.inspector.workflows().await?.into_iter().map(|flow| flow.workflow).collect();
    if names.iter().any(|name| name == workflow) {
        return Ok(());
    }
    let workflow = shown(workflow);
    if names.is_empty()
        && let Some(lost) = session.inspector.diagnose_empty_workflow_list().await.first()
    {
        return Err(Failure::Failed(format!("{}: {}", shown(&lost.to_string()), shown(&lost.hint()))));
    }
    Err(unknown("workflow", &workflow, &names, "heartline flows summary"))
}

/// Runs an action on an instance in one of the states `from`, and prints its new state. With `to`, fails if it is stopping instead.
async fn act(
    session: &Session,
    of: InstanceNamed,
    from: &[WorkflowState],
    to: Option<WorkflowState>,
    act: impl AsyncFnOnce(heartline::WorkflowHandle<serde_json::Value>) -> Result<WorkflowState, Error>,
) -> Result<(), Failure> {
    let inspector = &session.inspector;
    if let Some((root, _)) = of.id.split_once('/') {
        return Err(Failure::wrong(format!("{} is a subgraph; name its instance {}", shown(&of.id), shown(root))));
    }
    let handle = inspector.workflow_handle(&of.workflow, &of.id)?;
    let acted = async {
        let before = handle.status().await?.state;
        if !from.contains(&before) {
            return Ok(Err(before.to_string()));
        }
        let state = act(handle).await?;
        // It has ended, so the action changed nothing.
        if to.is_none() && state == before && state.is_ended() {
            return Ok(Err(state.to_string()));
        }
        let stops = async || {
            Ok::<_, Error>(inspector.instance(&of.workflow, &of.id, 0).await?.is_some_and(|it| it.is_stopping))
        };
        Ok(match state == WorkflowState::Running && stops().await? {
            true if to.is_some() => Err("stopping".to_owned()),
            is_stopping => Ok((state, is_stopping)),
        })
    };
    let state = match acted.await {
        Err(Error::WorkflowNotFound { .. }) => {
            known(session, &of.workflow).await?;
            return Err(gone(&of));
        }
        state => state?,
    };
    let (state, is_stopping) = state.map_err(|state| {
        let hint = match (to, &*state) {
            // Only a retry, a new run, is refused here.
            (None, "running" | "stopping") => {
                "; retry it when it has ended: `heartline flows show` shows what it waits for, `flows cancel` ends it"
            }
            _ => "",
        };
        let (id, workflow) = (shown(&of.id), shown(&of.workflow));
        Failure::Failed(format!("{id} of {workflow} is {state}; nothing was done{hint}"))
    })?;
    let report = json!({ "workflow": of.workflow, "id": of.id, "state": state, "is_stopping": is_stopping });
    let Some(out) = session.out.for_person(&report)? else { return Ok(()) };
    let stops = if is_stopping { ", and stops: it ends when its last handler has returned" } else { "" };
    out.line(format!("{} of {} is {state}{stops}", shown(&of.id), shown(&of.workflow)))
}

async fn recover(session: &Session, workflow: Option<&str>) -> Result<(), Failure> {
    let done = match workflow {
        None => session.inspector.recover_stuck_workflows().await?,
        Some(workflow) => {
            let done = session.inspector.recover_workflow(workflow).await?;
            if done.is_none() {
                // If no workflow is listed, the list may be lost.
                if session.inspector.workflows().await?.is_empty() {
                    let what = format!("there is no data of a workflow {}; check its name", shown(workflow));
                    return Err(Failure::wrong(what));
                }
                known(session, workflow).await?;
            }
            done.into_iter().collect()
        }
    };
    let is_whole = done.iter().all(|flow| flow.fault.is_none());
    if session.out.is_json {
        return ended(is_whole, session.out.json(&done));
    }
    if done.is_empty() {
        session.out.hint(match workflow {
            None => {
                "No workflow is listed under this prefix. If the list lost one, run `heartline flows recover WORKFLOW`."
            }
            Some(_) => "The workflow has no instances.",
        });
    }
    for flow in done.iter().filter(|flow| flow.placed > 0) {
        session.out.hint(format!(
            "{} of {} had lost their state. Stopping ones continue to stop, subgraphs follow their parent, and the others are paused: `heartline flows list {} --state paused` lists them.",
            many(flow.placed, "instance"),
            shown(&flow.workflow),
            quoted(&flow.workflow)
        ));
    }
    let rows = done.iter().map(|flow| {
        let fault = flow.fault.as_ref().map_or_else(String::new, |fault| shown(fault));
        vec![shown(&flow.workflow), flow.told.to_string(), flow.sent.to_string(), flow.synthesised.to_string(), fault]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        session.out.table(&["WORKFLOW", "RECORDED", "SENT", "SYNTHESISED", "FAULT"], rows)?;
        session.out.hint("RECORDED: ended jobs, now known to their workflow. SENT: nodes that were dispatched. SYNTHESISED: nodes that ended because their jobs were lost.");
    }
    ended(is_whole, Ok(()))
}
