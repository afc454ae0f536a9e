//! `board`: the web page.

use heartline_board::{BoardOptions, Colour};

use crate::args::{BoardServing, UNNAMED};
use crate::failure::Failure;
use crate::serve::{bind, serve, token_of};
use crate::session::Session;

pub(super) async fn board(session: &Session, asked: BoardServing) -> Result<(), Failure> {
    let serving = asked.serving;
    let mut options = match (token_of(&serving)?, &serving.token) {
        (Some(_), Some(token)) => BoardOptions::with_token(token.clone()).map_err(|e| Failure::wrong(e.to_string()))?,
        // Only users with a shell on this machine reach a loopback address.
        _ => BoardOptions::behind_own_auth(),
    };
    options = options.name(asked.name);
    // Else the board names itself.
    if session.by != UNNAMED {
        let by = session.by.clone();
        options = options.by(move |_| by.clone());
    }
    let colour = asked.colour.and_then(|name| Colour::ALL.into_iter().find(|colour| colour.as_str() == name));
    if let Some(colour) = colour {
        options = options.colour(colour);
    }
    if session.consent.is_production {
        options = options.production();
    }
    if asked.read_only {
        options = options.read_only();
    }
    if asked.no_payloads {
        options = options.payloads(false);
    }
    if !asked.https {
        options = options.plain_http();
    }
    for host in serving.host {
        options = options.host(host);
    }
    let pages = heartline_board::board(session.inspector.clone(), options);
    serve(bind(serving.listen).await?, pages, |at| say!("board on http://{at}/; Ctrl-C stops it")).await
}
