//! Opening a volume: checks, replay of the journal, and the orphans of an earlier mount.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stetfs_block::{BlockDevice, Failures, Overlay, Tap, Tapped, Watched};
use stetfs_journal::{Journal, JournalError, RecoveryReport};
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{State, Superblock};
use stetfs_sync::timed::Instant;

use super::early::{Early, check_size};
use super::inspect::inspect;
use super::log::{self, VolumeLog};
use super::parts::Parts;
use super::prove::record_proof;
use super::{external, features, records, repeat};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::OrphansFinished;
use crate::types::{FsOptions, OnError};
use crate::volume::super_bytes::{read_superblock, write_superblock};
use crate::volume::{errors, mmp};

/// The purpose of an opening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Use,
    /// To check whether the volume can be opened, over copies.
    Rehearsal,
}

impl Fs {
    /// Opens a volume: checks it, replays its journal, and finishes operations that a crash
    /// interrupted.
    ///
    /// # Errors
    /// `Unsupported` names what this version cannot handle; `Corrupt` names damage; EROFS when the
    /// device would have to be written but cannot be.
    pub fn open(device: Arc<dyn BlockDevice>, opts: FsOptions) -> Result<Arc<Fs>> {
        Fs::open_with(device, None, opts, &mut |_, _| {})
    }

    /// [`open`](Self::open) for a volume whose journal may be on `journal`, a device of its own.
    /// `progress` gets the progress of the replay: (done, total), first in log blocks, then in
    /// blocks that are written back.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and `JournalDevice` when `journal` is missing or belongs to
    /// another volume.
    pub fn open_with(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        opts: FsOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<Fs>> {
        Fs::open_as(device, journal, opts, progress, Purpose::Use)
    }

    /// Checks whether a volume that this process has open, frozen or read-only, could be opened
    /// with these options: opens it over copies in memory of what it would change, and closes it
    /// again. The device is only read. A region that the options name is used, so it must be a
    /// copy, too.
    ///
    /// # Errors
    /// As for [`open_with`](Self::open_with), except errors that only writes to the device would
    /// show.
    pub fn rehearse(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        opts: FsOptions,
    ) -> Result<()> {
        let over = |device| Arc::new(Overlay::new(device)) as Arc<dyn BlockDevice>;
        let opts = FsOptions {
            // Damage is reported, and does not end the process.
            on_error: Some(OnError::Continue),
            ..opts
        };
        let journal = journal.map(over);
        // Log messages appear when the volume is really opened.
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
            let nobody = &mut |_, _| {};
            let fs = Fs::open_as(over(device), journal, opts, nobody, Purpose::Rehearsal)?;
            fs.unmount()
        })
    }

    /// Recovers a copy of a volume that is in use.
    ///
    /// # Errors
    /// As for [`open_with`](Self::open_with).
    pub(super) fn recover_copy(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        opts: FsOptions,
    ) -> Result<()> {
        let nobody = &mut |_, _| {};
        Fs::open_as(device, journal, opts, nobody, Purpose::Rehearsal).map(drop)
    }

    fn open_as(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        opts: FsOptions,
        progress: &mut dyn FnMut(u64, u64),
        purpose: Purpose,
    ) -> Result<Arc<Fs>> {
        if !opts.read_only && (device.read_only() || opts.no_recovery) {
            return Err(FsError::Errno(libc::EROFS));
        }
        repeat::check(&opts)?;
        let proof = record_proof(&device, journal.as_ref(), &opts);
        let failures = Arc::new(Failures::default());
        let device = watched(device, "volume", &failures);
        let tap = Arc::new(Tap::default());
        let device: Arc<dyn BlockDevice> = Arc::new(Tapped::new(device, Arc::clone(&tap)));
        let journal = journal.map(|journal| watched(journal, "journal", &failures));
        let (mut recovered, mut earlier) = (None, OrphansFinished::default());
        if opts.read_only && !opts.no_recovery && !opts.leave_orphans {
            (recovered, earlier) = finish_first(&device, journal.as_ref(), &opts, progress);
        }
        let mut sb = read_superblock(&*device)?;
        features::check(&sb, opts.read_only)?;
        let layout = sb.geometry()?;
        check_size(&layout, &*device)?;
        let (last_word, external) = external::join(device, journal, &sb)?;
        let device = fail_stop(Arc::clone(&last_word), &opts);
        let early = Early::new(&*device, &layout, &sb);
        // A rehearsal is made by the mount that already has the claim.
        let others = purpose == Purpose::Use;
        let claim = (others && !opts.read_only).then(|| mmp::claim(&device, &sb, &layout, &opts));
        let claim = claim.transpose()?.flatten();
        let mut log = log::find(&device, &early, &sb, external.as_deref(), opts.canary)?;
        let replays = !opts.no_recovery && log.as_ref().is_some_and(VolumeLog::is_dirty);
        if others && opts.read_only && replays {
            mmp::check(&device, &sb, &layout, &opts)?;
        }
        if !opts.no_recovery
            && let Some(mut found) = log.take()
        {
            found.log.attach(&opts.region, sb.uuid)?;
            let (found, (report, finished), now) = recover(found, &device, sb, &opts, progress)?;
            (log, sb) = (Some(found), now);
            recovered = report.or(recovered);
            earlier += finished;
        }
        early.check_root()?;
        if !opts.read_only {
            check_quotas(&device, &sb, log.as_ref(), &opts)?;
        }
        let parts = Parts::read(device, &sb, log.as_ref(), &opts)?;
        let log_runs = repeat::log_runs(log.as_ref(), external.as_deref());
        let cache = parts.cache.clone();
        let journal = match log {
            _ if opts.read_only => Journal::read_only(cache)?,
            Some(log) => log.start(cache, &sb, &opts)?,
            None => log::without(cache, &sb, &opts)?,
        };
        let read_only = opts.read_only;
        let (fs, found_orphans) = parts.assemble(journal, opts, claim, recovered)?;
        *fs.inodes.orphans().finished.lock() = earlier;
        let _ = fs.vol.sb.last_word.set(last_word);
        let _ = fs.vol.sb.failures.set(failures);
        let _ = fs.vol.sb.tap.set(tap);
        let _ = fs.vol.sb.log_runs.set(log_runs);
        if let Some(proof) = proof {
            let _ = fs.vol.sb.proof.set(proof);
        }
        if !read_only {
            fs.attach();
            fs.keep_claim()?;
            fs.load_quotas(&sb)?;
            fs.mark_mounted()?;
            fs.work_off_orphans(found_orphans)?;
        }
        fs.vol.sb.recovering.store(false, Ordering::Release);
        Ok(fs)
    }
}

impl Fs {
    /// Keeps the claim on the volume from now on. If another machine takes the volume all the same,
    /// the journal stops.
    fn keep_claim(&self) -> Result<()> {
        let Some(claim) = &self.vol.sb.claim else {
            return Ok(());
        };
        let me = self.me.clone();
        claim.keep(move |e| {
            if let Some(fs) = me.upgrade() {
                fs.vol.journal.abort(JournalError::Aborted(e.to_string()));
            }
        })
    }
}

/// A device below [`fail_stop`], which counts the requests that the device itself failed.
fn watched(
    device: Arc<dyn BlockDevice>,
    name: &'static str,
    failures: &Arc<Failures>,
) -> Arc<dyn BlockDevice> {
    Arc::new(Watched::new(device, name, Arc::clone(failures)))
}

/// The device as all layers above see it: it stops with the first flush that fails. Data
/// acknowledged before stands. After that, nothing is acknowledged that such a flush may have
/// dropped, and nothing depends on it.
fn fail_stop(device: Arc<dyn BlockDevice>, opts: &FsOptions) -> Arc<dyn BlockDevice> {
    opts.canary.fail_stop(device)
}

/// Reads the quota files of a volume that is to be written, so that damage in them is found before
/// anything changes.
fn check_quotas(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    log: Option<&VolumeLog>,
    opts: &FsOptions,
) -> Result<()> {
    if !sb.ro_compat().contains(RoCompat::QUOTA) {
        return Ok(());
    }
    let opts = FsOptions {
        read_only: true,
        cache_bytes: opts.cache_bytes,
        ..FsOptions::default()
    };
    let parts = Parts::read(Arc::clone(device), sb, log, &opts)?;
    let journal = Journal::read_only(parts.cache.clone())?;
    let (fs, _) = parts.assemble(journal, opts, None, None)?;
    fs.quota().map(drop).inspect_err(|e| {
        tracing::error!("quota files: {e}; the volume can be opened read-only");
    })
}

/// The result of a recovery: the report of the replay, if any, and of the orphans.
type Finished = (Option<RecoveryReport>, OrphansFinished);

/// Replays the journal and finishes the orphans before a volume is opened read-only, if the device
/// can be written, as the kernel does. Work that cannot be done is left: the read-only opening then
/// fails because of it, or does without it.
fn finish_first(
    device: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    opts: &FsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Finished {
    let nothing = Finished::default();
    if device.read_only() || journal.is_some_and(|journal| journal.read_only()) {
        return nothing;
    }
    let unfinished = inspect(Arc::clone(device), journal.cloned()).is_ok_and(|found| {
        let has_errors = found.superblock.state().contains(State::ERROR_FS);
        found.unfinished && found.refused.is_none() && !has_errors
    });
    if !unfinished {
        return nothing;
    }
    let writing = FsOptions {
        journal: opts.journal.way_home(),
        region: opts.region.clone(),
        cache_bytes: opts.cache_bytes,
        on_error: opts.on_error,
        barrier: opts.barrier,
        mmp_second: opts.mmp_second,
        epoch: opts.epoch,
        canary: opts.canary,
        ..FsOptions::default()
    };
    let opened = Fs::open_with(Arc::clone(device), journal.cloned(), writing, progress);
    let closed = opened.and_then(|fs| {
        fs.unmount()?;
        Ok((fs.recovered().cloned(), fs.orphans_finished()))
    });
    closed.unwrap_or_else(|e| {
        tracing::warn!("the recovery of an earlier mount cannot be completed: {e}");
        nothing
    })
}

/// Replays the log if it has content. Returns the log in its new state, the report, and the
/// superblock. An error that stopped the journal of an earlier mount becomes an error of the
/// volume, and is removed from the log.
fn recover(
    log: VolumeLog,
    device: &Arc<dyn BlockDevice>,
    before: Superblock,
    opts: &FsOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(VolumeLog, Finished, Superblock)> {
    let marked = before.incompat().contains(Incompat::RECOVER);
    let errno = log.errno();
    if !log.is_dirty() && !marked && (errno == 0 || opts.read_only) {
        return Ok((log, Finished::default(), before));
    }
    if device.read_only() {
        tracing::error!("the journal must be replayed, but the device cannot be written");
        return Err(FsError::Errno(libc::EROFS));
    }
    let (mut report, mut orphans) = Finished::default();
    let (mut log, begin) = (log, Instant::now());
    if log.is_dirty() {
        let mut recovery = log.replay(before.blocks_count(), opts, progress)?;
        log = log.reopen()?;
        if !recovery.records.is_empty() {
            let sb = read_superblock(&**device)?;
            let again = log.reopen()?;
            let applied =
                records::apply(Arc::clone(device), again, &recovery, &sb, opts, progress)?;
            recovery.report.records = applied.records;
            recovery.report.damage.extend(applied.left_out);
            orphans = applied.orphans;
            log = log.reopen()?;
        }
        if !recovery.fast_commits.is_empty() {
            let damage = log.take_fast_commits(device, &recovery.fast_commits, opts, progress)?;
            recovery.report.damage.extend(damage);
            log = log.reopen()?;
            let blocks = before.blocks_count();
            let home = log.replay(blocks, opts, progress)?.report;
            recovery.report.blocks += home.blocks;
            recovery.report.shared += home.shared;
            log = log.reopen()?;
        }
        report = Some(recovery.report);
    }
    let replayed = read_superblock(device)?;
    let mut sb = replayed.clone();
    errors::keep_errors(&mut sb, &before);
    sb.set_incompat(sb.incompat() - Incompat::RECOVER);
    if errno != 0 {
        tracing::warn!("an earlier mount stopped its journal with error {errno}; run e2fsck");
    }
    if errno != 0 || report.as_ref().is_some_and(|r| !r.damage.is_empty()) {
        sb.set_state(sb.state() | State::ERROR_FS);
    }
    write_superblock(&**device, &sb, &replayed)?;
    if errno != 0 {
        log.clear_errno()?;
    }
    if let Some(report) = &report {
        tell_recovery(report, begin.elapsed());
    }
    Ok((log, (report, orphans), sb))
}

/// Logs what a recovery replayed.
fn tell_recovery(report: &RecoveryReport, took: Duration) {
    let RecoveryReport {
        transactions,
        blocks,
        records,
        fast_commits,
        ..
    } = report;
    tracing::info!(
        "recovered the journal in {:.3} s: {transactions} transactions, {blocks} blocks, \
         {records} records, {fast_commits} fast commits",
        took.as_secs_f64()
    );
}
