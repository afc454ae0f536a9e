//! The connection of one command.

use heartline::{App, Inspector};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::Output;

/// What every command works with.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) inspector: Inspector,
    pub(crate) out: Output,
    /// Who acts.
    pub(crate) by: String,
    /// Whether acts need no confirmation.
    pub(crate) yes: bool,
}

impl Session {
    /// Connects, as the global options say; one that lasts does so when it first asks, and again whenever it must.
    pub(crate) async fn open(global: &Global, lasts: bool) -> Result<Session, Failure> {
        let app = connect(global, lasts).await?;
        let out = Output { is_json: global.json };
        Ok(Session { inspector: app.inspector().by(global.by()), by: global.by(), out, yes: global.yes })
    }
}

/// The App of one command.
pub(crate) async fn connect(global: &Global, lasts: bool) -> Result<App, Failure> {
    let url = global.url();
    if global.tells_password() {
        say!("warning: others on this machine can read the password in --redis; set HEARTLINE_REDIS in its place");
    }
    // Who looks at a server whose policy could throw jobs away needs the more to look.
    let app = App::builder().redis(url).prefix(&global.prefix).accept_eviction();
    let app = if lasts { app.lazy() } else { app }.build().await?;
    Ok(app)
}
