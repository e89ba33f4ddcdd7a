//! Replay of records of files: recovery applies them in ordinary transactions, after the
//! transactions of the log.
//!
//! Invariants:
//! * **replay.A1** Each record describes a state, not an action: applied twice, or to a state that
//!   has a part of it, it gives the same result. So the replay can be interrupted and repeated from
//!   the start, until the records are dropped in one step.
//! * **replay.A2** Space that a record names is not allocated for other purposes meanwhile
//!   (`space/claims`).
//! * **replay.A3** A record can be applied to every older state that a crash may leave.
//!   Permissions, flags, limits and quotas of that state refuse nothing (`ops/names/redo`). The
//!   blocks that it may take beyond those it names are kept free while the record lives
//!   (`space/redo`). A change that could fail for other reasons than space is synced by a commit
//!   (`data/syncs/record`). Debug builds and the swarm try each record before its sync is answered
//!   (`mount/prove`).
//! * **replay.A4** A missing file is not made if a later record gives its name to another one: an
//!   interrupted recovery may have come that far (`mount/replaced`).
//! * **replay.A5** Content of a record for a block that is no longer at its place is skipped if a
//!   later record names the block's place: an interrupted recovery may have come that far
//!   (`mount/remapped`).

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::PageRef;
use stetfs_journal::{BlockNr, Handle, Journal, LoggedRecord, Recovery};
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView};
use stetfs_ondisk::ext4::superblock::Superblock;
use stetfs_ondisk::ext4::time::Timestamp;
use stetfs_ondisk::stet::record::{FileRecord, Name, Node, Range, Run};

use super::log::{self, VolumeLog};
use super::parts::Parts;
use super::remapped::Remapped;
use super::replaced::Replaced;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, OrphansFinished};
use crate::ops::names::New;
use crate::space::BlockRun;
use crate::space::credits::WRITE_INODE;
use crate::types::{FsOptions, Ino, OnDataError, ROOT_INO};
use stetfs_ondisk::num::bounded32;

/// The report of the replay, and of the orphans that were processed with it.
pub(super) struct Applied {
    /// Number of applied records.
    pub(super) records: u64,
    /// Descriptions of the records that were left out, with reasons (`salvage`).
    pub(super) left_out: Vec<String>,
    pub(super) orphans: OrphansFinished,
}

/// Applies the records that `recovery` left in the log, and empties it.
///
/// # Errors
/// Errors of the device and the journal; `Corrupt` if a record contradicts the volume: then all of
/// them stay in the log.
pub(super) fn apply(
    device: Arc<dyn BlockDevice>,
    log: VolumeLog,
    recovery: &Recovery,
    sb: &Superblock,
    opts: &FsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Applied> {
    let salvage = opts.salvage;
    let mut left_out = Vec::new();
    let mut leave = |result: Result<()>| match result {
        Err(e @ (FsError::Corrupt { .. } | FsError::Errno(_))) => {
            let why = format!("the record of a synced file cannot be applied: {e}");
            if !salvage {
                return Err(wrong(0, why));
            }
            left_out.push(why);
            Ok(())
        }
        other => other,
    };
    let opts = FsOptions {
        cache_bytes: opts.cache_bytes,
        // The content of a record was synced: the record stays unless its data is written back.
        data_err: OnDataError::Abort,
        barrier: opts.barrier,
        canary: opts.canary,
        ..FsOptions::default()
    };
    let parts = Parts::read(device, sb, Some(&log), &opts)?;
    let journal = resume(log, &parts, recovery, &opts)?;
    let (fs, orphans) = parts.assemble(journal, opts, None, None)?;
    fs.attach();
    fs.load_quotas(sb)?;
    let mut records: Vec<(&LoggedRecord, FileRecord)> = Vec::new();
    for logged in &recovery.records {
        let decoded = FileRecord::decode(&logged.body).map_err(FsError::from);
        leave(decoded.map(|record| records.push((logged, record))))?;
    }
    fs.space.keep_freed();
    let mut runs = Vec::new();
    for (_, record) in &records {
        leave(fs.claim_inodes(record, &mut runs))?;
    }
    fs.claim_all(runs)?;
    fs.work_off_orphans(orphans)?;
    let mut replaced = match fs.vol.opts.canary.redo_replaced {
        true => Replaced::default(),
        false => Replaced::of(records.iter().map(|(_, record)| record)),
    };
    let remapped = match fs.vol.opts.canary.redo_remapped {
        true => Remapped::default(),
        false => Remapped::of(records.iter().map(|(_, record)| record)),
    };
    let mut applied = 0;
    for (i, (logged, record)) in records.iter().enumerate() {
        progress(i as u64, records.len() as u64);
        let result = fs.apply_record((i, record), &logged.pages, (&mut replaced, &remapped));
        applied += u64::from(result.is_ok());
        leave(result)?;
    }
    fs.vol.journal.release_horizon()?;
    tracing::info!(records = applied, "file-level records applied");
    fs.unmount()?;
    Ok(Applied {
        records: applied,
        left_out,
        orphans: fs.orphans_finished(),
    })
}

fn resume(
    log: VolumeLog,
    parts: &Parts,
    recovery: &Recovery,
    opts: &FsOptions,
) -> Result<Arc<Journal>> {
    let config = log::config(opts);
    Ok(log.log.resume(parts.cache.clone(), recovery, config)?)
}

/// The error of an impossible record.
fn wrong(nr: BlockNr, detail: String) -> FsError {
    FsError::corrupt("file-level record", nr, detail)
}

impl Fs {
    /// Claims the inodes of a record, and adds the blocks that it names to `runs`: the first block
    /// of each run, and the one behind it.
    fn claim_inodes(&self, record: &FileRecord, runs: &mut Vec<(u64, u64)>) -> Result<()> {
        for (start, len) in record.blocks() {
            self.space.check_run(BlockRun { start, len })?;
        }
        runs.extend(record.blocks().map(|(at, len)| (at, at + u64::from(len))));
        for node in record.dirs.iter().chain([&record.file]) {
            self.space.claim_inode(node.ino)?;
        }
        Ok(())
    }

    /// Claims these blocks, each once: many records may name the same blocks.
    fn claim_all(&self, mut runs: Vec<(u64, u64)>) -> Result<()> {
        runs.sort_unstable();
        let mut claimed = 0;
        for (start, end) in runs {
            let start = start.max(claimed);
            if start < end {
                let len = bounded32(end - start);
                self.space.claim_blocks(BlockRun { start, len })?;
                claimed = end;
            }
        }
        Ok(())
    }

    pub(super) fn apply_record(
        &self,
        (at, record): (usize, &FileRecord),
        pages: &[(BlockNr, PageRef)],
        (replaced, remapped): (&mut Replaced<'_>, &Remapped),
    ) -> Result<()> {
        let dirs = record.dirs.iter();
        let dirs = dirs.map(|dir| self.apply_node(dir, libc::S_IFDIR));
        let dirs: Result<Vec<_>> = dirs.collect();
        let file = &record.file;
        if replaced.is_gone(file.ino) || self.is_replaced(at, file, replaced)? {
            return dirs.map(drop);
        }
        let inode = match dirs.and_then(|_| self.apply_node(file, libc::S_IFREG)) {
            Err(FsError::Errno(libc::ENOSPC)) => self.keep_in_lost_found(file)?,
            named => named?,
        };
        self.throttle()?;
        let mut body = inode.body.write();
        let body = &mut *body;
        let mut h = self.vol.journal.begin(self.data.map_credits(body) + 8)?;
        let new = self.body_of(&record.file, body)?;
        if new.is_inline() {
            self.data.remove_all(&mut h, &inode, body)?;
        }
        self.become_body(body, new)?;
        self.inodes.write_inode_data(&h, &inode, body)?;
        for range in &record.ranges {
            self.apply_range(&mut h, &inode, body, range)?;
        }
        self.inodes.write_inode_data(&h, &inode, body)?;
        if record.pages.len() != pages.len() {
            let detail = format!("{} pages, {} in the log", record.pages.len(), pages.len());
            return Err(wrong(0, detail));
        }
        for (lblk, (nr, page)) in record.pages.iter().zip(pages) {
            let is_there = self.data.is_at(&inode, body, *lblk, *nr)?;
            if is_there || !remapped.is_said_later(at, file.ino, *lblk) {
                self.data.put_page(&mut h, &inode, body, *lblk, *nr, page)?;
            }
        }
        self.inodes.write_inode_data(&h, &inode, body)
    }

    /// Whether a file is missing and a later record replaces it (replay.A4).
    fn is_replaced(&self, at: usize, file: &Node, replaced: &mut Replaced<'_>) -> Result<bool> {
        let is_free = self.space.claim_inode(file.ino)?;
        Ok(is_free && replaced.note(at, file, |dir, name| self.redo_find(dir, name))?)
    }

    /// Makes the file of a node in `lost+found`, which has blocks with room, because the volume has
    /// no block left for its name. This only happens with records of versions that promised no
    /// space.
    fn keep_in_lost_found(&self, node: &Node) -> Result<Arc<Inode>> {
        let lost_found = self.lookup(ROOT_INO, b"lost+found")?.ino;
        self.forget(lost_found, 1);
        let name = format!("#{}", node.ino).into_bytes();
        tracing::warn!(
            inode = node.ino,
            "the volume is too full for the name of a synced file: it is lost+found/#{}",
            node.ino
        );
        let named = Node {
            name: Some(Name {
                parent: lost_found,
                name,
                replaces: false,
            }),
            ..node.clone()
        };
        self.apply_node(&named, libc::S_IFREG)
    }

    /// The directory or file of a node. It is made if it does not exist.
    fn apply_node(&self, node: &Node, kind: u32) -> Result<Arc<Inode>> {
        if node.inode.len() != usize::from(self.vol.geo.inode_size) {
            return Err(wrong(
                0,
                format!(
                    "an inode of {} bytes, unlike this volume's",
                    node.inode.len()
                ),
            ));
        }
        let view = InodeView::new(&node.inode[..])?;
        view.check(node.ino, &self.vol.geo.layout)?;
        if u32::from(view.mode()) & libc::S_IFMT != kind {
            return Err(wrong(
                0,
                format!("inode {} has the wrong mode {:o}", node.ino, view.mode()),
            ));
        }
        if !self.space.claim_inode(node.ino)? {
            let inode = self.inodes.iget(node.ino)?;
            let same = inode.body.read().generation() == view.generation()
                && inode.is_dir() == (kind == libc::S_IFDIR);
            if !same {
                return Err(wrong(
                    0,
                    format!("inode {} is a different file now", node.ino),
                ));
            }
            return Ok(inode);
        }
        let Some(name) = &node.name else {
            return Err(wrong(
                0,
                format!(
                    "inode {} does not exist, and the record has no name for it",
                    node.ino
                ),
            ));
        };
        if name.replaces {
            self.redo_remove(name.parent, &name.name)?;
        }
        let new = New {
            mode: u32::from(view.mode()),
            again: Some((node.ino, &node.inode)),
            ..New::default()
        };
        let inode = self.redo_make(name.parent, &name.name, &new)?;
        self.date(name.parent, view.ctime())?;
        Ok(inode)
    }

    /// Sets the times of a directory to the time of the original change.
    pub(super) fn date(&self, ino: Ino, then: Timestamp) -> Result<()> {
        let dir = self.inodes.iget(ino)?;
        let mut body = dir.body.write();
        let h = self.vol.journal.begin(WRITE_INODE)?;
        body.set_mtime(then);
        body.set_ctime(then);
        self.inodes.write_inode(&h, &dir, &mut body)
    }

    /// The inode of the record, except values that the volume knows better: links, blocks,
    /// attributes outside it, and the place of the content.
    fn body_of(&self, node: &Node, old: &InodeBody) -> Result<InodeBody> {
        let mut new = InodeBody::new(node.inode.clone().into_boxed_slice(), &self.vol.geo)?;
        new.set_links(old.links());
        new.set_file_acl(old.file_acl());
        new.set_dtime(0);
        new.set_blocks(old.blocks())?;
        let mut flags = new.flags();
        flags.remove(InodeFlags::INDEX);
        flags.insert(old.flags() & InodeFlags::INDEX);
        if !new.is_inline() && !old.is_inline() {
            flags.remove(InodeFlags::EXTENTS);
            flags.insert(old.flags() & InodeFlags::EXTENTS);
        }
        new.set_flags(flags);
        new.orphan = old.orphan;
        new.tally = old.tally.clone();
        Ok(new)
    }

    fn become_body(&self, body: &mut InodeBody, mut new: InodeBody) -> Result<()> {
        if !new.is_inline() {
            if body.is_inline() {
                self.data.init_map(&mut new)?;
            } else {
                new.i_block_mut().copy_from_slice(body.i_block());
            }
        }
        *body = new;
        Ok(())
    }

    /// Changes the map of a range of the file to that of the record.
    fn apply_range(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: &Range,
    ) -> Result<()> {
        let mut at = u64::from(range.first);
        for run in &range.runs {
            self.data.unmap(h, inode, body, at..u64::from(run.lblk))?;
            self.map_logged(h, inode, body, *run)?;
            at = u64::from(run.lblk) + u64::from(run.len);
        }
        let end = u64::from(range.first) + u64::from(range.count);
        self.data.unmap(h, inode, body, at..end)
    }

    pub(super) fn map_logged(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        run: Run,
    ) -> Result<()> {
        let piece = |from: u32, len: u32| Run {
            lblk: run.lblk + from,
            len,
            start: run.start + u64::from(from),
            unwritten: run.unwritten,
        };
        let mut done = self.data.map_exactly(h, inode, body, run)?;
        while done < run.len {
            self.space.count_piece(run.start)?;
            let rest = piece(done, run.len - done);
            done += self.data.map_exactly(h, inode, body, rest)?;
        }
        Ok(())
    }
}
