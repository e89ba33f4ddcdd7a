//! Texts and buffers of C: the only module that trusts pointers. The contract is in `stetfs.h`: a
//! text ends with a NUL, a buffer has the given length, and both stay unchanged until the call
//! returns.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A text, or NULL. Only C creates one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    fn bytes(&self) -> Option<&[u8]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not NULL, and C promises a text that ends with a NUL and stays until the
        // call returns; the borrow ends with the argument.
        Some(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// As a path; `None` for NULL.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.bytes()
            .map(|bytes| Path::new(OsStr::from_bytes(bytes)))
    }

    /// The text as UTF-8; NULL is empty. `None` if it is not UTF-8.
    pub(crate) fn utf8(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes().unwrap_or_default()).ok()
    }
}

/// `count` items; `None` for NULL with a count, and for a count beyond any memory.
///
/// # Safety
/// Unless `first` is NULL, it points to `count` items that do not change while they are borrowed.
unsafe fn items<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>());
    let is_possible = bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if first.is_null() || !is_possible {
        return None;
    }
    // SAFETY: it is not NULL, and the caller promises the items.
    Some(unsafe { std::slice::from_raw_parts(first, count) })
}

/// An array of texts, or NULL with a count of 0. Only C creates one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Texts(*const Text);

impl Texts {
    /// `count` texts; `None` for NULL with a count, and for a count beyond any memory.
    pub(crate) fn of(&self, count: usize) -> Option<&[Text]> {
        // SAFETY: C promises `count` pointers, each NULL or a text, that do not change until the
        // call returns. A text is represented as a pointer.
        unsafe { items(self.0, count) }
    }
}

/// Bytes to be read, or NULL with a length of 0. Only C creates one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    /// `len` bytes; `None` for NULL with a length, and for a length beyond any memory.
    pub(crate) fn of(&self, len: usize) -> Option<&[u8]> {
        // SAFETY: C promises `len` bytes that do not change until the call returns.
        unsafe { items(self.0.cast(), len) }
    }
}

/// A buffer to be written, or NULL with a length of 0. Only C creates one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Buffer(*mut c_void);

impl Buffer {
    /// `len` bytes; `None` for NULL with a length, and for a length beyond any memory.
    pub(crate) fn of(&mut self, len: usize) -> Option<&mut [u8]> {
        if len == 0 {
            return Some(&mut []);
        }
        if self.0.is_null() || isize::try_from(len).is_err() {
            return None;
        }
        // SAFETY: it is not NULL, and C promises `len` bytes that are accessed only here until the
        // call returns. The bytes have some value, whichever it is.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) })
    }
}
