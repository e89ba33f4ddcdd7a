//! A file system that says that it has atomic writes, and has none: what SQLite asks for is
//! answered here, and never sent.

use std::ffi::{c_int, c_ulong};
use std::ptr::null;

use rusqlite::ffi::{SQLITE_OK, sqlite3_vfs_find};

const FEATURES: c_ulong = 0x8004_f50c;

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut u32) -> c_int;

/// In the place of ioctl(2). That takes more arguments as they come; here they come in registers
/// all the same.
unsafe extern "C" fn says_yes(_: c_int, request: c_ulong, answer: *mut u32) -> c_int {
    if request == FEATURES {
        // SAFETY: SQLite gives the address of an int with this request.
        unsafe { answer.write(4) };
    }
    0
}

/// From now on no request of this process's SQLite for an atomic write does anything.
pub(crate) fn atomic_writes() {
    // SAFETY: the default VFS is there for good, and its functions may be called by anybody. SQLite
    // calls what replaces ioctl(2) as it would that, with these three arguments.
    let set = unsafe {
        let vfs = sqlite3_vfs_find(null());
        let replace = (*vfs).xSetSystemCall.unwrap();
        let function = std::mem::transmute::<Ioctl, unsafe extern "C" fn()>(says_yes);
        replace(vfs, c"ioctl".as_ptr(), Some(function))
    };
    assert_eq!(set, SQLITE_OK, "this SQLite has no atomic writes");
}
