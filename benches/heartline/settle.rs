//! Calls the settle script directly, as the driver of a worker does.

use anyhow::{Result, ensure};
use redis::{Cmd, Value};

use crate::server::{Script, Server, item, items};

/// A worker that calls settle directly.
#[derive(Debug)]
pub struct Settle {
    script: Script,
    worker: String,
    ask_ms: u64,
    calls: u64,
}

/// Jobs claimed by one call. Their fences are consecutive; `fence` is the first.
#[derive(Debug)]
pub struct Claimed {
    pub fence: u64,
    pub ids: Vec<String>,
}

impl Settle {
    /// Also marks the task as declared, as settle requires.
    pub fn new(server: &mut Server, task: &str, worker: &str, ask_ms: u64) -> Result<Settle> {
        let meta = server.key(task, "meta");
        server.ask::<usize>(&["HSET", &meta, "declaredAt", "1"])?;
        Ok(Settle { script: server.script("settle", task)?, worker: worker.to_owned(), ask_ms, calls: 0 })
    }

    fn call(&mut self, completed: usize) -> Cmd {
        self.calls += 1;
        let mut call = self.script.call();
        // Call, sequence, worker, ask; want, begin, with_slot, hooks, most; completed, ran, values, begins, begin_slots.
        call.arg(self.calls).arg("").arg(&self.worker).arg(self.ask_ms);
        call.arg(0).arg("").arg("").arg("").arg("").arg(completed).arg("").arg(0).arg(0).arg(0);
        call
    }

    pub fn complete(&mut self, server: &mut Server, done: &Claimed) -> Result<()> {
        let n = done.ids.len();
        let mut call = self.call(n);
        call.arg(&done.ids);
        for i in 0..n as u64 {
            call.arg(done.fence + i);
        }
        let answer: Value = call.query(server.conn())?;
        let lost: String = item(&items(answer)?, 1)?;
        ensure!(lost.is_empty(), "a completion was refused");
        Ok(())
    }
}
