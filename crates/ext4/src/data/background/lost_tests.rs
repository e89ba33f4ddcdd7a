//! New blocks whose data could not be written: their content for readers and writers until they are
//! hidden.
#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use stetfs_block::{BlockDevice, Fault, FaultInjector, MemDevice, Op};
use stetfs_journal::Canary;
use stetfs_journal::region::RegionSource;
use stetfs_nvm::MemRegion;
use stetfs_testkit::{Mkfs, wait_until};

use crate::data::maps::map::Mapping;
use crate::data::writeback::precedence::WritebackPriority;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::{fsck, mkfs};
use crate::types::{Ctx, FsOptions, ROOT_INO};

const BS: u64 = 4096;
/// Blocks of the file: more than the inode itself can map.
const BLOCKS: u32 = 16;
const LEN: usize = BLOCKS as usize * BS as usize;
/// Content that deleted files left on the device.
const STALE: u8 = 0xEE;
/// `EXT4_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;

/// A volume with a file whose data could not be written back.
struct Rig {
    fs: Arc<Fs>,
    disk: Arc<MemDevice>,
    device: Arc<FaultInjector<Arc<MemDevice>>>,
    file: OpenRef,
    /// The place of the file's blocks, bytes of the device.
    place: Range<u64>,
}

fn options(journal: &str) -> FsOptions {
    FsOptions {
        journal: journal.parse().unwrap(),
        commit_secs: 3600,
        dirty_expire: Duration::from_secs(3600),
        ..FsOptions::default()
    }
}

impl Rig {
    /// A volume with background work held back until [`thaw`](crate::volume::Frost::thaw).
    fn new(mkfs_args: &Mkfs, opts: FsOptions) -> Rig {
        let disk = mkfs(64, mkfs_args);
        let device = Arc::new(FaultInjector::new(disk.clone()));
        let fs = Fs::open(device.clone(), opts).unwrap();
        fs.vol.sb.frost.hold_work();
        let made = fs.create(&Ctx::ROOT, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR);
        let file = made.unwrap().1;
        fs.write(&Ctx::ROOT, &file, 0, &[1; LEN], false).unwrap();
        let body = file.inode.body.read();
        let at = |lblk| match fs.data.map(&file.inode, &body, lblk, 1).unwrap() {
            Mapping::Mapped { start, .. } => start * BS,
            Mapping::Hole { .. } => panic!("block {lblk} is a hole"),
        };
        let place = at(0)..at(BLOCKS - 1) + BS;
        drop(body);
        let stale = vec![STALE; usize::try_from(place.end - place.start).unwrap()];
        disk.write(place.start, &stale).unwrap();
        Rig {
            fs,
            disk,
            device,
            file,
            place,
        }
    }

    /// Loses the dirty data of the file.
    fn lose(&self) {
        let fault = Fault::fail(Op::Write, libc::EIO).within(self.place.clone());
        self.device.add(fault);
        let inos = [self.file.inode.ino];
        let home = self.fs.data.write_home(&inos, WritebackPriority::Awaited);
        home.unwrap();
        assert!(self.device.hits() > 0);
        self.device.clear();
    }

    fn has_lost(&self) -> bool {
        self.file.inode.dirty.ledger.lock().has_lost()
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let written = self.fs.write(&Ctx::ROOT, &self.file, at, bytes, false);
        assert_eq!(written.unwrap(), bytes.len());
    }

    /// Runs `during` while a thread holds the lock of the file.
    fn busy(&self, during: impl FnOnce()) {
        let (held, is_held) = channel();
        let (go, may_go) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _body = self.file.inode.body.read();
                held.send(()).unwrap();
                may_go.recv().unwrap();
            });
            is_held.recv().unwrap();
            during();
            go.send(()).unwrap();
        });
    }
}

/// The file's content.
fn read(fs: &Fs) -> Vec<u8> {
    let ino = fs.lookup(ROOT_INO, b"file").unwrap().ino;
    let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
    let mut content = vec![0; LEN];
    assert_eq!(fs.read(&file, 0, &mut content).unwrap(), LEN);
    content
}

/// A failed attempt to hide blocks is repeated; until then the blocks are lost.
#[test]
fn what_could_not_be_hidden_stays_lost() {
    for forget_lost in [false, true] {
        let opts = FsOptions {
            canary: Canary {
                forget_lost,
                ..Canary::default()
            },
            ..options("ordered")
        };
        let rig = Rig::new(&Mkfs::blocks(4096).feature("^extents,^64bit"), opts);
        let Rig { fs, device, .. } = &rig;
        rig.lose();
        // The map's block has to be read from the device again, and that read fails once.
        fs.vol.journal.commit_all().unwrap();
        fs.vol.journal.checkpoint().unwrap();
        let indirect = {
            let body = rig.file.inode.body.read();
            let at = 40 + 12 * 4;
            let bytes = body.bytes()[at..at + 4].try_into().unwrap();
            u64::from(u32::from_le_bytes(bytes))
        };
        fs.vol.cache.forget(indirect);
        let place = indirect * BS..(indirect + 1) * BS;
        device.add(Fault::fail(Op::Read, libc::EIO).within(place).once());
        let hits = device.hits();
        fs.data.hide_lost();
        assert!(device.hits() > hits, "it was read");
        device.clear();
        assert_eq!(rig.has_lost(), !forget_lost);
        fs.data.hide_lost();
        assert!(!rig.has_lost());
        let is_stale = read(fs).contains(&1);
        assert_eq!(
            is_stale, forget_lost,
            "hidden in the end, but for the fault"
        );
    }
}

/// rest.R1: blocks are hidden before a freeze, or after it. A frozen volume is not written to, even
/// when there are blocks to hide and commits and write-back are requested.
#[test]
fn nothing_is_hidden_of_a_frozen_volume() {
    for journal in ["ordered", "stet", "ordered,codec=frames"] {
        let rig = Rig::new(&Mkfs::blocks(4096), options(journal));
        let Rig { fs, disk, .. } = &rig;
        rig.lose();
        rig.busy(|| fs.freeze().unwrap());
        assert!(rig.has_lost(), "{journal}: somebody worked on it");
        let frozen = disk.to_vec();
        fs.data.wake_write_back();
        std::thread::sleep(Duration::from_millis(200));
        fs.vol.journal.commit_all().unwrap();
        let (done, is_done) = channel();
        fs.sync_all(Box::new(move |synced| done.send(synced).unwrap()));
        is_done.recv().unwrap().unwrap();
        assert!(disk.to_vec() == frozen, "{journal}: it was written to");
        fsck(disk);
        fs.thaw().unwrap();
        wait_until("that the blocks are hidden", || !rig.has_lost());
        assert!(read(fs).iter().all(|byte| *byte == 0), "{journal}");
        // No thread holds the file: its blocks are hidden before the volume rests.
        let rig = Rig::new(&Mkfs::blocks(4096), options(journal));
        let Rig { fs, disk, .. } = &rig;
        rig.lose();
        fs.freeze().unwrap();
        assert!(!rig.has_lost(), "{journal}");
        fsck(disk);
        let copy = Arc::new(disk.fork());
        let again = Fs::open(copy, options("ordered")).unwrap();
        assert!(read(&again).iter().all(|byte| *byte == 0), "{journal}");
        fs.thaw().unwrap();
    }
}

/// A lost block is in the cache until it is hidden: a write to a part of it shows nothing of the
/// content on the device.
#[test]
fn a_lost_block_shows_nothing_of_others() {
    for journal in ["ordered", "ordered,data=overwrites", "stet"] {
        let opts = FsOptions {
            cache_bytes: 1 << 20,
            ..options(journal)
        };
        let rig = Rig::new(&Mkfs::blocks(4096), opts);
        let fs = &rig.fs;
        rig.lose();
        fs.vol.journal.commit_all().unwrap();
        fs.vol.journal.checkpoint().unwrap();
        // Many other blocks go through the cache.
        let made = fs.create(&Ctx::ROOT, ROOT_INO, b"other", 0o644, 0, libc::O_RDWR);
        let other = made.unwrap().1;
        for at in 0..32 {
            let at = at * (256 << 10);
            fs.write(&Ctx::ROOT, &other, at, &[3; 256 << 10], false)
                .unwrap();
            fs.data.write_back_files(&[&other.inode]).unwrap();
        }
        rig.write(100, &[2; 200]);
        let mut expected = vec![1; LEN];
        expected[100..300].fill(2);
        assert!(read(fs) == expected, "{journal}");
        fs.vol.sb.frost.thaw();
        fs.data.hide_lost();
        assert!(!read(fs).contains(&STALE), "{journal}");
        let Rig { fs, file, disk, .. } = rig;
        drop((file, other));
        let _ = fs.unmount();
        let again = Fs::open(disk, FsOptions::default()).unwrap();
        assert!(!read(&again).contains(&STALE), "{journal}");
    }
}

/// changes.C1: for a block that could not be written back outside the journal, the log has the
/// whole block, not only the changes since.
#[test]
fn the_log_has_all_that_the_home_lacks() {
    for changes_of_unlike in [false, true] {
        let in_region = |journal: &str| {
            let region = Arc::new(MemRegion::new(8 << 20));
            let opts = FsOptions {
                canary: Canary {
                    changes_of_unlike,
                    ..Canary::default()
                },
                region: RegionSource::Open(region.clone()),
                ..options(journal)
            };
            (region, Rig::new(&Mkfs::blocks(4096), opts))
        };
        // The volume after a crash.
        let crashed = |region: &MemRegion, rig: &Rig| {
            rig.fs.vol.journal.commit_all().unwrap();
            let opts = FsOptions {
                region: RegionSource::Open(Arc::new(region.fork())),
                ..options("ordered")
            };
            read(&Fs::open(Arc::new(rig.disk.fork()), opts).unwrap())
        };
        // A new block, whose overwrites go through the journal.
        let (region, rig) = in_region("nvm,data=overwrites,sync=compound");
        rig.lose();
        rig.write(100, &[2; 200]);
        let mut expected = vec![1; BS as usize];
        expected[100..300].fill(2);
        let found = crashed(&region, &rig);
        assert_eq!(found[..BS as usize] == expected, !changes_of_unlike);
        assert_eq!(found[..BS as usize].contains(&STALE), changes_of_unlike);
        // A block that was written back, of a file that is journaled from then on.
        let (region, rig) = in_region("nvm,sync=compound");
        rig.fs.data.write_back_files(&[&rig.file.inode]).unwrap();
        rig.write(0, &[4; LEN]);
        rig.lose();
        let ino = rig.file.inode.ino;
        let flags = rig.fs.get_flags(ino).unwrap();
        rig.fs
            .set_flags(&Ctx::ROOT, ino, flags | JOURNAL_DATA)
            .unwrap();
        rig.write(100, &[2; 200]);
        let mut expected = vec![4; BS as usize];
        expected[100..300].fill(2);
        let found = crashed(&region, &rig);
        assert_eq!(found[..BS as usize] == expected, !changes_of_unlike);
    }
}
