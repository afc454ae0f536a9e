use crate::scripts::call::{Task, assert_keys};
use crate::scripts::flow::{UNREADABLE, fan, graph};

/// An instance `a` with 64 of 100 dependents opened, or 64 of 120 skipped.
async fn begun(how: &str) -> Task {
    let mut task = Task::running_flow(&fan(if how == "c" { 100 } else { 120 })).await;
    task.ok("flow_advance", &format!("a 0 1 {how} -")).await;
    task
}

#[tokio::test]
async fn the_remaining_dependents_are_visited_once() {
    let mut task = begun("c").await;
    let reply = task.ok("flow_visit", "a 0 1").await;
    assert!(reply.starts_with("[visited 0 a 65 1 t '' 0 here in-65 "), "{}", &reply[..60]);
    assert_eq!(reply.matches(" here in-").count(), 36);
    assert_keys!(task, "head a=1 0 100 100 d -; no cursor");
    assert!(!task.held("outbox").await.contains("\"v "));
    // A late call has nothing to do.
    assert_eq!(task.unchanged("flow_visit", "a 0 1").await, "[visited 0]");
}

#[tokio::test]
async fn a_visit_continues_in_the_middle_of_a_page_of_dependents() {
    let mut task = Task::running_flow(&fan(700)).await;
    task.write("nodes a/0=c; instances a=1 0 700 0 d -; cursor a/0/1=450 c; outbox v a/0/1=5").await;
    let reply = task.ok("flow_visit", "a 0 1").await;
    assert!(reply.starts_with("[visited 1 v a/0/1 a 451 1 "), "{}", &reply[..60]);
    assert_keys!(task, "cursor a/0/1=514 c");
    // The entry has a new due time, so older entries come first.
    assert!(task.score("outbox", "v a/0/1").await > 5.0);
    let reply = task.ok("flow_visit", "a 0 1").await;
    assert!(reply.starts_with("[visited 1 v a/0/1 a 515 1 "), "{}", &reply[..60]);
    assert_keys!(task, "head a=1 0 700 128 d -");
}

#[tokio::test]
async fn the_last_skipped_node_ends_the_instance() {
    let mut task = begun("f").await;
    assert_keys!(task, "head a=1 0 56 0 d 0");
    assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 0]");
    assert_keys!(task, "head a=1 1 0 0 d 0; failed a=NOW; no outbox, cursor");
}

#[tokio::test]
async fn a_visit_of_a_stopped_instance_only_removes_its_entry() {
    let changes =
        ["stopping a=failed ", "instances a=2 0 1750 1000 d -", "no running", "no instances", "instances a=what"];
    for change in changes {
        let mut task = begun("c").await;
        task.write(change).await;
        let head = task.held("instances").await;
        let nodes = task.held("nodes").await;
        assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 0]", "{change}");
        assert_keys!(task, "no cursor", "{change}");
        assert!(!task.held("outbox").await.contains("\"v "), "{change}");
        assert_eq!((task.held("instances").await, task.held("nodes").await), (head, nodes), "{change}");
        assert_eq!(task.unchanged("flow_visit", "a 0 1").await, "[visited 0]", "{change}");
    }
}

#[tokio::test]
async fn a_visit_without_an_entry_changes_nothing() {
    let mut task = Task::running_flow(&fan(3)).await;
    for words in ["a 0 1", "a 0 2", "a 9 1", "absent 0 1"] {
        assert_eq!(task.unchanged("flow_visit", words).await, "[visited 0]");
    }
}

#[tokio::test]
async fn an_unreadable_cursor_ends_the_instance_as_failed() {
    for cursor in ["", "1000", "ten c", "1000 x"] {
        let mut task = begun("f").await;
        task.hset("cursor", &[("a/0/1", cursor)]).await;
        if cursor.is_empty() {
            task.write("no cursor").await;
        }
        assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 0]", "{cursor}");
        assert_keys!(task, "place a=failed", "{cursor}");
        assert_keys!(task, format!("error.a={UNREADABLE}; no cursor, outbox"));
    }
}

#[tokio::test]
async fn a_paused_instance_is_visited_and_opens_nothing() {
    let mut task = Task::running_flow(&graph("finish", "-", "p 0 0, - -, 1 2; p 1 1, - -; p 1 1, - -")).await;
    task.write("no running; paused a=5; nodes a/0=c; cursor a/0/1=1 c").await;
    assert_eq!(task.ok("flow_visit", "a 0 1").await, "[visited 0]");
    assert_keys!(task, "nodes a/0=c, a/1=p 1 1, a/2=p 0 0; paused a=5; no running");
}
