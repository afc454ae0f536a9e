//! Pages of schedules: all of them, those of a task, and one with its ticks and its actions.

use std::time::Duration;

use heartline::Schedule;
use heartline_board::BoardOptions;

use crate::site::{Answer, Site, until};

async fn put(site: &Site, name: &str, schedule: Schedule) {
    let _ = site.export.schedules().put(name, schedule, "x".to_owned()).await.unwrap();
}

/// A schedule that has no tick during a test.
fn rare() -> Schedule {
    Schedule::every(Duration::from_secs(10 * 365 * 24 * 3600))
}

/// Lists the task by a job that does not run.
async fn list(site: &Site) {
    let _ = site.export.dispatch("x".into()).delay(Duration::from_secs(3600)).await.unwrap();
    until("the task is listed", async || site.page("/").await.contains("/task?task=export")).await;
}

/// A site whose task is listed and has a schedule `nightly`.
async fn with_nightly(options: BoardOptions) -> Site {
    let site = Site::with(options, "").await;
    list(&site).await;
    put(&site, "nightly", rare()).await;
    site
}

async fn act(site: &Site, act: &str, name: &str, more: &[(&str, &str)]) -> Answer {
    let form = [("act", act), ("task", "export"), ("schedule", name)];
    site.post("/act", &[&form[..], more].concat()).await
}

const NIGHTLY: &str = "/schedule?task=export&name=nightly";

#[tokio::test]
async fn links_lead_from_every_page_to_a_schedule() {
    let site = Site::new().await;
    list(&site).await;
    assert!(site.page("/task?task=export").await.contains("href=\"/schedules?task=export\""));
    let none = site.page("/schedules").await;
    assert!(
        none.contains("href=\"/schedules\" data-key=\"c\" title=\"Key c\" aria-current=\"page\"")
            && none.contains("There are no schedules."),
        "{none}"
    );
    let nightly = Schedule::cron("30 2 * * *").unwrap().tz("Europe/Berlin").unwrap();
    put(&site, "nightly", nightly).await;
    put(&site, "rare", rare()).await;
    until("both are listed", async || site.page("/schedules").await.contains("name=rare")).await;
    for path in ["/schedules", "/schedules?task=export"] {
        let page = site.page(path).await;
        for part in [
            "<td class=\"num\" data-l=\"Schedules\">2</td>",
            "no live worker",
            "href=\"/schedules?task=export\">export</a>",
            "href=\"/schedule?task=export&amp;name=nightly\">nightly</a>",
            "30 2 * * * Europe/Berlin",
            "<span class=\"sub\">0 fired</span>",
            "value=\"schedule_run\">Run now</button>",
        ] {
            assert!(page.contains(part), "{path}: {part}: {page}");
        }
        // The next tick comes first, and 2:30 is at most a day away.
        assert!(page.find("name=nightly") < page.find("name=rare"), "{page}");
    }
    let page = site.page(NIGHTLY).await;
    for part in [
        "<h1>nightly</h1>",
        "<dd>30 2 * * * Europe/Berlin</dd>",
        "<dd>0 fired, 0 overlapped, 0 missed, 0 paused; 0 by hand</dd>",
        "<dt>While its job is not done</dt><dd>skip</dd>",
        "<dt>Declared</dt><dd>at run time by ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for (path, status) in [
        ("/schedules?task=exprt", 404),
        ("/schedules?task=a%20b", 400),
        ("/schedule?task=exprt&name=nightly", 404),
        ("/schedule?task=export&name=nobody", 404),
    ] {
        let answer = site.get(path).await;
        assert_eq!((answer.status, answer.body.contains("<h1>")), (status, true), "{path}: {answer:?}");
    }
    let evil = site.get("/schedule?task=export&name=%3Cscript%3E").await;
    assert!([400, 404].contains(&evil.status) && !evil.body.contains("<script>"), "{evil:?}");
}

#[tokio::test]
async fn a_schedule_can_be_run_paused_and_resumed() {
    let site = with_nightly(BoardOptions::behind_own_auth()).await;
    let done = act(&site, "schedule_run", "nightly", &[]).await;
    assert!(done.body.contains("The job nightly@") && done.body.contains("name=nightly\">Back"), "{done:?}");
    assert_eq!(site.export.counts().await.unwrap().waiting, 1);
    let page = site.page(NIGHTLY).await;
    for part in ["0 paused; 1 by hand", "href=\"/job?task=export&amp;id=nightly%40", "class=\"by_hand\"", ", waiting"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let done = act(&site, "schedule_pause", "nightly", &[("reason", "<b>full</b>")]).await;
    assert!(done.body.contains("nightly is paused"), "{done:?}");
    assert!(act(&site, "schedule_pause", "nightly", &[]).await.body.contains("nightly was already paused."));
    let page = site.page(NIGHTLY).await;
    assert!(page.contains("Paused by board since") && page.contains("&#60;b&#62;full"), "{page}");
    assert!(page.contains("value=\"schedule_resume\"") && !page.contains("value=\"schedule_pause\""), "{page}");
    // The list is read again after an action.
    assert!(site.page("/schedules").await.contains("</svg>paused</span>"));
    assert!(act(&site, "schedule_resume", "nightly", &[]).await.body.contains("nightly is resumed."));
    assert!(act(&site, "schedule_resume", "nightly", &[]).await.body.contains("nightly was not paused."));
    assert!(!site.page("/schedules").await.contains("</svg>paused</span>"));
    for name in ["schedule_run", "schedule_pause", "schedule_resume"] {
        let answer = act(&site, name, "nobody", &[]).await;
        assert!(answer.body.contains("There is no schedule nobody of export."), "{answer:?}");
    }
    let typo = site.post("/act", &[("act", "schedule_run"), ("task", "exprt"), ("schedule", "nightly")]).await;
    assert_eq!(typo.status, 404, "{typo:?}");
    let long = act(&site, "schedule_run", &"n".repeat(600), &[]).await;
    assert!(long.status == 400 && long.body.contains("the schedule is too long"), "{long:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ticks_that_a_worker_fires_are_bars() {
    let site = Site::new().await;
    let worker = site.app.worker().spawn();
    put(&site, "poll", Schedule::every(Duration::from_secs(1))).await;
    let poll = "/schedule?task=export&name=poll";
    until("a tick has fired", async || {
        let page = site.get(poll).await.body;
        page.contains("<rect class=\"fired\"") && page.contains("<dt>Late by</dt>") && page.contains(", completed")
    })
    .await;
    until("the totals follow", async || {
        let page = site.page("/schedules").await;
        // The legend has one bar.
        page.matches("<rect class=\"fired\"").count() > 1 && page.contains("1 live")
    })
    .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_unreadable_schedule_does_not_hide_the_others() {
    let site = Site::of_one_table().await;
    list(&site).await;
    put(&site, "nightly", rare()).await;
    site.damaged(&["HSET schedules:rule broken nothing"]).await;
    let list = site.page("/schedules?task=export").await;
    assert!(list.contains("name=broken") && list.contains("name=nightly"), "{list}");
    assert!(list.find("name=broken") < list.find("name=nightly"), "what is wrong comes first: {list}");
    let page = site.page("/schedule?task=export&name=broken").await;
    assert!(page.contains("It cannot be read and does not run: ") && !page.contains("name=\"act\""), "{page}");
}

#[tokio::test]
async fn a_page_has_200_schedules_and_a_name_opens_any() {
    let site = Site::new().await;
    list(&site).await;
    for at in 0..203 {
        put(&site, &format!("tenant-{at}"), rare()).await;
    }
    let page = site.page("/schedules?task=export").await;
    assert_eq!(page.matches("<a class=\"row\"").count(), 200);
    assert!(
        page.contains("<td class=\"num\" data-l=\"Schedules\">203</td>") && page.contains("3 more are not shown."),
        "{page}"
    );
    // Spaces around a name that was pasted do no harm.
    for at in [0, 101, 202] {
        let one = site.page(&format!("/schedule?task=export&name=+tenant-{at}+")).await;
        assert!(one.contains(&format!("<h1>tenant-{at}</h1>")), "{one}");
    }
}

#[tokio::test]
async fn actions_on_schedules_follow_the_role_and_production() {
    let options = BoardOptions::behind_own_auth().allow(|_, act| act != "schedule_run" && act != "schedule_pause");
    let site = with_nightly(options).await;
    assert!(!site.page(NIGHTLY).await.contains("name=\"act\""));
    let run = act(&site, "schedule_run", "nightly", &[]).await;
    assert!(run.status == 403 && run.body.contains("You may not do this"), "{run:?}");
    let site = with_nightly(BoardOptions::behind_own_auth().read_only()).await;
    assert!(!site.page(NIGHTLY).await.contains("method=\"post\""));
    assert_eq!(act(&site, "schedule_resume", "nightly", &[]).await.status, 403);
    let site = with_nightly(BoardOptions::behind_own_auth().name("shop-eu").production()).await;
    // What its opposite undoes needs no confirmation.
    assert!(act(&site, "schedule_pause", "nightly", &[]).await.body.contains("nightly is paused"));
    let asked = act(&site, "schedule_run", "nightly", &[]).await;
    for part in ["Type shop-eu to continue", "nightly of export. A job is dispatched now", "value=\"nightly\""] {
        assert!(asked.body.contains(part), "{part}: {asked:?}");
    }
    assert_eq!(site.export.counts().await.unwrap().waiting, 0);
    let done = act(&site, "schedule_run", "nightly", &[("confirmed", "shop-eu")]).await;
    assert!(done.body.contains("The job nightly@"), "{done:?}");
}

#[tokio::test]
async fn a_paused_schedule_is_among_the_troubles() {
    let site = with_nightly(BoardOptions::behind_own_auth()).await;
    until("the task is listed", async || site.page("/").await.contains("/task?task=export")).await;
    let paused = act(&site, "schedule_pause", "nightly", &[("reason", "disk full")]).await;
    assert!(paused.body.contains("nightly is paused"), "{paused:?}");
    let page = site.page("/").await;
    assert!(
        page.contains("The schedule nightly has been paused for ") && page.contains("by board (disk full)."),
        "{page}"
    );
    assert!(page.contains("href=\"/schedule?task=export&#38;name=nightly\">Schedule</a>"), "{page}");
    assert!(act(&site, "schedule_resume", "nightly", &[]).await.body.contains("is resumed"));
    let page = site.page("/").await;
    assert!(!page.contains("The schedule nightly paused"), "{page}");
}
