//! `top` on a terminal.

use crate::run::Bench;

#[tokio::test]
async fn top_needs_a_terminal_and_shows_tasks_and_workers() {
    let bench = Bench::new().await;
    bench.export.dispatch("hold".into()).await.unwrap();
    let worker = bench.worker();
    crate::run::until("it runs", async || bench.export.counts().await.unwrap().running == 1).await;
    let ran = bench.run(&["top"]).await;
    assert!(ran.status == 2 && ran.err.contains("top needs a terminal"), "{ran:?}");
    // `script` provides the terminal; `top` ends at the key.
    for at in 0..50 {
        bench.app.task_ref::<String, u64>(&format!("other-{at}")).unwrap().dispatch("x".into()).await.unwrap();
    }
    let heartline = env!("CARGO_BIN_EXE_heartline");
    let command = bench.command(&[]);
    let line = format!("stty cols 140 rows 40; exec {heartline} top");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.env("TERM", "xterm").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = script.spawn().unwrap();
    let shown = tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let (mut seen, mut out) = (Vec::new(), child.stdout.take().unwrap());
        let mut some = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains("RECOVERED") {
            let read = out.read(&mut some).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend(&some[..read]);
        }
        child.stdin.take().unwrap().write_all(b"q").unwrap();
        out.read_to_end(&mut seen).unwrap();
        assert!(child.wait().unwrap().success());
        String::from_utf8_lossy(&seen).into_owned()
    });
    let shown = shown.await.unwrap();
    assert!(shown.contains("top:") && shown.contains("export") && shown.contains("WORKERS"), "{shown}");
    // The cursor moves between words.
    let words =
        |text: &str| text.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).chars().skip(1).collect::<String>();
    let plain: Vec<String> = shown.split('\u{1b}').map(words).collect();
    let plain = plain.join(" ");
    let plain: Vec<&str> = plain.split_whitespace().collect();
    let counts = |rest: &[&str]| matches!(rest, ["and", count, "more"] if count.parse::<u32>().is_ok());
    assert!(plain.windows(3).any(counts), "the tasks that have no room are counted: {plain:?}");
    bench.open();
    let _ = worker.stop().await.unwrap();
}
