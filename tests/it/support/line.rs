use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The most bytes that travel together: at 1 MiB/s they take 16 ms.
const CHUNK: usize = 16 << 10;

/// The most chunks on their way in one direction. Further ones wait at the sender, as for a full window.
const IN_FLIGHT: usize = 4096;

/// An idle line may send this much of its rate at once, so that a late timer does not slow it down.
const CREDIT: Duration = Duration::from_millis(5);

/// This many silent connections stay open; each further one closes the oldest, as a server's keepalive would.
const SILENT: usize = 400;

/// A line in front of a server, with delay, a limited rate, and connections that can go silent.
///
/// It does not parse requests and replies, unlike [`Proxy`](super::Proxy). It has its own thread, so that its speed
/// does not depend on the test's runtime. It ends when dropped.
pub struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
    _end: oneshot::Sender<()>,
}

struct Shared {
    server: SocketAddr,
    /// One way, in microseconds.
    delay: AtomicU64,
    /// Bytes a second, in each direction of each connection; 0: unlimited.
    rate: AtomicU64,
    connections: AtomicU64,
    /// The connections that pass bytes.
    open: Mutex<Vec<Open>>,
    silent: Mutex<VecDeque<watch::Sender<State>>>,
}

struct Open {
    number: u64,
    /// The client's address as the server sees it.
    from: Option<SocketAddr>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Passes,
    Silent,
    Closed,
}

impl Line {
    /// Listens on a free port of 127.0.0.1 in front of `server`, and passes everything at once.
    pub async fn start(server: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            server,
            delay: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: Mutex::new(Vec::new()),
            silent: Mutex::new(VecDeque::new()),
        });
        let (end, ended) = oneshot::channel::<()>();
        let (sender, listens) = oneshot::channel();
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    sender.send(listener.local_addr().unwrap()).unwrap();
                    tokio::select! {
                        () = listen(listener, shared) => {}
                        _ = ended => {}
                    }
                });
            }
        });
        let address = listens.await.expect("the line does not listen");
        Self { address, shared, _end: end }
    }

    /// The address for clients, in place of the server's.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, every byte takes this long in each direction: a round trip takes twice as long. Bytes on their way
    /// do not wait for each other.
    pub fn delay(&self, delay: Duration) {
        self.shared.delay.store(delay.as_micros() as u64, Ordering::SeqCst);
    }

    /// From now on, passes this many bytes a second in each direction of each connection.
    pub fn rate(&self, rate: Option<u64>) {
        self.shared.rate.store(rate.unwrap_or(0), Ordering::SeqCst);
    }

    /// Silences all open connections: nothing passes in either direction, not even a close. Neither side notices. New
    /// connections work.
    pub fn hush(&self) {
        self.hush_those(|_| true);
    }

    /// Silences one connection, by its number in the order of acceptance, from 0. Returns whether it was open.
    pub fn hush_number(&self, number: u64) -> bool {
        self.hush_those(|open| open.number == number) == 1
    }

    /// Silences the connection with this address in the server's list. Returns whether it was open.
    pub fn hush_client(&self, address: SocketAddr) -> bool {
        self.hush_those(|open| open.from == Some(address)) == 1
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    fn hush_those(&self, matches: impl Fn(&Open) -> bool) -> usize {
        let hushed: Vec<_> = lock(&self.shared.open).extract_if(.., |open| matches(open)).collect();
        let (mut silent, count) = (lock(&self.shared.silent), hushed.len());
        for Open { state, .. } in hushed {
            state.send_replace(State::Silent);
            silent.push_back(state);
        }
        while silent.len() > SILENT {
            silent.pop_front().unwrap().send_replace(State::Closed);
        }
        count
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(ended) = connections.join_next() => ended.unwrap(),
            Ok((client, _)) = listener.accept() => {
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                let (sender, state) = watch::channel(State::Passes);
                lock(&shared.open).push(Open { number, from: None, state: sender });
                connections.spawn(serve(client, number, state, Arc::clone(&shared)));
            }
        }
    }
}

/// Passes bytes until both sides have closed, or the connection broke, or it is silenced; then it stays as it is.
async fn serve(mut client: TcpStream, number: u64, mut state: watch::Receiver<State>, shared: Arc<Shared>) {
    let (mut server, open) = (None, state.clone());
    let passing = async {
        // The client handles a broken side; the line just closes both ends.
        let server = server.insert(TcpStream::connect(shared.server).await?);
        let from = server.local_addr()?;
        lock(&shared.open).iter_mut().filter(|open| open.number == number).for_each(|open| open.from = Some(from));
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::try_join!(pass(from_client, to_server, &open, &shared), pass(from_server, to_client, &open, &shared))?;
        io::Result::Ok(())
    };
    let silenced = tokio::select! {
        biased;
        // The other end is only gone if the connection has ended by itself.
        silenced = state.wait_for(|state| *state != State::Passes) => silenced.is_ok(),
        _ = passing => false,
    };
    if silenced {
        // Both sockets stay open and are not read.
        let _ = state.wait_for(|state| *state == State::Closed).await;
    }
    lock(&shared.open).retain(|open| open.number != number);
}

/// One direction: reads from the sender at the rate of the line, and passes the bytes on after the delay.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    state: &watch::Receiver<State>,
    shared: &Shared,
) -> io::Result<()> {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let takes = async move {
        let mut free = Instant::now();
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            if from.read_buf(&mut chunk).await? == 0 {
                return Ok(());
            }
            let (now, rate) = (Instant::now(), shared.rate.load(Ordering::SeqCst));
            free = free.max(now - CREDIT);
            if rate > 0 {
                free += Duration::from_secs_f64(chunk.len() as f64 / rate as f64);
                sleep_until(free).await;
            }
            let due = free.max(now) + Duration::from_micros(shared.delay.load(Ordering::SeqCst));
            if sender.send((due, chunk)).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    let hands_on = async move {
        while let Some((due, chunk)) = under_way.recv().await {
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                to.writable().await?;
                rest = &rest[write(&to, rest, state)?..];
                if !rest.is_empty() {
                    // Lets the connection see that it has become silent.
                    tokio::task::yield_now().await;
                }
            }
        }
        to.shutdown().await
    };
    tokio::try_join!(takes, hands_on)?;
    Ok(())
}

/// Writes what can be written at once, unless the connection is silent. Silencing waits for a write under way, so that
/// nothing passes after it.
fn write(to: &WriteHalf<'_>, bytes: &[u8], state: &watch::Receiver<State>) -> io::Result<usize> {
    let state = state.borrow();
    if *state != State::Passes {
        return Ok(0);
    }
    match to.try_write(bytes) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}
