use super::PATIENCE;
use super::eventually::eventually;
use super::resp::{find, frame_len, rewrite_bulk};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

const BACKLOG: u32 = 1024;

type Matcher = Box<dyn Fn(&[u8]) -> bool + Send>;

/// What happens to a reply that a test selected.
enum Fate {
    /// It is lost with its connection. Nothing passes from then on if the proxy is to pause.
    Cut(oneshot::Sender<()>, bool),
    /// It waits until it is released, and everything after it on its connection.
    Hold(oneshot::Sender<()>, oneshot::Receiver<()>),
}

/// A proxy in front of a Redis server that breaks connections in chosen ways while traffic flows.
///
/// It passes whole requests and replies, so every control acts between them and never inside one. It does not support
/// SUBSCRIBE and MONITOR, whose replies belong to no request. It ends when dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: mpsc::UnboundedSender<Listen>,
    tasks: JoinSet<()>,
}

struct Shared {
    server: Mutex<SocketAddr>,
    rules: watch::Sender<Rules>,
    fates: Mutex<Vec<(Matcher, Fate)>>,
    connections: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    discarded: AtomicU64,
}

struct Rules {
    paused: bool,
    discard_replies: bool,
    /// Connections of an earlier generation are closed.
    generation: u64,
    rewrites: Vec<(Vec<u8>, Vec<u8>)>,
}

enum Listen {
    Refuse(oneshot::Sender<()>),
    Accept(oneshot::Sender<()>),
}

/// A reply that is going to be lost, from [`Proxy::cut_next_reply_to`].
#[must_use]
pub struct Cut {
    happened: oneshot::Receiver<()>,
}

impl Cut {
    /// Waits until the server has executed the request, and its reply and connection are gone; panics if it never comes.
    pub async fn happened(self) {
        let happened = tokio::time::timeout(PATIENCE, self.happened).await;
        happened.expect("no request matched the cut").expect("the proxy ended before a request matched the cut");
    }
}

/// A reply that is held back, from [`Proxy::hold_next_reply_to`]. Dropping this releases it.
#[must_use]
pub struct Hold {
    happened: oneshot::Receiver<()>,
    _release: oneshot::Sender<()>,
}

impl Hold {
    /// Waits until the server has executed the request; panics if it never comes.
    pub async fn happened(&mut self) {
        let happened = tokio::time::timeout(PATIENCE, &mut self.happened).await;
        happened.expect("no request matched the hold").expect("the proxy ended before a request matched the hold");
    }
}

impl Proxy {
    /// Leads new connections to another server, as an address does that moves in a failover.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Listens on a free port of 127.0.0.1 in front of `server`.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rules = Rules { paused: false, discard_replies: false, generation: 0, rewrites: Vec::new() };
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            rules: watch::Sender::new(rules),
            fates: Mutex::new(Vec::new()),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
        });
        let (listening, orders) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&shared), orders));
        Self { address, shared, listening, tasks }
    }

    /// The address for clients, in place of the server's.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, drops all replies: requests reach the server and are executed, but are not answered.
    ///
    /// Usually followed by [`drop_connections`](Self::drop_connections) once the request of interest is counted.
    pub fn cut_replies(&self) {
        self.shared.rules.send_modify(|rules| rules.discard_replies = true);
    }

    /// Passes replies again, on new connections: those whose replies were lost are closed.
    pub fn restore_replies(&self) {
        self.shared.rules.send_modify(|rules| {
            rules.discard_replies = false;
            rules.generation += 1;
        });
    }

    /// Lets the next request that contains `needle` (a script hash, a task name) be executed, then closes its
    /// connection instead of passing its reply. Replies to earlier requests still arrive.
    pub fn cut_next_reply_to(&self, needle: impl Into<Vec<u8>>) -> Cut {
        let needle = needle.into();
        self.cut_next_reply_matching(move |request| find(request, &needle).is_some())
    }

    /// Like [`cut_next_reply_to`](Self::cut_next_reply_to), for the next request (in protocol form) that `matches`.
    pub fn cut_next_reply_matching(&self, matches: impl Fn(&[u8]) -> bool + Send + 'static) -> Cut {
        self.cut(Box::new(matches), false)
    }

    /// The same, and pauses the proxy at that moment. An earlier pause could hold back another reply on the same connection, and the
    /// reply to be lost would wait for that one.
    pub fn cut_and_pause(&self, matches: impl Fn(&[u8]) -> bool + Send + 'static) -> Cut {
        self.cut(Box::new(matches), true)
    }

    fn cut(&self, matches: Matcher, pauses: bool) -> Cut {
        let (sender, happened) = oneshot::channel();
        self.shared.fates().push((matches, Fate::Cut(sender, pauses)));
        Cut { happened }
    }

    /// Lets the next request that contains `needle` be executed, and holds back its reply and everything after it on
    /// its connection. Other connections continue.
    pub fn hold_next_reply_to(&self, needle: impl Into<Vec<u8>>) -> Hold {
        let needle = needle.into();
        self.hold_next_reply_matching(move |request| find(request, &needle).is_some())
    }

    /// Like [`hold_next_reply_to`](Self::hold_next_reply_to), for the next request (in protocol form) that `matches`.
    pub fn hold_next_reply_matching(&self, matches: impl Fn(&[u8]) -> bool + Send + 'static) -> Hold {
        let (sender, happened) = oneshot::channel();
        let (release, released) = oneshot::channel();
        self.shared.fates().push((Box::new(matches), Fate::Hold(sender, released)));
        Hold { happened, _release: release }
    }

    /// Holds everything in both directions, with connections open and new ones accepted, until
    /// [`resume`](Self::resume).
    pub fn pause(&self) {
        self.shared.rules.send_modify(|rules| rules.paused = true);
    }

    /// Passes what was held, and everything after it.
    pub fn resume(&self) {
        self.shared.rules.send_modify(|rules| rules.paused = false);
    }

    /// Closes all open connections; new ones are accepted.
    pub fn drop_connections(&self) {
        self.shared.rules.send_modify(|rules| rules.generation += 1);
    }

    /// Starts an outage: when it returns, the system refuses new connections, and the old ones are being closed.
    pub async fn refuse(&self) {
        self.order(Listen::Refuse).await;
        self.drop_connections();
    }

    /// Ends an outage: when it returns, new connections are accepted, on the same port.
    pub async fn accept(&self) {
        self.order(Listen::Accept).await;
    }

    /// Replaces `from` by `to` in every reply that is one bulk string, such as that of INFO, until the proxy ends.
    pub fn rewrite(&self, from: &str, to: &str) {
        self.shared.rules.send_modify(|rules| rules.rewrites.push((from.into(), to.into())));
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many requests were passed to the server so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// How many replies were dropped so far: as many requests are known to be executed.
    pub fn discarded(&self) -> u64 {
        self.shared.discarded.load(Ordering::SeqCst)
    }

    /// Waits until at least `count` replies were dropped.
    pub async fn until_discarded(&self, count: u64) {
        eventually("the proxy discards replies", PATIENCE, async || self.discarded() >= count).await;
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<()>) -> Listen) {
        let (sender, carried_out) = oneshot::channel();
        self.listening.send(order(sender)).unwrap_or_else(|_| panic!("the proxy has ended"));
        carried_out.await.expect("the proxy has ended");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections are tasks of the listening task and end with it.
        self.tasks.abort_all();
    }
}

impl Shared {
    fn fates(&self) -> MutexGuard<'_, Vec<(Matcher, Fate)>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Port {
    Open(TcpListener),
    /// Bound but not listening: connections are refused and no other process can take the port.
    Closed(TcpSocket),
}

async fn listen(listener: TcpListener, shared: Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Listen>) {
    let address = listener.local_addr().unwrap();
    let mut port = Port::Open(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &port {
                Port::Open(listener) => listener.accept().await,
                Port::Closed(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(order) = order else { return };
                let (next, carried_out) = match (order, port) {
                    (Listen::Refuse(sender), Port::Open(listener)) => {
                        drop(listener);
                        (Port::Closed(reserve(address)), sender)
                    }
                    (Listen::Accept(sender), Port::Closed(socket)) => (Port::Open(socket.listen(BACKLOG).unwrap()), sender),
                    (Listen::Refuse(sender) | Listen::Accept(sender), port) => (port, sender),
                };
                port = next;
                // The test that gave the order may no longer wait.
                let _ = carried_out.send(());
            }
            Ok((client, _)) = accepted => {
                connections.spawn(serve(client, Arc::clone(&shared)));
            }
            Some(ended) = connections.join_next() => ended.unwrap(),
        }
    }
}

/// Takes the port without listening. A child process that is just being spawned may hold a copy of the old listener
/// until it executes its program; then the port is free.
fn reserve(address: SocketAddr) -> TcpSocket {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        match socket.bind(address) {
            Ok(()) => return socket,
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && std::time::Instant::now() < until => {
                std::thread::yield_now();
            }
            Err(e) => panic!("the proxy's port cannot be taken again: {e}"),
        }
    }
}

/// Counts itself as an open connection while it lives.
struct Open<'a>(&'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Passes requests and replies until either side closes, a cut is reached or the connections are dropped.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let mut rules = shared.rules.subscribe();
    let generation = rules.borrow_and_update().generation;
    shared.connections.fetch_add(1, Ordering::SeqCst);
    shared.open.fetch_add(1, Ordering::SeqCst);
    let _open = Open(&shared);
    let address = *shared.server.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // What happens to replies, by the number of the request on this connection.
    let fates = Mutex::new(HashMap::new());
    tokio::select! {
        // The client handles a broken connection; the proxy just closes both ends.
        _ = pass_requests(from_client, to_server, &shared, &fates) => {}
        _ = pass_replies(from_server, to_client, &shared, &fates) => {}
        _ = rules.wait_for(|rules| rules.generation != generation) => {}
    }
}

type Fates = Mutex<HashMap<u64, Fate>>;

async fn pass_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    fates: &Fates,
) -> io::Result<()> {
    let mut frames = Frames::default();
    for number in 0.. {
        let Some(request) = frames.next(&mut from).await? else {
            return Ok(());
        };
        unpaused(shared).await;
        {
            let mut wanted = shared.fates();
            if let Some(index) = wanted.iter().position(|(matches, _)| matches(&request)) {
                let (_, fate) = wanted.remove(index);
                fates.lock().unwrap_or_else(PoisonError::into_inner).insert(number, fate);
            }
        }
        to.write_all(&request).await?;
        shared.requests.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

async fn pass_replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    fates: &Fates,
) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut number = 0;
    while let Some(mut reply) = frames.next(&mut from).await? {
        // A push message answers no request.
        if reply[0] != b'>' {
            let fate = fates.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            number += 1;
            // The test may not wait for either.
            match fate {
                Some(Fate::Cut(sender, pauses)) => {
                    shared.rules.send_if_modified(|rules| pauses && !std::mem::replace(&mut rules.paused, true));
                    shared.discarded.fetch_add(1, Ordering::SeqCst);
                    drop((from, to));
                    let _ = sender.send(());
                    return Ok(());
                }
                Some(Fate::Hold(sender, release)) => {
                    let _ = sender.send(());
                    let _ = release.await;
                }
                None => {}
            }
        }
        unpaused(shared).await;
        let discard = {
            let rules = shared.rules.borrow();
            for (old, new) in &rules.rewrites {
                reply = rewrite_bulk(&reply, old, new);
            }
            rules.discard_replies
        };
        if discard {
            shared.discarded.fetch_add(1, Ordering::SeqCst);
        } else {
            to.write_all(&reply).await?;
        }
    }
    Ok(())
}

async fn unpaused(shared: &Shared) {
    let mut rules = shared.rules.subscribe();
    // The sender is in `shared`, so waiting cannot fail.
    let _ = rules.wait_for(|rules| !rules.paused).await;
}

/// Cuts a stream of bytes into requests or replies.
#[derive(Default)]
struct Frames {
    buffer: Vec<u8>,
    start: usize,
}

impl Frames {
    async fn next(&mut self, from: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = frame_len(&self.buffer[self.start..]) {
                let frame = self.buffer[self.start..self.start + length].to_vec();
                self.start += length;
                return Ok(Some(frame));
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            if from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
