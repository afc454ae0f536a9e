//! Which keys and words a name in a script can hold: everything that is assigned to it or passed as that argument.

use super::lua_text::{Function, Span, Text, is_name, is_within};
use super::{entries, header};
use heartline::_internals::scripts;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

pub type Words = BTreeSet<String>;

/// A command and a key of the script, by its name in `KEYS`; `is_safe` if a refusal leaves nothing half-written
/// (`pcall`).
pub struct Site {
    pub at: usize,
    pub command: String,
    pub keys: Words,
    pub is_safe: bool,
}

/// A script, and the values of its names.
pub struct Lua {
    text: Text,
    /// The name of each key in the text, its name in `KEYS`, and its type.
    keys: BTreeMap<String, (String, String)>,
    /// The values of each name in its scope so far, and the names that this round has visited.
    known: RefCell<BTreeMap<(usize, String), Words>>,
    seen: RefCell<BTreeSet<(usize, String)>>,
}

impl Deref for Lua {
    type Target = Text;

    fn deref(&self) -> &Text {
        &self.text
    }
}

impl Lua {
    pub fn of(name: &str) -> Lua {
        let all = scripts();
        let script = all.iter().find(|script| script.name == name).unwrap();
        let text = Text::of(script.source);
        let end = text.tokens.windows(3).position(|some| some == ["unpack", "(", "KEYS"]).unwrap();
        let start = text.tokens[..end].iter().rposition(|token| token == "local").unwrap();
        let names = text.tokens[start + 1..end - 1].iter().filter(|token| is_name(token));
        let kinds = entries(&header(name).0, "KEYS").into_iter().map(|(_, suffix, kind, _)| (suffix, kind));
        let keys = names.cloned().zip(kinds).collect();
        let lua = Lua { text, keys, known: RefCell::default(), seen: RefCell::default() };
        // Names depend on each other: repeat until a round finds nothing new.
        loop {
            let before = lua.known.borrow().clone();
            lua.seen.borrow_mut().clear();
            let _ = lua.sites();
            let _ = lua.asked(&[(0, lua.tokens.len())]);
            if *lua.known.borrow() == before {
                return lua;
            }
        }
    }

    /// The values of an expression: names of keys, and words.
    pub fn values(&self, (from, to): Span) -> Words {
        let (mut found, mut at) = (Words::new(), from);
        while at < to {
            let token = self.at(at);
            if let Some(word) = token.strip_prefix('\'') {
                found.insert(word.trim_end_matches('\'').to_owned());
            } else if token == ".." && self.at(at + 1) == "." {
                // The remaining arguments of the function.
                if let Some(function) = self.around(at).first() {
                    for call in self.calls(&function.name) {
                        let parts = self.parts(call + 1).into_iter().skip(function.params.len());
                        found.extend(parts.flat_map(|part| self.values(part)));
                    }
                }
            } else if is_name(token) {
                // Only the last field of a path and its index count.
                let (mut last, mut is_field) = (at, false);
                loop {
                    match self.at(last + 1) {
                        "." => (last, is_field) = (last + 2, true),
                        "[" => {
                            let end = self.closed(last + 1);
                            found.extend(self.values((last + 2, end)).into_iter().flat_map(|word| self.named(&word)));
                            if self.at(end + 1) != "." && self.at(end + 1) != "[" {
                                found.extend(self.value(at, last, is_field));
                                last = end;
                                break;
                            }
                            last = end;
                        }
                        _ => {
                            found.extend(self.value(at, last, is_field));
                            break;
                        }
                    }
                }
                at = last;
            }
            at += 1;
        }
        found
    }

    fn named(&self, word: &str) -> Option<String> {
        self.keys.get(word).map(|(suffix, _)| suffix.clone())
    }

    /// The values of a name, or of a field.
    fn value(&self, at: usize, last: usize, is_field: bool) -> Words {
        let name = self.at(last);
        if let Some(key) = self.named(name) {
            // A parameter may have the name of a key.
            if is_field || self.around(at).iter().all(|function| !function.params.iter().any(|own| own == name)) {
                return Words::from([key]);
            }
        }
        let scope = self.around(at).into_iter().find(|function| self.defines(function, name));
        let place = scope.map_or(0, |function| function.body.0);
        let entry = (if is_field { usize::MAX } else { place }, name.to_owned());
        let mut found = self.known.borrow().get(&entry).cloned().unwrap_or_default();
        if !self.seen.borrow_mut().insert(entry.clone()) {
            return found;
        }
        let position = scope.and_then(|function| function.params.iter().position(|own| own == name));
        if let (false, Some(function), Some(position)) = (is_field, scope, position) {
            for call in self.calls(&function.name) {
                let parts = self.parts(call + 1);
                found.extend(parts.get(position).map(|part| self.values(*part)).unwrap_or_default());
            }
        } else {
            let (from, to) =
                if is_field { (0, self.tokens.len()) } else { scope.map_or((0, self.tokens.len()), |own| own.body) };
            for at in self.places(name).filter(|at| from <= *at && *at < to) {
                found.extend(self.assigned(at));
            }
        }
        self.known.borrow_mut().insert(entry, found.clone());
        found
    }

    /// Whether a function has the name as a parameter, or gives it a value.
    fn defines(&self, function: &Function, name: &str) -> bool {
        let (from, to) = function.body;
        let mut within = self.places(name).filter(|at| from <= *at && *at < to);
        function.params.iter().any(|own| own == name)
            || within.any(|at| self.at(at - 1) == "local" || self.is_of_list(at))
    }

    /// The value assigned to the name at this position, by `=` or by a loop over a list.
    fn assigned(&self, at: usize) -> Words {
        if self.at(at - 1) == "=" {
            return Words::new();
        }
        let mut sign = at + 1;
        while self.at(sign) == "," && is_name(self.at(sign + 1)) {
            sign += 2;
        }
        match self.at(sign) {
            "=" if self.at(at - 1) != "[" => {
                let mut first = at;
                let mut skipped = 0;
                while self.at(first - 1) == "," && is_name(self.at(first - 2)) && self.is_of_list(at) {
                    (first, skipped) = (first - 2, skipped + 1);
                }
                let mut from = sign + 1;
                for _ in 0..skipped {
                    let end = self.end_of(from);
                    if self.at(end) != "," {
                        break;
                    }
                    from = end + 1;
                }
                self.values((from, self.end_of(from)))
            }
            "in" => {
                let end = (sign..).find(|at| self.at(*at) == "do").unwrap();
                let fields = (sign..end).filter(|at| self.at(at + 1) == "=").map(|at| self.at(at).to_owned());
                let mut found: Words = fields.collect();
                found.extend(self.values((sign + 1, end)));
                // `for kind, group in pairs(groups)`: the kinds are the fields of the table.
                for name in (sign + 2..end).map(|at| self.at(at)).filter(|_| self.at(sign + 1) == "pairs") {
                    for at in self.places(name).filter(|at| self.at(at + 1) == "=") {
                        let within = (at + 2)..self.end_of(at + 2);
                        found.extend(within.filter(|at| self.at(at + 1) == "=").map(|at| self.at(at).to_owned()));
                    }
                }
                found
            }
            _ => Words::new(),
        }
    }

    /// The keys among these words that have the type of the command; all keys of that type if the text does not say.
    fn of_type(&self, command: &str, found: &Words) -> Words {
        let kind = match command.chars().next() {
            _ if ["EXISTS", "DEL", "UNLINK", "TYPE"].contains(&command) => "",
            Some('H') => "hash",
            Some('Z') => "zset",
            Some('L' | 'R') if command != "RENAME" => "list",
            Some('X') => "stream",
            Some('S' | 'R') => "set",
            _ => "",
        };
        let all = || self.keys.values().filter(move |(_, own)| kind.is_empty() || own == kind);
        let told: Words = all().map(|(key, _)| key.clone()).filter(|key| found.contains(key)).collect();
        if told.is_empty() { all().map(|(key, _)| key.clone()).collect() } else { told }
    }

    /// Whether it is a parameter that no call of its function passes.
    fn is_never_given(&self, (from, to): Span) -> bool {
        let functions = self.around(from);
        let own = functions
            .iter()
            .find_map(|function| Some((function, function.params.iter().position(|param| param == self.at(from))?)));
        let Some((function, position)) = own.filter(|_| from + 1 == to) else { return false };
        self.calls(&function.name).all(|call| self.parts(call + 1).len() <= position)
    }

    pub fn sites(&self) -> Vec<Site> {
        let mut sites = Vec::new();
        for at in self.places("redis").filter(|at| ["call", "pcall"].contains(&self.at(at + 2))) {
            let parts = self.parts(at + 3);
            for command in self.values(parts[0]).into_iter().filter(|word| word.chars().all(|c| c.is_ascii_uppercase()))
            {
                if parts.len() == 1 || command == "PUBLISH" || command == "TIME" {
                    continue;
                }
                let takes_many = ["EXISTS", "RENAME", "UNLINK"].contains(&command.as_str());
                let named = if takes_many { &parts[1..] } else { &parts[1..2] };
                if named.iter().all(|part| self.is_never_given(*part)) {
                    continue;
                }
                let found = named.iter().flat_map(|part| self.values(*part)).collect();
                let keys = self.of_type(&command, &found);
                // An empty list of keys.
                if !keys.is_empty() {
                    sites.push(Site { at, command, keys, is_safe: self.at(at + 2) == "pcall" });
                }
            }
        }
        sites
    }

    /// The commands whose rights are checked in these spans, by key.
    pub fn asked(&self, spans: &[Span]) -> BTreeSet<(String, String)> {
        let mut asked = BTreeSet::new();
        for name in ["must_be_allowed", "must_be_allowed_all"] {
            // The second function passes its words to the first, one by one.
            let is_own = |at: usize| self.around(at).iter().any(|function| function.name == "must_be_allowed_all");
            for call in self.calls(name).filter(|at| is_within(*at, spans) && !is_own(*at)) {
                let parts = self.parts(call + 1);
                for words in self.values(parts[0]) {
                    let keys = self.values(parts[1]);
                    asked.extend(
                        words.split(' ').flat_map(|word| keys.iter().map(|key| (word.to_owned(), key.clone()))),
                    );
                }
            }
        }
        asked
    }
}
