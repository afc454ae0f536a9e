//! The commands that each script can run, by key, taken from its text. They are compared with the commands whose
//! rights it checks, and with the rules of docs/acl.md.

use super::lua_text::{Span, is_within};
use super::lua_values::{Lua, Words};
use super::read;
use heartline::_internals::scripts;
use std::collections::BTreeSet;

/// The commands whose rights `lua/rights.lua` checks, by key.
fn rights() -> BTreeSet<(String, String)> {
    let lua = Lua::of("rights");
    let mut asked = BTreeSet::new();
    for at in (0..lua.tokens.len()).filter(|at| lua.at(*at) == "keys" && lua.at(at + 1) == "=") {
        let keys = lua.values((at + 2, lua.closed(at + 2)));
        let calls = (at..).find(|at| lua.at(*at) == "calls" && lua.at(at + 1) == "=").unwrap();
        for part in lua.parts(calls + 2) {
            let command = lua.at(part.0 + 1).trim_matches('\'').to_owned();
            asked.extend(keys.iter().map(|key| (command.clone(), key.clone())));
        }
    }
    asked
}

/// The commands of a script, by key, except those whose refusal leaves nothing half-written.
fn needed(lua: &Lua, spans: &[Span]) -> BTreeSet<(String, String)> {
    let sites = lua.sites();
    let sites = sites.iter().filter(|site| !site.is_safe && is_within(site.at, spans));
    sites.flat_map(|site| site.keys.iter().map(|key| (site.command.clone(), key.clone()))).collect()
}

#[test]
fn a_worker_checks_its_right_to_each_command_of_its_calls() {
    let asked = rights();
    assert!(asked.len() > 100, "{asked:?}");
    for name in ["settle", "extend_locks", "note"] {
        let lua = Lua::of(name);
        let missing: Vec<_> = needed(&lua, &[(0, lua.tokens.len())]).difference(&asked).cloned().collect();
        assert!(missing.is_empty(), "lua/rights.lua does not check what {name} runs: {missing:?}");
    }
}

#[test]
fn a_script_that_moves_jobs_checks_rights_before_it_writes() {
    let mut missing = Vec::new();
    for name in ["sweep", "reconcile", "expire", "trim", "cancel", "retry", "run_now", "remove", "mend"] {
        let lua = Lua::of(name);
        let body = lua.tokens.windows(3).position(|some| some == ["unpack", "(", "KEYS"]).unwrap();
        let asks = |at: &usize| lua.at(*at).starts_with("must_be_allowed") || lua.at(*at) == "resolve";
        let from = (body..lua.tokens.len()).find(asks).unwrap_or_else(|| panic!("{name} checks nothing"));
        let of_script = needed(&lua, &lua.reached_from(from))
            .difference(&lua.asked(&lua.reached_from(body)))
            .cloned()
            .collect::<Vec<_>>();
        missing.extend(of_script.into_iter().map(|(command, key)| format!("{name}: {command} {key}")));
    }
    assert!(missing.is_empty(), "scripts run commands whose rights they did not check: {missing:#?}");
}

#[test]
fn the_rules_of_each_role_allow_each_command_of_its_scripts() {
    let page = read("docs/acl.md");
    let all: Vec<&str> = scripts().iter().map(|script| script.name).collect();
    for (role, names) in [
        ("jobs", &all[..]),
        ("producer", &["dispatch", "cancel", "states", "inspect", "counts", "flow_start", "flow_control"]),
        ("producer", &["dispatch_unique"]),
        ("worker", &["settle", "extend_locks", "note", "sweep", "reconcile", "expire", "trim", "declare", "close"]),
        ("worker", &["series_add", "settle_keyed", "trim_lanes", "trim_unique"]),
        (
            "operator",
            &["cancel", "retry", "run_now", "remove", "mend", "pause", "resume", "quiet", "sweep", "reconcile"],
        ),
    ] {
        let (_, rule) = page.split_once(&format!("ACL SETUSER {role} on >secret ")).unwrap();
        let (rule, _) = rule.split_once("```").unwrap();
        let allowed: Words =
            rule.split_whitespace().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect();
        for name in names {
            let commands: Words = Lua::of(name).sites().into_iter().map(|site| site.command.to_lowercase()).collect();
            let missing: Vec<_> = commands.difference(&allowed).collect();
            assert!(missing.is_empty(), "the rule of {role} lacks what {name} runs: {missing:?}");
        }
    }
}
