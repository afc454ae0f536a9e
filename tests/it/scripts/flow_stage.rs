use crate::scripts::call::{Task, without};
use crate::scripts::flow::{Node, fan, graph, head, line, long_line, lose, place, put, said, start, start_in_parts};
use crate::scripts::flow::{states, trim_whole, with};

/// Writes this many of the four parts of [`line`].
async fn staged(count: usize) -> Task {
    let mut task = Task::new().await;
    for part in line().parts("a", "n", 2, false).0.iter().take(count) {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    task
}

#[tokio::test]
async fn parts_are_written_one_by_one_and_the_start_runs_them() {
    let mut task = staged(1).await;
    assert_eq!(
        without(task.keys().await, &["meta"]),
        [
            r#"nodes hash {"a/0": "p 0 0", "a/1": "p 1 1"}"#,
            r##"shapes hash {"d#": "1"}"##,
            r#"staging hash {"a": "n 1 NOW d 3"}"#,
        ]
    );
    let (parts, last) = line().parts("a", "n", 2, false);
    assert_eq!(parts.len(), 4);
    for part in &parts[1..] {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    let shape = r##""d": "{}", "d#": "1", "d/0": "- - t\n\n1 1", "d/1": "- 0 t\n\n1 2", "d/2": "- 1 t\n\n0""##;
    assert_eq!(
        without(task.keys().await, &["meta"]),
        [
            r#"input hash {"a/0": "in-0"}"#.to_owned(),
            r#"nodes hash {"a/0": "p 0 0", "a/1": "p 1 1", "a/2": "p 1 1"}"#.to_owned(),
            format!("shapes hash {{{shape}}}"),
            r#"staging hash {"a": "n 4 NOW d 3"}"#.to_owned(),
        ]
    );
    assert_eq!(task.ok("flow_state", &["a"]).await, "[unknown]");
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    assert_eq!(
        without(task.keys().await, &["meta"]),
        [
            r#"input hash {"a/0": "in-0"}"#.to_owned(),
            r#"instances hash {"a": "1 0 3 0 d -"}"#.to_owned(),
            r#"nodes hash {"a/0": "p 0 0", "a/1": "p 1 1", "a/2": "p 1 1"}"#.to_owned(),
            r#"outbox zset ["o a/1": NOW]"#.to_owned(),
            r#"running zset ["a": NOW]"#.to_owned(),
            format!(r#"shapes hash {{{shape}, "d@": "3 finish 2"}}"#),
            r#"tasks zset ["t": NOW]"#.to_owned(),
        ]
    );
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 0 1 t '' 0 here in-0]");
    assert_eq!(head(&mut task, "a").await, "1 0 3 1 d -");
}

#[tokio::test]
async fn late_and_repeated_parts_change_nothing() {
    let (parts, last) = line().parts("a", "n", 2, false);
    let mut task = staged(3).await;
    let before = task.exact().await;
    for part in &parts[..3] {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(task.exact().await, before);
    with(&mut task, "flow_stage", &parts[3]).await;
    with(&mut task, "flow_start", &last).await;
    for _ in 0..2 {
        let before = task.exact().await;
        for part in &parts {
            assert_eq!(with(&mut task, "flow_stage", part).await, "[existed]");
        }
        assert_eq!(with(&mut task, "flow_start", &last).await, "[existed]");
        assert_eq!(task.exact().await, before);
        // Also after it has ended.
        said(&mut task, "flow_open", "a 1").await;
        said(&mut task, "flow_advance", "a 0 1 f E").await;
        assert_eq!(place(&mut task, "a").await, "failed");
    }
}

#[tokio::test]
async fn a_part_out_of_order_writes_nothing() {
    let (parts, last) = line().parts("a", "n", 2, false);
    for count in 0..4 {
        let mut task = staged(count).await;
        let before = task.exact().await;
        for part in parts.iter().skip(count + 1) {
            assert_eq!(with(&mut task, "flow_stage", part).await, format!("[parts {count}]"));
        }
        // It also does not run before all parts are there, or for another caller.
        assert_eq!(with(&mut task, "flow_start", &last).await, "[parts]");
        assert_eq!(task.exact().await, before);
    }
    let mut task = staged(4).await;
    let before = task.exact().await;
    for staged in ["other 4", "n 3", "n 5", "n 40", "n", "- 4", ""] {
        let mut last = last.clone();
        last[3] = staged.to_owned();
        assert_eq!(with(&mut task, "flow_start", &last).await, "[parts]", "{staged}");
    }
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn two_starts_of_one_id_do_not_mix() {
    let mut task = staged(2).await;
    let other = long_line(4).named("e");
    let (parts, last) = other.parts("a", "m", 3, false);
    let before = task.exact().await;
    for part in &parts {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[other]");
    }
    assert_eq!(with(&mut task, "flow_start", &last).await, "[parts]");
    assert_eq!(task.exact().await, before);
    // The first one stopped writing for longer than the other one waits: its parts are removed first.
    task.hset("staging", &[("a", "n 2 5 d 3")]).await;
    for part in &parts {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[left]");
    }
    assert_eq!(task.ok("flow_unstage", &["10000", "a"]).await, "[unstaged 1 0]");
    assert_eq!(task.held("nodes").await + &task.held("shapes").await, "");
    assert_eq!(with(&mut task, "flow_stage", &parts[1]).await, "[parts 0]");
    assert_eq!(with(&mut task, "flow_stage", &parts[0]).await, "[staged 0]");
    assert_eq!(task.held("staging").await, r#"hash {"a": "m 1 NOW e 4"}"#);
    assert_eq!(task.field("shapes", "e#").await, "1");
    let (own, own_last) = line().parts("a", "n", 2, false);
    let before = task.exact().await;
    for part in &own {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[other]");
    }
    assert_eq!(with(&mut task, "flow_start", &own_last).await, "[parts]");
    assert_eq!(task.exact().await, before);
    for part in &parts[1..] {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    assert_eq!(states(&mut task, "a", 4).await, "p 0 0, p 1 1, p 1 1, p 1 1");
    assert_eq!(head(&mut task, "a").await, "1 0 4 0 e -");
    assert_eq!(with(&mut task, "flow_start", &own_last).await, "[existed]");
    assert_eq!(task.held("staging").await, "");
}

#[tokio::test]
async fn a_takeover_with_the_same_shape_counts_it_once() {
    let mut task = staged(4).await;
    task.hset("staging", &[("a", "n 4 5 d 3")]).await;
    assert_eq!(start_in_parts(&mut task, &line(), "a", "m", 2).await, "[started]");
    assert_eq!(task.field("shapes", "d#").await, "1");
    assert_eq!(trim_whole(&mut task, "a").await, [""; 0]);
}

#[tokio::test]
async fn a_clock_that_went_back_blocks_no_start() {
    let mut task = staged(2).await;
    task.hset("staging", &[("a", "n 2 9000000000000000 d 3")]).await;
    assert_eq!(start_in_parts(&mut task, &line(), "a", "m", 2).await, "[started]");
}

#[tokio::test]
async fn a_known_shape_is_not_sent_and_counts_with_the_first_part() {
    let mut task = Task::new().await;
    start(&mut task, &line(), "known").await;
    let (parts, last) = line().parts("a", "n", 2, true);
    assert_eq!(parts.len(), 2);
    for part in &parts {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 1]");
        assert_eq!(task.field("shapes", "d#").await, "2");
    }
    // The other one is removed; the shape stays for the one that is being started.
    let left = trim_whole(&mut task, "known").await;
    assert_eq!(task.field("shapes", "d#").await, "1");
    assert!(left.iter().any(|key| key.contains(r#""d@": "3 finish 2""#)), "{left:?}");
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    assert_eq!(task.field("shapes", "d#").await, "1");
    assert_eq!(trim_whole(&mut task, "a").await, [""; 0]);
}

#[tokio::test]
async fn a_shape_that_was_lost_after_the_parts_is_asked_for() {
    let mut task = Task::new().await;
    start(&mut task, &line(), "known").await;
    let (parts, last) = line().parts("a", "n", 2, true);
    for part in &parts {
        with(&mut task, "flow_stage", part).await;
    }
    lose(&mut task, "shapes", "d@").await;
    let before = task.exact().await;
    assert_eq!(with(&mut task, "flow_start", &last).await, "[shape]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn two_concurrent_starts_with_the_same_shape_count_two() {
    let mut task = staged(3).await;
    assert_eq!(start_in_parts(&mut task, &line(), "b", "m", 2).await, "[started]");
    let (parts, last) = line().parts("a", "n", 2, false);
    assert_eq!(with(&mut task, "flow_stage", &parts[3]).await, "[staged 1]");
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    assert_eq!(task.field("shapes", "d#").await, "2");
    assert!(task.field("shapes", "d@").await == "3 finish 2");
    assert_eq!(said(&mut task, "flow_open", "a 1").await, "[opened 0 0 a 0 1 t '' 0 here in-0]");
    trim_whole(&mut task, "b").await;
    assert_eq!(said(&mut task, "flow_advance", "a 0 1 c 7").await, "[advanced 0 a 1 1 t '' 0 here 7]");
}

#[tokio::test]
async fn an_unreadable_start_begins_again() {
    for entry in ["", "n", "n 2", "n 2 5", "n two 5 d 3", "n 2 5 d three", "n 2 5 d 3 more"] {
        let mut task = staged(2).await;
        task.hset("staging", &[("a", entry)]).await;
        let parts = line().parts("a", "n", 2, false).0;
        assert_eq!(with(&mut task, "flow_stage", &parts[2]).await, "[left]", "{entry}");
        assert_eq!(start_in_parts(&mut task, &line(), "a", "m", 2).await, "[started]", "{entry}");
        assert_eq!(task.held("staging").await, "");
    }
}

#[tokio::test]
async fn an_instance_count_that_is_not_a_number_stops_no_part() {
    let mut task = Task::new().await;
    task.hset("shapes", &[("d#", "many")]).await;
    assert_eq!(start_in_parts(&mut task, &line(), "a", "n", 2).await, "[started]");
    assert_eq!(task.field("shapes", "d#").await, "many");
}

#[tokio::test]
async fn the_largest_graph_starts_opens_and_is_removed_in_parts() {
    let mut task = Task::new().await;
    let nodes: Vec<Node> = (0..10_000).map(|_| ("p 0 0", "- -", &[][..])).collect();
    assert_eq!(start_in_parts(&mut task, &graph("finish", "-", &nodes), "a", "n", 500).await, "[started]");
    for page in 0..100 {
        let reply = said(&mut task, "flow_open", "a 1").await;
        assert!(reply.starts_with(&format!("[opened {} 0 a {} 1 ", u8::from(page < 99), 100 * page)));
    }
    assert_eq!(head(&mut task, "a").await, "1 0 10000 10000 d -");
    assert_eq!(trim_whole(&mut task, "a").await, [""; 0]);
}

#[tokio::test]
async fn dependents_in_pages_come_with_the_parts() {
    let mut task = Task::new().await;
    assert_eq!(start_in_parts(&mut task, &fan(1_200), "a", "n", 500).await, "[started]");
    while said(&mut task, "flow_open", "a 1").await.starts_with("[opened 1 ") {}
    assert!(said(&mut task, "flow_advance", "a 0 1 c 7").await.starts_with("[advanced 1 v a/0/1 a 1 1 "));
    while said(&mut task, "flow_visit", "a 0 1").await.starts_with("[visited 1 ") {}
    assert_eq!(head(&mut task, "a").await, "1 0 1200 1200 d -");
    assert_eq!(trim_whole(&mut task, "a").await, [""; 0]);
}

#[tokio::test]
async fn a_child_in_parts_starts_only_while_its_node_waits() {
    let mut task = Task::new().await;
    put(&mut task, &graph("finish", "0", &[("p 0 0", "g -", &[])]), "a").await;
    let child = line().named("e");
    let (parts, last) = child.parts("a/0.1", "n", 2, false);
    for part in &parts {
        assert_eq!(with(&mut task, "flow_stage", part).await, "[staged 0]");
    }
    task.hset("stopping", &[("a", "failed ")]).await;
    let before = task.exact().await;
    assert_eq!(with(&mut task, "flow_start", &last).await, "[stale]");
    assert_eq!(task.exact().await, before);
    lose(&mut task, "stopping", "a").await;
    assert_eq!(with(&mut task, "flow_start", &last).await, "[started]");
    assert_eq!(task.held("children").await, r#"zset ["a/0.1": 0]"#);
    assert_eq!(task.held("outbox").await, r#"zset ["o a/0.1/1": NOW]"#);
    assert_eq!(said(&mut task, "flow_open", "a/0.1 1").await, "[opened 0 0 a/0.1 0 1 t '' 0 here in-0]");
    // Cancelled before it opens, it ends together with its node.
    let mut task = Task::new().await;
    put(&mut task, &graph("finish", "0", &[("p 0 0", "g -", &[])]), "a").await;
    start_in_parts(&mut task, &child, "a/0.1", "n", 2).await;
    assert_eq!(task.ok("flow_control", &["a", "why"]).await, "[stopping 1]");
    assert_eq!(task.ok("flow_control", &["a/0.1", "why"]).await, "[ended cancelled 0]");
    assert_eq!(place(&mut task, "a").await, "cancelled");
    let before = task.exact().await;
    assert_eq!(said(&mut task, "flow_open", "a/0.1 1").await, "[opened 0 0]");
    assert_eq!(task.exact().await, before);
}

#[tokio::test]
async fn nothing_is_left_of_a_start_that_was_taken_over() {
    let mut task = Task::new().await;
    for part in long_line(5).parts("a", "n", 2, false).0 {
        with(&mut task, "flow_stage", &part).await;
    }
    task.hset("staging", &[("a", "n 8 5 d 5")]).await;
    assert_eq!(start_in_parts(&mut task, &line().named("e"), "a", "m", 2).await, "[started]");
    assert_eq!(task.held("nodes").await, r#"hash {"a/0": "p 0 0", "a/1": "p 1 1", "a/2": "p 1 1"}"#);
    assert_eq!(task.held("input").await, r#"hash {"a/0": "in-0"}"#);
    assert_eq!(trim_whole(&mut task, "a").await, [""; 0]);
}

#[tokio::test]
async fn a_start_in_one_call_leaves_nothing_of_a_start_in_parts() {
    let mut task = Task::new().await;
    for part in long_line(5).parts("a", "n", 2, false).0 {
        with(&mut task, "flow_stage", &part).await;
    }
    assert_eq!(start(&mut task, &line().named("e"), "a").await, "[started a 0 1 t '' 0 here in-0]");
    let (parts, last) = long_line(5).parts("a", "n", 2, false);
    assert_eq!(with(&mut task, "flow_stage", &parts[1]).await, "[existed]");
    assert_eq!(with(&mut task, "flow_start", &last).await, "[existed]");
    trim_whole(&mut task, "a").await;
    // Whatever its age.
    said(&mut task, "flow_unstage", "-1").await;
    assert_eq!(without(task.keys().await, &["meta", "tasks"]), [""; 0]);
}
