//! One vectored request to the kernel, and its progress.
//!
//! A request keeps raw pointers, so that requests into slices of different lifetimes can be in one
//! list; the borrow `'r` keeps their memory alive and unshared.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::ptr;

use libc::{c_int, iovec};

/// The kernel's limit of segments in one request (UIO_MAXIOV).
const MAX_SEGMENTS: usize = 1024;
/// Maximum number of repetitions of a request that the kernel wants repeated (EAGAIN).
const MAX_RETRIES: u32 = 1000;

/// A read or write of slices that are adjacent in the file.
pub(super) struct Request<'r> {
    /// `count` segments, alive and borrowed for `'r`; IoSlice and IoSliceMut have the layout of
    /// iovec.
    segments: *const iovec,
    count: usize,
    offset: u64,
    len: usize,
    write: bool,
    durable: bool,
    done: usize,
    error: Option<io::Error>,
    borrow: PhantomData<&'r mut [u8]>,
}

impl<'r> Request<'r> {
    /// A read into `slices`.
    pub(super) fn read(offset: u64, slices: &'r mut [IoSliceMut<'_>]) -> Self {
        Request {
            len: slices.iter().map(|s| s.len()).sum(),
            segments: slices.as_mut_ptr().cast(),
            count: slices.len(),
            offset,
            write: false,
            durable: false,
            done: 0,
            error: None,
            borrow: PhantomData,
        }
    }

    /// A write of `slices`, durable on return if `durable`.
    pub(super) fn write(offset: u64, slices: &'r [IoSlice<'_>], durable: bool) -> Self {
        Request {
            len: slices.iter().map(|s| s.len()).sum(),
            segments: slices.as_ptr().cast(),
            count: slices.len(),
            offset,
            write: true,
            durable,
            done: 0,
            error: None,
            borrow: PhantomData,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(super) fn is_write(&self) -> bool {
        self.write
    }

    /// Flags for preadv2, pwritev2 and io_uring.
    pub(super) fn flags(&self) -> c_int {
        if self.durable { libc::RWF_DSYNC } else { 0 }
    }

    /// The segments for one call. Valid for `'r`, even if the request moves.
    pub(super) fn segments(&self) -> (*const iovec, u32) {
        (self.segments, self.count.min(MAX_SEGMENTS) as u32)
    }

    /// Records the kernel's answer: bytes moved, or a negative errno. [`finish`](Self::finish) does
    /// the rest.
    pub(super) fn complete(&mut self, answer: i32) {
        match usize::try_from(answer) {
            Ok(n) => self.done = n.min(self.len),
            // This errno concerns io_uring, not the data: `finish` repeats the request without it.
            Err(_)
                if matches!(
                    -answer,
                    libc::EAGAIN | libc::EINTR | libc::EINVAL | libc::EOPNOTSUPP
                ) => {}
            Err(_) => self.error = Some(io::Error::from_raw_os_error(-answer)),
        }
    }

    /// Runs the request with system calls.
    pub(super) fn run(&mut self, file: &File) {
        let mut retries = 0;
        while self.done < self.len && self.error.is_none() {
            let moved = self.call(file);
            if moved > 0 {
                self.done += moved as usize;
                continue;
            }
            let error = match moved {
                0 if self.write => io::ErrorKind::WriteZero.into(),
                0 => io::ErrorKind::UnexpectedEof.into(),
                _ => io::Error::last_os_error(),
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) if retries < MAX_RETRIES => {
                    retries += 1;
                    std::thread::yield_now();
                }
                _ => self.error = Some(error),
            }
        }
    }

    /// Completes the rest of the request, and returns its result.
    pub(super) fn finish(&mut self, file: &File) -> io::Result<()> {
        self.run(file);
        self.error.take().map_or(Ok(()), Err)
    }

    /// Makes one system call for the rest.
    fn call(&self, file: &File) -> isize {
        let rest;
        let (segments, count) = if self.done == 0 {
            self.segments()
        } else {
            rest = self.rest();
            (rest.as_ptr(), rest.len().min(MAX_SEGMENTS) as u32)
        };
        let (fd, count) = (file.as_raw_fd(), count as c_int);
        let offset = (self.offset + self.done as u64) as libc::off_t;
        // SAFETY: `count` segments name memory that is alive and, for a read, exclusively borrowed
        // for 'r.
        unsafe {
            match (self.write, self.durable) {
                (false, _) => libc::preadv(fd, segments, count, offset),
                (true, false) => libc::pwritev(fd, segments, count, offset),
                (true, true) => libc::pwritev2(fd, segments, count, offset, libc::RWF_DSYNC),
            }
        }
    }

    /// The segments behind the first `done` bytes.
    fn rest(&self) -> Vec<iovec> {
        let mut skip = self.done;
        let mut rest = Vec::new();
        for i in 0..self.count {
            // SAFETY: i < count, and the segments are alive for 'r.
            let seg = unsafe { ptr::read(self.segments.add(i)) };
            if skip >= seg.iov_len {
                skip -= seg.iov_len;
                continue;
            }
            rest.push(iovec {
                iov_base: seg.iov_base.cast::<u8>().wrapping_add(skip).cast(),
                iov_len: seg.iov_len - skip,
            });
            skip = 0;
        }
        rest
    }
}
