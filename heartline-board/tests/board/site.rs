//! A board that is served, and a browser without JavaScript.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use heartline::testing::{RedisCluster, RedisServer, TestApp};
use heartline::{App, Context, JobError, RunningWorker, TaskOptions, TaskRef};
use heartline_board::{BoardOptions, board};

/// A server, a task `export`, and its board.
pub struct Site {
    server: Server,
    pub app: App,
    pub export: TaskRef<String, u64>,
    address: String,
    base: String,
}

/// The server that the board reads.
enum Server {
    Alone(TestApp),
    Cluster(RedisCluster),
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// A header field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(": ")?.1)
    }
}

/// With the number of partitions in `HEARTLINE_TEST_PARTITIONS`, if it is set.
fn as_asked() -> TaskOptions {
    let partitions = std::env::var("HEARTLINE_TEST_PARTITIONS").ok().and_then(|count| count.parse().ok());
    partitions.map_or_else(TaskOptions::new, |count| TaskOptions::new().partitions(count))
}

impl Site {
    pub async fn new() -> Site {
        Site::with(BoardOptions::behind_own_auth(), "").await
    }

    /// For a test that reads or changes keys of the task: with one partition.
    pub async fn of_one_table() -> Site {
        crate::turn::with_server();
        let test = TestApp::start_with(|app| app.prefix("board")).await.unwrap();
        let app = test.app().clone();
        Site::of(Server::Alone(test), app, BoardOptions::behind_own_auth(), "", TaskOptions::new()).await
    }

    /// A board with these options, nested under a path.
    pub async fn with(options: BoardOptions, base: &str) -> Site {
        crate::turn::with_server();
        let test = TestApp::start_with(|app| app.prefix("board")).await.unwrap();
        let app = test.app().clone();
        Site::of(Server::Alone(test), app, options, base, as_asked()).await
    }

    /// The same on a cluster.
    pub async fn on_cluster() -> Site {
        crate::turn::with_cluster();
        let cluster = tokio::task::spawn_blocking(RedisCluster::start).await.unwrap().unwrap();
        let app = App::builder().redis(cluster.url()).prefix("board").build().await.unwrap();
        Site::of(Server::Cluster(cluster), app, BoardOptions::behind_own_auth(), "", as_asked()).await
    }

    /// With these pages.
    pub async fn serving(test: TestApp, pages: axum::Router) -> Site {
        let app = test.app().clone();
        Site::at(Server::Alone(test), app, pages, "", as_asked()).await
    }

    async fn of(server: Server, app: App, options: BoardOptions, base: &str, of_task: TaskOptions) -> Site {
        let pages = board(app.inspector(), options);
        Site::at(server, app, pages, base, of_task).await
    }

    async fn at(server: Server, app: App, mut pages: axum::Router, base: &str, of_task: TaskOptions) -> Site {
        let handler = |_: Context, input: String| async move {
            if input == "fail" {
                return Err(JobError::new("<img src=x onerror=alert(1)> & \u{1b}[31m".to_owned())
                    .with_code("disk")
                    .fatal());
            }
            Ok(2)
        };
        let export = app.task("export", of_task, handler).unwrap();
        if !base.is_empty() {
            pages = axum::Router::new().nest(base, pages);
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, pages).await });
        Site { server, app, export, address, base: base.to_owned() }
    }

    /// The single server.
    fn test(&self) -> &TestApp {
        match &self.server {
            Server::Alone(test) => test,
            Server::Cluster(_) => panic!("a cluster is not a server"),
        }
    }

    /// The nodes of the cluster.
    pub fn nodes(&mut self) -> &mut Vec<RedisServer> {
        match &mut self.server {
            Server::Alone(_) => panic!("a server is not a cluster"),
            Server::Cluster(cluster) => &mut cluster.nodes,
        }
    }

    /// Writes a value without a job into a column of the task.
    pub async fn damage(&self, column: &str, id: &str) {
        let () = redis::cmd("HSET")
            .arg(format!("board:{{export}}:{column}"))
            .arg(id)
            .arg("1")
            .query_async(&mut self.raw().await)
            .await
            .unwrap();
    }

    /// Runs these commands on keys of the task; their words contain no spaces.
    pub async fn damaged(&self, commands: &[&str]) {
        let mut conn = self.raw().await;
        for command in commands {
            let mut words = command.split(' ');
            let mut cmd = redis::cmd(words.next().unwrap());
            cmd.arg(format!("board:{{export}}:{}", words.next().unwrap())).arg(words.collect::<Vec<_>>());
            let () = cmd.query_async(&mut conn).await.unwrap();
        }
    }

    /// From now on writes wait.
    pub async fn hold_writes(&self) {
        let mut pause = redis::cmd("CLIENT");
        let () = pause.arg("PAUSE").arg(20_000).arg("WRITE").query_async(&mut self.raw().await).await.unwrap();
    }

    pub async fn let_write(&self) {
        let () = redis::cmd("CLIENT").arg("UNPAUSE").query_async(&mut self.raw().await).await.unwrap();
    }

    pub async fn raw(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.test().url())
            .unwrap()
            .get_multiplexed_async_connection_with_config(&patient())
            .await
            .unwrap()
    }

    /// The number of commands that the server has executed since it started.
    pub async fn calls(&self) -> u64 {
        self.info("stats", "total_commands_processed:").await
    }

    /// The number of executions of this command.
    pub async fn commands(&self, name: &str) -> u64 {
        self.info("commandstats", &format!("cmdstat_{name}:calls=")).await
    }

    async fn info(&self, section: &str, field: &str) -> u64 {
        let text: String = redis::cmd("INFO").arg(section).query_async(&mut self.raw().await).await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let digits = line.map(|line| line.chars().take_while(char::is_ascii_digit).collect::<String>());
        digits.map_or(0, |digits| digits.parse().unwrap())
    }

    /// The server process.
    pub fn server(&mut self) -> &mut RedisServer {
        match &mut self.server {
            Server::Alone(test) => test.server(),
            Server::Cluster(_) => panic!("a cluster is not a server"),
        }
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A worker of the task.
    pub fn worker(&self) -> RunningWorker {
        self.app.worker().spawn()
    }

    /// Runs jobs with these inputs to their ends.
    pub async fn run(&self, jobs: &[(&str, &str)]) {
        let worker = self.worker();
        for (id, input) in jobs {
            let _ = self.export.dispatch((*input).to_owned()).id(*id).await.unwrap().result().await;
        }
        let _ = worker.stop().await.unwrap();
    }

    /// A raw request with these header fields.
    pub async fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let mut head =
            format!("{method} {}{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", self.base, body.len());
        if !fields.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let (address, request) = (self.address.clone(), format!("{head}\r\n{body}"));
        tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            Answer { status, head: head.to_owned(), body: body.to_owned() }
        })
        .await
        .unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// The page at a path, which must exist.
    pub async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// Sends a form of our own.
    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let own = [("Sec-Fetch-Site", "same-origin"), ("Content-Type", "application/x-www-form-urlencoded")];
        self.ask("POST", path, &own, &encoded(form)).await
    }
}

/// A form in the encoding of a browser.
pub fn encoded(form: &[(&str, &str)]) -> String {
    let word = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    form.iter().map(|(name, value)| format!("{name}={}", word(value))).collect::<Vec<_>>().join("&")
}

/// The value of a hidden field of a form.
pub fn hidden<'a>(page: &'a str, name: &str) -> &'a str {
    page.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap().split('"').next().unwrap()
}

/// Waits until the condition is true.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The connection timeout of tests: the client's half second may be too short on a busy machine.
pub fn patient() -> redis::AsyncConnectionConfig {
    let time = Some(std::time::Duration::from_secs(20));
    redis::AsyncConnectionConfig::new().set_connection_timeout(time).set_response_timeout(time)
}
