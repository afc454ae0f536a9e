//! Asks before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Whether to go on: yes where `--yes` was given, else what the person at the terminal says.
///
/// # Errors
/// Wrong use where nobody can be asked; a failure where the answer is no.
pub(crate) fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::wrong(format!("this would {what}; say --yes, since nobody can be asked here")));
    }
    eprint!("This will {what}. Go on? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was done".to_owned())),
    }
}
