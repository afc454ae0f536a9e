//! A JSON value as a tree whose parts fold.

use std::fmt::{self, Write};

use askama::filters::Escaper;
use serde_json::Value;

use crate::escape::Page;

/// Deeper values are shown as text.
const DEEPEST: usize = 24;

/// How many levels are open at first.
const OPEN: usize = 2;

/// The tree of a value, as HTML. Its text is escaped as all text of a page is.
pub(crate) fn tree(value: &Value) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = node(&mut page, None, value, 0);
    page
}

fn node(page: &mut String, name: Option<&str>, value: &Value, depth: usize) -> fmt::Result {
    let (count, kind, ends): (usize, _, _) = match value {
        Value::Object(fields) if depth < DEEPEST => (fields.len(), "field", ('{', '}')),
        Value::Array(items) if depth < DEEPEST => (items.len(), "item", ('[', ']')),
        value => {
            page.write_str("<div>")?;
            named(page, name)?;
            let class = match value {
                Value::String(_) => "str",
                Value::Number(_) | Value::Bool(_) => "no",
                _ => "pun",
            };
            write!(page, "<span class=\"{class}\">")?;
            Page.write_escaped_str(&mut *page, &value.to_string())?;
            return page.write_str("</span></div>");
        }
    };
    write!(page, "<details{}><summary>", if depth < OPEN { " open" } else { "" })?;
    named(page, name)?;
    let (begin, end) = ends;
    let plural = if count == 1 { "" } else { "s" };
    write!(page, "<span class=\"pun\">{begin} {count} {kind}{plural} {end}</span></summary>")?;
    match value {
        Value::Object(fields) => {
            fields.iter().try_for_each(|(name, field)| node(page, Some(name), field, depth + 1))?
        }
        Value::Array(items) => items.iter().try_for_each(|item| node(page, None, item, depth + 1))?,
        _ => {}
    }
    page.write_str("</details>")
}

fn named(page: &mut String, name: Option<&str>) -> fmt::Result {
    let Some(name) = name else { return Ok(()) };
    page.write_str("<span class=\"k\">")?;
    Page.write_escaped_str(&mut *page, name)?;
    page.write_str("</span>: ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_folds_its_parts_and_escapes_their_text() {
        let page = tree(&json!({ "<b>": ["a\u{202e}", 1], "c": null }));
        assert!(page.starts_with("<details open><summary><span class=\"pun\">{ 2 fields }</span></summary>"), "{page}");
        assert!(
            page.contains("<span class=\"k\">&#60;b&#62;</span>: <span class=\"pun\">[ 2 items ]</span>"),
            "{page}"
        );
        assert!(
            page.contains("<span class=\"str\">&#34;a\\u{202e}&#34;</span>") && !page.contains('\u{202e}'),
            "{page}"
        );
        assert!(
            page.ends_with("<div><span class=\"k\">c</span>: <span class=\"pun\">null</span></div></details>"),
            "{page}"
        );
        let deep = (0..100).fold(json!(1), |value, _| json!([value]));
        assert_eq!(tree(&deep).matches("<details").count(), DEEPEST);
    }
}
