//! Lists of jobs: selected rows, chips, the order, and times in the zone of a person.

use heartline::{Context, JobError, JobState, TaskOptions};

use crate::site::{Site, hidden, until};

#[tokio::test]
async fn an_action_takes_the_selected_jobs_and_no_others() {
    let site = Site::new().await;
    site.run(&[("a", "fail"), ("b", "fail"), ("c", "fail")]).await;
    let page = site.page("/jobs?task=export&state=failed").await;
    assert!(
        page.contains(
            "<input type=\"checkbox\" autocomplete=\"off\" name=\"pick\" value=\"a\" aria-label=\"Select a\">"
        ),
        "{page}"
    );
    let retry = [("act", "retry"), ("task", "export"), ("state", "failed"), ("pick", "a"), ("pick", "c")];
    let asked = site.post("/act", &retry).await.body;
    assert!(asked.contains("2 selected failed jobs of export: a, c."), "{asked}");
    assert_eq!(asked.matches("name=\"pick\"").count(), 2);
    let confirmed = [("as_of", hidden(&asked, "as_of")), ("confirmed", "yes")];
    let done = site.post("/act", &[&retry[..], &confirmed].concat()).await.body;
    assert!(done.contains("Retry: 2 jobs of export") && done.contains("2 run again, 0 refused"), "{done}");
    for (id, state) in [("a", JobState::Waiting), ("b", JobState::Failed), ("c", JobState::Waiting)] {
        assert_eq!(site.export.job(id).await.unwrap().state, state, "{id}");
    }
    // A job that has changed since it was selected is left alone.
    let remove = [("act", "remove"), ("task", "export"), ("state", "failed"), ("pick", "a"), ("pick", "b")];
    let done = site.post("/act", &[&remove[..], &[("confirmed", "yes")]].concat()).await.body;
    assert!(done.contains("1 removed, 1 refused") && done.contains("a: it changed meanwhile"), "{done}");
    // An action on selected jobs is never one on all that match.
    let none = [("act", "remove"), ("task", "export"), ("state", "failed"), ("selected", "yes")];
    for form in [&none[..], &[&none[..], &[("confirmed", "yes")]].concat()] {
        assert!(site.post("/act", form).await.body.contains("Select at least one job."));
    }
    let many: Vec<(&str, &str)> =
        [("act", "remove"), ("task", "export")].into_iter().chain((0..201).map(|_| ("pick", "a"))).collect();
    assert!(site.post("/act", &many).await.body.contains("the selection is too long"));
}

#[tokio::test]
async fn filters_are_chips_and_the_order_turns() {
    let site = Site::new().await;
    site.run(&[("first", "fail"), ("second", "fail")]).await;
    let page = site.page("/jobs?task=export&state=failed&text=onerror").await;
    assert!(page.contains("aria-label=\"Remove the filter Message contains\""), "{page}");
    let chip = "href=\"/jobs?task=export&#38;state=failed&#38;code=disk&#38;text=onerror\"><span class=\"code\">disk</span>2</a>";
    assert!(page.contains(chip), "{page}");
    let newest = site.page("/jobs?task=export&state=failed").await;
    assert!(newest.find("Select second") < newest.find("Select first"), "{newest}");
    assert!(newest.contains("href=\"/jobs?task=export&#38;state=failed&#38;order=oldest\""), "{newest}");
    let oldest = site.page("/jobs?task=export&state=failed&order=oldest").await;
    assert!(oldest.find("Select first") < oldest.find("Select second"), "{oldest}");
}

#[tokio::test]
async fn times_are_in_the_zone_of_the_person() {
    let site = Site::new().await;
    site.run(&[("a", "fail")]).await;
    let path = "/jobs?task=export&state=failed";
    assert!(site.page(path).await.contains("Times in UTC."));
    let berlin = site.ask("GET", path, &[("Cookie", "heartline_zone=Europe/Berlin")], "").await.body;
    assert!(berlin.contains("Times in Europe/Berlin.") && berlin.contains(" Europe/Berlin · 20"), "{berlin}");
    let set = site.post("/zone", &[("zone", " Asia/Tokyo ")]).await;
    let cookie = set.field("set-cookie").unwrap_or_default();
    assert!(set.status == 303 && cookie.starts_with("heartline_zone=Asia/Tokyo; HttpOnly"), "{set:?}");
    let wrong = site.post("/zone", &[("zone", "<b>")]).await;
    assert!(wrong.status == 400 && wrong.body.contains("There is no time zone &#60;b&#62;."), "{wrong:?}");
}

#[tokio::test]
async fn a_job_shows_its_runs_as_bars_and_its_payload_as_a_tree() {
    let site = Site::new().await;
    site.run(&[("a", "fail")]).await;
    let page = site.page("/job?task=export&id=a&values=yes").await;
    for part in ["<h2>Runs</h2>", "<rect class=\"run\"", "Failed with disk, reported by", "task:failed"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("<svg class=\"bars red\"").count(), 1, "one run, and it failed");
    let cards = site.app.task_ref::<serde_json::Value, u64>("export").unwrap();
    cards.dispatch(serde_json::json!({ "rows": [1, 2] })).id("tree").await.unwrap();
    let page = site.page("/job?task=export&id=tree&values=yes").await;
    let rows = "<details open><summary><span class=\"k\">rows</span>: <span class=\"pun\">[ 2 items ]</span></summary>";
    assert!(page.contains(rows) && !page.contains("<h2>Runs</h2>"), "{page}");
}

#[tokio::test]
async fn the_reason_of_a_stall_is_explained_where_it_is_shown() {
    let site = Site::of_one_table().await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    for stream in ["stalls", "events"] {
        let mut stall = redis::cmd("XADD");
        stall.arg(format!("board:{{export}}:{stream}")).arg("*").arg("total").arg(9).arg("worker").arg("v");
        stall.arg("reason").arg("worker_restarted").arg("stalled").arg("a 1 recovered w");
        let () = stall.query_async(&mut site.raw().await).await.unwrap();
    }
    let means = "worker_restarted (a worker on its host found its process gone, or another worker took its exclusive name while it was silent)";
    for page in ["/stalls", "/job?task=export&id=a"] {
        let shown = site.page(page).await;
        assert!(shown.contains(means), "{page}: {shown}");
    }
    for page in ["/stalls", "/stalls?task=export"] {
        let shown = site.page(page).await;
        assert!(
            shown.contains("<td data-l=\"Now\"><span class=\"badge \">") && shown.contains("</svg>waiting"),
            "{shown}"
        );
    }
    let shown = site.page("/stalls?task=export").await;
    assert!(
        shown.contains("v found its process gone on the same host, or took its exclusive name while it was silent"),
        "{shown}"
    );
    // Open pages share the states until an action.
    site.app.inspector().remove("export", "a").await.unwrap();
    assert!(site.page("/stalls?task=export").await.contains("</svg>waiting"));
    site.post("/act", &[("act", "resume"), ("task", "export")]).await;
    let shown = site.page("/stalls?task=export").await;
    assert!(shown.contains("</svg>removed") && !shown.contains("not read"), "{shown}");
    // The states of the first 1,000 are read.
    let jobs: Vec<String> = (0..1_000).map(|at| format!("job-{at} 1 recovered w")).collect();
    let mut stall = redis::cmd("XADD");
    stall.arg("board:{export}:stalls").arg("*").arg("total").arg(9).arg("worker").arg("v");
    stall.arg("reason").arg("silent").arg("stalled").arg(jobs.join(" "));
    let () = stall.query_async(&mut site.raw().await).await.unwrap();
    let shown = site.page("/stalls?task=export").await;
    assert_eq!((shown.matches("</svg>removed").count(), shown.matches(">not read<").count()), (1_000, 1));
}

#[tokio::test]
async fn running_jobs_of_all_tasks_are_listed_the_longest_first() {
    let site = Site::new().await;
    let page = site.page("/running").await;
    assert!(
        page.contains("data-live=\"slow\"") && page.contains("No job runs.") && page.contains("href=\"/running\""),
        "{page}"
    );
    let handler = |ctx: Context, _: u32| async move {
        ctx.shutting_down().await;
        Ok::<_, JobError>(())
    };
    let options = || TaskOptions::new().concurrency(60);
    let (first, other) =
        (site.app.task("first", options(), handler).unwrap(), site.app.task("other", options(), handler).unwrap());
    let worker = site.worker();
    for id in ["old", "new"] {
        first.dispatch(1).id(id).await.unwrap();
        until("it runs", async || first.job(id).await.unwrap().state == JobState::Running).await;
    }
    // An action clears the cache.
    let read_again = async || {
        site.post("/act", &[("act", "resume"), ("task", "first")]).await;
        site.page("/running").await
    };
    until("both are listed", async || read_again().await.contains("2 jobs</span>")).await;
    let page = site.page("/running").await;
    let at = |id: &str| page.find(&format!("href=\"/job?task=first&amp;id={id}\"")).unwrap_or_else(|| panic!("{page}"));
    assert!(at("old") < at("new"), "{page}");
    for part in ["Held for", &format!(">{}</a>", worker.id()), "data-l=\"Heartbeat\">"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // More than the page shows.
    for task in [&first, &other] {
        let _ = task.dispatch_many(vec![1; 58]).await.unwrap();
    }
    until("it says how many", async || read_again().await.contains("100 of 118 jobs, those held longest")).await;
    assert_eq!(site.page("/running").await.matches("<th scope=\"row\"").count(), 100);
    let _ = worker.stop().await.unwrap();
}
