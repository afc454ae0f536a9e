//! Pages of tasks on different nodes of a cluster.

use heartline::{Context, JobError, TaskOptions};

use crate::site::{Answer, Site, until};

async fn act(site: &Site, task: &str) -> Answer {
    site.post("/act", &[("act", "cancel"), ("task", task), ("id", "a"), ("confirmed", "yes")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_all_nodes_although_one_is_unreachable() {
    let mut site = Site::on_cluster().await;
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input) };
    // On the first and the last node; `export` is on the second.
    let others = ["mail", "billing"].map(|task| site.app.task(task, TaskOptions::new(), handler).unwrap());
    site.run(&[("bad", "fail"), ("good", "x")]).await;
    for task in &others {
        task.dispatch("x".to_owned()).id("a").await.unwrap();
    }
    until("all are listed", async || site.page("/").await.contains("/task?task=billing")).await;
    let overview = site.page("/").await;
    assert!(
        ["export", "mail", "billing"].iter().all(|task| overview.contains(&format!("/task?task={task}"))),
        "{overview}"
    );
    for path in [
        "/task?task=export",
        "/jobs?task=export&state=failed",
        "/workers?all=yes",
        "/schedules",
        "/stalls",
        "/running",
        "/acts?task=export",
        "/audit",
        "/audit?task=mail",
    ] {
        site.page(path).await;
    }
    assert!(site.page("/job?task=export&id=bad").await.contains("task:failed"));
    assert!(act(&site, "mail").await.body.contains("1 cancelled"));
    let places: Vec<String> = site.nodes()[..3].iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let page = site.page("/server").await;
    assert!(places.iter().all(|place| page.contains(&format!("<h2>{place}</h2>"))), "{page}");
    // The node of `mail`, of the list of tasks and of that of workers, and its replica.
    for node in [3, 0] {
        site.nodes()[node].freeze().unwrap();
    }
    let away =
        ["tasks", "workers"].map(|list| format!("the node with the list of {list} ({}) does not answer", places[0]));
    until("the lists are reported as missing", async || {
        let overview = site.page("/").await;
        away.iter().all(|told| overview.contains(&told[1..]))
    })
    .await;
    let overview = site.page("/").await;
    assert!(!overview.contains("o task under this prefix"), "{overview}");
    assert!(site.page("/job?task=export&id=bad").await.contains("task:failed"));
    site.page("/task?task=export").await;
    site.page("/server").await;
    let stalls = site.page("/stalls").await;
    assert!(
        stalls.contains("The recent stalls of all tasks (their list is unreachable) cannot be read now.")
            && !stalls.contains("There are no stalls."),
        "{stalls}"
    );
    let schedules = site.page("/schedules").await;
    assert!(
        schedules.contains("The schedules of all tasks (their list is unreachable) cannot be read now."),
        "{schedules}"
    );
    assert!(site.page("/audit").await.contains("the tasks are unknown"));
    let workers = site.page("/workers").await;
    assert!(workers.contains(&away[1]) && !workers.contains("There are no workers."), "{workers}");
    site.nodes()[0].thaw().unwrap();
    until("it is back", async || site.page("/").await.contains("/task?task=mail")).await;
    // The node of `export`, and its replica.
    for node in [4, 1] {
        site.nodes()[node].kill();
    }
    until("it is reported as missing", async || {
        site.get("/").await.body.contains(&format!("{}: the server does not answer", places[1]))
    })
    .await;
    let overview = site.page("/").await;
    assert!(
        overview.contains("Nodes of the cluster do not answer: 1 task: <a href=\"/task?task=export\">export</a>"),
        "{overview}"
    );
    // Its data is not damaged, and no page may claim so.
    assert!(!overview.contains("foreign"), "{overview}");
    assert!(act(&site, "billing").await.body.contains("1 cancelled"));
}
