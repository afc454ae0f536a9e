//! Untrusted text, requests from other sites, and odd ids.

use std::rc::Rc;

use axum::response::Html;
use axum::routing::get;
use heartline::JobState;
use heartline_board::BoardOptions;
use serde_json::json;

use crate::browser::{Browser, until};
use crate::site::{Site, encoded, serve};
use crate::world::World;

/// A script that runs if the id is treated as markup; an id has no spaces and no braces.
const EVIL_ID: &str = "\"><img/src=x/onerror=window.hacked=1><script>window.hacked=1;alert(1)</script>";
const EVIL: &str = "<b>'\"></b></title></textarea></script><img src=x onerror=\"window.hacked=1;alert(1)\"><svg onload=alert(1)><script>window.hacked=1;alert(1)</script>";

/// Asserts that none of it has become an element, and that the page shows it as text.
async fn assert_harmless(browser: &Browser, what: &str, shown: &str) {
    // An open alert would make each of these fail.
    let found = "return [...document.querySelectorAll('img, svg[onload], main b, main script, body script, iframe, [onerror], [onload], [style]')].map(e => e.outerHTML)";
    assert_eq!(browser.eval(found).await, json!([]), "{what}");
    assert_eq!(browser.eval("return document.scripts.length").await, 1, "{what}: only our own elements");
    assert_eq!(browser.eval("return typeof window.hacked").await, "undefined", "{what}");
    let text = "return document.body.textContent + [...document.querySelectorAll('input')].map(e => e.value).join(' ')";
    let text = browser.eval_text(text).await;
    assert!(text.contains(shown), "{what} does not show {shown:?}: {text}");
}

pub async fn markup_is_text_wherever_it_comes_from(world: Rc<World>) {
    let options = BoardOptions::behind_own_auth().by(|_| EVIL.to_owned()).name(EVIL);
    let (browser, site) = (&world.browser, Site::with(options).await);
    site.run(&[(EVIL_ID, EVIL)]).await;
    site.put("error", EVIL_ID, &json!({ "code": EVIL, "message": EVIL }).to_string()).await;
    let _ = site.export.dispatch("hold".into()).id("held").await.unwrap();
    let mut process = site.worker();
    let worker = site.holder(&process, 1).await;
    process.kill();
    for field in ["host", "version", "name", "deadSays"] {
        site.put_worker(&worker, field, EVIL).await;
    }
    site.put_worker(&worker, "watch:export", &format!("7 30000 1000 {} 100", EVIL.replace(' ', "/"))).await;
    let live = site.app.worker().spawn();
    site.app.inspector().by(EVIL).pause("export", EVIL).await.unwrap();
    let _ = site.export.dispatch(EVIL.into()).id("waits").await.unwrap();
    crate::schedules::put(&site, "nightly").await;
    site.app.inspector().by(EVIL).pause_schedule("export", "nightly", EVIL).await.unwrap();
    site.put("progress", "held", &format!("1 1 1 {}", json!({ "value": EVIL, "message": EVIL }))).await;
    let start = "<b>'\">";
    let evil_query = encoded(EVIL);
    for (path, shown) in [
        ("/".to_owned(), start),
        ("/task?task=export".to_owned(), EVIL),
        ("/jobs?task=export&state=failed".to_owned(), start),
        (format!("/job?task=export&id={}&values=yes", encoded(EVIL_ID)), EVIL_ID),
        ("/job?task=export&id=held&values=yes".to_owned(), start),
        ("/job?task=export&id=waits&values=yes".to_owned(), start),
        ("/workers?all=yes".to_owned(), start),
        (format!("/worker?worker={}", encoded(&worker)), start),
        (format!("/worker?worker={evil_query}"), EVIL),
        (format!("/jobs?task=export&state=failed&code={evil_query}&text={evil_query}"), EVIL),
        (format!("/jobs?task=export&state=failed&older={evil_query}"), start),
        (format!("/jobs?task=export&state={evil_query}"), start),
        (format!("/jobs?task={evil_query}&state=failed"), start),
        (format!("/task?task={evil_query}"), start),
        (format!("/job?task=export&id={evil_query}"), start),
        ("/schedule?task=export&name=nightly".to_owned(), EVIL),
        (format!("/schedule?task=export&name={evil_query}"), start),
        (format!("/schedules?task={evil_query}"), start),
        (format!("/stalls?task={evil_query}"), start),
        (format!("/audit?task={evil_query}"), start),
        (format!("/jobs?task=export&state=failed&cursor={evil_query}"), start),
    ] {
        browser.open(&site.at(&path)).await;
        assert_harmless(browser, &path, shown).await;
    }
    // An update of an open page does not turn it into markup either.
    browser.open(&site.at("/jobs?task=export&state=waiting")).await;
    browser.until_text("waits").await;
    let _ = site.export.dispatch("x".into()).id(format!("{EVIL_ID}2")).await.unwrap();
    browser.until_text(&format!("{EVIL_ID}2")).await;
    assert_harmless(browser, "a live update", &format!("{EVIL_ID}2")).await;
    // The confirmation and the result.
    browser.open(&site.job(EVIL_ID)).await;
    browser.click_text("main form button", "Remove …").await;
    browser.until_heading("Remove?").await;
    assert_harmless(browser, "the question", EVIL_ID).await;
    browser.click_text("main form button", "Yes, remove").await;
    browser.until_text("1 removed, 0 refused").await;
    assert_harmless(browser, "the answer", EVIL_ID).await;
    // A fault, its audit and its preview.
    site.put("payload", &format!("{EVIL_ID}3"), "\"x\"").await;
    browser.open(&site.at("/audit?task=export")).await;
    browser.click_text("main form button", "Audit now").await;
    browser.until_text("found.").await;
    browser.click_text("main a", "Back").await;
    browser.until_text("unplaced").await;
    assert_harmless(browser, "the audit", &format!("{EVIL_ID}3")).await;
    browser.click_text("main form button", "Preview repair").await;
    browser.until_text("would be repaired").await;
    assert_harmless(browser, "the preview", &format!("{EVIL_ID}3")).await;
    let _ = live.stop().await;
}

/// A page of another site that tries to pause our task.
async fn foreign_page(target: &str) -> String {
    let form = format!(
        "<!doctype html><title>another site</title><form method=post action='{target}/act'><input name=act value=pause><input name=task \
         value=export><input name=confirmed value=yes><button>A prize</button></form>"
    );
    serve(axum::Router::new().route("/", get(move || async move { Html(form) }))).await
}

pub async fn forms_of_other_origins_are_refused(world: Rc<World>) {
    let token = "0123456789abcdef";
    let options = BoardOptions::with_token(token).unwrap().plain_http();
    let (browser, site) = (&world.browser, Site::with(options).await);
    let _ = site.export.dispatch("x".into()).await.unwrap();
    let open = site.another(BoardOptions::behind_own_auth()).await;
    // Signed in under both names, like a real user.
    let by_name = |origin: &str| origin.replace("127.0.0.1", "localhost");
    for origin in [site.origin.clone(), by_name(&site.origin)] {
        browser.open(&origin).await;
        browser.fill("input[name=token]", token).await;
        browser.click("main button").await;
        browser.until_heading("Overview").await;
    }
    for target in [site.origin.clone(), by_name(&site.origin), open.clone(), by_name(&open)] {
        let foreign = foreign_page(&target).await;
        for from in [foreign.clone(), by_name(&foreign)] {
            browser.open(&from).await;
            browser.click("button").await;
            browser.until_text("this request came from a page of another site").await;
            assert_eq!(browser.status().await, 403, "{from} to {target}");
            let task = site.app.inspector().task("export").await.unwrap();
            assert!(task.paused.is_none(), "{from} to {target}");
        }
    }
    // The same form on our own page is accepted, so the origin was the reason of the refusal.
    browser.open(&format!("{open}/task?task=export")).await;
    browser.click_text("main summary", "Pause …").await;
    browser.click_text("main form button", "Pause").await;
    browser.until_text("export is paused").await;
    assert!(site.app.inspector().task("export").await.unwrap().paused.is_some());
    world.complaints().await;
    // Nor can another site show our page in a frame.
    let frame = format!("<!doctype html><iframe src='{open}/task?task=export'></iframe>");
    let foreign = serve(axum::Router::new().route("/", get(move || async move { Html(frame) }))).await;
    browser.open(&foreign).await;
    until("it was refused in a frame", async || {
        let log = browser.driver.browser_log().await.unwrap();
        log.iter().any(|entry| entry.message.contains("frame-ancestors"))
    })
    .await;
}

pub async fn nothing_is_shown_under_the_name_of_another_site(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    let _ = site.export.dispatch("x".into()).id("secret-1").await.unwrap();
    browser.open(&site.at("/jobs?task=export&state=waiting")).await;
    browser.until_text("secret-1").await;
    for path in ["/", "/jobs?task=export&state=waiting", "/board.js", "/live", "/login"] {
        browser.open(&site.at(path).replace("127.0.0.1", "evil.example")).await;
        browser.until_text("unknown host").await;
        assert_eq!(browser.status().await, 421, "{path}");
    }
}

pub async fn odd_ids_open_their_own_jobs(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    // A job cancelled before a worker declared the task waits until its hook is known.
    site.put("meta", "declaredAt", "1").await;
    let odd = [
        "..",
        ".",
        "../..",
        "/",
        "//evil.example/x",
        "a/b?c#d",
        "d~/w/3/1",
        "%2e%2e",
        "%2E%2E%2F",
        "%00",
        "a&b=c",
        "a+b",
        "a;b",
        "#",
        "?",
        "'",
        "\"",
        "\\",
        "<b>",
        "&amp;",
        "&#60;",
        "javascript:alert(1)",
        "constructor",
        "__proto__",
        "-0",
    ];
    for id in odd {
        let _ = site.export.dispatch("x".into()).id(id).await.unwrap();
    }
    for id in ["a b", " ", "", "ü", "名前", "a\nb", "a{b", "a}b"] {
        assert!(site.export.dispatch("x".into()).id(id).await.is_err(), "no job has the id {id:?}");
    }
    for id in odd {
        browser.open(&site.at("/jobs?task=export&state=waiting")).await;
        browser.click_text("main a.row", id).await;
        until(&format!("the page of {id:?}"), async || browser.count("main dl").await == 1).await;
        assert_eq!(browser.eval("return document.querySelector('h1').textContent").await, id);
        assert_eq!(browser.eval("return location.pathname").await, "/job", "{id:?}");
        browser.click_text("main form button", "Cancel …").await;
        browser.until_heading("Cancel?").await;
        browser.until_text(&format!("{id} of export, which is waiting.")).await;
        browser.click_text("main form button", "Yes, cancel").await;
        browser.until_text("1 cancelled, 0 refused").await;
        assert_eq!(site.state(id).await, JobState::Cancelled, "{id:?}");
        browser.click_text("main a", "Back").await;
        until(&format!("the page of {id:?}"), async || browser.heading().await == id).await;
    }
    assert_eq!(site.export.counts().await.unwrap().cancelled, odd.len() as u64);
}

pub async fn no_page_violates_our_content_policy(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    site.run(&[("bad", "fail")]).await;
    for path in [
        "/",
        "/workers?all=yes",
        "/schedules",
        "/stalls",
        "/audit?task=export",
        "/server",
        "/task?task=export",
        "/nowhere",
    ] {
        browser.open(&site.at(path)).await;
    }
    browser.open(&site.job("bad")).await;
    // This includes those of all earlier parts.
    let complaints = world.complaints().await;
    assert!(complaints.is_empty(), "the browser complains: {complaints:#?}");
}
