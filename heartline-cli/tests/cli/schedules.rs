//! Schedules: what the command shows of them, and its actions on them.

use std::time::Duration;

use heartline::Schedule;
use redis::AsyncCommands;
use serde_json::Value;

use crate::run::{Bench, until};

/// A schedule of `export` that has no tick during a test.
pub async fn put(bench: &Bench, name: &str) {
    put_as(bench, name, Schedule::every(Duration::from_secs(10 * 365 * 24 * 3600))).await;
}

async fn put_as(bench: &Bench, name: &str, schedule: Schedule) {
    let _ = bench.export.schedules().put(name, schedule, "x".to_owned()).await.unwrap();
}

/// Dispatches a job, which adds the task to the list of tasks.
pub async fn is_listed(bench: &Bench) {
    bench.export.dispatch("x".into()).id("first").await.unwrap();
    until("the task is listed", async || {
        let tasks = bench.run(&["tasks", "--json"]).await.json();
        tasks.as_array().is_some_and(|tasks| tasks.iter().any(|task| task["task"] == "export"))
    })
    .await;
}

fn minutely() -> Schedule {
    Schedule::every(Duration::from_secs(60))
}

/// The fields of one schedule, as JSON.
async fn shown(bench: &Bench, name: &str) -> Value {
    bench.run(&["schedules", "show", "-t", "export", name, "--json"]).await.json()
}

#[tokio::test]
async fn a_schedule_is_listed_with_its_next_tick_and_its_counts() {
    let bench = Bench::new().await;
    is_listed(&bench).await;
    let none = bench.run(&["schedules", "list", "-t", "export"]).await;
    assert!(none.status == 0 && none.err.contains("There are no schedules of export."), "{none:?}");
    let unknown = bench.run(&["schedules", "list", "-t", "exprt"]).await;
    assert!(unknown.status == 2 && unknown.err.contains("did you mean export?"), "{unknown:?}");
    put_as(&bench, "nightly", Schedule::cron("30 2 * * *").unwrap().tz("Europe/Berlin").unwrap()).await;
    put(&bench, "rare").await;
    for of in [&["schedules", "list"][..], &["schedules", "list", "-t", "export"]] {
        let list = bench.run(of).await.ok();
        let parts = ["nightly", "30 2 * * * Europe/Berlin", "rare", "in "];
        assert!(parts.iter().all(|part| list.contains(part)), "{list}");
    }
    let json = bench.run(&["schedules", "list", "--json"]).await.json();
    let names: Vec<&str> =
        json["schedules"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!((names, json["schedules"][0]["task"].as_str()), (vec!["nightly", "rare"], Some("export")), "{json}");
    let text = bench.run(&["schedules", "show", "-t", "export", "nightly"]).await.ok();
    for part in ["nightly of export", "0 fired, 0 overlapped, 0 missed, 0 paused", "at run time, by ", "next tick"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(shown(&bench, "nightly").await["overlap"], "skip");
    let typo = bench.run(&["schedules", "run", "-t", "export", "nigthly"]).await;
    assert!(typo.status == 2 && typo.err.contains("no schedule nigthly; did you mean nightly?"), "{typo:?}");
}

#[tokio::test]
async fn the_next_ticks_of_all_schedules_are_in_order() {
    let bench = Bench::new().await;
    is_listed(&bench).await;
    for (name, schedule) in [("often", minutely()), ("seldom", Schedule::every(Duration::from_secs(90)))] {
        put_as(&bench, name, schedule).await;
    }
    let next = bench.run(&["schedules", "next", "--count", "10", "--json"]).await.json();
    let ticks: Vec<(u64, &str)> = next
        .as_array()
        .unwrap()
        .iter()
        .map(|tick| (tick["due_ms"].as_u64().unwrap(), tick["schedule"].as_str().unwrap()))
        .collect();
    assert!(ticks.len() == 10 && ticks.is_sorted_by_key(|tick| tick.0), "{next}");
    assert_eq!(ticks.iter().filter(|(_, name)| *name == "often").count(), 6, "{next}");
    let text = bench.run(&["schedules", "next", "-t", "export", "--count", "2"]).await.ok();
    assert!(text.lines().count() == 3 && text.contains("FIRES") && text.contains("every "), "{text}");
}

#[tokio::test]
async fn the_load_shows_where_ticks_pile_up() {
    let bench = Bench::new().await;
    is_listed(&bench).await;
    put_as(&bench, "hourly", Schedule::every(Duration::from_secs(3600))).await;
    put_as(&bench, "minutely", minutely()).await;
    let load = async || bench.run(&["schedules", "load", "--json"]).await.json()["minutes"].as_array().unwrap().clone();
    let jobs = |minutes: &[Value]| minutes.iter().map(|minute| minute["jobs"].as_u64().unwrap()).sum::<u64>();
    let minutes = load().await;
    assert!((1464..=1467).contains(&jobs(&minutes)), "{}", jobs(&minutes));
    let busy: Vec<&Value> = minutes.iter().filter(|minute| minute["jobs"] == 2).collect();
    assert!((24..=25).contains(&busy.len()), "{busy:?}");
    assert_eq!(busy[0]["such_as"], serde_json::json!(["export/hourly", "export/minutely"]));
    assert!(busy.iter().all(|minute| minute["at_ms"].as_u64().unwrap() % 3_600_000 == 0), "{busy:?}");
    let text = bench.run(&["schedules", "load", "-t", "export"]).await.ok();
    assert!(text.contains("BUSIEST MINUTE") && text.contains("export/hourly, export/minutely"), "{text}");
    // A paused schedule creates no jobs.
    bench.run(&["schedules", "pause", "-t", "export", "minutely"]).await.ok();
    assert!((24..=25).contains(&jobs(&load().await)));
}

#[tokio::test]
async fn a_schedule_is_run_paused_and_resumed_by_name() {
    let bench = Bench::new().await;
    put(&bench, "nightly").await;
    let act = async |act: &str, more: &[&str]| {
        bench.run(&[&["schedules", act, "-t", "export", "nightly"][..], more].concat()).await.ok()
    };
    let ran = act("run", &[]).await;
    let id = ran.strip_prefix("dispatched ").unwrap().trim_end();
    assert!(id.starts_with("nightly@"), "{ran}");
    assert_eq!(bench.export.counts().await.unwrap().waiting, 1);
    let after = shown(&bench, "nightly").await;
    assert_eq!((&after["by_hand"], &after["fired"]), (&1.into(), &0.into()), "{after}");
    assert_eq!((&after["last_job"], &after["last_state"]), (&id.into(), &"waiting".into()), "{after}");
    let paused = act("pause", &["--reason", "no source"]).await;
    assert!(paused.starts_with("nightly is paused"), "{paused}");
    let again = act("pause", &["--reason", "again", "--by", "bob"]).await;
    assert_eq!(again, "nightly was already paused by ada (no source); that pause remains\n");
    let text = act("show", &[]).await;
    assert!(text.contains("by ada (no source), "), "{text}");
    assert_eq!(act("resume", &[]).await, "nightly is resumed\n");
    assert_eq!(act("resume", &[]).await, "nightly was not paused\n");
    assert!(shown(&bench, "nightly").await["pause"].is_null());
}

#[tokio::test]
async fn a_backfill_says_first_how_many_jobs_it_dispatches() {
    let bench = Bench::new().await;
    put_as(&bench, "often", minutely()).await;
    let range = ["--from", "2024-01-01", "--to", "2024-01-01T00:10:00Z"];
    let backfill = async |range: &[&str], more: &[&str]| {
        bench.run(&[&["schedules", "backfill", "-t", "export", "often"][..], range, more].concat()).await
    };
    assert_eq!(backfill(&range, &["--dry-run"]).await.ok(), "would dispatch 10 jobs\n");
    let unasked = backfill(&range, &[]).await;
    assert!(unasked.status == 2 && unasked.err.contains("dispatch 10 jobs of export"), "{unasked:?}");
    assert_eq!(bench.export.counts().await.unwrap().waiting, 0);
    let json = backfill(&range, &["--yes", "--json"]).await.json();
    assert_eq!((&json["planned"], &json["dispatched"]), (&10.into(), &10.into()));
    assert_eq!(bench.export.counts().await.unwrap().waiting, 10);
    for (range, told) in [
        (["--from", "2024-01-02", "--to", "2024-01-01"], "--to must be after --from"),
        (["--from", "2024-01-01", "--to", "2999-01-01"], "to"),
        (["--from", "2023-01-01", "--to", "2024-01-01"], "10,000"),
    ] {
        let refused = backfill(&range, &["--yes"]).await;
        assert!(refused.status == 2 && refused.err.contains(told), "{range:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_schedule_is_removed_for_good_after_a_confirmation() {
    let bench = Bench::new().await;
    put(&bench, "nightly").await;
    let remove = async |more: &[&str]| {
        bench.run(&[&["schedules", "remove", "-t", "export", "nightly"][..], more].concat()).await
    };
    let unasked = remove(&[]).await;
    assert!(unasked.status == 2 && unasked.err.contains("remove the schedule nightly of export"), "{unasked:?}");
    assert_eq!(remove(&["--yes"]).await.ok(), "nightly is removed\n");
    is_listed(&bench).await;
    let gone = remove(&["--yes"]).await;
    assert!(gone.status == 2 && gone.err.contains("the task export has no schedule"), "{gone:?}");
}

#[tokio::test]
async fn an_unreadable_schedule_is_named_and_hides_no_other() {
    let bench = Bench::of_one_table().await;
    is_listed(&bench).await;
    put(&bench, "broken").await;
    put(&bench, "nightly").await;
    let () = bench.redis().await.hset("cli:{export}:schedules:rule", "broken", "what").await.unwrap();
    let list = bench.run(&["schedules", "list"]).await;
    assert!(list.status == 1 && list.out.contains("nightly"), "{list:?}");
    assert!(list.err.contains("broken of export cannot be read"), "{list:?}");
    let status = bench.run(&["status"]).await;
    assert!(status.out.contains("the schedule broken cannot be read"), "{status:?}");
    let removed = bench.run(&["schedules", "remove", "-t", "export", "broken", "--yes"]).await;
    assert_eq!(removed.ok(), "broken is removed\n");
    bench.run(&["schedules", "list"]).await.ok();
}
