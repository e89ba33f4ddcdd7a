//! The results of a run, and the meter that takes them.

use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use stetfs_flash::ftl;

use crate::compare::log::LogCounters;
use crate::compare::stats::percentile;
use crate::compare::{Counters, Packing, Target, Waits, Worn};

/// One number that a run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) value: f64,
    /// The activity below the target meanwhile.
    pub(crate) below: Below,
}

impl Measured {
    /// Percentiles of latencies in microseconds; `points` has their names and fractions.
    pub(super) fn latencies(title: &str, micros: &[f64], points: &[(&str, f64)]) -> Outcome {
        let point = |(name, fraction): &(&str, f64)| {
            Measured::latency(format!("{title}, {name}"), percentile(micros, *fraction))
        };
        points.iter().map(point).collect()
    }

    /// A latency in microseconds, without activity below.
    pub(super) fn latency(title: String, micros: f64) -> Measured {
        Measured {
            title,
            unit: "µs".into(),
            better: Better::Lower,
            value: micros,
            below: Below::default(),
        }
    }
}

/// The activity below a target during a piece of work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Below {
    /// Requests to the block device, per operation.
    pub(crate) device: Option<Counters>,
    /// Wear of its flash, if simulated.
    #[serde(default)]
    pub(crate) worn: Option<Worn>,
    /// Activity of the journal, for a mount of StetFS.
    pub(crate) log: Option<Packing>,
    /// Waits and copies of changes.
    pub(crate) waits: Option<Waits>,
}

/// The results of one run of a workload.
pub(crate) type Outcome = Vec<Measured>;

/// Measures a piece of work: its time, and the activity below.
pub(super) struct Meter<'t> {
    target: &'t Target,
    device: Option<Counters>,
    wear: Option<ftl::Counters>,
    log: Option<LogCounters>,
    start: Instant,
}

impl<'t> Meter<'t> {
    /// Starts the clock, on a file system with nothing left to write back.
    pub(super) fn start(target: &'t Target) -> Result<Self> {
        target.settle()?;
        Ok(Self {
            target,
            device: target.counters(),
            wear: target.wear(),
            log: target.log()?,
            start: Instant::now(),
        })
    }

    /// Seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// As [`Meter::below`], but waits until all changes are on the device: for work without syncs.
    pub(super) fn below_settled(&self, operations: f64) -> Result<Below> {
        self.target.settle()?;
        self.below(operations)
    }

    /// The activity below since the start, for `operations` operations. Reading it takes some time:
    /// read the clock first.
    pub(super) fn below(&self, operations: f64) -> Result<Below> {
        let device = self.target.counters();
        let wear = self.target.wear();
        let log = self.target.log()?;
        Ok(Below {
            device: device
                .zip(self.device)
                .map(|(now, then)| now.since(then, operations)),
            worn: wear
                .zip(self.wear)
                .map(|(now, then)| Worn::since(now, then, operations)),
            log: log.zip(self.log).and_then(|(now, then)| now.since(then)),
            waits: log
                .zip(self.log)
                .and_then(|(now, then)| now.waits_since(then, operations)),
        })
    }
}

/// The good direction of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Higher is better, as for rates.
    Higher,
    /// Lower is better, as for latencies.
    Lower,
}
