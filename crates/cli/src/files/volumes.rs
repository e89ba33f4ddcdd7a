//! The volumes that a command has open, each opened once.

use std::path::{Path, PathBuf};

use serde_json::json;
use stetfs::{MountOptions, Volume};

use super::args::{InsideArgs, Opening};
use super::troubles::Troubles;
use crate::failure::{Code, Result};
use crate::options;

/// The use of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// For reading.
    Read,
    /// For changes.
    Write,
}

/// Opens the volume of `image`.
///
/// # Errors
/// The errors of [`Volume::open`]; invalid options.
pub(super) fn open(image: &Path, how: Use, opening: &Opening) -> Result<Volume> {
    let mut said = options::of_volume(image, &opening.options.join(","))?;
    said.request.fs.read_only |= how == Use::Read;
    if said.request.fs.epoch.is_none() {
        said.request.fs.epoch = options::epoch_of_environment()?;
    }
    for warning in said.warnings()? {
        tracing::warn!("{warning}");
    }
    Ok(Volume::open(image, &MountOptions::from(said.volume()?))?)
}

/// The name by which an image is known, whatever path leads to it.
fn name_of(image: &Path) -> PathBuf {
    image.canonicalize().unwrap_or_else(|_| image.to_owned())
}

/// Whether two paths name one image.
pub(super) fn same_image(a: &Path, b: &Path) -> bool {
    name_of(a) == name_of(b)
}

/// Volumes that a command has open, each once.
#[derive(Default)]
pub(super) struct Volumes(Vec<(PathBuf, Volume)>);

impl Volumes {
    /// The volume of `image`, opened at the first call.
    pub(super) fn get(&mut self, image: &Path, how: Use, opening: &Opening) -> Result<Volume> {
        let name = name_of(image);
        if let Some((_, volume)) = self.0.iter().find(|(open, _)| *open == name) {
            return Ok(volume.clone());
        }
        let volume = open(image, how, opening)?;
        self.0.push((name, volume.clone()));
        Ok(volume)
    }

    /// Closes all volumes, also after an error.
    ///
    /// # Errors
    /// The error of `done`, else the first error of closing.
    pub(super) fn close(self, done: Result) -> Result {
        let closed = self.0.into_iter().map(|(_, volume)| volume.close());
        let closed: Vec<_> = closed.collect();
        done?;
        for result in closed {
            result?;
        }
        Ok(())
    }
}

/// Calls `op` for each place in turn, then closes the volumes. The first error ends it.
///
/// # Errors
/// The errors of opening and closing volumes, and of `op`.
pub(super) fn each(
    args: &InsideArgs,
    how: Use,
    mut op: impl FnMut(&Volume, &Path) -> Result,
) -> Result {
    let mut volumes = Volumes::default();
    let done = args.places.iter().try_for_each(|place| {
        let (image, path) = place.inside()?;
        op(&volumes.get(image, how, &args.opening)?, path)
    });
    volumes.close(done)
}

/// Changes each place in turn, and goes on after errors, as the commands of coreutils do. `done` is
/// the verb for messages, such as "removed"; with `json` the output states the number of places
/// without an error.
///
/// # Errors
/// A volume cannot be opened or closed; an error of `op`, where there is one place; else errors are
/// told, and the last message counts them.
pub(super) fn change_each(
    args: &InsideArgs,
    done: &str,
    json: bool,
    mut op: impl FnMut(&Volume, &Path, &mut Troubles) -> Result,
) -> Result<Code> {
    let mut troubles = Troubles::default();
    let mut count = 0_u64;
    each(args, Use::Write, |volume, path| {
        let before = troubles.count();
        let result = op(volume, path, &mut troubles);
        match args.places.len() {
            1 => result?,
            _ => drop(troubles.pass(result)?),
        }
        count += u64::from(troubles.count() == before);
        Ok(())
    })?;
    if json {
        outln!("{}", json!({ done: count, "errors": troubles.to_json() }));
    }
    troubles.end(done, json)
}
