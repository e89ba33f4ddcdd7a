//! Commit of a group: its changes are applied in one handle.

use stetfs_journal::{CommitPoint, Handle, Wait};
use stetfs_sync::timed::mpsc;

use super::{AtomicGroup, Member};
use crate::data::content::pages::{DataPath, Pages};
use crate::data::content::whole::Steps;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::InodeBody;
use crate::space::credits;
use crate::types::Ctx;
use stetfs_ondisk::num::bounded32;

/// The caller in whose name promised space is taken: no limits are checked any more.
impl AtomicGroup {
    /// Makes everything that the group changed the content of its files, all at once, and durable.
    /// When it returns, all of it survives any crash, with all earlier changes of the volume;
    /// before that, a crash leaves all or nothing. The commit of a group without changes only makes
    /// earlier changes durable.
    ///
    /// # Errors
    /// The device or the journal failed: the volume is read-only then, and its next opening finds
    /// all of the changes or none.
    pub fn commit(mut self) -> Result<()> {
        self.fs.throttle()?;
        let fs = self.fs.clone();
        let mut own = CommitPoint::none();
        if !self.is_clean() {
            self.settle_early()?;
            own = self.apply()?;
        }
        // All earlier changes, in any lane and file, become durable with it.
        let (upto, data) = match fs.vol.opts.canary.commit_own_lane {
            true => (own, Vec::new()),
            false => fs.done_before(),
        };
        for member in self.members.values_mut() {
            // The early blocks belong to the file now.
            drop(member.overlay.forget_early());
        }
        // Other users may change the files again while this waits for the device.
        drop(self);
        let (done, is_done) = mpsc::sync_channel(1);
        let answer = Box::new(move |synced| drop(done.send(synced)));
        fs.vol.journal.sync(upto, data, Wait::Inline, answer);
        match is_done.recv() {
            Ok(synced) => Ok(synced?),
            Err(_) => Err(fs.vol.stopped().unwrap_or(FsError::Errno(libc::EIO))),
        }
    }

    /// Applies the changes in one handle, under the locks of all files (atomic.A3). Returns the
    /// transaction.
    pub(super) fn apply(&self) -> Result<CommitPoint> {
        let fs = &*self.fs;
        let mut locked = Vec::with_capacity(self.members.len());
        // In inode order.
        for member in self.members.values() {
            let body = match locked.is_empty() {
                true => member.file.inode.body.write(),
                false => member.file.inode.body.write_nested(),
            };
            member.file.inode.check_alive()?;
            if fs.data.new_goes_home(&body) {
                // All of the group is in the log. Data that cannot be written back must not be a
                // part of it.
                fs.data.own_data_home(&member.file.inode)?;
            }
            locked.push((member, body));
        }
        let mut quotas = Vec::with_capacity(locked.len());
        for (member, body) in &mut locked {
            quotas.push(fs.promise_group(member, body)?);
        }
        let mut h = fs.vol.journal.begin(fs.group_credits(self.cost))?;
        for (nr, (member, body)) in locked.iter_mut().enumerate() {
            if nr > 0 && fs.vol.opts.canary.split_group {
                drop(h);
                fs.vol.journal.commit_all()?;
                h = fs.vol.journal.begin(fs.group_credits(self.cost))?;
            }
            fs.vol.whole(|| fs.apply_member(&mut h, member, body))?;
        }
        let point = h.point();
        for (member, body) in &mut locked {
            if member.overlay.size() < member.overlay.old_size() {
                fs.free_behind(&mut h, member, body)?;
            }
        }
        Ok(point)
    }
}

impl Fs {
    /// Opens the accounts of a file's owner for its new blocks.
    fn promise_group(
        &self,
        member: &Member,
        body: &mut InodeBody,
    ) -> Result<crate::quota::Promise<'_>> {
        let cost = self.changes_cost(member, body, &[], member.overlay.size())?;
        let blocks = cost
            .charged()
            .saturating_mul(u64::from(self.vol.geo.ratio()));
        let promise = self.promise(&Ctx::ROOT, body.owner(), blocks, 0)?;
        promise.give(body);
        Ok(promise)
    }

    /// Makes the group's changes of one file its content.
    fn apply_member(
        &self,
        h: &mut Handle<'_>,
        member: &Member,
        body: &mut InodeBody,
    ) -> Result<()> {
        let (inode, overlay) = (&*member.file.inode, &member.overlay);
        if overlay.is_clean() {
            return Ok(());
        }
        inode.check_alive()?;
        let shrinks = overlay.size() < overlay.old_size();
        if shrinks {
            // The blocks behind the new end are freed later, also after a crash.
            self.inodes.orphan_add(h, inode, body)?;
        }
        let runs = overlay.runs(&[]);
        if overlay.is_cut() || overlay.size() > overlay.old_size() {
            let mut pages = Pages::new(&self.data, inode, DataPath::Journal(h));
            let zeroed = self
                .data
                .zero_behind(&mut pages, inode, body, overlay.shown());
            pages.done();
            zeroed?;
        }
        for gap in self.group_gaps(overlay, &runs, overlay.size()) {
            self.data.remove_range(h, inode, body, gap, Steps::Whole)?;
        }
        for run in overlay.kept_runs(&[]) {
            let blocks = bounded32(run.start)..bounded32(run.end);
            let pages: Option<Vec<&[u8]>> = blocks.map(|lblk| overlay.page(lblk)).collect();
            let pages = pages.ok_or(FsError::Errno(libc::EIO))?;
            self.data
                .write_whole(h, inode, body, bounded32(run.start), &pages.concat())?;
        }
        for placed in overlay.early_runs() {
            self.take_early(h, inode, body, placed)?;
        }
        let now = self.vol.now();
        body.set_size(overlay.size());
        body.set_mtime(now);
        body.set_ctime(now);
        self.inodes.write_inode_data(h, inode, body)?;
        // A record would contain this file alone (atomic.A4).
        self.inodes.note_change(h, inode, MetadataLedger::grouped);
        Ok(())
    }

    /// Frees the blocks behind the new end of a file that became shorter.
    fn free_behind(&self, h: &mut Handle<'_>, member: &Member, body: &mut InodeBody) -> Result<()> {
        let inode = &*member.file.inode;
        h.restart(credits::ORPHAN)?;
        let cut = self
            .data
            .truncate_body(h, inode, body, member.overlay.size());
        h.restart(credits::ORPHAN)?;
        if body.links() > 0 {
            self.inodes.orphan_del(h, inode, body)?;
        }
        self.inodes.write_inode_data(h, inode, body)?;
        // The group's changes stand all the same.
        if let Err(e) = cut {
            self.vol.report(&e);
        }
        Ok(())
    }
}
