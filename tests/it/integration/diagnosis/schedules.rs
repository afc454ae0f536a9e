//! Schedules that are late, cannot be read, differ between workers, are paused, or overlap.

use heartline::Schedule;

use super::*;

/// A listed task with a schedule `nightly`, whose next tick is far ahead.
async fn scheduled() -> Scene {
    let scene = Scene::idle().await;
    put(&scene, "nightly").await;
    scene
}

async fn put(scene: &Scene, name: &str) {
    let rare = Schedule::every(10 * 365 * 24 * HOUR);
    let _ = scene.jobs.schedules().put(name, rare, "x".to_owned()).await.unwrap();
}

/// The diagnoses of schedules: kinds, facts, and texts.
async fn found(scene: &Scene) -> Vec<(String, Value, String)> {
    let all = scene.diagnoses().await;
    let of_schedules = all.iter().filter(|found| found.kind.code().starts_with("schedules"));
    of_schedules.map(|found| (kind(found), facts(found), format!("{found}; {}", found.hint()))).collect()
}

#[tokio::test]
async fn a_late_schedule_is_a_risk_if_no_worker_fires_it() {
    let scene = scheduled().await;
    let next_at = async |ago: Duration| {
        scene.test.run::<u64>("ZADD", "schedules", &[&ms_ago(ago).to_string(), "nightly"]).await;
        found(&scene).await
    };
    // Another worker fires within seconds.
    let soon = next_at(Duration::from_secs(10)).await;
    assert!(soon.is_empty(), "{soon:?}");
    let late = next_at(MINUTE).await;
    let [(kind, facts, text)] = &late[..] else { panic!("{late:?}") };
    assert_eq!((kind.as_str(), &facts["workers"]), ("!schedules_late", &0.into()));
    assert!(facts["late_ms"].as_u64().unwrap() >= 60_000 && text.contains("start a worker"), "{late:?}");
    assert!(scene.of_task().await.contains(&"!schedules_late".to_owned()));
    // A worker that reports that it fires them, and does not. Another one reported before the clock went back.
    for (worker, at) in [(LOST, ms_ago(Duration::ZERO)), ("ahead", ms_ago(Duration::ZERO) + 60_000)] {
        scene.test.run::<u64>("ZADD", "schedules:keepers", &[&at.to_string(), worker]).await;
    }
    assert_eq!(found(&scene).await[0].1["workers"], 1);
}

#[tokio::test]
async fn unreadable_schedules_are_a_risk_and_named_by_the_first() {
    let scene = scheduled().await;
    put(&scene, "broken").await;
    scene.test.run::<u64>("HSET", "schedules:rule", &["broken", "what"]).await;
    let one = found(&scene).await;
    assert_eq!((one.len(), one[0].0.as_str(), &one[0].1["first"]), (1, "!schedules_unreadable", &"broken".into()));
    put(&scene, "acme").await;
    scene.test.run::<u64>("HSET", "schedules:rule", &["acme", "what"]).await;
    let two = found(&scene).await;
    assert!(two[0].2.starts_with("the schedule acme and 1 more cannot be read"), "{two:?}");
    for name in ["acme", "broken"] {
        put(&scene, name).await;
    }
    let none = found(&scene).await;
    assert!(none.is_empty(), "{none:?}");
}

#[tokio::test]
async fn a_schedule_that_differs_between_live_workers_is_noted() {
    let scene = scheduled().await;
    let reported = async |ago: Duration| {
        let report = format!("{} host-b", ms_ago(ago));
        scene.test.run::<u64>("HSET", "schedules:differ", &["nightly", &report]).await;
        found(&scene).await
    };
    let none = reported(MINUTE).await;
    assert!(none.is_empty(), "{none:?}");
    let [(kind, facts, text)] = &reported(Duration::ZERO).await[..] else { panic!("no diagnosis") };
    assert_eq!((kind.as_str(), &facts["other"]), ("?schedules_differ", &"host-b".into()));
    assert!(text.starts_with("the schedule nightly differs between workers: host-b has another rule"), "{text}");
}

#[tokio::test]
async fn a_schedule_is_noted_if_most_of_its_last_ticks_overlapped() {
    let scene = scheduled().await;
    let after = async |fired: u64, overlapped: u64| {
        let word = |at: u64| format!("{}{}1", 1000 * (at + 1), if at < fired { 'f' } else { 'o' });
        let words: Vec<String> = (0..fired + overlapped).rev().map(word).collect();
        scene.test.run::<u64>("HSET", "schedules:ticks", &["nightly", &words.join(" ")]).await;
        found(&scene).await
    };
    // Half of them, too few, and none.
    for (fired, overlapped) in [(5, 5), (0, 9), (20, 0)] {
        let none = after(fired, overlapped).await;
        assert!(none.is_empty(), "{fired} {overlapped}: {none:?}");
    }
    let most = after(5, 6).await;
    assert_eq!((most.len(), most[0].0.as_str()), (1, "?schedules_overlap"));
    let facts = &most[0].1;
    assert_eq!((&facts["first"], &facts["overlapped"], &facts["ticks"]), (&"nightly".into(), &6.into(), &11.into()));
}

#[tokio::test]
async fn paused_schedules_are_noted_with_person_and_reason() {
    let scene = scheduled().await;
    put(&scene, "acme").await;
    let schedules = scene.jobs.schedules();
    schedules.pause("nightly", "disk full").await.unwrap();
    let one = found(&scene).await;
    assert_eq!((one.len(), one[0].0.as_str(), &one[0].1["first"]), (1, "?schedules_paused", &"nightly".into()));
    assert!(
        one[0].2.starts_with("the schedule nightly has been paused for ") && one[0].2.contains("(disk full)"),
        "{one:?}"
    );
    schedules.pause("acme", "").await.unwrap();
    let two = found(&scene).await;
    assert!(two[0].2.starts_with("the schedule acme and 1 more have been paused, the first for "), "{two:?}");
}
