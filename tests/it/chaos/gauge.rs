//! What a worker process measures itself: whether it runs, and whether it reaches Redis over new connections.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use heartline::WorkerMonitor;

use crate::chaos::outside::{Blocking, Broke, Outside, Reach};
use crate::chaos::spans::now_us;
use crate::support::task::INTERVAL;

/// How often it measures.
const PERIOD: Duration = Duration::from_millis(100);

/// An answer that takes longer does not count, and neither does a gap between two answers: a worker must open a
/// connection and get an answer within a third of the interval.
const WITHIN: Duration = Duration::from_millis(INTERVAL.as_millis() as u64 / 3);

/// How often it reports.
const REPORT: Duration = Duration::from_secs(1);

/// Measures until the process ends. `line` is the address of the server for a process with a line of its own.
pub fn start(outside: &str, line: Option<SocketAddr>) {
    let url = outside.to_owned();
    thread::spawn(move || measure(Blocking::at(&url), line));
}

fn measure(mut outside: Blocking, line: Option<SocketAddr>) {
    let pid = std::process::id();
    let mut homes = places(&mut outside, line);
    let mut reach: Option<Reach> = None;
    let mut reported = Instant::now();
    loop {
        let (begun, begun_us) = (Instant::now(), now_us());
        // A cluster has several primaries.
        let is_answered = !homes.is_empty() && homes.iter().all(|home| answers(*home).is_ok());
        let (took, ended_us) = (begun.elapsed(), now_us());
        let gap = reach.map_or(0, |reach| ended_us - reach.to_us);
        if is_answered && took <= WITHIN && gap <= WITHIN.as_micros() as u64 {
            let reach = reach.get_or_insert(Reach { pid, from_us: begun_us, to_us: ended_us, slowest_us: 0 });
            reach.to_us = ended_us;
            reach.slowest_us = reach.slowest_us.max(took.as_micros() as u64);
        } else if let Some(reach) = reach.take() {
            outside.say("reach", &reach);
        }
        if reported.elapsed() >= REPORT {
            if let Some(reach) = &mut reach {
                outside.say("reach", reach);
                (reach.from_us, reach.slowest_us) = (reach.to_us, 0);
            }
            homes = places(&mut outside, line);
            reported = Instant::now();
        }
        thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
    }
}

fn places(outside: &mut Blocking, line: Option<SocketAddr>) -> Vec<SocketAddr> {
    let homes = || outside.homes().into_iter().map(|port| ([127, 0, 0, 1], port).into()).collect();
    line.map_or_else(homes, |line| vec![line])
}

/// Opens a connection and waits for an answer.
fn answers(home: SocketAddr) -> io::Result<()> {
    let mut conn = TcpStream::connect_timeout(&home, WITHIN)?;
    conn.set_read_timeout(Some(WITHIN))?;
    conn.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    let mut reply = [0; 7];
    conn.read_exact(&mut reply)?;
    if &reply == b"+PONG\r\n" { Ok(()) } else { Err(io::Error::other("it is not ready")) }
}

/// Reports what breaks the watch of the process over its tasks.
pub async fn report_breaks(monitor: WorkerMonitor, outside: Outside) {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        tokio::time::sleep(PERIOD).await;
        for task in monitor.stats().tasks {
            let count = task.watch_breaks.values().sum();
            if seen.insert(task.task.clone(), count).unwrap_or(0) < count {
                let causes = task.watch_breaks.iter().filter(|(_, count)| **count > 0);
                let causes: Vec<String> = causes.map(|(cause, count)| format!("{count} {cause}")).collect();
                let broke = Broke { pid: std::process::id(), task: task.task, causes };
                outside.say("broke", &broke).await;
            }
        }
    }
}
