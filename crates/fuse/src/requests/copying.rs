//! The number of bytes that copy_file_range(2) copies per request.

use stetfs::low::FsError;

use crate::api::ops::CopyArgs;

/// Maximum number of bytes per request; the kernel requests the rest again.
const MAX_COPY: u64 = 8 << 20;

/// The number of bytes to copy from a source of `size` bytes. A copy to the same file may extend
/// it: the extension is not copied.
///
/// # Errors
/// EINVAL when the ranges overlap in one file, as the kernel checks, too
/// (`generic_copy_file_checks`).
pub(crate) fn length(args: &CopyArgs, one_file: bool, size: u64) -> Result<usize, FsError> {
    let (from, to) = (args.from_offset, args.to_offset);
    let len = args.len.min(size.saturating_sub(from));
    let meet = to < from.saturating_add(len) && from < to.saturating_add(len);
    if one_file && meet {
        return Err(FsError::Errno(libc::EINVAL));
    }
    Ok(len.min(MAX_COPY) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ops::OpenFile;

    #[test]
    fn no_more_is_copied_than_was_there() {
        let length = |from_offset, to_offset, len, one_file, size| {
            let file = OpenFile { ino: 12, fh: None };
            let args = CopyArgs {
                from: file,
                from_offset,
                to: file,
                to_offset,
                len,
            };
            super::length(&args, one_file, size).map_err(|e| e.errno())
        };
        // Five bytes before the end, to the end: without the limit by size each copied part would
        // be copied again.
        assert_eq!(length(95, 100, u64::MAX, true, 100), Ok(5));
        assert_eq!(length(95, 99, u64::MAX, true, 100), Err(libc::EINVAL));
        assert_eq!(length(95, 91, u64::MAX, true, 100), Err(libc::EINVAL));
        assert_eq!(length(95, 90, u64::MAX, true, 100), Ok(5));
        assert_eq!(length(95, 95, 10, false, 100), Ok(5));
        assert_eq!(length(100, 90, 20, true, 100), Ok(0));
        assert_eq!(length(u64::MAX, 0, u64::MAX, true, 100), Ok(0));
        assert_eq!(length(0, 1 << 40, 1 << 30, true, 1 << 40), Ok(8 << 20));
    }
}
