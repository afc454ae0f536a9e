//! `heartline demo --board`: killed and frozen workers, seen in a browser.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::{Scratch, until, until_within};
use crate::looks::assert_fits_a_phone;
use crate::world::World;

/// The largest picture that the repository may contain.
const LARGEST: usize = 200 * 1024;

/// The command that was built.
fn heartline() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe.ancestors().nth(2).unwrap().join("heartline");
    assert!(found.is_file(), "missing: {}; build it with 'cargo build -p heartline-cli'", found.display());
    found
}

/// A running demo, and its output.
pub struct Demo {
    child: Child,
    pub origin: String,
    said: Arc<Mutex<Vec<String>>>,
    /// The accounts of its passes.
    accounts: Arc<Mutex<Vec<String>>>,
}

/// The lines that a thread has read so far.
fn lines(from: impl Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let read = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&read);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            kept.lock().unwrap().push(line);
        }
    });
    read
}

impl Demo {
    pub async fn start() -> Demo {
        let mut command = Command::new(heartline());
        for name in ["HEARTLINE_TOKEN", "HEARTLINE_URL", "REDIS_URL", "HEARTLINE_PREFIX"] {
            command.env_remove(name);
        }
        command.args(["demo", "--json", "--board", "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (said, accounts) = (lines(child.stderr.take().unwrap()), lines(child.stdout.take().unwrap()));
        let mut demo = Demo { child, origin: String::new(), said, accounts };
        until("the demo serves its board", async || {
            demo.origin = demo.after("board on ").first().cloned().unwrap_or_default();
            !demo.origin.is_empty()
        })
        .await;
        demo.origin = demo.origin.split('/').take(3).collect::<Vec<_>>().join("/");
        demo
    }

    /// The rest of each output line after these words.
    fn after(&self, words: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter().filter_map(|line| line.split(words).nth(1).map(str::to_owned)).collect()
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// The pids of workers that it has killed so far.
    fn killed(&self) -> Vec<String> {
        let found = self.after("killed the worker process ");
        found.iter().filter_map(|rest| rest.split(' ').next().map(str::to_owned)).collect()
    }

    /// Stops it as Ctrl-C does, after a whole pass; returns the accounts of its passes.
    async fn end(mut self) -> Vec<Value> {
        until_within(Duration::from_secs(120), "a pass ends", async || !self.accounts.lock().unwrap().is_empty()).await;
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        until_within(Duration::from_secs(60), "the demo ends", async || self.child.try_wait().unwrap().is_some()).await;
        assert!(self.child.wait().unwrap().success());
        let accounts = self.accounts.lock().unwrap();
        accounts.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Its server and its workers end with it in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub async fn an_open_page_shows_the_stalls_of_a_killed_worker(world: Rc<World>) {
    let (browser, demo) = (&world.browser, world.demo().await);
    browser.open(&demo.at("/stalls")).await;
    browser.eval("window.mark = 'the same page'").await;
    // A worker killed before this does not count, and one that held nothing then has no stalls.
    let before = demo.killed().len();
    until_within(Duration::from_secs(90), "stalls of a killed worker are on the page", async || {
        let text = browser.text().await;
        // The id of a worker contains its pid.
        let killed = demo.killed().split_off(before);
        killed.iter().any(|pid| {
            let held = format!("-{pid}-");
            text.lines().any(|line| line.contains("held by") && line.contains(&held))
        })
    })
    .await;
    assert_eq!(browser.eval("return window.mark").await, "the same page", "it was reloaded");
}

pub async fn every_page_opens_from_the_navigation(world: Rc<World>) {
    let (browser, demo) = (&world.browser, world.demo().await);
    browser.open(&demo.origin).await;
    let pages = [
        ("Workers", "Workers"),
        ("Workflows", "Workflows"),
        ("Schedules", "Schedules"),
        ("Stalls", "Stalls of the last 24 hours"),
        ("Audit", "Audit"),
        ("Server", "Server"),
        ("Overview", "Overview"),
    ];
    for (link, heading) in pages {
        browser.click_text("nav a", link).await;
        browser.until_heading(heading).await;
        assert_eq!(browser.status().await, 200, "{link}");
    }
    // From the overview to a task, its jobs, and one of them.
    browser.click_text("main a.row", "index").await;
    browser.until_heading("index").await;
    browser.click("main .tabs a[href*=completed]").await;
    browser.until_heading("index: completed jobs").await;
    until("a job has completed", async || browser.count("main a.row").await > 0).await;
    let id = browser.eval_text("return document.querySelector('main a.row').textContent").await;
    browser.click_text("main a.row", &id).await;
    browser.until_heading(&id).await;
    browser.until_text("Events").await;
    browser.click_text("main p a", "index").await;
    browser.click_text("main nav a", "Stalls").await;
    browser.until_heading("index: stalls").await;
    browser.click_text("nav a", "Audit").await;
    browser.click_text("main a.row", "poison").await;
    browser.until_heading("Audit of poison").await;
    browser.click_text("nav a", "Workers").await;
    browser.until_heading("Workers").await;
    browser.click("main a.row").await;
    browser.until_text("Watches").await;
    assert!(browser.text().await.contains("host"), "the worker");
}

pub async fn the_overview_updates_without_a_reload(world: Rc<World>) {
    let (browser, demo) = (&world.browser, world.demo().await);
    browser.open(&demo.origin).await;
    browser.eval("window.mark = 'the same page'").await;
    let table = "const table = document.querySelector('[aria-label=Tasks]'); return table ? table.innerText : ''";
    until("the tasks are listed", async || browser.eval_text(table).await.contains("index")).await;
    let first = browser.eval_text(table).await;
    until("their numbers change", async || browser.eval_text(table).await != first).await;
    assert_eq!(browser.eval("return window.mark").await, "the same page", "it was reloaded");
}

pub async fn the_heartbeat_table_names_the_workers(world: Rc<World>) {
    let (browser, demo) = (&world.browser, world.demo().await);
    browser.open(&demo.at("/workers")).await;
    let table = "return [...document.querySelectorAll(`[aria-label=${arguments[0]}] tbody tr`)].map(row => [...row.cells].map(cell => cell.innerText.trim()))";
    until("each live worker sends heartbeats for each task", async || {
        let workers = browser.eval_with(table, vec![json!("Workers")]).await;
        let beats = browser.eval_with(table, vec![json!("Heartbeats")]).await;
        let live = workers.as_array().unwrap().iter().filter(|row| row[1] == "live").collect::<Vec<_>>();
        let of = |worker: &Value, task: &str| {
            let mut rows = beats.as_array().unwrap().iter();
            rows.any(|row| &row[0] == worker && row[1] == task && row[3].as_str().unwrap().ends_with("ago"))
        };
        live.len() >= 3 && live.iter().all(|row| of(&row[0], "index") && of(&row[0], "poison"))
    })
    .await;
}

pub async fn pictures_are_taken_in_light_and_dark(world: Rc<World>) {
    let (browser, demo) = (&world.browser, world.demo().await);
    let scratch = Scratch::new("pictures");
    let kept = std::env::var_os("HEARTLINE_SCREENSHOTS").map(PathBuf::from);
    let dir = kept.clone().unwrap_or_else(|| scratch.0.clone());
    std::fs::create_dir_all(&dir).unwrap();
    // A job that was recovered and ended has the longest history.
    browser.open(&demo.at("/stalls?task=index")).await;
    let recovered = "const row = [...document.querySelectorAll('main tr')].find(row => row.innerText.includes('recovered')); return row ? row.querySelector('a.row').href : ''";
    until("a job was recovered", async || !browser.eval_text(recovered).await.is_empty()).await;
    let job = browser.eval_text(recovered).await;
    browser.open(&job).await;
    browser.until_text("task:completed").await;
    browser.until_text("Stalls").await;
    for (name, url) in [("overview", demo.origin.clone()), ("job", job)] {
        browser.open(&url).await;
        if name == "overview" {
            let bar = "return [...document.querySelectorAll('rect.bar')].some(bar => bar.height.baseVal.value > 3)";
            until("there is a bar of stalls", async || browser.eval(bar).await == true).await;
        }
        for mode in ["light", "dark"] {
            browser.dark(mode == "dark").await;
            let picture = browser.driver.screenshot_as_png().await.unwrap();
            assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{name}-{mode} is not a PNG");
            assert!(picture.len() > 5_000, "{name}-{mode} is empty: {} bytes", picture.len());
            assert!(kept.is_none() || picture.len() < LARGEST, "{name}-{mode} has {} bytes", picture.len());
            let size = (&picture[16..20], &picture[20..24]);
            assert_eq!(size, (&1280_u32.to_be_bytes()[..], &800_u32.to_be_bytes()[..]), "{name}-{mode}");
            std::fs::write(dir.join(format!("board-{name}-{mode}.png")), picture).unwrap();
        }
    }
}

pub async fn no_page_of_the_demo_scrolls_sideways_on_a_phone(world: Rc<World>) {
    let (browser, demo) = (&world.browser, world.demo().await);
    browser.size(390, 800).await;
    for path in [
        "/",
        "/workers?all=yes",
        "/stalls",
        "/stalls?task=index",
        "/audit",
        "/audit?task=index",
        "/server",
        "/flows",
        "/schedules",
        "/task?task=poison",
        "/jobs?task=poison&state=failed",
        "/jobs?task=index&state=running",
    ] {
        browser.open(&demo.at(path)).await;
        assert_fits_a_phone(browser, path).await;
    }
}

pub async fn the_demo_ends_without_a_lost_job(world: Rc<World>) {
    let demo = world.last_of_demo().await;
    for account in demo.end().await {
        assert!(account["lost"] == 0 && account["faults"] == 0 && account["totals_match"] == true, "{account}");
        assert!(account["deaths"].as_u64().unwrap() > 0, "{account}");
    }
}
