//! A connection on which the server's clock shows what the test says: scripts read it from a key.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::OnceLock;

use futures_util::FutureExt;
use heartline::_internals::scripts;
use redis::aio::ConnectionLike;
use redis::{
    Arg, Cmd, ConnectionLike as _, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, Script, ServerErrorKind,
    Value,
};

use crate::simulation::task::Task;

/// How scripts read the time, and how they read it here.
const TIME: &str = "redis.call('TIME')";
const CLOCK: &str = "redis.call('HMGET', string.match(KEYS[1], '^.-}:') .. 'clock', 's', 'us')";

/// The scripts that read the clock of the test, by the hash of the real one.
fn clocked() -> &'static BTreeMap<Vec<u8>, Script> {
    static SCRIPTS: OnceLock<BTreeMap<Vec<u8>, Script>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        let of = |source: &str| {
            let clocked = source.replace(TIME, CLOCK);
            (Script::new(source).get_hash().as_bytes().to_vec(), Script::new(&clocked))
        };
        let scripts: Vec<_> = scripts().into_iter().filter(|script| script.source.contains(TIME)).collect();
        assert!(scripts.len() > 10, "scripts read the time in another way");
        scripts.iter().map(|script| of(script.source)).collect()
    })
}

/// The connection of a task.
pub struct Clocked<'a>(&'a mut redis::Connection);

impl Clocked<'_> {
    pub fn of(task: &mut Task) -> Clocked<'_> {
        Clocked(task.connection())
    }

    fn answer(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        let text = |arg| if let Arg::Simple(text) = arg { Some(text) } else { None };
        let args: Vec<&[u8]> = cmd.args_iter().filter_map(text).collect();
        let Some(script) = args.get(1).and_then(|hash| clocked().get(*hash)) else { return self.0.req_command(cmd) };
        let mut call = redis::cmd("EVALSHA");
        call.arg(script.get_hash());
        for arg in &args[2..] {
            call.arg(*arg);
        }
        let answer = self.0.req_command(&call).and_then(Value::extract_error);
        let is_lost = |error: &RedisError| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript);
        if answer.as_ref().err().is_some_and(is_lost) {
            script.load(self.0)?;
            return self.0.req_command(&call);
        }
        answer
    }
}

impl ConnectionLike for Clocked<'_> {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(ready(self.answer(cmd)))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(ready(self.0.req_packed_commands(&pipeline.get_packed_pipeline(), offset, count)))
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// The answer to a call over such a connection, which never waits.
pub fn answered<T>(call: impl Future<Output = heartline::Result<T>>) -> T {
    call.now_or_never().expect("a call waited for something else than its connection").unwrap()
}
