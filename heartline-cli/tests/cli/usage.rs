//! Help, wrong use, and missing servers.

use crate::run::{Bench, alone};

#[test]
fn every_command_has_help_with_examples() {
    let top = alone(&["--help"]).ok();
    for command in [
        "status",
        "tasks",
        "task",
        "jobs",
        "workers",
        "schedules",
        "stalls",
        "recover",
        "audit",
        "repair",
        "events",
        "health",
        "doctor",
    ] {
        assert!(top.contains(&format!("\n  {command} ")), "{command}: {top}");
        let help = alone(&[command, "--help"]).ok();
        assert!(help.contains("Usage: heartline") && help.contains("--json"), "{command}: {help}");
    }
    assert!(top.contains("Exit status: 0 on success, 1 on failure, 2 on wrong usage."));
    assert_eq!(alone(&["--version"]).ok(), format!("heartline {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_use_shows_a_hint_and_exits_with_status_2() {
    for (args, told) in [
        (&["job"][..], "similar subcommand exists: 'jobs'"),
        (&["jobs", "lst", "-t", "export"], "'list'"),
        (&["jobs", "list"], "--task <TASK>"),
        (&["jobs", "list", "-t", "export", "--state", "done"], "use one of waiting, delayed"),
        (&["jobs", "list", "-t", "export", "--state", "failed", "--older", "soon"], "--older"),
        (&["jobs", "retry", "-t", "export"], "ID"),
        (&["jobs", "retry", "-t", "export", "a", "--state", "failed", "--code", "x"], "cannot be used with"),
        (&["recover", "running", "-t", "export"], "<ID>..."),
        (&["schedules", "next", "--count", "0"], "1..=1000"),
        (&["schedules", "backfill", "-t", "export", "nightly", "--from", "soon", "--to", "2026-11-02"], "--from"),
        (&["--redis", "localhost:6379", "status"], "add redis:// in front (the address is that of --redis)"),
        (&["--redis", "redis://localhost:x", "status"], "(the address is that of --redis)"),
        (&["--prefix", "a b", "status"], "prefix"),
    ] {
        let ran = alone(args);
        assert_eq!(ran.status, 2, "{args:?}: {ran:?}");
        assert!(ran.err.contains(told), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_missing_server_is_one_line_and_exit_status_1() {
    let ran = alone(&["--redis", "redis://127.0.0.1:1", "tasks"]);
    assert_eq!((ran.status, ran.err.lines().count()), (1, 1), "{ran:?}");
    assert!(ran.err.starts_with("error: cannot reach redis at redis://127.0.0.1:1/0: "), "{}", ran.err);
    assert!(ran.err.ends_with("(the address is that of --redis)\n"), "{}", ran.err);
}

#[test]
fn a_password_in_the_arguments_is_warned_about_and_not_shown() {
    let ran = alone(&["--redis", "redis://:hunter2@127.0.0.1:1", "tasks"]);
    assert!(ran.err.starts_with("warning: other users of this machine can read the password"), "{}", ran.err);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}

#[test]
fn completions_and_man_pages_need_no_server() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(alone(&["completions", shell]).ok().contains("run-now"), "{shell}");
    }
    let dir = std::env::temp_dir().join(format!("heartline-man-{}", std::process::id()));
    alone(&["man", dir.to_str().unwrap()]).ok();
    let page = std::fs::read_to_string(dir.join("heartline-jobs-list.1")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(page.contains("Only jobs whose last failure has this code"), "{page}");
}

#[tokio::test]
async fn an_unknown_task_suggests_a_similar_one() {
    let bench = Bench::new().await;
    let ran = bench.run(&["jobs", "list", "-t", "export", "--state", "failed"]).await;
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("there is no task export, and no other under this prefix"), "{}", ran.err);
    bench.export.dispatch("x".into()).await.unwrap();
    let ran = bench.run(&["jobs", "list", "-t", "exprt", "--state", "failed"]).await;
    assert_eq!((ran.status, &*ran.err), (2, "error: there is no task exprt; did you mean export?\n"));
}

#[tokio::test]
async fn a_failure_has_its_exit_status_even_with_a_closed_output() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let _ = bench.export.dispatch("fail".into()).id("a").await.unwrap().result().await;
    let _ = worker.stop().await.unwrap();
    let mut command = bench.command(&["jobs", "wait", "-t", "export", "a"]);
    // A pipe without a reader.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = tokio::task::spawn_blocking(move || command.stdout(writer).status().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(1));
}

#[tokio::test]
async fn output_that_is_not_read_to_its_end_is_not_a_failure() {
    let bench = Bench::new().await;
    bench.export.dispatch_many((0..1000).map(|_| "x".to_owned())).await.unwrap();
    let mut child = bench.start(&["jobs", "list", "-t", "export", "--state", "waiting", "--limit", "1000"]);
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
