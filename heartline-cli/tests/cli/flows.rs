//! Workflows: what the command shows of them, and its actions on them.

use std::time::Duration;

use heartline::{Graph, OnFailure, TaskDef, WorkflowHandle, WorkflowOptions};

use crate::run::{Bench, until};

const EXPORT: TaskDef<String, u64> = TaskDef::new("export");

/// An instance `id` of `nightly`: two jobs with these inputs and one after both, and a graph of one job as a node.
async fn start(bench: &Bench, id: &str, inputs: [&str; 2], on_failure: OnFailure) -> WorkflowHandle<()> {
    let flow = bench.app.workflow::<()>("nightly", WorkflowOptions::new().on_failure(on_failure)).unwrap();
    let (graph, child) = (Graph::new(), Graph::new());
    let parts =
        [("one", inputs[0]), ("other", inputs[1])].map(|(name, what)| graph.node(name, &EXPORT, what.to_owned()));
    graph.node("mail", &EXPORT, "x".to_owned()).after(&parts);
    child.node("inner", &EXPORT, "x".to_owned());
    graph.subgraph("child", child);
    flow.start(graph).id(id).await.unwrap()
}

#[tokio::test]
async fn an_instance_lists_its_nodes_and_why_it_waits() {
    let bench = Bench::new().await;
    let none = bench.run(&["flows", "summary"]).await;
    assert!(none.err.contains("No workflow was started"), "{none:?}");
    start(&bench, "2026-11-21", ["hold", "x"], OnFailure::Finish).await;
    let shown = bench.run(&["flows", "show", "nightly", "2026-11-21"]).await.ok();
    for part in [
        "running, 4 of 4 nodes not ended, 3 open",
        "~nightly/2026-11-21/0/1 (waiting)",
        "its job waits, and no live worker has the task export",
        "it waits for one, other",
        "its graph runs as 2026-11-21/3.1",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = bench.run(&["flows", "show", "nightly", "2026-11-21", "--json"]).await.json();
    assert_eq!((&json["state"], &json["nodes"][2]["needs"]), (&"running".into(), &2.into()), "{json}");
    assert_eq!(json["nodes"][0]["job_state"], "waiting");
    let began = json["begins_at_ms"].as_u64().unwrap();
    assert!(json["as_of_ms"].as_u64().unwrap() - began < 60_000 && json["ended_at_ms"].is_null(), "{json}");
    let child = bench.run(&["flows", "show", "nightly", "2026-11-21/3.1"]).await;
    assert!(child.err.contains("`heartline flows show nightly 2026-11-21` shows its instance"), "{child:?}");
    assert!(child.ok().contains("inner"));
    let summary = bench.run(&["flows", "summary"]).await;
    assert!(!summary.err.contains("no worker has advanced"), "it has just begun: {summary:?}");
    let (mut conn, long_ago) = (bench.redis().await, 1_000);
    let mut late = redis::cmd("ZADD");
    late.arg("cli:{nightly:flow}:outbox").arg(long_ago).arg("o 2026-11-21/1");
    late.query_async::<()>(&mut conn).await.unwrap();
    let summary = bench.run(&["flows", "summary"]).await;
    assert!(summary.err.contains("no worker has advanced the workflow nightly"), "{summary:?}");
    let status = bench.run(&["status"]).await;
    assert!(status.out.contains("no worker has advanced the workflow nightly"), "{status:?}");
    assert_eq!(status.status, 1);
    // A recovery also does the upkeep of the workflow.
    bench.run(&["flows", "recover"]).await.ok();
    let summary = bench.run(&["flows", "summary", "--json"]).await.json();
    let looked = summary[0]["looked_at_ms"].as_u64().unwrap();
    assert!(looked > crate::lost_workers::ms_ago(Duration::from_secs(60)), "{summary}");
    let worker = bench.worker();
    until("a worker did the upkeep", async || {
        let json = bench.run(&["flows", "summary", "--json"]).await.json();
        json[0]["looked_at_ms"].is_number() && json[0]["steps"] == 0
    })
    .await;
    bench.run(&["health"]).await.ok();
    let list = bench.run(&["flows", "list", "nightly"]).await.ok();
    assert!(list.contains("2026-11-21") && !list.contains("/3.1"), "{list}");
    assert!(list.contains("BEGAN") && list.contains("s ago"), "{list}");
    bench.open();
    until("it ended", async || {
        bench.run(&["flows", "show", "nightly", "2026-11-21", "--json"]).await.json()["state"] == "completed"
    })
    .await;
    let ended = bench.run(&["flows", "show", "nightly", "2026-11-21", "--json"]).await.json();
    assert!(ended["ended_at_ms"].as_u64().unwrap() >= ended["begins_at_ms"].as_u64().unwrap(), "{ended}");
    bench.run(&["health"]).await.ok();
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_list_of_several_states_shows_where_it_is_cut() {
    let bench = Bench::new().await;
    for id in ["one", "two"] {
        start(&bench, id, ["x", "x"], OnFailure::Finish).await;
    }
    let some = bench.run(&["flows", "list", "nightly", "--limit", "3"]).await;
    assert!(!some.err.contains("There are more") && some.out.contains("one") && some.out.contains("two"), "{some:?}");
    let cut = bench.run(&["flows", "list", "nightly", "--limit", "1"]).await;
    assert!(cut.err.contains("There are more that are running: --state running"), "{cut:?}");
    let json = bench.run(&["flows", "list", "nightly", "--limit", "1", "--json"]).await.json();
    assert_eq!((&json["more"], &json["next"]), (&serde_json::json!(["running"]), &serde_json::Value::Null), "{json}");
}

#[tokio::test]
async fn an_instance_can_be_paused_resumed_retried_and_cancelled() {
    let bench = Bench::new().await;
    let worker = bench.worker();
    let handle = start(&bench, "one", ["fail", "hold"], OnFailure::Pause).await;
    let state = async || handle.status().await.unwrap();
    until("it is paused", async || state().await.state.as_str() == "paused").await;
    let summary = bench.run(&["flows", "summary"]).await;
    assert!(summary.err.contains("the workflow nightly: 1 instance is paused"), "{summary:?}");
    let busy = bench.run(&["flows", "retry", "nightly", "one"]).await;
    assert_eq!(busy.status, 1);
    bench.open();
    until("nothing is open", async || state().await.open == 0).await;
    let shown = bench.run(&["flows", "show", "nightly", "one"]).await;
    assert!(shown.err.contains("`heartline flows retry nightly one`"), "{shown:?}");
    assert!(shown.err.contains("`heartline jobs show -t export '~nightly/one/0/1'`"), "{shown:?}");
    let shown = shown.ok();
    assert!(shown.contains("broken by  node one") && shown.contains("disk: no space"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(bench.run(&["flows", "resume", "nightly", "one"]).await.ok(), "one of nightly is failed\n");
    let retried = bench.run(&["flows", "retry", "nightly", "one", "--json"]).await.json();
    assert_eq!((&retried["state"], &retried["id"]), (&"running".into(), &"one".into()));
    until("it is paused again", async || state().await.state.as_str() == "paused").await;
    until("nothing is open", async || state().await.open == 0).await;
    let unasked = bench.run(&["flows", "cancel", "nightly", "one"]).await;
    assert_eq!(unasked.status, 2, "{unasked:?}");
    assert_eq!(bench.run(&["flows", "cancel", "nightly", "one", "--yes"]).await.ok(), "one of nightly is cancelled\n");
    let shown = bench.run(&["flows", "show", "nightly", "one"]).await.ok();
    assert!(shown.contains("cancelled: cancelled by ada"), "{shown}");
    let recovered = bench.run(&["flows", "recover", "--json"]).await.json();
    assert_eq!((&recovered[0]["workflow"], &recovered[0]["synthesised"]), (&"nightly".into(), &0.into()));
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_unknown_name_is_reported_with_a_suggestion() {
    let bench = Bench::new().await;
    start(&bench, "one", ["x", "x"], OnFailure::Finish).await;
    let typo = bench.run(&["flows", "show", "nigthly", "one"]).await;
    assert_eq!(typo.status, 2);
    assert!(typo.err.contains("did you mean nightly?"), "{typo:?}");
    for act in ["show", "pause", "resume", "retry"] {
        let gone = bench.run(&["flows", act, "nightly", "two"]).await;
        assert_eq!(
            (gone.status, gone.err.contains("there is no instance two of nightly")),
            (1, true),
            "{act} {gone:?}"
        );
    }
    let empty = bench.run(&["flows", "list", "nightly", "--state", "failed"]).await;
    assert!(empty.err.contains("No instance of nightly is failed"), "{empty:?}");
}

#[tokio::test]
async fn a_pause_by_a_person_and_by_a_failure_are_distinguished() {
    let bench = Bench::new().await;
    let handle = start(&bench, "one", ["x", "x"], OnFailure::Finish).await;
    let words = ["--by", "alice", "flows", "pause", "nightly", "one", "--reason", "S3 is down"];
    bench.run(&words).await.ok();
    let shown = bench.run(&["flows", "show", "nightly", "one"]).await;
    assert!(shown.out.contains("by alice (S3 is down), "), "{shown:?}");
    let json = bench.run(&["flows", "show", "nightly", "one", "--json"]).await.json();
    assert_eq!((&json["pause"]["by"], &json["pause"]["reason"]), (&"alice".into(), &"S3 is down".into()));
    let again = bench.run(&["--by", "bob", "flows", "pause", "nightly", "one"]).await;
    assert!(again.err.contains("It was already paused, by alice (S3 is down), "), "{again:?}");
    // This node fails during the pause, but is not its cause.
    bench.run(&["jobs", "cancel", "-t", "export", "~nightly/one/0/1"]).await.ok();
    bench.run(&["flows", "recover"]).await.ok();
    let shown = bench.run(&["flows", "show", "nightly", "one"]).await;
    assert!(shown.out.contains("broken by") && shown.out.contains("by alice"), "{shown:?}");
    assert!(shown.err.contains("A person paused it: ask before you resume it."), "{shown:?}");
    bench.run(&["flows", "resume", "nightly", "one"]).await.ok();
    let list = bench.run(&["flows", "list", "nightly"]).await.ok();
    let broken = list.lines().find(|line| line.contains("running (broken)"));
    assert!(broken.is_some_and(|line| line.trim_end().ends_with("cancelled")), "{list}");
    let shown = bench.run(&["flows", "show", "nightly", "one"]).await;
    assert!(shown.err.contains("It fails when the nodes that do not depend on the failure have ended"), "{shown:?}");
    let refused = bench.run(&["flows", "retry", "nightly", "one"]).await;
    assert!(refused.status == 1 && refused.err.contains("retry it when it has ended"), "{refused:?}");
    let job = bench.run(&["jobs", "retry", "-t", "export", "~nightly/one/0/1"]).await;
    assert!(job.out.contains("is retried or removed with its instance: `heartline "), "{job:?}");
    assert!(job.out.contains(" flows retry nightly one`"), "{job:?}");
    handle.cancel("enough").await.unwrap();
}

#[tokio::test]
async fn unreadable_workflows_are_reported_next_to_readable_ones() {
    let bench = Bench::new().await;
    start(&bench, "one", ["x", "x"], OnFailure::Finish).await;
    let mut conn = bench.redis().await;
    for (key, told, metric) in [
        (
            "cli:{nightly:flow}:instances",
            "the workflow nightly cannot advance",
            "heartline_workflow_readable{workflow=\"nightly\"} 0",
        ),
        (
            "cli:{nightly:flow}:deadlines",
            "the workflow nightly cannot advance",
            "heartline_workflow_readable{workflow=\"nightly\"} 0",
        ),
        ("cli:workflows", "the list of workflows cannot be read", "heartline_list_readable{list=\"workflows\"} 0"),
    ] {
        let is_there: bool = redis::cmd("EXISTS").arg(key).query_async(&mut conn).await.unwrap();
        let mut damage = redis::pipe();
        if is_there {
            damage.rename(key, "parked");
        }
        let () = damage.set(key, "x").ignore().query_async(&mut conn).await.unwrap();
        let named = format!("{key} is a string and should be a ");
        for command in ["status", "health", "doctor"] {
            let ran = bench.run(&[command]).await;
            assert!(ran.status == 1 && ran.out.contains(told) && ran.out.contains(&named), "{ran:?}");
        }
        let status = bench.run(&["status"]).await;
        assert!(status.out.contains("3 waiting"), "{status:?}");
        assert_eq!(bench.run(&["flows", "summary"]).await.status, 1);
        let metrics = bench.run(&["metrics", "--once"]).await.ok();
        assert!(metrics.contains(metric) && metrics.contains("heartline_up 1"), "{metrics}");
        let mut mend = redis::pipe();
        mend.del(key);
        if is_there {
            mend.rename("parked", key);
        }
        let () = mend.query_async(&mut conn).await.unwrap();
    }
    let metrics = bench.run(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_list_readable{list=\"workflows\"} 1"), "{metrics}");
}

#[tokio::test]
async fn lost_workflow_data_is_reported_with_the_command_to_find_it() {
    let bench = Bench::new().await;
    start(&bench, "one", ["x", "x"], OnFailure::Finish).await;
    let mut conn = bench.redis().await;
    let lists = ["cli:workflows", "cli:{nightly:flow}:running"];
    redis::cmd("DEL").arg(&lists).query_async::<()>(&mut conn).await.unwrap();
    let status = bench.run(&["status"]).await;
    assert!(
        status.status == 1 && status.out.contains("no workflow is listed, and the task export has jobs of some"),
        "{status:?}"
    );
    let metrics = bench.run(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_list_readable{list=\"workflows\"} 0"), "{metrics}");
    for look in [&["flows", "summary"][..], &["flows", "list", "nightly"]] {
        let ran = bench.run(look).await;
        assert!(ran.status == 1 && ran.err.contains("the list is lost"), "{look:?} {ran:?}");
    }
    let typo = bench.run(&["flows", "recover", "nigthly"]).await;
    assert_eq!(typo.status, 2, "{typo:?}");
    let retried = bench.run(&["flows", "retry", "nightly", "one"]).await;
    assert!(retried.status == 1 && retried.err.contains("nothing was done"), "{retried:?}");
    let shown = bench.run(&["flows", "show", "nightly", "one"]).await;
    assert!(shown.err.contains("`heartline flows recover nightly` pauses it"), "{shown:?}");
    // It is listed again, before it is recovered.
    redis::cmd("ZADD").arg(lists[0]).arg(0).arg("nightly").query_async::<()>(&mut conn).await.unwrap();
    let status = bench.run(&["status"]).await;
    assert!(
        status.out.contains("the workflow nightly: the server lost the state of at least 1 instance"),
        "{status:?}"
    );
    let metrics = bench.run(&["metrics", "--once"]).await.ok();
    assert!(metrics.contains("heartline_workflow_unplaced{workflow=\"nightly\"} 1"), "{metrics}");
    redis::cmd("DEL").arg(lists[0]).query_async::<()>(&mut conn).await.unwrap();
    let recovered = bench.run(&["flows", "recover", "nightly"]).await;
    assert!(recovered.err.contains("2 instances of nightly had lost their state"), "{recovered:?}");
    recovered.ok();
    assert!(bench.run(&["flows", "list", "nightly", "-s", "paused"]).await.ok().contains("one"));
    bench.run(&["flows", "resume", "nightly", "one"]).await.ok();
    let worker = bench.worker();
    until("it ended", async || {
        bench.run(&["flows", "show", "nightly", "one", "--json"]).await.json()["state"] == "completed"
    })
    .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn failed_instances_are_retried_by_their_code() {
    let bench = Bench::new().await;
    for id in ["one", "two"] {
        start(&bench, id, ["x", "x"], OnFailure::Cancel).await;
        // The cancel of a node fails its instance.
        bench.run(&["jobs", "cancel", "-t", "export", &format!("~nightly/{id}/0/1")]).await.ok();
    }
    bench.run(&["flows", "recover"]).await.ok();
    let failed = async || bench.run(&["flows", "list", "nightly", "-s", "failed", "--json"]).await.json();
    until("both failed", async || {
        bench.run(&["flows", "recover"]).await.ok();
        failed().await["instances"].as_array().unwrap().len() == 2
    })
    .await;
    let json = failed().await;
    assert_eq!(json["instances"][0]["code"], "cancelled", "{json}");
    let none = bench.run(&["--yes", "flows", "retry-failed", "nightly", "--code", "s3_down"]).await;
    assert!(none.err.contains("0 of 2 failed instances run again."), "{none:?}");
    let all = bench.run(&["--yes", "flows", "retry-failed", "nightly", "--json"]).await.json();
    assert_eq!((&all["retried"], &all["refused"]), (&2.into(), &serde_json::json!([])), "{all}");
    assert_eq!(failed().await["instances"], serde_json::json!([]));
    assert_eq!(bench.run(&["flows", "retry-failed", "nightli"]).await.status, 2);
}
