//! The sources of a new image: directories, archives, and images of containers, as layers.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::oci;
use crate::failure::{Code, Failure, Result};
use crate::files::failed::host;
use crate::files::meter::Meter;

/// A source, and its layers from the lowest up.
#[derive(Debug)]
pub(super) struct Source {
    /// The path that was given.
    path: PathBuf,
    kind: &'static str,
    pub(super) layers: Vec<Layer>,
}

/// A layer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// A directory of the host.
    Dir(PathBuf),
    /// A tar archive, which may be packed.
    Archive(PathBuf),
}

impl Source {
    /// Looks what `path` is. The layers of an OCI image are checked against their digests.
    ///
    /// # Errors
    /// It does not exist, or is none of the three; an OCI image is damaged, or is not for
    /// `platform`.
    pub(super) fn open(path: &Path, platform: Option<&str>, meter: &Meter) -> Result<Source> {
        let metadata = path
            .metadata()
            .map_err(|e| host("open the source", path, e))?;
        let path = path.to_owned();
        let (kind, layers) = match () {
            () if metadata.is_dir() && oci::is_layout(&path) => {
                let blobs = oci::layers(&path, platform, meter)?;
                (
                    "oci-layout",
                    blobs.into_iter().map(Layer::Archive).collect(),
                )
            }
            () if metadata.is_dir() => ("directory", vec![Layer::Dir(path.clone())]),
            () if metadata.is_file() => ("archive", vec![Layer::Archive(path.clone())]),
            () => {
                let message = format!("{} is neither a directory nor a file", path.display());
                return Err(Failure::new(Code::Usage, message)
                    .hint("sources are read twice: save the output of a program to a file first"));
            }
        };
        Ok(Source { path, kind, layers })
    }

    /// The directory that is copied, if the source is one.
    pub(super) fn dir(&self) -> Option<&Path> {
        match self.layers.as_slice() {
            [Layer::Dir(path)] => Some(path),
            _ => None,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "path": self.path.display().to_string(),
            "kind": self.kind,
            "layers": self.layers.len(),
        })
    }
}
