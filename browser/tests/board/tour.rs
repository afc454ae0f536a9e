//! Every page of a board on which there is something to see: the rules of axe-core, and pictures.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use heartline::{App, Context, JobError, JobState, Limit, RunningWorker, TaskOptions, TaskRef};
use heartline_board::BoardOptions;
use serde_json::{Value, json};

use crate::browser::{Browser, until};
use crate::site::{Site, encoded};
use crate::world::World;
use crate::{flows, schedules};

/// What is wrong with a page, by the rules of axe-core that matter to users.
const RULES: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(found => {
        const bad = found.violations.filter(rule => ['serious', 'critical'].includes(rule.impact));
        done(bad.map(rule => `${rule.id}: ${rule.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | ')}`));
    });";

/// A task whose jobs have keys, each of which runs one job at a time.
fn crawl(app: &App) -> TaskRef<Value, ()> {
    let handler = |ctx: Context, _: Value| async move {
        ctx.cancelled().await;
        Err::<(), _>(JobError::new("it was cancelled"))
    };
    app.task("crawl", TaskOptions::new().key("/site").per_key(Limit::new().running(1)), handler).unwrap()
}

/// A site with jobs of all states, a killed worker, a workflow, schedules and keys, and the address of each page.
async fn populated() -> (Site, RunningWorker, Vec<(&'static str, String)>) {
    let site = Site::with(BoardOptions::behind_own_auth().name("staging")).await;
    let _ = site.export.dispatch("hold".into()).id("export-held").await.unwrap();
    let mut process = site.worker();
    let killed = site.holder(&process, 1).await;
    process.kill();
    site.run(&[("export-41", "fail"), ("export-42", "x")]).await;
    let crawl = crawl(&site.app);
    flows::start(&site, "2026-11-30").await;
    schedules::put(&site, "nightly").await;
    for url in ["/", "/prices", "/news"] {
        let _ = crawl.dispatch(json!({ "site": "shop.example", "page": url })).await.unwrap();
    }
    let _ = site.export.dispatch("x".into()).id("export-later").delay(Duration::from_secs(3600)).await.unwrap();
    let worker = site.app.worker().spawn();
    until("a job of the workflow failed", async || {
        let counts = site.export.counts().await.unwrap();
        counts.count(JobState::Failed) >= 2
    })
    .await;
    let pages = [
        ("overview", "/".to_owned()),
        ("task", "/task?task=export".to_owned()),
        ("jobs", "/jobs?task=export&state=failed".to_owned()),
        ("job", "/job?task=export&id=export-41&values=yes".to_owned()),
        ("dispatch", "/dispatch?task=export&id=export-41".to_owned()),
        ("lanes", "/lanes?task=crawl".to_owned()),
        ("lane", "/lane?task=crawl&key=shop.example".to_owned()),
        ("workflows", "/flows".to_owned()),
        ("workflow", "/flow?workflow=nightly".to_owned()),
        ("instance", "/instance?workflow=nightly&id=2026-11-30".to_owned()),
        ("schedules", "/schedules?task=export".to_owned()),
        ("schedule", "/schedule?task=export&name=nightly".to_owned()),
        ("workers", "/workers?all=yes".to_owned()),
        ("worker", format!("/worker?worker={}", encoded(&killed))),
        ("running", "/running".to_owned()),
        ("stalls", "/stalls".to_owned()),
        ("audits", "/audit".to_owned()),
        ("audit", "/audit?task=export".to_owned()),
        ("server", "/server".to_owned()),
        ("find", "/find?q=export".to_owned()),
        ("zone", "/zone".to_owned()),
        ("missing", "/nowhere".to_owned()),
    ];
    (site, worker, pages.to_vec())
}

/// Opens each page in light and dark, on a desktop and on a phone.
async fn each(browser: &Browser, site: &Site, pages: &[(&str, String)], mut look: impl AsyncFnMut(&str)) {
    for (name, path) in pages {
        browser.open(&site.at(path)).await;
        for (device, width, height) in [("desktop", 1280, 800), ("phone", 390, 844)] {
            browser.size(width, height).await;
            for mode in ["light", "dark"] {
                browser.dark(mode == "dark").await;
                look(&format!("{name}-{device}-{mode}")).await;
            }
        }
    }
}

pub async fn axe_finds_nothing_serious(world: Rc<World>) {
    let browser = &world.browser;
    let path = std::env::var("HEARTLINE_AXE").expect("set HEARTLINE_AXE to axe.min.js, or use 'make check-axe'");
    let axe = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (site, worker, pages) = populated().await;
    let mut found = Vec::new();
    each(browser, &site, &pages, async |page| {
        browser.eval(&axe).await;
        let rules = browser.eval_late(RULES).await;
        found.extend(rules.as_array().unwrap().iter().map(|rule| format!("{page}: {rule}")));
    })
    .await;
    let _ = worker.stop().await.unwrap();
    assert!(found.is_empty(), "{found:#?}");
    println!("  {} pages", pages.len());
}

pub async fn every_page_gets_a_picture(world: Rc<World>) {
    let browser = &world.browser;
    let dir = std::env::var_os("HEARTLINE_SCREENSHOTS").expect("set HEARTLINE_SCREENSHOTS, or use 'make pictures'");
    let dir = PathBuf::from(dir).join("pages");
    std::fs::create_dir_all(&dir).unwrap();
    let (site, worker, pages) = populated().await;
    each(browser, &site, &pages, async |page| {
        if page.ends_with("-desktop-light") || page.ends_with("-phone-dark") {
            let picture = browser.driver.screenshot_as_png().await.unwrap();
            std::fs::write(dir.join(format!("{page}.png")), picture).unwrap();
        }
    })
    .await;
    let _ = worker.stop().await.unwrap();
}
