use crate::scripts::call::Task;

/// Entries `1-0`, `2-0` ... with these fields.
async fn entries(fields: &[&[(&str, &str)]]) -> Task {
    let mut task = Task::new().await;
    for (at, fields) in fields.iter().enumerate() {
        let mut cmd = redis::cmd("XADD");
        cmd.arg(task.key("events")).arg(format!("{}-0", at + 1)).arg(*fields);
        let _: String = cmd.query_async(&mut task.conn).await.unwrap();
    }
    task
}

#[tokio::test]
async fn entries_that_name_a_job_are_returned_whole_and_in_order() {
    let mut task = entries(&[
        &[("total", "2"), ("dispatched", "a b")],
        &[("total", "3"), ("dispatched", "c")],
        &[("total", "5"), ("ran", "7"), ("completed", "b"), ("started", "c a")],
        &[("total", "6"), ("failed", "a panic - 9")],
    ])
    .await;
    assert_eq!(
        task.unchanged("history", "a 0-0 + 100").await,
        concat!(
            "[read '' [[1-0 [total 2 dispatched a b]] [3-0 [total 5 ran 7 completed b started c a]] ",
            "[4-0 [total 6 failed a panic - 9]]]]"
        )
    );
    assert_eq!(task.unchanged("history", "absent 0-0 + 100").await, "[read '' []]");
}

#[tokio::test]
async fn a_partial_id_and_one_that_looks_like_a_pattern_do_not_match() {
    let mut task = entries(&[&[("dispatched", "job-10 a.b axb")], &[("dispatched", "job-1 %a")]]).await;
    for (id, found) in [("job-1", "2-0"), ("job-10", "1-0"), ("a.b", "1-0"), ("%a", "2-0")] {
        let reply = task.ok("history", &[id, "0-0", "+", "100"]).await;
        assert!(
            reply.starts_with(&format!("[read '' [[{found} ")) && reply.matches("dispatched").count() == 1,
            "{reply}"
        );
    }
    assert_eq!(task.ok("history", "job 0-0 + 100").await, "[read '' []]");
    assert_eq!(task.ok("history", "a?b 0-0 + 100").await, "[read '' []]");
}

#[tokio::test]
async fn a_call_reads_at_most_its_limit_and_the_next_one_continues() {
    let fields: Vec<Vec<(&str, &str)>> =
        (1..=7).map(|at| vec![("dispatched", if at % 3 == 0 { "a" } else { "b" })]).collect();
    let mut task = entries(&fields.iter().map(Vec::as_slice).collect::<Vec<_>>()).await;
    for (after, reply) in [
        ("0-0", "[read 2-0 []]"),
        ("2-0", "[read 4-0 [[3-0 [dispatched a]]]]"),
        ("4-0", "[read 6-0 [[6-0 [dispatched a]]]]"),
        ("6-0", "[read '' []]"),
        // There is nothing after the last one.
        ("7-0", "[read '' []]"),
    ] {
        assert_eq!(task.ok("history", &["a", after, "+", "2"]).await, reply, "{after}");
    }
    assert_eq!(task.ok("history", "a 0-0 5-0 9").await, "[read '' [[3-0 [dispatched a]]]]");
    assert_eq!(task.ok("history", "a 3-0 6-0 9").await, "[read '' [[6-0 [dispatched a]]]]");
}

#[tokio::test]
async fn the_name_of_a_field_finds_the_entries_that_have_it() {
    let mut task = entries(&[
        &[("by", "anna"), ("paused", "why")],
        &[("dispatched", "a")],
        &[("by", "anna"), ("resumed", "")],
        &[("by", "paused")],
    ])
    .await;
    let reply = task.ok("history", "paused 0-0 + 9").await;
    assert_eq!(reply, "[read '' [[1-0 [by anna paused why]]]]", "the name of a person is not a job");
    assert_eq!(task.ok("history", "resumed 0-0 + 9").await, "[read '' [[3-0 [by anna resumed '']]]]");
}

#[tokio::test]
async fn the_other_stream_is_read_in_the_same_way() {
    let mut task = entries(&[&[("dispatched", "a")]]).await;
    let mut cmd = redis::cmd("XADD");
    cmd.arg(task.key("stalls")).arg("5-0").arg("stalled").arg("a 1 recovered w");
    let _: String = cmd.query_async(&mut task.conn).await.unwrap();
    assert_eq!(task.ok_at("stalls", "history", "a 0-0 + 9").await, "[read '' [[5-0 [stalled a 1 recovered w]]]]");
}

#[tokio::test]
async fn a_missing_stream_is_empty_and_a_wrong_type_is_refused() {
    let mut task = Task::new().await;
    assert_eq!(task.ok("history", "a 0-0 + 9").await, "[read '' []]");
    task.make_foreign("events").await;
    assert_eq!(task.refused("history", "a 0-0 + 9").await, "WRONGTYPE");
}
