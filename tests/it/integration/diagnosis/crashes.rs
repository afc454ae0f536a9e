//! Jobs of workers that died, froze or were cut off.

use heartline::{Caution, WorkerReport};

use super::*;

const OTHERS: [&str; 3] = ["w-2-00000000", "w-3-00000000", "w-4-00000000"];

impl Scene {
    /// Jobs with these ids, all held by two workers when they died.
    async fn suspected(ids: &[&str]) -> Scene {
        let scene = Scene::waiting(ids).await;
        for worker in &OTHERS[..2] {
            scene.died_with("*", worker, ids).await;
        }
        scene
    }

    async fn lost(&self) -> WorkerReport {
        self.inspector.worker(LOST).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn jobs_of_a_lost_worker_are_reported_with_who_recovers() {
    let scene = Scene::waiting(&["a", "b", "c"]).await;
    scene.holds(&["a", "b"], Duration::from_secs(90), Duration::from_secs(40)).await;
    for (grace, by) in [("", "next_worker"), ("off 0 0", "next_worker"), ("0 off 0", "person")] {
        scene.meta("grace", grace).await;
        assert_eq!(scene.kinds().await, ["!no_worker", "!lost_worker"], "{grace}");
        let facts = scene.facts("lost_worker").await;
        let holder = &facts["holder"];
        assert_eq!((&facts["jobs"], &holder["worker"], &holder["pid"]), (&2.into(), &LOST.into(), &4711.into()));
        assert_eq!(facts["rescuer"], by, "{grace}");
    }
    assert_eq!(scene.of_job("a").await, ["!lost_worker"]);
    assert_eq!(scene.of_task().await, ["!no_worker", "!lost_worker"]);
    for (namespace, is_contained) in [("pid:[4026531836]", false), ("pid:[4026532587]", true)] {
        scene.presents("pidNamespace", namespace).await;
        assert_eq!(scene.facts("lost_worker").await["holder"]["is_contained"], is_contained);
    }
    assert!(scene.lost().await.leaves_jobs(&[scene.inspector.lock_holders(TASK).await.unwrap()]));
}

#[tokio::test]
async fn a_holder_is_found_although_its_presence_is_old_or_damaged() {
    let scene = Scene::waiting(&["a"]).await;
    scene.holds(&["a"], Duration::from_secs(9000), Duration::from_secs(8000)).await;
    assert_eq!(scene.kinds().await, ["!lost_worker"]);
    let (key, list) = (scene.presence(LOST), format!("{}:workers", scene.test.prefix));
    let mut pipe = redis::pipe();
    pipe.del(&key).ignore().set(&key, "x").ignore().zrem(list, LOST).ignore();
    let () = pipe.query_async(&mut scene.test.conn().await).await.unwrap();
    assert!(scene.kinds().await.contains(&"!lost_worker".to_owned()));
}

#[tokio::test]
async fn many_lost_workers_are_reported_together() {
    let ids: Vec<String> = (0..6).map(|at| format!("job-{at}")).collect();
    let scene = Scene::waiting(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (at, id) in ids.iter().enumerate() {
        scene.holds_as(&format!("w-{at}-00000000"), &[id], MINUTE * 2, MINUTE).await;
    }
    assert_eq!(scene.kinds().await, ["!lost_worker"; 4]);
    let last = scene.diagnoses().await.remove(3);
    let text = last.to_string();
    assert!(text.contains("3 jobs held by w-3-00000000 and 2 more workers that are not live"), "{text}");
    let last = facts(&last);
    assert_eq!((&last["jobs"], &last["more"]), (&3.into(), &2.into()));
}

#[tokio::test]
async fn a_worker_that_claims_without_a_presence_is_not_called_lost() {
    let scene = Scene::waiting(&["a", "b"]).await;
    scene.holds(&["a"], Duration::from_secs(5), Duration::from_secs(90)).await;
    assert_eq!(scene.kinds().await, ["!mute_worker"], "although the task has a worker");
    assert_eq!(
        (scene.of_job("a").await, scene.of_task().await),
        (vec!["!mute_worker".into()], vec!["!mute_worker".into()])
    );
    let lost = scene.lost().await;
    assert!(scene.inspector.diagnose_mute_holder(TASK, &lost).await.unwrap().is_some());
}

#[tokio::test]
async fn jobs_that_fail_when_recovered_are_reported_first() {
    let scene = Scene::waiting(&["a", "b"]).await;
    scene.holds(&["a", "b"], Duration::from_secs(90), Duration::from_secs(40)).await;
    scene.meta("maxCount", 1).await;
    assert_eq!(scene.kinds().await, ["!lost_worker"]);
    scene.test.run::<u64>("HSET", "stalledCount", &["a", "1", "b", "1"]).await;
    for (grace, kinds) in [("0 off 0", ["!lost_worker", "?jobs_will_fail"]), ("", ["!jobs_will_fail", "!lost_worker"])]
    {
        scene.meta("grace", grace).await;
        assert_eq!(scene.kinds().await, kinds, "{grace}");
    }
    let found = scene.diagnoses().await;
    assert_eq!((found[0].caution, found[1].caution), (None, Some(Caution::FailingJobs)));
    assert_eq!(scene.of_job("a").await, ["!jobs_will_fail", "!lost_worker"]);
    let risks = scene.inspector.diagnose_recovery(TASK).await.unwrap();
    assert_eq!(risks.iter().map(kind).collect::<Vec<_>>(), ["!jobs_will_fail"]);
    // A job with a requested cancel is cancelled instead.
    scene.jobs.handle("a").unwrap().cancel("no").await.unwrap();
    assert_eq!(scene.facts("jobs_will_fail").await["jobs"], 1);
    assert_eq!(scene.of_job("a").await, ["!lost_worker"]);
    // A live worker may recover them before a person can.
    scene.holds_as("web-8-4711-0f3a9c21", &[], Duration::ZERO, Duration::ZERO).await;
    assert_eq!(scene.facts("jobs_will_fail").await["has_live_workers"], true);
}

#[tokio::test]
async fn jobs_that_died_together_are_suspected_together() {
    let scene = Scene::suspected(&["a-good", "z-$(bad)"]).await;
    assert_eq!(scene.kinds().await, ["!poison_suspects", "!no_worker", "?jobs_recovered"]);
    let facts = scene.facts("poison_suspects").await;
    assert_eq!(facts["jobs"], serde_json::json!(["a-good", "z-$(bad)"]));
    assert_eq!((&facts["top"], &facts["others"]), (&Value::Null, &0.into()));
    let found = scene.diagnoses().await;
    assert!(!found[0].hint().contains("jobs cancel"), "no single suspect is named: {}", found[0].hint());
    assert_eq!(found[1].caution, Some(Caution::Suspects));
    let facts = scene.facts("jobs_recovered").await;
    assert_eq!((&facts["jobs"], facts["workers"].as_array().unwrap().len()), (&2.into(), 2));
    // A further death of one of them explains the others.
    scene.died_with("*", OTHERS[2], &["z-$(bad)"]).await;
    assert_eq!(scene.facts("poison_suspects").await["top"], "z-$(bad)");
    assert!(scene.diagnoses().await[0].hint().contains("jobs cancel -t work 'z-$(bad)'"));
    scene.test.declared().await;
    scene.jobs.handle("z-$(bad)").unwrap().cancel("it was this one").await.unwrap();
    assert!(!scene.kinds().await.contains(&"!poison_suspects".to_owned()), "its deaths are explained");
}

#[tokio::test]
async fn an_ended_suspect_is_as_suspicious_as_the_other() {
    let scene = Scene::suspected(&["a", "b"]).await;
    scene.test.declared().await;
    scene.jobs.handle("b").unwrap().cancel("it was this one").await.unwrap();
    let facts = scene.facts("poison_suspects").await;
    assert_eq!((&facts["jobs"], &facts["others"], &facts["top"]), (&serde_json::json!(["a"]), &1.into(), &Value::Null));
    scene.jobs.handle("a").unwrap().cancel("nor this one").await.unwrap();
    assert!(!scene.kinds().await.contains(&"!poison_suspects".to_owned()), "an ended job does no harm");
}

#[tokio::test]
async fn an_old_suspect_is_reported_while_no_worker_is_left() {
    let scene = Scene::waiting(&["a"]).await;
    for (at, worker) in OTHERS[..2].iter().enumerate() {
        scene.died_with(&format!("{}-{at}", ms_ago(HOUR * 3)), worker, &["a"]).await;
    }
    assert_eq!(scene.kinds().await, ["!poison_suspects", "!no_worker"]);
    assert_eq!(scene.facts("poison_suspects").await["always_alone"], true);
    scene.holds(&[], Duration::ZERO, Duration::ZERO).await;
    assert_eq!(scene.kinds().await, [""; 0], "a worker is live, and the deaths were long ago");
}

#[tokio::test]
async fn suspects_that_cannot_start_are_a_note() {
    let scene = Scene::suspected(&["a", "b"]).await;
    scene.inspector.pause(TASK, "").await.unwrap();
    let kinds = scene.kinds().await;
    assert!(kinds.contains(&"?poison_suspects".to_owned()), "{kinds:?}");
    let found = scene.diagnoses().await;
    let paused = found.iter().find(|found| found.is_pause()).unwrap();
    assert_eq!(paused.caution, Some(Caution::Suspects), "a resume lets them run");
    let _ = scene.inspector.resume(TASK).await.unwrap();
    // Held jobs with a requested cancel kill no worker.
    scene.holds(&["a", "b"], MINUTE, Duration::from_secs(50)).await;
    assert!(scene.kinds().await.contains(&"!poison_suspects".to_owned()));
    for id in ["a", "b"] {
        scene.jobs.handle(id).unwrap().cancel("no").await.unwrap();
    }
    assert!(!scene.kinds().await.contains(&"!poison_suspects".to_owned()));
}

#[tokio::test]
async fn a_job_of_a_dead_worker_is_suspected_before_it_is_recovered() {
    let scene = Scene::waiting(&["a"]).await;
    scene.died_with("*", OTHERS[0], &["a"]).await;
    scene.holds(&["a"], MINUTE, Duration::from_secs(50)).await;
    for (field, value) in [
        ("deadAt", ms_ago(Duration::from_secs(40)).to_string()),
        ("deadProof", "gone".into()),
        ("deadSays", "w-9-00000000".into()),
    ] {
        scene.presents(field, &value).await;
    }
    let facts = scene.facts("poison_suspects").await;
    assert_eq!((&facts["jobs"], &facts["always_alone"]), (&serde_json::json!(["a"]), &true.into()));
    assert_eq!(scene.facts("lost_worker").await["holder"]["death"], "gone");
}

#[tokio::test]
async fn a_repair_is_advised_only_after_its_suspects() {
    let scene = Scene::suspected(&["a", "b"]).await;
    scene.test.run::<u64>("DEL", "wait", &[]).await;
    let of = |found: Vec<Diagnosis>, code: &str| found.into_iter().find(|found| found.kind.code() == code).unwrap();
    let repair = of(scene.diagnoses().await, "jobs_without_place");
    assert_eq!(repair.caution, Some(Caution::Suspects), "a repair lets jobs run again");
    assert!(repair.hint().starts_with("look at its poison suspects first; "), "{}", repair.hint());
    scene.test.run::<()>("SET", "progress", &["x"]).await;
    assert_eq!(of(scene.diagnoses().await, "foreign_keys").caution, Some(Caution::Suspects));
    // This advice runs no job, although it names ids that begin with ~.
    scene.meta("payloadsLost", 1).await;
    scene.meta("payloadLostAt", ms_ago(MINUTE)).await;
    assert_eq!(of(scene.diagnoses().await, "payloads_lost").caution, None);
}
