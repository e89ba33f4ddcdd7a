//! `ln`: makes symbolic links and further names of files.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::json;
use stetfs::Volume;

use super::args::LnArgs;
use super::place::Place;
use super::target::{Target, Wanted, check_slash, name_id, one_file};
use super::troubles::Troubles;
use super::volumes::{Use, Volumes, same_image};
use crate::failure::{Code, Failure, Result};

/// Runs `stetfs ln`.
pub(super) fn run(args: &LnArgs, json: bool) -> Result<Code> {
    let usage = "stetfs ln -s TARGET IMAGE:/LINK";
    let place = |word: &OsString| Place::from(word.as_os_str());
    let (from, to) = args.dest.split(&args.words, place, "link", usage)?;
    let (image, dest) = to.inside()?;
    let targets = from.iter().map(|word| target(args, image, word));
    let targets = targets.collect::<Result<Vec<PathBuf>>>()?;
    let mut volumes = Volumes::default();
    let volume = volumes.get(image, Use::Write, &args.opening)?;
    let mut troubles = Troubles::default();
    let mut count = 0_u64;
    let done = link_all(args, &volume, &targets, dest, &mut troubles);
    drop(volume);
    let done = done.map(|made| count = made);
    volumes.close(done)?;
    if json {
        outln!("{}", json!({ "made": count, "errors": troubles.to_json() }));
    }
    troubles.end("linked", json)
}

/// The target of a link, as a path in the volume of `image` or as the text of a symbolic link.
fn target(args: &LnArgs, image: &Path, word: &OsStr) -> Result<PathBuf> {
    match Place::from(word) {
        Place::Inside { image: of, path } if same_image(image, &of) => Ok(path),
        Place::Host(text) if args.symbolic => Ok(text),
        Place::Host(path) | Place::Inside { image: path, .. } => {
            let message = format!("{} is not in the volume of the link", path.display());
            Err(Failure::new(Code::Usage, message).hint(
                "a further name is one of a file in the same volume: stetfs ln IMAGE:/FILE \
                 IMAGE:/NAME; a symbolic link leads to any path: stetfs ln -s PATH IMAGE:/LINK",
            ))
        }
    }
}

/// Makes the links; returns how many were made.
fn link_all(
    args: &LnArgs,
    volume: &Volume,
    targets: &[PathBuf],
    dest: &Path,
    troubles: &mut Troubles,
) -> Result<u64> {
    let wanted = args.dest.wanted(match args.no_dereference {
        true => Wanted::NoLink,
        false => Wanted::Either,
    });
    let place = Target::of(volume, dest, wanted, targets.len())?;
    let mut made: Vec<PathBuf> = Vec::new();
    for target in targets {
        let done = place.path_of(target).and_then(|link| {
            if made.contains(&link) {
                let message = format!("{} was made just now, and stays", link.display());
                return Err(Failure::new(Code::Usage, message));
            }
            one(args, volume, target, &link).map(|()| made.push(link))
        });
        match targets.len() {
            1 => done?,
            _ => drop(troubles.pass(done)?),
        }
    }
    Ok(made.len() as u64)
}

fn one(args: &LnArgs, volume: &Volume, target: &Path, link: &Path) -> Result {
    check_slash(link)?;
    // A file that cannot be linked is found before an existing file gives way.
    let source = match args.symbolic {
        true => None,
        false => Some(volume.symlink_metadata(target)?),
    };
    let there = volume.symlink_metadata(link).ok();
    if let (true, Some(there)) = (args.force, &there) {
        let is_same = source
            .as_ref()
            .is_some_and(|source| source.ino() == there.ino());
        if is_same && name_id(volume, target) == name_id(volume, link) {
            return Err(one_file(target, link));
        }
        if source.as_ref().is_some_and(|source| source.is_dir()) {
            return Ok(volume.hard_link(target, link)?);
        }
        volume.remove_file(link)?;
    }
    match args.symbolic {
        true => Ok(volume.symlink(target, link)?),
        false => Ok(volume.hard_link(target, link)?),
    }
}
