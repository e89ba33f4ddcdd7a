//! `mv`: moves files in a volume.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::json;
use stetfs::Volume;

use super::args::MvArgs;
use super::place::{Place, last_name};
use super::target::{Target, Wanted, check_slash, one_file};
use super::troubles::Troubles;
use super::volumes::{Use, Volumes, same_image};
use crate::failure::{Code, Failure, Result};

/// Runs `stetfs mv`.
pub(super) fn run(args: &MvArgs, json: bool) -> Result<Code> {
    let usage = "stetfs mv IMAGE:/FROM IMAGE:/TO";
    let (from, to) = (args.dest).split(&args.places, Place::clone, "target", usage)?;
    let (image, dest) = to.inside()?;
    let from = in_one_volume(image, from)?;
    let mut volumes = Volumes::default();
    let volume = volumes.get(image, Use::Write, &args.opening)?;
    let mut troubles = Troubles::default();
    let mut count = 0;
    let done = move_all(args, &volume, &from, dest, &mut troubles);
    drop(volume);
    let done = done.map(|moved| count = moved);
    volumes.close(done)?;
    if json {
        outln!(
            "{}",
            json!({ "moved": count, "errors": troubles.to_json() })
        );
    }
    troubles.end("moved", json)
}

/// The paths of the sources in the volume of `image`.
fn in_one_volume<'p>(image: &Path, from: &'p [Place]) -> Result<Vec<&'p Path>> {
    let mut paths = Vec::new();
    for place in from {
        match place {
            Place::Inside { image: of, path } if same_image(image, of) => paths.push(&**path),
            Place::Host(path) | Place::Inside { image: path, .. } => {
                let message = format!("{} is not in the volume of the target", path.display());
                return Err(Failure::new(Code::Usage, message).hint(
                    "only names in one volume can move: copy it with stetfs cp -a, then remove it",
                ));
            }
        }
    }
    Ok(paths)
}

/// Moves the sources; returns how many moved.
fn move_all(
    args: &MvArgs,
    volume: &Volume,
    from: &[&Path],
    dest: &Path,
    troubles: &mut Troubles,
) -> Result<u64> {
    let wanted = args.dest.wanted(Wanted::Either);
    let target = Target::of(volume, dest, wanted, from.len())?;
    let mut moved = Moved {
        args,
        volume,
        made: HashSet::new(),
    };
    let mut count = 0;
    for path in from {
        let done = target.path_of(path).and_then(|to| moved.one(path, &to));
        let done = match from.len() {
            1 => Some(done?),
            _ => troubles.pass(done)?,
        };
        count += u64::from(done == Some(true));
    }
    Ok(count)
}

struct Moved<'a> {
    args: &'a MvArgs,
    volume: &'a Volume,
    /// The names that this command has made.
    made: HashSet<PathBuf>,
}

impl Moved<'_> {
    /// Moves a file; returns whether it moved.
    fn one(&mut self, from: &Path, to: &Path) -> Result<bool> {
        let volume = self.volume;
        if last_name(from).is_none() {
            let message = format!("{} cannot be moved", from.display());
            return Err(Failure::new(Code::Usage, message)
                .hint("name the directory itself, or what is in it"));
        }
        let source = volume.symlink_metadata(from)?;
        if !source.is_dir() {
            check_slash(to)?;
        }
        if let Ok(there) = volume.symlink_metadata(to) {
            if self.args.no_clobber {
                return Ok(false);
            }
            if self.args.update && there.modified() >= source.modified() {
                return Ok(false);
            }
            // rename(2) leaves two names of one file as they are, and says nothing.
            if there.ino() == source.ino() {
                return Err(one_file(from, to));
            }
            if self.made.contains(to) {
                let message = format!("{} was moved just now, and stays", to.display());
                return Err(Failure::new(Code::Usage, message)
                    .hint("two sources have this name: move them to two directories"));
            }
        }
        volume.rename(from, to)?;
        self.made.insert(to.to_owned());
        Ok(true)
    }
}
