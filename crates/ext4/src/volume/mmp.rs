//! Multiple mount protection (feature `mmp`): one machine at a time uses a volume on shared
//! storage. The user of the volume changes the MMP block every few seconds; another machine that
//! sees the block change does not use the volume.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stetfs_block::{BlockDevice, Write};
use stetfs_journal::JournalError;
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::mmp::{Mmp, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX};
use stetfs_ondisk::ext4::superblock::{Geometry as Layout, Superblock};
use stetfs_ondisk::num::high32;
use stetfs_sync::timed::{
    Instant, Mutex,
    channel::{Receiver, RecvTimeoutError, Sender, bounded},
    thread::JoinHandle,
};

use crate::error::{FsError, Result};
use crate::types::FsOptions;

/// Seconds between updates if the volume names none (`EXT4_MMP_UPDATE_INTERVAL`), and the most it
/// may name.
const UPDATE: (u16, u16) = (5, 300);
/// The least seconds between two checks (`EXT4_MMP_MIN_CHECK_INTERVAL`).
const CHECK: u16 = 5;

/// The place of the MMP block. It is read and written past every cache.
pub(crate) struct Place {
    device: Arc<dyn BlockDevice>,
    offset: u64,
    block_size: usize,
    nr: u64,
    checksums: ChecksumMode,
    /// Seconds between updates.
    update: u16,
    /// Length of a second: shorter in tests.
    second: Duration,
    /// The time to write into the block, seconds since 1970, instead of the present time.
    epoch: Option<u64>,
}

/// The claim of this mount on the volume: the block is updated until the claim is dropped.
pub(crate) struct Claim {
    place: Arc<Place>,
    /// Dropping the sender ends the thread.
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The block as this mount last wrote it.
    mine: Arc<Mutex<Mmp>>,
}

impl Place {
    fn read(&self) -> Result<Mmp> {
        let mut block = vec![0; self.block_size];
        self.device.read(self.offset, &mut block)?;
        Mmp::decode(&block, &self.checksums)
            .map_err(|e| FsError::corrupt("MMP block", self.nr, e.to_string()))
    }

    fn write(&self, mmp: &mut Mmp) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        mmp.time.set(self.epoch.unwrap_or(now));
        let sector = mmp.first_sector(&self.checksums);
        let write = Write::new(self.offset, sector).fua();
        Ok(self.device.write_batch(&[write])?)
    }

    /// Removes everything from the block that differs between runs: mke2fs puts the time in it, and
    /// the checksum update keeps it. The write is not safe against a power cut, but an image that
    /// is being made can be made again.
    fn make_plain(&self, mmp: &mut Mmp) -> Result<()> {
        let block = mmp.made_plain(&self.checksums);
        Ok(self
            .device
            .write_batch(&[Write::new(self.offset, block).fua()])?)
    }

    fn check_interval(&self, mmp: &Mmp) -> u16 {
        // The interval in the other machine's block counts if it is longer, within limits.
        let named = mmp.check_interval.get().min(2 * UPDATE.1);
        self.update.max(CHECK).max(named)
    }

    /// Waits longer than a live user leaves the block unchanged.
    fn wait(&self, interval: u16) {
        let seconds = u32::from(interval * 2 + 1).min(u32::from(interval) + 60);
        stetfs_sync::timed::thread::sleep(self.second * seconds);
    }

    /// Refuses a volume that another machine uses. Returns the block, and the interval that was
    /// waited for.
    fn look(&self) -> Result<(Mmp, u16)> {
        let first = self.read()?;
        let interval = self.check_interval(&first);
        match first.seq.get() {
            SEQ_CLEAN => return Ok((first, interval)),
            SEQ_FSCK => {
                return Err(FsError::InUse(format!(
                    "e2fsck is running on the volume, or was interrupted (on {}); if it is \
                     certainly not running: tune2fs -f -E clear_mmp",
                    first.node()
                )));
            }
            _ => {}
        }
        tracing::info!(
            "the volume was not released by its last user; checking whether it is still in use"
        );
        self.wait(interval);
        let second = self.read()?;
        if second.seq != first.seq {
            return Err(in_use(&second));
        }
        Ok((second, interval))
    }
}

fn in_use(mmp: &Mmp) -> FsError {
    FsError::InUse(format!("the volume is in use on {}", mmp.node()))
}

fn place(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    layout: &Layout,
    opts: &FsOptions,
) -> Result<Option<Place>> {
    if !sb.incompat().contains(Incompat::MMP) {
        return Ok(None);
    }
    let nr = sb.mmp_block.get();
    if !layout.valid_blocks().contains(&nr) {
        return Err(FsError::corrupt("MMP block", nr, "not on the volume"));
    }
    let update = match sb.mmp_interval.get() {
        0 => UPDATE.0,
        named => named.min(UPDATE.1),
    };
    Ok(Some(Place {
        device: device.clone(),
        offset: nr * u64::from(layout.block_size),
        block_size: layout.block_size as usize,
        nr,
        checksums: sb.checksum_mode(),
        update,
        second: opts.mmp_second,
        epoch: opts.epoch,
    }))
}

/// A sequence number that another machine is unlikely to choose.
fn new_sequence() -> u32 {
    let t = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let nanos = t
        .as_secs()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(t.subsec_nanos()));
    let mixed = (nanos ^ u64::from(std::process::id()) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    high32(mixed) % SEQ_MAX + 1
}

fn put_name(to: &mut [u8], name: &[u8]) {
    to.fill(0);
    let room = to.len() - 1;
    for (to, from) in to.iter_mut().zip(name.iter().take(room)) {
        *to = *from;
    }
}

/// Refuses a volume that is in use elsewhere. Called before anything is written to it.
///
/// # Errors
/// `InUse`; `Corrupt`; errors of the device.
pub(crate) fn check(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    layout: &Layout,
    opts: &FsOptions,
) -> Result<()> {
    match place(device, sb, layout, opts)? {
        Some(place) => place.look().map(drop),
        None => Ok(()),
    }
}

/// Claims the volume, or refuses one that is in use elsewhere; `None` without the feature. Called
/// before anything is written to it.
///
/// # Errors
/// As for [`check`].
pub(crate) fn claim(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    layout: &Layout,
    opts: &FsOptions,
) -> Result<Option<Claim>> {
    let Some(place) = place(device, sb, layout, opts)? else {
        return Ok(None);
    };
    let (mut mmp, interval) = place.look()?;
    mmp.seq.set(new_sequence());
    put_name(
        &mut mmp.nodename,
        rustix::system::uname().nodename().to_bytes(),
    );
    put_name(&mut mmp.bdevname, b"stetfs");
    mmp.check_interval.set(interval);
    place.write(&mut mmp)?;
    // Another machine may have reached the same conclusion at the same time: the last writer owns
    // the volume.
    place.wait(interval);
    let now = place.read()?;
    if now.seq != mmp.seq || now.nodename != mmp.nodename {
        return Err(in_use(&now));
    }
    Ok(Some(Claim {
        place: Arc::new(place),
        stop: Mutex::new(None),
        thread: Mutex::new(None),
        mine: Arc::new(Mutex::new(mmp)),
    }))
}

impl Claim {
    /// The place of the block: bytes of the device.
    pub(crate) fn range(&self) -> Range<u64> {
        let Place {
            offset, block_size, ..
        } = *self.place;
        offset..offset + block_size as u64
    }

    /// Starts the thread that updates the block while the volume is open. If the updates end
    /// because they fail, or because another machine took the volume, `lost` is called with the
    /// reason.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn keep(&self, lost: impl FnOnce(FsError) + Send + 'static) -> Result<()> {
        let (stop, stopped) = bounded(0);
        let (place, mine) = (self.place.clone(), self.mine.clone());
        let thread = stetfs_sync::timed::thread::Builder::new()
            .name("stet-mmp".into())
            .spawn(move || run(&place, &mine, &stopped, lost))
            .map_err(|e| JournalError::Aborted(format!("cannot start the thread stet-mmp: {e}")))?;
        *self.stop.lock() = Some(stop);
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    fn end(&self) {
        self.stop.lock().take();
        let thread = self.thread.lock().take();
        // This thread itself may drop the last reference to the volume.
        if let Some(thread) = thread
            && thread.thread().id() != stetfs_sync::timed::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread stet-mmp panicked");
        }
    }

    /// Gives the volume back: marks it clean, so that the next user need not wait.
    ///
    /// # Errors
    /// `InUse` if another machine took it meanwhile; errors of the device.
    pub(crate) fn release(&self) -> Result<()> {
        self.end();
        let mut mine = self.mine.lock();
        let now = self.place.read()?;
        if now.seq != mine.seq || now.nodename != mine.nodename {
            return Err(in_use(&now));
        }
        mine.seq.set(SEQ_CLEAN);
        if self.place.epoch.is_some() {
            put_name(&mut mine.nodename, b"");
        }
        self.place.write(&mut mine)?;
        match self.place.epoch {
            Some(_) => self.place.make_plain(&mut mine),
            None => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.end();
    }
}

/// Updates the block. Ends on request, when the volume is closed, or when another machine took the
/// volume.
fn run(place: &Place, mine: &Mutex<Mmp>, stopped: &Receiver<()>, lost: impl FnOnce(FsError)) {
    let period = place.second * u32::from(place.update);
    let mut due = Instant::now();
    loop {
        due += period;
        match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        let mut mine = mine.lock();
        let updated = place.read().and_then(|now| {
            if now.seq != mine.seq || now.nodename != mine.nodename {
                return Err(in_use(&now));
            }
            let next = mine.seq.get() % SEQ_MAX + 1;
            mine.seq.set(next);
            place.write(&mut mine)
        });
        drop(mine);
        if let Err(e) = updated {
            tracing::error!("multiple mount protection: {e}");
            return lost(e);
        }
    }
}
