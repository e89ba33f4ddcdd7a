//! A trace through a cache and a device.

use std::time::Instant;

use serde::Serialize;
use stetfs_cache::{Costs, PolicyKind, Shape};
use stetfs_flash::ftl::{Ageing, FtlKind, Geometry, GeometryError};

use crate::PAGE;
use crate::cache::{CacheCounters, PageCache};
use crate::device::{Device, DeviceReport, Medium};
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

/// Runs a trace through an empty cache onto a device of `setup`, which it gives back; what is dirty at the end is written.
/// `progress` hears of pages that were done.
///
/// # Errors
/// The trace goes beyond the end of the device.
pub fn run(
    trace: &Trace,
    setup: &Setup,
    device: &mut Device,
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
    let mut done: u64 = 0;
    for request in &trace.requests {
        for page in request.page..request.page + u64::from(request.pages) {
            cache.access(page, request.op, device);
            done += 1;
            if done.is_multiple_of(STEP) {
                progress(STEP);
            }
        }
    }
    cache.flush(device);
    progress(done % STEP);
    let counters = cache.counters();
    Ok(Outcome {
        policy: setup.policy.name(),
        pages: done,
        hit_ratio: counters.hit_ratio(),
        cache: counters,
        device: device.report(),
        seconds: begin.elapsed().as_secs_f64(),
    })
}
