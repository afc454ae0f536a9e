//! The server for assistants, over its standard input and output.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::run::{Bench, PATIENCE, command, until};

/// A client that has introduced itself.
struct Assistant {
    server: Child,
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
    asked: u64,
    /// What the server said about itself.
    hello: Value,
}

impl Assistant {
    async fn of(bench: &Bench, options: &[&str]) -> Assistant {
        let mut command = command();
        command.args(["--redis", &bench.url(), "--prefix", "cli", "mcp"]).args(options);
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = command.spawn().unwrap();
        let (to, from) = (server.stdin.take(), BufReader::new(server.stdout.take().unwrap()).lines());
        let mut assistant = Assistant { server, to, from, asked: 0, hello: Value::Null };
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        assistant.hello = assistant.ask("initialize", hello).await;
        assistant.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assistant
    }

    async fn say(&mut self, message: Value) {
        self.to.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The result of a request.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.say(json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params })).await;
        loop {
            let line = tokio::time::timeout(PATIENCE, self.from.next_line()).await.unwrap().unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.asked {
                assert_eq!(answer["error"], Value::Null, "{answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The text of a tool's answer, and whether it is an error.
    async fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let text = answer["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text, answer["isError"] == true)
    }

    /// The JSON of a tool's answer.
    async fn json(&mut self, tool: &str, arguments: Value) -> Value {
        let (text, is_error) = self.call(tool, arguments).await;
        assert!(!is_error, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// Ends the input. The server ends by itself.
    async fn leaves(mut self) {
        drop(self.to.take());
        let status = tokio::time::timeout(PATIENCE, self.server.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }
}

/// A task with a failed job, `bad`, and a waiting one of the key `acme`.
async fn scene() -> Bench {
    let bench = Bench::new().await;
    let worker = bench.worker();
    bench.export.dispatch("fail".into()).id("bad").await.unwrap().result().await.unwrap_err();
    let _ = worker.stop().await.unwrap();
    bench.export.dispatch("x".into()).key("acme").await.unwrap();
    until("the task is listed", async || bench.run(&["tasks"]).await.ok().contains("export")).await;
    bench
}

#[tokio::test]
async fn an_assistant_finds_tools_that_only_read() {
    let bench = scene().await;
    let mut assistant = Assistant::of(&bench, &[]).await;
    assert_eq!(assistant.hello["serverInfo"]["name"], "heartline");
    assert!(assistant.hello["instructions"].as_str().unwrap().contains("Begin with `status`"));
    let tools = assistant.ask("tools/list", json!({})).await["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let expected = [
        "diagnose",
        "failures",
        "job",
        "jobs",
        "lane",
        "lanes",
        "schedules",
        "stall",
        "stalls",
        "status",
        "tasks",
        "workers",
    ];
    assert_eq!(names, expected);
    for tool in &tools {
        assert!(tool["description"].as_str().unwrap().len() > 20, "{tool}");
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        let fields = tool["inputSchema"]["properties"].as_object().cloned().unwrap_or_default();
        assert!(fields.values().all(|field| field["description"].is_string()), "{tool}");
    }
    assistant.leaves().await;
}

#[tokio::test]
async fn each_tool_answers_with_the_json_of_its_command() {
    let bench = scene().await;
    let mut assistant = Assistant::of(&bench, &[]).await;
    let status = assistant.json("status", json!({})).await;
    let printed = bench.run(&["status", "--json"]).await.json();
    let kinds = |status: &Value| -> Vec<Value> {
        status["diagnoses"].as_array().unwrap().iter().map(|found| found["kind"].clone()).collect()
    };
    assert_eq!((&status["healthy"], kinds(&status)), (&printed["healthy"], kinds(&printed)));
    assert_eq!((&status["failed"], &status["waiting"]), (&1.into(), &1.into()));
    let jobs = assistant.json("jobs", json!({ "task": "export", "state": "failed", "code": "disk" })).await;
    assert_eq!((&jobs["jobs"][0]["id"], jobs["jobs"].as_array().unwrap().len()), (&"bad".into(), 1));
    assert_eq!(assistant.json("job", json!({ "task": "export", "id": "bad" })).await["error"]["code"], "disk");
    assert_eq!(assistant.json("failures", json!({ "task": "export" })).await["codes"][0]["code"], "disk");
    assert_eq!(assistant.json("lanes", json!({ "task": "export" })).await["lanes"][0]["key"], "acme");
    assert_eq!(assistant.json("lane", json!({ "task": "export", "key": "acme" })).await["waiting"], 1);
    assert_eq!(assistant.json("diagnose", json!({ "task": "export" })).await["task"]["task"], "export");
    assert_eq!(assistant.json("tasks", json!({})).await[0]["task"], "export");
    assert_eq!(assistant.json("schedules", json!({ "task": "export" })).await["schedules"], json!([]));
    assert_eq!(assistant.json("stalls", json!({})).await["stalls"], json!([]));
    assert!(assistant.json("workers", json!({})).await.is_array());
    assistant.leaves().await;
}

#[tokio::test]
async fn an_assistant_sees_values_only_if_that_was_asked_for() {
    let bench = scene().await;
    for (options, payload) in [(&[][..], Value::Null), (&["--values"][..], "fail".into())] {
        let mut assistant = Assistant::of(&bench, options).await;
        let job = assistant.json("job", json!({ "task": "export", "id": "bad" })).await;
        assert_eq!(job["payload"], payload, "{options:?}");
        assistant.leaves().await;
    }
}

#[tokio::test]
async fn an_assistant_gets_errors_as_text_and_can_change_nothing() {
    let bench = scene().await;
    let mut assistant = Assistant::of(&bench, &[]).await;
    let (text, is_error) = assistant.call("job", json!({ "task": "export", "id": "nowhere" })).await;
    assert!(is_error && text.contains("there is no job nowhere"), "{text}");
    let (text, is_error) = assistant.call("diagnose", json!({ "task": "exprt" })).await;
    assert!(is_error && text.contains("did you mean export?"), "{text}");
    let (text, is_error) = assistant.call("jobs", json!({ "task": "export", "state": "lost" })).await;
    assert!(is_error && text.contains("--state"), "{text}");
    // Arguments are values, never options or other commands.
    for worker in ["quiet", "--all", "resume"] {
        let (text, is_error) = assistant.call("workers", json!({ "worker": worker })).await;
        assert!(is_error && text.contains(&format!("there is no worker {worker}")), "{text}");
    }
    assistant.leaves().await;
}
