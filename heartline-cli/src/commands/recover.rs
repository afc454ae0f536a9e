//! `recover`: decisions of a person about held jobs.

use std::time::Duration;

use heartline::{RecoveryReport, ResolvedJob, SilentJob, SilentSelection, TaskReport, WorkerState};

use super::{acts, health, known_task, when, workers};
use crate::args::{RecoverCommand, Silent};
use crate::ask::{confirm, confirm_in_person};
use crate::failure::Failure;
use crate::session::Session;
use heartline::inspect::describe::{is_overdue, proof, worker_state};
use heartline::inspect::text::{many, quoted, relative, shown, span};

/// The longest watch if no interval is in force: two default intervals.
const LONGEST_WATCH: Duration = Duration::from_secs(60);

/// The verb of `recover claimed`.
const REQUEUE: &str = "requeue";

/// The most jobs listed without `--json`.
const LISTED: usize = 100;

/// The most holders checked for a proof of death.
const MOST_HOLDERS: usize = 20;

pub(super) async fn run(session: &Session, command: RecoverCommand) -> Result<(), Failure> {
    let inspector = &session.inspector;
    match command {
        RecoverCommand::Silent(of) => silent(session, &of.task).await,
        RecoverCommand::Claimed(jobs) => {
            let selected = selected(session, &jobs, REQUEUE, session.consent.is_production).await?;
            acts::print_report(session, &inspector.requeue_claimed(&jobs.task, selected).await?, "requeued", false)
        }
        RecoverCommand::Running(jobs) => {
            let selected = selected(session, &jobs, "run again", session.consent.is_production).await?;
            acts::print_report(session, &inspector.recover_running(&jobs.task, selected).await?, "run again", false)
        }
        RecoverCommand::Fail(jobs) => {
            let selected = selected(session, &jobs, "fail", true).await?;
            acts::print_report(session, &inspector.fail_running(&jobs.task, selected).await?, "failed", false)
        }
        RecoverCommand::Worker { worker } => of_worker(session, &worker).await,
        RecoverCommand::Sweep(of) => sweep(session, &of.task).await,
    }
}

/// The selected jobs. Asks if all are meant or `must_ask` is set, and says how long it will take.
async fn selected(session: &Session, jobs: &Silent, verb: &str, must_ask: bool) -> Result<SilentSelection, Failure> {
    known_task(session, &jobs.task).await?;
    let selection = if jobs.all {
        ask_about_all(session, jobs, verb).await?;
        SilentSelection::all()
    } else {
        let ids = acts::ids_of(&jobs.ids)?;
        if must_ask {
            let stay = if ids.len() == 1 { "it stays" } else { "they stay" };
            let what = format!("{verb} {} of {}, if {stay} silent", many(ids.len() as u64, "job"), jobs.task);
            confirm(&session.consent, &what)?;
        }
        SilentSelection::ids(ids)
    };
    let task = session.inspector.task(&jobs.task).await?;
    let interval = task.parts.iter().filter_map(|part| part.interval).max().unwrap_or(LONGEST_WATCH / 2);
    session.out.hint(format!(
        "Watching for one or two intervals, up to {}; only jobs that stay silent are changed. Ctrl-C during the watch changes nothing.",
        span(interval * 2)
    ));
    for worker in dead_holders(session, &jobs.task).await? {
        session.out.hint(format!(
            "{worker} is known to be dead: `heartline recover worker {}` recovers its jobs at once; jobs past max_count fail.",
            quoted(&worker)
        ));
    }
    Ok(selection)
}

/// The workers that hold jobs of the task and are known to be dead.
async fn dead_holders(session: &Session, task: &str) -> Result<Vec<String>, Failure> {
    let held_by = session.inspector.lock_holders(task).await?;
    let mut dead = Vec::new();
    for holder in held_by.holders.iter().take(MOST_HOLDERS) {
        let known = session.inspector.worker(holder.worker.as_str()).await?;
        if known.is_some_and(|worker| worker.death.is_some()) {
            dead.push(shown(holder.worker.as_str()));
        }
    }
    Ok(dead)
}

/// Asks before an act on all silent jobs.
async fn ask_about_all(session: &Session, jobs: &Silent, verb: &str) -> Result<(), Failure> {
    let task = session.inspector.task(&jobs.task).await?;
    let silent = silent_jobs(session, &jobs.task).await?;
    let is_meant = |job: &&SilentJob| job.is_claimed || verb != REQUEUE;
    let silent = silent.iter().filter(is_meant).count();
    let parked: u64 = task.parts.iter().map(|part| part.parked).sum();
    let what = match parked {
        0 if silent == 0 && task.parts.iter().all(|part| part.snapshot_at.is_none()) => {
            format!("all jobs of {} that stay silent (their number is unknown before the first snapshot)", jobs.task)
        }
        0 => format!("all jobs of {} that stay silent ({silent} are silent now)", jobs.task),
        // If there are parked jobs, only these are changed.
        _ => format!("the {} of {}", many(parked, "parked job"), jobs.task),
    };
    confirm(&session.consent, &format!("{verb} {what}"))
}

/// All silent jobs of the task.
async fn silent_jobs(session: &Session, task: &str) -> Result<Vec<SilentJob>, Failure> {
    let (mut jobs, mut cursor) = (Vec::new(), None);
    loop {
        let page = session.inspector.silent_jobs(task, cursor.as_deref()).await?;
        jobs.extend(page.jobs);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(jobs);
        }
    }
}

async fn silent(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let mut jobs = silent_jobs(session, task).await?;
    let now = session.inspector.now().await;
    let report = session.inspector.task(task).await?;
    let workers = session.inspector.workers().await?;
    let of = |job: &SilentJob| workers.iter().find(|worker| Some(&worker.worker) == job.worker.as_ref());
    let is_lively = |job: &SilentJob| of(job).is_some_and(|worker| worker.state.is_live());
    let early = if is_overdue(&report) {
        0
    } else {
        // Their heartbeats are not due yet.
        let before = jobs.len();
        jobs.retain(|job| job.is_parked || !is_lively(job));
        before - jobs.len()
    };
    let Some(out) = session.out.for_person(&jobs)? else { return Ok(()) };
    let patient = if report.waits_for_person() { "you" } else { "its longer interval" };
    let cells = |job: &SilentJob| {
        vec![
            shown(job.id.as_str()),
            job.worker.as_ref().map_or_else(|| "-".to_owned(), |worker| shown(worker.as_str())),
            of(job).map_or_else(|| "unknown".to_owned(), worker_state),
            if job.is_claimed { "claimed" } else { "running" }.to_owned(),
            when(job.started_at, now),
            when(job.silent_since, now),
            if job.is_parked { patient } else { "its worker, or the next sweep" }.to_owned(),
        ]
    };
    out.table(
        &["ID", "WORKER", "WHICH IS", "STATE", "CLAIMED", "SILENT SINCE", "WAITS FOR"],
        jobs.iter().take(LISTED).map(cells).collect(),
    )?;
    if jobs.len() > LISTED {
        out.hint(format!("and {} more; --json shows all", jobs.len() - LISTED));
    }
    let held = report.counts.claimed + report.counts.running;
    let at = report.parts.iter().filter_map(|part| part.snapshot_at).max();
    let is_known = at.is_some() || !jobs.is_empty();
    let age = at.map_or("there is no snapshot yet".to_owned(), |at| {
        format!("the last snapshot was {}", relative(at, report.as_of))
    });
    out.hint(match is_known {
        true => format!("{} of {held} held jobs are silent; {age}.", jobs.len()),
        false => format!("{held} jobs are held; which are silent is unknown before the first snapshot."),
    });
    if super::tell_unknown(session).await {
        return Ok(());
    }
    super::tell_risks(session, task).await?;
    if early > 0 {
        out.hint(format!("{early} more had no heartbeat since the snapshot; none was due yet."));
    }
    for (holder, diagnosis) in session.inspector.diagnose_holders(&report, &workers).await? {
        if jobs.iter().all(|job| job.worker.as_ref() != Some(&holder)) {
            out.hint(health::lines(&diagnosis, false));
        }
    }
    advise(session, &report, jobs.iter().filter(|job| job.is_parked).count() as u64);
    Ok(())
}

/// Says what the person can do about silent jobs, `parked` of which wait for a person or a longer interval.
fn advise(session: &Session, report: &TaskReport, parked: u64) {
    let task = shown(&report.task);
    if parked > 0 {
        session.out.hint(format!(
            "Parked jobs: `heartline recover running -t {task} ID` runs one again, `heartline recover fail -t {task} ID` fails it."
        ));
    }
    let held = report.counts.claimed + report.counts.running;
    if report.live_workers == 0 && report.knows_workers && held > parked {
        session.out.hint(format!(
            "No live worker watches {task}: run `heartline recover sweep -t {task}`; it takes one or two intervals."
        ));
    }
}

async fn of_worker(session: &Session, id: &str) -> Result<(), Failure> {
    let now = session.inspector.now().await;
    let Some(mut known) = session.inspector.worker(id).await? else {
        return Err(Failure::Failed(format!("there is no worker {id}; `heartline workers --all` lists all")));
    };
    let holders = workers::held_by(session, std::slice::from_mut(&mut known)).await?;
    let proof = known.death.as_ref().map_or("its death is not proven", |death| proof(death.proof));
    let seen = relative(known.last_seen_at, now);
    let own = holders.iter().flat_map(|report| &report.holders).filter(|holder| holder.worker == known.worker);
    let claimed =
        own.filter(|holder| holder.claims_without_presence(&known, now)).map(|holder| holder.last_claimed_at).max();
    let alive = match claimed {
        Some(at) => {
            format!("; IT IS MOST LIKELY ALIVE: it claimed a job {}. Its jobs would run twice", relative(at, now))
        }
        None if known.state.is_live() => "; IT IS MOST LIKELY ALIVE. Its jobs would run twice".to_owned(),
        None => String::new(),
    };
    let is_seen = known.tasks.iter().all(|its| holders.iter().any(|report| report.task == its.task));
    // Of a gone worker the list still has when it was last seen.
    let is_readable = known.fault.is_none() || known.state == WorkerState::Gone;
    let is_live = known.state.is_live();
    let may_live = (is_live || claimed.is_some() || !is_seen || !is_readable) && known.death.is_none();
    if session.consent.yes && may_live {
        let why = match (is_readable, is_seen) {
            (false, _) => "has an unreadable presence".to_owned(),
            (true, true) if is_live => format!("was seen {seen}"),
            (true, true) => "cannot update its presence now".to_owned(),
            (true, false) => "has tasks whose holders cannot be read now".to_owned(),
        };
        let what = "to declare it dead, run this on a terminal without --yes";
        let alive = if alive.is_empty() { " and may be alive".to_owned() } else { alive };
        return Err(Failure::wrong(format!("{id} {why}{alive}; {what}")));
    }
    let held = session.inspector.describe_held(&known).await?;
    let held = if held.is_empty() { "none now; jobs that it claims until then are included".to_owned() } else { held };
    let what = format!("recover the jobs of {id}: {held}. They run again, or fail past max_count");
    let stops = if known.death.is_some() { "" } else { "; if the worker is alive, it notices within 10s and stops" };
    let is_in_doubt = !may_live && known.death.is_none() && known.stopped_at.is_none();
    let check = if is_in_doubt { "; it may be frozen: check its process first" } else { "" };
    if !session.out.is_json {
        for its in known.tasks.iter().filter(|its| its.held > 0) {
            super::tell_risks(session, &its.task).await?;
        }
    }
    let question = format!("{what}{stops} ({}, last seen {seen}, {proof}{alive}{check})", known.state);
    match may_live {
        true => confirm_in_person(&session.consent, &question)?,
        false => confirm(&session.consent, &question)?,
    }
    // A worker that returns while the person decides keeps its jobs.
    let recovered = if known.is_presence_overdue(now) {
        session.inspector.recover_worker_unseen_since(id, known.last_seen_at).await?
    } else {
        session.inspector.recover_worker(id).await?
    };
    let ended = recovered_jobs(session, id, recovered);
    if known.death.is_none() && known.stopped_at.is_none() && !matches!(ended, Err(Failure::Failed(_))) {
        session.out.hint(format!(
            "The death of {} was not proven. If its process is only frozen, its handlers continue next to the new runs when it wakes.",
            shown(id)
        ));
    }
    ended
}

/// Prints what was decided about the jobs of a worker.
fn recovered_jobs(session: &Session, id: &str, recovered: Option<RecoveryReport>) -> Result<(), Failure> {
    let Some(report) = recovered else {
        return Err(Failure::Failed(format!("there is no worker {id} any more")));
    };
    if report.was_seen_since {
        return Err(Failure::Failed(format!("{id} was seen again: it is alive, and nothing was done")));
    }
    if session.out.is_json {
        session.out.json(&report)?;
    }
    let mut is_whole = true;
    for task in &report.tasks {
        if let Some(fault) = &task.fault {
            is_whole = false;
            say!("error: {}: {}", shown(&task.task), shown(fault));
        }
        if !session.out.is_json {
            session.out.line(format!("{}: {}", shown(&task.task), many(task.resolved.len() as u64, "job")))?;
            resolved(session, &task.resolved)?;
        }
    }
    if is_whole { Ok(()) } else { Err(Failure::Printed) }
}

async fn sweep(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    // Fail before the watch, which would take a whole interval.
    if let Some(refused) = session.inspector.writes_refused().await {
        return Err(Failure::Failed(format!("{refused}; nothing can be resolved until the server accepts writes")));
    }
    if !session.out.is_json {
        super::tell_risks(session, task).await?;
    }
    confirm(
        &session.consent,
        &format!("resolve jobs of {task} that stay silent: they run again, or fail past max_count"),
    )?;
    session
        .out
        .hint("Watching for one stall interval, or two if no job is silent. Ctrl-C during the watch changes nothing.");
    let report = session.inspector.sweep_now(task).await?;
    if session.out.is_json {
        session.out.json(&report)?;
        return if report.is_complete { Ok(()) } else { Err(Failure::Printed) };
    }
    session.out.line(match report.resolved.len() {
        1 => "1 silent job resolved".to_owned(),
        jobs => format!("{jobs} silent jobs resolved"),
    })?;
    if report.parked > 0 {
        let wait = if report.parked == 1 { "waits" } else { "wait" };
        let how = format!(
            "`heartline recover running -t {task} ID` runs one again, `heartline recover fail -t {task} ID` fails it"
        );
        session.out.line(format!("{} {wait} for your decision: {how}", many(report.parked, "silent job")))?;
    }
    resolved(session, &report.resolved)?;
    if report.swept_by_worker {
        session.out.line(acts::SWEPT_BY_OTHER)?;
    }
    if report.is_complete {
        Ok(())
    } else {
        Err(Failure::Failed("the sweep is not complete; repeat the command".to_owned()))
    }
}

fn resolved(session: &Session, jobs: &[ResolvedJob]) -> Result<(), Failure> {
    for job in jobs.iter().take(LISTED) {
        session.out.line(format!("  {}: {}, stall {}", shown(job.id.as_str()), job.action, job.stalled_count))?;
    }
    if jobs.len() > LISTED {
        session.out.line(format!("  and {} more; --json shows all", jobs.len() - LISTED))?;
    }
    Ok(())
}
