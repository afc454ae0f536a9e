//! The board without JavaScript.

use std::rc::Rc;

use heartline::JobState;

use crate::browser::until;
use crate::site::Site;
use crate::world::World;

pub async fn pages_filters_and_actions_need_no_script(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.seed(5, 100).await;
    browser.script(false).await;
    browser.open(&site.origin).await;
    until("the task is listed", async || {
        browser.driver.refresh().await.unwrap();
        browser.count("main a.row").await == 1
    })
    .await;
    for link in ["Workers", "Schedules", "Stalls", "Audit", "Server", "Overview"] {
        browser.click_text("nav a", link).await;
        until("it is there", async || browser.count("h1").await == 1 && !browser.text().await.is_empty()).await;
    }
    // No script of the page has run: this key has no effect.
    browser.until_heading("Overview").await;
    browser.keys("w").await;
    browser.click_text("main a", "100").await;
    browser.until_heading("export: failed jobs").await;
    browser.click_text("main summary", "Filter").await;
    browser.fill("input[form=filter][name=code]", "net").await;
    browser.click_text("main form button", "Show").await;
    browser.until_text("50 jobs").await;
    browser.click_text("main a.row", "failed-0000099").await;
    browser.until_heading("failed-0000099").await;
    browser.click_text("main form button", "Remove …").await;
    browser.until_heading("Remove?").await;
    browser.click_text("main form button", "Yes, remove").await;
    browser.until_text("1 removed, 0 refused").await;
    assert!(!site.knows("failed-0000099").await);
    browser.open(&site.job("failed-0000098")).await;
    browser.click_text("main form button", "Retry").await;
    browser.until_text("1 run again, 0 refused").await;
    assert_eq!(site.state("failed-0000098").await, JobState::Waiting);
}

pub async fn a_long_action_shows_progress_without_script(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    // A job cancelled before a worker declared the task waits until its hook is known.
    site.put("meta", "declaredAt", "1").await;
    site.seed(60_000, 0).await;
    browser.script(false).await;
    browser.open(&site.at("/jobs?task=export&state=waiting")).await;
    browser.click_text("main form button", "Cancel all …").await;
    browser.until_text("60000 waiting jobs of export.").await;
    browser.click_text("main form button", "Yes, cancel").await;
    // The progress page reloads itself.
    browser.until_heading("Cancel: export").await;
    browser.until_text("60000 cancelled, 0 refused").await;
    assert_eq!(site.export.counts().await.unwrap().cancelled, 60_000);
}
