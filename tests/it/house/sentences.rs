//! No decision reads a sentence: what a server answered is sorted once, into kinds, and tools decide by those.

use super::{code, files};

/// Where tools look, and what they print.
const ROOMS: [&str; 3] = ["src/inspect", "heartline-cli/src", "heartline-board/src"];

/// Formats of others that a program reads line by line.
const FORMATS: [&str; 1] = ["heartline-cli/src/openmetrics.rs"];

/// The texts that a line of code looks for in another text.
fn looked_for(line: &str) -> impl Iterator<Item = &str> {
    let calls = [".contains(\"", ".starts_with(\"", ".ends_with(\"", ".find(\"", ".split_once(\"", ".strip_prefix(\""];
    let texts = calls.into_iter().flat_map(|call| line.split(call).skip(1));
    texts.filter_map(|rest| rest.split('"').next())
}

/// Whether it is a part of a sentence, or a code of Redis.
fn is_of_a_sentence(text: &str) -> bool {
    let is_code = text.len() > 2 && text.chars().all(|c| c.is_ascii_uppercase());
    is_code || text.trim().contains(' ')
}

#[test]
fn no_decision_reads_a_sentence() {
    let mut found = Vec::new();
    for path in ROOMS.iter().flat_map(|room| files(room, "rs")).filter(|path| !FORMATS.contains(&path.as_str())) {
        for (number, line) in code(&path) {
            let is_found = looked_for(&line).any(is_of_a_sentence);
            let is_of_an_error = line.contains("to_string().contains(") || line.contains("to_string().starts_with(");
            if is_found || is_of_an_error {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "a field or a kind is to be read instead: {found:#?}");
}

#[test]
fn a_sentence_is_found_in_a_line_of_code() {
    let reads = |line: &str| looked_for(line).any(is_of_a_sentence);
    assert!(reads(r#"what.contains("run again") || what.starts_with("it")"#) && reads(r#"said.contains("NOAUTH")"#));
    assert!(!reads(r#"url.starts_with("rediss") && name.ends_with(":80")"#));
}
