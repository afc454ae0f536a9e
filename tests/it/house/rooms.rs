//! Layering: the `use` lines of the crate go down, and never in a circle.

use super::{code, files};
use std::collections::{BTreeMap, BTreeSet};

/// The folders of the crate, lowest first. Those of one line do not use each other, except in the lowest line.
const ORDER: [&[&str]; 17] = [
    &[
        "escape",
        "unix_time",
        "timings",
        "latency",
        "log_buckets",
        "backoff",
        "clock",
        "codec",
        "limits",
        "join",
        "mutex",
        "plural",
        "config_error",
        "crc16",
        "enum_str",
        "worker_id",
        "credentials",
        "private_server",
    ],
    &["job"],
    &["stall"],
    &["error"],
    &["options"],
    &["schedule"],
    &["backend"],
    &["events"],
    &["runtime"],
    &["task", "keeper"],
    &["workflow"],
    &["inspect", "worker"],
    &["metrics"],
    &["app", "serve"],
    &["testing", "internals"],
    &["guide"],
    &["lib"],
];

/// The modules of the crate by path, and the modules that each uses.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let module = |path: &str| {
        let path = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        path.replace('/', "::")
    };
    let paths = files("src", "rs");
    let modules: BTreeSet<String> = paths.iter().map(|path| module(path)).collect();
    let mut arrows = BTreeMap::new();
    for path in &paths {
        let own = module(path);
        let mut names = names(path);
        // A folder's own file may name the modules below it without a `use`.
        let is_below = |word: &String| {
            word.split_once("::").is_some_and(|(first, _)| modules.contains(&format!("{own}::{first}")))
        };
        names.extend(words(path).into_iter().filter(is_below));
        let names: Vec<&str> = names.iter().map(|name| name.trim_end_matches("::self")).collect();
        let mut used: BTreeSet<String> = names.iter().filter_map(|name| target(name, &own, &modules)).collect();
        // A module that is imported as a whole: its items may be in a file below it.
        let aliases = names.iter().filter_map(|name| Some((name.rsplit("::").next()?, target(name, &own, &modules)?)));
        for (alias, module) in aliases.filter(|(alias, module)| module.ends_with(alias)).collect::<Vec<_>>() {
            let start = format!("{alias}::");
            let below = words(path).into_iter().filter_map(|word| Some(word.strip_prefix(&start)?.to_owned()));
            used.extend(below.filter_map(|rest| target(&format!("crate::{module}::{rest}"), &own, &modules)));
        }
        used.remove(&own);
        arrows.insert(own, used);
    }
    arrows
}

/// Every path that a file names: in its `use` lines, or beginning with `crate` or `super`.
fn names(path: &str) -> Vec<String> {
    let text: String = code(path).into_iter().map(|(_, line)| line + "\n").collect();
    let mut names = Vec::new();
    let starts = text.match_indices("use ").filter(|(at, _)| *at == 0 || text[..*at].ends_with(['\n', ' ']));
    for (at, _) in starts {
        let tree = text[at + 4..].split(';').next().unwrap_or_default();
        spread("", &tree.replace(char::is_whitespace, ""), &mut names);
    }
    names.extend(words(path).into_iter().filter(|word| word.starts_with("crate::") || word.starts_with("super::")));
    names
}

/// Every word of a file, with the paths that contain it.
fn words(path: &str) -> Vec<String> {
    let text: String = code(path).into_iter().map(|(_, line)| line + "\n").collect();
    text.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).map(str::to_owned).collect()
}

/// Every path of a tree like `a::{b, c::{d, e}}`.
fn spread(before: &str, tree: &str, names: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        names.push(format!("{before}{tree}"));
        return;
    };
    let (mut depth, mut start) = (0, 0);
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spread(&format!("{before}{head}"), &inner[start..at], names);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The module to which a path in the module `own` leads, if it is one of the crate.
fn target(name: &str, own: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut place: Vec<&str> = own.split("::").collect();
    let mut parts = name.split("::").peekable();
    match parts.peek().copied()? {
        "crate" => place.clear(),
        "self" => {}
        "super" => {
            while parts.peek() == Some(&"super") {
                parts.next();
                place.pop();
            }
        }
        // A module of the same file, or another crate.
        first => return modules.contains(&format!("{own}::{first}")).then(|| format!("{own}::{first}")),
    }
    place.extend(parts.filter(|part| !["crate", "self"].contains(part)));
    while !place.is_empty() {
        let path = place.join("::");
        if modules.contains(&path) {
            return Some(path);
        }
        place.pop();
    }
    Some("lib".to_owned())
}

fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

#[test]
fn no_folder_uses_one_above_it() {
    let floor = |module: &str| {
        let floor = ORDER.iter().position(|rooms| rooms.contains(&room(module)));
        floor.unwrap_or_else(|| panic!("{module} is in no folder of the list"))
    };
    let (arrows, mut up, mut count) = (arrows(), Vec::new(), 0);
    for (from, used) in &arrows {
        for to in used.iter().filter(|to| room(to) != room(from)) {
            count += 1;
            let beside = floor(to) == floor(from) && floor(to) > 0;
            if floor(to) > floor(from) || beside {
                up.push(format!("{from} uses {to}"));
            }
        }
    }
    assert!(count > 200, "only {count} uses were found: this test does not see them");
    assert!(up.is_empty(), "{}", up.join("\n"));
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let arrows = arrows();
    for start in arrows.keys() {
        let mut open: Vec<Vec<&str>> = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while let Some(way) = open.pop() {
            let last = way.last().copied().unwrap_or_default();
            for next in arrows.get(last).into_iter().flatten() {
                assert!(next != start, "a circle: {} → {start}", way.join(" → "));
                if seen.insert(next) {
                    open.push(way.iter().copied().chain([next.as_str()]).collect());
                }
            }
        }
    }
}

#[test]
fn no_two_types_share_a_name() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files("src", "rs") {
        for (_, line) in code(&path) {
            let declared = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
            let declared = declared.trim_start_matches("pub(in crate::worker) ").trim_start_matches("pub ");
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let Some(rest) = kinds.iter().find_map(|kind| declared.strip_prefix(kind)) else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            homes.entry(name).or_default().push(path.clone());
        }
    }
    assert!(homes.len() > 100, "{homes:?}");
    // Twice in one file means one for each operating system.
    let shared: Vec<_> = homes.iter().filter(|(_, paths)| paths.windows(2).any(|pair| pair[0] != pair[1])).collect();
    assert!(shared.is_empty(), "{shared:?}");
}
