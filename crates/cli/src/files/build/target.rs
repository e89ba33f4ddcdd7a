//! The file or device that becomes the image. A file gets its name when it is complete: a build
//! that fails, or is interrupted, leaves nothing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use stetfs::low::{DeviceOptions, Direct, FileDevice};

use crate::failure::{Code, Failure, Result};
use crate::files::failed::host;

/// The place of a new image.
pub(super) struct Target {
    /// The name of the image.
    path: PathBuf,
    /// The name of the file that is being made; the device itself.
    work: PathBuf,
    /// The image is a block device, which is written in place.
    pub(super) is_device: bool,
}

impl Target {
    /// The place `path`, where nothing may be unless `force` says so.
    ///
    /// # Errors
    /// Something is there; it is in use; its directory does not exist.
    pub(super) fn new(path: &Path, force: bool) -> Result<Target> {
        let there = match fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            there => Some(there.map_err(|e| host("look at", path, e))?.file_type()),
        };
        let target = |path: &Path, is_device| Target {
            path: path.to_owned(),
            work: if is_device {
                path.to_owned()
            } else {
                beside(path, "")
            },
            is_device,
        };
        match there {
            None => {
                let dir = dir_of(path);
                fs::metadata(dir).map_err(|e| host("find the directory", dir, e))?;
                Ok(target(path, false))
            }
            Some(kind) if kind.is_block_device() => Ok(target(path, true)),
            Some(kind) if !kind.is_file() => {
                let message = format!("{} is neither a file nor a device", path.display());
                Err(Failure::new(Code::Usage, message).hint("give the name of a new file"))
            }
            Some(_) if !force => {
                let message = format!("{} exists", path.display());
                Err(Failure::new(Code::Usage, message)
                    .hint("nothing was changed; replace it with --force, or give another name"))
            }
            Some(_) => {
                // A link stays one: the file that it leads to is replaced.
                let path = path.canonicalize().map_err(|e| host("find", path, e))?;
                let how = DeviceOptions {
                    direct: Direct::Off,
                    ..DeviceOptions::default()
                };
                // An image that is in use is not taken away from its user.
                let _claim = FileDevice::open(&path, how).map_err(|e| Failure::from(&e))?;
                Ok(target(&path, false))
            }
        }
    }

    /// The file to work on.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// The name of another file, for the same image in a smaller size.
    pub(super) fn second(&self) -> PathBuf {
        beside(&self.path, ".fit")
    }

    /// Removes the file of an attempt that failed.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn clear(&self) -> Result {
        match self.is_device {
            true => Ok(()),
            false => remove(&self.work),
        }
    }

    /// The second file takes the place of the first.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn take_second(&self) -> Result {
        fs::rename(self.second(), &self.work).map_err(|e| host("rename", &self.work, e))
    }

    /// Makes the complete image durable, and gives it its name.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn finish(&self) -> Result {
        let file = File::options().write(true).open(&self.work);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(|e| host("sync", &self.work, e))?;
        if self.is_device {
            return Ok(());
        }
        fs::rename(&self.work, &self.path).map_err(|e| host("name", &self.path, e))?;
        let dir = dir_of(&self.path);
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|e| host("sync the directory", dir, e))
    }

    /// Whether the image would be inside the directory `source`, and with it in itself.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn is_inside(&self, source: &Path) -> Result<bool> {
        let real = |path: &Path| path.canonicalize().map_err(|e| host("find", path, e));
        Ok(!self.is_device && real(dir_of(&self.path))?.starts_with(real(source)?))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for path in [&self.work, &self.second()] {
            if !self.is_device
                && let Err(e) = remove(path)
            {
                tracing::warn!("{e}");
            }
        }
    }
}

fn remove(path: &Path) -> Result {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(host("remove", path, e)),
        _ => Ok(()),
    }
}

fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// A hidden name beside `path`, which no other build has.
fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}{more}.part", std::process::id()));
    path.with_file_name(name)
}
