use crate::scripts::call::Task;

#[tokio::test]
async fn all_call_sequences_of_the_worker_are_closed_and_no_others() {
    let mut task = Task::with("no meta; replies w=7\n\n\n1\n0\n, x=1\n\n\n1\n0\n").await;
    for _ in 0..2 {
        assert_eq!(task.ok("close", "w w/2 w/3").await, "[closed]");
        let calls = r#"replies hash {"w": "closed", "w/2": "closed", "w/3": "closed", "x": "1\n\n\n1\n0\n"}"#;
        assert_eq!(task.keys().await, [calls]);
    }
}

#[tokio::test]
async fn a_call_of_a_closed_sequence_does_nothing() {
    let mut task = Task::with("waits a b").await;
    let first = ["1", "w", "1000", "1", "0", "0"];
    assert!(task.ok("settle", &first).await.contains(" a ["));
    task.ok("close", "w w/2 w/3").await;
    assert_eq!(task.unchanged("settle", &first).await, "[closed]", "not even an answer is repeated");
    for number in ["2", "9", "1/2", "1/3"] {
        let args = format!("{number} w 1000 1 1 0 a 4000000000000001");
        assert_eq!(task.unchanged("settle", &args).await, "[closed]", "{number}");
    }
    // Closed takes precedence over undeclared: a worker that has stopped declares nothing.
    task.lose_options().await;
    assert_eq!(task.unchanged("settle", &first).await, "[closed]");
    task.declared().await;
    assert!(task.ok("settle", "1 x 1000 1 0 0").await.contains(" b ["), "others go on");
}
