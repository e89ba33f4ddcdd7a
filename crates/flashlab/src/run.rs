//! Runs: a trace through a cache onto a device.

use std::time::Instant;

use serde::Serialize;
use stetfs_cache::{Costs, PolicyKind, Shape};
use stetfs_flash::ftl::{Ageing, FtlKind, Geometry, GeometryError};

use crate::cache::{CacheCounters, PageCache, Storage};
use crate::device::{Device, DeviceReport, Medium};
use crate::page::PAGE;
use crate::trace::Trace;

/// The parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// The replacement policy of the cache.
    pub policy: PolicyKind,
    /// Size of the cache in bytes.
    pub cache: u64,
    /// The translation layer.
    pub ftl: FtlKind,
    /// The times of the device.
    pub medium: Medium,
    /// Capacity of the device in bytes.
    pub capacity: u64,
    /// Bytes of an erase block, of the device and for the policy.
    pub erase_block: u64,
    /// Spare blocks in percent.
    pub spare: u32,
    /// The former use of the device; `None`: erased.
    pub ageing: Option<Ageing>,
    /// The costs for a policy that weighs them.
    pub costs: Costs,
}

/// Costs with log blocks, in reads of a page from a microSD card.
const LOG_BLOCKS: Costs = Costs {
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

/// The costs of a layer.
pub(crate) fn costs(ftl: FtlKind) -> Costs {
    match ftl {
        FtlKind::Fast | FtlKind::Bast { .. } => LOG_BLOCKS,
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
            costs: LOG_BLOCKS,
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

    /// Makes the device and ages it.
    ///
    /// # Errors
    /// The device is impossible.
    pub fn device(&self) -> Result<Device, RunError> {
        let geometry = Geometry::new(self.capacity, self.erase_block, self.spare)?;
        let mut ftl = self.ftl.make(geometry);
        if let Some(ageing) = self.ageing {
            ageing.run(&mut *ftl, &mut ())?;
        }
        Ok(Device::new(ftl, self.medium))
    }
}

/// The reason why a trace cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device is impossible.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The layer refused a request.
    #[error(transparent)]
    Ftl(#[from] stetfs_flash::ftl::FtlError),
    /// The trace reaches beyond the end of the device.
    #[error("the trace reaches {needed} bytes, and the device has {capacity}")]
    TooSmall {
        /// Bytes up to the end of the last request.
        needed: u64,
        /// Bytes of the device.
        capacity: u64,
    },
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: &'static str,
    /// Number of pages accessed.
    pub pages: u64,
    /// Hits as a part of the accesses, 0 to 1.
    pub hit_ratio: f64,
    /// Counts of the cache.
    pub cache: CacheCounters,
    /// The report of the device.
    pub device: DeviceReport,
    /// Duration of the simulation in seconds.
    pub seconds: f64,
}

/// Number of pages between two calls of the progress function.
const STEP: u64 = 1 << 16;

/// Runs a trace through an empty cache onto `device`, a device of `setup`. Dirty pages are written
/// at the end. `progress` gets the number of pages that were done.
///
/// # Errors
/// The trace reaches beyond the end of the device.
pub fn run(
    trace: &Trace,
    setup: &Setup,
    device: &mut Device,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, RunError> {
    run_cut(trace, setup, device, &[], &mut |_| (), progress)
}

/// Does the same, and calls `at` with the result that the trace would have had if it had ended
/// after each number of pages in `cuts`, which must be ascending.
///
/// # Errors
/// The trace reaches beyond the end of the device.
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
                // Dirty pages are written, as at the end, but to a copy of the device that is then
                // dropped.
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

/// Most runs of a trace to bring a device into a steady state.
const MOST_PASSES: u32 = 100;

/// Brings a device into a steady state: runs the trace until the layer has collected as many blocks
/// as it has spare ones, or a hundred times. Until then the pages that an earlier use left in a log
/// of FAST cost merges, for each policy at another moment. The counts are reset afterwards.
///
/// # Errors
/// The trace reaches beyond the end of the device.
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

    /// A cut gives the result of a trace that ends there.
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

    /// In a steady state each run of a trace costs about the same; the effects of ageing are gone.
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
