//! Return values of the C functions, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error: an errno and a message.
pub(crate) struct Failed {
    errno: c_int,
    text: String,
}

/// The result of an operation.
pub(crate) type Result<T = ()> = std::result::Result<T, Failed>;

impl Failed {
    /// The error for an invalid argument (EINVAL).
    pub(crate) fn argument(text: impl Into<String>) -> Failed {
        Failed {
            errno: libc::EINVAL,
            text: text.into(),
        }
    }

    /// The error for a handle that a panic left half changed (ENOTRECOVERABLE).
    pub(crate) fn broken(text: impl Into<String>) -> Failed {
        Failed {
            errno: libc::ENOTRECOVERABLE,
            text: text.into(),
        }
    }
}

impl From<stetfs::Error> for Failed {
    fn from(e: stetfs::Error) -> Failed {
        Failed {
            errno: e.raw_os_error().unwrap_or(libc::EIO),
            text: e.to_string(),
        }
    }
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Failed {
        let ours = e.get_ref().and_then(|e| e.downcast_ref::<stetfs::Error>());
        let errno = match ours {
            Some(ours) => ours.raw_os_error(),
            None => e.raw_os_error(),
        };
        Failed {
            errno: errno.unwrap_or(libc::EIO),
            text: e.to_string(),
        }
    }
}

/// Checks that an argument is not NULL.
pub(crate) fn given<T>(argument: Option<T>, name: &str) -> Result<T> {
    argument.ok_or_else(|| Failed::argument(format!("{name} is NULL, or no text or buffer")))
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn note(text: &str) {
    let text: String = text.chars().filter(|c| *c != '\0').collect();
    LAST.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// Runs `op`; returns its count, or a negative errno. A panic becomes `-ENOTRECOVERABLE`.
pub(crate) fn counted(op: impl FnOnce() -> Result<i64>) -> i64 {
    // State that a panic leaves half changed is behind poisoned locks.
    match catch_unwind(AssertUnwindSafe(op)) {
        Ok(Ok(n)) => n,
        Ok(Err(Failed { errno, text })) => {
            note(&text);
            -i64::from(errno)
        }
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            note(&format!(
                "a defect of StetFS: {}",
                said.unwrap_or("a panic")
            ));
            // Dropping the panic's payload could panic again.
            std::mem::forget(panic);
            -i64::from(libc::ENOTRECOVERABLE)
        }
    }
}

/// Runs `op`; returns 0, or a negative errno.
pub(crate) fn done(op: impl FnOnce() -> Result) -> c_int {
    c_int::try_from(counted(|| op().map(|()| 0))).unwrap_or(-libc::EIO)
}

/// The message of this thread's last failed function; valid until the next failure. Empty if none
/// failed.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// The version: a static text.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The last error's message.
#[cfg(test)]
pub(crate) fn last() -> String {
    LAST.with(|last| last.borrow().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_number_and_a_text() {
        let answer = done(|| panic!("no {}", "good"));
        assert_eq!(answer, -libc::ENOTRECOVERABLE);
        assert_eq!(last(), "a defect of StetFS: no good");
        assert_eq!(counted(|| Ok(7)), 7);
    }
}
