//! `chmod`, `chown` and `chgrp`.

use std::path::Path;

use stetfs::{SetMetadata, Volume};

use super::accounts::{self, Ids};
use super::args::{ChgrpArgs, ChmodArgs, ChownArgs, InsideArgs, OwnerOptions};
use super::below::{Top, each_below};
use super::tree::host_umask;
use super::troubles::Troubles;
use super::volumes::change_each;
use crate::failure::{Code, Result};

/// Runs `stetfs chmod`. As with chmod(1), a symbolic link is followed where it is named, and left
/// alone below.
pub(super) fn chmod(args: &ChmodArgs, json: bool) -> Result<Code> {
    let umask = host_umask();
    change_each(&args.inside, "changed", json, |volume, path, troubles| {
        if !args.recursive {
            let metadata = volume.metadata(path)?;
            let mode = args.mode.apply(metadata.mode(), metadata.is_dir(), umask);
            return Ok(volume.set_metadata(path, SetMetadata::new().mode(mode))?);
        }
        each_below(volume, path, Top::Followed, troubles, &mut |file| {
            let metadata = file.metadata;
            if metadata.is_symlink() {
                return Ok(());
            }
            let mode = args.mode.apply(metadata.mode(), metadata.is_dir(), umask);
            file.dir
                .set_symlink_metadata(file.name, SetMetadata::new().mode(mode))
        })
    })
}

/// Runs `stetfs chown`.
pub(super) fn chown(args: &ChownArgs, json: bool) -> Result<Code> {
    let named = |volume: &Volume| accounts::owner(volume, &args.owner);
    give(&args.options, &args.inside, json, named)
}

/// Runs `stetfs chgrp`.
pub(super) fn chgrp(args: &ChgrpArgs, json: bool) -> Result<Code> {
    let named = |volume: &Volume| accounts::group(volume, &args.group);
    give(&args.options, &args.inside, json, named)
}

fn give(
    options: &OwnerOptions,
    inside: &InsideArgs,
    json: bool,
    named: impl Fn(&Volume) -> Result<Ids>,
) -> Result<Code> {
    change_each(inside, "changed", json, |volume, path, troubles| {
        let set = &to_set(named(volume)?);
        give_one(options, volume, path, set, troubles)
    })
}

fn give_one(
    options: &OwnerOptions,
    volume: &Volume,
    path: &Path,
    set: &SetMetadata,
    troubles: &mut Troubles,
) -> Result {
    match (options.recursive, options.no_dereference) {
        // As with chown(1), -R follows no link, not even a named one.
        (true, _) => each_below(volume, path, Top::Kept, troubles, &mut |file| {
            file.dir.set_symlink_metadata(file.name, set)
        }),
        (false, true) => Ok(volume.set_symlink_metadata(path, set)?),
        (false, false) => Ok(volume.set_metadata(path, set)?),
    }
}

fn to_set(ids: Ids) -> SetMetadata {
    let mut set = SetMetadata::new();
    if let Some(uid) = ids.uid {
        set.owner(uid);
    }
    if let Some(gid) = ids.gid {
        set.group(gid);
    }
    set
}
