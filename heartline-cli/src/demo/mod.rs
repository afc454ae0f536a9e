//! `demo`: a private Redis, workers that are killed and frozen, and the board open on it.

mod crew;
pub(crate) mod tasks;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heartline::private_server::RedisServer;
use heartline::{App, Inspector, StalledEvent, Subscription};
use heartline_board::BoardOptions;
use heartline_board::text::{chain, many, shown};
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::crew::Crew;
use self::tasks::Tasks;
use crate::args::Demo;
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::{bind, serve};

/// Something happens to a worker each so many rounds: two times of three it is killed in one of them, else frozen in one and thawed in
/// another, more than two of the tasks' intervals later.
const TROUBLE: u64 = 12;
const KILLED: u64 = 4;
const FROZEN: u64 = 1;
const THAWED: u64 = 10;

/// How long a round takes.
const ROUND: Duration = Duration::from_secs(1);

/// How long jobs may take to end behind the last dispatch.
const DRAIN: Duration = Duration::from_secs(60);

/// The last word of the demo.
#[derive(Debug, Default, Serialize)]
struct Verdict {
    /// As it counted itself.
    dispatched: u64,
    ended: u64,
    /// Of those that ended: by the demo's own fault, as it is meant to be.
    failed: u64,
    unfinished: u64,
    /// Of those that were dispatched: neither ended nor there any more.
    lost: u64,
    /// What an audit says, which finds every job that is not in exactly one place.
    faults: u64,
    /// Workers that were killed, or took themselves down.
    deaths: u64,
    stalls: u64,
}

/// The demo while it runs.
struct Show {
    inspector: Inspector,
    tasks: Tasks,
    crew: Crew,
    stalled: Subscription<StalledEvent>,
    out: Output,
    round: u64,
    verdict: Verdict,
}

/// Runs until Ctrl-C, or for the time that was asked for and until its jobs have ended.
pub(crate) async fn run(demo: Demo, out: Output) -> Result<(), Failure> {
    if demo.listen.is_some_and(|address| !address.ip().is_loopback()) {
        return Err(Failure::wrong(
            "the demo asks for no token, so it listens on this machine alone, as 127.0.0.1:9188",
        ));
    }
    let server = tokio::task::spawn_blocking(RedisServer::start).await.map_err(std::io::Error::other)?;
    let server = server.map_err(|e| Failure::Failed(chain(&e)))?;
    let app = App::builder().redis(server.url()).build().await?;
    let crew = Crew::start(demo.workers.into(), &server.url())?;
    out.hint(format!("a private Redis on {}, and {}", server.url(), many(demo.workers.into(), "worker")));
    let mut show = Show {
        inspector: app.inspector().by("demo"),
        tasks: Tasks::of(&app)?,
        crew,
        stalled: app.on_stalled(),
        out,
        round: 0,
        verdict: Verdict::default(),
    };

    let listener = match demo.listen {
        Some(address) => bind(address).await?,
        // Where somebody's board is there already, any other port.
        None => match bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 9188))).await {
            Ok(listener) => listener,
            Err(_) => bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?,
        },
    };
    let options = BoardOptions::behind_own_auth().name("demo").plain_http();
    let pages = heartline_board::board(app.inspector(), options);
    let board = serve(listener, pages, |at| say!("the board is on http://{at}/; Ctrl-C ends the demo and its Redis"));
    tokio::select! {
        // It is there until the end, and hears of Ctrl-C.
        served = board => served?,
        ended = show.run(demo.length) => ended?,
    }
    tokio::select! {
        ended = show.end() => ended,
        () = heartline::shutdown_signal() => Err(Failure::Failed("stopped; its workers are killed".to_owned())),
    }
}

impl Show {
    /// Goes on for so long, and until all jobs have ended; or for ever.
    async fn run(&mut self, length: Option<Duration>) -> Result<(), Failure> {
        self.drive(length.map(|time| Instant::now() + time)).await?;
        self.drain().await
    }

    /// Dispatches, and lets things happen to the workers, until then. It ends between two rounds, so that each job is counted.
    async fn drive(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
            self.verdict.dispatched += self.tasks.dispatch(self.round).await?;
            let (nth, within) = (self.round / TROUBLE, self.round % TROUBLE);
            let number = nth as usize;
            match (within, nth % 3) {
                (KILLED, 0 | 1) => {
                    let pid = self.crew.kill(number);
                    self.say(&format!("killed the worker process {pid} (SIGKILL); it is started again"));
                }
                (FROZEN, 2) => {
                    let pid = self.crew.signal(number, Signal::STOP);
                    self.say(&format!("froze the worker process {pid} for {} s (SIGSTOP)", THAWED - FROZEN));
                }
                (THAWED, 2) => {
                    let pid = self.crew.signal(number, Signal::CONT);
                    self.say(&format!("the worker process {pid} goes on; what it lost it cannot record"));
                }
                _ => {}
            }
            self.tend()?;
            self.round += 1;
        }
    }

    /// Starts workers again that died, and tells of stalls.
    fn tend(&mut self) -> Result<(), Failure> {
        self.verdict.deaths += self.crew.tend()?;
        while let Ok(Some(stall)) = self.stalled.try_recv() {
            self.verdict.stalls += 1;
            let worker = stall.worker.as_ref().map_or("nobody", |worker| worker.as_str());
            let StalledEvent { task, id, action, reason, .. } = &stall;
            self.say(&format!("{task} {id} stalled under {worker} ({reason}): {action}"));
        }
        Ok(())
    }

    /// Waits until every job has ended.
    async fn drain(&mut self) -> Result<(), Failure> {
        self.crew.thaw();
        let begun = Instant::now();
        loop {
            self.tend()?;
            self.account().await?;
            if self.verdict.unfinished == 0 || begun.elapsed() > DRAIN {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Counts what has become of the jobs.
    async fn account(&mut self) -> Result<(), Failure> {
        let (mut ended, mut failed, mut unfinished) = (0, 0, 0);
        for task in self.inspector.tasks().await? {
            ended += task.ended;
            failed += task.counts.failed;
            unfinished += task.counts.unfinished();
        }
        // Ctrl-C may have come between a dispatch and its count.
        self.verdict.dispatched = self.verdict.dispatched.max(ended + unfinished);
        self.verdict.ended = ended;
        self.verdict.failed = failed;
        self.verdict.unfinished = unfinished;
        self.verdict.lost = self.verdict.dispatched.saturating_sub(ended + unfinished);
        Ok(())
    }

    /// Lets the workers end, and says what has become of all jobs.
    async fn end(mut self) -> Result<(), Failure> {
        let mut crew = self.crew;
        self.crew = tokio::task::spawn_blocking(move || {
            crew.stop();
            crew
        })
        .await
        .map_err(std::io::Error::other)?;
        self.account().await?;
        for task in self.inspector.task_names().await? {
            let report = self.inspector.audit(&task).await?;
            self.verdict.faults += report.parts.iter().map(|part| part.found).sum::<u64>();
        }
        let Verdict { dispatched, ended, failed, unfinished, lost, faults, deaths, stalls } = &self.verdict;
        if self.out.is_json {
            self.out.json_line(&self.verdict)?;
        } else {
            self.out.line(format!(
                "{dispatched} dispatched, {ended} ended ({failed} of them failed), {unfinished} not yet, {lost} lost; {deaths} workers died, {stalls} jobs \
                 stalled, an audit finds {faults} faults"
            ))?;
        }
        if lost + faults == 0 { Ok(()) } else { Err(Failure::Failed("jobs were lost".to_owned())) }
    }

    fn say(&self, what: &str) {
        self.out.hint(shown(what));
    }
}
