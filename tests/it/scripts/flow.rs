//! Workflows built without the library: graphs with their records, as a start writes them, and the invariants of every
//! instance.

use crate::scripts::call::{Task, assert_keys, assert_rest, without};
use crate::support::rounds;
use std::collections::BTreeMap;

/// A graph. Its nodes are jobs of the task `t` or, with the flag `g`, graphs.
pub struct Graph {
    pub digest: &'static str,
    pub policy: &'static str,
    pub output: &'static str,
    states: Vec<String>,
    heads: Vec<String>,
    dependents: Vec<Vec<usize>>,
}

/// A graph of these nodes: `p 0 0, - -, 1 2; p 1 1, - 0`. Each has its first state, `<flags> <node whose value is its
/// input, or ->`, and perhaps the nodes that wait for it.
pub fn graph(policy: &'static str, output: &'static str, nodes: &str) -> Graph {
    let (mut states, mut heads, mut dependents) = (Vec::new(), Vec::new(), Vec::new());
    for node in nodes.split("; ") {
        let mut parts = node.split(", ");
        states.push(parts.next().unwrap().to_owned());
        heads.push(parts.next().unwrap().to_owned());
        let waiting = parts.next().into_iter().flat_map(|waiting| waiting.split(' '));
        dependents.push(waiting.map(|node| node.parse().unwrap()).collect());
    }
    Graph { digest: "d", policy, output, states, heads, dependents }
}

/// Three nodes in a row, each with the value of the one before; the last one is the output.
pub fn line() -> Graph {
    graph("finish", "2", "p 0 0, - -, 1; p 1 1, - 0, 2; p 1 1, - 1")
}

/// This many independent nodes.
pub fn loose(count: usize) -> Graph {
    graph("finish", "-", &vec!["p 0 0, - -"; count].join("; "))
}

/// The numbers from 1 to this one.
pub fn numbers(last: usize) -> String {
    (1..=last).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// A node with this many dependents.
pub fn fan(count: usize) -> Graph {
    graph("finish", "-", &format!("p 0 0, - -, {}{}", numbers(count), "; p 1 1, - -".repeat(count)))
}

/// This many nodes in a row, each with its own input.
pub fn long_line(count: usize) -> Graph {
    let middle: String = (2..count).map(|next| format!("; p 1 1, - -, {next}")).collect();
    graph("finish", "-", &format!("p 0 0, - -, 1{middle}; p 1 1, - -"))
}

impl Graph {
    pub fn of(policy: &'static str, states: Vec<String>, heads: Vec<String>, dependents: Vec<Vec<usize>>) -> Graph {
        Graph { digest: "d", policy, output: "-", states, heads, dependents }
    }

    /// The same under another digest than `d`.
    pub fn named(self, digest: &'static str) -> Graph {
        Graph { digest, ..self }
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn records(&self) -> Vec<(String, String)> {
        let digest = self.digest;
        let mut records = vec![(digest.to_owned(), "{}".to_owned())];
        records.push((format!("{digest}@"), format!("{} {} {}", self.states.len(), self.policy, self.output)));
        for (index, (head, dependents)) in self.heads.iter().zip(&self.dependents).enumerate() {
            let words = |page: &[usize]| page.iter().map(|node| format!(" {node}")).collect::<String>();
            let mut pages = dependents.chunks(500);
            let first = words(pages.next().unwrap_or_default());
            let task = if self.is_graph(index) { "@" } else { "t" };
            records.push((format!("{digest}/{index}"), format!("{head} {task}\n\n{}{first}", dependents.len())));
            for (page, nodes) in pages.enumerate() {
                records.push((format!("{digest}/{index}/{}", page + 1), words(nodes)));
            }
        }
        records
    }

    fn is_graph(&self, node: usize) -> bool {
        self.heads[node].split(' ').next().unwrap().contains('g')
    }

    /// How the node begins: open if it waits for nothing.
    pub fn first_state(&self, node: usize) -> String {
        let open = if self.is_graph(node) { "g" } else { "o" };
        if self.states[node] == "p 0 0" { open.to_owned() } else { self.states[node].clone() }
    }

    /// Arguments of a retry: what did not complete by these states, and how it waits in a new run.
    fn again(&self, states: &[&str]) -> String {
        let mut words = String::new();
        for (node, first) in self.states.iter().enumerate().filter(|(node, _)| states[*node] != "c") {
            let completed = (0..states.len()).filter(|by| states[*by] == "c" && self.dependents[*by].contains(&node));
            let (completed, mut numbers) = (completed.count(), first.split(' '));
            let kind = numbers.next().unwrap();
            let [need, left] = [numbers.next(), numbers.next()].map(|number| number.unwrap().parse::<usize>().unwrap());
            words += &format!("|{node}|{kind} {} {}", need.saturating_sub(completed), left - completed);
        }
        let live = states.iter().filter(|state| **state != "c").count();
        format!("|{live}{words}")
    }

    /// The payload of each node that has its own: `in-<number>`.
    pub fn inputs(&self) -> Vec<(usize, String)> {
        let own = self.heads.iter().enumerate().filter(|(_, head)| head.ends_with('-'));
        own.map(|(index, _)| (index, format!("in-{index}"))).collect()
    }

    /// The arguments of a start, with or without the records.
    pub fn start(&self, id: &str, with_records: bool) -> Vec<String> {
        let records = if with_records { self.records() } else { Vec::new() };
        let mut args = vec![id.to_owned(), self.digest.to_owned(), self.states.len().to_string(), "-".to_owned()];
        args.extend([&records.len().to_string(), "0", "0", "t", ""].map(str::to_owned));
        args.extend((0..self.states.len()).map(|node| self.first_state(node)));
        args.extend(records.into_iter().flat_map(|(field, record)| [field, record]));
        args.extend(self.inputs().into_iter().flat_map(|(node, input)| [node.to_string(), input]));
        args
    }

    /// The arguments of the parts of a start, each of at most this many pairs, and of the final call. The first part
    /// has only states; if the shape is known, its records are left out.
    pub fn parts(&self, id: &str, nonce: &str, size: usize, is_known: bool) -> (Vec<Vec<String>>, Vec<String>) {
        let states = self.states.iter().enumerate();
        let mut pairs: Vec<(usize, String, String)> =
            states.map(|(node, state)| (0, node.to_string(), state.clone())).collect();
        let mut records = self.records();
        // The start brings the last part.
        let all = records.remove(1);
        pairs.extend(records.into_iter().filter(|_| !is_known).map(|(field, record)| (1, field, record)));
        pairs.extend(self.inputs().into_iter().map(|(node, input)| (2, node.to_string(), input)));
        let (first, rest) = pairs.split_at(self.len().min(size));
        let parts: Vec<_> = std::iter::once(first).chain(rest.chunks(size)).collect();
        let count = self.len().to_string();
        let words = parts.iter().enumerate().map(|(number, pairs)| {
            let of = |kind| pairs.iter().filter(|pair| pair.0 == kind).count().to_string();
            let head = [id, nonce, &number.to_string(), self.digest, &count, &of(0), &of(1), "10000"];
            let words = pairs.iter().flat_map(|(_, field, value)| [field.clone(), value.clone()]);
            head.map(str::to_owned).into_iter().chain(words).collect()
        });
        let (staged, records) = (format!("{nonce} {}", parts.len()), if is_known { "0" } else { "1" });
        let mut last = [id, self.digest, &count, &staged, records, "0", "0", "t", ""].map(str::to_owned).to_vec();
        if !is_known {
            last.extend([all.0, all.1]);
        }
        (words.collect(), last)
    }
}

impl Task {
    /// A task with a running instance `a` of this graph, whose first nodes were already sent.
    pub async fn running_flow(graph: &Graph) -> Task {
        let mut task = Task::new().await;
        task.put(graph, "a").await;
        task
    }

    /// Starts an instance in parts of this many pairs, as a client does.
    pub async fn start_in_parts(&mut self, graph: &Graph, id: &str, nonce: &str, size: usize) -> String {
        let (parts, _) = graph.parts(id, nonce, size, false);
        let mut first = self.ok("flow_stage", &parts[0]).await;
        if first == "[left]" {
            self.clear_away(id).await;
            first = self.ok("flow_stage", &parts[0]).await;
        }
        let is_known = first == "[staged 1]";
        let (parts, last) = graph.parts(id, nonce, size, is_known);
        for part in &parts[1..] {
            assert!(self.ok("flow_stage", part).await.starts_with("[staged "), "{part:?}");
        }
        self.ok("flow_start", &last).await
    }

    pub async fn start(&mut self, graph: &Graph, id: &str) -> String {
        let reply = self.ok("flow_start", &graph.start(id, true)).await;
        if reply != "[left]" {
            return reply;
        }
        self.clear_away(id).await;
        self.ok("flow_start", &graph.start(id, true)).await
    }

    /// Removes what another start has written, whatever its age.
    async fn clear_away(&mut self, id: &str) {
        while self.ok("flow_unstage", &["-1", id]).await.ends_with(" 1]") {}
    }

    /// Writes an instance of any size whose first nodes were already sent.
    pub async fn put(&mut self, graph: &Graph, id: &str) {
        let states: Vec<(String, String)> =
            (0..graph.len()).map(|node| (format!("{id}/{node}"), graph.first_state(node))).collect();
        let open = states.iter().filter(|(_, state)| state == "o" || state == "g").count();
        let inputs = graph.inputs().into_iter().map(|(node, input)| (format!("{id}/{node}"), input)).collect();
        for (key, pairs) in [("nodes", states), ("shapes", graph.records()), ("input", inputs)] {
            for some in pairs.chunks(500) {
                let some: Vec<(&str, &str)> = some.iter().map(|(field, value)| (&**field, &**value)).collect();
                self.hset(key, &some).await;
            }
        }
        self.hset("instances", &[(id, &format!("1 0 {} {open} {} -", graph.len(), graph.digest))]).await;
        self.zadd("running", 5.0, id).await;
    }

    /// Ends an instance and removes it in any number of calls; returns what is left.
    pub async fn trim_whole(&mut self, id: &str) -> Vec<String> {
        self.write(&format!("no running.{id}, outbox; completed {id}=5")).await;
        for _ in 0..100 {
            if self.ok("flow_trim", "60000 - 5000").await.ends_with(" 0]") {
                return without(self.keys().await, &["meta", "tasks"]);
            }
        }
        panic!("{id} is never removed");
    }

    pub async fn head(&mut self, id: &str) -> String {
        let head = self.field("instances", id).await;
        // The time at which it began is left out, unless other fields follow it.
        let now = self.now_ms().await;
        let words: Vec<&str> = head.split(' ').collect();
        match words.get(6).and_then(|began| began.parse::<f64>().ok()) {
            Some(began) if (now - 30_000.0..=now).contains(&began) => {
                let more = words.get(7).map_or_else(String::new, |over| format!(" 0 {over}"));
                format!("{}{more}", words[..6].join(" "))
            }
            _ => head,
        }
    }

    /// The states of the nodes from the first to this one.
    pub async fn states(&mut self, id: &str, count: usize) -> String {
        let fields: Vec<String> = (0..count).map(|node| format!("{id}/{node}")).collect();
        let key = self.key("nodes");
        let states: Vec<String> = redis::cmd("HMGET").arg(key).arg(fields).query_async(&mut self.conn).await.unwrap();
        states.join(", ")
    }

    /// Each place that contains the instance.
    pub async fn place(&mut self, id: &str) -> String {
        let mut found = Vec::new();
        for place in ["running", "paused", "completed", "failed", "cancelled"] {
            let key = self.key(place);
            let score: Option<f64> = redis::cmd("ZSCORE").arg(key).arg(id).query_async(&mut self.conn).await.unwrap();
            found.extend(score.map(|_| place));
        }
        found.join(" and ")
    }
}

/// An instance that cannot be read must not hang: it ends like this.
pub const UNREADABLE: &str = r#"{"code":"corrupt","message":"the graph, or the state of a node, cannot be read"}"#;

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// Layers in which each node waits for some nodes of the layer before, or for all of them if dense.
fn random_graph(dice: &mut Dice) -> Graph {
    let is_dense = dice.one_in(4);
    let (layers, width) = if is_dense { (3, 40) } else { (1 + dice.below(5), 1 + dice.below(4)) };
    let count = layers * width;
    let (mut states, mut heads, mut dependents) = (Vec::new(), Vec::new(), vec![Vec::new(); count]);
    for node in 0..count {
        let before = (node / width).checked_sub(1).map_or(0..0, |layer| layer * width..(layer + 1) * width);
        let inputs: Vec<usize> = before.filter(|_| is_dense || dice.one_in(2)).collect();
        for input in &inputs {
            dependents[*input].push(node);
        }
        let count = inputs.len();
        states.push(match dice.below(4) {
            _ if count == 0 => "p 0 0".to_owned(),
            0 => format!("P {count} {count}"),
            1 => format!("p {} {count}", 1 + dice.below(count)),
            _ => format!("p {count} {count}"),
        });
        let source = inputs.first().filter(|_| dice.one_in(2)).map_or("-".to_owned(), usize::to_string);
        heads.push(format!("{} {source}", if dice.one_in(4) { "o" } else { "-" }));
    }
    let policy = if dice.one_in(3) { "cancel" } else { "finish" };
    Graph::of(policy, states, heads, dependents)
}

/// Checks the invariants of a running instance; returns its open nodes and its pending visits.
async fn check(task: &mut Task, count: usize, seed: u64) -> (Vec<usize>, Vec<String>) {
    let states = task.states("a", count).await;
    let states: Vec<&str> = states.split(", ").collect();
    let open: Vec<usize> = (0..count).filter(|node| states[*node].starts_with('o')).collect();
    let live = states.iter().filter(|state| state.starts_with(['p', 'P', 'o'])).count();
    let head = task.head("a").await;
    let words: Vec<&str> = head.split(' ').collect();
    assert_eq!((words[2], words[3]), (&*live.to_string(), &*open.len().to_string()), "seed {seed}: {head}");
    let key = task.key("outbox");
    let entries: Vec<String> = redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query_async(&mut task.conn).await.unwrap();
    let visits = entries.iter().filter_map(|entry| entry.strip_prefix("v ")).map(|mark| mark.replace('/', " "));
    let visits: Vec<String> = visits.collect();
    for entry in entries.iter().filter_map(|entry| entry.strip_prefix("s a/")) {
        let node = entry.split('/').next().unwrap().parse().unwrap();
        assert!(open.contains(&node), "seed {seed}: {entry} is to be sent but not open");
    }
    // An open node is either to be sent, or has a job.
    let run = words[0];
    let key = task.key("t:payload");
    let jobs: Vec<String> = redis::cmd("HKEYS").arg(key).query_async(&mut task.conn).await.unwrap();
    for node in &open {
        let (entry, job) = (format!("s a/{node}/{run}"), format!("~w/a/{node}/{run}"));
        assert!(entries.contains(&entry) || jobs.contains(&job), "seed {seed}: {node}: {entries:?} {jobs:?}");
    }
    let place = task.place("a").await;
    assert!(!place.is_empty() && !place.contains(" and "), "seed {seed}: its place is '{place}'");
    let is_to_be_opened = entries.contains(&format!("o a/{}", words[0]));
    let is_visited = visits.iter().any(|mark| mark.ends_with(&format!(" {}", words[0])));
    let goes_on = !open.is_empty() || is_visited || is_to_be_opened;
    assert!(place != "running" || goes_on, "seed {seed}: it hangs: {states:?} {head}");
    let has_ended = !["running", "paused"].contains(&place.as_str());
    assert!(!has_ended || open.is_empty(), "seed {seed}: it has ended with open nodes: {states:?}");
    (open, visits)
}

/// Calls `flow_retry` with the arguments of [`Graph::again`].
async fn retry(task: &mut Task, words: &str) -> String {
    task.ok("flow_retry", &words.split('|').collect::<Vec<_>>()).await
}

/// Repeats all calls of an instance `a` that has ended, which changes nothing.
async fn repeat_after_the_end(task: &mut Task, copies: Vec<(&str, String)>, seed: u64) {
    let before = task.exact().await;
    for (name, words) in copies {
        task.ok(name, &words).await;
    }
    // Late copies may remove old entries.
    let lasting =
        |keys: Vec<(String, String)>| keys.into_iter().filter(|(key, _)| !key.ends_with(":outbox")).collect::<Vec<_>>();
    assert_eq!(lasting(task.exact().await), lasting(before), "seed {seed}");
    // Only entries of earlier runs are left. They open and cancel nothing.
    let key = task.key("outbox");
    let left: Vec<String> = redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query_async(&mut task.conn).await.unwrap();
    let run = task.head("a").await.split(' ').next().unwrap().to_owned();
    assert!(left.iter().all(|entry| !entry.ends_with(&format!("/{run}"))), "seed {seed}: {left:?}");
}

#[tokio::test]
async fn late_calls_pauses_and_retries_keep_counters_and_never_hang() {
    for seed in 100..100 + rounds(40) as u64 {
        let mut dice = Dice(seed);
        let mut graph = random_graph(&mut dice);
        graph.policy = ["finish", "cancel", "pause"][dice.below(3)];
        let mut task = Task::new().await;
        task.start(&graph, "a").await;
        task.write("t:meta wire=1").await;
        let (mut copies, mut retries): (Vec<(&str, String)>, Vec<String>) = (Vec::new(), Vec::new());
        let mut completed: Vec<bool> = vec![false; graph.len()];
        let mut last = String::new();
        for _ in 0..20_000 {
            let (open, visits) = check(&mut task, graph.len(), seed).await;
            let (head, states) = (task.head("a").await, task.states("a", graph.len()).await);
            let (run, turn) = (head.split(' ').next().unwrap(), head.split(' ').nth(1).unwrap());
            let states: Vec<&str> = states.split(", ").collect();
            for (node, was) in completed.iter_mut().enumerate() {
                assert!(!*was || states[node] == "c", "seed {seed}: {node} is {} and had completed", states[node]);
                *was = states[node] == "c";
            }
            last = task.place("a").await;
            let has_ended = !["running", "paused"].contains(&last.as_str());
            if last == "completed" || has_ended && (run.parse::<u64>().unwrap() > 5 || dice.one_in(10)) {
                break;
            }
            let mut calls: Vec<(&str, String)> = Vec::new();
            if let Some(mark) = visits.first()
                && dice.one_in(2)
            {
                calls.push(("flow_visit", mark.clone()));
            }
            match dice.below(12) {
                0 if last == "running" => calls.push(("flow_pause", format!("a {turn} pause"))),
                1 | 2 if last == "paused" => calls.push(("flow_pause", format!("a {turn} resume"))),
                3 if last != "running" => retries.push(format!("a|{turn}{}", graph.again(&states))),
                4 if dice.one_in(12) => calls.push(("flow_control", "a why".to_owned())),
                5 if !open.is_empty() => {
                    let node = open[dice.below(open.len())];
                    calls.push(("flow_enter", format!("a {node} {run} a {node} 1 b {node} 1")));
                }
                6 if !open.is_empty() && dice.one_in(5) => {
                    calls.push(("flow_resend", format!("a {} {run}", open[dice.below(open.len())])));
                }
                7 | 8 => calls.push(("flow_open", format!("a {run}"))),
                _ => {
                    let ends = open.iter().filter(|_| dice.one_in(2)).collect::<Vec<_>>();
                    let ends = ends.iter().map(|node| {
                        let how = ["c", "c", "c", "c", "f", "x"][dice.below(6)];
                        format!("a {node} {run} {how} v{node} a {node} {run} f twice a {node} 99 c other-run")
                    });
                    calls.push(("flow_advance", ends.collect::<Vec<_>>().join(" ")));
                }
            }
            if let Some(copy) = copies.get(dice.below(copies.len().max(1))).cloned() {
                calls.push(copy);
            }
            for (name, words) in calls.into_iter().filter(|(_, words)| !words.is_empty()) {
                let has_target = ["flow_advance", "flow_visit"].contains(&name) && dice.one_in(2);
                if has_target {
                    task.ok_to(name, &words, 0).await
                } else {
                    task.ok(name, &words).await
                };
                copies.push((name, words));
            }
            // Also one that was computed some time ago.
            if !retries.is_empty() && dice.one_in(3) {
                let words = retries[retries.len() - 1 - dice.below(retries.len().min(3))].clone();
                retry(&mut task, &words).await;
            }
        }
        assert!(["completed", "failed", "cancelled"].contains(&last.as_str()), "seed {seed}: {last}");
        for mark in check(&mut task, graph.len(), seed).await.1 {
            task.ok("flow_visit", &mark).await;
        }
        task.ok("flow_look", "0 200").await;
        assert_keys!(task, "no stopping, cursor", "seed {seed}");
        repeat_after_the_end(&mut task, copies, seed).await;
    }
}

/// A graph of one to three nodes, the same for each instance. Graphs at the last level contain no graphs.
fn child_graph(id: &str) -> Graph {
    let kind = id.bytes().map(usize::from).sum::<usize>() % 5;
    match if id.matches('/').count() < 3 { kind } else { kind % 3 } {
        0 => graph("finish", "0", "p 0 0, - -").named("e0"),
        1 => graph("cancel", "1", "p 0 0, - -, 1; p 1 1, - 0").named("e1"),
        2 => graph("finish", "-", "p 0 0, o -, 2; p 0 0, - -, 2; P 2 2, - 0").named("e2"),
        3 => graph("finish", "1", "p 0 0, g -, 1; p 1 1, - 0").named("e3"),
        _ => graph("cancel", "0", "p 0 0, g -; p 0 0, og -; p 0 0, - -").named("e4"),
    }
}

/// The same with graphs among its nodes.
fn random_graph_of_graphs(dice: &mut Dice) -> Graph {
    let mut graph = random_graph(dice);
    while graph.len() > 20 {
        graph = random_graph(dice);
    }
    for head in &mut graph.heads {
        if dice.one_in(3) {
            *head = head.replacen("- ", "g ", 1).replacen("o ", "og ", 1);
        }
    }
    graph.policy = ["finish", "cancel", "pause"][dice.below(3)];
    graph
}

/// Everything that is written of the instances.
struct Seen {
    heads: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    stopping: BTreeMap<String, String>,
    outbox: Vec<String>,
    places: BTreeMap<String, String>,
}

impl Seen {
    async fn of(task: &mut Task) -> Seen {
        let places = ["running", "paused", "completed", "failed", "cancelled"];
        let mut all = redis::pipe();
        for key in ["instances", "nodes", "stopping"] {
            all.hgetall(task.key(key));
        }
        for key in ["outbox"].iter().chain(&places) {
            all.zrange(task.key(key), 0, -1);
        }
        type Hash = BTreeMap<String, String>;
        type Found = (Hash, Hash, Hash, Vec<String>, Vec<String>, Vec<String>, Vec<String>, Vec<String>, Vec<String>);
        let found: Found = all.query_async(&mut task.conn).await.unwrap();
        let (heads, nodes, stopping, outbox, running, paused, completed, failed, cancelled) = found;
        let mut stands = Hash::new();
        for (place, ids) in places.into_iter().zip([running, paused, completed, failed, cancelled]) {
            for id in ids {
                stands.entry(id).and_modify(|found| *found += &format!(" and {place}")).or_insert(place.to_owned());
            }
        }
        Seen { heads, nodes, stopping, outbox, places: stands }
    }

    /// Each place that contains the instance.
    fn place(&self, id: &str) -> &str {
        self.places.get(id).map_or("", String::as_str)
    }

    fn run_of(&self, id: &str) -> &str {
        self.heads[id].split(' ').next().unwrap()
    }

    /// The nodes of an instance, by number.
    fn of_instance<'a>(&'a self, id: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let named = self.nodes.iter().filter_map(|(name, state)| Some((name.rsplit_once('/')?, state.as_str())));
        named.filter(move |((of, _), _)| *of == id).map(|((_, node), state)| (node, state))
    }

    /// Open nodes of this kind, `o` or `g`, of all instances: instance, node, run.
    fn open(&self, kind: char) -> Vec<(String, String, String)> {
        let all = self.heads.keys().flat_map(|id| self.of_instance(id).map(move |(node, state)| (id, node, state)));
        all.filter(|(.., state)| state.starts_with(kind))
            .map(|(id, node, _)| (id.clone(), node.to_owned(), self.run_of(id).to_owned()))
            .collect()
    }
}

/// The instance, node and run whose child this instance is.
fn parent_of(id: &str) -> Option<(&str, &str, &str)> {
    let (parent, rest) = id.rsplit_once('/')?;
    let (node, run) = rest.split_once('.')?;
    Some((parent, node, run))
}

/// Checks the invariants of all instances. The outcomes of a run never change, and a node that is a graph ends as its
/// child did.
async fn check_all(task: &mut Task, ended: &mut BTreeMap<String, String>, seed: u64) -> Seen {
    let seen = Seen::of(task).await;
    for (id, head) in &seen.heads {
        let words: Vec<&str> = head.split(' ').collect();
        let live = seen.of_instance(id).filter(|(_, state)| state.starts_with(['p', 'P', 'o', 'g'])).count();
        let open = seen.of_instance(id).filter(|(_, state)| state.starts_with(['o', 'g'])).count();
        let told = (words[2].to_owned(), words[3].to_owned());
        assert_eq!(told, (live.to_string(), open.to_string()), "seed {seed}: {id} {head}");
        let place = seen.place(id);
        let is_pending = |kind: &str| {
            let entry = |entry: &&String| entry.starts_with(&format!("{kind} {id}/")) && entry.ends_with(words[0]);
            seen.outbox.iter().any(|found| entry(&found))
        };
        let goes_on = open > 0 || is_pending("v") || is_pending("o");
        assert!(place != "running" || goes_on, "seed {seed}: {id} hangs: {head}");
        let runs = ["running", "paused"].contains(&place);
        assert!(runs || open == 0, "seed {seed}: {id} has ended with open nodes: {head}");
        for (node, state) in seen.of_instance(id).filter(|(_, state)| !state.starts_with(['p', 'P', 'o'])) {
            let name = format!("{id}/{node}/{}", words[0]);
            if state.starts_with('g') {
                ended.insert(format!("g {name}"), String::new());
                continue;
            }
            let was = ended.entry(name.clone()).or_insert_with(|| state.to_owned());
            assert_eq!(was, state, "seed {seed}: {id}/{node} ended twice");
            if ended.contains_key(&format!("g {name}")) && state != "x" {
                let child = seen.heads.get(&format!("{id}/{node}.{}", words[0]));
                assert!(
                    child.is_some_and(|child| child.ends_with(state)),
                    "seed {seed}: {name} ended without its graph"
                );
            }
        }
        let Some((parent, node, run)) = parent_of(id) else {
            assert!(!place.is_empty() && !place.contains(" and "), "seed {seed}: the place of {id} is '{place}'");
            continue;
        };
        let state = &seen.nodes[&format!("{parent}/{node}")];
        if let Some(over) = words.get(7) {
            assert_eq!(place, "", "seed {seed}: {id} has ended");
            assert!(seen.run_of(parent) != run || state == over, "seed {seed}: {id} ended {over}, its node {state}");
        } else {
            assert_eq!(place, "running", "seed {seed}: {id}");
            assert!(
                seen.run_of(parent) == run && state.starts_with('g'),
                "seed {seed}: {id} still runs after its node has ended"
            );
        }
    }
    seen
}

/// The last words of a name with slashes. The first of them contains the rest of the name.
fn last_words(name: &str, count: usize) -> Vec<String> {
    let mut words: Vec<String> = name.rsplitn(count, '/').map(str::to_owned).collect();
    words.reverse();
    words
}

type Call = (&'static str, Vec<String>);

fn call(name: &'static str, words: &str) -> Call {
    (name, words.split(' ').map(|word| if word == "-" { String::new() } else { word.to_owned() }).collect())
}

/// Keeps each element with a chance of one in `bound`.
fn some_of<T>(dice: &mut Dice, all: Vec<T>, bound: usize) -> Vec<T> {
    all.into_iter().filter(|_| dice.one_in(bound)).collect()
}

/// A random next step: each is valid, and may come at any time.
fn next_calls(dice: &mut Dice, seen: &Seen, root: &Graph) -> Vec<Call> {
    let place = seen.place("a");
    let run = seen.run_of("a").to_owned();
    let turn = seen.heads["a"].split(' ').nth(1).unwrap();
    let (jobs, graphs) = (seen.open('o'), seen.open('g'));
    let mut calls: Vec<Call> = Vec::new();
    for entry in seen.outbox.iter().filter(|_| dice.one_in(3)) {
        match entry.split_once(' ').unwrap() {
            ("v", mark) => calls.push(("flow_visit", last_words(mark, 3))),
            ("o", mark) => calls.push(("flow_open", last_words(mark, 2))),
            _ => {}
        }
    }
    for (id, node, run) in some_of(dice, graphs, 3) {
        let child = format!("{id}/{node}.{run}");
        let graph = child_graph(&child);
        // Each graph is started in parts by every client, or by none.
        if child.len() % 3 == 0 {
            let (parts, last) = graph.parts(&child, &format!("n{}", dice.below(2)), 2, false);
            calls.extend(parts.into_iter().map(|part| ("flow_stage", part)));
            calls.push(("flow_start", last));
        } else {
            calls.push(("flow_start", graph.start(&child, true)));
        }
        if dice.one_in(40) {
            calls.push(("flow_control", vec![child.clone(), "why".to_owned()]));
        }
        if dice.one_in(10) {
            calls.push(call("flow_resend", &format!("{id} {node} {run}")));
        }
    }
    match dice.below(10) {
        0 if dice.one_in(12) => calls.push(call("flow_control", "a why")),
        1 if place == "running" => calls.push(call("flow_pause", &format!("a {turn} pause"))),
        2 | 3 if place == "paused" => calls.push(call("flow_pause", &format!("a {turn} resume"))),
        4 if place != "running" => {
            let states: Vec<&str> = (0..root.len()).map(|node| &*seen.nodes[&format!("a/{node}")]).collect();
            let words = format!("a|{turn}{}", root.again(&states));
            calls.push(("flow_retry", words.split('|').map(str::to_owned).collect()));
        }
        5 => calls.push(call("flow_look", "0 200")),
        6 => {
            let asked = some_of(dice, jobs, 2).into_iter().map(|(id, node, run)| format!("{id} {node} {run}"));
            calls.push(call("flow_enter", (asked.collect::<Vec<_>>().join(" ") + " a 0 9").trim_start()));
        }
        7 => calls.push(call("flow_open", &format!("a {run}"))),
        _ => {
            let mut args = Vec::new();
            for (id, node, run) in some_of(dice, jobs, 2) {
                let (how, said) = match dice.below(16) {
                    0 => ("f", "E".to_owned()),
                    1 => ("x", String::new()),
                    2..5 if id.matches('/').count() < 3 => ("c", "\u{1}4 keep{}".to_owned()),
                    _ => ("c", format!("v{node}")),
                };
                for (how, said) in [(how, said), ("f", "twice".to_owned())] {
                    args.extend([id.clone(), node.clone(), run.clone(), how.to_owned(), said]);
                }
            }
            calls.push(("flow_advance", args));
        }
    }
    calls
}

/// Carries out an `x` entry: jobs are cancelled or not, children too, and a missing one is reported as cancelled.
async fn cancel_open(task: &mut Task, dice: &mut Dice, seen: &Seen, copies: &mut Vec<Call>) {
    let stops = |id: &str| seen.stopping.contains_key(id);
    for (id, node, run) in seen.open('g').into_iter().filter(|(id, ..)| stops(id)) {
        let child = vec![format!("{id}/{node}.{run}"), "stopped".to_owned()];
        let reply = task.ok("flow_control", &child).await;
        copies.push(("flow_control", child));
        if reply == "[unknown]" {
            let told = call("flow_advance", &format!("{id} {node} {run} X stopped"));
            task.ok(told.0, &told.1).await;
            copies.push(told);
        }
    }
    for (id, node, run) in seen.open('o').into_iter().filter(|(id, ..)| stops(id)) {
        let ends = call("flow_advance", &format!("{id} {node} {run} x -"));
        let call = if dice.one_in(2) { ends } else { call("flow_enter", &format!("{id} {node} {run}")) };
        task.ok(call.0, &call.1).await;
        copies.push(call);
    }
}

#[tokio::test]
async fn nested_graphs_keep_counters_right_and_end_each_node_once() {
    for seed in 200..200 + rounds(40) as u64 {
        let mut dice = Dice(seed);
        let graph = random_graph_of_graphs(&mut dice);
        let mut task = Task::new().await;
        task.start(&graph, "a").await;
        let (mut copies, mut ended): (Vec<Call>, BTreeMap<String, String>) = (Vec::new(), BTreeMap::new());
        let mut last = String::new();
        for _ in 0..5_000 {
            let seen = check_all(&mut task, &mut ended, seed).await;
            last = seen.place("a").to_owned();
            let has_ended = !["running", "paused"].contains(&last.as_str());
            let runs: u64 = seen.run_of("a").parse().unwrap();
            if last == "completed" || has_ended && (runs > 4 || dice.one_in(6)) {
                break;
            }
            if dice.one_in(4) {
                cancel_open(&mut task, &mut dice, &seen, &mut copies).await;
            } else if dice.one_in(200) {
                task.write("deadlines a=5").await;
            }
            let seen = check_all(&mut task, &mut ended, seed).await;
            let mut calls = next_calls(&mut dice, &seen, &graph);
            for _ in 0..2 {
                calls.extend(copies.get(dice.below(copies.len().max(1))).cloned());
            }
            for (name, args) in calls.into_iter().filter(|(_, args)| !args.is_empty()) {
                // Some calls arrive late.
                if dice.one_in(5) {
                    copies.push((name, args));
                    continue;
                }
                task.ok(name, &args).await;
                copies.push((name, args));
                check_all(&mut task, &mut ended, seed).await;
            }
        }
        assert!(["completed", "failed", "cancelled"].contains(&last.as_str()), "seed {seed}: {last}");
        // Long after the end, repeat every call.
        task.ok("flow_look", "-1 200").await;
        for _ in 0..2 {
            assert_keys!(task, "no running, stopping", "seed {seed}");
            assert!(!task.held("outbox").await.contains("s a"), "seed {seed}");
            let lasting = |keys: Vec<(String, String)>| {
                let is_lasting =
                    |key: &str| ![":outbox", ":cursor", ":staging", ":shapes"].iter().any(|end| key.ends_with(end));
                keys.into_iter().filter(|(key, _)| is_lasting(key)).collect::<Vec<_>>()
            };
            let before = lasting(task.exact().await);
            for (name, args) in copies.iter().filter(|(name, _)| !["flow_stage", "flow_retry"].contains(name)) {
                task.ok(name, args).await;
            }
            assert_eq!(lasting(task.exact().await), before, "seed {seed}");
        }
        // Then remove everything, including children that never started.
        task.write("no outbox").await;
        task.lose(&format!("{last}.a")).await;
        task.trim_whole("a").await;
        while task.ok("flow_unstage", "-1").await != "[unstaged 0 0]" {}
        assert_rest!(task, "meta, tasks", "", "seed {seed}");
    }
}
