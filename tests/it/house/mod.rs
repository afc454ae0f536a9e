//! Rules of the project that a machine can check: script headers, layering, and docs that match the code.

mod commands;
mod lua_text;
mod lua_values;
mod rooms;
mod sentences;
mod words;

use heartline::_internals::scripts;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of code of a script: after its header, without comments and empty lines.
const SCRIPT_LINES: usize = 80;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below `dir` with this ending, as paths from the root.
fn files(dir: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let path = path.strip_prefix(root()).unwrap().to_str().unwrap();
                found.push(path.replace('\\', "/"));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{ending} in {dir}");
    found
}

/// The file of a script. A variant has its own header, and the text of the script of which it is one.
fn file_of(name: &str) -> String {
    let base = if name == "settle_keyed" { read("lua/settle.lua") } else { String::new() };
    read(&format!("lua/{name}.lua")) + &base
}

/// The header of a script and what follows it.
fn header(name: &str) -> (Vec<String>, Vec<String>) {
    let text = file_of(name);
    let lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
    let end = lines.iter().position(|line| !line.starts_with("--")).unwrap();
    (lines[..end].to_vec(), lines[end..].to_vec())
}

/// The lines `-- WORD[n]  name  (type)  use` of a header: n, name, type, use.
fn entries(header: &[String], word: &str) -> Vec<(usize, String, String, String)> {
    let start = format!("-- {word}[");
    let mut found = Vec::new();
    for line in header.iter().filter_map(|line| line.strip_prefix(&start)) {
        let (number, rest) = line.split_once(']').unwrap_or_else(|| panic!("{line}"));
        let (name, rest) = rest.trim().split_once(" (").unwrap_or_else(|| panic!("no type or unit in {line}"));
        let (kind, usage) = rest.split_once(')').unwrap_or((rest, ""));
        found.push((number.parse().unwrap(), name.trim().to_owned(), kind.to_owned(), usage.trim().to_owned()));
    }
    // A variant names its own keys first.
    found.sort_by_key(|(number, ..)| *number);
    found
}

/// Every number in `WORD[n]` in the lines.
fn indexes(lines: &[String], word: &str) -> BTreeSet<usize> {
    let start = format!("{word}[");
    let text = lines.join("\n");
    let pieces = text.split(&start).skip(1);
    pieces.filter_map(|rest| rest.split(']').next()?.parse().ok()).collect()
}

/// The code of a source file: without its tests, which end it, and without comments.
fn code(path: &str) -> Vec<(usize, String)> {
    let text = read(path);
    let mut code = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line == "#[cfg(test)]" {
            // Nothing may follow the tests, because it would not be read. The table of transitions is for tests alone.
            let mut rest = text.lines().skip(number + 2).skip_while(|line| *line != "}").skip(1);
            let is_all = rest.all(|line| line.is_empty());
            assert!(is_all || path == "src/job/state.rs", "{path} continues after its tests");
            break;
        }
        if !line.trim_start().starts_with("//") {
            code.push((number + 1, line.to_owned()));
        }
    }
    code
}

#[test]
fn every_script_file_is_in_the_table_and_vice_versa() {
    let files =
        fs::read_dir(root().join("lua")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.filter_map(|name| name.strip_suffix(".lua").map(str::to_owned)).collect();
    let table: BTreeSet<String> = scripts().iter().map(|script| script.name.to_owned()).collect();
    assert_eq!(files, table);
}

/// The keys of the store, and the type of each.
fn known_keys() -> BTreeMap<String, String> {
    let text = code("src/backend/keys.rs").into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n");
    let (_, rows) = text.split_once("\nkeys! {\n").unwrap();
    let (rows, _) = rows.split_once("\n}\n").unwrap();
    let rows = rows.split([',', ';']).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let known: BTreeMap<_, _> = rows.map(|row| (row[2].trim_matches('"').to_owned(), row[1].to_owned())).collect();
    assert!(known.len() > 50, "{known:?}");
    known
}

#[test]
fn every_header_names_keys_of_the_store_with_their_types() {
    let known = known_keys();
    for script in scripts() {
        let (header, body) = header(script.name);
        let keys = entries(&header, "KEYS");
        let numbers = keys.iter().map(|key| key.0).collect::<Vec<_>>();
        let count = script.keys.len();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "{}: its calls pass {count} keys", script.name);
        for ((number, name, kind, usage), key) in keys.iter().zip(&script.keys) {
            // Each of these scripts is called on one of several keys.
            let own = match script.name {
                "trim" | "jobs" | "scan" | "flow_trim" | "flow_list" => Some("place"),
                "history" => Some("stream"),
                "enlist" => Some("seen"),
                "take_name" => Some("name"),
                "flow_turn" => Some("workflows"),
                _ => None,
            };
            let expected = own.filter(|_| *number == 1).unwrap_or(key);
            assert_eq!(name, expected, "{} KEYS[{number}]", script.name);
            assert_eq!(known.get(*key), Some(kind), "{} KEYS[{number}]", script.name);
            assert!(!usage.is_empty(), "{} does not say what {name} is for", script.name);
        }
        assert!(!body.join("\n").contains("KEYS"), "{} does not call its keys by their names", script.name);
    }
}

#[test]
fn a_script_is_its_fragments_the_names_of_its_keys_and_its_file() {
    let in_lua = BTreeMap::from([
        ("wait:high", "wait_high"),
        ("wait:low", "wait_low"),
        ("stalledCount", "stalled_count"),
        ("maxCount", "max_count"),
        ("dispatchedAt", "dispatched_at"),
        ("enqueuedAt", "enqueued_at"),
        ("expiresAt", "expires_at"),
        ("error", "errors"),
        ("uniqueOf", "unique_of"),
        ("laneOf", "lane_of"),
        ("laneHeld", "lane_held"),
        ("laneStarts", "lane_starts"),
        ("laneOwn", "lane_own"),
        ("schedules:rule", "schedules_rule"),
        ("schedules:input", "schedules_input"),
        ("schedules:paused", "schedules_paused"),
        ("schedules:ledger", "schedules_ledger"),
        ("schedules:ticks", "schedules_ticks"),
        ("schedules:pending", "schedules_pending"),
        ("schedules:keepers", "schedules_keepers"),
        ("schedules:named", "schedules_named"),
        ("schedules:gone", "schedules_gone"),
        ("schedules:differ", "schedules_differ"),
    ]);
    let mut used = BTreeSet::new();
    for script in scripts() {
        let (header, _) = header(script.name);
        let lines = header.iter().filter_map(|line| line.strip_prefix("-- Uses     "));
        let variant = header.iter().find_map(|line| line.strip_prefix("-- Replaces ")?.split_once(" by "));
        let replaced = |name| match variant {
            Some((old, new)) if old == name => new,
            _ => name,
        };
        let uses: Vec<&str> =
            lines.flat_map(|line| line.split(' ')).flat_map(|name| replaced(name).split(' ')).collect();
        let fragments: String = uses.iter().map(|name| read(&format!("lua/lib/{name}.lua"))).collect();
        let keys = entries(&header, "KEYS");
        let mut names: Vec<&str> =
            keys.iter().map(|(_, name, ..)| *in_lua.get(name.as_str()).unwrap_or(&name.as_str())).collect();
        // A variant has no names for its own keys, which come first in its header.
        let own = header.iter().filter(|line| line.starts_with("-- KEYS[") && variant.is_some());
        names.truncate(names.len() - own.take_while(|line| !line.starts_with("-- KEYS[1]")).count());
        // A line in the script, or in a fragment, is replaced by the fragments that it names.
        let mut joined = |text: &str| -> String {
            let lines = text.split_inclusive('\n').map(|line| {
                let Some(names) = line.trim_start().strip_prefix("-- Uses here ") else { return line.to_owned() };
                let here: Vec<&str> = names.split_whitespace().collect();
                assert!(here.iter().all(|name| !uses.contains(name)), "{} uses {line} twice", script.name);
                assert!(!here.contains(&"wake"), "in a cluster, another fragment replaces it only in the header");
                used.extend(here.iter().map(|name| format!("lua/lib/{name}.lua")));
                let texts: String = here.iter().map(|name| read(&format!("lua/lib/{name}.lua"))).collect();
                assert!(!texts.contains("-- Uses here "), "{line}: only the header may name such a fragment");
                texts
            });
            lines.collect()
        };
        let (fragments, file) = (joined(&fragments), joined(&file_of(script.name)));
        let fields: Vec<String> = names.iter().map(|name| format!("{name} = {name}")).collect();
        let table = format!("local keys = {{ {} }}\n", fields.join(", "));
        let takes_all = ["book", "faults", "gone", "named", "resolve", "tick_jobs"];
        let takes_all = uses.iter().any(|name| takes_all.contains(name));
        let table = if takes_all { table } else { String::new() };
        let expected = format!("{fragments}local {} = unpack(KEYS)\n{table}{file}", names.join(", "));
        let (_, source) = script.source.split_once('\n').unwrap();
        assert!(source == expected, "{} is not joined from what its header names", script.name);
        used.extend(uses.iter().map(|name| format!("lua/lib/{name}.lua")));
    }
    // In a cluster it replaces `wake`.
    used.insert("lua/lib/wake_heard.lua".to_owned());
    assert_eq!(used, files("lua/lib", "lua").into_iter().collect());
}

#[test]
fn every_argument_is_documented() {
    for script in scripts() {
        let (header, body) = header(script.name);
        let arguments = entries(&header, "ARGV");
        let numbers = arguments.iter().map(|argument| argument.0).collect::<Vec<_>>();
        assert_eq!(numbers, (1..=arguments.len()).collect::<Vec<_>>(), "{}", script.name);
        let used = indexes(&body, "ARGV");
        assert!(used.iter().all(|number| numbers.contains(number)), "{} uses {used:?} of {numbers:?}", script.name);
    }
}

#[test]
fn every_header_states_purpose_reply_events_and_refusals() {
    for script in scripts() {
        let (header, _) = header(script.name);
        let first = header[0].trim_start_matches("-- ");
        assert!(first.starts_with(|c: char| c.is_ascii_uppercase()) && first.contains(' '), "{}: {first}", script.name);
        for word in ["-- Returns  ", "-- Emits    ", "-- Refuses  "] {
            let line = header.iter().find(|line| line.starts_with(word));
            assert!(line.is_some_and(|line| line.len() > word.len()), "{} has no line {word:?}", script.name);
        }
    }
}

#[test]
fn a_header_names_exactly_the_events_that_its_script_emits() {
    // These words describe events and are not events.
    let context = ["ran", "reason", "since", "by", "why", "watched"];
    let mut seen = BTreeSet::new();
    for script in scripts() {
        let (header, body) = header(script.name);
        let at = header.iter().position(|line| line.starts_with("-- Emits    ")).unwrap();
        let more = header[at + 1..].iter().take_while(|line| line.starts_with("--   "));
        let parts: Vec<&str> = header[at..=at].iter().chain(more).map(|line| line[2..].trim()).collect();
        let emits = parts.join(" ");
        let emits = emits.trim_start_matches("Emits").trim();
        let mut emitted = BTreeSet::new();
        for line in script.source.lines().filter(|line| !line.trim_start().starts_with("--")) {
            for start in ["add_words(fields, '", "join_words(fields, '", "{ '"] {
                // The last case: an event that is written directly.
                let is_written_out = start != "{ '" || line.contains("emit_event(") || line.contains("append_entry(");
                let names = line.split(start).skip(1).filter_map(|piece| piece.split('\'').next());
                emitted.extend(names.filter(|_| is_written_out).map(str::to_owned));
            }
            // These functions take the name after other arguments.
            for call in ["put_off(", "add_finished("] {
                let called = line.split_once(call).and_then(|(_, args)| args.split('\'').nth(1));
                emitted.extend(called.map(str::to_owned));
            }
        }
        // Events of workflow instances are collected and written at the end.
        for line in body.iter().filter(|_| script.source.contains("write_and_report(")) {
            let told = line.split_once("tell(keys, ").and_then(|(_, words)| words.split_once(", flow"));
            emitted.extend(told.iter().flat_map(|(kind, _)| kind.split('\'').skip(1).step_by(2)).map(str::to_owned));
            emitted
                .extend(["end_or_keep", "give_up("].iter().any(|call| line.contains(call)).then(|| "ended".to_owned()));
            let ends_nodes = line.contains("end_or_keep_all(");
            emitted.extend(["node", "paused"].iter().filter(|_| ends_nodes).map(|name| (*name).to_owned()));
        }
        emitted.retain(|name| !context.contains(&name.as_str()));
        let others = ["", "nothing", "into", "and", "behind", "it", "events", "stalls"];
        let words: BTreeSet<String> = emits
            .split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .filter(|word| !others.contains(word))
            .map(str::to_owned)
            .collect();
        assert_eq!(emitted, words, "{}: {emits}", script.name);
        assert_eq!(emitted.is_empty(), emits == "nothing", "{}: {emits}", script.name);
        seen.extend(emitted);
    }
    assert!(seen.len() >= 11, "{seen:?}");
}

#[test]
fn each_deliberate_fault_replaces_one_piece_of_the_code() {
    #[derive(serde::Deserialize)]
    struct Fault {
        name: String,
        /// Of a fault in Rust.
        file: Option<String>,
        old: String,
    }
    let faults = |list: &str| -> Vec<Fault> { serde_json::from_str(&read(&format!("tests/mutants/{list}"))).unwrap() };
    let lua: String = files("lua", "lua").iter().map(|path| read(path)).collect();
    for Fault { name, file, old } in faults("lua.json").into_iter().chain(faults("rust.json")) {
        let code = file.map_or_else(|| lua.clone(), |file| read(&file));
        assert_eq!(code.matches(&old).count(), 1, "{name}: {old}");
    }
    // What `scripts/mutants` itself replaces: a line with the file, then one with the piece.
    let script = read("scripts/mutants");
    let quoted = |line: &'_ str| Some(line.trim().strip_prefix('"')?.strip_suffix("\",")?.to_owned());
    let lines: Vec<Option<String>> = script.lines().map(quoted).collect();
    let mut pieces = 0;
    for pair in lines.windows(2) {
        if let [Some(file), Some(old)] = pair
            && file.starts_with("src/")
        {
            assert_eq!(read(file).matches(old).count(), 1, "scripts/mutants: {old}");
            pieces += 1;
        }
    }
    assert_eq!(pieces, 2);
}

#[test]
fn scripts_are_short_enough_to_be_read() {
    for script in scripts() {
        let (_, mut body) = header(script.name);
        body.retain(|line| !line.trim().is_empty() && !line.trim().starts_with("--"));
        assert!(body.len() <= SCRIPT_LINES, "{} has {} lines of code", script.name, body.len());
    }
}

/// The code of a Lua file, without comments.
fn lua(path: &str) -> Vec<(usize, String)> {
    let text = read(path);
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.to_owned()));
    lines.filter(|(_, line)| !line.trim_start().starts_with("--")).collect()
}

#[test]
fn scripts_define_no_globals_and_build_no_keys() {
    for path in files("lua", "lua") {
        for (number, line) in lua(&path) {
            let is_local = !line.starts_with("function ")
                || line.starts_with("function lanes.")
                || line.starts_with("function costs.");
            assert!(is_local, "{path}:{number} defines a global");
            // The keys of other tasks, and of a variant, follow those with a name.
            let is_other = path == "lua/lib/flow_dispatch.lua" && line.contains("KEYS[count + at]")
                || path == "lua/lib/heads_of_lanes.lua" && line.contains(" KEYS[");
            let is_named = !line.replace("TASK_KEYS", "").contains("KEYS");
            assert!(is_named || is_other, "{path}:{number} does not call a key by its name");
            assert!(!line.contains(".. ':") || line.contains("worker"), "{path}:{number} builds a key");
        }
    }
}

#[test]
fn only_one_fragment_writes_a_terminal_state() {
    let mut writes = Vec::new();
    for path in files("lua", "lua") {
        for (_, line) in lua(&path) {
            for piece in line.split("call('ZADD', ").skip(1) {
                // With XX the command only changes the time of an existing member.
                if piece.split(", ").nth(1) == Some("'XX'") {
                    continue;
                }
                writes.push((path.clone(), piece.split([',', ')']).next().unwrap_or_default().to_owned()));
            }
        }
    }
    // Other members of the workflow keys, which one fragment writes too.
    writes.retain(|(path, place)| {
        let is_open = ["running", "paused", "outbox", "tasks", "workflows", "children", "deadlines"]
            .contains(&place.trim_start_matches("keys."));
        !(is_open && path.contains("flow"))
    });
    // These scripts write through a book.
    let mut ends = Vec::new();
    for path in files("lua", "lua") {
        for (_, line) in
            lua(&path).into_iter().filter(|(_, line)| line.contains(" put(") && !line.starts_with("local function"))
        {
            let place = line.split(" put(").nth(1).unwrap_or_default();
            if !["'running'", "'paused'", "'outbox'"].iter().any(|open| place.starts_with(open)) {
                ends.push((path.clone(), place.to_owned()));
            }
        }
    }
    assert!(ends.len() == 1 && ends[0].0 == "lua/lib/flow_step.lua" && ends[0].1.contains("'failed'"), "{ends:?}");
    // Due times, hooks, expiry, the wake marker, the lists of workers and tasks, names, and schedules are not places of
    // ended jobs. Nor are lanes.
    let known = ["delayed", "finalizing", "expires", "wake", "seen", "name"];
    let of_lanes = ["turns", "lanes.", "columns.lanes"];
    let is_known = |place: &str| {
        known.contains(&place)
            || place.trim_start_matches("keys.").starts_with("schedules")
            || of_lanes.iter().any(|start| place.starts_with(start))
    };
    let terminal = writes.iter().filter(|(_, place)| !is_known(place)).collect::<Vec<_>>();
    assert_eq!(terminal, [&("lua/lib/enter.lua".to_owned(), "set".to_owned())]);
    assert!(writes.len() > 4, "{writes:?}");
}

#[test]
fn lua_names_are_words() {
    for path in files("lua", "lua") {
        for (number, line) in lua(&path) {
            let code: String = line.split('\'').step_by(2).collect();
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let short = words.find(|word| word.len() == 1 && word.starts_with(|c: char| c.is_alphabetic()));
            assert_eq!(short, None, "{path}:{number}: {line}");
        }
    }
}

#[test]
fn a_bound_that_scripts_and_crate_share_has_one_source() {
    let limits = code("src/limits.rs").into_iter().map(|(_, line)| line).collect::<Vec<_>>();
    for script in scripts() {
        let line = script.source.lines().next().unwrap();
        let (names, values) = line.strip_prefix("local ").unwrap().split_once(" = ").unwrap();
        for (name, value) in names.split(", ").zip(values.split(", ")) {
            let start = format!("pub(crate) const {name}: ");
            let own = limits.iter().find_map(|line| line.strip_prefix(&start)).unwrap();
            let own = own.split_once(" = ").unwrap().1.trim_end_matches(';');
            let product: u64 = own.split(" * ").map(|factor| factor.parse::<u64>().unwrap()).product();
            assert_eq!(product.to_string(), value, "{name} in {}", script.name);
        }
    }
    // The byte bound of a batch and that of a short error, which scripts may use only by name.
    for path in files("lua", "lua") {
        for (number, line) in lua(&path) {
            let has = ["524288", "160"].iter().any(|bound| line.contains(bound));
            assert!(!has, "{path}:{number} has a bound of its own: {line}");
        }
    }
    for path in files("src", "rs").iter().filter(|path| *path != "src/limits.rs") {
        for (number, line) in code(path) {
            assert!(!line.contains("512 * 1024"), "{path}:{number} has a bound of its own");
        }
    }
}

#[test]
fn only_the_store_names_the_client() {
    let mut found = Vec::new();
    for path in files("src", "rs") {
        // The simulation passes connections of its own.
        if path.starts_with("src/backend/") || path == "src/internals/schedules.rs" {
            continue;
        }
        for (number, line) in code(&path) {
            if ["redis::", "EVALSHA"].iter().any(|word| line.contains(word)) {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_one_file_builds_keys() {
    for path in files("src", "rs") {
        for (number, line) in code(&path) {
            let builds = line.contains(":{{") || line.contains("}}:");
            assert!(!builds || path == "src/backend/keys.rs", "{path}:{number}: {}", line.trim());
        }
    }
}

#[test]
fn no_unwrap_and_no_expect_in_the_crate() {
    let mut found = Vec::new();
    for path in files("src", "rs") {
        for (number, line) in code(&path) {
            if [".unwrap()", ".expect(", "panic!(", "unreachable!(", "todo!("].iter().any(|word| line.contains(word)) {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The rows of the transition table in the source: from, to, by; `-` for none.
fn transitions() -> BTreeSet<(String, String, String)> {
    let text = read("src/job/state.rs");
    let (_, table) = text.split_once("TRANSITIONS: &[Transition] = &[").unwrap();
    let (table, _) = table.split_once("];").unwrap();
    let mut rows = BTreeSet::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        let (kind, rest) = line.trim_end_matches([',', ')']).split_once('(').unwrap();
        let words = rest.split(", ").map(|word| word.trim_matches('"').trim_start_matches("JobState::").to_lowercase());
        let words = words.collect::<Vec<_>>();
        let none = "-".to_owned();
        let row = match (kind, words.as_slice()) {
            ("created", [to, by]) => (none, to.clone(), by.clone()),
            ("change", [from, to, by]) => (from.clone(), to.clone(), by.clone()),
            ("removed", [from, by]) => (from.clone(), none, by.clone()),
            _ => panic!("unknown row: {line}"),
        };
        assert!(rows.insert(row), "twice: {line}");
    }
    assert!(rows.len() > 10, "{rows:?}");
    rows
}

#[test]
fn the_lifecycle_page_has_exactly_the_transitions_of_the_code() {
    let page = read("docs/job-lifecycle.md");
    let mut lines = page.lines().skip_while(|line| {
        let cells = line.split('|').map(str::trim).collect::<Vec<_>>();
        cells.get(1..4) != Some(&["from", "to", "by"])
    });
    assert!(lines.next().is_some(), "docs/job-lifecycle.md has no table | from | to | by |");
    let mut rows = BTreeSet::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells = line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>();
        assert!(rows.insert((cells[1].clone(), cells[2].clone(), cells[3].clone())), "twice: {line}");
    }
    assert_eq!(rows, transitions());
}

#[test]
fn every_transition_is_made_by_a_script() {
    let names = scripts().iter().map(|script| script.name).collect::<BTreeSet<_>>();
    for (_, _, by) in transitions() {
        assert!(names.contains(by.as_str()), "{by}");
    }
}

#[test]
fn the_wire_format_names_every_script_and_every_key() {
    let page = read("docs/wire-format.md");
    for script in scripts() {
        let (_, replies) = page.split_once("\n## Scripts\n").unwrap();
        let replies = replies.split("\nLargest calls").next().unwrap();
        let mut cells = replies.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let name = format!("`{}`", script.name);
        assert!(cells.any(|cell| cell.contains(&name)), "docs/wire-format.md has no row of {}", script.name);
        for key in script.keys {
            assert!(page.contains(&format!("`{key}`")), "docs/wire-format.md does not name `{key}`");
        }
    }
}

#[test]
fn the_wire_format_names_the_first_word_of_every_reply() {
    let page = read("docs/wire-format.md");
    let mut words = BTreeSet::new();
    for path in files("lua", "lua") {
        for piece in read(&path).split("return { '").skip(1) {
            words.insert(piece.split('\'').next().unwrap().to_owned());
        }
    }
    assert!(words.len() > 15, "{words:?}");
    for word in words {
        assert!(page.contains(&format!("`{word}`")), "docs/wire-format.md does not name the reply `{word}`");
    }
}

#[test]
fn the_keys_of_the_scripts_are_those_of_the_store() {
    let known = known_keys();
    let all = scripts();
    let used: BTreeSet<&str> = all.iter().flat_map(|script| script.keys.iter().copied()).collect();
    assert_eq!(used, known.keys().map(String::as_str).collect());
}

#[test]
fn there_is_one_copy_of_the_client() {
    let lock = read("Cargo.lock");
    let mut versions = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            package.lines().find_map(|line| line.strip_prefix(&start)).map(|rest| rest.trim_end_matches('"').to_owned())
        };
        if field("name").as_deref() == Some("redis") {
            versions.push(field("version").unwrap());
        }
    }
    assert!(versions.len() == 1 && versions[0].starts_with("1."), "{versions:?}");
}

#[test]
fn every_script_has_a_file_of_tests() {
    for script in scripts() {
        let path = format!("tests/it/scripts/{}.rs", script.name);
        assert!(root().join(&path).is_file(), "no {path}");
        assert!(read("tests/it/scripts/mod.rs").contains(&format!("mod {};", script.name)), "{path} is not compiled");
    }
}

#[test]
fn names_of_tests_are_sentences() {
    for path in files("tests", "rs") {
        let text = read(&path);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim() != "#[test]" && !line.trim().starts_with("#[tokio::test") {
                continue;
            }
            let Some(name) =
                lines.by_ref().find_map(|line| line.trim().split_once("fn ").map(|(_, rest)| rest.to_owned()))
            else {
                break;
            };
            let name = name.split(['(', '<']).next().unwrap();
            // The program of the children of tests/it/crash.rs.
            if name == "worker_process" {
                continue;
            }
            assert!(name.matches('_').count() >= 2 && !name.starts_with("test_"), "{path}: {name} is not a sentence");
        }
    }
}

#[test]
fn every_link_of_a_page_leads_to_a_file() {
    let mut pages = vec!["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    let docs = files("docs", "md");
    pages.extend(docs.iter().map(String::as_str));
    for page in pages {
        let text = read(page);
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split("]: ").nth(1));
        for link in inline.chain(defined).filter(|link| !link.starts_with("http")) {
            let file = link.split('#').next().unwrap_or_default();
            let there = root().join(page).parent().is_some_and(|folder| folder.join(file).exists());
            assert!(there, "{page} links to {link}");
        }
    }
}

#[test]
fn every_picture_of_the_readme_is_in_the_repository() {
    // Addresses, since the registry shows the page without the files.
    let readme = read("README.md");
    let pictures = readme.split("https://raw.githubusercontent.com/heartline-rs/heartline/main/").skip(1);
    let pictures: Vec<&str> = pictures.filter_map(|rest| rest.split(['"', ')']).next()).collect();
    assert_eq!(
        pictures.len(),
        readme.matches("<source ").count() + readme.matches("<img ").count() + readme.matches("![").count()
    );
    for picture in pictures {
        assert!(root().join(picture).exists(), "{picture}");
    }
}

#[test]
fn every_page_of_the_guide_is_in_rustdoc_and_in_the_book() {
    let (module, book) = (read("src/guide.rs"), read("docs/guide/SUMMARY.md"));
    for page in files("docs/guide", "md").iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let name = page.trim_start_matches("docs/guide/").trim_end_matches(".md");
        assert!(module.contains(&format!("\"{name}\"")) || module.contains(&format!("guide/{name}.md")), "{page}");
        assert!(book.contains(&format!("({name}.md)")), "{page} is not in the book");
        // On docs.rs, a link leads to a page only if the module defines it.
        let text = read(page);
        let is_page = |link: &str| !link.starts_with("http") && link.contains(".md");
        let inline: Vec<&str> = text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        let inline: Vec<&&str> = inline.iter().filter(|link| is_page(link)).collect();
        assert!(inline.is_empty(), "{page}: define the links {inline:?}");
        let defined = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
        for (label, _) in defined.filter(|(_, link)| is_page(link)) {
            assert!(module.contains(&format!("\"[{label}]: ")), "{page}: src/guide.rs does not define [{label}]");
        }
    }
}

#[test]
fn the_service_of_the_guide_is_an_example_that_runs() {
    let page = read("docs/guide/first-service.md");
    for path in ["src/lib.rs", "src/bin/worker.rs", "src/bin/web.rs", "tests/exports.rs"] {
        let (_, rest) = page.split_once(&format!("This is `{path}`")).unwrap_or_else(|| panic!("no {path}"));
        let (_, code) = rest.split_once("```rust").and_then(|(_, rest)| rest.split_once('\n')).unwrap();
        let (code, _) = code.split_once("```").unwrap();
        assert!(code == read(&format!("examples/service/{path}")), "the guide has another text of {path}");
    }
}

/// The calls of the log macros in a source: level and text. `None` for a text that is composed elsewhere.
fn log_calls(path: &str) -> Vec<(&'static str, Option<String>)> {
    let text: String = code(path).into_iter().map(|(_, line)| line + "\n").collect();
    let mut calls = Vec::new();
    for (macro_name, level) in [("info", "INFO"), ("warn", "WARN"), ("error", "ERROR")] {
        for call in text.split(&format!("tracing::{macro_name}!(")).skip(1) {
            let call = call.split(");").next().unwrap();
            let line = call.rsplit('"').nth(1).unwrap_or_else(|| panic!("{path}: a log line without a text: {call}"));
            // A text that continues on the next line is known by its beginning.
            let line = line.split(['\\']).next().unwrap().trim();
            calls.push((level, (!line.contains('{')).then(|| line.to_owned())));
        }
    }
    calls
}

#[test]
fn the_guide_has_exactly_the_log_lines_of_the_code() {
    let page = read("docs/guide/production.md");
    let (_, table) = page.split_once("## Every log line").unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split(" | ").collect();
            let level = cells.first()?.strip_prefix("| ").filter(|level| *level != "level")?;
            Some((level, cells.get(1)?.trim_matches('`')))
        })
        .collect();
    let (mut all, mut calls) = (String::new(), Vec::new());
    for path in files("src", "rs") {
        all += &code(&path).into_iter().map(|(_, line)| line + "\n").collect::<String>();
        calls.extend(log_calls(&path).into_iter().map(|(level, line)| (path.clone(), level, line)));
    }
    assert!(calls.len() > 40 && rows.len() > 40, "{} calls, {} rows", calls.len(), rows.len());
    for (path, level, line) in calls.iter().filter_map(|(path, level, line)| Some((path, level, line.as_ref()?))) {
        let has = rows.iter().any(|(of, text)| of.contains(*level) && line.starts_with(text));
        assert!(has, "{path}: the guide has no row {level} {line:?}");
    }
    // These texts are composed, or too long for a line.
    let apart = [
        "a handler blocks the runtime",
        "every slot is held by a handler that waits for the result of another job",
        "heartbeats take over half of their period, so fewer jobs are claimed",
    ];
    for (level, text) in &rows {
        let in_call = |(_, of, line): &(String, &str, Option<String>)| {
            level.contains(of) && line.as_ref().is_some_and(|line| line.starts_with(text))
        };
        let is_apart = apart.contains(text) && all.contains(&format!("\"{text}"));
        assert!(is_apart || calls.iter().any(in_call), "no code says {level} {text:?}");
    }
}

/// The names in the right column of the tables of a page, `Type::name` and `Type::name(..)`, as written there.
fn named_options(page: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| there"));
    for cell in rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once(" | ")) {
        for words in cell.1.split('`').skip(1).step_by(2) {
            let path: String = words.chars().take_while(|c| c.is_ascii_alphanumeric() || "_:".contains(*c)).collect();
            if let Some((kind, name)) = path.split_once("::") {
                found.insert((kind.to_owned(), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn pages_for_newcomers_name_only_items_that_exist() {
    let code: Vec<String> = files("src", "rs").iter().map(|path| read(path)).collect();
    let is_there = |(kind, name): &(String, String)| {
        let is_its = |text: &&String| {
            ["struct", "enum", "trait"].iter().any(|word| text.contains(&format!("pub {word} {kind}")))
                || text.contains(&format!("impl {kind}"))
                || text.contains(&format!("> {kind}<"))
        };
        let items = [
            format!("fn {name}("),
            format!("fn {name}<"),
            format!("    {name},"),
            format!("    {name} {{"),
            format!("    {name}("),
        ];
        code.iter().filter(is_its).any(|text| items.iter().any(|item| text.contains(item)))
    };
    let named = named_options(&read("docs/guide/coming-from.md"));
    let missing: Vec<_> = named.iter().filter(|option| !is_there(option)).collect();
    assert!(missing.is_empty() && named.len() >= 30, "coming-from.md names {missing:?}, of {} names", named.len());
}

#[test]
fn files_that_pages_name_exist() {
    let code = [files("src", "rs"), files("lua", "lua"), files("tests", "rs"), files("examples", "rs")].concat();
    let mut named = 0;
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"].into_iter().map(str::to_owned).chain(files("docs", "md")) {
        for path in read(&page).split('`').filter(|word| word.ends_with(".rs") || word.ends_with(".lua")) {
            let is_it = |file: &String| file == path || file.ends_with(&format!("/{path}"));
            assert!(path.contains('*') || code.iter().any(is_it), "{page} names {path}");
            named += 1;
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn pages_for_newcomers_name_every_kind_of_option() {
    let pages = read("docs/guide/coming-from.md") + &read("docs/guide/production.md");
    for (path, kind) in [
        ("src/options/task.rs", "TaskOptions"),
        ("src/options/stall.rs", "StallOptions"),
        ("src/options/retry.rs", "RetryPolicy"),
        ("src/task/dispatch.rs", "Dispatch"),
    ] {
        let text = read(path);
        let (_, own) = text.split_once(&format!("pub struct {kind}")).unwrap();
        let own = own.split("#[cfg(test)]").next().unwrap();
        for (at, _) in own.match_indices("pub ") {
            let line = own[at..].lines().next().unwrap();
            let Some((_, rest)) = line.split_once("fn ") else { continue };
            let takes_self = rest.contains("(self") || rest.contains("(mut self");
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(!takes_self || pages.contains(&name), "the guide does not name {kind}::{name}");
        }
    }
}
