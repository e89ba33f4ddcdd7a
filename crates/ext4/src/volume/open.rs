//! Opening a volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_block::{BlockDevice, FailStop, Failures, Overlay, Tap, Tapped, Watched};
use stetfs_journal::{Journal, JournalError, RecoveryReport};
use stetfs_ondisk::ext4::features::{Incompat, RoCompat};
use stetfs_ondisk::ext4::superblock::{State, Superblock};

use super::early::{Early, check_size, read_superblock, write_superblock};
use super::inspect::inspect;
use super::log::{self, VolumeLog};
use super::parts::Parts;
#[cfg(debug_assertions)]
use super::prove::record_proof;
use super::{errors, external, features, mmp, records, repeat};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::OrphansFinished;
use crate::types::{FsOptions, OnError};

/// The purpose of an opening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Use,
    /// To see whether it can be; over copies.
    Rehearsal,
}

impl Fs {
    /// Opens a volume: checks it, replays its journal, finishes what was left undone.
    ///
    /// # Errors
    /// `Unsupported` names what this version cannot handle; `Corrupt` what is damaged; EROFS when
    /// the device cannot be written but would have to be.
    pub fn open(device: Arc<dyn BlockDevice>, opts: FsOptions) -> Result<Arc<Fs>> {
        Fs::open_with(device, None, opts, &mut |_, _| {})
    }

    /// [`open`](Self::open) of a volume whose journal may be on `journal`, a device of its own,
    /// telling how far the replay of the journal is: (done, of), first in log blocks, then in
    /// blocks that go home.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `JournalDevice` when `journal` is missing or belongs to another
    /// volume.
    pub fn open_with(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        opts: FsOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<Fs>> {
        Fs::open_as(device, journal, opts, progress, Purpose::Use)
    }

    /// Whether a volume that is frozen or read-only, and ours, could be opened with these options:
    /// it is opened over copies in memory of what it would change, and closed again. The device
    /// is only read. A region that the options name is used: it must be a copy, too.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with), but for what only the device's writes would tell.
    pub fn rehearse(
        device: Arc<dyn BlockDevice>,
        journal: Option<Arc<dyn BlockDevice>>,
        opts: FsOptions,
    ) -> Result<()> {
        let over = |device| Arc::new(Overlay::new(device)) as Arc<dyn BlockDevice>;
        let opts = FsOptions {
            // Damage is found, and nobody is to die of it.
            on_error: Some(OnError::Continue),
            ..opts
        };
        let journal = journal.map(over);
        // Its messages come when the volume is opened in earnest.
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
            let nobody = &mut |_, _| {};
            let fs = Fs::open_as(over(device), journal, opts, nobody, Purpose::Rehearsal)?;
            fs.unmount()
        })
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
        #[cfg(debug_assertions)]
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
        // A rehearsal is made by the mount that has the volume.
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
        #[cfg(debug_assertions)]
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
    /// Keeps others off the volume from now on; who takes it all the same stops the journal.
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

/// A device below [`fail_stop`]: what it fails itself is counted.
fn watched(
    device: Arc<dyn BlockDevice>,
    name: &'static str,
    failures: &Arc<Failures>,
) -> Arc<dyn BlockDevice> {
    Arc::new(Watched::new(device, name, Arc::clone(failures)))
}

/// The device as everything above is to see it: finished with the first flush that fails. What was
/// acknowledged before stands; nothing that such a flush may have dropped is acknowledged after,
/// and nothing is built on it.
fn fail_stop(device: Arc<dyn BlockDevice>, opts: &FsOptions) -> Arc<dyn BlockDevice> {
    let canary = &opts.canary;
    match (canary.forgive_flush, canary.forgive_inner_flush) {
        (true, _) => Arc::new(FailStop::forgiving(device)),
        (_, true) => Arc::new(FailStop::forgiving_within(device)),
        _ => Arc::new(FailStop::new(device)),
    }
}

/// Reads the quota files of a volume that is to be written, so that damaged ones are found before
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

/// What a recovery did: what was replayed, if anything, and what became of the orphans.
type Finished = (Option<RecoveryReport>, OrphansFinished);

/// Before a volume is opened read-only: replays its journal and finishes its orphans, where the
/// device can be written, as the kernel does. What cannot be done is left as it is: opening the
/// volume read-only fails by it, or does without.
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
        tracing::warn!("what an earlier mount left cannot be finished: {e}");
        nothing
    })
}

/// Replays the log if there is something in it. Gives the log as it is then, what was done, and the
/// superblock. An error that stopped the journal of an earlier mount becomes one of the volume, and
/// leaves the log.
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
    let mut log = log;
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
    Ok((log, (report, orphans), sb))
}
