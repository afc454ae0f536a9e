//! Who has access, and what other people cannot put into a page.

use heartline_board::BoardOptions;

use crate::site::{Site, encoded};

const TOKEN: &str = "0123456789abcdef";

#[tokio::test]
async fn text_from_others_is_escaped_on_every_page() {
    let site = Site::new().await;
    let evil = "<script>alert(1)</script>";
    site.run(&[("\"><script>alert(1)</script>", "fail")]).await;
    site.app.inspector().by(evil).pause("export", evil).await.unwrap();
    let id = encoded(&[("id", "\"><script>alert(1)</script>")]);
    for path in [
        "/",
        "/task?task=export",
        "/jobs?task=export&state=failed",
        &format!("/job?task=export&{id}&values=yes"),
        "/workers?all=yes",
        &format!("/jobs?task=export&state=failed&{}", encoded(&[("code", evil), ("text", evil)])),
        &format!("/workers?{}", encoded(&[("worker", evil)])),
        &format!("/job?task=export&{}", encoded(&[("id", "<b>")])),
    ] {
        let answer = site.get(path).await;
        let body = &answer.body;
        assert!(
            !body.contains("<script>") && !body.contains("<img") && !body.contains("<b>") && !body.contains('\u{1b}'),
            "{path}: {body}"
        );
        let policy = answer.field("content-security-policy").unwrap();
        assert_eq!(policy, "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'");
        for (name, value) in
            [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"), ("cache-control", "no-store")]
        {
            assert_eq!(answer.field(name), Some(value), "{path}");
        }
        assert!(!body.contains("style=") && !body.contains(" onclick"), "the page breaks the policy: {path}");
    }
}

#[tokio::test]
async fn no_text_from_others_reverses_a_page() {
    let site = Site::new().await;
    let turns = "safe\u{202e}gpj.exe\u{2066}";
    site.export.dispatch(turns.into()).id("a").await.unwrap();
    site.app.inspector().by(turns).pause("export", turns).await.unwrap();
    for path in ["/", "/task?task=export", "/job?task=export&id=a&values=yes"] {
        let body = site.page(path).await;
        assert!(!body.contains(['\u{202e}', '\u{2066}']), "{path}: {body}");
    }
    let task = site.page("/task?task=export").await;
    assert!(task.contains(r": safe\u{202e}gpj.exe\u{2066}"), "{task}");
}

#[tokio::test]
async fn nothing_is_visible_without_the_token_or_its_session() {
    let options = BoardOptions::with_token(TOKEN).unwrap().plain_http().base("/ops/heartline/");
    let site = Site::with(options, "/ops/heartline").await;
    let to_login = [
        ("", "/ops/heartline/login"),
        ("/jobs?task=a%26b", "/ops/heartline/login?to=%2Fjobs%3Ftask%3Da%2526b"),
        ("/server", "/ops/heartline/login?to=%2Fserver"),
        ("/board.js", "/ops/heartline/login"),
    ];
    for (path, location) in to_login {
        let answer = site.get(path).await;
        assert_eq!((answer.status, answer.field("location")), (303, Some(location)), "{path}");
    }
    // Paths that only end like a public page.
    for path in ["/x/login", "/x/board.css"] {
        let answer = site.get(path).await;
        assert!(answer.status == 303 && !answer.body.contains("prefix"), "{answer:?}");
    }
    let login = site.page("/login?to=%2Fjobs%3Ftask%3Da%2526b").await;
    assert!(login.contains("action=\"/ops/heartline/login\""), "{login}");
    assert!(login.contains("name=\"to\" value=\"/jobs?task=a%26b\""), "{login}");
    assert_eq!(site.get("/board.css").await.status, 200);
    let wrong = site.post("/login", &[("token", "0123456789abcdeX")]).await;
    assert_eq!((wrong.status, wrong.field("set-cookie")), (401, None), "{wrong:?}");
    let right = site.post("/login", &[("token", TOKEN)]).await;
    assert_eq!((right.status, right.field("location")), (303, Some("/ops/heartline")));
    for (to, location) in [
        ("/jobs?task=a%26b", "/ops/heartline/jobs?task=a%26b"),
        ("//evil.example/", "/ops/heartline"),
        ("https://evil.example/", "/ops/heartline"),
        ("/\\evil.example", "/ops/heartline"),
        ("/jobs\r\nset-cookie: x", "/ops/heartline"),
    ] {
        let led = site.post("/login", &[("token", TOKEN), ("to", to)]).await;
        assert_eq!((led.status, led.field("location")), (303, Some(location)), "{to}");
    }
    let cookie = right.field("set-cookie").unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Lax; Path=/ops/heartline"), "{cookie}");
    assert!(!cookie.contains(TOKEN));
    let session = cookie.split(';').next().unwrap();
    let seen = site.ask("GET", "", &[("Cookie", &format!("other=1; {session}"))], "").await;
    assert!(seen.status == 200 && seen.body.contains("href=\"/ops/heartline/workers\""), "{seen:?}");
    let port = site.origin().rsplit_once(':').unwrap().1.to_owned();
    assert!(session.starts_with(&format!("heartline_session_{port}=")), "cookies of a host go to all its ports");
    let guessed = "heartline_session=00000000000000000000000000000000";
    assert_eq!(site.ask("GET", "", &[("Cookie", guessed)], "").await.status, 303);
    assert_eq!(site.ask("GET", "", &[("Authorization", &format!("Bearer {TOKEN}"))], "").await.status, 200);
    let wrong = site.ask("GET", "", &[("Authorization", "Bearer nothing of that kind")], "").await;
    assert!(wrong.status == 401 && wrong.body.contains("the token is wrong"), "{wrong:?}");
    // A write needs both a session and our own page.
    site.export.dispatch("x".into()).await.unwrap();
    let form = encoded(&[("act", "pause"), ("task", "export")]);
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let foreign = [("Cookie", session), ("Sec-Fetch-Site", "cross-site"), kind];
    assert_eq!(site.ask("POST", "/act", &foreign, &form).await.status, 403);
    assert_eq!(site.ask("POST", "/act", &[("Sec-Fetch-Site", "same-origin"), kind], &form).await.status, 401);
    let origin = site.origin();
    assert_eq!(site.ask("POST", "/act", &[("Cookie", session), ("Origin", &origin), kind], &form).await.status, 200);
    // A browser that signs out drops the cookie.
    let out = site.ask("POST", "/logout", &[("Cookie", session), ("Origin", &origin), kind], "").await;
    assert!(out.status == 303 && out.field("set-cookie").unwrap().ends_with("; Max-Age=0"), "{out:?}");
    // Another replica, or the same one after a deploy, accepts the session too, but none of another token.
    for (token, status) in [(TOKEN, 200), ("fedcba9876543210", 303)] {
        let options = BoardOptions::with_token(token).unwrap().plain_http().base("/ops/heartline/");
        let replica = Site::with(options, "/ops/heartline").await;
        let value = session.split_once('=').unwrap().1;
        let port = replica.origin().rsplit_once(':').unwrap().1.to_owned();
        let cookie = format!("heartline_session_{port}={value}");
        assert_eq!(replica.ask("GET", "", &[("Cookie", &cookie)], "").await.status, status, "{token}");
    }
    for _ in 0..6 {
        site.post("/login", &[("token", "wrong")]).await;
        site.ask("GET", "", &[("Authorization", "Bearer wrong")], "").await;
    }
    assert_eq!(site.ask("GET", "", &[("Authorization", "Bearer wrong")], "").await.status, 429);
    assert_eq!(site.post("/login", &[("token", "wrong")]).await.status, 429);
    assert_eq!(site.post("/login", &[("token", TOKEN)]).await.status, 303, "other clients cannot lock users out");
    assert!(BoardOptions::with_token("short").is_err());
}

#[tokio::test]
async fn a_cookie_needs_https_unless_plain_http_was_chosen() {
    let site = Site::with(BoardOptions::with_token(TOKEN).unwrap(), "").await;
    let right = site.post("/login", &[("token", TOKEN)]).await;
    assert!(right.field("set-cookie").unwrap().ends_with("; Path=/; Secure"), "{right:?}");
}

#[tokio::test]
async fn a_foreign_host_name_is_refused_for_reads_too() {
    let site = Site::with(BoardOptions::behind_own_auth().host("Board.internal"), "").await;
    for (host, status) in
        [("localhost", 200), ("board.internal:8080", 200), ("evil.example", 421), ("board.internal.evil.example", 421)]
    {
        assert_eq!(site.ask("GET", "/", &[("Host", host)], "").await.status, status, "{host}");
    }
}

#[tokio::test]
async fn writes_need_our_own_page_post_and_a_writable_board() {
    let site = Site::new().await;
    let form = encoded(&[("act", "pause"), ("task", "export")]);
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    for from in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
    ] {
        assert_eq!(site.ask("POST", "/act", &[from, kind], &form).await.status, 403, "{from:?}");
    }
    let bare = site.ask("POST", "/act", &[kind], &form).await;
    assert!(bare.status == 403 && bare.body.contains("a write needs `Authorization: Bearer TOKEN`"), "{bare:?}");
    assert_eq!(site.get(&format!("/act?{form}")).await.status, 405);
    assert_eq!(site.ask("HEAD", "/", &[], "").await.status, 200);
    assert!(site.app.inspector().task("export").await.unwrap().paused.is_none());

    let options = BoardOptions::behind_own_auth().read_only().payloads(false).name("production");
    let site = Site::with(options, "").await;
    site.run(&[("a", "x")]).await;
    assert_eq!(site.post("/act", &[("act", "pause"), ("task", "export")]).await.status, 403);
    let task = site.page("/task?task=export").await;
    assert!(!task.contains("Pause") && task.contains("read only") && task.contains("production"), "{task}");
    let job = site.page("/job?task=export&id=a&values=yes").await;
    assert!(!job.contains("Payload") && !job.contains("values=yes") && !job.contains("method=\"post\""), "{job}");
}
