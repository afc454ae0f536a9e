//! The notes of handlers about their jobs.

use crate::scripts::call::Task;

async fn task() -> Task {
    let mut task = Task::new().await;
    task.running("w", &[("a", 7), ("b", 8)]).await;
    task
}

/// One note: id, fence, number, checkpoint, progress and its message.
fn note<'a>(id: &'a str, fence: &'a str, number: &'a str, checkpoint: &'a str, progress: &'a str) -> [&'a str; 6] {
    [id, fence, number, checkpoint, progress, progress]
}

#[tokio::test]
async fn the_holder_writes_both_and_only_progress_has_an_event() {
    let mut task = task().await;
    let notes = [note("a", "7", "1", "{1}", "p"), note("b", "8", "4", "", "q")].concat();
    assert_eq!(task.ok("note", &[&["w"][..], &notes].concat()).await, "[noted []]");
    assert_eq!(task.held("checkpoint").await, r#"hash {"a": "7 1 NOW {1}"}"#);
    assert_eq!(task.held("progress").await, r#"hash {"a": "7 1 NOW p", "b": "8 4 NOW q"}"#);
    let events = task.held("events").await;
    assert_eq!(events, r#"stream [NOW {"progress": "a p b q", "total": "2", "worker": "w"}]"#);
    task.ok("note", &[&["w"][..], &note("b", "8", "5", "{2}", "")].concat()).await;
    assert_eq!(task.held("events").await, events, "a checkpoint has no event");
}

#[tokio::test]
async fn a_worker_that_does_not_hold_the_job_writes_nothing() {
    let mut task = task().await;
    let before = task.exact().await;
    for (worker, id, fence) in [("x", "a", "7"), ("w", "a", "6"), ("w", "nobody", "7")] {
        let args = [&[worker][..], &note(id, fence, "1", "{1}", "p")].concat();
        assert_eq!(task.ok("note", &args).await, format!("[noted [{fence}]]"));
    }
    assert_eq!(task.ok("note", &["w"]).await, "[noted []]");
    assert_eq!(task.exact().await, before);
    let both = [&["w"][..], &note("a", "6", "1", "{1}", ""), &note("b", "8", "1", "{2}", "")].concat();
    assert_eq!(task.ok("note", &both).await, "[noted [6]]");
    assert_eq!(task.held("checkpoint").await, r#"hash {"b": "8 1 NOW {2}"}"#);
}

#[tokio::test]
async fn a_late_note_does_not_overwrite_a_later_one_of_its_run() {
    let mut task = task().await;
    let say = |number, checkpoint, progress| [&["w"][..], &note("a", "7", number, checkpoint, progress)].concat();
    task.ok("note", &say("10", "{new}", "")).await;
    for number in ["9", "10"] {
        assert_eq!(task.ok("note", &say(number, "{old}", "early")).await, "[noted []]");
    }
    assert_eq!(task.held("checkpoint").await, r#"hash {"a": "7 10 NOW {new}"}"#);
    // Each of the two separately.
    assert_eq!(task.held("progress").await, r#"hash {"a": "7 10 NOW early"}"#);
    // A number of an earlier run has no effect.
    task.hset("locks", &[("a", "w:12")]).await;
    task.ok("note", &[&["w"][..], &note("a", "12", "1", "{next}", "")].concat()).await;
    assert_eq!(task.held("checkpoint").await, r#"hash {"a": "12 1 NOW {next}"}"#);
}

#[tokio::test]
async fn without_events_progress_is_stored_and_not_reported() {
    let mut task = task().await;
    task.hset("meta", &[("eventMode", "off")]).await;
    task.ok("note", &[&["w"][..], &note("a", "7", "1", "", "p")].concat()).await;
    assert_eq!(
        (task.held("progress").await.as_str(), task.held("events").await.as_str()),
        (r#"hash {"a": "7 1 NOW p"}"#, "")
    );
}

#[tokio::test]
async fn a_completed_job_drops_its_checkpoint_and_others_keep_it() {
    let mut task = task().await;
    let notes = [note("a", "7", "1", "{1}", "p"), note("b", "8", "1", "{2}", "q")].concat();
    task.ok("note", &[&["w"][..], &notes].concat()).await;
    let ends = ["1", "w", "1000", "0", "1 5", "0", "a", "7", "b", "8", "failed", "1", "e why 5", "{}"];
    task.ok("settle", &ends).await;
    assert_eq!(task.held("checkpoint").await, r#"hash {"b": "8 1 NOW {2}"}"#);
    assert_eq!(task.held("progress").await, r#"hash {"a": "7 1 NOW p", "b": "8 1 NOW q"}"#);
    task.ok("retry", &["", "b", ""]).await;
    assert_eq!(task.held("checkpoint").await, r#"hash {"b": "8 1 NOW {2}"}"#);
    assert_eq!(task.held("progress").await, r#"hash {"a": "7 1 NOW p"}"#);
    task.ok("remove", &["", "a", "", "b", ""]).await;
    assert_eq!((task.held("checkpoint").await.as_str(), task.held("progress").await.as_str()), ("", ""));
}

#[tokio::test]
async fn a_task_that_keeps_nothing_keeps_no_note() {
    let mut task = task().await;
    task.hset("meta", &[("keepCompleted", "0"), ("keepFailed", "0")]).await;
    let notes = [note("a", "7", "1", "{1}", "p"), note("b", "8", "1", "{2}", "q")].concat();
    task.ok("note", &[&["w"][..], &notes].concat()).await;
    let ends = ["1", "w", "1000", "0", "1 5", "0", "a", "7", "b", "8", "failed", "1", "e why 5", "{}"];
    task.ok("settle", &ends).await;
    assert_eq!((task.held("checkpoint").await.as_str(), task.held("progress").await.as_str()), ("", ""));
}
