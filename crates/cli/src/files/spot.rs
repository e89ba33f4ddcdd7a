//! The source and the target of a copy.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::args::CpArgs;
use super::place::{Place, ends_with_slash, last_name, split};
use super::tree::{Host, Inside, Named, Tree, host_umask};
use super::volumes::{Use, Volumes};
use crate::failure::{Code, Failure, Result};

/// The file that an argument names, as a directory and a name in it: symbolic links are followed as
/// far as the user named them, and no further.
pub(super) struct Spot {
    pub(super) tree: Box<dyn Tree>,
    /// The path below the directory; `None` is the directory itself.
    pub(super) path: Option<PathBuf>,
    /// The name that a copy of it gets in a directory.
    pub(super) name: Option<OsString>,
    /// The file at the end of the last symbolic link, if that is followed.
    pub(super) named: Option<Named>,
}

impl Spot {
    /// A source. As with cp(1), a named symbolic link is copied itself with `-r` and `-a`, and
    /// followed otherwise; pipes and devices of the host are copied themselves or read, likewise.
    pub(super) fn source(place: &Place, args: &CpArgs, volumes: &mut Volumes) -> Result<Spot> {
        if *place == Place::Host("-".into()) {
            return Spot::stdin();
        }
        let (is_link_to_dir, named) = match place {
            _ if !args.follows_named() => (false, None),
            Place::Host(path) => {
                let is = |m: std::io::Result<fs::Metadata>| m.map(|m| (m.is_dir(), m.is_symlink()));
                match (is(fs::metadata(path)), is(fs::symlink_metadata(path))) {
                    (Ok((true, _)), Ok((_, is_link))) => (is_link, None),
                    // The source does not exist, which is reported as for any source.
                    (_, Err(_)) => (false, None),
                    // With -a the attributes are those of the target, at its own place.
                    (_, Ok((_, true))) if args.archive => {
                        return Spot::at_target(place, volumes, args);
                    }
                    _ if args.archive => (false, None),
                    _ => (false, Some(Host::named(path)?)),
                }
            }
            Place::Inside { image, path } => {
                let volume = volumes.get(image, Use::Read, &args.opening)?;
                match volume.symlink_metadata(path) {
                    Ok(m) if m.is_symlink() => match volume.metadata(path)?.is_dir() {
                        true => (true, None),
                        false if args.archive => return Spot::at_target(place, volumes, args),
                        false => (false, Some(Inside::named(&volume, path)?)),
                    },
                    _ => (false, None),
                }
            }
        };
        let mut spot = Spot::open(place, Use::Read, is_link_to_dir, args, volumes)?;
        spot.named = named;
        Ok(spot)
    }

    /// Standard input, as a file.
    fn stdin() -> Result<Spot> {
        let mut named = Host::named(Path::new("/dev/stdin"))?;
        // The mode of a pipe means nothing for a file.
        named.item.mode = 0o666 & !host_umask();
        Ok(Spot {
            tree: Box::new(Host::below(Path::new("/dev"))?),
            path: Some("stdin".into()),
            name: None,
            named: Some(named),
        })
    }

    /// The file at the end of a symbolic link, with the name of the link.
    fn at_target(place: &Place, volumes: &mut Volumes, args: &CpArgs) -> Result<Spot> {
        let (Place::Host(path) | Place::Inside { path, .. }) = place;
        let followed = match place {
            Place::Host(path) => Host::followed(path)?,
            Place::Inside { image, path } => {
                Inside::followed(&volumes.get(image, Use::Read, &args.opening)?, path)?
            }
        };
        Ok(Spot {
            tree: followed.tree,
            path: Some(followed.path),
            name: last_name(path).map(OsStr::to_owned),
            named: None,
        })
    }

    /// The target of copies of so many sources.
    pub(super) fn target(
        place: &Place,
        sources: usize,
        args: &CpArgs,
        volumes: &mut Volumes,
    ) -> Result<Spot> {
        let (is_dir, path) = match place {
            Place::Host(path) => (path.is_dir(), path),
            Place::Inside { image, path } => {
                let volume = volumes.get(image, Use::Write, &args.opening)?;
                (volume.metadata(path).is_ok_and(|m| m.is_dir()), path)
            }
        };
        let is_dir = is_dir && !args.dest.no_target_directory;
        let wants_dir =
            sources > 1 || args.dest.target_directory.is_some() || ends_with_slash(path);
        if !is_dir && wants_dir && !(args.dest.no_target_directory && sources == 1) {
            let message = format!("{} is no directory", path.display());
            return Err(Failure::new(Code::Usage, message));
        }
        Spot::open(place, Use::Write, is_dir, args, volumes)
    }

    fn open(
        place: &Place,
        how: Use,
        is_dir: bool,
        args: &CpArgs,
        volumes: &mut Volumes,
    ) -> Result<Spot> {
        let (Place::Host(path) | Place::Inside { path, .. }) = place;
        let (base, below) = match is_dir {
            true => (path.as_path(), None),
            false => split(path),
        };
        let tree: Box<dyn Tree> = match place {
            Place::Host(_) => Box::new(Host::below(base)?),
            Place::Inside { image, .. } => {
                let volume = volumes.get(image, how, &args.opening)?;
                Box::new(Inside::below(&volume, base)?)
            }
        };
        Ok(Spot {
            tree,
            path: below.map(PathBuf::from),
            name: last_name(path).map(OsStr::to_owned),
            named: None,
        })
    }
}
