//! Servers that have names, and what is asked before something is done in production.

use std::path::PathBuf;

use crate::run::{Bench, Ran};

/// A file of contexts that is removed with it.
struct File(PathBuf);

impl File {
    fn new(bench: &Bench, text: &str, mode: u32) -> File {
        use std::os::unix::fs::PermissionsExt;
        let port = bench.url().trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
        let path = std::env::temp_dir().join(format!("heartline-contexts-{}-{port}.toml", std::process::id()));
        std::fs::write(&path, text.replace("URL", &bench.url())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        File(path)
    }

    /// A command with no other word on which server.
    async fn run(&self, bench: &Bench, args: &[&str]) -> Ran {
        let mut command = bench.command(args);
        command.env_remove("HEARTLINE_REDIS").env_remove("HEARTLINE_PREFIX").env("HEARTLINE_CONFIG", &self.0);
        command.env("SECRET_REDIS", bench.url());
        tokio::task::spawn_blocking(move || Ran::of(command.output().unwrap())).await.unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_context_of_a_variable_gives_way_to_an_address_and_yes_is_not_enough_where_nobody_knows() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).id("a").await.unwrap();
    let run = async |file: &File, args: &[&str]| {
        let mut command = bench.command(args);
        command.env("HEARTLINE_CONTEXT", "live").env("HEARTLINE_CONFIG", &file.0).env("SECRET_REDIS", bench.url());
        tokio::task::spawn_blocking(move || Ran::of(command.output().unwrap())).await.unwrap()
    };
    let url = bench.url();
    let purge = ["--redis", &url, "--yes", "task", "purge", "export", "--state", "waiting"];
    let file = File::new(&bench, FILE, 0o644);
    let ran = run(&file, &purge).await;
    assert!(ran.status == 2 && ran.err.contains("perhaps in production") && ran.err.contains("chmod 600"), "{ran:?}");
    assert_eq!(bench.export.counts().await.unwrap().waiting, 1);
    drop(file);
    let file = File::new(&bench, FILE, 0o600);
    assert!(run(&file, &["--redis", &url, "tasks"]).await.ok().contains("export"));
    let ran = run(&file, &purge).await;
    assert!(ran.status == 2 && ran.err.contains("--confirm"), "the address is that of production: {ran:?}");
}

const FILE: &str = r#"
default = "live"
[context.live]
url_env = "SECRET_REDIS"
prefix = "cli"
production = true
[context.asked]
url_command = ["printf", "%s\n", "URL"]
prefix = "cli"
[context.both]
url = "URL"
url_env = "SECRET_REDIS"
"#;

#[tokio::test]
async fn a_context_is_a_server_by_its_name_and_production_wants_that_typed() {
    let bench = Bench::new().await;
    let file = File::new(&bench, FILE, 0o600);
    for id in ["a", "b"] {
        bench.export.dispatch("x".into()).id(id).await.unwrap();
    }
    let listed = file.run(&bench, &["contexts"]).await.ok();
    assert!(
        listed.contains("live")
            && listed.contains("the variable SECRET_REDIS")
            && listed.contains("default production")
    );
    assert!(!listed.contains(&bench.url()), "an address may have a password: {listed}");
    for context in ["live", "asked"] {
        let ran = file.run(&bench, &["--context", context, "tasks"]).await.ok();
        assert!(ran.contains("export"), "{context}: {ran}");
    }
    let ran = file.run(&bench, &["jobs", "remove", "-t", "export", "a", "--yes"]).await;
    assert!(ran.status == 2 && ran.err.contains("in production; say --confirm live"), "{ran:?}");
    let ran = file.run(&bench, &["jobs", "cancel", "-t", "export", "a", "--yes"]).await;
    assert!(ran.status == 2 && ran.err.contains("--confirm live"), "one that is named, too: {ran:?}");
    let ran = file.run(&bench, &["recover", "running", "-t", "export", "a", "--yes"]).await;
    assert!(ran.status == 2 && ran.err.contains("--confirm live"), "a job may run twice by it: {ran:?}");
    let ran = file.run(&bench, &["jobs", "remove", "-t", "export", "a", "--confirm", "staging"]).await;
    assert!(ran.status == 2 && ran.err.contains("and this is the context live; nothing was done"), "{ran:?}");
    let ran = file.run(&bench, &["task", "pause", "export", "--confirm", "life"]).await;
    assert!(ran.status == 2 && ran.err.contains("--confirm says life"), "a wrong name is never let pass: {ran:?}");
    assert_eq!(bench.export.counts().await.unwrap().waiting, 2);
    file.run(&bench, &["jobs", "remove", "-t", "export", "a", "--confirm", "live"]).await.ok();
    let by_name = ["--context", "asked", "jobs", "remove", "-t", "export", "b"];
    let ran = file.run(&bench, &[&by_name[..], &["--yes"]].concat()).await;
    assert!(ran.status == 2 && ran.err.contains("--confirm live"), "it leads to the same server: {ran:?}");
    file.run(&bench, &[&by_name[..], &["--confirm", "live"]].concat()).await.ok();
    assert_eq!(bench.export.counts().await.unwrap().waiting, 0);
    let ran = file.run(&bench, &["bench"]).await;
    assert!(ran.status == 2 && ran.err.contains("live is production"), "{ran:?}");
    let ran = file.run(&bench, &["--redis", &bench.url(), "--prefix", "other", "bench"]).await;
    assert!(ran.status == 2 && ran.err.contains("its server is production"), "{ran:?}");
    // The server is of production under whatever name it is asked for.
    let by_address = ["--redis", &bench.url(), "--prefix", "cli", "task", "purge", "export", "--state", "failed", "-y"];
    bench.export.dispatch("fail".into()).id("c").await.unwrap();
    let worker = bench.worker();
    crate::run::until("it failed", async || bench.export.counts().await.unwrap().failed == 1).await;
    let ran = file.run(&bench, &by_address).await;
    assert!(ran.status == 2 && ran.err.contains("in production; say --confirm live"), "{ran:?}");
    let _ = worker.stop().await.unwrap();
    let ran = file.run(&bench, &["--context", "live", "--redis", "redis://127.0.0.1:1", "tasks"]).await;
    assert!(ran.status == 2 && ran.err.contains("cannot be used with"), "{ran:?}");
    for (args, told) in [
        (&["--context", "nobody", "tasks"][..], "there is no context nobody; there are asked, both, live"),
        (&["--context", "both", "tasks"], "needs one of url, url_env, url_command"),
    ] {
        let ran = file.run(&bench, args).await;
        assert!(ran.status == 2 && ran.err.contains(told), "{ran:?}");
    }
    // Where one leads of which a program tells is not known: acts are asked about as there.
    let secret =
        "[context.secret]\nproduction = true\nprefix = \"cli\"\nurl_command = [\"echo\", \"redis://127.0.0.1:1\"]\n";
    let unasked = File::new(&bench, secret, 0o600);
    let by_id = ["--redis", &bench.url(), "--prefix", "cli", "jobs", "cancel", "-t", "export", "c"];
    for act in [&by_address[..], &by_id] {
        let ran = unasked.run(&bench, act).await;
        let is_refused = ran.err.contains("perhaps in production") && ran.err.contains("--context secret");
        assert!(ran.status == 2 && is_refused, "{ran:?}");
    }
    let elsewhere = ["--redis", &bench.url(), "--prefix", "other"];
    let ran =
        unasked.run(&bench, &[&elsewhere[..], &["task", "purge", "export", "--state", "failed", "-y"]].concat()).await;
    assert!(!ran.err.contains("production"), "{ran:?}");
    let ran = unasked.run(&bench, &[&elsewhere[..], &["bench"]].concat()).await;
    assert!(ran.status == 2 && ran.err.contains("production"), "{ran:?}");
    // Somebody has said that this one is none.
    let own = File::new(&bench, &format!("{secret}[context.dev]\nurl = \"URL\"\n"), 0o600);
    let ran = own.run(&bench, &by_address).await;
    assert!(ran.status == 0, "{ran:?}");
}

#[tokio::test]
async fn a_file_that_others_can_read_or_that_is_wrong_is_refused() {
    let bench = Bench::new().await;
    let ran = File::new(&bench, FILE, 0o644).run(&bench, &["tasks"]).await;
    assert!(ran.status == 2 && ran.err.contains("which has the mode 644: `chmod 600"), "{ran:?}");
    for (text, told) in [("default = \"x\"", "there is no context x, the default"), ("colour = 1", "unknown field")] {
        let file = File::new(&bench, text, 0o600);
        let ran = file.run(&bench, &["tasks"]).await;
        assert!(ran.status == 2 && ran.err.contains(told), "{ran:?}");
        // Who says where the server is needs no file.
        let ran = file.run(&bench, &["tasks", "--redis", &bench.url()]).await;
        assert!(ran.status == 0 && ran.err.contains("warning: ") && ran.err.contains(told), "{ran:?}");
    }
}

#[tokio::test]
async fn a_bench_leaves_no_key_also_where_it_is_stopped() {
    let bench = Bench::new().await;
    bench.export.dispatch("x".into()).await.unwrap();
    let before = bench.keys().await;
    let figures = bench.run(&["bench", "--json"]).await.json();
    for name in ["round_trip_us", "raw_writes_a_second", "dispatched_a_second", "processed_a_second"] {
        assert!(figures[name].as_f64().unwrap() > 0.0, "{name}: {figures}");
    }
    assert_eq!(bench.keys().await, before);
    let mut command = bench.command(&["bench"]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    crate::run::until("it writes", async || bench.keys().await > before).await;
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(bench.keys().await, before);
}

#[tokio::test]
async fn top_needs_a_terminal_and_shows_tasks_and_workers_on_one() {
    let bench = Bench::new().await;
    bench.export.dispatch("hold".into()).await.unwrap();
    let worker = bench.worker();
    crate::run::until("it runs", async || bench.export.counts().await.unwrap().running == 1).await;
    let ran = bench.run(&["top"]).await;
    assert!(ran.status == 2 && ran.err.contains("top needs a terminal"), "{ran:?}");
    // `script` gives it one; it ends by itself at the key.
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
    // Between words the cursor is moved.
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

#[tokio::test]
async fn a_bench_takes_no_memory_that_jobs_need() {
    let bench = Bench::new().await;
    let mut conn = bench.redis().await;
    for (setting, value, why) in [
        ("maxmemory", "32mb", "a bench needs 96 MiB to spare"),
        ("maxmemory", "1gb", ""),
        ("maxmemory-policy", "allkeys-lru", "throwing keys away (maxmemory-policy allkeys-lru), jobs among them"),
    ] {
        let set = redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).query_async::<()>(&mut conn).await;
        set.unwrap();
        if !why.is_empty() {
            let ran = bench.run(&["bench"]).await;
            assert!(ran.status == 2 && ran.err.contains(why), "{ran:?}");
        }
    }
    let left: Vec<String> = redis::cmd("KEYS").arg("heartline-bench-*").query_async(&mut conn).await.unwrap();
    assert_eq!(left, Vec::<String>::new());
}
