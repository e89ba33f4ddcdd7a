//! The C functions on names in a volume.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use stetfs::SetMetadata;

use crate::answer::{Result, counted, done, given};
use crate::border::{Buffer, Text};
use crate::volume::Volume;

fn at<'a>(volume: Option<&'a Volume>, path: &'a Text) -> Result<(&'a stetfs::Volume, &'a Path)> {
    let volume = &given(volume, "volume")?.0;
    Ok((volume, given(path.path(), "path")?))
}

/// Makes a directory; with `parents` also missing parents, and an existing directory is no error.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_mkdir(volume: Option<&Volume>, path: Text, parents: c_int) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        let made = match parents {
            0 => volume.create_dir(path),
            _ => volume.create_dir_all(path),
        };
        Ok(made?)
    })
}

/// Removes a name of a file that is not a directory.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_unlink(volume: Option<&Volume>, path: Text) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        Ok(volume.remove_file(path)?)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_rmdir(volume: Option<&Volume>, path: Text) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        Ok(volume.remove_dir(path)?)
    })
}

/// Renames, as rename(2).
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_rename(volume: Option<&Volume>, from: Text, to: Text) -> c_int {
    done(|| {
        let (volume, from) = at(volume, &from)?;
        Ok(volume.rename(from, given(to.path(), "to")?)?)
    })
}

/// Gives a file another name.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_link(volume: Option<&Volume>, path: Text, name: Text) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        Ok(volume.hard_link(path, given(name.path(), "name")?)?)
    })
}

/// Makes a symbolic link.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_symlink(volume: Option<&Volume>, target: Text, path: Text) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        Ok(volume.symlink(given(target.path(), "target")?, path)?)
    })
}

/// Reads the target of a symbolic link: as many bytes as fit, without a NUL. Returns its full
/// length.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_readlink(
    volume: Option<&Volume>,
    path: Text,
    mut buffer: Buffer,
    size: usize,
) -> i64 {
    counted(|| {
        let (volume, path) = at(volume, &path)?;
        let room = given(buffer.of(size), "buffer")?;
        let target = volume.read_link(path)?;
        let target = target.as_os_str().as_bytes();
        for (to, from) in room.iter_mut().zip(target) {
            *to = *from;
        }
        Ok(i64::try_from(target.len()).unwrap_or(i64::MAX))
    })
}

/// Changes permissions.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_chmod(volume: Option<&Volume>, path: Text, mode: u32) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        Ok(volume.set_metadata(path, SetMetadata::new().mode(mode))?)
    })
}

/// Changes the owner; a symbolic link is not followed. `UINT32_MAX` keeps the user or group.
#[unsafe(no_mangle)]
pub extern "C" fn stetfs_lchown(volume: Option<&Volume>, path: Text, uid: u32, gid: u32) -> c_int {
    done(|| {
        let (volume, path) = at(volume, &path)?;
        let mut set = SetMetadata::new();
        if uid != u32::MAX {
            set.owner(uid);
        }
        if gid != u32::MAX {
            set.group(gid);
        }
        Ok(volume.set_symlink_metadata(path, &set)?)
    })
}
