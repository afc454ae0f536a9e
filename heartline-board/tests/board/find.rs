//! The find box.

use crate::site::{Site, until};

#[tokio::test]
async fn an_id_leads_straight_to_its_page() {
    let site = Site::new().await;
    site.export.dispatch("x".into()).id("order-7").await.unwrap();
    until("the task is listed", async || site.page("/").await.contains("/task?task=export")).await;
    let to = async |q: &str| site.get(&format!("/find?q={q}")).await.field("location").map(str::to_owned);
    assert_eq!(to("order-7").await.as_deref(), Some("/job?task=export&id=order-7"));
    assert_eq!(to("+export+").await.as_deref(), Some("/task?task=export"));

    // Several things have this name.
    site.export.dispatch("x".into()).id("export").await.unwrap();
    let page = site.page("/find?q=export").await;
    assert!(
        page.contains("2 with this name or id.") && page.contains("href=\"/job?task=export&#38;id=export\""),
        "{page}"
    );
    // A part of a name only gets suggestions.
    let page = site.page("/find?q=EXP").await;
    assert!(page.contains("These names contain it.") && page.contains("href=\"/task?task=export\""), "{page}");
    assert!(site.page("/find?q=%3Cb%3E").await.contains("<h1>&#60;b&#62;</h1>"));
    assert!(site.page("/find?q=unknown-7").await.contains("Nothing was found."));
    assert_eq!(site.get("/find?q=").await.status, 400);
}

#[tokio::test]
async fn the_navigation_marks_the_current_page() {
    let site = Site::new().await;
    site.export.dispatch("x".into()).await.unwrap();
    let marked = async |path: &str| {
        let page = site.page(path).await;
        let links = page.split("<a ").filter_map(|link| link.split('>').next());
        let links: Vec<&str> =
            links.filter(|link| link.contains("data-key=") && link.contains("aria-current=")).collect();
        assert_eq!(links.len(), 1, "{path}: {links:?}");
        (
            links[0].contains("aria-current=\"page\""),
            links[0].split("data-key=\"").nth(1).unwrap().chars().next().unwrap(),
        )
    };
    for (path, key) in [
        ("/", 'o'),
        ("/running", 'u'),
        ("/workers", 'w'),
        ("/flows", 'f'),
        ("/schedules", 'c'),
        ("/stalls", 's'),
        ("/audit", 'a'),
        ("/server", 'r'),
    ] {
        assert_eq!(marked(path).await, (true, key), "{path}");
    }
    assert_eq!(marked("/task?task=export").await, (false, 'o'));
    assert_eq!(marked("/jobs?task=export&state=waiting").await, (false, 'o'));
}
