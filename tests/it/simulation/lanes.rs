//! Random histories of jobs with keys on the real scripts, checked by what an outsider can see: replies, and what Redis
//! holds. Workers die, are swept while they live, and lose replies; people cancel, remove and retry; limits change; the
//! server fails over to older data, or loses a key about lanes.
//!
//! No limit of a key, of the task or of a rate is exceeded, each job is in one place and in its own lane, no key waits
//! without a reason, and healthy workers end all jobs. A failure prints its seed and its last steps.
//! `HEARTLINE_LANES=<seed>` runs that seed alone, `HEARTLINE_LANES=<first>..<last>` a range. Rests and rates follow the
//! clock of the server: a failure that depends on them may need several runs.

mod books;
mod check;
mod history;
mod nouns;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use self::history::History;
use crate::support::{TestRedis, is_thorough};

const STEPS: usize = 100;

fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("HEARTLINE_LANES") else {
        return 0..if is_thorough() { 20_000 } else { 1_000 };
    };
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|error| panic!("HEARTLINE_LANES: {error}"));
    match wanted.split_once("..") {
        Some((first, last)) => number(first)..number(last),
        None => number(&wanted)..number(&wanted) + 1,
    }
}

/// A seed, what its history did, and why it failed.
type Failure = (u64, Vec<String>, Box<dyn Any + Send>);

/// Runs the history of a seed. Returns how many steps it took.
fn run(seed: u64, server: &Arc<TestRedis>) -> Result<usize, Failure> {
    let mut history = History::new(seed, server);
    let run = catch_unwind(AssertUnwindSafe(|| history.run(STEPS)));
    run.map(|()| history.steps).map_err(|panic| (seed, history.log, panic))
}

#[test]
fn no_key_exceeds_its_limits_and_all_jobs_with_keys_end() {
    let seeds = seeds();
    let (next, is_over, steps) = (AtomicU64::new(seeds.start), AtomicBool::new(false), AtomicUsize::new(0));
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    // One for each two processors, since other tests wait for elections meanwhile.
    let servers = (thread::available_parallelism().map_or(2, usize::from) / 2).clamp(1, 4);
    let servers: Vec<_> = (0..servers).map(|_| Arc::new(TestRedis::start())).collect();
    thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    match run(seed, server) {
                        Ok(taken) => drop(steps.fetch_add(taken, Ordering::Relaxed)),
                        Err(failed) => {
                            is_over.store(true, Ordering::Relaxed);
                            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
                        }
                    }
                }
            });
        }
    });
    println!("{seeds:?}: {} steps", steps.into_inner());
    if let Some((seed, log, panic)) = failure.into_inner().unwrap() {
        eprintln!("seed {seed}, the last steps:\n{}", log[log.len().saturating_sub(60)..].join("\n"));
        resume_unwind(panic);
    }
}
