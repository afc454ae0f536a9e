use crate::scripts::call::Task;
use crate::scripts::flow::{line, long_line};

#[tokio::test]
async fn a_page_has_the_states_of_its_nodes_in_their_order() {
    let mut task = Task::running_flow(&line()).await;
    task.write("instances a=2 0 3 1 d -").await;
    assert_eq!(task.unchanged("flow_nodes", "a 0 500").await, "[nodes 2 3 o p 1 1 p 1 1]");
    assert_eq!(task.unchanged("flow_nodes", "a 0 1").await, "[nodes 2 3 o]");
    assert_eq!(task.unchanged("flow_nodes", "a 2 500").await, "[nodes 2 3 p 1 1]");
    assert_eq!(task.unchanged("flow_nodes", "a 3 500").await, "[nodes 2 3]");
    assert_eq!(task.unchanged("flow_nodes", "a 1000 500").await, "[nodes 2 3]");
}

#[tokio::test]
async fn a_large_graph_comes_in_pages() {
    let mut task = Task::running_flow(&long_line(1_001)).await;
    for (from, count) in [("0", 500), ("500", 500), ("1000", 1)] {
        let page = task.ok("flow_nodes", &["a", from, "500"]).await;
        assert!(page.starts_with("[nodes 1 1001 "));
        assert_eq!(page.matches("p 1 1").count() + page.matches(" o").count(), count);
    }
}

#[tokio::test]
async fn a_missing_state_is_empty_and_an_unreadable_instance_unknown() {
    let mut task = Task::running_flow(&line()).await;
    task.write("no nodes.a/1").await;
    assert_eq!(task.ok("flow_nodes", "a 0 500").await, "[nodes 1 3 o '' p 1 1]");
    assert_eq!(task.ok("flow_nodes", "absent 0 500").await, "[unknown]");
    for count in ["three", "10001", "18446744073709551615"] {
        task.hset("shapes", &[("d@", &format!("{count} finish -"))]).await;
        assert_eq!(task.ok("flow_nodes", "a 0 500").await, "[unknown]");
    }
    task.write("shapes d@=3 finish -; instances a=1").await;
    assert_eq!(task.ok("flow_nodes", "a 0 500").await, "[unknown]");
}
