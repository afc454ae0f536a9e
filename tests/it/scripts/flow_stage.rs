use crate::scripts::call::{Task, assert_keys, assert_rest};
use crate::scripts::flow::{fan, graph, line, long_line, loose};

/// Writes this many of the four parts of [`line`].
async fn staged(count: usize) -> Task {
    let mut task = Task::new().await;
    for part in line().parts("a", "n", 2, false).0.iter().take(count) {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 0]");
    }
    task
}

#[tokio::test]
async fn parts_are_written_one_by_one_and_the_start_runs_them() {
    let mut task = staged(1).await;
    assert_rest!(task, "meta", "nodes a/0=p 0 0, a/1=p 1 1; shapes d#=1; staging a=n 1 NOW d 3");
    let (parts, last) = line().parts("a", "n", 2, false);
    assert_eq!(parts.len(), 4);
    for part in &parts[1..] {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 0]");
    }
    let nodes = "nodes a/0=p 0 0, a/1=p 1 1, a/2=p 1 1";
    let shape = r"shapes d={}, d#=1, d/0=- - t\n\n1 1, d/1=- 0 t\n\n1 2, d/2=- 1 t\n\n0";
    assert_rest!(task, "meta", format!("input a/0=in-0; {nodes}; {shape}; staging a=n 4 NOW d 3"));
    assert_eq!(task.ok("flow_state", "a").await, "[unknown]");
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    let places = "outbox o a/1=NOW; running a=NOW";
    let rows =
        format!("input a/0=in-0; instances a=1 0 3 0 d -; {nodes}; {places}; {shape}, d@=3 finish 2; tasks t=NOW");
    assert_rest!(task, "meta", rows);
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 0 1 t '' 0 here in-0]");
    assert_keys!(task, "head a=1 0 3 1 d -");
}

#[tokio::test]
async fn late_and_repeated_parts_change_nothing() {
    let (parts, last) = line().parts("a", "n", 2, false);
    let mut task = staged(3).await;
    for part in &parts[..3] {
        assert_eq!(task.unchanged("flow_stage", part).await, "[staged 0]");
    }
    task.ok("flow_stage", &parts[3]).await;
    task.ok("flow_start", &last).await;
    for _ in 0..2 {
        for part in &parts {
            assert_eq!(task.unchanged("flow_stage", part).await, "[existed]");
        }
        assert_eq!(task.unchanged("flow_start", &last).await, "[existed]");
        // Also after it has ended.
        task.ok("flow_open", "a 1").await;
        task.ok("flow_advance", "a 0 1 f E").await;
        assert_keys!(task, "place a=failed");
    }
}

#[tokio::test]
async fn a_part_out_of_order_writes_nothing() {
    let (parts, last) = line().parts("a", "n", 2, false);
    for count in 0..4 {
        let mut task = staged(count).await;
        for part in parts.iter().skip(count + 1) {
            assert_eq!(task.unchanged("flow_stage", part).await, format!("[parts {count}]"));
        }
        // It also does not run before all parts are there, or for another caller.
        assert_eq!(task.unchanged("flow_start", &last).await, "[parts]");
    }
    let mut task = staged(4).await;
    for staged in ["other 4", "n 3", "n 5", "n 40", "n", "- 4", ""] {
        let mut last = last.clone();
        last[3] = staged.to_owned();
        assert_eq!(task.unchanged("flow_start", &last).await, "[parts]", "{staged}");
    }
}

#[tokio::test]
async fn two_starts_of_one_id_do_not_mix() {
    let mut task = staged(2).await;
    let other = long_line(4).named("e");
    let (parts, last) = other.parts("a", "m", 3, false);
    for part in &parts {
        assert_eq!(task.unchanged("flow_stage", part).await, "[other]");
    }
    assert_eq!(task.unchanged("flow_start", &last).await, "[parts]");
    // The first one stopped writing for longer than the other one waits: its parts are removed first.
    task.write("staging a=n 2 5 d 3").await;
    for part in &parts {
        assert_eq!(task.ok("flow_stage", part).await, "[left]");
    }
    assert_eq!(task.ok("flow_unstage", "10000 a").await, "[unstaged 1 0]");
    assert_keys!(task, "no nodes, shapes");
    assert_eq!(task.ok("flow_stage", &parts[1]).await, "[parts 0]");
    assert_eq!(task.ok("flow_stage", &parts[0]).await, "[staged 0]");
    assert_keys!(task, "staging a=m 1 NOW e 4; shapes.e#=1");
    let (own, own_last) = line().parts("a", "n", 2, false);
    for part in &own {
        assert_eq!(task.unchanged("flow_stage", part).await, "[other]");
    }
    assert_eq!(task.unchanged("flow_start", &own_last).await, "[parts]");
    for part in &parts[1..] {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 0]");
    }
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    assert_keys!(task, "states a=p 0 0, p 1 1, p 1 1, p 1 1; head a=1 0 4 0 e -");
    assert_eq!(task.ok("flow_start", &own_last).await, "[existed]");
    assert_keys!(task, "no staging");
}

#[tokio::test]
async fn a_takeover_with_the_same_shape_counts_it_once() {
    // The second time is one of a clock that went back.
    for staging in ["staging a=n 4 5 d 3", "staging a=n 4 9000000000000000 d 3"] {
        let mut task = staged(4).await;
        task.write(staging).await;
        assert_eq!(task.start_in_parts(&line(), "a", "m", 2).await, "[started]", "{staging}");
        assert_keys!(task, "shapes.d#=1", "{staging}");
        assert_eq!(task.trim_whole("a").await, [""; 0], "{staging}");
    }
}

#[tokio::test]
async fn a_known_shape_is_not_sent_and_counts_with_the_first_part() {
    let mut task = Task::new().await;
    task.start(&line(), "known").await;
    let (parts, last) = line().parts("a", "n", 2, true);
    assert_eq!(parts.len(), 2);
    for part in &parts {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 1]");
        assert_keys!(task, "shapes.d#=2");
    }
    // The other one is removed; the shape stays for the one that is being started.
    let left = task.trim_whole("known").await;
    assert_keys!(task, "shapes.d#=1");
    assert!(left.iter().any(|key| key.contains(r#""d@": "3 finish 2""#)), "{left:?}");
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    assert_keys!(task, "shapes.d#=1");
    assert_eq!(task.trim_whole("a").await, [""; 0]);
}

#[tokio::test]
async fn a_shape_that_was_lost_after_the_parts_is_asked_for() {
    let mut task = Task::new().await;
    task.start(&line(), "known").await;
    let (parts, last) = line().parts("a", "n", 2, true);
    for part in &parts {
        task.ok("flow_stage", part).await;
    }
    task.write("no shapes.d@").await;
    assert_eq!(task.unchanged("flow_start", &last).await, "[shape]");
}

#[tokio::test]
async fn two_concurrent_starts_with_the_same_shape_count_two() {
    let mut task = staged(3).await;
    assert_eq!(task.start_in_parts(&line(), "b", "m", 2).await, "[started]");
    let (parts, last) = line().parts("a", "n", 2, false);
    assert_eq!(task.ok("flow_stage", &parts[3]).await, "[staged 1]");
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    assert_keys!(task, "shapes.d#=2");
    assert!(task.field("shapes", "d@").await == "3 finish 2");
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 0 1 t '' 0 here in-0]");
    task.trim_whole("b").await;
    assert_eq!(task.ok("flow_advance", "a 0 1 c 7").await, "[advanced 0 a 1 1 t '' 0 here 7]");
}

#[tokio::test]
async fn an_unreadable_start_begins_again() {
    for entry in ["", "n", "n 2", "n 2 5", "n two 5 d 3", "n 2 5 d three", "n 2 5 d 3 more"] {
        let mut task = staged(2).await;
        task.hset("staging", &[("a", entry)]).await;
        let parts = line().parts("a", "n", 2, false).0;
        assert_eq!(task.ok("flow_stage", &parts[2]).await, "[left]", "{entry}");
        assert_eq!(task.start_in_parts(&line(), "a", "m", 2).await, "[started]", "{entry}");
        assert_keys!(task, "no staging");
    }
}

#[tokio::test]
async fn an_instance_count_that_is_not_a_number_stops_no_part() {
    let mut task = Task::with("shapes d#=many").await;
    assert_eq!(task.start_in_parts(&line(), "a", "n", 2).await, "[started]");
    assert_keys!(task, "shapes.d#=many");
}

#[tokio::test]
async fn the_largest_graph_starts_opens_and_is_removed_in_parts() {
    let mut task = Task::new().await;
    assert_eq!(task.start_in_parts(&loose(10_000), "a", "n", 500).await, "[started]");
    for page in 0..157 {
        let reply = task.ok("flow_open", "a 1").await;
        assert!(reply.starts_with(&format!("[opened {} 0 a {} 1 ", u8::from(page < 156), 64 * page)));
    }
    assert_keys!(task, "head a=1 0 10000 10000 d -");
    assert_eq!(task.trim_whole("a").await, [""; 0]);
}

#[tokio::test]
async fn dependents_in_pages_come_with_the_parts() {
    let mut task = Task::new().await;
    assert_eq!(task.start_in_parts(&fan(1_200), "a", "n", 500).await, "[started]");
    while task.ok("flow_open", "a 1").await.starts_with("[opened 1 ") {}
    assert!(task.ok("flow_advance", "a 0 1 c 7").await.starts_with("[advanced 1 v a/0/1 a 1 1 "));
    while task.ok("flow_visit", "a 0 1").await.starts_with("[visited 1 ") {}
    assert_keys!(task, "head a=1 0 1200 1200 d -");
    assert_eq!(task.trim_whole("a").await, [""; 0]);
}

#[tokio::test]
async fn a_child_in_parts_starts_only_while_its_node_waits() {
    let mut task = Task::running_flow(&graph("finish", "0", "p 0 0, g -")).await;
    let child = line().named("e");
    let (parts, last) = child.parts("a/0.1", "n", 2, false);
    for part in &parts {
        assert_eq!(task.ok("flow_stage", part).await, "[staged 0]");
    }
    task.write("stopping a=failed ").await;
    assert_eq!(task.unchanged("flow_start", &last).await, "[stale]");
    task.write("no stopping.a").await;
    assert_eq!(task.ok("flow_start", &last).await, "[started]");
    assert_keys!(task, "children a/0.1=0; outbox o a/0.1/1=NOW");
    assert_eq!(task.ok("flow_open", "a/0.1 1").await, "[opened 0 0 a/0.1 0 1 t '' 0 here in-0]");
    // Cancelled before it opens, it ends together with its node.
    let mut task = Task::running_flow(&graph("finish", "0", "p 0 0, g -")).await;
    task.start_in_parts(&child, "a/0.1", "n", 2).await;
    assert_eq!(task.ok("flow_control", "a why").await, "[stopping 1]");
    assert_eq!(task.ok("flow_control", "a/0.1 why").await, "[ended cancelled 0]");
    assert_keys!(task, "place a=cancelled");
    assert_eq!(task.unchanged("flow_open", "a/0.1 1").await, "[opened 0 0]");
}

#[tokio::test]
async fn nothing_is_left_of_a_start_that_was_taken_over() {
    let mut task = Task::new().await;
    for part in long_line(5).parts("a", "n", 2, false).0 {
        task.ok("flow_stage", &part).await;
    }
    task.write("staging a=n 8 5 d 5").await;
    assert_eq!(task.start_in_parts(&line().named("e"), "a", "m", 2).await, "[started]");
    assert_keys!(task, "nodes a/0=p 0 0, a/1=p 1 1, a/2=p 1 1; input a/0=in-0");
    assert_eq!(task.trim_whole("a").await, [""; 0]);
}

#[tokio::test]
async fn a_start_in_one_call_leaves_nothing_of_a_start_in_parts() {
    let mut task = Task::new().await;
    for part in long_line(5).parts("a", "n", 2, false).0 {
        task.ok("flow_stage", &part).await;
    }
    assert_eq!(task.start(&line().named("e"), "a").await, "[started a 0 1 t '' 0 here in-0]");
    let (parts, last) = long_line(5).parts("a", "n", 2, false);
    assert_eq!(task.ok("flow_stage", &parts[1]).await, "[existed]");
    assert_eq!(task.ok("flow_start", &last).await, "[existed]");
    task.trim_whole("a").await;
    // Whatever its age.
    task.ok("flow_unstage", "-1").await;
    assert_rest!(task, "meta, tasks", "");
}
