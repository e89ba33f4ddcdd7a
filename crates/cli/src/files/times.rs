//! `touch` and `truncate`.

use std::fs;
use std::time::SystemTime;

use stetfs::{Error, File, SetMetadata, Volume};

use super::args::{Opening, TouchArgs, TruncateArgs};
use super::failed::host;
use super::place::Place;
use super::volumes::{Use, change_each, open};
use crate::failure::{Code, Failure, Result};

/// The attributes of a file that is a reference.
struct Reference {
    accessed: SystemTime,
    modified: SystemTime,
    /// Bytes.
    size: u64,
}

impl Reference {
    /// Looks at a file of the host, or of a volume; `keeps_link` at a symbolic link itself.
    fn of(place: &Place, keeps_link: bool, opening: &Opening) -> Result<Reference> {
        match place {
            Place::Host(path) => {
                let found = match keeps_link {
                    true => fs::symlink_metadata(path),
                    false => fs::metadata(path),
                };
                let failed = |e| host("look at", path, e);
                let found = found.map_err(failed)?;
                Ok(Reference {
                    accessed: found.accessed().map_err(failed)?,
                    modified: found.modified().map_err(failed)?,
                    size: found.len(),
                })
            }
            Place::Inside { image, path } => {
                let volume = open(image, Use::Read, opening)?;
                let found = match keeps_link {
                    true => volume.symlink_metadata(path),
                    false => volume.metadata(path),
                };
                let found = found.map(|m| Reference {
                    accessed: m.accessed(),
                    modified: m.modified(),
                    size: m.len(),
                });
                let closed = volume.close();
                let found = found?;
                closed?;
                Ok(found)
            }
        }
    }
}

fn is_missing(e: &Error) -> bool {
    e.raw_os_error() == Some(libc::ENOENT)
}

/// Runs `stetfs touch`.
pub(super) fn touch(args: &TouchArgs, json: bool) -> Result<Code> {
    let (accessed, modified) = match (&args.reference, args.date.or(args.stamp)) {
        (Some(place), _) => {
            let found = Reference::of(place, args.no_dereference, &args.inside.opening)?;
            (found.accessed, found.modified)
        }
        (None, Some(time)) => (time, time),
        (None, None) => {
            let now = SystemTime::now();
            (now, now)
        }
    };
    let mut set = SetMetadata::new();
    if args.access || !args.modification {
        set.accessed(accessed);
    }
    if args.modification || !args.access {
        set.modified(modified);
    }
    change_each(&args.inside, "touched", json, |volume, path, _| {
        if args.no_dereference {
            return match volume.set_symlink_metadata(path, &set) {
                Err(e) if is_missing(&e) && args.no_create => Ok(()),
                done => Ok(done?),
            };
        }
        match volume.set_metadata(path, &set) {
            Err(e) if is_missing(&e) && args.no_create => Ok(()),
            Err(e) if is_missing(&e) => {
                let file = File::options()
                    .write(true)
                    .create(true)
                    .open(volume, path)?;
                Ok(file.set_metadata(&set)?)
            }
            done => Ok(done?),
        }
    })
}

/// Runs `stetfs truncate`.
pub(super) fn truncate(args: &TruncateArgs, json: bool) -> Result<Code> {
    let reference = match &args.reference {
        Some(place) => Some(Reference::of(place, false, &args.inside.opening)?.size),
        None => None,
    };
    if let (Some(_), Some(size)) = (reference, args.size)
        && !size.is_relative()
    {
        let message = "with --reference, --size must be relative, such as +4096";
        return Err(Failure::new(Code::Usage, message));
    }
    change_each(&args.inside, "resized", json, |volume, path, _| {
        let Some(file) = existing(args, volume, path)? else {
            return Ok(());
        };
        let of = reference.map_or_else(|| file.metadata().map(|m| m.len()), Ok)?;
        let size = args.size.map_or(Some(of), |change| change.apply(of));
        let Some(size) = size else {
            let message = format!("the new size of {} is too large", path.display());
            return Err(Failure::new(Code::Usage, message));
        };
        Ok(file.set_len(size)?)
    })
}

/// The file, which is made if it does not exist; `None` with `-c`.
fn existing(args: &TruncateArgs, volume: &Volume, path: &std::path::Path) -> Result<Option<File>> {
    let mut options = File::options();
    options.write(true).create(!args.no_create);
    match options.open(volume, path) {
        Err(e) if is_missing(&e) && args.no_create => Ok(None),
        file => Ok(Some(file?)),
    }
}
