//! The search for a name or an id.

use crate::run::Bench;
use crate::schedules::is_listed;

#[tokio::test]
async fn an_id_is_found_with_the_command_that_shows_it() {
    let bench = Bench::new().await;
    is_listed(&bench).await;
    let found = bench.run(&["find", "first"]).await.ok();
    assert!(
        found.contains("job") && found.contains("waiting") && found.contains("jobs show -t export first`"),
        "{found}"
    );
    let json = bench.run(&["find", "first", "--json"]).await.json();
    assert_eq!((&json["matches"][0]["task"], &json["is_exact"]), (&"export".into(), &true.into()));
    let part = bench.run(&["find", "xpo"]).await;
    assert!(part.out.contains("task show export`") && part.err.contains("these names contain it"), "{part:?}");
    let none = bench.run(&["find", "unknown-7"]).await;
    assert_eq!((none.status, &*none.err), (1, "error: nothing has the name or the id unknown-7\n"));
}
