//! Every script as `#!lua` on a cluster-mode node, which refuses a key in another slot, called by a user who may touch
//! only the declared keys of that call.

use crate::scripts::call::{Args, Task, assert_keys, assert_text};
use crate::scripts::schedules::{Firing, New, row};
use crate::support::{PATIENCE, TestRedis, eventually, plain_args, settle_args};
use heartline::_internals::scripts;
use heartline::testing::RedisServer;
use std::sync::Arc;

/// A node that owns every slot, and a task on it.
async fn cluster() -> Task {
    let server = RedisServer::builder().arg("--cluster-enabled").arg("yes").start().unwrap();
    let redis = Arc::new(TestRedis::from_process(server));
    let mut conn = redis.conn().await;
    let slots: Vec<u32> = (0..16_384).collect();
    let () = redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots).query_async(&mut conn).await.unwrap();
    eventually("the cluster is up", PATIENCE, async || {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut conn).await.unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query_async(&mut conn).await.unwrap();
    let version: String = info.get("redis_version").unwrap();
    // Since 7.0 the node checks keys itself if the script has a header; before, only the rights of its user do.
    let header = if version.starts_with("6.") { "" } else { "#!lua\n" };
    let mut task = Task::on(redis, header).await;
    task.bind_to_declared_keys().await;
    task
}

/// The rest of the columns of a job, so that each is written, read and removed.
async fn columns(task: &mut Task, ids: &[&str]) {
    for id in ids {
        for row in [
            "attempt ID=1; stalledCount ID=0; maxCount ID=1; dispatchedAt ID=7; snoozes ID=1:0; enqueuedAt ID=7",
            "recovery ID=silent w 7; expiresAt ID=9000000000000; options ID={}; result ID=1; error ID=E",
        ] {
            task.write(&row.replace("ID", id)).await;
        }
    }
}

#[tokio::test]
async fn the_node_refuses_forbidden_script_calls() {
    let mut task = cluster().await;
    let (own, neighbour) = (task.key("wait"), task.key("other"));
    let elsewhere = own.replace("{task}", "{other}");
    let get = |key: &str| format!("return redis.call('GET', '{key}')");
    for (script, keys) in [
        (get(&elsewhere), vec![own.clone()]),
        (get(&neighbour), vec![own.clone()]),
        (get(&own), vec![own.clone(), elsewhere.clone()]),
    ] {
        let refused = task.eval(&script, &keys, &[]).await;
        assert!(refused.is_err(), "{script} {keys:?}: {refused:?}");
    }
    assert_eq!(task.eval(&get(&own), std::slice::from_ref(&own), &[]).await.unwrap(), "nil");
}

#[tokio::test]
async fn dispatch_declares_its_keys() {
    let mut task = cluster().await;
    let args = "1 1 5 a 1 b 2 c 3 d 4 e 5 priority 1 high priority 2 low delay 3 60000 options 1 {} maxCount 1 3 \
         dispatchedAt 1 7";
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    assert_eq!(task.ok("dispatch", &args).await, "dispatched 1 2 3 4 5");
    task.write("meta wire=9").await;
    assert_eq!(task.refused("dispatch", &args).await, "NEWERWIRE");
}

#[tokio::test]
async fn dispatch_unique_and_trim_unique_declare_their_keys() {
    for keep in ["1", "0"] {
        let mut task = cluster().await;
        task.write(&format!("meta keepCancelled={keep}; runs w: ahead=1; claimed ahead=1")).await;
        task.write("unique c=ahead done 0 1").await;
        columns(&mut task, &["ahead"]).await;
        let own = "options 1 {} maxCount 1 3 priority 1 high dispatchedAt 1 7 delay 1 60000 expires 1 90000";
        for (args, told) in [
            (format!("1 1 a a 1 k done 0 {own}"), "new a"),
            (format!("1 1 b b 1 k debounce 90000 {own}"), "postponed a"),
            ("1 1 c c 1 c replace 0".to_owned(), "replaced c"),
            ("1 1 d d 1 c done 0".to_owned(), "existed c"),
        ] {
            assert_eq!(task.ok("dispatch_unique", &args).await, format!("[placed {told}]"), "{args}");
        }
        assert_eq!(task.ok("remove", "- a - c -").await, "[told removed removed]");
        assert_eq!(task.ok("trim_unique", "0 500 0").await, "[trimmed 0 2 2]");
        assert_keys!(task, "no unique, uniqueOf");
    }
}

#[tokio::test]
async fn scripts_of_lanes_declare_their_keys() {
    let mut task = cluster().await;
    task.write("meta perKey=1 9 60000000").await;
    let args = "1 1 4 a 1 b 2 c 3 d 4 laneOf 1 k laneOf 2 k laneOf 3 l laneOf 4 m delay 4 60000";
    assert_eq!(task.ok("dispatch", &args).await, "dispatched");
    assert!(task.ok("settle_keyed", "1 w 1000 9 0 0").await.contains(" a c ["));
    let fence: u64 = task.field("locks", "a").await.strip_prefix("w:").unwrap().parse().unwrap();
    assert!(task.ok("settle_keyed", &format!("2 w 1000 9 '1 42' 0 a {fence}")).await.contains(" b ["));
    for place in ["laneOf", "laneStarts", "laneHeld", "lanes"] {
        assert!(task.ok("trim_lanes", &format!("{place} - 500")).await.starts_with("[trimmed "));
    }
    assert_eq!(task.ok("series_add", "w3 1").await, "[added]");
    assert_eq!(task.ok("lane_put", "k weight 2 ada").await, "[put 0]");
    assert!(task.ok("lanes", "ready 9").await.starts_with("[lanes "));
    assert!(task.ok("lanes", "own 9").await.contains(" k "));
    assert!(task.ok("lane_read", "k 9").await.starts_with("[lane "));
    assert!(task.ok_at("delayed", "jobs", "waiting 0 'l -' 10 -inf +inf - -").await.starts_with("[page "));
}

#[tokio::test]
async fn partitions_declares_its_keys() {
    let mut task = cluster().await;
    task.lose_options().await;
    assert_eq!(task.ok("partitions", "1 4").await, "[partitions 4]");
    assert_eq!(task.ok("dispatch", "1 1 - a 1").await, "partitions 4");
}

#[tokio::test]
async fn declare_declares_its_keys() {
    let mut task = cluster().await;
    assert_eq!(task.ok("declare", "1 100 w maxCount 2").await, "[declared 100 []]");
    assert_eq!(task.ok("declare", "1 200 w maxCount 3").await, "[declared 200 [maxCount 2 3]]");
    assert_eq!(task.ok("declare", "1 100 w maxCount 2").await, "[kept 200]");
    assert!(task.ok("declare", "1 - w maxCount 3").await.starts_with("[declared 1"));
    assert!(task.ok("declare", "1 - w hook 1").await.starts_with("[declared 1"));
    assert_eq!(task.refused("declare", "0 - w maxCount 2").await, "NEWERWIRE");
}

#[tokio::test]
async fn hooks_declare_their_keys() {
    for keep in ["1", "0"] {
        let mut task = cluster().await;
        task.write(&format!("meta keepCompleted={keep}, keepFailed={keep}, keepCancelled={keep}, hook=1, epoch=5"))
            .await;
        task.write("runs w: completed=1, failed=2, retry=3, back=4, stalled=5, dead=6").await;
        task.write("runs gone: gone=7, over=8; waits waits expires; expiresAt expires=1; expires expires=1").await;
        columns(&mut task, &["completed", "failed", "retry", "stalled"]).await;
        for id in ["retry", "back", "stalled", "dead", "gone"] {
            task.write(&format!("outcome {id}=completed 0 0 5, over=failed 0 1 -")).await;
        }
        let args = "1 w 1000 '3 hooks' '1 5' 1 completed 1 1 42 failed 2 failed 1 'panic - 5' {} retry 3 hook_retry 1 \
             '60000 odd -' - back 4 requeue 0 - -";
        assert!(task.ok("settle", &args).await.contains(" completed failed waits ["));
        assert!(task.ok("settle", &args).await.contains(" completed failed waits ["), "repeated");
        assert_eq!(task.ok("expire", "w 10").await, "[expired 1 0]");
        task.write("waits cancelled").await;
        assert_eq!(task.ok("cancel", "why channel - cancelled -").await, "[told ended]");
        assert!(task.ok("reconcile", "w manual - 0 100 gone").await.contains("gone 1 requeued gone 7"));
        task.write("snapshot; outcome dead=completed 0 9 5").await;
        let swept = task.ok("sweep", "v 1000 5 30000 0 200").await;
        assert!(swept.contains(" 1 requeued w 5") && swept.contains("dead 10 completed w 6"), "{swept}");
        for state in ["finalizing", "running"] {
            task.ok("jobs", &[state, "0", "", "10", "-inf", "+inf", "", ""]).await;
        }
        assert_eq!(task.ok("states", "back").await, "[looked '' [finalizing] [0]]");
        assert!(task.ok("inspect", "back").await.contains(" completed 0 0 5 "));
        let counted = task.ok("counts", "").await;
        assert!(counted.starts_with("[counted 1 0 0 0 8 "), "{counted}");
        assert_eq!(task.ok("remove", "- back -").await, "[told removed]");
        task.write("meta hook=0").await;
        task.ok("settle", "2 w 1000 1 0 0").await;
        assert!(task.ok("jobs", "finalizing 0 - 10 -inf +inf - -").await.starts_with("[page "));
        assert_keys!(task, "no finalizing, outcome");
    }
}

#[tokio::test]
async fn settle_plain_declares_its_keys() {
    for keep in ["1", "0"] {
        let mut task = cluster().await;
        task.write(&format!("meta keepCompleted={keep}, nodes=1, ask=1000, largest=1024; replies w=1\n\n\n5\n1\na"))
            .await;
        task.write("runs w: a=5, b=6, e=7; claimed b=6, e=7; early a=5; waits c d f; candidates a").await;
        task.write("completed o=1; failed o=1; cancelled o=1; delayed o=9e15").await;
        columns(&mut task, &["a"]).await;
        task.write("enqueuedAt c=7; checkpoint a=1; progress a=1").await;
        let short = "2 w 1000 '3 2 1' '1 42' '1 2 1' a 5 1 9 b e 6 7";
        let args = plain_args(&settle_args(&short.words())).unwrap();
        assert_text!(task.ok("settle_plain", &args).await, starts_with("[settled "), contains(" c d f [{} {} {}] "));
    }
}

#[tokio::test]
async fn settle_and_close_declare_their_keys() {
    for keep in ["1", "0"] {
        let mut task = cluster().await;
        task.write(&format!("meta keepCompleted={keep}, keepFailed={keep}, keepCancelled={keep}")).await;
        task.write("runs w: completed=1, failed=2, retry=3, requeue=4, cancelled=5, valued=6").await;
        task.write("cancelling cancelled=why; payload due=1, later=1, corrupt=1, high=1, low=1").await;
        columns(&mut task, &["completed", "failed", "retry", "requeue", "cancelled", "due", "corrupt", "tombstone"])
            .await;
        task.write("priority high=high, low=low, requeue=high, due=low; attempt corrupt=many").await;
        task.write("delayed due=1, later=9e15; wait:high high; wait:low low tombstone; waits normal corrupt").await;
        let args = "1 w 1000 10 2 1 completed valued 1 6 2 42 failed 2 failed 1 panic E retry 3 retry 1 60000 E \
             requeue 4 requeue 0 - - cancelled 5 requeue 0 - - lost 9 requeue 0 - -";
        assert_text!(task.ok("settle", &args).await, contains(" high normal low due ["));
        assert!(task.ok("settle", &args).await.starts_with("[settled 9 5 "));
        assert_eq!(task.ok("settle", "0 w 1000 0 0 0").await, "[stale]");
        task.write("waits more left").await;
        assert!(task.ok("settle", "1/2 w 9000 2 0 0").await.contains(" requeue more ["));
        task.write("meta largest=1024").await;
        assert!(task.ok("settle", "1/3 w 9000 2 0 0").await.contains(" left ["));
        task.write("runs w: begins=7, expired=8, unstarted=9; claimed begins=7, expired=8; expiresAt expired=5").await;
        task.write("waits ahead").await;
        let ahead = task.ok("settle", "2 w 1000 '9 1 0' 0 '0 2' begins expired 7 8 unstarted 9 unstart 0 - -").await;
        assert!(ahead.starts_with("[settled '' 8 ") && ahead.contains(" ahead ["), "{ahead}");
        task.lose_options().await;
        assert_eq!(task.ok("settle", "2/3 w 9000 2 0 0").await, "[undeclared]");
        assert_eq!(task.ok("close", "w w/2 w/3").await, "[closed]");
        assert_eq!(task.ok("settle", "2/3 w 9000 2 0 0").await, "[closed]");
    }
}

#[tokio::test]
async fn extend_locks_declares_its_keys() {
    let mut task = cluster().await;
    task.write("runs w: a=1, b=2; snapshot; locks unplaced=w:3; cancelling a=why").await;
    assert_eq!(task.ok("extend_locks", "w 1000 2 2 a lost b unplaced 1 9 2 3").await, "[beaten 0 1000 [9] [1] 1 2 0]");
    assert_keys!(task, "active a unplaced");
    assert_eq!(task.ok("extend_locks", "w 500 0 0").await, "[beaten 0 1000 [] [] 1 1 2]");
}

#[tokio::test]
async fn sweep_declares_its_keys() {
    for keep in ["1", "0"] {
        let mut task = cluster().await;
        task.hset("meta", &[("keepFailed", keep), ("keepCancelled", keep), ("interval", "1000")]).await;
        let ids = ["dropped", "unlocked", "corrupt", "cancelled", "failed", "recovered", "high", "ended"];
        task.running("w", &ids.iter().copied().zip(1..).collect::<Vec<_>>()).await;
        columns(&mut task, &ids).await;
        task.write("no payload.dropped, locks.unlocked, locks.ended").await;
        task.write("completed ended=1; stalledCount corrupt=many; cancelling cancelled=why; maxCount failed=0").await;
        task.write("priority high=high; snapshot; runs w: young=99").await;
        assert_eq!(task.ok("sweep", "v 1000 1 1000 0 200 auto -").await, "[moved 0 1000]");
        assert_eq!(task.ok("sweep", "v 1000 0 999 0 200 auto -").await, "[early 0 1000]");
        let reply = task.ok("sweep", "v 1000 0 1000 0 200 auto -").await;
        assert!(reply.starts_with("[swept 1 1000 0 1 ") && reply.matches(" w").count() >= 5, "{reply}");
        assert_keys!(task, "candidates young");
        task.lose_options().await;
        assert_eq!(task.ok("sweep", "v 1000 1 1000 0 200 auto -").await, "[undeclared]");
    }
}

#[tokio::test]
async fn scripts_that_park_jobs_declare_their_keys() {
    let mut task = cluster().await;
    task.ok("declare", "1 - w grace 'off off off' maxCount 1").await;
    task.write("runs w: ahead=1, runs=2, ends=3; claimed ahead=1; outcome ends=completed 0 0 5").await;
    task.write("parked gone=9 running 1; snapshot").await;
    assert_eq!(task.ok("reconcile", "v worker_restarted - 0 500 w").await, "[reconciled 0 0 []]");
    assert_eq!(task.ok("sweep", "v 1000 0 1000 0 200 auto -").await, "[swept 1 1000 0 1 0 [] 3]");
    assert!(!task.held("parked").await.contains("gone"));
    task.ok("extend_locks", "w 1000 1 0 ahead 1").await;
    let reply = task.ok("sweep", "p 0 - 0 0 200 recover ada ahead runs ends").await;
    assert!(reply.contains("runs 1 recovered w 2 ends 1 requeued w 3"), "{reply}");
    task.ok("declare", "1 - w grace -").await;
    assert_keys!(task, "no parked");
}

#[tokio::test]
async fn cancel_declares_its_keys() {
    for keep in ["1", "0"] {
        let mut task = cluster().await;
        task.hset("meta", &[("keepCancelled", keep)]).await;
        task.write("waits waiting; runs w: running=1; payload delayed=1, high=1; priority high=high").await;
        task.write("wait:high high; delayed delayed=9e15; completed completed=1").await;
        columns(&mut task, &["waiting", "high", "delayed"]).await;
        let channel = task.key("cancel");
        task.write("waits first after").await;
        for (jobs, told) in [
            ("anna waiting - high - delayed - running - completed -", "ended ended ended requested completed"),
            ("- absent - running w:9", "unknown changed"),
            ("- after -", "ended"),
        ] {
            assert_eq!(task.ok("cancel", &format!("why {channel} {jobs}")).await, format!("[told {told}]"));
        }
        assert_keys!(task, "tombstones after=1");
    }
}

/// A job in every state; `gone` and `again` are tombstones; columns of those that have ended.
async fn every_state(task: &mut Task) {
    task.write("runs w: running=1; cancelling running=why; waits first waiting gone again").await;
    assert_eq!(task.ok("remove", "- gone -").await, "[told removed]");
    let cancel = format!("why {} - again -", task.key("cancel"));
    assert_eq!(task.ok("cancel", &cancel).await, "[told ended]");
    for place in ["delayed", "completed", "failed", "cancelled"] {
        task.write(&format!("payload {place}=1; {place} {place}=5")).await;
        columns(task, &[place]).await;
    }
    task.write("priority failed=high, delayed=low").await;
}

#[tokio::test]
async fn retry_remove_and_run_now_declare_their_keys() {
    let mut task = cluster().await;
    every_state(&mut task).await;
    let retried = task.ok("retry", "anna 0 failed - cancelled - again - waiting - running - absent - failed 4").await;
    assert_eq!(retried, "[told retried retried retried waiting running unknown changed]");
    assert_eq!(task.ok("run_now", "anna delayed - waiting -").await, "[told promoted waiting]");
    assert_keys!(task, "wait:high failed; wait:low delayed; wait first waiting gone again cancelled again");
    let removed = task.ok("remove", "anna waiting - completed - failed - delayed - running - absent -").await;
    assert_eq!(removed, "[told removed removed removed removed running unknown]");
    assert_text!(task.ok("settle", "1 w 1000 9 0 0").await, contains(" first again cancelled ["));
    assert_keys!(task, "no tombstones");
}

#[tokio::test]
async fn pause_audited_quiet_and_resume_declare_their_keys() {
    let mut task = cluster().await;
    every_state(&mut task).await;
    assert_eq!(task.ok("pause", "anna why").await, "[paused]");
    assert_eq!(task.ok("audited", "'nowhere 2'").await, "[noted]");
    assert_eq!(task.ok("quiet", "anna quiet w").await, "[recorded]");
    assert!(task.ok("pause", "anna why").await.starts_with("[already "));
    task.write("delayed delayed=1").await;
    assert_text!(task.ok("settle", "1 w 1000 9 0 0 running 1 requeue 0 - -").await, ends_with(" '' [] [] '' -1]"));
    assert!(task.ok("resume", "anna").await.starts_with("[resumed "));
    assert_eq!(task.ok("resume", "anna").await, "[already]");
    assert!(task.ok("settle", "2 w 1000 9 0 0").await.contains(" first waiting delayed ["));
}

#[tokio::test]
async fn overview_jobs_and_history_declare_their_keys() {
    let mut task = cluster().await;
    every_state(&mut task).await;
    assert!(task.ok("overview", "").await.contains(" [2 1 0 1 0 1 1 2] ['' '' first '' '' '' '' ''] 5 0 1 "));
    assert!(task.ok("jobs", "waiting 0 - 100 -inf +inf - -").await.starts_with("[page '' 4 [[first "));
    assert!(task.ok("jobs", "running 0 - 9 -inf +inf - -").await.contains("[running w:1 "));
    for place in ["delayed", "completed", "failed", "cancelled"] {
        for newest in ["0", "1"] {
            let reply = task.ok_at(place, "jobs", &format!("{place} {newest} '9 x' 9 1 9 - -")).await;
            assert_eq!(reply.contains(&format!("[{place} 5 5 {place} ")), newest == "1", "{reply}");
        }
    }
    assert_text!(task.ok("history", "gone 0-0 + 9").await, contains("removed gone"));
    assert_eq!(task.ok_at("stalls", "history", "gone 0-0 + 9").await, "[read '' []]");
}

#[tokio::test]
async fn scan_look_and_mend_declare_their_keys() {
    let mut task = cluster().await;
    every_state(&mut task).await;
    for (key, names) in [("locks", "running"), ("active", "running"), ("delayed", "delayed"), ("wait", "")] {
        assert_eq!(task.ok_at(key, "scan", "0 100").await, format!("[scanned 0 [{names}]]"), "{key}");
    }
    let sound = task.ok("look", "9999999999999 first 1 waiting 1 gone 1 again 1 running 0 failed 0").await;
    assert_eq!(sound, "[looked '' '' '' '' '' '']");
    task.write("failed completed=5; delayed lost=5; payload unplaced=1; active waiting; candidates running").await;
    task.write("locks first=w:9; cancelling cancelled=why; attempt failed=many; tombstones again=3").await;
    let args = "anna 9999999999999 completed 0 two_places lost 0 no_payload unplaced 0 unplaced waiting 1 unlocked \
         running 0 both_sets first 0 unwatched cancelled 0 stray_cancel failed 0 bad_counter again 1 miscounted";
    let mended = "two_places no_payload unplaced unlocked both_sets unwatched stray_cancel bad_counter miscounted";
    assert_eq!(task.ok("mend", args).await, format!("[mended {mended}]"));
}

#[tokio::test]
async fn forget_declares_its_keys() {
    let mut task = cluster().await;
    task.write("waits a").await;
    assert_eq!(task.ok("forget", "").await, "[jobs 1]");
    assert_eq!(task.ok("remove", "- a -").await, "[told removed]");
    assert!(task.ok("forget", "").await.starts_with("[forgotten "));
    assert!(task.exact().await.is_empty());
}

#[tokio::test]
async fn trim_inspect_states_and_counts_declare_their_keys() {
    let mut task = cluster().await;
    task.write("waits waiting; runs w: running=1").await;
    for (place, name) in [("completed", "Completed"), ("failed", "Failed"), ("cancelled", "Cancelled")] {
        task.write(&format!("payload {place}=1; {place} {place}=1; meta maxAge{name}=60000, maxCount{name}=5")).await;
        columns(&mut task, &[place]).await;
        assert!(task.ok("inspect", place).await.starts_with(&format!("[found {place} ")));
        assert!(task.ok("states", place).await.starts_with(&format!("[looked '' [{place}] ")));
        assert_eq!(task.ok_at(place, "trim", &format!("w {name} 60000 200")).await, "[trimmed 1 0]");
    }
    assert_eq!(task.ok("states", "waiting running absent").await, "[looked '' [waiting running unknown] [0 0 0]]");
    for (id, start) in [("waiting", "[found waiting "), ("running", "[found running "), ("absent", "[unknown]")] {
        assert!(task.ok("inspect", &[id]).await.starts_with(start));
    }
    assert_eq!(task.ok("counts", "").await, "[counted 1 0 0 1 0 0 0 0 0]");
}

#[tokio::test]
async fn expire_declares_its_keys() {
    let mut task = cluster().await;
    task.write("waits waits; payload later=1; delayed later=9e12").await;
    for id in ["waits", "later"] {
        columns(&mut task, &[id]).await;
        task.write(&format!("expiresAt {id}=5; expires {id}=5")).await;
    }
    task.write("meta keepFailed=0").await;
    assert_eq!(task.ok("expire", "w 200").await, "[expired 2 0]");
}

#[tokio::test]
async fn reconcile_declares_its_keys() {
    let mut task = cluster().await;
    let ids = ["recovered", "failed", "cancelled", "retried"];
    for (fence, id) in (1..).zip(ids) {
        task.running("w", &[(id, fence)]).await;
        columns(&mut task, &[id]).await;
    }
    task.write("meta maxCount=5; maxCount failed=0; cancelling cancelled=why").await;
    let reply = task.ok("reconcile", "v worker_restarted - 0 500 w").await;
    for part in ["recovered 1 recovered", "failed 1 failed", "cancelled 1 cancelled"] {
        assert!(reply.contains(part), "{part}: {reply}");
    }
    task.write(r#"runs x: again=9; meta onCrash=retry, retry={"attempts":3}"#).await;
    assert_text!(task.ok("reconcile", "v manual ada 0 500 x").await, contains("again 1 retrying x 9"));
}

#[tokio::test]
async fn announce_enlist_names_rights_note_and_shrink_declare_keys() {
    let mut task = cluster().await;
    task.write("runs w: a=1; candidates b").await;
    assert_eq!(task.ok("note", "w a 1 1 {} p p b 2 1 {} - -").await, "[noted [2]]");
    assert_eq!(task.ok("shrink", "").await, "[enough]");
    task.sadd("active", &(0..2_000).map(|number| format!("job-{number}")).collect::<Vec<_>>()).await;
    assert_eq!(task.ok("shrink", "").await, "[shrunk]");
    assert_eq!(task.ok("rights", "").await, "[rights]");
    assert_eq!(task.ok("announce", "host h").await, "[announced]");
    assert_eq!(task.ok("enlist", "w").await, "[enlisted]");
    assert_eq!(task.ok("take_name", "w").await, "[taken]");
}

#[tokio::test]
async fn the_scripts_of_schedules_declare_their_keys() {
    let mut task = cluster().await;
    task.write("meta priority=high").await;
    let code = New::code(&mut task, 9).await;
    for (new, reply) in [
        (code.clone(), "[written 1 0]"),
        (New { stamp: 10, ..code.clone() }, "[same 0]"),
        (New { digest: "e", stamp: 11, ..code.clone() }, "[written 0 0]"),
        (code, "[kept]"),
    ] {
        assert_eq!(task.ok("schedule_put", &new.args("old")).await, reply);
    }
    for name in ["a", "b"] {
        row(&mut task, name, 15).await;
    }
    assert_text!(task.ok("schedule_look", "50").await, contains("[a d - {} 15 "), contains("[b d - {} 15 "));
    let zone = "2026a";
    for (firing, answer) in [
        (Firing { zone, ..Firing::with("a", "queue", &[15, 25]) }, "done 1 -]"),
        (Firing { missed: 2, at_least: true, ..Firing::of("b", &[15]) }, "done 1 -]"),
        (Firing { zone, next: None, ..Firing::with("a", "replace", &[35]) }, "done 0 a@15]"),
        (Firing::pending("a", 35), "early]"),
    ] {
        assert_text!(task.ok("schedule_fire", &firing.args()).await, ends_with(answer));
    }
    task.write(r#"schedules:rule a=d 2026a put 0 ada {"overlap":"replace"}"#).await;
    assert_text!(task.ok("schedule_look", "50").await, ends_with(" [a@15]]"));
    task.write("completed a@15=1; schedules b=5").await;
    task.write("schedules:ledger b=5 many; schedules:pending b=1; schedules:named old=1; schedules:gone b=1").await;
    assert_text!(task.ok("schedule_look", "50").await, contains("[b] [[a "));
    assert_text!(task.ok("schedule_fire", &Firing::pending("a", 35).args()).await, ends_with("done 1 -]"));
    let now = task.now_ms().await;
    task.zadd("schedules:keepers", now, "w").await;
    row(&mut task, "c", 9_000_000_000_000).await;
    task.write("schedules:rule c=d - code 1 w {}").await;
    for (script, args, start) in [
        ("schedule_read", "a b none", "[read 1"),
        ("schedule_pause", "a {}", "[paused]"),
        ("schedule_pause", "a -", "[resumed]"),
        ("schedule_run", "a d 1 5 a@5~9 {}", "[ran 1]"),
        ("schedule_names", "w 1 a d b d c other", "[named [w] [old] [b] 1]"),
        ("schedule_remove", "a", "[removed]"),
        ("schedule_remove", "a", "[unknown]"),
    ] {
        let reply = task.ok(script, args).await;
        assert!(reply.starts_with(start), "{script}: {reply}");
    }
}

#[tokio::test]
async fn the_scripts_of_workflows_declare_their_keys() {
    let mut task = cluster().await;
    // Three nodes in a row.
    let args = "one d 3 '-' 5 0 0 t '{}' o 'p 1 1' 'p 1 1' d {} d@ '3 pause 2' d/0 '- - t\n\n1 1' d/1 '- - t\n\n1 2' \
         d/2 '- - t\n\n0' 0 7 1 7 2 7";
    assert_eq!(task.ok("flow_start", args).await, "[started one 0 1 t '' 0 here 7]");
    for (script, args, start) in [
        ("flow_state", "one", "[state running 1 3 1 d "),
        ("flow_nodes", "one 0 500", "[nodes 1 3 "),
        ("flow_enter", "one 0 1", "[entered go 1 {} 0]"),
        ("flow_look", "0 200", "[looked 0 0"),
        ("flow_resend", "one 0 1", "[resent 0]"),
        ("flow_advance", "one 0 1 c 5", "[advanced 0 one 1 1 t '' 0 here 7]"),
        ("flow_visit", "one 0 1", "[visited 0]"),
        ("flow_pause", "one 0 pause", "[paused]"),
        ("flow_pause", "one 1 resume", "[resumed 1]"),
        ("flow_open", "one 1", "[opened 0 0]"),
        ("flow_put_off", "'s one/0/1'", "[put]"),
        ("flow_place", "one", "[placed 0]"),
        ("flow_audit", "0 200", "[taken 0 one]"),
        ("flow_advance", "one 1 1 f E", "[advanced 0]"),
        ("flow_retry", "one 3 '-' 1 'p 0 0'", "[part]"),
        ("flow_retry", "one 3 2 2 'p 1 1'", "[again 2]"),
        ("flow_control", "one why", "[ended cancelled 0]"),
        ("flow_turn", "0 20", "[taken]"),
        ("ended", "0 200", "[ended 0]"),
    ] {
        let reply = task.ok(script, args).await;
        assert!(reply.starts_with(start), "{script}: {reply}");
    }
    assert_text!(task.ok_at("cancelled", "flow_list", "1 - 10").await, starts_with("[page '' one "));
    assert_eq!(task.ok_at("cancelled", "flow_trim", "0 '-' 0").await, "[trimmed 1 0]");
}

#[tokio::test]
async fn scripts_of_nested_graphs_and_part_starts_declare_their_keys() {
    let mut task = cluster().await;
    let start = |id, digest, state| format!("{id} {digest} 1 '-' 3 60000 90000 t '' {state}");
    let graph = |id| start(id, "e", "o") + " e {} e@ '1 finish 0' e/0 '- - t\n\n0' 0 7";
    let outer = start("one", "g", "g") + " g {} g@ '1 finish 0' g/0 'g - @\n\n0' 0 {}";
    for (script, args, begin) in [
        ("flow_start", outer.as_str(), "[started one 0 1 @ '' 60000 here {}]"),
        ("flow_start", &*graph("one/0.1"), "[started one/0.1 0 1 t '' "),
        ("flow_start", &*graph("one/9.1"), "[stale]"),
        ("flow_advance", "one/0.1 0 1 c '\u{1}2 42{}'", "[advanced 0 one/0.1 0 1 @ finish "),
        ("flow_resend", "one/0.1 0 1", "[resent 0]"),
        ("flow_start", &*graph("one/0.1/0.1"), "[started one/0.1/0.1 "),
        ("flow_advance", "one/0.1/0.1 0 1 c 8", "[advanced 0]"),
        ("flow_state", "one/0.1", "[state completed 1 0 0 e - '' '' 1 0]"),
        ("flow_state", "one", "[state completed 1 0 0 g - '' 8 1 0]"),
        ("flow_trim", "0 '-' 0", "[trimmed 1 0]"),
        ("flow_start", &*graph("late"), "[started late 0 1 t '' "),
        ("flow_stage", "two n 0 e 1 1 0 10000 0 'p 0 0'", "[staged 1]"),
        ("flow_stage", "two n 1 e 1 0 0 10000 0 7", "[staged 1]"),
        ("flow_start", "two e 1 'n 2' 0 0 0 t ''", "[started]"),
        ("flow_open", "two 1", "[opened 0 0 two 0 1 t '' 0 here 7]"),
        ("flow_stage", "given-up n 0 e 1 1 0 10000 0 'p 0 0'", "[staged 1]"),
        ("flow_unstage", "60000", "[unstaged 0 0]"),
    ] {
        let reply = task.ok(script, args).await;
        assert!(reply.starts_with(begin), "{script} {args}: {reply}");
    }
    task.write("staging given-up=n 1 5 e 1").await;
    assert_eq!(task.ok("flow_unstage", "60000").await, "[unstaged 1 0]");
    task.write("deadlines late=5").await;
    assert_eq!(task.ok("flow_look", "10000 200").await, "[looked 0 1 x late/1]");
    assert_keys!(task, "no staging, children");
}

#[test]
fn this_file_runs_every_script() {
    let source = include_str!("declared_keys.rs");
    for script in scripts() {
        let call = format!("\"{}\"", script.name);
        assert!(source.contains(&call), "no test of {} on a cluster-mode node", script.name);
    }
}
