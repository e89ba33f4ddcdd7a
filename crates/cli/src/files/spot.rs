//! The source of a copy, and its target.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

use super::args::CpArgs;
use super::place::{Place, ends_with_slash, last_name, split};
use super::tree::{Host, Inside, Named, Tree};
use super::volumes::{Use, Volumes};
use crate::failure::{Code, Failure, Result};

/// The file that an argument names: a directory and a name in it, so that symbolic links are
/// followed as far as the user named them, and no further.
pub(super) struct Spot {
    pub(super) tree: Box<dyn Tree>,
    /// Below the directory; `None` is the directory itself.
    pub(super) path: Option<PathBuf>,
    /// The name that a copy of it gets in a directory.
    pub(super) name: Option<OsString>,
    /// The end of the last symbolic link, where that is meant.
    pub(super) named: Option<Named>,
}

impl Spot {
    /// A source. As of cp(1), a symbolic link that is named is one with `-r` and `-a`, and else is
    /// what it leads to; so are the pipes and devices of the host.
    pub(super) fn source(place: &Place, args: &CpArgs, volumes: &mut Volumes) -> Result<Spot> {
        let follows = !args.archive && !args.recursive;
        let (is_link_to_dir, named) = match place {
            _ if !follows => (false, None),
            Place::Host(path) => {
                let is = |m: std::io::Result<fs::Metadata>| m.map(|m| (m.is_dir(), m.is_symlink()));
                match (is(fs::metadata(path)), is(fs::symlink_metadata(path))) {
                    (Ok((true, _)), Ok((_, is_link))) => (is_link, None),
                    // There is nothing, as is told of any source.
                    (_, Err(_)) => (false, None),
                    _ => (false, Some(Host::named(path)?)),
                }
            }
            Place::Inside { image, path } => {
                let volume = volumes.get(image, Use::Read, &args.opening)?;
                match volume.symlink_metadata(path) {
                    Ok(m) if m.is_symlink() => match volume.metadata(path)?.is_dir() {
                        true => (true, None),
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
        if !is_dir && (sources > 1 || ends_with_slash(path)) {
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
