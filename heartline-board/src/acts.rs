//! The actions of the pages. The event of an action names the person. Actions that cannot be undone ask for confirmation first. Each runs in
//! the background, see [`crate::runs`].

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use heartline::inspect::describe::{changed, runs_again};
use heartline::inspect::text::{brief, chain, many, placed, relative};
use heartline::{
    BulkAction, BulkReport, Error, Inspector, InstanceRetries, JobSelection, JobState, JobValues, RepairReport,
    ResolvedJob, SilentSelection, codes,
};

use futures_util::future::try_join_all;

use crate::frame::Frame;
use crate::pages::dispatch;
use crate::pages::lane;
use crate::pages::run;
use crate::pages::schedule;
use crate::pages::worker::{self, held_by};
use crate::runs::Run;
use crate::state::{Board, PageResult, answer};
use crate::wanted::Wanted;

/// How many refused instances the result of an action names.
const REFUSED: usize = 200;

/// How long the response waits for the end of an action before it shows the progress instead.
const AT_ONCE: Duration = Duration::from_millis(700);

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    what: String,
    /// Whether it cannot be undone.
    is_danger: bool,
    /// The text of the button that confirms.
    yes: String,
    text: String,
    fields: Vec<(&'static str, String)>,
    /// The reason, if the action may have one.
    reason: Option<String>,
    back: String,
    /// The name to type, in production.
    to_type: Option<String>,
    wrong: &'static str,
}

pub(crate) async fn act(
    State(board): State<Arc<Board>>,
    head: Parts,
    Form(fields): Form<Vec<(String, String)>>,
) -> PageResult {
    let mut wanted = Wanted::of(fields).map_err(|wrong| board.invalid(&wrong))?;
    if let Some(name) = wanted.too_long() {
        return Err(board.invalid(&format!("{name} is too long. Nothing was done.")));
    }
    let Some((verb, is_asked_about)) = verb(&wanted) else {
        return Err(board.invalid(&format!("There is no action {}.", wanted.act)));
    };
    if !board.may(&head, wanted.offer()) {
        let title = if board.options.is_read_only { "This board is read only" } else { "You may not do this" };
        return Err(board.problem(StatusCode::FORBIDDEN, title, "Nothing was done."));
    }
    if let Some(form) = dispatch::mistake(&board, &head, &wanted) {
        return Ok(form);
    }
    let not_begun = |e: Error| board.not_begun(&e);
    let asked = confirmation(&board, &head, &wanted, (verb, is_asked_about)).await;
    if let Some(page) = asked.map_err(not_begun)? {
        return Ok(page);
    }
    let selection = wanted.selection().map_err(|wrong| board.invalid(&wrong))?;
    let is_of_task = !wanted.is_of_worker() && !wanted.is_of_flow();
    if is_of_task && !board.knows(&wanted.jobs.task).await.map_err(not_begun)? {
        let text = format!("There is no task {}. Nothing was done.", wanted.jobs.task);
        return Err(board.problem(StatusCode::NOT_FOUND, "There is no such task", &text));
    }
    let by = (board.options.by)(&head);
    if wanted.is_cancel() {
        // The worker that writes the event of a running job does not know who asked.
        let named = format!("cancelled by {by}");
        wanted.reason = if wanted.reason.is_empty() { named } else { format!("{} ({named})", wanted.reason) };
    }
    let inspector = board.inspector.clone().by(by);
    let (what, back) = (format!("{verb}: {}", wanted.target()), wanted.back(&board));
    let begun = board.runs.begin(what, back, wanted.offer().to_owned(), |run| {
        let board = Arc::clone(&board);
        async move {
            let result = done(&board, &inspector, &wanted, selection, &run).await.map_err(|e| chain(&e));
            board.forget(&wanted.jobs.task);
            result
        }
    });
    let Some(begun) = begun else {
        let text = "Too many actions are running. Nothing was done; try again later.";
        return Err(board.problem(StatusCode::TOO_MANY_REQUESTS, "Too many actions", text));
    };
    Ok(match begun.ended_within(AT_ONCE).await {
        true => run::show(&board, &head, begun),
        false => Redirect::to(&run::url(&board, &begun)).into_response(),
    })
}

/// The page that asks for a confirmation, or says why the action is impossible. `None` if it is confirmed, or needs no confirmation.
async fn confirmation(
    board: &Board,
    head: &Parts,
    wanted: &Wanted,
    (verb, is_asked_about): (&str, bool),
) -> Result<Option<Response>, Error> {
    let to_type = board.options.to_type();
    let is_confirmed = match to_type {
        Some(name) => wanted.confirmed.trim() == name,
        None => !wanted.confirmed.is_empty(),
    };
    if is_confirmed {
        return Ok(None);
    }
    let poison = poison(board, wanted).await?;
    let runs_one = runs_jobs(wanted);
    let is_asked_about = is_asked_about || to_type.is_some() && runs_one;
    if !is_asked_about && poison.is_none() {
        return Ok(None);
    }
    let (as_of, text) = match question(board, wanted).await? {
        Ok(asked) => asked,
        Err(wrong) => return Ok(Some(board.invalid(&wrong))),
    };
    let text = poison.map_or(text.clone(), |poison| format!("{text} {poison}"));
    let dispatched = dispatched_at(board, wanted).await?;
    let mut fields = wanted.fields(as_of, dispatched);
    let reason = wanted.is_cancel().then(|| wanted.reason.clone());
    fields.retain(|(name, _)| reason.is_none() || *name != "reason");
    let wrong = if wanted.confirmed.is_empty() { "" } else { "The name is wrong. Nothing was done." };
    Ok(Some(answer(&ConfirmPage {
        frame: board.frame(head),
        is_danger: !runs_jobs(wanted),
        what: format!("{verb}?"),
        yes: format!("Yes, {}", verb.to_lowercase()),
        text,
        fields,
        reason,
        back: wanted.back(board),
        to_type: to_type.map(str::to_owned),
        wrong,
    })))
}

/// Whether the action runs jobs, and does nothing else.
fn runs_jobs(wanted: &Wanted) -> bool {
    let acts = ["retry", "run_now", "flow_retry", "flow_retry_failed", "schedule_run", "dispatch", "dispatch_copy"];
    acts.contains(&wanted.act.as_str())
}

/// The warning before a retry of jobs that killed their workers.
async fn poison(board: &Board, wanted: &Wanted) -> Result<Option<String>, Error> {
    if wanted.act != "retry" {
        return Ok(None);
    }
    if !wanted.id.is_empty() {
        let job = board.inspector.job(&wanted.jobs.task, &wanted.id, JobValues::None).await?;
        let crashed = job.filter(|job| job.error.as_ref().is_some_and(|e| e.code == codes::WORKER_CRASHED));
        return Ok(crashed.map(|job| {
            let workers = many(job.stalled_count.into(), "worker");
            format!("It failed because {workers} died or hung with it, and it may kill workers again.")
        }));
    }
    if !wanted.picked.is_empty() {
        return poison_among(board, wanted).await;
    }
    let is_other = !wanted.jobs.code.is_empty() && wanted.jobs.code != codes::WORKER_CRASHED;
    let Ok(filter) = wanted.jobs.filter() else { return Ok(None) };
    if is_other || wanted.jobs.state != JobState::Failed.as_str() {
        return Ok(None);
    }
    let crashed = board.inspector.count(&wanted.jobs.task, &filter.code(codes::WORKER_CRASHED)).await?;
    let least = if crashed.is_exact { "" } else { "at least " };
    Ok((crashed.jobs > 0).then(|| {
        format!(
            "{least}{} of them failed because their workers died or hung, and may kill workers again.",
            crashed.jobs
        )
    }))
}

/// The warning for selected jobs.
async fn poison_among(board: &Board, wanted: &Wanted) -> Result<Option<String>, Error> {
    let reads = wanted.picked.iter().map(|id| board.inspector.job(&wanted.jobs.task, id, JobValues::None));
    let jobs = try_join_all(reads).await?;
    let errors = jobs.into_iter().flatten().filter_map(|job| job.error);
    let crashed = errors.filter(|error| error.code == codes::WORKER_CRASHED).count();
    let warning = format!("{crashed} of them failed because their workers died or hung, and may kill workers again.");
    Ok((crashed > 0).then_some(warning))
}

/// When the job was dispatched, if the action is about one job.
async fn dispatched_at(board: &Board, wanted: &Wanted) -> Result<Option<SystemTime>, Error> {
    if wanted.id.is_empty() || wanted.is_of_flow() {
        return Ok(None);
    }
    let job = board.inspector.job(&wanted.jobs.task, &wanted.id, JobValues::None).await?;
    Ok(job.and_then(|job| job.dispatched_at))
}

/// The label of an action, and whether it needs a confirmation: if it cannot be undone, or is about many jobs.
fn verb(wanted: &Wanted) -> Option<(&'static str, bool)> {
    let is_about_many = wanted.id.is_empty();
    Some(match wanted.act.as_str() {
        "pause" => ("Pause", false),
        "resume" => ("Resume", false),
        "retry" => ("Retry", is_about_many),
        "run_now" => ("Run now", is_about_many),
        "dispatch" => ("Dispatch", false),
        "dispatch_copy" => ("Run a copy", false),
        "cancel" => ("Cancel", true),
        "remove" => ("Remove", true),
        "requeue_claimed" => ("Requeue", true),
        "recover_running" => ("Run again", true),
        "fail_running" => ("Fail", true),
        "recover_worker" => ("Recover its jobs", true),
        "quiet_worker" => ("Claim no more jobs", false),
        "resume_worker" => ("Claim jobs again", false),
        "flow_pause" => ("Pause", false),
        "flow_resume" => ("Resume", false),
        "flow_retry" => ("Retry", false),
        "flow_retry_failed" if wanted.picked.is_empty() => ("Retry all failed", true),
        "flow_retry_failed" => ("Retry", true),
        "flow_cancel" => ("Cancel", true),
        "schedule_run" => ("Run now", false),
        "schedule_pause" => ("Pause", false),
        "schedule_resume" => ("Resume", false),
        "lane_pause" => ("Pause", false),
        "lane_resume" => ("Resume", false),
        "lane_set" => ("Set limits", false),
        "lane_reset" => ("Reset", false),
        "sweep" => ("Resolve silent jobs", true),
        "audit" => ("Audit", false),
        "preview" => ("Preview repair", false),
        "repair" => ("Repair", true),
        _ => return None,
    })
}

/// The text of the confirmation and its time by the server's clock, or why the action is impossible.
async fn question(board: &Board, wanted: &Wanted) -> Result<Result<(SystemTime, String), String>, Error> {
    let now = board.inspector.now().await;
    if wanted.act == "repair" {
        let Some((at, found)) = board.audited(&wanted.jobs.task) else {
            return Ok(Err(NOT_AUDITED.to_owned()));
        };
        if wanted.is_of_another(at) {
            return Ok(Err(ANOTHER_AUDIT.to_owned()));
        }
        let again = runs_again(found.findings());
        let found = many(found.findings().count() as u64, "fault");
        let text = "Faults that no longer exist are left alone. The audit page explains each kind.";
        return Ok(Ok((at, format!("{found} of {}{again}. {text}", wanted.jobs.task))));
    }
    if wanted.act == "recover_worker" {
        return of_worker(board, &wanted.worker).await.map(Ok);
    }
    if wanted.act == "flow_retry_failed" {
        if wanted.picked.is_empty() && !wanted.selected.is_empty() {
            return Ok(Err("Select at least one instance. Nothing was done.".to_owned()));
        }
        let what = if wanted.picked.is_empty() { "All failed instances of ".to_owned() } else { String::new() };
        let text = "Nodes that did not complete run again. Instances that fail only later are not included.";
        return Ok(Ok((now, format!("{what}{}. {text}", wanted.target()))));
    }
    if wanted.is_of_flow() {
        let text = "Nodes that are not open never run, waiting jobs are cancelled, and running jobs are asked to stop.";
        return Ok(Ok((now, format!("{} of {}. {text}", wanted.id, wanted.workflow))));
    }
    if wanted.is_of_schedule() {
        let text = "A job is dispatched now, in addition to those of its ticks.";
        return Ok(Ok((now, format!("{}. {text}", wanted.target()))));
    }
    if wanted.act == "dispatch" {
        let input = brief(&wanted.payload, 200);
        return Ok(Ok((now, format!("A new job of {} is dispatched with the input {input}.", wanted.jobs.task))));
    }
    let is_watched = matches!(wanted.act.as_str(), "requeue_claimed" | "recover_running" | "fail_running");
    if !wanted.id.is_empty() {
        if is_watched {
            let job = board.inspector.job(&wanted.jobs.task, &wanted.id, JobValues::None).await?;
            match job.map(|job| job.state) {
                None => return Ok(Err("There is no such job.".to_owned())),
                Some(state) if !state.is_held() => return Ok(Err(format!("No worker holds it: it is {state}."))),
                Some(_) => {}
            }
        }
        let state = wanted.seen_state().map_or(String::new(), |state| format!(", which is {state}"));
        return Ok(Ok((now, format!("{} of {}{state}.", wanted.id, wanted.jobs.task))));
    }
    if is_watched {
        return Ok(Err("This action needs a job id.".to_owned()));
    }
    if wanted.act == "sweep" {
        return of_sweep(board, &wanted.jobs.task).await.map(Ok);
    }
    if !wanted.picked.is_empty() {
        let state = wanted.seen_state().map_or(String::new(), |state| format!("{state} "));
        let (count, first) = (wanted.picked.len(), wanted.picked.iter().take(3).map(String::as_str));
        let more = if count > 3 { format!(" and {} more", count - 3) } else { String::new() };
        let jobs = many(count as u64, &format!("selected {state}job"));
        let text = format!("{jobs} of {}: {}{more}.", wanted.jobs.task, first.collect::<Vec<_>>().join(", "));
        return Ok(Ok((now, text)));
    }
    if let Err(wrong) = wanted.selection() {
        return Ok(Err(wrong));
    }
    let filter = match wanted.jobs.filter() {
        Ok(filter) => filter,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let as_of = board.inspector.task(&wanted.jobs.task).await?.as_of;
    let count = board.inspector.count(&wanted.jobs.task, &filter).await?;
    let least = if count.is_exact { "" } else { "at least " };
    let state = if wanted.jobs.state.is_empty() { "failed" } else { &wanted.jobs.state };
    let jobs = many(count.jobs, &format!("{state} job"));
    let mut text = format!("{least}{jobs} of {}", wanted.jobs.task);
    for (name, value) in
        [("the code", &wanted.jobs.code), ("the text", &wanted.jobs.text), ("an age over", &wanted.jobs.older)]
    {
        if !value.is_empty() {
            text.push_str(&format!(", with {name} {value}"));
        }
    }
    Ok(Ok((as_of, format!("{text}. Jobs that match only later are not included."))))
}

/// The confirmation for a worker. Its time is when the worker was last seen, if it is overdue: if it returns, it keeps its jobs.
async fn of_worker(board: &Board, id: &str) -> Result<(SystemTime, String), Error> {
    let Some(worker) = board.inspector.worker(id).await? else {
        return Ok((SystemTime::UNIX_EPOCH, format!("There is no worker {id}.")));
    };
    let worker = held_by(board, worker).await?;
    let is_overdue = worker.is_presence_overdue(board.inspector.now().await);
    let as_of = if is_overdue { worker.last_seen_at } else { SystemTime::UNIX_EPOCH };
    let held = board.inspector.describe_held(&worker).await?;
    let held = if held.is_empty() { "no job; jobs that it claims until then are included".to_owned() } else { held };
    let seen = relative(worker.last_seen_at, board.inspector.now().await);
    let host = if worker.host.is_empty() { String::new() } else { format!(" on {}", worker.host) };
    let unreadable = if worker.fault.is_some() { " Its presence is unreadable." } else { "" };
    let mut is_mute = false;
    for its in &worker.tasks {
        is_mute |= board.inspector.diagnose_mute_holder(&its.task, &worker).await?.is_some();
    }
    let alive = match (worker.state.is_live(), is_mute) {
        (true, _) => " IT IS MOST LIKELY ALIVE.",
        (false, true) => " IT IS MOST LIKELY ALIVE: it claims jobs but cannot update its presence.",
        (false, false) => "",
    };
    let text = format!(
        "{id}{host} is {}, last seen {seen}.{unreadable}{alive} It holds {held}. They run again, or fail past max_count. If the worker \
         is alive, they run twice; it notices within 10 s and stops.",
        worker.state
    );
    Ok((as_of, text))
}

/// The confirmation for a sweep.
async fn of_sweep(board: &Board, name: &str) -> Result<(SystemTime, String), Error> {
    let task = board.inspector.task(name).await?;
    let risks = board.inspector.diagnose_recovery(name).await?;
    let options = board.command_options();
    let risks: String =
        risks.iter().map(|diagnosis| format!(" {diagnosis}: {}.", placed(&diagnosis.hint(), &options))).collect();
    let text = format!(
        "Jobs of {name} that stay silent for a stall interval, or two, run again, or fail past max_count. This is for tasks that no live \
         worker watches.{risks}"
    );
    Ok((task.as_of, text))
}

/// Runs the action, and returns the result as text.
async fn done(
    board: &Board,
    inspector: &Inspector,
    wanted: &Wanted,
    jobs: JobSelection,
    run: &Run,
) -> Result<String, Error> {
    let task = wanted.jobs.task.as_str();
    let silent = || SilentSelection::ids([&wanted.id]);
    match wanted.act.as_str() {
        "pause" => {
            let why = |reason: &str| if reason.is_empty() { String::new() } else { format!(": {reason}") };
            match inspector.pause(task, &wanted.reason).await? {
                None => Ok(format!("{task} is paused: no more jobs start; running jobs continue.")),
                Some(before) => Ok(format!("{task} was already paused by {}{}", before.by, why(&before.reason))),
            }
        }
        "resume" => inspector.resume(task).await.map(|_| format!("{task} is resumed.")),
        "retry" => step_by_step(wanted.bound(inspector.retry(task, jobs)), "run again", run).await,
        "run_now" => step_by_step(wanted.bound(inspector.run_now(task, jobs)), "run now", run).await,
        "cancel" => step_by_step(wanted.bound(inspector.cancel(task, jobs, &wanted.reason)), "cancelled", run).await,
        "remove" => step_by_step(wanted.bound(inspector.remove(task, jobs)), "removed", run).await,
        "dispatch" | "dispatch_copy" => dispatch::act(board, inspector, wanted, run).await,
        "requeue_claimed" => watched(inspector.requeue_claimed(task, silent()), "requeued", run).await,
        "recover_running" => watched(inspector.recover_running(task, silent()), "run again", run).await,
        "fail_running" => watched(inspector.fail_running(task, silent()), "failed", run).await,
        "recover_worker" => recover_worker(inspector, wanted, run).await,
        "quiet_worker" | "resume_worker" => worker::act(inspector, &wanted.act, &wanted.worker).await,
        "flow_retry_failed" => retry_failed(inspector, wanted, run).await,
        _ if wanted.is_of_flow() => of_flow(inspector, wanted).await,
        _ if wanted.is_of_schedule() => {
            schedule::act(inspector, &wanted.act, task, &wanted.schedule, &wanted.reason).await
        }
        _ if wanted.is_of_lane() => lane::act(inspector, &wanted.act, task, &wanted.key, &wanted.lane).await,
        "sweep" => sweep(inspector, task, run).await,
        "audit" => audit(board, inspector, task, run).await,
        _ => repair(board, inspector, wanted, run).await,
    }
}

async fn recover_worker(inspector: &Inspector, wanted: &Wanted, run: &Run) -> Result<String, Error> {
    let known = inspector.worker(&wanted.worker).await?;
    let recovered = match wanted.asked_at() {
        Some(seen) => inspector.recover_worker_unseen_since(&wanted.worker, seen).await?,
        None => inspector.recover_worker(&wanted.worker).await?,
    };
    let Some(report) = recovered else { return Ok("The worker no longer exists.".to_owned()) };
    if report.was_seen_since {
        return Ok("The worker was seen again: it is alive, and nothing was done.".to_owned());
    }
    let of_task = |task: &heartline::RecoveredTask| match &task.fault {
        Some(fault) => format!("{}: {fault}", task.task),
        None => format!("{}: {}", task.task, many(task.resolved.len() as u64, "job")),
    };
    run.lines(report.tasks.iter().map(of_task).collect());
    let is_proven = known.is_some_and(|worker| worker.death.is_some() || worker.stopped_at.is_some());
    let doubt =
        if is_proven { "" } else { " Its death was not proven: if it is frozen, its handlers continue when it wakes." };
    Ok(format!("Its jobs are recovered.{doubt}"))
}

/// Retries the selected failed instances of a workflow, or all that had failed when confirmation was asked.
async fn retry_failed(inspector: &Inspector, wanted: &Wanted, run: &Run) -> Result<String, Error> {
    let (mut done, mut refused, mut lines) = (InstanceRetries::default(), 0, Vec::new());
    let before = wanted.asked_at().unwrap_or(SystemTime::UNIX_EPOCH);
    loop {
        let cursor = done.next.take();
        let some = match wanted.picked.is_empty() {
            true => inspector.retry_failed_instances(&wanted.workflow, None, before, cursor.as_deref()).await,
            false => inspector.retry_instances(&wanted.workflow, &wanted.picked).await,
        };
        // Shows what was done, also after an error.
        let some = some.inspect_err(|_| run.lines(lines.clone()))?;
        done.looked += some.looked;
        done.retried += some.retried;
        done.next = some.next;
        refused += some.refused.len();
        lines.extend(some.refused.iter().map(|(id, error)| format!("{id}: {error}")));
        lines.truncate(REFUSED);
        run.progress(format!("{} run again, {refused} refused", done.retried));
        if done.next.is_none() || run.is_stopped() {
            break;
        }
    }
    run.lines(lines);
    let stopped = if done.next.is_some() { "; stopped: the other instances are unchanged" } else { "" };
    let instances = many(done.looked, "failed instance");
    Ok(format!("Run again: {} of {instances}, {refused} refused{stopped}", done.retried))
}

/// Runs an action on an instance of a workflow.
async fn of_flow(inspector: &Inspector, wanted: &Wanted) -> Result<String, Error> {
    let handle = inspector.workflow_handle(&wanted.workflow, &wanted.id)?;
    let state = match wanted.act.as_str() {
        "flow_pause" => handle.pause(&*wanted.reason).await,
        "flow_resume" => handle.resume().await,
        "flow_retry" => handle.retry_failed().await,
        _ => handle.cancel(&*wanted.reason).await,
    };
    let stops = if wanted.act == "flow_cancel" && state.as_ref().is_ok_and(|state| !state.is_ended()) {
        ", and ends when its last handler has returned"
    } else {
        ""
    };
    Ok(format!("It is {}{stops}.", state?))
}

async fn step_by_step(mut act: BulkAction, done: &str, run: &Run) -> Result<String, Error> {
    let mut is_stopped = false;
    while let Some(so_far) = act.next_batch().await? {
        run.progress(format!("{}, {} refused, {} read", changed(so_far, done), so_far.refused, so_far.looked));
        if run.is_stopped() && !so_far.is_complete {
            is_stopped = true;
            break;
        }
    }
    let report = act.report();
    run.lines(lines(report));
    let stopped = if is_stopped { "; stopped: the other jobs are unchanged" } else { "" };
    Ok(format!("{}, {} refused{stopped}", changed(report, done), report.refused))
}

/// Waits for an action that watches for an interval before it decides.
async fn watched(
    deciding: impl Future<Output = Result<BulkReport, Error>>,
    done: &str,
    run: &Run,
) -> Result<String, Error> {
    run.progress("Watching for a stall interval, then deciding.".to_owned());
    tokio::select! {
        decided = deciding => {
            let report = decided?;
            run.lines(lines(&report));
            let by_worker = if report.swept_by_worker { SWEPT_BY_OTHER } else { "" };
            Ok(format!("{}, {} refused{by_worker}", changed(&report, done), report.refused))
        }
        () = run.stopped() => Ok("Stopped before a decision; nothing was changed.".to_owned()),
    }
}

async fn sweep(inspector: &Inspector, task: &str, run: &Run) -> Result<String, Error> {
    run.progress("Watching for one or two stall intervals, then deciding.".to_owned());
    tokio::select! {
        swept = inspector.sweep_now(task) => {
            let report = swept?;
            let of_job = |job: &ResolvedJob| format!("{}: {}, stall {}", job.id, job.action, job.stalled_count);
            run.lines(report.resolved.iter().map(of_job).collect());
            let by_worker = if report.swept_by_worker { SWEPT_BY_OTHER } else { "" };
            let parked = if report.parked > 0 { format!(", {} parked for a person", report.parked) } else { String::new() };
            let end = if report.is_complete { "" } else { "; not complete: repeat the action" };
            Ok(format!("{} resolved{parked}{by_worker}{end}", many(report.resolved.len() as u64, "silent job")))
        }
        () = run.stopped() => Ok("Stopped before a decision; nothing was changed.".to_owned()),
    }
}

async fn audit(board: &Board, inspector: &Inspector, task: &str, run: &Run) -> Result<String, Error> {
    let mut audit = inspector.audit(task);
    while let Some(progress) = audit.step().await? {
        run.progress(format!("{} of about {} read", progress.read.min(progress.of), progress.of));
        if run.is_stopped() {
            return Ok("Stopped; nothing was changed.".to_owned());
        }
    }
    let report = Arc::new(audit.report().clone());
    if board.options.is_read_only {
        run.lines(vec!["this board is read only: the result is not stored".to_owned()]);
    } else if let Err(e) = inspector.note_audit(&report).await {
        run.lines(vec![format!("the result could not be stored: {}", chain(&e))]);
    }
    let found: u64 = report.parts.iter().map(|part| part.found).sum();
    board.audits.lock().unwrap_or_else(PoisonError::into_inner).insert(task.to_owned(), (SystemTime::now(), report));
    Ok(if found == 0 { "Nothing is wrong.".to_owned() } else { format!("{} found.", many(found, "fault")) })
}

/// The hint if a worker or another person swept first.
const SWEPT_BY_OTHER: &str =
    "; a worker of the task is alive, or another person swept: the Stalls page shows what was decided";

/// The answer if the task was audited again after the findings were shown.
const ANOTHER_AUDIT: &str = "The task was audited again, and nothing was done. Check the new findings.";

/// The answer if there is no audit to repair.
const NOT_AUDITED: &str = "There are no findings yet. Audit the task first.";

/// Repairs the findings that the person has seen, or only shows what a repair would change.
async fn repair(board: &Board, inspector: &Inspector, wanted: &Wanted, run: &Run) -> Result<String, Error> {
    let Some((at, found)) = board.audited(&wanted.jobs.task) else { return Ok(NOT_AUDITED.to_owned()) };
    if wanted.is_of_another(at) {
        return Ok(ANOTHER_AUDIT.to_owned());
    }
    let is_preview = wanted.act == "preview";
    let repaired = if is_preview { inspector.preview_repair(&found).await } else { inspector.repair(&found).await };
    let RepairReport { mended, gone, .. } = repaired?;
    run.lines(mended.iter().map(ToString::to_string).collect());
    let (mended, gone) = (many(mended.len() as u64, "fault"), gone.len());
    if is_preview {
        return Ok(format!("{mended} would be repaired, {gone} no longer present"));
    }
    // Forget this audit, since its findings are repaired, but keep one that was made meanwhile.
    let mut audits = board.audits.lock().unwrap_or_else(PoisonError::into_inner);
    if audits.get(&wanted.jobs.task).is_some_and(|(stored, _)| *stored == at) {
        audits.remove(&wanted.jobs.task);
    }
    Ok(format!("{mended} repaired, {gone} no longer present"))
}

fn lines(report: &BulkReport) -> Vec<String> {
    let asked = "A job that was asked to stop ends as cancelled when its handler has stopped.";
    let asked = (report.requested > 0).then(|| asked.to_owned());
    asked.into_iter().chain(report.refusals.iter().map(ToString::to_string)).collect()
}
