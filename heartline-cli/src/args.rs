//! The command line, as clap reads it. What stands here is the help that people see.

#[cfg(unix)]
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use heartline::{JobFilter, JobState, Priority, WorkflowState};

/// See, explain and steer Heartline's tasks, jobs and workers.
///
/// The server is that of --redis, else of HEARTLINE_URL, else of REDIS_URL, else redis://127.0.0.1:6379.
#[derive(Debug, Parser)]
#[command(
    name = "heartline",
    version,
    after_help = "Begin with:\n  heartline status            is it working, and what is wrong\n  heartline tasks             what each task does\n  \
                  heartline jobs list -t export --state failed\n  heartline stalls outlook -t export   why nothing is recovered yet\n\n\
                  Exit status: 0 if it was done, 1 if it failed, 2 if it was used wrongly."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The Redis server, as redis://host:port/db or rediss://
    #[arg(long, global = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) redis: Option<String>,
    /// The CA that signed the server's certificate, a PEM file, in place of Mozilla's roots [default: HEARTLINE_TLS_CA]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate to show to a server that asks for one, a PEM file [default: HEARTLINE_TLS_CERT]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, a PEM file [default: HEARTLINE_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// What every key begins with [default: heartline]
    #[arg(long, global = true, env = "HEARTLINE_PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Print JSON, with times in ms since 1970
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Confirm everything beforehand
    #[arg(long, short, global = true)]
    pub(crate) yes: bool,
    /// This is production: also confirm acts on single jobs
    #[arg(long, global = true, env = "HEARTLINE_PRODUCTION", value_parser = FalseyValueParser::new())]
    pub(crate) production: bool,
    /// Who acts: it stands in the event of each act [default: $USER, else heartline-cli]
    #[arg(long, global = true, value_name = "NAME")]
    by: Option<String>,
}

impl Global {
    /// The server of the option, else of the first variable that is set, with the name of its source.
    pub(crate) fn server(&self) -> Option<(String, &'static str)> {
        let of = |name| std::env::var(name).ok().filter(|url| !url.is_empty()).map(|url| (url, name));
        let option = self.redis.clone().map(|url| (url, "--redis"));
        option.or_else(|| of("HEARTLINE_URL")).or_else(|| of("REDIS_URL"))
    }

    /// Whether the option, which other users of the machine can read, has a password.
    pub(crate) fn tells_password(&self) -> bool {
        let user = self.redis.as_deref().and_then(|url| url.split_once("://")?.1.rsplit_once('@'));
        user.is_some_and(|(user, _)| user.contains(':'))
    }

    /// Who acts.
    pub(crate) fn by(&self) -> String {
        let of = |name: &str| std::env::var(name).ok().filter(|user| !user.is_empty());
        let user = self.by.clone().or_else(|| of("USER")).or_else(|| of("USERNAME"));
        user.unwrap_or_else(|| "heartline-cli".to_owned())
    }
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Whether everything works, and what does not: exit status 1 if anything is wrong
    #[command(after_help = "Example:\n  heartline status\n  heartline status --json")]
    Status,
    /// Every task: how many jobs are in each state, how fast they come and go, who works them
    #[command(after_help = "Example:\n  heartline tasks")]
    Tasks,
    /// One task: show it, pause and resume it, purge its jobs, forget it
    #[command(subcommand)]
    Task(TaskCommand),
    /// Jobs: list, show, dispatch, cancel, retry, run now, remove, wait
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Workers: who works, what each holds, who is silent or gone
    #[command(after_help = "Example:\n  heartline workers --all\n  heartline workers --beats")]
    Workers {
        /// Show only this one, with all that is known of it
        #[arg(value_name = "WORKER")]
        worker: Option<String>,
        /// Show those too that are gone
        #[arg(long, short)]
        all: bool,
        /// Show the heartbeats of each for each of its tasks: what is held, until when it is safe
        #[arg(long, conflicts_with_all = ["worker", "all"])]
        beats: bool,
    },
    /// Workflows: list, show one node by node with why it waits, cancel, pause, resume, retry, recover
    #[command(subcommand)]
    Flows(FlowsCommand),
    /// Stalls: the last ones, one explained, and why nothing is recovered yet
    #[command(subcommand)]
    Stalls(StallsCommand),
    /// What a person decides about jobs whose worker is silent or dead
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// Check that every job is in exactly one place, and that nothing is left over
    #[command(after_help = "Example:\n  heartline audit              every task\n  heartline audit -t export")]
    Audit {
        /// The task; all of them without it
        #[arg(long, short)]
        task: Option<String>,
    },
    /// Audit a task, and mend what is wrong
    #[command(after_help = "Example:\n  heartline repair -t export --dry-run")]
    Repair {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Only tell what would be mended
        #[arg(long)]
        dry_run: bool,
    },
    /// What has happened to the jobs of a task
    #[command(
        after_help = "Example:\n  heartline events -t export --follow\n  heartline events -t export --job export-7"
    )]
    Events {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Only events of this job
        #[arg(long, conflicts_with = "follow")]
        job: Option<String>,
        /// Go on with what happens from now on, until Ctrl-C
        #[arg(long, short)]
        follow: bool,
    },
    /// Whether jobs are processed: what is wrong, and what to do, if not, and exit status 1
    #[command(after_help = "Example:\n  heartline health || systemctl status 'worker@*'")]
    Health,
    /// Check the server, the tasks and the workers, and say what to do: exit status 1 if jobs are at risk
    #[command(after_help = "Example:\n  heartline doctor")]
    Doctor,
    /// Serve the web page: tasks, jobs, workers, stalls, and what may be done
    #[command(after_help = "Example:\n  heartline board --name production --read-only")]
    #[cfg(feature = "board")]
    Board(BoardServing),
    /// Serve the fleet's metrics to Prometheus, at /metrics, and whether jobs are processed, at /health
    #[command(
        after_help = "Example:\n  heartline metrics --listen 127.0.0.1:9187\n  heartline metrics --once > heartline.prom"
    )]
    Metrics {
        #[command(flatten)]
        serving: Serving,
        /// Print them once, and serve nothing
        #[arg(long)]
        once: bool,
    },
    /// Work the jobs of a task with a program: one process a job
    ///
    /// The program is started without a shell. It reads the job's input as JSON on its standard input, and finds HEARTLINE_JOB_ID,
    /// HEARTLINE_TASK, HEARTLINE_ATTEMPT, HEARTLINE_MAX_ATTEMPTS, HEARTLINE_STALLED_COUNT, HEARTLINE_FENCE, HEARTLINE_WORKER and, behind a
    /// crash, HEARTLINE_RECOVERY in its environment. What it writes to standard output is the result, if that is JSON.
    ///
    /// Exit status 0 completes the job, behind SIGTERM only with a result; 75 puts it off for --snooze, any other fails it with the code exit_N (signal_N for one that was
    /// killed) and the last 4 KiB of standard error. A job that is cancelled or lost ends its program: SIGTERM to its process group,
    /// then SIGKILL; one that takes too long by SIGKILL at once. So does the death of this worker, but only for the program itself: processes that it has started may live on.
    /// A program that itself runs as another user may not be stopped: a warning says so, and it keeps its slot until it ends.
    #[cfg(unix)]
    #[command(
        after_help = "Example:\n  heartline work -t thumbnails --concurrency 4 --timeout 5m --exec ./thumbnail.sh --size 200"
    )]
    Work(Work),
    /// The process between a worker and the program of a job
    #[cfg(unix)]
    #[command(name = "_exec", hide = true)]
    Exec {
        /// The process that must live
        parent: i32,
        /// What is said first when it does not become the program
        sign: String,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        argv: Vec<OsString>,
    },
    /// Kill workers while they work, and account for every job
    ///
    /// It starts redis-server or valkey-server of the PATH (or of HEARTLINE_REDIS_SERVER), unless --redis names a server, and three workers
    /// that count the words of files. The last line is the account as JSON. Exit status 1 if a job was lost.
    #[cfg(unix)]
    #[command(after_help = "Example:\n  heartline demo\n  heartline demo --board\n  heartline demo --cluster --json")]
    Demo(Demo),
    /// A worker process of the demo
    #[cfg(unix)]
    #[command(name = "_demo-worker", hide = true)]
    DemoWorker {
        /// Work the tasks of the workflows
        #[arg(long)]
        workflow: bool,
    },
    /// Tasks and workers on the whole terminal, updated each second, until q
    #[command(after_help = "Example:\n  heartline top")]
    Top,
    /// Write completions for a shell to standard output
    #[command(
        after_help = "Example:\n  heartline completions bash > ~/.local/share/bash-completion/completions/heartline"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages into a directory
    #[command(after_help = "Example:\n  heartline man ~/.local/share/man/man1")]
    Man {
        /// The directory
        #[arg(value_hint = ValueHint::DirPath)]
        directory: std::path::PathBuf,
    },
}

/// Where something is served, and to whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Serving {
    /// The address; one that others can reach needs a token in HEARTLINE_TOKEN, which who asks says as
    /// `Authorization: Bearer …`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9187")]
    pub(crate) listen: SocketAddr,
    /// A name under which it is asked for, beside localhost and addresses
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// The token, at least 16 bytes: no option, since others can read those
    #[arg(env = "HEARTLINE_TOKEN", hide_env_values = true, hide = true, long = "token-of-environment")]
    pub(crate) token: Option<String>,
}

/// A program that works jobs.
#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// How many programs run at a time
    #[arg(long, default_value_t = 1)]
    pub(crate) concurrency: usize,
    /// How long a run may take, as 5m [default: as long as it likes]
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How many runs a job gets
    #[arg(long, default_value_t = 1)]
    pub(crate) attempts: u32,
    /// The stall interval
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) interval: Duration,
    /// How often a job may stall
    #[arg(long, default_value_t = 1)]
    pub(crate) max_count: u32,
    /// For how long exit status 75 puts a job off
    #[arg(long, default_value = "1m", value_parser = humantime::parse_duration)]
    pub(crate) snooze: Duration,
    /// How long programs may go on after Ctrl-C, SIGTERM or a closed terminal, and then once more after SIGTERM to them
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) grace: Duration,
    /// The program and its arguments: everything behind it
    #[arg(long, num_args = 1.., allow_hyphen_values = true, required = true, value_name = "ARGV", value_hint = ValueHint::CommandName)]
    pub(crate) exec: Vec<OsString>,
}

/// What the demo runs.
#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// The directory with the files [default: the crate sources of this machine]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// The most files to take
    #[arg(long, default_value_t = 2500)]
    pub(crate) files: usize,
    /// Also serve the web page, and repeat the work until Ctrl-C
    #[arg(long)]
    pub(crate) board: bool,
    /// The address of the web page [default: 127.0.0.1:9188, or any free port if that is taken]
    #[arg(long, value_name = "ADDRESS", requires = "board")]
    pub(crate) listen: Option<SocketAddr>,
    /// Run on a private cluster of three primaries with a replica each, and kill a primary too (Redis 7.0 or Valkey)
    #[arg(long)]
    pub(crate) cluster: bool,
    /// Run workflows: 200 graphs of 30 jobs, and one whose jobs each take their process down
    #[arg(long, conflicts_with_all = ["cluster", "board"])]
    pub(crate) workflow: bool,
}

/// How the web page is served.
#[cfg(feature = "board")]
#[derive(Debug, clap::Args)]
#[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:9188")))]
pub(crate) struct BoardServing {
    #[command(flatten)]
    pub(crate) serving: Serving,
    /// What stands in the title of every page
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// A line of this colour above every page: blue, green, orange or violet
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(heartline_board::Colour::ALL.map(heartline_board::Colour::as_str)))]
    pub(crate) colour: Option<String>,
    /// Let nobody do anything
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Never show payloads, results and checkpoints
    #[arg(long)]
    pub(crate) no_payloads: bool,
    /// It is asked for over HTTPS, by a proxy in front of it: the cookie of a session goes over nothing else
    #[arg(long)]
    pub(crate) https: bool,
}

/// One task.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Counts, rates, options in force, and why nothing is recovered yet
    #[command(after_help = "Example:\n  heartline task show export")]
    Show {
        #[command(flatten)]
        task: Named,
    },
    /// Let no job of the task begin; what runs goes on
    #[command(after_help = "Example:\n  heartline task pause export --reason 'the disk is full'")]
    Pause {
        #[command(flatten)]
        task: Named,
        /// Why, for whoever looks
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let jobs of a paused task begin again
    #[command(after_help = "Example:\n  heartline task resume export")]
    Resume {
        #[command(flatten)]
        task: Named,
    },
    /// Remove all jobs in one state, with all that is kept of them
    #[command(after_help = "Example:\n  heartline task purge export --state failed")]
    Purge {
        #[command(flatten)]
        task: Named,
        /// The state: waiting, delayed, completed, failed, cancelled
        #[arg(long)]
        state: JobState,
    },
    /// Remove what is left of a task without jobs and without workers
    #[command(after_help = "Example:\n  heartline task forget export")]
    Forget {
        #[command(flatten)]
        task: Named,
    },
}

/// The task that a command is about: its only argument, or, as in all other commands, `--task`.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// The task
    #[arg(value_name = "TASK", required_unless_present = "named")]
    own: Option<String>,
    #[arg(long = "task", short = 't', value_name = "TASK", conflicts_with = "own", hide = true)]
    named: Option<String>,
}

impl Named {
    /// Its name.
    pub(crate) fn name(self) -> String {
        self.own.or(self.named).unwrap_or_default()
    }
}

/// Which jobs: these, or those that a filter finds.
#[derive(Debug, clap::Args)]
pub(crate) struct Selected {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// Ids of jobs, or --state for all that fit; '-' reads ids from standard input, one a line. With --state beside them only those of
    /// them that are in this state are taken
    #[arg(value_name = "ID", required_unless_present_any = ["state", "code", "text", "older", "younger"], conflicts_with_all = ["code", "text", "older", "younger"])]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
}

impl Selected {
    /// The filter, where no job is named by its id.
    pub(crate) fn by_filter(&self) -> Option<JobFilter> {
        self.filter.of_jobs().filter(|_| self.ids.is_empty())
    }
}

/// What narrows jobs down.
#[derive(Debug, clap::Args)]
pub(crate) struct Filter {
    /// The state: waiting, delayed, claimed, running, finalizing, completed, failed, cancelled
    #[arg(long, short)]
    pub(crate) state: Option<JobState>,
    /// Only jobs whose last failure has this code
    #[arg(long, requires = "state")]
    pub(crate) code: Option<String>,
    /// Only jobs whose last failure has this text in its message
    #[arg(long, requires = "state")]
    pub(crate) text: Option<String>,
    /// Only jobs that are where they are for longer than this, as 10m or '2h 30m'; delayed ones that are due for longer
    #[arg(long, requires = "state", value_parser = humantime::parse_duration)]
    pub(crate) older: Option<Duration>,
    /// Only jobs that are where they are for no longer than this
    #[arg(long, requires = "state", value_parser = humantime::parse_duration)]
    pub(crate) younger: Option<Duration>,
}

impl Filter {
    /// The filter, if a state was named.
    pub(crate) fn of_jobs(&self) -> Option<JobFilter> {
        let mut filter = JobFilter::new(self.state?);
        if let Some(code) = &self.code {
            filter = filter.code(code);
        }
        if let Some(text) = &self.text {
            filter = filter.text(text);
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

/// Jobs of a task.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Jobs in one state, the latest first
    #[command(
        after_help = "Example:\n  heartline jobs list -t export --state failed --code timeout --older 10m --limit 20"
    )]
    List {
        /// The task
        #[arg(long, short)]
        task: String,
        #[command(flatten)]
        filter: Filter,
        /// How many at most, 1 to 1000
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Begin with the oldest
        #[arg(long)]
        oldest_first: bool,
        /// Go on behind a page: its `next`
        #[arg(long)]
        cursor: Option<String>,
        /// Tell only how many there are; with --code, --text, or an age of waiting or held jobs at most 10,000 are looked at
        #[arg(long)]
        count: bool,
    },
    /// Why jobs failed: their codes, and how many have each, of the last 1,000 that failed
    #[command(after_help = "Example:\n  heartline jobs codes -t export\n  heartline jobs codes -t export --younger 1h")]
    Codes {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Only jobs that failed within this time, as 10m
        #[arg(long, value_parser = humantime::parse_duration)]
        younger: Option<Duration>,
    },
    /// All that is known of a job, and what has happened to it
    #[command(after_help = "Example:\n  heartline jobs show -t export export-7 --values")]
    Show {
        /// The task
        #[arg(long, short)]
        task: String,
        /// The job
        id: String,
        /// Show its payload, result and checkpoint too
        #[arg(long)]
        values: bool,
    },
    /// Dispatch a job
    #[command(after_help = "Example:\n  heartline jobs dispatch -t export '{\"rows\": 10}' --id export-7\n  \
                            heartline jobs dispatch -t export - < input.json")]
    Dispatch {
        /// The task
        #[arg(long, short)]
        task: String,
        /// Its input as JSON; '-' reads it from standard input
        payload: String,
        /// An id of your own: a job whose id is known is left as it is
        #[arg(long)]
        id: Option<String>,
        /// Begin no sooner than in this time, as 10m
        #[arg(long, value_parser = humantime::parse_duration)]
        delay: Option<Duration>,
        /// high, normal or low
        #[arg(long)]
        priority: Option<Priority>,
        /// Wait for its end, and print its result
        #[arg(long)]
        wait: bool,
    },
    /// Cancel jobs: waiting ones at once, running ones by their workers
    #[command(
        after_help = "Example:\n  heartline jobs cancel -t export export-7 --reason 'wrong month'\n  heartline jobs cancel -t export --state waiting --older 1d"
    )]
    Cancel {
        #[command(flatten)]
        jobs: Selected,
        /// Why, for whoever looks [default: cancelled by NAME, as --by has it]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let jobs that failed or were cancelled run again
    #[command(
        after_help = "Example:\n  heartline jobs retry -t export export-7\n  heartline jobs retry -t export --state failed --code timeout"
    )]
    Retry(Selected),
    /// Let delayed jobs run now
    #[command(after_help = "Example:\n  heartline jobs run-now -t export export-7")]
    RunNow(Selected),
    /// Remove jobs that nobody holds, with all that is kept of them
    #[command(after_help = "Example:\n  heartline jobs remove -t export --state failed --older 7d")]
    Remove(Selected),
    /// The result of a job, as JSON; it waits for its end
    #[command(after_help = "Example:\n  heartline jobs result -t export export-7")]
    Result {
        /// The task
        #[arg(long, short)]
        task: String,
        /// The job
        id: String,
    },
    /// Wait until a job has ended: exit status 0 if it completed, else 1
    #[command(after_help = "Example:\n  heartline jobs wait -t export export-7 --timeout 5m")]
    Wait {
        /// The task
        #[arg(long, short)]
        task: String,
        /// The job
        id: String,
        /// For how long at most, as 30s
        #[arg(long, default_value = "1h", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },
}

/// An instance of a workflow.
#[derive(Debug, clap::Args)]
pub(crate) struct InstanceNamed {
    /// The workflow
    pub(crate) workflow: String,
    /// The instance
    pub(crate) id: String,
}

/// Workflows.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowsCommand {
    /// Every workflow: how many instances are in each state, and whether steps of them wait
    #[command(after_help = "Example:\n  heartline flows summary")]
    Summary,
    /// Instances of a workflow, the latest first [default: those that are paused, that run, and that failed]
    #[command(
        after_help = "Example:\n  heartline flows list nightly\n  heartline flows list nightly --state failed --limit 100"
    )]
    List {
        /// The workflow
        workflow: String,
        /// Only those in this state: running, paused, completed, failed, cancelled
        #[arg(long, short)]
        state: Option<WorkflowState>,
        /// How many at most of each state, 1 to 500
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Begin with the oldest
        #[arg(long)]
        oldest_first: bool,
        /// Go on behind a page: its `next`
        #[arg(long, requires = "state")]
        cursor: Option<String>,
    },
    /// An instance, node by node: where each stands, where its job does, and why it waits
    #[command(
        after_help = "Example:\n  heartline flows show nightly 2026-11-21\n  heartline flows show nightly 2026-11-21/3.1   a graph that runs as its node 3"
    )]
    Show {
        #[command(flatten)]
        of: InstanceNamed,
        /// Of a large graph also nodes that completed, or were skipped
        #[arg(long, short)]
        all: bool,
        /// The number of the first node, 500 are shown
        #[arg(long, default_value_t = 0)]
        from: u32,
    },
    /// Cancel an instance: it ends when none of its handlers is left
    #[command(after_help = "Example:\n  heartline flows cancel nightly 2026-11-21 --reason 'wrong day'")]
    Cancel {
        #[command(flatten)]
        of: InstanceNamed,
        /// Why, for whoever looks [default: cancelled by NAME, as --by has it]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Open no more nodes of an instance; what was sent goes on
    #[command(after_help = "Example:\n  heartline flows pause nightly 2026-11-21 --reason 'S3 is down'")]
    Pause {
        #[command(flatten)]
        of: InstanceNamed,
        /// Why, for whoever looks
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let a paused instance go on
    #[command(after_help = "Example:\n  heartline flows resume nightly 2026-11-21")]
    Resume {
        #[command(flatten)]
        of: InstanceNamed,
    },
    /// Run once more what did not complete of an instance that failed, was cancelled, or is paused
    #[command(after_help = "Example:\n  heartline flows retry nightly 2026-11-21")]
    Retry {
        #[command(flatten)]
        of: InstanceNamed,
    },
    /// Look after every workflow at once, as workers do each few seconds: it is safe beside them
    ///
    /// What the server has lost of where instances stand is mended as far as it can be: those that stand in no place are
    /// paused, for you to resume, retry or cancel.
    #[command(
        after_help = "Example:\n  heartline flows recover\n  heartline flows recover nightly   also one that is not listed any more"
    )]
    Recover {
        /// This one alone; it is listed again if it was lost from the list
        workflow: Option<String>,
    },
}

/// Stalls.
#[derive(Debug, Subcommand)]
pub(crate) enum StallsCommand {
    /// The last stalls, the latest first
    #[command(
        after_help = "Example:\n  heartline stalls list              of every task\n  heartline stalls list -t export"
    )]
    List {
        /// The task; all of them without it
        #[arg(long, short)]
        task: Option<String>,
    },
    /// Each stall of a job, in one sentence: who held it, who watched, for how long, and what was done
    #[command(after_help = "Example:\n  heartline stalls explain -t export export-7")]
    Explain {
        /// The task
        #[arg(long, short)]
        task: String,
        /// The job
        id: String,
    },
    /// Why nothing is recovered yet, and when that may be
    #[command(after_help = "Example:\n  heartline stalls outlook -t export")]
    Outlook {
        /// The task
        #[arg(long, short)]
        task: String,
    },
    /// Jobs that were held each time when workers died, the most suspicious first: one of them may take its process down
    #[command(after_help = "Example:\n  heartline stalls suspects -t export")]
    Suspects {
        /// The task
        #[arg(long, short)]
        task: String,
    },
    /// Outcomes that were refused, since their worker did not hold the job any more
    #[command(after_help = "Example:\n  heartline stalls late -t export")]
    Late {
        /// The task
        #[arg(long, short)]
        task: String,
    },
}

/// Which silent jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct Silent {
    /// The task
    #[arg(long, short)]
    pub(crate) task: String,
    /// Ids of jobs, or --all; '-' reads them from standard input, one a line
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All that are silent
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

/// What a person decides about held jobs: most often nothing, since live workers take back what a dead one held.
///
/// `worker` takes the jobs of a worker that you know to be dead, at once. `sweep` does what a worker would, where none is. `running`, `claimed`
/// and `fail` are for jobs that a task leaves to a person, or that you decide about otherwise than it does. But for `worker` nothing is taken before it
/// was watched for a whole stall interval, or was set aside for a person.
#[derive(Debug, Subcommand)]
pub(crate) enum RecoverCommand {
    /// List held jobs that are silent
    #[command(after_help = "Example:\n  heartline recover silent -t export")]
    Silent {
        /// The task
        #[arg(long, short)]
        task: String,
    },
    /// Put silent jobs back that were claimed ahead and have not begun
    #[command(after_help = "Example:\n  heartline recover claimed -t export --all")]
    Claimed(Silent),
    /// Give silent jobs another run; where their worker is dead, `recover worker` is sooner
    #[command(
        after_help = "Example:\n  heartline recover running -t export export-7 export-8\n  heartline recover running -t export --all"
    )]
    Running(Silent),
    /// Let silent jobs fail
    #[command(after_help = "Example:\n  heartline recover fail -t export export-7")]
    Fail(Silent),
    /// Say that a worker is dead: its jobs are resolved at once
    #[command(after_help = "Example:\n  heartline recover worker web-1-4711-0f3a9c21\n\n\
                            If you are wrong, its jobs run twice: it hears of it within 10 s, and stops.")]
    Worker {
        /// The id of the worker
        worker: String,
    },
    /// Watch for one interval, and resolve what stays silent by the options of the task
    #[command(after_help = "Example:\n  heartline recover sweep -t export")]
    Sweep {
        /// The task
        #[arg(long, short)]
        task: String,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The examples of a command and of those below it, each with the words that lead to it.
    fn examples(command: &clap::Command, path: &[&str], told: &mut Vec<(String, String)>) {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set()).collect::<Vec<_>>();
        if below.is_empty() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            told.push((path.join(" "), help));
        }
        for below in below {
            examples(below, &[path, &[below.get_name()]].concat(), told);
        }
    }

    /// The words of a command, as a shell takes them: up to what is for the shell itself, or a word to the reader.
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
    fn every_command_shows_an_example_that_can_be_read() {
        let mut told = Vec::new();
        examples(&Args::command(), &["heartline"], &mut told);
        assert!(told.len() > 30, "{told:?}");
        for (path, help) in told {
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
