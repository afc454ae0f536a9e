//! The faults of a run, which follow from its seed, and the options of worker processes.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// The engines, in the order in which a run uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Server,
    Sentinel,
    Cluster,
}

/// The options of a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub slots: usize,
    pub prefetch: Option<usize>,
    /// How many jobs of a key run at a time.
    pub per_key: u32,
    /// How many jobs of the task with keys run at a time.
    pub most: u32,
}

impl Plan {
    pub const FIRST: Plan = Plan { slots: 4, prefetch: None, per_key: 1, most: 4 };

    fn random(rng: &mut Rng) -> Plan {
        let prefetch = [None, Some(0), Some(5)][rng.usize(..3)];
        Plan { slots: rng.usize(3..8), prefetch, per_key: rng.u32(1..3), most: rng.u32(3..6) }
    }
}

/// How a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each byte takes longer.
    Delay,
    /// Requests pass, replies do not.
    Silent,
    /// All connections are closed.
    Reset,
    /// The open connections pass nothing more and stay open; new ones work.
    HalfOpen,
    /// One reply is lost with its connection.
    LostReply,
    /// No connection is accepted.
    Refused,
}

const CUTS: [Cut; 6] = [Cut::Delay, Cut::Silent, Cut::Reset, Cut::HalfOpen, Cut::LostReply, Cut::Refused];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFault {
    Kill,
    /// SIGSTOP right after a long job has begun, and SIGCONT after this many ms.
    Freeze(u64),
    /// SIGTERM, and a start with other options.
    Deploy(Plan),
    /// For this many ms.
    Cut(Cut, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    ScriptFlush,
    ClientKill,
    /// For this many ms.
    ClientPause(u64),
    /// It accepts no growing command for this many ms.
    Maxmemory(u64),
    /// SIGKILL of a server that writes each command to its disk, and a restart after this many ms.
    Restart(u64),
    Empty,
    /// SIGKILL of a primary; the number selects it. It returns as a replica.
    KillPrimary(usize),
    /// SIGSTOP of the primary until another one is promoted.
    FreezePrimary,
    FailOver,
}

/// A fault, and how many ms after the end of the one before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<F> {
    pub after: u64,
    pub fault: F,
}

/// Longer than the detection of a stall takes.
const PAST_THE_LOCK: u64 = 3_200;

/// The faults of one process, one after the other.
pub struct Lane {
    rng: Rng,
    kind: Kind,
    number: u64,
    step: usize,
}

impl Lane {
    /// The lane with this number; each has other faults.
    pub fn new(seed: u64, kind: Kind, number: u64) -> Lane {
        let rng = Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(100 * kind as u64 + number));
        Lane { rng, kind, number, step: 0 }
    }

    /// The next fault of a worker. The first ones are the same in each run: a short run has each of them.
    pub fn of_worker(&mut self) -> Step<WorkerFault> {
        let (rng, number) = (&mut self.rng, self.number);
        self.step += 1;
        let after = rng.u64(200..1_200);
        let fault = match (self.step, number) {
            (1, 1) => WorkerFault::Freeze(PAST_THE_LOCK),
            (1, 2) => WorkerFault::Kill,
            (1, _) => WorkerFault::Deploy(Plan::random(rng)),
            _ => match rng.u32(..10) {
                0..2 => WorkerFault::Freeze(PAST_THE_LOCK + rng.u64(..400)),
                2 => WorkerFault::Freeze(rng.u64(100..1_500)),
                3..5 => WorkerFault::Kill,
                5..7 => WorkerFault::Deploy(Plan::random(rng)),
                _ if self.kind == Kind::Server => {
                    let (cut, ms) = cut(rng);
                    WorkerFault::Cut(cut, ms)
                }
                _ => WorkerFault::Kill,
            },
        };
        Step { after, fault }
    }

    pub fn of_producers(&mut self) -> Step<(Cut, u64)> {
        let after = self.rng.u64(1_000..3_000);
        Step { after, fault: cut(&mut self.rng) }
    }

    /// The next fault of the servers. They begin after the first faults of the workers; a server loses its data once.
    pub fn of_servers(&mut self) -> Step<ServerFault> {
        let rng = &mut self.rng;
        self.step += 1;
        let after = if self.step == 1 { 4_500 } else { rng.u64(1_000..4_000) };
        let light = match rng.u32(..3) {
            0 => ServerFault::ScriptFlush,
            1 => ServerFault::ClientKill,
            // A longer pause would make sentinels promote another primary.
            _ => ServerFault::ClientPause(rng.u64(100..600)),
        };
        let down = rng.u64(50..1_500);
        let heavy = match (self.kind, rng.u32(..3)) {
            (Kind::Server, 0) => ServerFault::Maxmemory(rng.u64(500..2_000)),
            (Kind::Server, _) => ServerFault::Restart(down),
            (Kind::Sentinel, 0) => ServerFault::KillPrimary(0),
            (Kind::Sentinel, 1) => ServerFault::FreezePrimary,
            (Kind::Sentinel, _) => ServerFault::FailOver,
            (Kind::Cluster, _) => ServerFault::KillPrimary(rng.usize(..100)),
        };
        let fault = match (self.kind, self.step) {
            (_, 1) => light,
            (Kind::Server, 2) => ServerFault::Empty,
            (Kind::Server, 3) => ServerFault::Restart(down),
            (Kind::Sentinel, 2) => ServerFault::KillPrimary(0),
            _ if rng.bool() => light,
            _ => heavy,
        };
        Step { after, fault }
    }
}

fn cut(rng: &mut Rng) -> (Cut, u64) {
    (CUTS[rng.usize(..CUTS.len())], rng.u64(200..2_500))
}
