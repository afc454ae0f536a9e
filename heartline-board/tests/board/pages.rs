//! What the pages show, and what can be done with them.

use std::time::{Duration, SystemTime};

use heartline::JobState;
use heartline_board::BoardOptions;

use crate::site::{Site, hidden, until};

#[tokio::test]
async fn a_payload_too_large_for_a_page_is_a_download() {
    let site = Site::new().await;
    let large = "x".repeat(600 * 1024);
    site.export.dispatch(large.clone()).id("large").await.unwrap();
    let job = site.page("/job?task=export&id=large&values=yes").await;
    let url = "/value?task=export&#38;id=large&#38;which=payload";
    assert!(job.contains(&format!("600.0 KiB: too large to show. <a href=\"{url}\" download>")), "{job}");
    let file = site.get("/value?task=export&id=large&which=payload").await;
    assert_eq!((file.status, file.body == format!("\"{large}\"")), (200, true));
    assert_eq!(file.field("content-disposition"), Some("attachment; filename=\"value.json\""));
    assert_eq!(site.get("/value?task=export&id=large&which=result").await.status, 404);
    let redacts = BoardOptions::behind_own_auth().redact(|_, _| "secret".into());
    let site = Site::with(redacts, "").await;
    site.export.dispatch(large.clone()).id("large").await.unwrap();
    assert_eq!(site.get("/value?task=export&id=large&which=payload").await.body, "\"secret\"");
    let site = Site::with(BoardOptions::behind_own_auth().payloads(false), "").await;
    assert_eq!(site.get("/value?task=export&id=large&which=payload").await.status, 403);
}

#[tokio::test]
async fn the_way_from_the_overview_to_a_failed_job_is_all_links() {
    let site = Site::new().await;
    assert!(site.page("/").await.contains("There is no task under this prefix."));
    site.run(&[("ok-1", "x"), ("bad-1", "fail")]).await;
    site.export.dispatch("x".into()).id("waits-1").await.unwrap();
    until("the overview has seen it", async || site.page("/").await.contains("href=\"/task?task=export\"")).await;
    let overview = site.page("/").await;
    assert!(
        overview.contains("</span>export</a>")
            && overview.contains("no live worker has the task; the last one was seen "),
        "{overview}"
    );
    assert!(overview.contains("href=\"/jobs?task=export&amp;state=failed\">1</a>"), "{overview}");

    let task = site.page("/task?task=export").await;
    for part in [
        "3 dispatched, 2 ended, 1 of them failed",
        "no job is held",
        "href=\"/stalls?task=export\"",
        "name=\"code\" value=\"disk\"",
        "<dt>attempts</dt><dd>1</dd>",
    ] {
        assert!(task.contains(part), "{part}: {task}");
    }
    let jobs = site.page("/jobs?task=export&state=failed&code=disk&text=onerror").await;
    assert!(jobs.contains("href=\"/job?task=export&amp;id=bad-1\"") && jobs.contains(">1 job<"), "{jobs}");
    assert!(site.page("/jobs?task=export&state=failed&code=other").await.contains("No job matches."));
    let job = site.page("/job?task=export&id=bad-1").await;
    assert!(job.contains("<dt>state</dt><dd>failed</dd>") && job.contains("task:failed"), "{job}");
    assert!(!job.contains("<pre") && job.contains("id=bad-1&#38;values=yes"), "{job}");
    let job = site.page("/job?task=export&id=bad-1&values=yes").await;
    assert!(job.contains("<h2>Payload</h2>") && job.contains("<pre tabindex=\"0\">&#34;fail&#34;</pre>"), "{job}");
    assert!(site.page("/workers").await.contains("1 more are gone"));
    assert!(site.page("/workers?all=yes").await.contains("<td>export</td>"));
    let server = site.page("/server").await;
    assert!(server.contains("eviction policy") && server.contains("noeviction"), "{server}");
    assert!(server.contains("<td>payload</td>") && server.contains(" B</td>"), "{server}");
    let audit = site.page("/audit?task=export").await;
    assert!(audit.contains("Bytes by column") && audit.contains("<td>payload</td>"), "{audit}");
    assert!(site.page("/stalls?task=export").await.contains("There are no stalls."));
    for (path, status) in [
        ("/job?task=export&id=nobody", 404),
        ("/nowhere", 404),
        ("/stalls?task=exprt", 404),
        ("/audit?task=exprt", 404),
        ("/jobs?task=export&state=done", 400),
        ("/jobs?task=export&older=soon", 400),
        ("/jobs?task=a%20b", 400),
        ("/jobs?task=export&cursor=x", 400),
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.body.contains("<h1>"), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn the_overview_shows_why_jobs_fail_and_how_long_runs_take() {
    let site = Site::of_one_table().await;
    site.run(&[("a", "fail"), ("b", "fail"), ("ok", "x")]).await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let minute = now / 60_000 % 1_440;
    let mut recorded = redis::cmd("HSET");
    recorded.arg("board:{export}:series").arg(format!("m{minute}")).arg(format!("{now} 3 3 2"));
    recorded.arg(format!("m{minute}d")).arg("r20 3");
    let () = recorded.query_async(&mut site.raw().await).await.unwrap();
    until("the task is listed", async || site.page("/").await.contains("/task?task=export")).await;
    let page = site.page("/").await;
    let code =
        "href=\"/jobs?task=export&amp;state=failed&amp;code=disk\"><span class=\"code\">disk</span></a> 2 since <time";
    for part in ["Of the last 2 failed jobs:", code, ">Run p95</th>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let ran = page.split("<td class=\"num hide-s hide-m\">").nth(1).unwrap().split('<').next().unwrap();
    assert!(ran.ends_with('s'), "{ran:?}: {page}");
    // Of more jobs than are read, the first is not known.
    let _ = site.export.dispatch_many(vec!["fail".to_owned(); 199]).await.unwrap();
    let worker = site.worker();
    until("all failed", async || site.export.counts().await.unwrap().failed == 201).await;
    let _ = worker.stop().await.unwrap();
    assert!(site.post("/act", &[("act", "resume"), ("task", "export")]).await.status < 400);
    let page = site.page("/").await;
    let code = "<span class=\"code\">disk</span></a> 200</span>";
    assert!(page.contains("Of the last 200 failed jobs:") && page.contains(code), "{page}");
}

#[tokio::test]
async fn pages_follow_each_other_and_every_id_links_to_its_job() {
    let site = Site::new().await;
    let odd = ["..", "a/b?c#d", "d~/w/3/1", "a&b=c", "%41", "\"><script>", "'"];
    for id in odd {
        site.export.dispatch("x".into()).id(id).await.unwrap();
    }
    site.export.dispatch_many((0..120).map(|_| "x".to_owned())).await.unwrap();
    let (mut path, mut ids) = ("/jobs?task=export&state=waiting".to_owned(), Vec::new());
    loop {
        let page = site.page(&path).await;
        assert!(!page.contains("\"><script>"), "{page}");
        let links =
            page.split("href=\"/job?").skip(1).map(|link| link.split('"').next().unwrap().replace("&amp;", "&"));
        ids.extend(links);
        let Some(next) = page.split("rel=\"next\" href=\"").nth(1) else { break };
        path = next.split('"').next().unwrap().replace("&amp;", "&").replace("&#38;", "&");
    }
    assert_eq!(ids.len(), 120 + odd.len());
    for link in &ids[..odd.len()] {
        let page = site.page(&format!("/job?{link}")).await;
        assert!(page.contains("<dt>state</dt><dd>waiting</dd>"), "{link}: {page}");
    }
}

#[tokio::test]
async fn actions_that_cannot_be_undone_ask_first() {
    let site = Site::new().await;
    site.run(&[("a", "fail"), ("b", "fail")]).await;
    let done = site.post("/act", &[("act", "retry"), ("task", "export"), ("id", "a")]).await;
    assert!(done.status == 200 && done.body.contains("1 run again, 0 refused"), "{done:?}");
    assert!(
        done.body.contains("href=\"/job?task=export&amp;id=a\">Back") || done.body.contains("id=a\">Back"),
        "{done:?}"
    );
    assert_eq!(site.export.job("a").await.unwrap().state, JobState::Waiting);

    let remove = [("act", "remove"), ("task", "export"), ("state", "failed"), ("code", "disk")];
    let asked = site.post("/act", &remove).await;
    assert!(
        asked.body.contains("1 failed job of export, with the code disk. Jobs that match")
            && asked.body.contains("name=\"confirmed\""),
        "{asked:?}"
    );
    assert_eq!(site.export.job("b").await.unwrap().state, JobState::Failed, "it was asked about");
    let done = site.post("/act", &[&remove[..], &[("confirmed", "yes")]].concat()).await;
    assert!(done.body.contains("1 removed, 0 refused"), "{done:?}");
    assert!(site.app.inspector().job("export", "b", heartline::JobValues::None).await.unwrap().is_none());

    let cancel = [("act", "cancel"), ("task", "export"), ("id", "a"), ("confirmed", "yes")];
    assert!(site.post("/act", &cancel).await.body.contains("1 cancelled"));
    assert!(site.post("/act", &cancel).await.body.contains("a: it is cancelled"), "why it was refused");
    let events = site.app.inspector().job_events("export", "a").await.unwrap();
    assert!(serde_json::to_string(&events).unwrap().contains(r#""by":"board""#), "{events:?}");

    // Another person retries it before this one confirms.
    let page = site.page("/job?task=export&id=a").await;
    assert!(page.contains("name=\"state\" value=\"cancelled\""), "{page}");
    let remove = [("act", "remove"), ("task", "export"), ("id", "a"), ("state", "cancelled")];
    let asked = site.post("/act", &remove).await;
    assert!(asked.body.contains("a of export, which is cancelled."), "{asked:?}");
    site.app.inspector().retry("export", "a").await.unwrap();
    let done = site.post("/act", &[&remove[..], &[("confirmed", "yes")]].concat()).await;
    assert!(done.body.contains("0 removed, 1 refused") && done.body.contains("it changed meanwhile"), "{done:?}");
    assert_eq!(site.export.job("a").await.unwrap().state, JobState::Waiting);
    let fail = site.post("/act", &[("act", "fail_running"), ("task", "export"), ("id", "a")]).await;
    assert!(fail.status == 400 && fail.body.contains("No worker holds it: it is waiting."), "{fail:?}");

    // A job with a generated id is removed.
    let own = site.export.dispatch("x".into()).await.unwrap().id().to_string();
    let remove = [("act", "remove"), ("task", "export"), ("id", own.as_str()), ("state", "waiting")];
    let asked = site.post("/act", &remove).await.body;
    let confirmed = [("dispatched", hidden(&asked, "dispatched")), ("confirmed", "yes")];
    assert!(site.post("/act", &[&remove[..], &confirmed].concat()).await.body.contains("1 removed, 0 refused"));

    // A new job with the same id is not removed.
    let remove = [("act", "remove"), ("task", "export"), ("id", "a"), ("state", "waiting")];
    let asked = site.post("/act", &remove).await.body;
    site.app.inspector().remove("export", "a").await.unwrap();
    let now = SystemTime::now();
    let passed = async || now.elapsed().is_ok_and(|passed| passed > Duration::from_millis(1));
    until("it is another millisecond", passed).await;
    site.export.dispatch("other".into()).id("a").await.unwrap();
    let confirmed = [("dispatched", hidden(&asked, "dispatched")), ("confirmed", "yes")];
    let done = site.post("/act", &[&remove[..], &confirmed].concat()).await;
    assert!(done.body.contains("0 removed, 1 refused") && done.body.contains("it changed meanwhile"), "{done:?}");

    // A job that was shown as waiting and has ended since is not cancelled.
    site.app.inspector().cancel("export", "a", "").await.unwrap();
    let cancel = [("act", "cancel"), ("task", "export"), ("id", "a"), ("state", "waiting"), ("confirmed", "yes")];
    assert!(site.post("/act", &cancel).await.body.contains("a: it changed meanwhile"));
    site.app.inspector().retry("export", "a").await.unwrap();

    let pause = site.post("/act", &[("act", "pause"), ("task", "export"), ("reason", "<b>full</b>")]).await;
    assert!(pause.body.contains("export is paused"), "{pause:?}");
    let task = site.page("/task?task=export").await;
    assert!(task.contains("Paused by board since") && task.contains("&#60;b&#62;full"), "{task}");
    assert!(site.post("/act", &[("act", "resume"), ("task", "export")]).await.body.contains("export is resumed."));
    assert_eq!(site.post("/act", &[("act", "explode"), ("task", "export")]).await.status, 400);
    assert_eq!(site.post("/act", &[("act", "remove"), ("task", "export"), ("state", "x")]).await.status, 400);
}

#[tokio::test]
async fn a_production_board_asks_a_person_to_type_its_name() {
    let site = Site::with(BoardOptions::behind_own_auth().name("shop-eu").production(), "").await;
    site.damaged(&["HSET meta declaredAt 1"]).await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    assert!(site.page("/").await.contains("PRODUCTION"));
    let cancel = [("act", "cancel"), ("task", "export"), ("id", "a")];
    let asked = site.post("/act", &cancel).await;
    assert!(asked.body.contains("Type shop-eu to continue") && !asked.body.contains("value=\"yes\""), "{asked:?}");
    for typed in ["yes", "shop"] {
        let asked = site.post("/act", &[&cancel[..], &[("confirmed", typed)]].concat()).await;
        assert!(asked.body.contains("The name is wrong. Nothing was done."), "{asked:?}");
    }
    assert_eq!(site.export.job("a").await.unwrap().state, JobState::Waiting);
    let done = site.post("/act", &[&cancel[..], &[("confirmed", " shop-eu ")]].concat()).await;
    assert!(done.body.contains("1 cancelled"), "{done:?}");
    // A retry asks for confirmation, but an action that its opposite undoes does not.
    assert!(site.post("/act", &[("act", "pause"), ("task", "export")]).await.body.contains("export is paused"));
    let retry = site.post("/act", &[("act", "retry"), ("task", "export"), ("id", "a")]).await;
    assert!(retry.body.contains("Type shop-eu to continue"), "{retry:?}");
}

#[tokio::test]
async fn a_retry_of_a_job_that_killed_workers_asks_first() {
    let site = Site::of_one_table().await;
    for id in ["bad", "other"] {
        site.export.dispatch("x".into()).id(id).await.unwrap();
    }
    site.damaged(&[
        "LREM wait 0 bad",
        "ZADD failed 1700000000000 bad",
        r#"HSET error bad {"code":"worker_crashed","message":"its_workers_died"}"#,
        "HSET stalledCount bad 2",
    ])
    .await;
    let retry = [("act", "retry"), ("task", "export"), ("id", "bad"), ("state", "failed")];
    let asked = site.post("/act", &retry).await;
    assert!(
        asked.body.contains("It failed because 2 workers died or hung with it, and it may kill workers again."),
        "{asked:?}"
    );
    let many = site.post("/act", &[("act", "retry"), ("task", "export"), ("state", "failed")]).await;
    assert!(many.body.contains("1 of them failed because their workers died"), "{many:?}");
    assert_eq!(site.export.job("bad").await.unwrap().state, JobState::Failed);
    let done = site.post("/act", &[&retry[..], &[("confirmed", "yes")]].concat()).await;
    assert!(done.body.contains("1 run again"), "{done:?}");
}

#[tokio::test]
async fn declaring_an_unreadable_worker_dead_shows_a_warning() {
    let site = Site::of_one_table().await;
    let (id, now) = ("odd-1-00000000", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let () = redis::pipe()
        .zadd("board:workers", id, now.as_millis() as u64)
        .set(format!("board:worker:{id}"), "x")
        .query_async(&mut site.raw().await)
        .await
        .unwrap();
    let asked = site.post("/act", &[("act", "recover_worker"), ("worker", id)]).await.body;
    assert!(asked.contains("Its presence is unreadable. IT IS MOST LIKELY ALIVE"), "{asked}");
    assert!(!asked.contains(" on  is"), "{asked}");
}

#[tokio::test]
async fn a_job_in_no_list_is_shown_with_the_command_to_find_it() {
    let site = Site::of_one_table().await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    assert!(!site.page("/job?task=export&id=a").await.contains("in no list or set"));
    site.damaged(&["LREM wait 0 a"]).await;
    let page = site.page("/job?task=export&id=a").await;
    // The command is complete, so it can be pasted anywhere.
    assert!(
        page.contains("1 job in no list or set")
            && page.contains("<code>heartline --redis redis://")
            && page.contains(" --prefix board audit -t export</code>"),
        "{page}"
    );
    site.damaged(&["SET wait x"]).await;
    let page = site.page("/job?task=export&id=a").await;
    assert!(page.contains("The task cannot be read") && page.contains("audit -t export</code>"), "{page}");
    let overview = site.page("/").await;
    assert!(
        overview.contains("Do not stop workers before") && overview.contains("audit -t export</code>"),
        "{overview}"
    );
}

#[tokio::test]
async fn the_page_of_a_task_shows_its_problems_even_wrong_types() {
    let site = Site::of_one_table().await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    let page = site.page("/task?task=export").await;
    assert!(page.contains("1 job waiting, and no live worker has the task"), "{page}");
    assert!(!page.contains("recover sweep"), "nothing is held: {page}");
    site.damaged(&["ZADD delayed 999999999999999 far", "HSET payload far 1"]).await;
    assert!(site.page("/job?task=export&id=far").await.contains("999999999999999 ms since 1970"));
    assert!(site.page("/task?task=export").await.contains("999999999999999 ms since 1970"));
    site.damaged(&["DEL cancelled", "SET cancelled x"]).await;
    let page = site.get("/task?task=export").await;
    assert!(page.body.contains("board:{export}:cancelled is a string and should be a zset"), "{page:?}");
    let told = async || site.page("/stalls").await.contains("The recent stalls of export cannot be read now.");
    until("its stalls are shown as unreadable", told).await;
    assert!(site.page("/audit").await.contains("unknown: the task cannot be read now"));
}

#[tokio::test]
async fn an_unreachable_server_is_a_page_and_not_a_crash() {
    let mut site = Site::new().await;
    site.export.dispatch("x".into()).await.unwrap();
    site.server().kill();
    until("it is missed", async || site.get("/server").await.status == 503).await;
    assert!(site.get("/jobs?task=export&state=failed").await.body.contains("Redis does not answer"));
    site.server().restart().unwrap();
    until("it is back", async || site.get("/server").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_of_a_job_are_read_once_until_they_change() {
    let site = Site::new().await;
    site.damaged(&["HSET meta declaredAt 1"]).await;
    site.export.dispatch("x".into()).id("job-1").delay(Duration::from_secs(3600)).await.unwrap();
    let (job, stalls) = ("/job?task=export&id=job-1", "/stalls?task=export");
    assert!(site.page(job).await.contains("task:dispatched"));
    site.page(stalls).await;
    let looks = site.commands("xrange").await;
    for _ in 0..5 {
        assert!(site.page(job).await.contains("task:dispatched"));
        site.page(stalls).await;
    }
    assert_eq!(site.commands("xrange").await, looks);
    site.export.handle("job-1").unwrap().cancel("no more").await.unwrap();
    assert!(site.page(job).await.contains("task:cancelled"));
}
