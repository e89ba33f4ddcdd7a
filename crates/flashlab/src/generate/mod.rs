//! Generated traces, by seed, in the style of the paper's four: with the sizes of table 2-2 and the
//! structure of their programs. The paper's own traces are not public. Details that it does not
//! give were chosen once; each generator documents them.

mod build;
mod dbench;
mod mail;
mod maker;
mod mixed;
mod tpcc;
mod video;
mod wal;

use clap::ValueEnum;
use fastrand::Rng;

use crate::page::PAGE;
use crate::trace::Trace;
use maker::Maker;

/// The generated workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Workload {
    /// Watching streamed videos on a phone.
    Video,
    /// Some hours of applications on a phone.
    Mixed,
    /// A file server's clients.
    Dbench,
    /// TPC-C with 50 warehouses on MySQL.
    Tpcc,
    /// Like video, held out: no policy was fitted to it.
    VideoB,
    /// Like mixed, held out.
    MixedB,
    /// Like dbench, held out.
    DbenchB,
    /// Like tpcc, held out.
    TpccB,
    /// A mail store, held out.
    Mail,
    /// Building a large program, held out.
    Build,
    /// Databases with write-ahead logs, held out.
    Wal,
}

/// The sizes of table 2-2 in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    read: u64,
    written: u64,
    range: u64,
}

/// The pages of a number of tenths of a MiB.
const fn tenths(mib: u64) -> u64 {
    mib * (1 << 20) / 10 / PAGE
}

impl Workload {
    /// The paper's workloads, in its order.
    pub const ALL: [Workload; 4] = [
        Workload::Video,
        Workload::Mixed,
        Workload::Dbench,
        Workload::Tpcc,
    ];

    /// Held-out workloads, which no policy was fitted to: the same programs with other parameters,
    /// sizes and ranges; and other programs. Each was chosen once, before any policy ran on it.
    pub const HELD_OUT: [Workload; 7] = [
        Workload::VideoB,
        Workload::MixedB,
        Workload::DbenchB,
        Workload::TpccB,
        Workload::Mail,
        Workload::Build,
        Workload::Wal,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Video => "video",
            Workload::Mixed => "mixed",
            Workload::Dbench => "dbench",
            Workload::Tpcc => "tpcc",
            Workload::VideoB => "video-b",
            Workload::MixedB => "mixed-b",
            Workload::DbenchB => "dbench-b",
            Workload::TpccB => "tpcc-b",
            Workload::Mail => "mail",
            Workload::Build => "build",
            Workload::Wal => "wal",
        }
    }

    fn sizes(self) -> Sizes {
        let (read, written, range) = match self {
            Workload::Video => (2, 15144, 2666),
            Workload::Mixed => (5269, 4132, 1330),
            Workload::Dbench => (72528, 58801, 145_682),
            Workload::Tpcc => (11292, 23576, 151_244),
            Workload::VideoB => (20, 20480, 10240),
            Workload::MixedB => (4000, 6000, 2500),
            Workload::DbenchB => (25000, 30000, 60000),
            Workload::TpccB => (8000, 20000, 80000),
            Workload::Mail => (4000, 10000, 40000),
            Workload::Build => (40000, 12000, 24000),
            Workload::Wal => (6000, 15000, 8000),
        };
        Sizes {
            read: tenths(read),
            written: tenths(written),
            range: tenths(range),
        }
    }

    /// MiB read, MiB written, and MiB from the first page written to the last, as in table 2-2; for
    /// held-out workloads our own.
    pub fn paper(self) -> [f64; 3] {
        let Sizes {
            read,
            written,
            range,
        } = self.sizes();
        [read, written, range].map(|pages| (pages * PAGE) as f64 / f64::from(1 << 20))
    }

    /// The trace of a seed, with `part` (0 to 1) of the paper's length, over the paper's range.
    pub fn generate(self, seed: u64, part: f64) -> Trace {
        let sizes = self.sizes();
        let share = |pages: u64| (pages as f64 * part.clamp(0.0, 1.0)) as u64;
        let mut maker = Maker {
            random: Rng::with_seed(seed),
            requests: Vec::new(),
            now: 0,
            read_left: share(sizes.read),
            write_left: share(sizes.written),
            range: sizes.range,
        };
        match self {
            Workload::Video => video::make(&mut maker, &video::PARAMS),
            Workload::VideoB => video::make(&mut maker, &video::HELD_OUT),
            Workload::Mixed => mixed::make(&mut maker, &mixed::PARAMS),
            Workload::MixedB => mixed::make(&mut maker, &mixed::HELD_OUT),
            Workload::Dbench => dbench::make(&mut maker, &dbench::PARAMS),
            Workload::DbenchB => dbench::make(&mut maker, &dbench::HELD_OUT),
            Workload::Tpcc => tpcc::make(&mut maker, &tpcc::PARAMS),
            Workload::TpccB => tpcc::make(&mut maker, &tpcc::HELD_OUT),
            Workload::Mail => mail::make(&mut maker),
            Workload::Build => build::make(&mut maker),
            Workload::Wal => wal::make(&mut maker),
        }
        Trace {
            requests: maker.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_papers() {
        for workload in Workload::ALL.into_iter().chain(Workload::HELD_OUT) {
            let [read, written, range] = workload.paper();
            let part = match workload {
                Workload::Dbench | Workload::DbenchB => 0.3,
                _ => 1.0,
            };
            let trace = workload.generate(1, part);
            let summary = trace.summary();
            let near = |ours: f64, paper: f64| (ours - paper).abs() <= 0.01 * paper + 0.1;
            assert!(
                near(summary.read_mib, read * part),
                "{workload:?} {summary:?}"
            );
            assert!(
                near(summary.written_mib, written * part),
                "{workload:?} {summary:?}"
            );
            assert!(
                (0.9 * range..=1.001 * range).contains(&summary.write_range_mib),
                "{workload:?} {summary:?}"
            );
            let times: Vec<u64> = trace.requests.iter().map(|r| r.time).collect();
            assert!(times.is_sorted());
        }
    }

    #[test]
    fn a_seed_is_a_trace() {
        for workload in Workload::ALL.into_iter().chain(Workload::HELD_OUT) {
            let trace = workload.generate(7, 0.02);
            assert_eq!(trace, workload.generate(7, 0.02));
            assert_ne!(trace, workload.generate(8, 0.02));
        }
    }
}
