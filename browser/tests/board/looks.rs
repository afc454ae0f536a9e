//! The board on phones and in dark mode.

use std::rc::Rc;
use std::time::Duration;

use heartline_board::BoardOptions;
use serde_json::json;

use crate::browser::{Browser, until};
use crate::site::{Site, encoded};
use crate::world::World;

const PHONE: u64 = 390;

/// The width of the page and of the window, and the elements that exceed it.
const WIDE: &str = "
    const out = e => !e.closest('.table, .graph, pre, .skip, .vh') && (e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > innerWidth + 1);
    const wide = [...document.querySelectorAll('main *, header *')].filter(e => out(e) && ![...e.children].some(out));
    const names = wide.map(e => `<${e.tagName.toLowerCase()} class='${e.className}'> ${e.textContent.trim().slice(0, 60)}`);
    return [document.documentElement.scrollWidth, innerWidth, names]";

/// Asserts that a page fits a phone. A failure names the elements that are too wide.
pub async fn assert_fits_a_phone(browser: &Browser, what: &str) {
    let mut measured = browser.eval(WIDE).await;
    // While a page is updated, its new rows may not be laid out yet.
    for _ in 0..20 {
        if measured[0].as_u64().is_some_and(|width| width <= PHONE) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        measured = browser.eval(WIDE).await;
    }
    assert_eq!(measured[1], PHONE, "{what}");
    assert!(
        measured[0].as_u64().unwrap() <= PHONE,
        "{what} is {} wide on a phone of {PHONE}: {:#}",
        measured[0],
        measured[2]
    );
}

/// A site with the longest possible texts, without spaces.
async fn long_site() -> (Site, String) {
    let site = Site::with(BoardOptions::behind_own_auth().name("production").by(|_| "b".repeat(200))).await;
    let (id, held) = ("i".repeat(128), "h".repeat(128));
    site.run(&[(&id, &"e".repeat(4000)), ("ok", "x")]).await;
    let _ = site.export.dispatch("hold".into()).id(&held).await.unwrap();
    let mut process = site.worker();
    let worker = site.holder(&process, 1).await;
    process.kill();
    (site, worker)
}

pub async fn no_page_scrolls_sideways_on_a_phone(world: Rc<World>) {
    let browser = &world.browser;
    let (site, worker) = long_site().await;
    let live = site.app.worker().spawn();
    let (id, held) = ("i".repeat(128), "h".repeat(128));
    // The job waits for a decision, and then a person fails it, so there is a stall.
    until("it waits for a decision", async || {
        let task = site.app.inspector().task("export").await.unwrap();
        task.parts.iter().map(|part| part.parked).sum::<u64>() == 1
    })
    .await;
    let held_ids = heartline::SilentSelection::ids([held.as_str()]);
    let report = site.app.inspector().by("b".repeat(200)).fail_running("export", held_ids).await.unwrap();
    assert_eq!(report.done, 1, "{report:?}");
    browser.size(PHONE, 800).await;
    let mut wide = Vec::new();
    let pages = [
        "/".to_owned(),
        "/workers?all=yes".to_owned(),
        format!("/worker?worker={}", encoded(&worker)),
        "/running".to_owned(),
        "/acts?task=export".to_owned(),
        "/stalls".to_owned(),
        "/stalls?task=export".to_owned(),
        "/audit".to_owned(),
        "/audit?task=export".to_owned(),
        "/server".to_owned(),
        "/task?task=export".to_owned(),
        "/jobs?task=export&state=failed".to_owned(),
        format!("/jobs?task=export&state=failed&text={}", "t".repeat(300)),
        format!("/job?task=export&id={}&values=yes", encoded(&id)),
        format!("/job?task=export&id={}", encoded(&held)),
        format!("/job?task=export&id={}", encoded(&"n".repeat(128))),
        format!("/jobs?task=export&state={}", "s".repeat(128)),
        "/nowhere".to_owned(),
        "/zone".to_owned(),
        "/find?q=xpo".to_owned(),
        format!("/find?q={}", "q".repeat(128)),
    ];
    let fits = async |what: &str| {
        let measured = browser.eval(WIDE).await;
        assert_eq!(measured[1], PHONE, "{what}");
        (measured[0].as_u64().unwrap() > PHONE).then(|| format!("{what} is {} wide, by {}", measured[0], measured[2]))
    };
    for path in &pages {
        browser.open(&site.at(path)).await;
        wide.extend(fits(path.split('&').next().unwrap()).await);
    }
    // The confirmation and the result of an action.
    browser.open(&site.job(&id)).await;
    browser.click_text("main form button", "Remove …").await;
    browser.until_heading("Remove?").await;
    wide.extend(fits("the question about a job").await);
    // The job is gone by now, so the refusal shows a line with its id.
    let _ = site.app.inspector().remove("export", id.as_str()).await.unwrap();
    browser.click_text("main form button", "Yes, remove").await;
    browser.until_text("0 removed, 1 refused").await;
    wide.extend(fits("the result of an action").await);
    // A pause, shown on the page of the task and on the overview.
    browser.open(&site.at("/task?task=export")).await;
    browser.click_text("main summary", "Pause …").await;
    browser.fill("input[name=reason]", &"r".repeat(200)).await;
    browser.click_text("main form button", "Pause").await;
    browser.until_text("export is paused").await;
    let _ = site.export.dispatch("x".into()).await.unwrap();
    browser.open(&site.at("/task?task=export")).await;
    browser.until_text("Paused by").await;
    wide.extend(fits("the task that is paused").await);
    browser.open(&site.origin).await;
    browser.until_text("Paused by").await;
    wide.extend(fits("the overview with a pause").await);
    // A fault with a long id.
    site.put("payload", &"f".repeat(128), "\"x\"").await;
    browser.open(&site.at("/audit?task=export")).await;
    browser.click_text("main form button", "Audit now").await;
    browser.until_text("found.").await;
    browser.click_text("main a", "Back").await;
    browser.until_text("unplaced").await;
    wide.extend(fits("the audit").await);
    browser.click_text("main form button", "Preview repair").await;
    browser.until_text("would be repaired").await;
    wide.extend(fits("the preview of a repair").await);
    let locked = site.another(BoardOptions::with_token("0123456789abcdef").unwrap().name("production")).await;
    browser.open(&locked).await;
    wide.extend(fits("the page to sign in").await);
    let _ = live.stop().await;
    assert!(wide.is_empty(), "pages scroll sideways: {wide:#?}");
}

pub async fn the_table_of_tasks_is_visible_under_ten_troubles(world: Rc<World>) {
    let (browser, site) = (&world.browser, Site::new().await);
    for at in 0..10 {
        let task = site.app.task_ref::<String, u64>(&format!("task-{at}")).unwrap();
        let _ = task.dispatch("x".into()).await.unwrap();
    }
    browser.open(&site.origin).await;
    until("each task has a trouble", async || browser.count("#troubles .trouble .who[href*=task-]").await == 10).await;
    let bottom = "return document.querySelector('[aria-label=Tasks]').getBoundingClientRect().bottom";
    let bottom = browser.eval(bottom).await.as_f64().unwrap();
    assert!(bottom <= 800.0, "the table of 10 tasks ends at {bottom}");
    // A task in trouble has a word, and a count of 0 has no link.
    assert_eq!(browser.eval_text("return document.querySelector('tbody .badge').innerText").await, "no worker");
    assert_eq!(browser.count("[aria-label=Tasks] a[href*='state=failed']").await, 0);
    // The fold has the advice; a page that is held by it does not update.
    browser.click_text("#troubles summary", "What to do").await;
    browser.until_text("start a worker that has the task").await;
    browser.press(thirtyfour::Key::Escape).await;
    until("the fold closes", async || browser.count(".pop[open]").await == 0).await;
}

/// The contrast of all text on the page: the lowest of each kind.
const CONTRAST: &str = r"
    const parse = text => (text.match(/[\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => {
      const part = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
      return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const ground = e => {
      for (; e; e = e.parentElement) {
        const colour = parse(getComputedStyle(e).backgroundColor);
        if (colour.length === 3 || colour[3] === 1) return colour;
      }
      return [255, 255, 255];
    };
    const least = {};
    for (const e of document.querySelectorAll('body, body *')) {
      const isText = [...e.childNodes].some(one => one.nodeType === 3 && one.textContent.trim());
      const style = getComputedStyle(e);
      if (!isText || e.closest('svg') || e.closest('.skip, .vh') || style.visibility === 'hidden' || !e.getClientRects().length) continue;
      const [one, other] = [light(parse(style.color)), light(ground(e))];
      const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      const kinds = ['muted', 'bad', 'badge', 'danger', 'env', 'note', 'zero', 'sub'].filter(kind => e.closest('.' + kind));
      const kind = e.closest('a') ? 'a' : kinds.length ? kinds.join('.') : e.tagName.toLowerCase();
      if (!(kind in least) || ratio < least[kind][0]) least[kind] = [ratio, e.textContent.trim().slice(0, 60)];
    }
    return least;";

pub async fn text_is_readable_in_light_and_dark(world: Rc<World>) {
    let browser = &world.browser;
    let (site, _) = long_site().await;
    crate::schedules::put(&site, "nightly").await;
    let live = site.app.worker().spawn();
    browser.open(&site.origin).await;
    browser.until_text("parked for a person").await;
    for is_dark in [false, true] {
        browser.dark(is_dark).await;
        let mut seen = Vec::new();
        for path in [
            "/",
            "/workers?all=yes",
            "/schedules",
            "/schedule?task=export&name=nightly",
            "/stalls",
            "/audit?task=export",
            "/server",
            "/task?task=export",
            "/jobs?task=export&state=failed",
            "/jobs?task=export&state=running",
            "/job?task=export&id=ok&values=yes",
            "/nowhere",
            "/zone",
            "/find?q=xpo",
        ] {
            browser.open(&site.at(path)).await;
            let measured = browser.eval(CONTRAST).await;
            for (kind, least) in measured.as_object().unwrap() {
                let ratio = least[0].as_f64().unwrap();
                assert!(ratio >= 4.5, "{path}, dark {is_dark}: {kind} has a contrast of {ratio:.2}: {}", least[1]);
                seen.push(kind.clone());
            }
        }
        // Each kind, wherever it appears.
        for css in ["muted", "bad", "badge", "danger", "note", "zero", "sub"] {
            let script = "const e = document.createElement('p'); e.className = arguments[0]; e.textContent = 'x'; document.querySelector('main').append(e)";
            browser.eval_with(script, vec![json!(css)]).await;
        }
        let measured = browser.eval(CONTRAST).await;
        for kind in ["muted", "bad", "badge", "note", "zero", "a", "h1"] {
            let ratio = measured[kind][0].as_f64().unwrap_or_else(|| panic!("{kind} is not on the page: {measured}"));
            assert!(ratio >= 4.5, "dark {is_dark}: {kind} has {ratio:.2}");
        }
        let body = browser.eval_text("return getComputedStyle(document.body).backgroundColor").await;
        let parts: Vec<u32> =
            body.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).take(3).collect();
        assert!(parts.iter().all(|part| if is_dark { *part < 64 } else { *part > 240 }), "dark {is_dark}: {body}");
        for kind in ["a", "muted", "badge", "note", "zero", "button"] {
            assert!(seen.iter().any(|one| one.split('.').any(|one| one == kind)), "no page shows {kind}: {seen:?}");
        }
    }
    let _ = live.stop().await;
}
