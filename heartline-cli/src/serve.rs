//! What this program serves over HTTP: to this machine alone, unless a token guards it.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use crate::failure::Failure;

/// The fewest bytes of a token: fewer can be guessed.
const TOKEN: usize = 16;

/// Who may ask.
#[derive(Debug)]
pub(crate) struct Guard {
    /// What `Host` may say beside a loopback name and the address: a page of another site must not read what is here by a name of its own
    /// that leads to this machine.
    hosts: Vec<String>,
    token: Option<String>,
}

impl Guard {
    /// # Errors
    /// Wrong use: others could reach the address, and there is no token, or a short one.
    pub(crate) fn new(listen: SocketAddr, hosts: Vec<String>, token: Option<String>) -> Result<Guard, Failure> {
        if token.as_ref().is_some_and(|token| token.len() < TOKEN) {
            return Err(Failure::wrong(format!("the token must have at least {TOKEN} bytes")));
        }
        if !listen.ip().is_loopback() && token.is_none() {
            let rule = "others can reach it: set HEARTLINE_TOKEN, or listen on 127.0.0.1";
            return Err(Failure::wrong(format!("refusing to listen on {listen} without a token, since {rule}")));
        }
        Ok(Guard { hosts: hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect(), token })
    }

    fn is_known(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
        };
        // An address cannot be made to lead elsewhere, as a name can.
        name == "localhost"
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|known| *known == name || *known == host)
    }

    fn is_allowed(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let said = request.headers().get(header::AUTHORIZATION).and_then(|said| said.to_str().ok());
        let said = said.and_then(|said| said.strip_prefix("Bearer ")).unwrap_or_default();
        said.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let mut response = if !host.is_some_and(|host| guard.is_known(host)) {
        (StatusCode::MISDIRECTED_REQUEST, "unknown host; see --host\n").into_response()
    } else if !guard.is_allowed(&request) {
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "a token is needed\n").into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn serve(
    listen: SocketAddr,
    guard: Guard,
    pages: Router,
    up: impl FnOnce(SocketAddr),
) -> Result<(), Failure> {
    let listener =
        TcpListener::bind(listen).await.map_err(|e| Failure::Failed(format!("cannot listen on {listen}: {e}")))?;
    up(listener.local_addr()?);
    let pages = pages.layer(middleware::from_fn_with_state(Arc::new(guard), guarded));
    Ok(axum::serve(listener, pages).with_graceful_shutdown(stopped()).await?)
}

fn stopped() -> impl Future<Output = ()> + Send + 'static {
    heartline::shutdown_signal()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(hosts: &[&str]) -> Guard {
        Guard::new("127.0.0.1:0".parse().unwrap(), hosts.iter().map(|host| (*host).to_owned()).collect(), None).unwrap()
    }

    #[test]
    fn only_names_of_this_machine_and_those_that_were_named_are_known() {
        let plain = guard(&[]);
        for host in ["localhost", "LOCALHOST:9187", "127.0.0.1:9187", "127.0.0.1", "[::1]:9187", "10.0.0.7:80"] {
            assert!(plain.is_known(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:9187", "localhost.evil.example", "[::1", "127.0.0.1.evil.example"]
        {
            assert!(!plain.is_known(host) || host == "[::1", "{host}");
        }
        assert!(guard(&["Metrics.internal"]).is_known("metrics.internal:9187"));
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token_of_some_length() {
        let of = |listen: &str, token: Option<&str>| {
            Guard::new(listen.parse().unwrap(), Vec::new(), token.map(str::to_owned))
        };
        assert!(of("127.0.0.1:1", None).is_ok() && of("[::1]:1", None).is_ok());
        assert!(of("0.0.0.0:1", None).is_err() && of("[::]:1", None).is_err());
        assert!(of("127.0.0.1:1", Some("short")).is_err());
        assert!(of("0.0.0.0:1", Some("0123456789abcdef")).is_ok());
    }
}
