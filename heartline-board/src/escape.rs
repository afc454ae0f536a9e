//! Escapes text for pages: HTML, control characters and bidirectional overrides.

use std::fmt;

use askama::filters::{Escaper, Html};
use heartline::inspect::text::shown;

/// Escapes every text of a page as HTML and by [`shown`], except for line ends. `askama.toml` makes the templates use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page;

impl Escaper for Page {
    fn write_escaped_str<W: fmt::Write>(&self, mut page: W, text: &str) -> fmt::Result {
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                page.write_char('\n')?;
            }
            Html.write_escaped_str(&mut page, &shown(line))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_and_control_characters_are_escaped() {
        let mut page = String::new();
        Page.write_escaped_str(&mut page, "<b>\u{202e}gpj.exe & \u{1b}[2J\nnext").unwrap();
        assert_eq!(page, "&#60;b&#62;\\u{202e}gpj.exe &#38; \\u{1b}[2J\nnext");
    }
}
