//! How many tests run at a time.
//!
//! `.cargo/config.toml` gives the test binary many threads, because most tests wait for most of their time. A test
//! takes a turn when it first asks for a server, and keeps it until its thread ends. So a test that waits for its turn
//! costs only a thread, and tests with private clusters run a few at a time next to the others.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Tests that use one server: six for each processor, so that none waits long for it.
static SERVERS: Gate = Gate::new();
/// Tests that start a cluster, sentinels, or as many workers: two for each processor. They have six processes or more
/// each, and wait for most of their time.
static CLUSTERS: Gate = Gate::new();

thread_local! {
    /// The turn of the test that runs on this thread.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

struct Gate {
    inside: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    const fn new() -> Gate {
        Gate { inside: Mutex::new(0), left: Condvar::new() }
    }
}

/// A place inside a gate, returned when it is dropped.
struct Turn(&'static Gate);

impl Turn {
    fn take(gate: &'static Gate, most: usize) -> Turn {
        let mut inside = gate.inside.lock().unwrap_or_else(PoisonError::into_inner);
        while *inside >= most {
            inside = gate.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        *inside += 1;
        Turn(gate)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.inside.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.left.notify_one();
    }
}

/// The test harness names each thread after the path of its test.
fn is_thread_of_a_test() -> bool {
    thread::current().name().is_some_and(|name| name.contains("::"))
}

fn processors() -> usize {
    thread::available_parallelism().map_or(2, usize::from)
}

/// Waits until this test may use a server; returns at once if it has its turn.
pub fn with_server() {
    if !is_thread_of_a_test() {
        return;
    }
    TURN.with_borrow_mut(|turn| {
        turn.get_or_insert_with(|| Turn::take(&SERVERS, 6 * processors()));
    });
}

/// Waits until this test may start a cluster, sentinels, or as many workers. It first returns a turn for a server: two tests that wait
/// for each other's turn would wait without end.
pub fn with_cluster() {
    if !is_thread_of_a_test() {
        return;
    }
    TURN.with_borrow_mut(|turn| {
        let has_cluster = turn.as_ref().is_some_and(|turn| std::ptr::eq(turn.0, &CLUSTERS));
        if !has_cluster {
            drop(turn.take());
            *turn = Some(Turn::take(&CLUSTERS, 2 * processors()));
        }
    });
}
