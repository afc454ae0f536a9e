//! Pages of lanes: the keys of a task, and one key with its limits and its actions.

use heartline::Limit;
use heartline_board::BoardOptions;

use crate::site::{Answer, Site, until};

/// A site whose task has two jobs of the key `acme <1>` and one of `globex`.
async fn with_keys(options: BoardOptions) -> Site {
    let site = Site::with(options, "").await;
    for key in ["acme <1>", "acme <1>", "globex"] {
        let _ = site.export.dispatch("x".into()).key(key).await.unwrap();
    }
    until("the task is listed", async || site.page("/").await.contains("/task?task=export")).await;
    site
}

async fn act(site: &Site, act: &str, more: &[(&str, &str)]) -> Answer {
    let form = [("act", act), ("task", "export"), ("key", "acme <1>")];
    site.post("/act", &[&form[..], more].concat()).await
}

const LANE: &str = "/lane?task=export&key=acme%20%3C1%3E";

#[tokio::test]
async fn links_lead_to_a_key_and_its_jobs() {
    let site = with_keys(BoardOptions::behind_own_auth()).await;
    assert!(site.page("/task?task=export").await.contains("href=\"/lanes?task=export\""));
    let page = site.page("/lanes?task=export").await;
    let row = "key=acme%20%3C1%3E\">acme &#60;1&#62;</a></th><td>ready</td><td class=\"num\" data-l=\"Waiting\">2</td>";
    assert!(page.contains(">2 ready</a>") && page.contains(row) && !page.contains("<1>"), "{page}");
    let full = site.page("/lanes?task=export&state=full").await;
    assert!(full.contains("No key has waiting jobs in this state."), "{full}");
    let page = site.page(LANE).await;
    for part in ["<dt>Waiting</dt><dd>2</dd>", "acme &#60;1&#62; is next in turn", "value=\"lane_pause\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let job = site.export.dispatch("x".into()).key("globex").await.unwrap();
    let page = site.page(&format!("/job?task=export&id={}", job.id())).await;
    assert!(page.contains("href=\"/lane?task=export&amp;key=globex\">globex</a>"), "{page}");
    for (path, status) in [("/lanes?task=exprt", 404), ("/lane?task=export&key=", 400)] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_key_can_be_paused_limited_and_reset() {
    let site = with_keys(BoardOptions::behind_own_auth()).await;
    assert!(act(&site, "lane_pause", &[]).await.body.contains("acme &#60;1&#62; is paused: "));
    let page = site.page(LANE).await;
    assert!(page.contains("is paused since") && page.contains("value=\"lane_resume\""), "{page}");
    assert!(act(&site, "lane_resume", &[]).await.body.contains("is resumed."));
    let limits = [("running", "2"), ("starts", "60"), ("window", "1m"), ("weight", "3")];
    assert!(act(&site, "lane_set", &limits).await.body.contains("has 2 running, 60 in 1m, weight 3."));
    let page = site.page(LANE).await;
    for part in ["value=\"2\"", "value=\"60\"", "value=\"1m\"", "value=\"3\"", "<dd>2 running, 60 in 1m, weight 3</dd>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(site.page("/lanes?task=export").await.contains("Settings of their own"));
    for (wrong, said) in [
        ([("running", "two"), ("weight", "1")], "must be a whole number"),
        ([("starts", "5"), ("window", "x")], "is not a time span"),
        ([("running", "0"), ("weight", "1")], "must be"),
    ] {
        let answer = act(&site, "lane_set", &wrong).await;
        assert!(answer.body.contains(said), "{said}: {answer:?}");
    }
    assert!(act(&site, "lane_reset", &[]).await.body.contains("has no settings of its own any more."));
    assert_eq!(site.export.lanes().with_settings(9).await.unwrap().len(), 0);
    let long = site.post("/act", &[("act", "lane_pause"), ("task", "export"), ("key", &"n".repeat(600))]).await;
    assert!(long.status == 400 && long.body.contains("the key is too long"), "{long:?}");
}

#[tokio::test]
async fn a_paused_key_is_not_counted_as_full() {
    let site = with_keys(BoardOptions::behind_own_auth()).await;
    assert!(act(&site, "lane_pause", &[]).await.status == 200);
    // The next claim finds it paused.
    let worker = site.worker();
    until("it is counted", async || site.page("/lanes?task=export").await.contains(">1 paused</a>")).await;
    let page = site.page("/lanes?task=export").await;
    assert!(page.contains(">0 ready</a>") && page.contains("paused since") && !page.contains(" full</a>"), "{page}");
    let task = site.page("/task?task=export").await;
    assert!(task.contains("0 in turn, 0 resting, 1 full or paused"), "{task}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_read_only_board_shows_keys_and_changes_none() {
    let site = with_keys(BoardOptions::behind_own_auth().read_only()).await;
    site.export.lanes().set("acme <1>", Limit::new().running(1)).await.unwrap();
    let page = site.page(LANE).await;
    assert!(page.contains("<dd>1 running</dd>") && !page.contains("value=\"lane_"), "{page}");
    assert_eq!(act(&site, "lane_reset", &[]).await.status, 403);
}
