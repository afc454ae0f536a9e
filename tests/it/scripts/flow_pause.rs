use crate::scripts::call::{Task, without};
use crate::scripts::flow::{graph, head, line, place, put, said, states, take_out};

async fn paused(id: &str) -> Task {
    let mut task = Task::new().await;
    put(&mut task, &line(), id).await;
    task.del("running").await;
    task.zadd("paused", 5.0, id).await;
    task
}

#[tokio::test]
async fn a_paused_instance_opens_nothing_and_sent_nodes_continue() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.zadd("outbox", 5.0, "s a/0/1").await;
    assert_eq!(said(&mut task, "flow_pause", "a 0 pause").await, "[paused]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input"]),
        [
            r#"instances hash {"a": "1 1 3 1 d -"}"#,
            r#"nodes hash {"a/0": "o", "a/1": "p 1 1", "a/2": "p 1 1"}"#,
            r#"outbox zset ["s a/0/1": 5]"#,
            r#"paused zset ["a": NOW]"#,
        ]
    );
    assert_eq!(said(&mut task, "flow_enter", "a 0 1").await, "[entered go 0]");
    assert_eq!(said(&mut task, "flow_advance", "a 0 1 c 7").await, "[advanced 0]");
    assert_eq!(states(&mut task, "a", 3).await, "c, p 0 0, p 1 1");
    assert_eq!(head(&mut task, "a").await, "1 1 2 0 d -");
    assert_eq!(place(&mut task, "a").await, "paused");
    assert_eq!(said(&mut task, "flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_eq!(
        without(task.keys().await, &["meta", "shapes", "input", "value"]),
        [
            r#"instances hash {"a": "1 2 2 0 d -"}"#,
            r#"nodes hash {"a/0": "c", "a/1": "p 0 0", "a/2": "p 1 1"}"#,
            r#"outbox zset ["o a/1": NOW]"#,
            r#"running zset ["a": NOW]"#,
        ]
    );
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 1 1 t '' 0 here 7]");
}

#[tokio::test]
async fn a_late_copy_of_a_pause_or_resume_changes_nothing() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    let mut copies = Vec::new();
    for turn in 0..6 {
        let words = format!("a {turn} {}", if turn % 2 == 0 { "pause" } else { "resume" });
        let reply = said(&mut task, "flow_pause", &words).await;
        assert_eq!(reply, if turn % 2 == 0 { "[paused]" } else { "[resumed 1]" });
        assert_eq!(head(&mut task, "a").await, format!("1 {} 3 1 d -", turn + 1));
        copies.push(words);
        let before = task.exact().await;
        for copy in &copies {
            assert_eq!(said(&mut task, "flow_pause", copy).await, "[changed]", "{copy} after {turn}");
        }
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn stopping_ended_and_unknown_instances_are_left_alone() {
    let mut task = paused("paused").await;
    for id in ["running", "stops", "completed", "failed", "cancelled", "nowhere", "unreadable"] {
        put(&mut task, &line(), id).await;
        take_out(&mut task, "running", id).await;
    }
    for (place, id) in
        [("running", "running"), ("running", "stops"), ("running", "unreadable"), ("completed", "completed")]
    {
        task.zadd(place, 5.0, id).await;
    }
    for id in ["failed", "cancelled"] {
        task.zadd(id, 5.0, id).await;
    }
    task.hset("instances", &[("unreadable", "1 0 3")]).await;
    task.hset("stopping", &[("stops", "failed ")]).await;
    let before = task.exact().await;
    for words in [
        "paused 0 pause",
        "paused 1 resume",
        "running 0 resume",
        "running 1 pause",
        "stops 0 pause",
        "stops 0 resume",
        "completed 0 pause",
        "failed 0 resume",
        "cancelled 0 resume",
        "nowhere 0 pause",
        "nowhere 0 resume",
        "running - pause",
        "running 0 what",
    ] {
        assert_eq!(said(&mut task, "flow_pause", words).await, "[changed]", "{words}");
    }
    for words in ["nobody 0 pause", "nobody 0 resume", "unreadable 0 pause", "unreadable 0 resume"] {
        assert_eq!(said(&mut task, "flow_pause", words).await, "[unknown]", "{words}");
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn an_instance_whose_last_node_ended_in_a_pause_ends_on_resume() {
    for (end, word, bad, output) in
        [("c 9", "completed", "-", r#"hash {"a": "9"}"#), ("f E", "failed", "2", ""), ("x -", "failed", "2", "")]
    {
        let mut task = Task::new().await;
        put(&mut task, &line(), "a").await;
        task.hset("nodes", &[("a/0", "c"), ("a/1", "c"), ("a/2", "o")]).await;
        task.hset("instances", &[("a", "1 0 1 1 d -")]).await;
        assert_eq!(said(&mut task, "flow_pause", "a 0 pause").await, "[paused]");
        said(&mut task, "flow_advance", &format!("a 2 1 {end}")).await;
        assert_eq!(place(&mut task, "a").await, "paused");
        assert_eq!(head(&mut task, "a").await, format!("1 1 0 0 d {bad}"));
        assert_eq!(said(&mut task, "flow_pause", "a 1 resume").await, "[ended]");
        assert_eq!(place(&mut task, "a").await, word);
        assert_eq!(head(&mut task, "a").await, format!("1 3 0 0 d {bad}"));
        assert_eq!(task.held("output").await, output);
        assert_eq!(task.held("outbox").await, "");
        let before = task.exact().await;
        for words in ["a 0 pause", "a 1 resume", "a 3 resume"] {
            assert_eq!(said(&mut task, "flow_pause", words).await, "[changed]");
        }
        assert_eq!(task.exact().await, before);
    }
}

#[tokio::test]
async fn a_pause_removes_the_open_entry_and_a_resume_restarts_it() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    for entry in ["o a/1", "o b/1", "v a/0/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    task.hset("cursor", &[("a/1", "500"), ("b/1", "500"), ("a/0/1", "1 c")]).await;
    said(&mut task, "flow_pause", "a 0 pause").await;
    assert_eq!(task.held("outbox").await, r#"zset ["o b/1": 5, "v a/0/1": 5]"#);
    assert_eq!(task.held("cursor").await, r#"hash {"a/0/1": "1 c", "b/1": "500"}"#);
    // A late call.
    task.hset("cursor", &[("a/1", "500")]).await;
    said(&mut task, "flow_pause", "a 1 resume").await;
    assert_eq!(task.held("outbox").await, r#"zset ["o b/1": 5, "v a/0/1": 5, "o a/1": NOW]"#);
    assert_eq!(task.held("cursor").await, r#"hash {"a/0/1": "1 c", "b/1": "500"}"#);
}

#[tokio::test]
async fn a_resume_after_a_failure_runs_the_independent_nodes() {
    let nodes: [(&str, &str, &[usize]); 4] =
        [("p 0 0", "- -", &[2]), ("p 0 0", "- -", &[3]), ("p 1 1", "- -", &[]), ("p 1 1", "- -", &[])];
    let mut task = Task::new().await;
    put(&mut task, &graph("pause", "-", &nodes), "a").await;
    said(&mut task, "flow_advance", "a 0 1 f E a 1 1 c 7").await;
    assert_eq!(place(&mut task, "a").await, "paused");
    assert_eq!(head(&mut task, "a").await, "1 1 1 0 d 0");
    assert_eq!(states(&mut task, "a", 4).await, "f, c, s, p 0 0");
    // A failure has paused it: a pause by hand with the old turn changes nothing.
    assert_eq!(said(&mut task, "flow_pause", "a 0 pause").await, "[changed]");
    assert_eq!(said(&mut task, "flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 3 1 t '' 0 here in-3]");
    said(&mut task, "flow_advance", "a 3 1 c -").await;
    assert_eq!(place(&mut task, "a").await, "failed");
    assert_eq!(head(&mut task, "a").await, "1 3 0 0 d 0");
}

#[tokio::test]
async fn an_unreadable_graph_stops_neither_pause_nor_resume() {
    let mut task = Task::new().await;
    put(&mut task, &line(), "a").await;
    task.del("shapes").await;
    assert_eq!(said(&mut task, "flow_pause", "a 0 pause").await, "[paused]");
    assert_eq!(said(&mut task, "flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_eq!(head(&mut task, "a").await, "1 2 3 1 d -");
}
