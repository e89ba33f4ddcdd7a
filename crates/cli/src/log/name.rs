//! The name of the volume in the lines of a log.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// The volume in the lines of this process.
static VOLUME: RwLock<String> = RwLock::new(String::new());

/// Names the volume: by its source, and by its label where that is known and not empty.
pub(crate) fn volume_is(source: &Path, label: &str) {
    let source = source.display();
    let name = match label {
        "" => source.to_string(),
        label => format!("{label} ({source})"),
    };
    *VOLUME.write().unwrap_or_else(PoisonError::into_inner) = name;
}

/// The name of the volume.
pub(super) fn volume() -> String {
    VOLUME
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
