use crate::scripts::call::{Task, assert_keys, assert_rest};
use crate::scripts::flow::{graph, line};

async fn paused(id: &str) -> Task {
    let mut task = Task::new().await;
    task.put(&line(), id).await;
    task.write(&format!("no running; paused {id}=5")).await;
    task
}

#[tokio::test]
async fn a_paused_instance_opens_nothing_and_sent_nodes_continue() {
    let mut task = Task::running_flow(&line()).await;
    task.write("outbox s a/0/1=5").await;
    assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[paused]");
    assert_rest!(
        task,
        "meta, shapes, input",
        "instances a=1 1 3 1 d -; nodes a/0=o, a/1=p 1 1, a/2=p 1 1; outbox s a/0/1=5; paused a=NOW"
    );
    assert_eq!(task.ok("flow_enter", "a 0 1").await, "[entered go 0]");
    assert_eq!(task.ok("flow_advance", "a 0 1 c 7").await, "[advanced 0]");
    assert_keys!(task, "states a=c, p 0 0, p 1 1; head a=1 1 2 0 d -; place a=paused");
    assert_eq!(task.ok("flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_rest!(
        task,
        "meta, shapes, input, value",
        "instances a=1 2 2 0 d -; nodes a/0=c, a/1=p 0 0, a/2=p 1 1; outbox o a/1=NOW; running a=NOW"
    );
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 1 1 t '' 0 here 7]");
}

#[tokio::test]
async fn a_late_copy_of_a_pause_or_resume_changes_nothing() {
    let mut task = Task::running_flow(&line()).await;
    let mut copies = Vec::new();
    for turn in 0..6 {
        let words = format!("a {turn} {}", if turn % 2 == 0 { "pause" } else { "resume" });
        assert_eq!(task.ok("flow_pause", &words).await, if turn % 2 == 0 { "[paused]" } else { "[resumed 1]" });
        assert_eq!(task.head("a").await, format!("1 {} 3 1 d -", turn + 1));
        copies.push(words);
        for copy in &copies {
            assert_eq!(task.unchanged("flow_pause", copy).await, "[changed]", "{copy} after {turn}");
        }
    }
}

#[tokio::test]
async fn stopping_ended_and_unknown_instances_are_left_alone() {
    let mut task = paused("paused").await;
    for id in ["running", "stops", "completed", "failed", "cancelled", "nowhere", "unreadable"] {
        task.put(&line(), id).await;
        task.lose(&format!("running.{id}")).await;
    }
    for (place, id) in
        [("running", "running"), ("running", "stops"), ("running", "unreadable"), ("completed", "completed")]
    {
        task.zadd(place, 5.0, id).await;
    }
    for id in ["failed", "cancelled"] {
        task.zadd(id, 5.0, id).await;
    }
    task.write("instances unreadable=1 0 3; stopping stops=failed ").await;
    for words in "paused 0 pause; paused 1 resume; running 0 resume; running 1 pause; stops 0 pause; stops 0 resume; \
         completed 0 pause; failed 0 resume; cancelled 0 resume; nowhere 0 pause; nowhere 0 resume; running - pause; \
         running 0 what"
        .split("; ")
    {
        assert_eq!(task.unchanged("flow_pause", words).await, "[changed]", "{words}");
    }
    for words in ["absent 0 pause", "absent 0 resume", "unreadable 0 pause", "unreadable 0 resume"] {
        assert_eq!(task.unchanged("flow_pause", words).await, "[unknown]", "{words}");
    }
}

#[tokio::test]
async fn an_instance_whose_last_node_ended_in_a_pause_ends_on_resume() {
    for (end, word, bad, output) in
        [("c 9", "completed", "-", r#"hash {"a": "9"}"#), ("f E", "failed", "2", ""), ("x -", "failed", "2", "")]
    {
        let mut task = Task::running_flow(&line()).await;
        task.write("nodes a/0=c, a/1=c, a/2=o; instances a=1 0 1 1 d -").await;
        assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[paused]");
        task.ok("flow_advance", &format!("a 2 1 {end}")).await;
        assert_keys!(task, format!("place a=paused; head a=1 1 0 0 d {bad}"));
        assert_eq!(task.ok("flow_pause", "a 1 resume").await, "[ended]");
        assert_keys!(task, format!("place a={word}; head a=1 3 0 0 d {bad}"));
        assert_eq!(task.held("output").await, output);
        assert_keys!(task, "no outbox");
        for words in ["a 0 pause", "a 1 resume", "a 3 resume"] {
            assert_eq!(task.unchanged("flow_pause", words).await, "[changed]");
        }
    }
}

#[tokio::test]
async fn a_pause_removes_the_open_entry_and_a_resume_restarts_it() {
    let mut task = Task::running_flow(&line()).await;
    for entry in ["o a/1", "o b/1", "v a/0/1"] {
        task.zadd("outbox", 5.0, entry).await;
    }
    task.write("cursor a/1=500, b/1=500, a/0/1=1 c").await;
    task.ok("flow_pause", "a 0 pause").await;
    assert_keys!(task, "outbox o b/1=5, v a/0/1=5; cursor a/0/1=1 c, b/1=500");
    // A late call.
    task.write("cursor a/1=500").await;
    task.ok("flow_pause", "a 1 resume").await;
    assert_keys!(task, "outbox o b/1=5, v a/0/1=5, o a/1=NOW; cursor a/0/1=1 c, b/1=500");
}

#[tokio::test]
async fn a_resume_after_a_failure_runs_the_independent_nodes() {
    let nodes = "p 0 0, - -, 2; p 0 0, - -, 3; p 1 1, - -; p 1 1, - -";
    let mut task = Task::running_flow(&graph("pause", "-", nodes)).await;
    task.ok("flow_advance", "a 0 1 f E a 1 1 c 7").await;
    assert_keys!(task, "place a=paused; head a=1 1 1 0 d 0; states a=f, c, s, p 0 0");
    // A failure has paused it: a pause by hand with the old turn changes nothing.
    assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[changed]");
    assert_eq!(task.ok("flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_eq!(task.ok("flow_open", "a 1").await, "[opened 0 0 a 3 1 t '' 0 here in-3]");
    task.ok("flow_advance", "a 3 1 c -").await;
    assert_keys!(task, "place a=failed; head a=1 3 0 0 d 0");
}

#[tokio::test]
async fn an_unreadable_graph_stops_neither_pause_nor_resume() {
    let mut task = Task::running_flow(&line()).await;
    task.write("no shapes").await;
    assert_eq!(task.ok("flow_pause", "a 0 pause").await, "[paused]");
    assert_eq!(task.ok("flow_pause", "a 1 resume").await, "[resumed 1]");
    assert_keys!(task, "head a=1 2 3 1 d -");
}
