//! The C functions on groups: files that change all at once.
//!
//! A handle stays valid after its group ended, so that later calls get an error, until it is
//! closed.

use std::ffi::c_int;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use stetfs::{AtomicFile, AtomicGroup};

use crate::answer::{Failed, Result, counted, done, given};
use crate::border::{Buffer, Bytes, Text, Texts};
use crate::volume::Volume;

const FAILED: &str = "to be committed, which failed";

enum State {
    Open(AtomicGroup),
    /// The group ended; the text says how.
    Ended(&'static str),
}

/// A group of files that change all at once. Several threads can use it, one after the other.
pub struct Group(Mutex<State>);

impl Group {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.0.lock().map_err(|_| {
            Failed::broken(
                "a call with this group met a defect of StetFS: all that is left is to close it",
            )
        })?;
        act(&mut state)
    }

    /// Runs `act` on a group that has not ended.
    fn open<T>(&self, act: impl FnOnce(&AtomicGroup) -> Result<T>) -> Result<T> {
        self.with(|state| match state {
            State::Open(group) => act(group),
            State::Ended(how) => Err(ended(how)),
        })
    }

    /// Ends the group: the volume no longer has it, whatever the result of `act`.
    fn end(
        &self,
        how: &'static str,
        act: impl FnOnce(AtomicGroup) -> stetfs::Result<()>,
    ) -> Result {
        self.with(|state| {
            if let State::Ended(before) = state {
                return Err(ended(before));
            }
            let State::Open(group) = std::mem::replace(state, State::Ended(how)) else {
                return Ok(());
            };
            let done = act(group);
            if done.is_err() {
                *state = State::Ended(FAILED);
            }
            Ok(done?)
        })
    }
}

fn ended(how: &str) -> Failed {
    Failed::argument(format!("the atomic group has ended: it was {how}"))
}

/// Runs `act` on a file of a group.
fn in_group<T>(
    group: Option<&Group>,
    path: &Text,
    act: impl FnOnce(AtomicFile<'_>) -> Result<T>,
) -> Result<T> {
    let group = given(group, "group")?;
    let path = given(path.path(), "path")?;
    group.open(|group| act(group.file(path)?))
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Begins a group of the files at `count` paths, into `group`.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_open(
    volume: Option<&Volume>,
    paths: Texts,
    count: usize,
    group: Option<&mut *mut Group>,
) -> c_int {
    done(|| {
        let place = given(group, "group")?;
        let volume = given(volume, "volume")?;
        let texts = given(paths.of(count), "paths")?.iter();
        let paths: Result<Vec<&Path>> = texts.map(|text| given(text.path(), "a path")).collect();
        let begun = volume.0.atomic_group(paths?)?;
        let handle = Group(Mutex::new(State::Open(begun)));
        *place = Box::into_raw(Box::new(handle));
        Ok(())
    })
}

/// Aborts the group that contains a file, whichever handle or process holds it.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_break(volume: Option<&Volume>, path: Text) -> c_int {
    done(|| {
        let volume = given(volume, "volume")?;
        Ok(volume.0.abort_atomic_group(given(path.path(), "path")?)?)
    })
}

/// Reads up to `len` bytes at `offset` of a file, with the changes of the group; 0 at its end.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_pread(
    group: Option<&Group>,
    path: Text,
    mut buffer: Buffer,
    len: usize,
    offset: u64,
) -> i64 {
    counted(|| {
        let room = given(buffer.of(len), "buffer")?;
        in_group(group, &path, |file| {
            Ok(count(file.read_at(room, offset)? as u64))
        })
    })
}

/// Writes `len` bytes at `offset` of a file; after an error the group may contain the first of
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_pwrite(
    group: Option<&Group>,
    path: Text,
    bytes: Bytes,
    len: usize,
    offset: u64,
) -> i64 {
    counted(|| {
        let bytes = given(bytes.of(len), "bytes")?;
        in_group(group, &path, |file| {
            file.write_all_at(bytes, offset)?;
            Ok(count(bytes.len() as u64))
        })
    })
}

/// Truncates or extends a file.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_truncate(group: Option<&Group>, path: Text, size: u64) -> c_int {
    done(|| in_group(group, &path, |file| Ok(file.set_len(size)?)))
}

/// Zeroes `len` bytes at `offset` of a file, up to its end.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_zero(
    group: Option<&Group>,
    path: Text,
    offset: u64,
    len: u64,
) -> c_int {
    done(|| {
        in_group(group, &path, |file| {
            Ok(file.zero(offset..offset.saturating_add(len))?)
        })
    })
}

/// Size of a file with the changes of the group, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_size(group: Option<&Group>, path: Text) -> i64 {
    counted(|| in_group(group, &path, |file| Ok(count(file.len()?))))
}

/// Bytes of block contents that the group can hold if all blocks are allocated already.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_limit(group: Option<&Group>) -> i64 {
    counted(|| given(group, "group")?.open(|group| Ok(count(group.limit()))))
}

/// Commits all changes at once, and makes them durable. The group ends.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_commit(group: Option<&Group>) -> c_int {
    done(|| given(group, "group")?.end("committed", AtomicGroup::commit))
}

/// Discards all changes. The group ends.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_abort(group: Option<&Group>) -> c_int {
    done(|| {
        given(group, "group")?.end("aborted", |group| {
            group.abort();
            Ok(())
        })
    })
}

/// Closes a group. One that has not ended is aborted.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_group_close(group: Option<Box<Group>>) -> c_int {
    done(|| {
        drop(group);
        Ok(())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_testkit::{Image, Mkfs};

    use super::*;
    use crate::answer;

    #[test]
    fn after_a_panic_a_group_can_be_closed_and_nothing_else() {
        let group = Group(Mutex::new(State::Ended("committed")));
        let panics = || done(|| group.with(|_| panic!("a defect")));
        assert_eq!(panics(), -libc::ENOTRECOVERABLE);
        assert_eq!(stetfs_group_commit(Some(&group)), -libc::ENOTRECOVERABLE);
        assert_eq!(stetfs_group_close(Some(Box::new(group))), 0);
    }

    #[test]
    fn a_commit_that_failed_has_ended_the_group() {
        let image = Image::make(16 << 20, &Mkfs::blocks(4096)).unwrap();
        let mut options = stetfs::MountOptions::new();
        let volume = stetfs::Volume::open(image.path(), options.journal("data")).unwrap();
        volume.write("/f", "old").unwrap();
        let group = volume.atomic_group(["/f"]).unwrap();
        let group = Group(Mutex::new(State::Open(group)));
        let fails = |group: AtomicGroup| {
            group.abort();
            volume.open_file("/none").map(drop)
        };
        assert_eq!(done(|| group.end("committed", fails)), -libc::ENOENT);
        assert_eq!(stetfs_group_limit(Some(&group)), -i64::from(libc::EINVAL));
        let said = answer::last();
        assert!(said.ends_with(FAILED), "{said}");
    }
}
