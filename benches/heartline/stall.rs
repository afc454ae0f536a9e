//! The server time of heartbeats, sweeps and completions while very many jobs run.

use anyhow::Result;

use crate::Bench;
use crate::report::{Row, Stat, progress, shown};
use crate::running::{BEAT_BATCH, Running, SWEEP_BATCH, Spent};

/// The numbers of running jobs. The rows below have this order.
pub const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
pub const SWEEP: [&str; 4] =
    ["sweep_none_stalled_1k", "sweep_none_stalled_10k", "sweep_none_stalled_100k", "sweep_none_stalled"];
pub const BEAT: [&str; 4] = ["beat_per_job_1k", "beat_per_job_10k", "beat_per_job_100k", "beat_per_job"];
pub const COMPLETE: [&str; 4] =
    ["complete_one_beside_1k", "complete_one_beside_10k", "complete_one_beside_100k", "complete_one_beside_1m"];
const LONGEST_BEAT: &str = "beat_longest_call";
const FEW: [&str; 2] = ["sweep_10_stalled_longest_call", "sweep_10_stalled_total"];
const MANY: [&str; 2] = ["sweep_100k_stalled_longest_call", "sweep_100k_stalled_total"];

/// The number of measured completions.
const COMPLETED: usize = 500;

pub fn rows() -> Vec<&'static str> {
    [&SWEEP[..], &FEW, &MANY, &BEAT, &[LONGEST_BEAT], &COMPLETE].concat()
}

/// The values of a row, one per run.
#[derive(Debug, Default)]
struct Values {
    own: Vec<f64>,
    raw: Vec<f64>,
}

impl Values {
    fn add(&mut self, own: f64, raw: f64) {
        self.own.push(own);
        self.raw.push(raw);
    }

    fn row(self, name: &str, unit: &'static str) -> Row {
        Row::new(name, self.own, unit).raw(self.raw)
    }
}

#[derive(Debug, Default)]
struct OfSize {
    sweep: Values,
    beat: Values,
    longest_beat: Values,
    complete: Values,
}

/// The longest call, and the total: server time with few stalled jobs, wall time with many.
#[derive(Debug, Default)]
struct Resolved {
    longest: Values,
    total_ms: Values,
}

pub fn run(bench: &mut Bench) -> Result<Vec<Row>> {
    tokio::task::block_in_place(|| measure(bench))
}

fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let (runs, few_dead, many_dead) = (bench.few_runs(3), 10, bench.size(100_000));
    let (few, many) = (bench.wants_any(&FEW), bench.wants_any(&MANY));
    let mut sizes: [OfSize; 4] = Default::default();
    let (mut few_values, mut many_values) = (Resolved::default(), Resolved::default());
    for run in 1..=runs {
        for (i, of_size) in sizes.iter_mut().enumerate() {
            let biggest = i + 1 == SIZES.len();
            if !bench.wants_any(&[SWEEP[i], BEAT[i], COMPLETE[i]])
                && !(biggest && (few || many || bench.wants(LONGEST_BEAT)))
            {
                continue;
            }
            let n = bench.size(SIZES[i]);
            let step = |what: &str| progress(&format!("{n} running jobs: {what}, run {run} of {runs}"));
            step("seeding");
            let first = 2 * COMPLETED;
            let mut running = Running::seed(&mut bench.server, first + n)?;
            step("sweep, heartbeats and completions");
            of_size.measure(&mut running, first, n)?;
            if biggest && few {
                step("10 stalled");
                few_values.measure(&mut running, (first, n, few_dead), |spent| spent.total / 1e3)?;
            }
            if biggest && many {
                step("very many stalled");
                many_values.measure(&mut running, (first, n, many_dead), |spent| spent.wall.as_secs_f64() * 1e3)?;
            }
        }
    }
    let with_few = Stat::median_of(sizes[0].complete.own.clone());
    let mut rows: Vec<Row> = sizes.into_iter().enumerate().flat_map(|(i, of_size)| of_size.rows(i, with_few)).collect();
    let note = format!("raw: SSCAN, SREM, HDEL, LPUSH of {SWEEP_BATCH} per call, no checks");
    rows.extend(few_values.rows(FEW, 1_000.0, None, &note));
    rows.extend(many_values.rows(MANY, 5_000.0, Some(3_000.0), &note));
    let order = self::rows();
    rows.sort_by_key(|row| order.iter().position(|name| *name == row.bench));
    Ok(rows)
}

impl OfSize {
    fn measure(&mut self, running: &mut Running<'_>, first: usize, n: usize) -> Result<()> {
        self.complete.add(running.complete(0, COMPLETED)?, running.raw_complete(COMPLETED, COMPLETED)?);
        // The first snapshot makes all jobs candidates; the heartbeats make them active again.
        running.sweep(0)?;
        let beats = running.beat(first, n)?;
        let sweep = running.sweep(0)?;
        let raw_beats = running.raw_beat(first, n)?;
        self.beat.add(beats.total / n as f64, raw_beats.total / n as f64);
        self.longest_beat.add(beats.longest, raw_beats.longest);
        self.sweep.add(sweep.longest, running.raw_snapshot()?);
        Ok(())
    }

    fn rows(self, i: usize, with_few: f64) -> Vec<Row> {
        let biggest = i + 1 == SIZES.len();
        let mut sweep = self.sweep.row(SWEEP[i], "µs").note("raw: RENAME");
        let mut beat =
            self.beat.row(BEAT[i], "µs").note(format!("raw: SREM and SADD of {BEAT_BATCH} ids per call, no checks"));
        let mut complete = self.complete.row(COMPLETE[i], "µs").note("raw: SREM and two HDEL, no checks");
        if !biggest {
            return vec![sweep, beat, complete];
        }
        sweep = sweep.must("≤ 1,000 µs", |value, _| value <= 1_000.0);
        beat = beat.must("≤ 3 µs", |value, _| value <= 3.0);
        if with_few.is_finite() {
            complete = complete.must("≤ 1.5 × the value at 1k", |value, _| value <= 1.5 * with_few);
        }
        vec![sweep, beat, self.longest_beat.row(LONGEST_BEAT, "µs").note(format!("{BEAT_BATCH} jobs")), complete]
    }
}

impl Resolved {
    /// Sends heartbeats for all but `dead` jobs, so that the sweep finds those.
    fn measure(
        &mut self,
        running: &mut Running<'_>,
        (first, n, dead): (usize, usize, usize),
        total: impl Fn(&Spent) -> f64,
    ) -> Result<()> {
        running.beat(first + dead, n - dead)?;
        let own = running.sweep(dead)?;
        // They run again, so that the raw limit has as many.
        running.start(first, dead)?;
        running.raw_beat(first, n)?;
        running.raw_snapshot()?;
        running.raw_beat(first + dead, n - dead)?;
        let raw = running.raw_resolve()?;
        running.start(first, dead)?;
        running.sweep(0)?;
        self.longest.add(own.longest, raw.longest);
        self.total_ms.add(total(&own), total(&raw));
        Ok(())
    }

    fn rows(self, [longest, total]: [&str; 2], most_us: f64, most_ms: Option<f64>, note: &str) -> Vec<Row> {
        let must = format!("≤ {} µs", shown(most_us));
        let row = self.longest.row(longest, "µs").must(must, |value, _| value <= most_us).note(note);
        let total = self.total_ms.row(total, "ms");
        let total = match most_ms {
            Some(most) => {
                total.must(format!("≤ {} ms", shown(most)), |value, _| value <= most).note("wall time of all calls")
            }
            None => total.note("server time of all calls"),
        };
        vec![row, total]
    }
}
