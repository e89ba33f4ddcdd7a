//! A file system that claims to have atomic writes, and has none: SQLite's requests are answered in
//! this process, and never sent.

use std::ffi::{c_int, c_ulong};
use std::ptr::null;

use rusqlite::ffi::{SQLITE_OK, sqlite3_vfs_find};

const FEATURES: c_ulong = 0x8004_f50c;

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut u32) -> c_int;

/// The replacement of ioctl(2). ioctl(2) is variadic; its arguments arrive in registers all the
/// same.
unsafe extern "C" fn says_yes(_: c_int, request: c_ulong, answer: *mut u32) -> c_int {
    if request == FEATURES {
        // SAFETY: SQLite passes the address of an int with this request.
        unsafe { answer.write(4) };
    }
    0
}

/// From now on SQLite's requests for atomic writes have no effect in this process.
pub(crate) fn atomic_writes() {
    // SAFETY: the default VFS exists for the whole process, and its functions may be called at any
    // time. SQLite calls the replacement like ioctl(2), with these three arguments.
    let set = unsafe {
        let vfs = sqlite3_vfs_find(null());
        let replace = (*vfs).xSetSystemCall.unwrap();
        let function = std::mem::transmute::<Ioctl, unsafe extern "C" fn()>(says_yes);
        replace(vfs, c"ioctl".as_ptr(), Some(function))
    };
    assert_eq!(set, SQLITE_OK, "this SQLite has no atomic writes");
}
