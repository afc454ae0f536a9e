//! Lua as far as the tests parse it: tokens, functions, calls, and which tokens are reachable from which.

use std::collections::{BTreeMap, BTreeSet};

/// The tokens of an expression, from the first to the one after the last.
pub type Span = (usize, usize);

pub struct Function {
    pub name: String,
    pub params: Vec<String>,
    pub body: Span,
}

/// The text of a script.
pub struct Text {
    pub tokens: Vec<String>,
    /// The positions of each token.
    places: BTreeMap<String, Vec<usize>>,
    pub functions: Vec<Function>,
}

pub fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

pub fn is_within(at: usize, spans: &[Span]) -> bool {
    spans.iter().any(|(from, to)| *from <= at && at < *to)
}

fn tokens_of(source: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (Vec::new(), source);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            continue;
        } else if is_name(rest) || first.is_ascii_digit() {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if first == '\'' {
            rest[1..].find('\'').unwrap() + 2
        } else if ["..", "==", "~=", "<=", ">="].iter().any(|sign| rest.starts_with(sign)) {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}

/// The functions with a name, and where each begins and ends.
fn functions_of(tokens: &[String]) -> Vec<Function> {
    let mut functions = Vec::new();
    for at in (0..tokens.len()).filter(|at| tokens[*at] == "function" && is_name(&tokens[at + 1])) {
        let close = (at..).find(|at| tokens[*at] == ")").unwrap();
        let params = tokens[at + 3..close].iter().filter(|token| is_name(token)).cloned().collect();
        let (mut depth, mut end) = (1, close + 1);
        while depth > 0 {
            match tokens[end].as_str() {
                "function" | "if" | "do" => depth += 1,
                "end" => depth -= 1,
                _ => {}
            }
            end += 1;
        }
        functions.push(Function { name: tokens[at + 1].clone(), params, body: (close + 1, end) });
    }
    functions
}

impl Text {
    pub fn of(source: &str) -> Text {
        let tokens = tokens_of(source);
        let functions = functions_of(&tokens);
        let mut places = BTreeMap::<String, Vec<usize>>::new();
        for (at, token) in tokens.iter().enumerate() {
            places.entry(token.clone()).or_default().push(at);
        }
        Text { tokens, places, functions }
    }

    pub fn at(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", String::as_str)
    }

    /// Where the bracket that opens here closes.
    pub fn closed(&self, open: usize) -> usize {
        let mut depth = 0;
        for at in open..self.tokens.len() {
            match self.at(at) {
                "(" | "{" | "[" => depth += 1,
                ")" | "}" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return at;
            }
        }
        self.tokens.len()
    }

    /// The parts between these brackets, split at commas.
    pub fn parts(&self, open: usize) -> Vec<Span> {
        let (end, mut start, mut at, mut parts) = (self.closed(open), open + 1, open + 1, Vec::new());
        while at < end {
            if self.at(at) == "," {
                parts.push((start, at));
                start = at + 1;
            }
            at = if ["(", "{", "["].contains(&self.at(at)) { self.closed(at) + 1 } else { at + 1 };
        }
        if start < end {
            parts.push((start, end));
        }
        parts
    }

    /// The functions around a position, innermost first.
    pub fn around(&self, at: usize) -> Vec<&Function> {
        let mut around: Vec<&Function> =
            self.functions.iter().filter(|function| function.body.0 <= at && at < function.body.1).collect();
        around.sort_by_key(|function| function.body.1 - function.body.0);
        around
    }

    pub fn places(&self, token: &str) -> impl Iterator<Item = usize> {
        self.places.get(token).into_iter().flatten().copied()
    }

    /// The positions at which the function is called.
    pub fn calls(&self, name: &str) -> impl Iterator<Item = usize> {
        self.places(name).filter(|at| self.at(at + 1) == "(" && !["function", "."].contains(&self.at(at - 1)))
    }

    /// The end of an expression that begins here.
    pub fn end_of(&self, from: usize) -> usize {
        let mut at = from;
        while at < self.tokens.len() {
            let (token, before) = (self.at(at), self.at(at - 1));
            let goes_on = at == from
                || !(is_name(token) || token.starts_with('\''))
                || ["and", "or", "not", ".", ":", "..", "==", "~=", "<", ">", "<=", ">=", "+", "-", "*", "/", "#"]
                    .contains(&before);
            let ends = [",", ")", "}", "]", ";", "="].contains(&token);
            if ends || !goes_on && !["and", "or"].contains(&token) {
                break;
            }
            at = if ["(", "{", "["].contains(&token) { self.closed(at) + 1 } else { at + 1 };
        }
        at
    }

    /// Whether a name is one of several that a `local` or `for` lists.
    pub fn is_of_list(&self, at: usize) -> bool {
        let mut first = at;
        while first > 1 && (self.at(first - 1) == "," || is_name(self.at(first - 1)) && self.at(first) == ",") {
            first -= 1;
        }
        first > 0 && ["local", "for"].contains(&self.at(first - 1))
    }

    /// The spans that are reachable from here to the end of the script, through the functions that are called.
    pub fn reached_from(&self, from: usize) -> Vec<Span> {
        let mut spans = vec![(from, self.tokens.len())];
        let mut known = BTreeSet::new();
        let mut next = 0;
        while let Some((from, to)) = spans.get(next).copied() {
            for function in &self.functions {
                let is_called = self.calls(&function.name).any(|call| from <= call && call < to);
                if is_called && known.insert(function.body.0) {
                    spans.push(function.body);
                }
            }
            next += 1;
        }
        spans
    }
}
