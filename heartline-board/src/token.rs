//! The token of the board, and the sessions that it signs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, header};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// The shortest token, in bytes.
const TOKEN: usize = 16;

/// How many wrong tokens are compared per minute.
const TRIES: usize = 10;

/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(12 * 3600);

/// The name of the cookie, followed by the port: browsers send the cookies of a host to all of its ports.
const COOKIE: &str = "heartline_session";

/// A token has fewer than 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token must have at least {TOKEN} bytes")]
pub struct ShortToken;

/// A token, compared in constant time. Wrong ones are counted.
#[derive(Clone)]
pub(crate) struct Token {
    text: Arc<str>,
    /// When the wrong tokens of the last minute came.
    wrong: Arc<Mutex<VecDeque<Instant>>>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    /// The right token. It is always accepted, so that wrong ones of other clients lock no one out.
    Right,
    /// A wrong token, or none.
    Wrong,
    /// A wrong token after ten in the last minute.
    TooMany,
}

impl Token {
    /// # Errors
    /// [`ShortToken`] if the token has fewer than 16 bytes.
    pub(crate) fn new(token: String) -> Result<Token, ShortToken> {
        if token.len() < TOKEN { Err(ShortToken) } else { Ok(Token { text: token.into(), wrong: Arc::default() }) }
    }

    /// Compares a token.
    #[must_use]
    pub(crate) fn is(&self, given: &str) -> TokenCheck {
        if given.as_bytes().ct_eq(self.text.as_bytes()).into() {
            return TokenCheck::Right;
        }
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        while wrong.front().is_some_and(|at| at.elapsed() > Duration::from_secs(60)) {
            wrong.pop_front();
        }
        if wrong.len() >= TRIES {
            return TokenCheck::TooMany;
        }
        wrong.push_back(Instant::now());
        TokenCheck::Wrong
    }

    /// Compares the token of a request, from its `Authorization: Bearer` header.
    #[must_use]
    pub(crate) fn is_in(&self, head: &HeaderMap) -> TokenCheck {
        let given = head.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
        given.and_then(|given| given.strip_prefix("Bearer ")).map_or(TokenCheck::Wrong, |given| self.is(given))
    }
}

/// Sessions are cookies signed with the token: the end in seconds since 1970, a dot, and the signature. The board stores none, so every
/// replica with the same token accepts them, also after a restart.
impl Token {
    /// Checks the token or the session of a request.
    pub(crate) fn check(&self, head: &HeaderMap) -> TokenCheck {
        match session_of(head).is_some_and(|session| self.accepts(&session)) {
            true => TokenCheck::Right,
            false => self.is_in(head),
        }
    }

    fn accepts(&self, session: &str) -> bool {
        let Some((until, signature)) = session.split_once('.') else { return false };
        let (Ok(seconds), Some(signature)) = (until.parse::<u64>(), from_hex(signature)) else { return false };
        let lasts =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).is_some_and(|end| end > SystemTime::now());
        lasts && self.signed(until).is_some_and(|signed| signed.verify_slice(&signature).is_ok())
    }

    /// A new session, if the token is right.
    pub(crate) fn begin(&self, given: &str) -> Result<String, TokenCheck> {
        match self.is(given) {
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
        let signed = Hmac::<Sha256>::new_from_slice(self.text.as_bytes()).ok()?;
        // The prefix separates sessions from anything else that the token may sign later.
        Some(signed.chain_update("heartline session ").chain_update(until))
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    // A number may have a sign, a byte has none.
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

pub(crate) fn cookie_of(head: &HeaderMap) -> String {
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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_token_is_refused() {
        assert_eq!(Token::new("short".to_owned()).err(), Some(ShortToken));
        let token = Token::new("0123456789abcdef".to_owned()).unwrap();
        let shown = ["0123456789abcdef", "0123456789abcdeX", ""].map(|given| token.is(given));
        assert_eq!(shown, [TokenCheck::Right, TokenCheck::Wrong, TokenCheck::Wrong]);
    }

    #[test]
    fn a_session_is_bound_to_its_token_and_its_end() {
        let of = |token: &str| Token::new(token.to_owned()).unwrap();
        let (token, other) = (of("0123456789abcdef"), of("0123456789abcdeX"));
        let session = token.begin("0123456789abcdef").unwrap();
        assert_eq!(token.begin("0123456789abcdeX"), Err(TokenCheck::Wrong));
        assert!(token.accepts(&session) && !other.accepts(&session), "{session}");
        let (until, signature) = session.split_once('.').unwrap();
        let later = until.parse::<u64>().unwrap() + 1;
        for forged in [format!("{later}.{signature}"), format!("{until}."), until.to_owned(), format!("{until}.zz")] {
            assert!(!token.accepts(&forged), "{forged}");
        }
        let over = token.signed("1").unwrap().finalize().into_bytes();
        let over: String = over.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!token.accepts(&format!("1.{over}")), "an expired session is refused");
    }

    #[test]
    fn ten_wrong_tokens_a_minute_are_compared() {
        let token = Token::new("0123456789abcdef".to_owned()).unwrap();
        for _ in 0..TRIES {
            assert_eq!(token.begin("wrong"), Err(TokenCheck::Wrong));
        }
        assert_eq!(token.begin("wrong"), Err(TokenCheck::TooMany));
        let head = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer wrong"))]);
        assert_eq!(token.is_in(&head), TokenCheck::TooMany, "the limit covers both ways to send a token");
        let session = token.begin("0123456789abcdef").unwrap();
        assert!(token.accepts(&session) && !token.accepts("other"));
    }

    #[test]
    fn only_a_whole_session_is_accepted() {
        let token = Token::new("0123456789abcdef".to_owned()).unwrap();
        let session = token.begin("0123456789abcdef").unwrap();
        let value = prop_oneof!["[0-9]{0,20}\\.[0-9a-f+]{0,70}", "\\PC{0,90}", Just(session.clone())];
        proptest!(|(value in value, at: prop::sample::Index, other in "[!-~]")| {
            let cookie = format!("a=b; heartline_session_80={value}; heartline_session_8=x");
            let Ok(cookie) = HeaderValue::from_str(&cookie) else { return Ok(()) };
            let host = (header::HOST, HeaderValue::from_static("board:80"));
            let head = HeaderMap::from_iter([host, (header::COOKIE, cookie)]);
            let is_right = session_of(&head).is_some_and(|found| token.accepts(&found));
            prop_assert_eq!(is_right, value == session, "{}", value);
            let at = at.index(session.len());
            let mut changed = session.clone();
            changed.replace_range(at..=at, &other);
            prop_assert_eq!(token.accepts(&changed), changed.eq_ignore_ascii_case(&session), "{}", changed);
        });
    }
}
