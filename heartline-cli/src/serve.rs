//! What this program serves over HTTP: to this machine alone, unless a token guards it.

use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use heartline_board::guard::{Token, host_of, is_known_host};
use tokio::net::TcpListener;

use crate::args::Serving;
use crate::failure::Failure;

/// How long requests may go on after Ctrl-C or SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// The token that guards an address, where there is one.
///
/// # Errors
/// Wrong use: others could reach the address, and there is no token, or a short one.
pub(crate) fn token_of(serving: &Serving) -> Result<Option<Token>, Failure> {
    let listen = serving.listen;
    match &serving.token {
        Some(token) => Ok(Some(Token::new(token.clone()).map_err(|e| Failure::wrong(e.to_string()))?)),
        None if listen.ip().is_loopback() => Ok(None),
        None => {
            let rule = "others can reach it: set HEARTLINE_TOKEN, or listen on 127.0.0.1";
            Err(Failure::wrong(format!("refusing to listen on {listen} without a token, since {rule}")))
        }
    }
}

/// Who may ask for metrics.
#[derive(Debug)]
struct Guard {
    hosts: Vec<String>,
    token: Option<Token>,
}

async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = if !is_known_host(host_of(&request), &guard.hosts) {
        (StatusCode::MISDIRECTED_REQUEST, "unknown host; see --host\n").into_response()
    } else if guard.token.as_ref().is_some_and(|token| !token.is_in(request.headers())) {
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "a token is needed\n").into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Serves pages that know no guard of their own, see [`serve`].
pub(crate) async fn serve_guarded(serving: Serving, pages: Router, up: impl FnOnce(SocketAddr)) -> Result<(), Failure> {
    let token = token_of(&serving)?;
    let hosts = serving.host.into_iter().map(|host| host.to_ascii_lowercase()).collect();
    let pages = pages.layer(middleware::from_fn_with_state(Arc::new(Guard { hosts, token }), guarded));
    serve(bind(serving.listen).await?, pages, up).await
}

pub(crate) async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|e| Failure::Failed(format!("cannot listen on {listen}: {e}")))
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn serve(listener: TcpListener, pages: Router, up: impl FnOnce(SocketAddr)) -> Result<(), Failure> {
    up(listener.local_addr()?);
    let serving = axum::serve(listener, pages).with_graceful_shutdown(heartline::shutdown_signal());
    let over = async {
        heartline::shutdown_signal().await;
        tokio::time::sleep(GRACE).await;
    };
    // A request that never comes to its end, or an act that watches for long, does not hold up the end.
    tokio::select! {
        served = serving.into_future() => Ok(served?),
        () = over => Ok(()),
    }
}
