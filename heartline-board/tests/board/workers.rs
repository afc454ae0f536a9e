//! The page of a worker, and what a person can ask of it.

use heartline_board::BoardOptions;

use crate::site::{Site, until};

#[tokio::test]
async fn a_worker_is_made_quiet_and_claims_jobs_again() {
    let site = Site::new().await;
    let worker = site.worker();
    let (id, path) = (worker.id().to_string(), format!("/worker?worker={}", worker.id()));
    until("it is known", async || site.get(&path).await.status == 200).await;
    let page = site.page(&path).await;
    assert!(page.contains("value=\"quiet_worker\"") && page.contains("Claim no more jobs"), "{page}");
    let act = async |act: &str| site.post("/act", &[("act", act), ("worker", &id)]).await.body;
    assert!(act("quiet_worker").await.contains("claims no more jobs, and finishes those that it runs."));
    let page = site.page(&path).await;
    assert!(page.contains("quiet since") && page.contains("value=\"resume_worker\""), "{page}");
    assert!(page.contains("Claim jobs again"), "{page}");
    assert!(act("quiet_worker").await.contains("was quiet already, by "));
    assert!(act("resume_worker").await.contains("claims jobs again."));
    assert!(act("resume_worker").await.contains("was not quiet."));
    let unknown = site.post("/act", &[("act", "quiet_worker"), ("worker", "nowhere-1-00000000")]).await.body;
    assert!(unknown.contains("must be a worker that has not stopped"), "{unknown}");
    let _ = worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_person_without_the_right_sees_no_button_for_a_worker() {
    let options = BoardOptions::behind_own_auth().allow(|_, act| act != "quiet_worker");
    let site = Site::with(options, "").await;
    let worker = site.worker();
    let path = format!("/worker?worker={}", worker.id());
    until("it is known", async || site.get(&path).await.status == 200).await;
    assert!(!site.page(&path).await.contains("quiet_worker"));
    let refused = site.post("/act", &[("act", "quiet_worker"), ("worker", worker.id().as_str())]).await;
    assert_eq!(refused.status, 403);
    let _ = worker.stop().await.unwrap();
}
