//! Journals that StetFS wrote into logs of other implementations, with their checksums.

use std::sync::Arc;

use stetfs::low::{BlockDevice, FsOptions, MemDevice, Preset, preset};
use stetfs_crash::volume::{open, options};
use stetfs_crash::workload::Script;
use stetfs_crash::workload::session::Session;
use stetfs_ondisk::jbd2::{CompatFlags, IncompatFlags, JournalSuperblock};
use stetfs_testkit::{Image, Mkfs};
use zerocopy::IntoBytes;

use super::judge::Dirty;

/// A log as another implementation leaves it, and a StetFS mount.
#[derive(Debug)]
pub struct Maker {
    block: u32,
    features: &'static str,
    /// Checksum version of the log before the mount.
    version: u8,
    preset: Preset,
    async_commit: bool,
    /// Features of the log after the mount.
    written: &'static str,
}

const fn maker(
    (block, features, version): (u32, &'static str, u8),
    (preset, async_commit): (Preset, bool),
    written: &'static str,
) -> Maker {
    Maker {
        block,
        features,
        version,
        preset,
        async_commit,
        written,
    }
}

const ORDERED: (Preset, bool) = (preset::ORDERED, false);
const DATA: (Preset, bool) = (preset::DATA, false);
const ASYNC: (Preset, bool) = (preset::DATA, true);
const NO_SUMS: &str = "^metadata_csum";
const NARROW: &str = "^metadata_csum,^64bit";

/// Checksums stay; version 2 becomes 3; a log with async_commit gets checksums.
pub const MAKERS: [Maker; 9] = [
    maker((1024, NO_SUMS, 0), DATA, "revoke 64bit"),
    maker((1024, NO_SUMS, 1), ORDERED, "checksum revoke 64bit"),
    maker((4096, NARROW, 1), DATA, "checksum revoke"),
    maker((1024, NARROW, 0), ASYNC, "checksum revoke async_commit"),
    maker((1024, NO_SUMS, 2), DATA, "revoke 64bit checksum_v3"),
    maker((4096, NARROW, 3), DATA, "revoke checksum_v3"),
    maker((1024, "^64bit", 2), ORDERED, "revoke checksum_v3"),
    maker((1024, "^64bit", 1), DATA, "revoke checksum_v3"),
    maker(
        (2048, "64bit", 0),
        ASYNC,
        "revoke 64bit async_commit checksum_v3",
    ),
];

impl Maker {
    /// Works on the volume, and returns its state at that moment.
    pub fn make(&self, seed: u64) -> Dirty {
        let what = format!("stetfs {self:?}, seed {seed}");
        let mkfs = Mkfs::blocks(self.block).feature(self.features);
        let image = Image::make(24 << 20, &mkfs.journal_mib((self.block >> 10).max(1))).unwrap();
        let device = Arc::new(MemDevice::load(image.path()).unwrap());
        self.prepare(&image, &device);
        let options = FsOptions {
            async_commit: self.async_commit,
            ..options(self.preset)
        };
        let fs = open(&device, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut session = Session::new(&fs, "").unwrap();
        let script = Script::random(seed, 120, self.block.into(), self.preset.data_mode());
        for op in &script.ops {
            session
                .run(op)
                .unwrap_or_else(|e| panic!("{what}: {op}: {e}"));
        }
        let crashed = device.fork();
        drop(session);
        fs.unmount().unwrap();
        crashed.save(image.path()).unwrap();
        let journal = stetfs::low::info(&image.path().into())
            .unwrap()
            .journal
            .unwrap();
        assert_eq!(journal.features, self.written, "{what}");
        Dirty {
            what,
            volume: crashed,
            journal: None,
        }
    }

    /// Gives the empty log its version. (debugfs restricts which version goes with which volume.)
    fn prepare(&self, image: &Image, device: &MemDevice) {
        let first: u64 = image.debugfs("bmap <8> 0").unwrap().trim().parse().unwrap();
        let at = first * u64::from(self.block);
        let mut bytes = [0; 1024];
        device.read(at, &mut bytes).unwrap();
        let mut sb = JournalSuperblock::decode(&bytes, self.block, 1024).unwrap();
        let (compat, incompat) = match self.version {
            1 => (CompatFlags::CHECKSUM, IncompatFlags::empty()),
            2 => (CompatFlags::empty(), IncompatFlags::CSUM_V2),
            3 => (CompatFlags::empty(), IncompatFlags::CSUM_V3),
            _ => (CompatFlags::empty(), IncompatFlags::empty()),
        };
        sb.s_feature_compat = compat.bits().into();
        sb.set_incompat(incompat);
        sb.update_checksum();
        device.write(at, sb.as_bytes()).unwrap();
    }
}
