//! The file operations that SQLite needs, on a volume. Error codes are SQLite's.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::ffi;
use stetfs::{AtomicGroup, File, Volume};

/// A volume for databases.
pub(crate) struct Store {
    volume: Volume,
    /// The locks on each database. Processes outside cannot open the volume.
    locks: Mutex<HashMap<PathBuf, Held>>,
    temporary: AtomicU64,
    /// Number of transactions committed without a journal file.
    pub(crate) batches: AtomicU64,
}

/// The locks of all connections on one file (<https://sqlite.org/lockingv3.html>).
#[derive(Default)]
struct Held {
    shared: usize,
    /// A connection has RESERVED, PENDING or EXCLUSIVE.
    writer: bool,
    /// The writer lets no new readers in.
    pending: bool,
}

/// The result for SQLite.
pub(crate) type Answer<T> = Result<T, c_int>;

impl Store {
    pub(crate) fn new(volume: Volume) -> Store {
        Store {
            volume,
            locks: Mutex::default(),
            temporary: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// Opens a file. A file without a path is temporary: it is private, and removed when it is
    /// closed.
    pub(crate) fn open(self: &Arc<Self>, path: Option<PathBuf>, flags: c_int) -> Answer<Opened> {
        let number = || self.temporary.fetch_add(1, Ordering::Relaxed);
        let goes = path.is_none() || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        let path = path.unwrap_or_else(|| format!("/.sqlite-{}", number()).into());
        let writes = flags & ffi::SQLITE_OPEN_READONLY == 0;
        let mut options = File::options();
        options.read(true).write(writes);
        options.create(flags & ffi::SQLITE_OPEN_CREATE != 0);
        if flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0 {
            options.create_new(true);
        }
        let open = options.open(&self.volume, &path);
        let file = open.map_err(|_| ffi::SQLITE_CANTOPEN)?;
        if goes {
            // It exists as long as it is open.
            let removed = self.volume.remove_file(&path);
            removed.map_err(|_| ffi::SQLITE_CANTOPEN)?;
        }
        let is_main = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
        Ok(Opened {
            // Without data journaling there are no groups.
            batches: is_main && writes && self.volume.atomic_group([&path]).is_ok(),
            store: Arc::clone(self),
            path,
            file,
            level: ffi::SQLITE_LOCK_NONE,
            group: None,
        })
    }

    /// Removes a file; durably with `sync`.
    pub(crate) fn delete(&self, path: &Path, sync: bool) -> Answer<()> {
        match self.volume.remove_file(path) {
            Ok(()) if sync => self
                .volume
                .sync_all()
                .map_err(|_| ffi::SQLITE_IOERR_DIR_FSYNC),
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(ffi::SQLITE_IOERR_DELETE_NOENT),
            Err(_) => Err(ffi::SQLITE_IOERR_DELETE),
        }
    }

    /// Whether there is such a file.
    pub(crate) fn exists(&self, path: &Path) -> Answer<bool> {
        match self.volume.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(_) => Err(ffi::SQLITE_IOERR_ACCESS),
        }
    }
}

/// An open file.
pub(crate) struct Opened {
    store: Arc<Store>,
    path: PathBuf,
    file: File,
    /// The lock that it holds (`SQLITE_LOCK_*`).
    level: c_int,
    /// The volume can commit a transaction atomically.
    batches: bool,
    /// The transaction being written, in that case.
    group: Option<AtomicGroup>,
}

impl Opened {
    /// Fills `buf`; bytes beyond the end of the file are zero, and reported.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> Answer<()> {
        let mut done = 0;
        while done < buf.len() {
            let (rest, at) = (&mut buf[done..], offset + done as u64);
            let read = match &self.group {
                Some(group) => group
                    .file(&self.path)
                    .map_err(io::Error::from)
                    .and_then(|f| f.read_at(rest, at)),
                None => self.file.read_at(rest, at).map_err(io::Error::from),
            };
            match read {
                Ok(0) => {
                    rest.fill(0);
                    return Err(ffi::SQLITE_IOERR_SHORT_READ);
                }
                Ok(n) => done += n,
                Err(_) => return Err(ffi::SQLITE_IOERR_READ),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, buf: &[u8], offset: u64) -> Answer<()> {
        let written = match &self.group {
            Some(group) => group
                .file(&self.path)
                .map_err(io::Error::from)
                .and_then(|f| f.write_all_at(buf, offset)),
            None => self.file.write_all_at(buf, offset).map_err(io::Error::from),
        };
        written.map_err(|e| match e.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ffi::SQLITE_FULL,
            _ => ffi::SQLITE_IOERR_WRITE,
        })
    }

    pub(crate) fn truncate(&self, size: u64) -> Answer<()> {
        let cut = match &self.group {
            Some(group) => group.file(&self.path).and_then(|f| f.set_len(size)),
            None => self.file.set_len(size),
        };
        cut.map_err(|_| ffi::SQLITE_IOERR_TRUNCATE)
    }

    pub(crate) fn sync(&self) -> Answer<()> {
        // In a group only the commit counts, which is durable.
        match self.group {
            Some(_) => Ok(()),
            None => self.file.sync_all().map_err(|_| ffi::SQLITE_IOERR_FSYNC),
        }
    }

    pub(crate) fn size(&self) -> Answer<u64> {
        let size = match &self.group {
            Some(group) => group.file(&self.path).and_then(|f| f.len()),
            None => self.file.metadata().map(|m| m.len()),
        };
        size.map_err(|_| ffi::SQLITE_IOERR_FSTAT)
    }

    /// The guarantees that SQLite may rely on.
    pub(crate) fn characteristics(&self) -> c_int {
        match self.batches {
            true => ffi::SQLITE_IOCAP_BATCH_ATOMIC | ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE,
            false => ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE,
        }
    }

    /// Handles the file controls of atomic writes.
    pub(crate) fn control(&mut self, what: c_int) -> Answer<()> {
        match what {
            ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE if self.batches => {
                let group = self.store.volume.atomic_group([&self.path]);
                self.group = Some(group.map_err(|_| ffi::SQLITE_IOERR_BEGIN_ATOMIC)?);
                Ok(())
            }
            ffi::SQLITE_FCNTL_COMMIT_ATOMIC_WRITE => {
                let group = self.group.take().ok_or(ffi::SQLITE_ERROR)?;
                let committed = group.commit();
                committed.map_err(|_| ffi::SQLITE_IOERR_COMMIT_ATOMIC)?;
                self.store.batches.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE => {
                self.group = None;
                Ok(())
            }
            _ => Err(ffi::SQLITE_NOTFOUND),
        }
    }

    pub(crate) fn lock(&mut self, level: c_int) -> Answer<()> {
        let mut all = self
            .store
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let held = all.entry(self.path.clone()).or_default();
        let is_writer = self.level >= ffi::SQLITE_LOCK_RESERVED;
        if level <= self.level {
            return Ok(());
        }
        match level {
            ffi::SQLITE_LOCK_SHARED if held.pending => return Err(ffi::SQLITE_BUSY),
            ffi::SQLITE_LOCK_SHARED => held.shared += 1,
            _ if held.writer && !is_writer => return Err(ffi::SQLITE_BUSY),
            ffi::SQLITE_LOCK_RESERVED => held.writer = true,
            _ => {
                (held.writer, held.pending) = (true, true);
                if held.shared > 1 {
                    self.level = ffi::SQLITE_LOCK_PENDING;
                    return Err(ffi::SQLITE_BUSY);
                }
            }
        }
        self.level = level;
        Ok(())
    }

    pub(crate) fn unlock(&mut self, level: c_int) {
        let mut all = self
            .store
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let held = all.entry(self.path.clone()).or_default();
        if self.level >= ffi::SQLITE_LOCK_RESERVED && level < ffi::SQLITE_LOCK_RESERVED {
            (held.writer, held.pending) = (false, false);
        }
        if self.level >= ffi::SQLITE_LOCK_SHARED && level < ffi::SQLITE_LOCK_SHARED {
            held.shared -= 1;
        }
        self.level = self.level.min(level);
    }

    /// Whether a connection is about to write.
    pub(crate) fn is_reserved(&self) -> bool {
        let all = self
            .store
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.get(&self.path).is_some_and(|held| held.writer)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.unlock(ffi::SQLITE_LOCK_NONE);
    }
}
