use super::task::TestTask;
use super::{TestRedis, settle_args};
use heartline::_internals::scripts;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult, Script, Value};

/// A job that a puppet holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: String,
    pub fence: u64,
}

/// The report of a puppet about a job: kind, attempt, code or delay in ms, error.
pub type Said<'a> = (&'a Token, &'a str, u32, &'a str, &'a str);

/// A worker that obeys the protocol only as far as the test says. Left alone, it is like a dead one: it holds its jobs
/// and sends no heartbeats.
pub struct Puppet {
    keys: String,
    conn: MultiplexedConnection,
    pub name: String,
    call: u64,
}

/// The reply of sweep to a puppet: the resolved ids.
#[derive(Debug)]
pub struct Swept {
    pub epoch: u64,
    pub cursor: String,
    pub snapshot: bool,
    pub ids: Vec<String>,
}

impl Puppet {
    /// A worker of the task, with a unique name.
    pub async fn of(task: &TestTask) -> Puppet {
        Puppet::over(task.redis(), task.key("")).await
    }

    /// The same, for the task with this key prefix.
    pub async fn over(redis: &TestRedis, keys: String) -> Puppet {
        let name = format!("puppet-{}", redis.unique_prefix());
        Puppet { keys, conn: redis.conn().await, name, call: 0 }
    }

    async fn call<T: FromRedisValue>(&mut self, name: &str, args: &[String]) -> RedisResult<T> {
        // As if a worker had started before.
        let meta = format!("{}meta", self.keys);
        let () = redis::cmd("HSETNX").arg(meta).arg("declaredAt").arg(1).query_async(&mut self.conn).await?;
        let script = scripts().into_iter().find(|script| script.name == name).unwrap();
        let call = Script::new(script.source);
        let mut call = call.prepare_invoke();
        for key in &script.keys {
            call.key(format!("{}{key}", self.keys));
        }
        args.iter().for_each(|arg| {
            call.arg(arg);
        });
        call.invoke_async(&mut self.conn).await
    }

    /// One settle: completed jobs, other outcomes, and how many to claim. Returns the claimed ones.
    pub async fn settle(&mut self, completed: &[Token], said: &[Said<'_>], want: usize) -> Vec<Token> {
        self.call += 1;
        let mut args = [self.call.to_string(), self.name.clone(), "1000".into(), want.to_string()].to_vec();
        args.extend([completed.len().to_string(), "0".into()]);
        args.extend(completed.iter().map(|token| token.id.clone()));
        args.extend(completed.iter().map(|token| token.fence.to_string()));
        for (token, kind, attempt, detail, error) in said {
            args.extend([token.id.clone(), token.fence.to_string(), (*kind).into(), attempt.to_string()]);
            args.extend([(*detail).to_owned(), (*error).to_owned()]);
        }
        type Reply = (String, Value, Value, u64, String, Value, Value, Value, Value);
        let (word, _, _, fence, ids, _, _, _, _): Reply = self.call("settle", &settle_args(&args)).await.unwrap();
        assert_eq!(word, "settled");
        ids.split_whitespace().map(str::to_owned).zip(fence..).map(|(id, fence)| Token { id, fence }).collect()
    }

    pub async fn claim(&mut self, want: usize) -> Vec<Token> {
        self.settle(&[], &[], want).await
    }

    /// Claims exactly these jobs, which must be all that wait.
    pub async fn claim_all(&mut self, ids: &[&str]) -> Vec<Token> {
        let tokens = self.claim(ids.len()).await;
        assert_eq!(tokens.iter().map(|token| token.id.as_str()).collect::<Vec<_>>(), ids);
        tokens
    }

    /// One heartbeat. Returns the fences that were lost.
    pub async fn beat(&mut self, tokens: &[Token]) -> Vec<u64> {
        let mut args = [self.name.clone(), "1000".into(), tokens.len().to_string(), "0".into()].to_vec();
        args.extend(tokens.iter().map(|token| token.id.clone()));
        args.extend(tokens.iter().map(|token| token.fence.to_string()));
        type Reply = (String, u64, u64, Vec<u64>, Value, Value, Value, Value);
        let (_, _, _, lost, _, _, _, _): Reply = self.call("extend_locks", &args).await.unwrap();
        lost
    }

    /// Stores a checkpoint.
    pub async fn note(&mut self, token: &Token, number: u64, checkpoint: &str) {
        let args = [self.name.clone(), token.id.clone(), token.fence.to_string(), number.to_string()];
        let args = [&args[..], &[checkpoint.to_owned(), String::new(), String::new()]].concat();
        let (_, lost): (String, Vec<String>) = self.call("note", &args).await.unwrap();
        assert_eq!(lost, [""; 0]);
    }

    /// One call of sweep, as a witness that has watched `epoch` for a second. `None`: the epoch has changed.
    pub async fn sweep(&mut self, epoch: u64, cursor: &str, limit: usize) -> Option<Swept> {
        let args =
            [self.name.clone(), "1000".into(), epoch.to_string(), "1000".into(), cursor.into(), limit.to_string()];
        let reply: Vec<Value> = self.call("sweep", &args).await.unwrap();
        let text = |at: usize| redis::from_redis_value_ref::<String>(&reply[at]).unwrap();
        match text(0).as_str() {
            "moved" => None,
            "swept" => {
                let words: Vec<String> = redis::from_redis_value_ref(&reply[6]).unwrap();
                let ids = words.chunks(5).map(|five| five[0].clone()).collect();
                Some(Swept { epoch: text(1).parse().unwrap(), cursor: text(3), snapshot: text(4) == "1", ids })
            }
            other => panic!("sweep answered {other}"),
        }
    }
}
