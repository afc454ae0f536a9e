//! Who is let in: names under which this is asked for, sessions, writes of other sites.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use askama::Template;
use axum::extract::{Form, Query, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use hmac::{Hmac, Mac};
use serde::Deserialize;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::pages::{Board, encoded};

/// The fewest bytes of a token: fewer can be guessed.
const TOKEN: usize = 16;

/// How long an answer may take to begin, with the rest of the request that it waits for.
const ANSWERED: Duration = Duration::from_secs(30);

/// How many wrong tokens a minute are listened to.
const TRIES: usize = 10;

/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(12 * 3600);

/// How long the address of a page may be to which signing in leads on.
const PAGE: usize = 2000;

/// What pages ask for themselves.
const NO_PAGES: [&str; 3] = ["/live", "/board.js", "/board.svg"];

/// The name of the cookie, in front of the port: cookies of one host are sent to all of its ports.
const COOKIE: &str = "heartline_session";

/// A token has fewer than 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortToken;

impl fmt::Display for ShortToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token must have at least {TOKEN} bytes: fewer can be guessed")
    }
}

impl std::error::Error for ShortToken {}

/// A token that is compared in a time that does not tell how much of it was right. Wrong ones are counted, by whatever way they come.
#[derive(Clone)]
pub struct Token {
    text: Arc<str>,
    /// When the wrong ones of the last minute came.
    wrong: Arc<Mutex<VecDeque<Instant>>>,
}

/// What a token is that somebody has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCheck {
    /// It is the right one, which is always taken: who shows wrong ones must not keep people out.
    Right,
    /// It is another one, or there is none.
    Wrong,
    /// It is another one, and so were ten in the last minute.
    TooMany,
}

impl Token {
    /// # Errors
    /// [`ShortToken`] if it has fewer than 16 bytes.
    pub fn new(token: String) -> Result<Token, ShortToken> {
        if token.len() < TOKEN { Err(ShortToken) } else { Ok(Token { text: token.into(), wrong: Arc::default() }) }
    }

    /// Whether this is it.
    #[must_use]
    pub fn is(&self, said: &str) -> TokenCheck {
        if said.as_bytes().ct_eq(self.text.as_bytes()).into() {
            return TokenCheck::Right;
        }
        let mut wrong = held(&self.wrong);
        while wrong.front().is_some_and(|at| at.elapsed() > Duration::from_secs(60)) {
            wrong.pop_front();
        }
        if wrong.len() >= TRIES {
            return TokenCheck::TooMany;
        }
        wrong.push_back(Instant::now());
        TokenCheck::Wrong
    }

    /// Whether the head of a request has it, as `Authorization: Bearer`.
    #[must_use]
    pub fn is_in(&self, head: &HeaderMap) -> TokenCheck {
        let said = head.get(header::AUTHORIZATION).and_then(|said| said.to_str().ok());
        said.and_then(|said| said.strip_prefix("Bearer ")).map_or(TokenCheck::Wrong, |said| self.is(said))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whether a request is for this machine: by an address, a loopback name, or one of these. An address cannot be made to lead elsewhere, as
/// the name of another site can be made to lead here.
#[must_use]
pub fn is_known_host(host: Option<&str>, known: &[String]) -> bool {
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

/// The name under which a request came.
#[must_use]
pub fn host_of(request: &Request) -> Option<&str> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

/// Who is let in: everybody, or those who know the token.
#[derive(Clone, Debug)]
pub(crate) struct Door(Option<Lock>, bool);

#[derive(Clone, Debug)]
struct Lock(Token);

impl Door {
    pub(crate) fn open() -> Door {
        Door(None, false)
    }

    pub(crate) fn with_token(token: String) -> Result<Door, ShortToken> {
        let token = Token::new(token)?;
        Ok(Door(Some(Lock(token)), false))
    }

    pub(crate) fn allow_plain_http(&mut self) {
        self.1 = true;
    }

    /// Whether whoever sent this is let in: with the token, of which each request shows one at most, or with a session.
    pub(crate) fn lets_in(&self, head: &HeaderMap) -> TokenCheck {
        match &self.0 {
            None => TokenCheck::Right,
            Some(lock) if session_of(head).is_some_and(|session| lock.knows(&session)) => TokenCheck::Right,
            Some(Lock(token)) => token.is_in(head),
        }
    }

    pub(crate) fn has_sessions(&self) -> bool {
        self.0.is_some()
    }

    fn is_bearer(&self, head: &HeaderMap) -> bool {
        self.0.as_ref().is_some_and(|Lock(token)| token.is_in(head) == TokenCheck::Right)
    }
}

/// A session is a cookie that the token has signed, and nothing that a process keeps: every replica with the same token takes it, and a restart
/// ends none. It says until when it lasts, in seconds since 1970, a dot, and the signature.
impl Lock {
    fn knows(&self, session: &str) -> bool {
        let Some((until, signature)) = session.split_once('.') else { return false };
        let (Ok(seconds), Some(signature)) = (until.parse::<u64>(), from_hex(signature)) else { return false };
        let lasts =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).is_some_and(|end| end > SystemTime::now());
        lasts && self.signed(until).is_some_and(|signed| signed.verify_slice(&signature).is_ok())
    }

    /// A new session, if the token is right; else what it is.
    fn open(&self, said: &str) -> Result<String, TokenCheck> {
        match self.0.is(said) {
            TokenCheck::Right => {}
            other => return Err(other),
        }
        let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + SESSION;
        let until = end.as_secs().to_string();
        let signed = self.signed(&until).ok_or(TokenCheck::Wrong)?.finalize().into_bytes();
        let signature: String = signed.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{until}.{signature}"))
    }

    fn signed(&self, until: &str) -> Option<Hmac<Sha256>> {
        let signed = Hmac::<Sha256>::new_from_slice(self.0.text.as_bytes()).ok()?;
        // The token signs nothing else, and whatever it comes to sign will begin in another way.
        Some(signed.chain_update("heartline session ").chain_update(until))
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cookie_of(head: &HeaderMap) -> String {
    let host = head.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let port: String = port.chars().filter(char::is_ascii_digit).take(5).collect();
    format!("{COOKIE}_{port}")
}

fn session_of(head: &HeaderMap) -> Option<String> {
    let name = cookie_of(head);
    let cookies = head.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split("; "));
    cookies.find_map(|cookie| cookie.strip_prefix(&name)?.strip_prefix('=').map(str::to_owned))
}

/// Whether a write comes from a page of ours, by what the browser says of it.
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

/// Lets in who may, and says to browsers what pages of ours never do.
pub(crate) async fn guarded(State(board): State<Arc<Board>>, request: Request, next: Next) -> Response {
    let (door, head) = (&board.options.door, request.headers());
    let path = request.uri().path();
    let is_public = ["/login", "/board.css"].contains(&path);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = if !is_known_host(host_of(&request), &board.options.hosts) {
        (StatusCode::MISDIRECTED_REQUEST, "unknown host: see BoardOptions::host\n").into_response()
    } else if !(reads || is_own(head, host_of(&request)) || door.is_bearer(head)) {
        (StatusCode::FORBIDDEN, "this was sent by the page of another site\n").into_response()
    } else if let Some(refusal) = (!is_public).then(|| door.lets_in(head)).filter(|shown| *shown != TokenCheck::Right) {
        if reads && head.get(header::AUTHORIZATION).is_none() {
            Redirect::to(&to_login(&board, request.uri())).into_response()
        } else if refusal == TokenCheck::TooMany {
            (StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens: try again in a minute\n").into_response()
        } else {
            (StatusCode::UNAUTHORIZED, "a token is needed\n").into_response()
        }
    } else {
        // The rest of a request that never comes.
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

/// The page that asks for the token, and leads on to the one that was asked for.
fn to_login(board: &Board, asked: &Uri) -> String {
    let page = asked.path_and_query().map_or("/", PathAndQuery::as_str);
    if page == "/" || page.len() > PAGE || NO_PAGES.contains(&asked.path()) {
        return board.url("/login");
    }
    board.url(&format!("/login?to={}", encoded(page)))
}

/// The page of ours that was asked for before the token was; the overview where that is none. No other site is one.
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

impl LoginPage<'_> {
    fn answer(&self, status: StatusCode) -> Response {
        match self.render() {
            Ok(page) => (status, Html(page)).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Where it leads on to.
#[derive(Deserialize)]
pub(crate) struct LeadsTo {
    #[serde(default)]
    to: String,
}

pub(crate) async fn login_page(State(board): State<Arc<Board>>, Query(LeadsTo { to }): Query<LeadsTo>) -> Response {
    LoginPage { base: &board.options.base, name: &board.options.name, to: &to, problem: "" }.answer(StatusCode::OK)
}

#[derive(Deserialize)]
pub(crate) struct Said {
    token: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn login(State(board): State<Arc<Board>>, head: HeaderMap, Form(said): Form<Said>) -> Response {
    let (base, name, to) = (&board.options.base, &board.options.name, &said.to);
    let Some(lock) = &board.options.door.0 else { return Redirect::to(&page_of(&board, &said.to)).into_response() };
    match lock.open(said.token.trim()) {
        Err(TokenCheck::TooMany) => {
            let problem = "Too many wrong tokens. Try again in a minute.";
            LoginPage { base, name, to, problem }.answer(StatusCode::TOO_MANY_REQUESTS)
        }
        Err(_) => LoginPage { base, name, to, problem: "That is not the token." }.answer(StatusCode::UNAUTHORIZED),
        Ok(session) => ([(header::SET_COOKIE, cookie(&board, &head, &session))], Redirect::to(&page_of(&board, to)))
            .into_response(),
    }
}

/// Ends the session of this browser: it forgets the cookie.
pub(crate) async fn logout(State(board): State<Arc<Board>>, head: HeaderMap) -> Response {
    let cookie = cookie(&board, &head, "") + "; Max-Age=0";
    ([(header::SET_COOKIE, cookie)], Redirect::to(&board.url("/login"))).into_response()
}

fn cookie(board: &Board, head: &HeaderMap, session: &str) -> String {
    let base = &board.options.base;
    let path = if base.is_empty() { "/" } else { base };
    let secure = if board.options.door.1 { "" } else { "; Secure" };
    // Lax: a link in a chat leads to its page. A write from another site is refused by what the browser says of it.
    format!("{}={session}; HttpOnly; SameSite=Lax; Path={path}{secure}", cookie_of(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_and_those_that_were_named_are_known() {
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
    fn a_token_is_as_long_as_it_must_be_and_shows_itself_nowhere() {
        assert_eq!(Token::new("short".to_owned()).unwrap_err(), ShortToken);
        let token = Token::new("0123456789abcdef".to_owned()).unwrap();
        let shown = ["0123456789abcdef", "0123456789abcdeX", ""].map(|said| token.is(said));
        assert_eq!(shown, [TokenCheck::Right, TokenCheck::Wrong, TokenCheck::Wrong]);
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn a_session_is_of_its_token_and_of_its_time() {
        let lock = |token: &str| Lock(Token::new(token.to_owned()).unwrap());
        let (lock, other) = (lock("0123456789abcdef"), lock("0123456789abcdeX"));
        let session = lock.open("0123456789abcdef").unwrap();
        assert_eq!(lock.open("0123456789abcdeX"), Err(TokenCheck::Wrong));
        assert!(lock.knows(&session) && !other.knows(&session), "{session}");
        let (until, signature) = session.split_once('.').unwrap();
        let later = until.parse::<u64>().unwrap() + 1;
        for forged in [format!("{later}.{signature}"), format!("{until}."), until.to_owned(), format!("{until}.zz")] {
            assert!(!lock.knows(&forged), "{forged}");
        }
        let over = Lock::signed(&lock, "1").unwrap().finalize().into_bytes();
        let over: String = over.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!lock.knows(&format!("1.{over}")), "its time is over");
    }

    #[test]
    fn a_write_is_our_own_by_what_the_browser_says() {
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

    #[test]
    fn wrong_tokens_are_listened_to_ten_times_a_minute() {
        let Door(Some(lock), _) = Door::with_token("0123456789abcdef".to_owned()).unwrap() else { panic!() };
        for _ in 0..TRIES {
            assert_eq!(lock.open("wrong"), Err(TokenCheck::Wrong));
        }
        assert_eq!(lock.open("wrong"), Err(TokenCheck::TooMany));
        let head = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer wrong"))]);
        assert_eq!(lock.0.is_in(&head), TokenCheck::TooMany, "by whatever way they come");
        let session = lock.open("0123456789abcdef").unwrap();
        assert!(lock.knows(&session) && !lock.knows("other"));
    }
}
