//! Serves the exporter and the board over HTTP: on loopback only, unless a token guards them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::args::Serving;
use crate::failure::Failure;
use crate::token::{Token, TokenCheck, is_known_host};

/// How long open requests may take after Ctrl-C or SIGTERM.
const GRACE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

/// The longest time to receive the head of a request, and the longest idle time of a connection.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The most open connections. A further one replaces the oldest, so that slow clients cannot keep others out. The board limits its event
/// streams to fewer, and browsers reopen them.
const CONNECTIONS: usize = 512;

/// The token, if one is set.
///
/// # Errors
/// Wrong use: the token is too short, or it is missing and other hosts can reach the address.
pub(crate) fn token_of(serving: &Serving) -> Result<Option<Token>, Failure> {
    let listen = serving.listen;
    match &serving.token {
        Some(token) => Ok(Some(Token::new(token)?)),
        None if listen.ip().is_loopback() => Ok(None),
        None => {
            let rule = "set HEARTLINE_TOKEN, or listen on 127.0.0.1";
            Err(Failure::wrong(format!("refusing to listen on {listen} without a token; {rule}")))
        }
    }
}

/// Checks host and token of the exporter's requests.
struct Guard {
    hosts: Vec<String>,
    token: Option<Token>,
}

async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = if !is_known_host(&request, &guard.hosts) {
        (StatusCode::MISDIRECTED_REQUEST, "unknown host; see --host\n").into_response()
    } else {
        match guard.token.as_ref().map_or(TokenCheck::Right, |token| token.check(request.headers())) {
            TokenCheck::Right => next.run(request).await,
            TokenCheck::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too many wrong tokens\n").into_response(),
            TokenCheck::Wrong => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "a token is needed\n")
                    .into_response()
            }
        }
    };
    for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// As [`serve`], for pages without a guard of their own.
pub(crate) async fn serve_guarded(serving: Serving, pages: Router, up: impl FnOnce(SocketAddr)) -> Result<(), Failure> {
    let token = token_of(&serving)?;
    let hosts = serving.host.into_iter().map(|host| host.to_ascii_lowercase()).collect();
    let pages = pages.layer(middleware::from_fn_with_state(Arc::new(Guard { hosts, token }), guarded));
    serve(bind(serving.listen).await?, pages, up).await
}

pub(crate) async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|e| Failure::Failed(format!("cannot listen on {listen}: {e}")))
}

/// Ends the process soon after the grace, on a thread of its own: requests that block every thread of the runtime would prevent it.
fn end_in_any_case() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async { heartline::shutdown_signal().await });
        std::thread::sleep(GRACE + Duration::from_secs(1));
        std::process::exit(0);
    });
    Ok(())
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn serve(listener: TcpListener, pages: Router, up: impl FnOnce(SocketAddr)) -> Result<(), Failure> {
    end_in_any_case()?;
    up(listener.local_addr()?);
    let under_way = GracefulShutdown::new();
    tokio::select! {
        () = accept(&listener, &pages, &under_way) => {}
        () = heartline::shutdown_signal() => {}
    }
    // A request that does not end must not delay the exit.
    let _ = tokio::time::timeout(GRACE, under_way.shutdown()).await;
    Ok(())
}

/// Serves each connection in a tokio task.
async fn accept(listener: &TcpListener, pages: &Router, under_way: &GracefulShutdown) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely too many open files.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(CLIENT_TIMEOUT);
        let answers = TowerToHyperService::new(pages.clone());
        let connection = under_way.watch(http.serve_connection(TokioIo::new(stream), answers));
        open.push_back(tokio::spawn(async move { drop(connection.await) }).abort_handle());
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use axum::routing::get;

    use super::*;

    /// A page that never ends.
    async fn endless() -> &'static str {
        println!("a page begins");
        loop {
            std::hint::spin_loop();
        }
    }

    #[test]
    #[ignore = "started as a process by the other test"]
    fn serves_pages_that_never_end() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            serve(listener, Router::new().route("/", get(endless)), |at| println!("it listens at {at}")).await.unwrap();
        });
    }

    #[test]
    fn pages_that_never_end_do_not_prevent_the_exit() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--nocapture", "serves_pages_that_never_end"]).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| line.split("listens at ").nth(1).map(str::to_owned)).unwrap();
        // More than there are threads.
        let asked: Vec<TcpStream> = (0..4)
            .map(|_| {
                let mut stream = TcpStream::connect(&address).unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                stream
            })
            .collect();
        assert_eq!(lines.filter(|line| line == "a page begins").take(2).count(), 2);
        let begun = Instant::now();
        let is_patient = || begun.elapsed() < Duration::from_secs(60);
        let kill = Command::new("kill").arg(server.id().to_string()).status().unwrap();
        assert!(kill.success());
        let ended = loop {
            match server.try_wait().unwrap() {
                Some(status) => break status.success(),
                None if is_patient() => std::thread::sleep(Duration::from_millis(20)),
                None => {
                    server.kill().unwrap();
                    break false;
                }
            }
        };
        drop(asked);
        assert!(ended, "the server is still running after 60 s");
    }
}
