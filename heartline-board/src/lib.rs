//! The web page of Heartline: what runs, what is stuck and why, and what may be done about it.
//!
//! [`board`] makes an axum `Router` of an `Inspector`, for a service of your own:
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
//! It reads and acts through the `Inspector` alone, so what it does to jobs is checked where every other act is. A page costs the same
//! however many jobs there are. It needs no JavaScript to be read; with it pages keep themselves up to date.
//!
//! # Who may see it
//!
//! There is no board without a decision about that: [`BoardOptions::with_token`] asks for a token and keeps a session,
//! [`BoardOptions::behind_own_auth`] leaves it to what stands in front. Either way requests under a foreign name are refused, and so is a
//! write that another site's page makes.

mod acts;
mod escape;
mod guard;
mod history;
mod live;
mod options;
mod pages;
mod picture;
mod runs;
mod scans;
mod sizes;
mod state;
mod strip;
mod token;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use heartline::Inspector;

pub use self::options::{BoardOptions, Colour};
use self::state::Board;
pub use self::token::ShortToken;

/// How many bytes a form may have.
const BODY: usize = 64 * 1024;

/// The pages and the acts, to be served alone or nested under [`BoardOptions::base`].
pub fn board(inspector: Inspector, options: BoardOptions) -> Router {
    let board = Arc::new(Board::new(inspector, options));
    Router::new()
        .route("/", get(pages::overview::page))
        .route("/task", get(pages::task::page))
        .route("/jobs", get(pages::jobs::page))
        .route("/job", get(pages::job::page))
        .route("/value", get(pages::job::download))
        .route("/workers", get(pages::workers::page))
        .route("/worker", get(pages::worker::page))
        .route("/flows", get(pages::flows::all))
        .route("/flow", get(pages::flows::one))
        .route("/instance", get(pages::flows::instance))
        .route("/stalls", get(pages::stalls::page))
        .route("/audit", get(pages::audit::page))
        .route("/run", get(pages::run::page).post(pages::run::stop))
        .route("/live", get(pages::live::stream))
        .route("/server", get(pages::server::page))
        .route("/act", post(acts::act))
        .route("/login", get(guard::login_page).post(guard::login))
        .route("/logout", post(guard::logout))
        .route("/board.css", get(pages::style))
        .route("/board.js", get(pages::script))
        .route("/board.svg", get(pages::icon))
        .fallback(pages::not_found)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&board), guard::guarded))
        .with_state(board)
}
