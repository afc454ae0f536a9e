//! Asks for confirmation before a command makes changes that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Which actions need a confirmation.
#[derive(Debug)]
pub(crate) struct Consent {
    /// Whether `--yes` is set.
    pub(crate) yes: bool,
    /// Whether the server is in production, where more actions need a confirmation.
    pub(crate) is_production: bool,
}

/// Returns if `--yes` or the person at the terminal confirms. In production the person types the word `production`.
///
/// # Errors
/// Wrong use if there is no terminal; a failure if the answer is no.
pub(crate) fn confirm(consent: &Consent, what: &str) -> Result<(), Failure> {
    if consent.yes { Ok(()) } else { ask(consent, what, "pass --yes (no terminal to confirm on)") }
}

/// As [`confirm`], for an action that `--yes` does not confirm.
///
/// # Errors
/// As [`confirm`].
pub(crate) fn confirm_in_person(consent: &Consent, what: &str) -> Result<(), Failure> {
    ask(consent, what, "a person must confirm this on a terminal, without --yes")
}

/// Asks on the terminal. `instead` says what to do if there is none.
fn ask(consent: &Consent, what: &str, instead: &str) -> Result<(), Failure> {
    let place = if consent.is_production { " in production" } else { "" };
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::wrong(format!("this would {what}{place}; {instead}")));
    }
    let is_confirmed = if consent.is_production {
        asked(&format!("This will {what}{place}. Type production to continue: "))? == "production"
    } else {
        matches!(asked(&format!("This will {what}. Continue? [y/N] "))?.to_ascii_lowercase().as_str(), "y" | "yes")
    };
    if is_confirmed { Ok(()) } else { Err(Failure::Failed("nothing was done".to_owned())) }
}

fn asked(question: &str) -> Result<String, Failure> {
    eprint!("{question}");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}
