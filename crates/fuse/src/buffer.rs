//! Memory for content on its way, kept by each thread.

use std::cell::RefCell;

thread_local! {
    /// Grows to the longest piece of its thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `len` bytes of whatever content. Not within itself.
pub(crate) fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buf| {
        if buf.len() < len {
            buf.resize(len, 0);
        }
        work(buf.get_mut(..len).unwrap_or_default())
    })
}
