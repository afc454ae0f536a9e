//! `demo`: kills and freezes workers while they run jobs, and accounts for every job.
//!
//! Three worker processes count the words of a few thousand files. Meanwhile the demo kills them, freezes one, runs a job that takes its
//! process down, and cancels a job whose worker dies. At the end it compares what the jobs counted with a direct count. With `--workflow`
//! it runs graphs of jobs instead, with `--schedules` recurring jobs, with `--limits` jobs of many customers.

mod account;
mod crew;
mod files;
mod index;
mod limits;
mod schedules;
mod servers;
mod tick_account;
mod workflows;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heartline::{StopReason, TaskRef};
use tokio::net::TcpListener;
use uuid::Uuid;

use self::crew::Crew;
use self::index::Index;
use self::servers::Servers;
use crate::args::{Demo, Global};
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::{bind, serve};
use crate::target::Target;

/// How many worker processes there are.
const WORKERS: usize = 3;

/// The port of the board, unless it is taken.
const PORT: u16 = 9188;

/// Runs once, or with the board until Ctrl-C.
pub(crate) async fn run(demo: Demo, global: &Global) -> Result<(), Failure> {
    if demo.listen.is_some_and(|address| !address.ip().is_loopback()) {
        return Err(Failure::wrong("the board of the demo has no token; listen on loopback, such as 127.0.0.1:9188"));
    }
    if demo.files == 0 {
        return Err(Failure::wrong("--files must be at least 1"));
    }
    if demo.cluster && global.redis.is_some() {
        return Err(Failure::wrong("--cluster starts servers of its own; it cannot be combined with --redis"));
    }
    let paths = if demo.schedules || demo.limits {
        Vec::new()
    } else {
        let (directory, paths) = files::find(demo.directory, demo.files)?;
        say!("{} files of {}", paths.len(), directory.display());
        paths
    };
    // A server of its own has no keys of others.
    let is_given = global.redis.is_some();
    let prefix = if is_given { format!("heartline-demo-{}", Uuid::new_v4()) } else { "demo".to_owned() };
    let (mut servers, target) = Servers::start(global, demo.cluster, &prefix).await?;
    let stay = if matches!(servers, Servers::Given) { "; they stay there" } else { "" };
    say!("on {servers}, keys under {prefix}{stay}");
    let out = Output::of(global);
    if demo.workflow {
        return until_signal(workflows::run(&target, &paths, out)).await;
    }
    if demo.schedules {
        return until_signal(schedules::run(&target, out)).await;
    }
    if demo.limits {
        return until_signal(limits::run(&target, out)).await;
    }
    let app = target.app().event_capacity(100_000).build().await?;
    let crew = Arc::new(Crew::start(WORKERS, &target, &[])?);
    let tend = tokio::spawn(Arc::clone(&crew).tend());
    let mut index = Index::new(&app, &mut servers, &crew, &paths)?;
    let ended = if demo.board {
        let listener = listen(demo.listen).await?;
        #[cfg(feature = "board")]
        let pages = {
            let options = heartline_board::BoardOptions::behind_own_auth().name("demo").plain_http();
            heartline_board::board(app.inspector(), options)
        };
        #[cfg(not(feature = "board"))]
        let pages = axum::Router::new();
        tokio::select! {
            served = serve(listener, pages, |at| say!("board on http://{at}/; Ctrl-C stops the demo")) => served,
            ended = index.run_forever(out) => ended,
        }
    } else {
        until_signal(index.pass(true, out)).await
    };
    tend.abort();
    ended
}

/// Waits until all jobs of a task have ended. Returns how many completed.
async fn all_end<I, O>(task: &TaskRef<I, O>, longest: Duration) -> Result<u64, Failure> {
    let begun = Instant::now();
    loop {
        let counts = task.counts().await?;
        let open = counts.pending_total();
        if open == 0 {
            return Ok(counts.completed);
        }
        if begun.elapsed() > longest {
            return Err(Failure::Failed(format!("{open} jobs did not end in {} s", longest.as_secs())));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_signal(run: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        ended = run => ended,
        () = heartline::shutdown_signal() => Err(Failure::Failed("stopped; the workers are killed".to_owned())),
    }
}

async fn listen(address: Option<SocketAddr>) -> Result<TcpListener, Failure> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match address {
        Some(address) => bind(address).await,
        None => match bind(local(PORT)).await {
            Ok(listener) => Ok(listener),
            Err(_) => bind(local(0)).await,
        },
    }
}

/// Runs a worker of the demo until its standard input ends. The demo holds the other end.
pub(crate) async fn work(
    global: &Global,
    is_workflow: bool,
    version: Option<u32>,
    has_limits: bool,
) -> Result<(), Failure> {
    // A frozen worker does not notice the end of its input.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(std::io::Error::from)?;
    let target = Target::of(global)?;
    let app = target.connect(global, false).await?;
    if is_workflow {
        workflows::declare(&app, &target.prefix)?;
    } else if let Some(version) = version {
        schedules::declare(&app, version)?;
    } else if has_limits {
        limits::declare(&app)?;
    } else {
        index::Tasks::of(&app)?;
    }
    let worker = app.worker().spawn();
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_to_end(&mut Vec::new())).await;
    match worker.stop().await? {
        StopReason::Shutdown => Ok(()),
        other => Err(Failure::Failed(other.to_string())),
    }
}
