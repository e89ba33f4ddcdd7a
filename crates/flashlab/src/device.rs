//! A simulated flash device: a translation layer, and the times of its steps.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use stetfs_flash::ftl::{Counters, Ftl, PhysOp, Sink, Wear};

use crate::cache::Storage;

/// Most pages of a request: 512 KiB.
const LONGEST: u64 = 128;

/// The times of a device in nanoseconds. They include its parallelism: the time of a page is that
/// of a page in a long request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Medium {
    /// Its name.
    pub name: &'static str,
    /// Time of a request beside that of its pages.
    pub request: u64,
    /// Time to read a page.
    pub read: u64,
    /// Time to program a page.
    pub program: u64,
    /// Time to erase a block.
    pub erase: u64,
}

impl Medium {
    /// A microSD card of class 10: sequential reads at 40 MB/s, sequential writes at 13 MB/s.
    pub const MICROSD: Medium = Medium {
        name: "microsd",
        request: 300_000,
        read: 100_000,
        program: 300_000,
        erase: 10_000_000,
    };

    /// A SATA SSD of TLC flash: reads at 510 MB/s, and writes at 160 MB/s without the faster flash
    /// that caches them in front; requests overlap.
    pub const SSD: Medium = Medium {
        name: "ssd",
        request: 20_000,
        read: 8_000,
        program: 25_000,
        erase: 10_000_000,
    };
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An error: there is no medium of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no medium {0:?}; there are microsd and ssd")]
pub struct UnknownMedium(pub String);

impl FromStr for Medium {
    type Err = UnknownMedium;

    fn from_str(text: &str) -> Result<Medium, UnknownMedium> {
        [Medium::MICROSD, Medium::SSD]
            .into_iter()
            .find(|m| m.name == text)
            .ok_or_else(|| UnknownMedium(text.to_owned()))
    }
}

/// Sums the times of a layer's steps.
struct Times {
    medium: Medium,
    nanos: u64,
}

impl Sink for Times {
    fn op(&mut self, op: PhysOp) {
        let Medium {
            read,
            program,
            erase,
            ..
        } = self.medium;
        self.nanos += match op {
            PhysOp::Read { .. } => read,
            PhysOp::Program { .. } | PhysOp::ProgramMap => program,
            PhysOp::Copy { .. } => read + program,
            PhysOp::Erase { .. } | PhysOp::EraseMap => erase,
        };
    }
}

/// Runs of consecutive pages.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    /// The page that continues the present run, and the pages of this run.
    next: u64,
    pages: u64,
    /// Number of runs.
    count: u64,
}

impl Runs {
    /// Adds a page. Returns whether it begins a new run.
    fn add(&mut self, page: u64) -> bool {
        let new = self.count == 0 || page != self.next || self.pages == LONGEST;
        if new {
            self.count += 1;
            self.pages = 0;
        }
        self.pages += 1;
        self.next = page + 1;
        new
    }
}

/// Groups: pages written in succession within one erase block, with rising numbers (figure 2-5).
#[derive(Clone, Debug)]
struct Groups {
    erase_block: u64,
    last: Option<u64>,
    pages: u64,
    /// Number of pages by the part of the erase block that their group fills: up to 10 %, up to 20
    /// %, and so on.
    tenths: [u64; 10],
    count: u64,
}

impl Groups {
    fn add(&mut self, page: u64) {
        let follows = |last: u64| page > last && page / self.erase_block == last / self.erase_block;
        if !self.last.is_some_and(follows) {
            self.end();
            self.count += 1;
        }
        self.pages += 1;
        self.last = Some(page);
    }

    fn end(&mut self) {
        let part = (self.pages * 10).div_ceil(self.erase_block).max(1) - 1;
        if let Some(tenth) = self.tenths.get_mut(part as usize) {
            *tenth += self.pages;
        }
        self.pages = 0;
    }
}

/// The report of a device's work since it was aged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Busy time in nanoseconds.
    pub elapsed: u64,
    /// Number of read requests; consecutive pages are one request.
    pub read_runs: u64,
    /// Number of write requests.
    pub write_runs: u64,
    /// Number of groups: pages written within one erase block with rising numbers.
    pub groups: u64,
    /// Pages written in groups that fill up to 10 %, up to 20 %, … up to 100 % of their erase
    /// block.
    pub utilisation: [u64; 10],
    /// Counts of the layer's work.
    pub flash: Counters,
    /// Write amplification: pages programmed per page written.
    pub waf: f64,
    /// Erasures of the blocks, including those before.
    pub wear: Wear,
}

/// A simulated device.
pub struct Device {
    ftl: Box<dyn Ftl>,
    times: Times,
    reads: Runs,
    writes: Runs,
    groups: Groups,
    /// Counts of the layer before.
    before: Counters,
    /// The written pages in order, if they are kept.
    log: Option<Vec<u64>>,
}

impl Device {
    /// A device whose layer may have worked before; that does not count.
    pub fn new(ftl: Box<dyn Ftl>, medium: Medium) -> Device {
        let erase_block = u64::from(ftl.geometry().block_pages);
        Device {
            before: ftl.counters(),
            ftl,
            times: Times { medium, nanos: 0 },
            reads: Runs::default(),
            writes: Runs::default(),
            groups: Groups {
                erase_block,
                last: None,
                pages: 0,
                tenths: [0; 10],
                count: 0,
            },
            log: None,
        }
    }

    /// A copy in the same state.
    pub fn duplicate(&self) -> Device {
        Device {
            ftl: self.ftl.duplicate(),
            times: Times { ..self.times },
            groups: self.groups.clone(),
            log: self.log.clone(),
            ..*self
        }
    }

    /// The same device with all counts reset.
    #[must_use]
    pub fn counting_anew(self) -> Device {
        Device::new(self.ftl, self.times.medium)
    }

    /// Number of erase blocks beyond the capacity.
    pub fn spare_blocks(&self) -> u64 {
        self.ftl.geometry().spare_blocks().into()
    }

    /// Keeps the numbers of written pages from now on.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// The written pages in order.
    pub fn log(&self) -> &[u64] {
        self.log.as_deref().unwrap_or_default()
    }

    /// The report of the device's work.
    pub fn report(&self) -> DeviceReport {
        let mut groups = self.groups.clone();
        if groups.pages > 0 {
            groups.end();
        }
        let flash = self.ftl.counters().since(&self.before);
        DeviceReport {
            elapsed: self.times.nanos,
            read_runs: self.reads.count,
            write_runs: self.writes.count,
            groups: groups.count,
            utilisation: groups.tenths,
            flash,
            waf: flash.waf(),
            wear: Wear::of(&self.ftl.blocks()),
        }
    }
}

impl Storage for Device {
    fn read(&mut self, page: u64) {
        if self.reads.add(page) {
            self.times.nanos += self.times.medium.request;
        }
        // An unmapped page takes a read all the same: its data is older than the trace.
        let before = self.times.nanos;
        let read = self.ftl.read(page, 1, &mut self.times);
        debug_assert!(read.is_ok(), "the run looked for pages beyond the end");
        if self.times.nanos == before {
            self.times.nanos += self.times.medium.read;
        }
    }

    fn write(&mut self, page: u64) {
        if self.writes.add(page) {
            self.times.nanos += self.times.medium.request;
        }
        self.groups.add(page);
        if let Some(log) = &mut self.log {
            log.push(page);
        }
        let written = self.ftl.write(page, 1, &mut self.times);
        debug_assert!(written.is_ok(), "the run looked for pages beyond the end");
    }
}

#[cfg(test)]
mod tests {
    use stetfs_flash::ftl::{FtlKind, Geometry, GeometryError};

    use super::*;

    #[test]
    fn runs_groups_and_times() -> Result<(), GeometryError> {
        let geometry = Geometry::new(64 << 20, 40 * crate::page::PAGE, 15)?;
        let mut device = Device::new(FtlKind::Page.make(geometry), Medium::SSD);
        device.keep_log();
        // Erase blocks have 40 pages. 4, 5, 6 and 9 are one group in two runs; 8 goes backwards; 80
        // to 119 fill an erase block.
        for page in [4, 5, 6, 9, 8].into_iter().chain(80..120) {
            device.write(page);
        }
        device.read(4);
        device.read(5);
        device.read(1000);
        let report = device.report();
        assert_eq!(
            (report.read_runs, report.write_runs, report.groups),
            (2, 4, 3)
        );
        assert_eq!(report.utilisation, [5, 0, 0, 0, 0, 0, 0, 0, 0, 40]);
        assert_eq!(report.flash.erases, 0);
        let Medium {
            request,
            read,
            program,
            ..
        } = Medium::SSD;
        assert_eq!(report.elapsed, 6 * request + 3 * read + 45 * program);
        assert_eq!(device.log()[..5], [4, 5, 6, 9, 8]);
        Ok(())
    }
}
