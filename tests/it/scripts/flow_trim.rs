use crate::scripts::call::{Task, assert_keys, assert_rest};
use crate::scripts::flow::{Graph, fan, line, long_line, loose};

/// A minute, in ms.
const MINUTE: f64 = 60_000.0;

/// Writes an instance that completed this many ms ago.
async fn ended(task: &mut Task, graph: &Graph, id: &str, ago: f64) {
    task.put(graph, id).await;
    task.lose(&format!("running.{id}")).await;
    let states: Vec<(String, &str)> = (0..graph.len()).map(|node| (format!("{id}/{node}"), "c")).collect();
    for some in states.chunks(500) {
        let some: Vec<(&str, &str)> = some.iter().map(|(field, state)| (field.as_str(), *state)).collect();
        task.hset("nodes", &some).await;
    }
    task.write(&format!("value {id}/0=7; output {id}=7; error {id}=why; headers {id}={{}}")).await;
    task.hset("instances", &[(id, &format!("1 1 0 0 {} -", graph.digest))]).await;
    let now = task.now_ms().await;
    task.zadd("completed", now - ago, id).await;
    let key = task.key("shapes");
    let () = redis::AsyncCommands::hincr(&mut task.conn, key, format!("{}#", graph.digest), 1).await.unwrap();
}

#[tokio::test]
async fn old_instances_are_removed_whole_and_others_stay_whole() {
    let mut task = Task::new().await;
    for (id, ago) in [("old", 2.0 * MINUTE), ("older", 3.0 * MINUTE)] {
        ended(&mut task, &line(), id, ago).await;
    }
    let mut alone = Task::new().await;
    ended(&mut alone, &line(), "young", 0.5 * MINUTE).await;
    alone.put(&line(), "runs").await;
    ended(&mut task, &line(), "young", 0.5 * MINUTE).await;
    task.put(&line(), "runs").await;
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 2 0]");
    assert_keys!(task, "shapes.d#=1");
    assert_eq!(task.keys().await, alone.keys().await);
    assert_eq!(task.unchanged("flow_trim", "60000 - 5000").await, "[trimmed 0 0]");
}

#[tokio::test]
async fn a_shape_is_removed_with_its_last_instance_and_no_other_shape() {
    let mut task = Task::new().await;
    ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
    ended(&mut task, &line(), "b", 3.0 * MINUTE).await;
    // Of another shape whose name begins with this one.
    task.write("shapes dd={}, dd@=1 finish -, dd/0=- - t\n\n0, dd#=1").await;
    assert_eq!(task.ok("flow_trim", "150000 - 5000").await, "[trimmed 1 0]");
    assert_keys!(task, "shapes.d#=1; shapes.d@=3 finish 2");
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_rest!(task, "meta", r"shapes dd={}, dd#=1, dd/0=- - t\n\n0, dd@=1 finish -");
    // A new start sends it again.
    let args = line().start("a", false);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(task.ok("flow_start", &args).await, "[shape]");
}

#[tokio::test]
async fn the_youngest_are_kept_up_to_the_limit() {
    let mut task = Task::new().await;
    for (at, id) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        ended(&mut task, &line(), id, (50 - 10 * at) as f64 * 1000.0).await;
    }
    for keep in ["60000 5 5000", "60000 9 5000", "60000 - 5000", "60000 0 55000"] {
        assert_eq!(task.unchanged("flow_trim", keep).await, "[trimmed 0 0]", "{keep}");
    }
    assert_eq!(task.ok("flow_trim", "60000 3 5000").await, "[trimmed 2 0]");
    assert_keys!(task, "completed c=NOW, d=NOW, e=NOW");
    // An instance younger than the least age is kept.
    assert_eq!(task.ok("flow_trim", "60000 0 25000").await, "[trimmed 1 0]");
    assert_keys!(task, "completed d=NOW, e=NOW");
    // By age, instances within the limit are removed too.
    assert_eq!(task.ok("flow_trim", "15000 2 5000").await, "[trimmed 1 0]");
    assert_keys!(task, "instances e=1 1 0 0 d -; shapes.d#=1");
}

#[tokio::test]
async fn each_of_the_three_places_is_trimmed_separately() {
    for place in ["completed", "failed", "cancelled"] {
        let mut task = Task::new().await;
        ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
        task.write(&format!("no completed; {place} a=5")).await;
        for other in ["completed", "failed", "cancelled"] {
            let reply = task.ok_at(other, "flow_trim", "60000 - 5000").await;
            assert_eq!(reply, format!("[trimmed {} 0]", u8::from(other == place)), "{other}");
        }
        assert_rest!(task, "meta", "");
    }
}

#[tokio::test]
async fn a_call_removes_500_nodes_and_reports_more() {
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        ended(&mut task, &loose(300), id, 2.0 * MINUTE).await;
    }
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 1 1]");
    // A partly removed instance cannot run again.
    assert_keys!(task, "stopping b=removed ; cursor.t b=n 100");
    assert!(task.ok("flow_state", "b").await.starts_with("[state completed"));
    for reply in ["[trimmed 2 0]", "[trimmed 0 0]"] {
        assert_eq!(task.ok("flow_trim", "60000 - 5000").await, reply);
    }
    assert_rest!(task, "meta", "");
    ended(&mut task, &loose(500), "a", 2.0 * MINUTE).await;
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_rest!(task, "meta", "");
}

#[tokio::test]
async fn a_call_removes_100_small_instances() {
    let mut task = Task::new().await;
    for number in 0..150 {
        ended(&mut task, &loose(1), &number.to_string(), 2.0 * MINUTE).await;
    }
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 100 1]");
    assert_keys!(task, "shapes.d#=50");
    assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 50 0]");
    assert_rest!(task, "meta", "");
}

#[tokio::test]
async fn an_unreadable_instance_is_removed_as_far_as_possible() {
    for (key, field, value) in [
        ("instances", "a", "what"),
        ("shapes", "d@", "many finish 2"),
        ("shapes", "d@", "999999999 finish 2"),
        ("shapes", "d@", ""),
        ("shapes", "d#", "many"),
        ("shapes", "d#", "1.5"),
        ("shapes", "d#", "-3"),
        ("shapes", "d#", ""),
    ] {
        let mut task = Task::new().await;
        ended(&mut task, &line(), "a", 3.0 * MINUTE).await;
        ended(&mut task, &line(), "b", 2.0 * MINUTE).await;
        task.hset(key, &[(field, value)]).await;
        if value.is_empty() {
            task.lose(&format!("{key}.{field}")).await;
        }
        assert_eq!(task.ok("flow_trim", "60000 - 5000").await, "[trimmed 2 0]", "{field} {value}");
        assert_keys!(task, "no completed, instances, output, error, headers");
        // A shape without a count of its instances stays.
        if field == "d#" {
            assert_keys!(task, "shapes.d@=3 finish 2", "{value}");
            assert_keys!(task, "no nodes, input, value");
        }
    }
}

async fn trim(task: &mut Task) -> String {
    task.ok("flow_trim", "60000 - 5000").await
}

#[tokio::test]
async fn a_large_instance_is_removed_in_pages_and_ignored_meanwhile() {
    let mut task = Task::new().await;
    ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
    task.write("grow a/0={}, a/1199={}; deadlines a=9e12").await;
    for cursor in ["n 700", "n 200", "s 700", "s 200"] {
        assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
        assert_keys!(task, format!("cursor t a={cursor}; stopping a=removed "));
        // The line and the place are removed last.
        assert_keys!(task, "head a=1 1 0 0 d -; completed a=NOW; output a=7");
        let before = task.exact().await;
        assert_eq!(task.start(&line().named("e"), "a").await, "[existed]");
        assert_eq!(task.ok("flow_retry", "a 1 1 0 'p 0 0'").await, "[changed]");
        assert_eq!(task.ok("flow_pause", "a 1 pause").await, "[changed]");
        assert_eq!(task.ok("flow_control", "a why").await, "[ended completed 0]");
        assert_eq!(task.ok("flow_state", "a").await, "[state completed 1 0 0 d - '' 7 1 1]");
        for (name, words) in [
            ("flow_advance", "a 0 1 c 7"),
            ("flow_enter", "a 0 1"),
            ("flow_open", "a 1"),
            ("flow_visit", "a 0 1"),
            ("flow_resend", "a 0 1"),
            ("flow_look", "0 200"),
            ("flow_nodes", "a 0 500"),
        ] {
            task.ok(name, words).await;
        }
        assert_eq!(task.exact().await, before, "{cursor}");
    }
    assert_eq!(trim(&mut task).await, "[trimmed 1 0]");
    assert_rest!(task, "meta", "");
    assert_eq!(trim(&mut task).await, "[trimmed 0 0]");
}

#[tokio::test]
async fn pages_of_dependents_are_removed_with_their_shape() {
    for count in [499, 500, 501, 1_000, 1_001, 1_750] {
        let mut task = Task::new().await;
        ended(&mut task, &fan(count), "a", 2.0 * MINUTE).await;
        task.write("no completed.a").await;
        assert_eq!(task.trim_whole("a").await, [""; 0], "{count}");
    }
}

#[tokio::test]
async fn a_shape_that_is_sent_again_during_its_removal_stays_whole() {
    for calls in 1..5 {
        for parts in [false, true] {
            let mut task = Task::new().await;
            ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
            for _ in 0..calls {
                assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
            }
            let was_known = calls < 3;
            let args = long_line(1_200).start("b", false);
            if !parts && was_known {
                assert!(task.ok("flow_start", &args).await.starts_with("[started b 0 1 "));
            } else if !parts {
                assert_eq!(task.ok("flow_start", &args).await, "[shape]");
                task.start(&long_line(1_200), "b").await;
            } else {
                assert_eq!(task.start_in_parts(&long_line(1_200), "b", "n", 500).await, "[started]");
            }
            let mut alone = Task::new().await;
            alone.start(&long_line(1_200), "b").await;
            while trim(&mut task).await != "[trimmed 0 0]" {}
            assert_eq!(task.held("shapes").await, alone.held("shapes").await, "{calls} {parts}");
            assert_keys!(task, "no cursor, stopping");
            assert_eq!(task.trim_whole("b").await, [""; 0], "{calls} {parts}");
        }
    }
}

#[tokio::test]
async fn an_arriving_shape_keeps_the_parts_it_has() {
    let mut task = Task::new().await;
    ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
    for _ in 0..3 {
        trim(&mut task).await;
    }
    assert_keys!(task, "cursor.t a=s 700");
    let (parts, last) = long_line(1_200).parts("b", "n", 500, false);
    let half = parts.len() / 2;
    for part in &parts[..half] {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(trim(&mut task).await, "[trimmed 1 0]");
    for part in &parts[half..] {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    let mut alone = Task::new().await;
    alone.start(&long_line(1_200), "b").await;
    assert_eq!(task.held("shapes").await, alone.held("shapes").await);
    assert_eq!(task.trim_whole("b").await, [""; 0]);
}

#[tokio::test]
async fn two_instances_of_a_shape_removed_in_turns_leave_nothing() {
    let mut task = Task::new().await;
    ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
    for _ in 0..3 {
        trim(&mut task).await;
    }
    assert_keys!(task, "cursor.t a=s 700");
    task.start(&long_line(1_200), "b").await;
    task.write("no running.b; failed b=5; no outbox").await;
    for cursor in ["n 700", "n 200", "s 700"] {
        assert_eq!(task.ok_at("failed", "flow_trim", "60000 - 5000").await, "[trimmed 0 1]");
        assert_eq!(task.field("cursor", "t b").await, cursor);
    }
    // Both removals are at the shape, which has no other user.
    assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
    assert_keys!(task, "cursor t a=s 200, t b=s 700");
    for _ in 0..4 {
        task.ok_at("failed", "flow_trim", "60000 - 5000").await;
        trim(&mut task).await;
    }
    assert_rest!(task, "meta, tasks", "");
}

#[tokio::test]
async fn an_unreadable_cursor_restarts_the_removal_at_the_front() {
    for cursor in ["", "what", "n", "n x", "x 5", "s -5", "n 1.5", "n 5 5"] {
        let mut task = Task::new().await;
        ended(&mut task, &long_line(700), "a", 2.0 * MINUTE).await;
        assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
        task.write(&format!("cursor t a={cursor}; no completed.a")).await;
        assert_eq!(task.trim_whole("a").await, [""; 0], "{cursor}");
    }
}

#[tokio::test]
async fn a_cursor_with_an_impossible_number_blocks_no_other() {
    for cursor in ["n 999999999", "s 999999999"] {
        let mut task = Task::new().await;
        ended(&mut task, &line(), "a", 3.0 * MINUTE).await;
        ended(&mut task, &line(), "b", 2.0 * MINUTE).await;
        task.hset("cursor", &[("t a", cursor)]).await;
        task.hset("shapes", &[("d#", if cursor.starts_with('s') { "0" } else { "2" })]).await;
        assert_eq!(trim(&mut task).await, "[trimmed 2 0]", "{cursor}");
    }
}

#[tokio::test]
async fn a_line_that_is_damaged_during_a_removal_blocks_no_other() {
    for line_of_it in ["what", ""] {
        let mut task = Task::new().await;
        ended(&mut task, &long_line(1_200), "a", 3.0 * MINUTE).await;
        ended(&mut task, &line().named("e"), "b", 2.0 * MINUTE).await;
        for _ in 0..3 {
            trim(&mut task).await;
        }
        assert_keys!(task, "cursor.t a=s 700");
        task.hset("instances", &[("a", line_of_it)]).await;
        assert_eq!(task.call("flow_trim", "60000 '-' 5000").await.unwrap(), "[trimmed 2 0]", "{line_of_it}");
        assert_keys!(task, "no completed, cursor");
    }
}

#[tokio::test]
async fn a_record_with_an_impossible_number_costs_no_more() {
    let mut task = Task::on(std::sync::Arc::new(crate::support::TestRedis::start()), "").await;
    ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
    task.write("shapes d/0=- - t\n\n20000000 1").await;
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut task.conn).await.unwrap();
    assert_eq!(trim(&mut task).await, "[trimmed 1 0]");
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut task.conn).await.unwrap();
    let calls = stats.split_once("cmdstat_hdel:calls=").unwrap().1.split(',').next().unwrap().parse::<u64>().unwrap();
    assert!(calls < 500, "{calls} calls");
}
