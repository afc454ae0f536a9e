//! The board with the keyboard alone.

use std::rc::Rc;

use serde_json::json;
use thirtyfour::Key;

use crate::browser::until;
use crate::site::Site;
use crate::world::World;

pub async fn tab_reaches_every_link_and_the_skip_link_comes_first(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("x".into()).await.unwrap();
    site.until_listed().await;
    browser.open(&site.origin).await;
    until("the task is shown", async || browser.count("main a.row").await == 1).await;
    let mut seen = Vec::new();
    let all = browser.count("a[href], button").await;
    for _ in 0..all + 8 {
        browser.press(Key::Tab).await;
        seen.push(browser.focused().await);
        let outline = "const e = document.activeElement; return e === document.body || getComputedStyle(e).outlineStyle !== 'none'";
        assert_eq!(browser.eval(outline).await, true, "the focus can be seen: {seen:?}");
    }
    assert_eq!(seen[0], "Skip to the content");
    for wanted in ["Overview", "Workers", "Schedules", "Stalls", "Audit", "Server", "export", "1", "Tasks"] {
        assert!(seen.iter().any(|focused| focused == wanted), "{wanted} is not reached: {seen:?}");
    }
    // The skip link leads past the navigation.
    browser.open(&site.origin).await;
    browser.press(Key::Tab).await;
    browser.press(Key::Enter).await;
    browser.press(Key::Tab).await;
    let is_inside = "return !!document.activeElement.closest('main')";
    assert_eq!(browser.eval(is_inside).await, true, "{}", browser.focused().await);
}

pub async fn the_keyboard_alone_filters_moves_opens_and_pages(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.seed(3, 120).await;
    browser.open(&site.at("/jobs?task=export&state=failed")).await;
    let row = async |at: usize| {
        let script = "return document.querySelectorAll('main a.row')[arguments[0]].textContent";
        browser.eval_with(script, vec![json!(at)]).await.as_str().unwrap().to_owned()
    };
    let (first, second) = (row(0).await, row(1).await);
    browser.keys("j").await;
    assert_eq!(browser.focused().await, first);
    browser.keys("j").await;
    assert_eq!(browser.focused().await, second);
    browser.keys("k").await;
    browser.keys("k").await;
    assert_eq!(browser.focused().await, first, "it stays on the first page");
    browser.keys("j").await;
    browser.press(Key::Enter).await;
    browser.until_heading(&second).await;

    browser.open(&site.at("/jobs?task=export&state=failed")).await;
    // The driver sends a key again if the first one navigates before its release, so one press may turn two pages.
    while browser.count("main a[rel=next]").await == 1 {
        let before = row(0).await;
        browser.keys("n").await;
        until("the next page", async || row(0).await != before).await;
    }
    assert_eq!(row(0).await, "failed-0000019");
    assert_eq!(browser.count("main a.row").await, 20, "the last page has the rest");
    browser.keys("n").await;
    assert_eq!(browser.count("main a.row").await, 20, "there is no next page");

    browser.keys("i").await;
    assert_eq!(browser.focused().await, "code");
    // Letters are text in a field.
    browser.keys("jokn").await;
    assert_eq!(browser.eval("return document.querySelector('[form=filter][name=code]').value").await, "jokn");
    browser.press(Key::Escape).await;
    assert_eq!(browser.focused().await, "");
    browser.keys("/").await;
    assert_eq!(browser.focused().await, "q");
    browser.press(Key::Escape).await;
    browser.keys("i").await;
    for _ in 0..4 {
        browser.press(Key::Backspace).await;
    }
    browser.keys("disk").await;
    browser.press(Key::Enter).await;
    browser.until_text("60 jobs").await;

    for (key, heading) in [
        ("o", "Overview"),
        ("w", "Workers"),
        ("c", "Schedules"),
        ("s", "Stalls of the last 24 hours"),
        ("a", "Audit"),
        ("r", "Server"),
        ("o", "Overview"),
    ] {
        browser.keys(key).await;
        browser.until_heading(heading).await;
    }
}

pub async fn the_find_box_opens_a_job_by_its_id(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("x".into()).id("order-7").await.unwrap();
    site.until_listed().await;
    browser.open(&site.at("/stalls")).await;
    assert_eq!(browser.count("header a[aria-current=page]").await, 1);
    browser.keys("/").await;
    browser.keys("order-7").await;
    browser.press(Key::Enter).await;
    browser.until_heading("order-7").await;
    assert_eq!(
        browser.eval_text("return document.querySelector('header a[aria-current]').textContent.trim()").await,
        "Overview"
    );
    browser.keys("/").await;
    browser.keys("xpor").await;
    browser.press(Key::Enter).await;
    browser.until_heading("xpor").await;
    browser.click_text("main a.row", "export").await;
    browser.until_heading("export").await;
}

pub async fn focus_survives_a_live_update(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("x".into()).await.unwrap();
    site.until_listed().await;
    browser.open(&site.origin).await;
    let waiting = async || {
        let script =
            "const a = document.querySelector('main a[href*=\"state=waiting\"]'); return a ? a.textContent : ''";
        browser.eval_text(script).await
    };
    until("one waits", async || waiting().await == "1").await;
    browser.eval("window.mark = document.querySelector('main')").await;
    browser.keys("j").await;
    assert_eq!(browser.focused().await, "export");
    let _ = site.export.dispatch("x".into()).await.unwrap();
    until("two wait", async || waiting().await == "2").await;
    assert_eq!(browser.focused().await, "export");
    // The same for a table that keys scroll.
    browser.eval("document.querySelector('[aria-label=Tasks]').focus()").await;
    let _ = site.export.dispatch("x".into()).await.unwrap();
    until("three wait", async || waiting().await == "3").await;
    assert_eq!(browser.focused().await, "Tasks");
    assert_eq!(browser.eval("return window.mark !== document.querySelector('main')").await, true);
}

pub async fn focus_stays_on_one_of_several_links_to_a_page(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("x".into()).await.unwrap();
    site.until_listed().await;
    browser.open(&site.origin).await;
    // A problem links to the task, as its row does.
    browser.until_text("1 job waiting, and no live worker has the task").await;
    browser.keys("j").await;
    let class = async || browser.eval_text("return document.activeElement.className").await;
    assert_eq!(class().await, "row");
    let _ = site.export.dispatch("x".into()).await.unwrap();
    browser.until_text("2 jobs waiting").await;
    assert_eq!(class().await, "row", "a live update has moved the focus to another link to the same page");
}

pub async fn typed_text_survives_a_live_update(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("x".into()).await.unwrap();
    site.until_listed().await;
    browser.open(&site.at("/task?task=export")).await;
    browser.click_text("main summary", "Pause …").await;
    browser.click("input[name=reason]").await;
    browser.keys("half a sen").await;
    // A second subscription of the test receives what the page receives.
    browser.eval("window.heard = 0; new EventSource('/live').onmessage = () => { window.heard++; }").await;
    let heard = async || browser.eval("return window.heard").await.as_u64().unwrap();
    until("the page subscribes", async || heard().await > 0).await;
    let before = heard().await;
    let _ = site.export.dispatch("x".into()).await.unwrap();
    until("the page has received a change", async || heard().await > before).await;
    browser.keys("tence").await;
    assert_eq!(browser.eval("return document.querySelector('[name=reason]').value").await, "half a sentence");
    // The typed text stays when the field loses the focus, too.
    browser.press(Key::Escape).await;
    browser.press(Key::Escape).await;
    let jobs =
        async || browser.eval_text("return document.querySelector('main .tabs strong').textContent").await == "2";
    until("the page updates again", jobs).await;
    assert_eq!(
        browser.eval("return document.querySelector('[name=reason]').value").await,
        "half a sentence",
        "what was typed is lost by a live update once the field has no focus"
    );
}
