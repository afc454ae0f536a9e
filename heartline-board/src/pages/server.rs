//! The Redis servers.

use std::sync::Arc;
use std::time::SystemTime;

use askama::Template;
use axum::extract::State;
use axum::http::request::Parts;
use heartline::ServerReport;

use crate::frame::Frame;
use crate::sizes::Sizes;
use crate::state::{Board, PageResult, answer};
use crate::trouble::Trouble;
use heartline::inspect::text::{bytes, exact, span};

#[derive(Template)]
#[template(path = "server.html")]
struct ServerPage {
    frame: Frame,
    servers: Vec<ServerReport>,
    sizes: Arc<Sizes>,
}

pub(crate) async fn page(State(board): State<Arc<Board>>, head: Parts) -> PageResult {
    let servers = board.or_failed(board.inspector.servers().await)?;
    let sizes = board.or_failed(board.sizes.of(("", ""), |_| true, Sizes::look(&board.inspector)).await)?;
    Ok(answer(&ServerPage { frame: board.frame(&head), servers, sizes }))
}

/// What is known of a server, each fact with its name.
fn facts(server: &ServerReport) -> Vec<(&'static str, String)> {
    if server.fault.is_some() {
        return Vec::new();
    }
    let limit = if server.max_memory == 0 { "no limit".to_owned() } else { bytes(server.max_memory) };
    let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
    vec![
        ("address", server.place.clone()),
        ("server", format!("{} {}", server.name, server.version)),
        ("primary", yes(server.is_primary)),
        ("replicas", server.replicas.to_string()),
        ("memory", format!("{} of {limit}", bytes(server.used_memory))),
        ("eviction policy", format!("{}, {} keys evicted", server.eviction_policy, server.evicted_keys)),
        ("append-only file", yes(server.has_append_only_file)),
        ("last write to disk succeeded", yes(server.is_saved_well)),
        ("writes since the last snapshot", server.unsaved_writes.to_string()),
        ("clients", server.clients.to_string()),
        ("median round trip", format!("{} µs", server.round_trip.as_micros())),
        ("longest round trip", span(server.longest_round_trip)),
        ("uptime", span(server.uptime)),
        ("clock", exact(server.clock, SystemTime::now())),
    ]
}
