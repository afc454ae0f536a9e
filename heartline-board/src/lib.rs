//! The board of Heartline: a web page that shows what runs and what is stuck, why, and what to do.
//!
//! [`board`] turns an `Inspector` into an axum `Router` for your service:
//!
//! ```no_run
//! # use heartline::App;
//! # use heartline_board::{BoardOptions, board};
//! # async fn run(app: App, token: String) -> Result<(), Box<dyn std::error::Error>> {
//! let options = BoardOptions::with_token(token)?.name("production").base("/heartline");
//! let service = axum::Router::new().nest("/heartline", board(app.inspector(), options));
//! # Ok(())
//! # }
//! ```
//!
//! The board uses only the `Inspector`, so its actions have the same checks as everywhere else. The cost of a page does not grow with the
//! number of jobs. Pages work without JavaScript; with it they update themselves.
//!
//! # Who may see it
//!
//! You must decide: [`BoardOptions::with_token`] asks for a token and keeps a session, [`BoardOptions::behind_own_auth`] relies on a proxy
//! or a layer in front. In both cases, requests under an unknown host name and writes from pages of other sites are refused.

// A page that cannot be shown is a response of axum, which is large; it is made once for a request.
#![allow(clippy::result_large_err)]

mod acts;
mod badge;
mod escape;
mod event_words;
mod frame;
mod guard;
mod history;
mod job_runs;
mod live;
mod options;
mod pages;
mod picture;
mod plot;
mod running;
mod runs;
mod scans;
mod schedules;
mod sizes;
mod state;
mod steps;
mod strip;
mod ticks;
mod token;
mod tree;
mod trouble;
mod wanted;
mod zone;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use heartline::Inspector;

pub use self::options::{BoardOptions, Colour};
use self::state::Board;
pub use self::token::ShortToken;

/// The most bytes of a form.
const BODY: usize = 64 * 1024;

/// Makes the router, to serve alone or nested under [`BoardOptions::base`].
pub fn board(inspector: Inspector, options: BoardOptions) -> Router {
    let board = Arc::new(Board::new(inspector, options));
    Router::new()
        .route("/", get(pages::overview::page))
        .route("/find", get(pages::find::page))
        .route("/task", get(pages::task::page))
        .route("/running", get(pages::running::page))
        .route("/jobs", get(pages::jobs::page))
        .route("/job", get(pages::job::page))
        .route("/value", get(pages::job::download))
        .route("/dispatch", get(pages::dispatch::page))
        .route("/workers", get(pages::workers::page))
        .route("/worker", get(pages::worker::page))
        .route("/flows", get(pages::flows::all))
        .route("/flow", get(pages::flows::one))
        .route("/instance", get(pages::flows::instance))
        .route("/schedules", get(pages::schedules::page))
        .route("/lanes", get(pages::lanes::page))
        .route("/lane", get(pages::lane::page))
        .route("/schedule", get(pages::schedule::page))
        .route("/stalls", get(pages::stalls::page))
        .route("/audit", get(pages::audit::page))
        .route("/run", get(pages::run::page).post(pages::run::stop))
        .route("/live", get(pages::live::stream))
        .route("/server", get(pages::server::page))
        .route("/acts", get(pages::person_acts::page))
        .route("/act", post(acts::act))
        .route("/login", get(guard::login_page).post(guard::login))
        .route("/logout", post(guard::logout))
        .route("/zone", get(pages::zone::page).post(pages::zone::set))
        .route("/board.css", get(pages::style))
        .route("/board.js", get(pages::script))
        .route("/board.svg", get(pages::icon))
        .fallback(pages::not_found)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&board), guard::guarded))
        .with_state(board)
}
