//! The server under test: its counters, direct calls of scripts, and cleaning up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use redis::{Cmd, Connection, ConnectionLike, Value};

/// A blocking connection, and the prefix of the keys that the bench writes.
pub struct Server {
    /// The address for Heartline.
    pub url: String,
    /// The address for clients of the bench. With a cluster, it is another one.
    pub direct: String,
    pub prefix: String,
    conn: Connection,
    /// The number of commands of the bench itself, which do not count as work.
    asked: f64,
}

/// The counters of the server.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Calls by command, including those of scripts.
    calls: BTreeMap<String, f64>,
    /// The time of EVALSHA, including the commands of scripts.
    evalsha_us: f64,
    cpu_us: f64,
    asked: f64,
}

impl Counted {
    pub fn since(&self, before: &Counted) -> Counted {
        let calls = self
            .calls
            .iter()
            .map(|(name, calls)| (name.clone(), calls - before.calls.get(name).unwrap_or(&0.0)))
            .filter(|(_, calls)| *calls > 0.0)
            .collect();
        Counted {
            calls,
            evalsha_us: self.evalsha_us - before.evalsha_us,
            cpu_us: self.cpu_us - before.cpu_us,
            asked: self.asked - before.asked,
        }
    }

    /// The number of commands, including those of scripts, without those of the bench itself.
    pub fn commands(&self) -> f64 {
        self.calls.values().sum::<f64>() - self.asked
    }

    pub fn script_calls(&self) -> f64 {
        self.calls.get("evalsha").copied().unwrap_or(0.0)
    }

    pub fn script_us(&self) -> f64 {
        self.evalsha_us
    }

    /// User and system time of the server process.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_us
    }
}

impl Server {
    pub fn connect(url: &str) -> Result<Server> {
        Server::connect_to(url, url)
    }

    /// The same if Heartline uses another address.
    pub fn connect_to(direct: &str, url: &str) -> Result<Server> {
        let conn = redis::Client::open(direct)?.get_connection().context("connecting the bench's own connection")?;
        let prefix = format!("heartline-bench-{}", std::process::id());
        Ok(Server { url: url.to_owned(), direct: direct.to_owned(), prefix, conn, asked: 0.0 })
    }

    /// Another blocking connection.
    pub fn blocking(&self) -> Result<Connection> {
        Ok(redis::Client::open(self.direct.as_str())?.get_connection()?)
    }

    pub fn conn(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// The name of a key of a task.
    pub fn key(&self, task: &str, suffix: &str) -> String {
        format!("{}:{{{task}}}:{suffix}", self.prefix)
    }

    pub fn ask<T: redis::FromRedisValue>(&mut self, command: &[&str]) -> Result<T> {
        let (name, args) = command.split_first().context("an empty command")?;
        let mut cmd = redis::cmd(name);
        cmd.arg(args);
        self.asked += 1.0;
        cmd.query(&mut self.conn).with_context(|| format!("calling {name}"))
    }

    fn info(&mut self, section: &str) -> Result<String> {
        self.ask(&["INFO", section])
    }

    /// A number in INFO.
    fn info_number(&mut self, section: &str, field: &str) -> Result<f64> {
        number(&self.info(section)?, field).with_context(|| format!("{field} is missing in INFO {section}"))
    }

    pub fn counted(&mut self) -> Result<Counted> {
        // INFO is counted when it has ended, so that its own reply does not include it.
        let mut counted = Counted { asked: self.asked, ..Counted::default() };
        for line in self.info("commandstats")?.lines() {
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
                continue;
            };
            let value = |field: &str| {
                rest.split(',').find_map(|pair| pair.strip_prefix(field)?.strip_prefix('=')?.parse::<f64>().ok())
            };
            counted.calls.insert(name.to_owned(), value("calls").unwrap_or(0.0));
            if name == "evalsha" {
                counted.evalsha_us = value("usec").unwrap_or(0.0);
            }
        }
        let cpu = self.info("cpu")?;
        let seconds = number(&cpu, "used_cpu_user").unwrap_or(0.0) + number(&cpu, "used_cpu_sys").unwrap_or(0.0);
        counted.cpu_us = seconds * 1e6;
        Ok(counted)
    }

    /// The server time of one command in µs, its wall time, and its reply.
    pub fn timed(&mut self, cmd: &Cmd, stat: &str) -> Result<(f64, Duration, Value)> {
        let field = format!("cmdstat_{stat}");
        let spent = |text: &str| -> f64 {
            text.lines()
                .find_map(|line| line.strip_prefix(&field)?.split_once("usec=")?.1.split(',').next()?.parse().ok())
                .unwrap_or(0.0)
        };
        let before = spent(&self.info("commandstats")?);
        let start = Instant::now();
        let answer: Value = cmd.query(&mut self.conn)?;
        let wall = start.elapsed();
        Ok((spent(&self.info("commandstats")?) - before, wall, answer))
    }

    /// Logs each call that takes 100 µs or longer, for [`longest_call`](Server::longest_call).
    pub fn log_slow_calls(&mut self) -> Result<()> {
        for setting in [["slowlog-log-slower-than", "100"], ["slowlog-max-len", "20000"]] {
            self.ask::<String>(&["CONFIG", "SET", setting[0], setting[1]])?;
        }
        self.ask::<String>(&["SLOWLOG", "RESET"])?;
        Ok(())
    }

    /// The longest logged call of one of Heartline's scripts: its name, and its time in µs. Logs no more short calls.
    pub fn longest_call(&mut self, counts: impl Fn(&str) -> bool) -> Result<(String, f64)> {
        let slow: Vec<(i64, i64, f64, Vec<Value>, String, String)> = self.ask(&["SLOWLOG", "GET", "-1"])?;
        self.ask::<String>(&["CONFIG", "SET", "slowlog-log-slower-than", "10000"])?;
        let mut names = BTreeMap::new();
        for script in heartline::_internals::scripts().into_iter().filter(|script| counts(script.name)) {
            names.insert(self.load(script.source)?, script.name);
        }
        let mut longest = (String::new(), 0.0);
        for (_, _, took, words, ..) in &slow {
            let sha: String = words.get(1).map_or(Ok(String::new()), |word| redis::from_redis_value(word.clone()))?;
            if let Some(name) = names.get(&sha).filter(|_| *took > longest.1) {
                longest = ((*name).to_owned(), *took);
            }
        }
        Ok(longest)
    }

    /// Bytes of data and buffers, after the server has freed what it deleted.
    pub fn used_memory(&mut self) -> Result<f64> {
        while self.info_number("memory", "lazyfree_pending_objects")? > 0.0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.info_number("memory", "used_memory")
    }

    /// Removes the keys of the bench, and no others.
    pub fn clean(&mut self) -> Result<()> {
        let pattern = format!("{}:*", self.prefix);
        let mut cursor = "0".to_owned();
        loop {
            let (next, keys): (String, Vec<String>) =
                self.ask(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"])?;
            // One key per command: in a cluster, they have different slots.
            let mut unlink = redis::pipe();
            for key in &keys {
                unlink.unlink(key).ignore();
            }
            if !keys.is_empty() {
                unlink.query::<()>(&mut self.conn)?;
            }
            if next == "0" {
                break;
            }
            cursor = next;
        }
        self.used_memory()?;
        Ok(())
    }

    pub fn load(&mut self, source: &str) -> Result<String> {
        self.ask(&["SCRIPT", "LOAD", source])
    }

    /// Sends packed commands, each after the reply to the previous one. Returns the time, and what the server counted.
    pub fn drive<'a>(&mut self, packed: impl IntoIterator<Item = &'a Vec<u8>>) -> Result<(Duration, Counted)> {
        let before = self.counted()?;
        let start = Instant::now();
        for command in packed {
            self.conn.req_packed_command(command).and_then(Value::extract_error)?;
        }
        let took = start.elapsed();
        Ok((took, self.counted()?.since(&before)))
    }

    /// One of Heartline's scripts, with the keys of a task.
    pub fn script(&mut self, name: &str, task: &str) -> Result<Script> {
        let found = heartline::_internals::scripts().into_iter().find(|script| script.name == name);
        let script = found.ok_or_else(|| anyhow!("missing script {name}"))?;
        let sha = self.load(script.source)?;
        let keys = script.keys.iter().map(|suffix| self.key(task, suffix)).collect();
        Ok(Script { sha, keys })
    }

    /// A script of the bench, with these keys of a task.
    pub fn own_script(&mut self, source: &str, task: &str, suffixes: &[&str]) -> Result<Script> {
        let sha = self.load(source)?;
        Ok(Script { sha, keys: suffixes.iter().map(|suffix| self.key(task, suffix)).collect() })
    }
}

fn number(info: &str, field: &str) -> Option<f64> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
}

/// A loaded script and its keys.
#[derive(Clone, Debug)]
pub struct Script {
    sha: String,
    keys: Vec<String>,
}

impl Script {
    pub fn call(&self) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.sha).arg(self.keys.len()).arg(&self.keys);
        cmd
    }
}

/// The items of a reply that is a list.
pub fn items(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        other => bail!("the script returned {other:?}"),
    }
}

/// One item of a reply, converted to its type.
pub fn item<T: redis::FromRedisValue>(items: &[Value], at: usize) -> Result<T> {
    let value = items.get(at).with_context(|| format!("the reply has no item {at}"))?;
    redis::from_redis_value(value.clone()).map_err(|e| anyhow!("item {at} of the reply: {e}"))
}
