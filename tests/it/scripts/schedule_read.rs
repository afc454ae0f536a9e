use crate::scripts::call::{Task, timeless};
use crate::scripts::schedules::row;

const LEDGER: &str = "15 1 2 3 4 5 6 5 j 6 1 - - -";

#[tokio::test]
async fn rows_are_returned_as_stored_in_the_order_of_the_names() {
    let mut task = Task::new().await;
    row(&mut task, "a", 15).await;
    row(&mut task, "b", 25).await;
    task.write(&format!("schedules:ledger a={LEDGER}; schedules:paused a={{}}; schedules:ticks a=5f1; waits j")).await;
    let now = format!("{} w", task.now_ms().await);
    task.hset("schedules:differ", &[("a", &now)]).await;
    let reply = timeless(&task.unchanged("schedule_read", "b none a").await);
    let (one, other) =
        ("25 1 0 0 0 0 0 - - - - - - - '' '' '' 1 25 ''", format!("{LEDGER} {{}} 5f1 NOW w 1 15 waiting"));
    let rule = "d - put 0 ada {}";
    assert_eq!(reply, format!("[read NOW [[{rule} {one}] [] [{rule} {other}]]]"));
    assert_eq!(timeless(&task.unchanged("schedule_read", "").await), "[read NOW []]");
}

#[tokio::test]
async fn the_last_job_has_its_state() {
    for (rows, state) in [
        ("runs w: j=7", "running"),
        ("runs w: j=7; claimed j=7", "claimed"),
        ("payload j=1; delayed j=9e12", "delayed"),
        ("payload j=1; outcome j=completed 0 0 5; finalizing j=5", "finalizing"),
        ("payload j=1; completed j=5", "completed"),
        ("payload j=1; failed j=5", "failed"),
        ("payload j=1; cancelled j=5", "cancelled"),
        ("waits other", "unknown"),
    ] {
        let mut task = Task::new().await;
        row(&mut task, "a", 15).await;
        task.write(&format!("schedules:ledger a={LEDGER}; {rows}")).await;
        let reply = task.unchanged("schedule_read", "a").await;
        assert!(reply.ends_with(&format!(" {state}]]]")), "{rows}: {reply}");
    }
}

#[tokio::test]
async fn a_damaged_row_is_returned_as_it_is() {
    let mut task = Task::with("schedules:rule a=damaged; schedules:ledger a=many").await;
    assert_eq!(timeless(&task.ok("schedule_read", "a").await), "[read NOW [[damaged many '' '' '' 0 '' '']]]");
}
