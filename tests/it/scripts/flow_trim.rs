use crate::scripts::call::{Task, without};
use crate::scripts::flow::{
    Graph, Node, fan, graph, head, line, long_line, lose, put, said, start, start_in_parts, take_out, trim_whole, with,
};

/// A minute, in ms.
const MINUTE: f64 = 60_000.0;

/// Writes an instance that completed this many ms ago.
async fn ended(task: &mut Task, graph: &Graph, id: &str, ago: f64) {
    put(task, graph, id).await;
    take_out(task, "running", id).await;
    let states: Vec<(String, &str)> = (0..graph.len()).map(|node| (format!("{id}/{node}"), "c")).collect();
    for some in states.chunks(500) {
        let some: Vec<(&str, &str)> = some.iter().map(|(field, state)| (field.as_str(), *state)).collect();
        task.hset("nodes", &some).await;
    }
    task.hset("value", &[(&format!("{id}/0"), "7")]).await;
    task.hset("output", &[(id, "7")]).await;
    task.hset("error", &[(id, "why")]).await;
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
    put(&mut alone, &line(), "runs").await;
    ended(&mut task, &line(), "young", 0.5 * MINUTE).await;
    put(&mut task, &line(), "runs").await;
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 2 0]");
    assert_eq!(task.field("shapes", "d#").await, "1");
    assert_eq!(task.keys().await, alone.keys().await);
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn a_shape_is_removed_with_its_last_instance_and_no_other_shape() {
    let mut task = Task::new().await;
    ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
    ended(&mut task, &line(), "b", 3.0 * MINUTE).await;
    // Of another shape whose name begins with this one.
    task.hset("shapes", &[("dd", "{}"), ("dd@", "1 finish -"), ("dd/0", "- - t\n\n0"), ("dd#", "1")]).await;
    let other = r#"hash {"dd": "{}", "dd#": "1", "dd/0": "- - t\n\n0", "dd@": "1 finish -"}"#;
    assert_eq!(said(&mut task, "flow_trim", "150000 - 5000").await, "[trimmed 1 0]");
    assert_eq!(task.field("shapes", "d#").await, "1");
    assert_eq!(task.field("shapes", "d@").await, "3 finish 2");
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_eq!(without(task.keys().await, &["meta"]), [format!("shapes {other}")]);
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
    let before = task.exact().await;
    for keep in ["60000 5 5000", "60000 9 5000", "60000 - 5000", "60000 0 55000"] {
        assert_eq!(said(&mut task, "flow_trim", keep).await, "[trimmed 0 0]", "{keep}");
    }
    assert_eq!(task.exact().await, before);
    assert_eq!(said(&mut task, "flow_trim", "60000 3 5000").await, "[trimmed 2 0]");
    assert_eq!(task.held("completed").await, r#"zset ["c": NOW, "d": NOW, "e": NOW]"#);
    // An instance younger than the least age is kept.
    assert_eq!(said(&mut task, "flow_trim", "60000 0 25000").await, "[trimmed 1 0]");
    assert_eq!(task.held("completed").await, r#"zset ["d": NOW, "e": NOW]"#);
    // By age, instances within the limit are removed too.
    assert_eq!(said(&mut task, "flow_trim", "15000 2 5000").await, "[trimmed 1 0]");
    assert_eq!(task.held("instances").await, r#"hash {"e": "1 1 0 0 d -"}"#);
    assert_eq!(task.field("shapes", "d#").await, "1");
}

#[tokio::test]
async fn each_of_the_three_places_is_trimmed_separately() {
    for place in ["completed", "failed", "cancelled"] {
        let mut task = Task::new().await;
        ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
        task.del("completed").await;
        task.zadd(place, 5.0, "a").await;
        for other in ["completed", "failed", "cancelled"] {
            let keys = [&[other], &task.script("flow_trim").keys[1..]].concat();
            let reply = task.call_on("flow_trim", &keys, &["60000", "-", "5000"]).await.unwrap();
            assert_eq!(reply, format!("[trimmed {} 0]", u8::from(other == place)), "{other}");
        }
        assert_eq!(without(task.keys().await, &["meta"]), [""; 0]);
    }
}

#[tokio::test]
async fn a_call_removes_500_nodes_and_reports_more() {
    let nodes: Vec<Node> = (0..300).map(|_| ("p 0 0", "- -", &[][..])).collect();
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        ended(&mut task, &graph("finish", "-", &nodes), id, 2.0 * MINUTE).await;
    }
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 1 1]");
    // A partly removed instance cannot run again.
    assert_eq!(task.held("stopping").await, r#"hash {"b": "removed "}"#);
    assert_eq!(task.field("cursor", "t b").await, "n 100");
    assert!(task.ok("flow_state", &["b"]).await.starts_with("[state completed"));
    for reply in ["[trimmed 2 0]", "[trimmed 0 0]"] {
        assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, reply);
    }
    assert_eq!(without(task.keys().await, &["meta"]), [""; 0]);
    let nodes: Vec<Node> = (0..500).map(|_| ("p 0 0", "- -", &[][..])).collect();
    ended(&mut task, &graph("finish", "-", &nodes), "a", 2.0 * MINUTE).await;
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_eq!(without(task.keys().await, &["meta"]), [""; 0]);
}

#[tokio::test]
async fn a_call_removes_100_small_instances() {
    let mut task = Task::new().await;
    let one: [Node; 1] = [("p 0 0", "- -", &[])];
    for number in 0..150 {
        ended(&mut task, &graph("finish", "-", &one), &number.to_string(), 2.0 * MINUTE).await;
    }
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 100 1]");
    assert_eq!(task.field("shapes", "d#").await, "50");
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 50 0]");
    assert_eq!(without(task.keys().await, &["meta"]), [""; 0]);
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
            lose(&mut task, key, field).await;
        }
        assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 2 0]", "{field} {value}");
        for gone in ["completed", "instances", "output", "error"] {
            assert_eq!(task.held(gone).await, "", "{gone} with {field} {value}");
        }
        // A shape without a count of its instances stays.
        if field == "d#" {
            assert_eq!(task.field("shapes", "d@").await, "3 finish 2", "{value}");
            assert_eq!(task.held("nodes").await + &task.held("input").await + &task.held("value").await, "");
        }
    }
}

async fn trim(task: &mut Task) -> String {
    said(task, "flow_trim", "60000 - 5000").await
}

#[tokio::test]
async fn a_large_instance_is_removed_in_pages_and_ignored_meanwhile() {
    let mut task = Task::new().await;
    ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
    task.hset("grow", &[("a/0", "{}"), ("a/1199", "{}")]).await;
    task.zadd("deadlines", 9e12, "a").await;
    for cursor in ["n 700", "n 200", "s 700", "s 200"] {
        assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
        assert_eq!(task.held("cursor").await, format!(r#"hash {{"t a": "{cursor}"}}"#));
        assert_eq!(task.held("stopping").await, r#"hash {"a": "removed "}"#);
        let before = task.exact().await;
        assert_eq!(start(&mut task, &line().named("e"), "a").await, "[existed]");
        assert_eq!(task.ok("flow_retry", &["a", "1", "1", "0", "p 0 0"]).await, "[changed]");
        assert_eq!(task.ok("flow_pause", &["a", "1", "pause"]).await, "[changed]");
        assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[ended completed 0]");
        assert_eq!(task.ok("flow_state", &["a"]).await, "[state completed 1 0 0 d - '' 7 1 1]");
        for (name, words) in [
            ("flow_advance", "a 0 1 c 7"),
            ("flow_enter", "a 0 1"),
            ("flow_open", "a 1"),
            ("flow_visit", "a 0 1"),
            ("flow_resend", "a 0 1"),
            ("flow_look", "0 200"),
            ("flow_nodes", "a 0 500"),
        ] {
            said(&mut task, name, words).await;
        }
        assert_eq!(task.exact().await, before, "{cursor}");
    }
    assert_eq!(trim(&mut task).await, "[trimmed 1 0]");
    assert_eq!(without(task.keys().await, &["meta"]), [""; 0]);
    assert_eq!(trim(&mut task).await, "[trimmed 0 0]");
}

#[tokio::test]
async fn the_line_and_the_place_of_a_large_instance_are_removed_last() {
    let mut task = Task::new().await;
    ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
    for _ in 0..4 {
        trim(&mut task).await;
        assert_eq!(head(&mut task, "a").await, "1 1 0 0 d -");
        assert_eq!(task.held("completed").await, r#"zset ["a": NOW]"#);
        assert_eq!(task.held("output").await, r#"hash {"a": "7"}"#);
    }
}

#[tokio::test]
async fn pages_of_dependents_are_removed_with_their_shape() {
    for count in [499, 500, 501, 1_000, 1_001, 1_750] {
        let mut task = Task::new().await;
        ended(&mut task, &fan(count), "a", 2.0 * MINUTE).await;
        take_out(&mut task, "completed", "a").await;
        assert_eq!(trim_whole(&mut task, "a").await, [""; 0], "{count}");
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
                assert!(with(&mut task, "flow_start", &args).await.starts_with("[started b 0 1 "));
            } else if !parts {
                assert_eq!(with(&mut task, "flow_start", &args).await, "[shape]");
                start(&mut task, &long_line(1_200), "b").await;
            } else {
                assert_eq!(start_in_parts(&mut task, &long_line(1_200), "b", "n", 500).await, "[started]");
            }
            let mut alone = Task::new().await;
            start(&mut alone, &long_line(1_200), "b").await;
            while trim(&mut task).await != "[trimmed 0 0]" {}
            assert_eq!(task.held("shapes").await, alone.held("shapes").await, "{calls} {parts}");
            assert_eq!(task.held("cursor").await + &task.held("stopping").await, "");
            assert_eq!(trim_whole(&mut task, "b").await, [""; 0], "{calls} {parts}");
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
    assert_eq!(task.field("cursor", "t a").await, "s 700");
    let (parts, last) = long_line(1_200).parts("b", "n", 500, false);
    let half = parts.len() / 2;
    for part in &parts[..half] {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(trim(&mut task).await, "[trimmed 1 0]");
    for part in &parts[half..] {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    let mut alone = Task::new().await;
    start(&mut alone, &long_line(1_200), "b").await;
    assert_eq!(task.held("shapes").await, alone.held("shapes").await);
    assert_eq!(trim_whole(&mut task, "b").await, [""; 0]);
}

#[tokio::test]
async fn two_instances_of_a_shape_removed_in_turns_leave_nothing() {
    let mut task = Task::new().await;
    ended(&mut task, &long_line(1_200), "a", 2.0 * MINUTE).await;
    for _ in 0..3 {
        trim(&mut task).await;
    }
    assert_eq!(task.field("cursor", "t a").await, "s 700");
    start(&mut task, &long_line(1_200), "b").await;
    take_out(&mut task, "running", "b").await;
    task.zadd("failed", 5.0, "b").await;
    task.del("outbox").await;
    let failed = [&["failed"], &task.script("flow_trim").keys[1..]].concat();
    for cursor in ["n 700", "n 200", "s 700"] {
        let reply = task.call_on("flow_trim", &failed, &["60000", "-", "5000"]).await.unwrap();
        assert_eq!(reply, "[trimmed 0 1]");
        assert_eq!(task.field("cursor", "t b").await, cursor);
    }
    // Both removals are at the shape, which has no other user.
    assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
    assert_eq!(task.held("cursor").await, r#"hash {"t a": "s 200", "t b": "s 700"}"#);
    for _ in 0..4 {
        task.call_on("flow_trim", &failed, &["60000", "-", "5000"]).await.unwrap();
        trim(&mut task).await;
    }
    assert_eq!(without(task.keys().await, &["meta", "tasks"]), [""; 0]);
}

#[tokio::test]
async fn an_unreadable_cursor_restarts_the_removal_at_the_front() {
    for cursor in ["", "what", "n", "n x", "x 5", "s -5", "n 1.5", "n 5 5"] {
        let mut task = Task::new().await;
        ended(&mut task, &long_line(700), "a", 2.0 * MINUTE).await;
        assert_eq!(trim(&mut task).await, "[trimmed 0 1]");
        task.hset("cursor", &[("t a", cursor)]).await;
        take_out(&mut task, "completed", "a").await;
        assert_eq!(trim_whole(&mut task, "a").await, [""; 0], "{cursor}");
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
        assert_eq!(task.field("cursor", "t a").await, "s 700");
        task.hset("instances", &[("a", line_of_it)]).await;
        assert_eq!(task.call("flow_trim", &["60000", "-", "5000"]).await.unwrap(), "[trimmed 2 0]", "{line_of_it}");
        assert_eq!(task.held("completed").await + &task.held("cursor").await, "");
    }
}

#[tokio::test]
async fn a_record_with_an_impossible_number_costs_no_more() {
    let mut task = Task::on(std::sync::Arc::new(crate::support::TestRedis::start()), "").await;
    ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
    task.hset("shapes", &[("d/0", "- - t\n\n20000000 1")]).await;
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut task.conn).await.unwrap();
    assert_eq!(trim(&mut task).await, "[trimmed 1 0]");
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut task.conn).await.unwrap();
    let calls = stats.split_once("cmdstat_hdel:calls=").unwrap().1.split(',').next().unwrap().parse::<u64>().unwrap();
    assert!(calls < 500, "{calls} calls");
}
