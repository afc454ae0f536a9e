//! Jobs that wait.

use heartline::JobError;

use super::*;

#[tokio::test]
async fn jobs_without_a_live_worker_are_a_risk() {
    let scene = Scene::waiting(&["a"]).await;
    assert_eq!(scene.kinds().await, ["!no_worker"]);
    assert_eq!(scene.of_job("a").await, ["!no_worker"]);
    let facts = scene.facts("no_worker").await;
    assert_eq!((&facts["waiting"], &facts["last"]), (&1.into(), &Value::Null));
    let worker = scene.worker();
    scene.until_not("!no_worker").await;
    scene.test.journal.open("gate");
    eventually("the job ends", PATIENCE, async || scene.jobs.counts().await.unwrap().completed == 1).await;
    let _ = worker.stop().await.unwrap();
    scene.jobs.dispatch("x".into()).delay(HOUR).await.unwrap();
    assert_eq!(scene.kinds().await, ["?no_worker"]);
    assert_eq!(scene.facts("no_worker").await["delayed"], 1);
    scene.jobs.dispatch("x".into()).await.unwrap();
    assert_eq!(scene.kinds().await, ["?no_worker"], "it has just stopped, as in a deploy");
    let text = scene.diagnoses().await[0].to_string();
    assert!(text.contains("no live worker has the task; the last one was seen "), "{text}");
}

#[tokio::test]
async fn jobs_that_wait_for_their_hook_without_a_worker_are_a_risk() {
    let scene = Scene::waiting(&["a"]).await;
    scene.jobs.handle("a").unwrap().cancel("not needed").await.unwrap();
    assert_eq!(scene.kinds().await, ["!no_worker"]);
    let facts = scene.facts("no_worker").await;
    assert_eq!((&facts["waiting"], &facts["finalizing"]), (&0.into(), &1.into()));
    let found = scene.diagnoses().await;
    let text = found[0].to_string();
    assert!(text.contains("1 job waits for its hook, and no live worker has the task"), "{text}");
}

#[tokio::test]
async fn the_loss_of_the_last_worker_is_a_note() {
    let scene = Scene::idle().await;
    assert_eq!(scene.kinds().await, [""; 0]);
    scene.holds(&[], Duration::ZERO, MINUTE * 3).await;
    assert_eq!(scene.kinds().await, ["?no_worker", "?lost_worker"]);
    let worker = scene.worker();
    scene.until_not("?no_worker").await;
    let _ = worker.stop().await.unwrap();
    assert_eq!(scene.kinds().await, ["?lost_worker"], "a worker that stops after a crash is not lost");
}

#[tokio::test]
async fn slots_that_stay_taken_are_a_note_then_a_risk() {
    let scene = Scene::waiting(&["a", "b", "c"]).await;
    scene.holds(&["a", "b"], MINUTE * 8, Duration::ZERO).await;
    for (waited, claimed, kinds) in [
        (200, 480, &[][..]),
        (500, 480, &["?slots_taken"][..]),
        (500, 2, &["?slots_taken"][..]),
        (2000, 1900, &["!slots_taken"][..]),
    ] {
        scene.waits("c", Duration::from_secs(waited)).await;
        scene.claimed(Duration::from_secs(claimed)).await;
        scene.holds(&["a", "b"], Duration::from_secs(claimed), Duration::ZERO).await;
        assert_eq!(scene.kinds().await, kinds, "{waited} {claimed}");
    }
    assert_eq!(scene.facts("slots_taken").await["slots"], 2);
}

#[tokio::test]
async fn jobs_that_wait_next_to_free_slots_are_a_risk() {
    let scene = Scene::waiting(&["c"]).await.watched().await;
    scene.waits("c", Duration::from_secs(200)).await;
    scene.claimed(Duration::from_secs(5)).await;
    assert_eq!(scene.kinds().await, [""; 0], "a backlog that moves");
    scene.claimed(MINUTE * 2).await;
    assert_eq!(scene.kinds().await, ["!jobs_not_claimed"]);
    // Another task takes all the jobs that the worker may hold.
    scene.presents("tasks", "work mail").await;
    scene.presents("held:mail", "2").await;
    scene.presents("maxJobs", "2").await;
    let mail = scene.app.task_ref::<String, u64>("mail").unwrap();
    mail.dispatch("x".into()).await.unwrap().cancel("no").await.unwrap();
    assert_eq!(scene.kinds().await, [""; 0]);
    scene.waits("c", Duration::from_secs(400)).await;
    assert_eq!(scene.kinds().await, ["?slots_taken"]);
    assert_eq!(scene.facts("slots_taken").await["slots"], Value::Null);
    scene.presents("phase", "stopping").await;
    assert_eq!(scene.kinds().await, ["!no_worker"]);
    assert_eq!(scene.of_job("c").await, ["!no_worker"]);
    assert_eq!(scene.facts("no_worker").await["are_stopping"], true);
    // A quiet worker can claim again, so it is named.
    scene.presents("phase", "working").await;
    scene.presents("quiet", "1 ada").await;
    assert_eq!(scene.kinds().await, ["!no_worker", "?worker_quiet"]);
    assert_eq!(scene.facts("no_worker").await["quiet"], LOST);
}

#[tokio::test]
async fn one_partition_that_is_not_claimed_is_a_risk() {
    let scene = Scene::idle().await;
    let handler = |_: Context, input: String| async move { Ok::<_, JobError>(input) };
    let spread = scene.app.task("spread", TaskOptions::new().partitions(3), handler).unwrap();
    for at in 0..20 {
        spread.dispatch("x".into()).id(format!("job-{at}")).await.unwrap();
    }
    scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
    scene.presents("tasks", "work spread").await;
    scene.presents("slots:spread", "5").await;
    let mut conn = scene.test.conn().await;
    let pattern = format!("{}:{{spread*}}:meta", scene.test.prefix);
    let metas: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut conn).await.unwrap();
    assert_eq!(metas.len(), 3);
    let mut set = async |key: &str, field: &str, value: u64| {
        redis::cmd("HSET").arg(key).arg(field).arg(value).query_async::<()>(&mut conn).await.unwrap();
    };
    let mut ids = scene.test.conn().await;
    for meta in &metas {
        let payloads = meta.replace(":meta", ":payload");
        let ids: Vec<String> = redis::cmd("HKEYS").arg(payloads).query_async(&mut ids).await.unwrap();
        for id in ids {
            set(&meta.replace(":meta", ":enqueuedAt"), &id, ms_ago(Duration::from_secs(200))).await;
        }
        set(meta, "fence", ms_ago(Duration::from_secs(5)) * 1000).await;
    }
    assert_eq!(scene.kinds().await, [""; 0], "a backlog that moves");
    set(&metas[0], "fence", ms_ago(Duration::from_secs(90)) * 1000).await;
    assert_eq!(scene.kinds().await, ["!jobs_not_claimed"]);
    let facts = scene.facts("jobs_not_claimed").await;
    assert_eq!((&facts["stuck"], &facts["partitions"]), (&1.into(), &3.into()));
}

#[tokio::test]
async fn slots_of_runs_that_lost_their_jobs_are_reported() {
    let scene = Scene::waiting(&["a", "b", "c"]).await.watched().await;
    scene.presents("lost:work", "2 1000").await;
    assert_eq!(scene.kinds().await, [""; 0], "they may end within their cancel grace");
    scene.presents("lost:work", "2 90000").await;
    assert_eq!(scene.kinds().await, ["!slots_held_by_lost_runs"]);
    let facts = scene.facts("slots_held_by_lost_runs").await;
    let expected = serde_json::json!({ "waiting": 3, "slots": 2, "workers": [{ "worker": LOST, "slots": 2 }] });
    assert_eq!(facts, expected);
}

#[tokio::test]
async fn a_pause_is_a_risk_while_jobs_wait() {
    let scene = Scene::idle().await;
    scene.inspector.clone().by("ada").pause(TASK, "disk full").await.unwrap();
    assert_eq!(scene.kinds().await, ["?paused"]);
    scene.jobs.dispatch("x".into()).id("a").await.unwrap();
    scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
    assert_eq!(scene.kinds().await, ["!paused"]);
    assert_eq!(scene.of_job("a").await, ["!paused"]);
    let facts = scene.facts("paused").await;
    assert_eq!((&facts["by"], &facts["reason"], &facts["waiting"]), (&"ada".into(), &"disk full".into(), &1.into()));
    assert!(scene.diagnoses().await[0].is_pause());
}

#[tokio::test]
async fn conditions_of_workers_are_reported_by_worker() {
    let scene = Scene::waiting(&["c"]).await;
    let right = "500 redis at redis://host:1 denied permission: NOPERM this user has no permissions";
    let cases = [
        ("watch:work", "1 5000 1000 sweep_refused 500", "!worker_denied"),
        ("flowsDenied", "500 nightly: denied", "!worker_denied"),
        ("denied:work", right, "!worker_denied"),
        ("runtimeSilent", "5000", "!runtime_blocked"),
    ];
    for (field, value, expected) in cases {
        scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
        assert_eq!(scene.kinds().await, [""; 0]);
        scene.presents(field, value).await;
        assert_eq!(scene.kinds().await, [expected], "{field}");
        let () = redis::cmd("DEL").arg(scene.presence(LOST)).query_async(&mut scene.test.conn().await).await.unwrap();
    }
    // What was denied a while ago may be allowed by now.
    scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
    scene.presents("denied:work", &right.replace("500 ", "90000 ")).await;
    assert_eq!(scene.kinds().await, [""; 0]);
    for (said, error) in [("NOPERM no", "no_permission"), ("cannot reach: WRONGPASS bad", "auth")] {
        scene.presents("denied:work", &format!("500 {said}")).await;
        assert_eq!(scene.facts("worker_denied").await["error"], error);
    }
}

#[tokio::test]
async fn slow_heartbeats_of_a_worker_are_reported() {
    let scene = Scene::waiting(&["c"]).await;
    scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
    scene.presents("held:work", "40000").await;
    scene.presents("watch:work", "1 5000 3000 - -").await;
    scene.presents("beat:work", "100 500").await;
    assert_eq!(scene.kinds().await, [""; 0], "half of the period");
    for (beat, claims) in [("100 700", "claims fewer jobs"), ("100 1200", "claims none")] {
        scene.presents("beat:work", beat).await;
        assert_eq!(scene.kinds().await, ["!heartbeats_slow"]);
        let what = scene.diagnoses().await[0].to_string();
        assert!(what.contains("for 40000 jobs of work takes") && what.contains(claims), "{what}");
    }
    let facts = scene.facts("heartbeats_slow").await;
    let expected =
        serde_json::json!({ "worker": LOST, "of_task": "work", "held": 40_000, "took_ms": 1200, "period_ms": 1000 });
    assert_eq!(facts, expected);
}

#[tokio::test]
async fn a_worker_whose_presence_is_damaged_hides_no_other() {
    let scene = Scene::idle().await.watched().await;
    let (prefix, seen) = (&scene.test.prefix, ms_ago(Duration::ZERO));
    let mut pipe = redis::pipe();
    pipe.zadd(format!("{prefix}:workers"), "odd-1-00000000", seen).ignore();
    pipe.set(format!("{prefix}:worker:odd-1-00000000"), "x").ignore();
    let () = pipe.query_async(&mut scene.test.conn().await).await.unwrap();
    assert_eq!(scene.kinds().await, ["!unreadable"]);
    assert_eq!(scene.inspector.workers().await.unwrap().len(), 2);
}
