//! The border to SQLite: a VFS of C functions over [`Store`]. All `unsafe` code of the example is
//! here.
//!
//! SQLite passes these arguments, by its documentation of `sqlite3_vfs` and `sqlite3_io_methods`:
//! 1. The VFS that was registered; here it is never freed.
//! 2. A `sqlite3_file` with `szOsFile` bytes, which `xOpen` fills and which belongs to one
//!    connection: there are no two calls with it at the same time, and none after `xClose`.
//! 3. Names that end with NUL, and buffers of the stated length.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::ffi;

use crate::store::{Answer, Opened, Store};

/// Length of the longest path with its NUL, bytes.
const MAX_PATH: c_int = 4096;

/// The file as SQLite sees it: it uses the first field, and leaves the rest alone.
#[repr(C)]
struct Shell {
    base: ffi::sqlite3_file,
    /// From `Box::into_raw`; null if no file is open.
    opened: *mut Opened,
}

/// The store of a VFS; `None` once the VFS is unregistered.
type Served = Mutex<Option<Arc<Store>>>;

/// A registered VFS; unregistered when dropped. Open databases stay open.
pub(crate) struct Registered {
    vfs: *mut ffi::sqlite3_vfs,
    served: &'static Served,
}

/// Gives SQLite access to the files of `store` through the VFS `name`.
pub(crate) fn register(
    name: &str,
    store: Arc<Store>,
) -> Result<Registered, Box<dyn std::error::Error>> {
    // All of it lives as long as the program: connections may outlive the registration.
    let name: &'static CStr = Box::leak(CString::new(name)?.into_boxed_c_str());
    let served: &'static Served = Box::leak(Box::new(Mutex::new(Some(store))));
    let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: c_int::try_from(size_of::<Shell>())?,
        mxPathname: MAX_PATH,
        pNext: std::ptr::null_mut(),
        zName: name.as_ptr(),
        pAppData: std::ptr::from_ref(served).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_path),
        xDlOpen: Some(no_library),
        xDlError: Some(no_error),
        xDlSym: Some(no_symbol),
        xDlClose: Some(no_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(time),
        xGetLastError: Some(no_last_error),
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: the VFS and everything that it points to is never freed.
    match unsafe { ffi::sqlite3_vfs_register(vfs, 0) } {
        ffi::SQLITE_OK => Ok(Registered { vfs, served }),
        code => Err(format!("SQLite does not take the VFS: {code}").into()),
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was registered, and is never freed.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs) };
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// # Safety
/// `vfs` was registered by [`register`].
unsafe fn store_of(vfs: *mut ffi::sqlite3_vfs) -> Answer<Arc<Store>> {
    // SAFETY: `register` put a `Served` there, which lives as long as the program.
    let served: &Served = unsafe { &*(*vfs).pAppData.cast::<Served>() };
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    served.clone().ok_or(ffi::SQLITE_CANTOPEN)
}

/// # Safety
/// `name` ends with NUL, and outlives the result.
unsafe fn path_of<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: the promise of the caller.
    Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(name) }.to_bytes(),
    ))
}

/// # Safety
/// `file` was opened by [`open`] and is not closed; it is used only here meanwhile.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Opened {
    // SAFETY: the promise of the caller; `open` put a box there whenever it set the file's methods.
    unsafe { &mut *(*file.cast::<Shell>()).opened }
}

fn code(answer: Answer<()>) -> c_int {
    answer.err().unwrap_or(ffi::SQLITE_OK)
}

fn place(offset: ffi::sqlite3_int64) -> Answer<u64> {
    u64::try_from(offset).map_err(|_| ffi::SQLITE_MISUSE)
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let shell = file.cast::<Shell>();
    // SAFETY: SQLite provides room for a `Shell` (2).
    unsafe {
        shell.write(Shell {
            base: ffi::sqlite3_file {
                pMethods: std::ptr::null(),
            },
            opened: std::ptr::null_mut(),
        });
    }
    let path = match name.is_null() {
        true => None,
        // SAFETY: (3).
        false => Some(unsafe { path_of(name) }.to_owned()),
    };
    // SAFETY: (1).
    let made = unsafe { store_of(vfs) }.and_then(|store| store.open(path, flags));
    match made {
        Ok(made) => {
            // SAFETY: as above; `out_flags` is null or an int.
            unsafe {
                (*shell).opened = Box::into_raw(Box::new(made));
                (*shell).base.pMethods = &raw const METHODS;
                if let Some(out) = out_flags.as_mut() {
                    *out = flags;
                }
            }
            ffi::SQLITE_OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let shell = file.cast::<Shell>();
    // SAFETY: (2): it was opened, and this is the last use of it.
    drop(unsafe { Box::from_raw((*shell).opened) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    len: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: (3); the bytes may be uninitialised, so they are zeroed first.
    let buf = unsafe {
        to.cast::<u8>().write_bytes(0, len);
        std::slice::from_raw_parts_mut(to.cast::<u8>(), len)
    };
    // SAFETY: (2).
    let file = unsafe { opened(file) };
    code(place(offset).and_then(|at| file.read(buf, at)))
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let len = usize::try_from(len).unwrap_or(0);
    // SAFETY: (3).
    let buf = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) };
    // SAFETY: (2).
    let file = unsafe { opened(file) };
    code(place(offset).and_then(|at| file.write(buf, at)))
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: (2).
    let file = unsafe { opened(file) };
    code(place(size).and_then(|size| file.truncate(size)))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: (2).
    code(unsafe { opened(file) }.sync())
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: (2).
    let size = unsafe { opened(file) }.size();
    code(size.and_then(|size| {
        let size = i64::try_from(size).map_err(|_| ffi::SQLITE_IOERR_FSTAT)?;
        // SAFETY: SQLite provides a place for it.
        unsafe { *out = size };
        Ok(())
    }))
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: (2).
    code(unsafe { opened(file) }.lock(level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: (2).
    unsafe { opened(file) }.unlock(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn is_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: (2); SQLite provides a place for the answer.
    unsafe { *out = opened(file).is_reserved().into() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(
    file: *mut ffi::sqlite3_file,
    what: c_int,
    _argument: *mut c_void,
) -> c_int {
    // SAFETY: (2).
    code(unsafe { opened(file) }.control(what))
}

unsafe extern "C" fn sector(_file: *mut ffi::sqlite3_file) -> c_int {
    // The usual size.
    4096
}

unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: (2).
    unsafe { opened(file) }.characteristics()
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: (1), (3).
    let (store, path) = unsafe { (store_of(vfs), path_of(name)) };
    code(store.and_then(|store| store.delete(path, sync != 0)))
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: (1), (3).
    let (store, path) = unsafe { (store_of(vfs), path_of(name)) };
    code(store.and_then(|store| {
        let exists = store.exists(path)?;
        // SAFETY: SQLite provides a place for the answer.
        unsafe { *out = exists.into() };
        Ok(())
    }))
}

unsafe extern "C" fn full_path(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: (3).
    let path = PathBuf::from("/").join(unsafe { path_of(name) });
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= usize::try_from(room).unwrap_or(0) {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: there is room for the path and its NUL.
    unsafe {
        out.cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        *out.add(bytes.len()) = 0;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(
    _vfs: *mut ffi::sqlite3_vfs,
    len: c_int,
    out: *mut c_char,
) -> c_int {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    fastrand::Rng::new().fill(&mut bytes);
    // SAFETY: (3).
    unsafe {
        out.cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    len
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
    micros
}

/// The Julian day of 1970.
const EPOCH: f64 = 2_440_587.5;

unsafe extern "C" fn time(_vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // SAFETY: SQLite provides a place for it.
    unsafe { *out = EPOCH + now.as_secs_f64() / 86_400.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn no_library(_vfs: *mut ffi::sqlite3_vfs, _name: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn no_error(_vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) {
    if len > 0 {
        // SAFETY: (3).
        unsafe { *out = 0 };
    }
}

/// The result of `xDlSym`.
type Symbol = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char);

unsafe extern "C" fn no_symbol(
    _vfs: *mut ffi::sqlite3_vfs,
    _library: *mut c_void,
    _name: *const c_char,
) -> Option<Symbol> {
    None
}

unsafe extern "C" fn no_close(_vfs: *mut ffi::sqlite3_vfs, _library: *mut c_void) {}

unsafe extern "C" fn no_last_error(
    _vfs: *mut ffi::sqlite3_vfs,
    _len: c_int,
    _out: *mut c_char,
) -> c_int {
    0
}
