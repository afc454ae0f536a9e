//! Notifies open pages of changes: one read of the fleet per second for all of them, and none while no page is open.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use heartline::{TaskReport, WorkerReport};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{self, Receiver};
use tokio::time::Instant;

use crate::live::Changed;
use crate::state::{Board, Seen};
use crate::token::TokenCheck;

/// The pause between two reads of the fleet, and the longest pause while Redis does not answer.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_LEAST: Duration = Duration::from_secs(10);

/// The longest time of a stream. The page then opens another one, which checks its session.
const LASTS: Duration = Duration::from_secs(1800);

/// An open stream.
struct Listener {
    board: Arc<Board>,
    /// The head of its request, to check the session before each event.
    head: HeaderMap,
    changes: Receiver<Changed>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

/// Serves a stream of changes, while the page is open.
pub(crate) async fn stream(State(board): State<Arc<Board>>, head: HeaderMap) -> Response {
    let Ok(place) = Arc::clone(&board.live.places).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many event streams\n").into_response();
    };
    let changes = board.live.changes.subscribe();
    {
        let mut is_looked = board.live.is_looked();
        if !*is_looked {
            *is_looked = true;
            tokio::spawn(look(Looks { board: Arc::clone(&board), is_over: false }));
        }
    }
    let listener = Listener { board, head, changes, until: Instant::now() + LASTS, _place: place };
    let events = stream::unfold(listener, |mut listener| async {
        let next = tokio::time::timeout_at(listener.until, listener.changes.recv()).await.ok()?;
        let token = listener.board.options.token.as_ref();
        if token.is_some_and(|token| token.check(&listener.head) != TokenCheck::Right) {
            return None;
        }
        let changed = match next {
            Ok(changed) => changed,
            Err(broadcast::error::RecvError::Lagged(_)) => Changed { all: true, ..Changed::default() },
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        let event = Event::default().data(serde_json::to_string(&changed).unwrap_or_default());
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// The loop that reads the fleet. If it ends, even by a panic, the next stream starts another one.
struct Looks {
    board: Arc<Board>,
    /// Whether the loop has already marked its end.
    is_over: bool,
}

impl Drop for Looks {
    fn drop(&mut self) {
        if !self.is_over {
            *self.board.live.is_looked() = false;
        }
    }
}

async fn look(mut looks: Looks) {
    let board = Arc::clone(&looks.board);
    let (mut last, mut pause) = (None::<Seen>, LOOK);
    loop {
        tokio::time::sleep(pause).await;
        {
            let mut is_looked = board.live.is_looked();
            if board.live.changes.receiver_count() == 0 {
                // Under the lock, so that a new stream starts another loop.
                *is_looked = false;
                looks.is_over = true;
                return;
            }
        }
        let changed = match board.look().await {
            Ok((seen, _)) => {
                pause = LOOK;
                let changed = last.as_ref().map(|last| between(last, &seen));
                last = Some(seen);
                changed.unwrap_or(Changed { all: true, ..Changed::default() })
            }
            Err(_) => {
                pause = (2 * pause).min(LOOK_LEAST);
                last = None;
                Changed { away: true, ..Changed::default() }
            }
        };
        if changed != Changed::default() {
            // An error means that the last page was closed.
            let _ = board.live.changes.send(changed);
        }
    }
}

/// The difference of two reads.
fn between(last: &Seen, seen: &Seen) -> Changed {
    let before = |task: &TaskReport| last.fleet.tasks.iter().find(|before| before.task == task.task).map(timeless);
    let differs = |task: &&TaskReport| before(task).as_ref() != Some(&timeless(task));
    let mut tasks: Vec<String> = seen.fleet.tasks.iter().filter(differs).map(|task| task.task.clone()).collect();
    let is_gone = |task: &&TaskReport| !seen.fleet.tasks.iter().any(|now| now.task == task.task);
    tasks.extend(last.fleet.tasks.iter().filter(is_gone).map(|task| task.task.clone()));
    let workers = of_workers(&last.fleet.workers) != of_workers(&seen.fleet.workers);
    Changed { tasks, workers, ..Changed::default() }
}

/// A task without the fields that differ in every read.
fn timeless(task: &TaskReport) -> TaskReport {
    let mut task = task.clone();
    task.as_of = SystemTime::UNIX_EPOCH;
    task.next_waiting_age = None;
    task
}

fn of_workers(workers: &[WorkerReport]) -> Vec<(&str, SystemTime)> {
    workers.iter().map(|worker| (worker.worker.as_str(), worker.last_seen_at)).collect()
}
