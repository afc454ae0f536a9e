use crate::scripts::call::Task;

/// A sound job of every state, with the number of its list entries.
pub const SOUND: [&str; 16] = [
    "waiting",
    "1",
    "silent",
    "0",
    "heard",
    "0",
    "ahead",
    "0",
    "delayed",
    "0",
    "completed",
    "0",
    "failed",
    "0",
    "cancelled",
    "0",
];

pub async fn sound() -> Task {
    let mut task = Task::new().await;
    task.running("w", &[("silent", 7)]).await;
    task.snapshot().await;
    task.running("w", &[("heard", 8)]).await;
    task.hset("cancelling", &[("heard", "why")]).await;
    task.running("w", &[("ahead", 9)]).await;
    task.hset("claimed", &[("ahead", "9")]).await;
    task.waiting(&["waiting"]).await;
    for place in ["delayed", "completed", "failed", "cancelled"] {
        task.hset("payload", &[(place, "1")]).await;
        task.zadd(place, 5.0, place).await;
    }
    task.hset("attempt", &[("failed", "3")]).await;
    task.hset("stalledCount", &[("silent", "1")]).await;
    task
}

/// The faults of each id, given its real list entries, in the order of the ids.
pub async fn faults(task: &mut Task, ids: &[&str]) -> Vec<String> {
    let mut entries = Vec::new();
    for list in ["wait:high", "wait", "wait:low"] {
        entries.extend(task.list(list).await);
    }
    let args: Vec<String> = ids
        .iter()
        .flat_map(|id| [(*id).to_owned(), entries.iter().filter(|entry| entry == id).count().to_string()])
        .collect();
    let keys: Vec<String> = task.script("look").keys.iter().map(|key| task.key(key)).collect();
    let mut cmd = redis::cmd("EVAL");
    // The lists are read after anything has changed.
    cmd.arg(task.script("look").source).arg(keys.len()).arg(keys).arg(9_999_999_999_999_u64).arg(args);
    let mut reply: Vec<String> = cmd.query_async(&mut task.conn).await.unwrap();
    assert_eq!(reply.remove(0), "looked");
    reply
}

/// The same for one id.
pub async fn fault(task: &mut Task, id: &str) -> String {
    faults(task, &[id]).await.remove(0)
}

/// One broken part of a sound task: the faulty id, the change, and the expected faults.
pub const BROKEN: [(&str, &[&str], &str); 44] = [
    ("waiting", &["HDEL payload waiting"], "no_payload miscounted"),
    ("delayed", &["HDEL payload delayed"], "no_payload"),
    ("orphan", &["HSET attempt orphan 1"], "no_payload"),
    ("orphan", &["HSET result orphan 1"], "no_payload"),
    ("completed", &["ZADD failed 6 completed"], "two_places"),
    ("completed", &["ZADD cancelled 6 completed", "ZADD failed 6 completed", "ZADD delayed 6 completed"], "two_places"),
    ("failed", &["ZADD cancelled 6 failed"], "two_places"),
    ("delayed", &["ZADD cancelled 6 delayed"], "two_places"),
    ("heard", &["ZADD completed 6 heard"], "two_places"),
    ("silent", &["ZADD delayed 6 silent"], "two_places"),
    ("heard", &["ZADD delayed 6 heard", "ZADD failed 6 heard"], "two_places"),
    ("waiting", &["DEL wait"], "unplaced"),
    ("delayed", &["ZREM delayed delayed"], "unplaced"),
    ("failed", &["ZREM failed failed"], "unplaced"),
    ("completed", &["ZREM completed completed", "HSET result completed 7"], "ended_unplaced"),
    ("failed", &["ZREM failed failed", r#"HSET error failed {"code":"disk"}"#], "unplaced"),
    ("failed", &["ZREM failed failed", r#"HSET error failed {"code":"expired"}"#], "ended_unplaced"),
    ("failed", &["ZREM failed failed", "HSET meta attempts 4", r#"HSET error failed {"code":"disk"}"#], "unplaced"),
    (
        "failed",
        &["ZREM failed failed", "HSET meta attempts 3", r#"HSET error failed {"code":"disk"}"#],
        "ended_unplaced",
    ),
    (
        "failed",
        &["ZREM failed failed", r#"HSET options failed {"attempts":3}"#, r#"HSET error failed {"code":"disk"}"#],
        "ended_unplaced",
    ),
    (
        "failed",
        &["ZREM failed failed", "HSET meta attempts 3", r#"HSET error failed {"code":"disk"}"#, "SADD active failed"],
        "unplaced unlocked",
    ),
    ("failed", &["ZREM failed failed", r#"HSET error failed {"code":"disk"}"#, "HSET enqueuedAt failed 5"], "unplaced"),
    ("cancelled", &["ZREM cancelled cancelled", r#"HSET error cancelled {"code":"cancelled"}"#], "ended_unplaced"),
    (
        "cancelled",
        &[
            "ZREM cancelled cancelled",
            r#"HSET error cancelled {"code":"cancelled"}"#,
            "RPUSH wait cancelled",
            "HSET tombstones cancelled 1",
            "HSET meta tombstones 1",
        ],
        "ended_unplaced",
    ),
    (
        "cancelled",
        &[
            "ZREM cancelled cancelled",
            r#"HSET error cancelled {"code":"cancelled"}"#,
            "RPUSH wait cancelled",
            "HSET tombstones cancelled 1",
            "HSET meta tombstones 1",
            "HSET enqueuedAt cancelled 5",
        ],
        "miscounted",
    ),
    (
        "failed",
        &["ZREM failed failed", "RPUSH wait failed", "HSET tombstones failed 1", "HSET meta tombstones 1"],
        "miscounted",
    ),
    ("waiting", &["SADD active waiting"], "unlocked"),
    ("completed", &["SADD candidates completed"], "unlocked"),
    ("silent", &["HDEL locks silent"], "unplaced unlocked"),
    ("heard", &["SREM active heard"], "unwatched"),
    ("heard", &["SADD candidates heard"], "both_sets"),
    ("waiting", &["HSET cancelling waiting why"], "stray_cancel"),
    ("waiting", &["HSET claimed waiting 7"], "stray_claim"),
    ("heard", &["HSET claimed heard 7"], "stray_claim"),
    ("orphan", &["HSET claimed orphan 7"], "no_payload"),
    ("completed", &["HSET outcome completed completed"], "stray_hook"),
    ("failed", &["ZREM failed failed", "ZADD finalizing 6 failed"], "stray_hook"),
    ("waiting", &["HSET outcome waiting completed", "DEL wait"], "unplaced"),
    ("heard", &["HSET outcome heard completed", "ZADD finalizing 6 heard"], "two_places"),
    ("orphan", &["ZADD finalizing 6 orphan"], "no_payload"),
    ("failed", &["HSET attempt failed many"], "bad_counter"),
    ("silent", &["HSET stalledCount silent 1.5", "HSET attempt silent x"], "bad_counter"),
    ("waiting", &["RPUSH wait waiting"], "miscounted"),
    ("waiting", &["HSET tombstones waiting 2", "HSET meta tombstones 2"], "miscounted"),
];

/// Runs the change, given in one line, with the prefix of the task in front of the key.
pub async fn harm(task: &mut Task, line: &str) {
    let mut words = line.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    cmd.arg(task.key(words.next().unwrap()));
    words.for_each(|word| {
        cmd.arg(word);
    });
    let _: redis::Value = cmd.query_async(&mut task.conn).await.unwrap();
}

#[tokio::test]
async fn a_sound_task_has_no_faults_and_a_look_changes_nothing() {
    let mut task = sound().await;
    let before = task.exact().await;
    let mut args = vec!["9999999999999"];
    args.extend(SOUND);
    assert_eq!(task.ok("look", &args).await, "[looked '' '' '' '' '' '' '' '']");
    assert_eq!(task.exact().await, before);
    // An ended job no longer needs a payload, and the worker of a running one has it.
    for id in ["completed", "failed", "cancelled", "silent", "heard"] {
        harm(&mut task, &format!("HDEL payload {id}")).await;
    }
    assert_eq!(task.ok("look", &args).await, "[looked '' '' '' '' '' '' '' '']");
}

#[tokio::test]
async fn each_fault_has_its_name_and_other_jobs_stay_sound() {
    for (id, harms, wanted) in BROKEN {
        let mut task = sound().await;
        for line in harms {
            harm(&mut task, line).await;
        }
        let before = task.exact().await;
        assert_eq!(fault(&mut task, id).await, wanted, "{harms:?}");
        let others: Vec<&str> = SOUND.iter().step_by(2).copied().filter(|other| *other != id).collect();
        let found = faults(&mut task, &others).await;
        assert!(found.iter().all(String::is_empty), "{harms:?}: {found:?}");
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn every_fault_of_the_script_is_among_the_broken_ones() {
    let task = Task::new().await;
    let source = task.script("look").source;
    let lines = source.lines().filter(|line| line.starts_with("    add("));
    let known: Vec<&str> = lines.filter_map(|line| line.rsplit('\'').nth(1)).collect();
    assert_eq!(known.len(), 12, "{known:?}");
    for fault in known {
        assert!(BROKEN.iter().any(|(_, _, faults)| faults.split(' ').any(|word| word == fault)), "{fault}");
    }
}

#[tokio::test]
async fn counted_tombstones_are_not_faults() {
    let mut task = Task::new().await;
    task.waiting(&["first", "cancelled", "removed", "anew", "twice", "later", "held", "last"]).await;
    task.ok("cancel", &["why", "channel", "", "cancelled", ""]).await;
    for id in ["removed", "anew", "twice", "later", "held"] {
        task.ok("remove", &["", id, ""]).await;
    }
    task.ok("dispatch", &["1", "1", "2", "anew", "1", "twice", "1"]).await;
    task.ok("remove", &["", "twice", ""]).await;
    task.ok("dispatch", &["1", "1", "1", "later", "1", "delay", "1", "9000000"]).await;
    // High priority, so that it is claimed first.
    task.ok("dispatch", &["1", "1", "1", "held", "1", "priority", "1", "high"]).await;
    task.ok("settle", &["1", "w", "1000", "1", "0", "0"]).await;
    let ids = ["first", "cancelled", "removed", "anew", "twice", "later", "held", "last"];
    assert_eq!(faults(&mut task, &ids).await, [""; 8]);
    assert_eq!(task.held("tombstones").await.matches(':').count(), 6, "{}", task.held("tombstones").await);
}

#[tokio::test]
async fn a_tombstone_with_more_data_than_entries_lacks_its_payload() {
    let mut task = Task::new().await;
    task.waiting(&["first", "a"]).await;
    task.ok("remove", &["", "a", ""]).await;
    assert_eq!(fault(&mut task, "a").await, "");
    task.hset("attempt", &[("a", "1")]).await;
    assert_eq!(fault(&mut task, "a").await, "no_payload");
}

#[tokio::test]
async fn five_hundred_jobs_are_looked_at_in_one_call() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (0..500).map(|number| format!("job-{number}")).collect();
    let fields: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "{}")).collect();
    task.hset("payload", &fields).await;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(faults(&mut task, &ids).await, ["unplaced"; 500]);
    task.rpush("wait", &ids).await;
    assert_eq!(faults(&mut task, &ids).await, [""; 500]);
}
