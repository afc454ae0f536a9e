//! Pages of workflows: all of them, the instances of one, and an instance with its graph and its actions.

use heartline::{Graph, TaskDef, WorkflowOptions};

use crate::site::{Site, hidden, until};

const EXPORT: TaskDef<String, u64> = TaskDef::new("export");

/// An instance with the worst possible names.
async fn start(site: &Site, id: &str, last: &str) {
    let flow = site.app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
    let (graph, child) = (Graph::new(), Graph::new());
    let first = graph.node("\"><script>", &EXPORT, "x".to_owned());
    graph.node("last", &EXPORT, last.to_owned()).after(&first);
    child.node("inner", &EXPORT, "x".to_owned());
    graph.subgraph("child", child);
    flow.start(graph).id(id).await.unwrap();
}

#[tokio::test]
async fn links_lead_from_the_workflows_to_a_waiting_node() {
    let site = Site::new().await;
    assert!(site.page("/flows").await.contains("No workflow was started."));
    start(&site, "a&b=c", "x").await;
    let (mut conn, long_ago) = (site.raw().await, 1_000);
    let mut late = redis::cmd("ZADD");
    late.arg("board:{nightly:flow}:outbox").arg(long_ago).arg("o a&b=c/1");
    late.query_async::<()>(&mut conn).await.unwrap();
    let all = site.page("/flows").await;
    for part in [
        "href=\"/flow?workflow=nightly&amp;state=running\">2</a>",
        "No worker has advanced the workflow nightly",
        "href=\"/task?task=export\"",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(site.page("/").await.contains("No worker has advanced the workflow nightly"));
    let list = site.page("/flow?workflow=nightly").await;
    let link = "href=\"/instance?workflow=nightly&amp;id=a%26b%3Dc\"";
    assert!(list.contains(link) && !list.contains("/2.1"), "{list}");
    let instance = site.page("/instance?workflow=nightly&id=a%26b%3Dc").await;
    for part in [
        "3 of 3 nodes, 2 open",
        "its job waits, and no live worker has the task export",
        "it waits for &#34;&#62;&#60;script&#62;",
        "href=\"/job?task=export&amp;id=~nightly%2Fa%26b%3Dc%2F0%2F1\"",
        "href=\"/instance?workflow=nightly&amp;id=a%26b%3Dc%2F2.1\"",
        "<div class=\"graph\"",
        "value=\"flow_pause\"",
    ] {
        assert!(instance.contains(part), "{part}: {instance}");
    }
    assert!(!instance.contains("\"><script>") && instance.matches("<title>").count() == 4, "{instance}");
    let at = "/instance?workflow=nightly&id=a%26b%3Dc&zoom=";
    assert!(instance.contains("viewBox=\"0 0 376 128\" width=\"376\""), "{instance}");
    assert!(site.page(&format!("{at}large")).await.contains("viewBox=\"0 0 376 128\" width=\"752\""));
    assert!(site.page(&format!("{at}fit")).await.contains("<div class=\"graph fit\""));
    let child = site.page("/instance?workflow=nightly&id=a%26b%3Dc%2F2.1").await;
    assert!(
        child.contains("a subgraph of <a href=\"/instance?workflow=nightly&amp;id=a%26b%3Dc\"")
            && !child.contains("name=\"act\"")
    );
    let job = site.page("/job?task=export&id=%7Enightly%2Fa%26b%3Dc%2F0%2F1").await;
    assert!(job.contains("<dt>state</dt><dd>waiting</dd>"), "{job}");
    for (path, status) in [
        ("/instance?workflow=nightly&id=nobody", 404),
        ("/flow?workflow=nightli", 404),
        ("/flow?workflow=nightly&state=cancelled", 200),
        ("/instance?workflow=a%20b&id=x", 400),
        ("/flow?workflow=nightly&state=done", 400),
        ("/flow?workflow=nightly&cursor=x", 400),
    ] {
        let answer = site.get(path).await;
        assert_eq!((answer.status, answer.body.contains("<h1>")), (status, true), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn an_instance_can_be_paused_resumed_cancelled_and_retried() {
    let site = Site::new().await;
    start(&site, "one", "fail").await;
    let act = async |act: &str| site.post("/act", &[("act", act), ("workflow", "nightly"), ("id", "one")]).await;
    let page = async || site.page("/instance?workflow=nightly&id=one").await;
    assert!(act("flow_pause").await.body.contains("It is paused."));
    assert!(page().await.contains("value=\"flow_resume\""));
    assert!(act("flow_resume").await.body.contains("It is running."));
    let asked = act("flow_cancel").await;
    assert!(asked.body.contains("one of nightly. Nodes that are not open never run"), "{asked:?}");
    assert_eq!(hidden(&asked.body, "workflow"), "nightly");
    let done = site
        .post("/act", &[("act", "flow_cancel"), ("workflow", "nightly"), ("id", "one"), ("confirmed", "yes")])
        .await;
    assert!(done.body.contains("It is cancelled."), "{done:?}");
    let cancelled = page().await;
    assert!(cancelled.contains("cancelled by board"), "{cancelled}");
    assert!(act("flow_retry").await.body.contains("It is running."));
    let worker = site.app.worker().spawn();
    until("it failed", async || page().await.contains("<dt>State</dt><dd>failed</dd>")).await;
    let failed = page().await;
    assert!(
        failed.contains("last: &#60;img src=x onerror=alert(1)&#62;") && failed.contains("<dt>Run</dt><dd>2</dd>"),
        "{failed}"
    );
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_text_the_link_and_the_command_name_the_same_node() {
    let site = Site::new().await;
    let flow = site.app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
    let graph = Graph::new();
    // The node that fails first is not the first of the graph.
    let cleans = graph.node("cleans", &EXPORT, "fail".to_owned());
    let _ = cleans.after(&graph.node("breaks", &EXPORT, "fail".to_owned())).always();
    flow.start(graph).id("one").await.unwrap();
    let worker = site.worker();
    let page = async || site.page("/instance?workflow=nightly&id=one").await;
    until("it failed", async || page().await.contains("<dt>State</dt><dd>failed</dd>")).await;
    let failed = page().await;
    for part in [
        "<p>breaks: &#60;img",
        "href=\"/job?task=export&#38;id=~nightly%2Fone%2F1%2F1\">Failed job</a>",
        "jobs show -t export &#39;~nightly/one/1/1&#39;",
    ] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    let job = site.page("/job?task=export&id=~nightly%2Fone%2F1%2F1").await;
    let link = "a node of <a href=\"/instance?workflow=nightly&#38;id=one\">one</a> of nightly";
    assert!(job.contains(link), "{job}");
    assert!(!job.contains("value=\"retry\"") && !job.contains("value=\"remove\""), "{job}");
    let list = site.page("/flow?workflow=nightly&state=failed").await;
    assert!(list.contains("<span class=\"code\">disk</span>") && list.contains("title=\"&#60;img"), "{list}");
    assert!(!site.page("/flow?workflow=nightly").await.contains("<th scope=\"col\">Message</th>"));
    let overview = site.page("/").await;
    assert!(overview.contains("an instance failed "), "{overview}");
    assert!(overview.contains("href=\"/flow?workflow=nightly&#38;state=failed\">Failed instances</a>"), "{overview}");
    assert!(!failed.contains("jobs show -t export &#39;~nightly/one/0/1"), "{failed}");
    let _ = worker.stop().await.unwrap();
    let retried = site.post("/act", &[("act", "flow_retry"), ("workflow", "nightly"), ("id", "one")]).await.body;
    assert!(retried.contains("It is running."), "{retried}");
    let overview = site.page("/").await;
    assert!(!overview.contains("an instance failed "), "{overview}");
}

#[tokio::test]
async fn a_subgraph_that_could_not_start_has_no_link() {
    let site = Site::new().await;
    let flow = site.app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
    let (graph, child) = (Graph::new(), Graph::new());
    child.node("inner", &EXPORT, "x".to_owned());
    let _ = graph.subgraph("child", child).after(&graph.node("first", &EXPORT, "x".to_owned()));
    flow.start(graph).id("one").await.unwrap();
    let () = redis::cmd("HSET")
        .arg("board:{nightly:flow}:input")
        .arg(&["one/0", "no graph"])
        .query_async(&mut site.raw().await)
        .await
        .unwrap();
    let worker = site.worker();
    let page = async || site.page("/instance?workflow=nightly&id=one").await;
    until("it failed", async || page().await.contains("<dt>State</dt><dd>failed</dd>")).await;
    let failed = page().await;
    assert!(failed.contains("child: the graph cannot be read (corrupt)"), "{failed}");
    assert!(!failed.contains("one%2F0.1") && !failed.contains("Failed subgraph"), "{failed}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn failed_instances_are_retried_together_or_those_that_are_selected() {
    let site = Site::new().await;
    let flow = site.app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
    for id in ["one", "two", "three"] {
        let graph = Graph::new();
        graph.node("breaks", &EXPORT, "fail".to_owned());
        flow.start(graph).id(id).await.unwrap();
    }
    let worker = site.worker();
    let list = async |state: &str| site.page(&format!("/flow?workflow=nightly&state={state}")).await;
    until("all failed", async || list("failed").await.matches("name=\"pick\"").count() == 3).await;
    let _ = worker.stop().await.unwrap();
    let of_flow = [("act", "flow_retry_failed"), ("workflow", "nightly")];
    let with = |more: &[(&'static str, &'static str)]| [&of_flow, more].concat();
    let none = site.post("/act", &with(&[("selected", "yes")])).await.body;
    assert!(none.contains("Select at least one instance. Nothing was done."), "{none}");
    let asked = site.post("/act", &with(&[("selected", "yes"), ("pick", "two")])).await.body;
    assert!(asked.contains("1 instance of nightly. Nodes that did not complete run again."), "{asked}");
    let done = site.post("/act", &with(&[("pick", "two"), ("confirmed", "yes")])).await.body;
    assert!(done.contains("Run again: 1 of 1 failed instance, 0 refused"), "{done}");
    let late = site.post("/act", &with(&[("pick", "two"), ("confirmed", "yes")])).await.body;
    assert!(
        late.contains("Run again: 0 of 1 failed instance, 1 refused") && late.contains("two: it is running"),
        "{late}"
    );
    let asked = site.post("/act", &of_flow).await.body;
    assert!(asked.contains("All failed instances of nightly."), "{asked}");
    let as_of = hidden(&asked, "as_of");
    let done = site.post("/act", &[&of_flow[..], &[("as_of", as_of), ("confirmed", "yes")]].concat()).await.body;
    assert!(done.contains("Run again: 2 of 2 failed instances, 0 refused"), "{done}");
    assert!(!list("failed").await.contains("Retry all failed"));
    assert_eq!(list("running").await.matches("/instance?workflow=nightly").count(), 3);
}
