//! A volume as a [`FileSystem`](crate::FileSystem), with the state that a mount keeps beside the
//! volume. `operations` answers requests; `atomic_writes`, `copy` and `ioctls` are parts of that,
//! and `freezing` lets requests wait.

/// Gets the file system, held until the end of the operation; or answers that the volume is closed,
/// and returns.
macro_rules! open {
    ($self:ident, $done:ident) => {
        match $self.fs() {
            Ok(fs) => fs,
            Err(e) => return $done(Err(e)),
        }
    };
}

mod atomic_writes;
mod bits;
mod copy;
mod freezing;
mod ioctls;
mod operations;

use crate::api::fakeroot::Ids;
use crate::api::inline_wait;
use crate::api::ops::{Invalidate, IoctlReply, Listing, OpenFile, Opened, is_dot};
use crate::helper::caller;
use crate::helper::{self, Order};
use crate::mount::loopdev::forget_content;
use crate::requests::atomic::{AtomicFiles, Expiry};
use crate::requests::guarded::{self, Means};
use crate::requests::held_back::HeldBack;
use crate::requests::opens::{Held, OpenFiles, Opens};
use crate::requests::readdirplus_hint::ReaddirplusHint;
use crate::requests::retry::RetryWhenFull;
use crate::requests::stale::Stale;
use crate::wire::negotiate::SessionOptions;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use stetfs::low::{
    Ctx, DirEntry, Done, FileType, Fs, FsError, Ino, OpenRef, Volume, VolumeOptions, Wait,
};

/// Number of checks, with a pause each, in which a remount waits for the kernel to forget files
/// without a name.
const FORGET_LOOKS: u32 = 50;
const FORGET_PAUSE: Duration = Duration::from_millis(2);

/// Options of a mount beyond those of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeFsOptions {
    /// Every file bypasses the kernel's page cache.
    pub direct_io: bool,
    /// The kernel delays written data (faster small writes, slower fsync), except for files with
    /// synchronous writes.
    pub writeback_cache: bool,
    /// The mount can be mapped to other ids (Linux 6.12): a caller's ids are then unrelated to the
    /// volume's.
    pub idmap: bool,
    /// The way of opening files.
    pub opens: Opens,
    /// Files can be written atomically (`requests/atomic`): each open for writing has a handle, and
    /// the kernel reports each close.
    pub atomic: bool,
    /// Time without a change after which an atomic write is aborted; `None` is unlimited.
    pub atomic_timeout: Option<Duration>,
    /// Extended attributes are neither shown nor changed, and ACLs are used only for new files. The
    /// kernel then requests no ACLs, and judges by mode bits alone.
    pub noxattr: bool,
    /// The user of the mount is root in the volume ([`Ids::fakeroot`]), and the kernel does not
    /// check permissions.
    pub fakeroot: bool,
}

impl VolumeFsOptions {
    /// Whether files that bypass the kernel's page cache can be mapped shared. It applies to the
    /// whole mount.
    pub(crate) fn maps_past_cache(&self) -> bool {
        self.direct_io || self.writeback_cache
    }

    /// Whether files are to be opened without a request: not with the other options, which need the
    /// answer to an open.
    pub(crate) fn stateless(&self) -> bool {
        let answers = self.direct_io || self.writeback_cache || self.atomic;
        self.opens == Opens::Stateless && !answers
    }

    /// The options for the negotiation with the kernel.
    pub(crate) fn session(&self, io_uring: bool) -> SessionOptions {
        SessionOptions {
            writeback_cache: self.writeback_cache,
            async_dio: self.direct_io,
            maps_past_cache: self.maps_past_cache(),
            io_uring,
            idmap: self.idmap,
            stateless: self.stateless(),
            noxattr: self.noxattr,
            fakeroot: self.fakeroot,
        }
    }
}

/// Entries read from a directory at a time; attributes are looked up with its lock released.
const LIST_BATCH: usize = 64;

/// The extended attribute with a program's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Answer where there are no extended attributes; the kernel does not ask again.
const NO_XATTR: FsError = FsError::Errno(libc::ENOSYS);

/// Answer to CREATE: the kernel creates and opens in two requests from now on.
const NO_CREATE: FsError = FsError::Errno(libc::ENOSYS);

/// Answer to FLUSH: a close has no effect, and the kernel does not report further ones.
const NO_FLUSH: FsError = FsError::Errno(libc::ENOSYS);

/// Answer after the volume is closed.
const CLOSED: FsError = FsError::Errno(libc::ESHUTDOWN);

/// A mounted volume.
pub struct VolumeFs {
    /// A reference to itself, for work that is done later.
    this: Weak<VolumeFs>,
    /// Held shared by every operation, from before it looks at `open` to its end; exclusively while
    /// the volume is reopened with other options, or closed for good.
    volume: RwLock<Option<Arc<Volume>>>,
    /// The error of closing it, if there was one.
    failed: Mutex<Option<FsError>>,
    open: OpenFiles,
    options: VolumeFsOptions,
    ids: Ids,
    kernel: OnceLock<Arc<dyn Invalidate>>,
    /// The thread that drops the kernel's pages.
    stale: OnceLock<Stale>,
    /// The loop device that shows the image while it is mounted.
    loop_device: OnceLock<PathBuf>,
    when_full: RetryWhenFull,
    /// Files that are written atomically.
    atomic: Arc<AtomicFiles>,
    /// The thread that aborts atomic writes after their time limit.
    expiry: OnceLock<Expiry>,
    /// The requests that wait while the volume is frozen.
    held_back: HeldBack<VolumeFs>,
    readdirplus_hint: ReaddirplusHint,
}

impl VolumeFs {
    /// A file system that serves `volume`.
    pub fn new(volume: Arc<Volume>, options: VolumeFsOptions) -> Arc<VolumeFs> {
        Arc::new_cyclic(|this| VolumeFs {
            this: Weak::clone(this),
            volume: RwLock::new(Some(volume)),
            failed: Mutex::new(None),
            open: OpenFiles::new(),
            options,
            ids: match options.fakeroot {
                true => Ids::fakeroot(),
                false => Ids::default(),
            },
            kernel: OnceLock::new(),
            stale: OnceLock::new(),
            loop_device: OnceLock::new(),
            when_full: RetryWhenFull::new(),
            atomic: Arc::default(),
            expiry: OnceLock::new(),
            held_back: HeldBack::default(),
            readdirplus_hint: ReaddirplusHint::default(),
        })
    }

    /// The currently open volume; `None` once it is closed.
    pub fn volume(&self) -> Option<Arc<Volume>> {
        self.volume.read().clone()
    }

    /// The result of closing the volume.
    ///
    /// # Errors
    /// The errors of [`Volume::close`].
    pub fn closed(&self) -> Result<(), FsError> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// Opens files without handles from now on, as the kernel will send no requests to open. Call
    /// it before the first one.
    pub(crate) fn open_without_handles(&self) {
        self.open.without_handles();
    }

    /// Closes the volume and reopens it with other options, while files stay open: a remount.
    /// Operations wait meanwhile.
    ///
    /// # Errors
    /// With these the volume goes on unchanged: EBUSY while it is frozen, while a file without a
    /// name is in use (closing would delete it, and its number could be reused), or while a file is
    /// written atomically; the findings of [`Volume::rehearse`], and errors of writing data back,
    /// before anything is closed; an error of opening, if the old options still work. Otherwise the
    /// volume is closed, and every operation fails: [`volume`](Self::volume) returns `None` then.
    pub fn reopen(&self, options: &VolumeOptions) -> Result<(), FsError> {
        // Changes that wait for a thaw would hold the volume; no other thread freezes it in this
        // turn.
        let _turn = self.held_back.turn();
        if self.frozen().is_some() {
            return Err(FsError::InUse("the volume is frozen".into()));
        }
        let mut open = self.without_nameless()?;
        if let Some(holder) = self.atomic.holders().first() {
            return Err(FsError::InUse(format!(
                "a file is being written atomically (inode {}, by process {})",
                holder.files.first().copied().unwrap_or_default(),
                holder.pid
            )));
        }
        let old = open.as_ref().ok_or(CLOSED)?;
        old.rehearse(&options.fs)?;
        // An error of writing data back must be reported here: closing would report it to no
        // program.
        old.fs().write_data_home()?;
        let failures = old.fs().kept_failures();
        let lookups = old.fs().lookups();
        let reopened = old.reopen(&options.fs);
        *open = None;
        let (new, refused) = reopened?;
        let fs = new.fs();
        fs.adopt_lookups(&lookups);
        fs.adopt_failures(failures);
        let once = libc::O_TRUNC | libc::O_CREAT | libc::O_EXCL;
        let files = self.open.handles().replace_all(|Held { file, direct }| {
            let again = fs.go_on_with(file.ino(), file.flags & !once)?;
            if let Some(e) = file.untold_failure() {
                again.adopt_failure(e);
            }
            Ok::<_, FsError>(Held {
                file: again,
                direct,
            })
        });
        if let Err(e) = files {
            // Programs with open files must not be given other files, or none.
            let closed = new.close();
            return closed.and(Err(e));
        }
        *open = Some(new);
        refused.map_or(Ok(()), Err)
    }

    /// Locks the volume exclusively, when it has no files without a name. The kernel forgets files
    /// that were just closed or deleted only after the call has returned.
    ///
    /// # Errors
    /// EBUSY when such a file is in use.
    fn without_nameless(&self) -> Result<RwLockWriteGuard<'_, Option<Arc<Volume>>>, FsError> {
        for _ in 0..FORGET_LOOKS {
            let open = self.volume.write();
            if !open.as_ref().ok_or(CLOSED)?.fs().has_nameless() {
                return Ok(open);
            }
            drop(open);
            std::thread::sleep(FORGET_PAUSE);
        }
        Err(FsError::Errno(libc::EBUSY))
    }

    /// Sets the receiver of notifications about changes that no answer reports.
    ///
    /// # Errors
    /// A thread for them could not be started.
    pub fn notify(&self, kernel: Arc<dyn Invalidate>) -> std::io::Result<()> {
        // Set once, when the session starts.
        let _ = self.stale.set(Stale::start(Arc::clone(&kernel))?);
        if let Some(limit) = self.options.atomic_timeout.filter(|_| self.options.atomic) {
            let (files, this) = (Arc::clone(&self.atomic), Weak::clone(&self.this));
            let _ = self.expiry.set(Expiry::start(files, limit, this)?);
        }
        let _ = self.kernel.set(kernel);
        Ok(())
    }

    /// The means for guarding files.
    fn means(&self) -> Means {
        let stateless = self.open.are_stateless();
        Means {
            stateless,
            refuses_maps: !stateless && !self.options.maps_past_cache(),
        }
    }

    /// Records that the loop device at `path` shows the volume.
    pub(crate) fn shown_on(&self, path: PathBuf) {
        // Set once, at the mount.
        let _ = self.loop_device.set(path);
    }

    /// Drops the kernel's cache of the loop device after a change of the label, so that blkid finds
    /// the new one.
    fn renamed(&self) {
        if let Some(device) = self.loop_device.get()
            && let Err(e) = match helper::ours() {
                Some(helper) => helper.order(Order::Forget),
                None => forget_content(device),
            }
        {
            tracing::warn!("{} may still show the old label: {e}", device.display());
        }
    }

    fn fs(&self) -> Result<MappedRwLockReadGuard<'_, Arc<Fs>>, FsError> {
        RwLockReadGuard::try_map(self.volume.read(), |volume| volume.as_ref().map(|v| v.fs()))
            .map_err(|_| CLOSED)
    }

    fn opened(&self, fs: &Fs, file: OpenRef) -> Opened {
        // The kernel does not know `chattr +S`, and would delay writes that must be durable at
        // once.
        let at_once = self.options.writeback_cache && fs.writes_synchronously(&file);
        let direct_io = self.options.direct_io || at_once || self.is_kept_from_pages(fs, &file);
        let tells_close = self.options.atomic && file.writable();
        Opened {
            fh: self.open.keep(file, direct_io),
            direct_io,
            tells_close,
        }
    }

    /// Whether a file that is being opened must bypass the kernel's pages. A program that may only
    /// append could store through a mapping, and a reader would see content that others store
    /// through mappings made before the file was guarded.
    fn is_kept_from_pages(&self, fs: &Fs, file: &OpenRef) -> bool {
        self.means().refuses_maps
            && fs.get_flags(file.ino()).unwrap_or(0) & guarded::GUARDS != 0
            && (guarded::can_be_mapped(file.flags) || self.open.is_mapped(file.ino()))
    }

    /// Whether the file was opened past the kernel's pages, while others may read it through them.
    fn is_past_pages(&self, file: OpenFile) -> bool {
        !self.options.maps_past_cache() && self.open.is_direct(file)
    }

    /// Drops the kernel's pages of a range.
    fn forget_content(&self, ino: Ino, offset: u64, len: usize) {
        if let Some(stale) = self.stale.get() {
            stale.forget(ino, offset, len);
        }
    }

    /// Before `done`, tells the kernel to request the attributes of every inode again: the volume
    /// is about to be shut down, and further opens must be refused.
    fn asks_again(&self, fs: &Fs, done: Done<IoctlReply>) -> Done<IoctlReply> {
        let Some(kernel) = self.kernel.get().cloned() else {
            return done;
        };
        let known = fs.lookups();
        Box::new(move |result| {
            for (ino, _) in known {
                kernel.attributes(ino);
            }
            done(result);
        })
    }

    fn attributes_changed(&self, ino: Ino) {
        if let Some(kernel) = self.kernel.get() {
            kernel.attributes(ino);
        }
    }

    /// Removes the capabilities of a program whose content is about to change, also when root
    /// changes it. Normally the kernel does that, but here it does not know of them.
    fn lose_capabilities(&self, fs: &Fs, ino: Ino) -> Result<(), FsError> {
        if !self.options.noxattr || fs.getxattr(ino, CAPABILITY).is_err() {
            return Ok(());
        }
        fs.removexattr(&Ctx::default(), ino, CAPABILITY)
    }

    /// Writes `data`, using the room that deleted files return. Answers the number of bytes
    /// written, fewer if the volume has no room for more.
    fn write_all(
        &self,
        fs: &Fs,
        ctx: &Ctx,
        file: &OpenRef,
        offset: u64,
        data: &[u8],
        kill: bool,
    ) -> Result<usize, FsError> {
        self.lose_capabilities(fs, file.ino())?;
        let mut written = 0;
        loop {
            let rest = data.get(written..).unwrap_or_default();
            let at = offset.saturating_add(written as u64);
            match self
                .when_full
                .retry(fs, || fs.write(ctx, file, at, rest, kill && written == 0))
            {
                Ok(n) if n > 0 && n < rest.len() => written += n,
                Ok(n) => return Ok(written + n),
                Err(e) if written == 0 => return Err(e),
                Err(_) => return Ok(written),
            }
        }
    }
}

/// Fills `list` from `cookie` on; returns the number of names. An error is reported only if nothing
/// was listed before it: otherwise the kernel requests the rest, and gets the error then.
fn fill(
    fs: &Fs,
    file: &OpenRef,
    mut cookie: u64,
    attrs: bool,
    list: &mut dyn Listing,
) -> Result<u32, FsError> {
    let dir = file.ino();
    let mut listed = 0;
    loop {
        let mut batch: Vec<DirEntry> = Vec::with_capacity(LIST_BATCH);
        let read = fs.readdir(file, cookie, &mut |entry| {
            batch.push(entry);
            batch.len() < LIST_BATCH
        });
        let last = batch.len() < LIST_BATCH;
        for entry in batch {
            cookie = entry.next;
            if !add(fs, dir, &entry, attrs, list) {
                return Ok(listed);
            }
            listed += 1;
        }
        match read {
            Err(e) if listed == 0 => return Err(e),
            Ok(()) if !last => {}
            _ => return Ok(listed),
        }
    }
}

/// Adds an entry of `dir` to `list`, with the attributes of its inode if requested. If these cannot
/// be read the entry is listed by its name alone, and a later lookup returns the error.
fn add(fs: &Fs, dir: Ino, entry: &DirEntry, attrs: bool, list: &mut dyn Listing) -> bool {
    let untold = |e: FsError| {
        tracing::warn!(
            dir,
            ino = entry.ino,
            "cannot read the attributes of a directory entry: {e}"
        );
    };
    if is_dot(&entry.name) {
        return list.add(entry, Some(FileType::Directory), None);
    }
    if !attrs {
        let kind = entry.kind.or_else(|| {
            let attr = fs.getattr(entry.ino).map_err(untold).ok()?;
            Some(attr.kind)
        });
        return list.add(entry, kind, None);
    }
    // The kernel holds the directory's lock: the name still leads to this inode.
    let attr = fs.lookup(dir, &entry.name).map_err(untold).ok();
    let kind = attr.as_ref().map(|a| a.kind).or(entry.kind);
    let added = list.add(entry, kind, attr.as_ref());
    if let (false, Some(attr)) = (added, attr) {
        fs.forget(attr.ino, 1);
    }
    added
}

/// The names in a list of extended attributes that `ctx` may see: `trusted.*` is for
/// administrators.
fn visible(ctx: &Ctx, names: Vec<u8>) -> Vec<u8> {
    let is_trusted = |name: &[u8]| name.starts_with(b"trusted.");
    let each = || names.split_inclusive(|b| *b == 0);
    if !each().any(is_trusted) || caller::is_admin(ctx) {
        return names;
    }
    each()
        .filter(|name| !is_trusted(name))
        .flatten()
        .copied()
        .collect()
}

/// Makes a file durable, in this thread if that may wait.
fn sync(fs: &Fs, file: &OpenRef, datasync: bool, done: Done) {
    let wait = if inline_wait::may_wait() {
        Wait::Inline
    } else {
        Wait::Deferred
    };
    fs.fsync(file, datasync, wait, done);
}
