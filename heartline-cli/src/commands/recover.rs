//! `recover`: what a person decides about held jobs.

use std::time::SystemTime;

use heartline::{ResolvedJob, SilentJob, SilentSelection};

use super::{acts, known_task, when};
use crate::args::{RecoverCommand, Silent};
use crate::ask::confirm;
use crate::failure::Failure;
use crate::session::Session;
use crate::text::shown;

pub(super) async fn run(session: &Session, command: RecoverCommand) -> Result<(), Failure> {
    let inspector = &session.inspector;
    match command {
        RecoverCommand::Silent { task } => silent(session, &task).await,
        RecoverCommand::Claimed(jobs) => {
            let selected = selected(session, &jobs, "put back").await?;
            acts::tell(session, &inspector.requeue_claimed(&jobs.task, selected).await?, "put back")
        }
        RecoverCommand::Running(jobs) => {
            let selected = selected(session, &jobs, "run again").await?;
            acts::tell(session, &inspector.recover_running(&jobs.task, selected).await?, "run again")
        }
        RecoverCommand::Fail(jobs) => {
            confirm(session.yes, &format!("let silent jobs of {} fail", jobs.task))?;
            let selected = selected(session, &jobs, "fail").await?;
            acts::tell(session, &inspector.fail_running(&jobs.task, selected).await?, "failed")
        }
        RecoverCommand::Worker { worker } => of_worker(session, &worker).await,
        RecoverCommand::Sweep { task } => sweep(session, &task).await,
    }
}

/// The jobs that were named. It says that it will take a while.
async fn selected(session: &Session, jobs: &Silent, verb: &str) -> Result<SilentSelection, Failure> {
    known_task(session, &jobs.task).await?;
    session.out.hint(format!(
        "Only what stays silent is to {verb}: that may be watched for an interval or two. Ctrl-C changes nothing."
    ));
    Ok(if jobs.all { SilentSelection::all() } else { SilentSelection::ids(acts::ids_of(&jobs.ids)?) })
}

async fn silent(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    let (mut jobs, mut cursor) = (Vec::new(), None);
    loop {
        let page = session.inspector.silent_jobs(task, cursor.as_deref()).await?;
        jobs.extend(page.jobs);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if session.out.is_json {
        return session.out.json(&jobs);
    }
    let now = SystemTime::now();
    let cells = |job: &SilentJob| {
        vec![
            shown(job.id.as_str()),
            job.worker.as_ref().map_or_else(|| "-".to_owned(), |worker| shown(worker.as_str())),
            if job.is_claimed { "claimed" } else { "running" }.to_owned(),
            when(job.started_at, now),
            when(job.silent_since, now),
            if job.is_set_aside { "you" } else { "its worker, or the next sweep" }.to_owned(),
        ]
    };
    session
        .out
        .table(&["ID", "WORKER", "STATE", "CLAIMED", "SILENT SINCE", "WAITS FOR"], jobs.iter().map(cells).collect())?;
    session.out.hint(format!("{} jobs were not heard from since the last snapshot.", jobs.len()));
    Ok(())
}

async fn of_worker(session: &Session, id: &str) -> Result<(), Failure> {
    let Some(known) = session.inspector.worker(id).await? else {
        return Err(Failure::Failed(format!(
            "nothing is known of a worker {id}; `heartline workers --all` lists them"
        )));
    };
    let proof = known.death.as_ref().map_or("its death is not proven".to_owned(), |death| format!("{}", death.proof));
    confirm(session.yes, &format!("take the jobs of {id} ({}, {proof}) from it", known.state))?;
    let Some(report) = session.inspector.recover_worker(id).await? else {
        return Err(Failure::Failed(format!("nothing is known of a worker {id} any more")));
    };
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
            session.out.line(format!("{}: {} jobs", shown(&task.task), task.resolved.len()))?;
            resolved(session, &task.resolved)?;
        }
    }
    if is_whole { Ok(()) } else { Err(Failure::Told) }
}

async fn sweep(session: &Session, task: &str) -> Result<(), Failure> {
    known_task(session, task).await?;
    session
        .out
        .hint("It watches for one stall interval, for a second one if nothing was silent. Ctrl-C changes nothing.");
    let report = session.inspector.sweep_now(task).await?;
    if session.out.is_json {
        return session.out.json(&report);
    }
    session.out.line(format!("{} jobs were silent", report.resolved.len()))?;
    resolved(session, &report.resolved)?;
    if report.swept_by_worker {
        session.out.line("A live worker swept meanwhile, and decided about what was silent.")?;
    }
    if report.is_complete { Ok(()) } else { Err(Failure::Failed("it did not come to its end: repeat it".to_owned())) }
}

fn resolved(session: &Session, jobs: &[ResolvedJob]) -> Result<(), Failure> {
    for job in jobs {
        session.out.line(format!("  {}: {}, stall {}", shown(job.id.as_str()), job.action, job.stalled_count))?;
    }
    Ok(())
}
