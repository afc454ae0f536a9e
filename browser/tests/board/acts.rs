//! Every action through its page, with its confirmation.

use std::rc::Rc;
use std::time::Duration;

use heartline::JobState;
use heartline_board::BoardOptions;

use crate::browser::{Browser, until};
use crate::site::{Site, encoded};
use crate::world::World;

/// Presses a button on the page of a job, and checks the result.
async fn press(browser: &Browser, verb: &str, text: &str) {
    browser.click_text("main form button", verb).await;
    browser.until_text(text).await;
}

pub async fn a_job_can_be_retried_run_now_cancelled_and_removed(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.run(&[("bad", "fail"), ("done", "x")]).await;
    let _ = site.export.dispatch("x".into()).id("later").delay(Duration::from_secs(3600)).await.unwrap();

    browser.open(&site.job("bad")).await;
    press(browser, "Retry", "1 run again, 0 refused").await;
    browser.until_heading("Retry: bad of export").await;
    assert_eq!(site.state("bad").await, JobState::Waiting);
    browser.click_text("main a", "Back").await;
    browser.until_heading("bad").await;

    browser.open(&site.job("later")).await;
    press(browser, "Run now", "1 run now, 0 refused").await;
    assert_eq!(site.state("later").await, JobState::Waiting);

    // A "no" changes nothing and returns to the same page.
    browser.open(&site.job("bad")).await;
    press(browser, "Cancel …", "bad of export, which is waiting.").await;
    browser.until_heading("Cancel?").await;
    browser.click_text("main a", "No, go back").await;
    browser.until_heading("bad").await;
    assert_eq!(site.state("bad").await, JobState::Waiting);
    press(browser, "Cancel …", "bad of export, which is waiting.").await;
    press(browser, "Yes, cancel", "1 cancelled, 0 refused").await;
    assert_eq!(site.state("bad").await, JobState::Cancelled);

    browser.open(&site.job("done")).await;
    press(browser, "Remove …", "done of export, which is completed.").await;
    assert!(site.knows("done").await, "the page asks for confirmation");
    press(browser, "Yes, remove", "1 removed, 0 refused").await;
    assert!(!site.knows("done").await);
    browser.click_text("main a", "Back").await;
    browser.until_heading("There is no such job").await;
    assert_eq!(browser.status().await, 404);
}

pub async fn a_job_runs_again_as_a_copy_and_with_another_input(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.run(&[("bad", "fail")]).await;
    browser.open(&site.job("bad")).await;
    press(browser, "Run a copy", "was dispatched.").await;
    browser.click_text("main a", "Open it").await;
    until("the copy is open", async || {
        let heading = browser.heading().await;
        heading != "bad" && heading.len() == 22
    })
    .await;
    browser.open(&site.job("bad")).await;
    browser.click_text("main a", "Edit and dispatch").await;
    browser.until_heading("New job of export").await;
    browser.fill("textarea", "\"x").await;
    press(browser, "Dispatch", "The input is not JSON").await;
    assert_eq!(browser.eval("return document.querySelector('textarea').value").await, "\"x");
    browser.fill("textarea", "\"x\"").await;
    press(browser, "Dispatch", "was dispatched.").await;
    browser.click_text("main a", "Open it").await;
    until("the edited job is open", async || browser.heading().await.len() == 22).await;
    let id = browser.heading().await;
    let worker = site.app.worker().spawn();
    until("it completed", async || site.state(&id).await == JobState::Completed).await;
    let _ = worker.stop().await.unwrap();
    assert_eq!(site.state("bad").await, JobState::Failed);
}

pub async fn an_action_by_filter_asks_with_the_number_of_jobs(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    // A job cancelled before a worker declared the task waits until its hook is known.
    site.put("meta", "declaredAt", "1").await;
    site.seed(30, 100).await;
    let counts = async || site.export.counts().await.unwrap();

    browser.open(&site.at("/jobs?task=export&state=failed")).await;
    browser.until_text("100 jobs").await;
    browser.click_text("main summary", "Filter").await;
    browser.fill("input[form=filter][name=code]", "disk").await;
    browser.click_text("main form button", "Show").await;
    browser.until_text("50 jobs").await;
    assert_eq!(browser.count("main a.row").await, 50);
    press(browser, "Remove all …", "50 failed jobs of export, with the code disk.").await;
    browser.until_heading("Remove?").await;
    assert_eq!(counts().await.failed, 100, "the page asks for confirmation");
    press(browser, "Yes, remove", "50 removed, 0 refused").await;
    assert_eq!(counts().await.failed, 50);

    browser.click_text("main a", "Back").await;
    browser.until_text("No job matches.").await;
    assert_eq!(
        browser.eval("return document.querySelector('[form=filter][name=code]').value").await,
        "disk",
        "the filter stays"
    );
    browser.click_text("main summary", "Filter").await;
    browser.fill("input[form=filter][name=code]", "").await;
    browser.fill("input[form=filter][name=text]", "reset by peer").await;
    browser.click_text("main form button", "Show").await;
    browser.until_text("50 jobs").await;
    press(browser, "Retry all …", "50 failed jobs of export, with the text reset by peer.").await;
    press(browser, "Yes, retry", "50 run again, 0 refused").await;
    assert_eq!((counts().await.failed, counts().await.waiting), (0, 80));

    browser.open(&site.at("/jobs?task=export&state=waiting")).await;
    press(browser, "Cancel all …", "80 waiting jobs of export.").await;
    press(browser, "Yes, cancel", "80 cancelled, 0 refused").await;
    assert_eq!((counts().await.waiting, counts().await.cancelled), (0, 80));

    browser.open(&site.at("/jobs?task=export&state=delayed")).await;
    press(browser, "Run now all …", "1 delayed job of export.").await;
    press(browser, "Yes, run now", "1 run now, 0 refused").await;
    assert_eq!((counts().await.delayed, counts().await.waiting), (0, 1));
}

pub async fn selected_jobs_are_retried_and_the_page_waits_meanwhile(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.run(&[("a", "fail"), ("b", "fail"), ("c", "fail")]).await;
    browser.open(&site.at("/jobs?task=export&state=failed")).await;
    let shown = "const bar = document.querySelector('.bulk'); return bar.offsetHeight > 0";
    assert_eq!(browser.eval(shown).await, false, "nothing is selected");
    browser.click("input[value=a]").await;
    // The key selects the row with the focus, the newest job.
    browser.keys("j").await;
    browser.keys("x").await;
    assert_eq!(browser.eval(shown).await, true);
    // An update would take the selection away.
    browser.eval("window.mark = document.querySelector('main'); window.heard = 0; new EventSource('/live').onmessage = () => { window.heard++; }").await;
    let heard = async || browser.eval("return window.heard").await.as_u64().unwrap();
    until("the page subscribes", async || heard().await > 0).await;
    let before = heard().await;
    let _ = site.export.dispatch("x".into()).await.unwrap();
    until("a change is heard", async || heard().await > before).await;
    assert_eq!(browser.count("tbody input:checked").await, 2);
    press(browser, "Retry …", "2 selected failed jobs of export: ").await;
    press(browser, "Yes, retry", "2 run again, 0 refused").await;
    assert_eq!((site.state("a").await, site.state("b").await), (JobState::Waiting, JobState::Failed));
}

pub async fn a_task_is_paused_with_a_reason_and_resumed(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::with(BoardOptions::behind_own_auth().by(|_| "ada".into())).await);
    let worker = site.app.worker().spawn();
    let _ = site.export.dispatch("x".into()).await.unwrap().result().await.unwrap();
    browser.open(&site.at("/task?task=export")).await;
    browser.click_text("main summary", "Pause …").await;
    browser.fill("input[name=reason]", "the disk is full").await;
    press(browser, "Pause", "export is paused: no more jobs start; running jobs continue.").await;
    browser.click_text("main a", "Back").await;
    browser.until_text("Paused by ada since").await;
    assert!(browser.text().await.contains(": the disk is full"));
    let job = site.export.dispatch("x".into()).await.unwrap();
    browser.open(&site.origin).await;
    browser.until_text(" ago (the disk is full), 1 job waiting").await;
    assert_eq!(job.state().await.unwrap(), JobState::Waiting);
    browser.open(&site.at("/task?task=export")).await;
    press(browser, "Resume", "export is resumed.").await;
    assert_eq!(job.result().await.unwrap(), 2);
    let _ = worker.stop().await.unwrap();
}

pub async fn damage_is_found_previewed_and_repaired(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.run(&[("done", "x")]).await;
    browser.open(&site.at("/audit")).await;
    browser.click_text("main a.row", "export").await;
    browser.until_heading("Audit of export").await;
    press(browser, "Audit now", "Nothing is wrong.").await;

    site.put("payload", "lost-1", "\"x\"").await;
    site.put("cancelling", "done", "a cancel of the past").await;
    browser.click_text("main a", "Back").await;
    press(browser, "Audit now", "2 faults found.").await;
    browser.click_text("main a", "Back").await;
    browser.until_text("1 unplaced").await;
    browser.until_text("1 stray_cancel").await;
    press(browser, "Preview repair", "2 faults would be repaired, 0 no longer present").await;
    assert_eq!(site.export.counts().await.unwrap().waiting, 0, "it was a preview");
    browser.click_text("main a", "Back").await;
    press(browser, "Repair …", "2 faults of export; 1 job RUNS AGAIN").await;
    press(browser, "Yes, repair", "2 faults repaired, 0 no longer present").await;
    assert_eq!(site.state("lost-1").await, JobState::Waiting);
    browser.click_text("main a", "Back").await;
    press(browser, "Audit now", "Nothing is wrong.").await;
}

pub async fn a_person_requeues_or_fails_jobs_of_a_killed_worker(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    for id in ["again", "fails"] {
        let _ = site.export.dispatch("hold".into()).id(id).await.unwrap();
    }
    let mut process = site.worker();
    let id = site.holder(&process, 2).await;
    process.kill();
    // A live worker finds them silent, and leaves them to a person.
    let worker = site.app.worker().spawn();
    browser.open(&site.origin).await;
    browser.until_text("2 silent jobs parked for a person, as the options say").await;

    browser.open(&site.job("again")).await;
    until("it is offered", async || browser.text().await.contains("Run again")).await;
    press(browser, "Run again …", "again of export, which is running.").await;
    browser.until_heading("Run again?").await;
    assert_eq!(site.state("again").await, JobState::Running, "the page asks for confirmation");
    press(browser, "Yes, run again", "1 run again, 0 refused").await;
    site.open(1);
    until("it completes", async || site.state("again").await == JobState::Completed).await;
    browser.click_text("main a", "Back").await;
    browser.until_text(&format!("held by {id}")).await;
    browser.until_text("task:completed").await;

    browser.open(&site.job("fails")).await;
    let offers_fail =
        "return [...document.querySelectorAll('main form button')].some(one => one.textContent.startsWith('Fail'))";
    until("it is offered", async || browser.eval(offers_fail).await == true).await;
    press(browser, "Fail …", "fails of export, which is running.").await;
    press(browser, "Yes, fail", "1 failed, 0 refused").await;
    assert_eq!(site.state("fails").await, JobState::Failed);
    browser.click_text("main a", "Back").await;
    browser.until_text("worker_crashed").await;
    let _ = worker.stop().await.unwrap();
}

pub async fn a_worker_is_made_quiet_and_claims_again(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let worker = site.app.worker().spawn();
    let page = site.at(&format!("/worker?worker={}", worker.id()));
    until("the worker is known", async || {
        browser.open(&page).await;
        browser.count("main form button").await == 1
    })
    .await;
    browser.click_text("main form button", "Claim no more jobs").await;
    browser.until_text("claims no more jobs").await;
    browser.open(&site.origin).await;
    browser.until_text("1 quiet").await;
    browser.click_text("main .trouble button", "Claim jobs again").await;
    browser.until_text("claims jobs again").await;
    browser.open(&page).await;
    browser.until_text("Claim no more jobs").await;
    let _ = worker.stop().await.unwrap();
}

pub async fn declaring_a_killed_worker_dead_requeues_its_jobs(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("hold".into()).id("held").await.unwrap();
    let mut process = site.worker();
    let id = site.holder(&process, 1).await;
    browser.open(&site.at("/workers")).await;
    browser.click_text("main a.row", &id).await;
    browser.until_heading(&id).await;
    assert_eq!(browser.count("main button.danger").await, 0, "a live worker is left alone");
    process.kill();
    // The list and the page update themselves when the worker becomes silent.
    browser.open(&site.at("/workers")).await;
    until("the list offers a recovery", async || browser.count("[aria-label=Workers] button").await == 1).await;
    browser.click_text("main a.row", &id).await;
    browser.click_text("main form button", "Recover its jobs …").await;
    browser.until_heading("Recover its jobs?").await;
    browser.until_text("It holds 1 of export, which wait for a person. They run again").await;
    assert_eq!(site.state("held").await, JobState::Running, "the page asks for confirmation");
    press(browser, "Yes, recover its jobs", "Its jobs are recovered.").await;
    browser.until_text("export: 1 job").await;
    browser.click_text("main a", "Back").await;
    browser.until_heading(&id).await;
    browser.until_text("gone: reported by board").await;
    site.open(1);
    let worker = site.app.worker().spawn();
    until("it completes", async || site.state("held").await == JobState::Completed).await;
    let _ = worker.stop().await.unwrap();
}

pub async fn a_user_with_the_token_signs_in_and_out(world: Rc<World>) {
    let token = "0123456789abcdef";
    let options = BoardOptions::with_token(token).unwrap().plain_http();
    let (browser, site) = (&world.browser, Site::with(options).await);
    site.run(&[("done", "x")]).await;
    browser.open(&site.at(&format!("/job?task=export&id={}", encoded("done")))).await;
    until("there is a field for the token", async || browser.count("input[name=token]").await == 1).await;
    assert_eq!(browser.focused().await, "token", "the field has the focus");
    browser.fill("input[name=token]", "fedcba9876543210").await;
    browser.click("main button").await;
    browser.until_text("Wrong token.").await;
    browser.fill("input[name=token]", token).await;
    browser.click("main button").await;
    browser.until_heading("done").await;
    let text = browser.eval_text("return document.cookie + JSON.stringify(localStorage)").await;
    assert!(!text.contains("session") && !text.contains(token), "scripts cannot read it: {text}");
    browser.click_text("header button", "Sign out").await;
    until("it asks again", async || browser.count("input[name=token]").await == 1).await;
    browser.driver.back().await.unwrap();
    until("going back shows nothing", async || browser.count("input[name=token]").await == 1).await;
    // An open page in another window leaves when its session ends.
    browser.fill("input[name=token]", token).await;
    browser.click("main button").await;
    browser.until_heading("done").await;
    browser.open(&site.at("/")).await;
    browser.until_heading("Overview").await;
    browser.cdp("Network.clearBrowserCookies", serde_json::json!({})).await;
    let _ = site.export.dispatch("x".into()).await.unwrap();
    until("the open page asks for the token", async || browser.count("input[name=token]").await == 1).await;
}
