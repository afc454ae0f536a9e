//! Schedules: from the list to one of them, its ticks while a worker fires them, and the actions on it.

use std::rc::Rc;
use std::time::Duration;

use heartline::Schedule;
use heartline_board::BoardOptions;

use crate::browser::until;
use crate::looks::assert_fits_a_phone;
use crate::site::Site;
use crate::world::World;

/// Writes a schedule that has no tick during a test.
pub async fn put(site: &Site, name: &str) {
    let rare = Schedule::every(Duration::from_secs(10 * 365 * 24 * 3600));
    let _ = site.export.schedules().put(name, rare, "x".to_owned()).await.unwrap();
}

/// A site whose task is listed.
async fn listed() -> Site {
    let site = Site::with(BoardOptions::behind_own_auth().by(|_| "ada".into())).await;
    site.seed(0, 0).await;
    site
}

pub async fn a_schedule_is_found_paused_and_run_by_hand(world: Rc<World>) {
    let (browser, site) = (&world.browser, listed().await);
    put(&site, "nightly").await;
    put(&site, "weekly").await;
    browser.open(&site.origin).await;
    browser.click_text("nav a", "Schedules").await;
    browser.until_heading("Schedules").await;
    // From the totals to the page of the task, and by name to a schedule.
    browser.click_text("[aria-label=Totals] a", "export").await;
    browser.until_heading("export: schedules").await;
    browser.keys("i").await;
    assert_eq!(browser.focused().await, "name");
    browser.fill("main input[name=name]", "weekly").await;
    browser.click_text("main form button", "Show").await;
    browser.until_heading("weekly").await;
    browser.click_text("main p a", "schedule").await;
    browser.click_text("main a.row", "nightly").await;
    browser.until_heading("nightly").await;

    browser.click_text("main summary", "Pause …").await;
    browser.fill("input[name=reason]", "the disk is full").await;
    browser.click_text("main form button", "Pause").await;
    browser.until_text("nightly is paused: its ticks are counted").await;
    browser.click_text("main a", "Back").await;
    browser.until_text("Paused by ada since").await;
    assert!(browser.text().await.contains(": the disk is full"));
    // A pause stops the ticks, and a person may still run it.
    browser.click_text("main form button", "Run now").await;
    browser.until_text("The job nightly@").await;
    assert_eq!(site.export.counts().await.unwrap().waiting, 1);
    browser.click_text("main a", "Back").await;
    browser.until_text("1 by hand").await;
    assert_eq!(browser.count("svg.ticks rect.by_hand").await, 1);
    browser.click_text("main form button", "Resume").await;
    browser.until_text("nightly is resumed.").await;
    browser.click_text("main a", "Back").await;
    browser.until_heading("nightly").await;
    assert!(!browser.text().await.contains("Paused by"));
    browser.click("main dd a.row").await;
    browser.until_text("Events").await;
    assert!(browser.heading().await.starts_with("nightly@"));
}

pub async fn an_open_page_shows_the_ticks_of_a_worker(world: Rc<World>) {
    let (browser, site) = (&world.browser, listed().await);
    let second = Schedule::every(Duration::from_secs(1));
    let _ = site.export.schedules().put("poll", second, "x".to_owned()).await.unwrap();
    browser.open(&site.at("/schedules")).await;
    browser.until_text("no live worker").await;
    browser.eval("window.mark = 'the same page'").await;
    let worker = site.app.worker().spawn();
    until("the bars of fired ticks appear", async || browser.count("svg.ticks rect.fired").await >= 2).await;
    browser.until_text("1 live").await;
    assert_eq!(browser.eval("return window.mark").await, "the same page", "it was reloaded");
    // The newest tick is on the right.
    let last = "const all = [...document.querySelectorAll('svg.ticks rect')]; return all.at(-1).getAttribute('class')";
    until("the newest bar fired", async || browser.eval(last).await == "fired").await;
    let _ = worker.stop().await.unwrap();
}

pub async fn pages_of_schedules_fit_a_phone_and_need_no_script(world: Rc<World>) {
    let (browser, site) = (&world.browser, listed().await);
    let long = "n".repeat(64);
    put(&site, &long).await;
    site.app.inspector().by("b".repeat(200)).pause_schedule("export", &long, &"r".repeat(200)).await.unwrap();
    site.put("schedules:rule", "broken", "nothing").await;
    browser.size(390, 800).await;
    for path in [
        "/schedules".to_owned(),
        "/schedules?task=export".to_owned(),
        format!("/schedule?task=export&name={long}"),
        "/schedule?task=export&name=broken".to_owned(),
        format!("/schedule?task=export&name={}", "m".repeat(300)),
    ] {
        browser.open(&site.at(&path)).await;
        assert_fits_a_phone(browser, &path).await;
    }
    browser.script(false).await;
    browser.open(&site.at("/schedules")).await;
    browser.click_text("main a.row", &long).await;
    browser.until_heading(&long).await;
    browser.click_text("main form button", "Resume").await;
    browser.until_text(&format!("{long} is resumed.")).await;
}
