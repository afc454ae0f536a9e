//! What every command needs: the connection, the output, and the name of the user.

use heartline::Inspector;

use crate::args::Global;
use crate::ask::Consent;
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;

/// One command's connection and settings.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) inspector: Inspector,
    pub(crate) out: Output,
    /// The name of the user, recorded in events.
    pub(crate) by: String,
    pub(crate) consent: Consent,
    /// The server and the prefix to show, without a password.
    pub(crate) place: String,
}

impl Session {
    /// Connects. With `lasts` the session connects at its first call, and reconnects if the connection is lost.
    pub(crate) async fn open(global: &Global, lasts: bool) -> Result<Session, Failure> {
        let target = Target::of(global)?;
        let app = target.connect(global, lasts).await?;
        let out = Output::of(global);
        if global.production {
            out.hint(format!("production: {}", target.shown()));
        }
        let consent = Consent { yes: global.yes, is_production: global.production };
        let by = global.by();
        Ok(Session { inspector: app.inspector().by(&by), by, out, consent, place: target.shown() })
    }
}
