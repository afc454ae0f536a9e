//! What other queues reach, for the plots. Measured once, with their own clients, on the machine that Heartline's
//! published figures are from: two cores shared by client and server, Redis 7.0.15 without persistence, no-op
//! handlers, JSON payloads of 64 bytes, one worker process, medians of three.

/// What was measured of one queue: points of x and y.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub name: &'static str,
    /// The same queue has the same colour in every plot.
    pub color: (u8, u8, u8),
    pub points: &'static [(f64, f64)],
}

pub const VERSIONS: [&str; 2] = [
    "Others: BullMQ 6.2.0 and its Rust port 1.4.4, taskora 0.5.0, apalis-redis 1.0.0, rusty-sidekiq 0.15.2, oxanus 2.0.0;",
    "measured on 2 cores shared by client and server, Redis 7.0.15, no persistence, 64 B JSON payload, medians of 3.",
];

const BULLMQ: Peer = Peer { name: "BullMQ", color: (180, 83, 9), points: &[] };
const TASKORA: Peer = Peer { name: "taskora", color: (4, 120, 87), points: &[] };

/// Jobs/s of no-op jobs by concurrency. One at a time rusty-sidekiq swung from 1,900 to 10,100: its best counts.
pub const PROCESS: [Peer; 6] = [
    Peer { points: &[(1.0, 6_100.0), (100.0, 29_600.0), (1_000.0, 22_700.0)], ..BULLMQ },
    Peer {
        name: "BullMQ, Rust port",
        color: (77, 124, 15),
        points: &[(1.0, 15_100.0), (100.0, 24_500.0), (1_000.0, 16_600.0)],
    },
    Peer { points: &[(1.0, 7_600.0), (100.0, 37_600.0), (1_000.0, 37_000.0)], ..TASKORA },
    Peer {
        name: "apalis-redis",
        color: (124, 58, 237),
        points: &[(1.0, 13_100.0), (100.0, 16_200.0), (1_000.0, 5_000.0)],
    },
    Peer {
        name: "rusty-sidekiq",
        color: (190, 18, 60),
        points: &[(1.0, 10_100.0), (100.0, 15_400.0), (1_000.0, 12_000.0)],
    },
    Peer { name: "oxanus", color: (14, 116, 144), points: &[(1.0, 7_200.0), (100.0, 7_000.0), (1_000.0, 7_400.0)] },
];

/// µs that a sweep without stalled jobs blocks the server, by healthy running jobs.
pub const SWEEP: [Peer; 1] =
    [Peer { points: &[(10_000.0, 2_600.0), (100_000.0, 35_000.0), (1_000_000.0, 653_000.0)], ..BULLMQ }];

/// µs that completing one job takes of the server, by running jobs.
pub const COMPLETE: [Peer; 2] = [
    Peer { points: &[(1_000.0, 63.0), (100_000.0, 1_162.0), (1_000_000.0, 11_510.0)], ..BULLMQ },
    Peer { points: &[(1_000.0, 24.0), (100_000.0, 1_327.0), (1_000_000.0, 13_584.0)], ..TASKORA },
];
