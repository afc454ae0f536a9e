//! The command line, as clap reads it. These doc comments are the help texts.

#[cfg(unix)]
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::builder::FalseyValueParser;
use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use heartline::{JobFilter, JobState, Priority, Rate, WorkflowState};

/// The help text with these commands as examples.
macro_rules! examples {
    ($first:literal $(, $more:literal)*) => {
        concat!("Example:\n  heartline ", $first $(, "\n  heartline ", $more)*)
    };
}

/// Inspect and manage Heartline's tasks, jobs and workers.
///
/// The server is taken from --redis, then HEARTLINE_URL, then REDIS_URL; the default is redis://127.0.0.1:6379.
#[derive(Debug, Parser)]
#[command(
    name = "heartline",
    version,
    after_help = "Start with:\n  heartline status            is everything working, and if not, what is wrong\n  heartline tasks             what each task does\n  \
                  heartline jobs list -t export --state failed\n  heartline stalls outlook -t export   why nothing is recovered yet\n\n\
                  Exit status: 0 on success, 1 on failure, 2 on wrong usage."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Who acts if neither `--by` nor the environment names a user.
pub(crate) const UNNAMED: &str = "heartline-cli";

/// The heading of the options of every command.
const CONNECTION: &str = "Connection";

/// The options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The Redis server: redis://host:port/db, rediss://, unix:///path, or redis-sentinel:// and redis-cluster://
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) redis: Option<String>,
    /// A PEM file with the CA of the server's certificate, instead of Mozilla's roots [default: HEARTLINE_TLS_CA]
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A PEM file with the client certificate [default: HEARTLINE_TLS_CERT]
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file with the client certificate's key [default: HEARTLINE_TLS_KEY]
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The prefix of every Redis key [default: heartline]
    #[arg(long, global = true, help_heading = CONNECTION, env = "HEARTLINE_PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Print JSON, with times in ms since 1970
    #[arg(long, global = true, help_heading = CONNECTION)]
    pub(crate) json: bool,
    /// Answer yes to every confirmation
    #[arg(long, short, global = true, help_heading = CONNECTION)]
    pub(crate) yes: bool,
    /// Treat the server as production: also ask before changes to single jobs
    #[arg(long, global = true, help_heading = CONNECTION, env = "HEARTLINE_PRODUCTION", value_parser = FalseyValueParser::new())]
    pub(crate) production: bool,
    /// Your name, recorded in the event of each change [default: $USER, else heartline-cli]
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "NAME")]
    by: Option<String>,
}

impl Global {
    /// The server's URL and where it came from: the option, else the first variable that is set.
    pub(crate) fn server(&self) -> Option<(String, &'static str)> {
        let of = |name| std::env::var(name).ok().filter(|url| !url.is_empty()).map(|url| (url, name));
        let option = self.redis.clone().map(|url| (url, "--redis"));
        option.or_else(|| of("HEARTLINE_URL")).or_else(|| of("REDIS_URL"))
    }

    /// Whether `--redis` contains a password. Other users of the machine can read it there.
    pub(crate) fn shows_password(&self) -> bool {
        let user = self.redis.as_deref().and_then(|url| url.split_once("://")?.1.rsplit_once('@'));
        user.is_some_and(|(user, _)| user.contains(':'))
    }

    /// The name recorded in events.
    pub(crate) fn by(&self) -> String {
        let of = |name: &str| std::env::var(name).ok().filter(|user| !user.is_empty());
        let user = self.by.clone().or_else(|| of("USER")).or_else(|| of("USERNAME"));
        user.unwrap_or_else(|| UNNAMED.to_owned())
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show whether everything works, and what does not; exit status 1 if anything is wrong
    #[command(after_help = examples!("status", "status --json"))]
    Status,
    /// List the tasks: jobs by state, rates, workers
    #[command(after_help = examples!("tasks"))]
    Tasks,
    /// Show, pause, resume, purge or forget a task
    #[command(subcommand)]
    Task(TaskCommand),
    /// List, show, dispatch, cancel, retry, run now, remove or wait for jobs
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// List the workers: what each holds, and which are quiet, silent or gone; or let one claim no more jobs
    #[command(args_conflicts_with_subcommands = true)]
    #[command(after_help = examples!("workers --all", "workers --beats", "workers quiet WORKER"))]
    Workers {
        #[command(subcommand)]
        command: Option<WorkersCommand>,
        /// Show only this worker, in detail
        #[arg(value_name = "WORKER")]
        worker: Option<String>,
        /// Also show workers that are gone
        #[arg(long, short)]
        all: bool,
        /// Show heartbeats by worker and task: the jobs held, and until when their locks are safe
        #[arg(long, conflicts_with_all = ["worker", "all"])]
        beats: bool,
    },
    /// Find what has a name or an id: a task, a job of any task, a worker, a workflow, an instance or a schedule
    ///
    /// If nothing has exactly this name, the tasks, workers and workflows whose names contain it are listed. Exit status 1 if nothing is found.
    #[command(after_help = examples!("find export-7"))]
    Find {
        /// The name or the id
        #[arg(value_name = "NAME")]
        text: String,
    },
    /// Show which job has a unique key
    #[command(subcommand)]
    Unique(UniqueCommand),
    /// List the keys of a task whose jobs wait: in turn, resting or full
    #[command(subcommand)]
    Lanes(LanesCommand),
    /// List, show, cancel, pause, resume, retry or recover workflow instances
    #[command(subcommand)]
    Flows(FlowsCommand),
    /// List, show, run, pause, resume, backfill or remove schedules, and show what they fire next
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// List and explain stalls, and show when silent jobs will be recovered
    #[command(subcommand)]
    Stalls(StallsCommand),
    /// Decide by hand about jobs whose worker is silent or dead
    ///
    /// This is seldom needed: live workers recover the jobs of a dead one. `worker` recovers the jobs of a worker that you know to be dead,
    /// at once. `sweep` does what a worker does, if no worker is running. `running`, `claimed` and `fail` are for tasks with manual
    /// recovery, or to override the task's options. Except for `worker`, a job is recovered only if it was silent for a whole watched stall
    /// interval, or is parked for a person.
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Check that each job is in exactly one list or set, and that no data is left over
    #[command(after_help = examples!("audit              every task", "audit -t export"))]
    Audit {
        /// The task [default: all]
        #[arg(long, short)]
        task: Option<String>,
    },
    /// Audit a task, and repair what is wrong
    #[command(after_help = examples!("repair -t export --dry-run"))]
    Repair {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Only show what would be repaired
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the events of a task's jobs
    #[command(after_help = examples!("events -t export --follow", "events -t export --job export-7"))]
    Events {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Only events of this job
        #[arg(long, conflicts_with = "follow")]
        job: Option<String>,
        /// Keep printing new events until Ctrl-C
        #[arg(long, short)]
        follow: bool,
    },
    /// Check whether jobs are processed; if not, say why and what to do, with exit status 1
    #[command(after_help = examples!("health || systemctl status 'worker@*'"))]
    Health,
    /// Check the server, tasks and workers, and say what to do; exit status 1 if jobs are at risk
    #[command(after_help = examples!("doctor"))]
    Doctor,
    /// Serve tools that only read to an assistant, by the Model Context Protocol over standard input and output
    #[command(after_help = examples!("mcp", "mcp --values"))]
    #[cfg(feature = "mcp")]
    Mcp {
        /// Also show payloads, results and checkpoints of jobs
        #[arg(long)]
        values: bool,
    },
    /// Serve the board, a web page for tasks, jobs, workers and stalls
    #[command(after_help = examples!("board --name production --read-only"))]
    #[cfg(feature = "board")]
    Board(BoardServing),
    /// Serve the fleet's metrics for Prometheus at /metrics, and a health check at /health
    #[command(after_help = examples!("metrics --listen 127.0.0.1:9187", "metrics --once > heartline.prom"))]
    Metrics {
        #[command(flatten)]
        serving: Serving,
        /// Print the metrics once and exit
        #[arg(long)]
        once: bool,
    },
    /// Process the jobs of a task with a program, one process per job
    ///
    /// The program is started without a shell. It reads the job's input as JSON from standard input. Its environment has HEARTLINE_JOB_ID,
    /// HEARTLINE_TASK, HEARTLINE_ATTEMPT, HEARTLINE_MAX_ATTEMPTS, HEARTLINE_STALLED_COUNT, HEARTLINE_FENCE, HEARTLINE_WORKER and, after a
    /// crash, HEARTLINE_RECOVERY. If its standard output is JSON, that is the result; other output gives the result null, with one warning.
    ///
    /// Exit status 0 completes the job; after SIGTERM, only if there is a result. 75 snoozes the job for --snooze. Any other status fails the
    /// job with the code exit_N, or signal_N after a signal. The message has the last 4 KiB of standard error.
    ///
    /// If the job is cancelled or lost, the program's process group gets SIGTERM, then SIGKILL. At a timeout it gets SIGKILL at once. If
    /// this worker dies, the program is killed (on Linux), but processes that it started may live on. A program that changed its user may
    /// refuse signals: a warning is printed, and the program keeps its slot until it ends.
    #[cfg(unix)]
    #[command(after_help = examples!("work -t thumbnails --concurrency 4 --timeout 5m --exec ./thumbnail.sh --size 200"))]
    Work(Work),
    /// The process between a worker and the program of a job
    #[cfg(unix)]
    #[command(name = "_exec", hide = true)]
    Exec {
        /// The id of the worker's process
        parent: i32,
        /// The prefix of the error message if the program cannot be started
        sign: String,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        argv: Vec<OsString>,
    },
    /// Kill workers while they run jobs, and account for every job
    ///
    /// Unless --redis names a server, the demo starts redis-server or valkey-server from the PATH, or from HEARTLINE_REDIS_SERVER. Three
    /// workers count the words of files. The last line is the account as JSON. The exit status is 1 if a job was lost.
    ///
    /// Its keys stay on a server of --redis, under the prefix that is printed. --cluster cannot be combined with --redis, nor --workflow,
    /// --schedules or --limits with --cluster or --board.
    #[cfg(unix)]
    #[command(after_help = examples!("demo", "demo --board", "demo --cluster --json"))]
    Demo(Demo),
    /// A worker process of the demo
    #[cfg(unix)]
    #[command(name = "_demo-worker", hide = true)]
    DemoWorker {
        /// Process the tasks of the workflows
        #[arg(long)]
        workflow: bool,
        /// Process the recurring jobs, as this version of the program
        #[arg(long, value_name = "VERSION")]
        schedules: Option<u32>,
        /// Process the jobs of customers
        #[arg(long)]
        limits: bool,
    },
    /// Show tasks and workers full screen, updated every second; q quits
    #[command(after_help = examples!("top"))]
    Top,
    /// Write completions for a shell to standard output
    #[command(after_help = examples!("completions bash > ~/.local/share/bash-completion/completions/heartline"))]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages into a directory
    #[command(after_help = examples!("man ~/.local/share/man/man1"))]
    Man {
        /// The directory
        #[arg(value_hint = ValueHint::DirPath)]
        directory: std::path::PathBuf,
    },
}

/// The options of the commands that serve HTTP.
#[derive(Debug, clap::Args)]
pub(crate) struct Serving {
    /// The address to listen on. An address that other hosts can reach needs a token in HEARTLINE_TOKEN; clients send it as
    /// `Authorization: Bearer …`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9187")]
    pub(crate) listen: SocketAddr,
    /// A host name to accept requests for, besides localhost and IP addresses
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// The token, at least 16 bytes; from the environment, since other users can read options
    #[arg(env = "HEARTLINE_TOKEN", hide_env_values = true, hide = true, long = "token-of-environment")]
    pub(crate) token: Option<String>,
}

/// The options of `work`.
#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// How many jobs run at a time
    #[arg(long, default_value_t = 1)]
    pub(crate) concurrency: usize,
    /// The longest time of a run, such as 5m [default: none]
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The most attempts of a job
    #[arg(long, default_value_t = 1)]
    pub(crate) attempts: u32,
    /// The stall interval
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) interval: Duration,
    /// How often a job may stall before it fails
    #[arg(long, default_value_t = 1)]
    pub(crate) max_count: u32,
    /// How long exit status 75 snoozes a job
    #[arg(long, default_value = "1m", value_parser = humantime::parse_duration)]
    pub(crate) snooze: Duration,
    /// At Ctrl-C, SIGTERM or a closed terminal: how long programs may run before they get SIGTERM; SIGKILL follows 5 s later
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) grace: Duration,
    /// The program and its arguments; must be the last option
    #[arg(long, num_args = 1.., allow_hyphen_values = true, required = true, value_name = "ARGV", value_hint = ValueHint::CommandName)]
    pub(crate) exec: Vec<OsString>,
}

/// The options of the demo.
#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// The directory of the files [default: the crate sources on this machine]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// The most files to read
    #[arg(long, default_value_t = 2500)]
    pub(crate) files: usize,
    /// Also serve the board, and repeat the jobs until Ctrl-C
    #[arg(long)]
    pub(crate) board: bool,
    /// The address of the board [default: 127.0.0.1:9188, or any free port if that is taken]
    #[arg(long, value_name = "ADDRESS", requires = "board")]
    pub(crate) listen: Option<SocketAddr>,
    /// Run on a private cluster of three primaries with a replica each, and also kill a primary (Redis 7.0 or Valkey)
    #[arg(long)]
    pub(crate) cluster: bool,
    /// Run workflows: 200 graphs of 30 jobs, and one in which each job kills its process
    #[arg(long, conflicts_with_all = ["cluster", "board"])]
    pub(crate) workflow: bool,
    /// Run 50 schedules each second, and deploy workers with other schedules
    #[arg(long, conflicts_with_all = ["cluster", "board", "workflow"])]
    pub(crate) schedules: bool,
    /// Run the jobs of 100 customers, two at a time for each
    #[arg(long, conflicts_with_all = ["cluster", "board", "workflow", "schedules"])]
    pub(crate) limits: bool,
}

/// The options of `board`.
#[cfg(feature = "board")]
#[derive(Debug, clap::Args)]
#[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:9188")))]
pub(crate) struct BoardServing {
    #[command(flatten)]
    pub(crate) serving: Serving,
    /// A name for the title of every page
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Show a line of this colour above every page: blue, green, orange or violet
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(heartline_board::Colour::ALL.map(heartline_board::Colour::as_str)))]
    pub(crate) colour: Option<String>,
    /// Allow no changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Never show payloads, results or checkpoints
    #[arg(long)]
    pub(crate) no_payloads: bool,
    /// A proxy serves the board over HTTPS: browsers send the session cookie over HTTPS only
    #[arg(long)]
    pub(crate) https: bool,
}

/// The commands about a task.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show counts, rates, the options in force, and when silent jobs will be recovered
    #[command(after_help = examples!("task show export"))]
    Show(Named),
    /// Start no more jobs of the task; running jobs continue
    #[command(after_help = examples!("task pause export --reason 'the disk is full'"))]
    Pause {
        #[command(flatten)]
        task: Named,
        /// The reason, shown wherever the task is
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Resume a paused task
    #[command(after_help = examples!("task resume export"))]
    Resume(Named),
    /// Remove all jobs in one state, with all their data
    #[command(after_help = examples!("task purge export --state failed"))]
    Purge {
        #[command(flatten)]
        task: Named,
        /// The state: waiting, delayed, finalizing, completed, failed, cancelled
        #[arg(long)]
        state: JobState,
    },
    /// Remove a task that has no jobs and no workers
    #[command(after_help = examples!("task forget export"))]
    Forget(Named),
}

/// The task: the only argument, or `--task`, as in all other commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// The task
    #[arg(value_name = "TASK", required_unless_present = "named")]
    own: Option<String>,
    #[arg(long = "task", short = 't', value_name = "TASK", conflicts_with = "own", hide = true)]
    named: Option<String>,
}

impl Named {
    pub(crate) fn name(self) -> String {
        self.own.or(self.named).unwrap_or_default()
    }
}

/// A task.
#[derive(Debug, clap::Args)]
pub(crate) struct OfTask {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
}

/// A job of a task.
#[derive(Debug, clap::Args)]
pub(crate) struct OfJob {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// The job
    pub(crate) id: String,
}

/// Jobs by their ids, or those that match a filter.
#[derive(Debug, clap::Args)]
pub(crate) struct Selected {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// Job ids, or --state for all jobs that match; '-' reads ids from standard input, one per line. With ids and --state, only those
    /// in this state are selected
    #[arg(value_name = "ID", required_unless_present_any = ["state", "code", "text", "older", "younger"], conflicts_with_all = ["code", "text", "older", "younger"])]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
}

impl Selected {
    /// The filter, unless jobs are named by id.
    pub(crate) fn by_filter(&self) -> Option<JobFilter> {
        self.filter.of_jobs().filter(|_| self.ids.is_empty())
    }
}

/// The options that filter jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct Filter {
    /// The state: waiting, delayed, claimed, running, finalizing, completed, failed, cancelled
    #[arg(long, short)]
    pub(crate) state: Option<JobState>,
    /// Only jobs whose last failure has this code
    #[arg(long, requires = "state")]
    pub(crate) code: Option<String>,
    /// Only jobs whose last failure message contains this text
    #[arg(long, requires = "state")]
    pub(crate) text: Option<String>,
    /// Only jobs in this state for longer than this, such as 10m or '2h 30m'; delayed jobs overdue for longer
    #[arg(long, requires = "state", value_parser = humantime::parse_duration)]
    pub(crate) older: Option<Duration>,
    /// Only jobs in this state for at most this long
    #[arg(long, requires = "state", value_parser = humantime::parse_duration)]
    pub(crate) younger: Option<Duration>,
}

impl Filter {
    /// The filter, if a state is given.
    pub(crate) fn of_jobs(&self) -> Option<JobFilter> {
        let mut filter = JobFilter::new(self.state?);
        if let Some(code) = &self.code {
            filter = filter.code(code);
        }
        if let Some(text) = &self.text {
            filter = filter.message_contains(text);
        }
        if let Some(age) = self.older {
            filter = filter.older_than(age);
        }
        if let Some(age) = self.younger {
            filter = filter.younger_than(age);
        }
        Some(filter)
    }
}

/// The commands about jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs in one state: ended and delayed ones latest first, waiting ones in claim order
    #[command(after_help = examples!("jobs list -t export --state failed --code timeout --older 10m --limit 20"))]
    List {
        /// The task
        #[arg(long, short)]
        task: String,
        #[command(flatten)]
        filter: Filter,
        /// The most jobs to list, 1 to 1000
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// List the oldest first
        #[arg(long)]
        oldest_first: bool,
        /// Continue after a page: the `next` of its JSON
        #[arg(long)]
        cursor: Option<String>,
        /// Only print how many there are; with --code, --text, or an age of waiting or held jobs, at most 10,000 jobs are read
        #[arg(long)]
        count: bool,
    },
    /// Count the last 1,000 failed jobs by error code
    #[command(after_help = examples!("jobs codes -t export", "jobs codes -t export --younger 1h"))]
    Codes {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Only jobs that failed within this time, such as 10m
        #[arg(long, value_parser = humantime::parse_duration)]
        younger: Option<Duration>,
    },
    /// Show a job and its events
    #[command(after_help = examples!("jobs show -t export export-7 --values"))]
    Show {
        #[command(flatten)]
        of: OfJob,
        /// Also show its payload, result and checkpoint
        #[arg(long)]
        values: bool,
    },
    /// Dispatch a job
    #[command(after_help = examples!(
        "jobs dispatch -t export '{\"rows\": 10}' --id export-7",
        "jobs dispatch -t export - < input.json"
    ))]
    Dispatch {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Its input as JSON; '-' reads it from standard input
        payload: String,
        /// The id of the job; if a job with this id exists, nothing is dispatched
        #[arg(long)]
        id: Option<String>,
        /// Run no sooner than after this time, such as 10m
        #[arg(long, value_parser = humantime::parse_duration)]
        delay: Option<Duration>,
        /// The priority: high, normal or low
        #[arg(long)]
        priority: Option<Priority>,
        /// Wait until the job ends, and print its result
        #[arg(long)]
        wait: bool,
    },
    /// Cancel jobs: waiting jobs at once, running jobs through their workers
    #[command(after_help = examples!(
        "jobs cancel -t export export-7 --reason 'wrong month'",
        "jobs cancel -t export --state waiting --older 1d"
    ))]
    Cancel {
        #[command(flatten)]
        jobs: Selected,
        /// The reason, shown with the job [default: cancelled by NAME, from --by]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Run failed or cancelled jobs again
    #[command(after_help = examples!("jobs retry -t export export-7", "jobs retry -t export --state failed --code timeout"))]
    Retry {
        #[command(flatten)]
        jobs: Selected,
        /// Also retry jobs whose unique key another job has; they run without their key
        #[arg(long)]
        anyway: bool,
    },
    /// Run delayed jobs now
    #[command(after_help = examples!("jobs run-now -t export export-7"))]
    RunNow(Selected),
    /// Remove jobs that no worker holds, with all their data
    #[command(after_help = examples!("jobs remove -t export --state failed --older 7d"))]
    Remove(Selected),
    /// Wait until a job ends, and print its result as JSON
    #[command(after_help = examples!("jobs result -t export export-7"))]
    Result(OfJob),
    /// Wait until a job ends; exit status 0 if it completed, else 1
    #[command(after_help = examples!("jobs wait -t export export-7 --timeout 5m"))]
    Wait {
        #[command(flatten)]
        of: OfJob,
        /// The longest wait, such as 30s
        #[arg(long, default_value = "1h", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },
}

/// The commands about unique keys.
#[derive(Debug, Subcommand)]
pub(crate) enum UniqueCommand {
    /// Show which job has a unique key, and whether the key is taken
    #[command(after_help = examples!("unique show sync order-7"))]
    Show {
        /// The task
        task: String,
        /// The key
        key: String,
    },
}

/// What a worker can be asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// Let a worker claim no more jobs: it finishes those that run, and requeues those that it claimed ahead
    #[command(after_help = examples!("workers quiet web-1-4711-0f3a9c21"))]
    Quiet {
        /// The worker
        worker: String,
    },
    /// Let a quiet worker claim jobs again
    #[command(after_help = examples!("workers resume web-1-4711-0f3a9c21"))]
    Resume {
        /// The worker
        worker: String,
    },
}

/// The commands about lanes.
#[derive(Debug, Subcommand)]
pub(crate) enum LanesCommand {
    /// List keys with their waiting and held jobs: full ones first, then resting ones, then those that are next
    #[command(after_help = examples!("lanes list webhook", "lanes list webhook --full"))]
    List {
        /// The task
        task: String,
        /// Show only keys of which as many jobs run as their limit allows, and paused ones
        #[arg(long, group = "which")]
        full: bool,
        /// Show only keys that rest
        #[arg(long, group = "which")]
        resting: bool,
        /// Show only keys with settings of their own, also those without jobs
        #[arg(long, group = "which")]
        own: bool,
        /// Show at most this many keys
        #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show a key: its limits, why its jobs wait, and who holds others
    #[command(after_help = examples!("lanes show webhook acme"))]
    Show(OfLane),
    /// Give a key limits or a weight of its own. What is not named stays as it is. A key with limits of its own no longer follows those of
    /// its task
    #[command(after_help = examples!("lanes set webhook acme --running 10", "lanes set webhook acme --rate 600/1m --weight 3"))]
    Set {
        #[command(flatten)]
        of: OfLane,
        /// How many of its jobs may run, or `none` for any number
        #[arg(long, value_name = "JOBS", value_parser = jobs_or_none, required_unless_present_any = ["rate", "weight"])]
        running: Option<Bound<u32>>,
        /// How many of its jobs may start within a time, such as 60/1m, or `none` for any number
        #[arg(long, value_name = "JOBS/TIME", value_parser = rate_or_none)]
        rate: Option<Bound<Rate>>,
        /// How many jobs it starts while a key of weight 1 starts one
        #[arg(long, value_name = "1-100", value_parser = clap::value_parser!(u32).range(1..=100))]
        weight: Option<u32>,
    },
    /// Pause a key: none of its jobs starts; running jobs and other keys continue
    #[command(after_help = examples!("lanes pause webhook acme"))]
    Pause(OfLane),
    /// End the pause of a key
    #[command(after_help = examples!("lanes resume webhook acme"))]
    Resume(OfLane),
    /// Remove the settings of a key: the limits of the task hold again, and it is not paused
    #[command(after_help = examples!("lanes reset webhook acme"))]
    Reset(OfLane),
}

/// A key of a task.
#[derive(Debug, clap::Args)]
pub(crate) struct OfLane {
    /// The task
    pub(crate) task: String,
    /// The key
    pub(crate) key: String,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<T>(pub(crate) Option<T>);

fn jobs_or_none(text: &str) -> Result<Bound<u32>, String> {
    if text == "none" {
        return Ok(Bound(None));
    }
    text.parse().map(|jobs| Bound(Some(jobs))).map_err(|_| "write a number or `none`".to_owned())
}

fn rate_or_none(text: &str) -> Result<Bound<Rate>, String> {
    if text == "none" {
        return Ok(Bound(None));
    }
    let (starts, window) = text.split_once('/').ok_or("write jobs and a time, such as 60/1m")?;
    let starts = starts.parse().map_err(|_| "write a number before the slash, such as 60/1m")?;
    let window = humantime::parse_duration(window).map_err(|e| e.to_string())?;
    Ok(Bound(Some(Rate::new(starts, window))))
}

/// An instance of a workflow.
#[derive(Debug, clap::Args)]
pub(crate) struct InstanceNamed {
    /// The workflow
    pub(crate) workflow: String,
    /// The instance
    pub(crate) id: String,
}

/// The commands about workflows.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowsCommand {
    /// List the workflows: instances by state, and pending steps
    #[command(after_help = examples!("flows summary"))]
    Summary,
    /// List instances of a workflow, newest first [default: paused, running and failed ones]
    #[command(after_help = examples!("flows list nightly", "flows list nightly --state failed --limit 100"))]
    List {
        /// The workflow
        workflow: String,
        /// Only instances in this state: running, paused, completed, failed, cancelled
        #[arg(long, short)]
        state: Option<WorkflowState>,
        /// The most instances of each state to list, 1 to 500
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// List the oldest first
        #[arg(long)]
        oldest_first: bool,
        /// Continue after a page: the `next` of its JSON
        #[arg(long, requires = "state")]
        cursor: Option<String>,
    },
    /// Show an instance: the state of each node, its job, and why it waits
    #[command(after_help = examples!(
        "flows show nightly 2026-11-21",
        "flows show nightly 2026-11-21/3.1   the subgraph of its node 3"
    ))]
    Show {
        #[command(flatten)]
        of: InstanceNamed,
        /// Also show completed and skipped nodes of a large graph
        #[arg(long, short)]
        all: bool,
        /// The number of the first node to show; a page has 500
        #[arg(long, default_value_t = 0)]
        from: u32,
    },
    /// Cancel an instance; it ends when its last handler has returned
    #[command(after_help = examples!("flows cancel nightly 2026-11-21 --reason 'wrong day'"))]
    Cancel {
        #[command(flatten)]
        of: InstanceNamed,
        /// The reason, shown with the instance and its jobs [default: cancelled by NAME, from --by]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Start no more nodes of an instance; dispatched jobs continue
    #[command(after_help = examples!("flows pause nightly 2026-11-21 --reason 'S3 is down'"))]
    Pause {
        #[command(flatten)]
        of: InstanceNamed,
        /// The reason, shown with the instance
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Resume a paused instance
    #[command(after_help = examples!("flows resume nightly 2026-11-21"))]
    Resume(InstanceNamed),
    /// Run the nodes again that did not complete; the instance has failed, was cancelled, or is paused
    #[command(after_help = examples!("flows retry nightly 2026-11-21"))]
    Retry(InstanceNamed),
    /// Retry all failed instances of a workflow, such as after an outage
    #[command(after_help = examples!("flows retry-failed nightly", "flows retry-failed nightly --code s3_down"))]
    RetryFailed {
        /// The workflow
        workflow: String,
        /// Only instances whose failure has this code
        #[arg(long, short)]
        code: Option<String>,
    },
    /// Recover workflows now, as workers do every few seconds; safe while workers run
    ///
    /// Data of instances that the server lost is repaired as far as possible. Instances whose state was lost are paused: resume, retry or
    /// cancel them.
    #[command(after_help = examples!("flows recover", "flows recover nightly   also if the list of workflows lost it"))]
    Recover {
        /// Only this workflow; it is added to the list of workflows again
        workflow: Option<String>,
    },
}

/// A schedule of a task.
#[derive(Debug, clap::Args)]
pub(crate) struct OfSchedule {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// The schedule
    pub(crate) name: String,
}

/// The commands about schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// List schedules: when each fires next, and what its ticks did
    #[command(after_help = examples!("schedules list              every task", "schedules list -t report"))]
    List {
        /// The task [default: all]
        #[arg(long, short)]
        task: Option<String>,
    },
    /// List the next ticks of all schedules, in order
    #[command(after_help = examples!("schedules next", "schedules next -t report --count 50"))]
    Next {
        /// The task [default: all]
        #[arg(long, short)]
        task: Option<String>,
        /// How many ticks to list, 1 to 1000
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
    },
    /// Show a schedule: its rule, what its ticks did since it was created, and its last 20 ticks
    #[command(after_help = examples!("schedules show -t report nightly"))]
    Show(OfSchedule),
    /// Dispatch a job of a schedule now, next to its ticks
    #[command(after_help = examples!("schedules run -t report nightly"))]
    Run(OfSchedule),
    /// Pause a schedule: its ticks are counted, and create no jobs
    #[command(after_help = examples!("schedules pause -t report nightly --reason 'the source is down'"))]
    Pause {
        #[command(flatten)]
        of: OfSchedule,
        /// The reason, shown with the schedule
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Resume a paused schedule
    #[command(after_help = examples!("schedules resume -t report nightly"))]
    Resume(OfSchedule),
    /// Dispatch a job for each nominal time in a range, at most 10,000
    #[command(after_help = examples!(
        "schedules backfill -t report nightly --from 2026-11-01 --to 2026-11-08 --dry-run",
        "schedules backfill -t report nightly --from 2026-11-01T06:00:00Z --to 2026-11-01T12:00:00Z"
    ))]
    Backfill {
        #[command(flatten)]
        of: OfSchedule,
        /// The first time, in UTC: 2026-11-01 or 2026-11-01T06:00:00Z
        #[arg(long, value_name = "TIME", value_parser = utc)]
        from: SystemTime,
        /// The end, which is not in the range itself, and not after now
        #[arg(long, value_name = "TIME", value_parser = utc)]
        to: SystemTime,
        /// Only print how many jobs it would dispatch
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a schedule; its jobs stay, and workers that declare it write it again
    #[command(after_help = examples!("schedules remove -t report acme"))]
    Remove(OfSchedule),
    /// Show how many jobs the schedules create in each hour of the next day, and in its busiest minute
    #[command(after_help = examples!("schedules load", "schedules load --json   each minute"))]
    Load {
        /// The task [default: all]
        #[arg(long, short)]
        task: Option<String>,
    },
}

/// A time in UTC; a date means its begin.
fn utc(text: &str) -> Result<SystemTime, humantime::TimestampError> {
    let is_date = text.len() == "2026-11-01".len();
    humantime::parse_rfc3339_weak(&if is_date { format!("{text}T00:00:00Z") } else { text.to_owned() })
}

/// The commands about stalls.
#[derive(Debug, Subcommand)]
pub(crate) enum StallsCommand {
    /// List the last stalls, newest first
    #[command(after_help = examples!("stalls list              every task", "stalls list -t export"))]
    List {
        /// The task [default: all]
        #[arg(long, short)]
        task: Option<String>,
    },
    /// Explain each stall of a job: which worker held it, which one watched, for how long, and what was done
    #[command(after_help = examples!("stalls explain -t export export-7"))]
    Explain(OfJob),
    /// Show when silent jobs will be recovered, or why not
    #[command(after_help = examples!("stalls outlook -t export"))]
    Outlook(OfTask),
    /// List jobs that were held whenever workers died, most suspicious first: one may kill its process
    #[command(after_help = examples!("stalls suspects -t export"))]
    Suspects(OfTask),
    /// List outcomes that were rejected because their worker no longer held the job
    #[command(after_help = examples!("stalls late -t export"))]
    Late(OfTask),
}

/// Silent jobs by their ids, or all of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Silent {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// Job ids, or --all; '-' reads ids from standard input, one per line
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All silent jobs
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

/// The commands about held jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum RecoverCommand {
    /// List held jobs that are silent
    #[command(after_help = examples!("recover silent -t export"))]
    Silent(OfTask),
    /// Requeue silent jobs that were claimed ahead and have not begun
    #[command(after_help = examples!("recover claimed -t export --all"))]
    Claimed(Silent),
    /// Give silent jobs another run; while a worker of the task is alive, only parked ones
    ///
    /// If their worker is dead, `recover worker` is faster.
    #[command(after_help = examples!("recover running -t export export-7 export-8", "recover running -t export --all"))]
    Running(Silent),
    /// Fail silent jobs; while a worker of the task is alive, only parked ones
    #[command(after_help = examples!("recover fail -t export export-7"))]
    Fail(Silent),
    /// Declare a worker dead: its jobs are resolved at once
    #[command(after_help = "Example:\n  heartline recover worker web-1-4711-0f3a9c21\n\n\
                            If the worker is alive, its jobs run twice; it notices within 10 s, and stops. A silent worker may be \
                            frozen: check its process first.")]
    Worker {
        /// The id of the worker
        worker: String,
    },
    /// Watch for one interval, then resolve the jobs that stay silent by the task's options
    #[command(after_help = examples!("recover sweep -t export"))]
    Sweep(OfTask),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The examples of a command and its subcommands, each with its path.
    fn examples(command: &clap::Command, path: &[&str], found: &mut Vec<(String, String)>) {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set()).collect::<Vec<_>>();
        if below.is_empty() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            found.push((path.join(" "), help));
        }
        for below in below {
            examples(below, &[path, &[below.get_name()]].concat(), found);
        }
    }

    /// The words of a command, as a shell splits them, up to a redirection or a remark.
    fn words(line: &str) -> Vec<String> {
        let command =
            [" || ", " > ", " < ", "   "].into_iter().fold(line, |line, end| line.split(end).next().unwrap_or(line));
        let mut words = Vec::new();
        for (at, part) in command.split('\'').enumerate() {
            if at % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    #[test]
    fn a_time_is_a_date_or_has_seconds() {
        let ms = |text| utc(text).unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        assert_eq!((ms("1970-01-02"), ms("1970-01-02T00:00:01Z")), (86_400_000, 86_401_000));
        assert_eq!(ms("1970-01-01 00:01:00"), 60_000);
        assert!(["", "tomorrow", "2026-13-01", "2026-11-1", "2026-11-01T06"].iter().all(|text| utc(text).is_err()));
    }

    #[test]
    fn every_command_shows_an_example_that_parses() {
        let mut found = Vec::new();
        examples(&Args::command(), &["heartline"], &mut found);
        assert!(found.len() > 30, "{found:?}");
        for (path, help) in found {
            let (_, lines) = help.split_once("Example:\n").unwrap_or_else(|| panic!("{path} shows no example"));
            let of_it = lines.lines().map(str::trim).filter(|line| line.starts_with("heartline ")).collect::<Vec<_>>();
            assert!(!of_it.is_empty(), "{path}: {help}");
            for line in of_it {
                let words = words(line);
                let read = Args::try_parse_from(&words);
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }
}
