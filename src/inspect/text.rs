//! Formats text for people, shared by the tools: foreign text, counts, sizes and times.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

pub use crate::plural::many;
use crate::unix_time::ms_of;

/// Foreign text, safe to print on one line of a terminal. Escapes control characters and those that change the text direction.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns =
            matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The beginning of a text, for a column of a table.
#[must_use]
pub fn brief(text: &str, most: usize) -> String {
    let out = shown(text);
    if out.chars().count() <= most {
        return out;
    }
    out.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Quotes a word for a shell, as the last word of a command that a person pastes.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:@%+,/=-".contains(c);
    let quoted = match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    if word.starts_with('-') { format!("-- {quoted}") } else { quoted }
}

/// The beginning of a command in a line.
const COMMAND: &str = "`heartline ";

/// Adds these options to each `heartline` command in the line.
#[must_use]
pub fn placed(line: &str, options: &str) -> String {
    if options.is_empty() { line.to_owned() } else { line.replace(COMMAND, &format!("{COMMAND}{options} ")) }
}

/// An error and its causes on one line.
#[must_use]
pub fn chain(error: &dyn StdError) -> String {
    let mut out = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(out, ": {cause}");
        source = cause.source();
    }
    out
}

/// Quotes a word for a shell, even if it contains control characters.
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

/// A time span in its two largest units: `840ms`, `4.2s`, `3m 5s`, `2d 4h`.
#[must_use]
pub fn span(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = time.as_secs();
    match rest {
        0 => return format!("{}ms", time.as_millis()),
        1..10 => return format!("{:.1}s", time.as_secs_f64()),
        _ => {}
    }
    let mut parts = Vec::new();
    for (seconds, unit) in UNITS {
        if rest >= seconds {
            parts.push(format!("{}{unit}", rest / seconds));
        }
        rest %= seconds;
    }
    parts.truncate(2);
    parts.join(" ")
}

/// The distance to now: `5s ago`, `in 5s`.
#[must_use]
pub fn relative(at: SystemTime, now: SystemTime) -> String {
    match now.duration_since(at) {
        Ok(ago) => format!("{} ago", span(ago)),
        Err(ahead) => format!("in {}", span(ahead.duration())),
    }
}

/// The time, followed by its distance to now.
#[must_use]
pub fn exact(at: SystemTime, now: SystemTime) -> String {
    format!("{} ({})", rfc3339(at), relative(at, now))
}

/// The time as RFC 3339 in UTC; after the year 9999 as ms since 1970.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let ms = ms_of(at);
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Days since March 1 of the year 0, in cycles of 400 years.
    let shifted = days + 719_468;
    let (cycle, of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    if year > 9999 {
        return format!("{ms} ms since 1970");
    }
    let (hour, minute, second, ms) = (seconds / 3600, seconds / 60 % 60, seconds % 60, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// A rate per second. Below 10 it has one decimal.
#[must_use]
pub fn rate_of(a_second: f64) -> String {
    if a_second > 0.0 && a_second < 9.95 { format!("{a_second:.1}") } else { format!("{a_second:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_passes_a_printed_word_unchanged() {
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
    fn foreign_text_cannot_move_the_cursor_or_change_direction() {
        assert_eq!(shown("a\u{1b}[2Jb\r\nc\u{202e}d\u{7f}é"), r"a\u{1b}[2Jb\r\nc\u{202e}d\u{7f}é");
        assert_eq!(brief("abcdef", 6), "abcdef");
        assert_eq!(brief("abcdefg", 6), "abcde…");
    }

    #[test]
    fn a_quoted_word_is_one_word_in_a_shell() {
        let words = ["export-7:a/b", "$(reboot)", "it's", "", "-x"].map(quoted);
        assert_eq!(words, ["export-7:a/b", "'$(reboot)'", r"'it'\''s'", "''", "-- -x"]);
    }

    #[test]
    fn time_spans_have_two_units() {
        let out = |ms| span(Duration::from_millis(ms));
        assert_eq!((out(0), out(840), out(4_240)), ("0ms".into(), "840ms".into(), "4.2s".into()));
        assert_eq!((out(185_000), out(60_000)), ("3m 5s".into(), "1m".into()));
        assert_eq!((out(187_200_000), out(3_605_000)), ("2d 4h".into(), "1h 5s".into()));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(relative(now - Duration::from_secs(30), now), "30s ago");
        assert_eq!(relative(now + Duration::from_secs(30), now), "in 30s");
        assert_eq!(exact(now, now), "1970-01-01T00:01:40.000Z (0ms ago)");
        let leap = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_251_199_999);
        assert_eq!(rfc3339(leap), "2024-02-29T23:59:59.999Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_millis(999_999_999_999_999);
        assert!(exact(far, now).starts_with("999999999999999 ms since 1970 (in "), "{}", exact(far, now));
    }
}
