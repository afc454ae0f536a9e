//! The settle script without what makes it safe, as the bench measures it: it must be cut where it says, and still work.

use crate::costs::cuts::{Part, cut};
use crate::scripts::call::Task;

#[tokio::test]
async fn each_part_that_makes_settle_safe_can_be_left_out() {
    let parts = [Part::Replay, Part::Fences, Part::Checks];
    for parts in [&parts[..1], &parts[1..2], &parts[2..], &parts] {
        let mut task = Task::new().await;
        task.waiting(&["a", "b"]).await;
        let settle = task.script("settle");
        let (text, keys) = (cut(settle.source, parts).unwrap(), settle.keys.clone());
        let keys: Vec<String> = keys.iter().map(|key| task.key(key)).collect();
        for (args, ids) in
            [(&["1", "w", "1000", "1", "0", "0"][..], " a "), (&["2", "w", "1000", "1", "1", "0", "a", "0"], " b ")]
        {
            let reply = task.eval(&text, &keys, args).await.unwrap();
            assert!(reply.starts_with("[settled ") && reply.contains(ids), "{parts:?}: {reply}");
        }
    }
}
