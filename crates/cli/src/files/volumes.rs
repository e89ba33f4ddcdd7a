//! The volumes that are open for a command.

use std::path::{Path, PathBuf};

use stetfs::{MountOptions, Volume};

use super::args::{InsideArgs, Opening};
use crate::failure::Result;
use crate::options;

/// What is done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is looked at.
    Read,
    /// It is changed.
    Write,
}

/// Opens the volume of `image`.
///
/// # Errors
/// Those of [`Volume::open`]; options that make no sense.
pub(super) fn open(image: &Path, how: Use, opening: &Opening) -> Result<Volume> {
    let mut said = options::of_volume(image, &opening.options.join(","))?;
    said.read_only |= how == Use::Read;
    if said.epoch.is_none() {
        said.epoch = options::epoch_of_environment()?;
    }
    for warning in said.warnings()? {
        tracing::warn!("{warning}");
    }
    Ok(Volume::open(image, &MountOptions::from(said.volume()?))?)
}

/// Volumes that a command has open, each once.
#[derive(Default)]
pub(super) struct Volumes(Vec<(PathBuf, Volume)>);

impl Volumes {
    /// The volume of `image`, opened if that was not done before.
    pub(super) fn get(&mut self, image: &Path, how: Use, opening: &Opening) -> Result<Volume> {
        let name = image.canonicalize().unwrap_or_else(|_| image.to_owned());
        if let Some((_, volume)) = self.0.iter().find(|(open, _)| *open == name) {
            return Ok(volume.clone());
        }
        let volume = open(image, how, opening)?;
        self.0.push((name, volume.clone()));
        Ok(volume)
    }

    /// Closes all of them, also after an error.
    ///
    /// # Errors
    /// That of what was done, else the first of closing.
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

/// Does something with each place in turn, in volumes that are closed at the end.
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
