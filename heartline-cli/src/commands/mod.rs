//! The commands, one file per noun.

mod acts;
mod audit;
#[cfg(feature = "board")]
mod board;
mod doctor;
mod events;
mod find;
mod flows;
mod health;
mod jobs;
mod lanes;
#[cfg(feature = "mcp")]
mod mcp;
mod metrics;
mod pages;
mod recover;
mod schedule_load;
mod schedule_rows;
mod schedules;
mod stalls;
mod tasks;
mod top;
mod unique;
#[cfg(unix)]
pub(crate) mod work;
mod workers;

use std::time::SystemTime;

use heartline::{Error, JobValues, TaskCounts};

use crate::args::{Args, Command};
#[cfg(unix)]
use crate::demo;
use crate::failure::Failure;
use crate::session::Session;
use heartline::inspect::text::{relative, shown};

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Completions { shell } => return pages::completions(shell),
        Command::Man { directory } => return pages::man(&directory),
        #[cfg(feature = "mcp")]
        Command::Mcp { values } => return mcp::serve(&args.global, values).await,
        #[cfg(unix)]
        Command::Work(work) => return work::work(&args.global, work).await,
        #[cfg(unix)]
        Command::Demo(asked) => return demo::run(asked, &args.global).await,
        #[cfg(unix)]
        Command::DemoWorker { workflow, schedules, limits } => {
            return demo::work(&args.global, workflow, schedules, limits).await;
        }
        _ => {}
    }
    let lasts = lasts(&args.command);
    let session = Session::open(&args.global, lasts).await?;
    match within(&session, args.command).await {
        Err(Failure::Unreachable(what)) => Err(Failure::Unreachable(with_lists(&session, what).await)),
        Err(Failure::WrongType(what)) => Err(Failure::Failed(named(&session, what).await)),
        ended => ended,
    }
}

/// Whether a command runs for long, so it connects at its first call and reconnects.
fn lasts(command: &Command) -> bool {
    match command {
        Command::Metrics { .. } => true,
        #[cfg(feature = "board")]
        Command::Board(_) => true,
        _ => false,
    }
}

/// The error of an unreachable node; if a list of tasks or workers is on it, with what still works.
async fn with_lists(session: &Session, what: String) -> String {
    let away = session.inspector.unreachable_lists().await.unwrap_or_default();
    let reasons = away.diagnoses().into_iter().map(|diagnosis| format!("{diagnosis}; {}", diagnosis.hint()));
    std::iter::once(what).chain(reasons).collect::<Vec<_>>().join(". ")
}

/// The most tasks whose keys are checked after a `WRONGTYPE` error.
const FOREIGN: usize = 200;

/// The error of a key with the wrong type, with its name: the server does not name it.
async fn named(session: &Session, what: String) -> String {
    let foreign = session.inspector.foreign_lists().await.unwrap_or_default();
    let named: Vec<String> = foreign.iter().map(ToString::to_string).collect();
    if !named.is_empty() {
        let named = named.join(", ");
        return format!("{named}: rename or delete it; workers and producers write it again");
    }
    let mut named = Vec::new();
    for task in session.inspector.task_names().await.unwrap_or_default().iter().take(FOREIGN) {
        let foreign = session.inspector.foreign_keys(task).await.unwrap_or_default();
        named.extend(foreign.iter().map(ToString::to_string));
    }
    match named.is_empty() {
        true => what,
        false => format!("{}; `heartline status` says what to do", named.join(", ")),
    }
}

async fn within(session: &Session, command: Command) -> Result<(), Failure> {
    match command {
        Command::Status => health::status(session).await,
        Command::Health => health::health(session).await,
        Command::Doctor => doctor::doctor(session).await,
        Command::Metrics { once: true, .. } => metrics::once(session).await,
        #[cfg(feature = "board")]
        Command::Board(asked) => board::board(session, asked).await,
        Command::Metrics { serving, .. } => metrics::export(session, serving).await,
        Command::Tasks => tasks::list(session).await,
        Command::Task(command) => tasks::run(session, command).await,
        Command::Jobs(command) => jobs::run(session, command).await,
        Command::Workers { command: Some(command), .. } => workers::act(session, command).await,
        Command::Workers { worker: Some(worker), .. } => workers::show(session, &worker).await,
        Command::Workers { beats: true, .. } => workers::list_beats(session).await,
        Command::Workers { command: None, worker: None, all, .. } => workers::list(session, all).await,
        Command::Find { text } => find::find(session, &text).await,
        Command::Unique(command) => unique::run(session, command).await,
        Command::Lanes(command) => lanes::run(session, command).await,
        Command::Flows(command) => flows::run(session, command).await,
        Command::Schedules(command) => schedules::run(session, command).await,
        Command::Stalls(command) => stalls::run(session, command).await,
        Command::Recover(command) => recover::run(session, command).await,
        Command::Audit { task } => audit::audit(session, task).await,
        Command::Repair { task, dry_run } => audit::repair(session, &task, dry_run).await,
        Command::Events { task, job: Some(job), .. } => events::of_job(session, &task, &job).await,
        Command::Events { task, job: None, follow } => events::of_task(session, &task, follow).await,
        Command::Top => top::top(session).await,
        Command::Completions { .. } | Command::Man { .. } => Ok(()),
        #[cfg(feature = "mcp")]
        Command::Mcp { .. } => Ok(()),
        #[cfg(unix)]
        Command::Exec { .. } | Command::Work(_) | Command::Demo(_) | Command::DemoWorker { .. } => Ok(()),
    }
}

/// A time in a table; `-` if it is unknown.
fn when(at: Option<SystemTime>, now: SystemTime) -> String {
    at.map_or_else(|| "-".to_owned(), |at| relative(at, now))
}

/// Prints a hint if it is unknown which workers are alive.
async fn tell_unknown(session: &Session) -> bool {
    let unknown = session.inspector.presence_unknown().await;
    if let Some(unknown) = &unknown {
        session.out.hint(health::lines(unknown, false));
    }
    unknown.is_some()
}

/// Prints which jobs of a task may kill the next worker, and which will fail when they are recovered.
async fn tell_risks(session: &Session, task: &str) -> Result<(), Failure> {
    // The next command will be refused, with the reason.
    if session.inspector.writes_refused().await.is_some() {
        return Ok(());
    }
    for diagnosis in session.inspector.diagnose_recovery(task).await? {
        session.out.hint(health::lines(&diagnosis, false));
    }
    Ok(())
}

/// Refuses an unknown task: most likely its name is mistyped.
async fn known_task(session: &Session, task: &str) -> Result<(), Failure> {
    let names = session.inspector.listed_task_names().await?;
    if names.iter().any(|name| name == task) {
        return Ok(());
    }
    // The list of tasks may be lost, or its node unreachable.
    let report = match session.inspector.task(task).await {
        // A user without the right to read may still act; the act refuses an unknown task.
        Err(Error::Denied { .. }) => return Ok(()),
        report => report?,
    };
    if report.dispatched > 0 || report.options.declared_by.is_some() || report.counts != TaskCounts::default() {
        return Ok(());
    }
    if names.is_empty() {
        let away = session.inspector.unreachable_lists().await?;
        if let Some(diagnosis) = away.diagnoses().first().filter(|_| away.tasks.is_some()) {
            return Err(Failure::Failed(format!("the task {task} is unknown: {diagnosis}")));
        }
    }
    Err(unknown("task", task, &names, "heartline tasks"))
}

/// The error of an unknown name, with a similar known one, or the command that lists all.
fn unknown(kind: &str, name: &str, names: &[String], lists: &str) -> Failure {
    Failure::wrong(match (near(names, name), names.is_empty()) {
        (Some(near), _) => format!("there is no {kind} {name}; did you mean {near}?"),
        (None, true) => {
            format!("there is no {kind} {name}, and no other under this prefix; check --prefix and --redis")
        }
        (None, false) => format!("there is no {kind} {name}; `{lists}` lists all"),
    })
}

/// Refuses an unknown job: most likely its id is mistyped.
async fn known_job(session: &Session, task: &str, id: &str) -> Result<(), Failure> {
    match session.inspector.job(task, id, JobValues::None).await? {
        Some(_) => Ok(()),
        None => Err(Failure::Failed(format!("there is no job {} of {task}, or it is no longer kept", shown(id)))),
    }
}

/// Whether the task is not listed yet, and a listed task with a similar name. A dispatch needs no further rights for it.
async fn is_new_task(session: &Session, task: &str) -> Result<(bool, Option<String>), Failure> {
    let names = match session.inspector.task_names().await {
        // The dispatch waits for the node of the task, and reports it if it stays unreachable.
        Err(e) if e.is_retryable() => return Ok((false, None)),
        // Only a note depends on it.
        Err(Error::Denied { .. }) => return Ok((false, None)),
        names => names?,
    };
    let is_new = !names.iter().any(|name| name == task);
    Ok((is_new, near(&names, task).filter(|_| is_new).cloned()))
}

fn near<'a>(names: &'a [String], task: &str) -> Option<&'a String> {
    let near = names.iter().map(|name| (distance(name, task), name)).min();
    // A name with hardly a letter in common was not meant.
    near.filter(|(far, name)| *far <= 1 + name.len() / 4 && far * 2 <= name.len()).map(|(_, name)| name)
}

/// How many letters differ: the distance of Levenshtein (1965), row by row.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, c) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (index, d) in other.iter().enumerate() {
            let changed = before + usize::from(c != *d);
            before = row[index + 1];
            row[index + 1] = changed.min(before + 1).min(row[index] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn similar_words_have_a_small_distance() {
        assert_eq!((distance("export", "export"), distance("export", "exprot"), distance("", "abc")), (0, 2, 3));
        assert_eq!((distance("kitten", "sitting"), distance("mail", "mails")), (3, 1));
    }
}
