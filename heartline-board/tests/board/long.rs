//! What runs in the background: audits, repairs, actions on many jobs; and what each role may do and see.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heartline::{Context, JobError, JobFilter, JobState, TaskOptions};
use heartline_board::BoardOptions;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::site::{Site, hidden, until};

#[tokio::test]
async fn an_audit_can_be_run_noted_previewed_and_repaired() {
    let site = Site::of_one_table().await;
    site.run(&[("a", "x")]).await;
    until("it is listed", async || site.page("/audit").await.contains("/audit?task=export")).await;
    assert!(site.page("/audit").await.contains("<td class=\"nowrap\">never</td>"));
    let task = ("task", "export");
    assert!(
        site.post("/act", &[("act", "repair"), task, ("confirmed", "yes")])
            .await
            .body
            .contains("Audit the task first.")
    );
    assert!(site.post("/act", &[("act", "audit"), task]).await.body.contains("Nothing is wrong."));
    assert!(site.page("/audit?task=export").await.contains("nothing is wrong"));
    site.damage("payload", "lost-<b>1").await;
    let done = site.post("/act", &[("act", "audit"), task]).await;
    assert!(done.body.contains("1 fault found."), "{done:?}");
    let page = site.page("/audit?task=export").await;
    assert!(page.contains("1 unplaced") && page.contains("lost-&#60;b&#62;1") && page.contains("RUNS AGAIN"), "{page}");
    let preview = site.post("/act", &[("act", "preview"), task]).await;
    assert!(preview.body.contains("1 fault would be repaired"), "{preview:?}");
    assert!(
        site.post("/act", &[("act", "repair"), task]).await.body.contains("1 fault of export; 1 job RUNS AGAIN"),
        "the repair asks first"
    );
    let done = site.post("/act", &[("act", "repair"), task, ("confirmed", "yes")]).await;
    assert!(done.body.contains("1 fault repaired, 0 no longer present"), "{done:?}");
    assert_eq!(site.export.counts().await.unwrap().waiting, 1);
    assert!(site.post("/act", &[("act", "audit"), task]).await.body.contains("Nothing is wrong."));
}

#[tokio::test]
async fn a_repair_changes_only_what_its_own_audit_found() {
    let site = Site::of_one_table().await;
    site.run(&[("a", "x")]).await;
    let (audit, repair) = ([("act", "audit"), ("task", "export")], [("act", "repair"), ("task", "export")]);
    assert!(site.post("/act", &repair).await.body.contains("Audit the task first."), "nothing is known yet");
    site.damage("payload", "lost-1").await;
    site.post("/act", &audit).await;
    let asked = site.post("/act", &repair).await.body;
    assert!(asked.contains("1 fault of export; 1 job RUNS AGAIN"), "{asked}");
    let as_of = hidden(&asked, "as_of");
    let confirmed = [&repair[..], &[("as_of", as_of), ("confirmed", "yes")]].concat();
    let page = site.page("/audit?task=export").await;
    let pressed = [("task", "export"), ("as_of", hidden(&page, "as_of"))];
    site.damage("payload", "lost-2").await;
    site.post("/act", &audit).await;
    for act in ["preview", "repair"] {
        let told = site.post("/act", &[&pressed[..], &[("act", act)]].concat()).await.body;
        assert!(told.contains("The task was audited again, and nothing was done."), "{act}: {told}");
    }
    let done = site.post("/act", &confirmed).await;
    assert!(done.body.contains("The task was audited again, and nothing was done."), "{done:?}");
    assert_eq!(site.export.counts().await.unwrap().waiting, 0);
    let asked = site.post("/act", &repair).await.body;
    assert!(asked.contains("2 faults of export; 2 jobs RUN AGAIN"), "{asked}");
    let as_of = hidden(&asked, "as_of");
    let confirmed = [&repair[..], &[("as_of", as_of), ("confirmed", "yes")]].concat();
    let done = site.post("/act", &confirmed).await;
    assert!(done.body.contains("2 faults repaired"), "{done:?}");
    assert_eq!(site.export.counts().await.unwrap().waiting, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_on_many_jobs_shows_progress_and_can_be_stopped() {
    let site = Site::new().await;
    site.damaged(&["HSET meta declaredAt 1"]).await;
    site.export.dispatch_many((0..30_000).map(|_| "x".to_owned())).await.unwrap();
    let asked = site.post("/act", &[("act", "cancel"), ("task", "export"), ("state", "waiting")]).await;
    assert!(
        asked.body.contains("30000 waiting jobs of export. Jobs that match only later are not included."),
        "{asked:?}"
    );
    let as_of = hidden(&asked.body, "as_of");
    // Jobs that come after the question are not included.
    site.export.dispatch("x".into()).id("later").await.unwrap();
    let form = [("act", "cancel"), ("task", "export"), ("state", "waiting"), ("as_of", as_of), ("confirmed", "yes")];
    // However fast the server is, the action runs until it is stopped.
    site.hold_writes().await;
    let begun = site.post("/act", &form).await;
    let run = begun.field("location").filter(|run| run.starts_with("/run?id=")).unwrap_or_else(|| panic!("{begun:?}"));
    assert_eq!(site.post(run, &[]).await.status, 303);
    site.let_write().await;
    until("it has ended", async || !site.page(run).await.contains(">Stop</button>")).await;
    let page = site.page(run).await;
    assert!(page.contains("cancelled") && page.contains(">Back</a>"), "{page}");
    let done = site.export.counts().await.unwrap().cancelled;
    assert!(done < 30_000 && page.contains("stopped: the other jobs are unchanged"), "{done} {page}");
    // A repeat does the rest of the same jobs.
    let again = site.post("/act", &form).await;
    assert!([200, 303].contains(&again.status), "done at once, or under way: {again:?}");
    until("all is done", async || site.export.counts().await.unwrap().cancelled == 30_000).await;
    if let Some(run) = again.field("location") {
        until("and said so", async || !site.page(run).await.contains(">Stop</button>")).await;
    }
    let left = site.app.inspector().jobs("export", &JobFilter::new(JobState::Waiting), None, 10).await.unwrap();
    assert_eq!(left.jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["later"]);
    assert_eq!(site.get("/run?id=..").await.status, 404);
}

#[tokio::test]
async fn people_see_and_are_offered_only_what_their_role_allows() {
    let options = BoardOptions::behind_own_auth()
        .allow(|head, act| act != "remove" && (act != "cancel" || head.headers.contains_key("x-admin")))
        .redact(|task, mut value| {
            assert_eq!(task, "export");
            value["card"] = Value::from("…");
            value
        });
    let site = Site::with(options, "").await;
    let cards = site.app.task_ref::<Value, u64>("export").unwrap();
    cards.dispatch(serde_json::json!({ "card": "4111", "rows": 3 })).id("a").await.unwrap();
    let job = site.page("/job?task=export&id=a&values=yes").await;
    assert!(
        !job.contains("4111")
            && job.contains("<span class=\"k\">rows</span>: <span class=\"no\">3</span>")
            && !job.contains(">Remove …<"),
        "{job}"
    );
    assert!(!job.contains(">Cancel …<"), "{job}");
    let admin = site.ask("GET", "/job?task=export&id=a", &[("X-Admin", "yes")], "").await;
    assert!(admin.body.contains(">Cancel …<") && !admin.body.contains(">Remove …<"), "{admin:?}");
    let remove = site.post("/act", &[("act", "remove"), ("task", "export"), ("id", "a"), ("confirmed", "yes")]).await;
    assert!(remove.status == 403 && remove.body.contains("You may not do this"), "{remove:?}");
    assert_eq!(site.post("/act", &[("act", "pause"), ("task", "nobody")]).await.status, 404, "a typo makes no task");
    assert!(site.app.inspector().task_names().await.unwrap() == ["export"]);
}

#[tokio::test]
async fn a_layer_may_name_the_actor_of_a_request() {
    #[derive(Clone)]
    struct User(&'static str);
    crate::turn::with_server();
    let test = heartline::testing::TestApp::start_with(|app| app.prefix("board")).await.unwrap();
    let options = BoardOptions::behind_own_auth()
        .by(|head| head.extensions.get::<User>().map_or("nobody", |user| user.0).to_owned())
        .allow(|head, _| head.extensions.get::<User>().is_some());
    let pages = heartline_board::board(test.app().inspector(), options).layer(axum::Extension(User("ada")));
    let site = Site::serving(test, pages).await;
    site.export.dispatch("x".into()).id("a").await.unwrap();
    assert!(site.page("/job?task=export&id=a").await.contains(">Cancel …<"));
    assert_eq!(site.post("/act", &[("act", "pause"), ("task", "export")]).await.status, 200);
    assert_eq!(site.app.inspector().task("export").await.unwrap().paused.unwrap().by, "ada");
}

#[tokio::test]
async fn a_count_is_shared_by_all_pages_and_renewed_after_an_action() {
    let site = Site::of_one_table().await;
    // More than one page shows.
    let ids: Vec<String> = (0..60).map(|at| format!("job-{at}")).collect();
    site.run(&ids.iter().map(|id| (&**id, "fail")).collect::<Vec<_>>()).await;
    let path = "/jobs?task=export&state=failed&code=disk";
    let first = site.page(path).await;
    assert!(first.contains("60 jobs") && first.contains("data-live=\"slow\""), "{first}");
    let before = site.calls().await;
    site.page(path).await;
    let again = site.calls().await - before;
    site.page("/jobs?task=export&state=failed&code=disk&text=onerror").await;
    assert!(site.calls().await - before > 2 * again, "{again} calls, and the count is one of them");
    let remove = [("act", "remove"), ("task", "export"), ("id", "job-0"), ("confirmed", "yes")];
    assert!(site.post("/act", &remove).await.body.contains("1 removed"));
    assert!(site.page(path).await.contains("59 jobs"));
    assert!(site.page("/jobs?task=export&state=failed").await.contains("data-live=\"task\""));
}

#[tokio::test]
async fn a_job_whose_heartbeat_is_not_due_yet_is_running() {
    let site = Site::of_one_table().await;
    let worker = site.worker();
    site.export.dispatch("x".into()).id("a").await.unwrap().result().await.unwrap();
    let id = worker.id().clone();
    // A sweep has just taken its snapshot.
    let (lock, started) = (format!("HSET locks b {id}:3"), format!("XADD events * total 9 worker {id} started b"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let snapshot = format!("HSET meta interval 30000 snapshotAt {now}");
    site.damaged(&["HSET payload b \"x\"", &lock, "SADD candidates b", &started, &snapshot]).await;
    let page = site.page("/job?task=export&id=b").await;
    assert!(page.contains("running</span></td><td class=\"hide-s\"><svg"), "{page}");
    assert!(!page.contains("recover_running"), "{page}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn silent_jobs_are_resolved_and_a_claimed_job_is_requeued() {
    let site = Site::of_one_table().await;
    site.run(&[("a", "x")]).await;
    for id in ["b", "c"] {
        site.export.dispatch("x".into()).id(id).await.unwrap();
    }
    // No live worker holds them; the handler of the second has not begun.
    site.damaged(&[
        "DEL wait",
        "HSET locks b w:3 c w:4",
        "HSET claimed c 4",
        "HSET meta interval 1000 ask 1000",
        "SADD active b c",
        "XADD events * total 9 worker w started b",
    ])
    .await;
    let page = site.page("/task?task=export").await;
    assert!(page.contains(">Resolve silent jobs …</button>"), "{page}");
    let sweep = [("act", "sweep"), ("task", "export")];
    let asked = site.post("/act", &sweep).await.body;
    assert!(asked.contains("Jobs of export that stay silent for a stall interval"), "{asked}");
    assert!(site.page("/job?task=export&id=b").await.contains("running</span></td><td class=\"hide-s\"><svg"));
    let put_back = [("act", "requeue_claimed"), ("task", "export"), ("id", "c")];
    let page = site.page("/job?task=export&id=c").await;
    assert!(page.contains(">Requeue …</button>"), "{page}");
    assert!(site.post("/act", &put_back).await.body.contains("Requeue?"));
    let shown = async |form: &[(&str, &str)], end: &str| {
        let form = [form, &[("confirmed", "yes")]].concat();
        let begun = site.post("/act", &form).await;
        let run = begun.field("location").unwrap_or_else(|| panic!("{begun:?}")).to_owned();
        until(end, async || site.page(&run).await.contains(end)).await;
    };
    shown(&put_back, "1 requeued, 0 refused").await;
    // The snapshot of that sweep has the other one.
    assert!(site.page("/job?task=export&id=b").await.contains("silent</span></td><td class=\"hide-s\"><svg"));
    shown(&sweep, "1 silent job resolved").await;
    assert_eq!(site.export.counts().await.unwrap().waiting, 2);
}

#[tokio::test]
async fn no_form_field_bypasses_a_check_or_fills_the_memory() {
    let site = Site::with(BoardOptions::behind_own_auth().read_only(), "").await;
    site.export.dispatch("x".into()).await.unwrap();
    // The field of the form does not decide the action.
    let tombstone = site.post("/act", &[("act", "audit"), ("task", "tombstone"), ("worker", "x")]).await;
    assert_eq!(tombstone.status, 404, "{tombstone:?}");
    let long = "\u{7f}".repeat(600);
    for field in ["id", "worker", "task"] {
        let answer = site.post("/act", &[("act", "audit"), ("task", "export"), (field, &long)]).await;
        assert!(answer.status == 400 || answer.status == 422, "{field}: {answer:?}");
    }
    let huge = "x".repeat(200_000);
    assert_eq!(site.post("/act", &[("act", "audit"), ("task", "export"), ("reason", &huge)]).await.status, 413);
    let site = Site::new().await;
    site.export.dispatch("x".into()).await.unwrap();
    let pause = site.post("/act", &[("act", "pause"), ("task", "tombstone"), ("worker", "x")]).await;
    assert_eq!((pause.status, site.app.inspector().task_names().await.unwrap().len()), (404, 1), "{pause:?}");
}

#[tokio::test]
async fn a_full_server_is_described_as_it_behaves() {
    let site = Site::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let passed = Arc::clone(&gate);
    let handler = move |ctx: Context, is_strict: bool| {
        let passed = Arc::clone(&passed);
        async move {
            passed.acquire().await?.forget();
            ctx.checkpoint(&1)?;
            if is_strict {
                ctx.checkpoint_now(&1).await?;
            }
            Ok::<_, JobError>(())
        }
    };
    let task = site.app.task("notes", TaskOptions::new(), handler).unwrap();
    let jobs = task.dispatch_many([true, false]).await.unwrap();
    let worker = site.worker();
    until("they run", async || task.counts().await.unwrap().running == 2).await;
    let mut limit = redis::cmd("CONFIG");
    let () = limit.arg("SET").arg("maxmemory").arg(1).query_async(&mut site.raw().await).await.unwrap();
    gate.add_permits(2);
    // The outcomes are recorded: one used its only attempt, since its checkpoint was refused.
    assert!(jobs[0].result().await.is_err());
    jobs[1].result().await.unwrap();
    assert_eq!(task.job(jobs[0].id().as_str()).await.unwrap().failed_attempts, 1);
    let page = site.page("/").await;
    for part in [
        "% of maxmemory is used: dispatches, checkpoints and ticks are refused.",
        "A handler that fails because <code>checkpoint_now</code> is refused uses an attempt",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let _ = worker.stop().await.unwrap();
}
