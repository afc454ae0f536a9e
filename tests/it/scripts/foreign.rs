//! A key of another type in place of each key in turn: the call either fails with WRONGTYPE before its first write, or
//! works without that key.

use crate::scripts::call::{Args, Task, code_of, timeless, without};
use crate::scripts::flow;
use crate::scripts::schedules::{Firing, New};

/// Keys that a script writes last, by pcall: an error there must not undo the transition.
const ANNOUNCEMENTS: [&str; 3] = ["events", "stalls", "wake"];

/// A task with a job in every place, so that each script uses each key.
async fn busy() -> Task {
    let mut task =
        Task::with("meta epoch=5, interval=1000, ask=1000; cancelling to-cancel=why; maxCount to-fail=0").await;
    task.write("runs w: lost=5, stalled=6, to-cancel=7, to-fail=8, requeued=9, hook-held=13; snapshot").await;
    task.write("runs w: run-1=1, run-2=2, run-3=3, run-4=4, ahead-1=10, ahead-2=11, ~f/a/0/1=12").await;
    task.write("claimed requeued=9, ahead-1=10, ahead-2=11; waits w-1 w-2; payload h-1={}, l-1={}, d-1={}").await;
    task.write("priority h-1=high, l-1=low, run-4=low; wait:high h-1; wait:low l-1; delayed d-1=9e15").await;
    task.write("completed old-completed=1; failed old-failed=1; cancelled old-cancelled=1").await;
    task.write("attempt w-1=1; stalledCount w-1=1").await;
    for column in ["options", "dispatchedAt", "result", "error", "snoozes", "recovery", "checkpoint", "progress"] {
        task.write(&format!("{column} w-1=1, old-completed=1")).await;
    }
    // One that has expired, one that may expire, one whose hook is due, and one whose hook was running.
    task.write("payload late={}, in-time={}, hook-due={}; wait:high late in-time; expires late=5, in-time=9e12").await;
    task.write("expiresAt late=5, in-time=9000000000000; outcome hook-due=completed 0 0 -, hook-held=failed 0 0 5")
        .await;
    task.write("finalizing hook-due=5; parked run-1=1 running 1").await;
    // An entry whose job was removed while it waited.
    task.write("wait gone; tombstones gone=1; meta tombstones=1; enqueuedAt w-1=1; replies other=1\n\n\n1\n0\n").await;
    task.write("meta maxAgeCompleted=60000; worker host=h; workers w=1").await;
    // Ended jobs that are not reported to their workflows yet.
    task.write("outbox old-completed=6, old-failed=6, old-cancelled=6, gone=6").await;
    busy_schedules(&mut task).await;
    // Unique keys of a waiting job, a claimed one, and one that is gone.
    task.write("unique k=w-1 done 0 1, c=ahead-1 done 0 1; uniqueOf w-1=k, ahead-1=c, gone=g").await;
    task
}

/// Schedules: one that is due, one in code that no worker names, one whose pending tick may fire, one whose pending
/// tick replaces a running job, and removed ones.
async fn busy_schedules(task: &mut Task) {
    task.write("schedules:rule s-due=d - code 1 w {}, s-old=d - code 1 w {}, s-held=d - put 0 ada {}").await;
    task.write("schedules:input s-due=7, s-old=7, s-held=7; schedules:paused s-old={}; schedules:ticks s-due=1f1")
        .await;
    task.write("schedules:ledger s-due=5 1 1 0 0 0 0 1 run-1 1 1 - - -").await;
    for name in ["s-old", "s-held"] {
        task.write(&format!("schedules:ledger {name}=9000000000000 1 1 0 0 0 0 1 old-failed 1 1 2 1 -")).await;
    }
    task.write(r#"schedules:rule s-next=d - put 0 ada {"overlap":"replace"}; schedules:pending s-next=1"#).await;
    task.write("schedules:ledger s-next=9000000000000 1 1 0 0 0 0 1 run-1 1 1 2 1 -").await;
    task.write("schedules:ledger s-gone=- 1 1 0 0 0 0 - - - - - - -; schedules:gone s-gone=1").await;
    task.write("schedules s-due=5, s-old=9e12, s-held=9e12; schedules:pending s-held=1, s-old=1").await;
    task.write("schedules:keepers silent=1; schedules:named s-old=1").await;
}

/// Instances of workflows: running, stopping, paused, ended, and others.
async fn busy_workflows() -> Task {
    let mut task = Task::new().await;
    let graph = flow::graph("cancel", "1", "p 0 0, - -, 1; p 1 1, - 0; p 0 0, - -; p 1 1, - -");
    for id in ["f-runs", "f-stops", "f-paused", "f-ended", "f-over", "f-ready", "f-failed"] {
        task.put(&graph, id).await;
    }
    task.write("instances f-stops=1 0 3 1 d 2, f-ended=1 1 0 0 d -; nodes f-stops/2=f; value f-stops/2=E").await;
    task.write("stopping f-stops=failed ; output f-ended=7; headers f-runs={}; cursor f-runs/2/1=0 c").await;
    for id in ["f-paused", "f-ended"] {
        task.lose(&format!("running.{id}")).await;
    }
    task.write("paused f-paused=5; completed f-ended=5").await;
    // One that was paused before its last node ended, one with a ready node, and one that failed.
    for (id, place) in [("f-over", "paused"), ("f-ready", "running"), ("f-failed", "failed")] {
        task.lose(&format!("running.{id}")).await;
        task.write(&format!("{place} {id}=5; nodes {id}/0=f, {id}/1=p 0 0; value {id}/0=E")).await;
        task.hset("instances", &[(id, if id == "f-ready" { "1 0 2 0 d 0" } else { "1 0 0 0 d 0" })]).await;
    }
    task.write("error f-failed=E; outbox o f-ready/1=5").await;
    for entry in ["s f-runs/0/1", "s f-paused/0/1", "s gone/0/1", "v f-runs/2/1", "x f-stops/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    // Graphs as nodes: one whose child is to start, one whose child runs, one whose child stops.
    let child = flow::graph("finish", "0", "p 0 0, - -").named("e");
    for id in ["f-graph", "f-outer", "f-ends"] {
        task.put(&flow::graph("finish", "0", "p 0 0, g -").named("g"), id).await;
    }
    for id in ["f-outer/0.1", "f-ends/0.1", "f-ended/0.1"] {
        task.put(&child, id).await;
        task.zadd("children", 0.0, id).await;
    }
    task.write("stopping f-ends/0.1=cancelled why; instances f-ended/0.1=1 1 0 0 e - 0 c").await;
    task.write("no running.f-ended/0.1; shapes e#=4; grow f-ended/0.1/0={}, f-given-up/0={}").await;
    // Starts in parts.
    task.write("staging f-comes=n 2 5 l 3, f-given-up=m 1 5 e 1; nodes f-given-up/0=p 0 0; value f-given-up/0=7").await;
    task.write("deadlines f-ended=9e15; tasks t=5").await;
    // The script `flow_turn` has another first key than the table.
    task.write("workers f=5").await;
    task
}

/// What the script has to work on.
async fn busy_for(name: &str, fields: &str) -> Task {
    let mut task = if name.starts_with("flow_") { busy_workflows().await } else { busy().await };
    task.write(&format!("meta {fields}")).await;
    if fields == "deadline=passed" {
        task.write("deadlines f-runs=5, f-over=5, f-stops=5, f-ended=5, absent=5").await;
    }
    task
}

async fn each_key(name: &str, args: &(impl Args + ?Sized)) {
    each_key_with("epoch=5", name, args).await;
}

/// The call is refused, or does the same, for each key of another type, with these fields in `meta`. Returns the keys
/// that the call worked without.
async fn each_key_with(fields: &str, name: &str, args: &(impl Args + ?Sized)) -> Vec<&'static str> {
    let mut without_them = Vec::new();
    let mut healthy = busy_for(name, fields).await;
    let reply = timeless(&healthy.ok(name, args).await);
    let left = healthy.keys().await;
    for key in healthy.script(name).keys.clone() {
        let mut task = busy_for(name, fields).await;
        task.make_foreign(key).await;
        let before = task.exact().await;
        match task.call(name, args).await.map(|answer| timeless(&answer)) {
            Err(error) => {
                assert_eq!(code_of(&error), "WRONGTYPE", "{name} with a foreign {key}: {error}");
                assert_eq!(task.exact().await, before, "{name} wrote something although {key} refused it");
                assert!(!ANNOUNCEMENTS.contains(&key), "{name} was refused by {key}, which only announces");
            }
            Ok(answer) => {
                without_them.push(key);
                assert_eq!(answer, reply, "{name} {:?} did something else because of a foreign {key}", args.words());
                assert_eq!(
                    without(task.keys().await, &[key]),
                    without(left.clone(), &[key]),
                    "{name} did less because of a foreign {key}"
                );
                let foreign = before.iter().find(|(at, _)| *at == task.key(key)).unwrap();
                assert!(task.exact().await.contains(foreign), "{name} changed a foreign {key}");
            }
        }
    }
    without_them
}

#[tokio::test]
async fn each_key_of_another_type_refuses_a_call_with_every_job() {
    // The table has a job for each key of each script, so a key that a script does not check before it writes is
    // found.
    let fields = "epoch=5, hook=1, nodes=1, grace=5 5 5, onCrash=retry";
    for (name, args) in [
        (
            "settle",
            "1 w 1000 '5 3 2 hooks' 1 '1 1' run-1 1 1 42 ahead-1 10 run-2 2 failed 1 panic E \
             run-3 3 retry 1 9000000 E run-4 4 requeue 0 - - hook-held 13 hooked 0 - -",
        ),
        ("sweep", "v 1000 5 1000 0 200 auto -"),
        ("reconcile", "v worker_restarted - 0 500 w"),
        ("expire", "w 200"),
        ("trim", "w Completed 60000 200"),
        ("note", "w run-1 1 1 {} p p"),
        ("extend_locks", "w 9000 2 0 stalled run-1 6 1"),
        ("cancel", "why channel - late - d-1 =delayed@1 old-failed - w-2 -"),
        ("retry", "- 0 late - d-1 =delayed@1 old-failed - w-2 -"),
        ("run_now", "- late - d-1 =delayed@1 old-failed - w-2 -"),
        ("remove", "- late - d-1 =delayed@1 old-failed - w-2 -"),
        ("mend", "anna 9999999999999 late 0 unplaced run-1 0 both_sets"),
    ] {
        let mut without_them = each_key_with(fields, name, args).await;
        without_them.retain(|key| !ANNOUNCEMENTS.contains(key));
        assert!(without_them.is_empty(), "{name} does not ask about {without_them:?}");
    }
}

#[tokio::test]
async fn a_script_writes_nothing_if_a_key_has_another_type() {
    let columns = "options 1 {} maxCount 1 3 priority 1 high priority 2 low dispatchedAt 3 7 delay 4 60000";
    each_key("dispatch", &format!("1 1 4 a {{}} b {{}} c {{}} d {{}} {columns}")).await;
    let own = "options 1 {} maxCount 1 3 priority 1 high dispatchedAt 1 7 delay 1 60000 expires 1 90000";
    for key in ["new done 0", "k replace 0", "k debounce 90000", "c replace 0", "k done 0"] {
        each_key("dispatch_unique", &format!("1 1 n n {{}} {key} {own}")).await;
    }
    for (name, args) in [
        ("trim_unique", "0 500 0"),
        ("trim_lanes", "laneOf - 500"),
        ("lane_put", "k pause - ada"),
        ("series_add", "w3 1"),
        ("note", "w run-1 1 1 {} p p"),
        ("extend_locks", "w 9000 2 2 stalled run-1 to-cancel run-2 6 1 7 2"),
        ("sweep", "v 1000 5 1000 0 200 auto -"),
        ("reconcile", "v worker_restarted - 0 500 w"),
        ("mend", "anna 9999999999999 old-completed 0 no_payload run-1 0 both_sets old-failed 0 no_payload"),
        ("forget", ""),
        ("trim", "w Completed 60000 200"),
        ("declare", "1 - w maxCount 2"),
        ("declare", "1 100 w maxCount 2"),
        ("close", "w w/2 w/3"),
        ("announce", "host h"),
        ("enlist", "w"),
        ("shrink", ""),
        ("ended", "10000 200"),
    ] {
        each_key(name, args).await;
    }
}

#[tokio::test]
async fn settle_writes_nothing_if_a_key_has_another_type() {
    let ends = "1 w 1000 4 1 1 run-1 1 1 42 run-2 2 failed 1 panic E run-3 3 retry 1 9000000 E";
    each_key("settle", &format!("{ends} run-4 4 requeue 0 - - lost 1 requeue 0 - -")).await;
    each_key_with("paused=1", "settle", "1 w 1000 4 1 1 run-1 1 1 42 run-4 4 requeue 0 - -").await;
    for job in ["run-1 1", "~f/a/0/1 12"] {
        // The time to the next due job is then the same in each reply.
        let args = format!("1 w 1000 0 1 0 {job} run-2 2 drop 0 - - run-3 3 retry 1 9000000 E");
        each_key_with("nodes=1, keepCompleted=0", "settle", &args).await;
    }
}

#[tokio::test]
async fn settle_claims_ahead_nothing_if_a_key_has_another_type() {
    for args in [
        "1 w 1000 '4 2 1' 0 '0 2' ahead-1 ahead-2 10 11 run-1 1 unstart 0 - -",
        "1 w 1000 '4 2 1' 0 '0 2' ahead-1 ahead-2 10 11",
        "1 w 1000 '4 2 1' 0 0",
        "1 w 1000 0 0 '0 1' ahead-1 10",
        "1 w 1000 0 0 0 run-1 1 unstart 0 - -",
        "1 w 1000 0 0 '0 1' to-cancel 7",
    ] {
        // The time to the next due job is then the same in each reply.
        let args = format!("{args} run-3 3 retry 1 9000000 E");
        each_key("settle", &args).await;
        each_key_with("paused=1", "settle", &args).await;
    }
}

#[tokio::test]
async fn actions_write_nothing_if_a_key_has_another_type() {
    for id in ["w-1", "h-1", "l-1", "d-1", "run-1"] {
        each_key("cancel", &format!("why channel anna {id} -")).await;
    }
    each_key("cancel", "why channel anna w-1 - h-1 - l-1 - d-1 - run-1 - w-2 - absent -").await;
    let of_retry = ("retry", "anna 0", "old-failed");
    for (name, by, alone) in [of_retry, ("remove", "anna", "w-2"), ("run_now", "anna", "d-1")] {
        each_key(name, &format!("{by} w-2 - h-1 - d-1 - run-1 - old-failed - old-cancelled - absent -")).await;
        each_key(name, &format!("{by} {alone} -")).await;
    }
    for (name, args) in [("pause", "anna why"), ("resume", "anna"), ("audited", "'nowhere 2'")] {
        each_key(name, args).await;
        each_key_with("paused=9000000000000, pausedBy=bob, pauseReason=why", name, args).await;
    }
}

#[tokio::test]
async fn reads_change_nothing_if_a_key_has_another_type() {
    for state in ["waiting", "claimed", "running", "delayed"] {
        each_key("jobs", &format!("{state} 1 - 100 -inf +inf - -")).await;
    }
    for (name, args) in [("overview", ""), ("counts", ""), ("look", "9999999999999 w-1 1 gone 1 run-1 0 absent 0")] {
        each_key(name, args).await;
    }
    let ids = "w-1 h-1 d-1 run-1 ahead-1 stalled old-completed old-failed old-cancelled absent";
    each_key("states", ids).await;
    for id in ids.split(' ') {
        each_key("inspect", id).await;
    }
}

#[tokio::test]
async fn starts_of_workflows_write_nothing_if_a_key_has_another_type() {
    each_key("flow_start", &flow::line().start("new", true)).await;
    each_key("flow_start", &flow::line().start("f-runs", true)).await;
    each_key("flow_start", "new other 1 - 0 0 0 t '' o 0 {}").await;
    // With a delay and a deadline; and children, the last without a waiting node.
    for id in ["timed", "f-graph/0.1", "absent/0.1"] {
        let mut args = flow::line().named("l").start(id, true);
        (args[5], args[6]) = ("60000".to_owned(), "90000".to_owned());
        each_key("flow_start", &args).await;
    }
    for staged in ["n 2", "n 3"] {
        each_key("flow_start", &format!("f-comes l 3 '{staged}' 1 60000 90000 t {{}} l@ '3 finish 2'")).await;
    }
    for (id, nonce, number) in [("new", "n", 0), ("f-comes", "n", 2), ("f-comes", "o", 0), ("f-runs", "n", 0)] {
        each_key("flow_stage", &flow::line().named("l").parts(id, nonce, 2, false).0[number]).await;
    }
    each_key("flow_unstage", "60000").await;
}

#[tokio::test]
async fn ends_of_nodes_write_nothing_if_a_key_has_another_type() {
    let ends = ["f-runs 0 1 c 7", "f-runs 0 1 f E", "f-stops 0 1 x -", "f-paused 2 1 f E", "f-ended 0 1 c 7"];
    let of_children = ["f-outer/0.1 0 1 c 7", "f-ends/0.1 0 1 x -", "f-graph 0 1 F E", "f-runs 0 1 c '\u{1}2 42{}'"];
    for end in ends.into_iter().chain(of_children) {
        each_key("flow_advance", end).await;
    }
    for visit in ["f-runs 2 1", "f-stops 2 1", "absent 0 1"] {
        each_key("flow_visit", visit).await;
    }
    for nodes in ["f-runs 0 1 f-paused 0 1 absent 0 1", "f-runs 0 1 f-stops 0 1", "f-ends/0.1 0 1 f-outer/0.1 0 1"] {
        each_key("flow_enter", nodes).await;
    }
    each_key("flow_resend", "f-graph 0 1 f-outer 0 1").await;
    each_key("flow_resend", "f-runs 2 1 f-runs 0 1 f-stops 0 1 f-paused 2 1 absent 0 1").await;
}

#[tokio::test]
async fn cancels_and_reads_of_workflows_write_nothing_on_a_wrong_type() {
    for id in ["f-runs", "f-stops", "f-paused", "f-ended", "f-outer/0.1", "f-ends/0.1", "f-ended/0.1", "absent"] {
        each_key("flow_control", &format!("{id} why")).await;
        each_key("flow_state", id).await;
        each_key("flow_nodes", &format!("{id} 0 500")).await;
    }
}

#[tokio::test]
async fn workflow_maintenance_writes_nothing_on_a_wrong_type() {
    for grace in ["10000", "9000000000000"] {
        each_key_with("deadline=passed", "flow_look", &format!("{grace} 200")).await;
    }
    for (name, args) in [
        ("flow_look", "10000 200"),
        ("flow_turn", "5000 20"),
        ("flow_audit", "60000 200"),
        ("flow_place", "f-runs f-paused f-over absent"),
        ("flow_put_off", "'x f-runs/1' absent"),
        ("flow_trim", "60000 '-' 5000"),
        ("flow_trim", "9000000000000 0 5000"),
    ] {
        each_key(name, args).await;
    }
}

#[tokio::test]
async fn turns_and_new_runs_write_nothing_if_a_key_has_another_type() {
    let turns = ["f-runs 0 pause", "f-paused 0 resume", "f-over 0 resume", "f-stops 0 pause", "f-ended 0 resume"];
    for words in turns.into_iter().chain(["absent 0 pause"]) {
        each_key("flow_pause", words).await;
    }
    for words in ["f-ready 1", "f-runs 1", "f-stops 1", "absent 1"] {
        each_key("flow_open", words).await;
    }
    for id in ["f-failed", "f-over", "f-paused", "f-runs", "absent"] {
        for live in ["2", "'-'"] {
            each_key("flow_retry", &format!("{id} 0 {live} 0 'p 0 0' 1 'p 1 1'")).await;
        }
    }
}

#[tokio::test]
async fn scripts_of_schedules_write_nothing_on_a_wrong_type() {
    for (name, digest) in [("s-new", "d"), ("s-old", "e"), ("s-old", "d"), ("s-due", "e"), ("s-gone", "d")] {
        let new = New { digest, ..New::put(&mut Task::new().await).await };
        each_key("schedule_put", &new.args(name)).await;
    }
    let firings = [
        Firing::of("s-due", &[5, 15]),
        Firing::pending("s-held", 2),
        Firing::of("absent", &[5]),
        Firing { digest: "e", ..Firing::of("s-due", &[5]) },
    ];
    let all: Vec<String> = firings.iter().flat_map(Firing::args).collect();
    each_key("schedule_fire", &all).await;
    let high = each_key_with("priority=high", "schedule_fire", &Firing::with("s-due", "allow", &[5, 15]).args()).await;
    assert!(high.iter().all(|key| ANNOUNCEMENTS.contains(key)), "{high:?}");
    for (name, args) in [
        ("schedule_look", "50"),
        ("schedule_names", "w 0 s-due absent"),
        ("schedule_names", "w 1 s-due absent"),
        ("schedule_read", "s-due absent s-held"),
        ("schedule_pause", "s-due {}"),
        ("schedule_pause", "s-old -"),
        ("schedule_pause", "absent -"),
        ("schedule_run", "s-due d 1 5 s-due@5~9 {}"),
        ("schedule_run", "absent d 1 5 absent@5~9 {}"),
        ("schedule_remove", "s-old"),
        ("schedule_remove", "absent"),
    ] {
        each_key(name, args).await;
    }
}

#[tokio::test]
async fn dispatch_by_task_priority_writes_nothing_on_a_wrong_type() {
    let mut task = Task::with("meta priority=high").await;
    task.make_foreign("priority").await;
    assert_eq!(task.refused("dispatch", "1 1 - a 1").await, "WRONGTYPE");
}

#[tokio::test]
async fn settle_promotes_nothing_if_locks_have_another_type() {
    let mut task = Task::with("payload a=1; delayed a=1").await;
    task.make_foreign("locks").await;
    assert_eq!(task.refused("settle", "1 w 1000 1 0 0").await, "WRONGTYPE");
}
