//! Stored data: foreign keys, and lost data.

use super::*;

#[tokio::test]
async fn a_key_of_another_type_is_named_whatever_it_breaks() {
    for (column, holds_options) in [("progress", false), ("failed", false), ("meta", true)] {
        let scene = Scene::waiting(&["a"]).await.watched().await;
        scene.test.run::<()>("DEL", column, &[]).await;
        scene.test.run::<()>("SET", column, &["x"]).await;
        assert_eq!(scene.kinds().await, ["!foreign_keys"], "{column}");
        let facts = scene.facts("foreign_keys").await;
        let key = serde_json::json!({
            "key": scene.test.key(column), "found": "string", "holds_options": holds_options,
            "expected": if column == "failed" { "zset" } else { "hash" },
        });
        assert_eq!(facts["keys"], serde_json::json!([key]), "{column}");
        scene.test.run::<u64>("DEL", column, &[]).await;
        assert!(!scene.kinds().await.contains(&"!foreign_keys".to_owned()));
    }
}

#[tokio::test]
async fn an_invalid_name_in_the_list_of_tasks_hides_no_task() {
    let scene = Scene::waiting(&["a"]).await;
    let list = format!("{}:tasks", scene.test.prefix);
    let mut conn = scene.test.conn().await;
    redis::cmd("ZADD").arg(&list).arg(1).arg("x; touch y #").query_async::<()>(&mut conn).await.unwrap();
    assert_eq!(scene.kinds().await, ["!no_worker", "!invalid_task_name"]);
    let found = scene.diagnoses().await;
    assert!(found[1].hint().contains("ZREM KEY 'x; touch y #'"), "{}", found[1].hint());
    // The list itself, and that of the workers, may be of another type: no report hides that.
    for list in [&list, &format!("{}:workers", scene.test.prefix)] {
        let () = redis::pipe().del(list).set(list, "x").query_async(&mut conn).await.unwrap();
        assert!(scene.inspector.diagnose().await.is_err());
        let () = redis::cmd("DEL").arg(list).query_async(&mut conn).await.unwrap();
    }
    assert_eq!(scene.kinds().await, ["!tasks_not_listed"]);
    scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
    assert_eq!(scene.kinds().await, ["!tasks_not_listed"]);
    scene.app.task_ref::<String, u64>("other").unwrap().dispatch("x".into()).await.unwrap();
    assert_eq!(scene.facts("tasks_not_listed").await["tasks"], serde_json::json!([TASK]));
}

#[tokio::test]
async fn lost_data_and_lost_options_are_distinguished() {
    let (scene, worker) = Scene::working().await;
    scene.completes(1).await;
    scene.jobs.dispatch("hold".into()).await.unwrap();
    scene.test.run::<u64>("DEL", "meta", &[]).await;
    scene.until("?data_lost").await;
    assert!(!scene.kinds().await.contains(&"!data_lost".to_owned()));
    let pattern = format!("{}:{{work}}:*", scene.test.prefix);
    let mut conn = scene.test.conn().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut conn).await.unwrap();
    redis::cmd("DEL").arg(keys).query_async::<()>(&mut conn).await.unwrap();
    scene.until("!data_lost").await;
    assert_eq!(scene.facts("data_lost").await["tasks"], serde_json::json!([TASK]));
    scene.test.journal.open("gate");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn jobs_in_no_list_are_a_risk_until_they_are_repaired() {
    let scene = Scene::waiting(&["a", "b", "c"]).await.watched().await;
    scene.test.run::<u64>("LREM", "wait", &["0", "a"]).await;
    assert_eq!(scene.kinds().await, ["!jobs_without_place"]);
    assert_eq!(scene.of_job("a").await, ["!jobs_without_place"]);
    scene.test.run::<u64>("DEL", "wait", &[]).await;
    assert_eq!(scene.facts("jobs_without_place").await["jobs"], 3);
    assert_eq!(scene.of_job("a").await, ["!jobs_without_place"]);
    let audited = scene.inspector.audit(TASK).await.unwrap();
    scene.inspector.repair(&audited).await.unwrap();
    assert_eq!(scene.kinds().await, [""; 0]);
}

#[tokio::test]
async fn a_job_that_ended_and_lost_its_place_does_not_wait() {
    let scene = Scene::waiting(&["first", "cancelled"]).await;
    scene.test.declared().await;
    scene.jobs.handle("cancelled").unwrap().cancel("no").await.unwrap();
    scene.test.run::<u64>("DEL", "cancelled", &[]).await;
    assert_eq!(scene.of_job("cancelled").await, ["!jobs_without_place"]);
    let audited = scene.inspector.audit(TASK).await.unwrap();
    scene.inspector.repair(&audited).await.unwrap();
    let counts = scene.jobs.counts().await.unwrap();
    assert_eq!((counts.cancelled, counts.waiting), (1, 1));
}

#[tokio::test]
async fn jobs_without_payload_are_a_risk_where_they_wait() {
    let scene = Scene::waiting(&["a", "b"]).await.watched().await;
    scene.test.run::<u64>("HDEL", "payload", &["b"]).await;
    assert_eq!(scene.kinds().await, ["!payloads_lost"]);
    let facts = scene.facts("payloads_lost").await;
    assert_eq!(facts, serde_json::json!({ "jobs": 1, "waiting": 1, "first": "b", "removed_ago_ms": null }));

    let (scene, worker) = Scene::working().await;
    scene.jobs.dispatch("x".into()).id("done").await.unwrap().result().await.unwrap();
    scene.test.run::<u64>("HDEL", "payload", &["done"]).await;
    assert_eq!(scene.kinds().await, ["?payloads_lost"], "an ended job needs no payload");
    let gone = scene.jobs.dispatch("x".into()).id("gone").delay(Duration::from_millis(200)).await.unwrap();
    scene.test.run::<u64>("HDEL", "payload", &["gone"]).await;
    assert!(gone.result().await.is_err());
    eventually("its removal is reported", PATIENCE, async || {
        let found = scene.diagnoses().await;
        found.iter().any(|found| found.kind.code() == "payloads_lost" && super::facts(found)["removed_ago_ms"].is_u64())
    })
    .await;
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_refuses_writes_accuses_no_worker() {
    let server = crate::support::TestRedis::start();
    let mut test = TestTask::on(&server);
    test.name = TASK.to_owned();
    let scene = Scene::of(test).await;
    for id in ["a", "b"] {
        scene.jobs.dispatch("hold".into()).id(id).await.unwrap();
    }
    scene.holds(&["a"], MINUTE * 2, MINUTE).await;
    let before = scene.kinds().await;
    assert!(before.contains(&"!lost_worker".to_owned()), "{before:?}");
    let mut conn = server.conn().await;
    let mut needs = async |replicas: u8| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("min-replicas-to-write").arg(replicas);
        set.query_async::<()>(&mut conn).await.unwrap();
    };
    needs(1).await;
    assert_eq!(scene.kinds().await, ["!writes_refused"]);
    assert!(scene.inspector.writes_refused().await.is_some());
    assert_eq!(scene.of_task().await, ["!writes_refused"]);
    for id in ["a", "b"] {
        assert_eq!(scene.of_job(id).await, ["!writes_refused"], "{id}");
    }
    needs(0).await;
    assert_eq!(scene.kinds().await, before);
}
