use crate::call::{Task, without};
use crate::flow::{Graph, Node, graph, line, lose, put, said, take_out};

/// A minute, in ms.
const MINUTE: f64 = 60_000.0;

/// Writes an instance that completed so many ms ago.
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
    task.hset("head", &[(id, "1 1 0 0 d -")]).await;
    let now = task.now_ms().await;
    task.zadd("completed", now - ago, id).await;
    let key = task.key("shapes");
    let () = redis::AsyncCommands::hincr(&mut task.conn, key, "d#", 1).await.unwrap();
}

#[tokio::test]
async fn what_is_too_old_goes_with_all_that_is_kept_of_it_and_the_others_stay_whole() {
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
async fn a_shape_goes_with_the_last_instance_that_has_it_and_no_other_shape() {
    let mut task = Task::new().await;
    ended(&mut task, &line(), "a", 2.0 * MINUTE).await;
    ended(&mut task, &line(), "b", 3.0 * MINUTE).await;
    // Of another shape whose name begins as this one.
    task.hset("shapes", &[("dd", "{}"), ("dd@", "1 finish -"), ("dd/0", "- - t\n\n0"), ("dd#", "1")]).await;
    let other = r#"hash {"dd": "{}", "dd#": "1", "dd/0": "- - t\n\n0", "dd@": "1 finish -"}"#;
    assert_eq!(said(&mut task, "flow_trim", "150000 - 5000").await, "[trimmed 1 0]");
    assert_eq!(task.field("shapes", "d#").await, "1");
    assert_eq!(task.field("shapes", "d@").await, "3 finish 2");
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 1 0]");
    assert_eq!(without(task.keys().await, &["meta"]), [format!("shapes {other}")]);
    // Whoever starts one brings it along again.
    let args = line().start("a", false);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(task.ok("flow_start", &args).await, "[shape]");
}

#[tokio::test]
async fn the_youngest_are_kept_where_only_so_many_are_to_be() {
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
    // None that is younger than the least age.
    assert_eq!(said(&mut task, "flow_trim", "60000 0 25000").await, "[trimmed 1 0]");
    assert_eq!(task.held("completed").await, r#"zset ["d": NOW, "e": NOW]"#);
    // By age goes also what is not one too many.
    assert_eq!(said(&mut task, "flow_trim", "15000 2 5000").await, "[trimmed 1 0]");
    assert_eq!(task.held("head").await, r#"hash {"e": "1 1 0 0 d -"}"#);
    assert_eq!(task.field("shapes", "d#").await, "1");
}

#[tokio::test]
async fn each_of_the_three_places_is_trimmed_by_itself() {
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
async fn a_call_removes_500_nodes_and_says_that_others_follow() {
    let nodes: Vec<Node> = (0..300).map(|_| ("p 0 0", "- -", &[][..])).collect();
    let mut task = Task::new().await;
    for id in ["a", "b", "c"] {
        ended(&mut task, &graph("finish", "-", &nodes), id, 2.0 * MINUTE).await;
    }
    assert_eq!(said(&mut task, "flow_trim", "60000 - 5000").await, "[trimmed 1 1]");
    // Nobody lets one run once more of which a part is gone.
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
async fn a_call_removes_100_small_ones() {
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
async fn what_cannot_be_read_goes_as_far_as_it_can_and_holds_up_no_other() {
    for (key, field, value) in [
        ("head", "a", "what"),
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
        for gone in ["completed", "head", "output", "error"] {
            assert_eq!(task.held(gone).await, "", "{gone} with {field} {value}");
        }
        // Where nobody knows how many have a shape, it stays.
        if field == "d#" {
            assert_eq!(task.field("shapes", "d@").await, "3 finish 2", "{value}");
            assert_eq!(task.held("nodes").await + &task.held("input").await + &task.held("value").await, "");
        }
    }
}
