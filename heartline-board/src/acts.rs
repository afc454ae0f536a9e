//! What a person does: each act is told with who did it, and what cannot be undone is asked about first. What may take long goes on by
//! itself, see [`crate::runs`].

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use heartline::inspect::describe::{changed, runs_again};
use heartline::inspect::text::{chain, many, placed, relative};
use heartline::{
    Act, ActReport, Error, Inspector, JobSelection, JobState, JobValues, RepairReport, ResolvedJob, SilentSelection,
    codes,
};
use serde::Deserialize;

use crate::pages::jobs::Asked;
use crate::pages::run;
use crate::pages::worker::held_by;
use crate::runs::Run;
use crate::state::{Board, Frame, answer, encoded};

/// For how long an answer waits for the end of what was begun, before it shows how far that is.
const AT_ONCE: Duration = Duration::from_millis(700);

/// How many bytes a name, and any other text, may have.
const NAME: usize = 512;
const TEXT: usize = 4096;

/// What was asked for. Without an id it is about all jobs that fit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    act: String,
    id: String,
    worker: String,
    workflow: String,
    reason: String,
    confirmed: String,
    /// When the job was dispatched that was asked about, ms since 1970.
    dispatched: String,
    /// When it was asked about, ms since 1970: what came to fit since then is let be.
    as_of: String,
    task: String,
    state: String,
    code: String,
    text: String,
    older: String,
}

impl Wanted {
    fn jobs(&self) -> Asked {
        Asked {
            task: self.task.clone(),
            state: self.state.clone(),
            code: self.code.clone(),
            text: self.text.clone(),
            older: self.older.clone(),
            ..Asked::default()
        }
    }

    /// The field that is longer than what is kept of a run may be, if one is.
    fn too_long(&self) -> Option<&'static str> {
        let names = [
            ("the task", &self.task),
            ("the id", &self.id),
            ("the worker", &self.worker),
            ("the act", &self.act),
            ("the workflow", &self.workflow),
        ];
        let texts = [
            ("the reason", &self.reason),
            ("what was typed", &self.confirmed),
            ("the code", &self.code),
            ("the text", &self.text),
        ];
        let texts = texts.into_iter().chain([("the state", &self.state), ("the age", &self.older)]);
        let fields = names.into_iter().map(|field| (field, NAME)).chain(texts.map(|field| (field, TEXT)));
        fields.filter(|((_, value), most)| value.len() > *most).map(|((name, _), _)| name).next()
    }

    /// Whether it is about an instance of a workflow.
    fn is_of_flow(&self) -> bool {
        self.act.starts_with("flow_")
    }

    /// What is offered under this name.
    fn offer(&self) -> &str {
        if self.act == "preview" { "audit" } else { &self.act }
    }

    /// Where the person came from.
    fn back(&self, board: &Board) -> String {
        let task = encoded(&self.task);
        match self.act.as_str() {
            "pause" | "resume" | "sweep" => board.url(&format!("/task?task={task}")),
            "audit" | "preview" | "repair" => board.url(&format!("/audit?task={task}")),
            _ if self.is_of_flow() => {
                board.url(&format!("/instance?workflow={}&id={}", encoded(&self.workflow), encoded(&self.id)))
            }
            "recover_worker" => board.url(&format!("/worker?worker={}", encoded(&self.worker))),
            _ if self.id.is_empty() => self.jobs().url(board),
            _ => board.url(&format!("/job?task={task}&id={}", encoded(&self.id))),
        }
    }

    /// All of it again, to be confirmed, with when it was asked about.
    fn fields(&self, as_of: SystemTime, dispatched: Option<SystemTime>) -> Vec<(&'static str, String)> {
        let Wanted { act, id, worker, workflow, reason, task, state, code, text, older, .. } = self.clone();
        vec![
            ("act", act),
            ("id", id),
            ("worker", worker),
            ("workflow", workflow),
            ("reason", reason),
            ("as_of", in_form(as_of)),
            ("dispatched", dispatched.map(in_form).unwrap_or_default()),
            ("task", task),
            ("state", state),
            ("code", code),
            ("text", text),
            ("older", older),
        ]
    }

    /// The jobs that are meant: one, or those that fit.
    fn selection(&self) -> Result<JobSelection, String> {
        if self.id.is_empty() { Ok(self.jobs().filter()?.into()) } else { Ok(self.id.as_str().into()) }
    }

    /// When it was asked about.
    fn asked_at(&self) -> Option<SystemTime> {
        time_of(&self.as_of)
    }

    /// Whether it names another audit than the one made then: one of somebody else may have found what this person has not seen.
    fn is_of_another(&self, audited: SystemTime) -> bool {
        self.asked_at().is_some() && self.as_of != in_form(audited)
    }

    /// An act on those of them that were so when it was asked about.
    fn decided(&self, act: Act) -> Act {
        match self.asked_at() {
            Some(at) => act.as_of(at),
            None => act,
        }
    }

    /// The same, and on a job only as long as it stands where it was seen: what somebody else has made of it meanwhile was not asked about.
    fn bound(&self, act: Act) -> Act {
        let act = self.decided(act);
        let act = match self.seen_state() {
            Some(state) => act.in_state(state),
            None => act,
        };
        match time_of(&self.dispatched) {
            Some(at) => act.dispatched_at(at),
            None => act,
        }
    }

    /// The state in which a job was seen that is named by its id.
    fn seen_state(&self) -> Option<JobState> {
        self.state.parse().ok().filter(|_| !self.id.is_empty())
    }
}

/// A time as it stands in a form, ms since 1970.
pub(crate) fn in_form(at: SystemTime) -> String {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis().to_string()
}

/// A time that stands in a form.
fn time_of(text: &str) -> Option<SystemTime> {
    let ms = text.parse().ok().filter(|ms| *ms > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    what: String,
    /// What the button says that does it.
    yes: String,
    text: String,
    fields: Vec<(&'static str, String)>,
    back: String,
    /// What has to be typed to go on, in production.
    to_type: Option<String>,
    wrong: &'static str,
}

pub(crate) async fn act(State(board): State<Arc<Board>>, head: Parts, Form(mut wanted): Form<Wanted>) -> Response {
    if let Some(name) = wanted.too_long() {
        let text = format!("{name} is longer than any can be. Nothing was done.");
        return board.problem(StatusCode::BAD_REQUEST, "That cannot be done", &text);
    }
    let Some((verb, is_asked_about)) = verb(&wanted) else {
        let text = format!("{} is nothing that a board does.", wanted.act);
        return board.problem(StatusCode::BAD_REQUEST, "That cannot be done", &text);
    };
    if !board.may(&head, wanted.offer()) {
        let title = if board.options.is_read_only { "This board is read only" } else { "You may not do that here" };
        return board.problem(StatusCode::FORBIDDEN, title, "Nothing was done.");
    }
    let to_type = board.options.to_type();
    let is_confirmed = match to_type {
        Some(name) => wanted.confirmed.trim() == name,
        None => !wanted.confirmed.is_empty(),
    };
    let poison = if is_confirmed { Ok(None) } else { poison(&board, &wanted).await };
    let poison = match poison {
        Ok(poison) => poison,
        Err(e) => return board.not_begun(&e),
    };
    let is_asked_about =
        is_asked_about || to_type.is_some() && matches!(&*wanted.act, "retry" | "run_now" | "flow_retry");
    if (is_asked_about || poison.is_some()) && !is_confirmed {
        let (as_of, text) = match question(&board, &wanted).await {
            Ok(Ok(asked)) => asked,
            Ok(Err(wrong)) => return board.problem(StatusCode::BAD_REQUEST, "That cannot be asked for", &wrong),
            Err(e) => return board.not_begun(&e),
        };
        let text = poison.map_or(text.clone(), |poison| format!("{text} {poison}"));
        let dispatched = match dispatched_at(&board, &wanted).await {
            Ok(dispatched) => dispatched,
            Err(e) => return board.not_begun(&e),
        };
        let wrong = if wanted.confirmed.is_empty() { "" } else { "That is not its name. Nothing was done." };
        return answer(&ConfirmPage {
            frame: board.frame(&head),
            what: format!("{verb}?"),
            yes: format!("Yes, {}", verb.to_lowercase()),
            text,
            fields: wanted.fields(as_of, dispatched),
            back: wanted.back(&board),
            to_type: to_type.map(str::to_owned),
            wrong,
        });
    }
    let selection = match wanted.selection() {
        Ok(selection) => selection,
        Err(wrong) => return board.problem(StatusCode::BAD_REQUEST, "That cannot be asked for", &wrong),
    };
    if wanted.act != "recover_worker" && !wanted.is_of_flow() {
        match board.knows(&wanted.task).await {
            Ok(true) => {}
            Ok(false) => {
                let text = format!("There is no task {}. Nothing was done.", wanted.task);
                return board.problem(StatusCode::NOT_FOUND, "There is no such task", &text);
            }
            Err(e) => return board.not_begun(&e),
        }
    }
    let by = (board.options.by)(&head);
    if matches!(wanted.act.as_str(), "cancel" | "flow_cancel") {
        // The event of a running one is written by its worker, which does not know who asked.
        let named = format!("cancelled by {by}");
        wanted.reason = if wanted.reason.is_empty() { named } else { format!("{} ({named})", wanted.reason) };
    }
    let inspector = board.inspector.clone().by(by);
    let on = match wanted.act.as_str() {
        "recover_worker" => &wanted.worker,
        _ if wanted.is_of_flow() => &wanted.workflow,
        _ => &wanted.task,
    };
    let on = if wanted.id.is_empty() { on.to_owned() } else { format!("{} of {on}", wanted.id) };
    let (what, back) = (format!("{verb}: {on}"), wanted.back(&board));
    let begun = board.runs.begin(what, back, wanted.offer().to_owned(), |run| {
        let board = Arc::clone(&board);
        async move {
            let told = done(&board, &inspector, &wanted, selection, &run).await.map_err(|e| chain(&e));
            board.counts.forget(&wanted.task);
            told
        }
    });
    let Some(begun) = begun else {
        let text = "Too much goes on already. Nothing was done; try again when some of it has ended.";
        return board.problem(StatusCode::TOO_MANY_REQUESTS, "Not now", text);
    };
    if begun.ended_within(AT_ONCE).await {
        run::show(&board, &head, &begun)
    } else {
        Redirect::to(&run::url(&board, &begun)).into_response()
    }
}

/// What is to be said of a retry of jobs that took their workers down: they may do that again.
async fn poison(board: &Board, wanted: &Wanted) -> Result<Option<String>, Error> {
    if wanted.act != "retry" {
        return Ok(None);
    }
    if !wanted.id.is_empty() {
        let job = board.inspector.job(&wanted.task, &wanted.id, JobValues::None).await?;
        let crashed = job.filter(|job| job.error.as_ref().is_some_and(|e| e.code == codes::WORKER_CRASHED));
        return Ok(crashed.map(|job| {
            let workers = many(job.stalled_count.into(), "worker");
            format!("It failed since {workers} died, or hung, with it; it may do that again.")
        }));
    }
    let is_other = !wanted.code.is_empty() && wanted.code != codes::WORKER_CRASHED;
    let Ok(filter) = wanted.jobs().filter() else { return Ok(None) };
    if is_other || wanted.state != JobState::Failed.as_str() {
        return Ok(None);
    }
    let crashed = board.inspector.count(&wanted.task, &filter.code(codes::WORKER_CRASHED)).await?;
    let least = if crashed.is_exact { "" } else { "at least " };
    Ok((crashed.jobs > 0).then(|| {
        format!(
            "{least}{} of them failed since their workers died, or hung, with them, and may do that again.",
            crashed.jobs
        )
    }))
}

/// When the job was dispatched that an act is about, if it is about one.
async fn dispatched_at(board: &Board, wanted: &Wanted) -> Result<Option<SystemTime>, Error> {
    if wanted.id.is_empty() || wanted.is_of_flow() {
        return Ok(None);
    }
    let job = board.inspector.job(&wanted.task, &wanted.id, JobValues::None).await?;
    Ok(job.and_then(|job| job.dispatched_at))
}

/// What an act is called, and whether it is asked about: what cannot be undone, and what is about many jobs.
fn verb(wanted: &Wanted) -> Option<(&'static str, bool)> {
    let is_about_many = wanted.id.is_empty();
    Some(match wanted.act.as_str() {
        "pause" => ("Pause", false),
        "resume" => ("Resume", false),
        "retry" => ("Retry", is_about_many),
        "run_now" => ("Run now", is_about_many),
        "cancel" => ("Cancel", true),
        "remove" => ("Remove", true),
        "requeue_claimed" => ("Put back", true),
        "recover_running" => ("Run again", true),
        "fail_running" => ("Let fail", true),
        "recover_worker" => ("Take its jobs from it", true),
        "flow_pause" => ("Pause", false),
        "flow_resume" => ("Resume", false),
        "flow_retry" => ("Retry", false),
        "flow_cancel" => ("Cancel", true),
        "sweep" => ("Resolve what stays silent", true),
        "audit" => ("Audit", false),
        "preview" => ("What a repair would do", false),
        "repair" => ("Repair", true),
        _ => return None,
    })
}

/// What a person is asked, as of when by the server's clock; or what is wrong with what they want.
async fn question(board: &Board, wanted: &Wanted) -> Result<Result<(SystemTime, String), String>, Error> {
    let now = board.inspector.now().await;
    if wanted.act == "repair" {
        let Some((at, found)) = board.audited(&wanted.task) else {
            return Ok(Err("nothing is known to be wrong: audit it first".to_owned()));
        };
        if wanted.is_of_another(at) {
            return Ok(Err(ANOTHER_AUDIT.to_owned()));
        }
        let again = runs_again(found.findings());
        let found = many(found.findings().count() as u64, "fault");
        let text = "What is not there any more is left alone. The page before says what becomes of each kind.";
        return Ok(Ok((at, format!("{found} of {}{again}. {text}", wanted.task))));
    }
    if wanted.act == "recover_worker" {
        return of_worker(board, &wanted.worker).await.map(Ok);
    }
    if wanted.is_of_flow() {
        let text = "What is not open yet never runs, what waits is cancelled, and what runs is asked to stop.";
        return Ok(Ok((now, format!("{} of {}. {text}", wanted.id, wanted.workflow))));
    }
    let is_watched = matches!(wanted.act.as_str(), "requeue_claimed" | "recover_running" | "fail_running");
    if !wanted.id.is_empty() {
        if is_watched {
            let job = board.inspector.job(&wanted.task, &wanted.id, JobValues::None).await?;
            match job.map(|job| job.state) {
                None => return Ok(Err("there is no such job".to_owned())),
                Some(state) if !state.is_held() => return Ok(Err(format!("nobody holds it: it is {state}"))),
                Some(_) => {}
            }
        }
        let state = wanted.seen_state().map_or(String::new(), |state| format!(", which is {state}"));
        return Ok(Ok((now, format!("{} of {}{state}.", wanted.id, wanted.task))));
    }
    if is_watched {
        return Ok(Err("it is for one job".to_owned()));
    }
    if wanted.act == "sweep" {
        return of_sweep(board, &wanted.task).await.map(Ok);
    }
    let filter = match wanted.jobs().filter() {
        Ok(filter) => filter,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let as_of = board.inspector.task(&wanted.task).await?.as_of;
    let count = board.inspector.count(&wanted.task, &filter).await?;
    let least = if count.is_exact { "" } else { "at least " };
    let state = if wanted.state.is_empty() { "failed" } else { &wanted.state };
    let mut text = format!("{least}{} {state} jobs of {}", count.jobs, wanted.task);
    for (name, value) in [("the code", &wanted.code), ("the text", &wanted.text), ("an age over", &wanted.older)] {
        if !value.is_empty() {
            text.push_str(&format!(", with {name} {value}"));
        }
    }
    Ok(Ok((as_of, format!("{text}. What comes to fit from now on is let be."))))
}

/// What is asked about a worker, and when it was seen last if that was too long ago: one that has come back since keeps its jobs.
async fn of_worker(board: &Board, id: &str) -> Result<(SystemTime, String), Error> {
    let Some(worker) = board.inspector.worker(id).await? else {
        return Ok((SystemTime::UNIX_EPOCH, format!("nothing is known of {id}.")));
    };
    let worker = held_by(board, worker).await?;
    let is_overdue = worker.is_presence_overdue(board.inspector.now().await);
    let as_of = if is_overdue { worker.last_seen_at } else { SystemTime::UNIX_EPOCH };
    let held = board.inspector.describe_held(&worker).await?;
    let held = if held.is_empty() { "no job; what it claims meanwhile is taken too".to_owned() } else { held };
    let seen = relative(worker.last_seen_at, board.inspector.now().await);
    let host = if worker.host.is_empty() { String::new() } else { format!(" on {}", worker.host) };
    let unreadable = if worker.fault.is_some() { " Its presence cannot be read." } else { "" };
    let mut is_mute = false;
    for its in &worker.tasks {
        is_mute |= board.inspector.diagnose_mute_holder(&its.task, &worker).await?.is_some();
    }
    let alive = match (worker.state.is_live(), is_mute) {
        (true, _) => " IT IS MOST LIKELY ALIVE.",
        (false, true) => " IT IS MOST LIKELY ALIVE: it claims jobs, and cannot update its presence.",
        (false, false) => "",
    };
    let text = format!(
        "{id}{host} is {}, last seen {seen}.{unreadable}{alive} It holds {held}. They run again, or fail past max_count. If it is alive \
         after all, they run twice: it hears of it within 10 s, and stops.",
        worker.state
    );
    Ok((as_of, text))
}

/// What is asked about a sweep.
async fn of_sweep(board: &Board, name: &str) -> Result<(SystemTime, String), Error> {
    let task = board.inspector.task(name).await?;
    let risks = board.inspector.diagnose_recovery(name).await?;
    let options = board.command_options();
    let risks: String =
        risks.iter().map(|diagnosis| format!(" {diagnosis}: {}.", placed(&diagnosis.hint(), &options))).collect();
    let text = format!(
        "Jobs of {name} that stay silent for a stall interval, or two, run again, or fail past max_count. It is for a task that no live \
         worker watches.{risks}"
    );
    Ok((task.as_of, text))
}

/// Does it, and says what came of it.
async fn done(
    board: &Board,
    inspector: &Inspector,
    wanted: &Wanted,
    jobs: JobSelection,
    run: &Run,
) -> Result<String, Error> {
    let task = wanted.task.as_str();
    let silent = || SilentSelection::ids([&wanted.id]);
    match wanted.act.as_str() {
        "pause" => {
            let why = |reason: &str| if reason.is_empty() { String::new() } else { format!(": {reason}") };
            match inspector.pause(task, &wanted.reason).await? {
                None => Ok(format!("{task} is paused: no job of it begins; what runs goes on.")),
                Some(before) => Ok(format!("{task} was paused already, by {}{}", before.by, why(&before.reason))),
            }
        }
        "resume" => inspector.resume(task).await.map(|_| format!("{task} goes on.")),
        "retry" => step_by_step(wanted.bound(inspector.retry(task, jobs)), "run again", run).await,
        "run_now" => step_by_step(wanted.bound(inspector.run_now(task, jobs)), "run now", run).await,
        "cancel" => step_by_step(wanted.bound(inspector.cancel(task, jobs, &wanted.reason)), "cancelled", run).await,
        "remove" => step_by_step(wanted.bound(inspector.remove(task, jobs)), "removed", run).await,
        "requeue_claimed" => watched(inspector.requeue_claimed(task, silent()), "put back", run).await,
        "recover_running" => watched(inspector.recover_running(task, silent()), "run again", run).await,
        "fail_running" => watched(inspector.fail_running(task, silent()), "failed", run).await,
        "recover_worker" => {
            let recovered = match wanted.asked_at() {
                Some(seen) => inspector.recover_worker_unseen_since(&wanted.worker, seen).await?,
                None => inspector.recover_worker(&wanted.worker).await?,
            };
            let Some(report) = recovered else { return Ok("Nothing is known of it any more.".to_owned()) };
            if report.was_seen_since {
                return Ok("It has told of itself since: it is alive, and nothing was done.".to_owned());
            }
            let of_task = |task: &heartline::RecoveredTask| match &task.fault {
                Some(fault) => format!("{}: {fault}", task.task),
                None => format!("{}: {}", task.task, many(task.resolved.len() as u64, "job")),
            };
            run.lines(report.tasks.iter().map(of_task).collect());
            Ok("Its jobs are taken from it.".to_owned())
        }
        _ if wanted.is_of_flow() => of_flow(inspector, wanted).await,
        "sweep" => sweep(inspector, task, run).await,
        "audit" => audit(board, inspector, task, run).await,
        "preview" => preview(board, inspector, wanted, run).await,
        _ => repair(board, inspector, wanted, run).await,
    }
}

/// Does it to an instance of a workflow.
async fn of_flow(inspector: &Inspector, wanted: &Wanted) -> Result<String, Error> {
    let handle = inspector.workflow_handle(&wanted.workflow, &wanted.id)?;
    let state = match wanted.act.as_str() {
        "flow_pause" => handle.pause(&*wanted.reason).await,
        "flow_resume" => handle.resume().await,
        "flow_retry" => handle.retry_failed().await,
        _ => handle.cancel(&*wanted.reason).await,
    };
    let stops = if wanted.act == "flow_cancel" && state.as_ref().is_ok_and(|state| !state.is_ended()) {
        ", and ends when none of its handlers is left"
    } else {
        ""
    };
    Ok(format!("It is {}{stops}.", state?))
}

async fn step_by_step(mut act: Act, done: &str, run: &Run) -> Result<String, Error> {
    let mut is_stopped = false;
    while let Some(so_far) = act.step().await? {
        run.progress(format!("{} {done}, {} refused, {} looked at", so_far.done, so_far.refused, so_far.looked));
        if run.is_stopped() && !so_far.is_complete {
            is_stopped = true;
            break;
        }
    }
    let report = act.report();
    run.lines(lines(report));
    let stopped = if is_stopped { "; stopped: the others are as they were" } else { "" };
    Ok(format!("{} {done}, {} refused{stopped}", report.done, report.refused))
}

/// What watches for an interval before it decides.
async fn watched(
    deciding: impl Future<Output = Result<ActReport, Error>>,
    done: &str,
    run: &Run,
) -> Result<String, Error> {
    run.progress("It watches for a stall interval, and then decides.".to_owned());
    tokio::select! {
        decided = deciding => {
            let report = decided?;
            run.lines(lines(&report));
            let by_worker = if report.swept_by_worker { "; somebody else swept meanwhile: the stalls of the task tell what was decided" } else { "" };
            Ok(format!("{}, {} refused{by_worker}", changed(&report, done), report.refused))
        }
        () = run.stopped() => Ok("Stopped before it decided.".to_owned()),
    }
}

async fn sweep(inspector: &Inspector, task: &str, run: &Run) -> Result<String, Error> {
    run.progress("It watches for a stall interval, or two, and then decides.".to_owned());
    tokio::select! {
        swept = inspector.sweep_now(task) => {
            let report = swept?;
            let of_job = |job: &ResolvedJob| format!("{}: {}, stall {}", job.id, job.action, job.stalled_count);
            run.lines(report.resolved.iter().map(of_job).collect());
            let by_worker = if report.swept_by_worker { "; somebody else swept meanwhile: the stalls of the task tell what was decided" } else { "" };
            let aside = if report.set_aside > 0 { format!(", {} set aside for a person", report.set_aside) } else { String::new() };
            let end = if report.is_complete { "" } else { "; it did not come to its end: repeat it" };
            Ok(format!("{} resolved{aside}{by_worker}{end}", many(report.resolved.len() as u64, "silent job")))
        }
        () = run.stopped() => Ok("Stopped before it decided.".to_owned()),
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
        run.lines(vec!["this board is read only: it is not noted for others".to_owned()]);
    } else if let Err(e) = inspector.note_audit(&report).await {
        run.lines(vec![format!("it could not be noted for others: {}", chain(&e))]);
    }
    let found: u64 = report.parts.iter().map(|part| part.found).sum();
    board.audits.lock().unwrap_or_else(PoisonError::into_inner).insert(task.to_owned(), (SystemTime::now(), report));
    Ok(if found == 0 { "Nothing is wrong.".to_owned() } else { format!("{} found.", many(found, "fault")) })
}

/// What is said where another audit was made since the one that was looked at.
const ANOTHER_AUDIT: &str = "It was audited again since, and nothing was done: look at what was found.";

/// What is said where nothing is known of a task by an audit.
const NOT_AUDITED: &str = "Audit it first: nothing is known to be wrong.";

async fn preview(board: &Board, inspector: &Inspector, wanted: &Wanted, run: &Run) -> Result<String, Error> {
    let Some((at, found)) = board.audited(&wanted.task) else { return Ok(NOT_AUDITED.to_owned()) };
    if wanted.is_of_another(at) {
        return Ok(ANOTHER_AUDIT.to_owned());
    }
    let RepairReport { mended, gone, .. } = inspector.preview_repair(&found).await?;
    run.lines(mended.iter().map(ToString::to_string).collect());
    Ok(format!("{} would be mended, {} not there any more", many(mended.len() as u64, "fault"), gone.len()))
}

async fn repair(board: &Board, inspector: &Inspector, wanted: &Wanted, run: &Run) -> Result<String, Error> {
    let Some((at, found)) = board.audited(&wanted.task) else { return Ok(NOT_AUDITED.to_owned()) };
    if wanted.is_of_another(at) {
        return Ok(ANOTHER_AUDIT.to_owned());
    }
    let RepairReport { mended, gone, .. } = inspector.repair(&found).await?;
    run.lines(mended.iter().map(ToString::to_string).collect());
    // What it says is no more: the next audit tells what is left. One that was made meanwhile stands.
    let mut audits = board.audits.lock().unwrap_or_else(PoisonError::into_inner);
    if audits.get(&wanted.task).is_some_and(|(stored, _)| *stored == at) {
        audits.remove(&wanted.task);
    }
    Ok(format!("{} mended, {} not there any more", many(mended.len() as u64, "fault"), gone.len()))
}

fn lines(report: &ActReport) -> Vec<String> {
    let mut lines = Vec::new();
    if report.requested > 0 {
        lines.push(format!("{} were asked of their workers", report.requested));
    }
    lines.extend(report.refusals.iter().map(|refused| format!("{}: {}", refused.id, refused.why)));
    lines
}
