//! Asks before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// What was said beforehand, and how much has to be said.
#[derive(Debug, Default)]
pub(crate) struct Consent {
    /// Yes to everything, which is not enough in production.
    pub(crate) yes: bool,
    /// The name of the context, if it is of production.
    pub(crate) production: Option<String>,
    /// The name that was given with `--confirm`.
    pub(crate) confirmed: Option<String>,
    /// Why it is not known whether it is production, if so: then yes beforehand is not enough.
    pub(crate) unknown: Option<String>,
}

impl Consent {
    pub(crate) fn is_production(&self) -> bool {
        self.production.is_some()
    }

    /// Whether it is production, or may be: then acts are asked about that are not elsewhere.
    pub(crate) fn may_be_production(&self) -> bool {
        self.is_production() || self.unknown.is_some()
    }

    /// Whether a person is asked, and sees what is to be done before it is.
    pub(crate) fn asks(&self) -> bool {
        if self.is_production() { self.confirmed.is_none() } else { !self.yes || self.unknown.is_some() }
    }
}

/// Whether to go on: yes where that was said beforehand, else what the person at the terminal says. In production that is the name of the
/// context.
///
/// # Errors
/// Wrong use where nobody can be asked; a failure where the answer is no.
pub(crate) fn confirm(consent: &Consent, what: &str) -> Result<(), Failure> {
    let can_be_asked = io::stdin().is_terminal() && io::stderr().is_terminal();
    match (&consent.production, &consent.confirmed) {
        (Some(name), Some(said)) if name == said => return Ok(()),
        (Some(name), Some(said)) => {
            return Err(Failure::wrong(format!("--confirm says {said}, and the context is {name}; nothing was done")));
        }
        (Some(name), None) if !can_be_asked => {
            let how = format!("say --confirm {name}, since nobody can be asked here");
            return Err(Failure::wrong(format!("this would {what} in production; {how}")));
        }
        (Some(name), None) => {
            let answer = asked(&format!("This will {what}, in production. Type {name} to go on: "))?;
            return if answer == *name { Ok(()) } else { Err(Failure::Failed("nothing was done".to_owned())) };
        }
        (None, _) if consent.unknown.is_some() && (consent.yes || !can_be_asked) => {
            let why = consent.unknown.as_deref().unwrap_or_default();
            return Err(Failure::wrong(format!("this would {what}, perhaps in production: {why}")));
        }
        (None, _) if consent.yes => return Ok(()),
        (None, _) if !can_be_asked => {
            return Err(Failure::wrong(format!("this would {what}; say --yes, since nobody can be asked here")));
        }
        (None, _) => {}
    }
    let perhaps = consent.unknown.as_ref().map_or_else(String::new, |why| format!(", perhaps in production ({why})"));
    match asked(&format!("This will {what}{perhaps}. Go on? [y/N] "))?.to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was done".to_owned())),
    }
}

fn asked(question: &str) -> Result<String, Failure> {
    eprint!("{question}");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}
