//! Guards the exporter by the host of a request and by a token.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::failure::Failure;

/// The shortest token, in bytes.
const SHORTEST: usize = 16;

/// How many wrong tokens are compared per minute.
const TRIES: usize = 10;

/// A token, compared in constant time. Wrong ones are counted.
pub(crate) struct Token {
    text: String,
    /// When the wrong tokens of the last minute came.
    wrong: Mutex<VecDeque<Instant>>,
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
    /// Wrong use: it is too short.
    pub(crate) fn new(token: &str) -> Result<Token, Failure> {
        if token.len() < SHORTEST {
            return Err(Failure::wrong(format!("the token must have at least {SHORTEST} bytes")));
        }
        Ok(Token { text: token.to_owned(), wrong: Mutex::default() })
    }

    /// Compares the token of a request, from its `Authorization: Bearer` header.
    pub(crate) fn check(&self, head: &HeaderMap) -> TokenCheck {
        let given = head.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok()?.strip_prefix("Bearer "));
        let Some(given) = given else { return TokenCheck::Wrong };
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
}

/// Whether the host of a request is an address, `localhost` or one of `known`. This prevents DNS rebinding: another site's name can be made
/// to resolve to this machine, an address cannot.
pub(crate) fn is_known_host(request: &Request, known: &[String]) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.or_else(|| request.uri().host()).map(str::to_ascii_lowercase) else { return false };
    let name = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
            _ => "",
        },
        None => host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok() || known.iter().any(|known| *known == name || *known == host)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_this_machine_and_listed_hosts_are_known() {
        let is_known = |host: &str, known: &[String]| {
            is_known_host(&Request::builder().header("host", host).body(Body::empty()).unwrap(), known)
        };
        for host in ["localhost", "LOCALHOST:9187", "127.0.0.1:9187", "[::1]:9187"] {
            assert!(is_known(host, &[]), "{host}");
        }
        for host in ["", "[::1]x", "evil.example:1", "localhost.evil.example", "[::1", "127.0.0.1.evil.example"] {
            assert!(!is_known(host, &[]), "{host}");
        }
        assert!(is_known("Metrics.internal:80", &["metrics.internal".to_owned()]));
        assert!(!is_known_host(&Request::new(Body::empty()), &[]));
    }

    #[test]
    fn ten_wrong_tokens_a_minute_are_compared() {
        assert!(Token::new("short").is_err());
        let token = Token::new("0123456789abcdef").unwrap();
        let head = |given: &str| {
            let given = HeaderValue::from_str(&format!("Bearer {given}")).unwrap();
            HeaderMap::from_iter([(header::AUTHORIZATION, given)])
        };
        assert_eq!(token.check(&HeaderMap::new()), TokenCheck::Wrong);
        for _ in 0..TRIES {
            assert_eq!(token.check(&head("wrong")), TokenCheck::Wrong);
        }
        assert_eq!(token.check(&head("wrong")), TokenCheck::TooMany);
        assert_eq!(token.check(&head("0123456789abcdef")), TokenCheck::Right);
    }
}
