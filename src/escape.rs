//! Text from outside (a handler, a caller, Redis), made safe to show and store.

use std::fmt::{self, Write};

/// Displays text with control characters escaped, so that it cannot control a terminal or break a log line.
#[derive(Clone, Copy)]
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            // The characters in these ranges change the direction of the text after them.
            if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
                write!(f, "{}", c.escape_default())
            } else {
                f.write_char(c)
            }
        })
    }
}

/// The longest beginning of the text of at most `limit` bytes, cut between two characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_terminal_is_escaped_and_the_rest_is_not() {
        assert_eq!(Escaped("é \u{1b}[31mred\r\nline\u{202e}").to_string(), "é \\u{1b}[31mred\\r\\nline\\u{202e}");
    }

    #[test]
    fn a_cut_falls_between_characters() {
        assert_eq!([cut("aé", 9), cut("aé", 3), cut("aé", 2), cut("é", 1)], ["aé", "aé", "a", ""]);
    }
}
