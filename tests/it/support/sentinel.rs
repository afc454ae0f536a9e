use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PATIENCE, ask_port, eventually};

/// The name under which the sentinels watch the primary.
pub const SERVICE: &str = "main";

/// Becomes a sentinel that ends with the process at the other end of its standard input.
const LAUNCHER: &str =
    r#"exec 3<&0 </dev/null; { read -r _; kill -KILL "$$"; } <&3 2>/dev/null & exec 3<&-; exec "$@""#;

/// How long a primary may be silent before it counts as dead.
pub const DOWN_AFTER: Duration = Duration::from_secs(1);

/// A sentinel that ends with its owner.
pub struct Sentinel {
    process: Child,
    pub port: u16,
    dir: PathBuf,
}

impl Sentinel {
    /// Starts one that watches the primary. If another process takes its port first, it uses another port.
    pub fn start(primary: u16) -> Sentinel {
        (0..5).find_map(|_| Sentinel::launch(primary)).expect("a sentinel starts")
    }

    /// `None` if it ended at once.
    fn launch(primary: u16) -> Option<Sentinel> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = std::env::temp_dir().join(format!("heartline-sentinel-{}-{port}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile {dir}/log\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {SERVICE} {}\nsentinel failover-timeout {SERVICE} 6000\n\
             sentinel parallel-syncs {SERVICE} 2\n",
            DOWN_AFTER.as_millis(),
            dir = dir.display()
        );
        let file = dir.join("sentinel.conf");
        fs::write(&file, config).unwrap();
        let program = std::env::var("HEARTLINE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new("sh");
        command.args(["-c", LAUNCHER, "sentinel", &program]).arg(&file).arg("--sentinel");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut sentinel = Sentinel { process, port, dir };
        let begun = Instant::now();
        while !fs::read_to_string(sentinel.dir.join("log")).is_ok_and(|log| log.contains("+monitor")) {
            if sentinel.process.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(begun.elapsed() < PATIENCE, "a sentinel neither starts nor ends");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(sentinel)
    }

    /// Waits until it reports the address of the primary.
    pub async fn knows(&self) {
        eventually("it reports the primary", PATIENCE, async || {
            ask::<(String, u16)>(self.port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).await
        })
        .await;
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The reply of a server or a sentinel; `None` if there is none.
pub async fn ask<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> Option<T> {
    ask_port(port, words, Duration::from_secs(1)).await
}
