//! Words and phrases that make a text hard to read, and that no comment, page or document may use.

use super::{files, read};

/// Archaic words, vague persons, and idioms with a plain verb of their own.
const NEVER: [&str; 20] = [
    "anew",
    "lately",
    "henceforth",
    "whence",
    "thereby",
    "heed",
    "heeds",
    "nobody",
    "somebody",
    "anybody",
    "whoever",
    "for ever",
    "set aside",
    "puts aside",
    "look after",
    "looks after",
    "looked after",
    "becomes of",
    "became of",
    "hears of",
];

/// Where texts are, with the ending of their files and what begins a line of text there.
const TEXTS: [(&str, &str, &str); 15] = [
    ("src", "rs", "//"),
    ("heartline-cli", "rs", "//"),
    ("heartline-board", "rs", "//"),
    ("heartline-otel", "rs", "//"),
    ("examples", "rs", "//"),
    ("benches", "rs", "//"),
    ("browser", "rs", "//"),
    ("model", "rs", "//"),
    ("tests", "rs", "//"),
    ("lua", "lua", "--"),
    ("docs", "md", ""),
    ("heartline-cli", "md", ""),
    ("heartline-board", "md", ""),
    ("heartline-otel", "md", ""),
    ("heartline-board/templates", "html", ""),
];

/// The pages in the root.
const PAGES: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Whether the line has the phrase, as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_word)
            && !line[at + phrase.len()..].chars().next().is_some_and(is_word)
    })
}

#[test]
fn no_text_uses_words_that_are_hard_to_read() {
    let pages = PAGES.iter().map(|page| ((*page).to_owned(), ""));
    let texts =
        TEXTS.iter().flat_map(|(dir, ending, begin)| files(dir, ending).into_iter().map(move |path| (path, *begin)));
    let mut found = Vec::new();
    for (path, begin) in pages.chain(texts) {
        for (number, line) in read(&path).lines().enumerate() {
            let line = line.trim().to_lowercase();
            let used = NEVER.iter().filter(|phrase| line.starts_with(begin) && has(&line, phrase));
            found.extend(used.map(|phrase| format!("{path}:{}: {phrase}", number + 1)));
        }
    }
    assert!(found.is_empty(), "write plainly: {found:#?}");
}

#[test]
fn a_phrase_is_found_as_whole_words_only() {
    assert!(has("// it waits for ever.", "for ever") && !has("for everything", "for ever"));
    assert!(!has("the field failed_lately", "lately"));
}
