//! Writes through a shared mapping, for workloads on mounts.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of the mapping: one or several pages.
const PAGE: u64 = 65_536;

/// Writes `data` at `offset` through a mapping that is removed before the return. The kernel
/// chooses when the bytes reach the file system, until the file is synced. The range must lie
/// within the file and within one unit of 4096 bytes.
///
/// # Errors
/// The file cannot be mapped.
pub(super) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let start = offset / PAGE * PAGE;
    let skip = (offset - start) as usize;
    if file.metadata()?.len() < offset + data.len() as u64 || skip + data.len() > PAGE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a new mapping at a place that the kernel chooses touches no memory of this program.
    let map = unsafe {
        mmap(
            null_mut(),
            PAGE as usize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            start,
        )?
    };
    // SAFETY: the bytes lie within the mapping, which nobody else knows, and within the file, whose
    // pages are there: nobody truncates it meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), map.cast::<u8>().add(skip), data.len()) };
    // SAFETY: the mapping made above, not used any more.
    unsafe { munmap(map, PAGE as usize)? };
    Ok(())
}
