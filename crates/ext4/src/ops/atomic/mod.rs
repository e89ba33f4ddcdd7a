//! Atomic groups: files that change all at once (decisions/0032).
//!
//! A write to a file of a group is kept separately until the group commits. Then all changes go
//! into the journal within one handle, so that they are in one transaction and a crash leaves all
//! of them or none. They are kept in memory, and in blocks that are set aside if one transaction or
//! the memory could not hold more. A group that ends without a commit leaves nothing.
//!
//! * `overlay`: the changes of one file; `cost`: the cost of a commit, summed up in `price`;
//!   `admit`: the check for room; `commit`: the commit; `state/group_memory`: the memory of all
//!   groups.
//! * `early`: writes before the commit.
//! * `ranges`: zeroing, and allocation for later writes; `seek`: places of data.
//!
//! Invariants:
//! * **atomic.A1** A file is in at most one group, and while it is, no other user changes its
//!   content, size or map, nor the flags that control such changes ([`Inode::check_alone`]). So the
//!   cost of the commit is known at each write.
//! * **atomic.A2** The most credits that the commit needs fit into one transaction, and the most
//!   space that it needs is promised: a commit fails only when the device or the journal does.
//! * **atomic.A3** All changes of a group are made with the locks of all its files held, in one
//!   handle.
//! * **atomic.A4** No record contains changes of a group's file before the transaction is valid.

mod admit;
mod commit;
mod cost;
mod early;
mod overlay;
mod price;
mod ranges;
mod seek;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::features::Compat;

use self::overlay::Overlay;
use self::price::{Cost, EarlySum};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::ops::inodes::OpenRef;
use crate::space::BlockRun;
use crate::types::{Ctx, FileType, Ino};
use stetfs_ondisk::num::to_usize;

/// All groups together may use this fraction of the cache's bytes in memory.
const SHARE: u64 = 4;
/// The number of pieces of a write that fit into a transaction, and into memory.
const PIECES: u64 = 8;

impl Inode {
    /// Checks that the file is in no group. A caller that changes content, size or map calls this
    /// with the inode's lock held.
    ///
    /// # Errors
    /// EBUSY: it is in an atomic group, and only the group may change it.
    pub(crate) fn check_alone(&self) -> Result<()> {
        if self.grouped.load(Ordering::Acquire) {
            return Err(FsError::InUse(format!(
                "inode {} is in an atomic group",
                self.ino
            )));
        }
        Ok(())
    }
}

/// A file of a group. Dropping it removes the file from the group.
struct Member {
    file: OpenRef,
    overlay: Overlay,
    /// The cost values of the early blocks, and of blocks that were early until a later change.
    early: EarlySum,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.file.inode.grouped.store(false, Ordering::Release);
    }
}

/// A group of files that change all at once, or not at all.
///
/// Reads through the group return what was written through it. All other users see the files in the
/// state before the group until the commit, and in the new state after it. They cannot change the
/// content of these files meanwhile (EBUSY). Dropping a group without [`commit`](Self::commit)
/// aborts it.
pub struct AtomicGroup {
    fs: Arc<Fs>,
    members: BTreeMap<Ino, Member>,
    /// The most that the commit needs.
    cost: Cost,
    /// Clusters promised for the commit.
    promised: u64,
    /// Bytes kept in memory.
    kept: u64,
}

impl Fs {
    /// Begins a group of these files, which must be open for writing.
    ///
    /// # Errors
    /// EOPNOTSUPP where data does not go through a journal; the message says what to do. EBUSY: one
    /// of the files is in another group. EBADF: one is not open for writing. EINVAL: there are no
    /// files, or one is not a regular file. EPERM: one must not be changed (immutable,
    /// append-only).
    pub fn atomic_group(&self, files: &[OpenRef]) -> Result<AtomicGroup> {
        self.throttle()?;
        let fs = self.me.upgrade().ok_or(FsError::Errno(libc::ESHUTDOWN))?;
        let mut members = BTreeMap::new();
        for file in files {
            if let Entry::Vacant(place) = members.entry(file.ino()) {
                place.insert(self.join_group(file)?);
            }
        }
        if members.is_empty() {
            return Err(FsError::Errno(libc::EINVAL));
        }
        let group = AtomicGroup {
            cost: members
                .values()
                .fold(Cost::default(), |sum, _| sum + Fs::member_cost()),
            fs,
            members,
            promised: 0,
            kept: 0,
        };
        if group.limit() == 0 {
            return Err(group.full());
        }
        Ok(group)
    }

    /// Whether a group may contain this file: whether its data goes through the journal.
    pub fn can_be_atomic(&self, file: &OpenRef) -> bool {
        let body = file.inode.body.read();
        file.inode.kind == FileType::Regular && self.journals_whole(&body)
    }

    pub(crate) fn journals_whole(&self, body: &InodeBody) -> bool {
        self.vol.geo.compat.contains(Compat::HAS_JOURNAL) && self.data.journals_data(body)
    }

    fn join_group(&self, file: &OpenRef) -> Result<Member> {
        let inode = &file.inode;
        if inode.kind != FileType::Regular {
            return Err(FsError::Errno(libc::EINVAL));
        }
        if !file.writable() {
            return Err(FsError::Errno(libc::EBADF));
        }
        let body = inode.body.write();
        inode.check_alive()?;
        // Writes of a group need not be appends, and an abort undoes them.
        self.data.check_changeable(&body, None)?;
        if !self.journals_whole(&body) {
            return Err(FsError::Unsupported(format!(
                "an atomic group of inode {}, whose data does not go through a journal: open the \
                 volume with journal=data, ldj, stet or afs, or with data=journal",
                inode.ino
            )));
        }
        if inode.grouped.swap(true, Ordering::AcqRel) {
            return Err(FsError::InUse(format!(
                "inode {} is in another atomic group",
                inode.ino
            )));
        }
        Ok(Member {
            file: file.clone(),
            overlay: Overlay::new(self.vol.geo.block_size, body.size()),
            early: EarlySum::default(),
        })
    }
}

impl AtomicGroup {
    /// Adds a file to the group; it must be open for writing.
    ///
    /// # Errors
    /// As for [`Fs::atomic_group`]; EBUSY also for a file that is already in this group. EFBIG: the
    /// group would exceed its [`limit`](Self::limit). The group continues.
    pub fn join(&mut self, ctx: &Ctx, file: &OpenRef) -> Result<()> {
        self.fs.throttle()?;
        let member = self.fs.join_group(file)?;
        let mut cost = self.cost + Fs::member_cost();
        if !self.fits(cost) && self.write_early(ctx)? {
            cost = self.cost + Fs::member_cost();
        }
        if !self.fits(cost) {
            return Err(self.full());
        }
        self.cost = cost;
        self.members.insert(file.ino(), member);
        Ok(())
    }

    /// Bytes that the group can hold at any scatter, if the volume has room: their mappings must
    /// fit into one transaction. A group of contiguous blocks can hold many times as much. A write
    /// beyond the limit is refused.
    pub fn limit(&self) -> u64 {
        let files = self.members.len() as u64;
        let fixed = (0..files).fold(Cost::default(), |sum, _| sum + Fs::member_cost());
        let fixed = self.fs.group_credits(fixed);
        let left = self.fs.vol.journal.max_credits().saturating_sub(fixed);
        let kept = self.most_memory() / u64::from(self.fs.vol.geo.block_size);
        let kept = u64::from(left).min(kept);
        kept.max(self.early_limit(left)) * u64::from(self.fs.vol.geo.block_size)
    }

    /// Bytes that are written at once; a longer write is split into pieces.
    fn write_size(&self) -> usize {
        let block = u64::from(self.fs.vol.geo.block_size);
        let most = u64::from(self.fs.vol.journal.max_credits()) * block;
        let piece = most.min(self.most_memory()) / PIECES;
        usize::try_from((piece / block).max(1) * block).unwrap_or(usize::MAX)
    }

    /// The most bytes that all groups may keep in memory.
    fn most_memory(&self) -> u64 {
        self.fs.cache_bytes() / SHARE
    }

    fn full(&self) -> FsError {
        FsError::GroupFull {
            limit: self.limit(),
        }
    }

    fn member(&self, ino: Ino) -> Result<&Member> {
        self.members.get(&ino).ok_or(FsError::Errno(libc::EBADF))
    }

    fn overlay(&mut self, ino: Ino) -> Result<&mut Overlay> {
        let member = self.members.get_mut(&ino);
        let member = member.ok_or(FsError::Errno(libc::EBADF))?;
        Ok(&mut member.overlay)
    }

    /// The files' inode numbers, ascending.
    pub fn files(&self) -> impl Iterator<Item = Ino> + '_ {
        self.members.keys().copied()
    }

    /// Bytes of the changed blocks.
    pub fn bytes(&self) -> u64 {
        let blocks: usize = self.members.values().map(|m| m.overlay.changed()).sum();
        blocks as u64 * u64::from(self.fs.vol.geo.block_size)
    }

    /// Whether nothing has changed.
    pub fn is_clean(&self) -> bool {
        self.members.values().all(|m| m.overlay.is_clean())
    }

    /// The size of a file in the group, bytes.
    ///
    /// # Errors
    /// EBADF: the file is not in the group.
    pub fn size(&self, ino: Ino) -> Result<u64> {
        Ok(self.member(ino)?.overlay.size())
    }

    /// Reads a file with the group's changes, from `offset` into `buf`. Returns the number of
    /// bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// EBADF: the file is not in the group. EIO; EUCLEAN.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.vol.usable()?;
        let member = self.member(ino)?;
        let len = member.overlay.size().saturating_sub(offset);
        let len = to_usize(len.min(buf.len() as u64));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
            return Ok(0);
        };
        self.read_below(member, offset, buf)?;
        member.overlay.lay_over(offset, buf);
        self.read_early(member, offset, buf)?;
        Ok(len)
    }

    /// Reads the unchanged content of the file from `offset` on.
    fn read_below(&self, member: &Member, offset: u64, buf: &mut [u8]) -> Result<()> {
        let shown = member.overlay.shown().saturating_sub(offset);
        let shown = to_usize(shown.min(buf.len() as u64));
        let (below, behind) = buf.split_at_mut(shown);
        behind.fill(0);
        if below.is_empty() {
            return Ok(());
        }
        let inode = &member.file.inode;
        let body = inode.body.read();
        self.fs.data.read_range(inode, &body, offset, below)
    }

    /// Writes `data` at `offset` of a file. Returns the number of bytes, fewer if the room ended
    /// before the last byte.
    ///
    /// # Errors
    /// EFBIG: the group would exceed its [`limit`](Self::limit), or the file the largest size.
    /// ENOSPC, EDQUOT; ENOMEM: all groups together use too much memory; EBADF: the file is not in
    /// the group; EIO. Nothing was changed then, and the group continues.
    pub fn write(&mut self, ctx: &Ctx, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let block = self.fs.vol.geo.block_size as usize;
        let mut piece = self.write_size();
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.checked_add(done as u64);
            let at = at.ok_or(FsError::Errno(libc::EFBIG))?;
            // Pieces end at block borders.
            let len = rest.len().min(piece - to_usize(at % block as u64));
            match self.write_piece(ctx, ino, at, rest.get(..len).unwrap_or(rest)) {
                Ok(()) => done += len,
                // A smaller piece may fit together with the early blocks.
                Err(FsError::GroupFull { .. }) if piece > block => {
                    piece = (piece / 2).next_multiple_of(block);
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn write_piece(&mut self, ctx: &Ctx, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let end = end.ok_or(FsError::Errno(libc::EFBIG))?;
        let size = self.size(ino)?.max(end);
        self.admit(ctx, ino, size, std::slice::from_ref(&(offset..end)))?;
        self.overlay(ino)?.write(offset, data)
    }

    /// Sets the size of a file. Content that is cut off is gone, even if the file grows again.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn set_size(&mut self, ctx: &Ctx, ino: Ino, size: u64) -> Result<()> {
        let block = u64::from(self.fs.vol.geo.block_size);
        let end = size.checked_next_multiple_of(block);
        let cut = size..end.ok_or(FsError::Errno(libc::EFBIG))?;
        // A block that is cut in its middle must be in memory.
        let overlay = &self.member(ino)?.overlay;
        let is_cut_through = size < overlay.size() && overlay.has(size / block) && !cut.is_empty();
        let through = match is_cut_through {
            true => std::slice::from_ref(&cut),
            false => &[],
        };
        self.admit(ctx, ino, size, through)?;
        let before = self.overlay(ino)?.blocks();
        let places = self.overlay(ino)?.set_size(size)?;
        let gone = before - self.overlay(ino)?.blocks();
        self.forget(gone as u64 * block);
        self.give_back(places);
        Ok(())
    }

    /// Frees early blocks that are no longer needed.
    fn give_back(&self, places: Vec<BlockNr>) {
        for start in places {
            self.fs.space.give_back(BlockRun { start, len: 1 });
        }
    }

    /// Ends the group and leaves the files unchanged.
    pub fn abort(self) {
        drop(self);
    }

    /// Whether `bytes` bytes more may be kept in memory.
    fn has_memory(&self, bytes: u64) -> bool {
        let kept = self.fs.data.state.groups.0.load(Ordering::Relaxed);
        kept.saturating_add(bytes) <= self.most_memory()
    }

    /// Counts `bytes` bytes more in memory.
    fn keep(&mut self, bytes: u64) -> Result<()> {
        let all = &self.fs.data.state.groups.0;
        let most = self.most_memory();
        let update = |kept: u64| kept.checked_add(bytes).filter(|sum| *sum <= most);
        let order = Ordering::Relaxed;
        all.fetch_update(order, order, update)
            .map_err(|_| FsError::Errno(libc::ENOMEM))?;
        self.kept += bytes;
        Ok(())
    }

    fn forget(&mut self, bytes: u64) {
        let bytes = bytes.min(self.kept);
        self.kept -= bytes;
        self.fs
            .data
            .state
            .groups
            .0
            .fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for AtomicGroup {
    fn drop(&mut self) {
        self.give_back_early();
        self.forget(self.kept);
        drop(
            self.fs
                .space
                .kept_promise(std::mem::take(&mut self.promised)),
        );
    }
}

impl std::fmt::Debug for AtomicGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files: Vec<Ino> = self.files().collect();
        write!(f, "AtomicGroup({files:?}, {} bytes)", self.kept)
    }
}
