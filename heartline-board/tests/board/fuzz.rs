//! Requests that no page makes, about data that Heartline did not write.

use std::time::Duration;

use crate::hostile::{Stranger, declare, dispatch, rounds};
use crate::site::{Site, encoded, until};

const PATHS: [&str; 23] = [
    "/",
    "/find",
    "/task",
    "/jobs",
    "/job",
    "/value",
    "/dispatch",
    "/zone",
    "/workers",
    "/running",
    "/acts",
    "/worker",
    "/flows",
    "/flow",
    "/instance",
    "/schedules",
    "/lanes",
    "/lane",
    "/schedule",
    "/stalls",
    "/audit",
    "/server",
    "/login",
];

const NAMES: [&str; 27] = [
    "task",
    "state",
    "code",
    "text",
    "older",
    "cursor",
    "next",
    "id",
    "worker",
    "workflow",
    "after",
    "before",
    "limit",
    "as_of",
    "sort",
    "page",
    "node",
    "to",
    "from",
    "q",
    "run",
    "values",
    "key",
    "schedule",
    "dispatched",
    "order",
    "pick",
];

const VALUES: [&str; 40] = [
    "",
    "hurt",
    "keyed",
    "flow",
    "a",
    "held",
    "failed",
    "waiting",
    "running",
    "completed",
    "delayed",
    "0",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "nan",
    "1700000000000 a",
    "2 100",
    "-inf a",
    "inf a",
    "\u{202e}",
    "<script>alert(1)</script>",
    "%00",
    "\0",
    "1700000000000-0",
    "18446744073709551615-18446744073709551615",
    "10000000000000000d",
    "99999999999999999999s",
    "1d2h",
    "~w/i/0/1",
    "i/0.1",
    "../../etc/passwd",
    "\r\nX: 1",
    "=failed@18446744073709551615",
    "'\"",
    "P1D",
    "//evil.example",
    "/\\\\evil.example",
    "h-1-00000001",
];

const ACTS: [&str; 19] = [
    "pause",
    "resume",
    "retry",
    "run_now",
    "cancel",
    "remove",
    "requeue_claimed",
    "recover_running",
    "fail_running",
    "recover_worker",
    "flow_pause",
    "flow_resume",
    "flow_retry",
    "flow_cancel",
    "schedule_run",
    "lane_put",
    "audit",
    "preview",
    "x",
];

/// Statuses of pages that say what is wrong, if anything is.
const ANSWERS: [u16; 9] = [200, 303, 400, 403, 404, 405, 409, 422, 503];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_whatever_it_asks() {
    let site = Site::of_one_table().await;
    let tasks = declare(&site.app);
    let worker = site.worker();
    dispatch(&site.app, &tasks).await;
    until("jobs have ended", async || tasks.hurt.counts().await.unwrap().completed >= 4).await;
    let _ = worker.stop().await.unwrap();
    dispatch(&site.app, &tasks).await;
    let mut stranger = Stranger::new(site.raw().await, "board", &[]);
    stranger.leave_held_jobs().await;
    let saved = stranger.dump().await;
    for round in 0..rounds(60) {
        if round % 4 == 0 {
            stranger.restore(&saved).await;
        }
        stranger.overwrite().await;
        for _ in 0..4 {
            let rng = stranger.rng();
            let fields =
                (0..rng.usize(0..6)).map(|_| (NAMES[rng.usize(..NAMES.len())], VALUES[rng.usize(..VALUES.len())]));
            let mut fields: Vec<(&str, &str)> = fields.collect();
            let is_write = rng.u8(..) < 64;
            let path = if is_write { "/act" } else { PATHS[rng.usize(..PATHS.len())] };
            let asked = if is_write {
                fields.push(("act", ACTS[rng.usize(..ACTS.len())]));
                fields.push(("confirmed", if rng.bool() { "yes" } else { "" }));
                site.post(path, &fields).await
            } else {
                let asked = format!("{path}?{}", encoded(&fields));
                tokio::time::timeout(Duration::from_secs(40), site.get(&asked)).await.expect("a page is answered")
            };
            let what = format!("{path} {fields:?}: {asked:?} after {:#?}", stranger.log);
            // Redis refused: the page has the reason.
            let is_refused = asked.status == 500 && asked.body.contains("The request failed");
            assert!(is_refused || ANSWERS.contains(&asked.status), "{what}");
            assert!(!asked.body.contains("<script>alert") && !asked.body.contains('\u{1b}'), "{what}");
            assert!(asked.field("location").is_none_or(|to| to.starts_with('/') && !to.starts_with("//")), "{what}");
        }
    }
}
