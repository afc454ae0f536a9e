//! Lanes of keys.

use crate::run::{Bench, until};

#[tokio::test]
async fn lanes_are_listed_with_what_they_wait_for() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    let none = bench.run(&["lanes", "list", "export"]).await.ok();
    assert_eq!(none, "0 keys: 0 in turn, 0 resting, 0 full\n");
    for key in ["acme", "acme", "umbrella"] {
        bench.export.dispatch("x".into()).key(key).await.unwrap();
    }
    let shown = bench.run(&["lanes", "list", "export"]).await.ok();
    assert!(shown.starts_with("2 keys: 2 in turn, 0 resting, 0 full\n"), "{shown}");
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["acme", "ready", "2", "0"])), "{shown}");
    let full = bench.run(&["lanes", "list", "export", "--full", "--json"]).await.json();
    assert_eq!((&full["ready"], &full["lanes"]), (&2.into(), &serde_json::json!([])));
    let worker = bench.worker();
    until("all have ended", async || bench.run(&["lanes", "list", "export", "--json"]).await.json()["ready"] == 0)
        .await;
    let _ = worker.stop().await.unwrap();
}
