//! A volume as a [`FileSystem`](crate::FileSystem): what a mount keeps beside the volume.
//! `operations` answers requests; `atomic_writes`, `copy` and `ioctls` are parts of that, and
//! `freezing` has them wait.

/// The file system, held until the end of the operation; or the answer that the volume is closed,
/// and return.
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

use crate::atomic::{AtomicFiles, Expiry};
use crate::fakeroot::Ids;
use crate::guarded::{self, Means};
use crate::held_back::HeldBack;
use crate::helper::{self, Order};
use crate::loopdev::forget_content;
use crate::opens::{Held, OpenFiles, Opens};
use crate::ops::{Invalidate, IoctlReply, Listing, OpenFile, Opened, is_dot};
use crate::room::Room;
use crate::stale::Stale;
use crate::walkers::Walkers;
use crate::{caller, inline_wait};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use stetfs::low::{
    Ctx, DirEntry, Done, FileType, Fs, FsError, Ino, OpenRef, Volume, VolumeOptions, Wait,
};

/// How long a remount waits for the kernel to forget files without a name: so many times this.
const FORGET_LOOKS: u32 = 50;
const FORGET_PAUSE: Duration = Duration::from_millis(2);

/// How a volume is mounted, beyond what the volume itself needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeFsOptions {
    /// Every file passes the kernel's page cache by.
    pub direct_io: bool,
    /// The kernel keeps written data back (faster small writes, dearer fsync), but of files that
    /// are to be durable at once.
    pub writeback_cache: bool,
    /// The mount can be mapped to other ids (Linux 6.12): what ids a caller has then says nothing
    /// of the volume's.
    pub idmap: bool,
    /// How files are opened.
    pub opens: Opens,
    /// Files can be written atomically (`atomic.rs`): each open for writing has a handle, and its
    /// closes are told.
    pub atomic: bool,
    /// How long a file that is written atomically may be without a change until that is aborted;
    /// `None`: for ever.
    pub atomic_timeout: Option<Duration>,
    /// Extended attributes are neither shown nor changed, and ACLs only heeded where something is
    /// made; the kernel then asks for none, and judges by mode bits alone.
    pub noxattr: bool,
    /// Who uses the mount is root in the volume ([`Ids::fakeroot`]), and the kernel does not judge.
    pub fakeroot: bool,
}

impl VolumeFsOptions {
    /// Whether files that pass the kernel's page cache by can be mapped shared. That holds for all
    /// of a mount.
    pub(crate) fn maps_past_cache(&self) -> bool {
        self.direct_io || self.writeback_cache
    }

    /// Whether files are to be opened without asking: with none of the others, which have something
    /// to answer.
    pub(crate) fn stateless(&self) -> bool {
        let answers = self.direct_io || self.writeback_cache || self.atomic;
        self.opens == Opens::Stateless && !answers
    }
}

/// Entries taken from a directory at a time; attributes are looked up with its lock released.
const LIST_BATCH: usize = 64;

/// What gives a program capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Of extended attributes there are none here; the kernel does not ask again.
const NO_XATTR: FsError = FsError::Errno(libc::ENOSYS);

/// Files are made and opened one after the other; the kernel asks no more.
const NO_CREATE: FsError = FsError::Errno(libc::ENOSYS);

/// Nothing is done at a close; the kernel does not tell of another.
const NO_FLUSH: FsError = FsError::Errno(libc::ENOSYS);

/// The volume is closed.
const CLOSED: FsError = FsError::Errno(libc::ESHUTDOWN);

/// A volume, mounted.
pub struct VolumeFs {
    /// Itself, for what is done later.
    this: Weak<VolumeFs>,
    /// Held shared by every operation, from before it looks at `open` to its end; exclusively
    /// while the volume is opened again with other options, or closed for good.
    volume: RwLock<Option<Arc<Volume>>>,
    /// Why it was not closed clean.
    failed: Mutex<Option<FsError>>,
    open: OpenFiles,
    options: VolumeFsOptions,
    ids: Ids,
    kernel: OnceLock<Arc<dyn Invalidate>>,
    /// What drops pages of the kernel's.
    stale: OnceLock<Stale>,
    /// The loop device that shows the image while it is mounted.
    loop_device: OnceLock<PathBuf>,
    room: Room,
    /// Files that are written atomically.
    atomic: Arc<AtomicFiles>,
    /// The thread that aborts atomic writes whose time is over.
    expiry: OnceLock<Expiry>,
    /// What waits while the volume is frozen.
    held_back: HeldBack<VolumeFs>,
    walkers: Walkers,
}

impl VolumeFs {
    /// Serves `volume`.
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
            room: Room::new(),
            atomic: Arc::default(),
            expiry: OnceLock::new(),
            held_back: HeldBack::default(),
            walkers: Walkers::default(),
        })
    }

    /// The volume, as it is open now; `None` once it is closed.
    pub fn volume(&self) -> Option<Arc<Volume>> {
        self.volume.read().clone()
    }

    /// How closing the volume went.
    ///
    /// # Errors
    /// What [`Volume::close`] said.
    pub fn closed(&self) -> Result<(), FsError> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// The kernel opens files without asking from now on: they get no handles. To be said before it
    /// does.
    pub(crate) fn open_without_handles(&self) {
        self.open.without_handles();
    }

    /// Closes the volume and opens it again with other options, while files stay open: what a
    /// remount is. Operations wait meanwhile.
    ///
    /// # Errors
    /// The volume goes on as it was: EBUSY while a file without a name is in use (closing would
    /// delete it, and its number could be that of another), and while one is written atomically;
    /// what [`Volume::rehearse`] finds, before anything is closed; why it could not be opened,
    /// where only that told. Or it is closed, and every operation fails: [`volume`](Self::volume)
    /// gives none then.
    pub fn reopen(&self, options: &VolumeOptions) -> Result<(), FsError> {
        // Changes that wait for a thaw would have the volume, and nobody freezes it in this turn.
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
        // Closing would tell nobody of data that cannot be written.
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
            // A program that has a file open is not to be given another, nor none.
            let closed = new.close();
            return closed.and(Err(e));
        }
        *open = Some(new);
        refused.map_or(Ok(()), Err)
    }

    /// The volume to oneself, when it has no files without a name. What was closed or deleted just
    /// now the kernel forgets after the call has returned.
    ///
    /// # Errors
    /// EBUSY when somebody uses one.
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

    /// Whom to tell about changes that no answer tells of.
    ///
    /// # Errors
    /// There can be no thread for it.
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

    /// What can be said of guarded files.
    fn means(&self) -> Means {
        let stateless = self.open.are_stateless();
        Means {
            stateless,
            refuses_maps: !stateless && !self.options.maps_past_cache(),
        }
    }

    /// The loop device at `path` shows the volume.
    pub(crate) fn shown_on(&self, path: PathBuf) {
        // Set once, when it is mounted.
        let _ = self.loop_device.set(path);
    }

    /// The volume has another name: who looks for it on the loop device is to find that (blkid).
    fn renamed(&self) {
        if let Some(device) = self.loop_device.get()
            && let Err(e) = match helper::ours() {
                Some(helper) => helper.order(Order::Forget),
                None => forget_content(device),
            }
        {
            tracing::warn!("{} shows an old name: {e}", device.display());
        }
    }

    fn fs(&self) -> Result<MappedRwLockReadGuard<'_, Arc<Fs>>, FsError> {
        RwLockReadGuard::try_map(self.volume.read(), |volume| volume.as_ref().map(|v| v.fs()))
            .map_err(|_| CLOSED)
    }

    fn opened(&self, fs: &Fs, file: OpenRef) -> Opened {
        // The kernel knows nothing of `chattr +S`, and would hold back what is to be durable.
        let at_once = self.options.writeback_cache && fs.writes_synchronously(&file);
        let direct_io = self.options.direct_io || at_once || self.is_kept_from_pages(fs, &file);
        let tells_close = self.options.atomic && file.writable();
        Opened {
            fh: self.open.keep(file, direct_io),
            direct_io,
            tells_close,
        }
    }

    /// Whether a file that is being opened has nothing to do with the kernel's pages: who may
    /// append to it could map it, and who reads would see what others store who have mapped it
    /// since before it was guarded.
    fn is_kept_from_pages(&self, fs: &Fs, file: &OpenRef) -> bool {
        self.means().refuses_maps
            && fs.get_flags(file.ino()).unwrap_or(0) & guarded::GUARDS != 0
            && (guarded::can_be_mapped(file.flags) || self.open.is_mapped(file.ino()))
    }

    /// Whether the file was opened past the kernel's pages, while others may read it through them.
    fn is_past_pages(&self, file: OpenFile) -> bool {
        !self.options.maps_past_cache() && self.open.is_direct(file)
    }

    /// The kernel is to show nothing of what it has in its pages there.
    fn forget_content(&self, ino: Ino, offset: u64, len: usize) {
        if let Some(stale) = self.stale.get() {
            stale.forget(ino, offset, len);
        }
    }

    /// Before `done`, the kernel is told to ask again for what it knows of every inode: the volume
    /// is about to be shut down, and who opens a file then is to be refused.
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

    /// Takes the capabilities of a program whose content is about to change, also where root
    /// changes it. Else the kernel sees to that, but here it does not know of them.
    fn lose_capabilities(&self, fs: &Fs, ino: Ino) -> Result<(), FsError> {
        if !self.options.noxattr || fs.getxattr(ino, CAPABILITY).is_err() {
            return Ok(());
        }
        fs.removexattr(&Ctx::default(), ino, CAPABILITY)
    }

    /// Writes `data`, with the room that deleted files give back. Answers the bytes written, fewer
    /// if the volume has no room for more.
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
                .room
                .find(fs, || fs.write(ctx, file, at, rest, kill && written == 0))
            {
                Ok(n) if n > 0 && n < rest.len() => written += n,
                Ok(n) => return Ok(written + n),
                Err(e) if written == 0 => return Err(e),
                Err(_) => return Ok(written),
            }
        }
    }
}

/// Fills `list` from `cookie` on; with how many names. An error is told only where nothing was
/// listed before it: else the kernel comes back for what follows, and meets it then.
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

/// Adds an entry of `dir` to `list`, with the attributes of what it names if they are asked for.
/// What cannot be looked at is listed by its name alone: who asks for it then is told why.
fn add(fs: &Fs, dir: Ino, entry: &DirEntry, attrs: bool, list: &mut dyn Listing) -> bool {
    let untold = |e: FsError| {
        tracing::warn!(dir, ino = entry.ino, "an entry without attributes: {e}");
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

/// The names that `ctx` may see of a list of extended attributes: `trusted.*` is the
/// administrator's.
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
