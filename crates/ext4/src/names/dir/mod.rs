//! Directories: lookup, insertion and removal of entries.
//!
//! A directory is a file of blocks with entries. A small one is searched from end to end
//! ([`linear`]). With `dir_index`, a directory that outgrew its first block has an index by hash
//! in front ([`index`]); entries are added to it by splitting blocks ([`grow`]).
//!
//! Callers hold the directory's lock: shared for a lookup, exclusive for a change. A change is
//! planned first ([`Namespace::dir_plan`]): the plan reads and checks everything that the change
//! touches, and tells the space and credits that it needs. After that, only the device can make the
//! change fail.

mod grow;
mod hash_order;
mod index;
mod inline;
mod linear;
mod path;
mod read;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::{Block, Handle, Ino};
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::ext4::checksum::inode_seed;
use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType};
use stetfs_ondisk::ext4::features::{Compat, Incompat};
use stetfs_ondisk::ext4::htree::IndexLayout;
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;

/// The name of a directory block in errors.
const WHAT: &str = "directory";

/// The format of a directory's blocks.
#[derive(Clone, Copy, Debug)]
struct Format {
    block_size: usize,
    /// Seed of the directory's checksums; `None` without `metadata_csum`.
    seed: Option<u32>,
    layout: DirLayout,
    index: IndexLayout,
}

/// A new entry: its name, and the inode that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    pub(crate) name: &'a [u8],
}

/// The place of an entry that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The block, and the entry's offset in it; `None` in an inline directory.
    place: Option<(Arc<Block>, usize)>,
    /// The inode it names.
    pub(crate) ino: Ino,
}

impl Found {
    fn place(&self) -> Result<(&Arc<Block>, usize)> {
        match &self.place {
            Some((block, offset)) => Ok((block, *offset)),
            None => Err(FsError::corrupt(WHAT, 0, "the entry lies in the inode")),
        }
    }
}

/// Blocks just appended to a directory, which are used from the first on.
struct NewBlocks(Vec<(u32, Arc<Block>)>);

impl NewBlocks {
    /// Takes the next block: its number in the directory, and the block.
    fn take(&mut self) -> Result<(u32, Arc<Block>)> {
        let none =
            || FsError::corrupt(WHAT, 0, "the directory needs more blocks than were planned");
        self.0.pop().ok_or_else(none)
    }
}

/// The plan for a new name.
#[derive(Debug)]
pub(crate) struct Plan {
    place: Place,
    /// Blocks the directory grows by.
    pub(crate) new_blocks: u32,
    /// Existing directory blocks that change.
    pub(crate) changed_blocks: u32,
}

#[derive(Debug)]
pub(crate) enum Place {
    /// A block that has room.
    Room(Arc<Block>),
    /// A new last block of a directory without an index.
    NewBlock,
    /// The only block is full and can become an index root.
    MakeIndex,
    /// A leaf of the index that must be split.
    Split { path: path::Path, leaf: Arc<Block> },
}

/// A short view of a block's bytes.
fn bytes(block: &Block) -> Result<impl Deref<Target = [u8]> + '_> {
    block
        .peek()
        .ok_or_else(|| FsError::corrupt(WHAT, block.nr(), "the block has no content"))
}

/// Turns a contradiction in a block into an error that names the block.
fn in_block<T>(block: &Block, result: Result<T, OnDiskError>) -> Result<T> {
    result.map_err(|e| FsError::corrupt(WHAT, block.nr(), e.to_string()))
}

/// Whether the inode says that it has an index.
fn has_index(body: &InodeBody) -> bool {
    body.flags().contains(InodeFlags::INDEX)
}

impl Namespace {
    fn dir_format(&self, inode: &Inode, body: &InodeBody) -> Format {
        let csum = self.vol.geo.metadata_csum();
        Format {
            block_size: self.vol.geo.block_size as usize,
            seed: csum.then(|| inode_seed(self.vol.geo.csum_seed, inode.ino, body.generation())),
            layout: DirLayout {
                tail: csum,
                filetype: self.vol.geo.incompat.contains(Incompat::FILETYPE),
                max_inode: self.vol.geo.inodes_count,
            },
            index: self.vol.geo.index_layout(),
        }
    }

    /// Whether names are looked up through an index. An index by folded names (`casefold`) is not
    /// used: such a directory is searched from end to end, for names as they are written.
    pub(crate) fn dir_is_indexed(&self, body: &InodeBody) -> bool {
        self.vol.geo.compat.contains(Compat::DIR_INDEX)
            && has_index(body)
            && !body.flags().contains(InodeFlags::CASEFOLD)
    }

    /// Checks that a directory's map names no block twice, because such a directory would have no
    /// end. The check is made at the first use; blocks added later are new.
    fn dir_has_blocks_once(&self, inode: &Inode, body: &InodeBody) -> Result<()> {
        if body.is_inline() || inode.blocks_once.load(Ordering::Acquire) {
            return Ok(());
        }
        self.data
            .has_blocks_once(inode, body, u64::from(self.dir_blocks(body)))?;
        inode.blocks_once.store(true, Ordering::Release);
        Ok(())
    }

    /// The number of blocks of the directory.
    fn dir_blocks(&self, body: &InodeBody) -> u32 {
        u32::try_from(body.size() >> self.vol.geo.block_bits).unwrap_or(u32::MAX)
    }

    /// Finds `name` in a directory; `.` and `..` are never found.
    ///
    /// # Errors
    /// Damage, naming the block; device errors.
    pub(crate) fn dir_find(
        &self,
        inode: &Inode,
        body: &InodeBody,
        name: &[u8],
    ) -> Result<Option<Found>> {
        if name == b"." || name == b".." {
            return Ok(None);
        }
        body.check_key()?;
        self.dir_has_blocks_once(inode, body)?;
        if body.is_inline() {
            self.inline_find(inode, body, name)
        } else if self.dir_is_indexed(body) {
            self.index_find(inode, body, name)
        } else {
            self.linear_find(inode, body, name)
        }
    }

    /// Finds `name` in one block of entries.
    fn find_in(&self, format: Format, block: &Arc<Block>, name: &[u8]) -> Result<Option<Found>> {
        let view = bytes(block)?;
        let entry = in_block(block, dirent::find(&view, &format.layout, name))?;
        Ok(entry.map(|e| Found {
            place: Some((Arc::clone(block), e.offset)),
            ino: e.inode,
        }))
    }

    /// Whether a block has room for a name.
    fn has_room(&self, format: Format, block: &Arc<Block>, name: &[u8]) -> Result<bool> {
        let view = bytes(block)?;
        let room = in_block(block, dirent::find_room(&view, &format.layout, name.len()))?;
        Ok(room.is_some())
    }

    /// Plans a new entry `name`.
    ///
    /// # Errors
    /// EEXIST if the name exists; ENOSPC if the directory cannot grow any more; damage.
    pub(crate) fn dir_plan(&self, inode: &Inode, body: &InodeBody, name: &[u8]) -> Result<Plan> {
        if name == b"." || name == b".." {
            return Err(FsError::Errno(libc::EEXIST));
        }
        if self.dir_is_indexed(body) {
            self.index_plan(inode, body, name)
        } else {
            self.linear_plan(inode, body, name)
        }
    }

    /// Adds the entry that was planned, under the same exclusive lock.
    ///
    /// # Errors
    /// Errors of the device; ENOSPC if `plan.new_blocks` were not reserved.
    pub(crate) fn dir_insert(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        plan: Plan,
        new: NewEntry<'_>,
    ) -> Result<()> {
        // On a volume that lost `dir_index`, index nodes look like free space: the index ends with
        // the first new entry.
        if has_index(body) && !self.dir_is_indexed(body) {
            let flags = body.flags() - InodeFlags::INDEX;
            body.set_flags(flags);
        }
        match plan.place {
            Place::Room(block) => {
                let format = self.dir_format(inode, body);
                self.dir_change(h, format, &block, |b| {
                    dirent::insert(b, &format.layout, new.name, new.ino, new.kind).map(drop)
                })
            }
            Place::NewBlock => self.linear_append(h, inode, body, new),
            Place::MakeIndex => {
                let blocks = self.append_leaves(h, inode, body, plan.new_blocks)?;
                self.vol
                    .whole(|| self.index_make(h, inode, body, blocks, new))
            }
            Place::Split { path, leaf } => {
                let blocks = self.append_leaves(h, inode, body, plan.new_blocks)?;
                let format = self.dir_format(inode, body);
                self.vol
                    .whole(|| self.index_split(h, format, &path, &leaf, blocks, new))
            }
        }
    }

    /// Appends the empty blocks of an insertion, before it changes anything.
    fn append_leaves(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        count: u32,
    ) -> Result<NewBlocks> {
        let format = self.dir_format(inode, body);
        let first = self.append_leaf(h, inode, body, format)?;
        let mut blocks = vec![first];
        self.vol.whole(|| {
            for _ in 1..count {
                blocks.push(self.append_leaf(h, inode, body, format)?);
            }
            blocks.reverse();
            Ok(NewBlocks(blocks))
        })
    }

    fn append_leaf(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        format: Format,
    ) -> Result<(u32, Arc<Block>)> {
        let (lblk, block) = self.data.append_dir_block(h, inode, body)?;
        self.dir_change(h, format, &block, |b| dirent::init_empty(b, &format.layout))?;
        Ok((lblk, block))
    }

    /// Removes an entry just found, under the same exclusive lock.
    pub(crate) fn dir_remove(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &InodeBody,
        found: &Found,
    ) -> Result<()> {
        let format = self.dir_format(inode, body);
        let (block, offset) = found.place()?;
        self.dir_change(h, format, block, |b| {
            dirent::delete(b, &format.layout, offset)
        })
    }

    /// Makes an entry that was just found name another inode.
    pub(crate) fn dir_retarget(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &InodeBody,
        found: &Found,
        target: (Ino, FileType),
    ) -> Result<()> {
        let format = self.dir_format(inode, body);
        let (ino, kind) = target;
        let (block, offset) = found.place()?;
        self.dir_change(h, format, block, |b| {
            dirent::set_inode(b, &format.layout, offset, ino, kind)
        })
    }

    /// Changes a block of entries and its checksum.
    fn dir_change(
        &self,
        h: &Handle<'_>,
        format: Format,
        block: &Arc<Block>,
        change: impl FnOnce(&mut [u8]) -> Result<(), OnDiskError>,
    ) -> Result<()> {
        let mut guard = h.modify(block)?;
        let mut done = change(&mut guard);
        if let (Ok(()), Some(seed)) = (&done, format.seed) {
            done = dirent::update_checksum(&mut guard, seed);
        }
        drop(guard);
        if self.vol.opts.canary.unlogged_names {
            h.leave_out(block);
        }
        self.vol.noted(in_block(block, done))
    }

    /// Gives an empty new directory its first block with `.` and `..`.
    pub(crate) fn dir_init(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        parent: Ino,
    ) -> Result<()> {
        let format = self.dir_format(inode, body);
        let (_, block) = self.append_leaf(h, inode, body, format)?;
        self.dir_change(h, format, &block, |b| {
            dirent::init_dots(b, &format.layout, inode.ino, parent)
        })
    }
}
