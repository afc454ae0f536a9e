//! An error with its causes on one line, for logs and stored messages.

use std::error::Error as StdError;
use std::fmt::{self, Write};

use super::cause::{Handled, causes};
use crate::escape::Escaped;

/// Displays the error with all its causes, outermost first, on one line.
#[derive(Clone, Copy)]
pub(crate) struct Chain<'a>(pub(super) &'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write_chain(&mut text, self.0)?;
        Escaped(&text).fmt(f)
    }
}

/// Writes the error with all its causes, outermost first.
pub(super) fn write_chain(out: &mut dyn fmt::Write, e: &(dyn StdError + 'static)) -> fmt::Result {
    let mut text = String::new();
    write!(text, "{e}")?;
    out.write_str(&text)?;
    // The handling is not part of the message.
    for cause in causes(e).skip(1).filter(|cause| !cause.is::<Handled>()) {
        let mut more = String::new();
        write!(more, "{cause}")?;
        // Many errors already end with the text of their cause.
        if !text.ends_with(&more) {
            out.write_str(": ")?;
            out.write_str(&more)?;
        }
        text = more;
    }
    Ok(())
}

/// What to add to an error if a number was expected where the JSON has null.
pub(crate) fn no_number(e: &serde_json::Error) -> &'static str {
    let text = e.to_string();
    let is_no_number =
        ["f64", "f32"].iter().any(|float| text.starts_with(&format!("invalid type: null, expected {float}")));
    if is_no_number { " (JSON writes null for NaN and infinity)" } else { "" }
}
