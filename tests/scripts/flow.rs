//! Workflows by hand: graphs with their records, as a start writes them, and what holds of every instance at any time.

use crate::call::Task;

/// A node: how it begins, `<flags> <node whose value is its input, or ->`, and who waits for it.
pub type Node<'a> = (&'a str, &'a str, &'a [usize]);

/// A graph, whose digest is `d` and whose nodes are all of the task `t`.
pub struct Graph {
    pub policy: &'static str,
    pub output: &'static str,
    states: Vec<String>,
    heads: Vec<String>,
    dependents: Vec<Vec<usize>>,
}

pub fn graph(policy: &'static str, output: &'static str, nodes: &[Node]) -> Graph {
    Graph {
        policy,
        output,
        states: nodes.iter().map(|(state, ..)| (*state).to_owned()).collect(),
        heads: nodes.iter().map(|(_, head, _)| (*head).to_owned()).collect(),
        dependents: nodes.iter().map(|(.., dependents)| dependents.to_vec()).collect(),
    }
}

/// Three in a line, each with the value of the one before; the last one is the output.
pub fn line() -> Graph {
    graph("finish", "2", &[("p 0 0", "- -", &[1]), ("p 1 1", "- 0", &[2]), ("p 1 1", "- 1", &[])])
}

/// A node for which so many others wait.
pub fn fan(count: usize) -> Graph {
    let dependents: Vec<usize> = (1..=count).collect();
    let mut nodes: Vec<Node> = vec![("p 0 0", "- -", &dependents)];
    nodes.extend((0..count).map(|_| -> Node { ("p 1 1", "- -", &[]) }));
    graph("finish", "-", &nodes)
}

/// So many in a line, each with an input of its own.
pub fn long_line(count: usize) -> Graph {
    let next: Vec<[usize; 1]> = (1..=count).map(|next| [next]).collect();
    let nodes: Vec<Node> = (0..count)
        .map(|at| -> Node {
            let waiting = if at + 1 < count { &next[at][..] } else { &[] };
            (if at == 0 { "p 0 0" } else { "p 1 1" }, "- -", waiting)
        })
        .collect();
    graph("finish", "-", &nodes)
}

impl Graph {
    pub fn of(policy: &'static str, states: Vec<String>, heads: Vec<String>, dependents: Vec<Vec<usize>>) -> Graph {
        Graph { policy, output: "-", states, heads, dependents }
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn records(&self) -> Vec<(String, String)> {
        let mut records = vec![("d".to_owned(), "{}".to_owned())];
        records.push(("d@".to_owned(), format!("{} {} {}", self.states.len(), self.policy, self.output)));
        for (index, (head, dependents)) in self.heads.iter().zip(&self.dependents).enumerate() {
            let words = |page: &[usize]| page.iter().map(|node| format!(" {node}")).collect::<String>();
            let mut pages = dependents.chunks(500);
            let first = words(pages.next().unwrap_or_default());
            records.push((format!("d/{index}"), format!("{head} t\n\n{}{first}", dependents.len())));
            for (page, nodes) in pages.enumerate() {
                records.push((format!("d/{index}/{}", page + 1), words(nodes)));
            }
        }
        records
    }

    /// How the node begins: open, where it waits for nothing.
    pub fn first_state(&self, node: usize) -> String {
        let is_graph = self.heads[node].split(' ').next().unwrap().contains('g');
        let open = if is_graph { "g" } else { "o" };
        if self.states[node] == "p 0 0" { open.to_owned() } else { self.states[node].clone() }
    }

    /// What did not complete by these states, and how it waits in a new run, as arguments of a retry.
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

    /// The payload of each node that has one of its own: `in-<number>`.
    pub fn inputs(&self) -> Vec<(usize, String)> {
        let own = self.heads.iter().enumerate().filter(|(_, head)| head.ends_with('-'));
        own.map(|(index, _)| (index, format!("in-{index}"))).collect()
    }

    /// The arguments of a start, with or without the records.
    pub fn start(&self, id: &str, with_records: bool) -> Vec<String> {
        let records = if with_records { self.records() } else { Vec::new() };
        let mut args = vec![id.to_owned(), "d".to_owned(), self.states.len().to_string(), "-".to_owned()];
        args.extend([&records.len().to_string(), "0", "0", "t"].map(str::to_owned));
        args.extend((0..self.states.len()).map(|node| self.first_state(node)));
        args.extend(records.into_iter().flat_map(|(field, record)| [field, record]));
        args.extend(self.inputs().into_iter().flat_map(|(node, input)| [node.to_string(), input]));
        args
    }
}

/// Calls a script with the words of a text: `-` stands for the empty one.
pub async fn said(task: &mut Task, name: &str, words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().map(|word| if word == "-" { "" } else { word }).collect();
    task.ok(name, &words).await
}

pub async fn start(task: &mut Task, graph: &Graph, id: &str) -> String {
    let args = graph.start(id, true);
    task.ok("flow_start", &args.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Writes an instance whose first nodes were sent already, however large its graph is.
pub async fn put(task: &mut Task, graph: &Graph, id: &str) {
    let states = graph.states.iter().enumerate();
    let states: Vec<(String, String)> = states
        .map(|(node, state)| (format!("{id}/{node}"), if state == "p 0 0" { "o".to_owned() } else { state.clone() }))
        .collect();
    let open = states.iter().filter(|(_, state)| state == "o").count();
    let inputs = graph.inputs().into_iter().map(|(node, input)| (format!("{id}/{node}"), input)).collect();
    for (key, pairs) in [("nodes", states), ("shapes", graph.records()), ("input", inputs)] {
        for some in pairs.chunks(500) {
            let some: Vec<(&str, &str)> = some.iter().map(|(field, value)| (field.as_str(), value.as_str())).collect();
            task.hset(key, &some).await;
        }
    }
    task.hset("head", &[(id, &format!("1 0 {} {open} d -", graph.len()))]).await;
    task.zadd("running", 5.0, id).await;
}

/// Takes the instance out of a place.
pub async fn take_out(task: &mut Task, place: &str, id: &str) {
    let key = task.key(place);
    let () = redis::AsyncCommands::zrem(&mut task.conn, key, id).await.unwrap();
}

/// The server loses a field.
pub async fn lose(task: &mut Task, key: &str, field: &str) {
    let key = task.key(key);
    let () = redis::AsyncCommands::hdel(&mut task.conn, key, field).await.unwrap();
}

pub async fn head(task: &mut Task, id: &str) -> String {
    task.field("head", id).await
}

/// The states of the nodes from the first to this one.
pub async fn states(task: &mut Task, id: &str, count: usize) -> String {
    let fields: Vec<String> = (0..count).map(|node| format!("{id}/{node}")).collect();
    let key = task.key("nodes");
    let states: Vec<String> = redis::cmd("HMGET").arg(key).arg(fields).query_async(&mut task.conn).await.unwrap();
    states.join(", ")
}

/// Where the instance stands: each place that has it.
pub async fn place(task: &mut Task, id: &str) -> String {
    let mut found = Vec::new();
    for place in ["running", "paused", "completed", "failed", "cancelled"] {
        let key = task.key(place);
        let score: Option<f64> = redis::cmd("ZSCORE").arg(key).arg(id).query_async(&mut task.conn).await.unwrap();
        found.extend(score.map(|_| place));
    }
    found.join(" and ")
}

/// What cannot be read is no reason to hang: this is how an instance ends then.
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

/// Layers of which each node waits for some of those of the layer before, or for all where it is dense.
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

/// Checks what holds of a running instance at any time; returns the nodes that are open, and what is left to be visited.
async fn check(task: &mut Task, count: usize, seed: u64) -> (Vec<usize>, Vec<String>) {
    let states = states(task, "a", count).await;
    let states: Vec<&str> = states.split(", ").collect();
    let open: Vec<usize> = (0..count).filter(|node| states[*node].starts_with('o')).collect();
    let live = states.iter().filter(|state| state.starts_with(['p', 'P', 'o'])).count();
    let head = head(task, "a").await;
    let words: Vec<&str> = head.split(' ').collect();
    assert_eq!((words[2], words[3]), (&*live.to_string(), &*open.len().to_string()), "seed {seed}: {head}");
    let key = task.key("outbox");
    let entries: Vec<String> = redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query_async(&mut task.conn).await.unwrap();
    let visits = entries.iter().filter_map(|entry| entry.strip_prefix("v ")).map(|mark| mark.replace('/', " "));
    let visits: Vec<String> = visits.collect();
    for entry in entries.iter().filter_map(|entry| entry.strip_prefix("s a/")) {
        let node = entry.split('/').next().unwrap().parse().unwrap();
        assert!(open.contains(&node), "seed {seed}: {entry} is to be sent and not open");
    }
    let place = place(task, "a").await;
    assert!(!place.is_empty() && !place.contains(" and "), "seed {seed}: it stands in '{place}'");
    let is_to_be_opened = entries.contains(&format!("o a/{}", words[0]));
    let is_visited = visits.iter().any(|mark| mark.ends_with(&format!(" {}", words[0])));
    let goes_on = !open.is_empty() || is_visited || is_to_be_opened;
    assert!(place != "running" || goes_on, "seed {seed}: it hangs: {states:?} {head}");
    let has_ended = !["running", "paused"].contains(&place.as_str());
    assert!(!has_ended || open.is_empty(), "seed {seed}: it has ended, and nodes are open: {states:?}");
    (open, visits)
}

#[tokio::test]
async fn whatever_comes_twice_or_late_the_counters_are_right_and_nothing_hangs() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let graph = random_graph(&mut dice);
        let mut task = Task::new().await;
        start(&mut task, &graph, "a").await;
        let mut copies: Vec<(&str, String)> = Vec::new();
        for _ in 0..10_000 {
            let (open, visits) = check(&mut task, graph.len(), seed).await;
            if place(&mut task, "a").await != "running" {
                break;
            }
            let mut calls = Vec::new();
            if let Some(mark) = visits.first()
                && (open.is_empty() || dice.one_in(2))
            {
                calls.push(("flow_visit", mark.clone()));
            } else if dice.one_in(30) {
                calls.push(("flow_control", "a why".to_owned()));
            } else if dice.one_in(5) {
                let node = dice.below(graph.len());
                calls.push(("flow_enter", format!("a {node} 1 a {node} 1 a {node} 2 b {node} 1")));
            } else if !open.is_empty() {
                let all = dice.one_in(2);
                let ends: Vec<usize> = open.iter().copied().filter(|_| all || dice.one_in(2)).collect();
                let ends = ends.iter().map(|node| {
                    let how = ["c", "c", "c", "f", "x"][dice.below(5)];
                    format!("a {node} 1 {how} v{node} a {node} 1 f twice a {node} 2 c other-run")
                });
                calls.push(("flow_advance", ends.collect::<Vec<_>>().join(" ")));
            }
            if let Some(copy) = copies.get(dice.below(copies.len().max(1))).cloned() {
                calls.push(copy);
            }
            for (name, words) in calls.into_iter().filter(|(_, words)| !words.is_empty()) {
                said(&mut task, name, &words).await;
                copies.push((name, words));
            }
        }
        let ended = place(&mut task, "a").await;
        assert!(["completed", "failed", "cancelled"].contains(&ended.as_str()), "seed {seed}: {ended}");
        // Long after the end of everything, all of it once more.
        for mark in check(&mut task, graph.len(), seed).await.1 {
            said(&mut task, "flow_visit", &mark).await;
        }
        said(&mut task, "flow_look", "0 200").await;
        assert_eq!(task.held("stopping").await, "", "seed {seed}");
        assert_eq!(task.held("outbox").await, "", "seed {seed}");
        assert_eq!(task.held("cursor").await, "", "seed {seed}");
        let before = task.exact().await;
        for (name, words) in copies {
            said(&mut task, name, &words).await;
        }
        assert_eq!(task.exact().await, before, "seed {seed}");
    }
}

/// Calls `flow_retry` with what [`Graph::again`] says.
async fn retry(task: &mut Task, words: &str) -> String {
    task.ok("flow_retry", &words.split('|').collect::<Vec<_>>()).await
}

#[tokio::test]
async fn over_pauses_and_retries_the_counters_are_right_and_what_completed_never_opens_again() {
    for seed in 100..130 {
        let mut dice = Dice(seed);
        let mut graph = random_graph(&mut dice);
        graph.policy = ["finish", "cancel", "pause"][dice.below(3)];
        let mut task = Task::new().await;
        start(&mut task, &graph, "a").await;
        let (mut copies, mut retries): (Vec<(&str, String)>, Vec<String>) = (Vec::new(), Vec::new());
        let mut completed: Vec<bool> = vec![false; graph.len()];
        let mut last = String::new();
        for _ in 0..20_000 {
            let (open, visits) = check(&mut task, graph.len(), seed).await;
            let (head, states) = (head(&mut task, "a").await, states(&mut task, "a", graph.len()).await);
            let (run, turn) = (head.split(' ').next().unwrap(), head.split(' ').nth(1).unwrap());
            let states: Vec<&str> = states.split(", ").collect();
            for (node, was) in completed.iter_mut().enumerate() {
                assert!(!*was || states[node] == "c", "seed {seed}: {node} is {} and had completed", states[node]);
                *was = states[node] == "c";
            }
            last = place(&mut task, "a").await;
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
                    calls.push(("flow_enter", format!("a {node} {run} a {node} 1")));
                }
                6 if !open.is_empty() && dice.one_in(5) => {
                    calls.push(("flow_resend", format!("a {} {run}", open[dice.below(open.len())])));
                }
                7 | 8 => calls.push(("flow_open", format!("a {run}"))),
                _ => {
                    let ends = open.iter().filter(|_| dice.one_in(2)).collect::<Vec<_>>();
                    let ends = ends.iter().map(|node| {
                        let how = ["c", "c", "c", "c", "f", "x"][dice.below(6)];
                        format!("a {node} {run} {how} v{node} a {node} {run} f twice")
                    });
                    calls.push(("flow_advance", ends.collect::<Vec<_>>().join(" ")));
                }
            }
            if let Some(copy) = copies.get(dice.below(copies.len().max(1))).cloned() {
                calls.push(copy);
            }
            for (name, words) in calls.into_iter().filter(|(_, words)| !words.is_empty()) {
                said(&mut task, name, &words).await;
                copies.push((name, words));
            }
            // One that was worked out some time ago, too.
            if !retries.is_empty() && dice.one_in(3) {
                let words = retries[retries.len() - 1 - dice.below(retries.len().min(3))].clone();
                retry(&mut task, &words).await;
            }
        }
        assert!(["completed", "failed", "cancelled"].contains(&last.as_str()), "seed {seed}: {last}");
        for mark in check(&mut task, graph.len(), seed).await.1 {
            said(&mut task, "flow_visit", &mark).await;
        }
        said(&mut task, "flow_look", "0 200").await;
        assert_eq!(task.held("stopping").await + &task.held("cursor").await, "", "seed {seed}");
        let before = task.exact().await;
        for (name, words) in copies {
            said(&mut task, name, &words).await;
        }
        // Late copies may take old entries off.
        let lasting = |keys: Vec<(String, String)>| {
            keys.into_iter().filter(|(key, _)| !key.ends_with(":outbox")).collect::<Vec<_>>()
        };
        assert_eq!(lasting(task.exact().await), lasting(before), "seed {seed}");
        // Of what was to be done only entries of runs before are left, which open and cancel nothing.
        let key = task.key("outbox");
        let left: Vec<String> = redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).query_async(&mut task.conn).await.unwrap();
        let run = head(&mut task, "a").await.split(' ').next().unwrap().to_owned();
        assert!(left.iter().all(|entry| !entry.ends_with(&format!("/{run}"))), "seed {seed}: {left:?}");
    }
}
