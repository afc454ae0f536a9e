use super::PATIENCE;
use super::eventually::eventually;
use std::env;
use std::io::{self, Read};
use std::process::{self, Command, Stdio};

const ROLE: &str = "HEARTLINE_TEST_ROLE";

/// A process that runs one test of this very program, killed at the latest when this is dropped.
///
/// A test that is the program of a child begins with [`Child::role`], and does nothing if that is `None`.
pub struct Child(process::Child);

impl Child {
    /// Starts the test `name` of the module (`module_path!()`) as a separate process. Its standard error goes into a
    /// pipe that is not read unless [`Child::drain`] is called.
    pub fn start(module: &str, name: &str, role: &str) -> Self {
        let (_crate, modules) = module.split_once("::").expect("a module below the crate");
        let child = Command::new(env::current_exe().unwrap())
            .args([&format!("{modules}::{name}"), "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// The role that the parent gave this process; `None` in a normal run of the tests.
    ///
    /// A child must not outlive its parent: from this call on, it ends with it.
    pub fn role() -> Option<String> {
        let role = env::var(ROLE).ok()?;
        std::thread::spawn(|| {
            let _ = io::stdin().read(&mut [0]);
            process::exit(0);
        });
        Some(role)
    }

    /// From now on, reads and discards what the child writes to its standard error.
    pub fn drain(&mut self) {
        let mut errors = self.0.stderr.take().expect("it is drained already");
        std::thread::spawn(move || io::copy(&mut errors, &mut io::sink()));
    }

    /// Sends a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has ended by itself.
    pub async fn exits(&mut self) -> process::ExitStatus {
        eventually("the child exits", PATIENCE, async || self.0.try_wait().unwrap()).await
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
