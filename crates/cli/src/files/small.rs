//! `cat`, `mkdir`, `rm` and `rmdir`.

use std::io::{self, Write};
use std::path::Path;

use stetfs::{SetMetadata, Volume};

use super::args::{CatArgs, MkdirArgs, RmArgs, RmdirArgs};
use super::failed::output;
use super::tree::host_umask;
use super::troubles::Troubles;
use super::volumes::{Use, change_each, each};
use crate::failure::{Code, Result};

/// Bytes that are read at a time.
const PART: usize = 1 << 20;

/// Runs `stetfs cat`.
pub(super) fn cat(args: &CatArgs) -> Result<Code> {
    let mut buf = vec![0; PART];
    let mut troubles = Troubles::default();
    each(&args.inside, Use::Read, |volume, path| {
        let done = print(volume, path, &mut buf);
        match args.inside.places.len() {
            1 => done,
            _ => troubles.pass(done).map(drop),
        }
    })?;
    troubles.end("printed", false)
}

fn print(volume: &Volume, path: &Path, buf: &mut [u8]) -> Result {
    let file = volume.open_file(path)?;
    file.check_map()?;
    let mut out = io::stdout().lock();
    let mut at = 0;
    loop {
        let n = file.read_at(buf, at)?;
        let part = buf.get(..n).unwrap_or_default();
        if n == 0 {
            return out.flush().or_else(output);
        }
        if let Err(e) = out.write_all(part) {
            return output(e);
        }
        at += n as u64;
    }
}

/// Runs `stetfs mkdir`.
pub(super) fn mkdir(args: &MkdirArgs, json: bool) -> Result<Code> {
    let umask = host_umask();
    change_each(&args.inside, "made", json, |volume, path, _| {
        if !args.parents {
            return make_dir(args, volume, path, umask);
        }
        // Upwards while directories are missing, and then down again.
        let is_dir = |path: &Path| volume.metadata(path).is_ok_and(|m| m.is_dir());
        let missing = path.ancestors().filter(|path| !path.as_os_str().is_empty());
        let missing: Vec<&Path> = missing.take_while(|path| !is_dir(path)).collect();
        let mut down = missing.into_iter().rev();
        // A path with `..` in it may lead back to one that was made.
        down.try_for_each(|path| match is_dir(path) {
            true => Ok(()),
            false => make_dir(args, volume, path, umask),
        })
    })
}

fn make_dir(args: &MkdirArgs, volume: &Volume, path: &Path, umask: u32) -> Result {
    volume.create_dir(path)?;
    let mut set = SetMetadata::new();
    if let Some((uid, gid)) = args.owner {
        set.owner(uid).group(gid);
    }
    if let Some(mode) = &args.mode {
        // A directory in one with set-group-id has it, too.
        let inherited = volume.symlink_metadata(path)?.mode() & 0o2000;
        set.mode(mode.apply(0o777 | inherited, true, umask));
    }
    Ok(volume.set_symlink_metadata(path, &set)?)
}

/// Runs `stetfs rm`.
pub(super) fn rm(args: &RmArgs, json: bool) -> Result<Code> {
    change_each(&args.inside, "removed", json, |volume, path, _| {
        let removed = match args.recursive {
            true => volume.remove_dir_all(path),
            false => volume.remove_file(path),
        };
        let nothing = [Some(libc::ENOENT), Some(libc::ENOTDIR)];
        match removed {
            Err(e) if args.force && nothing.contains(&e.raw_os_error()) => Ok(()),
            other => Ok(other?),
        }
    })
}

/// Runs `stetfs rmdir`.
pub(super) fn rmdir(args: &RmdirArgs, json: bool) -> Result<Code> {
    change_each(&args.inside, "removed", json, |volume, path, _| {
        let levels = if args.parents { usize::MAX } else { 1 };
        let dirs = path.ancestors().filter(|path| path.file_name().is_some());
        let mut dirs = dirs.take(levels).peekable();
        if dirs.peek().is_none() {
            return Ok(volume.remove_dir(path)?);
        }
        for dir in dirs {
            match volume.remove_dir(dir) {
                Err(e)
                    if args.ignore_fail_on_non_empty
                        && e.raw_os_error() == Some(libc::ENOTEMPTY) =>
                {
                    return Ok(());
                }
                done => done?,
            }
        }
        Ok(())
    })
}
