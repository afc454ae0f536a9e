//! The cost of pages with a million jobs.

use std::rc::Rc;
use std::time::{Duration, Instant};

use heartline_board::BoardOptions;

use crate::browser::Browser;
use crate::site::{Site, encoded};
use crate::world::World;

/// The longest time for a page: it is exceeded only if something grows with the number of jobs.
const LONGEST: Duration = Duration::from_secs(5);

/// The pages, each with a text that it shows with a million jobs.
const PAGES: [(&str, &str); 8] = [
    ("/", "500,000"),
    ("/task?task=export", "500,000"),
    ("/schedules", "There are no schedules."),
    ("/stalls", "There are no stalls."),
    ("/jobs?task=export&state=waiting", "500000 jobs"),
    ("/jobs?task=export&state=failed", "500000 jobs"),
    ("/jobs?task=export&state=failed&older=30m", "jobs"),
    ("/job?task=export&id=failed-0250000", "no space left on device 0"),
];

/// Pages that read jobs one by one, at most 10,000: they are compared with a board that has as many.
const FILTERED: [(&str, &str); 3] = [
    ("/jobs?task=export&state=failed&code=disk", "failed-0499998"),
    ("/jobs?task=export&state=failed&text=reset", "failed-0499999"),
    ("/jobs?task=export&state=failed&code=nothing", "No job among those read matches."),
];

/// Opens a page of a board without caches; returns the time and the number of commands.
async fn cost(browser: &Browser, site: &Site, path: &str, expected: &str) -> (Duration, u64) {
    let board = site.another(BoardOptions::behind_own_auth()).await;
    let before = site.commands().await;
    let begun = Instant::now();
    browser.open(&format!("{board}{path}")).await;
    let took = begun.elapsed();
    let commands = site.commands().await - before;
    let text = browser.text().await;
    assert!(text.contains(expected), "{path} does not say {expected:?}: {text}");
    (took, commands)
}

pub async fn a_million_jobs_cost_no_more_than_a_hundred(world: Rc<World>) {
    let browser = &world.browser;
    let (few, some, many) = (Site::new().await, Site::new().await, Site::new().await);
    few.seed(50, 50).await;
    some.seed(50, 20_000).await;
    many.seed(500_000, 500_000).await;
    // Without scripts only the page itself is requested.
    browser.script(false).await;
    let mut excessive = Vec::new();
    let pages = PAGES.map(|page| (page, &few, "a hundred")).into_iter();
    for ((path, expected), less, jobs) in pages.chain(FILTERED.map(|page| (page, &some, "20,000"))) {
        let (_, least) = cost(browser, less, &path.replace("failed-0250000", "failed-0000020"), "").await;
        let (took, commands) = cost(browser, &many, path, expected).await;
        println!("  {path}: {} ms and {commands} commands with a million jobs, {least} with {jobs}", took.as_millis());
        // A page that does not show all jobs also counts them, which takes about as many commands.
        if took >= LONGEST || commands > 3 * least {
            excessive.push(format!("{path}: {took:?}, {commands} commands, {least} with {jobs}"));
        }
    }
    browser.script(true).await;
    // Page forward, and back again.
    browser.open(&many.at("/jobs?task=export&state=failed&code=disk")).await;
    let first = async || browser.eval_text("return document.querySelector('main a.row').textContent").await;
    let mut seen = vec![first().await];
    for _ in 0..3 {
        let begun = Instant::now();
        browser.click("main a[rel=next]").await;
        crate::browser::until("the next page", async || !seen.contains(&first().await)).await;
        assert!(begun.elapsed() < LONGEST, "{:?}", begun.elapsed());
        seen.push(first().await);
    }
    assert_eq!(seen[0], "failed-0499998");
    for wanted in seen.iter().rev().skip(1) {
        browser.driver.back().await.unwrap();
        crate::browser::until("the page before", async || first().await == *wanted).await;
    }
    // By code, text and age together, typed into the form.
    browser.open(&many.at("/jobs?task=export&state=failed")).await;
    browser.click_text("main summary", "Filter").await;
    for (field, text) in [("code", "disk"), ("text", "device 8"), ("older", "20m")] {
        browser.fill(&format!("input[form=filter][name={field}]"), text).await;
    }
    let begun = Instant::now();
    browser.click_text("main form button", "Show").await;
    browser.until_text(" of 10000 read").await;
    assert!(begun.elapsed() < LONGEST, "{:?}", begun.elapsed());
    let rows = "return [...document.querySelectorAll('[aria-label=Jobs] tbody tr')].map(row => row.cells[2].innerText + ' ' + row.cells[3].innerText)";
    let rows = browser.eval(rows).await;
    let rows = rows.as_array().unwrap();
    assert!(!rows.is_empty(), "none is found");
    assert!(rows.iter().all(|row| row.as_str().unwrap().starts_with("disk no space left on device 8")), "{rows:?}");
    // A job in the middle, by its address.
    browser.open(&many.at(&format!("/job?task=export&id={}", encoded("waiting-0250000")))).await;
    browser.until_heading("waiting-0250000").await;
    assert!(excessive.is_empty(), "too slow or too many commands: {excessive:#?}");
}
