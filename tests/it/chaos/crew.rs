//! The worker processes of a run, and what happens to them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::chaos::outside::Outside;
use crate::chaos::plan::{Cut, Kind, Lane, Plan, WorkerFault};
use crate::chaos::spans::{Book, Hurt, Loses};
use crate::chaos::worker_process::{LONG, Role};
use crate::support::{Child, Line, Proxy};

/// How long a process that will be frozen may take to begin a long job.
const BEGINS: Duration = Duration::from_secs(3);

/// The one-way delay of a delayed line.
const DELAY: Duration = Duration::from_millis(60);

/// A way to the server that fails on request.
pub struct Way {
    line: Line,
    proxy: Proxy,
}

impl Way {
    pub async fn to(server: SocketAddr) -> Way {
        let proxy = Proxy::start(server).await;
        Way { line: Line::start(proxy.address()).await, proxy }
    }

    pub fn url(&self) -> String {
        self.line.url()
    }

    /// It fails like this for so long.
    pub async fn fails(&self, cut: Cut, ms: u64) {
        let lasts = tokio::time::sleep(Duration::from_millis(ms));
        match cut {
            Cut::Delay => {
                self.line.delay(DELAY);
                lasts.await;
                self.line.delay(Duration::ZERO);
            }
            Cut::Silent => {
                self.proxy.cut_replies();
                lasts.await;
                self.proxy.restore_replies();
            }
            Cut::Reset => self.proxy.drop_connections(),
            Cut::HalfOpen => self.line.hush(),
            Cut::LostReply => {
                let lost = self.proxy.cut_next_reply_to("EVALSHA").happened();
                let _ = tokio::time::timeout(Duration::from_millis(ms), lost).await;
            }
            Cut::Refused => {
                self.proxy.refuse().await;
                lasts.await;
                self.proxy.accept().await;
            }
        }
    }
}

/// What all members of a crew share.
#[derive(Clone)]
pub struct Site {
    pub role: Role,
    pub outside: Outside,
    pub book: Book,
}

/// A worker process, and those that replace it.
pub struct Member {
    site: Site,
    child: Child,
    way: Option<Way>,
}

impl Member {
    pub async fn start(site: &Site, server: Option<SocketAddr>) -> Member {
        let mut site = site.clone();
        let way = match server {
            Some(server) => Some(Way::to(server).await),
            None => None,
        };
        if let Some(way) = &way {
            site.role.url = way.url();
            site.role.line = Some(way.line.address());
        }
        Member { child: site.role.start(), site, way }
    }

    /// Meets the faults of the lane until the time is over.
    pub async fn lives(mut self, mut lane: Lane, until: Instant) -> Member {
        loop {
            let step = lane.of_worker();
            let next = Instant::now() + Duration::from_millis(step.after);
            if next >= until {
                return self;
            }
            tokio::time::sleep_until(next.into()).await;
            self.meets(step.fault).await;
        }
    }

    async fn meets(&mut self, fault: WorkerFault) {
        let (book, worker) = (self.site.book.clone(), Hurt::Worker(self.child.pid()));
        match fault {
            WorkerFault::Kill => {
                let open = book.open("kill", worker, Loses::Nothing);
                self.child = self.site.role.start();
                // Its outcomes are gone for good.
                drop(open);
            }
            WorkerFault::Freeze(ms) => {
                self.begins_a_long_job().await;
                let open = book.open("freeze", worker, Loses::Nothing);
                self.child.signal("STOP");
                tokio::time::sleep(Duration::from_millis(ms)).await;
                self.child.signal("CONT");
                book.close(open);
            }
            WorkerFault::Deploy(plan) => {
                drop(book.open(format!("deploy {plan:?}"), worker, Loses::Nothing));
                self.leaves().await;
                self.site.role.plan = plan;
                self.child = self.site.role.start();
            }
            WorkerFault::Cut(cut, ms) => {
                let open = book.open(format!("cut {cut:?}"), worker, Loses::Nothing);
                let way = self.way.as_ref().expect("only a process with a way is cut off");
                way.fails(cut, ms).await;
                book.close(open);
            }
        }
    }

    /// Waits until the process begins one, so that a freeze meets it at its beginning.
    async fn begins_a_long_job(&self) {
        let pid = self.child.pid();
        let (before, begun) = (self.site.outside.begun(pid, LONG).await, Instant::now());
        while self.site.outside.begun(pid, LONG).await == before && begun.elapsed() < BEGINS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops it in order.
    pub async fn leaves(&mut self) {
        // It may have ended by itself, which the account shows.
        if self.child.lives() {
            self.child.signal("TERM");
        }
        self.child.exits().await;
    }
}

/// The processes of a run. The first one meets only the faults of the servers.
pub async fn start(site: &Site, server: Option<SocketAddr>, count: usize) -> Vec<Member> {
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(Member::start(site, server).await);
    }
    members
}

/// Lets the crew meet its faults.
pub async fn live(members: Vec<Member>, seed: u64, kind: Kind, until: Instant) -> Vec<Member> {
    let lives = (0..).zip(members).map(|(number, member): (u64, Member)| async move {
        if number == 0 {
            return member;
        }
        member.lives(Lane::new(seed, kind, number), until).await
    });
    futures_util::future::join_all(lives).await
}

impl Site {
    pub fn new(role: Role, outside: Outside, book: Book) -> Site {
        Site { role: Role { plan: Plan::FIRST, ..role }, outside, book }
    }
}
