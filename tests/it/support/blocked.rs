//! A worker whose handlers block every thread of the runtime on which its App was built.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use heartline::{App, Context, JobError, StallOptions, StopReason, TaskOptions, TaskRef};
use tokio::sync::oneshot;

use super::journal::Journal;
use super::worker::TestWorker;
use super::{PATIENCE, eventually};

/// Two jobs that block the runtime, and a second worker that would take them.
pub struct Blocked {
    journal: Arc<Journal>,
    task: TaskRef<u64, u64>,
    witness: TestWorker,
    stop: oneshot::Sender<()>,
    user: std::thread::JoinHandle<StopReason>,
}

fn options() -> TaskOptions {
    TaskOptions::new().concurrency(2).stall(StallOptions::new().interval(Duration::from_secs(3)))
}

impl Blocked {
    /// Both jobs run, and block the runtime for this time.
    pub async fn start(url: &str, task: &str, time: Duration) -> Blocked {
        let journal = Arc::new(Journal::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let (url, name, noted) = (url.to_owned(), task.to_owned(), Arc::clone(&journal));
        let user = std::thread::spawn({
            let (url, name) = (url.clone(), name.clone());
            move || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                let worker = runtime.spawn(async move {
                    let app = App::builder().redis(url).build().await.unwrap();
                    let both = Arc::new(Barrier::new(2));
                    app.task(&name, options(), move |ctx: Context, _: u64| {
                        let (journal, both) = (Arc::clone(&noted), Arc::clone(&both));
                        async move {
                            journal.begin(&ctx);
                            // Each on a thread of its own.
                            both.wait();
                            std::thread::sleep(time);
                            if let Err(e) = ctx.heartbeat() {
                                journal.note(e.to_string());
                            }
                            Ok::<_, JobError>(ctx.fence())
                        }
                    })
                    .unwrap();
                    app.worker().run_until(async { drop(stopped.await) }).await.unwrap()
                });
                runtime.block_on(worker).unwrap()
            }
        });
        let app = App::builder().redis(url).build().await.unwrap();
        let noted = Arc::clone(&journal);
        let takes = move |ctx: Context, _: u64| {
            noted.begin(&ctx);
            async move { Ok::<_, JobError>(ctx.fence()) }
        };
        let jobs: TaskRef<u64, u64> = app.task_ref(&name).unwrap();
        jobs.dispatch_many([1, 2]).await.unwrap();
        eventually("both run", PATIENCE, async || journal.runs().len() == 2).await;
        let task = app.task(&name, options(), takes).unwrap();
        Blocked { journal, task, witness: TestWorker::start(app.worker()), stop, user }
    }

    /// Waits until both have ended, and checks that each ran only once.
    pub async fn end_after_their_only_run(self) {
        eventually("both have ended", PATIENCE, async || {
            self.task.counts().await.is_ok_and(|counts| counts.completed == 2)
        })
        .await;
        assert_eq!((self.journal.runs().len(), self.journal.interruptions()), (2, Vec::new()));
        self.witness.stop().await;
        self.stop.send(()).unwrap();
        let stopped = tokio::task::spawn_blocking(move || self.user.join().unwrap()).await.unwrap();
        assert_eq!(stopped, StopReason::Shutdown);
    }
}
