//! One private Redis server.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::host::{PORTS_TRIED, find_binary, free_port, make_dir};
use super::probe::{Probe, probe};
use super::start_error::{START_TIMEOUT, StartError, io_error};

/// How long a server may take to end after it was asked to. Then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const POLL: Duration = Duration::from_millis(5);

/// Becomes the server by `exec`, so the process id is the server's. A watcher in the background reads a pipe whose other end this process
/// holds. A line means that the server has ended, and the watcher exits. End of file without a line means that the owner died: the watcher
/// kills the server and removes its directory.
const LAUNCHER: &str = r#"
dir=$1; shift
exec 3<&0 </dev/null
{ read -r _ || { kill -KILL "$$"; rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }; }; } <&3 2>/dev/null &
exec 3<&-
exec env "$@"
"#;

/// Configures a [`RedisServer`] before it starts.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RedisServerBuilder {
    binary: Option<PathBuf>,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    persistent: bool,
}

impl RedisServerBuilder {
    /// Adds one command line argument, after the default ones.
    ///
    /// The last value of a setting wins, so all but the port and the directory can be changed.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets the server program; takes precedence over `HEARTLINE_REDIS_SERVER`.
    ///
    /// A bare name is searched for on `PATH`. Defaults to what [`RedisServer::start`] describes.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Sets an environment variable of the server, such as `LD_PRELOAD` to give it a clock of its own.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Writes every command to disk before it is answered, so that the data survives [`RedisServer::kill`].
    ///
    /// By default, a restarted server is empty.
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Starts the server and waits until it answers; blocks the calling thread, usually for less than 100 ms.
    ///
    /// # Errors
    /// As [`RedisServer::start`].
    pub fn start(self) -> Result<RedisServer, StartError> {
        let binary = find_binary(self.binary.as_deref())?;
        let dir = make_dir().map_err(io_error("make a directory"))?;
        let mut server = RedisServer { options: self, binary, dir, port: 0, process: None };
        for _ in 0..PORTS_TRIED {
            server.port = free_port().ok_or(StartError::NoPort)?;
            if server.launch()? {
                return Ok(server);
            }
        }
        Err(StartError::NoPort)
    }
}

/// A running server process, and the pipe that keeps it alive.
#[derive(Debug)]
struct Process {
    child: Child,
    alive: ChildStdin,
}

impl Process {
    /// Reaps the server, then ends its watcher. In this order the watcher cannot kill a process that reuses the pid.
    fn reap(mut self) {
        // Waiting fails only if the process was reaped already, writing only if the watcher has ended.
        let _ = self.child.wait();
        let _ = self.alive.write_all(b"\n");
    }
}

/// A private Redis server. Dropping it ends the server.
///
/// It listens on 127.0.0.1 only, and keeps its log and data in a temporary directory. It writes no data to disk unless it is
/// [`persistent`](RedisServerBuilder::persistent). If this process is killed, the server ends too. Signals of the terminal do not reach the
/// server, so an interrupted program can still use it to shut down.
///
/// ```no_run
/// use heartline::private_server::RedisServer;
///
/// # fn main() -> Result<(), heartline::private_server::StartError> {
/// let server = RedisServer::start()?;
/// println!("{}", server.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisServer {
    options: RedisServerBuilder,
    binary: PathBuf,
    dir: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl RedisServer {
    /// Starts a server with default settings and waits until it answers. Blocks the calling thread.
    ///
    /// The program is `HEARTLINE_REDIS_SERVER` if set, else `redis-server`, else `valkey-server`, searched for on `PATH`.
    ///
    /// # Errors
    /// [`StartError::NotFound`] without a server program; the other [`StartError`]s if it does not start.
    pub fn start() -> Result<Self, StartError> {
        Self::builder().start()
    }

    /// A builder with default settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The URL for clients: `redis://127.0.0.1:<port>/`. It does not change over restarts.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server, or `None` while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// The directory of the server; removed when the value is dropped.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The server's log since its first start; empty if it cannot be read.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Shuts the server down and waits until it has ended. Does nothing if it is already stopped.
    ///
    /// A server that does not end within ten seconds is killed.
    pub fn stop(&mut self) {
        // A frozen server handles the first signal only after the second.
        if self.signal("TERM").and_then(|()| self.thaw()).is_ok() {
            let deadline = Instant::now() + STOP_TIMEOUT;
            while self.is_running() && Instant::now() < deadline {
                thread::sleep(POLL);
            }
        }
        self.kill();
    }

    /// Kills the server at once (SIGKILL), like a crash of its machine. Does nothing if it is already stopped.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // This fails only if the process has already ended.
            let _ = process.child.kill();
            process.reap();
        }
    }

    /// Starts the server again on the same port and directory, after shutting it down if it still runs.
    ///
    /// A server that is not [`persistent`](RedisServerBuilder::persistent) is empty afterwards.
    ///
    /// # Errors
    /// As [`RedisServer::start`]; [`StartError::NoPort`] if another program took the port meanwhile.
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.stop();
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.launch()? {
            if Instant::now() >= deadline {
                return Err(StartError::NoPort);
            }
        }
        Ok(())
    }

    /// Freezes the server (SIGSTOP): connections stay open, and nothing is answered until [`thaw`](Self::thaw).
    ///
    /// # Errors
    /// If the server is stopped or the signal cannot be sent.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Resumes the server after [`freeze`](Self::freeze).
    ///
    /// # Errors
    /// If the server is stopped or the signal cannot be sent.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    /// Whether the server process exists; `false` also after it ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.child.try_wait(), Ok(None)))
    }

    /// Starts the process on the chosen port and waits for its answer; `false` if the port is taken.
    fn launch(&mut self) -> Result<bool, StartError> {
        let logged = self.log().len();
        self.process = Some(self.spawn()?);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if !self.is_running() {
                self.kill();
                let log = self.log();
                let log = log.get(logged..).unwrap_or(&log);
                // Redis logs "Address already in use" on every platform.
                if log.contains("already in use") {
                    return Ok(false);
                }
                let reason = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason logged");
                return Err(StartError::Ended { binary: self.binary.clone(), reason: reason.trim().to_owned() });
            }
            match probe(self.port, &self.dir) {
                Probe::Ours => return Ok(true),
                Probe::Foreign => {
                    self.kill();
                    return Ok(false);
                }
                Probe::NotYet => {}
            }
            if Instant::now() >= deadline {
                self.kill();
                return Err(StartError::Silent { binary: self.binary.clone(), port: self.port });
            }
            thread::sleep(POLL);
        }
    }

    fn spawn(&self) -> Result<Process, StartError> {
        let log = File::options().create(true).append(true).open(self.log_path()).map_err(io_error("open a log"))?;
        let errors = log.try_clone().map_err(io_error("open a log"))?;
        let mut command = Command::new("sh");
        command.args(["-c", LAUNCHER, "heartline-redis"]).arg(&self.dir);
        for (name, value) in &self.options.envs {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            command.arg(pair);
        }
        command.arg(&self.binary).args(["--bind", "127.0.0.1", "--daemonize", "no"]);
        command.args(["--save", "", "--always-show-logo", "no"]);
        if self.options.persistent {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        } else {
            command.args(["--appendonly", "no"]);
        }
        command.args(&self.options.args).arg("--port").arg(self.port.to_string()).arg("--dir").arg(&self.dir);
        command.current_dir(&self.dir).stdin(Stdio::piped()).stdout(log).stderr(errors);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(io_error("run a shell"))?;
        match child.stdin.take() {
            Some(alive) => Ok(Process { child, alive }),
            None => Err(io_error("open a pipe")(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let pid = self.pid().ok_or(io::ErrorKind::NotConnected)?;
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("redis.log")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // If it cannot be removed, the system cleans temporary files up.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;
    use crate::private_server::probe::{PROBE_TIMEOUT, ask};

    fn answers(port: u16) -> bool {
        ask(port, "PING\r\n").is_ok_and(|reply| reply.starts_with("+PONG"))
    }

    fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline, "not within 20 s: {what}");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_server_answers_until_its_value_is_dropped() {
        let server = RedisServer::start().unwrap();
        let (port, dir) = (server.port(), server.dir().to_owned());
        assert!(answers(port));
        assert!(server.log().contains("Ready to accept connections"), "{}", server.log());
        let info = ask(port, "INFO server\r\n").unwrap();
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid().unwrap())), "{info}");
        drop(server);
        assert!(!answers(port));
        assert!(!dir.exists());
    }

    #[test]
    fn a_persistent_server_keeps_its_data_over_a_kill_and_a_stop() {
        let mut server = RedisServer::builder().persistent().start().unwrap();
        let port = server.port();
        ask(port, "SET a 1\r\n").unwrap();
        server.kill();
        assert!(!server.is_running() && server.pid().is_none() && !answers(port));
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_eq!(ask(port, "GET a\r\n").unwrap(), "$1\r\n1\r\n+OK\r\n", "{}", server.log());
        ask(port, "SET a 2\r\n").unwrap();
        server.stop();
        assert!(server.log().contains("ready to exit"), "{}", server.log());
        server.restart().unwrap();
        assert_eq!(ask(port, "GET a\r\n").unwrap(), "$1\r\n2\r\n+OK\r\n", "{}", server.log());
    }

    #[test]
    fn a_plain_server_comes_back_empty() {
        let mut server = RedisServer::start().unwrap();
        ask(server.port(), "SET a 1\r\n").unwrap();
        server.restart().unwrap();
        assert!(ask(server.port(), "GET a\r\n").unwrap().starts_with("$-1"));
    }

    #[test]
    fn a_frozen_server_is_silent_until_it_thaws() {
        let server = RedisServer::start().unwrap();
        server.freeze().unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut reply = [0; 5];
        assert!(stream.read_exact(&mut reply).is_err());
        server.thaw().unwrap();
        stream.set_read_timeout(Some(PROBE_TIMEOUT)).unwrap();
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG");
    }

    #[test]
    fn arguments_and_environment_reach_the_server() {
        let server = RedisServer::builder().arg("--maxmemory").arg("64mb").start().unwrap();
        assert!(ask(server.port(), "CONFIG GET maxmemory\r\n").unwrap().contains("67108864"));
        // Redis overwrites its environment with its process title, so another program prints it.
        let program = server.dir().join("tell");
        fs::write(&program, "#!/bin/sh\necho \"${0##*/} given $HEARTLINE_TEST\"\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let link = server.dir().join("link");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        let error = RedisServer::builder().binary(link).env("HEARTLINE_TEST", "a b").start().unwrap_err();
        assert!(error.to_string().ends_with("link given a b"), "{error}");
    }

    #[test]
    fn many_servers_start_at_once() {
        let servers = thread::scope(|scope| {
            let starts = (0..8).map(|_| scope.spawn(|| RedisServer::start().unwrap())).collect::<Vec<_>>();
            starts.into_iter().map(|start| start.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(servers.iter().all(|server| answers(server.port())));
    }

    #[test]
    fn a_server_knows_that_another_took_its_port() {
        let first = RedisServer::start().unwrap();
        let mut second = RedisServer::start().unwrap();
        second.stop();
        second.port = first.port();
        assert!(!second.launch().unwrap());
        assert!(answers(first.port()));
    }

    #[test]
    fn a_missing_program_and_a_wrong_argument_say_what_to_do() {
        let error = RedisServer::builder().binary("/nowhere/redis-server").start().unwrap_err();
        assert_eq!(
            error.to_string(),
            "/nowhere/redis-server not found: install it (`apt-get install redis-server` or `brew install redis`), \
             or set HEARTLINE_REDIS_SERVER"
        );
        let error = RedisServer::builder().arg("--no-such-setting").arg("1").start().unwrap_err();
        assert!(matches!(error, StartError::Ended { .. }), "{error}");
        assert!(error.to_string().contains("ended while starting"), "{error}");
    }

    #[test]
    fn a_server_dies_with_a_killed_owner() {
        let mut owner = Command::new(env::current_exe().unwrap())
            .args([&format!("{}::own_a_server_until_killed", own_module()), "--exact", "--nocapture"])
            .env(OWNER_VARIABLE, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = io::BufRead::lines(io::BufReader::new(owner.stdout.take().unwrap()));
        let line = lines.find_map(|line| line.unwrap().split_once("server at ").map(|(_, rest)| rest.to_owned()));
        let line = line.unwrap();
        let (port, dir) = line.split_once(' ').unwrap();
        let port = port.parse().unwrap();
        assert!(answers(port));
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_until("the server is gone", || !answers(port));
        wait_until("its directory is gone", || !Path::new(dir).exists());
    }

    /// Set in the child process of `a_server_dies_with_a_killed_owner`, which runs the next test as its main function.
    const OWNER_VARIABLE: &str = "HEARTLINE_TEST_SERVER_OWNER";

    /// The path of this module, as the test runner names it.
    fn own_module() -> &'static str {
        module_path!().split_once("::").map_or("", |(_, module)| module)
    }

    #[test]
    fn own_a_server_until_killed() {
        if env::var_os(OWNER_VARIABLE).is_none() {
            return;
        }
        let server = RedisServer::start().unwrap();
        println!("server at {} {}", server.port(), server.dir().display());
        // Ends by itself if the other test does not kill it.
        thread::park_timeout(Duration::from_secs(60));
    }
}
