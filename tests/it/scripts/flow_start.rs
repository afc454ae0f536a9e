use crate::scripts::call::{Task, assert_keys, assert_rest, unchanged};
use crate::scripts::flow::{UNREADABLE, graph, line, long_line, loose};

#[tokio::test]
async fn a_start_writes_the_instance_and_opens_nodes_without_inputs() {
    let mut task = Task::new().await;
    let graph = graph("finish", "2", "p 0 0, - -, 2; p 0 0, o -, 2; P 2 2, - -");
    assert_eq!(task.start(&graph, "a").await, "[started a 0 1 t '' 0 here in-0 a 1 1 t '' 0 here in-1]");
    assert_rest!(
        task,
        "meta",
        "input a/0=in-0, a/1=in-1, a/2=in-2; instances a=1 0 3 2 d -; nodes a/0=o, a/1=o, a/2=P 2 2; \
         outbox s a/0/1=NOW, s a/1/1=NOW; running a=NOW; \
         shapes d={}, d#=1, d/0=- - t\\n\\n1 2, d/1=o - t\\n\\n1 2, d/2=- - t\\n\\n0, d@=3 finish 2; tasks t=NOW"
    );
}

#[tokio::test]
async fn a_second_start_of_the_same_id_writes_nothing() {
    let mut task = Task::new().await;
    task.start(&line(), "a").await;
    assert_eq!(unchanged!(task, task.start(&line(), "a").await), "[existed]");
    assert_eq!(unchanged!(task, task.start(&long_line(7), "a").await), "[existed]");
    // Also after it has ended.
    task.ok("flow_advance", "a 0 1 c - a 1 1 c - a 2 1 c -").await;
    task.ok("flow_advance", "a 1 1 c -").await;
    task.ok("flow_advance", "a 2 1 c -").await;
    assert_keys!(task, "place a=completed");
    assert_eq!(unchanged!(task, task.start(&line(), "a").await), "[existed]");
}

#[tokio::test]
async fn a_shape_is_sent_once_and_counted_with_each_instance() {
    let mut task = Task::new().await;
    let bare = |id: &str| line().start(id, false);
    let args = bare("a");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(task.unchanged("flow_start", &args).await, "[shape]");
    task.start(&line(), "a").await;
    let args = bare("b");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(task.ok("flow_start", &args).await, "[started b 0 1 t '' 0 here in-0]");
    assert_keys!(task, "shapes.d#=2");
    // Two clients that sent it at the same time.
    assert_eq!(task.start(&line(), "c").await, "[started c 0 1 t '' 0 here in-0]");
    assert_keys!(task, "shapes.d#=3; shapes.d@=3 finish 2");
}

#[tokio::test]
async fn headers_are_stored_with_the_first_start_of_an_instance() {
    let mut task = Task::new().await;
    let with = |mut args: Vec<String>, headers: &str| {
        headers.clone_into(&mut args[8]);
        args
    };
    assert_eq!(task.ok("flow_start", &with(line().start("a", true), "{A}")).await, "[started a 0 1 t '' 0 here in-0]");
    assert_eq!(unchanged!(task, task.ok("flow_start", &with(line().start("a", true), "{B}")).await), "[existed]");
    task.start(&line(), "b").await;
    // An instance that was written in parts.
    let (parts, last) = line().parts("c", "n", 2, true);
    for part in &parts {
        task.ok("flow_stage", part).await;
    }
    assert_keys!(task, "headers a={A}");
    assert_eq!(task.ok("flow_start", &with(last, "{C}")).await, "[started]");
    assert_keys!(task, "headers a={A}, c={C}");
}

#[tokio::test]
async fn the_largest_graph_of_one_call_starts_with_all_nodes_open() {
    let mut task = Task::new().await;
    let reply = task.start(&loose(500), "a").await;
    assert_eq!(reply.matches(" here in-").count(), 500);
    assert_keys!(task, "head a=1 0 500 500 d -");
    assert_eq!(task.held("outbox").await.matches("s a/").count(), 500);
}

#[tokio::test]
async fn payloads_over_16_kib_are_not_copied_but_named() {
    let mut task = Task::new().await;
    let large = "x".repeat(16 * 1024);
    let mut args = loose(2).start("a", true);
    let at = args.len() - 3;
    args[at] = large.clone();
    let reply = task.ok("flow_start", &args).await;
    assert_eq!(reply, format!("[started a 0 1 t '' 0 here {large} a 1 1 t '' 0 input a/1 4]"));
}

#[tokio::test]
async fn an_instance_count_that_is_not_a_number_stops_no_start() {
    let mut task = Task::new().await;
    task.start(&line(), "a").await;
    task.write("shapes d#=many").await;
    assert_eq!(task.start(&line(), "b").await, "[started b 0 1 t '' 0 here in-0]");
    assert_keys!(task, "head b=1 0 3 1 d -");
}

#[tokio::test]
async fn an_unsendable_instance_is_written_and_ends_as_corrupt() {
    for record in ["", "no record", "- -\n\n0", "- - \n\n0"] {
        let mut task = Task::new().await;
        task.start(&line(), "a").await;
        task.hset("shapes", &[("d/0", record)]).await;
        assert_eq!(task.start(&line(), "b").await, "[started]", "{record}");
        assert_keys!(task, format!("head b=1 0 3 1 d -; stopping.b=failed {UNREADABLE}"));
        assert!(task.held("outbox").await.contains(r#""x b/1""#));
        // The open nodes are cancelled, as that entry demands.
        task.ok("flow_advance", "b 0 1 x -").await;
        assert_keys!(task, format!("place b=failed; error.b={UNREADABLE}; states b=x, p 1 1, p 1 1"));
    }
}
