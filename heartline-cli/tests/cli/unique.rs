//! Unique keys.

use heartline::Unique;

use crate::run::Bench;

#[tokio::test]
async fn a_unique_key_is_shown_with_its_job() {
    let bench = Bench::new().await;
    let job = bench.export.dispatch("x".into()).unique(Unique::by("order-7")).await.unwrap();
    let shown = bench.run(&["unique", "show", "export", "order-7"]).await.ok();
    let line = format!("job          {} (waiting)", job.id());
    for part in ["key          order-7 of export", "taken        yes", &line] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let entry = bench.run(&["unique", "show", "export", "order-7", "--json"]).await.json();
    assert_eq!((&entry["job"], &entry["mode"]), (&job.id().as_str().into(), &"done".into()));
    let shown = bench.run(&["jobs", "show", "-t", "export", job.id().as_str()]).await.ok();
    assert!(shown.contains("unique key") && shown.contains("order-7"), "{shown}");
    let ran = bench.run(&["unique", "show", "export", "order-8"]).await;
    assert_eq!((ran.status, &*ran.err), (1, "error: no job of export has the unique key order-8\n"));
}

#[tokio::test]
async fn a_job_whose_key_is_taken_is_retried_only_anyway() {
    let bench = Bench::new().await;
    bench.declared().await;
    let first = bench.export.dispatch("x".into()).unique(Unique::by("order-7")).await.unwrap();
    first.cancel("no more").await.unwrap();
    let second = bench.export.dispatch("x".into()).unique(Unique::by("order-7")).await.unwrap();
    let retry = ["jobs", "retry", "-t", "export", first.id().as_str()];
    let ran = bench.run(&retry).await;
    let line = format!("{}: another job has its unique key: {}", first.id(), second.id());
    assert!(ran.status == 1 && ran.out.contains(&line) && ran.err.contains("--anyway"), "{ran:?}");
    let ran = bench.run(&[&retry[..], &["--anyway"]].concat()).await;
    assert!(ran.ok().contains("1 run again"));
}
