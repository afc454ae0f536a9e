//! Guards the pages: host names, sessions, and writes from other sites.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Form, Query, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::state::{Board, answer, encoded};
use crate::token::{TokenCheck, cookie_of};

/// The longest time until a response begins, including the time to receive the request.
const ANSWERED: Duration = Duration::from_secs(30);

/// The most bytes of the address to which the login redirects.
const PAGE: usize = 2000;

/// Paths that are requested by pages, so the login does not redirect to them.
const NO_PAGES: [&str; 3] = ["/live", "/board.js", "/board.svg"];

/// The answer to a request with a wrong token.
const WRONG_TOKEN: &str = "the token is wrong\n";

/// Whether the host of a request is an address, `localhost` or one of `known`. This prevents DNS rebinding: another site's name can be made
/// to resolve to this machine, an address cannot.
#[must_use]
pub(crate) fn is_known_host(host: Option<&str>, known: &[String]) -> bool {
    let Some(host) = host.map(str::to_ascii_lowercase) else { return false };
    let name = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
            _ => "",
        },
        None => host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok() || known.iter().any(|known| *known == name || *known == host)
}

/// The host of a request.
#[must_use]
pub(crate) fn host_of(request: &Request) -> Option<&str> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

/// Whether a write comes from a page of this board, according to the headers that the browser sets.
fn is_own(head: &HeaderMap, host: Option<&str>) -> bool {
    let text = |name: &str| head.get(name).and_then(|value| value.to_str().ok());
    match text("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => {
            let origin = text("origin").and_then(|origin| origin.split_once("://")).map(|(_, origin)| origin);
            origin.is_some() && origin == host
        }
    }
}

/// Why a write is refused: it comes neither from a page of this board nor with its token.
fn why_refused(head: &HeaderMap) -> &'static str {
    if head.contains_key(header::AUTHORIZATION) {
        return WRONG_TOKEN;
    }
    match head.contains_key("sec-fetch-site") || head.contains_key(header::ORIGIN) {
        true => "this request came from a page of another site\n",
        false => "a write needs `Authorization: Bearer TOKEN`, or the Origin of the board\n",
    }
}

/// Checks host, origin and token of each request, and adds the security headers.
pub(crate) async fn guarded(State(board): State<Arc<Board>>, request: Request, next: Next) -> Response {
    let (token, head) = (board.options.token.as_ref(), request.headers());
    let path = request.uri().path();
    let is_public = ["/login", "/board.css", "/board.svg"].contains(&path);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = if !is_known_host(host_of(&request), &board.options.hosts) {
        let text = "unknown host: start the board with --host NAME (BoardOptions::host)\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    } else if !(reads
        || is_own(head, host_of(&request))
        || token.is_some_and(|token| token.is_in(head) == TokenCheck::Right))
    {
        (StatusCode::FORBIDDEN, why_refused(head)).into_response()
    } else if let Some(refusal) =
        token.filter(|_| !is_public).map(|token| token.check(head)).filter(|shown| *shown != TokenCheck::Right)
    {
        if reads && head.get(header::AUTHORIZATION).is_none() {
            Redirect::to(&to_login(&board, request.uri())).into_response()
        } else if refusal == TokenCheck::TooMany {
            (StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens: try again in a minute\n").into_response()
        } else {
            let is_wrong = head.contains_key(header::AUTHORIZATION);
            let text = if is_wrong { WRONG_TOKEN } else { "a token is needed\n" };
            (StatusCode::UNAUTHORIZED, text).into_response()
        }
    } else {
        // The body of a request may never arrive.
        tokio::time::timeout(ANSWERED, next.run(request))
            .await
            .unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
    };
    let policy = "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'";
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The address of the login page, which redirects to the requested page afterwards.
fn to_login(board: &Board, asked: &Uri) -> String {
    let page = asked.path_and_query().map_or("/", PathAndQuery::as_str);
    if page == "/" || page.len() > PAGE || NO_PAGES.contains(&asked.path()) {
        return board.url("/login");
    }
    board.url(&format!("/login?to={}", encoded(page)))
}

/// The page to show after the login: `to`, or the overview if that is not a path of this board.
fn page_of(board: &Board, to: &str) -> String {
    let is_own = to.starts_with('/')
        && !to.starts_with("//")
        && to.len() <= PAGE
        && to.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if is_own { board.url(to) } else { board.home().to_owned() }
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    base: &'a str,
    name: &'a str,
    to: &'a str,
    problem: &'a str,
}

fn login_form(board: &Board, to: &str, problem: &str, status: StatusCode) -> Response {
    let (base, name) = (&*board.options.base, &*board.options.name);
    (status, answer(&LoginPage { base, name, to, problem })).into_response()
}

/// The page to show after the login.
#[derive(Deserialize)]
pub(crate) struct LoginQuery {
    #[serde(default)]
    to: String,
}

pub(crate) async fn login_page(
    State(board): State<Arc<Board>>,
    Query(LoginQuery { to }): Query<LoginQuery>,
) -> Response {
    login_form(&board, &to, "", StatusCode::OK)
}

#[derive(Deserialize)]
pub(crate) struct LoginForm {
    token: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn login(State(board): State<Arc<Board>>, head: HeaderMap, Form(form): Form<LoginForm>) -> Response {
    let to_page = Redirect::to(&page_of(&board, &form.to));
    let Some(token) = &board.options.token else { return to_page.into_response() };
    match token.begin(form.token.trim()) {
        Err(TokenCheck::TooMany) => {
            let problem = "Too many wrong tokens. Try again in a minute.";
            login_form(&board, &form.to, problem, StatusCode::TOO_MANY_REQUESTS)
        }
        Err(_) => login_form(&board, &form.to, "Wrong token.", StatusCode::UNAUTHORIZED),
        Ok(session) => ([(header::SET_COOKIE, cookie(&board, &head, &session))], to_page).into_response(),
    }
}

/// Ends the session of this browser by deleting the cookie.
pub(crate) async fn logout(State(board): State<Arc<Board>>, head: HeaderMap) -> Response {
    let cookie = cookie(&board, &head, "") + "; Max-Age=0";
    ([(header::SET_COOKIE, cookie)], Redirect::to(&board.url("/login"))).into_response()
}

fn cookie(board: &Board, head: &HeaderMap, session: &str) -> String {
    let base = &board.options.base;
    let path = if base.is_empty() { "/" } else { base };
    let secure = if board.options.allows_plain_http { "" } else { "; Secure" };
    // Lax, so that a link from another site opens its page. Writes from other sites are refused by their headers.
    format!("{}={session}; HttpOnly; SameSite=Lax; Path={path}{secure}", cookie_of(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_and_listed_hosts_are_known() {
        let plain = |host| is_known_host(Some(host), &[]);
        for host in ["localhost", "LOCALHOST:9187", "127.0.0.1:9187", "127.0.0.1", "[::1]:9187", "10.0.0.7:80"] {
            assert!(plain(host), "{host}");
        }
        for host in
            ["", "[::1]x", "evil.example", "evil.example:1", "localhost.evil.example", "[::1", "127.0.0.1.evil.example"]
        {
            assert!(!plain(host), "{host}");
        }
        assert!(!is_known_host(None, &[]));
        assert!(is_known_host(Some("Board.internal:80"), &["board.internal".to_owned()]));
    }

    #[test]
    fn browser_headers_show_whether_a_write_is_our_own() {
        let head = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect::<HeaderMap>()
        };
        let host = Some("localhost:1");
        assert!(is_own(&head(&[("sec-fetch-site", "same-origin")]), host));
        assert!(is_own(&head(&[("origin", "http://localhost:1")]), host));
        for foreign in [
            &[][..],
            &[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:1")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
            &[("origin", "http://evil.example")],
            &[("origin", "null")],
        ] {
            assert!(!is_own(&head(foreign), host), "{foreign:?}");
        }
    }
}
