//! What a run measures.

use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use stetfs_flash::ftl;

use crate::compare::log::LogCounters;
use crate::compare::stats::percentile;
use crate::compare::{Counters, Packing, Target, Waits, Worn};

/// One number that a run gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) value: f64,
    /// What happened below meanwhile.
    pub(crate) below: Below,
}

impl Measured {
    /// Percentiles of what calls took, microseconds; `points` has their names and fractions.
    pub(super) fn latencies(title: &str, micros: &[f64], points: &[(&str, f64)]) -> Outcome {
        let point = |(name, fraction): &(&str, f64)| {
            Measured::latency(format!("{title}, {name}"), percentile(micros, *fraction))
        };
        points.iter().map(point).collect()
    }

    /// A time that calls took, microseconds, of which nothing is known below.
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

/// What happened below a target during a piece of work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Below {
    /// What the block device got, per operation.
    pub(crate) device: Option<Counters>,
    /// What became of its flash, if it is simulated.
    #[serde(default)]
    pub(crate) worn: Option<Worn>,
    /// What the journal did, of a mount of StetFS.
    pub(crate) log: Option<Packing>,
    /// What its changes waited for, and copied.
    pub(crate) waits: Option<Waits>,
}

/// What one run of a workload gave.
pub(crate) type Outcome = Vec<Measured>;

/// Measures a piece of work: time, and what happens below.
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

    /// As [`Meter::below`], when all that the work changed is on the device: for work that syncs
    /// nothing itself.
    pub(super) fn below_settled(&self, operations: f64) -> Result<Below> {
        self.target.settle()?;
        self.below(operations)
    }

    /// What happened below since the start, with so many operations. Takes some time: look at the
    /// clock first.
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

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Rates.
    Higher,
    /// Latencies.
    Lower,
}
