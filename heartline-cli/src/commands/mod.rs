//! The commands, one file a noun.

mod acts;
mod audit;
mod board;
mod doctor;
mod events;
mod health;
mod jobs;
mod metrics;
mod pages;
mod recover;
mod stalls;
mod tasks;
#[cfg(unix)]
mod work;
mod workers;

use std::time::SystemTime;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::session::Session;
use heartline_board::text::relative;

/// Does what was asked for.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Completions { shell } => return pages::completions(shell),
        Command::Man { directory } => return pages::man(&directory),
        #[cfg(unix)]
        Command::Exec { parent, argv } => return Err(work::become_program(parent, &argv)),
        #[cfg(unix)]
        Command::Work(work) => return work::work(&args.global, work).await,
        _ => {}
    }
    let lasts = matches!(args.command, Command::Metrics { once: false, .. } | Command::Board(_));
    let session = Session::open(&args.global, lasts).await?;
    match args.command {
        Command::Status => health::status(&session).await,
        Command::Health => health::health(&session).await,
        Command::Doctor => doctor::doctor(&session).await,
        Command::Metrics { once: true, .. } => metrics::once(&session).await,
        Command::Board(asked) => board::board(&session, asked).await,
        Command::Metrics { serving, .. } => metrics::export(&session, serving).await,
        Command::Tasks => tasks::list(&session).await,
        Command::Task(command) => tasks::run(&session, command).await,
        Command::Jobs(command) => jobs::run(&session, command).await,
        Command::Workers { worker: Some(worker), .. } => workers::show(&session, &worker).await,
        Command::Workers { worker: None, all } => workers::list(&session, all).await,
        Command::Stalls(command) => stalls::run(&session, command).await,
        Command::Recover(command) => recover::run(&session, command).await,
        Command::Audit { task } => audit::audit(&session, task).await,
        Command::Repair { task, dry_run } => audit::repair(&session, &task, dry_run).await,
        Command::Events { task, job: Some(job), .. } => events::of_job(&session, &task, &job).await,
        Command::Events { task, job: None, follow } => events::of_task(&session, &task, follow).await,
        Command::Completions { .. } | Command::Man { .. } => Ok(()),
        #[cfg(unix)]
        Command::Exec { .. } | Command::Work(_) => Ok(()),
    }
}

/// A time in a table, `-` where it is not known.
fn when(at: Option<SystemTime>, now: SystemTime) -> String {
    at.map_or_else(|| "-".to_owned(), |at| relative(at, now))
}

/// A task of which nothing is known is most likely a typo: what was meant, if that can be guessed.
async fn known_task(session: &Session, task: &str) -> Result<(), Failure> {
    let names = session.inspector.task_names().await?;
    if names.iter().any(|name| name == task) {
        return Ok(());
    }
    // The list of tasks may have been lost alone.
    let report = session.inspector.task(task).await?;
    if report.dispatched > 0 || report.options.declared_by.is_some() {
        return Ok(());
    }
    Err(Failure::wrong(match (near(&names, task), names.is_empty()) {
        (Some(near), _) => format!("there is no task {task}; did you mean {near}?"),
        (None, true) => format!("there is no task {task}, nor any other under this prefix: see --prefix and --redis"),
        (None, false) => format!("there is no task {task}; `heartline tasks` lists those that there are"),
    }))
}

/// The task that may have been meant by one that is not there.
async fn near_task(session: &Session, task: &str) -> Result<Option<String>, Failure> {
    let names = session.inspector.task_names().await?;
    Ok(if names.iter().any(|name| name == task) { None } else { near(&names, task).cloned() })
}

fn near<'a>(names: &'a [String], task: &str) -> Option<&'a String> {
    let near = names.iter().map(|name| (distance(name, task), name)).min();
    near.filter(|(far, name)| *far <= 1 + name.len() / 4).map(|(_, name)| name)
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
    fn words_that_are_near_have_a_small_distance() {
        assert_eq!((distance("export", "export"), distance("export", "exprot"), distance("", "abc")), (0, 2, 3));
        assert_eq!((distance("kitten", "sitting"), distance("mail", "mails")), (3, 1));
    }
}
