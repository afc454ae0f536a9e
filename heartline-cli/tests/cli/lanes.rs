//! Lanes of keys.

use crate::run::{Bench, until};

#[tokio::test]
async fn lanes_are_listed_with_what_they_wait_for() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    let none = bench.run(&["lanes", "list", "export"]).await.ok();
    assert_eq!(none, "0 keys: 0 in turn, 0 resting, 0 full or paused\n");
    for key in ["acme", "acme", "umbrella"] {
        bench.export.dispatch("x".into()).key(key).await.unwrap();
    }
    let shown = bench.run(&["lanes", "list", "export"]).await.ok();
    assert!(shown.starts_with("2 keys: 2 in turn, 0 resting, 0 full or paused\n"), "{shown}");
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["acme", "ready", "2", "0"])), "{shown}");
    let full = bench.run(&["lanes", "list", "export", "--full", "--json"]).await.json();
    assert_eq!((&full["ready"], &full["lanes"]), (&2.into(), &serde_json::json!([])));
    let worker = bench.worker();
    until("all have ended", async || bench.run(&["lanes", "list", "export", "--json"]).await.json()["ready"] == 0)
        .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_key_gets_limits_and_pauses_of_its_own() {
    let bench = Bench::new().await;
    for _ in 0..2 {
        bench.export.dispatch("x".into()).key("acme").await.unwrap();
    }
    let run = async |args: &[&str]| bench.run(&[&["lanes"], args].concat()).await.ok();
    assert_eq!(
        run(&["set", "export", "acme", "--running", "10", "--rate", "60/1m"]).await,
        "acme has 10 running, 60 in 1m\n"
    );
    // What is not named stays.
    assert_eq!(
        run(&["set", "export", "acme", "--running", "none", "--weight", "3"]).await,
        "acme has 60 in 1m, weight 3\n"
    );
    let told = bench.run(&["metrics", "--once"]).await.ok();
    assert!(told.contains("heartline_lanes{task=\"export\",state=\"ready\"} 1.0\n"), "{told}");
    let task = bench.run(&["task", "show", "export"]).await.ok();
    assert!(task.contains("1 in turn, 0 resting, 0 full or paused"), "{task}");
    assert!(run(&["pause", "export", "acme"]).await.starts_with("acme is paused: "));
    assert_eq!(run(&["pause", "export", "acme"]).await, "acme was already paused\n");
    let own = run(&["list", "export", "--own"]).await;
    assert!(own.starts_with("1 key with settings of their own\n") && own.contains("paused since "), "{own}");
    let shown = run(&["show", "export", "acme"]).await;
    for part in ["acme of export", "acme is paused since ", "60 in 1m, weight 3", "limits, by "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = bench.run(&["lanes", "show", "export", "acme", "--json"]).await.json();
    assert_eq!((&shown["waiting"], &shown["rate"]["window_ms"]), (&2.into(), &60_000.into()));
    assert_eq!(run(&["resume", "export", "acme"]).await, "acme is resumed\n");
    let unknown = run(&["pause", "export", "acmee"]).await;
    assert!(unknown.ends_with(" (no job has this key now)\n"), "{unknown}");
    let first = run(&["list", "export", "--own", "--limit", "1"]).await;
    assert!(first.starts_with("the first 1 key with settings of their own\n"), "{first}");
    run(&["reset", "export", "acmee"]).await;
    assert_eq!(run(&["reset", "export", "acme"]).await, "acme has no settings of its own any more\n");
    assert_eq!(run(&["list", "export", "--own"]).await, "0 keys with settings of their own\n");
    let refused = bench.run(&["lanes", "set", "export", "acme", "--rate", "60"]).await;
    assert!(refused.status == 2 && refused.err.contains("such as 60/1m"), "{refused:?}");
}
