//! Commands about data that Heartline did not write.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::hostile::{Stranger, declare, dispatch, rounds};
use crate::run::{Bench, Ran, until};

const COMMANDS: [&str; 44] = [
    "status",
    "tasks",
    "task show hurt",
    "workers --all",
    "workers --beats",
    "workers h-1-00000001",
    "flows summary",
    "flows list flow",
    "flows show flow x",
    "stalls suspects -t hurt",
    "stalls late -t hurt",
    "stalls list -t hurt",
    "stalls outlook -t hurt",
    "stalls explain -t hurt held",
    "jobs codes -t hurt",
    "recover silent -t hurt",
    "audit -t hurt",
    "audit -t keyed",
    "repair -t hurt --dry-run",
    "doctor",
    "health",
    "events -t hurt",
    "events -t hurt --job held",
    "schedules list",
    "schedules next",
    "schedules show -t hurt often",
    "schedules load",
    "lanes list keyed",
    "unique show hurt order",
    "lanes show keyed x",
    "jobs list -t hurt --state waiting",
    "jobs list -t hurt --state delayed",
    "jobs list -t hurt --state claimed",
    "jobs list -t hurt --state running",
    "jobs list -t hurt --state finalizing",
    "jobs list -t hurt --state completed",
    "jobs list -t hurt --state failed",
    "jobs list -t hurt --state cancelled",
    "jobs show -t hurt a --values",
    "jobs show -t hurt b --values",
    "jobs show -t hurt held --values",
    "jobs show -t hurt ended --values",
    "jobs show -t hurt later --values",
    "metrics --once",
];

/// Runs a command. It may fail, but says why in one way, and soon.
async fn ends_well(bench: &Bench, words: &[&str], stranger: &Stranger) {
    let mut command = bench.command(words);
    command.stdin(Stdio::null()).env("RUST_BACKTRACE", "0");
    let begun = Instant::now();
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let Ran { status, out, err } = Ran::of(output);
    let what = || {
        format!("{words:?}: {status} {err} {} after {:#?}", out.chars().take(2_000).collect::<String>(), stranger.log)
    };
    assert!((0..=3).contains(&status) && !err.contains("panicked"), "{}", what());
    assert!(!out.contains(['\u{1b}', '\u{7}']) && !err.contains(['\u{1b}', '\u{7}']), "{}", what());
    assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}: {}", begun.elapsed(), what());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_ends_with_a_plain_answer() {
    let bench = Bench::of_one_table().await;
    let tasks = declare(&bench.app);
    let worker = bench.worker();
    dispatch(&bench.app, &tasks).await;
    until("jobs have ended", async || tasks.hurt.counts().await.unwrap().completed >= 4).await;
    let _ = worker.stop().await.unwrap();
    dispatch(&bench.app, &tasks).await;
    let mut stranger = Stranger::new(bench.redis().await, "cli", &[]);
    stranger.leave_held_jobs().await;
    let saved = stranger.dump().await;
    for round in 0..rounds(12) {
        stranger.restore(&saved).await;
        for _ in 0..=round % 3 {
            stranger.overwrite().await;
        }
        for _ in 0..4 {
            let at = stranger.rng().usize(..COMMANDS.len());
            let mut words: Vec<&str> = COMMANDS[at].split(' ').collect();
            if stranger.rng().u8(..) < 100 {
                words.push("--json");
            }
            ends_well(&bench, &words, &stranger).await;
        }
    }
}
