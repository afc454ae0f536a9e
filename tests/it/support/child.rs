use super::PATIENCE;
use super::eventually::eventually;
use std::env;
use std::io::{self, Read};
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex};

const ROLE: &str = "HEARTLINE_TEST_ROLE";
const KEPT_ERRORS: usize = 16 * 1024;

/// A process that runs one test of this very program, killed at the latest when this is dropped.
///
/// A test that is the program of a child begins with [`Child::role`], and does nothing if that is `None`.
pub struct Child {
    process: process::Child,
    errors: Arc<Mutex<Vec<u8>>>,
}

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
        Self { process: child.unwrap(), errors: Arc::default() }
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

    /// From now on, reads what the child writes to its standard error. [`Child::errors`] has the end of it.
    pub fn drain(&mut self) {
        let mut stderr = self.process.stderr.take().expect("it is drained already");
        let errors = Arc::clone(&self.errors);
        std::thread::spawn(move || {
            let mut read = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut read) {
                let mut errors = errors.lock().unwrap();
                errors.extend_from_slice(&read[..count]);
                let excess = errors.len().saturating_sub(KEPT_ERRORS);
                errors.drain(..excess);
            }
        });
    }

    /// The last 16 KiB of what a drained child wrote to its standard error.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.errors.lock().unwrap()).into_owned()
    }

    /// Sends a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has ended by itself.
    pub async fn exits(&mut self) -> process::ExitStatus {
        eventually("the child exits", PATIENCE, async || self.process.try_wait().unwrap()).await
    }

    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
