use crate::scripts::call::Task;

/// A sound job of every state, with the number of its list entries.
pub const SOUND: &str = "waiting 1 silent 0 heard 0 ahead 0 delayed 0 completed 0 failed 0 cancelled 0";

pub async fn sound() -> Task {
    let mut task = Task::with("runs w: silent=7; snapshot; runs w: heard=8; cancelling heard=why").await;
    task.write("runs w: ahead=9; claimed ahead=9; waits waiting").await;
    for place in ["delayed", "completed", "failed", "cancelled"] {
        task.write(&format!("payload {place}=1; {place} {place}=5")).await;
    }
    task.write("attempt failed=3; stalledCount silent=1").await;
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
pub const BROKEN: [(&str, &str, &str); 44] = [
    ("waiting", "no payload.waiting", "no_payload miscounted"),
    ("delayed", "no payload.delayed", "no_payload"),
    ("orphan", "attempt orphan=1", "no_payload"),
    ("orphan", "result orphan=1", "no_payload"),
    ("completed", "failed completed=6", "two_places"),
    ("completed", "cancelled completed=6; failed completed=6; delayed completed=6", "two_places"),
    ("failed", "cancelled failed=6", "two_places"),
    ("delayed", "cancelled delayed=6", "two_places"),
    ("heard", "completed heard=6", "two_places"),
    ("silent", "delayed silent=6", "two_places"),
    ("heard", "delayed heard=6; failed heard=6", "two_places"),
    ("waiting", "no wait", "unplaced"),
    ("delayed", "no delayed.delayed", "unplaced"),
    ("failed", "no failed.failed", "unplaced"),
    ("completed", "no completed.completed; result completed=7", "ended_unplaced"),
    ("failed", r#"no failed.failed; error failed={"code":"disk"}"#, "unplaced"),
    ("failed", r#"no failed.failed; error failed={"code":"expired"}"#, "ended_unplaced"),
    ("failed", r#"no failed.failed; meta attempts=4; error failed={"code":"disk"}"#, "unplaced"),
    ("failed", r#"no failed.failed; meta attempts=3; error failed={"code":"disk"}"#, "ended_unplaced"),
    ("failed", r#"no failed.failed; options failed={"attempts":3}; error failed={"code":"disk"}"#, "ended_unplaced"),
    (
        "failed",
        r#"no failed.failed; meta attempts=3; error failed={"code":"disk"}; active failed"#,
        "unplaced unlocked",
    ),
    ("failed", r#"no failed.failed; error failed={"code":"disk"}; enqueuedAt failed=5"#, "unplaced"),
    ("cancelled", r#"no cancelled.cancelled; error cancelled={"code":"cancelled"}"#, "ended_unplaced"),
    (
        "cancelled",
        "no cancelled.cancelled; error cancelled={\"code\":\"cancelled\"}; wait cancelled; tombstones cancelled=1; \
         meta tombstones=1",
        "ended_unplaced",
    ),
    (
        "cancelled",
        "no cancelled.cancelled; error cancelled={\"code\":\"cancelled\"}; wait cancelled; tombstones cancelled=1; \
         meta tombstones=1; enqueuedAt cancelled=5",
        "miscounted",
    ),
    ("failed", "no failed.failed; wait failed; tombstones failed=1; meta tombstones=1", "miscounted"),
    ("waiting", "active waiting", "unlocked"),
    ("completed", "candidates completed", "unlocked"),
    ("silent", "no locks.silent", "unplaced unlocked"),
    ("heard", "no active.heard", "unwatched"),
    ("heard", "candidates heard", "both_sets"),
    ("waiting", "cancelling waiting=why", "stray_cancel"),
    ("waiting", "claimed waiting=7", "stray_claim"),
    ("heard", "claimed heard=7", "stray_claim"),
    ("orphan", "claimed orphan=7", "no_payload"),
    ("completed", "outcome completed=completed", "stray_hook"),
    ("failed", "no failed.failed; finalizing failed=6", "stray_hook"),
    ("waiting", "outcome waiting=completed; no wait", "unplaced"),
    ("heard", "outcome heard=completed; finalizing heard=6", "two_places"),
    ("orphan", "finalizing orphan=6", "no_payload"),
    ("failed", "attempt failed=many", "bad_counter"),
    ("silent", "stalledCount silent=1.5; attempt silent=x", "bad_counter"),
    ("waiting", "wait waiting", "miscounted"),
    ("waiting", "tombstones waiting=2; meta tombstones=2", "miscounted"),
];

#[tokio::test]
async fn a_sound_task_has_no_faults_and_a_look_changes_nothing() {
    let mut task = sound().await;
    let args = format!("9999999999999 {SOUND}");
    assert_eq!(task.unchanged("look", &args).await, "[looked '' '' '' '' '' '' '' '']");
    // An ended job no longer needs a payload, and the worker of a running one has it.
    for id in ["completed", "failed", "cancelled", "silent", "heard"] {
        task.lose(&format!("payload.{id}")).await;
    }
    assert_eq!(task.ok("look", &args).await, "[looked '' '' '' '' '' '' '' '']");
}

#[tokio::test]
async fn each_fault_has_its_name_and_other_jobs_stay_sound() {
    for (id, harms, wanted) in BROKEN {
        let mut task = sound().await;
        task.write(harms).await;
        let before = task.exact().await;
        assert_eq!(fault(&mut task, id).await, wanted, "{harms}");
        let others: Vec<&str> = SOUND.split(' ').step_by(2).filter(|other| *other != id).collect();
        let found = faults(&mut task, &others).await;
        assert!(found.iter().all(String::is_empty), "{harms}: {found:?}");
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
    let mut task = Task::with("waits first cancelled removed anew twice later held last").await;
    task.ok("cancel", "why channel - cancelled -").await;
    for id in ["removed", "anew", "twice", "later", "held"] {
        task.ok("remove", &["", id, ""]).await;
    }
    task.ok("dispatch", "1 1 - anew 1 twice 1").await;
    task.ok("remove", "- twice -").await;
    task.ok("dispatch", "1 1 1 later 1 delay 1 9000000").await;
    // High priority, so that it is claimed first.
    task.ok("dispatch", "1 1 1 held 1 priority 1 high").await;
    task.ok("settle", "1 w 1000 1 0 0").await;
    let ids = ["first", "cancelled", "removed", "anew", "twice", "later", "held", "last"];
    assert_eq!(faults(&mut task, &ids).await, [""; 8]);
    assert_eq!(task.held("tombstones").await.matches(':').count(), 6, "{}", task.held("tombstones").await);
}

#[tokio::test]
async fn a_tombstone_with_a_leftover_column_lacks_its_payload() {
    let mut task = Task::with("waits first a").await;
    task.ok("remove", "- a -").await;
    assert_eq!(fault(&mut task, "a").await, "");
    task.write("attempt a=1").await;
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
