//! The first files of a new volume: root, `lost+found`, quota files, the resize inode, the block of
//! multiple mount protection, the orphan file and the journal.

mod directories;
mod resize;

use std::ops::Range;

use stetfs_ondisk::ext4::checksum::{ChecksumMode, inode_seed};
use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView, NewInode};
use stetfs_ondisk::ext4::mmp::Mmp;
use stetfs_ondisk::ext4::orphan_file;
use stetfs_ondisk::ext4::quota::QuotaKind;
use stetfs_ondisk::ext4::superblock::{
    GRP_QUOTA_INO, JNL_BACKUP_BLOCKS, JOURNAL_INO, Superblock, USR_QUOTA_INO,
};
use stetfs_ondisk::jbd2::JournalSuperblock;
use stetfs_ondisk::num::{high32, low32, to_usize};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::file_map::{FileMap, MapKind};
use crate::groups::Groups;
use crate::options::FormatOptions;
use crate::quota::{self, Usage};
use crate::room::Room;
use crate::settle::Settled;

const S_IFREG: u16 = 0o100_000;
/// Mode of files that no directory names.
const HIDDEN: u16 = S_IFREG | 0o600;

/// The first files: their places and bytes.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Inode numbers and slots of the table.
    pub(crate) inodes: Vec<(u32, Vec<u8>)>,
    /// Block numbers and contents.
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    /// Blocks that must be zero, of the journal.
    pub(crate) zeros: Vec<Range<u64>>,
    /// All blocks of files, in whole clusters, sorted. Those of the resize inode are metadata of
    /// groups, except one.
    pub(crate) taken: Vec<Range<u64>>,
}

/// The state that the makers of files share.
struct Maker<'a> {
    settled: &'a Settled,
    options: &'a FormatOptions,
    room: Room<'a>,
    kind: MapKind,
    checksums: ChecksumMode,
    usage: [Usage; 3],
    files: Files,
}

/// An inode that is made.
struct Inode {
    ino: u32,
    mode: u16,
    owner: (u32, u32),
    links: u16,
    flags: InodeFlags,
    /// Bytes.
    size: u64,
    /// Units of 512 bytes.
    sectors: u64,
}

/// Places the files and makes their contents. Fields of the superblock that tell of them are set.
///
/// # Errors
/// The volume is too small.
pub(crate) fn make(settled: &mut Settled, options: &FormatOptions) -> Result<Files> {
    let snapshot = settled.clone();
    let groups = Groups::new(&snapshot.geo, &snapshot.sb);
    let mut maker = Maker::new(&snapshot, options, &groups);
    let sb = &mut settled.sb;
    maker.directories()?;
    if snapshot.sb.ro_compat().contains(RoCompat::QUOTA) {
        maker.quotas()?;
    }
    if snapshot.sb.compat().contains(Compat::RESIZE_INODE) {
        maker.resize_inode()?;
    }
    if snapshot.sb.incompat().contains(Incompat::MMP) {
        sb.mmp_block.set(maker.mmp()?);
    }
    if snapshot.orphan_blocks > 0 {
        maker.orphan_file()?;
    }
    if snapshot.journal_blocks > 0 {
        maker.journal(sb)?;
    }
    let Maker {
        room, mut files, ..
    } = maker;
    files.taken = room.into_taken();
    Ok(files)
}

impl<'a> Maker<'a> {
    fn new(settled: &'a Settled, options: &'a FormatOptions, groups: &'a Groups<'a>) -> Self {
        let ratio = settled.geo.blocks_per_cluster;
        Maker {
            settled,
            options,
            room: Room::new(groups, ratio),
            kind: MapKind {
                block_size: settled.geo.block_size,
                ratio,
                extents: settled.sb.incompat().contains(Incompat::EXTENTS),
            },
            checksums: settled.sb.checksum_mode(),
            usage: Default::default(),
            files: Files::default(),
        }
    }

    /// Bytes of a block.
    fn block_len(&self) -> usize {
        to_usize(u64::from(self.kind.block_size))
    }

    /// The seed of the checksums of what belongs to an inode. Generations are 0.
    fn seed(&self, ino: u32) -> Option<u32> {
        let seed = self.checksums.metadata_seed()?;
        Some(inode_seed(seed, ino, 0))
    }

    /// Takes room for a file of `blocks` blocks.
    fn file(&mut self, ino: u32, blocks: u64) -> Result<FileMap> {
        let seed = self.seed(ino);
        let mut map = FileMap::make(&mut self.room, blocks, self.kind, seed)?;
        self.files.blocks.append(&mut map.nodes.clone());
        map.runs.retain(|run| run.start < run.end);
        Ok(map)
    }

    /// The flag of files with extents.
    fn mapped(&self) -> InodeFlags {
        match self.kind.extents {
            true => InodeFlags::EXTENTS,
            false => InodeFlags::empty(),
        }
    }

    /// Makes an inode with this `i_block`.
    fn inode(&mut self, new: &Inode, i_block: &[u8]) -> Result<()> {
        let sb = &self.settled.sb;
        let mut slot = vec![0; usize::from(self.settled.geo.inode_size)];
        let mut view = InodeView::new(&mut slot[..])?;
        view.init(&NewInode {
            mode: new.mode,
            uid: new.owner.0,
            gid: new.owner.1,
            links: new.links,
            flags: new.flags,
            generation: 0,
            now: self.settled.now,
            project: 0,
            extra_isize: sb.want_extra_isize.get(),
        });
        view.set_size(new.size);
        let huge = sb.ro_compat().contains(RoCompat::HUGE_FILE);
        view.set_blocks_512(new.sectors, huge, self.kind.block_size)?;
        for (to, from) in view.i_block_mut().iter_mut().zip(i_block) {
            *to = *from;
        }
        view.update_checksum(new.ino, &self.checksums);
        self.files.inodes.push((new.ino, slot));
        Ok(())
    }

    /// Makes the inode of a hidden file, which fills its blocks up to `size` bytes.
    fn hidden(&mut self, ino: u32, map: &FileMap, size: u64, flags: InodeFlags) -> Result<()> {
        let new = Inode {
            ino,
            mode: HIDDEN,
            owner: (0, 0),
            links: 1,
            flags: self.mapped() | flags,
            size,
            sectors: map.sectors(self.kind),
        };
        self.inode(&new, &map.i_block)
    }

    /// Counts an inode for quota.
    fn count(&mut self, owner: (u32, u32), sectors: u64) {
        let ids = [owner.0, owner.1, 0];
        for (usage, id) in self.usage.iter_mut().zip(ids) {
            usage.add(id, sectors * 512);
        }
    }

    fn quotas(&mut self) -> Result<()> {
        let numbers = [USR_QUOTA_INO, GRP_QUOTA_INO, self.settled.project_ino];
        for (at, (kind, ino)) in QuotaKind::ALL.into_iter().zip(numbers).enumerate() {
            let Some(usage) = self.usage.get(at).filter(|_| ino != 0) else {
                continue;
            };
            let content = quota::file(kind, usage)?;
            let parts = content.chunks(self.block_len());
            let map = self.file(ino, parts.len() as u64)?;
            for (nr, part) in map.blocks().zip(parts) {
                let mut block = part.to_vec();
                block.resize(self.block_len(), 0);
                self.files.blocks.push((nr, block));
            }
            self.hidden(ino, &map, content.len() as u64, InodeFlags::IMMUTABLE)?;
        }
        Ok(())
    }

    /// The block of multiple mount protection.
    fn mmp(&mut self) -> Result<u64> {
        let nr = self.room.one()?;
        let mut mmp = Mmp::unused(self.settled.sb.mmp_interval.get());
        mmp.time.set(self.settled.now.sec.unsigned_abs());
        let mut block = mmp.made_plain(&self.checksums).to_vec();
        block.resize(self.block_len(), 0);
        self.files.blocks.push((nr, block));
        Ok(nr)
    }

    fn orphan_file(&mut self) -> Result<()> {
        let ino = self.settled.sb.orphan_file_inum.get();
        let map = self.file(ino, u64::from(self.settled.orphan_blocks))?;
        let seed = self.seed(ino);
        for nr in map.blocks() {
            let mut block = vec![0; self.block_len()];
            orphan_file::init(&mut block)?;
            orphan_file::update_checksum(seed, nr, &mut block)?;
            self.files.blocks.push((nr, block));
        }
        let size = map.len() * u64::from(self.kind.block_size);
        self.hidden(ino, &map, size, InodeFlags::empty())
    }

    fn journal(&mut self, sb: &mut Superblock) -> Result<()> {
        let blocks = self.settled.journal_blocks;
        let map = self.file(JOURNAL_INO, u64::from(blocks))?;
        let mut block = vec![0; self.block_len()];
        let fast = self.settled.fast_commit_blocks;
        let log = JournalSuperblock::empty(self.kind.block_size, blocks, fast, sb.uuid);
        for (to, from) in block.iter_mut().zip(log.as_bytes()) {
            *to = *from;
        }
        let mut zeros = map.runs.clone();
        if let Some(first) = zeros.first_mut() {
            self.files.blocks.push((first.start, block));
            first.start += 1;
        }
        zeros.retain(|run| run.start < run.end);
        self.files.zeros = zeros;
        let size = map.len() * u64::from(self.kind.block_size);
        self.hidden(JOURNAL_INO, &map, size, InodeFlags::empty())?;
        sb.jnl_backup_type = JNL_BACKUP_BLOCKS;
        let (words, _) = map.i_block.as_chunks::<4>();
        let words = words.iter().map(|word| u32::from_le_bytes(*word));
        let copy = words.chain([high32(size), low32(size)]);
        for (to, word) in sb.jnl_blocks.iter_mut().zip(copy) {
            to.set(word);
        }
        Ok(())
    }
}
