//! Workflows: from the list to a graph, and actions on an instance.

use std::path::PathBuf;
use std::rc::Rc;

use heartline::{Graph, Node, OnFailure, TaskDef, WorkflowOptions};
use heartline_board::BoardOptions;

use crate::browser::{Scratch, until};
use crate::looks::assert_fits_a_phone;
use crate::site::{Site, encoded};
use crate::world::World;

const EXPORT: TaskDef<String, u64> = TaskDef::new("export");

/// An instance whose graph has every kind of node; one of its jobs fails, one holds.
pub async fn start(site: &Site, id: &str) {
    let options = WorkflowOptions::new().on_failure(OnFailure::Pause);
    let flow = site.app.workflow::<()>("nightly", options).unwrap();
    let (graph, mail) = (Graph::new(), Graph::new());
    let job = |name: &str, what: &str| graph.node(name, &EXPORT, what.to_owned());
    let fetch = job("fetch", "x");
    let shops: Vec<Node<u64>> = [("north", "x"), ("south", "fail"), ("harbour", "hold"), ("airport", "x")]
        .map(|(name, what)| job(name, what).after(&fetch))
        .into();
    let total = job("total", "x").after(&shops).at_least(3);
    mail.node("write", &EXPORT, "x".to_owned());
    graph.subgraph("mail", mail).after(&total);
    job("clean-up", "x").after(&shops).always();
    flow.start(graph).id(id).await.unwrap();
}

pub async fn a_graph_is_shown_updates_itself_and_offers_actions(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    start(&site, "2026-11-21").await;
    browser.open(&site.origin).await;
    browser.click_text("nav a", "Workflows").await;
    browser.until_heading("Workflows").await;
    browser.click_text("main a.row", "nightly").await;
    browser.until_heading("nightly").await;
    browser.click_text("main a.row", "2026-11-21").await;
    browser.until_heading("2026-11-21").await;
    browser.until_text("no live worker has the task export").await;
    assert_eq!(browser.count(".graph .node").await, 8);
    browser.eval("window.mark = 'the same page'").await;
    let worker = site.app.worker().spawn();
    // One job failed, so the instance is paused; another job holds.
    browser.until_text("south: no space left on device (disk)").await;
    assert_eq!(browser.eval("return window.mark").await, "the same page", "it was reloaded");
    until("the failed node is drawn as failed", async || browser.count(".graph .node.failed").await == 1).await;
    for (verb, text) in [("Resume", "It is running."), ("Cancel …", "2026-11-21 of nightly.")] {
        browser.click_text("main form button", verb).await;
        browser.until_text(text).await;
        if verb == "Resume" {
            browser.click_text("main a", "Back").await;
            browser.until_heading("2026-11-21").await;
        }
    }
    browser.click_text("main form button", "Yes, cancel").await;
    browser.until_text("It is ").await;
    site.open(10);
    browser.click_text("main a", "Back").await;
    browser
        .until_text("cancelled by board; before that its node south failed (disk): no space left on device (cancelled)")
        .await;
    browser.click_text("main form button", "Retry incomplete nodes").await;
    browser.until_text("It is running.").await;
    browser.click_text("main a", "Back").await;
    // From a node to its job.
    until("its job is linked", async || browser.count("main a.row[href*=\"/job?\"]").await > 0).await;
    browser.click("main a.row[href*=\"/job?\"]").await;
    browser.until_text("Events").await;
    let _ = worker.stop().await.unwrap();
}

pub async fn a_graph_fits_a_phone_and_gets_a_picture(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::with(BoardOptions::behind_own_auth().name("demo")).await);
    start(&site, "2026-11-21").await;
    start(&site, &"i".repeat(64)).await;
    let worker = site.app.worker().spawn();
    let page = site.at("/instance?workflow=nightly&id=2026-11-21");
    browser.open(&page).await;
    browser.until_text("south: no space left on device (disk)").await;
    until("three have completed", async || browser.count(".graph .node.completed").await == 3).await;
    // At its own size: it scrolls, and is never shrunk.
    let drawn = "const g = document.querySelector('.graph > svg'); return [g.clientWidth, g.clientHeight].join(' ')";
    let own = "const b = document.querySelector('.graph > svg').viewBox.baseVal; return [b.width, b.height].join(' ')";
    assert_eq!(browser.eval(drawn).await, browser.eval(own).await);
    let scratch = Scratch::new("pictures");
    let kept = std::env::var_os("HEARTLINE_SCREENSHOTS").map(PathBuf::from);
    let dir = kept.unwrap_or_else(|| scratch.0.clone());
    std::fs::create_dir_all(&dir).unwrap();
    for mode in ["light", "dark"] {
        browser.dark(mode == "dark").await;
        let picture = browser.driver.screenshot_as_png().await.unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 5_000, "{mode}: {} bytes", picture.len());
        std::fs::write(dir.join(format!("board-workflow-{mode}.png")), picture).unwrap();
    }
    browser.dark(false).await;
    browser.size(390, 800).await;
    let long = encoded(&"i".repeat(64));
    for path in [
        "/flows".to_owned(),
        "/flow?workflow=nightly&state=paused".to_owned(),
        format!("/instance?workflow=nightly&id={long}"),
        format!("/instance?workflow=nightly&id={}", "n".repeat(64)),
    ] {
        browser.open(&site.at(&path)).await;
        assert_fits_a_phone(browser, &path).await;
    }
    site.open(10);
    let _ = worker.stop().await.unwrap();
}

pub async fn failed_instances_are_selected_and_retried(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let flow = site.app.workflow::<()>("nightly", WorkflowOptions::new()).unwrap();
    for id in ["one", "two"] {
        let graph = Graph::new();
        graph.node("south", &EXPORT, "fail".to_owned());
        flow.start(graph).id(id).await.unwrap();
    }
    let worker = site.app.worker().spawn();
    let failed = site.at("/flow?workflow=nightly&state=failed");
    until("both failed", async || {
        browser.open(&failed).await;
        browser.count("input[name=pick]").await == 2
    })
    .await;
    let _ = worker.stop().await.unwrap();
    browser.until_text("no space left on device").await;
    browser.click("input[value=one]").await;
    browser.click_text(".bulk button", "Retry …").await;
    browser.until_text("1 instance of nightly.").await;
    browser.click_text("main form button", "Yes, retry").await;
    browser.until_text("Run again: 1 of 1 failed instance").await;
    browser.click_text("main a", "Back").await;
    browser.click_text("main form button", "Retry all failed …").await;
    browser.until_text("All failed instances of nightly.").await;
    browser.click_text("main form button", "Yes, retry all failed").await;
    browser.until_text("Run again: 1 of 1 failed instance").await;
}
