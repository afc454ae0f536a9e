//! Text for people: what may come from anybody is shown harmless, times are relative and exact.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime};

use askama::filters::{Escaper, Html};

/// Text that somebody else wrote, on one line of a terminal: control characters, and those that turn the direction of the text, are
/// escaped.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for c in text.chars() {
        let turns =
            matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            told.extend(c.escape_default());
        } else {
            told.push(c);
        }
    }
    told
}

/// How pages write every text, foreign or not: as HTML needs it, and escaped by [`shown`], except for the ends of lines. `askama.toml` makes
/// templates use it.
#[derive(Clone, Copy, Debug)]
pub struct Page;

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

/// The beginning of a text, for a column of a table.
#[must_use]
pub fn brief(text: &str, most: usize) -> String {
    let told = shown(text);
    if told.chars().count() <= most {
        return told;
    }
    told.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A word as a shell takes it, at the end of a command that somebody is to paste: an id may be anything that can be printed.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:@%+,/=-".contains(c);
    let quoted = match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    if word.starts_with('-') { format!("-- {quoted}") } else { quoted }
}

/// How a line names a command.
const COMMAND: &str = "`heartline ";

/// The line, with these options in each command that it names.
#[must_use]
pub fn placed(line: &str, options: &str) -> String {
    if options.is_empty() { line.to_owned() } else { line.replace(COMMAND, &format!("{COMMAND}{options} ")) }
}

/// So many of a thing: `1 job`, `2 jobs`.
#[must_use]
pub fn many(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// An error and what caused it, in one line.
#[must_use]
pub fn chain(error: &dyn StdError) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(told, ": {cause}");
        source = cause.source();
    }
    told
}

/// A word of a command that a shell hands on byte by byte, whatever is in it.
#[must_use]
pub fn printed(word: &str) -> String {
    if !word.chars().any(char::is_control) {
        return quoted(word);
    }
    let byte = |byte: u8| {
        let is_plain = byte.is_ascii_graphic() && !b"%\\'!\"".contains(&byte);
        if is_plain || byte == b' ' { char::from(byte).to_string() } else { format!("\\{byte:03o}") }
    };
    format!("\"$(printf '{}')\"", word.bytes().map(byte).collect::<String>())
}

/// A number of bytes: `512 B`, `1.5 KiB`, `3.2 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut of_unit, mut at) = (count as f64 / 1024.0, 0);
    while of_unit >= 1024.0 && at + 1 < UNITS.len() {
        (of_unit, at) = (of_unit / 1024.0, at + 1);
    }
    format!("{of_unit:.1} {}", UNITS[at])
}

/// A time span in its two largest units: `840ms`, `4.2s`, `3m 5s`, `2days 4h`.
#[must_use]
pub fn span(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{}ms", time.as_millis());
    }
    if time < Duration::from_secs(10) {
        return format!("{:.1}s", time.as_secs_f64());
    }
    let whole = humantime::format_duration(Duration::from_secs(time.as_secs())).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// How long ago, or in how long.
#[must_use]
pub fn relative(at: SystemTime, now: SystemTime) -> String {
    match now.duration_since(at) {
        Ok(ago) => format!("{} ago", span(ago)),
        Err(ahead) => format!("in {}", span(ahead.duration())),
    }
}

/// The time itself, and how long ago that was.
#[must_use]
pub fn exact(at: SystemTime, now: SystemTime) -> String {
    format!("{} ({})", rfc3339(at), relative(at, now))
}

/// The time as RFC 3339 has it, or, where that has no word for it any more, in ms since 1970.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let mut told = String::new();
    match write!(told, "{}", humantime::format_rfc3339_millis(at)) {
        Ok(()) => told,
        Err(_) => {
            format!("{} ms since 1970", at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis())
        }
    }
}

/// So many a second: few of them with a digit behind the point.
#[must_use]
pub fn rate_of(a_second: f64) -> String {
    if a_second > 0.0 && a_second < 9.95 { format!("{a_second:.1}") } else { format!("{a_second:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_hands_on_a_word_as_it_is() {
        for word in ["plain", "a b", "evil\u{1b}[31m x", "\u{7}'$(x)`\\%s!\"", "é\n"] {
            let run = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", printed(word)))
                .output()
                .unwrap();
            // A shell drops newlines at the end of what it substitutes.
            assert_eq!(String::from_utf8(run.stdout).unwrap(), word.trim_end_matches('\n'), "{}", printed(word));
        }
    }

    #[test]
    fn foreign_text_cannot_move_the_cursor_or_turn_the_line() {
        assert_eq!(shown("a\u{1b}[2Jb\r\nc\u{202e}d\u{7f}é"), r"a\u{1b}[2Jb\r\nc\u{202e}d\u{7f}é");
        assert_eq!(brief("abcdef", 6), "abcdef");
        assert_eq!(brief("abcdefg", 6), "abcde…");
    }

    #[test]
    fn a_page_shows_every_text_as_one_that_does_nothing() {
        let mut page = String::new();
        Page.write_escaped_str(&mut page, "<b>\u{202e}gpj.exe & \u{1b}[2J\nnext").unwrap();
        assert_eq!(page, "&#60;b&#62;\\u{202e}gpj.exe &#38; \\u{1b}[2J\nnext");
    }

    #[test]
    fn what_a_person_pastes_into_a_shell_is_one_word() {
        let told = ["export-7:a/b", "$(reboot)", "it's", "", "-x"].map(quoted);
        assert_eq!(told, ["export-7:a/b", "'$(reboot)'", r"'it'\''s'", "''", "-- -x"]);
    }

    #[test]
    fn times_are_told_in_two_units() {
        let told = |ms| span(Duration::from_millis(ms));
        assert_eq!((told(0), told(840), told(4_240)), ("0ms".into(), "840ms".into(), "4.2s".into()));
        assert_eq!((told(185_000), told(60_000)), ("3m 5s".into(), "1m".into()));
        assert_eq!(told(187_200_000), "2days 4h");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(relative(now - Duration::from_secs(30), now), "30s ago");
        assert_eq!(relative(now + Duration::from_secs(30), now), "in 30s");
        assert_eq!(exact(now, now), "1970-01-01T00:01:40.000Z (0ms ago)");
        let far = SystemTime::UNIX_EPOCH + Duration::from_millis(999_999_999_999_999);
        assert!(exact(far, now).starts_with("999999999999999 ms since 1970 (in "), "{}", exact(far, now));
    }
}
