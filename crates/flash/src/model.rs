//! Device models: the costs of requests.

use std::fmt;
use std::str::FromStr;

use crate::ftl::Tally;

/// The cost of a request at the interface.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Access {
    /// Nanoseconds per request.
    pub setup: u64,
    /// Nanoseconds per 4096 bytes.
    pub per_page: u64,
}

/// The cost of moving a head.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Seek {
    /// Nanoseconds to the next track.
    pub short: u64,
    /// Nanoseconds from one end of the disk to the other.
    pub full: u64,
    /// Nanoseconds of one rotation. A request waits until its place comes by, a whole rotation for
    /// a place just passed. A track holds the bytes written in this time.
    pub rotation: u64,
}

/// A model of a device.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Costs of reads.
    pub read: Access,
    /// Costs of writes into the volatile cache.
    pub write: Access,
    /// Number of requests that the device processes at once.
    pub channels: usize,
    /// Nanoseconds that the medium takes for 4096 bytes from the cache.
    pub program: u64,
    /// Size of the volatile cache in bytes.
    pub cache: u64,
    /// Nanoseconds of a flush beside emptying the cache.
    pub flush: u64,
    /// Costs of moving the head, if there is one; reads and writes from the cache then pay for it.
    pub seek: Option<Seek>,
}

/// A SATA SSD with a volatile cache, after the data sheet of the paper's (Samsung 850 PRO, 256 GB:
/// 550 and 520 MB/s, 10k and 36k IOPS of 4 KiB one at a time, 100k and 90k many at a time). The
/// flush is set so that syncing every 4 KiB write costs about what the paper's figure 3 shows (a
/// factor of 7 at a queue depth of 64 with a sync every 100 writes).
const SATA_SSD: Model = Model {
    name: "sata-ssd",
    read: Access {
        setup: 85_000,
        per_page: 7_500,
    },
    write: Access {
        setup: 20_000,
        per_page: 7_900,
    },
    channels: 10,
    program: 7_900,
    cache: 256 << 20,
    flush: 900_000,
    seek: None,
};

/// An NVMe SSD with a volatile cache, after the data sheet of the paper's (Samsung 960 PRO, 1 TB:
/// 3.5 and 2.1 GB/s, 14k and 50k IOPS of 4 KiB one at a time, 440k and 360k many at a time).
const NVME_SSD: Model = Model {
    name: "nvme-ssd",
    read: Access {
        setup: 68_000,
        per_page: 1_200,
    },
    write: Access {
        setup: 16_000,
        per_page: 1_950,
    },
    channels: 32,
    program: 1_950,
    cache: 512 << 20,
    flush: 600_000,
    seek: None,
};

/// A disk of 7200 rotations a minute, after the data sheet of the paper's (Seagate Barracuda, 2 TB:
/// 210 MB/s at most).
const DISK: Model = Model {
    name: "disk",
    read: Access {
        setup: 50_000,
        per_page: 7_500,
    },
    write: Access {
        setup: 50_000,
        per_page: 7_500,
    },
    channels: 1,
    program: 20_000,
    cache: 64 << 20,
    flush: 200_000,
    seek: Some(Seek {
        short: 1_000_000,
        full: 16_000_000,
        rotation: 8_333_000,
    }),
};

/// Reading a page takes this fraction of the time of programming one.
const READS_A_PROGRAM: u64 = 10;
/// Erasing 128 blocks takes the time of programming all pages of 10 blocks, which is ten programs
/// for a block of 128 pages. Both ratios are those of the dissertation (2.2.1).
const ERASES_A_BLOCK: (u64, u64) = (10, 128);

impl Model {
    /// All models.
    pub const ALL: [Model; 3] = [SATA_SSD, NVME_SSD, DISK];

    /// Nanoseconds of flash time for the steps of a translation layer without the programs of the
    /// host's pages, in blocks of `block_pages` pages. A block is as wide as the device: a larger
    /// one takes no more time per page.
    pub fn beside(&self, tally: &Tally, block_pages: u32) -> u64 {
        let block = u64::from(block_pages) * self.program;
        let copies = tally.copies * (self.program + self.program / READS_A_PROGRAM);
        let (some, blocks) = ERASES_A_BLOCK;
        let erases = (tally.erases + tally.map_erases) * block * some / blocks;
        copies + erases + tally.map_programs * self.program
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// An error: there is no model of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no device model {0:?}; there are sata-ssd, nvme-ssd and disk")]
pub struct UnknownModel(pub String);

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Model, UnknownModel> {
        Model::ALL
            .into_iter()
            .find(|m| m.name == text)
            .ok_or_else(|| UnknownModel(text.to_owned()))
    }
}
