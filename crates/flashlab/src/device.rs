//! A flash device in simulation: a translation layer, and how long its steps take.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use stetfs_flash::ftl::{Counters, Ftl, PhysOp, Sink, Wear};

use crate::cache::Storage;

/// Most pages of a request: 512 KiB.
const LONGEST: u64 = 128;

/// How long a device takes, in nanoseconds. Parallel ways are in the numbers: a page takes what a
/// page of a long request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Medium {
    /// Its name.
    pub name: &'static str,
    /// A request, beside its pages.
    pub request: u64,
    /// Reading a page.
    pub read: u64,
    /// Programming a page.
    pub program: u64,
    /// Erasing a block.
    pub erase: u64,
}

impl Medium {
    /// A microSD card of class 10: 40 MB/s read, 13 MB/s written in sequence.
    pub const MICROSD: Medium = Medium {
        name: "microsd",
        request: 300_000,
        read: 100_000,
        program: 300_000,
        erase: 10_000_000,
    };

    /// A SATA SSD of TLC flash: 510 MB/s read, 160 MB/s written where no faster flash stands before
    /// it; requests overlap.
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

/// A name that is no medium.
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

/// Nanoseconds of a layer's steps.
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

/// Pages one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    /// Where the last one goes on, and its pages.
    next: u64,
    pages: u64,
    /// How many there were.
    count: u64,
}

impl Runs {
    /// Whether a page begins a new one.
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

/// Groups: pages written one after the other in the same erase block, with rising numbers (figure
/// 2-5).
#[derive(Clone, Debug)]
struct Groups {
    erase_block: u64,
    last: Option<u64>,
    pages: u64,
    /// Pages by the part of the erase block that their group fills: up to 10 %, up to 20 % …
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

/// What a device had to do, since it was aged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Nanoseconds that it was busy.
    pub elapsed: u64,
    /// Requests that read: pages one after the other are one.
    pub read_runs: u64,
    /// Requests that write.
    pub write_runs: u64,
    /// Groups of pages written in one erase block with rising numbers.
    pub groups: u64,
    /// Pages written in groups that fill up to 10 % of their erase block, up to 20 % … 100 %.
    pub utilisation: [u64; 10],
    /// What the layer did.
    pub flash: Counters,
    /// Pages programmed for each that was written.
    pub waf: f64,
    /// Erasures of the blocks, with those before.
    pub wear: Wear,
}

/// A device.
pub struct Device {
    ftl: Box<dyn Ftl>,
    times: Times,
    reads: Runs,
    writes: Runs,
    groups: Groups,
    /// Of the layer, before.
    before: Counters,
    /// Pages in the order in which they were written, if that is wanted.
    log: Option<Vec<u64>>,
}

impl Device {
    /// One whose layer did something before, which does not count.
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

    /// Another one in the same state.
    pub fn duplicate(&self) -> Device {
        Device {
            ftl: self.ftl.duplicate(),
            times: Times { ..self.times },
            groups: self.groups.clone(),
            log: self.log.clone(),
            ..*self
        }
    }

    /// The same, and what it did so far does not count.
    #[must_use]
    pub fn counting_anew(self) -> Device {
        Device::new(self.ftl, self.times.medium)
    }

    /// Erase blocks beyond those that the capacity takes.
    pub fn spare_blocks(&self) -> u64 {
        self.ftl.geometry().spare_blocks().into()
    }

    /// Keeps which pages are written.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// The pages in the order in which they were written.
    pub fn log(&self) -> &[u64] {
        self.log.as_deref().unwrap_or_default()
    }

    /// What it had to do.
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
        // What was never written is read all the same: it was there before the trace.
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
        // Erase blocks of 40 pages: 4, 5, 6 and 9 are one group in two runs; 8 goes back; 80 to 119
        // fill one.
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
