//! A trace through a cache and a device.

use std::time::Instant;

use serde::Serialize;
use stetfs_cache::{Costs, PolicyKind, Shape};
use stetfs_flash::ftl::{Ageing, FtlKind, Geometry, GeometryError};

use crate::cache::{CacheCounters, PageCache, Storage};
use crate::device::{Device, DeviceReport, Medium};
use crate::page::PAGE;
use crate::trace::Trace;

/// What a trace is run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Who leaves the cache.
    pub policy: PolicyKind,
    /// Bytes of the cache.
    pub cache: u64,
    /// The translation layer.
    pub ftl: FtlKind,
    /// How long its steps take.
    pub medium: Medium,
    /// Bytes that the device offers.
    pub capacity: u64,
    /// Bytes of an erase block: the device's, and what the policy goes by.
    pub erase_block: u64,
    /// Spare blocks, percent.
    pub spare: u32,
    /// What was written before; nothing is an erased device.
    pub ageing: Option<Ageing>,
    /// What a policy that weighs costs goes by.
    pub costs: Costs,
}

/// Costs with FAST, in reads of a page from a microSD card.
const FAST: Costs = Costs {
    read: 1,
    write: 6,
    visit: 50,
    rest: 5,
};

/// Costs with a page-level layer, in reads of a page from an SSD.
const PAGE_LEVEL: Costs = Costs {
    read: 1,
    write: 6,
    visit: 8,
    rest: 12,
};

/// What a layer costs.
pub(crate) fn costs(ftl: FtlKind) -> Costs {
    match ftl {
        FtlKind::Fast => FAST,
        FtlKind::Page => PAGE_LEVEL,
    }
}

impl Setup {
    /// The paper's microSD card: FAST, erase blocks of 4 MiB.
    pub fn microsd(policy: PolicyKind, cache: u64) -> Setup {
        Setup {
            policy,
            cache,
            ftl: FtlKind::Fast,
            medium: Medium::MICROSD,
            capacity: 16 << 30,
            erase_block: 4 << 20,
            spare: 15,
            ageing: Some(Ageing::FULL),
            costs: FAST,
        }
    }

    /// The paper's SSD: page-level, erase blocks of 24 MiB, on its simulated 16 GiB.
    pub fn ssd(policy: PolicyKind, cache: u64) -> Setup {
        Setup {
            ftl: FtlKind::Page,
            medium: Medium::SSD,
            erase_block: 24 << 20,
            costs: PAGE_LEVEL,
            ..Setup::microsd(policy, cache)
        }
    }

    /// The device, aged.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device(&self) -> Result<Device, RunError> {
        let geometry = Geometry::new(self.capacity, self.erase_block, self.spare)?;
        let mut ftl = self.ftl.make(geometry);
        if let Some(ageing) = self.ageing {
            ageing.run(&mut *ftl, &mut ())?;
        }
        Ok(Device::new(ftl, self.medium))
    }
}

/// Why a trace cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No such device.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The layer refused.
    #[error(transparent)]
    Ftl(#[from] stetfs_flash::ftl::FtlError),
    /// The trace goes beyond the end.
    #[error("the trace reaches {needed} bytes, and the device has {capacity}")]
    TooSmall {
        /// Bytes up to the end of the last request.
        needed: u64,
        /// Bytes of the device.
        capacity: u64,
    },
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: &'static str,
    /// Pages that were asked for.
    pub pages: u64,
    /// Hits as a part of them.
    pub hit_ratio: f64,
    /// What the cache did.
    pub cache: CacheCounters,
    /// What the device did.
    pub device: DeviceReport,
    /// Seconds of ours.
    pub seconds: f64,
}

/// Pages between two calls of the progress.
const STEP: u64 = 1 << 16;

/// Runs a trace through an empty cache onto a device of `setup`, which it gives back; what is dirty
/// at the end is written. `progress` hears of pages that were done.
///
/// # Errors
/// The trace goes beyond the end of the device.
pub fn run(
    trace: &Trace,
    setup: &Setup,
    device: &mut Device,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, RunError> {
    run_cut(trace, setup, device, &[], &mut |_| (), progress)
}

/// The same, and `at` hears what would have come out if the trace had ended after so many pages as
/// each of `cuts`, which rise, says.
///
/// # Errors
/// The trace goes beyond the end of the device.
pub fn run_cut(
    trace: &Trace,
    setup: &Setup,
    device: &mut Device,
    cuts: &[u64],
    at: &mut dyn FnMut(Outcome),
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, RunError> {
    let needed = trace.end().saturating_mul(PAGE);
    if needed > setup.capacity {
        return Err(RunError::TooSmall {
            needed,
            capacity: setup.capacity,
        });
    }
    let begin = Instant::now();
    let shape = Shape {
        capacity: (setup.cache / PAGE).max(1) as usize,
        erase_block: setup.erase_block / PAGE,
        costs: setup.costs,
    };
    let mut cache = PageCache::new(setup.policy, shape);
    let mut cuts = cuts.iter().copied().peekable();
    let mut done: u64 = 0;
    let outcome = |pages, cache: CacheCounters, device: &Device| Outcome {
        policy: setup.policy.name(),
        pages,
        hit_ratio: cache.hit_ratio(),
        cache,
        device: device.report(),
        seconds: begin.elapsed().as_secs_f64(),
    };
    for request in &trace.requests {
        for page in request.page..request.page + u64::from(request.pages) {
            cache.access(page, request.op, device);
            done += 1;
            if done.is_multiple_of(STEP) {
                progress(STEP);
            }
            if cuts.next_if_eq(&done).is_some() {
                // What is dirty is written, as at the end, to a device that nothing goes on with.
                let (mut counters, mut end) = (cache.counters(), device.duplicate());
                for (page, _) in cache.dirty() {
                    end.write(page);
                    counters.writes += 1;
                    counters.last_writes += 1;
                }
                at(outcome(done, counters, &end));
            }
        }
    }
    cache.flush(device);
    progress(done % STEP);
    Ok(outcome(done, cache.counters(), device))
}

/// Times that a trace is run at most to bring a device into a steady state.
const MOST_PASSES: u32 = 100;

/// The device after the trace was run on it until its layer has emptied as many blocks as it has
/// spare ones, or a hundred times: what an earlier use left in a log of FAST costs merges until
/// then, each policy at another moment. Nothing of that counts.
///
/// # Errors
/// The trace goes beyond the end of the device.
pub fn steady(trace: &Trace, setup: &Setup, mut device: Device) -> Result<Device, RunError> {
    let spare = device.spare_blocks();
    for _ in 0..MOST_PASSES {
        run(trace, setup, &mut device, &mut |_| ())?;
        if device.report().flash.collections >= spare {
            break;
        }
    }
    Ok(device.counting_anew())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Workload;

    /// A cut says what the trace would have come to if it had ended there.
    #[test]
    fn a_cut_is_a_shorter_trace() -> Result<(), RunError> {
        let trace = Workload::Mixed.generate(1, 0.05);
        let setup = Setup {
            capacity: 512 << 20,
            erase_block: 256 << 10,
            ..Setup::microsd(PolicyKind::TsClock, 1 << 20)
        };
        let mut cuts = Vec::new();
        let ends = [1000, 5001];
        let whole = run_cut(
            &trace,
            &setup,
            &mut setup.device()?,
            &ends,
            &mut |outcome| cuts.push(outcome),
            &mut |_| (),
        )?;
        let of = |outcome: &Outcome| (outcome.pages, outcome.cache, outcome.device.clone());
        for (end, cut) in ends.into_iter().zip(&cuts) {
            let mut left = end;
            let shorter = trace.requests.iter().map_while(|request| {
                let pages = left.min(u64::from(request.pages));
                left -= pages;
                (pages > 0).then_some(crate::trace::Request {
                    pages: pages as u32,
                    ..*request
                })
            });
            let shorter = Trace {
                requests: shorter.collect(),
            };
            let alone = run(&shorter, &setup, &mut setup.device()?, &mut |_| ())?;
            assert_eq!(of(cut), of(&alone));
        }
        assert_eq!(cuts.len(), 2);
        let uncut = run(&trace, &setup, &mut setup.device()?, &mut |_| ())?;
        assert_eq!(of(&whole), of(&uncut));
        Ok(())
    }

    /// In a steady state a trace costs about the same again; what the ageing left is gone.
    #[test]
    fn a_steady_state_lasts() -> Result<(), RunError> {
        let trace = Workload::Mixed.generate(1, 0.1);
        let setup = Setup {
            capacity: 512 << 20,
            erase_block: 256 << 10,
            ..Setup::microsd(PolicyKind::Lru, 1 << 20)
        };
        let once = |device: &mut Device| -> Result<u64, RunError> {
            Ok(run(&trace, &setup, device, &mut |_| ())?.device.elapsed)
        };
        let first = once(&mut setup.device()?)?;
        let mut device = steady(&trace, &setup, setup.device()?)?;
        assert_eq!(device.report().flash.host_writes, 0);
        let second = once(&mut device)?;
        let third = once(&mut device.counting_anew())?;
        assert!(second.abs_diff(third) * 20 < second, "{second} {third}");
        assert!(first > second + second / 4, "{first} {second}");
        Ok(())
    }
}
