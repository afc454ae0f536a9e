use crate::scripts::call::{Task, assert_keys, unchanged};

/// One row: id, stamp, cursor after it, error, attempt, stalledCount, maxCount, priority, dispatchedAt, enqueuedAt,
/// candidate.
type Row = Vec<String>;

/// The arguments of a page.
#[derive(Clone)]
struct Ask<'a> {
    state: &'a str,
    newest: bool,
    cursor: String,
    look: usize,
    scores: (&'a str, &'a str),
    code: &'a str,
    text: &'a str,
}

fn ask(state: &str) -> Ask<'_> {
    Ask { state, newest: false, cursor: String::new(), look: 100, scores: ("-inf", "+inf"), code: "", text: "" }
}

/// The next cursor, how many were looked at, and the rows.
async fn page(task: &mut Task, ask: &Ask<'_>) -> (String, usize, Vec<Row>) {
    let place = match ask.state {
        "completed" => "completed",
        "failed" => "failed",
        "cancelled" => "cancelled",
        _ => "delayed",
    };
    let mut keys = task.script("jobs").keys.clone();
    keys[0] = place;
    let (newest, look) = (if ask.newest { "1" } else { "0" }, ask.look.to_string());
    let (least, most) = ask.scores;
    let args = [ask.state, newest, &ask.cursor, &look, least, most, ask.code, ask.text];
    let keys: Vec<String> = keys.iter().map(|key| task.key(key)).collect();
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(task.script("jobs").source).arg(keys.len()).arg(keys).arg(&args);
    type Reply = (String, String, usize, Vec<Row>);
    let (word, next, looked, rows): Reply = cmd.query_async(&mut task.conn).await.unwrap();
    assert_eq!(word, "page");
    (next, looked, rows)
}

/// The ids of all pages of this size, page after page.
async fn walk(task: &mut Task, ask: &Ask<'_>) -> Vec<Vec<String>> {
    let (mut ask, mut pages) = (ask.clone(), Vec::new());
    loop {
        let (next, looked, rows) = page(task, &ask).await;
        assert!(looked <= ask.look, "{looked}");
        pages.push(ids(&rows));
        assert!(pages.len() < 2_000);
        if next.is_empty() {
            return pages;
        }
        ask.cursor = next;
    }
}

fn ids(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row[0].clone()).collect()
}

/// Failed jobs, each with its score: `a=5, b=6`.
async fn failed(jobs: &str) -> Task {
    Task::with(&format!("payload {jobs}; failed {jobs}")).await
}

#[tokio::test]
async fn a_row_has_the_small_columns_and_unset_ones_are_empty() {
    let mut task = failed("a=5, b=6").await;
    task.write(r#"error a={"code":"panic"}; attempt a=3; stalledCount a=1; maxCount a=4; priority a=low"#).await;
    task.write("dispatchedAt a=77; enqueuedAt a=88").await;
    let (next, looked, rows) = unchanged!(task, page(&mut task, &ask("failed")).await);
    assert_eq!((next.as_str(), looked), ("", 2));
    assert_eq!(
        rows,
        [
            ["a", "5", "5 a", "panic", r#"{"code":"panic"}"#, "3", "1", "4", "low", "77", "88", "0"],
            ["b", "6", "6 b", "", "", "", "", "", "", "", "", "0"],
        ]
    );
}

#[tokio::test]
async fn a_long_error_is_cut_to_its_beginning() {
    let mut task = failed("a=5").await;
    task.hset("error", &[("a", &"e".repeat(2_000))]).await;
    let (_, _, rows) = page(&mut task, &ask("failed")).await;
    assert_eq!(rows[0][4].len(), 1_024);
}

#[tokio::test]
async fn without_jobs_the_page_is_empty_and_the_last() {
    let mut task = Task::new().await;
    for state in ["waiting", "claimed", "running", "delayed", "completed", "failed", "cancelled"] {
        assert_eq!(page(&mut task, &ask(state)).await, (String::new(), 0, vec![]), "{state}");
    }
}

#[tokio::test]
async fn each_ordered_place_is_paged_from_the_oldest_or_the_newest() {
    for state in ["delayed", "completed", "failed", "cancelled"] {
        let mut task = Task::new().await;
        task.write(&format!("{state} c=1, a=2, d=3, b=4, e=1.7e12")).await;
        for look in 1..=6 {
            let oldest = walk(&mut task, &Ask { look, ..ask(state) }).await;
            assert_eq!(oldest.concat(), ["c", "a", "d", "b", "e"], "{state} by {look}");
            let newest = walk(&mut task, &Ask { look, newest: true, ..ask(state) }).await;
            assert_eq!(newest.concat(), ["e", "b", "d", "a", "c"], "{state} by {look}");
            let full = 5 / look;
            assert!(oldest.iter().take(full).all(|page| page.len() == look), "{oldest:?}");
            assert!(newest.iter().take(full).all(|page| page.len() == look), "{newest:?}");
            assert!(oldest.iter().all(|page| !page.is_empty()), "a page that is asked for has jobs: {oldest:?}");
        }
    }
}

#[tokio::test]
async fn a_thousand_jobs_of_one_score_are_paged_exactly_once() {
    let mut task = Task::new().await;
    // In the order of their bytes, not of numbers: some start with a byte that no text starts with.
    let mut all: Vec<String> = (0..990).map(|number| format!("job-{number}")).collect();
    all.extend(["Z", "a", "ab", "b", "é", "~", "-", "0", "JOB-1", "ü1"].map(str::to_owned));
    for chunk in all.chunks(100) {
        let mut cmd = redis::cmd("ZADD");
        cmd.arg(task.key("failed"));
        chunk.iter().for_each(|id| {
            cmd.arg("1700000000000").arg(id);
        });
        let () = cmd.query_async(&mut task.conn).await.unwrap();
    }
    task.write("failed before=1, after=1.8e12").await;
    let mut sorted = all.clone();
    sorted.sort();
    let wanted = [vec!["before".to_owned()], sorted, vec!["after".to_owned()]].concat();
    let backwards: Vec<String> = wanted.iter().rev().cloned().collect();
    for look in [7, 100] {
        assert_eq!(walk(&mut task, &Ask { look, ..ask("failed") }).await.concat(), wanted);
        assert_eq!(walk(&mut task, &Ask { look, newest: true, ..ask("failed") }).await.concat(), backwards);
    }
}

#[tokio::test]
async fn a_page_continues_after_a_job_that_is_gone() {
    for newest in [false, true] {
        let mut task = failed("a=1, b=2, c=2, d=2, e=3").await;
        let (next, _, rows) = page(&mut task, &Ask { look: 3, newest, ..ask("failed") }).await;
        let (seen, left) = if newest { (["e", "d", "c"], ["b", "a"]) } else { (["a", "b", "c"], ["d", "e"]) };
        assert_eq!(ids(&rows), seen);
        assert_eq!(next, "2 c");
        // The job of the cursor, and one that was shown.
        task.write(&format!("no failed.c, failed.{}", seen[0])).await;
        let (end, _, rows) = page(&mut task, &Ask { look: 3, newest, cursor: next.clone(), ..ask("failed") }).await;
        assert_eq!((end.as_str(), ids(&rows)), ("", left.map(str::to_owned).to_vec()));
        // All jobs of its score are gone.
        task.write("no failed.b, failed.d").await;
        let (_, _, rows) = page(&mut task, &Ask { look: 3, newest, cursor: next, ..ask("failed") }).await;
        assert_eq!(ids(&rows), if newest { ["a"] } else { ["e"] });
    }
}

#[tokio::test]
async fn a_job_added_after_the_cursor_is_shown_and_one_before_is_not() {
    let mut task = failed("b=2, d=4, f=6").await;
    let (next, _, rows) = page(&mut task, &Ask { look: 2, ..ask("failed") }).await;
    assert_eq!(ids(&rows), ["b", "d"]);
    task.write("failed a=1, c=4, e=5").await;
    let (_, _, rows) = page(&mut task, &Ask { cursor: next, ..ask("failed") }).await;
    assert_eq!(ids(&rows), ["e", "f"], "c is before d in the order of scores");
}

#[tokio::test]
async fn the_cursor_of_each_row_continues_after_that_row() {
    let mut task = failed("a=1, b=2, c=2, d=3").await;
    for newest in [false, true] {
        let (_, _, rows) = page(&mut task, &Ask { newest, ..ask("failed") }).await;
        let all = ids(&rows);
        for (at, row) in rows.iter().enumerate() {
            let (_, _, rest) = page(&mut task, &Ask { newest, cursor: row[2].clone(), ..ask("failed") }).await;
            assert_eq!(ids(&rest), all[at + 1..]);
        }
    }
}

#[tokio::test]
async fn score_bounds_apply_in_both_orders_with_and_without_a_cursor() {
    let mut task = failed("a=1, b=2, c=2, d=3, e=4").await;
    for (least, most, wanted) in [
        ("-inf", "2", &["a", "b", "c"][..]),
        ("2", "3", &["b", "c", "d"]),
        ("3", "+inf", &["d", "e"]),
        ("2", "2", &["b", "c"]),
        ("5", "+inf", &[]),
        ("-inf", "0", &[]),
        ("3", "2", &[]),
    ] {
        for look in [1, 2, 10] {
            let asked = Ask { look, scores: (least, most), ..ask("failed") };
            assert_eq!(walk(&mut task, &asked).await.concat(), wanted, "{least} {most}");
            let newest = walk(&mut task, &Ask { newest: true, ..asked.clone() }).await.concat();
            assert_eq!(newest.into_iter().rev().collect::<Vec<_>>(), wanted, "{least} {most}");
        }
        // A cursor outside the bounds, from a page without bounds.
        for (newest, cursor) in [(false, "0 x"), (true, "9 x")] {
            let asked = Ask { newest, cursor: cursor.to_owned(), scores: (least, most), ..ask("failed") };
            assert_eq!(page(&mut task, &asked).await.2.len(), wanted.len(), "{least} {most}");
        }
    }
}

#[tokio::test]
async fn jobs_are_found_by_error_code_and_by_error_text() {
    let mut task = failed("a=1, b=2, c=3, d=4, e=5").await;
    for (id, error) in [
        ("a", r#"{"code":"timeout","message":"took 5s [sic] 100%"}"#),
        ("b", r#"{"code":"panic","message":"no timeout at all"}"#),
        ("c", r#"{"code":"timeout_soft","message":"took 6s"}"#),
        // As a script writes it, and as the crate does.
        ("d", r#"{"code":"cancelled","message":"see http:\/\/host\/path"}"#),
    ] {
        task.hset("error", &[(id, error)]).await;
    }
    for (code, text, wanted) in [
        ("timeout", "", &["a"][..]),
        ("panic", "", &["b"]),
        ("", "timeout", &["b"]),
        ("", "took", &["a", "c"]),
        ("timeout", "took 6s", &[]),
        ("timeout_soft", "took 6s", &["c"]),
        ("", "[sic] 100%", &["a"]),
        ("", ".", &[]),
        ("", "http://host/path", &["d"]),
        ("nothing", "", &[]),
        ("", "", &["a", "b", "c", "d", "e"]),
    ] {
        let (next, looked, rows) = page(&mut task, &Ask { code, text, ..ask("failed") }).await;
        assert_eq!(
            (next.as_str(), looked, ids(&rows)),
            ("", 5, wanted.iter().map(|id| id.to_string()).collect()),
            "{code} {text}"
        );
    }
    // Pages without a matching job are not the end.
    let pages = walk(&mut task, &Ask { look: 2, code: "cancelled", ..ask("failed") }).await;
    assert_eq!(pages, [vec![], vec!["d".to_owned()], vec![]]);
}

#[tokio::test]
async fn waiting_jobs_are_paged_across_the_lists_in_claim_order() {
    let mut task = Task::with("wait:high h-1 h-2; wait n-1 n-2 n-3 n-4; wait:low l-1").await;
    task.write("priority h-1=high, l-1=low; enqueuedAt n-2=55").await;
    let all = ["h-1", "h-2", "n-1", "n-2", "n-3", "n-4", "l-1"];
    for look in 1..=8 {
        let pages = walk(&mut task, &Ask { look, ..ask("waiting") }).await;
        assert_eq!(pages.concat(), all, "by {look}");
        assert!(pages.iter().take(7 / look).all(|page| page.len() == look), "{pages:?}");
    }
    let (_, looked, rows) = page(&mut task, &ask("waiting")).await;
    assert_eq!(looked, 7);
    assert_eq!(rows[0], ["h-1", "", "1 1", "", "", "", "", "", "high", "", "", "0"]);
    assert_eq!(rows[3], ["n-2", "", "2 2", "", "", "", "", "", "", "", "55", "0"]);
    for (at, row) in rows.iter().enumerate() {
        let (_, _, rest) = page(&mut task, &Ask { cursor: row[2].clone(), ..ask("waiting") }).await;
        assert_eq!(ids(&rest), all[at + 1..], "after {}", row[0]);
    }
}

#[tokio::test]
async fn an_empty_list_is_skipped() {
    for list in ["wait:high", "wait", "wait:low"] {
        let mut task = Task::with(&format!("{list} a b")).await;
        assert_eq!(walk(&mut task, &Ask { look: 1, ..ask("waiting") }).await.concat(), ["a", "b"], "{list}");
    }
}

#[tokio::test]
async fn tombstones_are_looked_at_and_not_shown() {
    let mut task = Task::with("waits first x a y z b").await;
    task.ok("cancel", "why channel - x - z -").await;
    task.ok("remove", "- y -").await;
    let (_, looked, rows) = page(&mut task, &ask("waiting")).await;
    assert_eq!((looked, ids(&rows)), (6, ["first", "a", "b"].map(str::to_owned).to_vec()));
    let pages = walk(&mut task, &Ask { look: 2, ..ask("waiting") }).await;
    assert_eq!(pages.concat(), ["first", "a", "b"]);
    assert!(pages.iter().any(|page| page.len() == 1), "{pages:?}");
}

#[tokio::test]
async fn a_waiting_job_with_an_extra_entry_is_shown_once() {
    let mut task = Task::with("waits first a b").await;
    task.ok("remove", "- a -").await;
    task.ok("dispatch", "1 1 - a 1").await;
    assert_keys!(task, "wait first a b a");
    let (_, looked, rows) = page(&mut task, &ask("waiting")).await;
    assert_eq!((looked, ids(&rows)), (4, ["first", "a", "b"].map(str::to_owned).to_vec()), "where it is claimed");
    // A delayed, held or ended job is in no list.
    task.ok("settle", "1 w 1000 2 0 0").await;
    assert_eq!(ids(&page(&mut task, &ask("waiting")).await.2), ["b"]);
}

#[tokio::test]
async fn held_jobs_are_shown_with_token_and_candidate_mark() {
    let mut task = Task::with("runs w: silent=7; snapshot; runs v: heard=8; attempt heard=2").await;
    let (next, looked, mut rows) = page(&mut task, &ask("running")).await;
    rows.sort();
    assert_eq!((next.as_str(), looked), ("", 2));
    assert_eq!(rows[0][..2], ["heard", "v:8"]);
    assert_eq!(rows[0][3..], ["", "", "2", "", "", "", "", "", "0"]);
    assert_eq!(rows[1][..2], ["silent", "w:7"]);
    assert_eq!(rows[1][11], "1");
}

#[tokio::test]
async fn claimed_and_running_jobs_are_shown_separately() {
    let mut task = Task::with("runs w: silent=7; snapshot; runs w: ahead=8, runs=9, old=10").await;
    // The last two marks name an older fence and a missing job: they are ignored.
    task.write("claimed silent=7, ahead=8, old=6, gone=5").await;
    for (state, shown) in [
        ("claimed", [["ahead", "w:8", "0"], ["silent", "w:7", "1"]]),
        ("running", [["old", "w:10", "0"], ["runs", "w:9", "0"]]),
    ] {
        let (next, looked, mut rows) = page(&mut task, &ask(state)).await;
        rows.sort();
        assert_eq!((next.as_str(), looked), ("", 4), "{state}");
        let rows: Vec<[&str; 3]> = rows.iter().map(|row| [&*row[0], &*row[1], &*row[11]]).collect();
        assert_eq!(rows, shown, "{state}");
    }
}

#[tokio::test]
async fn a_page_of_many_held_jobs_has_about_the_requested_size() {
    let mut task = Task::new().await;
    let ids: Vec<String> = (0..2_000).map(|number| format!("job-{number}")).collect();
    let tokens: Vec<(&str, String)> =
        ids.iter().zip(1..).map(|(id, fence)| (id.as_str(), format!("w:{fence}"))).collect();
    task.hset("locks", &tokens.iter().map(|(id, token)| (*id, token.as_str())).collect::<Vec<_>>()).await;
    let (mut asked, mut seen, mut pages) = (ask("running"), std::collections::BTreeSet::new(), 0);
    loop {
        let (next, looked, rows) = page(&mut task, &asked).await;
        assert!(looked == rows.len() && looked < 400, "{looked}");
        seen.extend(rows.into_iter().map(|row| row[0].clone()));
        pages += 1;
        if next.is_empty() {
            break;
        }
        asked.cursor = next;
    }
    assert_eq!(seen.len(), 2_000);
    assert!(pages > 5, "{pages}");
}

#[tokio::test]
async fn the_text_filter_searches_only_the_message() {
    let mut task = failed("a=5").await;
    for (error, text, fits) in [
        (r#"{"code":"timeout","message":"too late"}"#, "late", true),
        (r#"{"code":"timeout","message":"too late"}"#, "timeout", false),
        (r#"{"code":"timeout","message":"too late"}"#, "message", false),
        (r#"{"message":"too late","code":"timeout"}"#, "late", true),
        (r#"{"message":"too late","code":"timeout"}"#, "timeout", false),
        (r#"{"message":"he said \"late\" twice \\","code":"timeout"}"#, r#"twice \\"#, true),
        (r#"{"message":"he said \"late\" twice \\","code":"timeout"}"#, "timeout", false),
        (r#"{"message":"no file \/data\/x","code":"io"}"#, "/data/x", true),
        ("no json at all", "json", false),
    ] {
        task.hset("error", &[("a", error)]).await;
        let (_, _, rows) = page(&mut task, &Ask { text, ..ask("failed") }).await;
        assert_eq!(!rows.is_empty(), fits, "{text} in {error}");
    }
}
